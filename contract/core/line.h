#pragma once

/// The line language: scenario files, recorded traces, counterexamples and the protocol to outside
/// implementations are all lines of
///
///     verb [subject] key=value ... [-> key=value ...]  [# comment]
///
/// A value is `none`, `true`, `false`, an integer, a decimal, bytes (`0x` and hex digits), a word,
/// a quoted string, a list in brackets, or a record: a verb with fields in parentheses. The text
/// round-trips exactly: parse(print(x)) == x for every x, and print(parse(t)) == t for canonical t
/// (single blanks, words unquoted where they can be). The grammar: contract/line_language.md.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace kvfence {

struct Field;

/// `none`.
struct None {
  friend bool operator==(None, None) = default;
};

/// Raw bytes, printed as 0x and lower-case hex. `0x` alone is the empty string of bytes.
struct Bytes {
  std::string data;
  friend bool operator==(const Bytes&, const Bytes&) = default;
};

/// `(verb key=value ...)`.
struct Record {
  std::string verb;
  std::vector<Field> fields;
  friend bool operator==(const Record& a, const Record& b);
};

/// One value of the line language.
class Value {
 public:
  using List = std::vector<Value>;
  using Variant = std::variant<None, bool, std::int64_t, double, std::string, Bytes, List, Record>;

  Value() = default;
  Value(Variant data);  // NOLINT: a value is what it holds

  const Variant& data() const { return data_; }

  template <class T>
  const T* get_if() const {
    return std::get_if<T>(&data_);
  }

  friend bool operator==(const Value& a, const Value& b) { return a.data_ == b.data_; }

 private:
  Variant data_;
};

/// A position in a text; 1-based columns and lines, 0 for what was in no text.
struct Position {
  std::uint32_t line = 0;
  std::uint32_t column = 0;
};

/// `key=value`. Equality looks at both, not at the position.
struct Field {
  std::string key;
  Value value;
  Position position;
  friend bool operator==(const Field& a, const Field& b) {
    return a.key == b.key && a.value == b.value;
  }
};

// Not in the class: moving a Record needs Field complete.
inline Value::Value(Variant data) : data_(std::move(data)) {}

inline bool operator==(const Record& a, const Record& b) {
  return a.verb == b.verb && a.fields == b.fields;
}

/// One line. A blank or comment-only line has an empty verb.
struct Line {
  std::string verb;
  std::string subject;  ///< a bare word after the verb, as in `target block_pool`; empty for none
  std::vector<Field> fields;
  std::optional<std::vector<Field>> expectation;  ///< after `->`; present and empty for a bare `->`
  std::string comment;  ///< after `#`, without it, as written; empty for none
  Position position;
  friend bool operator==(const Line& a, const Line& b) {
    return a.verb == b.verb && a.subject == b.subject && a.fields == b.fields &&
           a.expectation == b.expectation && a.comment == b.comment;
  }
};

/// The field of that key, or null.
const Field* find_field(const std::vector<Field>& fields, std::string_view key);

/// What is wrong with an input, and where: `file:line:column: found X, expected Y`.
struct InputError {
  std::string file;  ///< may be empty (a value on a command line)
  Position position;
  std::string found;
  std::string expected;

  /// One line, without a newline.
  std::string to_text() const;
};

/// Makes errors of one place: error(found, expected).
inline auto errors_at(std::string_view file, Position position) {
  return [file, position](std::string found, std::string expected) {
    return InputError{std::string(file), position, std::move(found), std::move(expected)};
  };
}

/// A value or an InputError.
template <class T>
class Parsed {
 public:
  Parsed(T value) : data_(std::move(value)) {}  // NOLINT: both convert, as in std::expected
  Parsed(InputError error) : data_(std::move(error)) {}  // NOLINT

  explicit operator bool() const { return data_.index() == 0; }
  T& operator*() { return std::get<0>(data_); }
  const T& operator*() const { return std::get<0>(data_); }
  T* operator->() { return &std::get<0>(data_); }
  const T* operator->() const { return &std::get<0>(data_); }
  const InputError& error() const { return std::get<1>(data_); }

 private:
  std::variant<T, InputError> data_;
};

/// Parses one line without its newline. file and line_number only feed positions and errors.
///
/// Errors: anything outside the grammar; a key given twice; integers beyond 64 bits; nesting beyond
///         limits::kValueDepthMax; a line beyond limits::kLineBytesMax; control or non-UTF-8 bytes
///         outside quotes.
/// Cost:   linear in the length.
Parsed<Line> parse_line(std::string_view text, std::string_view file = {},
                        std::uint32_t line_number = 1);

/// Parses a value alone, e.g. an argument of the command line.
Parsed<Value> parse_value(std::string_view text);

/// Canonical text, without a newline.
std::string print(const Value& value);
std::string print(const Line& line);

/// Appends to out instead: what the hot paths (wire protocol, traces) call.
void print_to(std::string& out, const Value& value);
void print_to(std::string& out, const Field& field);
void print_to(std::string& out, const Line& line);

/// A file, line by line, comments and blank lines included.
using Document = std::vector<Line>;
Parsed<Document> parse_document(std::string_view text, std::string_view file = {});

/// Every line with its newline.
std::string print(const Document& document);

}  // namespace kvfence
