#include "contract/connectors/disaggregated/disaggregated_connector.h"

namespace kvfence {

std::optional<std::string> check_spec(const DisaggregatedSpec& spec) {
  const std::uint32_t producers = spec.producer_world_size;
  const std::uint32_t consumers = spec.consumer_world_size;
  if (producers == 0 || consumers == 0) return "positive world sizes";
  if (producers % consumers != 0 && consumers % producers != 0) {
    return "world sizes of which one divides the other";
  }
  if (spec.deadline && (*spec.deadline == 0 || *spec.deadline > kSecondsMax)) {
    return "a deadline of 1 to " + std::to_string(kSecondsMax) + " seconds";
  }
  return std::nullopt;
}

}  // namespace kvfence
