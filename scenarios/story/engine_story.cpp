#include "scenarios/story/device_story.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "contract/core/joined.h"
#include "contract/core/lists.h"
#include "contract/engine/engine_setup.h"
#include "contract/engine/engine_target.h"
#include "contract/engine/toy_model.h"
#include "properties/engine/rank_progress.h"
#include "scenarios/story/observed_member.h"
#include "scenarios/story/story_recorder.h"
#include "scenarios/story/watched_engine.h"

namespace kvfence {
namespace {

/// Of a step: what it asks of the layers below and gets from them. The pool's story shows what the
/// scheduler decides.
bool engine_reports(std::string_view name, std::string_view text) {
  constexpr std::array<std::string_view, 11> kShown = {
      "error",   "preempted", "requests_to_flush", "jobs_to_flush",    "advanced",      "ended",
      "success", "outputs",   "invalid_blocks",    "finished_recving", "completed_jobs"};
  return text != "[]" && contains(kShown, name);
}

/// The actual and the right output of requests, and the request whose KV a symbol is.
class Tokens {
 public:
  Tokens(std::vector<std::uint32_t> windows, std::uint32_t max_model_len)
      : windows_(std::move(windows)), max_model_len_(max_model_len) {}

  void add(const engine::AddRequest& command) {
    sequences_[command.id] = {command.cache_salt, command.tokens};
    // Its right output, whose KV may exist before the output is reported.
    std::vector<TokenId> tokens = command.tokens;
    for (std::uint32_t number = 0; number < command.max_tokens; ++number) {
      if (tokens.size() >= max_model_len_) break;
      tokens.push_back(toy_model::sample_without_cache(command.cache_salt, tokens, windows_));
    }
    name_symbols(command.id, command.cache_salt, tokens);
  }

  /// A sentence for the first wrong token of a request: later ones follow from it.
  std::vector<std::string> wrong_in(const std::vector<engine::RequestOutput>& outputs) {
    std::vector<std::string> wrong;
    for (const engine::RequestOutput& output : outputs) {
      const auto found = sequences_.find(output.request);
      if (found == sequences_.end()) continue;
      Sequence& sequence = found->second;
      for (const TokenId token : output.tokens) {
        if (sequence.is_wrong) break;
        const TokenId expected =
            toy_model::sample_without_cache(sequence.cache_salt, sequence.tokens, windows_);
        if (token != expected) {
          const std::string actual =
              token == toy_model::kDisagreement
                  ? "the ranks do not agree on what " + output.request + " generates"
                  : output.request + " generates " + std::to_string(token);
          wrong.push_back(actual + "; without a cache it is " + std::to_string(expected));
          sequence.is_wrong = true;
        }
        sequence.tokens.push_back(token);
      }
    }
    return wrong;
  }

  /// "A:0..1 B:2": runs of tokens, by their positions in the request.
  StoryContent content_of(const engine::KVPage& page, bool is_gpu, std::size_t command) const {
    StoryContent content{.page = {page.rank, is_gpu, page.number}, .command = command};
    const std::vector<std::uint32_t>& symbols = page.symbols;
    bool is_nothing = true;
    for (std::size_t at = 0; at < symbols.size();) {
      std::size_t end = at + 1;
      while (end < symbols.size() && goes_on(symbols[end - 1], symbols[end])) ++end;
      content.text += (at == 0 ? "" : " ") + name_of(symbols[at], end - at);
      is_nothing &= symbols[at] == toy_model::kUnwritten;
      content.is_torn |= symbols[at] != toy_model::kUnwritten && !names_.contains(symbols[at]);
      at = end;
    }
    if (is_nothing) content.text = "nothing";
    if (content.is_torn) content.meaning = "not all of it is the KV of a request's token";
    return content;
  }

 private:
  struct Sequence {
    std::optional<std::string> cache_salt;
    std::vector<TokenId> tokens;
    bool is_wrong = false;
  };
  struct Name {
    std::string request;
    std::size_t position = 0;
    std::size_t group = 0;
  };

  void name_symbols(const std::string& request, const std::optional<std::string>& cache_salt,
                    const std::vector<TokenId>& tokens) {
    const std::vector<toy_model::Symbol> symbols = toy_model::symbols_of(cache_salt, tokens);
    for (std::size_t group = 0; group < windows_.size(); ++group) {
      for (std::size_t at = 0; at < symbols.size(); ++at) {
        const toy_model::Symbol symbol = toy_model::symbol_of_group(symbols[at], group);
        // A prefix that several requests share counts for the first one.
        names_.try_emplace(toy_model::shortened(symbol), Name{request, at, group});
      }
    }
  }

  /// Whether the second is reported with the first.
  bool goes_on(std::uint32_t first, std::uint32_t second) const {
    const auto a = names_.find(first);
    const auto b = names_.find(second);
    if (a == names_.end() || b == names_.end()) return first == second;
    return a->second.request == b->second.request && a->second.group == b->second.group &&
           a->second.position + 1 == b->second.position;
  }

  std::string name_of(std::uint32_t symbol, std::size_t num_tokens) const {
    if (symbol == toy_model::kUnwritten) return "-";
    if (symbol == toy_model::kTorn) return "torn";
    const auto found = names_.find(symbol);
    if (found == names_.end()) return "wrong";
    const Name& name = found->second;
    std::string text = name.request + ":" + std::to_string(name.position);
    if (num_tokens > 1) text += ".." + std::to_string(name.position + num_tokens - 1);
    return name.group == 0 ? text : text + "/" + std::to_string(name.group);
  }

  std::vector<std::uint32_t> windows_;
  std::size_t max_model_len_;
  std::map<std::string, Sequence> sequences_;
  std::map<std::uint32_t, Name> names_;
};

class EngineStoryWriter {
 public:
  EngineStoryWriter(std::uint32_t max_model_len, const EngineSetup& setup, DeviceStory& story)
      : story_(story), tokens_(setup.windows, max_model_len), progress_(setup.num_ranks.front()) {}

  void watch(planted::cuda::EngineOnVirtualDevice& device) {
    const auto rank = static_cast<std::uint32_t>(recorders_.size());
    recorders_.push_back(std::make_unique<StoryRecorder>(device, rank, story_));
  }

  std::string take_in(const engine::Command& command, const Observation& observation) {
    const std::size_t num_operations = story_.operations.size();
    // The ranks are independent: each one's part of a command is reported as a whole.
    for (const auto& recorder : recorders_) recorder->take_in();
    const auto& shown = observation.as<engine::Observation>();
    if (shown.error != ErrorCode::kNone) return answer_of(observation, engine_reports);
    if (const auto* added = std::get_if<engine::AddRequest>(&command)) tokens_.add(*added);
    if (std::holds_alternative<engine::Schedule>(command)) {
      planned_.push_back(requests_of(observation));
    }
    if (std::holds_alternative<engine::Update>(command)) planned_.pop_front();
    // A drain runs the remaining steps.
    if (std::holds_alternative<engine::Drain>(command) || engine::has_ended(shown)) {
      planned_.clear();
    }
    progress_.take_in(command, shown);
    if (std::holds_alternative<engine::Execute>(command)) name_forwards(num_operations);
    const auto* const submitted =
        find_observed<std::vector<engine::DeviceTransfer>>(observation, "submitted");
    if (submitted) {
      for (const engine::DeviceTransfer& transfer : *submitted) name_request(transfer);
    }
    const auto* const outputs =
        find_observed<std::vector<engine::RequestOutput>>(observation, "outputs");
    if (outputs) story_.commands.back().wrong_tokens = tokens_.wrong_in(*outputs);
    show(observed<engine::KVPages>(observation, "gpu_kv"), true);
    show(observed<engine::KVPages>(observation, "cpu_kv"), false);
    return answer_of(observation, engine_reports);
  }

  void finish() {
    for (const auto& recorder : recorders_) recorder->finish();
  }

 private:
  /// "A, B": the requests of the step.
  static std::string requests_of(const Observation& observation) {
    return joined(observed<std::vector<engine::ScheduledRequest>>(observation, "scheduled"), ", ",
                  &engine::ScheduledRequest::request);
  }

  /// Adds the requests of the step to the forwards enqueued since.
  void name_forwards(std::size_t first_operation) {
    for (std::size_t at = first_operation; at < story_.operations.size(); ++at) {
      StoryOperation& operation = story_.operations[at];
      if (operation.lane.stream != StoryStream::kCompute) continue;
      operation.requests = planned_[progress_.num_executed(operation.lane.rank) - 1];
    }
  }

  /// A transfer may be shown by a later command than the one that enqueued its copies.
  void name_request(const engine::DeviceTransfer& transfer) {
    const StoryLane lane{transfer.store ? StoryStream::kStore : StoryStream::kLoad, transfer.rank};
    for (StoryOperation& operation : story_.operations) {
      if (operation.lane == lane && operation.job == transfer.job) {
        operation.requests = transfer.request;
      }
    }
  }

  void show(const engine::KVPages& pages, bool is_gpu) {
    const std::size_t command = story_.commands.size() - 1;
    for (const engine::KVPage& page : pages.list()) {
      recorders_[page.rank]->show(tokens_.content_of(page, is_gpu, command));
    }
  }

  DeviceStory& story_;
  Tokens tokens_;
  std::vector<std::unique_ptr<StoryRecorder>> recorders_;  ///< by rank
  std::deque<std::string> planned_;                        ///< the requests of the steps in flight
  engine::RankProgress progress_;
};

}  // namespace

DeviceStory story_of_engine(const Scenario& scenario, const std::string& planted_bug) {
  auto config = scenario.config.as<engine::Config>();
  EngineTarget::complete(config);
  config.device = engine::DeviceKind::kVirtual;
  config.tokens_only = false;
  const Setup setup = prepared(*scenario.target, Config(config));
  DeviceStory story{.subject = "engine",
                    .content_example = "A:0..1",
                    .content_meaning = "the KV of A's tokens 0 and 1",
                    .num_ranks = setup.as<EngineSetup>().num_ranks.front(),
                    .planted_bug = planted_bug};
  // Outlives the devices.
  EngineStoryWriter writer(config.max_model_len, setup.as<EngineSetup>(), story);
  const auto engine = make_watched_engine(
      planted_bug, [&](planted::cuda::EngineOnVirtualDevice& device) { writer.watch(device); });
  record_commands(scenario, setup, *engine, story,
                  [&](const Command& command, const Observation& observation) {
                    return writer.take_in(command.as<engine::Command>(), observation);
                  });
  writer.finish();
  return story;
}

}  // namespace kvfence
