#pragma once

/// A value of a declared struct whose type only typed code knows.
///
/// Everything that handles commands, replies, observations and configurations of any target holds
/// them like this, and is compiled once. The storage of a value is used again for the next one of
/// its type, with the capacity of its lists, for observations are refilled millions of times a
/// second.

#include <cstddef>
#include <type_traits>
#include <utility>
#include <variant>

#include "contract/core/check.h"
#include "contract/core/declare.h"
#include "contract/core/sanitized.h"

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

/// Used objects of one type. Trivial, so that reaching it costs no guard; what it still holds when
/// the thread ends is reachable until then.
template <class T>
struct UsedObjects {
  // Behind the sanitizer's back nothing is used again: it would not see a use after the end.
  static constexpr std::size_t kSizeMax = kIsSanitized ? 0 : 512;
  T* objects[kSizeMax + 1];
  std::size_t size;
};

template <class T>
inline constinit thread_local UsedObjects<T> used_objects{};

template <class T>
struct IsVariant : std::false_type {};
template <class... Alternatives>
struct IsVariant<std::variant<Alternatives...>> : std::true_type {};

/// The ErasedType of T: a declared struct, or a variant of declared structs.
template <class T>
struct ErasedTypeOf {
  static void* take() {
    UsedObjects<T>& used = used_objects<T>;
    return used.size > 0 ? used.objects[--used.size] : new T();
  }
  static void give_back(void* object) noexcept {
    UsedObjects<T>& used = used_objects<T>;
    if (used.size < UsedObjects<T>::kSizeMax) {
      used.objects[used.size++] = static_cast<T*>(object);
    } else {
      delete static_cast<T*>(object);
    }
  }
  static void restore(void* object) {
    static const T kDefault{};
    *static_cast<T*>(object) = kDefault;
  }
  static void assign(void* object, const void* other) {
    *static_cast<T*>(object) = *static_cast<const T*>(other);
  }
  static bool equal(const void* a, const void* b) {
    return *static_cast<const T*>(a) == *static_cast<const T*>(b);
  }
  static DeclaredObject declared(void* object) {
    T& typed = *static_cast<T*>(object);
    if constexpr (IsVariant<T>::value) {
      return std::visit([](auto& alternative) { return object_of(alternative); }, typed);
    } else {
      return object_of(typed);
    }
  }

  static constexpr ErasedType kType{&take, &give_back, &restore, &assign, &equal, &declared};
};

}  // namespace detail

template <class T>
inline constexpr const ErasedType* erased_type = &detail::ErasedTypeOf<T>::kType;

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

  /// A T as its default constructor makes it.
  template <class T>
  T& emplace() {
    return *static_cast<T*>(emplace(*erased_type<T>));
  }
  void* emplace(const ErasedType& type) {
    reuse(type);
    type_->restore(object_);
    return object_;
  }

  /// A T with whatever it held before: for those who write each member.
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

  /// Its members. Requires: a value. Whoever asks a const one must not edit through it.
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
