#include "contract/connectors/synchronous/files_facet.h"

#include <algorithm>
#include <utility>

#include "contract/connectors/synchronous/shared_storage.h"

namespace kvfence {

namespace engine::files {

Value to_value(const StorageOperation& member) {
  return Value::Variant(std::string(to_text(member.operation)));
}

bool from_value(const Value& value, StorageOperation& member, std::string& expected) {
  expected = "make_folder, create, write, open or read";
  const auto* text = value.get_if<std::string>();
  if (!text) return false;
  const auto* const found =
      std::find_if(kStorageOperations.begin(), kStorageOperations.end(),
                   [&](FileOperation operation) { return to_text(operation) == *text; });
  if (found == kStorageOperations.end()) return false;
  member = *found;
  return true;
}

}  // namespace engine::files

}  // namespace kvfence
