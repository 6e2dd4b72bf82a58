// Goal: the line language is exactly what contract/line_language.md says, both ways, for any
// bytes. Method: each point of the grammar and each error by example; then random values printed
// and parsed back, and every prefix and every mutation of one byte of a sample document.

#include "contract/core/line.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "contract/core/limits.h"

namespace kvfence {
namespace {

using std::string;
using std::string_view;
using namespace std::literals;

Value value_of(string_view text) {
  const Parsed<Value> parsed = parse_value(text);
  EXPECT_TRUE(parsed) << text;
  return parsed ? *parsed : Value();
}

Line line_of(string_view text) {
  const Parsed<Line> parsed = parse_line(text);
  EXPECT_TRUE(parsed) << text;
  return parsed ? *parsed : Line();
}

string value_error(string_view text) {
  const Parsed<Value> parsed = parse_value(text);
  return parsed ? "parsed: " + print(*parsed) : parsed.error().to_text();
}

string line_error(string_view text) {
  const Parsed<Line> parsed = parse_line(text, "a.kvs", 7);
  return parsed ? "parsed: " + print(*parsed) : parsed.error().to_text();
}

string canonical_line(string_view text) { return print(line_of(text)); }
string canonical_value(string_view text) { return print(value_of(text)); }

Value text_value(string text) { return Value(std::move(text)); }
Value integer_value(std::int64_t integer) { return Value(integer); }

Field field(string key, Value value) { return {std::move(key), std::move(value), {}}; }

// A value under num_levels lists.
Value nested(int num_levels) {
  Value value;
  for (int level = 0; level < num_levels; ++level) value = Value(Value::List(1, value));
  return value;
}

string nested_text(int num_levels) {
  const auto count = static_cast<std::size_t>(num_levels);
  return string(count, '[') + "none" + string(count, ']');
}

TEST(Line, HoldsVerbFieldsExpectationAndComment) {
  const Line line = line_of("allocate request=r1 n=4 -> blocks=[1 2] # note");

  EXPECT_EQ(line.verb, "allocate");
  EXPECT_EQ(line.fields,
            (std::vector<Field>{field("request", text_value("r1")), field("n", integer_value(4))}));
  ASSERT_TRUE(line.expectation);
  EXPECT_EQ(*line.expectation,
            (std::vector<Field>{
                field("blocks", Value(Value::List{integer_value(1), integer_value(2)}))}));
  EXPECT_EQ(line.comment, " note");
}

TEST(Line, KnowsWhereThingsStand) {
  const Parsed<Line> line = parse_line("  touch blocks=(set n=1) -> ok=true", "a.kvs", 9);
  ASSERT_TRUE(line);

  EXPECT_EQ(line->position.line, 9U);
  EXPECT_EQ(line->position.column, 3U);
  EXPECT_EQ(line->fields[0].position.line, 9U);
  EXPECT_EQ(line->fields[0].position.column, 9U);
  const auto* record = line->fields[0].value.get_if<Record>();
  ASSERT_NE(record, nullptr);
  EXPECT_EQ(record->fields[0].position.column, 21U);
  EXPECT_EQ((*line->expectation)[0].position.column, 29U);
}

TEST(Line, FindFieldFindsTheKeyOrNothing) {
  const Line line = line_of("touch a=1 b=2");

  EXPECT_EQ(find_field(line.fields, "b"), &line.fields[1]);
  EXPECT_EQ(find_field(line.fields, "c"), nullptr);
}

TEST(Line, ABlankLineIsAnEmptyLine) {
  EXPECT_EQ(line_of(""), Line());
  EXPECT_EQ(line_of(" \t "), Line());
  EXPECT_EQ(print(Line()), "");
}

TEST(Line, ABareArrowIsAnEmptyExpectation) {
  const Line line = line_of("drain ->");

  ASSERT_TRUE(line.expectation);
  EXPECT_TRUE(line.expectation->empty());
  EXPECT_EQ(print(line), "drain ->");
  EXPECT_FALSE(line_of("drain").expectation);
}

TEST(Line, AReplyBeginsWithItsArrow) {
  const Line line = line_of("-> status=none");

  EXPECT_EQ(line.verb, "");
  ASSERT_TRUE(line.expectation);
  EXPECT_EQ(line.expectation->size(), 1U);
  EXPECT_EQ(print(line), "-> status=none");
  EXPECT_EQ(canonical_line("->"), "->");
}

TEST(Line, CommentsKeepTheirText) {
  EXPECT_EQ(line_of("# hello").comment, " hello");
  EXPECT_EQ(canonical_line("# hello"), "# hello");
  EXPECT_EQ(canonical_line("   #  two  blanks  "), "#  two  blanks  ");
  EXPECT_EQ(canonical_line("drain   #x -> # y"), "drain #x -> # y");
  EXPECT_EQ(canonical_line("-> a=1 # \xc3\xa4\tb"), "-> a=1 # \xc3\xa4\tb");
  EXPECT_EQ(line_of("#"), Line());
}

TEST(Line, DropsBlanksThatMeanNothing) {
  EXPECT_EQ(canonical_line(" \t touch \t a=1   b=[ 1\t 2 ]  ->   c=( set  n=1 )  "),
            "touch a=1 b=[1 2] -> c=(set n=1)");
}

TEST(Line, DropsOneCarriageReturnAtTheEnd) {
  EXPECT_EQ(canonical_line("touch a=1\r"), "touch a=1");
  EXPECT_EQ(canonical_line("\r"), "");
  EXPECT_EQ(line_of("# hi\r").comment, " hi");
}

TEST(Line, ReservedWordsMayBeVerbsAndKeys) {
  EXPECT_EQ(canonical_line("none true=1 -> false=(true none=none)"),
            "none true=1 -> false=(true none=none)");
}

TEST(Line, TheSameKeyMayStandOnBothSidesOfTheArrow) {
  EXPECT_EQ(canonical_line("touch n=1 -> n=(n n=2)"), "touch n=1 -> n=(n n=2)");
}

TEST(Line, EqualityIgnoresPositions) { EXPECT_EQ(line_of("a  b=1"), line_of("  a b=1")); }

TEST(Value, HasEightKinds) {
  EXPECT_EQ(value_of("none"), Value());
  EXPECT_EQ(value_of("true"), Value(true));
  EXPECT_EQ(value_of("false"), Value(false));
  EXPECT_EQ(value_of("-12"), integer_value(-12));
  EXPECT_EQ(value_of("0.5"), Value(0.5));
  EXPECT_EQ(value_of("word"), text_value("word"));
  EXPECT_EQ(value_of("0x00fF"), Value(Bytes{"\x00\xff"s}));
  EXPECT_EQ(value_of("[]"), Value(Value::List{}));
  EXPECT_EQ(value_of("(verb)"), Value(Record{"verb", {}}));
}

TEST(Value, MayStandBetweenBlanks) { EXPECT_EQ(canonical_value("  7\t"), "7"); }

TEST(Value, AWordPrintsBare) {
  for (const string_view word :
       {"A:0*2/1"sv, "v0.19"sv, "sha256_cbor"sv, "_"sv, "a-"sv, "inf"sv, "nan"sv, "None"sv}) {
    SCOPED_TRACE(word);
    EXPECT_EQ(value_of(word), text_value(string(word)));
    EXPECT_EQ(print(text_value(string(word))), word);
  }
}

TEST(Value, OtherTextPrintsQuoted) {
  const std::vector<std::pair<string, string>> cases = {
      {"", R"("")"},
      {"none", R"("none")"},
      {"true", R"("true")"},
      {"false", R"("false")"},
      {"12", R"("12")"},
      {"0x12", R"("0x12")"},
      {"->", R"("->")"},
      {"#", R"("#")"},
      {"two words", R"("two words")"},
      {"a,b", R"("a,b")"},
      {"a\"b\\c", R"("a\"b\\c")"},
      {"\n\t\r", R"("\n\t\r")"},
      {"\0\x01\x1f\x7f"s, R"("\x00\x01\x1f\x7f")"},
      {"\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80", "\"\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80\""},
  };
  for (const auto& [text, printed] : cases) {
    SCOPED_TRACE(printed);
    EXPECT_EQ(print(text_value(text)), printed);
    EXPECT_EQ(value_of(printed), text_value(text));
  }
}

TEST(Value, BytesThatAreNotUtf8AreEscaped) {
  const std::vector<std::pair<string, string>> cases = {
      {"\x80", R"("\x80")"},                          // a continuation alone
      {"\xc3", R"("\xc3")"},                          // cut short
      {"\xc3(", R"("\xc3(")"},                        // not continued
      {"\xc0\xaf", R"("\xc0\xaf")"},                  // overlong, two bytes
      {"\xe0\x80\xaf", R"("\xe0\x80\xaf")"},          // overlong, three
      {"\xf0\x80\x80\xaf", R"("\xf0\x80\x80\xaf")"},  // overlong, four
      {"\xed\xa0\x80", R"("\xed\xa0\x80")"},          // a surrogate
      {"\xf4\x90\x80\x80", R"("\xf4\x90\x80\x80")"},  // beyond U+10FFFF
      {"\xf5", R"("\xf5")"},
      {"\xe2\x82", R"("\xe2\x82")"},
      {"\xf0\x9f\x98", R"("\xf0\x9f\x98")"},
  };
  for (const auto& [text, printed] : cases) {
    SCOPED_TRACE(printed);
    EXPECT_EQ(print(text_value(text)), printed);
    EXPECT_EQ(value_of(printed), text_value(text));
  }
}

TEST(Value, TheFirstAndTheLastCharactersOfEachLengthAreUtf8) {
  for (const char* text : {"\xc2\x80", "\xdf\xbf", "\xe0\xa0\x80", "\xed\x9f\xbf", "\xef\xbf\xbf",
                           "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf"}) {
    EXPECT_EQ(print(text_value(text)), '"' + string(text) + '"');
  }
}

TEST(Value, QuotesAreReadGenerously) {
  EXPECT_EQ(canonical_value(R"("word")"), "word");
  EXPECT_EQ(canonical_value("\"\t\x01\xff\""), R"("\t\x01\xff")");
  EXPECT_EQ(canonical_value(R"("\xC3\xA4")"), "\"\xc3\xa4\"");
  EXPECT_EQ(canonical_value(R"("\x61")"), "a");
}

TEST(Value, IntegersHave64Bits) {
  EXPECT_EQ(value_of("9223372036854775807"),
            integer_value(std::numeric_limits<std::int64_t>::max()));
  EXPECT_EQ(value_of("-9223372036854775808"),
            integer_value(std::numeric_limits<std::int64_t>::min()));
  EXPECT_EQ(print(integer_value(std::numeric_limits<std::int64_t>::min())), "-9223372036854775808");
  EXPECT_EQ(canonical_value("-0"), "0");
  EXPECT_EQ(canonical_value("007"), "7");
}

TEST(Value, DecimalsNeverReadAsIntegers) {
  EXPECT_EQ(print(Value(1.0)), "1.0");
  EXPECT_EQ(print(Value(-0.0)), "-0.0");
  EXPECT_EQ(print(Value(0.1)), "0.1");
  EXPECT_EQ(print(Value(1e300)), "1e+300");
  EXPECT_EQ(print(Value(5e-324)), "5e-324");
  EXPECT_EQ(value_of("5e-324"), Value(5e-324));
  EXPECT_EQ(value_of("1E+2"), Value(100.0));
  EXPECT_EQ(value_of("1e2"), Value(100.0));
  EXPECT_EQ(canonical_value("-1.50"), "-1.5");
  EXPECT_TRUE(std::signbit(*value_of("-0.0").get_if<double>()));
  EXPECT_FALSE(value_of("1.0") == value_of("1"));
}

TEST(Value, BytesPrintAsLowerCaseHex) {
  EXPECT_EQ(canonical_value("0xAbCd"), "0xabcd");
  EXPECT_EQ(value_of("0x"), Value(Bytes{}));
  EXPECT_EQ(print(Value(Bytes{})), "0x");
}

TEST(Value, ListsAndRecordsNestInEachOther) {
  for (const string_view text :
       {"[]"sv, "[[] []]"sv, "(a)"sv, "[(a b=1) (c) 2]"sv, "(a b=[(c d=[0x00 none])] e=(f))"sv}) {
    SCOPED_TRACE(text);
    EXPECT_EQ(canonical_value(text), text);
  }
}

TEST(Value, NestsAsDeepAsTheLimit) {
  EXPECT_EQ(value_of(nested_text(limits::kValueDepthMax)), nested(limits::kValueDepthMax));
  EXPECT_EQ(print(nested(limits::kValueDepthMax)), nested_text(limits::kValueDepthMax));
  const string record = "[(a b=" + nested_text(limits::kValueDepthMax - 2) + ") [] (c)]";
  EXPECT_EQ(canonical_value(record), record);
}

TEST(LineErrors, OfTheVerb) {
  EXPECT_EQ(line_error("12"), "a.kvs:7:1: found `12`, expected a verb");
  EXPECT_EQ(line_error("  \"touch\" a=1"), "a.kvs:7:3: found `\"touch\"`, expected a verb");
  EXPECT_EQ(line_error("\"\" touch \"\""), "a.kvs:7:1: found `\"\"`, expected a verb");
  EXPECT_EQ(line_error("a=1 b=2"), "a.kvs:7:1: found `a=1`, expected a verb before the fields");
  EXPECT_EQ(line_error("touch[1]"), "a.kvs:7:6: found `[`, expected a blank");
  EXPECT_EQ(line_error("touch#"), "a.kvs:7:6: found `#`, expected a blank");
  EXPECT_EQ(line_error("\x01"), "a.kvs:7:1: found `\\x01`, expected a verb");
  EXPECT_EQ(line_error("\xff"), "a.kvs:7:1: found `\\xff`, expected a verb");
  EXPECT_EQ(line_error("\0"sv), "a.kvs:7:1: found `\\x00`, expected a verb");
}

TEST(LineErrors, OfTheFields) {
  EXPECT_EQ(line_error("touch 12"), "a.kvs:7:7: found `12`, expected key=value");
  EXPECT_EQ(line_error("touch a blocks"), "a.kvs:7:9: found `blocks`, expected key=value");
  EXPECT_EQ(line_error("touch n =1"), "a.kvs:7:9: found `=`, expected key=value");
  EXPECT_EQ(line_error("touch n="), "a.kvs:7:9: found end of line, expected a value");
  EXPECT_EQ(line_error("touch n= 1"), "a.kvs:7:9: found a blank, expected a value");
  EXPECT_EQ(line_error("touch n=->"), "a.kvs:7:9: found `->`, expected a value");
  EXPECT_EQ(line_error("touch n=# 1"), "a.kvs:7:9: found `#`, expected a value");
  EXPECT_EQ(line_error("touch n=1#c"), "a.kvs:7:10: found `#c`, expected a blank");
  EXPECT_EQ(line_error("touch n=\"a\"m=1"), "a.kvs:7:12: found `m=1`, expected a blank");
  EXPECT_EQ(line_error("touch n=1, m=2"),
            "a.kvs:7:10: found `,`, expected a blank: fields are separated by blanks");
  EXPECT_EQ(line_error("touch n=1 )"), "a.kvs:7:11: found `)`, expected key=value");
  EXPECT_EQ(line_error("touch n=1 \r\r"), "a.kvs:7:11: found `\\r`, expected key=value");
  EXPECT_EQ(line_error("touch n=1\n"), "a.kvs:7:10: found `\\n`, expected a blank");
}

TEST(LineErrors, OfAKeyGivenTwice) {
  EXPECT_EQ(line_error("touch n=1 m=2 n=3"),
            "a.kvs:7:15: found key n given twice, expected each key once");
  EXPECT_EQ(line_error("-> n=1 n=1"), "a.kvs:7:8: found key n given twice, expected each key once");
  EXPECT_EQ(line_error("touch a=(b n=1 n=1)"),
            "a.kvs:7:16: found key n given twice, expected each key once");
}

// Beyond a few keys they are looked up in another way.
TEST(LineErrors, OfAKeyGivenTwiceAmongMany) {
  for (int num_keys = 2; num_keys < 40; ++num_keys) {
    SCOPED_TRACE(num_keys);
    string text = "touch";
    for (int key = 0; key < num_keys; ++key) text += " k" + std::to_string(key) + "=1";

    EXPECT_EQ(canonical_line(text), text);
    for (int key = 0; key < num_keys; ++key) {
      const string name = "k" + std::to_string(key);
      EXPECT_EQ(line_error(text + " " + name + "=2"), "a.kvs:7:" + std::to_string(text.size() + 2) +
                                                          ": found key " + name +
                                                          " given twice, expected each key once");
    }
  }
}

TEST(LineErrors, OfTheArrow) {
  EXPECT_EQ(line_error("touch -> ->"), "a.kvs:7:10: found a second `->`, expected one at most");
  EXPECT_EQ(line_error("-> n=1 -> m=1"), "a.kvs:7:8: found a second `->`, expected one at most");
  EXPECT_EQ(line_error("touch ->n=1"), "a.kvs:7:9: found `n=1`, expected a blank");
  EXPECT_EQ(line_error("touch n=1->"),
            "a.kvs:7:9: found `1->`, expected a number, or quotes around text");
  EXPECT_EQ(line_error("touch->"), "a.kvs:7:7: found `>`, expected a blank");
  EXPECT_EQ(line_error("touch - >"), "a.kvs:7:7: found `-`, expected key=value");
}

TEST(LineErrors, OfTheComment) {
  EXPECT_EQ(line_error("# a\x01"),
            "a.kvs:7:4: found `\\x01`, expected UTF-8 without control bytes in a comment");
  EXPECT_EQ(line_error("touch #\xe2\x82"),
            "a.kvs:7:8: found `\\xe2\\x82`, expected UTF-8 without control bytes in a comment");
  EXPECT_EQ(line_error("# a\nb"),
            "a.kvs:7:4: found `\\nb`, expected UTF-8 without control bytes in a comment");
}

TEST(LineErrors, OfALineTooLong) {
  const string longest = "#" + string(limits::kLineBytesMax - 1, 'a');

  EXPECT_TRUE(parse_line(longest));
  EXPECT_EQ(line_error(longest + "a"),
            "a.kvs:7:16777217: found a line of 16777217 bytes, expected at most 16777216 bytes");
  EXPECT_EQ(value_error(longest + "a"),
            "1:16777217: found a line of 16777217 bytes, expected at most 16777216 bytes");
}

TEST(ValueErrors, OfAValueAlone) {
  EXPECT_EQ(value_error(""), "1:1: found end of line, expected a value");
  EXPECT_EQ(value_error("=1"), "1:1: found `=`, expected a value");
  EXPECT_EQ(value_error("1 2"), "1:3: found `2`, expected the end of the value");
  EXPECT_EQ(value_error("1 # one"), "1:3: found `#`, expected the end of the value");
  EXPECT_EQ(value_error("\xc3\xa4"), "1:1: found `\xc3\xa4`, expected a value");
}

TEST(ValueErrors, OfNumbers) {
  const string number = ", expected a number, or quotes around text";
  for (const string_view text :
       {"-"sv, "--1"sv, "1."sv, "-.5"sv, "1.5."sv, "1e"sv, "1e+"sv, "1x"sv, "-inf"sv, "-nan"sv,
        "1:2"sv, "1+1"sv, "0*2/1"sv, "-0x00"sv, "0X00"sv, "1.e5"sv}) {
    EXPECT_EQ(value_error(text), "1:1: found `" + string(text) + "`" + number);
  }
  EXPECT_EQ(value_error("+1"), "1:1: found `+1`, expected a value");
  EXPECT_EQ(value_error(".5"), "1:1: found `.5`, expected a value");
  EXPECT_EQ(value_error("9223372036854775808"),
            "1:1: found `9223372036854775808`, expected an integer of at most 64 bits");
  EXPECT_EQ(value_error("-9223372036854775809"),
            "1:1: found `-9223372036854775809`, expected an integer of at most 64 bits");
  EXPECT_EQ(value_error("1e999"),
            "1:1: found `1e999`, expected a decimal within the range of a double");
}

TEST(ValueErrors, OfBytes) {
  EXPECT_EQ(value_error("0x0"), "1:1: found `0x0`, expected two hex digits per byte after 0x");
  EXPECT_EQ(value_error("0x0g"), "1:1: found `0x0g`, expected two hex digits per byte after 0x");
}

TEST(ValueErrors, OfQuotes) {
  const string escapes = R"(, expected one of the escapes `\"` `\\` `\n` `\t` `\r` `\xHH`)";
  EXPECT_EQ(value_error("\"abc"), "1:5: found end of line, expected a closing `\"`");
  EXPECT_EQ(value_error("\"a\nb\""), "1:3: found a newline, expected `\\n` between quotes");
  EXPECT_EQ(value_error(R"("a\q")"), R"(1:3: found `\q`)" + escapes);
  EXPECT_EQ(value_error(R"("\)"), R"(1:2: found `\`)" + escapes);
  EXPECT_EQ(value_error(R"("\x4")"), R"(1:2: found `\x4"`, expected two hex digits after `\x`)");
  EXPECT_EQ(value_error(R"("\x)"), R"(1:2: found `\x`, expected two hex digits after `\x`)");
  EXPECT_EQ(value_error(R"("a"b)"), "1:4: found `b`, expected the end of the value");
}

TEST(ValueErrors, OfLists) {
  const string comma = "found `,`, expected a blank: lists are separated by blanks";
  EXPECT_EQ(value_error("[1,2]"), "1:3: " + comma);
  EXPECT_EQ(value_error("[1 ,2]"), "1:4: " + comma);
  EXPECT_EQ(value_error("[,]"), "1:2: " + comma);
  EXPECT_EQ(value_error("[1"), "1:3: found end of line, expected a value or `]`");
  EXPECT_EQ(value_error("["), "1:2: found end of line, expected a value or `]`");
  EXPECT_EQ(value_error("[1)"), "1:3: found `)`, expected a blank or `]`");
  EXPECT_EQ(value_error("[1[2]]"), "1:3: found `[`, expected a blank or `]`");
  EXPECT_EQ(value_error("[1 )"), "1:4: found `)`, expected a value");
  EXPECT_EQ(value_error("]"), "1:1: found `]`, expected a value");
  EXPECT_EQ(value_error("[a=1]"), "1:3: found `=`, expected a blank or `]`");
}

TEST(ValueErrors, OfRecords) {
  EXPECT_EQ(value_error("()"), "1:2: found `)`, expected a verb");
  EXPECT_EQ(value_error("("), "1:2: found end of line, expected a verb");
  EXPECT_EQ(value_error("(1)"), "1:2: found `1`, expected a verb");
  EXPECT_EQ(value_error("(a=1)"), "1:3: found `=`, expected a blank or `)`");
  EXPECT_EQ(value_error("(a b=1"), "1:7: found end of line, expected key=value or `)`");
  EXPECT_EQ(value_error("(a b)"), "1:4: found `b`, expected key=value or `)`");
  EXPECT_EQ(value_error("(a b=1]"), "1:7: found `]`, expected a blank or `)`");
  EXPECT_EQ(value_error("(a -> b=1)"), "1:4: found `->`, expected key=value or `)`");
  EXPECT_EQ(value_error("(a b=1,c=2)"),
            "1:7: found `,`, expected a blank: fields are separated by blanks");
}

TEST(ValueErrors, OfNestingTooDeep) {
  const string expected = "expected at most 16 levels of lists and records";
  EXPECT_EQ(value_error(nested_text(17)), "1:17: found `[`, " + expected);
  EXPECT_EQ(value_error(string(16, '[') + "(a)"), "1:17: found `(`, " + expected);
  EXPECT_EQ(value_error(string(1000000, '[')), "1:17: found `[`, " + expected);
}

TEST(InputError, ShortensLongTokensToFortyBytes) {
  EXPECT_EQ(value_error("1" + string(39, 'a')),
            "1:1: found `1" + string(39, 'a') + "`, expected a number, or quotes around text");
  EXPECT_EQ(value_error("1" + string(40, 'a')),
            "1:1: found `1" + string(36, 'a') + "...`, expected a number, or quotes around text");
  EXPECT_EQ(value_error(string(39, '\x01')),
            "1:1: found `" + string("\\x01\\x01\\x01\\x01\\x01\\x01\\x01\\x01\\x01") +
                "...`, expected a value");
}

TEST(InputError, LeavesOutWhatItDoesNotKnow) {
  EXPECT_EQ((InputError{"a.kvs", {3, 5}, "x", "y"}.to_text()), "a.kvs:3:5: found x, expected y");
  EXPECT_EQ((InputError{"", {3, 5}, "x", "y"}.to_text()), "3:5: found x, expected y");
  EXPECT_EQ((InputError{"a.kvs", {}, "x", "y"}.to_text()), "a.kvs: found x, expected y");
  // Cut between two characters.
  EXPECT_EQ((InputError{"", {}, string(399, 'x') + "\xc3\xa4" + string(1000, 'x'), "y"}.to_text()),
            "found " + string(399, 'x') + "..., expected y");
  EXPECT_EQ((InputError{"", {}, "x", "y"}.to_text()), "found x, expected y");
}

TEST(Document, KeepsEveryLine) {
  const string text = "# head\n\ntarget block_pool\ntouch blocks=[1] -> # why\n";
  const Parsed<Document> document = parse_document(text);
  ASSERT_TRUE(document);

  ASSERT_EQ(document->size(), 4U);
  EXPECT_EQ((*document)[3].position.line, 4U);
  EXPECT_EQ(print(*document), text);
}

TEST(Document, TheLastNewlineMayBeMissing) {
  const Parsed<Document> document = parse_document("a\nb");
  ASSERT_TRUE(document);

  EXPECT_EQ(print(*document), "a\nb\n");
}

TEST(Document, MayBeEmpty) {
  const Parsed<Document> empty = parse_document("");
  const Parsed<Document> blank = parse_document("\n");
  ASSERT_TRUE(empty && blank);

  EXPECT_TRUE(empty->empty());
  EXPECT_EQ(blank->size(), 1U);
  EXPECT_EQ(print(*blank), "\n");
}

TEST(Document, AcceptsCarriageReturns) {
  const Parsed<Document> document = parse_document("a b=1\r\n# c\r\n");
  ASSERT_TRUE(document);

  EXPECT_EQ(print(*document), "a b=1\n# c\n");
}

TEST(LineSubject, IsABareWordAfterTheVerb) {
  const Line line = line_of("target  block_pool n=1 -> ok=true # why");

  EXPECT_EQ(line.verb, "target");
  EXPECT_EQ(line.subject, "block_pool");
  EXPECT_EQ(print(line), "target block_pool n=1 -> ok=true # why");
  EXPECT_EQ(line_of("touch n=1").subject, "");
}

TEST(Document, ErrorsNameFileAndLine) {
  EXPECT_EQ(parse_document("a\n\n  b c d\n", "x/y.kvs").error().to_text(),
            "x/y.kvs:3:7: found `d`, expected key=value");
  EXPECT_EQ(parse_document("\xef\xbb\xbf"
                           "a\n",
                           "x.kvs")
                .error()
                .to_text(),
            "x.kvs:1:1: found a UTF-8 byte order mark, expected a file without one");
}

TEST(PrintDeathTest, RefusesWhatHasNoText) {
  const auto line_with = [](auto change) {
    Line line;
    line.verb = "touch";
    change(line);
    return line;
  };
  EXPECT_DEATH(print(Value(std::numeric_limits<double>::infinity())), "inf and nan");
  EXPECT_DEATH(print(Value(std::numeric_limits<double>::quiet_NaN())), "inf and nan");
  EXPECT_DEATH(print(nested(limits::kValueDepthMax + 1)), "kValueDepthMax");
  EXPECT_DEATH(print(Value(Record())), "verbs and keys are words");
  EXPECT_DEATH(print(line_with([](Line& line) { line.verb = "two words"; })),
               "verbs and keys are words");
  EXPECT_DEATH(print(line_with([](Line& line) { line.fields = {field("1", Value())}; })),
               "verbs and keys are words");
  EXPECT_DEATH(print(line_with([](Line& line) {
                 line.verb = "";
                 line.fields = {field("n", Value())};
               })),
               "fields without a verb");
  EXPECT_DEATH(print(line_with([](Line& line) { line.comment = "a\nb"; })), "a comment is UTF-8");
  EXPECT_DEATH(print(line_with([](Line& line) { line.comment = "\xff"; })), "a comment is UTF-8");
}

// Random values of every kind, from a seed alone (splitmix64).
class Generator {
 public:
  explicit Generator(std::uint64_t seed) : state_(seed) {}

  Line line() {
    Line line;
    if (below(8) != 0) {
      line.verb = word();
      line.fields = fields(0);
    }
    if (below(2) == 0) line.expectation = fields(0);
    if (below(4) == 0) line.comment = " why: # \xe2\x82\xac " + word();
    return line;
  }

  Value value(int depth) {
    const bool leaf = depth == limits::kValueDepthMax;
    switch (below(leaf ? 6 : 9)) {
      case 0:
        return Value();
      case 1:
        return Value(below(2) == 0);
      case 2:
        return Value(integer());
      case 3:
        return Value(decimal());
      case 4:
        return Value(below(2) == 0 ? word() : bytes());
      case 5:
        return Value(Bytes{bytes()});
      case 6:
        return nested(static_cast<int>(
            below(static_cast<std::uint64_t>(limits::kValueDepthMax - depth) + 1)));
      case 7: {
        Value::List list;
        for (std::uint64_t left = below(4); left > 0; --left) list.push_back(value(depth + 1));
        return Value(std::move(list));
      }
      default:
        return Value(Record{word(), fields(depth + 1)});
    }
  }

 private:
  std::uint64_t next() {
    state_ += 0x9e3779b97f4a7c15;
    std::uint64_t bits = state_;
    bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9;
    bits = (bits ^ (bits >> 27)) * 0x94d049bb133111eb;
    return bits ^ (bits >> 31);
  }

  std::uint64_t below(std::uint64_t bound) { return next() % bound; }

  std::int64_t integer() { return static_cast<std::int64_t>(next() >> below(64)); }

  double decimal() {
    const double any = std::bit_cast<double>(next());
    if (below(4) == 0 || !std::isfinite(any)) return static_cast<double>(integer());
    return any;
  }

  string word() {
    constexpr string_view kFirst = "abnotfeAZ_";
    constexpr string_view kRest = "abxnoetrufls0179_.:/*-";
    string out(1, kFirst[below(kFirst.size())]);
    for (std::uint64_t left = below(6); left > 0; --left) out += kRest[below(kRest.size())];
    return below(8) == 0 ? "none" : out;
  }

  // Biased to what the printer has to look at.
  string bytes() {
    constexpr std::array<string_view, 12> kPieces = {
        "\"",    "\\", "\n", " ", "\xc3\xa4", "\xe2\x82\xac", "\xe2", "\x9f", "\xf0\x9f\x98\x80",
        "\\x41", "#",  "->"};
    string out;
    for (std::uint64_t left = below(8); left > 0; --left) {
      if (below(2) == 0) {
        out += kPieces[below(kPieces.size())];
      } else {
        out += static_cast<char>(below(256));
      }
    }
    return out;
  }

  std::vector<Field> fields(int depth) {
    std::vector<Field> out;
    for (std::uint64_t left = below(below(16) == 0 ? 24 : 4); left > 0; --left) {
      string key = word();
      if (find_field(out, key) == nullptr) out.push_back(field(std::move(key), value(depth)));
    }
    return out;
  }

  std::uint64_t state_;
};

TEST(RoundTrip, RandomLinesComeBack) {
  Generator generator(20);
  for (int round = 0; round < 5000; ++round) {
    const Line line = generator.line();
    const string text = print(line);
    SCOPED_TRACE(text);

    const Parsed<Line> parsed = parse_line(text);
    ASSERT_TRUE(parsed) << parsed.error().to_text();
    ASSERT_EQ(*parsed, line);
    ASSERT_EQ(print(*parsed), text);
  }
}

TEST(RoundTrip, RandomValuesComeBack) {
  Generator generator(30);
  std::array<int, std::variant_size_v<Value::Variant>> num_of_kind{};
  for (int round = 0; round < 5000; ++round) {
    const Value value = generator.value(0);
    ++num_of_kind[value.data().index()];
    const string text = print(value);
    SCOPED_TRACE(text);

    const Parsed<Value> parsed = parse_value(text);
    ASSERT_TRUE(parsed) << parsed.error().to_text();
    ASSERT_EQ(*parsed, value);
    ASSERT_EQ(print(*parsed), text);
  }
  for (const int num : num_of_kind) EXPECT_GT(num, 100);
}

constexpr string_view kSample =
    "# a sample \xe2\x82\xac\n"
    "target block_pool\n"
    "\n"
    "config n=8 ratio=0.25 big=1e+30 flag=true name=\"a b\\\\\\x01\\n\" key=0x00ff\r\n"
    "touch b=[3 [-4 none] (set a=1 c=(d))] -> status=none m=[] # why\n"
    "-> w=A:0*2/1\n"
    "drain ->";

// Whatever parses, prints to a text that parses to the same again. Returns whether it parsed.
bool round_trips_if_it_parses(string_view text) {
  const Parsed<Document> document = parse_document(text, "f");
  if (!document) {
    const string error = document.error().to_text();
    EXPECT_EQ(error.rfind("f:", 0), 0U) << error;
    EXPECT_EQ(error.find('\n'), string::npos) << error;
    return false;
  }
  const string printed = print(*document);
  const Parsed<Document> again = parse_document(printed);
  EXPECT_TRUE(again) << text;
  EXPECT_TRUE(again && *again == *document && print(*again) == printed) << text;
  return true;
}

TEST(RoundTrip, EveryPrefixOfADocument) {
  ASSERT_TRUE(round_trips_if_it_parses(kSample));
  int num_parsed = 0;
  for (std::size_t length = 0; length < kSample.size(); ++length) {
    num_parsed += round_trips_if_it_parses(kSample.substr(0, length)) ? 1 : 0;
  }
  EXPECT_GT(num_parsed, 50);
}

TEST(RoundTrip, EveryMutationOfOneByteOfADocument) {
  int num_parsed = 0;
  for (std::size_t index = 0; index < kSample.size(); ++index) {
    string text(kSample);
    for (int byte = 0; byte < 256; ++byte) {
      text[index] = static_cast<char>(byte);
      num_parsed += round_trips_if_it_parses(text) ? 1 : 0;
    }
  }
  EXPECT_GT(num_parsed, 5000);
}

}  // namespace
}  // namespace kvfence
