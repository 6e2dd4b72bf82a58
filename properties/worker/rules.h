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

struct Invariant {
  std::string_view id;
  std::string_view name;  ///< Divergence::oracle
  std::string_view rule;  ///< Divergence::message
};

/// Every invariant: what the command line and the documentation list.
inline constexpr std::array<Invariant, 11> kInvariants = {{
    {"W1", "nothing_races", "accesses to the same bytes, one a write, are ordered"},
    {"W2", "nothing_is_misused", "no call is made that the runtime's documentation forbids"},
    {"W3", "only_pages_are_written", "bytes outside of pages keep what they held"},
    {"W4", "answers_fit_the_command", "a command answers with exactly what it returns"},
    {"W5", "each_transfer_is_reported_once",
     "a report is of a transfer that was taken and not reported, stores before loads, each in the "
     "order of submission"},
    {"W6", "transfers_are_counted",
     "a store is deferred until the next step or wait for it, and each transfer is in flight until "
     "it is reported"},
    {"W7", "pages_hold_what_was_written",
     "a page holds nothing, or all of one block as one forward wrote it, unless a transfer has "
     "failed in part"},
    {"W8", "what_succeeded_arrived",
     "when a transfer is reported as a success, its destinations hold what its sources do, on "
     "every rank"},
    {"W9", "failures_have_a_cause",
     "as many transfers fail as have met a fault, while no device is lost"},
    {"W10", "bad_transfers_are_refused",
     "a transfer is refused that writes a page twice, or touches a GPU block that one of the other "
     "direction touches"},
    {"W11", "faults_are_failures",
     "a transfer fails that has met a fault, and each that is taken when the loss of a device has "
     "been reported"},
}};

/// Watches one implementation. A value: copyable.
class Invariants {
 public:
  explicit Invariants(const Options& options) : options_(options) {}

  /// For a fresh worker of the same configuration.
  void reset();

  /// Holds one observation against every invariant; the first that is broken, or nothing. Called
  /// after every command since reset. After a divergence only reset() may follow.
  std::optional<Divergence> check(const Command& command, const Observation& observation,
                                  const World& world, std::size_t step);

 private:
  struct Job {
    Transfer transfer;
    bool is_deferred = false;
    bool has_to_fail = false;
    bool loses_device = false;
  };

  std::optional<Divergence> check_all(const Command& command, const Observation& observation);
  std::optional<Divergence> check_presence(const Command& command,
                                           const Observation& observation) const;
  std::optional<Divergence> check_refusal(const Command& command,
                                          const Observation& observation) const;
  void take_in(const Command& command);
  /// The fault that was armed has been met.
  void take_in_fault(const std::vector<Job>& before);
  std::optional<Divergence> check_reports(const Observation& observation);
  std::optional<Divergence> check_pages(const std::vector<Page>& pages,
                                        std::string_view member) const;
  std::optional<Divergence> check_arrival(const Job& job, const Observation& observation) const;
  /// Whether a later transfer, or one that is not over, writes what this one has written.
  bool is_overwritten(const Transfer& transfer) const;
  void start_stores();

  Options options_;
  std::vector<Job> jobs_;                           ///< taken, not reported, in order
  std::vector<std::vector<std::uint32_t>> writes_;  ///< of each forward
  std::string next_fault_ = "none";
  std::uint32_t num_faults_met_ = 0;
  bool may_be_torn_ = false;
  bool may_be_lost_ = false;
  bool is_lost_ = false;  ///< and that has been reported
  std::uint32_t num_failed_ = 0;
};

}  // namespace kvfence::worker
