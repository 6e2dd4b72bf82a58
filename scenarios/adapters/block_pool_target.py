"""The target `block_pool` as an adapter sees it: its configuration and its commands.

Mirrors contract/pool/block_pool_target.h; session.py says what an implementation is. `minimal_pool.py` is a small one,
`upstream_pool.py` the real vLLM.
"""

from __future__ import annotations

from typing import Any, Callable, List, NamedTuple, Optional

from line_language import FLAG, FLAGS, INTEGER, INTEGERS, TEXT, CommandReader, FieldKind, Line, Record
from session import Target, read_config


class MmFeature(NamedTuple):
    """A multimodal item: placeholder tokens offset .. offset + length."""

    identifier: str
    offset: int
    length: int


class Config(NamedTuple):
    """The config line with its defaults. A rule that is None is the profile's."""

    num_gpu_blocks: int = 8
    enable_caching: bool = True
    enable_kv_cache_events: bool = True
    hash_block_size: int = 4
    max_block_size: int = 0  # stands for hash_block_size
    hash_algorithm: str = "sha256_cbor"
    hash_seed: str = "0"
    profile: str = "v0.19"
    free_blocks_prepend: Optional[bool] = None
    cache_full_blocks_mask: Optional[bool] = None
    events_carry_group: Optional[bool] = None


# How the config line's values are recognised.
_CONFIG_KINDS = {
    "num_gpu_blocks": INTEGER,
    "enable_caching": FLAG,
    "enable_kv_cache_events": FLAG,
    "hash_block_size": INTEGER,
    "max_block_size": INTEGER,
    "hash_algorithm": TEXT,
    "hash_seed": TEXT,
    "profile": TEXT,
    "free_blocks_prepend": FLAG,
    "cache_full_blocks_mask": FLAG,
    "events_carry_group": FLAG,
}


def config_from_line(line: Line) -> Config:
    """Raises ValueError."""
    config = read_config(line, Config, _CONFIG_KINDS)
    if config.max_block_size == 0:
        config = config._replace(max_block_size=config.hash_block_size)
    if min(config.num_gpu_blocks, config.hash_block_size, config.max_block_size) < 1:
        raise ValueError("num_gpu_blocks and hash_block_size are at least 1, max_block_size at least 0")
    if config.max_block_size % config.hash_block_size != 0:
        raise ValueError("max_block_size is a multiple of hash_block_size")
    return config


def is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _check_hashed_text(value: Any) -> str:
    if not is_utf8(TEXT.check(value)):
        raise ValueError("text that is not UTF-8 has no hash")
    return value


def _check_mm_features(value: Any) -> List[MmFeature]:
    if type(value) is not list:
        raise ValueError("no list")
    items = []
    for record in value:
        if type(record) is not Record or record.verb != "item" or set(record.fields) != {"id", "offset", "length"}:
            raise ValueError("no item")
        fields = record.fields
        items.append(MmFeature(_check_hashed_text(fields["id"]), INTEGER.check(fields["offset"]),
                               INTEGER.check(fields["length"])))
    if any(before.offset > after.offset for before, after in zip(items, items[1:])):
        raise ValueError("not by offset")
    return items


HASHED_TEXT = FieldKind("word or quoted string of UTF-8", TEXT.pattern, TEXT.read, _check_hashed_text)
_MM_FEATURES = FieldKind("list of items such as [(item id=cat offset=0 length=4)], by offset", r"\[()\]",
                         lambda text: [], _check_mm_features)

# The fields of `request` and `append_tokens`, and their defaults: the same for every target.
REQUEST_FIELDS = {"id": TEXT, "tokens": INTEGERS, "lora_name": HASHED_TEXT, "lora_id": INTEGER,
                  "cache_salt": HASHED_TEXT, "mm_features": _MM_FEATURES}
REQUEST_DEFAULTS = {"lora_name": None, "lora_id": 0, "cache_salt": None, "mm_features": []}
APPEND_TOKENS_FIELDS = {"request": TEXT, "tokens": INTEGERS}

# Verb -> how its fields are read.
READERS = {
    verb: CommandReader(verb, *fields)
    for verb, fields in {
        "request": (REQUEST_FIELDS, REQUEST_DEFAULTS),
        "append_tokens": (APPEND_TOKENS_FIELDS,),
        "get_new_blocks": ({"num_blocks": INTEGER},),
        "get_cached_block": ({"request": TEXT, "index": INTEGER, "block_size": INTEGER, "groups": INTEGERS},),
        "touch": ({"blocks": INTEGERS},),
        "cache_full_blocks": (
            {"request": TEXT, "blocks": INTEGERS, "num_cached_blocks": INTEGER, "num_full_blocks": INTEGER,
             "block_size": INTEGER, "group": INTEGER, "block_mask": FLAGS},
            {"block_mask": None},
        ),
        "free_blocks": ({"blocks": INTEGERS, "prepend": FLAG}, {"prepend": False}),
        "evict_blocks": ({"blocks": INTEGERS},),
        "reset_prefix_cache": ({},),
        "take_events": ({},),
    }.items()
}


def block_pool_target(make: Callable[[Config], Any]) -> Target:
    return Target("block_pool", config_from_line, READERS, make)
