#pragma once

/// Children of a MultiConnector whose answers are commands and whose calls are observed. They
/// remember nothing: before each call they are told what to answer.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "contract/connectors/multi/multi_connector.h"
#include "contract/connectors/multi/multi_connector_target.h"

namespace kvfence {

/// Worker metadata and statistics that show in which order they were aggregated.
struct ScriptedNumbers {
  std::vector<std::uint32_t> numbers;
  void aggregate(const ScriptedNumbers& other) {
    numbers.insert(numbers.end(), other.numbers.begin(), other.numbers.end());
  }
};

/// The calls on all children of all halves, oldest first.
using ChildCalls = std::vector<multi_connector::ChildCall>;

/// A value, but for the list of calls, which it shares with the other children and with whoever
/// reads it.
class ScriptedChild {
 public:
  using Metadata = std::string;
  using WorkerMetadata = ScriptedNumbers;
  using Event = std::uint32_t;

  /// What is to be answered to the next call.
  struct Answers {
    multi_connector::Match match;
    multi_connector::Finish finish;
    std::string metadata;
    std::vector<Event> events;
    std::optional<bool> reset_done;
  };

  ScriptedChild(std::uint32_t place, bool supports_hma, std::shared_ptr<ChildCalls> calls);

  Answers& answers() { return answers_; }

  bool supports_hma() const { return supports_hma_; }
  void on_new_request(std::string_view request);
  MatchedTokens get_num_new_matched_tokens(std::string_view request,
                                           std::uint32_t num_computed_tokens);
  void update_state_after_alloc(std::string_view request, const BlocksByGroup& blocks,
                                std::uint32_t num_external_tokens);
  Metadata build_connector_meta();
  void update_connector_output(const AggregatedOutput& output, const WorkerMetadata* metadata);
  FinishedAnswer request_finished(std::string_view request, std::span<const BlockId> blocks);
  FinishedAnswer request_finished_all_groups(std::string_view request, const BlocksByGroup& blocks);
  void take_events(std::vector<Event>& out);
  std::optional<bool> reset_cache();

 private:
  multi_connector::ChildCall& note(std::string_view method, std::string_view request = {});
  FinishedAnswer finished_answer() const;

  std::uint32_t place_;
  bool supports_hma_;
  std::shared_ptr<ChildCalls> calls_;
  Answers answers_;
};

/// As ScriptedChild.
class ScriptedWorkerChild {
 public:
  using Metadata = std::string;
  using WorkerMetadata = ScriptedNumbers;
  using Stats = ScriptedNumbers;

  ScriptedWorkerChild(std::uint32_t place, std::uint32_t rank, std::string connector_class,
                      std::shared_ptr<ChildCalls> calls);

  multi_connector::Output& answers() { return answers_; }

  std::string_view connector_class() const { return connector_class_; }
  void handle_preemptions(const Metadata& metadata);
  void bind_connector_metadata(const Metadata& metadata);
  void start_load_kv();
  void wait_for_layer_load(std::string_view layer);
  void save_kv_layer(std::string_view layer);
  void wait_for_save();
  /// What it is told to answer is taken as a set.
  void get_finished(std::span<const std::string> finished_req_ids, FinishedTransfers& out);
  void get_block_ids_with_load_errors(std::vector<BlockId>& out);
  std::optional<Stats> get_kv_connector_stats();
  std::optional<WorkerMetadata> build_connector_worker_meta();
  void clear_connector_metadata();

 private:
  multi_connector::ChildCall& note(std::string_view method);

  std::uint32_t place_;
  std::uint32_t rank_;
  std::string connector_class_;
  std::shared_ptr<ChildCalls> calls_;
  multi_connector::Output answers_;
};

static_assert(MultiConnectorChild<ScriptedChild>);
static_assert(MultiConnectorWorkerChild<ScriptedWorkerChild>);

}  // namespace kvfence
