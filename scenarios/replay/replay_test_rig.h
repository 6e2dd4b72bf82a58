#pragma once

/// For tests of replays: recorded traffic, and an implementation that records its commands and
/// can be made to misbehave.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "contract/core/check.h"
#include "contract/core/implementation.h"
#include "scenarios/replay/mooncake_trace.h"

namespace kvfence {

/// A request per list of hash ids, a second apart, in whole blocks.
inline std::vector<MooncakeRequest> trace_of(
    const std::vector<std::vector<std::uint32_t>>& hash_ids, std::uint32_t output_length = 1) {
  std::vector<MooncakeRequest> requests;
  for (const std::vector<std::uint32_t>& ids : hash_ids) {
    requests.push_back({requests.size() * 1000,
                        static_cast<std::uint32_t>(ids.size()) * kMooncakeBlockTokens,
                        output_length, ids});
  }
  return requests;
}

/// The committed excerpt.
inline std::vector<MooncakeRequest> excerpt(std::uint32_t block_tokens = 0) {
  auto read = read_mooncake_trace_file(KVFENCE_TRAFFIC_DIR "/mooncake_conversation_excerpt.jsonl",
                                       block_tokens);
  KVFENCE_CHECK(read, read.error().to_text());
  return std::move(*read);
}

/// The published trace, which is not part of the repository (scenarios/traffic/README.md); nothing
/// where this machine does not have it.
inline std::optional<std::vector<MooncakeRequest>> whole_trace(std::uint32_t block_tokens = 0) {
  const char* const folder = std::getenv("KVFENCE_TRACES");
  if (folder == nullptr) return std::nullopt;
  auto read = read_mooncake_trace_file(std::string(folder) + "/mooncake_conversation_trace.jsonl",
                                       block_tokens);
  KVFENCE_CHECK(read, read.error().to_text());
  return std::move(*read);
}
inline constexpr const char* kNoWholeTrace =
    "KVFENCE_TRACES names no folder with mooncake_conversation_trace.jsonl";

/// Forwards every command, keeps it as text, and changes answers as a test asks.
class Spy final : public Implementation {
 public:
  using Change = std::function<void(const Command&, Observation&)>;

  explicit Spy(std::unique_ptr<Implementation> implementation, Change change = {})
      : implementation_(std::move(implementation)), change_(std::move(change)) {}

  std::string name() const override { return "spy"; }
  std::optional<ImplementationFailure> reset(const Setup& setup) override {
    lines.clear();
    return implementation_->reset(setup);
  }
  std::optional<ImplementationFailure> apply(const Command& command, const World& world,
                                             Observe observe, Observation& observation) override {
    if (lines.size() == dies_at) return ImplementationFailure{"gone"};
    lines.push_back(print(to_line(command)));
    auto failure = implementation_->apply(command, world, observe, observation);
    if (change_) change_(command, observation);
    return failure;
  }

  /// Commands of that verb so far.
  std::size_t count_of(std::string_view verb) const {
    std::size_t count = 0;
    for (const std::string& line : lines) count += line.substr(0, line.find(' ')) == verb ? 1 : 0;
    return count;
  }

  std::vector<std::string> lines;
  std::size_t dies_at = SIZE_MAX;

 private:
  std::unique_ptr<Implementation> implementation_;
  Change change_;
};

}  // namespace kvfence
