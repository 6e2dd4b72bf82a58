"""The target `offload` as an adapter sees it: its configuration and its commands.

Mirrors contract/offload/offload_target.h; session.py says what an implementation is. Keys are numbers.
"""

from __future__ import annotations

from typing import Any, Callable, NamedTuple, Optional

from eviction_target import CONFIG_KINDS, check_policy
from line_language import FLAG, INTEGER, INTEGERS, CommandReader, Line
from session import Target, read_config


class Config(NamedTuple):
    """The config line with its defaults. A rule that is None is the profile's."""

    policy: str = "lru"
    capacity: int = 8
    profile: str = "v0.19"
    arc_refuses_with_idle_t1: Optional[bool] = None
    enable_events: bool = True
    store_threshold: int = 0  # below 2: no filter
    max_tracker_size: int = 64_000


_CONFIG_KINDS = {**CONFIG_KINDS, "enable_events": FLAG, "store_threshold": INTEGER, "max_tracker_size": INTEGER}


def config_from_line(line: Line) -> Config:
    """Raises ValueError."""
    config = read_config(line, Config, _CONFIG_KINDS)
    check_policy(config)
    if config.store_threshold >= 2 and config.max_tracker_size < 1:
        raise ValueError("max_tracker_size is at least 1 with a store_threshold")
    return config


# Verb -> how its fields are read.
READERS = {
    verb: CommandReader(verb, *fields)
    for verb, fields in {
        "lookup": ({"keys": INTEGERS},),
        "lookup_key": ({"key": INTEGER},),
        "touch": ({"keys": INTEGERS},),
        "prepare_load": ({"keys": INTEGERS},),
        "complete_load": ({"keys": INTEGERS},),
        "prepare_store": ({"keys": INTEGERS},),
        "complete_store": ({"keys": INTEGERS, "success": FLAG}, {"success": True}),
        "reset_cache": ({},),
        "take_events": ({},),
    }.items()
}


def offload_target(make: Callable[[Config], Any]) -> Target:
    return Target("offload", config_from_line, READERS, make)
