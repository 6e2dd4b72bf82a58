#pragma once

/// The addresses that the program has, and where their bytes really are.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "contract/core/state_digest.h"
#include "contract/core/words.h"

namespace kvfence::virtual_device {

enum class MemoryKind : std::uint8_t {
  kDevice,      ///< cudaMalloc: a host access to such an address kills the program
  kPinned,      ///< cudaHostAlloc
  kRegistered,  ///< cudaHostRegister: the caller's own memory
};

/// Named by the call that makes it known.
constexpr auto words_of(MemoryKind) {
  return words({"cudaMalloc", "cudaHostAlloc", "cudaHostRegister"});
}

struct Allocation {
  MemoryKind kind = MemoryKind::kDevice;
  std::uint32_t number = 0;           ///< from 0, in the order of the calls; reports name it
  std::size_t size = 0;               ///< bytes
  std::uintptr_t address = 0;         ///< the program's
  std::uintptr_t device_address = 0;  ///< the device's; an option makes it differ from `address`
  std::byte* bytes = nullptr;         ///< where the virtual device finds them
  bool is_live = true;

  /// Without addresses, which differ from run to run, and without the bytes of pinned memory, which
  /// hold addresses in descriptors of copies.
  void add_to(StateHash& hash) const {
    hash.add_all(kind, size, is_live);
    if (is_live && kind != MemoryKind::kPinned) hash.add(std::span<const std::byte>(bytes, size));
  }
};

/// Where a range of addresses leads.
struct Place {
  enum class Kind : std::uint8_t {
    kInside,     ///< one live allocation
    kElsewhere,  ///< memory that the runtime does not know: pageable or unmapped
    kAstride,    ///< crosses the end of an allocation, or touches a freed one
  };
  Kind kind = Kind::kElsewhere;
  const Allocation* allocation = nullptr;
  std::byte* bytes = nullptr;
  std::uintptr_t canonical = 0;  ///< one name for bytes that have two addresses
  bool is_host_address = false;  ///< the host's address where the device has another
};

/// Freed memory is not given out again before the device's is used up, so that late accesses are
/// seen; freed pinned memory stays until the end. Values of addresses differ from run to run, and
/// no decision depends on them.
class AddressSpace {
 public:
  AddressSpace(std::size_t device_memory_bytes, bool registered_memory_has_own_device_address);
  ~AddressSpace();
  AddressSpace(const AddressSpace&) = delete;
  AddressSpace& operator=(const AddressSpace&) = delete;

  /// nullptr where the device's memory is used up. Fresh bytes hold kFreshByte.
  const Allocation* allocate_device(std::size_t size);
  const Allocation* allocate_pinned(std::size_t size);
  /// nullptr where a part is registered already.
  const Allocation* register_host(void* address, std::size_t size);
  /// Ends an allocation; what it held becomes kFreedByte unless it is the caller's memory.
  void release(const Allocation& allocation);

  /// The live allocation of that kind that begins at `address`, or nullptr.
  const Allocation* starting_at(const void* address, MemoryKind kind) const;
  Place place(const void* address, std::size_t size) const;
  /// The allocation, live or freed, that an address belongs to, or nullptr.
  const Allocation* containing(std::uintptr_t address) const;

  std::size_t device_bytes_free() const { return device_memory_bytes_ - device_bytes_used_; }
  std::size_t num_live() const { return num_live_; }

  void add_to(StateHash& hash) const { hash.add(allocations_); }

  static constexpr std::byte kFreshByte{0xCB};
  static constexpr std::byte kFreedByte{0xDF};

 private:
  /// Addresses that no access may dereference.
  struct Reservation {
    std::byte* begin = nullptr;
    std::size_t size = 0;
    std::size_t used = 0;
  };
  struct Range {
    std::uintptr_t begin = 0;
    std::uintptr_t end = 0;
    Allocation* allocation = nullptr;
  };

  Allocation& add(MemoryKind kind, std::size_t size, std::uintptr_t address,
                  std::uintptr_t device_address, std::byte* bytes);
  void insert(Range range);
  /// The range with the greatest begin <= address, or nullptr.
  const Range* at_or_before(std::uintptr_t address) const;

  std::size_t device_memory_bytes_ = 0;
  std::size_t device_bytes_used_ = 0;
  std::size_t num_live_ = 0;
  bool has_own_device_addresses_ = false;
  Reservation device_addresses_;
  Reservation device_names_;              ///< of registered memory
  std::unique_ptr<std::byte[]> on_heap_;  ///< what device_memory_ points into, if it is small
  std::byte* device_memory_ = nullptr;
  std::deque<Allocation> allocations_;
  std::deque<Allocation*> freed_device_;
  std::vector<std::unique_ptr<std::byte[]>> pinned_;
  std::vector<Range> ranges_;  ///< sorted; live and freed
};

}  // namespace kvfence::virtual_device
