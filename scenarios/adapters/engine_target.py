"""The target `engine` as an adapter sees it: its configuration, its commands, and the world of names that they declare.

Mirrors contract/engine and contract/connectors/*/*_facet.h; session.py says what an implementation is.
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any, Callable, Dict, Iterable, List, NamedTuple, Optional, Sequence

import kv_cache_target
from block_pool_target import HASHED_TEXT
from line_language import FLAG, INTEGER, INTEGERS, RECORDS, TEXT, TEXTS, CommandReader, FieldKind, Line, Record
from scripted_storage import OPERATIONS
from session import Target, read_config
from tiering_target import NUM_TIERS_MAX

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
PROGRESS = ("submitted", "part", "finished", "failed")
DEVICES = ("scripted", "symbols", "virtual")
ROLES = ("producer", "consumer")  # an engine alone is the producer
SECONDS_MAX = 1_000_000_000

# The rules of contract/core/rules.h that a simple connector may override.
SIMPLE_OFFLOAD_RULES = ("simple_offload_pins_hits", "simple_offload_skips_stores_under_way",
                        "simple_offload_skips_unhashed_blocks", "simple_offload_aligns_stores")


def choice(name: str, words: tuple) -> FieldKind:
    def check(value: Any) -> str:
        if value not in words:
            raise ValueError(f"no {name}")
        return value

    return FieldKind(f"{name}: {', '.join(words)}", r"([a-z_]+)", check, check)


# ---- Connectors, each a record in the configuration ----


class Scripted(NamedTuple):
    """Commands set its answers. The members are those of a child of a MultiConnector."""

    connector_class: str = "a"  # key: class
    hma: bool = True
    cross_layers: bool = False
    handshake: bool = False
    shutdown_fails: bool = False


class Offloading(NamedTuple):
    num_cpu_blocks: int = 8
    block_size_factor: int = 1
    eviction_policy: str = "lru"
    store_threshold: int = 0  # below 2: no filter
    max_tracker_size: int = 64_000
    offload_prompt_only: bool = True
    request_level_policy: bool = False
    transfers_may_fail: bool = False
    arc_refuses_with_idle_t1: Optional[bool] = None  # the profile's
    spec_name: str = "CPUOffloadingSpec"
    num_tiers: int = 0
    request_level_tiers: List[int] = []
    file_tiers: List[int] = []
    block_bytes: int = 4096
    engine_labels: List[int] = [0]


class Simple(namedtuple("Simple", ["num_cpu_blocks", "lazy_offload", *SIMPLE_OFFLOAD_RULES],
                        defaults=[8, False, None, None, None, None])):
    """num_cpu_blocks: with the null block. Rules: None is the profile's."""


class Example(NamedTuple):
    num_layers: int = 1  # a rank


class DecodeBench(NamedTuple):
    num_layers: int = 1
    decode_bench_hma: Optional[bool] = None  # the profile's


class Nixl(NamedTuple):
    deadline: int = 30  # seconds; 0: no deadline
    transport_may_fail: bool = False


class Multi(NamedTuple):
    """Over scripted children and NIXL; other real ones are not served (multi_commands.py)."""

    children: List[Any] = []
    multi_connector_shares_blocks: Optional[bool] = None  # the profile's


CONNECTORS = {"scripted": Scripted, "offloading": Offloading, "simple": Simple, "example": Example,
              "decode_bench": DecodeBench, "nixl": Nixl, "multi": Multi}

_NUM_CHILDREN_MAX = 8
_KEYS_OF_SCRIPTED = {"class": "connector_class"}
_KIND_OF_DEFAULT = {int: INTEGER, bool: FLAG, str: TEXT, list: INTEGERS, type(None): FLAG}


def _check_connectors(value: Any) -> List[Any]:
    connectors: List[Any] = []
    for record in RECORDS.check(value):
        if record.verb not in CONNECTORS:
            raise ValueError(f"no connector {', '.join(CONNECTORS)}")
        connector_type = CONNECTORS[record.verb]
        if connector_type is Multi:
            children = _check_connectors(record.fields.get("children", []))
            if not 1 <= len(children) <= _NUM_CHILDREN_MAX:
                raise ValueError(f"{len(children)} children, expected 1 to {_NUM_CHILDREN_MAX}")
            connectors.append(Multi(children, record.fields.get("multi_connector_shares_blocks")))
            continue
        if connector_type is Scripted:
            renamed = {_KEYS_OF_SCRIPTED.get(key, key): member for key, member in record.fields.items()}
            record = Record(record.verb, renamed)
        kinds = {key: _KIND_OF_DEFAULT[type(default)] for key, default in connector_type._field_defaults.items()}
        connectors.append(read_config(record, connector_type, kinds))
    return connectors


_CONNECTORS = FieldKind("connectors such as [(offloading num_cpu_blocks=8)]", r"\[()\]", lambda text: [],
                        _check_connectors)

# ---- The configuration ----

# The connectors of each assembly, for a configuration without connectors.
_ASSEMBLIES = {
    "scheduler": {"connectors": []},
    "offloading": {"connectors": [Offloading()]},
    "offloading_on_device": {"connectors": [Offloading()], "device": "virtual"},
    "on_device": {"connectors": [Multi([Offloading(), Simple()])], "device": "virtual"},
    "simple": {"connectors": [Simple()]},
    "synchronous": {"connectors": [Example()]},
    "prefill_decode": {"connectors": [Nixl()], "engines": 2},
    "multi": {"connectors": [Multi([Offloading(), Simple()])]},
}
_ASSEMBLY_OF = {type(None): "scheduler", Scripted: "scheduler", Offloading: "offloading", Simple: "simple",
                Example: "synchronous", DecodeBench: "synchronous", Nixl: "prefill_decode",
                Multi: "multi"}

# Key of the config line -> its default and how it is recognised, besides the keys of `kv_cache`.
_SETTINGS = {
    "assembly": ("", TEXT),
    "connectors": (None, _CONNECTORS),  # those of the assembly
    "device": ("scripted", choice("device", DEVICES)),
    "engines": (1, INTEGER),
    "ranks": (1, INTEGER),
    "consumer_ranks": (1, INTEGER),
    "consumer_num_gpu_blocks": (0, INTEGER),  # 0: as many as the producer's
    "tokens_only": (False, FLAG),
    "policy": ("fcfs", choice("policy", ("fcfs", "priority"))),
    "max_num_seqs": (4, INTEGER),
    "max_num_scheduled_tokens": (0, INTEGER),  # stands for max_num_batched_tokens
    "long_prefill_token_threshold": (0, INTEGER),
    "enable_chunked_prefill": (True, FLAG),
    "scheduler_reserve_full_isl": (True, FLAG),
    "num_speculative_tokens": (0, INTEGER),
    "draft_model": (False, FLAG),
    "async_scheduling": (False, FLAG),
    "max_concurrent_batches": (1, INTEGER),
    "kv_load_failure_policy": ("fail", choice("policy", ("fail", "recompute"))),
    "priority_victim_shifts_loop": (None, FLAG),  # the profile's
    "external_blocks_after_hits": (None, FLAG),  # the same
}
_CONFIG_KINDS = {**kv_cache_target.CONFIG_KINDS, **{key: kind for key, (_, kind) in _SETTINGS.items()}}


class Config(namedtuple("Config", [*kv_cache_target.Config._fields, *_SETTINGS],
                        defaults=[*kv_cache_target.Config._field_defaults.values(),
                                  *[default for default, _ in _SETTINGS.values()]])):
    @property
    def connector(self) -> Any:
        """One of CONNECTORS, or None."""
        return self.connectors[0] if self.connectors else None


def record_of(config: Config, connector_type: type) -> Any:
    """The connector of that type, or the child of a MultiConnector; or None."""
    connectors = [config.connector, *getattr(config.connector, "children", [])]
    return next((each for each in connectors if isinstance(each, connector_type)), None)


def config_from_line(line: Line) -> Config:
    """Raises ValueError."""
    config = kv_cache_target.config_from_line(line, Config, _CONFIG_KINDS)
    if config.assembly not in ("", *_ASSEMBLIES):
        raise ValueError(f"assembly={config.assembly}, expected one of {', '.join(_ASSEMBLIES)}")
    if config.assembly and config.connectors is None:
        config = config._replace(**{"device": "scripted", "engines": 1, **_ASSEMBLIES[config.assembly]})
    if len(config.connectors or ()) > 1:
        raise ValueError("several connectors, expected one or none")
    if config.assembly not in ("", _assembly_of(config)):
        raise ValueError(f"assembly={config.assembly}, expected {_assembly_of(config)}, as the connectors say")
    is_pair = record_of(config, Nixl) is not None
    if config.engines != 1 + is_pair:
        raise ValueError(f"engines={config.engines}, expected 2 under (nixl), else 1")
    under = config.connector.children if isinstance(config.connector, Multi) else config.connectors or []
    if config.device != "scripted" and not all(isinstance(each, (Offloading, Simple, Nixl)) for each in under):
        raise ValueError(f"device={config.device}, expected scripted, unless under (offloading), (simple), (nixl), none")
    if config.device != "scripted" and is_pair and config.consumer_ranks != config.ranks:
        raise ValueError(f"consumer_ranks={config.consumer_ranks}, expected as many as ranks on a device")
    if min(config.ranks, config.consumer_ranks, config.max_num_seqs) < 1:
        raise ValueError("ranks, consumer_ranks and max_num_seqs are at least 1")
    if config.max_concurrent_batches not in (1, 2):
        raise ValueError("max_concurrent_batches is 1 or 2")
    _check_connector(config)
    return config


def _assembly_of(config: Config) -> str:
    if config.device != "scripted":
        return "offloading_on_device" if isinstance(config.connector, Offloading) else "on_device"
    return _ASSEMBLY_OF[type(config.connector)]


def _check_connector(config: Config) -> None:
    """Raises ValueError."""
    connector = config.connector
    if isinstance(connector, (Example, DecodeBench)) and config.policy != "fcfs":
        raise ValueError(f"policy={config.policy}, expected fcfs")
    if isinstance(connector, (Example, DecodeBench)) and config.async_scheduling:
        raise ValueError("async_scheduling=true, expected false")
    if getattr(connector, "num_cpu_blocks", 1) < 1 or getattr(connector, "num_layers", 1) < 1:
        raise ValueError("num_cpu_blocks and num_layers are at least 1")
    if isinstance(connector, Offloading):
        _check_offloading(connector)
    if isinstance(connector, (Example, DecodeBench)) and len({group.block_size for group in config.groups}) != 1:
        raise ValueError("groups of one block size")
    nixl = record_of(config, Nixl)
    if nixl is not None:
        if config.ranks % config.consumer_ranks and config.consumer_ranks % config.ranks:
            raise ValueError("one of ranks and consumer_ranks divides the other")
        if nixl.deadline > SECONDS_MAX:
            raise ValueError(f"a deadline is at most {SECONDS_MAX} seconds")
        _check_groups_of_pair(config, nixl)


def has_window(groups: Sequence[kv_cache_target.Group]) -> bool:
    return any(group.kind == "sliding" for group in groups)


def reports_failed_reads(groups: Sequence[kv_cache_target.Group]) -> bool:
    """Whether a pair reports a read that fails (contract/connectors/disaggregated/nixl_facet.h)."""
    return [group.kind for group in groups] == ["full"]


def _check_groups_of_pair(config: Config, nixl: Nixl) -> None:
    """Raises ValueError."""
    groups = config.groups
    if any(group.kind not in ("full", "sliding") or group.block_size != groups[0].block_size
           or (group.kind == "sliding" and group.window < 2) for group in groups):
        raise ValueError("groups of one block size, full or sliding with a window of at least 2 tokens, are expected")
    if has_window(groups) and config.profile == "v0.19":
        raise ValueError("a window, expected a profile with rule finish_drops_by_computed_tokens")
    if has_window(groups) and config.device != "scripted":
        raise ValueError("a window over NIXL, expected none on a device")
    if not reports_failed_reads(groups) and (nixl.deadline or nixl.transport_may_fail):
        raise ValueError("expected deadline=0 alone with a window or several groups")


def _check_offloading(connector: Offloading) -> None:
    """Raises ValueError."""
    if connector.eviction_policy not in ("lru", "arc"):
        raise ValueError(f"eviction_policy={connector.eviction_policy}, expected lru or arc")
    if connector.block_size_factor < 1:
        raise ValueError("block_size_factor is at least 1")
    if connector.spec_name not in ("CPUOffloadingSpec", "TieringOffloadingSpec"):
        raise ValueError(f"spec_name={connector.spec_name}, expected CPUOffloadingSpec or TieringOffloadingSpec")
    has_tiers = connector.spec_name == "TieringOffloadingSpec"
    num_tiers = connector.num_tiers
    if num_tiers > (NUM_TIERS_MAX if has_tiers else 0):
        raise ValueError(f"num_tiers={num_tiers}, expected at most {NUM_TIERS_MAX} with TieringOffloadingSpec")
    for name in ("request_level_tiers", "file_tiers"):
        places = getattr(connector, name)
        if any(place >= num_tiers for place in places) or places != sorted(set(places)):
            raise ValueError(f"{name} are places below num_tiers, ascending, each once")
    if has_tiers and (connector.request_level_policy or connector.store_threshold >= 2):
        raise ValueError("TieringOffloadingSpec has no request_level_policy and no store_threshold")
    if not connector.engine_labels:
        raise ValueError("engine_labels=[], expected at least one engine index")


# ---- Commands ----


class Script(NamedTuple):
    """The scripted connector's answers about a request (contract/scripted/scripted_connector.h)."""

    num_external_tokens: int = 0
    load_async: bool = False
    ask_again: int = 0
    hold_blocks: bool = False
    child: int = 0  # of a MultiConnector
    params: Optional[str] = None  # of a child


class ChildReport(NamedTuple):
    """The report of a scripted child's worker half on a rank."""

    child: int = 0
    rank: int = 0
    sending: List[str] = []
    recving: List[str] = []
    invalid: List[int] = []
    stats: List[int] = []
    jobs: List[int] = []


_REPORT_KINDS = {"child": INTEGER, "rank": INTEGER, "sending": TEXTS, "recving": TEXTS, "invalid": INTEGERS,
                 "stats": INTEGERS, "jobs": INTEGERS}


def _check_reports(value: Any) -> List[ChildReport]:
    reports = []
    for record in RECORDS.check(value):
        if record.verb != "report":
            raise ValueError("no report")
        reports.append(read_config(record, ChildReport, _REPORT_KINDS))
    return reports


_REPORTS = FieldKind("reports such as [(report child=1 sending=[A])]", r"\[()\]", lambda text: [], _check_reports)


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


_SAMPLES = FieldKind("samples such as [(sample request=A tokens=[1 2])]", r"\[()\]", lambda text: [], _check_samples)
_STATUS = choice("status", STATUSES)
_PROGRESS = choice("progress", PROGRESS)

_ENGINE_FIELD = {"engine": choice("engine", ROLES)}
_ENGINE_DEFAULT = {"engine": "producer"}
_SCRIPT_FIELDS = {"external_tokens": INTEGER, "load_async": FLAG, "ask_again": INTEGER, "hold_blocks": FLAG,
                  "child": INTEGER, "params": TEXT}
_SCRIPT_DEFAULTS = dict(zip(_SCRIPT_FIELDS, Script()))

_ADD_FIELDS = {
    "id": TEXT, "tokens": INTEGERS, "max_tokens": INTEGER, "min_tokens": INTEGER, "eos_token": INTEGER,
    "stop_tokens": INTEGERS, "priority": INTEGER, "arrival_time": INTEGER, "lora_name": HASHED_TEXT,
    "lora_id": INTEGER, "cache_salt": HASHED_TEXT, "skip_reading_prefix_cache": FLAG, "grammar": FLAG,
    **_SCRIPT_FIELDS, "max_offload_tokens": INTEGER, "do_remote_decode": FLAG, **_ENGINE_FIELD,
}
_ADD_DEFAULTS = {
    "max_tokens": 16, "min_tokens": 0, "eos_token": None, "stop_tokens": [], "priority": 0, "arrival_time": 0,
    "lora_name": None, "lora_id": 0, "cache_salt": None, "skip_reading_prefix_cache": False, "grammar": False,
    **_SCRIPT_DEFAULTS, "max_offload_tokens": None, "do_remote_decode": False, **_ENGINE_DEFAULT,
}
AddRequest = namedtuple("AddRequest", _ADD_FIELDS, defaults=_ADD_DEFAULTS.values())


def script_of(request: AddRequest) -> Script:
    return Script(*[getattr(request, key) for key in _SCRIPT_FIELDS])


# Those of an engine, of which a pair has two: the engine is their last field.
_OF_ENGINES = {
    "schedule": ({}, {}),
    "update": (
        {"token": INTEGER, "accepted": INTEGER, "samples": _SAMPLES, "finished_recving": TEXTS,
         "finished_sending": TEXTS, "invalid_blocks": INTEGERS, "reports": _REPORTS},
        {"token": 1, "accepted": 0, "samples": [], "finished_recving": [], "finished_sending": [],
         "invalid_blocks": [], "reports": []},
    ),
    "finish_requests": ({"requests": TEXTS, "status": _STATUS}, {"status": "finished_aborted"}),
    "finish_all_requests": ({"status": _STATUS}, {"status": "finished_aborted"}),
    "update_draft_token_ids": ({"request": TEXT, "tokens": INTEGERS}, {}),
    "set_pause_state": ({"state": choice("state", PAUSE_STATES)}, {}),
    "reset_prefix_cache": (
        {"reset_running_requests": FLAG, "reset_connector": FLAG, "connector_fails": FLAG,
         "failing_children": INTEGERS, "silent_children": INTEGERS},
        {"reset_running_requests": False, "reset_connector": False, "connector_fails": False,
         "failing_children": [], "silent_children": []},
    ),
    "script_connector": ({"request": TEXT, **_SCRIPT_FIELDS}, _SCRIPT_DEFAULTS),
    # An offloading connector.
    "advance_transfer": ({"rank": INTEGER, "job": INTEGER, "progress": _PROGRESS, "microseconds": INTEGER},
                         {"rank": 0, "progress": "finished", "microseconds": 0}),
    "report_transfer_again": ({"rank": INTEGER, "job": INTEGER}, {"rank": 0}),
    "log_stats": ({"engine_idx": INTEGER}, {"engine_idx": 0}),
    # A simple one.
    "advance_copy": ({"rank": INTEGER, "store": FLAG, "progress": _PROGRESS},
                     {"rank": 0, "store": False, "progress": "finished"}),
}
OF_ENGINES = tuple(_OF_ENGINES)

# Verb -> how its fields are read.
READERS: Dict[str, CommandReader] = {
    verb: CommandReader(verb, *fields)
    for verb, fields in {
        "add_request": (_ADD_FIELDS, _ADD_DEFAULTS),
        "hand_over": (
            {"request": TEXT, "id": TEXT, "max_tokens": INTEGER, "priority": INTEGER, "arrival_time": INTEGER,
             "skip_reading_prefix_cache": FLAG},
            {"max_tokens": 16, "priority": 0, "arrival_time": 0, "skip_reading_prefix_cache": False},
        ),
        **{verb: ({**fields, **_ENGINE_FIELD}, {**defaults, **_ENGINE_DEFAULT})
           for verb, (fields, defaults) in _OF_ENGINES.items()},
        "grammar_compiled": ({"request": TEXT},),
        # Devices.
        "execute": (_ENGINE_FIELD, _ENGINE_DEFAULT),
        "advance": ({"stream": TEXT, "rank": INTEGER, **_ENGINE_FIELD}, {"rank": 0, **_ENGINE_DEFAULT}),
        "fail_next": ({"stream": TEXT, "rank": INTEGER, "fault": TEXT, **_ENGINE_FIELD},
                      {"rank": 0, "fault": "copy", **_ENGINE_DEFAULT}),
        "poll": (_ENGINE_FIELD, _ENGINE_DEFAULT),
        "drain": (_ENGINE_FIELD, _ENGINE_DEFAULT),
        # Tiers of an offloading connector.
        "tier_finish": ({"tier": INTEGER, "job": INTEGER, "success": FLAG}, {"success": True}),
        "tier_ask_again": (
            {"tier": INTEGER, "request": TEXT, "block": INTEGER, "group": INTEGER, "times": INTEGER},
            {"group": 0, "times": 1},
        ),
        **{verb: ({"tier": INTEGER, "request": TEXT, "blocks": INTEGERS, "group": INTEGER}, {"group": 0})
           for verb in ("tier_add", "tier_drop")},
        "tier_faults": ({"tier": INTEGER, "faults": RECORDS},),
        "tier_damage": (
            {"tier": INTEGER, "request": TEXT, "block": INTEGER, "group": INTEGER, "damage": TEXT, "at": INTEGER},
            {"group": 0, "at": 0},
        ),
        # One with files.
        "write_entry": ({"tokens": INTEGERS, "num_files": INTEGER},),
        "remove_entry": ({"tokens": INTEGERS},),
        "remove_file": ({"tokens": INTEGERS, "layer": INTEGER},),
        "truncate_file": ({"tokens": INTEGERS, "layer": INTEGER},),
        "fail_next_file": ({"layer": INTEGER, "operation": choice("operation", OPERATIONS)},),
        # NIXL.
        "advance_read": ({"read": INTEGER, "progress": _PROGRESS}, {"progress": "finished"}),
        **{verb: ({"notice": INTEGER},) for verb in ("deliver_notice", "lose_notice", "repeat_notice")},
        "advance_clock": ({"seconds": INTEGER},),
    }.items()
}


class World:
    """All requests that were named, also refused ones, in that order."""

    def __init__(self) -> None:
        self.requests: Dict[str, AddRequest] = {}
        self._numbers: Dict[str, int] = {}

    def declare(self, request: AddRequest) -> bool:
        """False: the name was used before."""
        if request.id in self.requests:
            return False
        self.requests[request.id] = request
        self._numbers[request.id] = len(self._numbers)
        return True

    def knows(self, names: Iterable[str]) -> bool:
        return all(name in self.requests for name in names)

    def in_order(self, names: Optional[Iterable[str]]) -> List[str]:
        """Values of upstream that are a set, or absent."""
        return sorted(names or (), key=self._numbers.__getitem__)


def engine_target(make: Callable[[Config], Any]) -> Target:
    return Target("engine", config_from_line, READERS, make)
