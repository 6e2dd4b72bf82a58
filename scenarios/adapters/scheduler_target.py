"""The target `scheduler` as an adapter sees it: its configuration and its commands.

Mirrors contract/scheduler/scheduler_target.h; session.py says what an implementation is.
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any, Callable, Dict, List, NamedTuple

import kv_cache_target
from block_pool_target import HASHED_TEXT
from line_language import FLAG, INTEGER, INTEGERS, TEXT, TEXTS, CommandReader, FieldKind, Line, Record
from session import Target

STATUSES = (
    "waiting",
    "waiting_for_structured_output_grammar",
    "waiting_for_remote_kvs",
    "running",
    "preempted",
    "finished_stopped",
    "finished_length_capped",
    "finished_aborted",
    "finished_ignored",
    "finished_error",
    "finished_repetition",
)
PAUSE_STATES = ("unpaused", "paused_new", "paused_all")

# Key of the config line -> its default and how it is recognised, besides the keys of `kv_cache`.
_SETTINGS = {
    "policy": ("fcfs", TEXT),
    "max_num_seqs": (4, INTEGER),
    "max_num_scheduled_tokens": (0, INTEGER),  # stands for max_num_batched_tokens
    "long_prefill_token_threshold": (0, INTEGER),
    "enable_chunked_prefill": (True, FLAG),
    "scheduler_reserve_full_isl": (True, FLAG),
    "num_speculative_tokens": (0, INTEGER),
    "draft_model": (False, FLAG),
    "async_scheduling": (False, FLAG),
    "max_concurrent_batches": (1, INTEGER),
    "connector": (False, FLAG),
    "kv_load_failure_policy": ("fail", TEXT),
    "priority_victim_shifts_loop": (None, FLAG),  # the profile's
}

Config = namedtuple(
    "Config",
    [*kv_cache_target.Config._fields, *_SETTINGS],
    defaults=[*kv_cache_target.Config._field_defaults.values(), *[default for default, _ in _SETTINGS.values()]],
)
CONFIG_KINDS = {**kv_cache_target.CONFIG_KINDS, **{key: kind for key, (_, kind) in _SETTINGS.items()}}


def config_from_line(line: Line, config_type: Any = Config, kinds: Dict[str, FieldKind] = CONFIG_KINDS) -> Any:
    """A configuration, or one of a target that has other fields. Raises ValueError."""
    config = kv_cache_target.config_from_line(line, config_type, kinds)
    for key, words in (("policy", ("fcfs", "priority")), ("kv_load_failure_policy", ("fail", "recompute"))):
        if getattr(config, key) not in words:
            raise ValueError(f"{key}={getattr(config, key)}, expected {' or '.join(words)}")
    if config.max_num_seqs < 1 or config.max_concurrent_batches not in (1, 2):
        raise ValueError("max_num_seqs is at least 1, max_concurrent_batches 1 or 2")
    return config


class Script(NamedTuple):
    """What the connector answers about a request (contract/scripted/scripted_connector.h)."""

    num_external_tokens: int = 0
    load_async: bool = False
    ask_again: int = 0
    hold_blocks: bool = False


def _check_samples(value: Any) -> List[tuple]:
    """Names and the tokens that they sampled."""
    if type(value) is not list:
        raise ValueError("no list")
    samples = []
    for record in value:
        if type(record) is not Record or record.verb != "sample" or set(record.fields) != {"request", "tokens"}:
            raise ValueError("no sample")
        samples.append((TEXT.check(record.fields["request"]), INTEGERS.check(record.fields["tokens"])))
    return samples


def choice(name: str, words: tuple) -> FieldKind:
    def check(value: Any) -> str:
        if value not in words:
            raise ValueError(f"no {name}")
        return value

    return FieldKind(f"{name}: {', '.join(words)}", r"([a-z_]+)", check, check)


SAMPLES = FieldKind("samples such as [(sample request=A tokens=[1 2])]", r"\[()\]", lambda text: [], _check_samples)
_STATUS = choice("status", STATUSES)
_PAUSE_STATE = choice("state", PAUSE_STATES)

_SCRIPT_FIELDS = {"external_tokens": INTEGER, "load_async": FLAG, "ask_again": INTEGER, "hold_blocks": FLAG}
_SCRIPT_DEFAULTS = dict(zip(_SCRIPT_FIELDS, Script()))

# Verb -> how its fields are read. The fields of a script come last, in Script's order.
READERS: Dict[str, CommandReader] = {
    verb: CommandReader(verb, *fields)
    for verb, fields in {
        "add_request": (
            {"id": TEXT, "tokens": INTEGERS, "max_tokens": INTEGER, "min_tokens": INTEGER, "eos_token": INTEGER,
             "stop_tokens": INTEGERS, "priority": INTEGER, "arrival_time": INTEGER, "lora_name": HASHED_TEXT,
             "lora_id": INTEGER, "cache_salt": HASHED_TEXT, "skip_reading_prefix_cache": FLAG, "grammar": FLAG,
             **_SCRIPT_FIELDS},
            {"max_tokens": 16, "min_tokens": 0, "eos_token": None, "stop_tokens": [], "priority": 0, "arrival_time": 0,
             "lora_name": None, "lora_id": 0, "cache_salt": None, "skip_reading_prefix_cache": False, "grammar": False,
             **_SCRIPT_DEFAULTS},
        ),
        "schedule": ({},),
        "update": (
            {"token": INTEGER, "accepted": INTEGER, "samples": SAMPLES, "finished_recving": TEXTS,
             "finished_sending": TEXTS, "invalid_blocks": INTEGERS},
            {"token": 1, "accepted": 0, "samples": [], "finished_recving": [], "finished_sending": [],
             "invalid_blocks": []},
        ),
        "update_draft_token_ids": ({"request": TEXT, "tokens": INTEGERS},),
        "grammar_compiled": ({"request": TEXT},),
        "finish_requests": ({"requests": TEXTS, "status": _STATUS}, {"status": "finished_aborted"}),
        "finish_all_requests": ({"status": _STATUS}, {"status": "finished_aborted"}),
        "set_pause_state": ({"state": _PAUSE_STATE},),
        "reset_prefix_cache": (
            {"reset_running_requests": FLAG, "reset_connector": FLAG, "connector_fails": FLAG},
            {"reset_running_requests": False, "reset_connector": False, "connector_fails": False},
        ),
        "script_connector": ({"request": TEXT, **_SCRIPT_FIELDS}, _SCRIPT_DEFAULTS),
    }.items()
}


def scheduler_target(make: Callable[[Config], Any]) -> Target:
    return Target("scheduler", config_from_line, READERS, make)
