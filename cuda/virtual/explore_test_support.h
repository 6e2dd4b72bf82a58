#pragma once

/// The exhaustive scheduler: every order in which a device can do a small program's work.
///
/// The program runs once per order, on a fresh device, from its start. Nothing is saved and
/// restored, so every deterministic program can be explored.

#include <cstdint>
#include <functional>

#include "cuda/virtual/device.h"

namespace kvfence::virtual_device {

struct Exploration {
  std::uint64_t num_orders = 0;     ///< runs that differ in the order of steps and calls
  std::uint64_t num_redundant = 0;  ///< runs cut short as equal to another (sleep sets)
  bool is_complete = false;         ///< false: `runs_max` ended it, with orders left
};

struct ExploreOptions {
  Options device;                    ///< schedule and chooser are set here
  std::uint64_t runs_max = 100'000;  ///< redundant ones are runs too
  /// Leaves out orders that differ from a visited one only in the order of steps that share no byte
  /// (sleep sets, Godefroid 1996). A call of the program counts as sharing bytes with every step.
  bool prunes = false;
};

/// `program` runs with the device installed. When it returns, the rest of its work runs, also in
/// every order. Then `at_end`, if any, is called for orders that are not redundant.
/// Requires: the program depends on nothing but the device.
Exploration explore(const ExploreOptions& options, const std::function<void(Device&)>& program,
                    const std::function<void(Device&)>& at_end = {});

}  // namespace kvfence::virtual_device
