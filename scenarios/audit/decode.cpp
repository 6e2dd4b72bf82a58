#include "scenarios/audit/decode.h"

#include <bit>
#include <functional>
#include <limits>
#include <type_traits>
#include <utility>

#include "scenarios/audit/big_endian.h"

namespace kvfence::audit {
namespace {

/// The head of a value: its first bytes. A scalar is complete; the contents of the others follow.
struct Head {
  enum class Kind : std::uint8_t {
    kNil,
    kBool,
    kUnsigned,
    kNegative,
    kFloat,
    kText,
    kBytes,
    kExtension,
    kArray,
    kMap
  };
  Kind kind = Kind::kNil;
  std::uint64_t value = 0;  ///< of kNegative two's complement; of a float its bits; else a length
};
using Kind = Head::Kind;

std::string name_of(const Head& head) {
  const std::string value = std::to_string(head.value);
  switch (head.kind) {
    case Kind::kNil:
      return "nil";
    case Kind::kBool:
      return "a truth value";
    case Kind::kUnsigned:
      return value;
    case Kind::kNegative:
      return std::to_string(static_cast<std::int64_t>(head.value));
    case Kind::kFloat:
      return "a float";
    case Kind::kText:
      return "a text of " + value + " bytes";
    case Kind::kBytes:
      return value + " bytes";
    case Kind::kExtension:
      return "an extension";
    case Kind::kArray:
      return "a list of " + value;
    case Kind::kMap:
      return "a map of " + value;
  }
  return {};
}

/// Reads values one after the other. Each read returns false and records the reason if there is no
/// such value; the position is then undefined.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}

  std::size_t offset() const { return at_; }
  void go_to(std::size_t offset) { at_ = offset; }
  std::size_t left() const { return bytes_.size() - at_; }
  DecodeProblem& problem() { return problem_; }

  bool fail(std::size_t offset, std::string found, std::string expected) {
    problem_ = {offset, std::move(found), std::move(expected)};
    return false;
  }
  /// At the head that was read last.
  bool fail(const Head& head, const char* expected) {
    return fail(head_at_, name_of(head), expected);
  }

  bool read(Head& head) {
    head_at_ = at_;
    if (at_ == bytes_.size()) return fail(at_, "the end", "a value");
    const auto first = static_cast<unsigned char>(bytes_[at_]);
    ++at_;
    if (first < 0x80) return scalar(head, Kind::kUnsigned, first);
    if (first >= 0xE0) return scalar(head, Kind::kNegative, first | ~std::uint64_t{0xFF});
    if (first < 0x90) return sized(head, Kind::kMap, first & 0x0F);
    if (first < 0xA0) return sized(head, Kind::kArray, first & 0x0F);
    if (first < 0xC0) return sized(head, Kind::kText, first & 0x1F);
    if (first == 0xC0) return scalar(head, Kind::kNil, 0);
    if (first == 0xC1) return fail(at_ - 1, "a byte 0xc1", "a value");
    if (first <= 0xC3) return scalar(head, Kind::kBool, first & 1);
    if (first <= 0xC6) return follows(head, Kind::kBytes, 1U << (first - 0xC4));
    if (first <= 0xC9) return follows(head, Kind::kExtension, 1U << (first - 0xC7));
    if (first <= 0xCB) return follows(head, Kind::kFloat, 4U << (first - 0xCA));
    if (first <= 0xCF) return follows(head, Kind::kUnsigned, 1U << (first - 0xCC));
    if (first <= 0xD3) return follows(head, Kind::kNegative, 1U << (first - 0xD0));
    if (first <= 0xD8) return sized(head, Kind::kExtension, 1U << (first - 0xD4));
    if (first <= 0xDB) return follows(head, Kind::kText, 1U << (first - 0xD9));
    if (first <= 0xDD) return follows(head, Kind::kArray, 2U << (first - 0xDC));
    return follows(head, Kind::kMap, 2U << (first - 0xDE));
  }

  /// As read, for token ids, which are most of a payload. False: it is no such number, and nothing
  /// was read.
  bool read_token(std::uint32_t& out) {
    const auto* const next = reinterpret_cast<const unsigned char*>(bytes_.data()) + at_;
    constexpr std::size_t kBytesMax = 5;
    if (left() < kBytesMax) return false;
    if (next[0] < 0x80) {
      out = next[0];
      at_ += 1;
    } else if (next[0] == 0xCC) {
      out = next[1];
      at_ += 2;
    } else if (next[0] == 0xCD) {
      out = static_cast<std::uint32_t>(next[1]) << 8 | next[2];
      at_ += 3;
    } else if (next[0] == 0xCE) {
      out = static_cast<std::uint32_t>(next[1]) << 24 | static_cast<std::uint32_t>(next[2]) << 16 |
            static_cast<std::uint32_t>(next[3]) << 8 | next[4];
      at_ += 5;
    } else {
      return false;
    }
    return true;
  }

  /// The contents of a text, of bytes or of an extension, whose head was read.
  std::string_view contents(const Head& head) {
    const std::string_view text = bytes_.substr(at_, head.value);
    at_ += head.value;
    return text;
  }

  /// Without recursion: each remaining value has at least one byte, so the bytes bound their number.
  bool skip() {
    for (std::uint64_t values = 1; values > 0; --values) {
      Head head;
      if (!read(head)) return false;
      if (head.kind == Kind::kArray) values += head.value;
      if (head.kind == Kind::kMap) values += 2 * head.value;
      if (is_string(head.kind)) at_ += head.value;
      if (values - 1 > left()) return fail(at_, "the end", "the rest of a list or map");
    }
    return true;
  }

  bool read_kind(Head& head, Kind kind, const char* expected) {
    if (!read(head)) return false;
    return head.kind == kind || fail(head, expected);
  }

 private:
  static bool is_string(Kind kind) {
    return kind == Kind::kText || kind == Kind::kBytes || kind == Kind::kExtension;
  }

  bool scalar(Head& head, Kind kind, std::uint64_t value) {
    head = {kind, value};
    return true;
  }

  /// A value, or a length, in the next bytes.
  bool follows(Head& head, Kind kind, unsigned num_bytes) {
    if (left() < num_bytes) return fail(at_, "the end", "the rest of a number or length");
    std::uint64_t value = from_big_endian(bytes_.substr(at_, num_bytes));
    at_ += num_bytes;
    if (kind == Kind::kUnsigned) return scalar(head, kind, value);
    if (kind == Kind::kFloat) {
      if (num_bytes == 4) {
        const auto bits = static_cast<std::uint32_t>(value);
        value = std::bit_cast<std::uint64_t>(double{std::bit_cast<float>(bits)});
      }
      return scalar(head, kind, value);
    }
    if (kind == Kind::kNegative) {
      const unsigned unused = 64 - 8 * num_bytes;
      const std::int64_t signed_value = static_cast<std::int64_t>(value << unused) >> unused;
      return scalar(head, signed_value < 0 ? kind : Kind::kUnsigned,
                    static_cast<std::uint64_t>(signed_value));
    }
    return sized(head, kind, value);
  }

  /// A declared length counts only if that many bytes are there.
  bool sized(Head& head, Kind kind, std::uint64_t length) {
    head = {kind, length};
    std::uint64_t needed = length;
    if (kind == Kind::kExtension) head.value = ++needed;  // the type stands before the contents
    if (kind == Kind::kMap) needed *= 2;
    if (needed <= left()) return true;
    return fail(at_, name_of(head) + " with " + std::to_string(left()) + " bytes left",
                "no more than there is");
  }

  std::string_view bytes_;
  std::size_t at_ = 0;
  std::size_t head_at_ = 0;
  DecodeProblem problem_;
};

// ---- Fields ----

constexpr std::uint64_t kMax32 = std::numeric_limits<std::uint32_t>::max();

bool read_value(Reader& reader, std::uint32_t& out) {
  if (reader.read_token(out)) return true;
  Head head;
  if (!reader.read(head)) return false;
  if (head.kind != Kind::kUnsigned || head.value > kMax32) {
    return reader.fail(head, "an integer of 32 bits");
  }
  out = static_cast<std::uint32_t>(head.value);
  return true;
}

/// SGLang's EAGLE publishes each token with the one after it: the first of the pair counts.
bool read_token(Reader& reader, TokenId& out) {
  if (reader.read_token(out)) return true;
  const std::size_t begin = reader.offset();
  Head head;
  if (!reader.read(head)) return false;
  if (head.kind != Kind::kArray || head.value != 2) {
    reader.go_to(begin);
    return read_value(reader, out);
  }
  TokenId next = 0;
  return read_value(reader, out) && read_value(reader, next);
}

bool read_value(Reader& reader, std::int64_t& out) {
  Head head;
  if (!reader.read(head)) return false;
  const bool fits = head.kind == Kind::kNegative ||
                    (head.kind == Kind::kUnsigned && static_cast<std::int64_t>(head.value) >= 0);
  if (!fits) return reader.fail(head, "an integer of 64 bits");
  out = static_cast<std::int64_t>(head.value);
  return true;
}

bool read_value(Reader& reader, std::string& out) {
  Head head;
  if (!reader.read_kind(head, Kind::kText, "a text")) return false;
  out = reader.contents(head);
  return true;
}

bool read_value(Reader& reader, EventHash& out) {
  Head head;
  if (!reader.read(head)) return false;
  out.is_integer = head.kind == Kind::kUnsigned || head.kind == Kind::kNegative;
  if (out.is_integer) {
    out.bytes.clear();
    append_big_endian(out.bytes, head.value, sizeof(head.value));
    return true;
  }
  if (head.kind != Kind::kBytes || head.value == 0) return reader.fail(head, "a hash");
  out.bytes = reader.contents(head);
  return true;
}

bool read_value(Reader& reader, EventExtraKey& out) {
  Head head;
  if (!reader.read(head)) return false;
  if (head.kind == Kind::kText || head.kind == Kind::kBytes) {
    out.kind = head.kind == Kind::kText ? EventExtraKey::Kind::kText : EventExtraKey::Kind::kBytes;
    out.value = reader.contents(head);
    return true;
  }
  if (head.kind != Kind::kArray || head.value < 1 || head.value > 2) {
    return reader.fail(head, "a text, bytes, or an item with its offset");
  }
  out.kind = EventExtraKey::Kind::kItem;
  if (!read_value(reader, out.value)) return false;
  return head.value == 1 || read_value(reader, out.offset.emplace());
}

template <class T>
bool read_value(Reader& reader, std::vector<T>& out);

template <class T>
bool read_value(Reader& reader, std::optional<T>& out) {
  const std::size_t begin = reader.offset();
  Head head;
  if (!reader.read(head)) return false;
  out.reset();
  if (head.kind == Kind::kNil) return true;
  reader.go_to(begin);
  if (read_value(reader, out.emplace())) return true;
  out.reset();
  return false;
}

template <class T>
bool read_value(Reader& reader, std::vector<T>& out) {
  Head head;
  if (!reader.read_kind(head, Kind::kArray, "a list")) return false;
  out.clear();
  // Grows with the bytes read, not with declared lengths, except for numbers, which are not much
  // larger than their bytes.
  if constexpr (std::is_arithmetic_v<T>) out.reserve(head.value);
  for (std::uint64_t item = 0; item < head.value; ++item) {
    if constexpr (std::is_same_v<T, TokenId>) {
      if (!read_token(reader, out.emplace_back())) return false;
    } else {
      if (!read_value(reader, out.emplace_back())) return false;
    }
  }
  return true;
}

/// The fields of an event: in maps by name, in arrays by their place in the list.
template <class E>
class KnownFields {
 public:
  struct Field {
    std::string_view name;
    std::function<bool(Reader&, E&)> read;
    bool is_required = false;
  };

  KnownFields() { E::declare(*this); }
  const std::vector<Field>& list() const { return list_; }

  template <class T>
  void add(std::string_view name, T E::*member, std::optional<WireRelease> = {}) {
    constexpr bool kIsOptional = requires(T & value) { value.reset(); };
    list_.push_back(
        {name, [member](Reader& reader, E& event) { return read_value(reader, event.*member); },
         !kIsOptional});
  }

 private:
  std::vector<Field> list_;
};

constexpr std::string_view kTypeField = "type";

class BatchDecoder {
 public:
  BatchDecoder(std::string_view payload, DecodedBatch& out) : reader_(payload), out_(out) {}

  bool decode() {
    std::uint64_t num_items = 0;
    if (!read_batch_head(num_items) || !read_events()) return false;
    if (is_broken_) return true;
    for (std::uint64_t item = 2; item < num_items; ++item) {
      const bool is_rank = item == 2;
      if (is_rank ? read_value(reader_, out_.batch.data_parallel_rank) : reader_.skip()) {
        out_.unknown_fields += is_rank ? 0 : 1;
        continue;
      }
      if (is_rank) reader_.problem().expected = "data_parallel_rank: " + reader_.problem().expected;
      out_.problems.push_back(reader_.problem());
      return true;
    }
    if (reader_.left() > 0) {
      out_.problems.push_back(
          {reader_.offset(), std::to_string(reader_.left()) + " bytes more", "the end"});
    }
    return true;
  }

  const DecodeProblem& problem() { return reader_.problem(); }

 private:
  bool read_batch_head(std::uint64_t& num_items) {
    Head head;
    if (!reader_.read_kind(head, Kind::kArray, "a batch: [time, events, rank]")) return false;
    if (head.value < 2) return reader_.fail(head, "a batch: [time, events, rank]");
    num_items = head.value;
    if (!reader_.read(head)) return false;
    if (head.kind == Kind::kFloat) {
      out_.batch.time = std::bit_cast<double>(head.value);
    } else if (head.kind == Kind::kUnsigned) {
      out_.batch.time = static_cast<double>(head.value);
    } else {
      return reader_.fail(head, "the time of the batch");
    }
    return true;
  }

  /// False: no list of events. An event that cannot be skipped is the last of its batch, whose rank
  /// is then unknown.
  bool read_events() {
    Head head;
    if (!reader_.read_kind(head, Kind::kArray, "a list of events")) return false;
    for (std::uint64_t index = 0; index < head.value; ++index) {
      const std::size_t begin = reader_.offset();
      if (read_event()) {
        out_.ranges.push_back({begin, reader_.offset()});
        continue;
      }
      out_.problems.push_back(reader_.problem());
      out_.batch.events.resize(out_.ranges.size());
      reader_.go_to(begin);
      is_broken_ = !reader_.skip();
      if (is_broken_) break;
    }
    return true;
  }

  bool read_event() {
    const std::size_t begin = reader_.offset();
    Head head;
    if (!reader_.read(head)) return false;
    const bool is_map = head.kind == Kind::kMap;
    if (!is_map && (head.kind != Kind::kArray || head.value == 0)) {
      return reader_.fail(head, "an event: a list or a map with its type");
    }
    std::string tag;
    if (!(is_map ? find_type(begin, head.value, tag) : read_value(reader_, tag))) return false;
    out_.encoding = is_map ? Encoding::kMaps : Encoding::kArrays;
    const std::uint64_t num_fields = is_map ? head.value : head.value - 1;
    if (tag == StoredEvent::kTag) return read_fields<StoredEvent>(begin, is_map, num_fields);
    if (tag == RemovedEvent::kTag) return read_fields<RemovedEvent>(begin, is_map, num_fields);
    if (tag == ClearedEvent::kTag) return read_fields<ClearedEvent>(begin, is_map, num_fields);
    return reader_.fail(begin, "an event '" + tag.substr(0, 40) + "'",
                        "BlockStored, BlockRemoved or AllBlocksCleared");
  }

  /// Starts again at the first field.
  bool find_type(std::size_t begin, std::uint64_t num_fields, std::string& tag) {
    const std::size_t fields = reader_.offset();
    std::string name;
    for (std::uint64_t field = 0; field < num_fields; ++field) {
      if (!read_value(reader_, name)) return false;
      if (name == kTypeField) {
        if (!read_value(reader_, tag)) return false;
        reader_.go_to(fields);
        return true;
      }
      if (!reader_.skip()) return false;
    }
    return reader_.fail(begin, "a map without a type", "an event");
  }

  template <class E>
  bool read_fields(std::size_t begin, bool is_map, std::uint64_t num_fields) {
    static const KnownFields<E> known_fields;
    const auto& known = known_fields.list();
    E& event = std::get<E>(out_.batch.events.emplace_back(E()));
    std::uint32_t found = 0;
    std::uint64_t unknown = 0;
    for (std::uint64_t at = 0; at < num_fields; ++at) {
      std::size_t index = at;
      if (is_map) {
        const std::size_t name_begin = reader_.offset();
        Head head;
        if (!reader_.read_kind(head, Kind::kText, "the name of a field")) return false;
        const std::string_view name = reader_.contents(head);
        if (name == kTypeField) {
          if (!reader_.skip()) return false;
          continue;
        }
        for (index = 0; index < known.size() && known[index].name != name;) ++index;
        if (index < known.size() && (found >> index & 1) != 0) {
          return reader_.fail(name_begin, std::string(name) + " twice", "each field once");
        }
      }
      if (index >= known.size()) {
        if (!reader_.skip()) return false;
        ++unknown;
        continue;
      }
      if (!known[index].read(reader_, event)) {
        reader_.problem().expected =
            std::string(known[index].name) + ": " + reader_.problem().expected;
        return false;
      }
      found |= 1U << index;
    }
    for (std::size_t index = 0; index < known.size(); ++index) {
      if (known[index].is_required && (found >> index & 1) == 0) {
        return reader_.fail(begin, "an event without " + std::string(known[index].name), "it");
      }
    }
    out_.unknown_fields += unknown;
    return true;
  }

  Reader reader_;
  DecodedBatch& out_;
  bool is_broken_ = false;
};

}  // namespace

std::string DecodeProblem::to_text() const {
  return "byte " + std::to_string(offset) + ": found " + found + ", expected " + expected;
}

bool decode(std::string_view payload, DecodedBatch& out) {
  out.batch.events.clear();
  out.batch.data_parallel_rank.reset();
  out.ranges.clear();
  out.problems.clear();
  out.unknown_fields = 0;
  BatchDecoder decoder(payload, out);
  if (decoder.decode()) return true;
  if (out.problems.empty()) out.problems.push_back(decoder.problem());
  return false;
}

std::string payload_of(std::string_view payload, const EventBatch& batch,
                       const std::vector<ByteRange>& events) {
  std::string out = "\x93\xcb";
  append_big_endian(out, std::bit_cast<std::uint64_t>(batch.time), 8);
  out += '\xdd';
  append_big_endian(out, events.size(), 4);
  for (const ByteRange& event : events) {
    out.append(payload.substr(event.begin, event.end - event.begin));
  }
  if (!batch.data_parallel_rank) return out + '\xc0';
  out += '\xce';
  append_big_endian(out, *batch.data_parallel_rank, 4);
  return out;
}

}  // namespace kvfence::audit
