"""The target `tiering` as an adapter sees it: its configuration and its commands.

Mirrors contract/tiering/tiering_target.h; session.py says what an implementation is. Keys are numbers, tiers their place.
"""

from __future__ import annotations

from typing import Any, Callable, List, NamedTuple, Optional

from eviction_target import CONFIG_KINDS, check_policy
from line_language import FLAG, INTEGER, INTEGERS, RECORDS, TEXT, CommandReader, Line
from session import Target, read_config

NUM_TIERS_MAX = 8


class Config(NamedTuple):
    """The config line with its defaults. A rule that is None is the profile's."""

    policy: str = "lru"
    capacity: int = 8
    profile: str = "v0.23"
    arc_refuses_with_idle_t1: Optional[bool] = None
    enable_events: bool = True
    num_tiers: int = 1
    file_tiers: List[int] = []


_CONFIG_KINDS = {**CONFIG_KINDS, "enable_events": FLAG, "num_tiers": INTEGER, "file_tiers": INTEGERS}


def config_from_line(line: Line) -> Config:
    """Raises ValueError."""
    config = read_config(line, Config, _CONFIG_KINDS)
    check_policy(config)
    if config.num_tiers > NUM_TIERS_MAX:
        raise ValueError(f"num_tiers is at most {NUM_TIERS_MAX}")
    places = config.file_tiers
    if any(place >= config.num_tiers for place in places) or places != sorted(set(places)):
        raise ValueError("file_tiers are places below num_tiers, ascending, each once")
    return config


# Verb -> how its fields are read.
READERS = {
    verb: CommandReader(verb, *fields)
    for verb, fields in {
        "lookup": ({"key": INTEGER, "request": TEXT},),
        "touch": ({"keys": INTEGERS, "request": TEXT},),
        "prepare_load": ({"keys": INTEGERS},),
        "complete_load": ({"keys": INTEGERS},),
        "prepare_store": ({"keys": INTEGERS, "request": TEXT},),
        "complete_store": ({"keys": INTEGERS, "request": TEXT, "success": FLAG}, {"success": True}),
        "on_new_request": ({"request": TEXT, "request_level": INTEGERS}, {"request_level": []}),
        "on_request_finished": ({"request": TEXT},),
        "on_schedule_end": ({},),
        "reset_cache": ({},),
        "take_events": ({},),
        "tier_finish": ({"tier": INTEGER, "job": INTEGER, "success": FLAG}, {"success": True}),
        "tier_ask_again": ({"tier": INTEGER, "key": INTEGER, "times": INTEGER}, {"times": 1}),
        "tier_add": ({"tier": INTEGER, "keys": INTEGERS},),
        "tier_drop": ({"tier": INTEGER, "keys": INTEGERS},),
        "tier_faults": ({"tier": INTEGER, "faults": RECORDS},),
        "tier_damage": ({"tier": INTEGER, "key": INTEGER, "damage": TEXT, "at": INTEGER}, {"at": 0}),
        "tier_restart": ({"tier": INTEGER, "overtaken": FLAG}, {"overtaken": False}),
        "tier_writer": ({"tier": INTEGER, "number": INTEGER, "does": TEXT},),
    }.items()
}


def tiering_target(make: Callable[[Config], Any]) -> Target:
    return Target("tiering", config_from_line, READERS, make)
