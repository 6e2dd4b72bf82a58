// Goal: generated requests have each salt, also the empty one, with and without an adapter. Method:
// collect the requests that random episodes on the reference declare.

#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <variant>

#include <gtest/gtest.h>

#include "contract/pool/block_pool_target.h"
#include "properties/core/campaign.h"
#include "properties/core/typed_test_support.h"
#include "properties/targets/rooms.h"
#include "scenarios/targets/targets.h"

namespace kvfence::block_pool {
namespace {

TEST(BlockPoolGenerator, SaltsAreNotThoseOfAdapters) {
  std::set<std::pair<std::string, bool>> salts;  // whether the request has an adapter, too
  for (std::uint64_t number = 0; number < 300; ++number) {
    Choices choices = episode_choices(1, number);
    const Config config = draw_config(choices);
    TypedRun<BlockPoolTarget> run(block_pool_sides().make_reference(), config);
    const auto generator = generators().make(config, choices);
    Observation now;
    for (int index = 0; index < 40; ++index) {
      const Command command = generator->next(choices, now, run.world());
      const auto* const declared = std::get_if<DeclareRequest>(&command);
      if (declared && declared->cache_salt) {
        salts.insert({*declared->cache_salt, declared->lora_name.has_value()});
      }
      now = run.run(command);
    }
  }
  const std::set<std::pair<std::string, bool>> expected = {
      {"", false}, {"", true}, {"salt", false}, {"salt", true}};
  EXPECT_EQ(salts, expected);
}

}  // namespace
}  // namespace kvfence::block_pool
