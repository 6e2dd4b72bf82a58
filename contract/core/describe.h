#pragma once

/// Makes the description of a target from its declarations. Include it only where a target is
/// described: it instantiates all that the harness can do with each declared struct.

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>

#include "contract/core/declare.h"
#include "contract/core/erased.h"
#include "contract/core/sanitized.h"
#include "contract/core/target.h"

namespace kvfence {
namespace detail {

/// Used objects of one type. Trivial, so that reaching it costs no guard; what it still holds when
/// the thread ends is reachable until then.
template <class T>
struct UsedObjects {
  // No reuse under a sanitizer: it would not see a use after the end.
  static constexpr std::size_t kSizeMax = kIsSanitized ? 0 : 512;
  T* objects[kSizeMax + 1];
  std::size_t size;
};

template <class T>
inline constinit thread_local UsedObjects<T> used_objects{};

/// What an ErasedType does with a T: a declared struct, or a variant of declared structs.
template <class T>
struct Typed {
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
    if constexpr (requires { std::variant_size<T>::value; }) {
      return std::visit([](auto& alternative) { return object_of(alternative); }, typed);
    } else {
      return object_of(typed);
    }
  }
};

template <class T>
constinit const ErasedType ErasedTypeOf<T>::kType{&Typed<T>::take,    &Typed<T>::give_back,
                                                  &Typed<T>::restore, &Typed<T>::assign,
                                                  &Typed<T>::equal,   &Typed<T>::declared};

template <class Command, std::size_t kIndex>
CommandType command_type() {
  using Alternative = std::variant_alternative_t<kIndex, Command>;
  std::span<const ErrorCode> refusals;
  if constexpr (requires { Alternative::kRefusals; }) refusals = Alternative::kRefusals;
  const auto emplace = [](Erased& command) {
    return object_of(command.reuse<Command>().template emplace<kIndex>());
  };
  return {&declared_struct<Alternative>(), emplace, refusals};
}

}  // namespace detail

/// The description of a target from its declarations T:
///   kName, kDoc
///   Config    a declared struct
///   Setup     what a configuration stands for; static Parsed<Setup> prepare(config, file, place);
///             static void complete(config), where a configuration may leave things to a name
///   Command   a variant of declared structs; one that can be refused has kRefusals, the codes
///   Observation  a declared struct, `error` before all else
///   World     has apply(command); made by static World make_world(config, setup) where there is
///             one, else from the setup, or from nothing
///   static const Target& description()
template <class T>
Target describe() {
  Target target;
  target.name = T::kName;
  target.doc = T::kDoc;
  target.config = erased_type<typename T::Config>;
  target.command = erased_type<typename T::Command>;
  [&]<std::size_t... kIndex>(std::index_sequence<kIndex...>) {
    (target.commands.push_back(detail::command_type<typename T::Command, kIndex>()), ...);
  }
  (std::make_index_sequence<std::variant_size_v<typename T::Command>>{});
  target.observation = erased_type<typename T::Observation>;
  target.prepare = [](Erased config, std::string_view file, Position position) -> Parsed<Setup> {
    if constexpr (requires { T::complete(config.as<typename T::Config>()); }) {
      T::complete(config.as<typename T::Config>());
    }
    auto parsed = T::prepare(config.as<typename T::Config>(), file, position);
    if (!parsed) return parsed.error();
    return Setup(T::description(), std::move(config),
                 std::make_shared<const typename T::Setup>(std::move(*parsed)));
  };
  target.make_world = [](const Setup& setup) -> std::unique_ptr<World> {
    using Typed = typename T::World;
    using Made = WorldOf<Typed, typename T::Command>;
    const auto& typed = setup.as<typename T::Setup>();
    if constexpr (requires { T::make_world; }) {
      return std::make_unique<Made>(T::make_world(setup.config().as<typename T::Config>(), typed));
    } else if constexpr (std::is_constructible_v<Typed, decltype(typed)>) {
      return std::make_unique<Made>(Typed(typed));
    } else {
      return std::make_unique<Made>(Typed());
    }
  };
  return target;
}

/// The one description of the target, made when it is first asked for.
template <class T>
const Target& described() {
  static const Target kDescription = describe<T>();
  return kDescription;
}

}  // namespace kvfence
