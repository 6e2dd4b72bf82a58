#pragma once

/// Where two observations differ, and where one misses an expectation: the place down to the list
/// index, with both sides as line-language text.

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "contract/core/declare.h"
#include "contract/core/line.h"
#include "contract/core/observation.h"
#include "properties/core/divergence.h"

namespace kvfence {

/// The bytes that a symbol such as `A:1*2/0` stands for; nothing if it is no symbol.
using ResolveSymbol = std::function<std::optional<std::string>(std::string_view symbol)>;
/// The symbol of such bytes; nothing if they have none.
using SymbolOf = std::function<std::optional<std::string>(std::string_view bytes)>;

/// Replaces bytes that have a symbol by it, at any depth.
void symbolize(Value& value, const SymbolOf& symbol_of);

namespace detail {

/// Names the place below `path` where the two values differ. The sides are the innermost members
/// around it, whole: for `free_queue[2]` the lists, so that a reader sees the context.
Divergence locate_difference(std::string path, Value expected, Value actual,
                             const SymbolOf& symbol_of);

}  // namespace detail

/// The first declared member in which two objects differ; nothing if they are equal.
/// Requires: both are of one struct.
std::optional<Divergence> first_difference(const DeclaredObject& expected,
                                           const DeclaredObject& actual, std::size_t step,
                                           const SymbolOf& symbol_of = {});

/// The first key of an expectation that the observation does not meet; nothing if it meets all.
///
/// Keys that the expectation leaves out are ignored. `none` requires a member to be absent. A word
/// matches bytes that it resolves to, an integer the decimal of the same number; records match
/// field by field, a missing field means `none`.
std::optional<Divergence> matches(const std::vector<Field>& expectation,
                                  const Observation& observation, std::size_t step,
                                  const ResolveSymbol& resolve);

}  // namespace kvfence
