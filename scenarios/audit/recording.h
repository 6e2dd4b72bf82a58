#pragma once

/// A recording: messages as they arrived, in a file that may be cut at any byte.
///
/// The file is the line "kvfence-audit 1\n" and records. A record, numbers little-endian:
///
///     u32 length of the body    u32 XXH32 of the body, seed 0
///     body: u8 flags, f64 time of arrival (seconds since the epoch), u64 sequence number,
///           u16 length and bytes of the engine's name, u16 length and bytes of the topic, and the
///           payload to its end
///
/// Flags: 1, the message came from the replay endpoint; 2, messages before it were left out on
/// purpose, so that this one counts as the next of its engine; 4, it only sets the state and is not
/// judged. 2 and 4 occur in excerpts, such as the evidence of a finding.

#include <cstddef>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>

#include "scenarios/audit/event_batch.h"

namespace kvfence::audit {

/// A message with where and how it came.
struct Arrival {
  std::string engine;  ///< the endpoint, or a name that the user gave
  Message message;
  double time = 0;           ///< seconds since the epoch, of the receiver's clock
  bool is_replayed = false;  ///< asked for at the replay endpoint
  bool follows_cut = false;  ///< what came before was left out on purpose
  bool is_scene = false;     ///< sets the state and is not judged

  friend bool operator==(const Arrival&, const Arrival&) = default;
};

/// Now, for the time of an arrival or of a batch.
double seconds_since_epoch();

inline constexpr std::string_view kRecordingHead = "kvfence-audit 1\n";

/// Appends a record. Requires: engine and topic below 64 KiB, the payload below 4 GiB.
void append_record(std::string& out, const Arrival& arrival);

/// Records of a file's text, one after the other.
class RecordingReader {
 public:
  /// The text has to outlive the reader. False: not a recording; `error` says what was found.
  bool open(std::string_view text, std::string& error);

  /// Where reading ended before the end of the text.
  struct Cut {
    std::string why;
    bool is_damage = false;  ///< bytes are wrong, and not only missing: whole records may follow
  };

  /// False: no further record; cut() says whether the text ends within one.
  bool read(Arrival& out);

  /// The error after the last whole record; none at a clean end.
  const std::optional<Cut>& cut() const { return cut_; }

 private:
  std::string_view text_;
  std::size_t at_ = 0;
  std::optional<Cut> cut_;
};

/// Writes records as they come, so that a killed process leaves them.
class RecordingWriter {
 public:
  /// Replaces the file. Returns an error message, if any.
  std::optional<std::string> open(const std::string& path);
  std::optional<std::string> write(const Arrival& arrival);

 private:
  std::optional<std::string> put(std::string_view bytes);

  std::string path_;
  std::ofstream file_;
  std::string record_;
};

}  // namespace kvfence::audit
