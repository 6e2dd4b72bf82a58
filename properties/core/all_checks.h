#pragma once

/// Checks of every target of contract/core/all_targets.h.

#include "contract/core/all_targets.h"
#include "properties/pool/checks.h"
#include "properties/connectors/offloading/checks.h"
#include "properties/connectors/disaggregated/checks.h"
#include "properties/engine/checks.h"
#include "properties/eviction/checks.h"
#include "properties/kv_cache/checks.h"
#include "properties/connectors/multi/checks.h"
#include "properties/offload/checks.h"
#include "properties/scheduler/checks.h"
#include "properties/connectors/simple/checks.h"
#include "properties/connectors/synchronous/checks.h"
#include "properties/tiering/checks.h"
#include "properties/worker/checks.h"
