/// Goal: error codes come back as they are printed. Method: the one that is spelled like an absent
/// value, one that is not, and what is none.

#include "contract/core/observation.h"

#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include "contract/core/line.h"

namespace kvfence {
namespace {

std::string read_and_printed(std::string_view text) {
  ErrorCode code = ErrorCode::kUnknownRequest;
  std::string expected;
  const bool is_read = from_value(*parse_value(text), code, expected);
  return is_read ? print(to_value(code)) : "expected " + expected;
}

TEST(ErrorCodes, ComeBackAsTheyArePrinted) {
  EXPECT_EQ(read_and_printed("none"), "none");
  EXPECT_EQ(read_and_printed("no_free_blocks"), "no_free_blocks");
}

TEST(ErrorCodes, AreWordsThatAreKnown) {
  const std::string refusal = "expected an error code such as no_free_blocks, or none";
  for (const std::string_view text : {"nope", "7", "[none]", "\"\""}) {
    EXPECT_EQ(read_and_printed(text), refusal) << text;
  }
}

}  // namespace
}  // namespace kvfence
