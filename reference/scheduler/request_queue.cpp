#include "reference/scheduler/request_queue.h"

#include <algorithm>

#include "contract/core/check.h"

namespace kvfence::reference {

void RequestQueue::add_request(const SchedulerRequest& request) {
  insert({request.index, request.priority_key()}, entries_.end());
}

void RequestQueue::prepend_request(const SchedulerRequest& request) {
  insert({request.index, request.priority_key()}, entries_.begin());
}

void RequestQueue::prepend_requests(const RequestQueue& requests) {
  for (const Entry& entry : requests.entries_) insert(entry, entries_.begin());
}

void RequestQueue::insert(const Entry& entry, std::vector<Entry>::const_iterator place) {
  if (policy_ == SchedulingPolicy::kPriority) {
    place = std::ranges::upper_bound(entries_, entry.key, {}, &Entry::key);
  }
  entries_.insert(place, entry);
}

RequestIndex RequestQueue::peek_request() const {
  KVFENCE_CHECK(!entries_.empty(), "the head of an empty queue");
  return entries_.front().request;
}

void RequestQueue::pop_request() {
  KVFENCE_CHECK(!entries_.empty(), "the head of an empty queue");
  entries_.erase(entries_.begin());
}

void RequestQueue::remove_request(RequestIndex request) {
  std::erase_if(entries_, [request](const Entry& entry) { return entry.request == request; });
}

std::vector<RequestIndex> RequestQueue::requests() const {
  std::vector<RequestIndex> all;
  for (const Entry& entry : entries_) all.push_back(entry.request);
  return all;
}

}  // namespace kvfence::reference
