// Goal: each rule catches its kind of mistake. Method: true episodes of the reference, and in each
// a lie about one observation.

#include "properties/engine/rooms.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <gtest/gtest.h>

#include "properties/engine/checks.h"
#include "properties/planted/false_observations_test_support.h"
#include "scenarios/targets/targets.h"

namespace kvfence::engine::multi {
namespace {

using Calls = std::vector<ConnectorCall>;

void expect_caught(std::string_view id, const Lie<EngineTarget>& lie) {
  const auto side = engine_sides().make_reference();
  expect_lie_caught<EngineTarget>(room_checks(Assembly::kMulti), *side, rules().rows, id,
                                  /*commands_after=*/0, lie);
}

void expect_caught(std::string_view id, Reusable<std::uint32_t> Observation::*number) {
  expect_caught(id, [&](const Command&, const Config&, Observation& shown) {
    return (shown.*number).has_value() && ++in(shown.*number) > 0;
  });
}

/// change(calls) false: there is nothing to lie about.
template <class Change>
void expect_caught_in_calls(std::string_view id, Change change) {
  expect_caught(id, [&](const Command&, const Config&, Observation& shown) {
    const bool has_calls = shown.connector_calls.has_value() && !shown.engine_ended.has_value();
    return has_calls && change(in(shown.connector_calls));
  });
}

TEST(MultiRules, SeeASlotTooMany) { expect_caught("multi.1", &Observation::num_free_slots); }

TEST(MultiRules, SeeACPUBlockTooMany) {
  expect_caught("multi.2", &Observation::num_cached_cpu_blocks);
}

TEST(MultiRules, SeeAChildThatIsNotNotified) {
  expect_caught_in_calls("multi.3", [](Calls& calls) {
    if (calls.back().method != "request_finished" || *calls.back().child == 0) return false;
    if (calls.size() < 2 || calls[calls.size() - 2].method != "request_finished") return false;
    calls.pop_back();
    return true;
  });
}

TEST(MultiRules, SeeALookupOutOfOrder) {
  expect_caught_in_calls("multi.4", [](Calls& calls) {
    for (std::size_t at = 1; at < calls.size(); ++at) {
      const bool is_one_lookup = calls[at].method == "get_num_new_matched_tokens" &&
                                 calls[at - 1].method == calls[at].method &&
                                 calls[at - 1].request == calls[at].request;
      if (!is_one_lookup || *calls[at - 1].child >= *calls[at].child) continue;
      calls[at - 1].answer = "again";
      return true;
    }
    return false;
  });
}

TEST(MultiRules, SeeTwoChildrenThatLoad) {
  expect_caught_in_calls("multi.5", [](Calls& calls) {
    for (std::size_t at = 1; at < calls.size(); ++at) {
      const bool is_one_load = calls[at].method == "update_state_after_alloc" &&
                               calls[at - 1].request == calls[at].request &&
                               calls[at - 1].method == calls[at].method;
      const std::uint32_t all = calls[at].num_tokens + calls[at - 1].num_tokens;
      if (!is_one_load || all == 0 || *calls[at].child <= *calls[at - 1].child) continue;
      calls[at].num_tokens = calls[at - 1].num_tokens = all;
      return true;
    }
    return false;
  });
}

TEST(MultiRules, SeeMetadataOfAnotherChild) {
  expect_caught_in_calls("multi.6", [](Calls& calls) {
    if (!calls.back().rank) return false;
    calls.back().metadata = "9.0";
    return true;
  });
}

TEST(MultiRules, SeeAChoiceForNobody) {
  expect_caught("multi.7", [](const Command&, const Config&, Observation& shown) {
    if (!shown.chosen.has_value()) return false;
    in(shown.chosen).push_back({"nobody", 0});
    return true;
  });
}

TEST(MultiRules, SeeExtraSavesThatAStepLeaves) {
  expect_caught("multi.7", [](const Command& command, const Config&, Observation& shown) {
    const bool is_step = std::holds_alternative<Schedule>(command) &&
                         shown.error == ErrorCode::kNone && shown.extra_saves.has_value();
    if (!is_step) return false;
    in(shown.extra_saves).push_back({{"r0", 1}, std::nullopt});
    return true;
  });
}

TEST(MultiRules, SeeAsManyExtraSavesAsChildren) {
  expect_caught("multi.8", [](const Command&, const Config& config, Observation& shown) {
    if (!shown.extra_saves.has_value()) return false;
    const auto num_children = config.connector<MultiRecord>()->children.size();
    in(shown.extra_saves).push_back({{"r0", static_cast<std::uint32_t>(num_children)}, 0});
    return true;
  });
}

TEST(MultiRules, SeeASlotTooManyAtTheConsumer) {
  expect_caught("multi.1", [](const Command&, const Config&, Observation& shown) {
    auto& number = shown.consumer.num_free_slots;
    return number.has_value() && ++in(number) > 0;
  });
}

TEST(MultiRules, SeeAPromptThatIsNeitherReadNorGivenBack) {
  expect_caught("nixl.12", [](const Command&, const Config&, Observation& shown) {
    if (!shown.reqs_to_recv.has_value() || shown.consumer.scheduled->empty()) return false;
    return std::erase_if(in(shown.reqs_to_recv), [](const nixl::Receive& receive) {
             return receive.local_blocks.empty();
           }) > 0;
  });
}

TEST(MultiRules, SeeAPromptThatIsReadTwice) {
  expect_caught("nixl.10", [](const Command&, const Config&, Observation& shown) {
    if (!shown.reqs_to_recv.has_value() || shown.reqs_to_recv->empty()) return false;
    auto& receives = in(shown.reqs_to_recv);
    receives.push_back(ConsumerMetadata::Receive(receives.front()));
    return true;
  });
}

TEST(MultiRules, SeeABlockThatLeavesItsRead) {
  expect_caught("nixl.2", [](const Command&, const Config&, Observation& shown) {
    if (!shown.reads.has_value() || shown.reads->empty()) return false;
    if (!shown.reads->front().is_under_way()) return false;
    in(shown.reads).front().local_blocks.front() = 0;
    return true;
  });
}

}  // namespace
}  // namespace kvfence::engine::multi
