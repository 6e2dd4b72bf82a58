"""The OffloadingConnector of a real vLLM release, both halves, over copy engines whose progress is commands.

OffloadingConnector, its scheduler half and worker half, OffloadingWorker, CPUOffloadingManager and KVOutputAggregator
are upstream's. What stands in: the OffloadingSpec, a bag of the attributes that are read, and the copy engines.
"""

from __future__ import annotations

import importlib
from types import SimpleNamespace
from typing import Any, Dict, FrozenSet, Iterator, List, NamedTuple, Optional, Sequence

from corrected_connector import OrderedSet, corrected_halves
from engine_target import Config
from scripted_transfer_engine import make_scripted_transfer_engine
from upstream_kv_cache import make_kv_cache_config, refusals
from upstream_offload import KeyBytes, KVOffload
from upstream_stats import StatLoggers
from upstream_tiering import TieredManager
from upstream_workers import Workers

_KV_CONNECTOR = "vllm.distributed.kv_transfer.kv_connector"


class PlannedTransfer(NamedTuple):
    """A transfer that the scheduler's half planned, alike for both releases."""

    job_id: int  # 0.19.0: 0, each worker counts its own
    request_id: str
    gpu_blocks: Sequence[int]
    group_sizes: Sequence[int]
    block_indices: Sequence[int]
    slots: Sequence[int]


class Plan(NamedTuple):
    """What a step sends the workers."""

    loads: List[PlannedTransfer]
    stores: List[PlannedTransfer]
    requests_to_flush: Sequence[str]
    jobs_to_flush: Sequence[int]


class Connectors:
    """The scheduler's half, and of each rank the worker's half with its copy engine."""

    def __init__(self, kv_offload: KVOffload, config: Config, uncorrected: FrozenSet[str]):
        """Raises Unsupported."""
        modules = kv_offload.modules
        module = importlib.import_module(f"{_KV_CONNECTOR}.v1.offloading_connector")
        scheduler_module = importlib.import_module(f"{_KV_CONNECTOR}.v1.offloading.scheduler")
        worker_module = importlib.import_module("vllm.v1.kv_offload.worker.worker")
        half_of_worker = importlib.import_module(f"{_KV_CONNECTOR}.v1.offloading.worker").OffloadingConnectorWorker
        self._modules = modules
        self._config = config
        # With TieringOffloadingSpec the scheduler's half has it below it.
        self.tiered: Optional[TieredManager] = None
        self._kv_offload = kv_offload
        self._scheduler_module = scheduler_module
        # Its sets keep their order: keys are completed, and reported, in the order of planning.
        scheduler_module.set = OrderedSet
        connector_type, module.OffloadingConnectorScheduler, module.OffloadingConnectorWorker = corrected_halves(
            module.OffloadingConnector, scheduler_module.OffloadingConnectorScheduler, half_of_worker,
            worker_module.OffloadingWorker, modules.kv_events, uncorrected)

        self.engines = [make_scripted_transfer_engine(worker_module, config.connector.block_bytes)
                        for _ in range(config.ranks)]
        # fence: job -> its request.
        self._request_of_job: Dict[int, str] = {}
        kv_cache_config = make_kv_cache_config(modules, config.num_gpu_blocks, config.groups)
        vllm_config = SimpleNamespace(
            cache_config=SimpleNamespace(enable_prefix_caching=config.enable_caching),
            parallel_config=SimpleNamespace(world_size=config.ranks),
            kv_transfer_config=SimpleNamespace(),
        )

        def make(role: Any, engine: Any = None) -> Any:
            spec = self._make_spec(vllm_config, kv_cache_config, engine)
            module.OffloadingSpecFactory = SimpleNamespace(create_spec=lambda *_: spec)
            with refusals(modules):
                return connector_type(vllm_config, role, kv_cache_config)

        self.scheduler = make(module.KVConnectorRole.SCHEDULER)
        self._halves = [make(module.KVConnectorRole.WORKER, engine) for engine in self.engines]
        for half in self._halves:
            half.connector_worker._register_handlers(None)
        self.workers = Workers(self._halves)
        self.loggers = StatLoggers(connector_type, config.connector.engine_labels)

    def _make_spec(self, vllm_config: Any, kv_cache_config: Any, engine: Any) -> Any:
        """The attributes of an OffloadingSpec."""
        config = self._config
        record = config.connector
        block_sizes = tuple([group.block_size for group in config.groups])
        gpu_spec = self._scheduler_module.GPULoadStoreSpec
        cpu_spec = self._kv_offload.manager.CPULoadStoreSpec

        def get_manager() -> Any:
            if record.spec_name == "TieringOffloadingSpec":
                self.tiered = self._make_tiered()
                self.cpu_manager = self.tiered.primary
                return self.tiered.manager
            self.cpu_manager, manager = self._kv_offload.make_managers(
                record.eviction_policy, record.num_cpu_blocks, config.enable_kv_cache_events, record.store_threshold,
                record.max_tracker_size, block_sizes[0] * record.block_size_factor)
            if record.request_level_policy and self.has_fence():
                context = self._scheduler_module.RequestOffloadingContext(
                    self._scheduler_module.OffloadPolicy.REQUEST_LEVEL)
                manager.on_new_request = lambda _: context
            return manager

        def get_handlers(_: Any) -> Iterator[tuple]:
            yield gpu_spec, cpu_spec, engine
            yield cpu_spec, gpu_spec, engine

        return SimpleNamespace(
            vllm_config=vllm_config,
            kv_cache_config=kv_cache_config,
            gpu_block_size=block_sizes,
            hash_block_size=config.hash_block_size,
            block_size_factor=record.block_size_factor,
            offload_prompt_only=record.offload_prompt_only,
            get_manager=get_manager,
            get_handlers=get_handlers,
        )

    def _make_tiered(self) -> TieredManager:
        record = self._config.connector
        tiered = TieredManager(
            self._kv_offload, capacity=record.num_cpu_blocks, policy=record.eviction_policy,
            enable_events=self._config.enable_kv_cache_events, num_tiers=record.num_tiers, keys=KeyBytes())
        for place in record.request_level_tiers:
            tiered.tiers[place].is_request_level = True
        return tiered

    def has_fence(self) -> bool:
        """Whether this release frees blocks at once and flushes jobs when they are used again."""
        return hasattr(self._scheduler_module, "OffloadPolicy")

    # ---- Plans ----

    def plan(self, meta: Any) -> Plan:
        """The plan in a step's metadata."""
        if self.has_fence():
            return Plan([self._job(job_id, job) for job_id, job in meta.load_jobs.items()],
                        [self._job(job_id, job) for job_id, job in meta.store_jobs.items()],
                        (), sorted(meta.jobs_to_flush))
        loads = [PlannedTransfer(0, name, gpu.block_ids, gpu.group_sizes, gpu.block_indices, cpu.block_ids)
                 for name, (cpu, gpu) in meta.reqs_to_load.items()]
        stores = [PlannedTransfer(0, name, gpu.block_ids, gpu.group_sizes, gpu.block_indices or (), cpu.block_ids)
                  for name, (gpu, cpu) in meta.reqs_to_store.items()]
        return Plan(loads, stores, meta.reqs_to_flush or (), ())

    def _job(self, job_id: int, job: Any) -> PlannedTransfer:
        self._request_of_job[job_id] = job.req_id
        source, target = job.transfer_spec
        gpu, cpu = (source, target) if source.medium() == "GPU" else (target, source)
        return PlannedTransfer(job_id, job.req_id, gpu.block_ids, gpu.group_sizes, gpu.block_indices, cpu.block_ids)

    def request_of(self, rank: int, job_id: int) -> str:
        """Of a transfer in a rank's copy engine."""
        if self.has_fence():
            return self._request_of_job[job_id]
        name, _ = self._halves[rank].connector_worker._jobs[job_id]
        return name
