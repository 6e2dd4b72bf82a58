"""The target `simple_offload` as an adapter sees it: its configuration and its commands.

Mirrors contract/connectors/simple/simple_offload_target.h; session.py says what an implementation is.
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any, Callable, Dict

import connector_target
import kv_cache_target
import scheduler_target
from block_pool_target import HASHED_TEXT
from line_language import FLAG, INTEGER, INTEGERS, TEXT, CommandReader, Line
from session import Target

# The rules of contract/core/rules.h that a configuration may override.
RULES = ("simple_offload_pins_hits", "simple_offload_skips_stores_under_way", "simple_offload_skips_unhashed_blocks",
         "simple_offload_aligns_stores")

# Of the scheduler's settings those that stand on the config line; the others have their defaults.
_SCHEDULER_KEYS = ("policy", "max_num_seqs", "long_prefill_token_threshold", "async_scheduling",
                   "max_concurrent_batches")

# Key of the config line -> its default and how it is recognised, besides those.
_SETTINGS = {
    "world_size": (1, INTEGER),
    "num_cpu_blocks": (8, INTEGER),  # with the null block
    "lazy_offload": (False, FLAG),
    **{rule: (None, FLAG) for rule in RULES},  # the profile's
}

Config = namedtuple(
    "Config",
    [*scheduler_target.Config._fields, *_SETTINGS],
    defaults=[*{**scheduler_target.Config._field_defaults, "connector": True}.values(),
              *[default for default, _ in _SETTINGS.values()]],
)
_CONFIG_KINDS = {
    **kv_cache_target.CONFIG_KINDS,
    **{key: scheduler_target.CONFIG_KINDS[key] for key in _SCHEDULER_KEYS},
    **{key: kind for key, (_, kind) in _SETTINGS.items()},
}


def config_from_line(line: Line) -> Config:
    """Raises ValueError."""
    config = scheduler_target.config_from_line(line, Config, _CONFIG_KINDS)
    if min(config.world_size, config.num_cpu_blocks) < 1:
        raise ValueError("world_size and num_cpu_blocks are at least 1")
    return config


# Verb -> how its fields are read.
READERS: Dict[str, CommandReader] = {
    "add_request": CommandReader(
        "add_request",
        {"id": TEXT, "tokens": INTEGERS, "max_tokens": INTEGER, "priority": INTEGER, "arrival_time": INTEGER,
         "cache_salt": HASHED_TEXT, "skip_reading_prefix_cache": FLAG},
        {"max_tokens": 16, "priority": 0, "arrival_time": 0, "cache_salt": None, "skip_reading_prefix_cache": False},
    ),
    "advance_copy": CommandReader(
        "advance_copy",
        {"rank": INTEGER, "store": FLAG, "progress": scheduler_target.choice("progress", connector_target.PROGRESS)},
        {"rank": 0, "store": False, "progress": "finished"}),
    **{verb: connector_target.READERS[verb]
       for verb in ("schedule", "update", "finish_requests", "finish_all_requests", "set_pause_state",
                    "reset_prefix_cache")},
}


def simple_offload_target(make: Callable[[Config], Any]) -> Target:
    return Target("simple_offload", config_from_line, READERS, make)
