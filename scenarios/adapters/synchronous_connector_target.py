"""The target `synchronous_connector` as an adapter sees it: its configuration and its commands.

Mirrors contract/connectors/synchronous/synchronous_connector_target.h; session.py says what an implementation is.
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any, Callable, Dict

import connector_target
import kv_cache_target
import scheduler_target
from line_language import FLAG, INTEGER, INTEGERS, TEXT, CommandReader, Line
from scripted_storage import OPERATIONS
from session import Target

# Of the scheduler's settings those that stand on the config line; the others have their defaults.
_SCHEDULER_KEYS = ("max_num_seqs", "long_prefill_token_threshold", "max_concurrent_batches")

# Key of the config line -> its default and how it is recognised, besides those.
_SETTINGS = {
    "kv_connector": ("example", TEXT),
    "world_size": (1, INTEGER),
    "num_layers": (1, INTEGER),  # a rank
    "decode_bench_hma": (None, FLAG),  # the profile's
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
    if config.kv_connector not in ("example", "decode_bench"):
        raise ValueError(f"kv_connector={config.kv_connector}, expected example or decode_bench")
    if min(config.world_size, config.num_layers) < 1:
        raise ValueError("world_size and num_layers are at least 1")
    if len({group.block_size for group in config.groups}) != 1:
        raise ValueError("groups of one block size")
    return config


# Verb -> how its fields are read.
READERS: Dict[str, CommandReader] = {
    verb: CommandReader(verb, *fields)
    for verb, fields in {
        "add_request": (
            {"id": TEXT, "tokens": INTEGERS, "max_tokens": INTEGER, "skip_reading_prefix_cache": FLAG},
            {"max_tokens": 16, "skip_reading_prefix_cache": False},
        ),
        "write_entry": ({"tokens": INTEGERS, "num_files": INTEGER},),
        "remove_entry": ({"tokens": INTEGERS},),
        "remove_file": ({"tokens": INTEGERS, "layer": INTEGER},),
        "truncate_file": ({"tokens": INTEGERS, "layer": INTEGER},),
        "fail_next": ({"layer": INTEGER, "operation": scheduler_target.choice("operation", OPERATIONS)},),
    }.items()
}
READERS.update({verb: connector_target.READERS[verb]
                for verb in ("schedule", "update", "finish_requests", "finish_all_requests", "set_pause_state",
                             "reset_prefix_cache")})


def synchronous_connector_target(make: Callable[[Config], Any]) -> Target:
    return Target("synchronous_connector", config_from_line, READERS, make)
