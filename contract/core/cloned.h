#pragma once

/// Polymorphic values. Cloned owns an object of an interface that has clone(), and copies it with
/// itself; Cloning implements clone().

#include <memory>
#include <utility>

#include "contract/core/state_digest.h"

namespace kvfence {

/// Owns one, or none.
template <class T>
class Cloned {
 public:
  Cloned() = default;
  explicit Cloned(std::unique_ptr<T> value) : value_(std::move(value)) {}
  Cloned(const Cloned& other) : value_(other.value_ ? other.value_->clone() : nullptr) {}
  Cloned& operator=(const Cloned& other) {
    if (this != &other) value_ = other.value_ ? other.value_->clone() : nullptr;
    return *this;
  }
  Cloned(Cloned&&) noexcept = default;
  Cloned& operator=(Cloned&&) noexcept = default;
  ~Cloned() = default;

  explicit operator bool() const { return value_ != nullptr; }
  T* operator->() const { return value_.get(); }
  T* get() const { return value_.get(); }
  void add_to(StateHash& hash) const { hash.add(value_); }

 private:
  std::unique_ptr<T> value_;
};

/// Base with the clone() of Derived, a copy.
template <class Derived, class Base>
class Cloning : public Base {
 public:
  using Base::Base;
  decltype(std::declval<const Base&>().clone()) clone() const override {
    return std::make_unique<Derived>(static_cast<const Derived&>(*this));
  }
};

}  // namespace kvfence
