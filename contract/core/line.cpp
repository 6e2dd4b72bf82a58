#include "contract/core/line.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <system_error>
#include <unordered_set>

#include "contract/core/check.h"
#include "contract/core/hex.h"
#include "contract/core/limits.h"

namespace kvfence {
namespace {

// The classes of bytes, as bits.
enum ByteClass : std::uint8_t {
  kWordFirst = 1,  // may start a word
  kWordRest = 2,   // may continue one
  kNumber = 4,     // may occur in an unquoted value that starts like a number
  kPlain = 8,      // ASCII that stands for itself between quotes
};

constexpr auto kByteClasses = [] {
  std::array<std::uint8_t, 256> classes{};
  for (unsigned byte = 0; byte < 256; ++byte) {
    const bool letter = (byte >= 'A' && byte <= 'Z') || (byte >= 'a' && byte <= 'z') || byte == '_';
    const bool digit = byte >= '0' && byte <= '9';
    const bool mark = byte == '.' || byte == ':' || byte == '/' || byte == '*' || byte == '-';
    unsigned bits = 0;
    if (letter) bits |= kWordFirst;
    if (letter || digit || mark) bits |= kWordRest | kNumber;
    if (byte == '+') bits |= kNumber;
    if (byte >= 0x20 && byte < 0x7f && byte != '"' && byte != '\\') bits |= kPlain;
    classes[byte] = static_cast<std::uint8_t>(bits);
  }
  return classes;
}();

bool is(ByteClass byte_class, char byte) {
  return (kByteClasses[static_cast<unsigned char>(byte)] & byte_class) != 0;
}

bool is_blank(char byte) { return byte == ' ' || byte == '\t'; }
bool is_digit(char byte) { return byte >= '0' && byte <= '9'; }
bool is_control(char byte) { return static_cast<unsigned char>(byte) < 0x20 || byte == 0x7f; }

bool is_word(std::string_view text) {
  return !text.empty() && is(kWordFirst, text.front()) &&
         std::all_of(text.begin() + 1, text.end(), [](char byte) { return is(kWordRest, byte); });
}

// The words that are values of another kind, hence printed quoted as strings.
bool is_reserved(std::string_view word) {
  return word == "none" || word == "true" || word == "false";
}

// The value of a hex digit, -1 for any other byte.
int hex_digit_value(char byte) {
  if (is_digit(byte)) return byte - '0';
  if (byte >= 'a' && byte <= 'f') return byte - 'a' + 10;
  if (byte >= 'A' && byte <= 'F') return byte - 'A' + 10;
  return -1;
}

// Bytes of the well-formed UTF-8 character at the front, 0 where there is none (Unicode 15, table
// 3-7).
std::size_t utf8_length(std::string_view text) {
  if (text.empty()) return 0;
  const auto byte = [text](std::size_t index) {
    return index < text.size() ? static_cast<unsigned char>(text[index]) : 0U;
  };
  const auto continues = [byte](std::size_t index) { return (byte(index) & 0xc0U) == 0x80; };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  if (first < 0xc2) return 0;
  if (first < 0xe0) return continues(1) ? 2 : 0;
  if (first < 0xf0) {
    if (first == 0xe0 && byte(1) < 0xa0) return 0;  // overlong
    if (first == 0xed && byte(1) > 0x9f) return 0;  // surrogates
    return continues(1) && continues(2) ? 3 : 0;
  }
  if (first > 0xf4) return 0;
  if (first == 0xf0 && byte(1) < 0x90) return 0;  // overlong
  if (first == 0xf4 && byte(1) > 0x8f) return 0;  // beyond U+10FFFF
  return continues(1) && continues(2) && continues(3) ? 4 : 0;
}

// A byte that a letter after a backslash stands for.
struct Escape {
  char letter;
  char byte;
};
constexpr Escape kEscapes[] = {{'"', '"'}, {'\\', '\\'}, {'n', '\n'}, {'t', '\t'}, {'r', '\r'}};

// Appends the character at the front, escaped where it is a control byte or not UTF-8. Returns its
// bytes in text.
std::size_t append_character(std::string& out, std::string_view text) {
  const char byte = text.front();
  const std::size_t length = utf8_length(text);
  if (length != 0 && !is_control(byte)) {
    out.append(text.substr(0, length));
    return length;
  }
  const Escape* const escape = std::ranges::find(kEscapes, byte, &Escape::byte);
  out += '\\';
  if (escape != std::end(kEscapes)) {
    out += escape->letter;
  } else {
    out += 'x';
    append_hex(out, byte);
  }
  return 1;
}

// The length of the longest prefix that a comment may contain.
std::size_t comment_length(std::string_view text) {
  std::size_t index = 0;
  while (index < text.size()) {
    if (is_control(text[index]) && text[index] != '\t') break;
    const std::size_t length = utf8_length(text.substr(index));
    if (length == 0) break;
    index += length;
  }
  return index;
}

// -?[0-9]+(.[0-9]+)?([eE][+-]?[0-9]+)?, the integers among them included.
bool is_number(std::string_view text) {
  const auto skip = [&text](auto... bytes) {
    const bool found = !text.empty() && ((text.front() == bytes) || ...);
    if (found) text.remove_prefix(1);
    return found;
  };
  const auto skip_digits = [&text] {
    const std::size_t before = text.size();
    while (!text.empty() && is_digit(text.front())) text.remove_prefix(1);
    return text.size() < before;
  };
  skip('-');
  if (!skip_digits()) return false;
  if (skip('.') && !skip_digits()) return false;
  if (skip('e', 'E')) {
    skip('+', '-');
    if (!skip_digits()) return false;
  }
  return text.empty();
}

// A token as it is quoted in a message, at most 40 bytes of it.
std::string quote_token(std::string_view token) {
  constexpr std::size_t kBytesMax = 40;
  constexpr std::string_view kCut = "...";
  std::string out;
  std::size_t cut = 0;  // the last whole character before which kCut still fits
  while (!token.empty() && out.size() <= kBytesMax) {
    if (out.size() + kCut.size() <= kBytesMax) cut = out.size();
    token.remove_prefix(append_character(out, token));
  }
  if (out.size() > kBytesMax) out.replace(cut, std::string::npos, kCut);
  return "`" + out + "`";
}

// Reads one line, left to right. Every function moves at_ past what it read, or fills error_ and
// returns false.
class Parser {
 public:
  Parser(std::string_view text, std::string_view file, std::uint32_t line_number)
      : text_(text), file_(file), line_number_(line_number) {}

  bool parse(Line& out) {
    if (text_.size() > limits::kLineBytesMax) return fail_too_long();
    if (!text_.empty() && text_.back() == '\r') text_.remove_suffix(1);
    skip_blanks();
    out.position = position(at_);
    if (!at_end() && is(kWordFirst, peek())) {
      if (!read_line_verb(out.verb) || !read_subject(out.subject)) return false;
      if (!read_fields(out.fields, kNoCloser)) return false;
    } else if (!at_end() && peek() != '#' && !at_arrow()) {
      return fail("a verb");
    }
    if (at_arrow()) {
      at_ += 2;
      if (!read_gap(kNoCloser) || !read_fields(out.expectation.emplace(), kNoCloser)) return false;
      if (at_arrow()) return fail_at(at_, "a second `->`", "one at most");
    }
    if (at_end()) return true;
    return peek() == '#' ? read_comment(out.comment) : fail("key=value");
  }

  bool parse(Value& out) {
    if (text_.size() > limits::kLineBytesMax) return fail_too_long();
    skip_blanks();
    if (!read_value(out)) return false;
    skip_blanks();
    return at_end() || fail("the end of the value");
  }

  InputError& error() { return error_; }

 private:
  // No byte closes the fields of a line. A blank serves as the mark, for no token starts with one.
  static constexpr char kNoCloser = ' ';

  // Up to this many keys are compared with each other; more go through a hash table, to stay
  // linear.
  static constexpr std::size_t kComparedKeysMax = 16;

  bool at_end() const { return at_ == text_.size(); }
  char peek() const { return text_[at_]; }
  bool at_arrow() const { return text_.substr(at_, 2) == "->"; }

  Position position(std::size_t at) const {
    return {line_number_, static_cast<std::uint32_t>(at) + 1};
  }

  void skip_blanks() {
    while (!at_end() && is_blank(peek())) ++at_;
  }

  std::string_view read_run(ByteClass byte_class) {
    const std::size_t begin = at_;
    while (!at_end() && is(byte_class, peek())) ++at_;
    return text_.substr(begin, at_ - begin);
  }

  // What has to follow a token: blanks, the end, or the closing bracket around it.
  bool read_gap(char closer) {
    if (at_end() || peek() == closer || is_blank(peek())) {
      skip_blanks();
      return true;
    }
    if (peek() == ',') return fail_comma(closer);
    if (closer == ']') return fail("a blank or `]`");
    if (closer == ')') return fail("a blank or `)`");
    return fail("a blank");
  }

  bool read_line_verb(std::string& out) {
    const std::size_t begin = at_;
    out = read_run(kWordRest);
    if (!at_end() && peek() == '=') {
      at_ = begin;
      return fail("a verb before the fields");
    }
    return read_gap(kNoCloser);
  }

  // A word that no `=` follows; anything else is left for read_fields.
  bool read_subject(std::string& out) {
    const std::size_t begin = at_;
    if (at_end() || !is(kWordFirst, peek())) return true;
    const std::string_view word = read_run(kWordRest);
    if (!at_end() && !is_blank(peek())) {
      at_ = begin;
      return true;
    }
    out = word;
    return read_gap(kNoCloser);
  }

  // Stops at the first token that is no key; the caller knows whether it is allowed there.
  bool read_fields(std::vector<Field>& out, char closer) {
    std::unordered_set<std::string_view> keys;
    while (!at_end() && is(kWordFirst, peek())) {
      const std::size_t begin = at_;
      const std::string_view key = read_run(kWordRest);
      if (at_end() || peek() != '=') {
        at_ = begin;
        return fail(closer == ')' ? "key=value or `)`" : "key=value");
      }
      if (is_given(key, out, keys)) {
        return fail_at(begin, "key " + std::string(key) + " given twice", "each key once");
      }
      ++at_;
      if (out.empty()) out.reserve(4);
      Field& field = out.emplace_back();
      field.key = key;
      field.position = position(begin);
      if (!read_value(field.value) || !read_gap(closer)) return false;
    }
    return true;
  }

  // Whether key is among the fields read so far; adds it to keys once that is in use.
  bool is_given(std::string_view key, const std::vector<Field>& fields,
                std::unordered_set<std::string_view>& keys) const {
    if (fields.size() < kComparedKeysMax) return find_field(fields, key) != nullptr;
    if (fields.size() == kComparedKeysMax) {
      // Views into the line, not into the fields: those move as their vector grows.
      for (const Field& field : fields) {
        keys.insert(text_.substr(field.position.column - 1, field.key.size()));
      }
    }
    return !keys.insert(key).second;
  }

  bool read_value(Value& out) {
    if (at_end()) return fail("a value");
    const char first = peek();
    if (is(kWordFirst, first)) {
      out = word_value(read_run(kWordRest));
      return true;
    }
    if (is_digit(first) || (first == '-' && !at_arrow())) return read_number_or_bytes(out);
    if (first == '"') {
      std::string text;
      if (!read_quoted(text)) return false;
      out = Value(std::move(text));
      return true;
    }
    if (first == '[' || first == '(') {
      if (depth_ == limits::kValueDepthMax) {
        return fail("at most " + std::to_string(limits::kValueDepthMax) +
                    " levels of lists and records");
      }
      ++depth_;
      if (!(first == '[' ? read_list(out) : read_record(out))) return false;
      --depth_;
      return true;
    }
    return fail("a value");
  }

  static Value word_value(std::string_view word) {
    if (word == "none") return Value(None{});
    if (word == "true") return Value(true);
    if (word == "false") return Value(false);
    return Value(std::string(word));
  }

  bool read_number_or_bytes(Value& out) {
    const std::size_t begin = at_;
    const std::string_view token = read_run(kNumber);
    const char* const token_end = token.data() + token.size();

    std::int64_t integer = 0;
    const auto [integer_end, integer_error] = std::from_chars(token.data(), token_end, integer);
    if (integer_end == token_end && integer_error == std::errc()) {
      out = Value(integer);
      return true;
    }
    at_ = begin;  // the position of an error
    if (integer_end == token_end && integer_error == std::errc::result_out_of_range) {
      return fail("an integer of at most 64 bits");
    }
    if (token.substr(0, 2) == "0x") {
      Bytes bytes;
      if (!decode_hex(token.substr(2), bytes.data)) return fail("two hex digits per byte after 0x");
      out = Value(std::move(bytes));
    } else {
      if (!is_number(token)) return fail("a number, or quotes around text");
      double decimal = 0;
      if (std::from_chars(token.data(), token_end, decimal).ec != std::errc()) {
        return fail("a decimal within the range of a double");
      }
      out = Value(decimal);
    }
    at_ = begin + token.size();
    return true;
  }

  static bool decode_hex(std::string_view digits, std::string& out) {
    if (digits.size() % 2 != 0) return false;
    out.reserve(digits.size() / 2);
    for (std::size_t index = 0; index < digits.size(); index += 2) {
      const int high = hex_digit_value(digits[index]);
      const int low = hex_digit_value(digits[index + 1]);
      if (high < 0 || low < 0) return false;
      out += static_cast<char>(high * 16 + low);
    }
    return true;
  }

  bool read_quoted(std::string& out) {
    ++at_;
    for (;;) {
      const std::size_t begin = at_;
      while (!at_end() && peek() != '"' && peek() != '\\' && peek() != '\n') ++at_;
      out.append(text_, begin, at_ - begin);
      if (at_end()) return fail("a closing `\"`");
      if (peek() == '\n') return fail_at(at_, "a newline", "`\\n` between quotes");
      if (peek() == '"') break;
      if (!read_escape(out)) return false;
    }
    ++at_;
    return true;
  }

  bool read_escape(std::string& out) {
    const char letter = at_ + 1 < text_.size() ? text_[at_ + 1] : '\0';
    if (letter == 'x') {
      const std::string_view digits = text_.substr(at_ + 2, 2);
      if (digits.size() < 2 || !decode_hex(digits, out)) {
        return fail_at(at_, quote_token(text_.substr(at_, 4)), "two hex digits after `\\x`");
      }
      at_ += 4;
      return true;
    }
    const Escape* const escape = std::ranges::find(kEscapes, letter, &Escape::letter);
    if (escape == std::end(kEscapes)) {
      return fail_at(at_, quote_token(text_.substr(at_, 1 + utf8_length(text_.substr(at_ + 1)))),
                     R"(one of the escapes `\"` `\\` `\n` `\t` `\r` `\xHH`)");
    }
    out += escape->byte;
    at_ += 2;
    return true;
  }

  bool read_list(Value& out) {
    ++at_;
    skip_blanks();
    Value::List list;
    while (at_end() || peek() != ']') {
      if (at_end()) return fail("a value or `]`");
      if (peek() == ',') return fail_comma(']');
      if (list.empty()) list.reserve(4);
      if (!read_value(list.emplace_back()) || !read_gap(']')) return false;
    }
    ++at_;
    out = Value(std::move(list));
    return true;
  }

  bool read_record(Value& out) {
    ++at_;
    skip_blanks();
    Record record;
    if (at_end() || !is(kWordFirst, peek())) return fail("a verb");
    record.verb = read_run(kWordRest);
    if (!read_gap(')') || !read_fields(record.fields, ')')) return false;
    if (at_end() || peek() != ')') return fail("key=value or `)`");
    ++at_;
    out = Value(std::move(record));
    return true;
  }

  bool read_comment(std::string& out) {
    ++at_;
    const std::string_view comment = text_.substr(at_);
    at_ += comment_length(comment);
    if (!at_end()) return fail("UTF-8 without control bytes in a comment");
    out = comment;
    return true;
  }

  bool fail_comma(char closer) {
    return fail_at(at_, "`,`",
                   closer == ']' ? "a blank: lists are separated by blanks"
                                 : "a blank: fields are separated by blanks");
  }

  bool fail_too_long() {
    return fail_at(limits::kLineBytesMax, "a line of " + std::to_string(text_.size()) + " bytes",
                   "at most " + std::to_string(limits::kLineBytesMax) + " bytes");
  }

  // The token at at_ is not the expected one.
  bool fail(std::string expected) { return fail_at(at_, describe_token(), std::move(expected)); }

  bool fail_at(std::size_t at, std::string found, std::string expected) {
    error_ = {std::string(file_), position(at), std::move(found), std::move(expected)};
    return false;
  }

  std::string describe_token() const {
    constexpr std::string_view kAlone = "[](),=";
    constexpr std::string_view kEnds = " \t[](),\"";
    if (at_end()) return "end of line";
    const std::string_view rest = text_.substr(at_);
    if (is_blank(rest.front())) return "a blank";
    std::size_t end = 1;
    if (rest.front() == '"') {
      end = std::min(rest.find('"', 1), rest.size() - 1) + 1;
    } else if (kAlone.find(rest.front()) == std::string_view::npos) {
      end = std::min(rest.find_first_of(kEnds, 1), rest.size());
    }
    return quote_token(rest.substr(0, end));
  }

  std::string_view text_;
  std::string_view file_;
  std::uint32_t line_number_;
  std::size_t at_ = 0;
  int depth_ = 0;
  InputError error_;
};

template <class T>
Parsed<T> parsed(Parser parser) {
  T read;
  if (!parser.parse(read)) return std::move(parser.error());
  return read;
}

// Verbs and keys: words, including the reserved ones, since their places allow nothing else.
void append_name(std::string& out, std::string_view name) {
  KVFENCE_CHECK(is_word(name), "verbs and keys are words");
  out += name;
}

void append_value(std::string& out, const Value& value, int depth);

void append_field(std::string& out, const Field& field, int depth) {
  append_name(out, field.key);
  out += '=';
  append_value(out, field.value, depth);
}

void append_fields(std::string& out, const std::vector<Field>& fields, int depth) {
  for (const Field& field : fields) {
    out += ' ';
    append_field(out, field, depth);
  }
}

// Appends what a value holds.
struct Printer {
  std::string& out;
  int depth;  // counts the lists and records around the value

  void operator()(None) const { out += "none"; }
  void operator()(bool truth) const { out += truth ? "true" : "false"; }
  void operator()(std::int64_t integer) const {
    std::array<char, 20> buffer;
    char* const end = buffer.data() + buffer.size();
    out.append(buffer.data(), std::to_chars(buffer.data(), end, integer).ptr);
  }
  void operator()(double decimal) const {
    KVFENCE_CHECK(std::isfinite(decimal), "inf and nan are no values of the line language");
    std::array<char, 32> buffer;
    char* const end = buffer.data() + buffer.size();
    const std::string_view text(buffer.data(), std::to_chars(buffer.data(), end, decimal).ptr);
    out += text;
    if (text.find_first_of(".e") == std::string_view::npos) out += ".0";
  }
  void operator()(std::string_view text) const {
    if (is_word(text) && !is_reserved(text)) {
      out += text;
      return;
    }
    out += '"';
    while (!text.empty()) {
      std::size_t length = 0;
      while (length < text.size() && is(kPlain, text[length])) ++length;
      out += text.substr(0, length);
      text.remove_prefix(length);
      if (text.empty()) break;
      if (text.front() == '"' || text.front() == '\\') {
        out += '\\';
        out += text.front();
        text.remove_prefix(1);
      } else {
        text.remove_prefix(append_character(out, text));
      }
    }
    out += '"';
  }
  void operator()(const Bytes& bytes) const {
    out += "0x";
    for (const char byte : bytes.data) append_hex(out, byte);
  }
  void operator()(const Value::List& list) const {
    check_depth();
    out += '[';
    for (const Value& value : list) {
      if (&value != &list.front()) out += ' ';
      append_value(out, value, depth + 1);
    }
    out += ']';
  }
  void operator()(const Record& record) const {
    check_depth();
    out += '(';
    append_name(out, record.verb);
    append_fields(out, record.fields, depth + 1);
    out += ')';
  }

  void check_depth() const {
    KVFENCE_CHECK(depth < limits::kValueDepthMax, "a value nested beyond kValueDepthMax");
  }
};

void append_value(std::string& out, const Value& value, int depth) {
  std::visit(Printer{out, depth}, value.data());
}

}  // namespace

const Field* find_field(const std::vector<Field>& fields, std::string_view key) {
  for (const Field& field : fields) {
    if (field.key == key) return &field;
  }
  return nullptr;
}

std::string InputError::to_text() const {
  std::string out;
  if (!file.empty()) out += file + ":";
  if (position.line != 0) {
    out += std::to_string(position.line) + ":" + std::to_string(position.column) + ":";
  }
  if (!out.empty()) out += ' ';
  out += "found ";
  // A word of a damaged file may be as long as the file.
  constexpr std::size_t kFoundBytesMax = 400;
  if (found.size() <= kFoundBytesMax) {
    out += found;
  } else {
    std::size_t cut = kFoundBytesMax;
    while (cut > 0 && (static_cast<unsigned char>(found[cut]) & 0xC0U) == 0x80U) --cut;
    out.append(found, 0, cut).append("...");
  }
  return out + ", expected " + expected;
}

Parsed<Line> parse_line(std::string_view text, std::string_view file, std::uint32_t line_number) {
  return parsed<Line>({text, file, line_number});
}

Parsed<Value> parse_value(std::string_view text) { return parsed<Value>({text, {}, 1}); }

Parsed<Document> parse_document(std::string_view text, std::string_view file) {
  if (text.substr(0, 3) == "\xef\xbb\xbf") {
    return InputError{std::string(file), {1, 1}, "a UTF-8 byte order mark", "a file without one"};
  }
  Document document;
  document.reserve(static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n')) + 1);
  for (std::uint32_t line_number = 1; !text.empty(); ++line_number) {
    const std::size_t length = std::min(text.find('\n'), text.size());
    Parser parser(text.substr(0, length), file, line_number);
    if (!parser.parse(document.emplace_back())) return std::move(parser.error());
    text.remove_prefix(std::min(length + 1, text.size()));
  }
  return document;
}

void print_to(std::string& out, const Value& value) { append_value(out, value, 0); }

void print_to(std::string& out, const Field& field) { append_field(out, field, 0); }

void print_to(std::string& out, const Line& line) {
  const std::size_t begin = out.size();
  const auto separate = [&out, begin] {
    if (out.size() > begin) out += ' ';
  };
  if (line.verb.empty()) {
    KVFENCE_CHECK(line.fields.empty() && line.subject.empty(), "fields without a verb");
  } else {
    append_name(out, line.verb);
    if (!line.subject.empty()) {
      out += ' ';
      append_name(out, line.subject);
    }
    append_fields(out, line.fields, 0);
  }
  if (line.expectation) {
    separate();
    out += "->";
    append_fields(out, *line.expectation, 0);
  }
  if (!line.comment.empty()) {
    KVFENCE_CHECK(comment_length(line.comment) == line.comment.size(),
                  "a comment is UTF-8 without control bytes");
    separate();
    out += '#';
    out += line.comment;
  }
}

std::string print(const Value& value) {
  std::string out;
  print_to(out, value);
  return out;
}

std::string print(const Line& line) {
  std::string out;
  print_to(out, line);
  return out;
}

std::string print(const Document& document) {
  std::string out;
  for (const Line& line : document) {
    print_to(out, line);
    out += '\n';
  }
  return out;
}

}  // namespace kvfence
