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

Parsed<OffloadingManagerConfig> make_tiering_config(const tiering::Config& config,
                                                    std::string_view file, Position position) {
  const auto error = errors_at(file, position);
  const Parsed<CachePolicyConfig> cache = make_cache_policy_config(config, file, position);
  if (!cache) return cache.error();
  OffloadingManagerConfig result;
  result.cache = *cache;
  result.enable_events = config.enable_events;
  result.rules = rules_of(*from_text<Profile>(config.profile));
  if (!result.rules.tiering) {
    return error("profile=" + config.profile, "a profile with the rule tiering: v0.23");
  }
  if (config.num_tiers > tiering::kNumTiersMax) {
    return error("num_tiers=" + std::to_string(config.num_tiers),
                 "at most " + std::to_string(tiering::kNumTiersMax));
  }
  for (std::size_t index = 0; index < config.file_tiers.size(); ++index) {
    const std::uint32_t place = config.file_tiers[index];
    if (place < config.num_tiers && (index == 0 || config.file_tiers[index - 1] < place)) continue;
    return error(
        "file_tiers with " + std::to_string(place),
        "places below num_tiers=" + std::to_string(config.num_tiers) + ", ascending, each once");
  }
  if (auto expected = check_tiering_config(result)) {
    return error("this configuration", std::move(*expected));
  }
  return result;
}

const Target& TieringTarget::description() { return described<TieringTarget>(); }

}  // namespace kvfence
