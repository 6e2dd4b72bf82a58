#include "scenarios/audit/auditor.h"

#include <algorithm>

namespace kvfence::audit {
namespace {

/// Messages that wait for a missing one before it counts as lost.
constexpr std::size_t kHeldMax = 64;
/// Limits of the ranks of one endpoint and topic, and of endpoints with topics: further ones are
/// counted with the last.
constexpr std::size_t kStreamsMax = 1024;
/// Of one stream that are reported: two engines under one name look like one that always restarts.
constexpr std::uint32_t kRestartsMax = 16;
/// No publisher reaches these numbers; the last one marks the end of a replay.
constexpr std::uint64_t kSequenceMax = std::uint64_t{1} << 62;

/// Whether its events belong to the stream of the finding.
bool is_of(const Finding& finding, const Arrival& arrival, DecodedBatch& decoded) {
  return decode(arrival.message.payload, decoded) &&
         (!finding.rank || decoded.batch.data_parallel_rank == finding.rank);
}

}  // namespace

Auditor::Channel& Auditor::channel_of(const Arrival& arrival) {
  for (Channel& channel : channels_) {
    if (channel.engine == arrival.engine && channel.topic == arrival.message.topic) return channel;
  }
  if (channels_.size() == kStreamsMax) return channels_.back();
  Channel& channel = channels_.emplace_back();
  channel.engine = arrival.engine;
  channel.topic = arrival.message.topic;
  return channel;
}

Auditor::Stream::Stream(Auditor& auditor, const Channel& of, std::optional<std::uint32_t> named)
    : channel(of),
      rank(named),
      checker(auditor.rules_.checks,
              [this, &auditor](Finding finding) { auditor.add(*this, std::move(finding)); }),
      seen(kSeenKept) {}

Auditor::Stream& Auditor::add_stream(Channel& channel, std::optional<std::uint32_t> rank) {
  if (channel.streams.size() == kStreamsMax) return channel.streams.back();
  return channel.streams.emplace_back(*this, channel, rank);
}

void Auditor::take(const Arrival& arrival) {
  received_.number = counts_.messages++;
  if (arrival.is_replayed) ++counts_.replayed;
  if (rules_.kept_bytes_max > 0) keep(arrival);
  received_.arrival = arrival;
  received_.is_batch = decode(arrival.message.payload, received_.decoded);
  received_.digest = id_of(arrival.message.payload);
  if (received_.is_batch) counts_.lag_seconds = arrival.time - received_.decoded.batch.time;
  Channel& channel = channel_of(arrival);
  if (arrival.message.sequence >= kSequenceMax) {
    if (channel.streams.empty()) add_stream(channel, std::nullopt);
    report(channel.streams.front(), Rule::kMalformed, arrival.message.sequence,
           "that sequence number", "one that counts from 0");
    return;
  }
  if (channel.doubtful) resolve(channel, &received_);
  route(channel, received_);
}

void Auditor::route(Channel& channel, Received& received) {
  const std::uint64_t sequence = received.arrival.message.sequence;
  const std::optional<std::uint32_t>& rank = received.decoded.batch.data_parallel_rank;
  const auto with_next = std::find_if(
      channel.streams.begin(), channel.streams.end(),
      [&](const Stream& stream) { return stream.has_begun && stream.next == sequence; });
  if (!received.is_batch || !rank) {
    // Only its number says which rank it is from.
    if (channel.streams.empty()) add_stream(channel, std::nullopt);
    Stream& stream = with_next != channel.streams.end() ? *with_next : channel.streams.front();
    return order(stream, received);
  }
  const auto own =
      std::find_if(channel.streams.begin(), channel.streams.end(),
                   [&](const Stream& stream) { return !stream.rank || stream.rank == rank; });
  if (own != channel.streams.end()) {
    own->rank = rank;
    const bool is_old = own->has_begun && sequence < own->next &&
                        own->seen[sequence % Stream::kSeenKept].digest != received.digest;
    if (!is_old || sequence == 0 || with_next == channel.streams.end()) {
      return order(*own, received);
    }
  } else if (with_next == channel.streams.end() || received.arrival.follows_cut) {
    return order(add_stream(channel, rank), received);
  }
  // The number fits another rank: it is from that rank, or from a new one with the same number. The
  // next message decides.
  channel.doubtful = received;
  channel.doubtful_of = &*with_next;
}

void Auditor::resolve(Channel& channel, const Received* next) {
  Received doubtful = std::move(*channel.doubtful);
  channel.doubtful.reset();
  Stream& other = *channel.doubtful_of;
  const std::uint64_t sequence = doubtful.arrival.message.sequence;
  const std::optional<std::uint32_t> rank = doubtful.decoded.batch.data_parallel_rank;
  // Two ranks on one endpoint count separately, and the audit may join one at any number; but then
  // the other one's message of that number comes before its next one.
  const bool goes_on = next != nullptr && next->decoded.batch.data_parallel_rank == other.rank &&
                       next->arrival.message.sequence == sequence + 1;
  if (goes_on) {
    std::vector<EventRef> led_there = {{sequence + 1}};
    if (sequence > 0) led_there.insert(led_there.begin(), {sequence - 1});
    report(other, Rule::kWrongRank, sequence, "a batch of rank " + std::to_string(rank.value_or(0)),
           "rank " + std::to_string(other.rank.value_or(0)) + ", whose number it has",
           std::move(led_there));
    return order(other, doubtful);
  }
  const auto own = std::find_if(channel.streams.begin(), channel.streams.end(),
                                [&](const Stream& stream) { return stream.rank == rank; });
  order(own != channel.streams.end() ? *own : add_stream(channel, rank), doubtful);
}

// ---- The order of one stream ----

bool Auditor::Stream::is_of_another(std::uint64_t sequence, HashId digest) const {
  const Seen& same = seen[sequence % kSeenKept];
  if (same.sequence == sequence) return same.digest != digest;
  return sequence == 0 || next - sequence > kSeenKept;
}

void Auditor::order(Stream& stream, Received& received) {
  const std::uint64_t sequence = received.arrival.message.sequence;
  if (!stream.has_begun) {
    stream.has_begun = true;
    stream.next = sequence;
    // An audit that joins later does not know what is held; an excerpt has what matters.
    if (sequence == 0 || received.arrival.follows_cut) stream.checker.begin_empty();
  } else if (received.arrival.follows_cut) {
    release(stream, 0);
    stream.next = sequence;
  }
  if (sequence < stream.next) return take_earlier(stream, received);
  if (sequence > stream.next) {
    const auto [at, is_new] = stream.held.try_emplace(sequence, received);
    if (!is_new) {
      report(stream, Rule::kRepeated, sequence, "it again", "each message once", {{sequence}});
    }
    return release(stream, kHeldMax);
  }
  if (!stream.held.empty() && !received.arrival.is_replayed) {
    report(stream, Rule::kReordered, sequence,
           "it after message " + std::to_string(stream.held.rbegin()->first),
           "messages in their order", {{stream.held.rbegin()->first}});
  }
  apply(stream, received);
  release(stream, kHeldMax);
}

void Auditor::take_earlier(Stream& stream, Received& received) {
  const std::uint64_t sequence = received.arrival.message.sequence;
  Seen& seen = stream.seen[sequence % Stream::kSeenKept];
  if (seen.sequence == sequence && seen.digest == received.digest) {
    if (received.arrival.is_replayed) return;
    // The first one by subscription: a replay was faster.
    const bool is_late = !std::exchange(seen.was_published, true);
    report(stream, is_late ? Rule::kReordered : Rule::kRepeated, sequence,
           is_late ? "it after message " + std::to_string(stream.next - 1) : "it again",
           is_late ? "messages in their order" : "each message once", {{sequence}});
    return;
  }
  if (!stream.is_of_another(sequence, received.digest)) {
    // It counted as lost; its events are out of date.
    report(stream, Rule::kReordered, sequence,
           "it after message " + std::to_string(stream.next - 1), "messages in their order",
           {{stream.next - 1}});
    return;
  }
  const std::vector<Event>& events = received.decoded.batch.events;
  const bool is_announced = !events.empty() && std::holds_alternative<ClearedEvent>(events.front());
  if (!is_announced && ++stream.num_restarts <= kRestartsMax) {
    const bool is_last = stream.num_restarts == kRestartsMax;
    report(stream, Rule::kRestarted, sequence,
           "a sequence that starts over after message " + std::to_string(stream.next - 1) +
               (is_last ? ", as often before, and not reported again: several engines?" : ""),
           "a clear with it", {{stream.next - 1}});
  }
  stream.held.clear();
  stream.checker.restart();
  if (sequence == 0) stream.checker.begin_empty();
  std::fill(stream.seen.begin(), stream.seen.end(), Seen{});
  stream.since = received.number;
  stream.next = sequence;
  apply(stream, received);
}

/// Applies what is held back: what follows on, and everything beyond held_max messages.
void Auditor::release(Stream& stream, std::size_t held_max) {
  while (!stream.held.empty()) {
    const auto first = stream.held.begin();
    if (first->first != stream.next) {
      if (stream.held.size() <= held_max) return;
      const std::uint64_t num_lost = first->first - stream.next;
      report(stream, Rule::kLost, first->first,
             std::to_string(num_lost) + (num_lost == 1 ? " message" : " messages") +
                 " missing before it",
             "message " + std::to_string(stream.next),
             stream.next > 0 ? std::vector<EventRef>{{stream.next - 1}} : std::vector<EventRef>{});
      stream.checker.lose_track();
      stream.next = first->first;
    }
    const Received received = std::move(first->second);
    stream.held.erase(first);
    apply(stream, received);
  }
}

void Auditor::apply(Stream& stream, const Received& received) {
  const std::uint64_t sequence = received.arrival.message.sequence;
  stream.next = sequence + 1;
  stream.seen[sequence % Stream::kSeenKept] = {sequence, received.digest,
                                               !received.arrival.is_replayed};
  const DecodedBatch& decoded = received.decoded;
  if (!decoded.problems.empty()) {
    report_problems(stream, received);
    stream.checker.lose_track();
    if (!received.is_batch) return;
  }
  counts_.unknown_fields += decoded.unknown_fields;
  counts_.events += decoded.batch.events.size();
  EventRef at{sequence, 0};
  for (const Event& event : decoded.batch.events) {
    stream.checker.take(event, at, decoded.encoding, received.arrival.is_scene);
    ++at.event;
  }
}

bool Auditor::is_first_of(std::string what) {
  return malformed_.size() <= Findings::kKeptMax && malformed_.insert(std::move(what)).second;
}

void Auditor::reject(const std::string& engine, const std::string& found) {
  if (!is_first_of(engine + "\n" + found)) return;
  findings_.add({.engine = engine,
                 .found = found,
                 .expected = "a topic, a sequence number of 8 bytes, and a payload"});
}

void Auditor::settle() {
  for (Channel& channel : channels_) {
    for (Stream& stream : channel.streams) release(stream, 0);
  }
}

void Auditor::finish() {
  for (Channel& channel : channels_) {
    if (channel.doubtful) resolve(channel, nullptr);
  }
  settle();
  for (Channel& channel : channels_) {
    for (Stream& stream : channel.streams) stream.checker.finish();
  }
}

std::optional<std::uint64_t> Auditor::missing_before(const Arrival& arrival) const {
  const std::uint64_t sequence = arrival.message.sequence;
  if (sequence >= kSequenceMax) return std::nullopt;
  std::uint64_t first = 0;
  for (const Channel& channel : channels_) {
    if (channel.engine != arrival.engine || channel.topic != arrival.message.topic) continue;
    // With several ranks it is unknown whose gap it is.
    if (channel.streams.size() != 1 || !channel.streams.front().has_begun) return std::nullopt;
    const Stream& stream = channel.streams.front();
    if (sequence < stream.next && !stream.is_of_another(sequence, id_of(arrival.message.payload))) {
      return std::nullopt;
    }
    // The messages missing before those held back were asked for with them.
    if (sequence >= stream.next) {
      first = stream.held.empty() ? stream.next : stream.held.rbegin()->first + 1;
    }
  }
  return first < sequence ? std::optional(first) : std::nullopt;
}

// ---- Findings ----

void Auditor::add(const Stream& stream, Finding finding) {
  finding.engine = stream.channel.engine;
  finding.topic = stream.channel.topic;
  finding.rank = stream.rank;
  finding.since = stream.since;
  finding.until = counts_.messages;
  findings_.add(std::move(finding));
}

void Auditor::report(const Stream& stream, Rule rule, std::uint64_t sequence, std::string found,
                     std::string expected, std::vector<EventRef> led_there) {
  add(stream, {.rule = rule,
               .at = {sequence},
               .found = std::move(found),
               .expected = std::move(expected),
               .led_there = std::move(led_there)});
}

void Auditor::report_problems(const Stream& stream, const Received& received) {
  for (const DecodeProblem& problem : received.decoded.problems) {
    // An unknown kind of event comes with each batch: one cause, one report.
    if (!is_first_of(problem.found + "\n" + problem.expected)) continue;
    report(stream, Rule::kMalformed, received.arrival.message.sequence,
           problem.found + " at byte " + std::to_string(problem.offset), problem.expected);
  }
}

std::vector<StreamView> Auditor::views(bool with_held) const {
  std::vector<StreamView> all;
  for (const Channel& channel : channels_) {
    for (const Stream& stream : channel.streams) {
      all.push_back({channel.engine, channel.topic, stream.rank, stream.next,
                     stream.checker.is_certain(), stream.checker.counts(),
                     stream.checker.holdings(), stream.checker.hash_text(),
                     with_held ? stream.checker.held_on_gpu() : std::vector<HashId>()});
    }
  }
  return all;
}

CheckCounts Auditor::check_counts() const {
  CheckCounts sum;
  for (const StreamView& view : views()) sum += view.counts;
  return sum;
}

Holdings Auditor::holdings() const {
  Holdings sum;
  for (const StreamView& view : views()) sum += view.holdings;
  return sum;
}

// ---- Evidence ----

void Auditor::keep(const Arrival& arrival) {
  constexpr std::size_t kOverhead = sizeof(Arrival) + 64;
  kept_.push_back(arrival);
  kept_bytes_ += kOverhead + arrival.message.payload.size();
  while (kept_bytes_ > rules_.kept_bytes_max && !kept_.empty()) {
    kept_bytes_ -= kOverhead + kept_.front().message.payload.size();
    kept_.pop_front();
  }
}

std::vector<const Arrival*> Auditor::kept_for(const Finding& finding) const {
  std::vector<const Arrival*> found;
  std::uint64_t number = counts_.messages - kept_.size();
  for (const Arrival& arrival : kept_) {
    const bool is_of_run = number >= finding.since && number < finding.until;
    if (is_of_run && arrival.engine == finding.engine && arrival.message.topic == finding.topic) {
      found.push_back(&arrival);
    }
    ++number;
  }
  return found;
}

/// For a pool that is too full: the last events that stored the held hashes, and the removals of
/// other hashes of these events.
std::vector<EventRef> Auditor::what_fills(const Finding& finding) const {
  struct Held {
    std::uint64_t copies = 0;
    EventRef stored;
  };
  using Key = std::pair<std::optional<std::uint32_t>, EventHash>;
  std::map<Key, Held> all;
  const std::vector<const Arrival*> kept = kept_for(finding);
  DecodedBatch decoded;
  const auto for_each_event = [&](auto&& visit) {
    for (const Arrival* const arrival : kept) {
      if (!is_of(finding, *arrival, decoded)) continue;
      EventRef at{arrival->message.sequence, 0};
      for (const Event& event : decoded.batch.events) {
        if (at <= finding.at) visit(event, at);
        ++at.event;
      }
    }
  };
  for_each_event([&](const Event& event, EventRef at) {
    if (const auto* stored = std::get_if<StoredEvent>(&event)) {
      if (!is_on_gpu(stored->medium)) return;
      for (const EventHash& hash : stored->block_hashes) {
        Held& held = all[{stored->group_idx, hash}];
        ++held.copies;
        held.stored = at;
      }
    } else if (const auto* removed = std::get_if<RemovedEvent>(&event)) {
      if (!is_on_gpu(removed->medium)) return;
      for (const EventHash& hash : removed->block_hashes) {
        const auto found = all.find({removed->group_idx, hash});
        if (found == all.end() || found->second.copies == 0) continue;
        // As in the mirror: further ones may have been reports of this one.
        found->second.copies = decoded.encoding == Encoding::kMaps ? 0 : found->second.copies - 1;
      }
    } else {
      all.clear();
    }
  });
  std::set<EventRef> relevant;
  for (const auto& [key, held] : all) {
    if (held.copies > 0) relevant.insert(held.stored);
  }
  std::set<Key> gone;
  for_each_event([&](const Event& event, EventRef at) {
    if (const auto* stored = std::get_if<StoredEvent>(&event)) {
      if (relevant.count(at) == 0) return;
      for (const EventHash& hash : stored->block_hashes) {
        const auto found = all.find({stored->group_idx, hash});
        if (found != all.end() && found->second.copies == 0) gone.insert(found->first);
      }
    } else if (const auto* removed = std::get_if<RemovedEvent>(&event)) {
      for (const EventHash& hash : removed->block_hashes) {
        if (gone.count({removed->group_idx, hash}) > 0) relevant.insert(at);
      }
    }
  });
  return {relevant.begin(), relevant.end()};
}

std::vector<Arrival> Auditor::evidence_of(const Finding& finding) const {
  // A finding about the order needs whole messages; one about events, only those that led there.
  const bool is_of_order = finding.at.event == EventRef::kNoEvent;
  const std::vector<EventRef> led_there =
      finding.rule == Rule::kTooManyBlocks ? what_fills(finding) : finding.led_there;
  std::vector<Arrival> evidence;
  DecodedBatch decoded;
  for (const Arrival* const kept : kept_for(finding)) {
    const Arrival& arrival = *kept;
    const std::uint64_t sequence = arrival.message.sequence;
    std::set<std::uint32_t> events;
    for (auto ref = std::lower_bound(led_there.begin(), led_there.end(), EventRef{sequence, 0});
         ref != led_there.end() && ref->sequence == sequence; ++ref) {
      events.insert(ref->event);
    }
    const bool is_last = sequence == finding.at.sequence;
    if (events.empty() && !is_last) continue;
    // Before a restart there was a message of the same number, and after it come those of others.
    const bool is_other = evidence.empty() ? events.empty() : evidence.size() > 1 || !is_last;
    if (finding.rule == Rule::kRestarted && is_other) continue;
    const bool is_batch = decode(arrival.message.payload, decoded);
    const bool is_of_rank = !is_batch || !finding.rank ||
                            decoded.batch.data_parallel_rank == finding.rank || is_of_order;
    if (!is_of_rank) continue;
    Arrival& part = evidence.emplace_back(arrival);
    if (is_of_order) {
      part.follows_cut = evidence.size() == 1;
      // The finding is not about its events.
      part.is_scene = true;
      continue;
    }
    part.follows_cut = true;
    part.is_scene = !is_last;
    std::vector<ByteRange> ranges;
    for (std::uint32_t event = 0; event < decoded.ranges.size(); ++event) {
      const bool is_kept = events.contains(event) || (is_last && event == finding.at.event);
      if (is_kept) ranges.push_back(decoded.ranges[event]);
    }
    part.message.payload = payload_of(arrival.message.payload, decoded.batch, ranges);
  }
  return evidence;
}

}  // namespace kvfence::audit
