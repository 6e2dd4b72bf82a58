#pragma once

/// The first rule of engines over devices: a request samples the tokens that it would sample
/// without any cache.

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "contract/engine/engine_target.h"

namespace kvfence::engine::on_device {

class TokenOracle {
 public:
  /// A request's prompt and the tokens that it sampled.
  struct Sequence {
    std::optional<std::string> cache_salt;
    std::vector<TokenId> tokens;
    std::size_t num_prompt_tokens = 0;
  };

  struct WrongToken {
    TokenId expected = 0;
    TokenId actual = 0;
  };

  /// windows: of the groups (EngineSetup).
  explicit TokenOracle(std::vector<std::uint32_t> windows) : windows_(std::move(windows)) {}

  /// The first wrong token; nothing: there is none.
  std::optional<WrongToken> check(const Command& command, const Observation& observation);
  /// Null: no request of that name was added.
  const Sequence* find(const std::string& request) const;

 private:
  std::vector<std::uint32_t> windows_;
  std::map<std::string, Sequence> sequences_;
};

}  // namespace kvfence::engine::on_device
