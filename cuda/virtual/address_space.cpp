#include "cuda/virtual/address_space.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "contract/core/check.h"

namespace kvfence::virtual_device {
namespace {

/// The alignment of allocations, and the unused addresses after each.
constexpr std::size_t kAlignment = 256;

/// Device addresses for registered memory: a worker registers a region or two.
constexpr std::size_t kDeviceNamesBytes = std::size_t{1} << 36;

/// Up to this size a device's memory is on the heap, so that the kernel need not map new pages for
/// each of a campaign's short-lived devices.
constexpr std::size_t kOnHeapBytes = std::size_t{1} << 20;

std::size_t rounded_up(std::size_t size) {
  return (size + kAlignment - 1) / kAlignment * kAlignment + kAlignment;
}

std::byte* map(std::size_t size, int protection) {
  void* mapped =
      mmap(nullptr, size, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  KVFENCE_CHECK(mapped != MAP_FAILED, "no addresses for the virtual device");
  return static_cast<std::byte*>(mapped);
}

std::uintptr_t number_of(const void* address) { return reinterpret_cast<std::uintptr_t>(address); }

/// `size` bytes that begin at a multiple of kAlignment.
std::byte* allocate_aligned(std::size_t size, std::unique_ptr<std::byte[]>& owner) {
  std::size_t space = size + kAlignment;
  owner = std::make_unique_for_overwrite<std::byte[]>(space);
  void* start = owner.get();
  return static_cast<std::byte*>(std::align(kAlignment, size, start, space));
}

}  // namespace

AddressSpace::AddressSpace(std::size_t device_memory_bytes,
                           bool registered_memory_has_own_device_address)
    : device_memory_bytes_(device_memory_bytes),
      has_own_device_addresses_(registered_memory_has_own_device_address) {
  KVFENCE_CHECK(device_memory_bytes > 0, "a device has memory");
  // Twice the memory, so that the gaps never use up the addresses before the memory is used up.
  device_addresses_ = {map(2 * device_memory_bytes, PROT_NONE), 2 * device_memory_bytes, 0};
  device_memory_ = device_addresses_.size <= kOnHeapBytes
                       ? allocate_aligned(device_addresses_.size, on_heap_)
                       : map(device_addresses_.size, PROT_READ | PROT_WRITE);
}

AddressSpace::~AddressSpace() {
  munmap(device_addresses_.begin, device_addresses_.size);
  if (!on_heap_) munmap(device_memory_, device_addresses_.size);
  if (device_names_.begin != nullptr) munmap(device_names_.begin, device_names_.size);
}

const Allocation* AddressSpace::allocate_device(std::size_t size) {
  if (size > device_bytes_free()) return nullptr;
  const std::size_t reserved = rounded_up(size);
  std::size_t offset = device_addresses_.used;
  if (offset + reserved > device_addresses_.size) {
    // Everything was given out once: take the memory that was freed longest ago.
    const auto fits = std::ranges::find_if(
        freed_device_, [&](const Allocation* freed) { return freed->size >= size; });
    if (fits == freed_device_.end()) return nullptr;
    Allocation* freed = *fits;
    freed_device_.erase(fits);
    offset = freed->address - number_of(device_addresses_.begin);
    std::erase_if(ranges_, [&](const Range& range) { return range.allocation == freed; });
  } else {
    device_addresses_.used += reserved;
  }
  std::byte* bytes = device_memory_ + offset;
  std::memset(bytes, static_cast<int>(kFreshByte), size);
  device_bytes_used_ += size;
  const std::uintptr_t address = number_of(device_addresses_.begin) + offset;
  return &add(MemoryKind::kDevice, size, address, address, bytes);
}

const Allocation* AddressSpace::allocate_pinned(std::size_t size) {
  std::byte* const bytes = allocate_aligned(rounded_up(size), pinned_.emplace_back());
  std::memset(bytes, static_cast<int>(kFreshByte), size);
  return &add(MemoryKind::kPinned, size, number_of(bytes), number_of(bytes), bytes);
}

const Allocation* AddressSpace::register_host(void* address, std::size_t size) {
  const std::uintptr_t begin = number_of(address);
  const auto overlaps = [&](const Range& r) { return r.begin < begin + size && begin < r.end; };
  if (std::ranges::any_of(ranges_, overlaps)) return nullptr;
  std::uintptr_t device_address = begin;
  if (has_own_device_addresses_) {
    if (device_names_.begin == nullptr) {
      device_names_ = {map(kDeviceNamesBytes, PROT_NONE), kDeviceNamesBytes, 0};
    }
    KVFENCE_CHECK(device_names_.used + rounded_up(size) <= device_names_.size,
                  "more registered memory than 64 GiB");
    device_address = number_of(device_names_.begin) + device_names_.used;
    device_names_.used += rounded_up(size);
  }
  return &add(MemoryKind::kRegistered, size, begin, device_address,
              static_cast<std::byte*>(address));
}

void AddressSpace::release(const Allocation& allocation) {
  const Range* range = at_or_before(allocation.address);
  KVFENCE_CHECK(range != nullptr && range->allocation == &allocation && allocation.is_live,
                "released twice");
  range->allocation->is_live = false;
  --num_live_;
  if (allocation.kind == MemoryKind::kRegistered) {
    // The memory belongs to its owner again, and its addresses may come back in any form.
    std::erase_if(ranges_, [&](const Range& r) { return r.allocation == &allocation; });
    return;
  }
  std::memset(allocation.bytes, static_cast<int>(kFreedByte), allocation.size);
  if (allocation.kind != MemoryKind::kDevice) return;
  device_bytes_used_ -= allocation.size;
  freed_device_.push_back(range->allocation);
}

const Allocation* AddressSpace::starting_at(const void* address, MemoryKind kind) const {
  const Allocation* found = containing(number_of(address));
  if (found == nullptr || !found->is_live || found->kind != kind) return nullptr;
  return found->address == number_of(address) ? found : nullptr;
}

Place AddressSpace::place(const void* address, std::size_t size) const {
  const std::uintptr_t begin = number_of(address);
  const Range* range = at_or_before(begin);
  if (range != nullptr && begin < range->end) {
    const Allocation& allocation = *range->allocation;
    if (!allocation.is_live || size > range->end - begin) return {.kind = Place::Kind::kAstride};
    const std::size_t offset = begin - range->begin;
    return {.kind = Place::Kind::kInside,
            .allocation = &allocation,
            .bytes = allocation.bytes + offset,
            .canonical = allocation.address + offset,
            .is_host_address = allocation.address != allocation.device_address &&
                               range->begin == allocation.address};
  }
  const std::size_t next = range == nullptr ? 0 : static_cast<std::size_t>(range - &ranges_[0]) + 1;
  const bool meets_next = next < ranges_.size() && ranges_[next].begin < begin + size;
  const auto is_within = [&](const Reservation& reservation) {
    const std::uintptr_t start = number_of(reservation.begin);
    return reservation.begin != nullptr && begin >= start && begin < start + reservation.size;
  };
  const bool is_reserved = is_within(device_addresses_) || is_within(device_names_);
  return {.kind = meets_next || is_reserved ? Place::Kind::kAstride : Place::Kind::kElsewhere};
}

const Allocation* AddressSpace::containing(std::uintptr_t address) const {
  const Range* range = at_or_before(address);
  return range != nullptr && address < range->end ? range->allocation : nullptr;
}

Allocation& AddressSpace::add(MemoryKind kind, std::size_t size, std::uintptr_t address,
                              std::uintptr_t device_address, std::byte* bytes) {
  Allocation& allocation = allocations_.emplace_back(
      Allocation{.kind = kind,
                 .number = static_cast<std::uint32_t>(allocations_.size()),
                 .size = size,
                 .address = address,
                 .device_address = device_address,
                 .bytes = bytes});
  ++num_live_;
  insert({address, address + size, &allocation});
  if (device_address != address) insert({device_address, device_address + size, &allocation});
  return allocation;
}

void AddressSpace::insert(Range range) {
  ranges_.insert(std::ranges::upper_bound(ranges_, range.begin, {}, &Range::begin), range);
}

const AddressSpace::Range* AddressSpace::at_or_before(std::uintptr_t address) const {
  const auto after = std::ranges::upper_bound(ranges_, address, {}, &Range::begin);
  return after == ranges_.begin() ? nullptr : &*(after - 1);
}

}  // namespace kvfence::virtual_device
