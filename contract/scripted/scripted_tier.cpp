#include "contract/scripted/scripted_tier.h"

#include <algorithm>
#include <cstddef>
#include <span>

namespace kvfence {

void ScriptedTier::finish(TierJobId job_id, bool success) {
  const auto found = jobs_.find(job_id);
  if (found != jobs_.end()) {
    success = success && carry_out(job_id, found->second);
    jobs_.erase(found);
  } else if (primary_.base) {
    return;
  }
  finished_.push_back({job_id, success});
}

bool ScriptedTier::carry_out(TierJobId job_id, const Job& job) {
  if (!files_) {
    if (!job.is_load) held_.insert(job.keys.begin(), job.keys.end());
    for (std::size_t i = 0; job.is_load && primary_.base && i < job.keys.size(); ++i) {
      fill_block(job.keys[i], primary_.slot(job.slots[i]));
    }
    return true;
  }
  const std::vector<OffloadKeyView> keys(job.keys.begin(), job.keys.end());
  const TierJob submitted{job_id, keys, job.slots, {job.req_id}};
  if (!job.is_load) return files_->store(submitted);
  // What a load does not bring must not be there from before.
  for (SlotId slot : job.slots) {
    const std::span<std::byte> bytes = primary_.slot(slot);
    std::fill(bytes.begin(), bytes.end(), std::byte{0});
  }
  return files_->load(submitted);
}

void ScriptedTier::add(OffloadKeyView key) {
  if (!files_) {
    held_.emplace(key);
    return;
  }
  std::vector<std::byte> block(primary_.slot_bytes);
  fill_block(key, block);
  files_->add(key, block);
}

void ScriptedTier::drop(OffloadKeyView key) {
  files_ ? files_->delete_file(key) : static_cast<void>(held_.erase(OffloadKey(key)));
}

std::vector<OffloadKey> ScriptedTier::held() const {
  return files_ ? files_->keys_with_file() : std::vector<OffloadKey>(held_.begin(), held_.end());
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
  } else if (files_) {
    result = files_->lookup(key);
  } else if (held_.count(call.keys.front()) > 0) {
    result = LookupResult::kHit;
  }
  call.answer = to_text(result);
  return result;
}

void ScriptedTier::submit_store(const TierJob& job) { note_job(job, /*is_load=*/false); }

void ScriptedTier::submit_load(const TierJob& job) { note_job(job, /*is_load=*/true); }

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

void ScriptedTier::note_job(const TierJob& job, bool is_load) {
  TierCall& call = note(is_load ? "submit_load" : "submit_store", job.request.req_id);
  call.job = static_cast<std::uint32_t>(job.job_id);
  call.keys.assign(job.keys.begin(), job.keys.end());
  call.slots.assign(job.slots.begin(), job.slots.end());
  jobs_[job.job_id] = {is_load, call.keys, call.slots, call.request};
}

}  // namespace kvfence
