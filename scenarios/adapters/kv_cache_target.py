"""The target `kv_cache` as an adapter sees it: its configuration and its commands.

Mirrors contract/kv_cache/kv_cache_target.h; session.py says what an implementation is.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, NamedTuple, Optional

from block_pool_target import APPEND_TOKENS_FIELDS, REQUEST_DEFAULTS, REQUEST_FIELDS
from line_language import FLAG, INTEGER, INTEGERS, TEXT, CommandReader, FieldKind, Line, Record
from session import Target, read_config

KINDS = ("full", "sliding", "chunked", "mamba", "cross", "sink")


class Group(NamedTuple):
    """The layers of one group (KVCacheSpec in contract/kv_cache/kv_cache_manager.h); 0 and False: not set."""

    kind: str
    block_size: int = 0
    window: int = 0
    chunk: int = 0
    align: bool = False
    spec_blocks: int = 0
    sink_len: int = 0


class Config(NamedTuple):
    """The config line with its defaults."""

    num_gpu_blocks: int = 16
    enable_caching: bool = True
    enable_kv_cache_events: bool = True
    hash_block_size: int = 4
    hash_algorithm: str = "sha256_cbor"
    hash_seed: str = "0"
    profile: str = "v0.19"
    groups: List[Group] = [Group("full", 4)]
    max_model_len: int = 64
    max_num_batched_tokens: int = 64
    use_eagle: bool = False
    eagle_groups: List[int] = []
    retention_interval: Optional[int] = None


def hit_may_overshoot(config: Any) -> bool:
    """Whether upstream's lookup may leave the groups more or fewer blocks than the hit has tokens for."""
    full = {group for group in config.groups if group.kind in ("full", "sink")}
    drops = config.eagle_groups or range(len(config.groups))
    is_eagle = config.use_eagle and config.profile != "v0.19"
    return len(full) > 1 or (is_eagle and any(config.groups[group].kind == "mamba" for group in drops))


def _check_groups(value: Any) -> List[Group]:
    if type(value) is not list:
        raise ValueError("no list")
    groups = []
    for record in value:
        if type(record) is not Record or record.verb not in KINDS:
            raise ValueError(f"no group of a kind {', '.join(KINDS)}")
        for key, number in record.fields.items():
            if key not in Group._field_defaults:
                raise ValueError(f"unknown key {key}")
            (FLAG if key == "align" else INTEGER).check(number)
        groups.append(Group(record.verb, **record.fields))
    if not all(group.block_size for group in groups):
        raise ValueError("a block size of at least one token")
    return groups


_GROUPS = FieldKind("groups such as [(full block_size=4) (sliding block_size=4 window=8)]", r"\[()\]", lambda text: [],
                    _check_groups)

# How the config line's values are recognised.
CONFIG_KINDS = {
    "num_gpu_blocks": INTEGER,
    "enable_caching": FLAG,
    "enable_kv_cache_events": FLAG,
    "hash_block_size": INTEGER,
    "hash_algorithm": TEXT,
    "hash_seed": TEXT,
    "profile": TEXT,
    "groups": _GROUPS,
    "max_model_len": INTEGER,
    "max_num_batched_tokens": INTEGER,
    "use_eagle": FLAG,
    "eagle_groups": INTEGERS,
    "retention_interval": INTEGER,
}


def config_from_line(line: Line, config_type: Any = Config, kinds: Dict[str, FieldKind] = CONFIG_KINDS) -> Any:
    """A configuration, or one of a target that has more fields. Raises ValueError."""
    config = read_config(line, config_type, kinds)
    if min(config.num_gpu_blocks, config.hash_block_size, config.max_model_len, len(config.groups)) < 1:
        raise ValueError("num_gpu_blocks, hash_block_size, max_model_len and the number of groups are at least 1")
    return config


# Verb -> how its fields are read.
READERS = {
    verb: CommandReader(verb, *fields)
    for verb, fields in {
        "request": (
            {**REQUEST_FIELDS, "skip_reading_prefix_cache": FLAG},
            {**REQUEST_DEFAULTS, "skip_reading_prefix_cache": False},
        ),
        "append_tokens": (APPEND_TOKENS_FIELDS,),
        "new_step_starts": ({},),
        "get_computed_blocks": ({"request": TEXT, "was_preempted": FLAG}, {"was_preempted": False}),
        "can_fit_full_sequence": (
            {"request": TEXT, "num_computed_tokens": INTEGER, "from_cache": FLAG, "num_external_tokens": INTEGER,
             "num_encoder_tokens": INTEGER},
            {"num_computed_tokens": 0, "from_cache": False, "num_external_tokens": 0, "num_encoder_tokens": 0},
        ),
        "allocate_slots": (
            {"request": TEXT, "num_computed_tokens": INTEGER, "num_new_tokens": INTEGER, "from_cache": FLAG,
             "num_lookahead_tokens": INTEGER, "num_external_tokens": INTEGER, "delay_cache_blocks": FLAG,
             "num_encoder_tokens": INTEGER, "full_sequence_must_fit": FLAG, "reserved_blocks": INTEGER,
             "was_preempted": FLAG},
            {"from_cache": False, "num_lookahead_tokens": 0, "num_external_tokens": 0, "delay_cache_blocks": False,
             "num_encoder_tokens": 0, "full_sequence_must_fit": False, "reserved_blocks": 0, "was_preempted": False},
        ),
        "cache_blocks": ({"request": TEXT, "num_computed_tokens": INTEGER},),
        "free": ({"request": TEXT},),
        "remove_skipped_blocks": ({"request": TEXT, "total_computed_tokens": INTEGER},),
        "evict_blocks": ({"blocks": INTEGERS},),
        "reset_prefix_cache": ({},),
        "get_num_common_prefix_blocks": ({"request": TEXT},),
        "get_unhashed_block_ids": ({"request": TEXT},),
        "take_new_block_ids": ({},),
        "take_events": ({},),
        "take_prefix_cache_stats": ({},),
    }.items()
}


def kv_cache_target(make: Callable[[Config], Any]) -> Target:
    return Target("kv_cache", config_from_line, READERS, make)
