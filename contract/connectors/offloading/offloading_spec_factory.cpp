#include "contract/connectors/offloading/offloading_spec_factory.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <numeric>
#include <string_view>
#include <utility>

#include "contract/core/declare.h"
#include "contract/core/joined.h"
#include "contract/core/lists.h"

namespace kvfence {
namespace {

constexpr std::array<std::string_view, 7> kSettings = {
    "cpu_bytes_to_use", "block_size",       "block_size_factor",  "eviction_policy",
    "store_threshold",  "max_tracker_size", "offload_prompt_only"};

InputError error_at(const std::string& file, const Field& field, std::string expected) {
  return {file, field.position, field.key + "=" + print(field.value), std::move(expected)};
}

/// As Python's int(), but never below 0.
std::optional<std::uint64_t> whole_number(const Value& value) {
  if (const auto* integer = value.get_if<std::int64_t>()) {
    if (*integer < 0) return std::nullopt;
    return static_cast<std::uint64_t>(*integer);
  }
  if (const auto* decimal = value.get_if<double>()) {
    if (!(*decimal >= 0) || *decimal >= 0x1p63) return std::nullopt;
    return static_cast<std::uint64_t>(*decimal);
  }
  if (const auto* text = value.get_if<std::string>()) {
    std::uint64_t number = 0;
    const char* const end = text->data() + text->size();
    const auto [stop, error] = std::from_chars(text->data(), end, number);
    if (error != std::errc() || stop != end) return std::nullopt;
    return number;
  }
  return std::nullopt;
}

/// Settings of one spec, read one after the other; remembers the first mistake.
class Settings {
 public:
  Settings(const std::vector<Field>& fields, const std::string& file)
      : fields_(fields), file_(file) {}

  const Field* find(std::string_view key) const { return find_field(fields_, key); }

  /// A whole number of that range, or the default where it is not set.
  std::uint64_t number(std::string_view key, std::uint64_t otherwise, std::uint64_t min,
                       std::uint64_t max = std::numeric_limits<std::uint32_t>::max()) {
    const Field* field = find(key);
    if (!field) return otherwise;
    const auto number = whole_number(field->value);
    if (number && *number >= min && *number <= max) return *number;
    fail(*field, "a whole number from " + std::to_string(min) + " to " + std::to_string(max));
    return otherwise;
  }

  std::uint32_t small_number(std::string_view key, std::uint32_t otherwise, std::uint32_t min) {
    return static_cast<std::uint32_t>(number(key, otherwise, min));
  }

  /// As on a configuration line; the member stays where it is not set.
  void take(std::string_view key, auto& member) {
    const Field* field = find(key);
    std::string expected;
    if (field && !from_value(field->value, member, expected)) fail(*field, std::move(expected));
  }

  void fail(const Field& field, std::string expected) {
    if (!error_) error_.emplace(error_at(file_, field, std::move(expected)));
  }

  void fail(std::string found, std::string expected) {
    if (!error_) error_.emplace(InputError{file_, {}, std::move(found), std::move(expected)});
  }

  const std::optional<InputError>& error() const { return error_; }

 private:
  const std::vector<Field>& fields_;
  const std::string& file_;
  std::optional<InputError> error_;
};

// Source: vLLM v0.19.0 v1/kv_offload/spec.py OffloadingSpec.__init__
std::uint32_t read_block_size_factor(Settings& settings, const OffloadingSpecContext& context) {
  const std::uint32_t factor = settings.small_number("block_size_factor", 1, 1);
  const Field* block_size = settings.find("block_size");
  if (!block_size) return factor;
  if (const Field* field = settings.find("block_size_factor")) {
    settings.fail(*field, "block_size or block_size_factor, not both");
    return factor;
  }
  const std::vector<KVCacheSpec>& groups = context.kv_cache.groups;
  const std::uint32_t gpu_block_size = groups.empty() ? 0 : groups.front().block_size;
  const bool all_equal = std::ranges::all_of(
      groups, [&](const KVCacheSpec& group) { return group.block_size == gpu_block_size; });
  if (gpu_block_size == 0 || !all_equal) {
    settings.fail(*block_size, "groups with one common block size");
    return factor;
  }
  const std::uint32_t tokens = settings.small_number("block_size", gpu_block_size, 1);
  if (tokens % gpu_block_size != 0) {
    settings.fail(*block_size, "a multiple of " + std::to_string(gpu_block_size));
  }
  return tokens / gpu_block_size;
}

/// Bytes of one GPU block on one worker, in all layers.
// Source: vLLM v0.19.0 v1/kv_offload/cpu/spec.py CPUOffloadingSpec.__init__; v0.23.0 the same file
std::uint64_t block_bytes(Settings& settings, const OffloadingSpecContext& context) {
  if (context.kv_cache.pool.rules.offload_fences_reuse) {
    const std::uint64_t total = std::accumulate(context.kv_cache_tensors.begin(),
                                                context.kv_cache_tensors.end(), std::uint64_t{0});
    const std::uint32_t num_blocks = context.kv_cache.pool.num_gpu_blocks;
    return num_blocks == 0 ? 0 : total / num_blocks;
  }
  const std::vector<std::uint64_t>& pages = context.page_size_bytes;
  if (pages.empty() ||
      std::ranges::any_of(pages, [&](std::uint64_t page) { return page != pages.front(); })) {
    settings.fail("page_size_bytes of the groups", "one common page size");
    return 0;
  }
  return pages.front() * context.kv_cache_tensors.size();
}

/// Slots are aligned to `alignment` bytes.
std::uint32_t read_num_slots(Settings& settings, const OffloadingSpecContext& context,
                             std::uint32_t block_size_factor, std::uint64_t alignment) {
  const Field* field = settings.find("cpu_bytes_to_use");
  if (!field) {
    settings.fail("no cpu_bytes_to_use", "cpu_bytes_to_use=BYTES");
    return 0;
  }
  const std::uint64_t bytes =
      settings.number("cpu_bytes_to_use", 0, 1,
                      static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()));
  const std::uint64_t gpu_block_bytes = block_bytes(settings, context);
  if (settings.error()) return 0;
  if (gpu_block_bytes == 0 || context.world_size == 0) {
    settings.fail("a KV cache without bytes", "blocks, tensors and workers");
    return 0;
  }
  // One after the other: the product of the three may be too large for a number.
  std::uint64_t num_slots = bytes / gpu_block_bytes / context.world_size / block_size_factor;
  if (num_slots > 0) {
    const std::uint64_t slot_bytes = gpu_block_bytes * context.world_size * block_size_factor;
    num_slots = bytes / ((slot_bytes + alignment - 1) / alignment * alignment);
  }
  if (num_slots == 0 || num_slots > std::numeric_limits<SlotId>::max()) {
    settings.fail(*field, "bytes for 1 to 2^32 - 1 slots, each of " +
                              std::to_string(block_size_factor) + " blocks of " +
                              std::to_string(gpu_block_bytes) + " bytes for " +
                              std::to_string(context.world_size) + " workers" +
                              (alignment > 1 ? ", in pages of " + std::to_string(alignment) : ""));
  }
  return static_cast<std::uint32_t>(num_slots);
}

Parsed<OffloadingSpec> make_spec(const std::vector<Field>& fields,
                                 const OffloadingSpecContext& context, const std::string& file,
                                 std::uint64_t slot_alignment) {
  for (const Field& field : fields) {
    if (contains(kSettings, field.key)) continue;
    return error_at(file, field, "one of " + joined(kSettings));
  }
  Settings settings(fields, file);
  const Rules& rules = context.kv_cache.pool.rules;
  OffloadingSpec spec;
  spec.kv_cache = context.kv_cache;
  spec.num_workers = context.world_size;
  spec.block_size_factor = read_block_size_factor(settings, context);
  settings.take("eviction_policy", spec.manager.cache.policy);
  spec.manager.cache.arc_refuses_with_idle_t1 = rules.arc_refuses_with_idle_t1;
  spec.manager.store_threshold = settings.small_number("store_threshold", 0, 0);
  spec.manager.max_tracker_size = settings.small_number("max_tracker_size", 64'000, 1);
  settings.take("offload_prompt_only", spec.offload_prompt_only);
  spec.manager.cache.capacity =
      read_num_slots(settings, context, spec.block_size_factor, slot_alignment);
  spec.manager.enable_events = context.kv_cache.pool.enable_kv_cache_events;
  spec.manager.rules = rules;
  if (settings.error()) return *settings.error();
  if (auto expected = check_spec(spec)) {
    return InputError{file, {}, "these settings", std::move(*expected)};
  }
  return spec;
}

}  // namespace

Parsed<OffloadingSpec> make_cpu_offloading_spec(const std::vector<Field>& fields,
                                                const OffloadingSpecContext& context,
                                                const std::string& file) {
  return make_spec(fields, context, file, /*slot_alignment=*/1);
}

// Source: vLLM v0.23.0 v1/kv_offload/tiering/spec.py get_manager
Parsed<OffloadingSpec> make_tiering_offloading_spec(const std::vector<Field>& fields,
                                                    const OffloadingSpecContext& context,
                                                    const std::string& file) {
  const Field* const tiers_field = find_field(fields, "secondary_tiers");
  std::vector<Field> others;
  for (const Field& field : fields) {
    if (&field != tiers_field) others.push_back(field);
  }
  Parsed<OffloadingSpec> spec = make_spec(others, context, file, kTieringSlotAlignment);
  if (!spec) return spec;
  spec->has_tiers = true;
  if (tiers_field) {
    Parsed<std::vector<SecondaryTierConfig>> tiers = secondary_tiers_from(*tiers_field, file);
    if (!tiers) return tiers.error();
    spec->secondary_tiers = std::move(*tiers);
  }
  if (auto expected = check_spec(*spec)) {
    return InputError{file, {}, "these settings", std::move(*expected)};
  }
  return spec;
}

// Source: vLLM v0.19.0 v1/kv_offload/factory.py register_spec
std::optional<InputError> OffloadingSpecFactory::register_spec(const std::string& name,
                                                               OffloadingSpecBuilder builder) {
  if (builders_.try_emplace(name, std::move(builder)).second) return std::nullopt;
  return InputError{{}, {}, "spec " + name + " registered twice", "each name once"};
}

// Source: vLLM v0.19.0 v1/kv_offload/factory.py create_spec
Parsed<OffloadingSpec> OffloadingSpecFactory::create_spec(const std::vector<Field>& settings,
                                                          const OffloadingSpecContext& context,
                                                          const std::string& file) const {
  const Field* name_field = find_field(settings, "spec_name");
  std::string name = kDefaultOffloadingSpec;
  std::vector<Field> others;
  for (const Field& field : settings) {
    if (find_field(settings, field.key) != &field) return error_at(file, field, "each key once");
    if (&field != name_field) others.push_back(field);
  }
  if (name_field) {
    const auto* text = name_field->value.get_if<std::string>();
    if (!text) return error_at(file, *name_field, "a name");
    name = *text;
  }
  const auto found = builders_.find(name);
  if (found == builders_.end()) {
    const Position position = name_field ? name_field->position : Position();
    const auto name_of = [](const auto& entry) { return entry.first; };
    return InputError{file, position, "spec_name=" + name,
                      "one of " + joined(builders_, ", ", name_of)};
  }
  return found->second(others, context, file);
}

OffloadingSpecFactory built_in_offloading_specs() {
  OffloadingSpecFactory factory;
  (void)factory.register_spec(kDefaultOffloadingSpec, make_cpu_offloading_spec);
  (void)factory.register_spec(kTieringOffloadingSpec, make_tiering_offloading_spec);
  return factory;
}

}  // namespace kvfence
