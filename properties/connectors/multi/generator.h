#pragma once

/// Draws configurations and commands for the multi_connector target: few children, ranks and
/// requests, swarm weights, ranks that fall behind each other, children that report what they hold
/// late and now and then what they do not.

#include <cstdint>
#include <string>
#include <vector>

#include "contract/connectors/multi/multi_connector_target.h"
#include "properties/core/choices.h"
#include "properties/core/swarm.h"

namespace kvfence::multi_connector {

class Generator {
 public:
  /// A small configuration: 1 to 4 children, 1 to 3 ranks, 1 to 3 groups where that can be.
  static Config draw_config(Choices& choices);

  /// Draws the weights of this episode: some commands often, some hardly ever, some not at all.
  Generator(const Config& config, Choices& choices);

  /// The next command, given what a connector shows.
  Command next(Choices& choices, const Observation& now, const World& world);

 private:
  /// A child holds a request, and has not said on that rank that it is sent.
  struct Notice {
    std::string request;
    std::uint32_t child = 0;
    std::uint32_t rank = 0;
  };

  void see(const Observation& now);
  /// Whether that command would find nothing to work on.
  bool is_idle(std::size_t chosen) const;
  Command draw(Choices& choices, std::size_t chosen);
  GetNumNewMatchedTokens draw_lookup(Choices& choices);
  RequestFinished draw_finish(Choices& choices);
  GetKVConnectorOutput draw_output(Choices& choices);
  /// What a child has sent on a rank, and owes no longer.
  std::vector<std::string> draw_sent(std::uint32_t child, std::uint32_t rank, Choices& choices);
  std::string draw_request(Choices& choices) const;
  std::uint32_t draw_rank(bool in_step, Choices& choices) const;
  BlockLists draw_blocks(Choices& choices) const;
  /// As many answers as there are children, mostly.
  std::uint32_t draw_num_answers(Choices& choices) const;

  Config config_;
  VerbSwarm<Command> swarm_;
  std::vector<Rank> ranks_;
  std::vector<Extra> extra_;
  std::vector<Chosen> chosen_;
  std::vector<Notice> notices_;
  std::uint32_t next_number_ = 0;  ///< tells metadata, events and statistics apart
};

}  // namespace kvfence::multi_connector
