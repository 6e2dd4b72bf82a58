#pragma once

/// Checks of every target of contract/all_targets.h.

#include "contract/all_targets.h"
#include "properties/block_pool_checks.h"
#include "properties/connector_checks.h"
#include "properties/disaggregated_checks.h"
#include "properties/engine_checks.h"
#include "properties/eviction_checks.h"
#include "properties/kv_cache_checks.h"
#include "properties/multi_connector_checks.h"
#include "properties/offload_checks.h"
#include "properties/scheduler_checks.h"
#include "properties/simple_offload_checks.h"
#include "properties/synchronous_connector_checks.h"
#include "properties/tiering_checks.h"
#include "properties/worker_checks.h"
