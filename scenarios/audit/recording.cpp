#include "scenarios/audit/recording.h"

#include <xxhash.h>

#include <bit>
#include <cerrno>
#include <chrono>
#include <cstring>

namespace kvfence::audit {
namespace {

constexpr std::size_t kPrefixBytes = 8;  ///< length and checksum
/// Of a body: flags, time, sequence number, two empty names.
constexpr std::size_t kBodyBytesMin = 1 + 8 + 8 + 2 + 2;

enum Flag : std::uint8_t { kReplayed = 1, kFollowsCut = 2, kScene = 4 };

template <class T>
void append_number(std::string& out, T value) {
  for (unsigned byte = 0; byte < sizeof(T); ++byte) out += static_cast<char>(value >> (8 * byte));
}

template <class T>
T number_at(std::string_view text, std::size_t at) {
  T value = 0;
  for (unsigned byte = sizeof(T); byte-- > 0;) {
    value = static_cast<T>(value << 8 | static_cast<unsigned char>(text[at + byte]));
  }
  return value;
}

void append_name(std::string& out, const std::string& name) {
  append_number(out, static_cast<std::uint16_t>(name.size()));
  out += name;
}

/// False: the body ends within the name.
bool take_name(std::string_view body, std::size_t& at, std::string& name) {
  if (body.size() - at < 2) return false;
  const auto length = number_at<std::uint16_t>(body, at);
  at += 2;
  if (body.size() - at < length) return false;
  name = body.substr(at, length);
  at += length;
  return true;
}

}  // namespace

double seconds_since_epoch() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

void append_record(std::string& out, const Arrival& arrival) {
  const std::size_t begin = out.size();
  out.append(kPrefixBytes, '\0');
  out +=
      static_cast<char>((arrival.is_replayed ? kReplayed : 0) |
                        (arrival.follows_cut ? kFollowsCut : 0) | (arrival.is_scene ? kScene : 0));
  append_number(out, std::bit_cast<std::uint64_t>(arrival.time));
  append_number(out, arrival.message.sequence);
  append_name(out, arrival.engine);
  append_name(out, arrival.message.topic);
  out += arrival.message.payload;
  const std::string_view body = std::string_view(out).substr(begin + kPrefixBytes);
  std::string prefix;
  append_number(prefix, static_cast<std::uint32_t>(body.size()));
  append_number(prefix, static_cast<std::uint32_t>(XXH32(body.data(), body.size(), 0)));
  out.replace(begin, kPrefixBytes, prefix);
}

bool RecordingReader::open(std::string_view text, std::string& error) {
  text_ = text;
  at_ = kRecordingHead.size();
  cut_.reset();
  if (text.substr(0, at_) == kRecordingHead) return true;
  error = "found another first line, expected 'kvfence-audit 1'";
  return false;
}

bool RecordingReader::read(Arrival& out) {
  const std::size_t left = text_.size() - at_;
  if (left == 0 || cut_) return false;
  const auto stop = [&](const std::string& found, const std::string& expected, bool is_damage) {
    cut_ = {"byte " + std::to_string(at_) + ": found " + found + ", expected " + expected,
            is_damage};
    return false;
  };
  if (left < kPrefixBytes) return stop(std::to_string(left) + " bytes", "a record", false);
  const auto length = number_at<std::uint32_t>(text_, at_);
  if (length > left - kPrefixBytes) {
    return stop(std::to_string(left - kPrefixBytes) + " bytes of a record", std::to_string(length),
                false);
  }
  const std::string_view body = text_.substr(at_ + kPrefixBytes, length);
  if (XXH32(body.data(), body.size(), 0) != number_at<std::uint32_t>(text_, at_ + 4)) {
    return stop("a damaged record", "the checksum in front of it", true);
  }
  std::size_t at = 1 + 8 + 8;
  if (length < kBodyBytesMin || !take_name(body, at, out.engine) ||
      !take_name(body, at, out.message.topic)) {
    return stop("a record of " + std::to_string(length) + " bytes", "its names", true);
  }
  const auto flags = static_cast<unsigned char>(body[0]);
  if (flags > (kReplayed | kFollowsCut | kScene)) {
    return stop("flags " + std::to_string(flags), "1, 2 and 4", true);
  }
  out.is_replayed = (flags & kReplayed) != 0;
  out.follows_cut = (flags & kFollowsCut) != 0;
  out.is_scene = (flags & kScene) != 0;
  out.time = std::bit_cast<double>(number_at<std::uint64_t>(body, 1));
  out.message.sequence = number_at<std::uint64_t>(body, 9);
  out.message.payload = body.substr(at);
  at_ += kPrefixBytes + length;
  return true;
}

std::optional<std::string> RecordingWriter::open(const std::string& path) {
  path_ = path;
  file_ = std::ofstream(path, std::ios::binary);
  return put(kRecordingHead);
}

std::optional<std::string> RecordingWriter::write(const Arrival& arrival) {
  record_.clear();
  append_record(record_, arrival);
  return put(record_);
}

std::optional<std::string> RecordingWriter::put(std::string_view bytes) {
  file_ << bytes << std::flush;
  if (file_) return std::nullopt;
  return path_ + ": " + std::strerror(errno);
}

}  // namespace kvfence::audit
