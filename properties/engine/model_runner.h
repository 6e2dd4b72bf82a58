#pragma once

/// The model runner of a rank on a device: it keeps the block tables of its requests, writes and
/// reads KV through them, and samples with a toy model (contract/engine/toy_model.h). Where the
/// scheduler plans drafts without tokens, it guesses the tokens when it computes them.

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "contract/core/state_digest.h"
#include "contract/engine/engine_device.h"
#include "contract/engine/engine_target.h"
#include "contract/engine/toy_model.h"
#include "properties/engine/rank.h"

namespace kvfence {

class ModelRunner {
 public:
  /// Forgets all requests. Requires: no forward is enqueued.
  void reset(const EngineSetup& setup);

  void add(const std::string& request, const RequestSpec& spec);

  /// Takes in the finished requests and the blocks of a step that begins.
  void take_in_blocks(const PlannedStep& step);
  /// Enqueues a forward on the device; it writes what it samples to `sampled`.
  void enqueue_forward(const PlannedStep& step, std::shared_ptr<Sampled> sampled,
                       engine::EngineDevice& device);
  /// Completes the step's forwards. From then on the host may rely on what they wrote.
  static void wait_for_forward(const PlannedStep& step, std::vector<EngineRank>& ranks);

  void add_to(StateHash& hash) const { hash.add(sequences_); }

 private:
  /// How many tokens of a request are computed in its blocks. Plans may assume that all drafts of
  /// earlier steps are accepted.
  struct Computed {
    std::uint32_t num_tokens = 0;   ///< by forwards that have run
    std::uint32_t num_pending = 0;  ///< at least, by those that have not
  };

  /// What the model runner knows of a request. Enqueued forwards share the tokens: the rank samples
  /// from its own KV. They keep the blocks that they were enqueued with.
  struct Sequence {
    std::optional<std::string> cache_salt;
    std::shared_ptr<std::vector<TokenId>> tokens;
    std::shared_ptr<const BlocksByGroup> blocks;
    std::shared_ptr<Computed> computed;
  };

  /// A request's part of a forward, as planned.
  struct Part {
    Sequence sequence;
    std::uint32_t first = 0;  ///< the position of the first token to compute, or one after it
    std::uint32_t num_tokens = 0;
    std::vector<TokenId> drafts;  ///< the last tokens; placeholders of those that are guessed
    bool samples = false;

    std::uint32_t num_known() const {
      return num_tokens - static_cast<std::uint32_t>(drafts.size());
    }
  };

  /// The same when it runs.
  struct Run {
    std::uint32_t first = 0;
    std::uint32_t first_draft = 0;  ///< the position after the last token that is known
    std::uint32_t end = 0;
    std::vector<TokenId> drafts;
    std::vector<engine::Symbol> symbols;  ///< of all tokens up to the end
    /// The content by group, from the first position that the part's tokens read.
    std::vector<std::vector<engine::Symbol>> read;
  };

  engine::Place place_of(const Sequence& sequence, std::size_t group, std::uint32_t position) const;
  void add_places(const Part& part);
  void run_forward(const std::vector<Part>& parts, engine::KVCells& cells, Sampled& sampled);
  void begin(const Part& part, Run& run) const;
  void write(const Part& part, const Run& run, engine::Symbol wrong, engine::KVCells& cells) const;
  void attend(const Part& part, Run& run, engine::KVCells& cells, Sampled& sampled);
  engine::Symbol read(const Part& part, Run& run, const engine::KVCells& cells) const;
  TokenId sample(const Run& run, std::uint32_t position, engine::Symbol wrong);

  std::vector<std::uint32_t> windows_;
  std::vector<std::uint32_t> block_sizes_;  ///< by group
  std::map<std::string, Sequence> sequences_;
  std::vector<Run> runs_;             ///< of a forward that runs: by part
  std::vector<engine::Symbol> read_;  ///< by the token that samples
  std::vector<engine::Place> reads_;  ///< of the forward that is enqueued
  std::vector<engine::Place> writes_;
};

}  // namespace kvfence
