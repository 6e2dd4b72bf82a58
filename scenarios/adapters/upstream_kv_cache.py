"""The KV-cache manager of a real vLLM release driven by the commands of contract/kv_cache/kv_cache_target.h.

Every answer comes from upstream's KVCacheManager with its coordinator, its managers of single groups and its pool. The
adapter itself decides only what contract/kv_cache/kv_cache_manager.h refuses and where upstream would break down halfway:
README.md has the list.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import math
import os
import types
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple

from allocation_guard import AllocationGuard
from kv_cache_target import Config, Group
from line_language import print_integers, print_text
from session import Unsupported
from upstream_pool import Modules, PoolView, UpstreamChanged

_RETENTION = "VLLM_PREFIX_CACHE_RETENTION_INTERVAL"

# The attributes of each kind besides its block size.
_KEYS_OF_KIND = {
    "full": (),
    "sliding": ("window",),
    "chunked": ("chunk",),
    "mamba": ("align", "spec_blocks"),
    "cross": (),
    "sink": ("sink_len",),
}


def _make_spec(modules: Modules, group: Group) -> Any:
    """A real spec; attributes that do not matter have placeholders. Raises Unsupported."""
    for key, default in Group._field_defaults.items():
        if key != "block_size" and key not in _KEYS_OF_KIND[group.kind] and getattr(group, key) != default:
            raise Unsupported(f"{key} in a group of kind {group.kind}")
    interface = modules.kv_cache_interface
    layers = {"block_size": group.block_size, "num_kv_heads": 1, "head_size": 1, "dtype": None}
    if group.kind == "full":
        return interface.FullAttentionSpec(**layers)
    if group.kind == "sliding":
        return interface.SlidingWindowSpec(**layers, sliding_window=group.window)
    if group.kind == "chunked":
        return interface.ChunkedLocalAttentionSpec(**layers, attention_chunk_size=group.chunk)
    if group.kind == "mamba":
        return interface.MambaSpec(block_size=group.block_size, shapes=((1,),), dtypes=(None,),
                                   mamba_cache_mode="align" if group.align else "all",
                                   num_speculative_blocks=group.spec_blocks)
    if group.kind == "cross":
        return interface.CrossAttentionSpec(**layers)
    return interface.SinkFullAttentionSpec(**layers, sink_len=group.sink_len)


def make_kv_cache_config(modules: Modules, num_gpu_blocks: int, groups: Sequence[Group],
                         eagle_groups: Sequence[int] = (), retention_interval: Optional[int] = None) -> Any:
    """A real KVCacheConfig, and the retention interval where upstream looks for it. Raises Unsupported."""
    interface = modules.kv_cache_interface
    os.environ.pop(_RETENTION, None)
    if retention_interval is not None:
        if _RETENTION not in modules.envs.environment_variables:
            raise Unsupported(f"vLLM {modules.release.version} has no {_RETENTION}")
        os.environ[_RETENTION] = str(retention_interval)
    has_eagle_groups = "is_eagle_group" in inspect.signature(interface.KVCacheGroupSpec).parameters
    specs = []
    for index, group in enumerate(groups):
        flag = {"is_eagle_group": index in eagle_groups} if has_eagle_groups else {}
        specs.append(interface.KVCacheGroupSpec([f"layer{index}"], _make_spec(modules, group), **flag))
    return interface.KVCacheConfig(num_gpu_blocks, [], specs)


@contextlib.contextmanager
def refusals(modules: Modules) -> Iterator[None]:
    """Turns the refusal of a constructor of this release into Unsupported."""
    try:
        yield
    except (AssertionError, TypeError, ValueError) as error:
        raise Unsupported(f"vLLM {modules.release.version} refuses: {type(error).__name__} {error}") from error


def make_manager(modules: Modules, manager_type: Any, config: Config) -> Any:
    """A real KVCacheManager. Raises Unsupported if this release lacks an option or refuses."""
    parameters = inspect.signature(manager_type.__init__).parameters
    options: Dict[str, Any] = {}
    if "scheduler_block_size" in parameters:
        options["scheduler_block_size"] = math.lcm(*[group.block_size for group in config.groups])
    if "max_num_batched_tokens" in parameters:
        options["max_num_batched_tokens"] = config.max_num_batched_tokens
    eagle_groups = config.eagle_groups if config.use_eagle else ()
    kv_cache_config = make_kv_cache_config(modules, config.num_gpu_blocks, config.groups, eagle_groups,
                                           config.retention_interval)
    with refusals(modules):
        return manager_type(
            kv_cache_config=kv_cache_config,
            max_model_len=config.max_model_len,
            hash_block_size=config.hash_block_size,
            enable_caching=config.enable_caching,
            use_eagle=config.use_eagle,
            log_stats=True,
            enable_kv_cache_events=config.enable_kv_cache_events,
            **options,
        )


class NameTexts(dict):
    """Request name -> its text in a reply."""

    def __missing__(self, name: str) -> str:
        text = self[name] = print_text(name)
        return text


class UpstreamKVCache:
    """One KVCacheManager and the requests that its commands name."""

    def __init__(self, modules: Modules, config: Config):
        manager_type = importlib.import_module("vllm.v1.core.kv_cache_manager").KVCacheManager
        self._modules = modules
        self._config = config
        self._has_gate = "full_sequence_must_fit" in inspect.signature(manager_type.allocate_slots).parameters
        self._hasher = modules.block_hasher(config.hash_algorithm, config.hash_seed, config.hash_block_size)
        self._manager = make_manager(modules, manager_type, config)
        self._guard = AllocationGuard(self._manager, config.groups, config.profile)
        self._allocated = self._guard.allocated
        if self._has_gate:
            # A method of the scheduler that looks at these two of its members alone.
            scheduler_type = importlib.import_module("vllm.v1.core.sched.scheduler").Scheduler
            members = types.SimpleNamespace(max_model_len=config.max_model_len, kv_cache_manager=self._manager)
            self._remaining_blocks = functools.partial(scheduler_type._request_remaining_blocks, members)
        self._pool = self._manager.block_pool
        self._view = PoolView(modules, self._pool)
        self._requests: Dict[str, Any] = {}
        self._order: Dict[str, int] = {}
        self._name_texts = NameTexts()

    # ---- Commands (contract/kv_cache/kv_cache_target.h) ----

    def request(self, name, tokens, lora_name, lora_id, cache_salt, mm_features, skip_reading_prefix_cache) -> str:
        if name in self._requests:
            return "error=already_declared"
        self._order[name] = len(self._requests)
        self._requests[name] = self._modules.make_request(
            name, tokens, self._hasher, lora_name, lora_id, cache_salt, mm_features, skip_reading_prefix_cache)
        return "error=none"

    def append_tokens(self, name, tokens) -> str:
        request = self._requests.get(name)
        if request is None:
            return "error=unknown_request"
        request.append_output_token_ids(tokens)
        return "error=none"

    def new_step_starts(self) -> str:
        self._manager.new_step_starts()
        return "error=none"

    def get_computed_blocks(self, name, was_preempted) -> str:
        request = self._request_as(name, 0, was_preempted)
        if request is None:
            return "error=unknown_request"
        hit, num_tokens = self._computed_blocks(request)
        return f"error=none blocks={blocks_text(hit.blocks)} num_hit_tokens={num_tokens}"

    def can_fit_full_sequence(self, name, num_computed_tokens, from_cache, num_external_tokens,
                              num_encoder_tokens) -> str:
        request = self._request_as(name, num_computed_tokens, False)
        if request is None:
            return "error=unknown_request"
        hit, num_hit_tokens = self._computed_blocks(request) if from_cache else (None, 0)
        if self._has_gate:
            return "error=not_in_profile"
        if self._guard.is_already_allocated(request, hit, num_external_tokens):
            return "error=already_allocated"
        fits = self._manager.can_fit_full_sequence(request, num_hit_tokens, hit, num_external_tokens,
                                                   num_encoder_tokens)
        return f"error=none fits={'true' if fits else 'false'}"

    def allocate_slots(self, name, num_computed_tokens, num_new_tokens, from_cache, num_lookahead_tokens,
                       num_external_tokens, delay_cache_blocks, num_encoder_tokens, full_sequence_must_fit,
                       reserved_blocks, was_preempted) -> str:
        request = self._request_as(name, num_computed_tokens, was_preempted)
        if request is None:
            return "error=unknown_request"
        hit, num_hit_tokens = self._computed_blocks(request) if from_cache else (None, 0)
        gate = {}
        if full_sequence_must_fit or reserved_blocks:
            if not self._has_gate:
                return "error=not_in_profile"
            gate = {"full_sequence_must_fit": full_sequence_must_fit, "reserved_blocks": reserved_blocks}
        if num_new_tokens == 0 and num_external_tokens == 0:
            try:
                self._manager.allocate_slots(request, 0)
            except ValueError:
                return "error=no_tokens"
            raise UpstreamChanged("allocate_slots did not refuse no tokens")
        refusal = self._guard.refusal(request, num_new_tokens, num_hit_tokens, hit, num_external_tokens)
        if refusal:
            return f"error={refusal}"

        blocks = self._guard.allocate_slots(request, num_new_tokens, num_hit_tokens, hit, num_lookahead_tokens,
                                            num_external_tokens, delay_cache_blocks, num_encoder_tokens, **gate)
        if blocks is None:
            return "error=none allocated=false"
        # Mamba in mode align may count below 0.
        num_remaining = f" num_remaining={max(self._remaining_blocks(request), 0)}" if self._has_gate else ""
        return f"error=none allocated=true{num_remaining} blocks={blocks_text(blocks.blocks)}"

    def cache_blocks(self, name, num_computed_tokens) -> str:
        request = self._requests.get(name)
        if request is None:
            return "error=unknown_request"
        if self._config.enable_caching:
            if num_computed_tokens > request.num_tokens:
                return "error=missing_hash"
            for _, group, tables in self._guard.groups:
                # The speculative blocks at the end of a Mamba table in mode align move on: upstream would cache them,
                # and trip over their hashes later.
                num_blocks = len(tables.get(name, ())) - (group.spec_blocks if group.align else 0)
                if num_computed_tokens // group.block_size > max(num_blocks, 0):
                    return "error=bad_range"
        self._manager.cache_blocks(request, num_computed_tokens)
        return "error=none"

    def free(self, name) -> str:
        request = self._requests.get(name)
        if request is None:
            return "error=unknown_request"
        self._guard.free(request)
        return "error=none"

    def remove_skipped_blocks(self, name, total_computed_tokens) -> str:
        if name not in self._requests:
            return "error=unknown_request"
        self._manager.remove_skipped_blocks(name, total_computed_tokens)
        return "error=none"

    def evict_blocks(self, ids) -> str:
        return self._view.evict_blocks(ids, self._manager.evict_blocks)

    def reset_prefix_cache(self) -> str:
        return f"error=none success={'true' if self._manager.reset_prefix_cache() else 'false'}"

    def get_num_common_prefix_blocks(self, name) -> str:
        if name not in self._requests:
            return "error=unknown_request"
        if name not in self._allocated:
            return "error=not_allocated"
        return f"error=none counts={print_integers(self._manager.get_num_common_prefix_blocks(name))}"

    def get_unhashed_block_ids(self, name) -> str:
        if name not in self._requests:
            return "error=unknown_request"
        unhashed = self._manager.get_blocks(name).get_unhashed_block_ids_all_groups()
        return f"error=none blocks=[{' '.join(map(print_integers, unhashed))}]"

    def take_new_block_ids(self) -> str:
        return f"error=none block_ids={print_integers(self._manager.take_new_block_ids())}"

    def take_events(self) -> str:
        return f"error=none events={self._view.events(self._manager.take_events())}"

    def take_prefix_cache_stats(self) -> str:
        stats = self._manager.make_prefix_cache_stats()
        return f"error=none stats={stats_text(stats)}"

    # ---- What kvfence refuses (contract/kv_cache/kv_cache_manager.h) ----

    def _request_as(self, name: str, num_computed_tokens: int, was_preempted: bool) -> Any:
        request = self._requests.get(name)
        if request is not None:
            request.num_computed_tokens = num_computed_tokens
            request.num_preemptions = int(was_preempted)
        return request

    def _computed_blocks(self, request: Any) -> Tuple[Any, int]:
        manager = self._manager
        if request.num_tokens or not self._config.enable_caching or request.skip_reading_prefix_cache:
            return manager.get_computed_blocks(request)
        # Upstream would look up -1 tokens, which is a ValueError in full attention.
        manager.prefix_cache_stats.record(num_tokens=0, num_hits=0, preempted=request.num_preemptions > 0)
        return manager.empty_kv_cache_blocks, 0

    # ---- What is observed ----

    def observe(self, state: bool) -> str:
        pool = self._pool
        text = (
            f" num_free_blocks={pool.get_num_free_blocks()} num_cached_keys={len(pool.cached_block_hash_to_block)}"
            f" usage={float(pool.get_usage())!r}"
        )
        if not state:
            return text
        return (
            f"{text}{self._view.state(pool.free_block_queue.get_all_free_blocks())}"
            f" tables=[{' '.join(filter(None, map(self._table_text, self._in_order())))}]"
        )

    def _in_order(self) -> List[str]:
        return sorted(self._allocated, key=self._order.__getitem__)

    def _table_text(self, name: str) -> str:
        """A request's table; nothing without blocks."""
        groups = [tables.get(name, ()) for _, _, tables in self._guard.groups]
        return f"(table request={self._name_texts[name]} blocks={blocks_text(groups)})" if any(groups) else ""


def blocks_text(groups: Sequence[Sequence[Any]]) -> str:
    """Blocks by group."""
    return "[" + " ".join([print_integers([block.block_id for block in blocks]) for blocks in groups]) + "]"


def stats_text(stats: Any) -> str:
    """PrefixCacheStats."""
    return (f"[{int(stats.reset)} {stats.requests} {stats.queries} {stats.hits} {stats.preempted_requests}"
            f" {stats.preempted_queries} {stats.preempted_hits}]")
