"""The target `block_pool` as an adapter sees it: its configuration, its commands, and a session that speaks the
protocol.

Mirrors contract/block_pool_target.h. An implementation is a class with one method a command, named like its verb, that
takes the command's fields in order and returns the answer as text (`error=none blocks=[1 2]`), and with
`observe(state)`, which returns the text of what is observed after it. `minimal_pool.py` is a small one,
`upstream_pool.py` the real vLLM.
"""

from __future__ import annotations

import traceback
from typing import Any, Callable, List, NamedTuple, Optional

from line_language import (
    FLAG,
    FLAGS,
    INTEGER,
    INTEGERS,
    TEXT,
    CommandReader,
    FieldKind,
    Line,
    Record,
    parse_line,
)
from wire import malformed, unsupported


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


class Unsupported(Exception):
    """Why an implementation cannot do what a target or config line asks for."""


def config_from_line(line: Line) -> Config:
    """Raises ValueError."""
    for key, value in line.fields.items():
        if key not in Config._fields:
            raise ValueError(f"unknown key {key}, expected one of {', '.join(Config._fields)}")
        default = Config._field_defaults[key]
        if default is None and value is None:
            continue
        kind = bool if default is None else type(default)
        if type(value) is not kind:
            raise ValueError(f"{key}={value!r}, expected {kind.__name__}")
    config = Config(**line.fields)
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


_HASHED_TEXT = FieldKind("word or quoted string of UTF-8", TEXT.pattern, TEXT.read, _check_hashed_text)
_MM_FEATURES = FieldKind("list of items such as [(item id=cat offset=0 length=4)], by offset", r"\[()\]",
                         lambda text: [], _check_mm_features)

# Verb -> how its fields are read.
READERS = {
    verb: CommandReader(verb, *fields)
    for verb, fields in {
        "request": (
            {"id": TEXT, "tokens": INTEGERS, "lora_name": _HASHED_TEXT, "lora_id": INTEGER,
             "cache_salt": _HASHED_TEXT, "mm_features": _MM_FEATURES},
            {"lora_name": None, "lora_id": 0, "cache_salt": None, "mm_features": []},
        ),
        "append_tokens": ({"request": TEXT, "tokens": INTEGERS},),
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


class Session:
    """Takes lines, gives replies: pass `answer` to wire.serve.

    describe() gives the fields of the reply to `target block_pool`, make_pool(config) a fresh implementation; both may
    raise Unsupported.
    """

    def __init__(self, describe: Callable[[], str], make_pool: Callable[[Config], Any]):
        self._describe = describe
        self._make_pool = make_pool
        self._commands: dict = {}
        self._observe: Callable[[bool], str] = str
        self._observe_state = True

    def answer(self, text: str) -> str:
        try:
            command = self._commands.get(text.partition(" ")[0])
            if command is None:
                line = parse_line(text)
                command = self._commands.get(line.verb)
                if command is None:
                    return self._answer_protocol(line)
            read, run = command
            arguments = read(text)
        except Unsupported as why:
            return unsupported(why)
        except ValueError as error:
            return malformed(error)
        try:
            return f"-> {run(*arguments)}{self._observe(self._observe_state)}"
        except Exception as error:
            # kvfence shows the last line of stderr.
            traceback.print_exc()
            raise SystemExit(f"{type(error).__name__} {error} on: {text[:200]}") from None

    def _answer_protocol(self, line: Line) -> str:
        if line.verb == "target":
            if line.subject != "block_pool":
                raise Unsupported(f"target {line.subject}, only block_pool is known")
            return f"-> {self._describe()}"
        if line.subject:
            raise ValueError(f"found {line.subject}, expected key=value")
        if line.verb == "config":
            config = config_from_line(line)
            self._commands = {}
            pool = self._make_pool(config)
            self._observe = pool.observe
            self._commands = {verb: (reader.read, getattr(pool, verb)) for verb, reader in READERS.items()}
            return "->"
        if line.verb == "observe":
            if list(line.fields) != ["state"]:
                raise ValueError("expected observe state=true or observe state=false")
            self._observe_state = FLAG.check(line.fields["state"])
            return "->"
        if line.verb not in READERS:
            raise ValueError(f"unknown command {line.verb}, expected one of {', '.join(READERS)}")
        raise ValueError("a command before a supported config")
