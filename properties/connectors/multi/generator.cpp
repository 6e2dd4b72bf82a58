#include "properties/connectors/multi/generator.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace kvfence::multi_connector {
namespace {

constexpr VerbWeights<Command> kVerbs = {{
    {OnNewRequest::kVerb, 2},
    {GetNumNewMatchedTokens::kVerb, 12},
    {UpdateStateAfterAlloc::kVerb, 8},
    {BuildConnectorMeta::kVerb, 8},
    {UpdateConnectorOutput::kVerb, 10},
    {RequestFinished::kVerb, 8},
    {TakeEvents::kVerb, 3},
    {ResetCache::kVerb, 2},
    {HandlePreemptions::kVerb, 3},
    {StartLoadKV::kVerb, 16},
    {WaitForLayerLoad::kVerb, 2},
    {SaveKVLayer::kVerb, 2},
    {GetKVConnectorOutput::kVerb, 18},
}};

constexpr std::uint32_t kNumRequests = 5;
constexpr std::uint32_t kNumBlocks = 12;

std::string letter(std::uint32_t number) {
  return std::string(1, static_cast<char>('A' + static_cast<int>(number)));
}

bool can_begin(const Rank& rank) { return !rank.in_step && rank.num_waiting > 0; }

}  // namespace

Config Generator::draw_config(Choices& choices) {
  Config config;
  config.profile = to_text(kProfiles[choices.below(kProfiles.size())]);
  config.children.clear();
  const std::uint32_t num_children = choices.once_in(8) ? 1 : 2 + choices.below(3);
  const bool any_hma = !choices.once_in(3);
  for (std::uint32_t child = 0; child < num_children; ++child) {
    config.children.push_back({choices.once_in(2) ? "b" : "a", any_hma || choices.once_in(2)});
  }
  config.num_ranks = choices.once_in(2) ? 1 : 1 + choices.below(3);
  const bool several_groups = rules_of(*profile_from_text(config.profile)).multi_connector_hma &&
                              std::all_of(config.children.begin(), config.children.end(),
                                          [](const Child& child) { return child.hma; });
  if (several_groups) config.num_groups = 1 + choices.below(3);
  return config;
}

Generator::Generator(const Config& config, Choices& choices)
    : config_(config), swarm_(usual_weights(kVerbs), kWildHabits, choices) {
  // Without steps that begin and end, nothing comes to the scheduler.
  swarm_.raise(index_of<BuildConnectorMeta>(kVerbs), 4);
  swarm_.raise(index_of<StartLoadKV>(kVerbs), 4);
  swarm_.raise(index_of<GetKVConnectorOutput>(kVerbs), 4);
  swarm_.raise(index_of<RequestFinished>(kVerbs), 2);
}

/// Where the state is not observed after every command, the last one that was is near enough.
void Generator::see(const Observation& now) {
  if (!now.ranks.has_value()) return;
  ranks_ = *now.ranks;
  extra_ = *now.extra;
  chosen_ = *now.chosen;
}

bool Generator::is_idle(std::size_t chosen) const {
  const std::string_view verb = kVerbs[chosen].verb;
  if (verb == HandlePreemptions::kVerb || verb == StartLoadKV::kVerb) {
    return std::none_of(ranks_.begin(), ranks_.end(), can_begin);
  }
  if (verb == WaitForLayerLoad::kVerb || verb == SaveKVLayer::kVerb ||
      verb == GetKVConnectorOutput::kVerb) {
    return std::none_of(ranks_.begin(), ranks_.end(),
                        [](const Rank& rank) { return rank.in_step; });
  }
  if (verb == UpdateConnectorOutput::kVerb) {
    return std::any_of(ranks_.begin(), ranks_.end(),
                       [](const Rank& rank) { return rank.num_reports == 0; });
  }
  // A few steps ahead of the ranks are enough.
  if (verb == BuildConnectorMeta::kVerb) {
    return std::any_of(ranks_.begin(), ranks_.end(),
                       [](const Rank& rank) { return rank.num_waiting > 2; });
  }
  return false;
}

Command Generator::next(Choices& choices, const Observation& now, const World&) {
  see(now);
  return draw(choices,
              swarm_.draw_unless([this](std::size_t chosen) { return is_idle(chosen); }, choices));
}

Command Generator::draw(Choices& choices, std::size_t chosen) {
  const std::string_view verb = kVerbs[chosen].verb;
  if (verb == OnNewRequest::kVerb) return OnNewRequest{draw_request(choices)};
  if (verb == GetNumNewMatchedTokens::kVerb) return draw_lookup(choices);
  if (verb == UpdateStateAfterAlloc::kVerb) {
    const bool of_chosen = !chosen_.empty() && !choices.once_in(3);
    const std::string request =
        of_chosen ? chosen_[choices.below(static_cast<std::uint32_t>(chosen_.size()))].request
                  : draw_request(choices);
    return UpdateStateAfterAlloc{request, draw_blocks(choices),
                                 choices.once_in(3) ? 0 : 4 * (1 + choices.below(4))};
  }
  if (verb == BuildConnectorMeta::kVerb) {
    BuildConnectorMeta command;
    for (std::uint32_t left = draw_num_answers(choices); left > 0; --left) {
      command.answers.push_back("m" + std::to_string(next_number_++));
    }
    return command;
  }
  if (verb == UpdateConnectorOutput::kVerb) return UpdateConnectorOutput{};
  if (verb == RequestFinished::kVerb) return draw_finish(choices);
  if (verb == TakeEvents::kVerb) {
    TakeEvents command;
    for (std::uint32_t left = draw_num_answers(choices); left > 0; --left) {
      Events& answer = command.answers.emplace_back();
      for (std::uint32_t more = choices.below(3); more > 0; --more) {
        answer.ids.push_back(next_number_++);
      }
    }
    return command;
  }
  if (verb == ResetCache::kVerb) {
    ResetCache command;
    for (std::uint32_t left = draw_num_answers(choices); left > 0; --left) {
      Reset& answer = command.answers.emplace_back();
      if (!choices.once_in(3)) answer.done = !choices.once_in(3);
    }
    return command;
  }
  if (verb == HandlePreemptions::kVerb) return HandlePreemptions{draw_rank(false, choices)};
  if (verb == StartLoadKV::kVerb) return StartLoadKV{draw_rank(false, choices)};
  if (verb == WaitForLayerLoad::kVerb) {
    return WaitForLayerLoad{draw_rank(true, choices), std::to_string(choices.below(2))};
  }
  if (verb == SaveKVLayer::kVerb) {
    return SaveKVLayer{draw_rank(true, choices), std::to_string(choices.below(2))};
  }
  return draw_output(choices);
}

GetNumNewMatchedTokens Generator::draw_lookup(Choices& choices) {
  GetNumNewMatchedTokens command;
  command.request = draw_request(choices);
  command.num_computed_tokens = 4 * choices.below(3);
  for (std::uint32_t left = draw_num_answers(choices); left > 0; --left) {
    Match& answer = command.answers.emplace_back();
    if (choices.once_in(6)) {
      answer.num_tokens.reset();
    } else if (choices.once_in(2)) {
      answer.num_tokens = 1 + choices.below(8);
    }
    answer.load_async = answer.num_tokens.value_or(0) > 0 && choices.once_in(2);
  }
  return command;
}

RequestFinished Generator::draw_finish(Choices& choices) {
  RequestFinished command;
  command.request = draw_request(choices);
  command.blocks = draw_blocks(choices);
  const std::uint32_t num_answers = draw_num_answers(choices);
  for (std::uint32_t child = 0; child < num_answers; ++child) {
    Finish& answer = command.answers.emplace_back();
    answer.hold = choices.once_in(2);
    if (choices.once_in(6)) answer.params = "p" + std::to_string(next_number_++);
    if (!answer.hold) continue;
    for (std::uint32_t rank = 0; rank < config_.num_ranks; ++rank) {
      notices_.push_back({command.request, child, rank});
    }
  }
  return command;
}

GetKVConnectorOutput Generator::draw_output(Choices& choices) {
  GetKVConnectorOutput command;
  command.rank = draw_rank(true, choices);
  command.wait_for_save = !choices.once_in(4);
  for (std::uint32_t left = choices.below(3); left > 0; --left) {
    command.finished_req_ids.push_back(draw_request(choices));
  }
  const auto draw_numbers = [&] {
    std::vector<std::uint32_t> numbers;
    for (std::uint32_t left = choices.below(3); left > 0; --left) {
      numbers.push_back(next_number_++);
    }
    return numbers;
  };
  const std::uint32_t num_answers = draw_num_answers(choices);
  for (std::uint32_t child = 0; child < num_answers; ++child) {
    Output& answer = command.answers.emplace_back();
    answer.sending = draw_sent(child, command.rank, choices);
    if (choices.once_in(6)) answer.recving.push_back(draw_request(choices));
    for (std::uint32_t left = choices.once_in(6) ? 1 + choices.below(2) : 0; left > 0; --left) {
      answer.invalid.push_back(1 + choices.below(kNumBlocks));
    }
    if (choices.once_in(3)) answer.stats = draw_numbers();
    if (choices.once_in(3)) answer.meta = draw_numbers();
  }
  return command;
}

std::vector<std::string> Generator::draw_sent(std::uint32_t child, std::uint32_t rank,
                                              Choices& choices) {
  std::vector<std::string> sent;
  // What the rank was not told of yet, no child of it can have sent.
  const bool is_behind = rank < ranks_.size() && ranks_[rank].num_waiting > 0;
  const bool early = (is_behind || !extra_.empty()) && !choices.once_in(8);
  for (std::size_t at = notices_.size(); at-- > 0 && !early;) {
    if (notices_[at].child != child || notices_[at].rank != rank || choices.once_in(2)) continue;
    sent.push_back(notices_[at].request);
    notices_.erase(notices_.begin() + static_cast<std::ptrdiff_t>(at));
  }
  if (choices.once_in(24)) sent.push_back(draw_request(choices));
  return sent;
}

std::string Generator::draw_request(Choices& choices) const {
  return letter(std::min(choices.below(kNumRequests), choices.below(kNumRequests)));
}

std::uint32_t Generator::draw_rank(bool in_step, Choices& choices) const {
  if (choices.once_in(64)) return config_.num_ranks;
  const std::uint32_t first = choices.below(config_.num_ranks);
  if (choices.once_in(24)) return first;
  for (std::uint32_t offset = 0; offset < ranks_.size(); ++offset) {
    const std::uint32_t rank = (first + offset) % config_.num_ranks;
    if (in_step ? ranks_[rank].in_step : can_begin(ranks_[rank])) return rank;
  }
  return first;
}

BlockLists Generator::draw_blocks(Choices& choices) const {
  BlockLists blocks;
  const std::uint32_t num_groups =
      choices.once_in(32) ? config_.num_groups + 1 : config_.num_groups;
  for (std::uint32_t group = 0; group < num_groups; ++group) {
    std::vector<BlockId>& of_group = blocks.emplace_back();
    for (std::uint32_t left = 1 + choices.below(2); left > 0; --left) {
      of_group.push_back(1 + choices.below(kNumBlocks));
    }
  }
  return blocks;
}

std::uint32_t Generator::draw_num_answers(Choices& choices) const {
  const auto num_children = static_cast<std::uint32_t>(config_.children.size());
  return choices.once_in(32) ? choices.below(num_children + 2) : num_children;
}

}  // namespace kvfence::multi_connector
