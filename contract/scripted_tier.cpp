#include "contract/scripted_tier.h"

#include <utility>

namespace kvfence {

ScriptedTier::ScriptedTier(std::uint32_t place, std::shared_ptr<TierCalls> calls)
    : place_(place), calls_(std::move(calls)) {}

void ScriptedTier::finish(TierJobId job_id, bool success) {
  finished_.push_back({job_id, success});
  const auto store = stores_.find(job_id);
  if (store == stores_.end()) return;
  if (success) held_.insert(store->second.begin(), store->second.end());
  stores_.erase(store);
}

void ScriptedTier::ask_again(OffloadKeyView key, std::uint32_t times) {
  ask_again_[OffloadKey(key)] = times;
}

LookupResult ScriptedTier::lookup(OffloadKeyView key, const RequestContext& request) {
  TierCall& call = note("lookup", request.req_id);
  call.keys.emplace_back(key);
  LookupResult result = LookupResult::kMiss;
  if (std::uint32_t& times = ask_again_[call.keys.front()]; times > 0) {
    --times;
    result = LookupResult::kPending;
  } else if (held_.count(call.keys.front()) > 0) {
    result = LookupResult::kHit;
  }
  call.answer = to_text(result);
  return result;
}

void ScriptedTier::submit_store(const TierJob& job) {
  note_job("submit_store", job);
  stores_[job.job_id].assign(job.keys.begin(), job.keys.end());
}

void ScriptedTier::submit_load(const TierJob& job) { note_job("submit_load", job); }

void ScriptedTier::get_finished_jobs(std::vector<JobResult>& out) {
  note("get_finished_jobs").results = finished_;
  out.insert(out.end(), finished_.begin(), finished_.end());
  finished_.clear();
}

void ScriptedTier::touch(std::span<const OffloadKeyView> keys, const RequestContext& request) {
  note("touch", request.req_id).keys.assign(keys.begin(), keys.end());
}

OffloadPolicy ScriptedTier::on_new_request(const RequestContext& request) {
  note("on_new_request", request.req_id).answer =
      policy_ == OffloadPolicy::kRequestLevel ? "request_level" : "block_level";
  return policy_;
}

void ScriptedTier::on_request_finished(const RequestContext& request) {
  note("on_request_finished", request.req_id);
}

void ScriptedTier::on_schedule_end() { note("on_schedule_end"); }

TierCall& ScriptedTier::note(std::string_view method, std::string_view request) {
  TierCall& call = calls_->emplace_back();
  call.method = method;
  call.tier = place_;
  call.request = request;
  return call;
}

void ScriptedTier::note_job(std::string_view method, const TierJob& job) {
  TierCall& call = note(method, job.request.req_id);
  call.job_id = job.job_id;
  call.keys.assign(job.keys.begin(), job.keys.end());
  call.slots.assign(job.slots.begin(), job.slots.end());
}

}  // namespace kvfence
