#pragma once

/// What must hold of one copy worker, whatever any other implementation says. The rules are those
/// of contract/worker/worker.h, turned into statements about observations.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "contract/worker/worker_target.h"
#include "properties/core/divergence.h"

namespace kvfence::worker {

/// Every invariant: what the command line and the documentation list.
inline constexpr std::array<Invariant, 9> kInvariants = {{
    {"worker.1", "nothing_races", "accesses to the same bytes, one a write, are ordered"},
    {"worker.2", "nothing_is_misused", "no call is made that the runtime's documentation forbids"},
    {"worker.3", "only_pages_are_written", "bytes outside of pages keep what they held"},
    {"worker.4", "a_page_has_one_writer",
     "a transfer that is taken has a page for each block, writes each once, and touches no GPU "
     "block of a transfer of the other direction"},
    {"worker.5", "each_transfer_is_reported_once",
     "a report names a transfer of that direction which was taken and not reported"},
    {"worker.6", "transfers_add_up",
     "each transfer that was taken is deferred or in flight until it is reported"},
    {"worker.7", "pages_hold_what_was_written",
     "a page holds nothing, or all of one block as one forward wrote it, unless a transfer has "
     "failed in part"},
    {"worker.8", "what_succeeded_arrived",
     "when a transfer is reported as a success, its destinations hold what its sources do, on "
     "every rank"},
    {"worker.9", "failures_are_those_of_faults",
     "while no device is lost, no more transfers fail than have met a fault, and as many once all "
     "are reported"},
}};

/// Watches one implementation. A value: copyable.
class Invariants {
 public:
  static constexpr auto& kRules = kInvariants;

  explicit Invariants(const Options& options) : options_(options) {}

  /// Holds one observation against every invariant; the first that is broken, or nothing.
  /// Called after every command of a run, until one is broken.
  std::optional<Divergence> check(const Command& command, const Observation& observation,
                                  const World& world, std::size_t step);

 private:
  using Found = std::optional<Divergence>;

  Found check_all(const Command& command, const Observation& observation);
  Found check_writes(const Transfer& transfer) const;
  void take_in(const Command& command);
  void take_in_fault(const std::string& next_fault);
  Found check_pages(const std::vector<Page>& pages, std::string_view member) const;
  Found check_reports(const Observation& observation);
  Found check_arrival(const Transfer& transfer, const Observation& observation) const;

  Options options_;
  std::vector<Transfer> jobs_;                      ///< taken, not reported, in order
  std::vector<std::vector<std::uint32_t>> writes_;  ///< of each forward
  std::string next_fault_ = "none";
  bool may_be_torn_ = false;
  bool may_be_lost_ = false;
  std::uint32_t num_faults_met_ = 0;
  std::uint32_t num_failed_ = 0;
};

}  // namespace kvfence::worker
