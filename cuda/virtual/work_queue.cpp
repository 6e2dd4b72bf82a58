#include "cuda/virtual/work_queue.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "contract/core/check.h"

namespace kvfence::virtual_device {
namespace {

std::uint32_t bit(Actor stream) { return std::uint32_t{1} << stream; }

}  // namespace

Work& WorkQueue::take() {
  if (unused_.empty()) return pool_.emplace_back();
  Work& work = *unused_.back();
  unused_.pop_back();
  work.kind = Work::Kind::kCopy;
  work.label = {};
  work.waits_for = {};
  work.fails_with = cudaSuccess;
  work.entries.clear();
  work.chunks.clear();
  work.num_early = 0;
  work.num_chunks = 0;
  work.flips = nullptr;
  work.is_skipped = false;
  work.has_started = false;
  work.ranges.clear();
  return work;
}

void WorkQueue::cut(Work& work, std::uint32_t num_chunks, Random* random) {
  std::size_t bounce_bytes = 0;
  for (std::uint32_t index = 0; index < work.entries.size(); ++index) {
    Entry& entry = work.entries[index];
    entry.bounce_offset = bounce_bytes;
    if (entry.src != nullptr) bounce_bytes += entry.size;
    const std::uint64_t parts = random == nullptr ? num_chunks : 1 + random->below(num_chunks);
    std::size_t begin = 0;
    for (std::uint64_t part = 1; part <= parts && begin < entry.size; ++part) {
      std::size_t end = entry.size * part / parts;
      if (random != nullptr && part < parts) {
        end = begin + 1 + random->below(entry.size - begin);
        if (random->one_in(2)) end = std::min((end + 15) / 16 * 16, entry.size);
      }
      if (end == begin) continue;
      work.chunks.push_back({index, work.num_chunks++, begin, end - begin, entry.src == nullptr});
      begin = end;
    }
  }
  if (work.bounce.size() < bounce_bytes) work.bounce.resize(bounce_bytes);
  work.num_early = static_cast<std::uint32_t>(
      std::partition(work.chunks.begin(), work.chunks.end(),
                     [&](const Chunk& c) { return work.entries[c.entry].may_be_read_early; }) -
      work.chunks.begin());
}

void WorkQueue::enqueue(Work& work) {
  Stream& stream = streams_[work.stream];
  work.time = ++stream.enqueued;
  stream.work.push_back(&work);
  ++num_in_flight_;
  ++counters_.num_enqueued;
  add_to_story(StoryEntry::Kind::kEnqueued, work);
  if (work.num_early > 0) early_.push_back(&work);
  if (stream.work.size() == 1 && settle(work.stream)) settle_waiting();
}

void WorkQueue::release_holds() {
  released_hold_ = last_hold_;
  settle_waiting();
}

bool WorkQueue::settle(Actor stream) {
  Stream& s = streams_[stream];
  const Time before = s.completed;
  ready_ &= ~bit(stream);
  const bool waited = (waiting_ & bit(stream)) != 0;
  waiting_ &= ~bit(stream);
  while (!s.work.empty()) {
    Work& work = *s.work.front();
    if (work.kind == Work::Kind::kWait && !is_over(work.waits_for)) {
      waiting_ |= bit(stream);
      if (!waited || s.completed != before) ++counters_.num_waits_blocked;
      break;
    }
    if (work.kind == Work::Kind::kAction || !work.chunks.empty()) {
      ready_ |= bit(stream);
      if (work.num_early > 0) leave_early(work);
      break;
    }
    retire(work);
  }
  return s.completed != before;
}

void WorkQueue::settle_waiting() {
  for (bool moved = true; moved;) {
    moved = false;
    for (std::uint32_t rest = waiting_; rest != 0; rest &= rest - 1) {
      moved |= settle(static_cast<Actor>(std::countr_zero(rest)));
    }
  }
}

void WorkQueue::add_to_story(StoryEntry::Kind kind, const Work& work) {
  if (story_ == nullptr || work.kind == Work::Kind::kWait) return;
  story_->entries.push_back({.kind = kind,
                             .function = work.function,
                             .stream = work.stream,
                             .time = work.time,
                             .call = work.call,
                             .label = work.label});
}

void WorkQueue::report_started(Work& work) {
  if (story_ == nullptr || work.has_started) return;
  work.has_started = true;
  add_to_story(StoryEntry::Kind::kStarted, work);
}

void WorkQueue::retire(Work& work) {
  add_to_story(StoryEntry::Kind::kEnded, work);
  if (error_ == cudaSuccess) error_ = work.fails_with;
  Stream& stream = streams_[work.stream];
  KVFENCE_CHECK(stream.work.front() == &work, "work completes in the order of its stream");
  stream.completed = work.time;
  stream.work.pop_front();
  --num_in_flight_;
  unused_.push_back(&work);
}

void WorkQueue::complete(Work& work) {
  if (work.flips != nullptr) *work.flips ^= std::byte{1};
  retire(work);
  settle(work.stream);
  if (waiting_ != 0) settle_waiting();
}

void WorkQueue::leave_early(Work& work) {
  work.num_early = 0;
  early_.erase(std::find(early_.begin(), early_.end(), &work));
}

void WorkQueue::poison(Entry& entry) {
  entry.is_poisoned = true;
  if (!poisons_destinations_ || entry.is_orphan) return;
  std::memset(entry.dst, kPoisonByte, entry.size);
}

void WorkQueue::read(Work& work, std::size_t index) {
  report_started(work);
  Chunk& chunk = work.chunks[index];
  const Entry& entry = work.entries[chunk.entry];
  if (!entry.is_orphan && error_ == cudaSuccess) {
    std::memcpy(work.bounce.data() + entry.bounce_offset + chunk.begin, entry.src + chunk.begin,
                chunk.size);
  }
  chunk.is_read = true;
  ++counters_.num_reads;
  if (index >= work.num_early) return;
  ++counters_.num_early_reads;
  std::swap(chunk, work.chunks[work.num_early - 1]);
  if (work.num_early == 1) {
    leave_early(work);
  } else {
    --work.num_early;
  }
}

void WorkQueue::deliver(Work& work, const Chunk& chunk) {
  const Entry& entry = work.entries[chunk.entry];
  if (entry.is_orphan) return;
  std::byte* dst = entry.dst + chunk.begin;
  const std::size_t limit = std::max(entry.written_max, chunk.begin) - chunk.begin;
  const std::size_t size = std::min(chunk.size, limit);
  if (entry.src == nullptr) {
    std::memset(dst, entry.value, size);
  } else if (chunk.is_read) {
    std::memcpy(dst, work.bounce.data() + entry.bounce_offset + chunk.begin, size);
  } else {
    // A wrong batch may copy within itself; eager runs its entries one after the other.
    std::memmove(dst, entry.src + chunk.begin, size);
    ++counters_.num_reads;
  }
}

void WorkQueue::write(Work& work, std::size_t index) {
  report_started(work);
  const Chunk chunk = work.chunks[index];
  Entry& entry = work.entries[chunk.entry];
  if (error_ == cudaSuccess) {
    if (!entry.is_poisoned) poison(entry);
    deliver(work, chunk);
  }
  work.chunks[index] = work.chunks.back();
  work.chunks.pop_back();
  if (work.chunks.empty()) complete(work);
}

void WorkQueue::act(Work& work) {
  report_started(work);
  if (error_ == cudaSuccess) {
    acting_ = &work;
    if (!work.is_skipped) work.action();
    acting_ = nullptr;
  }
  complete(work);
}

std::optional<Actor> WorkQueue::next_towards(Moment moment) const {
  // Each wait is for something enqueued before it, so this ends.
  while (!is_over(moment)) {
    const Stream& stream = streams_[moment.stream];
    if (stream.completed >= moment.time) return std::nullopt;  // held
    if ((ready_ & bit(moment.stream)) != 0) return moment.stream;
    moment = stream.work.front()->waits_for;
  }
  return std::nullopt;
}

void WorkQueue::step(Actor stream, Random& random) {
  Work& work = head(stream);
  if (work.kind == Work::Kind::kAction) return act(work);
  const std::size_t index = random.below(work.chunks.size());
  work.chunks[index].is_read ? write(work, index) : read(work, index);
}

void WorkQueue::step_early(std::size_t index, Random& random) {
  Work& work = *early_[index];
  read(work, random.below(work.num_early));
}

void WorkQueue::finish_head(Actor stream) {
  Work& work = head(stream);
  if (work.kind == Work::Kind::kAction) return act(work);
  report_started(work);
  if (error_ == cudaSuccess) {
    for (const Chunk& chunk : work.chunks) deliver(work, chunk);
  }
  work.chunks.clear();
  complete(work);
}

void WorkQueue::list_steps(std::vector<Step>& steps) const {
  steps.clear();
  for (Actor stream = 1; stream < streams_.size(); ++stream) {
    for (const Work* work : streams_[stream].work) {
      const bool is_head = work == streams_[stream].work.front();
      if (is_head && (ready_ & bit(stream)) != 0) {
        if (work->kind == Work::Kind::kAction) {
          steps.push_back({stream, work->time, 0, Step::Phase::kRun});
        }
        for (const Chunk& chunk : work->chunks) {
          steps.push_back({stream, work->time, chunk.number,
                           chunk.is_read ? Step::Phase::kWrite : Step::Phase::kRead});
        }
      } else {
        for (std::uint32_t index = 0; index < work->num_early; ++index) {
          steps.push_back({stream, work->time, work->chunks[index].number, Step::Phase::kRead});
        }
      }
    }
  }
}

Work* WorkQueue::find_work(Actor stream, Time time) const {
  if (stream >= streams_.size()) return nullptr;
  const std::deque<Work*>& queue = streams_[stream].work;
  if (queue.empty() || time < queue.front()->time || time > queue.back()->time) return nullptr;
  return queue[time - queue.front()->time];
}

const Work* WorkQueue::find(Actor stream, Time time) const { return find_work(stream, time); }

bool WorkQueue::step(const Step& step) {
  Work* work = find_work(step.stream, step.time);
  if (work == nullptr) return false;
  const bool is_turn =
      (ready_ & bit(step.stream)) != 0 && work == streams_[step.stream].work.front();
  if (step.phase == Step::Phase::kRun) {
    if (!is_turn || work->kind != Work::Kind::kAction) return false;
    act(*work);
    return true;
  }
  for (std::size_t index = 0; index < work->chunks.size(); ++index) {
    const Chunk& chunk = work->chunks[index];
    if (chunk.number != step.chunk) continue;
    if (chunk.is_read != (step.phase == Step::Phase::kWrite)) return false;
    if (!is_turn && index >= work->num_early) return false;
    chunk.is_read ? write(*work, index) : read(*work, index);
    return true;
  }
  return false;
}

std::size_t WorkQueue::take_away(const std::byte* begin, const std::byte* end, bool is_unmapped) {
  std::size_t num_touching = 0;
  const ByteRange range{begin, end};
  for (Actor stream = 1; stream < streams_.size(); ++stream) {
    for (Work* work : streams_[stream].work) {
      bool touches = false;
      for (Entry& entry : work->entries) {
        const bool reads =
            entry.src != nullptr && overlap({entry.src, entry.src + entry.size}, range);
        if (!reads && !overlap({entry.dst, entry.dst + entry.size}, range)) continue;
        touches = true;
        entry.is_orphan = entry.is_orphan || is_unmapped;
      }
      const bool acts =
          std::ranges::any_of(work->ranges, [&](const ByteRange& r) { return overlap(r, range); });
      if (acts) work->is_skipped = true;
      if (acts || (touches && is_unmapped)) {
        work->fails_with = cudaErrorIllegalAddress;
        work->flips = nullptr;
      }
      num_touching += touches || acts ? 1 : 0;
    }
  }
  return num_touching;
}

}  // namespace kvfence::virtual_device
