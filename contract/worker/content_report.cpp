#include "contract/worker/content_report.h"

#include <cstring>

#include "contract/core/check.h"

namespace kvfence::content {
namespace {

Granule load(const std::byte* bytes) {
  Granule granule;
  std::memcpy(&granule, bytes, sizeof granule);
  return granule;
}

std::uint64_t num_granules_of(std::size_t num_bytes) {
  KVFENCE_CHECK(num_bytes % kGranuleBytes == 0, "content comes in granules of 16 bytes");
  return num_bytes / kGranuleBytes;
}

Verdict sum_up(const BlockReport& report) {
  const auto num = [&](Verdict verdict) {
    return report.num_by_verdict[static_cast<std::size_t>(verdict)];
  };
  if (num(Verdict::kForeign) > 0) return Verdict::kForeign;
  for (int index = 0; index < kNumVerdicts; ++index) {
    const auto verdict = static_cast<Verdict>(index);
    if (num(verdict) == report.num_granules) return verdict;
  }
  return Verdict::kTorn;
}

}  // namespace

void fill(std::span<std::byte> bytes, Tag tag, std::uint64_t run_seed) {
  const std::uint64_t num_granules = num_granules_of(bytes.size());
  for (std::uint64_t index = 0; index < num_granules; ++index) {
    const Granule granule = encode(run_seed, {tag, index});
    std::memcpy(bytes.data() + index * kGranuleBytes, &granule, kGranuleBytes);
  }
}

void fill_poison(std::span<std::byte> bytes, std::uint64_t run_seed, std::uint32_t generation) {
  fill(bytes, {kPoisonBlock, generation}, run_seed);
}

void fill_canary(std::span<std::byte> bytes, std::uint64_t run_seed, std::uint32_t generation) {
  fill(bytes, {kCanaryBlock, generation}, run_seed);
}

BlockReport check_block(std::span<const std::byte> bytes, Tag expected, const Universe& universe) {
  BlockReport report;
  report.expected = expected;
  report.num_granules = num_granules_of(bytes.size());
  for (std::uint64_t index = 0; index < report.num_granules; ++index) {
    const Granule granule = load(bytes.data() + index * kGranuleBytes);
    const Owner owner{expected, index};
    const Verdict verdict = classify(universe, owner, granule);
    ++report.num_by_verdict[static_cast<std::size_t>(verdict)];
    if (verdict != Verdict::kRight && report.first_wrong_verdict == Verdict::kRight) {
      report.first_wrong_index = index;
      report.first_wrong_verdict = verdict;
      report.first_wrong_owner = decode(universe.run_seed, granule);
    }
  }
  report.verdict = sum_up(report);
  return report;
}

std::string to_text(const Tag& tag) {
  const std::string generation = " generation " + std::to_string(tag.generation);
  if (tag.block_id == kPoisonBlock) return "poison" + generation;
  if (tag.block_id == kCanaryBlock) return "canary" + generation;
  return "block " + std::to_string(tag.block_id) + generation;
}

std::string to_text(const BlockReport& report) {
  std::string text =
      "expected " + to_text(report.expected) + ": " + std::string(to_text(report.verdict));
  if (report.is_right()) return text;
  const std::uint64_t num_wrong = report.num_granules - report.num_by_verdict[0];
  text += ", " + std::to_string(num_wrong) + " of " + std::to_string(report.num_granules) +
          " granules wrong (";
  const char* separator = "";
  for (int index = 1; index < kNumVerdicts; ++index) {
    const std::uint64_t num = report.num_by_verdict[static_cast<std::size_t>(index)];
    if (num == 0) continue;
    text +=
        separator + std::to_string(num) + " " + std::string(to_text(static_cast<Verdict>(index)));
    separator = ", ";
  }
  text += "); first at byte " + std::to_string(report.first_wrong_index * kGranuleBytes) + ": " +
          std::string(to_text(report.first_wrong_verdict));
  if (report.first_wrong_verdict == Verdict::kForeign) return text;
  return text + ", " + to_text(report.first_wrong_owner.tag) + " granule " +
         std::to_string(report.first_wrong_owner.granule_index);
}

}  // namespace kvfence::content
