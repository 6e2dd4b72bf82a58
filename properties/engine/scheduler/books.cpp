#include "properties/engine/scheduler/books.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "contract/core/check.h"

namespace kvfence::engine::scheduler {
namespace {

void erase_from(std::vector<RequestNumber>& list, RequestNumber number) {
  const auto at = std::find(list.begin(), list.end(), number);
  if (at != list.end()) list.erase(at);
}

}  // namespace

Books::Books(const SchedulerConfig& scheduler_config) : config(scheduler_config) { reset(); }

void Books::reset() {
  tracks.clear();
  there.clear();
  running.clear();
  waiting.clear();
  skipped_waiting.clear();
  waiting_is_known = true;
  num_queued = 0;
  finished.clear();
  pause_state = PauseState::kUnpaused;
  num_steps = 0;
  step_before = 0;
  for (std::vector<Planned>& step : steps_in_flight) step.clear();
  num_in_flight = 0;
  stats = {};
  connector_stats = {};
  spec_stats = {};
  num_connector_events = 0;
}

void Books::add_refused(const std::string& id, const World& world) {
  const World::Entry* entry = world.find(id);
  if (!entry || !entry->is_new) return;
  KVFENCE_CHECK(entry->number == tracks.size(), "a command that the books did not see");
  tracks.emplace_back().name = id;
}

void Books::add(const AddRequest& command, bool is_accepted, const World& world) {
  add_refused(command.id, world);
  const World::Entry* entry = world.find(command.id);
  if (!is_accepted || !entry || !entry->is_new) return;
  Track& track = tracks.back();
  track.is_there = true;
  track.request = *world.requests().find(command.id);
  track.num_prompt_tokens = static_cast<std::uint32_t>(command.tokens.size());
  track.max_tokens = command.max_tokens;
  track.min_tokens = command.min_tokens;
  track.eos_token = command.eos_token;
  track.stop_tokens = command.stop_tokens;
  track.priority = command.priority;
  track.arrival_time = command.arrival_time;
  track.skip_reading_prefix_cache = command.skip_reading_prefix_cache;
  track.table.resize(config.kv_cache.groups.size());
  there.push_back(entry->number);
  if (command.grammar) track.status = RequestStatus::kWaitingForGrammar;
  enqueue(command.grammar ? skipped_waiting : waiting, entry->number, /*in_front=*/false);
}

bool Books::precedes(RequestNumber a, RequestNumber b) const {
  const auto order = [this](RequestNumber number) {
    const Track& track = tracks[number];
    return std::tie(track.priority, track.arrival_time, track.name);
  };
  return order(a) < order(b);
}

RequestNumber Books::victim_of(const std::vector<RequestNumber>& running_ones) const {
  if (config.policy == SchedulingPolicy::kFCFS) return running_ones.back();
  const auto is_sooner = [this](RequestNumber a, RequestNumber b) {
    return std::tie(tracks[a].priority, tracks[a].arrival_time) <
           std::tie(tracks[b].priority, tracks[b].arrival_time);
  };
  return *std::max_element(running_ones.begin(), running_ones.end(), is_sooner);
}

void Books::enqueue(std::vector<RequestNumber>& place, RequestNumber number, bool in_front) {
  ++num_queued;
  if (!waiting_is_known) return;
  if (config.policy == SchedulingPolicy::kPriority) {
    const auto at =
        std::upper_bound(place.begin(), place.end(), number,
                         [this](RequestNumber a, RequestNumber b) { return precedes(a, b); });
    place.insert(at, number);
  } else {
    place.insert(in_front ? place.begin() : place.end(), number);
  }
}

void Books::leave(RequestNumber number) {
  if (tracks[number].status == RequestStatus::kRunning) {
    erase_from(running, number);
    return;
  }
  --num_queued;
  erase_from(waiting, number);
  erase_from(skipped_waiting, number);
}

void Books::preempt(RequestNumber number) {
  leave(number);
  Track& track = tracks[number];
  track.status = RequestStatus::kPreempted;
  track.num_computed_tokens = 0;
  track.num_cacheable_tokens = 0;
  track.spec_tokens.clear();
  track.is_prefill_under_way = false;
  ++track.num_preemptions;
  track.change = TableChange::kEnds;
  enqueue(waiting, number, /*in_front=*/true);
}

void Books::preempt_by_force(RequestNumber number) {
  preempt(number);
  if (config.async_scheduling) {
    mark_stale(number);
    return;
  }
  for (std::vector<Planned>& step : steps_in_flight) {
    for (Planned& planned : step) planned.was_reset |= planned.number == number;
  }
}

void Books::promote(RequestNumber number) {
  Track& track = tracks[number];
  if (track.status == RequestStatus::kWaitingForRemoteKVs) {
    track.num_cacheable_tokens = std::max(track.num_cacheable_tokens, track.num_computed_tokens);
    track.num_computed_tokens = track.num_ready_computed_tokens();
    if (track.load_has_failed && track.num_computed_tokens == 0) {
      track.change = TableChange::kEnds;
      track.num_cacheable_tokens = 0;
      track.is_prefill_under_way = false;
    }
    track.load_is_reported = false;
    track.load_has_failed = false;
  }
  track.status = track.num_preemptions > 0 ? RequestStatus::kPreempted : RequestStatus::kWaiting;
  track.may_be_promoted = false;
}

void Books::move_on(RequestNumber number) {
  for (std::vector<Planned>& step : steps_in_flight) {
    for (Planned& planned : step) {
      planned.is_stale |= planned.was_reset && planned.number == number;
    }
  }
}

void Books::admit(RequestNumber number) {
  leave(number);
  move_on(number);
  tracks[number].status = RequestStatus::kRunning;
  running.push_back(number);
}

void Books::start_load(RequestNumber number, std::uint32_t num_local_tokens,
                       std::uint32_t num_external_tokens) {
  move_on(number);
  Track& track = tracks[number];
  track.status = RequestStatus::kWaitingForRemoteKVs;
  track.num_computed_tokens = num_local_tokens + num_external_tokens;
  track.num_cacheable_tokens = num_local_tokens;
  track.load_is_reported = false;
  track.load_has_failed = false;
  track.may_be_promoted = false;
  track.is_prefill_under_way = true;
  track.skipped_step = num_steps;
}

void Books::finish(RequestNumber number, RequestStatus status, bool is_held) {
  Track& track = tracks[number];
  leave(number);
  track.status = status;
  track.is_prefill_under_way = false;
  finished.push_back(number);
  if (!is_held) {
    remove(number);
  } else if (track.change != TableChange::kEnds) {
    track.change = TableChange::kReleases;
  }
}

void Books::remove(RequestNumber number) {
  erase_from(there, number);
  Track& track = tracks[number];
  track.is_there = false;
  track.request.reset();
  track.change = TableChange::kEnds;
}

void Books::begin_step() {
  KVFENCE_CHECK(num_in_flight < steps_in_flight.size(), "more steps in flight than there may be");
  steps_in_flight[num_in_flight++].clear();
  ++num_steps;
}

void Books::plan(const Planned& planned) {
  newest_step().push_back(planned);
  Track& track = tracks[planned.number];
  track.num_computed_tokens += planned.num_tokens;
  track.num_cacheable_tokens =
      std::max(track.num_cacheable_tokens, std::min(track.num_computed_tokens, track.num_tokens()));
  track.last_step = num_steps;
  track.last_step_sampled = planned.samples;
  track.is_prefill_under_way = track.is_prefill_under_way && !planned.samples;
  if (!config.async_scheduling || !planned.samples) return;
  track.num_output_placeholders += 1 + planned.num_spec_tokens;
  track.spec_tokens.assign(config.num_speculative_tokens, kPlaceholderTokenId);
}

void Books::mark_stale(RequestNumber number) {
  for (std::vector<Planned>& step : steps_in_flight) {
    for (Planned& planned : step) planned.is_stale |= planned.number == number;
  }
  tracks[number].num_output_placeholders = 0;
}

void Books::end_oldest_step() {
  std::swap(steps_in_flight[0], steps_in_flight[1]);
  steps_in_flight[1].clear();
  --num_in_flight;
}

std::uint32_t Books::num_tokens_in_flight(RequestNumber number) const {
  std::uint32_t total = 0;
  for (const std::vector<Planned>& step : steps_in_flight) {
    for (const Planned& planned : step) {
      if (planned.number == number && !planned.is_stale) total += planned.num_tokens;
    }
  }
  return total;
}

std::uint32_t Books::num_wanted_tokens(RequestNumber number, std::uint32_t budget) const {
  const Track& track = tracks[number];
  const std::int64_t computed = track.num_computed_tokens;
  const std::int64_t placeholders = track.num_output_placeholders;
  const std::int64_t limit = std::int64_t{track.num_prompt_tokens} + track.max_tokens;
  if (placeholders > 0 && computed + 2 - placeholders >= limit) return 0;
  std::int64_t wanted = std::int64_t{track.num_tokens()} +
                        static_cast<std::int64_t>(track.spec_tokens.size()) + placeholders -
                        computed;
  const std::int64_t threshold = config.long_prefill_token_threshold;
  if (threshold > 0) wanted = std::min(wanted, threshold);
  wanted = std::min(
      {wanted, std::int64_t{budget}, std::int64_t{config.kv_cache.max_model_len} - 1 - computed});
  if (wanted <= 0) return 0;
  return split_at_blocks(track, track.num_computed_tokens, static_cast<std::uint32_t>(wanted));
}

std::uint32_t Books::split_at_blocks(const Track& track, std::uint32_t computed,
                                     std::uint32_t num_new_tokens) const {
  const std::optional<std::uint32_t> block_size = config.mamba_split_block_size();
  if (!block_size) return num_new_tokens;
  if (computed >= std::max(track.num_prompt_tokens, track.num_tokens() - 1)) return num_new_tokens;
  std::uint32_t last = track.num_tokens() / *block_size * *block_size;
  if (config.kv_cache.use_eagle) last -= std::min(last, *block_size);
  const std::uint32_t end = computed + num_new_tokens;
  if (end < last) return num_new_tokens / *block_size * *block_size;
  return computed < last && last < end ? last - computed : num_new_tokens;
}

}  // namespace kvfence::engine::scheduler
