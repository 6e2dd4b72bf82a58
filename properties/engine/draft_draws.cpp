/// Drafts for whom has sampled, where the scheduler does not plan with their places before they are
/// there.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "properties/engine/generator.h"

namespace kvfence::engine {
namespace {

constexpr std::uint32_t kWeights[] = {4};  // drafts out of turn

class DraftDraws final : public Draws {
 public:
  explicit DraftDraws(const Config& config)
      : num_drafts_(config.num_speculative_tokens), are_told_(!config.async_scheduling) {}

  std::span<const std::uint32_t> weights() const override { return kWeights; }
  bool bends(std::string_view member) const override { return member == "accepted"; }

  void take_in(const Picture& picture, const Observation& now) override {
    if (!picture.accepted<Update>(now)) return;
    to_draft_.clear();
    if (!are_told_ || !now.outputs.has_value()) return;
    for (const RequestOutput& output : *now.outputs) to_draft_.push_back(output.request);
  }

  std::optional<Command> next(Picture& /*picture*/, Choices& choices) override {
    if (to_draft_.empty()) return std::nullopt;
    std::string name = std::move(to_draft_.back());
    to_draft_.pop_back();
    if (choices.once_in(6)) return std::nullopt;
    return drafts_of(std::move(name), choices);
  }

  std::optional<Command> act(std::size_t /*place*/, Picture& picture, Choices& choices) override {
    const std::vector<RequestState>& known = picture.engine().known;
    if (known.empty() || !are_told_) return std::nullopt;
    return drafts_of(pick(choices, known).id, choices);
  }

  void add_to(Update& command, const Picture& /*picture*/, Choices& choices) override {
    command.accepted = choices.below(num_drafts_ + 1);
  }

 private:
  Command drafts_of(std::string name, Choices& choices) const {
    UpdateDraftTokenIds command{std::move(name), {}};
    std::uint32_t count = choices.once_in(4) ? choices.below(num_drafts_ + 1) : num_drafts_;
    for (; count > 0; --count) command.tokens.push_back(choices.once_in(6) ? 1 : 0);
    return command;
  }

  const std::uint32_t num_drafts_;
  const bool are_told_;
  std::vector<std::string> to_draft_;  ///< who sampled in the last update, and has no drafts yet
};

}  // namespace

void draw_drafts(Choices& choices, Config& config) {
  if (config.use_eagle || choices.once_in(3)) {
    config.num_speculative_tokens = 1 + choices.below(3);
    config.draft_model = !config.use_eagle && choices.once_in(2);
  }
  // Drafts that are not there yet cannot be planned with.
  if (config.num_speculative_tokens > 0 && !config.async_scheduling) {
    config.max_concurrent_batches = 1;
  }
}

std::unique_ptr<Draws> make_draft_draws(const Config& config) {
  return std::make_unique<DraftDraws>(config);
}

}  // namespace kvfence::engine
