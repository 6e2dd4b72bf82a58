/// The child of serve_test: `serve_test_child reference|optimized|PLANTED_BUG` on stdin and stdout.

#include <cstdio>
#include <memory>
#include <string_view>

#include "contract/pool/block_pool_target.h"
#include "scenarios/targets/implementations.h"
#include "scenarios/protocol/serve.h"

int main(int argc, char** argv) {
  using Factory = kvfence::Implementations<kvfence::BlockPoolTarget>;
  const std::string_view name = argc == 2 ? argv[1] : "";
  std::unique_ptr<kvfence::Implementation<kvfence::BlockPoolTarget>> implementation;
  if (name == "reference") {
    implementation = Factory::make_reference();
  } else if (name == "optimized") {
    implementation = Factory::make_optimized();
  } else {
    implementation = Factory::make_planted(name);
  }
  if (!implementation) {
    std::fprintf(stderr, "usage: serve_test_child reference|optimized|PLANTED_BUG\n");
    return 2;
  }
  return kvfence::serve(*implementation);
}
