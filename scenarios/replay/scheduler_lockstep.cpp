#include "scenarios/replay/scheduler_lockstep.h"

#include <algorithm>
#include <utility>

#include "contract/pool/block_pool_target.h"
#include "contract/core/check.h"
#include "contract/core/line.h"

namespace kvfence {
namespace {

std::string text_of(const std::string& text) { return text; }
std::string text_of(bool flag) { return flag ? "true" : "false"; }
std::string text_of(std::uint32_t number) { return std::to_string(number); }
std::string text_of(std::uint64_t number) { return std::to_string(number); }
std::string text_of(const SchedulerState::OfRequest& request);

template <class List>
std::vector<std::string> texts_of(const List& list) {
  std::vector<std::string> texts;
  for (const auto& element : list) texts.push_back(text_of(element));
  return texts;
}

std::string list_text(const std::vector<std::string>& elements) {
  std::string text = "[";
  for (const std::string& element : elements) {
    if (text.size() > 1) text += ' ';
    text += element;
  }
  return text + "]";
}

/// `(verb key=value ...)`.
class RecordText {
 public:
  explicit RecordText(std::string_view verb) : text_("(" + std::string(verb)) {}

  template <class Member>
  RecordText& with(std::string_view key, const Member& member) {
    text_ += " " + std::string(key) + "=" + text_of(member);
    return *this;
  }
  std::string finish() const { return text_ + ")"; }

 private:
  std::string text_;
};

std::string text_of(const PrefixCacheStats& stats) {
  return RecordText("stats")
      .with("reset", stats.reset)
      .with("requests", stats.requests)
      .with("queries", stats.queries)
      .with("hits", stats.hits)
      .with("preempted_requests", stats.preempted_requests)
      .with("preempted_queries", stats.preempted_queries)
      .with("preempted_hits", stats.preempted_hits)
      .finish();
}

std::string text_of(const SpecDecodingStats& stats) {
  return RecordText("stats")
      .with("drafts", stats.num_drafts)
      .with("draft_tokens", stats.num_draft_tokens)
      .with("accepted_tokens", stats.num_accepted_tokens)
      .with("accepted_per_pos", list_text(texts_of(stats.num_accepted_tokens_per_pos)))
      .finish();
}

std::string text_of(const SchedulerNumbers& numbers) {
  return RecordText("numbers")
      .with("running", numbers.num_running)
      .with("unfinished", numbers.num_unfinished)
      .with("has_finished", numbers.has_finished)
      .with("empty", numbers.counts.empty)
      .with("cached", numbers.counts.cached)
      .with("referenced", numbers.counts.referenced)
      .finish();
}

std::string text_of(const SchedulerState::OfRequest& request) {
  std::vector<std::string> blocks;
  for (const std::vector<BlockId>& group : request.blocks) {
    blocks.push_back(list_text(texts_of(group)));
  }
  return RecordText("request")
      .with("id", request.id)
      .with("status", std::string(to_text(request.status)))
      .with("tokens", request.num_tokens)
      .with("computed", request.num_computed_tokens)
      .with("placeholders", request.num_output_placeholders)
      .with("preemptions", request.num_preemptions)
      .with("spec_tokens", list_text(texts_of(request.spec_token_ids)))
      .with("blocks", list_text(blocks))
      .finish();
}

/// The lists of all groups from `first` on.
std::string blocks_text(const SchedulerOutput& output, std::uint32_t first) {
  if (first == SchedulerOutput::kNoLists) return "none";
  std::vector<std::string> groups;
  for (std::size_t group = 0; group < output.num_common_prefix_blocks.size(); ++group) {
    groups.push_back(list_text(texts_of(output.block_lists[first + group])));
  }
  return list_text(groups);
}

bool are_equal(const EngineCoreOutputs& a, const EngineCoreOutputs& b) {
  return a.outputs == b.outputs && a.new_token_ids == b.new_token_ids && a.events == b.events &&
         a.prefix_cache_stats == b.prefix_cache_stats &&
         a.connector_prefix_cache_stats == b.connector_prefix_cache_stats &&
         a.spec_decoding_stats == b.spec_decoding_stats;
}

/// An index that was never given out has no name.
std::string name_of(const std::vector<std::string>& names, RequestIndex index) {
  return index < names.size() ? names[index] : "index_" + std::to_string(index);
}

void put(std::vector<std::string>& names, RequestIndex index, const std::string& name) {
  if (index >= names.size()) names.resize(std::size_t{index} + 1);
  names[index] = name;
}

std::vector<std::string> names_of(const std::vector<std::string>& names,
                                  std::span<const RequestIndex> indices) {
  std::vector<std::string> texts;
  for (const RequestIndex index : indices) texts.push_back(name_of(names, index));
  return texts;
}

}  // namespace

SchedulersInLockstep::SchedulersInLockstep(std::unique_ptr<SchedulerSide> expected,
                                           std::unique_ptr<SchedulerSide> actual,
                                           std::uint32_t state_every)
    : expected_(std::move(expected)), actual_(std::move(actual)), state_every_(state_every) {
  KVFENCE_CHECK(state_every > 0, "state_every is at least 1");
}

ErrorCode SchedulersInLockstep::add_request(const NewRequest& request, RequestIndex& out) {
  operation_ = "add_request";
  RequestIndex actual_index = 0;
  const ErrorCode code = expected_->add_request(request, out);
  compare(code, actual_->add_request(request, actual_index));
  if (code != ErrorCode::kNone || divergence_) return code;
  put(expected_names_, out, request.id);
  put(actual_names_, actual_index, request.id);
  if (out >= actual_index_.size()) actual_index_.resize(std::size_t{out} + 1);
  actual_index_[out] = actual_index;
  has_equal_indices_ = has_equal_indices_ && out == actual_index;
  return code;
}

ErrorCode SchedulersInLockstep::schedule(SchedulerOutput& out) {
  operation_ = "schedule";
  ++num_steps_;
  const ErrorCode code = expected_->schedule(out);
  SchedulerOutput& actual = actual_steps_.emplace_back();
  compare(code, actual_->schedule(actual));
  if (code != ErrorCode::kNone || divergence_) return code;
  if (!has_equal_indices_ || !(out == actual)) {
    compare(members_of(out, expected_names_), members_of(actual, actual_names_));
  }
  compare_numbers();
  return code;
}

ErrorCode SchedulersInLockstep::update_from_output(const SchedulerOutput& step,
                                                   const ModelRunnerOutput& result,
                                                   EngineCoreOutputs& out) {
  operation_ = "update_from_output";
  KVFENCE_CHECK(!actual_steps_.empty(), "an update without a step in flight");
  const ErrorCode code = expected_->update_from_output(step, result, out);
  compare(code, actual_->update_from_output(actual_steps_.front(), result, actual_outputs_));
  if (code != ErrorCode::kNone || divergence_) return code;
  actual_steps_.pop_front();
  if (!has_equal_indices_ || !are_equal(out, actual_outputs_)) {
    compare(members_of(out, expected_names_), members_of(actual_outputs_, actual_names_));
  }
  compare_numbers();
  if (step.step % state_every_ == 0) compare_state();
  return code;
}

ErrorCode SchedulersInLockstep::update_draft_token_ids(RequestIndex request,
                                                       std::span<const TokenId> tokens) {
  operation_ = "update_draft_token_ids";
  const ErrorCode code = expected_->update_draft_token_ids(request, tokens);
  compare(code, actual_->update_draft_token_ids(actual_index_[request], tokens));
  return code;
}

SchedulersInLockstep::Members SchedulersInLockstep::members_of(const SchedulerOutput& output,
                                                               const Names& names) {
  Member scheduled{"scheduled", {}};
  for (std::size_t k = 0; k < output.scheduled.size(); ++k) {
    const SchedulerOutput::Scheduled& entry = output.scheduled[k];
    scheduled.elements.push_back(
        RecordText("scheduled")
            .with("request", name_of(names, entry.request))
            .with("num_tokens", entry.num_tokens)
            .with("num_spec_tokens", entry.num_spec_tokens)
            .with("samples", entry.samples)
            .with("spec_tokens", list_text(texts_of(output.spec_token_ids[k])))
            .finish());
  }
  Member new_reqs{"scheduled_new_reqs", {}};
  for (const SchedulerOutput::New& entry : output.scheduled_new_reqs) {
    new_reqs.elements.push_back(RecordText("new")
                                    .with("request", name_of(names, entry.request))
                                    .with("num_computed_tokens", entry.num_computed_tokens)
                                    .with("blocks", blocks_text(output, entry.first_list))
                                    .finish());
  }
  Member cached_reqs{"scheduled_cached_reqs", {}};
  for (const SchedulerOutput::Cached& entry : output.scheduled_cached_reqs) {
    cached_reqs.elements.push_back(RecordText("cached")
                                       .with("request", name_of(names, entry.request))
                                       .with("resumed", entry.resumed)
                                       .with("sends_all_token_ids", entry.sends_all_token_ids)
                                       .with("num_computed_tokens", entry.num_computed_tokens)
                                       .with("num_output_tokens", entry.num_output_tokens)
                                       .with("blocks", blocks_text(output, entry.first_list))
                                       .finish());
  }
  return {std::move(scheduled),
          std::move(new_reqs),
          std::move(cached_reqs),
          {"step", {text_of(output.step)}, false},
          {"total_num_scheduled_tokens", {text_of(output.total_num_scheduled_tokens)}, false},
          {"num_common_prefix_blocks", texts_of(output.num_common_prefix_blocks)},
          {"preempted", names_of(names, output.preempted)},
          {"finished", names_of(names, output.finished)},
          {"new_block_ids", texts_of(output.new_block_ids)},
          {"never_fits", {output.never_fits ? name_of(names, *output.never_fits) : "none"}, false}};
}

SchedulersInLockstep::Members SchedulersInLockstep::members_of(const EngineCoreOutputs& outputs,
                                                               const Names& names) {
  Member requests{"outputs", {}};
  for (std::size_t k = 0; k < outputs.outputs.size(); ++k) {
    const EngineCoreOutputs::Output& entry = outputs.outputs[k];
    requests.elements.push_back(RecordText("output")
                                    .with("request", name_of(names, entry.request))
                                    .with("status", std::string(to_text(entry.status)))
                                    .with("stop_reason", entry.stop_reason
                                                             ? text_of(*entry.stop_reason)
                                                             : std::string("none"))
                                    .with("tokens", list_text(texts_of(outputs.new_token_ids[k])))
                                    .finish());
  }
  Member events{"events", {}};
  const Value event_list = to_value(outputs.events);
  for (const Value& event : *event_list.get_if<Value::List>()) {
    events.elements.push_back(print(event));
  }
  return {std::move(requests),
          std::move(events),
          {"prefix_cache_stats", {text_of(outputs.prefix_cache_stats)}, false},
          {"connector_prefix_cache_stats", {text_of(outputs.connector_prefix_cache_stats)}, false},
          {"spec_decoding_stats", {text_of(outputs.spec_decoding_stats)}, false}};
}

SchedulersInLockstep::Members SchedulersInLockstep::members_of(const SchedulerState& state) {
  Member keys{"keys", {}};
  for (const std::string& key : state.keys) {
    keys.elements.push_back(key.empty() ? "none" : print(Value(Bytes{key})));
  }
  return {{"running", state.running},
          {"waiting", state.waiting},
          {"skipped_waiting", state.skipped_waiting},
          {"requests", texts_of(state.requests)},
          {"free_queue", texts_of(state.free_queue)},
          {"ref_cnts", texts_of(state.ref_cnts)},
          std::move(keys)};
}

void SchedulersInLockstep::compare(ErrorCode expected, ErrorCode actual) {
  if (expected == actual) return;
  diverge("error", std::string(to_text(expected)), std::string(to_text(actual)));
}

void SchedulersInLockstep::compare(const Members& expected, const Members& actual) {
  for (std::size_t k = 0; k < expected.size(); ++k) {
    const std::vector<std::string>& ours = expected[k].elements;
    const std::vector<std::string>& theirs = actual[k].elements;
    if (ours == theirs) continue;
    std::string field(expected[k].name);
    if (!expected[k].is_list) return diverge(field, ours.front(), theirs.front());
    const auto parted = std::mismatch(ours.begin(), ours.end(), theirs.begin(), theirs.end());
    field += "[" + std::to_string(parted.first - ours.begin()) + "]";
    return diverge(field, list_text(ours), list_text(theirs));
  }
}

void SchedulersInLockstep::compare_numbers() {
  const SchedulerNumbers expected = expected_->numbers();
  const SchedulerNumbers actual = actual_->numbers();
  if (!(expected == actual)) diverge("numbers", text_of(expected), text_of(actual));
}

void SchedulersInLockstep::compare_state() {
  expected_->observe_state(expected_state_);
  actual_->observe_state(actual_state_);
  if (expected_state_ == actual_state_) return;
  compare(members_of(expected_state_), members_of(actual_state_));
}

void SchedulersInLockstep::diverge(std::string field, std::string expected, std::string actual) {
  if (divergence_) return;
  divergence_.emplace();
  divergence_->step = num_steps_;
  divergence_->oracle = "lockstep";
  divergence_->message = std::string(operation_) + ": " + field + " must equal the reference's";
  divergence_->field = std::move(field);
  divergence_->expected = std::move(expected);
  divergence_->actual = std::move(actual);
}

}  // namespace kvfence
