#include "contract/scripted/scripted_transport.h"

#include <algorithm>

namespace kvfence {
namespace {

template <class Notices>
auto find_notice(Notices& notices, NoticeId number) {
  return std::ranges::find(notices, number, &NoticeState::notice);
}

}  // namespace

ReadId ScriptedTransport::read(const ReadSpec& spec) {
  const ReadId number = num_reads_++;
  ReadState& read = reads_.emplace_back(ReadState{spec, number});
  const bool is_open = listening_.count(spec.remote_rank) > 0 &&
                       closed_.count({spec.remote_rank, spec.remote_request}) == 0;
  if (is_open && carrier_) carrier_->begin(number, spec);
  if (!is_open) end(read, /*success=*/false);
  return number;
}

void ScriptedTransport::get_finished_reads(std::uint32_t rank, std::vector<ReadResult>& out) {
  out.clear();
  std::erase_if(ended_, [&](ReadId number) {
    const auto at = std::ranges::find(reads_, number, &ReadState::read);
    if (at->rank != rank) return false;
    out.push_back({number, at->progress == TransferProgress::kFinished});
    if (carrier_) carrier_->reader_knows(number);
    reads_.erase(at);
    return true;
  });
}

void ScriptedTransport::send_notice(const Notice& notice) {
  notices_.push_back({notice, num_notices_++});
}

void ScriptedTransport::get_new_notices(std::uint32_t remote_rank, std::vector<Notice>& out) {
  out.clear();
  std::erase_if(delivered_, [&](NoticeId number) {
    const auto at = find_notice(notices_, number);
    if (at->remote_rank != remote_rank) return false;
    out.push_back(*at);
    for (const std::string& request : at->requests) {
      if (carrier_ && !at->is_heartbeat) carrier_->owner_knows(remote_rank, request);
    }
    seen_.push_back(*at);
    notices_.erase(at);
    return true;
  });
}

void ScriptedTransport::close(std::uint32_t remote_rank, const std::string& remote_request) {
  closed_.emplace(remote_rank, remote_request);
  for (ReadState& read : reads_) {
    const bool is_of_it = read.remote_rank == remote_rank && read.remote_request == remote_request;
    if (is_of_it && read.is_under_way()) end(read, /*success=*/false);
  }
  if (carrier_) carrier_->owner_knows(remote_rank, remote_request);
}

bool ScriptedTransport::advance_clock(Seconds seconds) {
  if (seconds > kSecondsMax - now_) return false;
  now_ += seconds;
  return true;
}

bool ScriptedTransport::advance(ReadId read, TransferProgress progress) {
  const auto at = std::ranges::find_if(reads_, [read](const ReadState& candidate) {
    return candidate.read == read && candidate.is_under_way();
  });
  if (at == reads_.end()) return false;
  if (progress == TransferProgress::kPart) {
    at->progress = progress;
  } else {
    end(*at, progress == TransferProgress::kFinished);
  }
  return true;
}

bool ScriptedTransport::deliver(NoticeId notice) {
  const auto at = find_notice(notices_, notice);
  if (at == notices_.end() || at->delivered) return false;
  at->delivered = true;
  delivered_.push_back(notice);
  return true;
}

bool ScriptedTransport::lose(NoticeId notice) {
  const auto at = find_notice(notices_, notice);
  if (at == notices_.end() || at->delivered) return false;
  notices_.erase(at);
  return true;
}

bool ScriptedTransport::repeat(NoticeId notice) {
  const auto waiting = find_notice(notices_, notice);
  const auto seen = find_notice(seen_, notice);
  const bool waits = waiting != notices_.end() && waiting->delivered;
  if (!waits && seen == seen_.end()) return false;
  const Notice again = waits ? *waiting : *seen;
  send_notice(again);
  return true;
}

void ScriptedTransport::end(ReadState& read, bool success) {
  read.progress = success ? TransferProgress::kFinished : TransferProgress::kFailed;
  ended_.push_back(read.read);
  if (carrier_) carrier_->end(read.read, success);
  if (success) {
    send_notice({read.rank, read.remote_rank, /*is_heartbeat=*/false, {read.remote_request}});
  }
}

}  // namespace kvfence
