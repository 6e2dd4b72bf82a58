#pragma once

/// How far a transfer has come, as a value of the line language.

#include <string>

#include "contract/core/line.h"
#include "contract/scripted/scripted_transfer_engine.h"

namespace kvfence {

Value to_value(TransferProgress member);
bool from_value(const Value& value, TransferProgress& member, std::string& expected);

}  // namespace kvfence
