/// Draws drafts for requests that have sampled, in configurations whose scheduler does not plan
/// places for drafts before they exist.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "contract/engine/toy_model.h"
#include "properties/engine/generator.h"
#include "properties/engine/on_device/token_oracle.h"
#include "properties/kv_cache/group_draws.h"

namespace kvfence::engine {
namespace {

constexpr std::uint32_t kWeights[] = {4};  // drafts out of turn

class DraftDraws final : public Draws {
 public:
  explicit DraftDraws(const Config& config)
      : num_drafts_(config.num_speculative_tokens), has_draft_commands_(!config.async_scheduling) {
    if (!config.has_device()) return;
    for (const KVCacheSpec& group : config.groups) windows_.push_back(group.sliding_window);
    on_device_.emplace(windows_);
  }

  std::span<const std::uint32_t> weights() const override { return kWeights; }
  bool bends(std::string_view member) const override { return member == "accepted"; }

  void take_in(const Picture& picture, const Observation& now) override {
    if (on_device_ && picture.last) static_cast<void>(on_device_->check(*picture.last, now));
    const auto* const update = picture.accepted<Update>(now);
    if (!update) return;
    to_draft_.clear();
    if (!has_draft_commands_) return;
    for (const RequestOutput& output : now.of(update->engine).outputs.or_empty()) {
      to_draft_.push_back({{update->engine}, output.request, {}});
    }
  }

  std::optional<Command> next(Picture& /*picture*/, Choices& choices) override {
    if (to_draft_.empty()) return std::nullopt;
    UpdateDraftTokenIds command = std::move(to_draft_.back());
    to_draft_.pop_back();
    if (choices.once_in(6)) return std::nullopt;
    return with_drafts(std::move(command), choices);
  }

  std::optional<Command> act(std::size_t /*place*/, Picture& picture, Choices& choices) override {
    const EngineRole engine = picture.draw_engine(choices);
    const std::vector<RequestState>& known = picture.of(engine).known;
    if (known.empty() || !has_draft_commands_) return std::nullopt;
    return with_drafts({{engine}, pick(choices, known).id, {}}, choices);
  }

  /// The model on a device decides itself.
  void add_to(Update& command, const Picture& /*picture*/, Choices& choices) override {
    if (!on_device_) command.accepted = choices.below(num_drafts_ + 1);
  }

 private:
  Command with_drafts(UpdateDraftTokenIds command, Choices& choices) const {
    std::uint32_t count = choices.once_in(4) ? choices.below(num_drafts_ + 1) : num_drafts_;
    const auto* const sequence = on_device_ ? on_device_->find(command.request) : nullptr;
    if (sequence) {
      std::vector<toy_model::Symbol> symbols =
          toy_model::symbols_of(sequence->cache_salt, sequence->tokens);
      for (; count > 0; --count) {
        command.tokens.push_back(toy_model::draft_after(symbols, windows_));
        symbols.push_back(toy_model::next_symbol(symbols.back(), command.tokens.back()));
      }
    }
    for (; count > 0; --count) command.tokens.push_back(choices.once_in(6) ? 1 : 0);
    return command;
  }

  const std::uint32_t num_drafts_;
  const bool has_draft_commands_;
  std::vector<std::uint32_t> windows_;
  std::optional<on_device::TokenOracle> on_device_;  ///< knows the requests' tokens
  /// For a request that sampled in the last update and has no drafts yet.
  std::vector<UpdateDraftTokenIds> to_draft_;
};

}  // namespace

void draw_drafts(Choices& choices, Config& config) {
  if (config.use_eagle || choices.once_in(3)) {
    config.num_speculative_tokens = 1 + choices.below(3);
    config.draft_model = !config.use_eagle && choices.once_in(2);
  }
  // Drafts that do not exist yet cannot be planned.
  if (config.num_speculative_tokens > 0 && !config.async_scheduling) {
    config.max_concurrent_batches = 1;
  }
}

void draw_eagle_and_drafts(Choices& choices, Config& config) {
  config.use_eagle = choices.once_in(6);
  kv_cache::draw_eagle_groups(choices, config);
  draw_drafts(choices, config);
}

std::unique_ptr<Draws> make_draft_draws(const Config& config) {
  return std::make_unique<DraftDraws>(config);
}

}  // namespace kvfence::engine
