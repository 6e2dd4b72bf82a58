#include "scenarios/story/scheduler_story.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "contract/core/declare.h"
#include "contract/core/line.h"

namespace kvfence {
namespace {

using scheduler::Observation;

void append(std::string& text, std::string_view separator, std::string_view part) {
  if (!text.empty()) text += separator;
  text += part;
}

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) append(text, " ", name);
  return text;
}

std::string who_ran(const std::vector<scheduler::ScheduledRequest>& scheduled) {
  std::string text;
  for (const scheduler::ScheduledRequest& each : scheduled) {
    const std::size_t num_drafts = each.spec_tokens.size();
    std::string part = each.request + " " + std::to_string(each.num_tokens - num_drafts);
    if (num_drafts > 0) part += "+" + std::to_string(num_drafts) + " drafts";
    if (!each.samples) part += " of a longer prompt";
    append(text, ", ", part);
  }
  return text.empty() ? "nobody ran" : "ran " + text;
}

std::string who_came_and_went(const Observation& observation) {
  std::string text;
  for (const scheduler::ScheduledNew& each : *observation.new_reqs) {
    append(text, "; ", "new " + each.request);
    if (each.num_computed_tokens > 0) {
      text += " behind " + std::to_string(each.num_computed_tokens) + " tokens";
    }
  }
  for (const scheduler::ScheduledCached& each : *observation.cached_reqs) {
    if (each.resumed) append(text, "; ", "resumed " + each.request);
  }
  if (!observation.preempted->empty()) {
    append(text, "; ", "preempted " + joined(*observation.preempted));
  }
  if (!observation.finished->empty()) {
    append(text, "; ", "finished " + joined(*observation.finished));
  }
  if (observation.never_fits.has_value()) {
    append(text, "; ", *observation.never_fits + " never fits");
  }
  return text;
}

std::string what_was_told(const std::vector<scheduler::RequestOutput>& outputs) {
  std::string text;
  for (const scheduler::RequestOutput& output : outputs) {
    std::string part = output.request + " " + print(to_value(output.tokens));
    if (is_finished(output.status)) part += " " + std::string(to_text(output.status));
    append(text, ", ", part);
  }
  return text.empty() ? "told nobody anything" : "told " + text;
}

/// What the connector was asked and told about requests.
std::string connector_story(const std::vector<scheduler::ConnectorCallRecord>& calls) {
  std::string text;
  for (const scheduler::ConnectorCallRecord& call : calls) {
    if (call.answer.empty()) continue;
    append(text, "; ", call.method);
    if (!call.request.empty()) text += " " + call.request;
    text += ": " + call.answer;
  }
  return text;
}

}  // namespace

std::vector<std::string> story_of(const Observation& observation) {
  std::vector<std::string> lines;
  const auto add = [&](std::string text) {
    if (!text.empty()) lines.push_back((lines.empty() ? "-> " : "   ") + std::move(text));
  };
  if (observation.error != ErrorCode::kNone) {
    add("refused: " + std::string(to_text(observation.error)));
  }
  if (observation.scheduled.has_value()) {
    add(who_ran(*observation.scheduled));
    add(who_came_and_went(observation));
  }
  if (observation.outputs.has_value()) add(what_was_told(*observation.outputs));
  if (observation.success.has_value()) add(*observation.success ? "done" : "not done");
  if (observation.connector_calls.has_value()) add(connector_story(*observation.connector_calls));
  if (!observation.running.has_value()) return lines;
  std::string places;
  for (const auto& [word, names] : {std::pair{"running ", &*observation.running},
                                    {"waiting ", &*observation.waiting},
                                    {"skipped ", &*observation.skipped_waiting}}) {
    if (!names->empty()) append(places, "; ", word + joined(*names));
  }
  add(std::move(places));
  return lines;
}

}  // namespace kvfence
