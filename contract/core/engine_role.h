#pragma once

/// The two engines of a pair.

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "contract/core/declare.h"
#include "contract/core/line.h"

namespace kvfence {

/// An engine alone is the producer.
enum class EngineRole : std::uint8_t { kProducer, kConsumer };

inline constexpr std::array<EngineRole, 2> kEngineRoles = {EngineRole::kProducer,
                                                           EngineRole::kConsumer};

/// "producer", "consumer".
std::string_view to_text(EngineRole role);

Value to_value(EngineRole member);
bool from_value(const Value& value, EngineRole& member, std::string& expected);

namespace engine {

/// Which engine of a pair a command is about.
template <class S>
void add_engine_field(auto& fields) {
  fields.optional("engine", &S::engine, Domain::kChoice, "producer or consumer");
}

}  // namespace engine
}  // namespace kvfence
