#include "contract/kv_cache/kv_cache_target.h"

#include "contract/core/describe.h"

namespace kvfence {
namespace kv_cache {

void World::apply(const Command& command) {
  if (!entries_.empty()) entries_.back().is_new = false;
  if (const auto* declared = std::get_if<DeclareRequest>(&command)) {
    if (requests_.number_of(declared->id)) return;
    const auto index = static_cast<RequestIndex>(entries_.size());
    requests_.declare(declared->id, declared->spec());
    entries_.push_back({index, declared->id, static_cast<std::uint32_t>(declared->tokens.size()),
                        declared->skip_reading_prefix_cache, /*is_new=*/true});
  } else if (const auto* appended = std::get_if<AppendTokens>(&command)) {
    Request* request = requests_.find(appended->request);
    if (request) request->append_output_token_ids(appended->tokens);
  }
}

const World::Entry* World::find(const std::string& name) const {
  const auto index = requests_.number_of(name);
  return index ? &entries_[*index] : nullptr;
}

}  // namespace kv_cache

const Target& KVCacheTarget::description() { return described<KVCacheTarget>(); }

}  // namespace kvfence
