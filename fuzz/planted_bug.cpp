#include "fuzz/planted_bug.h"

namespace kvfence::fuzz {

std::string_view planted_bug() { return KVFENCE_FUZZ_PLANTED_BUG; }

}  // namespace kvfence::fuzz
