"""The target `multi_connector` as an adapter sees it: its configuration and its commands.

Mirrors contract/connectors/multi/multi_connector_target.h; session.py says what an implementation is.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, NamedTuple

from line_language import FLAG, INTEGER, INTEGERS, RECORDS, TEXT, TEXTS, CommandReader, FieldKind, Line, Record
from session import Target, read_config

MOST = 8  # children, ranks, groups


class Child(NamedTuple):
    connector_class: str = "a"
    hma: bool = True


class Config(NamedTuple):
    """The config line with its defaults."""

    profile: str = "v0.19"
    children: List[Child] = [Child(), Child()]
    num_ranks: int = 1
    num_groups: int = 1


_CONFIG_KINDS = {"profile": TEXT, "children": RECORDS, "num_ranks": INTEGER, "num_groups": INTEGER}
_CHILD_KINDS = {"class": TEXT, "hma": FLAG}


def config_from_line(line: Line) -> Config:
    """Raises ValueError."""
    config = read_config(line, Config, _CONFIG_KINDS)
    if "children" in line.fields:
        config = config._replace(children=[_child(record) for record in config.children])
    for name, number in (("children", len(config.children)), ("num_ranks", config.num_ranks),
                         ("num_groups", config.num_groups)):
        if not 1 <= number <= MOST:
            raise ValueError(f"{name}: {number}, expected 1 to {MOST}")
    return config


def _child(record: Record) -> Child:
    found = read_answer(record, "child", _CHILD_KINDS)
    return Child(found.get("class", "a"), found.get("hma", True))


# ---- What children answer ----

_OPTIONAL_NUMBER = FieldKind("integer or none", "", int, lambda value: value if value is None else INTEGER.check(value))
_OPTIONAL_NUMBERS = FieldKind("list of integers or none", "", list,
                              lambda value: value if value is None else INTEGERS.check(value))
_OPTIONAL_TEXT = FieldKind("text or none", "", str, lambda value: value if value is None else TEXT.check(value))
_OPTIONAL_FLAG = FieldKind("true, false or none", "", bool, lambda value: value if value is None else FLAG.check(value))

# Word -> the fields of the record.
ANSWERS: Dict[str, Dict[str, FieldKind]] = {
    "match": {"num_tokens": _OPTIONAL_NUMBER, "load_async": FLAG},
    "finish": {"hold": FLAG, "params": _OPTIONAL_TEXT},
    "events": {"ids": INTEGERS},
    "reset": {"done": _OPTIONAL_FLAG},
    "output": {"sending": TEXTS, "recving": TEXTS, "invalid": INTEGERS, "stats": _OPTIONAL_NUMBERS,
               "meta": _OPTIONAL_NUMBERS},
}


def read_answer(record: Record, word: str, kinds: Dict[str, FieldKind]) -> Dict[str, Any]:
    """The fields of a record that are there. Raises ValueError."""
    if record.verb != word or not record.fields.keys() <= kinds.keys():
        raise ValueError(f"expected ({word} {' '.join(f'{key}=...' for key in kinds)})")
    return {key: kinds[key].check(value) for key, value in record.fields.items()}


def _check_blocks(value: Any) -> Any:
    if type(value) is not list:
        raise ValueError("no list")
    return [INTEGERS.check(group) for group in value]


# What no spelling matches takes the way through parse_line.
_BLOCKS = FieldKind("lists of integers", r"\[()\]", lambda text: [], _check_blocks)


def _answers(word: str) -> FieldKind:
    kinds = ANSWERS[word]

    def check(value: Any) -> Any:
        return [read_answer(record, word, kinds) for record in RECORDS.check(value)]

    return RECORDS._replace(check=check)


_RANK = {"rank": 0}

# Verb -> how its fields are read.
READERS = {
    verb: CommandReader(verb, *fields)
    for verb, fields in {
        "on_new_request": ({"request": TEXT},),
        "get_num_new_matched_tokens": ({"request": TEXT, "num_computed_tokens": INTEGER, "answers": _answers("match")},
                                       {"num_computed_tokens": 0, "answers": []}),
        "update_state_after_alloc": ({"request": TEXT, "blocks": _BLOCKS, "num_external_tokens": INTEGER},
                                     {"blocks": [], "num_external_tokens": 0}),
        "build_connector_meta": ({"answers": TEXTS}, {"answers": []}),
        "update_connector_output": ({},),
        "request_finished": ({"request": TEXT, "blocks": _BLOCKS, "answers": _answers("finish")},
                             {"blocks": [], "answers": []}),
        "take_events": ({"answers": _answers("events")}, {"answers": []}),
        "reset_cache": ({"answers": _answers("reset")}, {"answers": []}),
        "handle_preemptions": ({"rank": INTEGER}, _RANK),
        "start_load_kv": ({"rank": INTEGER}, _RANK),
        "wait_for_layer_load": ({"rank": INTEGER, "layer": TEXT}, {**_RANK, "layer": "0"}),
        "save_kv_layer": ({"rank": INTEGER, "layer": TEXT}, {**_RANK, "layer": "0"}),
        "get_kv_connector_output": ({"rank": INTEGER, "wait_for_save": FLAG, "finished_req_ids": TEXTS,
                                     "answers": _answers("output")},
                                    {**_RANK, "wait_for_save": True, "finished_req_ids": [], "answers": []}),
    }.items()
}


def multi_connector_target(make: Callable[[Config], Any]) -> Target:
    return Target("multi_connector", config_from_line, READERS, make)
