#pragma once

/// A place where requests wait: first come first served, or by priority.

#include <cstddef>
#include <vector>

#include "contract/core/state_digest.h"
#include "contract/scheduler/scheduler.h"
#include "reference/scheduler/scheduler_request.h"

namespace kvfence::reference {

/// FCFS keeps the order of insertion at either end. Priority keeps the order of PriorityKey, and
/// "the front" is no place of its own. Upstream's heap gives the same order, since no two requests
/// have the same key.
/// Source: vLLM v0.19.0 v1/core/sched/request_queue.py.
class RequestQueue {
 public:
  explicit RequestQueue(SchedulingPolicy policy) : policy_(policy) {}

  void add_request(const SchedulerRequest& request);
  void prepend_request(const SchedulerRequest& request);

  /// One by one: FCFS reverses their order.
  void prepend_requests(const RequestQueue& requests);

  /// Requires: not empty.
  RequestIndex peek_request() const;
  void pop_request();

  /// Nothing if the request is not here.
  void remove_request(RequestIndex request);

  bool empty() const { return entries_.empty(); }
  std::size_t size() const { return entries_.size(); }

  /// All of them, in the order in which they would be popped.
  std::vector<RequestIndex> requests() const;

  void add_to(StateHash& hash) const { hash.add(requests()); }

 private:
  struct Entry {
    RequestIndex request = 0;
    PriorityKey key;
  };

  /// Under FCFS at this place.
  void insert(const Entry& entry, std::vector<Entry>::const_iterator place);

  SchedulingPolicy policy_;
  std::vector<Entry> entries_;
};

}  // namespace kvfence::reference
