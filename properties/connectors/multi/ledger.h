#pragma once

/// What a list of commands adds up to in a MultiConnector over scripted children: who was chosen,
/// how many notices each rank still owes, what waits between the halves. The invariants hold an
/// implementation's observations against it.

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "contract/connectors/multi/multi_connector_target.h"
#include "contract/core/rules.h"

namespace kvfence::multi_connector {

/// A value: copyable. Cost of each call: what the command names times all that is there.
class Ledger {
 public:
  /// Requires: a configuration that was validated.
  explicit Ledger(const Config& config);

  /// Takes in a command; the whole observation that is owed for it.
  Observation apply(const Command& command);

 private:
  using Requests = std::set<std::string>;

  /// What the metadata of a step hold.
  struct Step {
    std::vector<std::string> metadata;
    std::vector<Extra> extra;
  };

  /// What a rank reports of a step.
  struct Report {
    Requests sending;
    Requests recving;
    std::set<BlockId> invalid;
    std::vector<ClassStats> stats;
    std::vector<ChildMeta> meta;  ///< empty: nobody has any
  };

  struct RankBooks {
    std::deque<Step> waiting;
    bool in_step = false;
    std::deque<Report> reports;
    /// Notices to come before a request is sent, the last one aside.
    std::map<std::string, std::uint32_t> owed;
  };

  std::size_t num_children() const { return config_.children.size(); }
  bool takes_all_groups() const;
  /// As many groups as there are.
  BlocksByGroup groups_of(const BlockLists& blocks) const;
  ChildCall& call(std::string_view method, std::size_t child, Observation& expected) const;
  /// Of an operation that every child is told of.
  void tell_all(std::string_view method, std::optional<std::uint32_t> rank,
                const std::string& layer, Observation& expected) const;
  void show_state(Observation& expected) const;
  static void show_report(const Report& report, Observation& expected);
  Requests reported_by_all(Requests Report::*list, const std::vector<Report>& reports,
                           std::map<std::string, std::uint32_t>& num_reports) const;

  // One for each operation: what refuses it.
  ErrorCode refusal(const OnNewRequest& command) const;
  ErrorCode refusal(const GetNumNewMatchedTokens& command) const;
  ErrorCode refusal(const UpdateStateAfterAlloc& command) const;
  ErrorCode refusal(const BuildConnectorMeta& command) const;
  ErrorCode refusal(const UpdateConnectorOutput& command) const;
  ErrorCode refusal(const RequestFinished& command) const;
  ErrorCode refusal(const TakeEvents& command) const;
  ErrorCode refusal(const ResetCache& command) const;
  ErrorCode refusal(const HandlePreemptions& command) const;
  ErrorCode refusal(const StartLoadKV& command) const;
  ErrorCode refusal(const WaitForLayerLoad& command) const;
  ErrorCode refusal(const SaveKVLayer& command) const;
  ErrorCode refusal(const GetKVConnectorOutput& command) const;
  ErrorCode refusal_of_beginning(std::uint32_t rank) const;
  ErrorCode refusal_within(std::uint32_t rank) const;

  // One for each operation that is not refused; what a refused request_finished still does, too.
  void run(const OnNewRequest& command, Observation& expected);
  void run(const GetNumNewMatchedTokens& command, Observation& expected);
  void run(const UpdateStateAfterAlloc& command, Observation& expected);
  void run(const BuildConnectorMeta& command, Observation& expected);
  void run(const UpdateConnectorOutput& command, Observation& expected);
  void run(const RequestFinished& command, Observation& expected);
  void run(const TakeEvents& command, Observation& expected);
  void run(const ResetCache& command, Observation& expected);
  void run(const HandlePreemptions& command, Observation& expected);
  void run(const StartLoadKV& command, Observation& expected);
  void run(const WaitForLayerLoad& command, Observation& expected);
  void run(const SaveKVLayer& command, Observation& expected);
  void run(const GetKVConnectorOutput& command, Observation& expected);

  Config config_;
  Rules rules_;
  std::map<std::string, std::uint32_t> chosen_;  ///< request -> place
  std::map<std::string, std::uint32_t> extra_;   ///< that no metadata carry yet
  std::vector<RankBooks> ranks_;
  std::map<std::string, std::uint32_t> num_sent_;      ///< ranks, of those that not all reported
  std::map<std::string, std::uint32_t> num_received_;  ///< the same
};

}  // namespace kvfence::multi_connector
