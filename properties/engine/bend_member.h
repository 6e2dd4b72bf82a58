#pragma once

/// Commands that no engine sends: one member of a command gets another value.

#include <functional>
#include <string>
#include <string_view>

#include "contract/engine/engine_target.h"
#include "properties/core/choices.h"

namespace kvfence::engine {

/// Of a command's members those that the assembly knows are bent: all, but for those that only some
/// know, of which `bends` says yes. any_name(): somebody's, or "nobody"; a new request does not
/// become "nobody", a name like any other.
void bend_member(Command& command, const Config& config, std::uint32_t unit,
                 const std::function<bool(std::string_view)>& bends,
                 const std::function<std::string()>& any_name, Choices& choices);

}  // namespace kvfence::engine
