// The functions that libFuzzer calls to mutate inputs of fuzz_lockstep.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>

#include "fuzz/command_mutator.h"

namespace kvfence::fuzz {
namespace {

/// Copies the bytes that fit, in the form that libFuzzer expects.
std::size_t copy_to(std::uint8_t* data, std::size_t size_max, const Bytes& bytes) {
  const std::size_t size = std::min(bytes.size(), size_max);
  std::copy_n(bytes.begin(), size, data);
  return size;
}

}  // namespace
}  // namespace kvfence::fuzz

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t max_size);

/// Half of the mutations are libFuzzer's own, of bytes; a quarter replaces the last commands, and a
/// quarter changes one command.
extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t max_size, unsigned seed) {
  using namespace kvfence::fuzz;
  std::minstd_rand random(seed);
  const Marks marks = known_marks().find({data, size});
  if (marks.size() < 2 || random() % 2 == 0) return LLVMFuzzerMutate(data, size, max_size);
  const auto mutate = random() % 2 == 0 ? replace_end : mutate_commands;
  return copy_to(data, max_size, mutate({data, size}, marks, random));
}

extern "C" std::size_t LLVMFuzzerCustomCrossOver(const std::uint8_t* data1, std::size_t size1,
                                                 const std::uint8_t* data2, std::size_t size2,
                                                 std::uint8_t* out, std::size_t max_out_size,
                                                 unsigned seed) {
  using namespace kvfence::fuzz;
  std::minstd_rand random(seed);
  const KnownMarks& known = known_marks();
  const Marks first = known.find({data1, size1});
  const Marks second = known.find({data2, size2});
  if (first.empty() || second.empty()) return 0;
  return copy_to(out, max_out_size,
                 cross_commands({data1, size1}, first, {data2, size2}, second, random));
}
