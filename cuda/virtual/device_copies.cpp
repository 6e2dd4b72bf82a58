/// The calls that enqueue work: their checks, and the accesses of each piece of work.

#include <algorithm>
#include <cstring>
#include <utility>

#include "contract/core/check.h"
#include "cuda/virtual/device.h"
#include "cuda/virtual/handles.h"

namespace kvfence::virtual_device {
namespace {

bool is_device(const Place& place) {
  return place.allocation != nullptr && place.allocation->kind == MemoryKind::kDevice;
}

bool is_kind(cudaMemcpyKind kind) {
  return kind >= cudaMemcpyHostToHost && kind <= cudaMemcpyDefault;
}

cudaMemcpyKind kind_of(bool from_device, bool to_device) {
  if (from_device) return to_device ? cudaMemcpyDeviceToDevice : cudaMemcpyDeviceToHost;
  return to_device ? cudaMemcpyHostToDevice : cudaMemcpyHostToHost;
}

}  // namespace

cudaError_t Device::check_copy(const void* dst, const void* src, std::size_t size,
                               cudaMemcpyKind kind, Copy& copy) {
  if (!is_kind(kind)) return cudaErrorInvalidMemcpyDirection;
  copy = {.dst = {}, .src = {}, .size = size};
  if (size == 0) return cudaSuccess;
  for (const bool is_dst : {true, false}) {
    const void* address = is_dst ? dst : src;
    Place& place = is_dst ? copy.dst : copy.src;
    place = memory_.place(address, size);
    copy.has_host_address |= place.is_host_address;
    if (place.kind == Place::Kind::kInside) continue;
    if (place.kind == Place::Kind::kElsewhere && address != nullptr) {
      misuse(Misuse::Kind::kPageableMemory);
    }
    return cudaErrorInvalidValue;
  }
  if (kind != cudaMemcpyDefault && kind != kind_of(is_device(copy.src), is_device(copy.dst))) {
    misuse(Misuse::Kind::kWrongDirection);
    return cudaErrorInvalidValue;
  }
  if (copy.dst.canonical < copy.src.canonical + size &&
      copy.src.canonical < copy.dst.canonical + size) {
    misuse(Misuse::Kind::kOverlap);
  }
  return cudaSuccess;
}

Work& Device::start_work(Actor stream, Work::Kind kind) {
  Work& work = queue_.take();
  work.kind = kind;
  work.function = function_;
  work.stream = stream;
  work.call = call_;
  work.label = label_;
  work.clock = clock_of_next(stream);
  if (has_fault(Fault::Kind::kAsynchronous)) work.fails_with = fault_->code;
  return work;
}

void Device::add_entry(Work& work, const Copy& copy, cudaMemcpySrcAccessOrder order,
                       std::uint32_t number) {
  Entry entry{.dst = copy.dst.bytes,
              .src = copy.src.bytes,
              .size = copy.size,
              .written_max = copy.size,
              .may_be_read_early = order == cudaMemcpySrcAccessOrderAny};
  if (fault_ && fault_->entry == work.entries.size() && fault_->count < copy.size) {
    if (fault_->kind == Fault::Kind::kShortCopy) entry.written_max -= fault_->count;
    if (fault_->kind == Fault::Kind::kFlippedBit) work.flips = entry.dst + fault_->count;
  }
  work.entries.push_back(entry);
  if (!is_checking() || copy.size == 0) return;

  if (copy.src.bytes != nullptr) {
    Access read = describe(copy.src, copy.size, false, &work);
    read.entry = number;
    read.is_out_of_order = entry.may_be_read_early;
    access(read, entry.may_be_read_early ? host_clock_ : work.clock);
  }
  Access written = describe(copy.dst, copy.size, true, &work);
  written.entry = number;
  access(written, work.clock);
}

void Device::touch(Work& work, const Place& place, std::size_t size, bool is_write) {
  work.ranges.push_back({place.bytes, place.bytes + size, is_write});
  access(describe(place, size, is_write, &work), work.clock);
}

void Device::enqueue(Work& work) {
  if (work.kind == Work::Kind::kCopy) scheduler_.cut(work);
  queue_.enqueue(work);
  scheduler_.after_enqueue(queue_);
}

void Device::enqueue_undefined(Actor stream) {
  if (!fault_ || fault_->undefined.empty()) return;
  Work& work = start_work(stream, Work::Kind::kAction);
  for (const MemoryRange& range : fault_->undefined) {
    const Place place = memory_.place(range.address, range.size);
    KVFENCE_CHECK(place.kind == Place::Kind::kInside, "undefined memory of no live allocation");
    touch(work, place, range.size, true);
  }
  // By value: the work has lost its ranges when it has run.
  work.action = [ranges = work.ranges] {
    for (const ByteRange& range : ranges) {
      auto* begin = const_cast<std::byte*>(range.begin);
      std::memset(begin, kPoisonByte, static_cast<std::size_t>(range.end - range.begin));
    }
  };
  enqueue(work);
}

cudaError_t Device::enqueue_copies(std::span<const Copy> copies, Actor stream) {
  enqueue_undefined(stream);
  if (has_fault(Fault::Kind::kPartialBatch)) return fault_->code;
  Work& work = start_work(stream, Work::Kind::kCopy);
  for (const Copy& copy : copies) add_entry(work, copy, cudaMemcpySrcAccessOrderStream, 0);
  enqueue(work);
  return cudaSuccess;
}

cudaError_t Device::launch(cudaStream_t stream, const std::vector<MemoryRange>& reads,
                           const std::vector<MemoryRange>& writes, std::function<void()> function) {
  if (const auto code = enter(Function::kLaunch)) return *code;
  if (find_stream(stream) == nullptr) return cudaErrorInvalidResourceHandle;
  enqueue_undefined(stream_number(stream));
  if (has_fault(Fault::Kind::kPartialBatch)) return fault_->code;
  Work& work = start_work(stream_number(stream), Work::Kind::kAction);
  work.action = std::move(function);
  for (const bool is_write : {false, true}) {
    for (const MemoryRange& range : is_write ? writes : reads) {
      const Place place = memory_.place(range.address, range.size);
      if (place.kind != Place::Kind::kInside || place.is_host_address) {
        // A kernel finds out when it runs.
        misuse(place.kind == Place::Kind::kInside ? Misuse::Kind::kHostAddressOnDevice
                                                  : Misuse::Kind::kInvalidAddress);
        work.fails_with = cudaErrorIllegalAddress;
        work.is_skipped = true;
        continue;
      }
      touch(work, place, range.size, is_write);
    }
  }
  enqueue(work);
  return cudaSuccess;
}

extern "C" {

cudaError_t cudaMemcpyAsync(void* dst, const void* src, std::size_t size, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  Device& device = current();
  if (const auto code = device.enter(Function::kMemcpyAsync)) return *code;
  if (device.find_stream(stream) == nullptr) return cudaErrorInvalidResourceHandle;
  Device::Copy copy;
  const cudaError_t code = device.check_copy(dst, src, size, kind, copy);
  if (code != cudaSuccess) return code;
  return device.enqueue_copies({&copy, 1}, device.stream_number(stream));
}

cudaError_t cudaMemcpy2DAsync(void* dst, std::size_t dst_pitch, const void* src,
                              std::size_t src_pitch, std::size_t width, std::size_t height,
                              cudaMemcpyKind kind, cudaStream_t stream) {
  Device& device = current();
  if (const auto code = device.enter(Function::kMemcpy2DAsync)) return *code;
  if (device.find_stream(stream) == nullptr) return cudaErrorInvalidResourceHandle;
  if (width > dst_pitch || width > src_pitch) return cudaErrorInvalidPitchValue;
  device.copies_.clear();
  for (std::size_t row = 0; row < height; ++row) {
    const cudaError_t code = device.check_copy(static_cast<std::byte*>(dst) + row * dst_pitch,
                                               static_cast<const std::byte*>(src) + row * src_pitch,
                                               width, kind, device.copies_.emplace_back());
    if (code != cudaSuccess) return code;
  }
  if (device.copies_.empty()) return cudaSuccess;
  return device.enqueue_copies(device.copies_, device.stream_number(stream));
}

cudaError_t cudaMemcpyBatchAsync(void* const* dsts, const void* const* srcs,
                                 const std::size_t* sizes, std::size_t count,
                                 cudaMemcpyAttributes* attributes, std::size_t* attribute_starts,
                                 std::size_t num_attributes, cudaStream_t stream) {
  Device& device = current();
  if (const auto code = device.enter(Function::kMemcpyBatchAsync)) return *code;
  if (device.find_stream(stream) == nullptr) {
    return is_default_stream(stream) ? cudaErrorInvalidValue : cudaErrorInvalidResourceHandle;
  }
  if (dsts == nullptr || srcs == nullptr || sizes == nullptr || attributes == nullptr ||
      attribute_starts == nullptr || count == 0 || num_attributes == 0 || num_attributes > count) {
    return cudaErrorInvalidValue;
  }
  if (device.options_.batch_entries_max != 0 && count > device.options_.batch_entries_max) {
    return cudaErrorInvalidValue;
  }
  for (std::size_t index = 0; index < num_attributes; ++index) {
    const std::size_t start = attribute_starts[index];
    const bool is_in_order = index == 0 ? start == 0 : start > attribute_starts[index - 1];
    const int order = attributes[index].srcAccessOrder;
    const bool is_order =
        order == cudaMemcpySrcAccessOrderStream || order == cudaMemcpySrcAccessOrderAny;
    if (!is_in_order || start >= count || !is_order) return cudaErrorInvalidValue;
  }
  device.copies_.clear();
  bool has_host_address = false;
  for (std::size_t index = 0; index < count; ++index) {
    // Empty entries are not documented. Refused, so that no program relies on them.
    if (sizes[index] == 0) return cudaErrorInvalidValue;
    Device::Copy& copy = device.copies_.emplace_back();
    const cudaError_t code =
        device.check_copy(dsts[index], srcs[index], sizes[index], cudaMemcpyDefault, copy);
    if (code != cudaSuccess) return code;
    has_host_address |= copy.has_host_address;
  }
  const bool is_partial = device.has_fault(Fault::Kind::kPartialBatch);
  if (is_partial) device.copies_.resize(std::min(device.fault_->count, count));

  const Actor actor = device.stream_number(stream);
  if (!is_partial) device.enqueue_undefined(actor);
  Work& work = device.start_work(actor, Work::Kind::kCopy);
  std::size_t attribute = 0;
  for (std::size_t index = 0; index < device.copies_.size(); ++index) {
    while (attribute + 1 < num_attributes && attribute_starts[attribute + 1] <= index) ++attribute;
    device.add_entry(work, device.copies_[index], attributes[attribute].srcAccessOrder,
                     static_cast<std::uint32_t>(index));
  }
  if (has_host_address) {
    device.misuse(Misuse::Kind::kHostAddressOnDevice);
    work.fails_with = cudaErrorIllegalAddress;
    for (Entry& entry : work.entries) entry.is_orphan = true;
  }
  device.enqueue(work);
  if (!is_partial) return cudaSuccess;
  device.enqueue_undefined(actor);
  return device.fault_->code;
}

cudaError_t cudaMemsetAsync(void* address, int value, std::size_t size, cudaStream_t stream) {
  Device& device = current();
  if (const auto code = device.enter(Function::kMemsetAsync)) return *code;
  if (device.find_stream(stream) == nullptr) return cudaErrorInvalidResourceHandle;
  Device::Copy copy{.dst = device.memory_.place(address, size), .src = {}, .size = size};
  if (copy.dst.kind != Place::Kind::kInside) return cudaErrorInvalidValue;
  Work& work = device.start_work(device.stream_number(stream), Work::Kind::kCopy);
  device.add_entry(work, copy, cudaMemcpySrcAccessOrderStream, 0);
  work.entries.back().value = static_cast<std::uint8_t>(value);
  device.enqueue(work);
  return cudaSuccess;
}

}  // extern "C"

}  // namespace kvfence::virtual_device
