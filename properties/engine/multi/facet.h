#pragma once

/// A MultiConnector in an engine: what its scripted children report and were asked, and its
/// observations.

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "contract/connectors/kv_output_aggregator.h"
#include "contract/connectors/multi/multi_connector.h"
#include "contract/core/status.h"
#include "contract/engine/engine_setup.h"
#include "contract/engine/engine_target.h"
#include "contract/scripted/scripted_connector.h"
#include "properties/engine/rank.h"

namespace kvfence::engine::multi {

class Facet {
 public:
  /// A new engine starts. The calls so far stay.
  void restart();

  const std::shared_ptr<ScriptedChildren>& scripted() const { return scripted_; }

  /// What the scripted children's workers are to report of the next step. Throws EngineEnded.
  ErrorCode take_reports(const Update& command, const EngineSetup& setup, Engine& engine);
  /// Takes the joint report of the step. Throws EngineEnded.
  void check_report(const AggregatedOutput& report, Engine& engine);

  static void observe_report(const AggregatedOutput& report, Observed& observed);
  void observe(Engine& engine, bool has_state, Observed& observed);
  void add_to(StateHash& hash) const {
    hash.add_kept(received_);
    // Calls that no answer has shown yet are those of the start, which the configuration decides.
    hash.add(scripted_->calls.size());
  }

 private:
  void check_received(const Update& command, Engine& engine);
  void append_extra(std::optional<std::uint32_t> rank, std::vector<Extra>& all);

  std::shared_ptr<ScriptedChildren> scripted_ = std::make_shared<ScriptedChildren>();
  std::set<std::pair<std::string, std::uint32_t>> received_;  ///< loads under way: request, rank
  std::vector<ExtraAsyncSaves> extra_saves_;
};

}  // namespace kvfence::engine::multi
