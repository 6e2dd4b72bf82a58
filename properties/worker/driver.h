#pragma once

/// Connects any copy workers that satisfy the concept to the interface that a lockstep drives.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "contract/core/state_digest.h"
#include "contract/worker/worker.h"
#include "contract/worker/worker_target.h"
#include "properties/core/driver.h"
#include "properties/core/replayed_implementation.h"

namespace kvfence {

/// make_worker makes a std::unique_ptr of the workers from their options: a planted variant gets
/// its bug there.
template <worker::CopyWorkers Worker, class MakeWorker>
class WorkerDriver final : public DriverOf<WorkerTarget> {
 public:
  WorkerDriver(std::string name, MakeWorker make_worker)
      : name_(std::move(name)), make_worker_(std::move(make_worker)) {}

  std::string name() const override { return name_; }

  std::optional<ImplementationFailure> start(const Config&, const Setup& setup) override {
    options_ = setup;
    worker_ = make_worker_(options_);
    return std::nullopt;
  }

  void answer(const Command& command, const World&, Observe observe) override {
    observed().error = std::visit(
        [&](const auto& typed) { return error_of([&] { return run(typed); }); }, command);
    worker_->take_seen(seen_);
    observed().seen.clear();
    for (const worker::Seen& seen : seen_) {
      observed().seen.push_back(page_of(seen.rank, seen.gpu_block, seen.content));
    }
    static_cast<worker::Counts&>(observed()) = worker_->counts();
    if (observe == Observe::kState) show_state();
  }

  void add_to(StateHash& hash) const override { hash.add(*worker_); }

 private:
  static worker::Page page_of(std::uint32_t rank, std::uint32_t number,
                              const worker::Content& content) {
    return {.number = number,
            .of_block = content.block,
            .generation = content.generation,
            .torn = content.kind == worker::Content::Kind::kTorn,
            .undefined = content.kind == worker::Content::Kind::kUndefined,
            .rank = rank};
  }

  void show_state() {
    const auto show = [this](std::vector<worker::Page>& pages, std::uint32_t num_pages,
                             const auto& content_of) {
      pages.clear();
      for (std::uint32_t rank = 0; rank < options_.num_ranks; ++rank) {
        for (std::uint32_t number = 0; number < num_pages; ++number) {
          const worker::Content content = content_of(rank, number);
          if (content.kind == worker::Content::Kind::kUnwritten) continue;
          pages.push_back(page_of(rank, number, content));
        }
      }
    };
    show(observed().gpu_pages.emplace(), options_.num_gpu_blocks,
         [this](std::uint32_t rank, std::uint32_t block) {
           return worker_->gpu_content(rank, block);
         });
    show(observed().cpu_pages.emplace(), options_.num_cpu_blocks * options_.block_size_factor,
         [this](std::uint32_t rank, std::uint32_t page) {
           return worker_->cpu_content(rank, page);
         });
    observed().num_stray_bytes.emplace() = worker_->num_stray_bytes();
  }

  /// The list, empty, in which the command reports what has ended.
  std::vector<worker::Ended>& ended() {
    std::vector<worker::Ended>& list = observed().finished_jobs.emplace();
    list.clear();
    return list;
  }

  void run(const worker::GetFinished&) { worker_->get_finished(ended()); }

  ErrorCode run(const worker::TransferAsync& command) { return worker_->transfer_async(command); }

  void run(const worker::StartKVTransfers&) { worker_->start_kv_transfers(); }

  void run(const worker::Wait& command) {
    observed().waited.emplace() = worker_->wait(command.jobs);
  }

  void run(const worker::Shutdown&) { worker_->shutdown(ended()); }

  ErrorCode run(const worker::Forward& command) {
    return worker_->forward(command.reads, command.writes);
  }

  ErrorCode run(const worker::Advance& command) {
    if (command.rank >= options_.num_ranks) return ErrorCode::kNotInConfig;
    observed().advanced.emplace() = worker_->advance(command.rank, command.stream, command.steps);
    return ErrorCode::kNone;
  }

  ErrorCode run(const worker::FailNext& command) {
    // It is not determined when a device that is not commanded is lost.
    const bool can_be = command.fault != worker::Fault::kSticky || options_.is_commanded();
    if (!can_be || command.rank >= options_.num_ranks) return ErrorCode::kNotInConfig;
    worker_->fail_next(command.rank, command.fault);
    return ErrorCode::kNone;
  }

  std::string name_;
  MakeWorker make_worker_;
  worker::Options options_;
  std::unique_ptr<Worker> worker_;
  std::vector<worker::Seen> seen_;
};

/// A driver of workers that are made from their options.
template <worker::CopyWorkers Worker>
std::unique_ptr<Implementation> make_worker_driver(std::string name) {
  auto make_worker = [](const worker::Options& options) {
    return std::make_unique<Worker>(options);
  };
  return std::make_unique<ReplayedImplementation>([name = std::move(name), make_worker] {
    return std::make_unique<WorkerDriver<Worker, decltype(make_worker)>>(name, make_worker);
  });
}

}  // namespace kvfence
