"""The target `connector` as an adapter sees it: its configuration and its commands.

Mirrors contract/connectors/offloading/connector_target.h; session.py says what an implementation is.
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any, Callable, Dict

import kv_cache_target
import scheduler_target
from block_pool_target import HASHED_TEXT
from line_language import FLAG, INTEGER, INTEGERS, RECORDS, TEXT, CommandReader, Line
from session import Target
from tiering_target import NUM_TIERS_MAX

PROGRESS = ("submitted", "part", "finished", "failed")

# Of the scheduler's settings those that stand on the config line; the others have their defaults.
SCHEDULER_KEYS = ("policy", "max_num_seqs", "long_prefill_token_threshold", "async_scheduling",
                   "max_concurrent_batches", "kv_load_failure_policy")

# Key of the config line -> its default and how it is recognised, besides those.
_SETTINGS = {
    "kv_connector": ("offloading", TEXT),
    "world_size": (1, INTEGER),
    "num_cpu_blocks": (8, INTEGER),
    "block_size_factor": (1, INTEGER),
    "eviction_policy": ("lru", TEXT),
    "store_threshold": (0, INTEGER),  # below 2: no filter
    "max_tracker_size": (64_000, INTEGER),
    "offload_prompt_only": (True, FLAG),
    "request_level_policy": (False, FLAG),
    "transfers_may_fail": (False, FLAG),
    "arc_refuses_with_idle_t1": (None, FLAG),  # the profile's
    "spec_name": ("CPUOffloadingSpec", TEXT),
    "num_tiers": (0, INTEGER),
    "request_level_tiers": ([], INTEGERS),
    "file_tiers": ([], INTEGERS),
}

Config = namedtuple(
    "Config",
    [*scheduler_target.Config._fields, *_SETTINGS],
    defaults=[*{**scheduler_target.Config._field_defaults, "connector": True}.values(),
              *[default for default, _ in _SETTINGS.values()]],
)
_CONFIG_KINDS = {
    **kv_cache_target.CONFIG_KINDS,
    **{key: scheduler_target.CONFIG_KINDS[key] for key in SCHEDULER_KEYS},
    **{key: kind for key, (_, kind) in _SETTINGS.items()},
}


def config_from_line(line: Line) -> Config:
    """Raises ValueError."""
    config = scheduler_target.config_from_line(line, Config, _CONFIG_KINDS)
    if config.eviction_policy not in ("lru", "arc"):
        raise ValueError(f"eviction_policy={config.eviction_policy}, expected lru or arc")
    if min(config.world_size, config.num_cpu_blocks, config.block_size_factor) < 1:
        raise ValueError("world_size, num_cpu_blocks and block_size_factor are at least 1")
    if config.spec_name not in ("CPUOffloadingSpec", "TieringOffloadingSpec"):
        raise ValueError(f"spec_name={config.spec_name}, expected CPUOffloadingSpec or TieringOffloadingSpec")
    _check_tiers(config)
    return config


def _check_tiers(config: Config) -> None:
    """Raises ValueError."""
    has_tiers = config.spec_name == "TieringOffloadingSpec"
    if config.num_tiers > (NUM_TIERS_MAX if has_tiers else 0):
        raise ValueError(f"num_tiers={config.num_tiers}, expected at most {NUM_TIERS_MAX} with TieringOffloadingSpec")
    for name in ("request_level_tiers", "file_tiers"):
        places = getattr(config, name)
        if any(place >= config.num_tiers for place in places) or places != sorted(set(places)):
            raise ValueError(f"{name} are places below num_tiers, ascending, each once")
    if has_tiers and (config.request_level_policy or config.store_threshold >= 2):
        raise ValueError("TieringOffloadingSpec has no request_level_policy and no store_threshold")


# Verb -> how its fields are read.
READERS: Dict[str, CommandReader] = {
    "add_request": CommandReader(
        "add_request",
        {"id": TEXT, "tokens": INTEGERS, "max_tokens": INTEGER, "priority": INTEGER, "arrival_time": INTEGER,
         "cache_salt": HASHED_TEXT, "skip_reading_prefix_cache": FLAG, "max_offload_tokens": INTEGER},
        {"max_tokens": 16, "priority": 0, "arrival_time": 0, "cache_salt": None, "skip_reading_prefix_cache": False,
         "max_offload_tokens": None},
    ),
    "update": CommandReader("update", {"token": INTEGER, "samples": scheduler_target.SAMPLES},
                            {"token": 1, "samples": []}),
    "reset_prefix_cache": CommandReader("reset_prefix_cache", {"reset_connector": FLAG}, {"reset_connector": False}),
    "advance_transfer": CommandReader(
        "advance_transfer",
        {"rank": INTEGER, "job": INTEGER, "progress": scheduler_target.choice("progress", PROGRESS),
         "microseconds": INTEGER},
        {"rank": 0, "progress": "finished", "microseconds": 0}),
    "tier_finish": CommandReader("tier_finish", {"tier": INTEGER, "job": INTEGER, "success": FLAG}, {"success": True}),
    "tier_ask_again": CommandReader(
        "tier_ask_again", {"tier": INTEGER, "request": TEXT, "block": INTEGER, "group": INTEGER, "times": INTEGER},
        {"group": 0, "times": 1}),
    **{verb: CommandReader(verb, {"tier": INTEGER, "request": TEXT, "blocks": INTEGERS, "group": INTEGER}, {"group": 0})
       for verb in ("tier_add", "tier_drop")},
    "tier_faults": CommandReader("tier_faults", {"tier": INTEGER, "faults": RECORDS}),
    "tier_damage": CommandReader(
        "tier_damage",
        {"tier": INTEGER, "request": TEXT, "block": INTEGER, "group": INTEGER, "damage": TEXT, "at": INTEGER},
        {"group": 0, "at": 0}),
    "report_transfer_again": CommandReader("report_transfer_again", {"rank": INTEGER, "job": INTEGER}, {"rank": 0}),
    **{verb: scheduler_target.READERS[verb]
       for verb in ("schedule", "finish_requests", "finish_all_requests", "set_pause_state")},
}


def connector_target(make: Callable[[Config], Any]) -> Target:
    return Target("connector", config_from_line, READERS, make)
