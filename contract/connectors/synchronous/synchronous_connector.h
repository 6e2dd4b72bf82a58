#pragma once

/// The two synchronous connectors: the ExampleConnector, which keeps prompts in files, and the
/// DecodeBenchConnector, which fills blocks with dummies as if another engine had computed them.
/// Both do their work within the step that needs it. This file states the rules of their two halves
/// once; `reference/` and `optimized/` implement them independently.
///
/// Source: vLLM v0.19.0 and v0.23.0
/// distributed/kv_transfer/kv_connector/v1/{example_connector,decode_bench_connector}.py.
///
/// Ranks are stages of a pipeline: each has layers of its own. (Ranks of tensor parallelism would
/// write files of the same names over each other's.) The KV cache of a layer has the blocks as its
/// first dimension. (With v0.19.0's layout of FlashAttention, whose first dimension is keys and
/// values, the DecodeBenchConnector takes block 1 for all values.)

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "contract/connectors/kv_connector.h"
#include "contract/connectors/kv_connector_worker.h"
#include "contract/connectors/synchronous/file_records.h"
#include "contract/connectors/synchronous/shared_storage.h"
#include "contract/core/state_digest.h"
#include "contract/kv_cache/kv_cache_manager.h"
#include "contract/scripted/scripted_kv_cache.h"

namespace kvfence {

enum class SynchronousConnectorKind : std::uint8_t { kExample, kDecodeBench };

/// What a synchronous connector is built from.
struct SynchronousConnectorSpec {
  KVCacheManagerConfig kv_cache;  ///< the GPU's, with the rules
  SynchronousConnectorKind kind = SynchronousConnectorKind::kExample;
  std::uint32_t num_workers = 1;
  std::uint32_t num_layers = 1;  ///< a rank

  std::uint32_t block_size() const { return kv_cache.groups.front().block_size; }
  std::uint32_t num_all_layers() const { return num_workers * num_layers; }
  friend bool operator==(const SynchronousConnectorSpec&,
                         const SynchronousConnectorSpec&) = default;
};

/// Returns what is wrong with a spec, or nothing if a connector can be built from it:
///   - num_workers and num_layers are positive;
///   - groups of full attention or sliding window, of one block size (the connectors know one);
///   - example: one group of full attention (with a window, files would get what is not kept);
///   - decode_bench: one group before Rules::decode_bench_hma.
std::optional<std::string> check_spec(const SynchronousConnectorSpec& spec);

/// How many of n requested tokens files keep: n - 1, rounded down to whole blocks; 0 if n is 0
/// (upstream: -block_size).
/// Source: vLLM v0.19.0 example_connector.py align_to_block_size.
constexpr std::uint32_t align_to_block_size(std::uint32_t num_tokens, std::uint32_t block_size) {
  return num_tokens == 0 ? 0 : (num_tokens - 1) / block_size * block_size;
}

/// The folder of a list of tokens: the MD5 of their bytes, 8 each, little-endian, and of the
/// identifiers of the multimodal items with "-" between; as 32 hex digits.
/// Source: vLLM v0.19.0 example_connector.py _generate_foldername_debug, utils/hashing.py
/// safe_hash.
std::string folder_name(std::span<const TokenId> tokens,
                        std::span<const MmFeature> mm_features = {});

/// What the scheduler's half sends to the workers for a step.
struct SynchronousConnectorMetadata final : KVConnectorMetadata {
  void add_to(StateHash& hash) const override { hash.add_all(transfers, fills); }

  std::vector<FileTransfer> transfers;
  std::vector<BlockFill> fills;
};

/// The scheduler's half, as KVConnector, with what an observer reads. b: tokens of a block; m: the
/// first group's blocks of a request.
///
/// on_new_request, update_connector_output, take_events: nothing. reset_cache: succeeds, and does
/// nothing. (Upstream's base classes have none, which its scheduler takes for success.)
///
/// ExampleConnector. Let p be the prompt's tokens, without outputs, n their number. The *match* of
/// a prompt is the folder of its first align_to_block_size(n - 1, b) tokens; it is *found* if that
/// folder exists, whatever is in it. What is kept of a prompt is align_to_block_size(n, b) tokens,
/// in the folder of these: with n = k * b + 1 that is one block more, so such a prompt does not
/// find what it kept itself, and, finding a shorter one's folder, does not find its own file.
/// Salts and adapters do not count.
///
/// get_num_new_matched_tokens(request, c)
///     0 if the match is not found; else align_to_block_size(n - 1, b) - c, not below 0.
///     Synchronously. (Upstream's answer can be negative: its scheduler then recomputes blocks that
///     it had found, or, with a prompt of one token, tokens before the prompt. In vllm#53495 a
///     prompt of embeddings leads to it.)
///
/// update_state_after_alloc(request, blocks, n_ext)
///     With n_ext > 0: the request needs a load in the step that is being planned.
///
/// build_connector_meta(output)
///     Transfers, first of the new requests of the step, in order:
///       it needs a load            a load of the first align_to_block_size(n, b) prompt tokens
///       else, the match of its     a store of as many tokens; if this step computes up to them at
///       prompt is not found        least: num_computed_tokens + its tokens of the step reach that
///                                  far. (Upstream stores also what is not computed yet: under the
///                                  whole prompt's name as many blocks as the request has.)
///     then of the cached ones, in order, that are resumed and need a load: a load of the first
///     align_to_block_size(t, b) tokens, t = num_computed_tokens + its tokens of the step, outputs
///     included: not the folder that was found, but the one with the last block or outputs, too.
///     Blocks: the first ones of m. No request needs a load any more.
///     Requires: each request that needs a load is one of these (upstream asserts).
///
/// request_finished(request): nothing; never holds.
///
/// DecodeBenchConnector. A request is *filled* from its first update_state_after_alloc with
/// n_ext > 0 to its request_finished.
///
/// get_num_new_matched_tokens(request, c)
///     0 if the request is filled; else num_tokens - c - 1, outputs included, not below 0.
///     Synchronously. Not whole blocks.
///
/// update_state_after_alloc(request, blocks, n_ext)
///     With n_ext > 0: a fill of n_ext tokens: of each group the first ceil(n_ext / b) blocks of
///     the request, even where the local hit has these already and the tokens come after them. It
///     is filled from now on.
///
/// build_connector_meta(output)
///     The fills since the last call, in the order of their update_state_after_alloc.
///
/// request_finished(request): it is no longer filled. Never holds.
///
/// A resumed request is not filled again: it computes what it lost.
class SynchronousConnectorScheduler : public KVConnector {
 public:
  /// What an observer reads: the requests that are filled, in the order in which they came to be.
  /// ExampleConnector: none.
  virtual void filled_requests(std::vector<RequestIndex>& out) const = 0;
};

/// What one rank did in a step, in the order in which it did it.
struct SynchronousWorkerReport {
  std::vector<FileCopy> loaded;
  std::vector<FileCopy> saved;
  std::vector<FilledBlocks> filled;
  std::optional<FailedFile> failed;

  void clear() {
    loaded.clear();
    saved.clear();
    filled.clear();
    failed.reset();
  }
};

/// The worker's half of one rank, as KVConnectorWorker. save_kv_layer is called when the model has
/// computed the layer. The metadata's requests are passed on as they are: they need not be there
/// any more.
///
/// ExampleConnector:
///     start_load_kv   for each load, in order, for each layer of the rank, ascending: load of its
///                     file, and its symbols into the slots of the transfer's blocks, in order,
///                     also those that hold the same already, or are computed in this step.
///     save_kv_layer   for each store, in order: save of what the slots of its blocks hold
///                     in the layer.
///     Where storage fails, the half ends at once, with `failed`, and is not called again. What was
///     done before stays done.
/// DecodeBenchConnector:
///     start_load_kv   for each fill, in order, for each layer of the rank, ascending: the blocks
///                     of group 0 get kFilledWithDummies in each slot, the null block too. Those
///                     of other groups get nothing: upstream knows the layers of group 0 alone,
///                     and takes all layers for these.
///     save_kv_layer   nothing
///
/// Failures: upstream raises in the worker, and its engine exits. Here the step ends at the first
/// rank that fails, in order, and the engine ends with it. A new one starts over the same storage,
/// with no request, no cache and nothing computed.
class SynchronousConnectorWorker : public KVConnectorWorker {
 public:
  /// kv_cache, of the rank, and report: outlive it. The report gets what each call did.
  SynchronousConnectorWorker(ScriptedKVCache& kv_cache, SynchronousWorkerReport& report)
      : kv_cache_(kv_cache), report_(report) {}

  void get_finished(std::span<const std::string>, KVConnectorWorkerOutput& out) override {
    out = {};
  }
  /// It keeps nothing from one step to the next; storage and KV cache are around it.
  void add_to(StateHash&) const override {}

 protected:
  /// Requires: a step is under way.
  const SynchronousConnectorMetadata& step_metadata() const {
    return metadata_of<SynchronousConnectorMetadata>(bound_metadata());
  }

  ScriptedKVCache& kv_cache_;
  SynchronousWorkerReport& report_;
};

}  // namespace kvfence
