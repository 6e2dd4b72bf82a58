#include "cuda/virtual/findings.h"

namespace kvfence::virtual_device {
namespace {

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

std::string to_text(const Race& race) {
  const auto kind = [](const Access& access) { return access.is_write ? "write" : "read"; };
  const auto range = [&race](const auto& bytes) {
    return "[" + std::to_string(bytes.begin - race.base) + ", " +
           std::to_string(bytes.end - race.base) + ")";
  };
  return std::string("race: ") + kind(race.first) + " of " + std::string(to_text(race.memory)) +
         " #" + std::to_string(race.allocation) + " " + range(race.first) + by(race.first) +
         " and " + kind(race.second) + " of " + range(race.second) + by(race.second) + " share " +
         range(race) + " unordered";
}

std::string to_text(const Misuse& misuse) {
  return "misuse: " + std::string(to_text(misuse.kind)) + ", " + to_text(misuse.function) +
         " (call " + std::to_string(misuse.call) + to_text(misuse.label) + ")";
}

}  // namespace kvfence::virtual_device
