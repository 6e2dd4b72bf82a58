#pragma once

/// NIXL between two engines: the router, the transport and the clock, its commands and its
/// observations.

#include <map>
#include <string>
#include <vector>

#include "contract/connectors/disaggregated/disaggregated_connector.h"
#include "contract/core/engine_role.h"
#include "contract/core/state_digest.h"
#include "contract/core/status.h"
#include "contract/engine/engine_target.h"
#include "contract/scripted/scripted_transport.h"
#include "properties/engine/rank.h"

namespace kvfence::engine::nixl {

/// The blocks of a table by group, without null blocks.
std::vector<BlockId> blocks_of(const BlocksByGroup& table);

class Facet {
 public:
  /// carrier: moves the bytes that are read; null: there are none. It outlives this.
  void start(const Config& config, ConnectorPlace place, ReadCarrier* carrier);
  /// For a new pair: nothing is under way, and the router is empty.
  void restart();

  ScriptedTransport& transport() { return transport_; }

  ErrorCode run(const AdvanceRead& command);
  ErrorCode run(const DeliverNotice& command);
  ErrorCode run(const LoseNotice& command);
  ErrorCode run(const RepeatNotice& command);
  /// Sets the time of both halves.
  ErrorCode run(const AdvanceClock& command, Engine& producer, Engine& consumer);

  /// The producer's parameters of a finished request; null: none.
  const KVTransferParams* finished_prefill(const std::string& request) const;
  /// Later commands cannot hand it over.
  void forget_prefill(const std::string& request) { finished_prefills_.erase(request); }
  /// Takes the parameters that finished requests send the router with their last output.
  void take_finished_prefills(Engine& producer, Observed& observed);

  void observe_plan(const KVConnectorMetadata& of_step, EngineRole role, Observed& observed) const;
  void observe(bool has_state, Observed& observed) const;
  void add_to(StateHash& hash) const { hash.add_all(transport_, finished_prefills_); }

 private:
  ConnectorPlace place_;
  bool transport_may_fail_ = false;
  ReadCarrier* carrier_ = nullptr;
  ScriptedTransport transport_;
  std::map<std::string, KVTransferParams> finished_prefills_;  ///< the router's, by request
  std::vector<RemotePrefill> remote_prefills_;
};

}  // namespace kvfence::engine::nixl
