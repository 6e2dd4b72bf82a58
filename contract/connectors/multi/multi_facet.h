#pragma once

/// What a MultiConnector adds to an engine: what its scripted children report in an update, and
/// what it shows. Everything that reads or writes them derives from the declarations here
/// (contract/core/declare.h).

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "contract/connectors/multi/multi_connector.h"
#include "contract/core/declare.h"
#include "contract/core/types.h"

namespace kvfence::engine::multi {

using kvfence::operator==;

/// What the worker's half of a scripted child reports on a rank; all other children report what
/// they did.
struct ChildReport {
  static constexpr std::string_view kWord = "report";
  std::uint32_t child = 0;
  std::uint32_t rank = 0;
  std::vector<std::string> sending;
  std::vector<std::string> recving;
  std::vector<BlockId> invalid;
  std::vector<std::uint32_t> stats;
  std::vector<std::uint32_t> jobs;
  static void declare(auto& fields) {
    using S = ChildReport;
    fields.optional("child", &S::child, Domain::kCount, "its place");
    fields.optional("rank", &S::rank, Domain::kCount, "of which worker");
    fields.optional("sending", &S::sending, Domain::kRequests, "sent");
    fields.optional("recving", &S::recving, Domain::kRequests, "received");
    fields.optional("invalid", &S::invalid, Domain::kBlocks, "whose load failed");
    fields.optional("stats", &S::stats, Domain::kAnswers, "sizes of operations");
    fields.optional("jobs", &S::jobs, Domain::kAnswers, "that are over");
  }
};

/// Jobs of children have numbers below this.
inline constexpr std::uint32_t kNumChildJobsMax = 1u << 24;
inline constexpr std::size_t kNumChildrenMax = 8;

/// Statistics of the children of a class, of one type of operation.
struct ClassStats {
  static constexpr std::string_view kWord = "stats";
  std::string connector_class;
  std::string type;
  std::vector<std::uint64_t> sizes;
  static void declare(auto& fields) {
    using S = ClassStats;
    fields.add("class", &S::connector_class, "of which children");
    fields.add("type", &S::type, "of operation");
    fields.add("sizes", &S::sizes, "oldest first");
  }
};

/// Notices that a request is sent which are to be swallowed.
struct Extra : ExtraAsyncSaves {
  static constexpr std::string_view kWord = "extra";
  std::optional<std::uint32_t> rank;
  static void declare(auto& fields) {
    using S = Extra;
    fields.optional("rank", &S::rank, "the rank whose worker has it; none: no metadata yet");
    fields.add("request", &S::request, "the request");
    fields.add("saves", &S::saves, "how many");
  }
};

/// What a MultiConnector shows.
struct Observed {
  // update
  Reusable<std::vector<ClientParams>> client_params;  ///< of this command, if any
  Reusable<std::vector<ClassStats>> stats_of_children;

  // The numbers: after every command.
  Reusable<std::uint32_t> num_chosen;
  Reusable<std::uint32_t> num_extra_saves;

  // The whole state: where asked for.
  Reusable<std::vector<ChosenConnector>> chosen;
  Reusable<std::vector<Extra>> extra_saves;

  static void declare(auto& fields) {
    using S = Observed;
    fields.result("client_params", &S::client_params, "of finished requests");
    fields.result("stats_of_children", &S::stats_of_children, "by class");
    fields.state("num_chosen", &S::num_chosen, "requests with a chosen child");
    fields.state("num_extra_saves", &S::num_extra_saves,
                 "requests with extra saves, in all halves");
    fields.state("chosen", &S::chosen, "by request");
    fields.state("extra_saves", &S::extra_saves, "the scheduler's, then rank by rank, by request");
  }
};

}  // namespace kvfence::engine::multi
