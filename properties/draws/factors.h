#pragma once

/// The factors of a configuration and their values, from the declarations alone.
///
/// A factor is the path of a member, such as `num_gpu_blocks` or `groups.sliding.window`. Its
/// values are flags, words and bands of numbers; `none` if the member is absent, `default` if a
/// record leaves it out. The values of a list of records are their words, and its length is a
/// factor, too. A factor below a list may have several values at once.

#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "contract/core/declared_object.h"
#include "contract/core/line.h"
#include "properties/core/checks.h"

namespace kvfence {

/// The members that records may leave out, by the path of the kind of record.
using MembersOfRecords = std::unordered_map<std::string, std::vector<std::string>>;

/// Adds the members of all records in a value.
void learn_members(const std::string& path, const Value& value, MembersOfRecords& members);

using FactorVisitor = std::function<void(const std::string& factor, const std::string& value)>;

/// Calls visit for each value of each factor of a member, for some repeatedly. `members` decides
/// where `default` is reported.
void for_each_factor(const std::string& member, const Value& value, const MembersOfRecords& members,
                     const FactorVisitor& visit);

/// Whether a configuration has `factor=value`.
bool has_factor(const DeclaredObject& config, std::string_view factor_and_value);
bool has_both(const DeclaredObject& config, const NeverTogether& row);

/// The record with another value of that member, which becomes the last one.
Record with_field(const Record& record, const std::string& key, Value value);

/// Copies of `value` with something from `other`: all of it, one element added or replaced, one
/// member of a record replaced.
std::vector<Value> mixtures(const Value& value, const Value& other);

}  // namespace kvfence
