/// Fuzzes the foreign input of an audit: payloads, recordings, and whole streams of messages.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "contract/core/check.h"
#include "fuzz/corpus_goals.h"
#include "scenarios/audit/auditor.h"
#include "scenarios/audit/decode.h"
#include "scenarios/audit/recording.h"

namespace kvfence::fuzz {
namespace {

using namespace kvfence::audit;

CorpusGoal num_events{"events"};
CorpusGoal num_problems{"problems named"};
CorpusGoal num_recordings{"recordings read"};

void check_payload(std::string_view payload) {
  DecodedBatch decoded;
  const bool is_batch = decode(payload, decoded);
  num_events.count += decoded.batch.events.size();
  num_problems.count += decoded.problems.size();
  KVFENCE_CHECK(is_batch || decoded.problems.size() == 1, "what is no batch has one problem");
  KVFENCE_CHECK(decoded.ranges.size() == decoded.batch.events.size(), "an event has its bytes");
  for (const DecodeProblem& problem : decoded.problems) {
    KVFENCE_CHECK(problem.offset <= payload.size(), "a problem stands within the payload");
  }
  if (!is_batch) return;
  DecodedBatch again;
  const bool is_whole = decode(payload_of(payload, decoded.batch, decoded.ranges), again);
  KVFENCE_CHECK(is_whole && again.problems.empty(), "good events alone have no problem");
  KVFENCE_CHECK(again.batch.events == decoded.batch.events, "good events read as themselves");
}

/// Each finding is counted, and its evidence can be audited.
void check_recording(std::string_view text) {
  RecordingReader reader;
  std::string error;
  if (!reader.open(text, error)) return;
  ++num_recordings.count;
  Auditor auditor({{}, std::size_t{1} << 20});
  std::string written(kRecordingHead);
  for (Arrival arrival; reader.read(arrival);) {
    check_payload(arrival.message.payload);
    auditor.take(arrival);
    append_record(written, arrival);
  }
  KVFENCE_CHECK(text.substr(0, written.size()) == written || reader.cut(),
                "what was read is written as itself");
  auditor.finish();
  KVFENCE_CHECK(auditor.findings().kept().size() <= auditor.findings().size(),
                "what is kept is counted");
  for (const Finding& finding : auditor.findings().kept()) auditor.evidence_of(finding);
}

/// The text as messages of one engine, each after its length and number, so that a fuzzer need not
/// find checksums.
void check_messages(std::string_view text) {
  AuditRules rules;
  rules.checks.blocks_max = 1000;
  Auditor auditor(rules);
  while (text.size() >= 2) {
    const auto length = static_cast<unsigned char>(text[0]);
    const auto sequence = static_cast<unsigned char>(text[1]);
    text.remove_prefix(2);
    auditor.take({"engine", {"", sequence, std::string(text.substr(0, length))}});
    text.remove_prefix(std::min<std::size_t>(text.size(), length));
  }
  auditor.finish();
  KVFENCE_CHECK(auditor.holdings().gpu_blocks <= auditor.check_counts().stored,
                "what is held was stored");
}

}  // namespace

std::vector<CorpusGoal> corpus_goals() { return {num_events, num_problems, num_recordings}; }
CorpusGoal corpus_size() { return num_events; }

}  // namespace kvfence::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(data, data + size);
  kvfence::fuzz::check_payload(text);
  kvfence::fuzz::check_recording(text);
  kvfence::fuzz::check_messages(text);
  return 0;
}
