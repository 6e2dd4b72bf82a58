#include "reference/scheduler/request_queue.h"

#include <algorithm>

#include "contract/core/check.h"

namespace kvfence::reference {

void RequestQueue::add_request(const SchedulerRequest& request) {
  const Entry entry = {request.index, request.priority_key()};
  if (policy_ == SchedulingPolicy::kPriority) {
    insert_by_priority(entry);
  } else {
    entries_.push_back(entry);
  }
}

void RequestQueue::prepend_request(const SchedulerRequest& request) {
  prepend({request.index, request.priority_key()});
}

void RequestQueue::prepend_requests(const RequestQueue& requests) {
  for (const Entry& entry : requests.entries_) prepend(entry);
}

void RequestQueue::prepend(const Entry& entry) {
  if (policy_ == SchedulingPolicy::kPriority) {
    insert_by_priority(entry);
  } else {
    entries_.insert(entries_.begin(), entry);
  }
}

void RequestQueue::insert_by_priority(const Entry& entry) {
  const auto after = std::ranges::find_if(
      entries_, [&entry](const Entry& other) { return entry.key < other.key; });
  entries_.insert(after, entry);
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
