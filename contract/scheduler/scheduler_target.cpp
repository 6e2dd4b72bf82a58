#include "contract/scheduler/scheduler_target.h"

#include <utility>

#include "contract/core/check.h"

namespace kvfence {
namespace {

template <class Enum>
bool word_from(const Value& value, std::optional<Enum> (*parse)(std::string_view), Enum& member) {
  const auto* text = value.get_if<std::string>();
  const std::optional<Enum> parsed = text ? parse(*text) : std::nullopt;
  if (parsed) member = *parsed;
  return parsed.has_value();
}

}  // namespace

Value to_value(RequestStatus member) { return Value::Variant(std::string(to_text(member))); }
Value to_value(PauseState member) { return Value::Variant(std::string(to_text(member))); }

bool from_value(const Value& value, RequestStatus& member, std::string& expected) {
  expected = "a status such as finished_aborted";
  return word_from(value, request_status_from_text, member);
}

bool from_value(const Value& value, PauseState& member, std::string& expected) {
  expected = "unpaused, paused_new or paused_all";
  return word_from(value, pause_state_from_text, member);
}

namespace scheduler {

void World::apply(const Command& command) {
  const auto* added = std::get_if<AddRequest>(&command);
  if (!added) return pass();
  RequestSpec spec{added->tokens, std::nullopt, added->cache_salt, {}};
  if (added->lora_name) spec.lora = LoraRequest{*added->lora_name, added->lora_id};
  add(added->id, spec);
}

void World::pass() {
  if (!entries_.empty()) entries_.back().is_new = false;
}

void World::add(const std::string& id, const RequestSpec& spec) {
  pass();
  const auto number = static_cast<std::uint32_t>(entries_.size());
  if (!number_of_.try_emplace(id, number).second) return;
  requests_.declare(id, spec);
  entries_.push_back({number, id, /*is_new=*/true});
}

const World::Entry* World::find(const std::string& name) const {
  const auto at = number_of_.find(name);
  return at == number_of_.end() ? nullptr : &entries_[at->second];
}

}  // namespace scheduler

Parsed<SchedulerConfig> make_scheduler_config(const scheduler::Config& config,
                                              std::string_view file, Position position) {
  const auto error = [&](std::string found, std::string expected) {
    return InputError{std::string(file), position, std::move(found), std::move(expected)};
  };
  Parsed<KVCacheManagerConfig> kv_cache = make_kv_cache_manager_config(config, file, position);
  if (!kv_cache) return kv_cache.error();
  const auto policy = scheduling_policy_from_text(config.policy);
  if (!policy) return error("policy=" + config.policy, "fcfs or priority");
  const auto failure = kv_load_failure_policy_from_text(config.kv_load_failure_policy);
  if (!failure) {
    return error("kv_load_failure_policy=" + config.kv_load_failure_policy, "fail or recompute");
  }

  SchedulerConfig result;
  result.kv_cache = std::move(*kv_cache);
  if (config.priority_victim_shifts_loop) {
    result.kv_cache.pool.rules.priority_victim_shifts_loop = *config.priority_victim_shifts_loop;
  }
  result.policy = *policy;
  result.max_num_seqs = config.max_num_seqs;
  result.max_num_scheduled_tokens = config.max_num_scheduled_tokens;
  result.long_prefill_token_threshold = config.long_prefill_token_threshold;
  result.enable_chunked_prefill = config.enable_chunked_prefill;
  result.scheduler_reserve_full_isl = config.scheduler_reserve_full_isl;
  result.num_speculative_tokens = config.num_speculative_tokens;
  result.draft_model = config.draft_model;
  result.async_scheduling = config.async_scheduling;
  result.max_concurrent_batches = config.max_concurrent_batches;
  result.kv_load_failure_policy = *failure;
  if (auto expected = check_config(result, config.connector)) {
    return error("this configuration", std::move(*expected));
  }
  return result;
}

Parsed<SchedulerTarget::Setup> SchedulerTarget::prepare(const Config& config, std::string_view file,
                                                        Position position) {
  return make_scheduler_config(config, file, position);
}

SchedulerTarget::World SchedulerTarget::make_world(const Config&, const Setup& setup) {
  return World(setup.kv_cache.pool.hash);
}

const Target& SchedulerTarget::description() {
  static const Target kDescription = describe<SchedulerTarget>();
  return kDescription;
}

}  // namespace kvfence
