#include "contract/worker/worker.h"

#include <array>

namespace kvfence::worker {
namespace {

constexpr std::array<std::string_view, 2> kDirections = {"store", "load"};
constexpr std::array<std::string_view, 3> kStreams = {"compute", "store", "load"};
constexpr std::array<std::string_view, 5> kLayouts = {"blocks_first", "kv_first", "cross_layers",
                                                      "mamba", "padded"};
constexpr std::array<std::string_view, 4> kPaths = {"batched", "looped", "strided", "kernel"};
constexpr std::array<std::string_view, 5> kSchedules = {"commanded", "eager", "lazy", "random",
                                                        "priority"};
constexpr std::array<std::string_view, 7> kFaults = {"none", "copy",    "wait",  "record",
                                                     "late", "partial", "sticky"};

template <class Enum, std::size_t kSize>
std::optional<Enum> from_text(const std::array<std::string_view, kSize>& names,
                              std::string_view text) {
  for (std::size_t index = 0; index < kSize; ++index) {
    if (names[index] == text) return static_cast<Enum>(index);
  }
  return std::nullopt;
}

}  // namespace

std::string_view to_text(Direction direction) {
  return kDirections[static_cast<std::size_t>(direction)];
}
std::string_view to_text(Stream stream) { return kStreams[static_cast<std::size_t>(stream)]; }
std::string_view to_text(Layout layout) { return kLayouts[static_cast<std::size_t>(layout)]; }
std::string_view to_text(Path path) { return kPaths[static_cast<std::size_t>(path)]; }
std::string_view to_text(Schedule schedule) {
  return kSchedules[static_cast<std::size_t>(schedule)];
}
std::string_view to_text(Fault fault) { return kFaults[static_cast<std::size_t>(fault)]; }

std::optional<Direction> direction_from_text(std::string_view text) {
  return from_text<Direction>(kDirections, text);
}
std::optional<Stream> stream_from_text(std::string_view text) {
  return from_text<Stream>(kStreams, text);
}
std::optional<Layout> layout_from_text(std::string_view text) {
  return from_text<Layout>(kLayouts, text);
}
std::optional<Path> path_from_text(std::string_view text) { return from_text<Path>(kPaths, text); }
std::optional<Schedule> schedule_from_text(std::string_view text) {
  return from_text<Schedule>(kSchedules, text);
}
std::optional<Fault> fault_from_text(std::string_view text) {
  return from_text<Fault>(kFaults, text);
}

bool counts_fit(const Transfer& transfer, std::uint32_t block_size_factor) {
  const std::size_t num_pages = transfer.gpu_blocks.size();
  if (num_pages == 0) return transfer.cpu_blocks.empty();
  const std::size_t num_places = transfer.block_index % block_size_factor + num_pages;
  return transfer.cpu_blocks.size() == (num_places + block_size_factor - 1) / block_size_factor;
}

std::vector<std::uint32_t> cpu_pages_of(const Transfer& transfer, std::uint32_t block_size_factor) {
  std::vector<std::uint32_t> pages;
  std::uint32_t place = transfer.block_index % block_size_factor;
  for (std::size_t index = 0; index < transfer.gpu_blocks.size(); ++index, ++place) {
    pages.push_back(transfer.cpu_blocks[place / block_size_factor] * block_size_factor +
                    place % block_size_factor);
  }
  return pages;
}

}  // namespace kvfence::worker
