#include "scenarios/command/files.h"

#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>
#include <utility>

#include "contract/core/check.h"

namespace kvfence {
namespace {

namespace fs = std::filesystem;

InputError file_error(const std::string& path, std::string found, std::string expected) {
  return {path, {}, std::move(found), std::move(expected)};
}

/// For the z_stream calls: a header and a trailer of gzip.
constexpr int kGzip = 16 + MAX_WBITS;
constexpr std::string_view kGzipMagic = "\x1f\x8b";
constexpr std::string_view kGzipName = ".gz";

z_stream stream_of(std::string_view text) {
  z_stream stream{};
  // zlib takes no const pointer, and writes nothing to it.
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  return stream;
}

/// Calls step(), deflate or inflate, until it returns something else than Z_OK. Returns its output.
template <class Step>
int run_all(z_stream& stream, std::string& out, Step step) {
  std::array<char, 1 << 16> chunk;
  int answer = Z_OK;
  while (answer == Z_OK) {
    stream.next_out = reinterpret_cast<Bytef*>(chunk.data());
    stream.avail_out = chunk.size();
    answer = step();
    out.append(chunk.data(), chunk.size() - stream.avail_out);
  }
  return answer;
}

std::string compressed(std::string_view text) {
  z_stream stream = stream_of(text);
  constexpr int kMemoryMost = 9;
  int answer =
      deflateInit2(&stream, Z_BEST_COMPRESSION, Z_DEFLATED, kGzip, kMemoryMost, Z_DEFAULT_STRATEGY);
  KVFENCE_CHECK(answer == Z_OK, "zlib has the memory that it needs");
  std::string out;
  answer = run_all(stream, out, [&] { return deflate(&stream, Z_FINISH); });
  KVFENCE_CHECK(answer == Z_STREAM_END, "a text can be compressed");
  deflateEnd(&stream);
  return out;
}

/// Not a device or a link, in whose place a rename would put a file.
bool can_be_replaced(const std::string& path) {
  std::error_code ignored;
  const fs::file_type type = fs::symlink_status(path, ignored).type();
  return type == fs::file_type::not_found || type == fs::file_type::regular;
}

Parsed<std::string> unpacked(const std::string& path, std::string_view bytes) {
  z_stream stream = stream_of(bytes);
  KVFENCE_CHECK(inflateInit2(&stream, kGzip) == Z_OK, "zlib has the memory that it needs");
  std::string text;
  const int answer = run_all(stream, text, [&] { return inflate(&stream, Z_NO_FLUSH); });
  const std::string why = stream.msg ? stream.msg : "no end";
  const std::size_t num_left = stream.avail_in;
  inflateEnd(&stream);
  if (answer == Z_STREAM_END && num_left == 0) return text;
  const std::string place =
      "byte " + std::to_string(bytes.size() - num_left) + " of " + std::to_string(bytes.size());
  if (answer == Z_STREAM_END)
    return file_error(path, "more after its end, " + place, "one gzip stream");
  return file_error(path, "a gzip stream that is damaged or cut off, " + place + " (" + why + ")",
                    "a whole one");
}

}  // namespace

Parsed<std::string> read_file(const std::string& path) {
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) return file_error(path, "a folder", "a file");
  std::ifstream stream(path, std::ios::binary);
  if (!stream) return file_error(path, std::strerror(errno), "a file that can be read");
  std::ostringstream text;
  text << stream.rdbuf();
  if (stream.bad()) return file_error(path, "a read error", "a file that can be read");
  std::string bytes = std::move(text).str();
  if (bytes.starts_with(kGzipMagic) || path.ends_with(kGzipName)) return unpacked(path, bytes);
  return bytes;
}

std::optional<std::string> write_file(const std::string& path, std::string_view text) {
  std::string packed;
  if (path.ends_with(kGzipName)) text = packed = compressed(text);
  const bool is_replaced = can_be_replaced(path);
  const std::string temporary =
      is_replaced ? path + "." + std::to_string(::getpid()) + ".tmp" : path;
  {
    std::ofstream stream(temporary, std::ios::binary | std::ios::trunc);
    stream.write(text.data(), static_cast<std::streamsize>(text.size()));
    stream.flush();
    if (!stream) {
      const std::string reason = std::strerror(errno);
      if (is_replaced) std::remove(temporary.c_str());
      return path + ": cannot be written: " + reason;
    }
  }
  if (!is_replaced) return std::nullopt;
  std::error_code error;
  fs::rename(temporary, path, error);
  if (!error) return std::nullopt;
  std::remove(temporary.c_str());
  return path + ": cannot be written: " + error.message();
}

std::optional<std::string> why_not_writable(const std::string& path) {
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) return path + ": cannot be written: a folder";
  const bool is_kept = fs::exists(path, ignored) && !can_be_replaced(path);
  const fs::path changed = is_kept ? fs::path(path) : fs::path(path).parent_path() / ".";
  if (::access(changed.c_str(), W_OK) == 0) return std::nullopt;
  return path + ": cannot be written: " + std::strerror(errno);
}

bool is_scenario_name(const std::string& path) {
  return path.ends_with(".kvs") || path.ends_with(".kvs.gz");
}

Parsed<LoadedScenario> load_scenario(const std::string& path, std::optional<std::size_t> episode) {
  Parsed<std::string> text = read_file(path);
  if (!text) return text.error();
  Parsed<Document> document = parse_document(*text, path);
  if (!document) return document.error();
  if (episode) {
    const std::size_t num_episodes = episodes_of(*document).size();
    if (*episode >= num_episodes) {
      return file_error(path, "--episode " + std::to_string(*episode),
                        "one of its " + std::to_string(num_episodes) + ", counted from 0");
    }
  }
  const Parsed<std::string> name = target_of(*document, path);
  if (!name) return name.error();
  const Line* first = nullptr;
  for (const Line& line : *document) {
    if (line.verb != "target") continue;
    if (!first) first = &line;
    if (line.subject == first->subject) continue;
    return InputError{path, line.position, "target " + line.subject,
                      "target " + first->subject + " as in the episodes before it"};
  }
  const auto target = tools_of(*name, path, first->position);
  if (!target) return target.error();
  return LoadedScenario{std::move(*document), *target};
}

Document LoadedScenario::only(std::optional<std::size_t> episode) const {
  return episode ? episodes_of(document).at(*episode) : document;
}

Parsed<std::vector<std::string>> scenario_files(const std::vector<std::string>& paths) {
  std::vector<std::string> files;
  for (const std::string& path : paths) {
    std::error_code error;
    if (!fs::is_directory(path, error)) {
      files.push_back(path);
      continue;
    }
    const std::size_t before = files.size();
    for (fs::recursive_directory_iterator at(path, error), end; !error && at != end;
         at.increment(error)) {
      if (at->is_regular_file() && is_scenario_name(at->path().string())) {
        files.push_back(at->path().string());
      }
    }
    if (error) return file_error(path, error.message(), "a folder that can be read");
    if (files.size() == before)
      return file_error(path, "a folder without scenarios", "*.kvs or *.kvs.gz in it");
    std::sort(files.begin() + static_cast<std::ptrdiff_t>(before), files.end());
  }
  return files;
}

std::string shrunk_path(const std::string& path) {
  fs::path shown = path;
  if (path.ends_with(kGzipName)) shown.replace_extension();
  // The folder of /dev/stdin, or of a pipe of the shell, is no place for files.
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored)) shown = shown.filename();
  return shown.replace_extension(".shrunk.kvs").string();
}

}  // namespace kvfence
