"""The SimpleCPUOffloadConnector of a real vLLM release, both halves, over copy backends whose progress is commands.

SimpleCPUOffloadConnector, SimpleCPUOffloadScheduler with the CPU's block pool, SimpleCPUOffloadWorker and
KVOutputAggregator are upstream's. What stands in: the configuration, bags of the attributes that are read, and the copy
backends. A block has one byte, so that capacities count blocks.
"""

from __future__ import annotations

import importlib
import math
from types import SimpleNamespace
from typing import Any, Dict, FrozenSet, List, NamedTuple, Optional, Sequence

from corrected_simple_offload import corrected_halves
from engine_target import SIMPLE_OFFLOAD_RULES, Config
from scripted_copy_backend import ScriptedCopyBackend
from session import Unsupported
from upstream_kv_cache import make_kv_cache_config, refusals
from upstream_pool import Modules
from upstream_workers import Workers

_CONNECTOR = "vllm.distributed.kv_transfer.kv_connector.v1.simple_cpu_offload_connector"
_HALVES = "vllm.v1.simple_kv_offload"


class Plan(NamedTuple):
    """What a step sends the workers. Events: None where there is none."""

    load_event: Optional[int]
    load_gpu_blocks: Sequence[int]
    load_cpu_blocks: Sequence[int]
    load_requests: Sequence[str]
    store_event: Optional[int]
    store_gpu_blocks: Sequence[int]
    store_cpu_blocks: Sequence[int]
    need_flush: bool


class SimpleOffloadConnectors:
    """The scheduler's half, and of each rank the worker's half with its copy backend."""

    def __init__(self, modules: Modules, config: Config, uncorrected: FrozenSet[str]):
        """Raises Unsupported."""
        module = importlib.import_module(_CONNECTOR)
        manager = importlib.import_module(f"{_HALVES}.manager")
        worker_module = importlib.import_module(f"{_HALVES}.worker")
        self._modules = modules
        self._config = config
        self._check_supported(manager.SimpleCPUOffloadScheduler)
        connector_type, module.SimpleCPUOffloadScheduler, module.SimpleCPUOffloadWorker = corrected_halves(
            module.SimpleCPUOffloadConnector, manager.SimpleCPUOffloadScheduler, worker_module.SimpleCPUOffloadWorker,
            manager.StoreRequestState, self._own_key, uncorrected)
        worker_module.DmaCopyBackend = ScriptedCopyBackend
        # 0.23.0; the engine passes the scheduler's on.
        modules.kv_cache_utils.resolve_kv_cache_block_sizes = lambda *_: (
            math.lcm(*[group.block_size for group in config.groups]), config.hash_block_size)

        kv_cache_config = make_kv_cache_config(modules, config.num_gpu_blocks, config.groups,
                                               config.eagle_groups if config.use_eagle else (),
                                               config.retention_interval)
        kv_cache_config.kv_cache_tensors.append(
            modules.kv_cache_interface.KVCacheTensor(size=config.num_gpu_blocks, shared_by=[]))
        vllm_config = self._vllm_config()

        def make(role: Any) -> Any:
            with refusals(modules):
                return connector_type(vllm_config, role, kv_cache_config)

        self.scheduler = make(module.KVConnectorRole.SCHEDULER)
        halves = [make(module.KVConnectorRole.WORKER) for _ in range(config.ranks)]
        self.workers = Workers(halves)
        self.backends: List[ScriptedCopyBackend] = [half.worker_handler._backend for half in halves]
        self._manager = self.scheduler.scheduler_manager
        self.cpu_pool = self._manager.cpu_block_pool

    def _check_supported(self, scheduler_half: Any) -> None:
        version = self._modules.release.version
        config = self._config
        # 0.23.0 changed all of these together.
        has_rules = hasattr(scheduler_half, "_free_pending_cpu_hit")
        for rule in SIMPLE_OFFLOAD_RULES:
            if getattr(config.connector, rule) not in (None, has_rules):
                raise Unsupported(f"vLLM {version} has {rule}={str(has_rules).lower()}")
        if not config.enable_caching:
            raise Unsupported("enable_caching=false: the connector does nothing then")
        if any(group.kind not in ("full", "sliding", "mamba") for group in config.groups):
            raise Unsupported("groups other than of full attention, sliding window and Mamba")

    def _vllm_config(self) -> Any:
        """The attributes of VllmConfig that both halves read."""
        config = self._config
        return SimpleNamespace(
            cache_config=SimpleNamespace(enable_prefix_caching=True, block_size=config.hash_block_size),
            model_config=SimpleNamespace(max_model_len=config.max_model_len),
            parallel_config=SimpleNamespace(world_size=config.ranks, decode_context_parallel_size=1,
                                            prefill_context_parallel_size=1),
            scheduler_config=SimpleNamespace(max_num_batched_tokens=config.max_num_batched_tokens),
            kv_events_config=SimpleNamespace(enable_kv_cache_events=config.enable_kv_cache_events),
            kv_transfer_config=SimpleNamespace(kv_connector_extra_config={
                "cpu_bytes_to_use": config.connector.num_cpu_blocks * config.ranks, "lazy_offload": config.connector.lazy_offload}),
        )

    def _own_key(self, request: Any, group: int, place: int) -> Optional[bytes]:
        utils = self._modules.kv_cache_utils
        hashes = utils.BlockHashListWithBlockSize(request.block_hashes, self._config.hash_block_size,
                                                  self._config.groups[group].block_size)
        return utils.make_block_hash_with_group_id(hashes[place], group) if place < len(hashes) else None

    # ---- What is observed ----

    @staticmethod
    def plan(meta: Any) -> Plan:
        """The plan in a step's metadata."""
        load_event = None if meta.load_event < 0 else meta.load_event
        return Plan(load_event, meta.load_gpu_blocks, meta.load_cpu_blocks,
                    meta.load_event_to_reqs.get(load_event, ()), None if meta.store_event < 0 else meta.store_event,
                    meta.store_gpu_blocks, meta.store_cpu_blocks, meta.need_flush)

    def pins(self) -> Dict[str, List[int]]:
        """Request -> the CPU blocks that its lookup holds, in the order of pinning."""
        pending = getattr(self._manager, "_pending_cpu_hits", {})
        return {name: [block.block_id for blocks in hit for block in blocks if not block.is_null]
                for name, (hit, _) in pending.items()}

    def lazy_cursor(self) -> Optional[int]:
        cursor = self._manager._cursor
        return None if cursor is None else cursor.block_id

    def cpu_keys(self) -> List[Optional[bytes]]:
        """By block id. Upstream writes the key when a store is planned, but nothing finds it before the store's end."""
        keys = [block.block_hash for block in self.cpu_pool.blocks]
        for store in self._manager._store_event_to_blocks.values():
            for block_id in store.cpu_block_ids:
                keys[block_id] = None
        return keys
