/// Draws configurations and commands for engines with a MultiConnector over real and scripted
/// connectors: each real child has its room's draws, scripted children have drawn answers and
/// reports.

#include "properties/engine/rooms.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <variant>

#include "properties/kv_cache/group_draws.h"

namespace kvfence::engine::multi {
namespace {

constexpr std::string_view kShapes[] = {"Fw", "wf", "fw", "Fa", "w", "m", "f"};

MultiRecord& multi_of(Config& config) { return config.edit_connector<MultiRecord>(); }

bool is_real(const ConnectorRecord& child) {
  return !std::holds_alternative<ScriptedRecord>(child.as_variant());
}

simple::Record draw_simple(Choices& choices) {
  simple::Record record;
  record.num_cpu_blocks = 3 + choices.below(10);
  record.lazy_offload = choices.once_in(3);
  return record;
}

void draw_files_record(Choices& choices, ConnectorList& children) {
  if (choices.once_in(3)) {
    children.emplace_back(files::DecodeBenchRecord{1 + choices.below(2), std::nullopt});
  } else {
    children.emplace_back(files::ExampleRecord{1 + choices.below(2)});
  }
}

ScriptedRecord draw_scripted(Choices& choices, bool any_hma) {
  ScriptedRecord record;
  record.connector_class = choices.once_in(2) ? "b" : "a";
  record.hma = any_hma || choices.once_in(2);
  record.cross_layers = !choices.once_in(3);
  record.handshake = choices.once_in(2);
  record.shutdown_fails = choices.once_in(3);
  return record;
}

void rotate(ConnectorList& children, Choices& choices) {
  std::rotate(children.begin(),
              children.begin() + choices.below(static_cast<std::uint32_t>(children.size())),
              children.end());
}

/// The OffloadingConnector and one or two others.
Config draw_real(Choices& choices) {
  Config config = offloading::draw_without_drafts(choices);
  MultiRecord multi;
  multi.children.push_back(config.connectors->front());
  const std::uint32_t kind = choices.below(3);
  if (kind != 1) multi.children.emplace_back(draw_simple(choices));
  if (kind != 0) draw_files_record(choices, multi.children);
  if (choices.once_in(2)) {
    for (std::uint32_t left = 1 + choices.below(2); left > 0; --left) {
      const bool any_hma = config.groups.size() > 1 || !choices.once_in(4);
      multi.children.emplace_back(draw_scripted(choices, any_hma));
    }
  }
  rotate(multi.children, choices);
  if (choices.once_in(16)) multi.children.resize(1);
  config.connectors->clear();
  config.connectors->emplace_back(std::move(multi));
  // Upstream's scheduler does not keep files correct under priorities. A second pool without a
  // cache has no effect.
  if (kind != 0) config.async_scheduling = false;
  draw_eagle_and_drafts(choices, config);
  if (!is_accepted(config)) config.policy = SchedulingPolicy::kFCFS;
  make_valid(config);
  // A configuration that a child other than the OffloadingConnector refuses.
  if (!is_accepted(config)) {
    std::erase_if(multi_of(config).children, [](const ConnectorRecord& child) {
      return is_real(child) && !std::holds_alternative<offloading::Record>(child.as_variant());
    });
  }
  return config;
}

Config draw_scripted_alone(Choices& choices) {
  Config config = draw_small_engine(Assembly::kMulti, choices);
  config.ranks = choices.once_in(2) ? 1 : 1 + choices.below(3);
  ConnectorList& children = multi_of(config).children;
  children.clear();
  const bool any_hma = !choices.once_in(4);
  const std::uint32_t num_children = choices.once_in(8) ? 1 : 2 + choices.below(3);
  while (children.size() < num_children) children.emplace_back(draw_scripted(choices, any_hma));
  if (config.profile != Profile::kV019 || choices.once_in(4)) draw_groups(kShapes, choices, config);
  return completed(std::move(config), choices);
}

/// A pair over NIXL and one or two others.
Config draw_pair(Choices& choices) {
  Config config = offloading::draw_without_drafts(choices);
  auto offloading = config.edit_connector<offloading::Record>();
  const nixl::Record nixl = nixl::draw_pair(choices, config);
  config.retention_interval.reset();
  const bool has_tiers = offloading.spec_name != offloading::Record().spec_name;
  if (has_tiers) offloading = offloading::Record();
  MultiRecord multi;
  const std::uint32_t kind = choices.below(5);
  multi.children.emplace_back(nixl);
  if (kind < 3) multi.children.emplace_back(std::move(offloading));
  if (kind == 2 || kind == 3) multi.children.emplace_back(draw_simple(choices));
  if (kind == 1 && choices.once_in(2)) draw_files_record(choices, multi.children);
  if (kind == 4) draw_files_record(choices, multi.children);
  if (choices.once_in(2)) {
    multi.children.emplace_back(draw_scripted(choices, /*any_hma=*/!choices.once_in(4)));
  }
  rotate(multi.children, choices);
  // Upstream's NIXL raises at a handshake that is not its own.
  for (ConnectorRecord& child : multi.children) {
    if (std::holds_alternative<nixl::Record>(child.as_variant())) break;
    if (auto* scripted = std::get_if<ScriptedRecord>(&child.as_variant())) {
      scripted->handshake = false;
    }
  }
  const bool has_files = std::ranges::any_of(multi.children, [](const ConnectorRecord& child) {
    return std::holds_alternative<files::ExampleRecord>(child.as_variant()) ||
           std::holds_alternative<files::DecodeBenchRecord>(child.as_variant());
  });
  config.connectors->clear();
  config.connectors->emplace_back(std::move(multi));
  if (has_files) {
    config.consumer_ranks = config.ranks;
    config.async_scheduling = false;
    config.policy = SchedulingPolicy::kFCFS;
  }
  return completed(std::move(config), choices);
}

}  // namespace

Config draw_config(Choices& choices) {
  if (choices.once_in(4)) return draw_pair(choices);
  return choices.once_in(3) ? draw_scripted_alone(choices) : draw_real(choices);
}

}  // namespace kvfence::engine::multi
