#include "scenarios/command/files.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>
#include <utility>

namespace kvfence {
namespace {

namespace fs = std::filesystem;

InputError file_error(const std::string& path, std::string found, std::string expected) {
  return {path, {}, std::move(found), std::move(expected)};
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
  return std::move(text).str();
}

std::optional<std::string> write_file(const std::string& path, std::string_view text) {
  const std::string temporary = path + "." + std::to_string(::getpid()) + ".tmp";
  {
    std::ofstream stream(temporary, std::ios::binary | std::ios::trunc);
    stream.write(text.data(), static_cast<std::streamsize>(text.size()));
    stream.flush();
    if (!stream) {
      const std::string reason = std::strerror(errno);
      std::remove(temporary.c_str());
      return path + ": cannot be written: " + reason;
    }
  }
  std::error_code error;
  fs::rename(temporary, path, error);
  if (!error) return std::nullopt;
  std::remove(temporary.c_str());
  return path + ": cannot be written: " + error.message();
}

Parsed<LoadedScenario> load_scenario(const std::string& path) {
  Parsed<std::string> text = read_file(path);
  if (!text) return text.error();
  Parsed<Document> document = parse_document(*text, path);
  if (!document) return document.error();
  const Parsed<std::string> name = target_of(*document, path);
  if (!name) return name.error();
  const auto line = std::find_if(document->begin(), document->end(),
                                 [](const Line& each) { return each.verb == "target"; });
  const auto target = tools_of(*name, path, line->position);
  if (!target) return target.error();
  return LoadedScenario{std::move(*document), *target};
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
      if (at->is_regular_file() && at->path().extension() == ".kvs") {
        files.push_back(at->path().string());
      }
    }
    if (error) return file_error(path, error.message(), "a folder that can be read");
    if (files.size() == before)
      return file_error(path, "a folder without scenarios", "*.kvs in it");
    std::sort(files.begin() + static_cast<std::ptrdiff_t>(before), files.end());
  }
  return files;
}

std::string shrunk_path(const std::string& path) {
  return fs::path(path).replace_extension(".shrunk.kvs").string();
}

}  // namespace kvfence
