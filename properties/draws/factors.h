#pragma once

/// What a configuration is made of, from the declarations alone.
///
/// A factor is a member by its path, such as `num_gpu_blocks` or `groups.sliding.window`. Its
/// values are flags, words and bands of numbers; `none` of an absent member, `default` of one
/// that a record leaves out. A list of records has their words for values, and its length is a
/// factor, too. What stands in a list may have several values at once.

#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "contract/core/declared_object.h"
#include "contract/core/line.h"
#include "properties/core/checks.h"

namespace kvfence {

/// The members that records of one kind, by its path, may leave out.
using MembersOfRecords = std::unordered_map<std::string, std::vector<std::string>>;

/// Adds the members that stand in the records of a value.
void learn_members(const std::string& path, const Value& value, MembersOfRecords& members);

using FactorVisitor = std::function<void(const std::string& factor, const std::string& value)>;

/// Calls visit for each value of each factor of a member, of some repeatedly. `members` decides
/// where `default` is seen.
void for_each_factor(const std::string& member, const Value& value, const MembersOfRecords& members,
                     const FactorVisitor& visit);

/// Whether a configuration has `factor=value`.
bool has_factor(const DeclaredObject& config, std::string_view factor_and_value);
bool has_both(const DeclaredObject& config, const NeverTogether& row);

/// The record with another value of that member, which comes last.
Record with_field(const Record& record, const std::string& key, Value value);

/// Values that have something of `other` in the place of what `value` has: all of it, one element
/// more or another one, one member of a record.
std::vector<Value> mixtures(const Value& value, const Value& other);

}  // namespace kvfence
