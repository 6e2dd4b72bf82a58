#pragma once

/// How a target declares its commands and observations: once, as structs with a list of named
/// members.
///
/// Parser, printer, equality, wire protocol, generators, fuzz decoder, shrinker, --help and the
/// reference documentation all derive from these declarations. A declared struct has
///
///     static void declare(auto& fields) {
///       fields.add("name", &Struct::member, Domain::kX, "doc");
///       fields.optional("other", &Struct::other, Domain::kY, "doc");
///       fields.add("third", &Struct::third, "doc");
///       fields.result("fourth", &Struct::fourth, "doc");  // with Domain::kResult, or state
///     }
///
/// and a command has `Verb kVerb` besides, and no declare() where it has no members. An optional
/// member is left out of the text where it equals the default. A namespace of declared structs has
/// `using kvfence::operator==;`, which compares the declared members and no others.

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "contract/core/declared_object.h"
#include "contract/core/line.h"
#include "contract/core/words.h"

namespace kvfence {

/// The meaning of an argument: generators draw by it, the shrinker simplifies by it, the
/// documentation names it.
enum class Domain : unsigned char {
  kFlag,        ///< true or false
  kCount,       ///< how many
  kBlocks,      ///< block ids, any order, repeats allowed
  kTokens,      ///< token ids
  kRequest,     ///< the name of a request
  kGroup,       ///< a KV-cache group id
  kGroups,      ///< KV-cache group ids
  kBlockSize,   ///< tokens that a block of a group holds
  kHashIndex,   ///< index of a block within a request
  kBlockCount,  ///< number of leading blocks of a request
  kMask,        ///< one flag per block
  kTokenCount,  ///< how many tokens
  kText,        ///< free text
  kRequests,    ///< names of requests
  kChoice,      ///< one word of a few
  kSamples,     ///< (sample request tokens) records
  kKey,         ///< the number of an offload key
  kKeys,        ///< numbers of offload keys, any order, repeats allowed
  kMultimodal,  ///< (item identifier offset length) records
  kNumber,      ///< the number of a job, transfer, read or notice: they count up from 0
  kAnswers,     ///< what parts that are scripted answer, in their order
  kPlain,       ///< none of these: a setting, drawn by the target itself; part of a list's element
  kResult,      ///< part of an observation: what the command answered
  kState,       ///< part of an observation: what the implementation holds after the command
};

/// The domains' names in the documentation.
constexpr auto words_of(Domain) {
  return words({
      "true or false",
      "a count",
      "block ids",
      "token ids",
      "a request",
      "a group id",
      "group ids",
      "tokens per block",
      "a block index",
      "a number of blocks",
      "one flag per block",
      "a number of tokens",
      "text",
      "names of requests",
      "a word",
      "(sample request tokens)",
      "the number of an offload key",
      "numbers of offload keys",
      "items",
      "a number",
      "answers",
      "a value",
      "answer",
      "state",
  });
}

/// The name of a command, and what it does. Converts to the name.
struct Verb {
  std::string_view word;
  std::string_view doc;
  constexpr operator std::string_view() const { return word; }  // NOLINT
};

template <class T>
concept Declared = requires(int& fields) {
  T::declare(fields);
}
|| requires { T::kVerb; };

/// Whether the declared members are equal.
template <Declared T>
bool operator==(const T& a, const T& b);

/// A value that may be absent and keeps its storage while it is: observations are refilled millions
/// of times per second. A move swaps the storage of the two.
template <class T>
class Reusable {
 public:
  Reusable() = default;
  ~Reusable() = default;
  Reusable(const Reusable& other) { *this = other; }
  Reusable(Reusable&& other) noexcept { *this = std::move(other); }
  Reusable& operator=(const Reusable& other) {
    present_ = other.present_;
    if (present_) value_ = other.value_;
    return *this;
  }
  Reusable& operator=(Reusable&& other) noexcept {
    present_ = other.present_;
    if (present_) std::swap(value_, other.value_);
    return *this;
  }

  bool has_value() const { return present_; }
  const T& operator*() const { return value_; }
  const T* operator->() const { return &value_; }
  /// The value; an empty one where it is absent.
  const T& or_empty() const {
    static const T kEmpty{};
    return present_ ? value_ : kEmpty;
  }

  /// Makes it present and hands out the storage, with whatever it held before.
  T& emplace() {
    present_ = true;
    return value_;
  }
  void reset() { present_ = false; }

  friend bool operator==(const Reusable& a, const Reusable& b) {
    return a.present_ == b.present_ && (!a.present_ || a.value_ == b.value_);
  }

 private:
  bool present_ = false;
  T value_{};
};

namespace detail {
/// "one of a, b, c".
std::string one_of(const std::vector<std::string_view>& names);
}  // namespace detail

// ---- Members <-> values. One pair of overloads per type; from_value says in `expected` what it
// wanted. list_of is what a list of them is in messages. ----

Value to_value(bool member);
Value to_value(std::uint32_t member);
Value to_value(std::uint64_t member);  ///< Requires: below 2^63
Value to_value(std::int64_t member);
Value to_value(double member);
Value to_value(const std::string& member);

bool from_value(const Value& value, bool& member, std::string& expected);
bool from_value(const Value& value, std::uint32_t& member, std::string& expected);
bool from_value(const Value& value, std::uint64_t& member, std::string& expected);
bool from_value(const Value& value, std::int64_t& member, std::string& expected);
bool from_value(const Value& value, double& member, std::string& expected);
bool from_value(const Value& value, std::string& member, std::string& expected);

std::string list_of(bool);
std::string list_of(std::uint32_t);
std::string list_of(std::uint64_t);
std::string list_of(const std::string&);
std::string list_of(const std::vector<std::uint32_t>&);

/// A word. `none` is spelled like the absent value.
template <Worded E>
Value to_value(E member) {
  const std::string_view word = to_text(member);
  return word == "none" ? Value() : Value(Value::Variant(std::string(word)));
}

template <Worded E>
bool from_value(const Value& value, E& member, std::string& expected) {
  const auto* const word = value.get_if<std::string>();
  const auto parsed = from_text<E>(word ? *word : value.get_if<None>() ? "none" : "");
  if (parsed) {
    member = *parsed;
  } else {
    expected = detail::one_of({detail::kWords<E>.begin(), detail::kWords<E>.end()});
  }
  return parsed.has_value();
}

/// A declared struct that is an element of a list: `(word key=value ...)`, with kWord for the word.
template <class T>
concept DeclaredRecord = requires {
  { T::kWord } -> std::convertible_to<std::string_view>;
};

template <DeclaredRecord T>
Value to_value(const T& member);
template <DeclaredRecord T>
bool from_value(const Value& value, T& member, std::string& expected);
template <DeclaredRecord T>
std::string list_of(const T&);

/// One of several, each of which takes what the others do not.
template <class... T>
Value to_value(const std::variant<T...>& member) {
  return std::visit([](const auto& typed) { return to_value(typed); }, member);
}

template <class... T>
bool from_value(const Value& value, std::variant<T...>& member, std::string& expected) {
  return (from_value(value, member.template emplace<T>(), expected) || ...);
}

template <class T>
Value to_value(const std::vector<T>& member) {
  Value::List list;
  list.reserve(member.size());
  for (const T& element : member) list.push_back(to_value(element));
  return Value::Variant(std::move(list));
}

template <class T>
bool from_value(const Value& value, std::vector<T>& member, std::string& expected) {
  const auto* const list = value.get_if<Value::List>();
  member.clear();
  if (list) member.reserve(list->size());
  const auto take = [&](const Value& from) {
    T element{};
    const bool is_taken = from_value(from, element, expected);
    member.push_back(std::move(element));
    return is_taken;
  };
  if (list && std::all_of(list->begin(), list->end(), take)) return true;
  expected = list_of(T{});
  return false;
}

template <class T>
Value to_value(const std::optional<T>& member) {
  return member ? to_value(*member) : Value();
}

template <class T>
bool from_value(const Value& value, std::optional<T>& member, std::string& expected) {
  if (value.get_if<None>()) {
    member.reset();
    return true;
  }
  if (from_value(value, member.emplace(), expected)) return true;
  expected += " or none";
  return false;
}

template <class T>
Value to_value(const Reusable<T>& member) {
  return member.has_value() ? to_value(*member) : Value();
}

template <class T>
bool from_value(const Value& value, Reusable<T>& member, std::string& expected) {
  return from_value(value, member.emplace(), expected);
}

/// Whether a member is in the text.
template <class T>
bool is_present(const T&) {
  return true;
}
template <class T>
bool is_present(const Reusable<T>& member) {
  return member.has_value();
}

namespace detail {

/// `found` for a value of the wrong kind.
InputError wrong_value(std::string_view file, const Field& field, std::string expected);
InputError unknown_key(std::string_view file, const Field& field, std::string expected);
InputError missing_key(std::string_view file, Position position, std::string_view owner,
                       std::string_view key);
InputError unexpected_subject(std::string_view file, const Line& line);

/// The MemberType of T. One object per type, so that its address names the type.
template <class T>
struct MemberTypeOf {
  static bool is_present_at(const void* member) {
    return is_present(*static_cast<const T*>(member));
  }
  static bool equal(const void* a, const void* b) {
    return *static_cast<const T*>(a) == *static_cast<const T*>(b);
  }
  static Value value_at(const void* member) { return to_value(*static_cast<const T*>(member)); }
  static bool assign(const Value& value, void* member, std::string& expected) {
    return from_value(value, *static_cast<T*>(member), expected);
  }
  static bool reset([[maybe_unused]] void* member) {
    if constexpr (requires(T & object) { object.reset(); }) {
      static_cast<T*>(member)->reset();
      return true;
    }
    return false;
  }
  static std::vector<DeclaredObject> elements(void* member);

  static constexpr MemberType kType{&is_present_at, &equal, &value_at, &assign, &reset, &elements};
};

// Out of line, since every member of every struct comes here.
void add_member(std::vector<DeclaredMember>& members, std::string_view name, std::string_view doc,
                Domain domain, const MemberType& type, std::size_t offset);
/// Makes those from `first` on members of a part at `offset`.
void make_part(std::vector<DeclaredMember>& members, std::size_t first, std::string_view prefix,
               std::size_t offset);
std::size_t distance(const void* object, const void* member);

/// Collects the declarations of a struct's members, without their types.
template <class Struct>
class FieldCollector {
 public:
  FieldCollector(const Struct& defaults, std::vector<DeclaredMember>& members)
      : defaults_(defaults), members_(members) {}

  template <class Owner, class T>
  void add(std::string_view name, T Owner::*member, Domain domain, std::string_view doc) {
    add_member(members_, name, doc, domain, MemberTypeOf<T>::kType,
               distance(&defaults_, &(defaults_.*member)));
  }

  template <class Owner, class T>
  void add(std::string_view name, T Owner::*member, std::string_view doc) {
    add(name, member, Domain::kPlain, doc);
  }

  void optional(std::string_view name, auto member, auto... rest) {
    add(name, member, rest...);
    members_.back().is_optional = true;
  }

  void result(std::string_view name, auto member, std::string_view doc) {
    add(name, member, Domain::kResult, doc);
  }
  void state(std::string_view name, auto member, std::string_view doc) {
    add(name, member, Domain::kState, doc);
  }

  /// The members of a member, each under its name after the prefix. They are optional: absent from
  /// the text where they equal their defaults.
  template <class Owner, class Part>
  void add_part(std::string_view prefix, Part Owner::*part) {
    const Part& defaults = defaults_.*part;
    const std::size_t first = members_.size();
    FieldCollector<Part> fields(defaults, members_);
    Part::declare(fields);
    make_part(members_, first, prefix, distance(&defaults_, &defaults));
  }

 private:
  const Struct& defaults_;
  std::vector<DeclaredMember>& members_;
};

}  // namespace detail

template <class Struct>
const DeclaredStruct& declared_struct() {
  static const Struct defaults{};
  static const DeclaredStruct type = [] {
    DeclaredStruct made;
    if constexpr (requires { Struct::kVerb; }) {
      made.verb = Struct::kVerb;
      made.doc = Struct::kVerb.doc;
    }
    made.defaults = &defaults;
    detail::FieldCollector<Struct> fields(defaults, made.members);
    if constexpr (requires { Struct::declare(fields); }) Struct::declare(fields);
    return made;
  }();
  return type;
}

template <class Struct>
DeclaredObject object_of(Struct& object) {
  return {declared_struct<Struct>(), &object};
}

/// Read-only.
template <class Struct>
DeclaredObject object_of(const Struct& object) {
  return {declared_struct<Struct>(), const_cast<Struct*>(&object)};
}

template <Declared T>
bool operator==(const T& a, const T& b) {
  return are_equal(object_of(a), object_of(b));
}

template <class T>
std::vector<DeclaredObject> detail::MemberTypeOf<T>::elements([[maybe_unused]] void* member) {
  std::vector<DeclaredObject> found;
  if constexpr (requires(T & list) { requires DeclaredRecord<typename T::value_type>; }) {
    for (auto& element : *static_cast<T*>(member)) found.push_back(object_of(element));
  }
  return found;
}

/// The member, if it is a T.
template <class T>
T* get_if(const MemberRef& member) {
  if (member.declaration().type != &detail::MemberTypeOf<T>::kType) return nullptr;
  return static_cast<T*>(member.address());
}

/// Overwrites the declared members that the fields name.
///
/// Errors: an unknown key, a value of the wrong kind.
template <class Struct>
std::optional<InputError> assign_fields(Struct& object, const std::vector<Field>& fields,
                                        std::string_view file) {
  return assign_fields_of(object_of(object), fields, file);
}

namespace detail {

Value record_of(std::string_view word, const DeclaredObject& object);
bool read_record(const Value& value, std::string_view word, const DeclaredObject& object,
                 std::string& expected);
/// "(word name=... other=...)".
std::string record_form(std::string_view word, const DeclaredStruct& type);

}  // namespace detail

template <DeclaredRecord T>
Value to_value(const T& member) {
  return detail::record_of(T::kWord, object_of(member));
}

template <DeclaredRecord T>
bool from_value(const Value& value, T& member, std::string& expected) {
  return detail::read_record(value, T::kWord, object_of(member), expected);
}

template <DeclaredRecord T>
std::string list_of(const T&) {
  return "records such as [" + detail::record_form(T::kWord, declared_struct<T>()) + "]";
}

}  // namespace kvfence
