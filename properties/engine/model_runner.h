#pragma once

/// The model runner of a rank on a device: it keeps the block tables of its requests, writes and
/// reads KV through them, and samples with a toy model (contract/engine/toy_model.h).

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
#include "properties/engine/planned_step.h"
#include "properties/engine/rank.h"

namespace kvfence {

class ModelRunner {
 public:
  /// Nothing is known any more. Requires: no forward is enqueued.
  void reset(const EngineSetup& setup);

  void add(const std::string& request, const RequestSpec& spec);

  /// What a step that begins says of finished requests and of blocks.
  void take_in_blocks(const PlannedStep& step);
  /// Gives the device a forward, which leaves what it samples there.
  void enqueue_forward(const PlannedStep& step, std::shared_ptr<Sampled> sampled,
                       engine::EngineDevice& device);
  /// Runs what is missing of the step's forwards. The host knows that what they wrote is there.
  static void wait_for_forward(const PlannedStep& step, std::vector<EngineRank>& ranks);

  void add_to(StateHash& hash) const { hash.add(sequences_); }

 private:
  /// What the model runner knows of a request. Forwards that have not run share the tokens; the
  /// rank samples by its own KV. Blocks that they have are not changed.
  struct Sequence {
    std::optional<std::string> cache_salt;
    std::shared_ptr<std::vector<TokenId>> tokens;
    std::shared_ptr<const BlocksByGroup> blocks;
    void add_to(StateHash& hash) const { hash.add_all(cache_salt, tokens, blocks); }
  };

  /// A request's part of a forward.
  struct Part {
    Sequence sequence;
    std::uint32_t first = 0;  ///< the position of the first token to compute
    std::uint32_t end = 0;    ///< after the last one
    bool samples = false;
  };

  engine::Place place_of(const Sequence& sequence, std::size_t group, std::uint32_t position) const;
  std::uint32_t first_read_of(const Part& part, std::size_t group) const;
  void run_forward(const std::vector<Part>& parts, engine::KVCells& cells, Sampled& sampled);
  void write(const Part& part, const std::vector<engine::Symbol>& symbols, engine::Symbol wrong,
             engine::KVCells& cells) const;
  TokenId attend(const Part& part, const std::vector<engine::Symbol>& symbols,
                 engine::KVCells& cells);

  std::vector<std::uint32_t> windows_;
  std::vector<std::uint32_t> block_sizes_;  ///< by group
  std::map<std::string, Sequence> sequences_;
  std::vector<std::vector<engine::Symbol>> symbols_;  ///< of a forward that runs: by part
  std::vector<engine::Symbol> read_;                  ///< by the part that attends
  std::vector<engine::Place> reads_;                  ///< of the forward that is enqueued
  std::vector<engine::Place> writes_;
};

}  // namespace kvfence
