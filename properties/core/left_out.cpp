#include "properties/core/left_out.h"

#include <algorithm>

namespace kvfence {
namespace {

std::vector<const LeftOut*>& registered() {
  static std::vector<const LeftOut*> all;
  return all;
}

}  // namespace

LeftOut::LeftOut(By by, std::string_view name, std::string_view why, std::string_view scenario)
    : by_(by), name_(name), why_(why), scenario_(scenario) {
  registered().push_back(this);
}

std::vector<const LeftOut*> LeftOut::all() {
  std::vector<const LeftOut*> all = registered();
  std::ranges::sort(all, {}, &LeftOut::name);
  return all;
}

}  // namespace kvfence
