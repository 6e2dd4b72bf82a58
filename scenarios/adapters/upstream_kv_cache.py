"""The KV-cache manager of a real vLLM release behind the commands of contract/kv_cache_target.h.

Every answer comes from upstream's KVCacheManager with its coordinator, its managers of single groups and its pool. The
adapter itself decides only what contract/kv_cache_manager.h refuses and where upstream would break down halfway:
README.md has the list.
"""

from __future__ import annotations

import importlib
import inspect
import math
import os
from typing import Any, Dict, List, Optional, Sequence, Tuple

from kv_cache_target import Config, Group
from line_language import print_integers, print_text
from session import Unsupported
from upstream_pool import Modules, PoolView, UpstreamChanged

_RETENTION = "VLLM_PREFIX_CACHE_RETENTION_INTERVAL"

# What each kind says of itself besides its block size.
_KEYS_OF_KIND = {
    "full": (),
    "sliding": ("window",),
    "chunked": ("chunk",),
    "mamba": ("align", "spec_blocks"),
    "cross": (),
    "sink": ("sink_len",),
}


def _make_spec(modules: Modules, group: Group) -> Any:
    """A real spec; what is not decided on has a placeholder. Raises Unsupported."""
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


def make_manager(modules: Modules, manager_type: Any, config: Config) -> Any:
    """A real KVCacheManager. Raises Unsupported where this release has no such option or refuses."""
    interface = modules.kv_cache_interface
    parameters = inspect.signature(manager_type.__init__).parameters
    options: Dict[str, Any] = {}
    if "scheduler_block_size" in parameters:
        options["scheduler_block_size"] = math.lcm(*[group.block_size for group in config.groups])
    if "max_num_batched_tokens" in parameters:
        options["max_num_batched_tokens"] = config.max_num_batched_tokens
    has_eagle_groups = "is_eagle_group" in inspect.signature(interface.KVCacheGroupSpec).parameters
    os.environ.pop(_RETENTION, None)
    if config.retention_interval is not None:
        if _RETENTION not in modules.envs.environment_variables:
            raise Unsupported(f"vLLM {modules.release.version} has no {_RETENTION}")
        os.environ[_RETENTION] = str(config.retention_interval)
    groups = []
    for index, group in enumerate(config.groups):
        flag = {"is_eagle_group": config.use_eagle and index in config.eagle_groups} if has_eagle_groups else {}
        groups.append(interface.KVCacheGroupSpec([f"layer{index}"], _make_spec(modules, group), **flag))
    try:
        return manager_type(
            kv_cache_config=interface.KVCacheConfig(config.num_gpu_blocks, [], groups),
            max_model_len=config.max_model_len,
            hash_block_size=config.hash_block_size,
            enable_caching=config.enable_caching,
            use_eagle=config.use_eagle,
            log_stats=True,
            enable_kv_cache_events=config.enable_kv_cache_events,
            **options,
        )
    except (AssertionError, TypeError, ValueError) as error:
        raise Unsupported(f"vLLM {modules.release.version} refuses: {type(error).__name__} {error}") from error


def _cdiv(tokens: int, block_size: int) -> int:
    return -(-tokens // block_size)


class _Names(dict):
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
        self._coordinator = self._manager.coordinator
        self._pool = self._manager.block_pool
        self._view = PoolView(modules, self._pool)
        self._requests: Dict[str, Any] = {}
        self._order: Dict[str, int] = {}
        # Requests from their first allocate_slots that succeeded until free.
        self._allocated: set = set()
        self._name_texts = _Names()
        # Group by group: the manager, its kind, its table by request.
        self._groups: List[Tuple[Any, Group, dict]] = [
            (manager, group, manager.req_to_blocks)
            for manager, group in zip(self._coordinator.single_type_managers, config.groups)
        ]
        # External tokens of the allocate_slots under way.
        self._num_external_tokens: Optional[int] = None
        self._guard_upstream()

    def _guard_upstream(self) -> None:
        """Two places where upstream breaks down in the middle of allocate_slots.

        Its count of the blocks that an allocation needs may be too small: get_new_blocks then raises halfway. Seen from
        here the free blocks do not suffice, and the count is made to say so. And it asks the pool for a negative number
        of blocks where a hit is longer than the computed tokens, which makes the pool count free blocks that are not
        there.
        """
        count = self._coordinator.get_num_blocks_to_allocate
        get_new_blocks = self._pool.get_new_blocks

        def checked_count(**arguments: Any) -> int:
            num_blocks = count(**arguments)
            if self._num_external_tokens is None or arguments.get("apply_admission_cap"):
                return num_blocks
            num_free = self._pool.get_num_free_blocks()
            if num_blocks <= num_free < self._num_blocks_taken(**arguments):
                return num_free + 1
            return num_blocks

        self._coordinator.get_num_blocks_to_allocate = checked_count
        self._pool.get_new_blocks = lambda num_blocks: get_new_blocks(max(num_blocks, 0))

    # ---- Commands (contract/kv_cache_target.h) ----

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
        return f"error=none blocks={_lists_text(hit.blocks)} num_hit_tokens={num_tokens}"

    def can_fit_full_sequence(self, name, num_computed_tokens, from_cache, num_external_tokens,
                              num_encoder_tokens) -> str:
        request = self._request_as(name, num_computed_tokens, False)
        if request is None:
            return "error=unknown_request"
        hit, num_hit_tokens = self._computed_blocks(request) if from_cache else (None, 0)
        if self._has_gate:
            return "error=not_in_profile"
        if self._is_already_allocated(request, hit, num_external_tokens):
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
        num_tokens = num_computed_tokens + num_hit_tokens + num_external_tokens + num_new_tokens
        if num_tokens > self._config.max_model_len:
            return "error=beyond_model_length"
        if self._is_already_allocated(request, hit, num_external_tokens):
            return "error=already_allocated"
        if self._table_shrinks(name, num_tokens):
            return "error=table_shrinks"

        self._num_external_tokens = num_external_tokens
        blocks = self._manager.allocate_slots(request, num_new_tokens, num_hit_tokens, hit, num_lookahead_tokens,
                                              num_external_tokens, delay_cache_blocks, num_encoder_tokens, **gate)
        self._num_external_tokens = None
        if blocks is None:
            return "error=none allocated=false"
        self._allocated.add(name)
        return f"error=none allocated=true blocks={_lists_text(blocks.blocks)}"

    def cache_blocks(self, name, num_computed_tokens) -> str:
        request = self._requests.get(name)
        if request is None:
            return "error=unknown_request"
        if self._config.enable_caching:
            if num_computed_tokens > request.num_tokens:
                return "error=missing_hash"
            for _, group, tables in self._groups:
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
        self._manager.free(request)
        self._allocated.discard(name)
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

    def take_new_block_ids(self) -> str:
        return f"error=none block_ids={print_integers(self._manager.take_new_block_ids())}"

    def take_events(self) -> str:
        return f"error=none events={self._view.events(self._manager.take_events())}"

    def take_prefix_cache_stats(self) -> str:
        stats = self._manager.make_prefix_cache_stats()
        numbers = (int(stats.reset), stats.requests, stats.queries, stats.hits, stats.preempted_requests,
                   stats.preempted_queries, stats.preempted_hits)
        return f"error=none stats={print_integers(numbers)}"

    # ---- What kvfence refuses (contract/kv_cache_manager.h) ----

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

    def _is_hit(self, hit: Any) -> bool:
        return hit is not None and hit is not self._manager.empty_kv_cache_blocks

    def _is_already_allocated(self, request: Any, hit: Any, num_external_tokens: int) -> bool:
        if request.request_id in self._allocated:
            return num_external_tokens > 0 or self._is_hit(hit)
        return request.num_computed_tokens > 0 and self._is_hit(hit)

    def _table_shrinks(self, name: str, num_tokens: int) -> bool:
        if self._config.profile != "v0.19":
            return False
        for _, group, tables in self._groups:
            if group.align:
                num_required = _cdiv(num_tokens, group.block_size) + group.spec_blocks
                if num_required < len(tables.get(name, ())):
                    return True
        return False

    def _num_blocks_taken(self, request_id: str, num_tokens: int, new_computed_blocks: Sequence[Sequence[Any]],
                          num_encoder_tokens: int, total_computed_tokens: int, num_tokens_main_model: int,
                          **_: Any) -> int:
        """How many free blocks the allocation will take, where upstream's own count may be too small."""
        has_computed_blocks = self._num_external_tokens > 0 or any(new_computed_blocks)
        num_taken = 0
        for (manager, group, tables), hit in zip(self._groups, new_computed_blocks):
            block_size = group.block_size
            num_blocks = len(tables.get(request_id, ()))
            if has_computed_blocks and group.kind != "cross" and request_id not in manager.num_cached_block:
                num_skipped_tokens = manager.get_num_skipped_tokens(total_computed_tokens)
                num_skipped = max(num_skipped_tokens // block_size, 0)
                num_external_tokens = self._num_external_tokens
                if num_skipped > 0:
                    hit = hit[num_skipped:]
                    num_external_tokens = min(total_computed_tokens - num_skipped_tokens, num_external_tokens)
                num_blocks = num_skipped + len(hit)
                num_taken += sum([block.ref_cnt == 0 and not block.is_null for block in hit])
                if num_external_tokens > 0:
                    num_external = max(_cdiv(total_computed_tokens, block_size) - num_blocks, 0)
                    num_blocks += num_external
                    num_taken += num_external
            if group.kind == "cross":
                num_taken += max(_cdiv(num_encoder_tokens, block_size) - num_blocks, 0)
            elif group.align:
                num_required = _cdiv(num_tokens_main_model, block_size) + group.spec_blocks
                if num_required > num_blocks:
                    has_state = request_id in manager._allocated_block_reqs
                    num_states = num_required - max(num_blocks, num_required - group.spec_blocks - 1)
                    num_taken += 1 if has_state else num_states
            else:
                num_taken += max(_cdiv(num_tokens, block_size) + group.spec_blocks - num_blocks, 0)
        return num_taken

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
        groups = [tables.get(name, ()) for _, _, tables in self._groups]
        return f"(table request={self._name_texts[name]} blocks={_lists_text(groups)})" if any(groups) else ""


def _lists_text(groups: Sequence[Sequence[Any]]) -> str:
    """Blocks by group."""
    return "[" + " ".join([print_integers([block.block_id for block in blocks]) for blocks in groups]) + "]"
