#include "properties/engine/never_together.h"

#include <initializer_list>

#include "contract/core/lists.h"

namespace kvfence {
namespace {

struct Row {
  std::initializer_list<std::string_view> parts;
  NeverTogether row;
};

constexpr std::string_view kName = "set by --config assembly=...; has no effect here";
constexpr std::string_view kLeftOut = "means the assembly's own connectors, which are drawn";
constexpr std::string_view kSharedBlocks =
    "a store of one child reads blocks into which another one loads; v0.23 has that rule";
constexpr std::string_view kRaceOfChildren =
    "engine/on_device/races/another_childs_load_into_a_block_that_is_stored.kvs";
constexpr std::string_view kOther = "with that device it is another assembly";

const Row kRows[] = {
    {{"engine.scheduler"}, {"assembly=scheduler", "", kName}},
    {{"engine.offloading"}, {"assembly=offloading", "", kName}},
    {{"engine.offloading_on_device"}, {"assembly=offloading_on_device", "", kName}},
    {{"engine.on_device"}, {"assembly=on_device", "", kName}},
    {{"engine.simple"}, {"assembly=simple", "", kName}},
    {{"engine.synchronous"}, {"assembly=synchronous", "", kName}},
    {{"engine.prefill_decode"}, {"assembly=prefill_decode", "", kName}},
    {{"engine.multi"}, {"assembly=multi", "", kName}},
    {{"engine.scheduler", "engine.offloading", "engine.offloading_on_device", "engine.on_device",
      "engine.simple", "engine.synchronous", "engine.multi"},
     {"connectors=none", "", kLeftOut}},
    {{"engine.scheduler", "engine.offloading", "engine.simple", "engine.prefill_decode",
      "engine.multi"},
     {"device=virtual", "", kOther}},
    {{"engine.offloading_on_device", "engine.on_device"}, {"device=scripted", "", kOther}},
    {{"engine.scheduler", "engine.offloading", "engine.simple", "engine.prefill_decode",
      "engine.offloading_on_device", "engine.on_device", "engine.multi"},
     {"device=symbols", "", "used by the reference if the device is virtual"}},
    {{"engine.scheduler", "engine.offloading", "engine.simple", "engine.synchronous",
      "engine.prefill_decode", "engine.multi"},
     {"tokens_only=true", "", "without a device there are neither races nor pages"}},
    {{"engine.offloading_on_device", "engine.on_device"},
     {"policy=priority", "",
      "upstream's victim may have been served in that step; its blocks are found with tokens that "
      "nobody computed, and the tokens show it",
      "engine/offloading_on_device/left_out/a_victim_that_the_step_has_served.kvs"}},
    {{"engine.on_device"},
     {"engines=2-3", "max_concurrent_batches=2-3",
      "upstream reads into blocks to which a forward still writes",
      "engine/on_device/left_out/a_read_with_a_step_under_way.kvs"}},
    {{"engine.on_device"},
     {"connectors.multi.multi_connector_shares_blocks=false", "", kSharedBlocks, kRaceOfChildren}},
    {{"engine.on_device"},
     {"connectors.multi.multi_connector_shares_blocks=default", "profile=v0.23", kSharedBlocks,
      kRaceOfChildren}},
};

}  // namespace

std::vector<NeverTogether> never_together(std::string_view part) {
  std::vector<NeverTogether> rows;
  for (const Row& each : kRows) {
    if (contains(each.parts, part)) rows.push_back(each.row);
  }
  return rows;
}

std::vector<std::string_view> parts_with_rows() {
  std::vector<std::string_view> parts;
  for (const Row& each : kRows) parts.insert(parts.end(), each.parts);
  return parts;
}

}  // namespace kvfence
