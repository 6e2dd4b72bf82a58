#include "contract/core/shared_library.h"

#include <dlfcn.h>

namespace kvfence {
namespace {

InputError error_in(const std::string& path, const std::string& expected) {
  const char* const found = dlerror();
  return {path, {}, found ? found : "a null address", expected};
}

}  // namespace

Parsed<void*> open_symbol(const std::string& path, const std::string& symbol) {
  const std::string expected = "a shared library with the symbol " + symbol;
  // A name without a slash would be looked for in the system's folders.
  const std::string file = path.find('/') == path.npos ? "./" + path : path;
  void* const library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) return error_in(path, expected);
  void* const address = dlsym(library, symbol.c_str());
  if (!address) return error_in(path, expected);
  return address;
}

}  // namespace kvfence
