#include "scenarios/protocol/serve.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "contract/core/limits.h"

namespace kvfence {
namespace {

constexpr std::size_t kReadBytes = std::size_t{1} << 16;
constexpr std::size_t kWriteBytes = std::size_t{1} << 16;

bool write_all(int output, std::string& out) {
  std::string_view rest = out;
  while (!rest.empty()) {
    const ssize_t num_bytes = ::write(output, rest.data(), rest.size());
    if (num_bytes < 0 && errno == EINTR) continue;
    if (num_bytes < 0) return false;
    rest.remove_prefix(static_cast<std::size_t>(num_bytes));
  }
  out.clear();
  return true;
}

int failed(const char* what) {
  std::fprintf(stderr, "serve: %s\n", what);
  return 1;
}

}  // namespace

int serve_lines(int input, int output, const AnswerLine& answer_line) {
  std::string chunk(kReadBytes, '\0');
  std::string incoming;
  std::string out;
  while (true) {
    const ssize_t num_bytes = ::read(input, chunk.data(), chunk.size());
    if (num_bytes < 0 && errno == EINTR) continue;
    if (num_bytes < 0) return failed("cannot read");
    if (num_bytes == 0) break;
    std::size_t begin = 0;
    // What was there before holds no newline.
    std::size_t searched = incoming.size();
    incoming.append(chunk, 0, static_cast<std::size_t>(num_bytes));
    for (std::size_t newline = incoming.find('\n', searched); newline != std::string::npos;
         newline = incoming.find('\n', searched)) {
      const std::string_view line = std::string_view(incoming).substr(begin, newline - begin);
      if (!answer_line(line, out)) {
        write_all(output, out);
        return failed("the implementation failed");
      }
      if (out.size() >= kWriteBytes && !write_all(output, out)) return failed("cannot write");
      begin = searched = newline + 1;
    }
    incoming.erase(0, begin);
    if (incoming.size() > limits::kLineBytesMax) return failed("a line is too long");
    if (!write_all(output, out)) return failed("cannot write");
  }
  return incoming.empty() ? 0 : failed("the input ends within a line");
}

namespace detail {

void answer_with(std::string& out, std::string_view key, const std::string& why) {
  out += "-> ";
  print_to(out, Field{std::string(key), to_value(why), {}});
  out += '\n';
}

}  // namespace detail
}  // namespace kvfence
