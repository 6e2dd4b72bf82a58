#pragma once

/// The three streams of a device: forwards, stores and loads, each a list of work in the order of
/// submission. The derived class defines what a forward and a copy do.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "contract/core/lists.h"
#include "contract/worker/worker.h"

namespace kvfence::reference {

template <class Transfer, class Forward>
class StreamJobs {
 protected:
  /// A transfer that is not reported.
  struct Job {
    Transfer transfer;
    std::size_t num_forwards_before = 0;  ///< that have to have run
    worker::Fault fault = worker::Fault::kNone;
    std::uint32_t num_late_polls = 0;  ///< that will deny its end
    bool has_begun = false;            ///< a part of it has run
    bool is_done = false;              ///< nothing is left to be done for it
    bool was_waited = false;           ///< its end is known to the host
    bool was_lost = false;             ///< its device was lost before the host knew its end

    bool copies() const {
      return !transfer.gpu_blocks.empty() && fault != worker::Fault::kCopy &&
             fault != worker::Fault::kWait;
    }
  };
  using Jobs = std::vector<Job>;

  ~StreamJobs() = default;

  virtual void run(const Forward& forward) = 0;
  virtual void copy(const Job& job) = 0;

  void submit(const Transfer& transfer, worker::Fault& next_fault) {
    Job job{.transfer = transfer, .num_forwards_before = forwards_.size()};
    // On a lost device every call fails already.
    if (!is_lost_ && (!worker::is_of_copies(next_fault) || !transfer.gpu_blocks.empty())) {
      job.fault = std::exchange(next_fault, worker::Fault::kNone);
    }
    if (job.fault == worker::Fault::kWait) job.num_forwards_before = 0;
    if (job.fault == worker::Fault::kLate) job.num_late_polls = worker::kNumLatePolls;
    in_flight_[static_cast<std::size_t>(transfer.direction)].push_back(std::move(job));
    end_what_copies_nothing();
  }

  /// The next work of the stream, or a part of its copy; whether anything ran.
  bool run_next(worker::Stream stream, bool is_part) {
    if (stream == worker::Stream::kCompute) {
      if (is_part || num_forwards_run_ == forwards_.size()) return false;
      run_forward();
      return true;
    }
    bool ran = false;
    for (Job& job : in_flight_[stream == worker::Stream::kLoad ? 1 : 0]) {
      if (job.is_done) continue;
      if (is_blocked(job)) break;
      if (job.copies()) {
        job.has_begun = true;
        ran = true;
        if (!is_part) copy(job);
      }
      if (!is_part) job.is_done = true;
      // A transfer whose end was not recorded cannot be distinguished from the next one.
      if (job.fault != worker::Fault::kRecord) break;
    }
    end_what_copies_nothing();
    return ran;
  }

  /// Runs what the job needs.
  void finish(Jobs& jobs, const Job& job) {
    while (!job.is_done && !is_lost_) {
      Job* next = next_of(jobs);
      while (is_blocked(*next)) run_forward();
      if (next->is_done) continue;
      if (next->copies()) copy(*next);
      next->is_done = true;
      end_what_copies_nothing();
    }
  }

  /// Until these are over; false if the device is lost before.
  bool wait_for(std::span<const std::uint32_t> job_ids) {
    bool are_over = true;
    for (Jobs& jobs : in_flight_) {
      for (Job& job : jobs) {
        if (job.was_waited || !contains(job_ids, job.transfer.job_id)) continue;
        job.was_waited = true;
        // Without a recorded end the whole stream is waited for.
        finish(jobs, job.fault == worker::Fault::kRecord ? jobs.back() : job);
        job.was_lost = is_lost_;
        are_over = are_over && !is_lost_;
      }
    }
    return are_over;
  }

  bool is_known_to_be_over(Job& job, const Jobs& jobs) const {
    if (job.was_waited) return true;
    if (is_lost_) return job.was_lost = true;
    if (job.fault == worker::Fault::kRecord) return jobs.back().is_done;
    if (!job.is_done) return false;
    if (job.num_late_polls == 0) return true;
    --job.num_late_polls;
    return false;
  }

  std::vector<Forward> forwards_;  ///< all that were enqueued
  std::size_t num_forwards_run_ = 0;
  Jobs in_flight_[worker::kNumDirections];
  bool is_lost_ = false;

 private:
  static Job* next_of(Jobs& jobs) {
    const auto next = std::ranges::find(jobs, false, &Job::is_done);
    return next == jobs.end() ? nullptr : &*next;
  }

  bool is_blocked(const Job& job) const { return job.num_forwards_before > num_forwards_run_; }

  void run_forward() {
    run(forwards_[num_forwards_run_++]);
    end_what_copies_nothing();
  }

  /// Transfers whose copies could not be enqueued end when their turn comes.
  void end_what_copies_nothing() {
    for (Jobs& jobs : in_flight_) {
      for (Job* next = next_of(jobs); next && !next->copies() && !is_blocked(*next);
           next = next_of(jobs)) {
        next->is_done = true;
      }
    }
  }
};

}  // namespace kvfence::reference
