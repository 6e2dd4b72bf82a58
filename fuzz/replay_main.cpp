/// Runs every file of a corpus folder through a fuzz target, without libFuzzer: corpora are tests
/// in every build.
///
///     replay_<target> FOLDER
///
/// Exit status: 0 if nothing was found; 1 if the corpus does not reach every goal of the target; 2
/// if there is no such folder or it is empty. A finding aborts.

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>
#include <vector>

#include "fuzz/corpus_goals.h"

namespace {

namespace fs = std::filesystem;

std::vector<fs::path> sorted_files(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    if (entry.is_regular_file()) files.push_back(entry.path());
  }
  std::ranges::sort(files);
  return files;
}

std::vector<std::uint8_t> read(const fs::path& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
    return 2;
  }
  const std::vector<fs::path> files = sorted_files(argv[1]);
  if (files.empty()) {
    std::fprintf(stderr, "%s: no such folder, or no file in it\n", argv[1]);
    return 2;
  }
  for (const fs::path& file : files) {
    // A finding aborts, so the name is printed first.
    std::printf("%s\n", file.filename().c_str());
    std::fflush(stdout);
    const std::vector<std::uint8_t> bytes = read(file);
    LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
  }
  std::size_t num_unreached = 0;
  for (const kvfence::fuzz::CorpusGoal& goal : kvfence::fuzz::corpus_goals()) {
    std::printf("%8llu %.*s%s\n", static_cast<unsigned long long>(goal.count),
                static_cast<int>(goal.name.size()), goal.name.data(),
                goal.count == 0 ? "  NOT REACHED" : "");
    num_unreached += goal.count == 0;
  }
  const kvfence::fuzz::CorpusGoal size = kvfence::fuzz::corpus_size();
  std::printf("%zu inputs, %llu %.*s, %zu goals unreached\n", files.size(),
              static_cast<unsigned long long>(size.count), static_cast<int>(size.name.size()),
              size.name.data(), num_unreached);
  return num_unreached == 0 ? 0 : 1;
}
