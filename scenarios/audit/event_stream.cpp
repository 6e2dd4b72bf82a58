#include "scenarios/audit/event_stream.h"

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <map>
#include <utility>

#include "contract/core/hex.h"
#include "contract/core/joined.h"

namespace kvfence::audit {
namespace {

constexpr double kMicrosecondsASecond = 1e6;

/// The publisher's name in a recording.
constexpr const char* kEngineName = "kvfence";

constexpr std::uint32_t kRank = 0;

InputError unwritable(const char* option, std::string found) {
  return {option, {}, std::move(found), "a file that can be written"};
}

}  // namespace

bool EventStreamOptions::is_recorded() const {
  return publisher.endpoint.find("://") == std::string::npos;
}

std::string TruthDiff::take(std::uint64_t sequence, const std::vector<BlockHash>& keys,
                            bool low64) {
  std::map<GroupId, std::map<BlockHash, int>> changes;  // copies more or fewer
  const auto count = [&](const BlockHash& key, int copies) {
    if (!key.empty()) changes[get_group_id(key)][BlockHash(get_block_hash(key))] += copies;
  };
  before_.resize(keys.size());
  for (std::size_t block = 0; block < keys.size(); ++block) {
    BlockHash& before = before_[block];
    if (before == keys[block]) continue;
    count(before, -1);
    count(keys[block], 1);
    before = keys[block];
  }
  std::string lines;
  for (const auto& [group, copies_of] : changes) {
    std::vector<std::string> added;
    std::vector<std::string> removed;
    for (const auto& [hash, copies] : copies_of) {
      EventHash shown{hash, false};
      if (low64) to_low64(shown);
      auto& list = copies > 0 ? added : removed;
      list.insert(list.end(), static_cast<std::size_t>(std::abs(copies)),
                  '"' + to_hex(shown.bytes) + '"');
    }
    if (added.empty() && removed.empty()) continue;
    lines += "{\"sequence\":" + std::to_string(sequence) + ",\"group\":" + std::to_string(group) +
             ",\"medium\":\"GPU\",\"added\":[" + joined(added, ",") + "],\"removed\":[" +
             joined(removed, ",") + "]}\n";
  }
  return lines;
}

Parsed<std::unique_ptr<EventStream>> EventStream::open(const EventStreamOptions& options,
                                                       HashAlgorithm algorithm) {
  std::unique_ptr<EventStream> stream(new EventStream(options, algorithm));
  if (options.is_recorded()) {
    stream->recording_ = std::make_unique<RecordingWriter>();
    if (auto problem = stream->recording_->open(options.publisher.endpoint)) {
      return unwritable("--publish", *problem);
    }
  } else {
    auto publisher = Publisher::open(options.publisher);
    if (!publisher) return publisher.error();
    stream->publisher_ = std::move(*publisher);
  }
  if (!options.truth_file.empty()) {
    stream->truth_file_.open(options.truth_file, std::ios::binary);
    if (!stream->truth_file_) {
      return unwritable("--truth", options.truth_file + " (" + std::strerror(errno) + ")");
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
  if (truth_file_.is_open()) outgoing.truth = truth_.take(outgoing.sequence, keys, options_.low64);
  faults_.take(std::move(outgoing), out_);
  return send_all();
}

bool EventStream::finish() {
  if (error_) return false;
  faults_.finish(out_);
  if (!send_all() || !write_truth("{\"end\":" + std::to_string(next_sequence_) + "}\n"))
    return false;
  if (!truth_file_.flush()) return fail("--truth", std::strerror(errno));
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
  // First, so that a subscriber never has a message before its lines of the truth.
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
    return !problem || fail("--publish", *problem);
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
  if (!truth_file_.is_open() || lines.empty()) return true;
  truth_file_ << lines;
  if (publisher_) truth_file_.flush();
  return truth_file_.good() || fail("--truth", std::strerror(errno));
}

bool EventStream::fail(const char* option, std::string found) {
  error_ = unwritable(option, std::move(found));
  return false;
}

}  // namespace kvfence::audit
