#include "optimized/tiering/secondary_tiers.h"

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "contract/connectors/offloading/offloading_connector.h"
#include "contract/core/check.h"
#include "contract/core/joined.h"
#include "contract/tiering/example_tier.h"
#include "contract/tiering/file_tier.h"
#include "optimized/files/file_tier.h"
#include "optimized/files/posix_file_operations.h"

namespace kvfence::optimized {
namespace {

/// Settings of one tier, read one after the other; remembers the first mistake.
class Settings {
 public:
  Settings(const SecondaryTierConfig& config, const std::string& file,
           std::initializer_list<std::string_view> keys)
      : config_(config), file_(file) {
    for (const Field& field : config.settings) {
      if (std::find(keys.begin(), keys.end(), field.key) != keys.end()) continue;
      fail(field, keys.size() == 0 ? "no settings" : "one of " + joined(keys));
    }
  }

  std::uint32_t number(std::string_view key, std::uint32_t otherwise, std::uint32_t max) {
    const Field* const field = find_field(config_.settings, key);
    if (!field) return otherwise;
    const auto* number = field->value.get_if<std::int64_t>();
    if (number && *number >= 0 && *number <= max) return static_cast<std::uint32_t>(*number);
    fail(*field, "a whole number from 0 to " + std::to_string(max));
    return otherwise;
  }

  std::string text(std::string_view key, std::string otherwise) {
    const Field* const field = find_field(config_.settings, key);
    if (!field) return otherwise;
    const auto* text = field->value.get_if<std::string>();
    if (text) return *text;
    fail(*field, "a text");
    return otherwise;
  }

  bool flag(std::string_view key, bool otherwise) {
    const Field* const field = find_field(config_.settings, key);
    if (!field) return otherwise;
    const bool* flag = field->value.get_if<bool>();
    if (flag) return *flag;
    fail(*field, "true or false");
    return otherwise;
  }

  void fail(const Field& field, std::string expected) {
    if (error_) return;
    error_.emplace(InputError{file_, field.position,
                              config_.type + " with " + field.key + "=" + print(field.value),
                              std::move(expected)});
  }

  void fail(std::string found, std::string expected) {
    if (!error_) error_.emplace(InputError{file_, {}, std::move(found), std::move(expected)});
  }

  const std::optional<InputError>& error() const { return error_; }

 private:
  const SecondaryTierConfig& config_;
  const std::string& file_;
  std::optional<InputError> error_;
};

Parsed<SecondaryTierHandle> make_example_tier(const SecondaryTierConfig& config,
                                              const PrimaryKvView& primary, const OffloadingSpec&,
                                              const std::string& file) {
  const Settings settings(config, file, {});
  if (settings.error()) return *settings.error();
  return SecondaryTierHandle(ExampleTier(primary));
}

// Source: vLLM v0.23.0 v1/kv_offload/tiering/fs/manager.py FileSystemTierManager.__init__;
// v1/kv_offload/file_mapper.py from_offloading_spec
Parsed<SecondaryTierHandle> make_file_tier(const SecondaryTierConfig& config,
                                           const PrimaryKvView& primary, const OffloadingSpec& spec,
                                           const std::string& file) {
  constexpr std::uint32_t kThreadsMax = 1024;
  constexpr std::uint32_t kQueuedMax = 1U << 30;
  Settings settings(config, file,
                    {"root_dir", "n_read_threads", "n_write_threads", "max_queued_blocks",
                     "sync_data", "model_name", "dtype"});
  FileTierConfig tier;
  tier.n_read_threads = settings.number("n_read_threads", tier.n_read_threads, kThreadsMax);
  tier.n_write_threads = settings.number("n_write_threads", tier.n_write_threads, kThreadsMax);
  tier.max_queued_blocks = settings.number("max_queued_blocks", tier.max_queued_blocks, kQueuedMax);
  tier.sync_data = settings.flag("sync_data", tier.sync_data);
  tier.files.root_dir = settings.text("root_dir", "");
  tier.files.model_name = settings.text("model_name", "model");
  tier.files.dtype = settings.text("dtype", "auto");
  tier.files.hash_block_size = spec.kv_cache.pool.hash.hash_block_size;
  tier.files.gpu_blocks_per_file = spec.block_size_factor;
  tier.files.tp_size = spec.num_workers;
  for (const KVCacheSpec& group : spec.kv_cache.groups) {
    tier.files.kv_cache_groups.push_back({group.block_size, {}});
  }
  if (primary.slot_bytes == 0) settings.fail("an fs tier below slots without bytes", "bytes");
  if (!settings.error()) {
    if (auto wrong = check_config(tier)) settings.fail("this fs tier", std::move(*wrong));
  }
  if (settings.error()) return *settings.error();
  static PosixFileOperations files;  // stateless, so that all tiers share it
  return SecondaryTierHandle(FileTier(tier, primary, files));
}

}  // namespace

SecondaryTierFactory built_in_secondary_tiers() {
  SecondaryTierFactory factory;
  const auto add = [&factory](const char* type, SecondaryTierBuilder builder) {
    const auto error = factory.register_tier(type, std::move(builder));
    KVFENCE_CHECK(!error, "the types differ");
  };
  add("example", make_example_tier);
  add("fs", make_file_tier);
  return factory;
}

}  // namespace kvfence::optimized
