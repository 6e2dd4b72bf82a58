#include "scenarios/audit/faults.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <limits>
#include <span>
#include <utility>
#include <variant>

#include "contract/core/joined.h"
#include "contract/core/lists.h"
#include "contract/pool/request.h"

namespace kvfence::audit {
namespace {

constexpr std::uint64_t kNever = std::numeric_limits<std::uint64_t>::max();

// Hashes that no block has: one pattern for each use, so that they differ.
constexpr char kWrongHashPattern = '\x5a';
constexpr char kUnknownParentPattern = '\x33';
constexpr char kRemovedUnknownPattern = '\x0f';

std::string flipped(std::string hash, char pattern) {
  for (char& byte : hash) byte = static_cast<char>(byte ^ pattern);
  return hash;
}

std::optional<std::uint64_t> number_of(std::string_view text) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

bool has_all_tokens(const StoredEvent& event) {
  return event.token_ids.size() == event.block_hashes.size() * event.block_size;
}

ExtraKeys keys_of_block(const StoredEvent& event, std::size_t index) {
  ExtraKeys keys;
  if (!event.extra_keys || !(*event.extra_keys)[index]) return keys;
  for (const EventExtraKey& key : *(*event.extra_keys)[index]) {
    if (key.offset) {
      keys.emplace_back(MmExtraKey{key.value, *key.offset});
    } else {
      keys.emplace_back(key.value);
    }
  }
  return keys;
}

}  // namespace

Parsed<Fault> parse_fault(std::string_view text) {
  const std::size_t at = text.find('@');
  const std::size_t slash = text.find('/');
  const auto kind = from_text<FaultKind>(text.substr(0, at));
  if (kind && at != text.npos) {
    const auto message =
        number_of(text.substr(at + 1, slash == text.npos ? slash : slash - at - 1));
    const auto every = slash == text.npos ? std::uint64_t{0} : number_of(text.substr(slash + 1));
    if (message && every && (*every > 0 || slash == text.npos))
      return Fault{*kind, *message, *every};
  }
  return InputError{
      "--inject",
      {},
      "'" + std::string(text) + "'",
      "KIND@N or KIND@N/EVERY, where KIND is one of " + joined(words_of(FaultKind{}))};
}

FaultInjector::FaultInjector(std::vector<Fault> faults, HashAlgorithm algorithm)
    : faults_(std::move(faults)), algorithm_(algorithm) {}

void FaultInjector::take(Outgoing message, std::vector<Outgoing>& out) {
  if (faults_.empty()) {
    out.push_back(std::move(message));
    return;
  }
  const std::uint64_t sequence = message.sequence;
  std::optional<Outgoing> clean;
  for (Fault& fault : faults_) {
    if (fault.kind != FaultKind::kSilentRestart || fault.message == kNever) continue;
    if (fault.message <= sequence && !history_.empty()) {
      restart(out);
      record(fault, sequence);
    }
    clean = message;
  }
  message.batch.time += shift_;

  std::vector<Event> events;
  for (const Event& event : message.batch.events) take_event(event, sequence, events);
  rename(events);
  message.batch.events = std::move(events);
  publish(std::move(message), out);
  if (clean) history_.push_back(std::move(*clean));
}

void FaultInjector::finish(std::vector<Outgoing>& out) {
  if (!held_back_) return;
  out.push_back(std::move(*held_back_));
  held_back_.reset();
  const auto is_that = [](const Injection& injection) {
    return injection.kind == FaultKind::kReordered;
  };
  injections_.erase(std::find_if(injections_.rbegin(), injections_.rend(), is_that).base() - 1);
}

/// Faults of an event, one at most.
void FaultInjector::take_event(const Event& event, std::uint64_t sequence,
                               std::vector<Event>& out) {
  note(event);
  out.push_back(event);
  for (Fault& fault : faults_) {
    if (fault.message > sequence || !inject(fault.kind, out)) continue;
    record(fault, sequence);
    return;
  }
}

void FaultInjector::note(const Event& event) {
  is_first_new_ = false;
  if (const auto* stored = std::get_if<StoredEvent>(&event)) {
    carries_group_ = stored->group_idx.has_value();
    for (const EventHash& hash : stored->block_hashes) {
      Held& held = held_[{*stored->medium, stored->group_idx.value_or(0), hash.bytes}];
      if (held.copies++ == 0) held.since = num_stored_++;
      const bool is_new = ever_stored_.insert(hash.bytes).second;
      if (&hash == &stored->block_hashes.front()) is_first_new_ = is_new;
    }
  } else if (const auto* removed = std::get_if<RemovedEvent>(&event)) {
    carries_group_ = removed->group_idx.has_value();
    for (const EventHash& hash : removed->block_hashes) {
      const auto found = held_.find({*removed->medium, removed->group_idx.value_or(0), hash.bytes});
      if (found != held_.end() && --found->second.copies == 0) held_.erase(found);
    }
  } else {
    held_.clear();
  }
}

/// False: the last event is no place for that kind.
bool FaultInjector::inject(FaultKind kind, std::vector<Event>& out) {
  if (kind == FaultKind::kRemovedHeld) return remove_newest(out);
  if (kind == FaultKind::kClearedHeld) {
    if (held_.empty()) return false;
    out.emplace_back(ClearedEvent{});
    return true;
  }
  if (auto* stored = std::get_if<StoredEvent>(&out.back())) {
    return !stored->block_hashes.empty() && inject_stored(kind, *stored, out);
  }
  const auto* removed = std::get_if<RemovedEvent>(&out.back());
  if (removed == nullptr) return false;
  if (kind == FaultKind::kRemovalLeftOut) {
    out.pop_back();
    return true;
  }
  const Key key{*removed->medium, removed->group_idx.value_or(0),
                removed->block_hashes.front().bytes};
  if (kind != FaultKind::kRemovedTwice || held_.count(key) > 0) return false;
  out.push_back(Event(*removed));
  return true;
}

bool FaultInjector::inject_stored(FaultKind kind, StoredEvent& event, std::vector<Event>& out) {
  const std::string& first = event.block_hashes.front().bytes;
  switch (kind) {
    case FaultKind::kWrongParent: {
      if (!event.parent_block_hash) return false;
      const auto is_other = [&](const auto& entry) {
        const auto& [medium, group, hash] = entry.first;
        const EventHash other{hash, false};
        const auto& own = event.block_hashes;
        return medium == *event.medium && group == event.group_idx.value_or(0) &&
               other != *event.parent_block_hash && !contains(own, other);
      };
      const auto found = std::find_if(held_.begin(), held_.end(), is_other);
      if (found == held_.end()) return false;
      event.parent_block_hash->bytes = std::get<2>(found->first);
      return true;
    }
    case FaultKind::kUnknownParent:
      if (!event.parent_block_hash) return false;
      event.parent_block_hash->bytes =
          flipped(event.parent_block_hash->bytes, kUnknownParentPattern);
      return true;
    case FaultKind::kWrongHash:
      // If some of its blocks were seen before, their children may have been, too.
      if (!is_first_new_ || !has_all_tokens(event)) return false;
      renamed_[first] = flipped(first, kWrongHashPattern);
      return true;
    case FaultKind::kCutTokens:
      if (!has_all_tokens(event)) return false;
      event.token_ids.pop_back();
      return true;
    case FaultKind::kRemovedUnknown:
      out.emplace_back(
          RemovedEvent{.block_hashes = {{flipped(first, kRemovedUnknownPattern), false}},
                       .medium = event.medium,
                       .group_idx = event.group_idx});
      return true;
    default:
      return false;
  }
}

bool FaultInjector::remove_newest(std::vector<Event>& out) const {
  const auto newest = std::max_element(
      held_.begin(), held_.end(),
      [](const auto& a, const auto& b) { return a.second.since < b.second.since; });
  if (newest == held_.end() || newest->second.copies != 1) return false;
  const auto& [medium, group, hash] = newest->first;
  RemovedEvent removed{.block_hashes = {{hash, false}}, .medium = medium};
  if (carries_group_) removed.group_idx = group;
  out.emplace_back(std::move(removed));
  return true;
}

void FaultInjector::rename(std::vector<Event>& events) {
  if (renamed_.empty()) return;
  for (Event& event : events) {
    if (auto* stored = std::get_if<StoredEvent>(&event)) {
      rename(*stored);
    } else if (auto* removed = std::get_if<RemovedEvent>(&event)) {
      for (EventHash& hash : removed->block_hashes) rename(hash);
    }
  }
}

/// What is stored under a renamed block has the hash that follows from its name.
void FaultInjector::rename(StoredEvent& event) {
  EventHash* parent = event.parent_block_hash ? &*event.parent_block_hash : nullptr;
  bool is_renamed = parent != nullptr && rename(*parent);
  const bool has_all = has_all_tokens(event);
  for (std::size_t index = 0; index < event.block_hashes.size(); ++index) {
    EventHash& hash = event.block_hashes[index];
    if (is_renamed && has_all && renamed_.count(hash.bytes) == 0) {
      const auto tokens = std::span<const TokenId>(event.token_ids)
                              .subspan(index * event.block_size, event.block_size);
      renamed_[hash.bytes] =
          hash_block_tokens(algorithm_, parent->bytes, tokens, keys_of_block(event, index));
    }
    is_renamed = rename(hash);
    parent = &hash;
  }
}

bool FaultInjector::rename(EventHash& hash) const {
  const auto found = renamed_.find(hash.bytes);
  if (found == renamed_.end()) return false;
  hash.bytes = found->second;
  return true;
}

/// Applies faults of a whole message, and sends it.
void FaultInjector::publish(Outgoing message, std::vector<Outgoing>& out) {
  std::optional<Outgoing> held_back = std::exchange(held_back_, std::nullopt);
  const std::uint64_t sequence = message.sequence;
  bool is_repeated = false;
  bool is_late = false;
  for (Fault& fault : faults_) {
    if (fault.message > sequence) continue;
    if (fault.kind == FaultKind::kLost) {
      message.is_sent = false;
    } else if (fault.kind == FaultKind::kMalformed) {
      message.is_cut = true;
    } else if (fault.kind == FaultKind::kWrongRank) {
      ++*message.batch.data_parallel_rank;
    } else if (fault.kind == FaultKind::kRepeated) {
      is_repeated = true;
    } else if (fault.kind == FaultKind::kReordered && !held_back) {
      is_late = true;
    } else {
      continue;
    }
    record(fault, sequence);
  }
  if (is_late) {
    held_back_ = message;
  } else {
    out.push_back(message);
  }
  if (is_repeated) {
    message.is_kept = false;
    message.truth.clear();
    out.push_back(std::move(message));
  }
  if (held_back) out.push_back(std::move(*held_back));
}

/// A new engine serves the same traffic from its beginning.
void FaultInjector::restart(std::vector<Outgoing>& out) {
  finish(out);
  renamed_.clear();
  shift_ += history_.back().batch.time - history_.front().batch.time + 1;
  for (const Outgoing& earlier : history_) {
    out.push_back(earlier);
    out.back().batch.time += shift_;
    out.back().restarts = &earlier == &history_.front();
  }
}

void FaultInjector::record(Fault& fault, std::uint64_t sequence) {
  injections_.push_back({fault.kind, sequence});
  fault.message = fault.every > 0 ? sequence + fault.every : kNever;
}

}  // namespace kvfence::audit
