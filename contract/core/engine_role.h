#pragma once

/// The two engines of a pair.

#include <array>
#include <cstdint>

#include "contract/core/declare.h"
#include "contract/core/words.h"

namespace kvfence {

/// An engine alone is the producer.
enum class EngineRole : std::uint8_t { kProducer, kConsumer };

inline constexpr std::array<EngineRole, 2> kEngineRoles = {EngineRole::kProducer,
                                                           EngineRole::kConsumer};

constexpr auto words_of(EngineRole) { return words({"producer", "consumer"}); }

namespace engine {

using kvfence::operator==;

/// A command about an engine, which of a pair.
struct OfEngine {
  EngineRole engine = EngineRole::kProducer;
  static void declare(auto& fields) {
    fields.optional("engine", &OfEngine::engine, Domain::kChoice, "producer or consumer");
  }
};

}  // namespace engine
}  // namespace kvfence
