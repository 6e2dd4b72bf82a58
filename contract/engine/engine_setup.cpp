#include "contract/engine/engine_setup.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "contract/connectors/multi/multi_connector.h"
#include "contract/core/lists.h"

namespace kvfence {
namespace engine {
namespace {

/// Turns what is wrong into an error at the configuration's line.
class Preparation {
 public:
  Preparation(const Config& config, std::string_view file, Position position)
      : config_(config), file_(file), position_(position) {}

  Parsed<EngineSetup> prepare() {
    if (auto wrong = name_assembly()) return std::move(*wrong);
    if (config_.connectors && config_.connectors->size() > 1) {
      return error("several connectors", "one, or none");
    }
    if (auto wrong = check_shape()) return std::move(*wrong);
    setup_.assembly = assembly_of(config_);
    setup_.is_scripted = config_.is_scripted();
    setup_.tokens_only = config_.tokens_only;
    for (std::uint32_t engine = 0; engine < config_.engines; ++engine) {
      if (auto wrong = add_scheduler(static_cast<EngineRole>(engine))) return std::move(*wrong);
    }
    for (std::uint32_t engine = 0; engine < config_.engines; ++engine) {
      if (auto wrong = add_connector(static_cast<EngineRole>(engine))) return std::move(*wrong);
    }
    if (auto wrong = add_nixl()) return std::move(*wrong);
    if (config_.has_device()) {
      if (auto wrong = add_device()) return std::move(*wrong);
    }
    return std::move(setup_);
  }

 private:
  using Wrong = std::optional<InputError>;

  InputError error(std::string found, std::string expected) const {
    return {std::string(file_), position_, std::move(found), std::move(expected)};
  }

  Wrong name_assembly() {
    const Assembly assembly = assembly_of(config_);
    if (config_.assembly.value_or(assembly) == assembly) return std::nullopt;
    return error("assembly=" + std::string(to_text(*config_.assembly)),
                 "assembly=" + std::string(to_text(assembly)) + ", as connectors and device say");
  }

  /// Whether engines, ranks and device go with the connector.
  Wrong check_shape() {
    if (auto wrong = check_children()) return wrong;
    const bool is_pair = config_.connector<nixl::Record>() != nullptr;
    if (config_.engines != (is_pair ? 2 : 1)) {
      return error("engines=" + std::to_string(config_.engines),
                   is_pair ? "2, under (nixl ...)" : "1, unless under (nixl ...)");
    }
    if (is_pair) {
      if (auto wrong = check_beside_nixl()) return wrong;
    }
    if (config_.ranks == 0) return error("ranks=0", "at least one rank");
    if (config_.consumer_ranks == 0) return error("consumer_ranks=0", "at least one rank");
    if (config_.has_device() && !can_be_on_device()) {
      return error("device=" + std::string(to_text(config_.device)),
                   "scripted, unless under (offloading ...), (simple ...), (nixl ...) or none");
    }
    if (config_.has_device() && is_pair && config_.consumer_ranks != config_.ranks) {
      return error("consumer_ranks=" + std::to_string(config_.consumer_ranks),
                   std::to_string(config_.ranks) + ", as ranks, on a device");
    }
    return check_modelled();
  }

  bool can_be_on_device() const {
    if (!config_.has_connector()) return true;
    const ConnectorList* all = &*config_.connectors;
    if (const auto* const multi = config_.connector<MultiRecord>()) all = &multi->children;
    return std::all_of(all->begin(), all->end(), [](const ConnectorRecord& record) {
      return std::holds_alternative<offloading::Record>(record.as_variant()) ||
             std::holds_alternative<simple::Record>(record.as_variant()) ||
             std::holds_alternative<nixl::Record>(record.as_variant());
    });
  }

  /// Refuses what the scheduler accepts but is not modelled with that connector.
  Wrong check_modelled() const {
    const bool is_of_files =
        config_.connector<files::ExampleRecord>() || config_.connector<files::DecodeBenchRecord>();
    if (!is_of_files) return std::nullopt;
    const std::string under =
        std::visit([](const auto& record) { return "(" + std::string(record.kWord) + " ...)"; },
                   config_.connectors->front().as_variant());
    if (config_.policy == SchedulingPolicy::kPriority) {
      return error("policy=priority", "fcfs, under " + under);
    }
    // What is computed and written to files in a step has to be known when it is planned.
    if (config_.async_scheduling) {
      return error("async_scheduling=true", "false, under " + under);
    }
    return std::nullopt;
  }

  /// Observations have one place per kind.
  Wrong check_children() {
    const auto* const multi = config_.connector<MultiRecord>();
    if (!multi) return std::nullopt;
    if (multi->children.empty()) return error("children=[]", "at least one child");
    if (multi->children.size() > multi::kNumChildrenMax) {
      return error(std::to_string(multi->children.size()) + " children",
                   "at most " + std::to_string(multi::kNumChildrenMax));
    }
    for (const ConnectorRecord& child : multi->children) {
      const auto kind = kind_of(child);
      if (!kind) {
        return error("a child of another kind",
                     "(offloading ...), (simple ...), (example ...), (decode_bench ...), "
                     "(nixl ...) or (scripted ...)");
      }
      const bool is_there = contains(setup_.children, *kind, &ChildSetup::kind);
      if (is_there && *kind != ConnectorKind::kScripted) {
        return error("two children of one kind", "each kind once, except (scripted ...)");
      }
      ChildSetup& added = setup_.children.emplace_back();
      added.kind = *kind;
      const auto* const scripted = std::get_if<ScriptedRecord>(&child.as_variant());
      if (scripted) added.scripted = *scripted;
    }
    return std::nullopt;
  }

  /// The other children of a pair.
  Wrong check_beside_nixl() const {
    const auto* const offloading = config_.connector<offloading::Record>();
    if (offloading && offloading->spec_name != offloading::Record().spec_name) {
      return error("spec_name=" + offloading->spec_name,
                   offloading::Record().spec_name + ", beside (nixl ...)");
    }
    // Files are those of all ranks' layers, and both engines share them.
    const bool has_files =
        config_.connector<files::ExampleRecord>() || config_.connector<files::DecodeBenchRecord>();
    if (has_files && config_.consumer_ranks != config_.ranks) {
      return error("consumer_ranks=" + std::to_string(config_.consumer_ranks),
                   std::to_string(config_.ranks) + ", as ranks, with files beside (nixl ...)");
    }
    // All children get the first one's, and upstream's NIXL raises on any but its own.
    for (const ChildSetup& child : setup_.children) {
      if (child.kind == ConnectorKind::kNixl) break;
      if (child.scripted.handshake) {
        return error("(scripted handshake=true) before (nixl ...)", "handshake=false, or after it");
      }
    }
    return std::nullopt;
  }

  static std::optional<ConnectorKind> kind_of(const ConnectorRecord& record) {
    const auto& typed = record.as_variant();
    if (std::holds_alternative<offloading::Record>(typed)) return ConnectorKind::kOffloading;
    if (std::holds_alternative<simple::Record>(typed)) return ConnectorKind::kSimple;
    if (std::holds_alternative<nixl::Record>(typed)) return ConnectorKind::kNixl;
    if (std::holds_alternative<ScriptedRecord>(typed)) return ConnectorKind::kScripted;
    const bool is_of_files = std::holds_alternative<files::ExampleRecord>(typed) ||
                             std::holds_alternative<files::DecodeBenchRecord>(typed);
    return is_of_files ? std::optional(ConnectorKind::kFiles) : std::nullopt;
  }

  /// Overrides of rules by a connector and its children.
  static void take_overrides(const ConnectorRecord& connector, Rules& rules) {
    std::visit([&](const auto& record) { override_rules(object_of(record), rules); },
               connector.as_variant());
    const auto* const multi = std::get_if<MultiRecord>(&connector.as_variant());
    if (!multi) return;
    for (const ConnectorRecord& child : multi->children) take_overrides(child, rules);
  }

  Wrong add_scheduler(EngineRole role) {
    kv_cache::Config own = config_;
    if (role == EngineRole::kConsumer && config_.consumer_num_gpu_blocks > 0) {
      own.num_gpu_blocks = config_.consumer_num_gpu_blocks;
    }
    Parsed<KVCacheManagerConfig> kv_cache = make_kv_cache_manager_config(own, file_, position_);
    if (!kv_cache) return kv_cache.error();
    SchedulerConfig result{config_, std::move(*kv_cache)};
    Rules& rules = result.kv_cache.pool.rules;
    override_rules(object_of(config_), rules);
    if (config_.has_connector()) take_overrides(config_.connectors->front(), rules);
    if (auto expected = check_config(result, config_.has_connector())) {
      return error("this configuration", std::move(*expected));
    }
    setup_.schedulers.push_back(std::move(result));
    setup_.num_ranks.push_back(role == EngineRole::kProducer ? config_.ranks
                                                             : config_.consumer_ranks);
    return std::nullopt;
  }

  /// Adds the part made from the connector's record, if that is of this kind.
  template <class Record, class Part, class... Ranks>
  Wrong add_part(std::optional<Part>& part,
                 Parsed<Part> (*make)(const Record&, const SchedulerConfig&, Ranks...),
                 const SchedulerConfig& scheduler, Ranks... ranks) {
    const auto* const record = config_.connector<Record>();
    if (!record) return std::nullopt;
    Parsed<Part> made = make(*record, scheduler, ranks...);
    if (!made) return error(made.error().found, made.error().expected);
    part = std::move(*made);
    return std::nullopt;
  }

  Wrong add_connector(EngineRole role) {
    const SchedulerConfig& scheduler = setup_.schedulers[static_cast<std::size_t>(role)];
    const std::uint32_t ranks = setup_.num_ranks[static_cast<std::size_t>(role)];
    ConnectorParts& parts = setup_.of(role);
    const bool takes_groups = scheduler.kv_cache.pool.rules.multi_connector_hma;
    if (!setup_.children.empty() && scheduler.kv_cache.groups.size() > 1 && !takes_groups) {
      return error(std::to_string(scheduler.kv_cache.groups.size()) + " groups under (multi ...)",
                   "one group, before rule multi_connector_hma");
    }
    const bool all_take_groups = std::ranges::all_of(
        setup_.children, [](const ChildSetup& child) { return child.scripted.hma; });
    if (!all_take_groups && scheduler.kv_cache.groups.size() > 1) {
      return error(std::to_string(scheduler.kv_cache.groups.size()) + " groups",
                   "one group, for children without hma");
    }
    if (auto wrong = add_part(parts.offloading, make_connector_setup, scheduler, ranks)) {
      return wrong;
    }
    if (auto wrong = add_part(parts.simple, make_simple_spec, scheduler, ranks)) return wrong;
    if (auto wrong =
            add_part<files::ExampleRecord>(parts.files, make_files_spec, scheduler, ranks)) {
      return wrong;
    }
    return add_part<files::DecodeBenchRecord>(parts.files, make_files_spec, scheduler, ranks);
  }

  Wrong add_nixl() {
    return add_part(setup_.nixl, make_nixl_spec, setup_.scheduler(), config_.ranks,
                    config_.consumer_ranks);
  }

  Wrong add_device() {
    const auto* const offloaded = config_.connector<offloading::Record>();
    const auto* const simple = config_.connector<simple::Record>();
    const offloading::Record& record = offloaded ? *offloaded : offloading::Record();
    std::uint32_t block_size = 0;
    for (const KVCacheSpec& group : setup_.scheduler().kv_cache.groups) {
      const bool has_window = group.kind == KVCacheSpecKind::kSlidingWindow;
      if (!has_window && group.kind != KVCacheSpecKind::kFullAttention) {
        return error("a group of another kind", "full attention or a sliding window");
      }
      block_size = std::max(block_size, group.block_size);
      setup_.windows.push_back(has_window ? group.sliding_window : 0);
    }
    const bool has_window = std::ranges::any_of(setup_.windows, [](auto size) { return size > 0; });
    if (has_window && setup_.nixl) return error("a window", "none over NIXL, on a device");
    if (has_window && config_.async_scheduling && config_.num_speculative_tokens > 0) {
      return error("num_speculative_tokens=" + std::to_string(config_.num_speculative_tokens),
                   "0 with a window and async_scheduling, on a device");
    }
    const std::pair<const char*, std::pair<std::uint32_t, std::uint32_t>> bounds[] = {
        {"ranks", {config_.ranks, 4}},
        {"num_gpu_blocks", {config_.num_gpu_blocks, 4096}},
        {"consumer_num_gpu_blocks", {config_.consumer_num_gpu_blocks, 4096}},
        {"num_cpu_blocks", {record.num_cpu_blocks, 4096}},
        {"num_cpu_blocks", {simple ? simple->num_cpu_blocks : 0, 4096}},
        {"block_size_factor", {record.block_size_factor, 8}},
        {"block_size", {block_size, 32}}};
    for (const auto& [name, bound] : bounds) {
      if (bound.first <= bound.second) continue;
      return error(std::string(name) + "=" + std::to_string(bound.first),
                   "at most " + std::to_string(bound.second) + " on a device");
    }
    if (record.spec_name != engine::offloading::Record().spec_name || record.transfers_may_fail) {
      return error("tiers or transfers_may_fail", "neither on a device");
    }
    // Copies there report no duration, so nothing is counted.
    const engine::offloading::Record usual;
    if (record.block_bytes != usual.block_bytes || record.engine_labels != usual.engine_labels) {
      return error("block_bytes or engine_labels", "neither on a device");
    }
    setup_.is_virtual = config_.device == DeviceKind::kVirtual;
    setup_.device = {.num_gpu_blocks = config_.num_gpu_blocks,
                     .num_cpu_blocks = 1,
                     .block_size = block_size,
                     .block_size_factor = 1,
                     .num_groups = static_cast<std::uint32_t>(setup_.windows.size()),
                     .looks_for_races = !config_.tokens_only,
                     .has_remote = setup_.is_pair()};
    if (!setup_.children.empty()) {
      setup_.device->num_cpu_blocks = lay_out_children(record, simple);
    } else if (offloaded) {
      setup_.device->num_cpu_blocks = record.num_cpu_blocks;
      setup_.device->block_size_factor = record.block_size_factor;
    } else if (simple) {
      setup_.device->num_cpu_blocks = simple->num_cpu_blocks;
    }
    if (!setup_.is_pair()) return std::nullopt;
    setup_.consumer.device = setup_.device;
    setup_.consumer.device->num_gpu_blocks = setup_.schedulers.back().kv_cache.pool.num_gpu_blocks;
    return std::nullopt;
  }

  /// Lays out the children's pages one after the other. Returns their number.
  std::uint32_t lay_out_children(const offloading::Record& offloaded,
                                 const simple::Record* simple) {
    std::uint32_t num_pages = 0;
    for (ChildSetup& child : setup_.children) {
      child.first_page = num_pages;
      if (child.kind == ConnectorKind::kOffloading) {
        child.block_size_factor = offloaded.block_size_factor;
        num_pages += offloaded.num_cpu_blocks * offloaded.block_size_factor;
      } else if (child.kind == ConnectorKind::kSimple) {
        num_pages += simple->num_cpu_blocks;
      }
    }
    return std::max(1U, num_pages);
  }

  const Config& config_;
  std::string_view file_;
  Position position_;
  EngineSetup setup_;
};

}  // namespace
}  // namespace engine

bool EngineSetup::is_of_simple(JobId transfer) const {
  if (children.empty()) return simple.has_value();
  const auto num_children = static_cast<std::uint32_t>(children.size());
  return has_child(child_job(transfer, num_children).child, engine::ConnectorKind::kSimple);
}

JobId EngineSetup::own_number(JobId transfer) const {
  if (children.empty()) return transfer;
  return child_job(transfer, static_cast<std::uint32_t>(children.size())).job;
}

std::vector<std::uint32_t> EngineSetup::cpu_pages_of(const engine::DeviceTransfer& transfer) const {
  const engine::Copy copy{.gpu_blocks = {transfer.gpu_blocks.begin(), transfer.gpu_blocks.end()},
                          .cpu_blocks = {transfer.slots.begin(), transfer.slots.end()},
                          .group_sizes = transfer.group_sizes,
                          .block_indices = transfer.block_indices};
  if (children.empty()) return engine::cpu_pages_of(copy, device->block_size_factor);
  const auto num_children = static_cast<std::uint32_t>(children.size());
  const engine::ChildSetup& child = children[child_job(transfer.job, num_children).child];
  std::vector<std::uint32_t> pages = engine::cpu_pages_of(copy, child.block_size_factor);
  for (std::uint32_t& page : pages) page += child.first_page;
  return pages;
}

bool EngineSetup::may_read_gpu_cache() const {
  const KVCacheManagerConfig& kv_cache = scheduler().kv_cache;
  if (!has_workers() || kv_cache.groups.size() == 1) return true;
  return kv_cache.pool.rules.external_blocks_after_hits && !hit_may_overshoot(kv_cache);
}

Parsed<EngineTarget::Setup> EngineTarget::prepare(const Config& config, std::string_view file,
                                                  Position position) {
  return engine::Preparation(config, file, position).prepare();
}

EngineTarget::World EngineTarget::make_world(const Config&, const Setup& setup) {
  return World(setup.scheduler().kv_cache.pool.hash);
}

}  // namespace kvfence
