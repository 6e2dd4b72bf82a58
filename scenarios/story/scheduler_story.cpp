#include "scenarios/story/scheduler_story.h"

#include <string_view>
#include <utility>

#include "contract/core/declare.h"
#include "contract/core/joined.h"
#include "contract/core/line.h"
#include "contract/engine/engine_target.h"
#include "scenarios/story/observed_member.h"

namespace kvfence {
namespace {

using Names = std::vector<std::string>;

/// A list of the observation, or an empty one.
template <class T>
const std::vector<T>& list_of(const Observation& observation, std::string_view name) {
  static const std::vector<T> kEmpty;
  const auto* const list = find_observed<std::vector<T>>(observation, name);
  return list ? *list : kEmpty;
}

void append(std::string& text, std::string_view separator, std::string_view part) {
  if (!text.empty()) text += separator;
  text += part;
}

std::string who_ran(const std::vector<engine::ScheduledRequest>& scheduled) {
  const std::string text = joined(scheduled, ", ", [](const engine::ScheduledRequest& each) {
    const std::size_t num_drafts = each.spec_tokens.size();
    std::string part = each.request + " " + std::to_string(each.num_tokens - num_drafts);
    if (num_drafts > 0) part += "+" + std::to_string(num_drafts) + " drafts";
    return each.samples ? part : part + " of a longer prompt";
  });
  return text.empty() ? "no request ran" : "ran " + text;
}

std::string who_came_and_went(const Observation& observation) {
  std::string text;
  for (const auto& each : list_of<engine::ScheduledNew>(observation, "new_reqs")) {
    append(text, "; ", "new " + each.request);
    if (each.num_computed_tokens > 0) {
      text += " after " + std::to_string(each.num_computed_tokens) + " tokens";
    }
  }
  for (const auto& each : list_of<engine::ScheduledCached>(observation, "cached_reqs")) {
    if (each.resumed) append(text, "; ", "resumed " + each.request);
  }
  for (const char* word : {"preempted", "finished"}) {
    const Names& names = list_of<std::string>(observation, word);
    if (!names.empty()) append(text, "; ", word + (" " + joined(names, " ")));
  }
  if (const auto* request = find_observed<std::string>(observation, "never_fits")) {
    append(text, "; ", *request + " never fits");
  }
  return text;
}

std::string outputs_text(const std::vector<engine::RequestOutput>& outputs) {
  const std::string text = joined(outputs, ", ", [](const engine::RequestOutput& output) {
    const std::string part = output.request + " " + print(to_value(output.tokens));
    return is_finished(output.status) ? part + " " + std::string(to_text(output.status)) : part;
  });
  return text.empty() ? "no outputs" : "outputs " + text;
}

/// The connector's calls about requests, with its answers.
std::string connector_story(const std::vector<ConnectorCall>& calls) {
  std::string text;
  for (const ConnectorCall& call : calls) {
    if (call.answer.empty()) continue;
    append(text, "; ", call.method);
    if (!call.request.empty()) text += " " + call.request;
    text += ": " + call.answer;
  }
  return text;
}

}  // namespace

bool shows_a_scheduler(const Target& target) { return shows(target, "skipped_waiting"); }

std::vector<std::string> story_of(const Observation& observation) {
  std::vector<std::string> lines;
  const auto add = [&](std::string text) {
    if (!text.empty()) lines.push_back((lines.empty() ? "-> " : "   ") + std::move(text));
  };
  const ErrorCode error = shown_error(observation);
  if (error != ErrorCode::kNone) add("refused: " + std::string(to_text(error)));
  using engine::RequestOutput;
  using engine::ScheduledRequest;
  const auto* const scheduled =
      find_observed<std::vector<ScheduledRequest>>(observation, "scheduled");
  if (scheduled) {
    add(who_ran(*scheduled));
    add(who_came_and_went(observation));
  }
  const auto* const outputs = find_observed<std::vector<RequestOutput>>(observation, "outputs");
  if (outputs) add(outputs_text(*outputs));
  if (const bool* success = find_observed<bool>(observation, "success")) {
    add(*success ? "done" : "not done");
  }
  add(connector_story(list_of<ConnectorCall>(observation, "connector_calls")));
  std::string places;
  for (const auto& [word, name] : {std::pair{"running ", "running"},
                                   {"waiting ", "waiting"},
                                   {"skipped ", "skipped_waiting"}}) {
    const Names& names = list_of<std::string>(observation, name);
    if (!names.empty()) append(places, "; ", word + joined(names, " "));
  }
  add(std::move(places));
  return lines;
}

}  // namespace kvfence
