/// Checks the two sides of an audit against each other: our own engine's streams, with and without
/// faults.
/// KVFENCE_FAULT_PLACES in the environment: how many random places a kind of fault gets.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "contract/core/sanitized.h"
#include "scenarios/audit/auditor.h"
#include "scenarios/audit/encode.h"
#include "scenarios/audit/faults.h"
#include "scenarios/replay/scheduler_replay.h"
#include "scenarios/replay/traffic_replay.h"
#include "scenarios/targets/targets.h"

namespace kvfence::audit {
namespace {

constexpr std::uint32_t kGpuBlocks = 400;

using Messages = std::vector<Outgoing>;

class Collected {
 public:
  EventsTap tap() {
    return {[this](std::uint64_t time_us, const std::vector<KVCacheEvent>& events,
                   const std::vector<BlockHash>&) {
              if (events.empty()) return true;
              Outgoing message;
              message.sequence = messages_.size();
              message.batch.time = static_cast<double>(time_us) / 1e6;
              message.batch.data_parallel_rank = 0;
              for (const KVCacheEvent& event : events) {
                message.batch.events.push_back(to_event(event));
              }
              messages_.push_back(std::move(message));
              return true;
            },
            /*wants_keys=*/false};
  }
  Messages take() { return std::move(messages_); }

 private:
  Messages messages_;
};

std::vector<MooncakeRequest> excerpt() {
  return *read_mooncake_trace_file(std::string(KVFENCE_TRAFFIC_DIR) +
                                   "/mooncake_conversation_excerpt.jsonl");
}

/// Blocks of one token: every block that is taken is cached.
const Messages& of_a_pool() {
  static const Messages messages = [] {
    TrafficReplayOptions options;
    options.gpu_blocks = kGpuBlocks;
    options.requests_max = 250;
    options.enable_kv_cache_events = true;
    Collected collected;
    const auto pool = block_pool_sides().make_optimized();
    replay_traffic(excerpt(), options, *pool, nullptr, {}, collected.tap());
    return collected.take();
  }();
  return messages;
}

/// As many tokens as the trace has blocks, in blocks of one token: every block of a running request
/// is cached, so that the pool is often full of cached blocks.
const Messages& of_a_scheduler() {
  static const Messages messages = [] {
    std::vector<MooncakeRequest> requests = excerpt();
    for (MooncakeRequest& request : requests) {
      request.input_length = static_cast<std::uint32_t>(request.hash_ids.size());
      request.output_length = request.output_length / kMooncakeBlockTokens + 1;
    }
    SchedulerReplayOptions options;
    options.gpu_blocks = kGpuBlocks;
    options.block_size = options.block_tokens = 1;
    options.requests_max = 250;
    options.profile = Profile::kV023;
    options.enable_kv_cache_events = true;
    Collected collected;
    const auto scheduler = engine_sides().make_optimized();
    replay_traffic(requests, options, *scheduler, nullptr, {}, collected.tap());
    return collected.take();
  }();
  return messages;
}

/// How messages are published.
struct Form {
  WireRelease release;
  bool low64;
};
constexpr std::array kForms = {Form{WireRelease::kV023, false}, Form{WireRelease::kV033, false},
                               Form{WireRelease::kV019, true}, Form{WireRelease::kV033, true}};

Arrival arrival_of(const Outgoing& message, const Form& form) {
  EventBatch batch = message.batch;
  if (form.low64) to_low64(batch);
  Arrival arrival;
  arrival.engine = "engine";
  arrival.message.sequence = message.sequence;
  arrival.message.payload = encode(batch, form.release);
  if (message.is_cut) arrival.message.payload.resize(arrival.message.payload.size() / 2);
  arrival.time = message.batch.time;
  return arrival;
}

AuditRules rules_of_audit() {
  AuditRules rules;
  rules.checks.blocks_max = kGpuBlocks - 1;  // without the null block
  return rules;
}

std::vector<Finding> findings_of(const Messages& messages, const Form& form) {
  Auditor auditor(rules_of_audit());
  for (const Outgoing& message : messages) {
    if (message.is_sent) auditor.take(arrival_of(message, form));
  }
  auditor.finish();
  return auditor.findings().kept();
}

std::string text_of(const std::vector<Finding>& findings) {
  std::string text;
  for (const Finding& finding : findings) text += finding.to_text() + "\n";
  return text;
}

/// Whether a plain mirror meets a contradiction: a removal of what it does not hold, a parent that
/// it does not hold, more blocks than there are. Some faults are contradictions themselves; these
/// show only by later events.
bool contradicts_itself(const Messages& messages) {
  std::map<EventHash, int> copies;
  for (const Outgoing& message : messages) {
    for (const Event& event : message.batch.events) {
      if (const auto* stored = std::get_if<StoredEvent>(&event)) {
        const auto& parent = stored->parent_block_hash;
        if (parent && copies.count(*parent) == 0) return true;
        for (const EventHash& hash : stored->block_hashes) ++copies[hash];
        if (copies.size() > kGpuBlocks - 1) return true;
      } else if (const auto* removed = std::get_if<RemovedEvent>(&event)) {
        const auto found = copies.find(removed->block_hashes.front());
        if (found == copies.end()) return true;
        if (--found->second == 0) copies.erase(found);
      } else {
        copies.clear();
      }
    }
  }
  return false;
}

/// The rules that name the fault.
std::set<Rule> rules_of(FaultKind kind) {
  switch (kind) {
    case FaultKind::kLost:
      return {Rule::kLost};
    case FaultKind::kRepeated:
      return {Rule::kRepeated};
    case FaultKind::kReordered:
      return {Rule::kReordered};
    case FaultKind::kSilentRestart:
      return {Rule::kRestarted};
    case FaultKind::kMalformed:
      return {Rule::kMalformed};
    case FaultKind::kWrongRank:
      return {Rule::kWrongRank};
    case FaultKind::kWrongParent:
      return {Rule::kWrongHash};
    case FaultKind::kUnknownParent:
      return {Rule::kUnknownParent};
    case FaultKind::kWrongHash:
      return {Rule::kWrongHash};
    case FaultKind::kCutTokens:
      return {Rule::kTokenCounts};
    case FaultKind::kRemovedUnknown:
      return {Rule::kRemovedNeverStored};
    case FaultKind::kRemovedTwice:
      return {Rule::kRemovedTooOften};
    case FaultKind::kRemovedHeld:
      return {Rule::kRemovedTooOften, Rule::kUnknownParent};
    case FaultKind::kRemovalLeftOut:
      return {Rule::kTooManyBlocks};
    case FaultKind::kClearedHeld:
      return {Rule::kRemovedAfterClear};
  }
  return {};
}

bool shows_later(FaultKind kind) {
  return kind == FaultKind::kRemovedHeld || kind == FaultKind::kRemovalLeftOut ||
         kind == FaultKind::kClearedHeld;
}

Messages with_fault(const Messages& sound, const Fault& fault, bool& is_injected) {
  FaultInjector injector({fault}, HashAlgorithm::kXxhashCbor);
  Messages faulty;
  for (const Outgoing& message : sound) injector.take(message, faulty);
  injector.finish(faulty);
  is_injected = !injector.injections().empty();
  return faulty;
}

std::size_t num_places() {
  const char* text = std::getenv("KVFENCE_FAULT_PLACES");
  return text != nullptr ? std::stoul(text) : kIsSanitized ? 2 : 8;
}

class InjectedFaults : public testing::TestWithParam<FaultKind> {
 public:
  void expect_one_report_each(const Messages& sound, std::uint64_t seed) {
    const FaultKind kind = GetParam();
    std::mt19937_64 random(seed + static_cast<std::uint64_t>(kind));
    std::size_t num_found = 0;
    std::size_t num_silent = 0;
    for (std::size_t place = 0; place < num_places();) {
      // A missing first or last message cannot be detected.
      const Fault fault{kind, 1 + random() % (sound.size() - 2), 0};
      const Form form = kForms[place % kForms.size()];
      bool is_injected = false;
      const Messages faulty = with_fault(sound, fault, is_injected);
      const auto findings = findings_of(faulty, form);
      // A fault that no later event contradicts cannot be detected; another place is drawn.
      const bool is_seen = is_injected && (!shows_later(kind) || contradicts_itself(faulty));
      EXPECT_EQ(findings.size(), is_seen ? 1U : 0U)
          << to_text(kind) << '@' << fault.message << " form " << place % kForms.size() << "\n"
          << text_of(findings);
      for (const Finding& finding : findings) {
        EXPECT_EQ(rules_of(kind).count(finding.rule), 1U) << finding.to_text();
      }
      num_found += findings.size();
      is_seen ? ++place : ++num_silent;
      ASSERT_LE(num_silent, num_places() / 4 + 2);
    }
    EXPECT_EQ(num_found, num_places());
    RecordProperty("found", static_cast<int>(num_found));
    std::printf("%s: %zu of %zu places, and silent in %zu more\n",
                std::string(to_text(kind)).c_str(), num_found, num_places(), num_silent);
  }
};

TEST_P(InjectedFaults, OfAPoolAreReportedOnce) { expect_one_report_each(of_a_pool(), 1); }
TEST_P(InjectedFaults, OfASchedulerAreReportedOnce) { expect_one_report_each(of_a_scheduler(), 2); }

std::vector<FaultKind> all_kinds() {
  std::vector<FaultKind> kinds;
  for (const std::string_view word : words_of(FaultKind{})) {
    kinds.push_back(*from_text<FaultKind>(word));
  }
  return kinds;
}

INSTANTIATE_TEST_SUITE_P(, InjectedFaults, testing::ValuesIn(all_kinds()),
                         [](const auto& kind) { return std::string(to_text(kind.param)); });

/// The hashes held after the first messages of a sound stream, as auditors name them.
std::vector<HashId> held_after(const Messages& messages, std::size_t num_messages, bool low64) {
  std::map<EventHash, int> copies;
  for (std::size_t number = 0; number < num_messages; ++number) {
    EventBatch batch = messages[number].batch;
    if (low64) to_low64(batch);
    for (const Event& event : batch.events) {
      if (const auto* stored = std::get_if<StoredEvent>(&event)) {
        for (const EventHash& hash : stored->block_hashes) ++copies[hash];
      } else {
        const EventHash& hash = std::get<RemovedEvent>(event).block_hashes.front();
        if (--copies[hash] == 0) copies.erase(hash);
      }
    }
  }
  std::vector<HashId> ids;
  for (const auto& [hash, number] : copies) ids.push_back(id_of(hash.bytes));
  std::sort(ids.begin(), ids.end());
  return ids;
}

TEST(LostMessages, AskedForAgainLeaveTheMirrorEqualToTheTruth) {
  for (const Messages* messages : {&of_a_pool(), &of_a_scheduler()}) {
    for (const std::uint64_t every : {2U, 3U, 10U}) {
      const Form& form = kForms[every % kForms.size()];
      bool is_injected = false;
      const Messages faulty = with_fault(*messages, {FaultKind::kLost, 1, every}, is_injected);
      Auditor auditor(rules_of_audit());
      std::size_t num_known = 0;
      for (const Outgoing& message : faulty) {
        if (!message.is_sent) continue;
        const Arrival arrival = arrival_of(message, form);
        if (const auto first = auditor.missing_before(arrival)) {
          for (std::uint64_t sequence = *first; sequence < message.sequence; ++sequence) {
            Arrival again = arrival_of((*messages)[sequence], form);
            again.is_replayed = true;
            auditor.take(again);
          }
        }
        auditor.take(arrival);
        num_known = message.sequence + 1;
      }
      auditor.finish();
      EXPECT_EQ(text_of(auditor.findings().kept()), "");
      EXPECT_GT(auditor.counts().replayed, messages->size() / every / 2);
      const auto views = auditor.views(/*with_held=*/true);
      ASSERT_EQ(views.size(), 1U);
      EXPECT_EQ(views[0].held, held_after(*messages, num_known, form.low64)) << every;
    }
  }
}

TEST(SoundStream, IsWithoutFindings) {
  for (const Messages* messages : {&of_a_pool(), &of_a_scheduler()}) {
    ASSERT_FALSE(contradicts_itself(*messages));
    for (const Form& form : kForms) EXPECT_EQ(text_of(findings_of(*messages, form)), "");
  }
}

}  // namespace
}  // namespace kvfence::audit
