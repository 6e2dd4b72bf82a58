#include "cuda/virtual/findings.h"

namespace kvfence::virtual_device {
namespace {

const char* to_text(MemoryKind kind) {
  switch (kind) {
    case MemoryKind::kDevice:
      return "cudaMalloc";
    case MemoryKind::kPinned:
      return "cudaHostAlloc";
    case MemoryKind::kRegistered:
      return "cudaHostRegister";
    case MemoryKind::kPageable:
      return "pageable memory";
  }
  return "memory";
}

std::string range(std::size_t begin, std::size_t end) {
  return "[" + std::to_string(begin) + ", " + std::to_string(end) + ")";
}

std::string to_text(const Label& label) {
  if (label.text[0] == '\0') return "";
  return std::string(", \"") + label.text + "\" " + std::to_string(label.number);
}

std::string by(const Access& access) {
  std::string text =
      std::string(" by ") + to_text(access.function) + " (call " + std::to_string(access.call);
  if (access.actor != kHost) text += ", stream " + std::to_string(access.actor);
  if (access.function == Function::kMemcpyBatchAsync)
    text += ", entry " + std::to_string(access.entry);
  if (access.is_out_of_order) text += ", out of stream order";
  return text + to_text(access.label) + ")";
}

}  // namespace

const char* to_text(Misuse::Kind kind) {
  switch (kind) {
    case Misuse::Kind::kFreeInFlight:
      return "memory is given back while work in flight touches it";
    case Misuse::Kind::kHostAddressOnDevice:
      return "the host's address of registered memory, which the device knows by another";
    case Misuse::Kind::kPageableMemory:
      return "host memory that is not registered";
    case Misuse::Kind::kLegacyStream:
      return "the NULL or per-thread stream";
    case Misuse::Kind::kOverlap:
      return "source and destination overlap";
    case Misuse::Kind::kWrongDirection:
      return "the direction contradicts the addresses";
    case Misuse::Kind::kInvalidHandle:
      return "no such stream or event";
    case Misuse::Kind::kCallInHostFunction:
      return "the runtime is called by a host function";
    case Misuse::Kind::kInvalidAddress:
      return "an address outside of live memory";
    case Misuse::Kind::kHang:
      return "waits for work that cannot complete";
  }
  return "unknown";
}

std::string to_text(const Race& race) {
  const auto kind = [](const Access& access) { return access.is_write ? "write" : "read"; };
  return std::string("race: ") + kind(race.first) + " of " + to_text(race.memory) + " #" +
         std::to_string(race.allocation) + " " + range(race.first_begin, race.first_end) +
         by(race.first) + " and " + kind(race.second) + " of " +
         range(race.second_begin, race.second_end) + by(race.second) + " share " +
         range(race.begin, race.end) + " unordered";
}

std::string to_text(const Misuse& misuse) {
  return std::string("misuse: ") + to_text(misuse.kind) + ", " + to_text(misuse.function) +
         " (call " + std::to_string(misuse.call) + to_text(misuse.label) + ")";
}

}  // namespace kvfence::virtual_device
