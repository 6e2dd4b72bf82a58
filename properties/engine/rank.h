#pragma once

/// What an engine consists of: its ranks, with the worker's half of the connector and its
/// environment each, and the place of each connector.

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "contract/connectors/kv_connector_worker.h"
#include "contract/connectors/multi/multi_connector.h"
#include "contract/connectors/transfer_engine.h"
#include "contract/core/state_digest.h"
#include "contract/engine/engine_setup.h"
#include "contract/engine/engine_target.h"
#include "contract/scripted/scripted_kv_cache.h"
#include "contract/scripted/scripted_transfer_engine.h"

namespace kvfence {

// properties/engine/engines.h has them.
struct PlannedStep;
struct Sampled;
namespace engine {
struct Engine;
}

/// Offers a device's copies to the worker's half of its rank.
class DeviceCopies final : public TransferEngine {
 public:
  /// setup: outlives it.
  DeviceCopies(std::uint32_t rank, const EngineSetup& setup, engine::EngineDevice& device)
      : rank_(rank), setup_(&setup), device_(&device) {}

  void transfer_async(const TransferJob& job) override {
    const TransferSpec& spec = job.spec;
    engine::DeviceTransfer& transfer = submitted_.emplace_back();
    transfer.rank = rank_;
    transfer.job = static_cast<std::uint32_t>(job.job);
    transfer.request = job.request;
    transfer.store = spec.is_store;
    transfer.gpu_blocks = spec.gpu_blocks;
    transfer.group_sizes = spec.group_sizes;
    if (spec.group_sizes.empty()) {
      // The simple connector copies blocks of any group as a whole.
      transfer.group_sizes.resize(setup_->windows.size());
      transfer.group_sizes.front() = static_cast<std::uint32_t>(spec.gpu_blocks.size());
    }
    transfer.block_indices = spec.block_indices;
    // With hold a store has no block indices.
    transfer.block_indices.resize(transfer.group_sizes.size());
    transfer.slots = spec.slots;
    engine::Copy copy{
        .job_id = transfer.job,
        .direction = spec.is_store ? worker::Direction::kStore : worker::Direction::kLoad,
        .gpu_blocks = {spec.gpu_blocks.begin(), spec.gpu_blocks.end()},
        .cpu_blocks = {spec.slots.begin(), spec.slots.end()},
        .group_sizes = transfer.group_sizes,
        .block_indices = transfer.block_indices};
    // The children's slots differ in size: the device copies page by page.
    if (!setup_->children.empty()) copy.cpu_blocks = setup_->cpu_pages_of(transfer);
    device_->transfer_async(copy);
    if (are_eager_) run_all();
  }

  /// Runs everything that was enqueued.
  void run_all() {
    for (const worker::Stream stream :
         {worker::Stream::kCompute, worker::Stream::kStore, worker::Stream::kLoad}) {
      while (device_->advance(stream)) {
      }
    }
  }
  /// Whether copies complete when they are submitted.
  void set_eager(bool are_eager) { are_eager_ = are_eager; }

  void get_finished(std::vector<TransferResult>& out) override {
    out.clear();
    std::vector<worker::Ended> ended;
    device_->get_finished(ended);
    // A drain does not wait for ends that the device reports late.
    std::uint32_t num_denied = are_eager_ ? device_->counts().num_in_flight : 0;
    for (num_denied *= worker::kNumLatePolls; num_denied > 0; --num_denied) {
      device_->get_finished(ended);
    }
    for (const worker::Ended& each : ended) {
      out.push_back({.job = each.job_id, .success = each.succeeded});
      ended_.push_back(
          {rank_, each.job_id, each.direction == worker::Direction::kStore, each.succeeded});
    }
  }

  void wait(std::span<const JobId> jobs) override {
    const std::vector<std::uint32_t> numbers(jobs.begin(), jobs.end());
    device_->wait(numbers);
  }

  void take_submitted(std::vector<engine::DeviceTransfer>& all) { move_to(all, submitted_); }
  void take_ended(std::vector<engine::EndedTransfer>& all) { move_to(all, ended_); }

 private:
  template <class T>
  static void move_to(std::vector<T>& all, std::vector<T>& own) {
    std::move(own.begin(), own.end(), std::back_inserter(all));
    own.clear();
  }

  std::uint32_t rank_;
  const EngineSetup* setup_;
  engine::EngineDevice* device_;
  bool are_eager_ = false;
  std::vector<engine::DeviceTransfer> submitted_;
  std::vector<engine::EndedTransfer> ended_;
};

/// The place of a connector: alone, or as a child of a MultiConnector.
struct ConnectorPlace {
  std::uint32_t child = 0;
  std::uint32_t num_children = 1;

  /// What it has in a scheduler's half or in metadata.
  template <class Own, class Whole>
  Own& part_of(Whole& whole) const {
    auto* const part = whole.child(child);
    return static_cast<Own&>(part ? *part : whole);
  }

  // A connector's numbers of transfers, and those of its rank's engine.
  JobId number_of(JobId own) const { return multi_connector_job({child, own}, num_children); }
  bool is_own(JobId number) const { return child_job(number, num_children).child == child; }
  JobId own(JobId number) const { return child_job(number, num_children).job; }
};

struct EngineRank {
  std::unique_ptr<KVConnectorWorker> worker;
  ScriptedTransferEngine copies;              ///< unless there is a device
  std::unique_ptr<ScriptedKVCache> kv_cache;  ///< for connectors that load and save within the step
  std::unique_ptr<engine::EngineDevice> device;
  std::optional<DeviceCopies> device_copies;

  TransferEngine& transfer_engine() {
    return device_copies ? static_cast<TransferEngine&>(*device_copies) : copies;
  }
  void add_to(StateHash& hash) const {
    hash.add_kept(copies, kv_cache);
    hash.add_all(worker, device);
  }
};

}  // namespace kvfence
