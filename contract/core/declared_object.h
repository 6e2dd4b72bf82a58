#pragma once

/// Declared structs (contract/core/declare.h) whose types the caller need not know. The code that
/// reads, prints, compares and edits them member by member is compiled once, not once per struct
/// and member.

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "contract/core/line.h"

namespace kvfence {

enum class Domain : unsigned char;  ///< contract/core/declare.h
class DeclaredObject;

/// What can be done with a member of one type, given its address.
struct MemberType {
  bool (*is_present)(const void* member);  ///< whether it is in the text
  bool (*equal)(const void* a, const void* b);
  Value (*to_value)(const void* member);
  bool (*from_value)(const Value& value, void* member, std::string& expected);
  /// Makes it absent; false for a type that is always present.
  bool (*reset)(void* member);
  /// The elements of a list of declared structs; nothing of other types.
  std::vector<DeclaredObject> (*elements)(void* member);
};

/// One declared member of a struct.
struct DeclaredMember {
  std::string name;
  std::string_view doc;
  Domain domain{};
  bool is_optional = false;
  const MemberType* type = nullptr;  ///< the same for all members of one type
  std::size_t offset = 0;            ///< bytes from the beginning of the struct
};

/// A struct's declared members, in declaration order.
struct DeclaredStruct {
  std::string_view verb;  ///< of a command; else empty
  std::string_view doc;
  std::vector<DeclaredMember> members;
  const void* defaults = nullptr;  ///< an object as its default constructor leaves it
};

/// One member of one object.
class MemberRef {
 public:
  MemberRef(const DeclaredMember& declaration, void* object, const void* defaults)
      : declaration_(&declaration), object_(object), defaults_(defaults) {}

  const DeclaredMember& declaration() const { return *declaration_; }
  Domain domain() const { return declaration_->domain; }

  bool is_present() const { return declaration_->type->is_present(address()); }
  bool is_default() const { return declaration_->type->equal(address(), default_address()); }
  bool equals(const MemberRef& other) const {
    return declaration_->type->equal(address(), other.address());
  }
  Value value() const { return declaration_->type->to_value(address()); }
  Value default_value() const { return declaration_->type->to_value(default_address()); }

  /// False, with what was expected, if the value is not of the member's type; the member is
  /// unspecified then.
  bool assign(const Value& value, std::string& expected) const {
    return declaration_->type->from_value(value, address(), expected);
  }
  bool reset() const { return declaration_->type->reset(address()); }
  std::vector<DeclaredObject> elements() const;

  void* address() const { return static_cast<char*>(object_) + declaration_->offset; }

 private:
  const void* default_address() const {
    return static_cast<const char*>(defaults_) + declaration_->offset;
  }

  const DeclaredMember* declaration_;
  void* object_;
  const void* defaults_;
};

/// An object of a declared struct. One made from a const object is read-only.
class DeclaredObject {
 public:
  DeclaredObject(const DeclaredStruct& type, void* address) : type_(&type), address_(address) {}

  const DeclaredStruct& type() const { return *type_; }
  std::size_t size() const { return type_->members.size(); }
  MemberRef operator[](std::size_t index) const {
    return {type_->members[index], address_, type_->defaults};
  }

 private:
  const DeclaredStruct* type_;
  void* address_;
};

inline std::vector<DeclaredObject> MemberRef::elements() const {
  return declaration_->type->elements(address());
}

/// Requires: objects of one struct.
bool are_equal(const DeclaredObject& a, const DeclaredObject& b);

/// The declared members as fields, in declaration order; without absent ones and optional ones at
/// their default.
std::vector<Field> fields_of(const DeclaredObject& object);

std::vector<std::string_view> names_of(const DeclaredStruct& type);
/// The member of that name; nothing where there is none.
std::optional<MemberRef> find_member(const DeclaredObject& object, std::string_view name);

/// Overwrites the members that the fields name.
///
/// Errors: an unknown key, a value of the wrong kind.
std::optional<InputError> assign_fields_of(const DeclaredObject& object,
                                           const std::vector<Field>& fields, std::string_view file);

/// The same; each member that is not optional needs a field. `owner` is the verb or word that a
/// message names.
///
/// Errors: besides, a missing key.
std::optional<InputError> read_fields_of(const DeclaredObject& object,
                                         const std::vector<Field>& fields, std::string_view owner,
                                         std::string_view file, Position position);

}  // namespace kvfence
