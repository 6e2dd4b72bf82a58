#include "contract/tiering/tiering_target.h"

#include <cerrno>
#include <string>
#include <utility>

#include "contract/core/describe.h"

namespace kvfence {

std::optional<FileFault> tiering::file_fault_of(const Fault& planned) {
  constexpr std::array<int, kNumFileErrors> kErrors = {0,      EACCES, EINTR,  EIO,
                                                       EMFILE, ENOENT, ENOSPC, EROFS};
  FileFault fault;
  fault.operation = planned.operation;
  fault.call = planned.call;
  fault.error = kErrors[static_cast<std::size_t>(planned.fails_with)];
  fault.num_bytes = planned.num_bytes;
  const bool moves =
      fault.operation == FileOperation::kRead || fault.operation == FileOperation::kWrite;
  const bool asks_for_more = fault.operation == FileOperation::kMakeFolder && fault.error == ENOENT;
  if (asks_for_more || (fault.error == 0 && !moves)) return std::nullopt;
  return fault;
}

std::optional<std::pair<std::string, std::string>> wrong_with_places(
    const std::string& name, const std::vector<std::uint32_t>& places, std::uint32_t num_tiers) {
  for (std::size_t index = 0; index < places.size(); ++index) {
    const std::uint32_t place = places[index];
    if (place < num_tiers && (index == 0 || places[index - 1] < place)) continue;
    return std::pair(
        name + " with " + std::to_string(place),
        "places below num_tiers=" + std::to_string(num_tiers) + ", ascending, each once");
  }
  return std::nullopt;
}

Parsed<OffloadingManagerConfig> make_tiering_config(const tiering::Config& config,
                                                    std::string_view file, Position position) {
  const auto error = errors_at(file, position);
  const Parsed<CachePolicyConfig> cache = make_cache_policy_config(config, file, position);
  if (!cache) return cache.error();
  OffloadingManagerConfig result;
  result.cache = *cache;
  result.enable_events = config.enable_events;
  result.rules = rules_of(config.profile);
  if (!result.rules.tiering) {
    return error("profile=" + std::string(to_text(config.profile)),
                 "a profile with the rule tiering: v0.23");
  }
  if (config.num_tiers > tiering::kNumTiersMax) {
    return error("num_tiers=" + std::to_string(config.num_tiers),
                 "at most " + std::to_string(tiering::kNumTiersMax));
  }
  if (auto wrong = wrong_with_places("file_tiers", config.file_tiers, config.num_tiers)) {
    return error(std::move(wrong->first), std::move(wrong->second));
  }
  if (auto expected = check_tiering_config(result)) {
    return error("this configuration", std::move(*expected));
  }
  return result;
}

const Target& TieringTarget::description() { return described<TieringTarget>(); }

}  // namespace kvfence
