#pragma once

/// The description of a target: its name, the words of its line language, and what its
/// configurations stand for. There is one description object per target; code that is compiled once
/// derives the rest from it.

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "contract/core/erased.h"
#include "contract/core/line.h"
#include "contract/core/lists.h"
#include "contract/core/observation.h"
#include "contract/core/status.h"

namespace kvfence {

struct Target;

/// A configuration as its line has it.
using Config = Erased;

/// A valid configuration, and what it stands for. It is parsed once per run and shared.
class Setup {
 public:
  Setup() = default;
  Setup(const Target& target, Config config, std::shared_ptr<const void> parsed)
      : target_(&target), config_(std::move(config)), parsed_(std::move(parsed)) {}

  const Target& target() const { return *target_; }
  const Config& config() const { return config_; }

  /// Requires: T is the Setup of the target's declarations.
  template <class T>
  const T& as() const {
    return *static_cast<const T*>(parsed_.get());
  }

 private:
  const Target* target_ = nullptr;
  Config config_;
  std::shared_ptr<const void> parsed_;
};

/// What commands declare and no implementation owns, such as requests. The driver keeps it once,
/// and lends it to every implementation in the process, to the rules and to the generator; a child
/// process keeps its own.
class World {
 public:
  World() = default;
  World(const World&) = delete;
  World& operator=(const World&) = delete;
  virtual ~World() = default;

  virtual void apply(const Command& command) = 0;

  /// The bytes that a symbol such as `A:1*2/0` stands for; nothing where it is none.
  virtual std::optional<std::string> resolve(std::string_view symbol) const = 0;
  /// The symbol of such bytes; nothing where they have none.
  virtual std::optional<std::string> symbol_of(std::string_view bytes) const = 0;
};

/// The world of a target whose commands declare nothing.
struct NoWorld {
  void apply(const auto& /*command*/) {}
};

/// The world as typed code knows it.
template <class Typed>
class TypedWorld : public World {
 public:
  explicit TypedWorld(Typed world) : world_(std::move(world)) {}

  const Typed& typed() const { return world_; }

  std::optional<std::string> resolve([[maybe_unused]] std::string_view symbol) const override {
    if constexpr (requires { world_.requests().resolve(symbol); }) {
      return world_.requests().resolve(symbol);
    } else {
      return std::nullopt;
    }
  }
  std::optional<std::string> symbol_of([[maybe_unused]] std::string_view bytes) const override {
    if constexpr (requires { world_.requests().symbol_of(bytes); }) {
      return world_.requests().symbol_of(bytes);
    } else {
      return std::nullopt;
    }
  }

 protected:
  Typed world_;
};

/// Requires: it is a TypedWorld<Typed>.
template <class Typed>
const Typed& typed_world(const World& world) {
  return static_cast<const TypedWorld<Typed>&>(world).typed();
}

/// The same, and how it takes in its target's commands.
template <class Typed, class TypedCommand>
class WorldOf final : public TypedWorld<Typed> {
 public:
  using TypedWorld<Typed>::TypedWorld;
  void apply(const Command& command) override { this->world_.apply(command.as<TypedCommand>()); }
};

/// One command of a target.
struct CommandType {
  const DeclaredStruct* declared;       ///< its verb, doc and members
  DeclaredObject (*emplace)(Command&);  ///< makes it that command, its members at their defaults
  std::span<const ErrorCode> refusals;  ///< all codes with which it can be refused

  bool declares(ErrorCode code) const { return contains(refusals, code); }
};

struct Target {
  std::string_view name;
  std::string_view doc;
  const ErasedType* config;
  const ErasedType* command;
  std::vector<CommandType> commands;
  const ErasedType* observation;

  /// What is wrong with a configuration, or what it stands for. `config` is of the target's type.
  Parsed<Setup> (*prepare)(Config config, std::string_view file, Position position);
  std::unique_ptr<World> (*make_world)(const Setup& setup);
};

/// None, or why the command was refused.
ErrorCode shown_error(const Observation& observation);

/// An observation with all members at their defaults.
Observation default_observation(const Target& target);
/// The names of the members that observations of the target have, in the order in which they are
/// printed.
std::vector<std::string_view> observation_names(const Target& target);

/// A command as a line, without expectation.
Line to_line(const Command& command);
/// The command that a line spells; its expectation and comment are not looked at.
Parsed<Command> command_from_line(const Target& target, const Line& line,
                                  std::string_view file = {});

/// The configuration of a line such as `config num_gpu_blocks=8`; absent keys keep their defaults.
Parsed<Config> config_from_line(const Target& target, const Line& line, std::string_view file = {});
Line config_line(const Config& config);
/// Its defaults.
Config default_config(const Target& target);
/// As prepare, where the configuration is known to be valid.
Setup prepared(const Target& target, Config config);

}  // namespace kvfence
