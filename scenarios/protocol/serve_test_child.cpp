/// The child of serve_test: `serve_test_child reference|optimized|PLANTED_BUG` on stdin and stdout.

#include <cstdio>
#include <memory>
#include <string_view>

#include "scenarios/protocol/serve.h"
#include "scenarios/targets/targets.h"

int main(int argc, char** argv) {
  const kvfence::TargetSides& sides = kvfence::block_pool_sides();
  const std::string_view name = argc == 2 ? argv[1] : "";
  std::unique_ptr<kvfence::Implementation> implementation;
  if (name == "reference") {
    implementation = sides.make_reference();
  } else if (name == "optimized") {
    implementation = sides.make_optimized();
  } else {
    implementation = sides.make_planted(name);
  }
  if (!implementation) {
    std::fprintf(stderr, "usage: serve_test_child reference|optimized|PLANTED_BUG\n");
    return 2;
  }
  return kvfence::serve(sides.target(), *implementation);
}
