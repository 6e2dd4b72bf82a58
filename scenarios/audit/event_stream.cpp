#include "scenarios/audit/event_stream.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <iterator>
#include <map>
#include <string_view>
#include <utility>

#include "contract/core/hex.h"

namespace kvfence::audit {
namespace {

constexpr double kMicrosecondsASecond = 1e6;

/// Who publishes in a recording.
constexpr const char* kEngineName = "kvfence";

constexpr std::uint32_t kRank = 0;

struct Change {
  std::vector<BlockHash> added;
  std::vector<BlockHash> removed;
};

void append_hashes(std::string& out, const std::vector<BlockHash>& hashes, bool low64) {
  out += '[';
  for (const BlockHash& hash : hashes) {
    EventHash shown{hash, false};
    if (low64) to_low64(shown);
    if (&hash != &hashes.front()) out += ',';
    out += '"' + to_hex(shown.bytes) + '"';
  }
  out += ']';
}

/// What is in `left` more often than in `right`. Requires: both sorted.
std::vector<BlockHash> without(const std::vector<BlockHash>& left,
                               const std::vector<BlockHash>& right) {
  std::vector<BlockHash> rest;
  std::set_difference(left.begin(), left.end(), right.begin(), right.end(),
                      std::back_inserter(rest));
  return rest;
}

}  // namespace

bool EventStreamOptions::is_recorded() const {
  return publisher.endpoint.find("://") == std::string::npos;
}

std::string TruthDiff::take(std::uint64_t sequence, const std::vector<BlockHash>& keys,
                            bool low64) {
  std::map<GroupId, Change> changes;
  before_.resize(keys.size());
  for (std::size_t block = 0; block < keys.size(); ++block) {
    BlockHash& before = before_[block];
    if (before == keys[block]) continue;
    const auto note = [&](const BlockHash& key, std::vector<BlockHash> Change::*list) {
      if (key.empty()) return;
      (changes[get_group_id(key)].*list).emplace_back(get_block_hash(key));
    };
    note(before, &Change::removed);
    note(keys[block], &Change::added);
    before = keys[block];
  }
  std::string lines;
  for (auto& [group, change] : changes) {
    std::sort(change.added.begin(), change.added.end());
    std::sort(change.removed.begin(), change.removed.end());
    const auto added = without(change.added, change.removed);
    const auto removed = without(change.removed, change.added);
    if (added.empty() && removed.empty()) continue;
    lines += "{\"sequence\":" + std::to_string(sequence) + ",\"group\":" + std::to_string(group) +
             ",\"medium\":\"GPU\",\"added\":";
    append_hashes(lines, added, low64);
    lines += ",\"removed\":";
    append_hashes(lines, removed, low64);
    lines += "}\n";
  }
  return lines;
}

Parsed<std::unique_ptr<EventStream>> EventStream::open(const EventStreamOptions& options,
                                                       HashAlgorithm algorithm) {
  std::unique_ptr<EventStream> stream(new EventStream(options, algorithm));
  if (options.is_recorded()) {
    stream->recording_ = std::make_unique<RecordingWriter>();
    if (auto problem = stream->recording_->open(options.publisher.endpoint)) {
      return InputError{"--publish", {}, *problem, "a file that can be written"};
    }
  } else {
    auto publisher = Publisher::open(options.publisher);
    if (!publisher) return publisher.error();
    stream->publisher_ = std::move(*publisher);
  }
  if (!options.truth_file.empty()) {
    stream->truth_file_.reset(std::fopen(options.truth_file.c_str(), "wb"));
    if (!stream->truth_file_) {
      return InputError{"--truth",
                        {},
                        options.truth_file + " (" + std::strerror(errno) + ")",
                        "a file that can be written"};
    }
  }
  return stream;
}

std::optional<InputError> EventStream::start() {
  std::optional<InputError> error;
  if (publisher_) error = publisher_->wait_for_subscribers();
  start_ = Publisher::Clock::now();
  return error;
}

bool EventStream::take(std::uint64_t time_us, const std::vector<KVCacheEvent>& events,
                       const std::vector<BlockHash>& keys) {
  if (error_) return false;
  if (events.empty()) return true;
  Outgoing outgoing;
  outgoing.sequence = next_sequence_++;
  outgoing.batch.time = static_cast<double>(time_us) / kMicrosecondsASecond;
  outgoing.batch.data_parallel_rank = kRank;
  for (const KVCacheEvent& event : events) outgoing.batch.events.push_back(to_event(event));
  if (truth_file_) outgoing.truth = truth_.take(outgoing.sequence, keys, options_.low64);
  faults_.take(std::move(outgoing), out_);
  return send_all();
}

bool EventStream::finish() {
  if (error_) return false;
  faults_.finish(out_);
  if (!send_all() || !write_truth("{\"end\":" + std::to_string(next_sequence_) + "}\n"))
    return false;
  if (truth_file_ && std::fflush(truth_file_.get()) != 0) {
    return fail("--truth", std::strerror(errno), "a file that can be written");
  }
  if (publisher_) publisher_->finish();
  return true;
}

bool EventStream::send_all() {
  for (Outgoing& outgoing : out_) {
    if (!send(outgoing)) return false;
  }
  out_.clear();
  return true;
}

bool EventStream::send(Outgoing& outgoing) {
  if (publisher_) {
    if (options_.speed > 0) {
      const std::chrono::duration<double> after(outgoing.batch.time / options_.speed);
      publisher_->serve_until(start_ +
                              std::chrono::duration_cast<Publisher::Clock::duration>(after));
    }
    outgoing.batch.time = seconds_since_epoch();
    if (outgoing.restarts) publisher_->forget();
  }
  // First, so that a subscriber never has a message that the truth does not know.
  if (outgoing.restarts && !write_truth("{\"restart\":true}\n")) return false;
  if (!write_truth(outgoing.truth)) return false;

  if (options_.low64) to_low64(outgoing.batch);
  Message message{options_.publisher.topic, outgoing.sequence,
                  encode(outgoing.batch, options_.release)};
  if (outgoing.is_cut) message.payload.resize(message.payload.size() / 2);
  if (outgoing.is_sent) {
    ++num_messages_;
    num_events_ += outgoing.batch.events.size();
  }
  if (recording_) {
    if (!outgoing.is_sent) return true;
    const auto problem = recording_->write(
        {.engine = kEngineName, .message = std::move(message), .time = outgoing.batch.time});
    return !problem || fail("--publish", *problem, "a file that can be written");
  }
  if (outgoing.is_sent) {
    if (auto error = publisher_->send(message, outgoing.is_kept)) {
      error_ = std::move(error);
      return false;
    }
  } else {
    publisher_->keep(message);
  }
  return true;
}

bool EventStream::write_truth(const std::string& lines) {
  if (!truth_file_ || lines.empty()) return true;
  if (std::fwrite(lines.data(), 1, lines.size(), truth_file_.get()) == lines.size() &&
      (!publisher_ || std::fflush(truth_file_.get()) == 0)) {
    return true;
  }
  return fail("--truth", std::strerror(errno), "a file that can be written");
}

bool EventStream::fail(const char* option, std::string found, std::string expected) {
  error_ = InputError{option, {}, std::move(found), std::move(expected)};
  return false;
}

}  // namespace kvfence::audit
