"""The target `eviction` as an adapter sees it: its configuration and its commands.

Mirrors contract/eviction/eviction_target.h; session.py says what an implementation is. Keys are numbers.
"""

from __future__ import annotations

from typing import Any, Callable, NamedTuple, Optional

from line_language import FLAG, INTEGER, INTEGERS, TEXT, CommandReader, Line
from session import Target, read_config


class Config(NamedTuple):
    """The config line with its defaults. A rule that is None is the profile's."""

    policy: str = "lru"
    capacity: int = 8
    profile: str = "v0.19"
    arc_refuses_with_idle_t1: Optional[bool] = None


# How the config line's values are recognised.
CONFIG_KINDS = {"policy": TEXT, "capacity": INTEGER, "profile": TEXT, "arc_refuses_with_idle_t1": FLAG}


def check_policy(config: Any) -> None:
    """Raises ValueError."""
    if config.policy not in ("lru", "arc"):
        raise ValueError(f"policy {config.policy}, expected lru or arc")
    if config.capacity < 1:
        raise ValueError("capacity is at least 1")


def config_from_line(line: Line) -> Config:
    """Raises ValueError."""
    config = read_config(line, Config, CONFIG_KINDS)
    check_policy(config)
    return config


# Verb -> how its fields are read.
READERS = {
    verb: CommandReader(verb, *fields)
    for verb, fields in {
        "get": ({"key": INTEGER},),
        "insert": ({"key": INTEGER, "slot": INTEGER}, {"slot": 0}),
        "remove": ({"key": INTEGER},),
        "make_ready": ({"key": INTEGER},),
        "acquire": ({"key": INTEGER},),
        "release": ({"key": INTEGER},),
        "touch": ({"keys": INTEGERS},),
        "evict": ({"num_blocks": INTEGER, "protected": INTEGERS}, {"protected": []}),
        "clear": ({},),
    }.items()
}


def eviction_target(make: Callable[[Config], Any]) -> Target:
    return Target("eviction", config_from_line, READERS, make)
