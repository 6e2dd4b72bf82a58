"""The target `disaggregated` as an adapter sees it: its configuration and its commands.

Mirrors contract/connectors/disaggregated/disaggregated_target.h; session.py says what an implementation is.
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

ROLES = ("producer", "consumer")
SECONDS_MAX = 1_000_000_000

# Key of the config line -> its default and how it is recognised, besides those of the scheduler.
_SETTINGS = {
    "consumer_num_gpu_blocks": (0, INTEGER),  # 0: as many as the producer's
    "producer_world_size": (1, INTEGER),
    "consumer_world_size": (1, INTEGER),
    "deadline": (30, INTEGER),  # seconds; 0: for ever
    "transport_may_fail": (False, FLAG),
}

Config = namedtuple(
    "Config",
    [*scheduler_target.Config._fields, *_SETTINGS],
    defaults=[*{**scheduler_target.Config._field_defaults, "connector": True}.values(),
              *[default for default, _ in _SETTINGS.values()]],
)
_CONFIG_KINDS = {
    **kv_cache_target.CONFIG_KINDS,
    **{key: scheduler_target.CONFIG_KINDS[key] for key in connector_target.SCHEDULER_KEYS},
    **{key: kind for key, (_, kind) in _SETTINGS.items()},
}


def config_from_line(line: Line) -> Config:
    """Raises ValueError."""
    config = scheduler_target.config_from_line(line, Config, _CONFIG_KINDS)
    producers, consumers = config.producer_world_size, config.consumer_world_size
    if min(producers, consumers) < 1 or (producers % consumers and consumers % producers):
        raise ValueError("world sizes are at least 1, and one divides the other")
    if config.deadline > SECONDS_MAX:
        raise ValueError(f"a deadline is at most {SECONDS_MAX} seconds")
    if [group.kind for group in config.groups] != ["full"]:
        raise ValueError("one group of full attention is expected")
    return config


_ENGINE = {"engine": scheduler_target.choice("engine", ROLES)}

# Verb -> how its fields are read.
READERS: Dict[str, CommandReader] = {
    "add_request": CommandReader(
        "add_request",
        {**_ENGINE, "id": TEXT, "tokens": INTEGERS, "do_remote_decode": FLAG, "max_tokens": INTEGER,
         "stop_tokens": INTEGERS, "priority": INTEGER, "arrival_time": INTEGER, "cache_salt": HASHED_TEXT,
         "skip_reading_prefix_cache": FLAG},
        {"do_remote_decode": False, "max_tokens": 16, "stop_tokens": [], "priority": 0, "arrival_time": 0,
         "cache_salt": None, "skip_reading_prefix_cache": False},
    ),
    "hand_over": CommandReader(
        "hand_over",
        {"request": TEXT, "id": TEXT, "max_tokens": INTEGER, "priority": INTEGER, "arrival_time": INTEGER},
        {"max_tokens": 16, "priority": 0, "arrival_time": 0}),
    **{verb: connector_target.READERS[verb].behind(_ENGINE)
       for verb in ("schedule", "update", "finish_requests", "finish_all_requests", "set_pause_state",
                    "reset_prefix_cache")},
    "advance_read": CommandReader(
        "advance_read",
        {"read": INTEGER, "progress": scheduler_target.choice("progress", connector_target.PROGRESS)},
        {"progress": "finished"}),
    **{verb: CommandReader(verb, {"notice": INTEGER}) for verb in ("deliver_notice", "lose_notice", "repeat_notice")},
    "advance_clock": CommandReader("advance_clock", {"seconds": INTEGER}),
}


def disaggregated_target(make: Callable[[Config], Any]) -> Target:
    return Target("disaggregated", config_from_line, READERS, make)
