#pragma once

/// A value of a declared struct whose type only typed code knows.
///
/// The code that handles commands, replies, observations and configurations of any target holds
/// them in this form, and is compiled once. The storage of a value is reused for the next one of
/// its type, with the capacity of its lists, since observations are refilled millions of times per
/// second.

#include <type_traits>
#include <utility>

#include "contract/core/check.h"
#include "contract/core/declare.h"

namespace kvfence {

/// What can be done with an object of one type, given its address.
struct ErasedType {
  void* (*take)();  ///< an object, new or used, with whatever it held before
  void (*give_back)(void* object) noexcept;
  void (*restore)(void* object);  ///< makes it as its default constructor does
  void (*assign)(void* object, const void* other);
  bool (*equal)(const void* a, const void* b);
  DeclaredObject (*declared)(void* object);
};

namespace detail {

/// The ErasedType of T. It is defined where the target that T belongs to is described
/// (contract/core/describe.h), once: it instantiates all that a declaration provides, which is
/// expensive to compile.
template <class T>
struct ErasedTypeOf {
  static const ErasedType kType;
};

}  // namespace detail

#ifdef __clang__
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wundefined-var-template"
#endif
template <class T>
inline constexpr const ErasedType* erased_type = &detail::ErasedTypeOf<T>::kType;
#ifdef __clang__
#pragma clang diagnostic pop
#endif

/// The members of an object of a described type, read-only: object_of makes the declaration where
/// it is called.
template <class T>
DeclaredObject declared_of(const T& object) {
  return erased_type<T>->declared(const_cast<T*>(&object));
}

/// A value, or none.
class Erased {
 public:
  Erased() = default;
  template <class T>
  requires(!std::is_same_v<std::remove_cvref_t<T>, Erased>) explicit Erased(T&& value) {
    reuse<std::remove_cvref_t<T>>() = std::forward<T>(value);
  }
  Erased(const Erased& other) { *this = other; }
  Erased(Erased&& other) noexcept
      : type_(std::exchange(other.type_, nullptr)),
        object_(std::exchange(other.object_, nullptr)) {}
  Erased& operator=(const Erased& other) {
    if (this == &other) return *this;
    if (!other.type_) {
      clear();
      return *this;
    }
    reuse(*other.type_);
    type_->assign(object_, other.object_);
    return *this;
  }
  Erased& operator=(Erased&& other) noexcept {
    std::swap(type_, other.type_);
    std::swap(object_, other.object_);
    return *this;
  }
  ~Erased() { clear(); }

  bool has_value() const { return type_ != nullptr; }
  void clear() noexcept {
    if (type_) type_->give_back(object_);
    type_ = nullptr;
    object_ = nullptr;
  }

  /// Makes it one of that type, as the default constructor does.
  void emplace(const ErasedType& type) {
    reuse(type);
    type.restore(object_);
  }

  /// A T with whatever it held before: for callers that write every member.
  template <class T>
  T& reuse() {
    return *static_cast<T*>(reuse(*erased_type<T>));
  }

  template <class T>
  const T* get_if() const {
    return type_ == erased_type<T> ? static_cast<const T*>(object_) : nullptr;
  }
  template <class T>
  T* get_if() {
    return type_ == erased_type<T> ? static_cast<T*>(object_) : nullptr;
  }
  /// Requires: it is a T.
  template <class T>
  const T& as() const {
    KVFENCE_CHECK(type_ == erased_type<T>, "a value of another type");
    return *static_cast<const T*>(object_);
  }
  template <class T>
  T& as() {
    KVFENCE_CHECK(type_ == erased_type<T>, "a value of another type");
    return *static_cast<T*>(object_);
  }

  /// Its members. Requires: a value. Those of a const one must not be edited.
  DeclaredObject declared() const { return type_->declared(object_); }

  friend bool operator==(const Erased& a, const Erased& b) {
    return a.type_ == b.type_ && (!a.type_ || a.type_->equal(a.object_, b.object_));
  }

 private:
  void* reuse(const ErasedType& type) {
    if (type_ != &type) {
      clear();
      object_ = type.take();
      type_ = &type;
    }
    return object_;
  }

  const ErasedType* type_ = nullptr;
  void* object_ = nullptr;
};

}  // namespace kvfence
