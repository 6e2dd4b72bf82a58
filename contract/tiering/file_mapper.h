#pragma once

/// The file that keeps a block: a folder for the model and its layout, then folders by the first
/// digits of the block hash, so that none grows too large.
/// Source: vLLM v0.23.0 v1/kv_offload/file_mapper.py FileMapper.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "contract/eviction/cache_policy.h"

namespace kvfence {

/// A KV-cache group, as far as the content of a file depends on it.
struct FileMapperGroup {
  std::uint32_t block_size = 0;  ///< tokens
  std::vector<std::string> layer_names;
  friend bool operator==(const FileMapperGroup&, const FileMapperGroup&) = default;
};

/// All that decides what the bytes under a block hash are. Two configurations that differ in any of
/// it, except rank, have different base paths; ranks differ in their folder below. Texts are UTF-8.
struct FileMapperConfig {
  std::string root_dir;
  std::string model_name;
  std::uint32_t hash_block_size = 0;      ///< tokens
  std::uint32_t gpu_blocks_per_file = 1;  ///< the block size factor
  std::uint32_t tp_size = 1;              ///< ranks: tensor parallel
  std::uint32_t pp_size = 1;              ///< pipeline
  std::uint32_t pcp_size = 1;             ///< prefill context
  std::uint32_t dcp_size = 1;             ///< decode context
  std::uint32_t rank = 0;
  std::string dtype;
  std::vector<FileMapperGroup> kv_cache_groups;
  std::string inference_engine = "vllm";
  bool parallel_agnostic = false;  ///< as if every size were 1 and rank 0
  friend bool operator==(const FileMapperConfig&, const FileMapperConfig&) = default;
};

/// Returns what is wrong with a configuration, or nothing if a mapper can be built from it: a root
/// folder, a model name that leaves a folder name, texts that are UTF-8.
std::optional<std::string> check_config(const FileMapperConfig& config);

class FileMapper {
 public:
  /// Requires: check_config(config) finds nothing wrong
  explicit FileMapper(const FileMapperConfig& config);

  /// <root>/<model, with _ for />_<12 hex digits of the SHA-256 of the configuration as compact
  /// JSON with sorted keys>
  const std::string& base_path() const { return base_path_; }

  /// <base path>_r<rank>: what the files of this rank lie under.
  const std::string& rank_path() const { return rank_path_; }

  /// <rank path>/<3 hex digits>/<next 2>_g<group>/<block hash in hex>.bin. A key is a block hash
  /// and 4 bytes of group, big-endian. Different keys have different names.
  /// Requires: key has at least 4 bytes.
  std::string get_file_name(OffloadKeyView key) const;

  /// The file that shows the configuration to people, and its text: indented JSON.
  std::string get_config_file_path() const { return base_path_ + "/config.json"; }
  const std::string& get_run_config() const { return run_config_; }

 private:
  std::string base_path_;
  std::string rank_path_;
  std::string run_config_;
};

}  // namespace kvfence
