#include "contract/connectors/multi/child_engines.h"

#include <deque>
#include <span>
#include <utility>
#include <vector>

#include "contract/connectors/multi/multi_connector.h"

namespace kvfence {

class ChildEngines::EngineOfChild final : public TransferEngine {
 public:
  /// inboxes: one per child; both outlive it.
  EngineOfChild(TransferEngine& engine, std::vector<std::vector<TransferResult>>& inboxes,
                std::uint32_t child)
      : engine_(engine), inboxes_(inboxes), child_(child) {}

  void transfer_async(const TransferJob& job) override {
    TransferJob numbered = job;
    numbered.job = number(job.job);
    engine_.transfer_async(numbered);
  }

  void get_finished(std::vector<TransferResult>& out) override {
    std::vector<TransferResult> ended;
    engine_.get_finished(ended);
    for (TransferResult& result : ended) {
      const ChildJob own = child_job(result.job, num_children());
      result.job = own.job;
      inboxes_[own.child].push_back(result);
    }
    out = std::exchange(inboxes_[child_], {});
  }

  void wait(std::span<const JobId> jobs) override {
    std::vector<JobId> numbers;
    for (const JobId job : jobs) numbers.push_back(number(job));
    engine_.wait(numbers);
  }

 private:
  std::uint32_t num_children() const { return static_cast<std::uint32_t>(inboxes_.size()); }
  JobId number(JobId job) const { return multi_connector_job({child_, job}, num_children()); }

  TransferEngine& engine_;
  std::vector<std::vector<TransferResult>>& inboxes_;
  std::uint32_t child_;
};

struct ChildEngines::Shared {
  std::vector<std::vector<TransferResult>> inboxes;  ///< by child
  std::deque<EngineOfChild> engines;                 ///< likewise
};

ChildEngines::ChildEngines(std::uint32_t num_children) : shared_(std::make_shared<Shared>()) {
  shared_->inboxes.resize(num_children);
}

void ChildEngines::lend(TransferEngine& copies) {
  shared_->engines.clear();
  for (std::uint32_t child = 0; child < shared_->inboxes.size(); ++child) {
    shared_->engines.emplace_back(copies, shared_->inboxes, child);
  }
}

TransferEngine& ChildEngines::of_child(std::uint32_t child) { return shared_->engines.at(child); }

void ChildEngines::add_to(StateHash& hash) const { hash.add(shared_->inboxes); }

}  // namespace kvfence
