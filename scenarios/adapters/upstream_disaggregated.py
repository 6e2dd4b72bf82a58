"""The NIXL connector of a real vLLM release at both ends of a pair, over a transport and a clock that are commands.

NixlConnector, its scheduler halves, its workers, their topologies and KVOutputAggregator are upstream's. What stands
in: the NIXL agents, the handshake (every rank knows the ranks that it reads from), the model and its memory (one region, whose
descriptors are block ids), the clock.
"""

from __future__ import annotations

import importlib
import math
from types import ModuleType, SimpleNamespace
from typing import Any, FrozenSet, List, NamedTuple

from corrected_connector import OrderedSet
from corrected_disaggregated import corrected_halves
from engine_target import Config
from scripted_transport import ScriptedAgent, ScriptedTransport
from upstream_kv_cache import make_kv_cache_config, refusals
from upstream_pool import Modules

_KV_CONNECTOR = "vllm.distributed.kv_transfer.kv_connector"

# Of upstream's clock when time is 0: late enough for a first heartbeat.
_CLOCK_START = 2_000_000_000


class _Numbers(list):
    """The part of numpy that upstream's mapping of ranks uses."""

    def __mul__(self, factor: int) -> "_Numbers":
        return _Numbers(number * factor for number in self)

    def __floordiv__(self, divisor: int) -> "_Numbers":
        return _Numbers(number // divisor for number in self)

    def __radd__(self, summand: int) -> "_Numbers":
        return _Numbers(summand + number for number in self)

    def tolist(self) -> List[int]:
        return list(self)


_NUMPY = SimpleNamespace(
    arange=lambda start, stop: _Numbers(range(start, stop)),
    unique=lambda numbers, return_index: (sorted(set(numbers)),
                                          [numbers.index(number) for number in sorted(set(numbers))]),
    sort=lambda numbers: _Numbers(sorted(numbers)),
)


class _Nixl(NamedTuple):
    """The modules of one release: one for all in 0.19.0."""

    connector: ModuleType
    scheduler: ModuleType
    worker: ModuleType

    @property
    def has_leases(self) -> bool:
        return self.connector is not self.scheduler


def _load(version: str) -> _Nixl:
    # What is asked of it when the workers' module is imported, and by a worker.
    platform = importlib.import_module("vllm.platforms").current_platform
    platform.device_type = "cuda"
    platform.get_nixl_supported_devices = dict
    platform.get_nixl_memory_type = lambda: None
    if version.startswith("0.19."):
        module = importlib.import_module(f"{_KV_CONNECTOR}.v1.nixl_connector")
        return _Nixl(module, module, module)
    importlib.import_module(f"{_KV_CONNECTOR}.v1.nixl.tp_mapping").np = _NUMPY
    return _Nixl(*[importlib.import_module(f"{_KV_CONNECTOR}.v1.nixl.{part}")
                   for part in ("connector", "scheduler", "worker")])


class Connectors:
    """Both scheduler halves, and the workers of all ranks."""

    def __init__(self, modules: Modules, config: Config, uncorrected: FrozenSet[str]):
        """Raises Unsupported."""
        self.transport = ScriptedTransport()
        self._modules = modules
        self._config = config
        self._nixl = nixl = _load(modules.release.version)
        self._utils = importlib.import_module(f"{_KV_CONNECTOR}.utils")
        self._outputs = importlib.import_module("vllm.v1.outputs")
        self._deadline = config.connector.deadline or math.inf
        self._backend = SimpleNamespace(get_name=lambda: "FLASH_ATTN",
                                        get_kv_cache_shape=lambda num_blocks, **_: (2, num_blocks, 16, 1, 1))
        for module in {nixl.scheduler, nixl.worker}:
            module.time = SimpleNamespace(perf_counter=lambda: _CLOCK_START + self.transport.now)
            module.envs = SimpleNamespace(VLLM_NIXL_SIDE_CHANNEL_HOST="localhost", VLLM_NIXL_SIDE_CHANNEL_PORT=5600,
                                          VLLM_NIXL_ABORT_REQUEST_TIMEOUT=self._deadline)
            # Its sets keep their order.
            module.set = OrderedSet
        nixl.worker.get_current_attn_backends = lambda _: [self._backend]
        nixl.worker.select_common_block_size = lambda block_size, _: block_size
        nixl.worker.get_kv_cache_layout = lambda: "HND"
        nixl.worker.nixl_agent_config = None
        scheduler_half = nixl.scheduler.NixlConnectorScheduler
        worker_half = nixl.worker.NixlConnectorWorker
        # Where all stands in one module, the next configuration finds what this one puts there.
        scheduler_half = getattr(scheduler_half, "upstream", scheduler_half)
        worker_half = getattr(worker_half, "upstream", worker_half)
        corrected_scheduler, corrected_worker = corrected_halves(scheduler_half, worker_half, uncorrected)
        corrected_scheduler.upstream, corrected_worker.upstream = scheduler_half, worker_half
        nixl.connector.NixlConnectorScheduler = corrected_scheduler
        nixl.connector.NixlConnectorWorker = corrected_worker

        self.world_sizes = {"producer": config.ranks, "consumer": config.consumer_ranks}
        self.schedulers = {role: self._make(role, "SCHEDULER") for role in self.world_sizes}
        self.workers = {role: [self._make_worker(role, rank) for rank in range(world_size)]
                         for role, world_size in self.world_sizes.items()}
        self._aggregators = {role: self._utils.KVOutputAggregator(world_size)
                             for role, world_size in self.world_sizes.items()}

    def num_gpu_blocks(self, role: str) -> int:
        own = self._config.consumer_num_gpu_blocks if role == "consumer" else 0
        return own or self._config.num_gpu_blocks

    def _make(self, role: str, kind: str) -> Any:
        config = self._config
        extra = {"kv_lease_duration": self._deadline}
        vllm_config = SimpleNamespace(
            cache_config=SimpleNamespace(block_size=config.groups[0].block_size),
            parallel_config=SimpleNamespace(data_parallel_index=0, tensor_parallel_size=self.world_sizes[role]),
            scheduler_config=SimpleNamespace(disable_hybrid_kv_cache_manager=False),
            model_config=SimpleNamespace(use_mla=False),
            kv_transfer_config=SimpleNamespace(engine_id=role, kv_role=f"kv_{role}", kv_buffer_device="cuda",
                                               get_from_extra_config=extra.get),
        )
        kv_cache_config = make_kv_cache_config(self._modules, self.num_gpu_blocks(role), config.groups)
        module = self._nixl.connector
        with refusals(self._modules):
            connector = module.NixlConnector(vllm_config, getattr(module.KVConnectorRole, kind), kv_cache_config)
        # Requests that the last lookup put off: none.
        connector.put_off = None
        return connector

    def _make_worker(self, role: str, rank: int) -> Any:
        module = self._nixl.worker
        module.NixlWrapper = lambda *_: ScriptedAgent(self.transport, role == "producer", rank)
        module.get_tensor_model_parallel_rank = lambda: rank
        module.get_tensor_model_parallel_world_size = lambda: self.world_sizes[role]
        connector = self._make(role, "WORKER")
        worker = connector.connector_worker
        worker.transport = self.transport
        worker.num_regions = 1
        worker.dst_num_blocks = {engine: self.num_gpu_blocks(engine) for engine in self.world_sizes}
        other = "consumer" if role == "producer" else "producer"
        ranks = (self._meet_with_leases if self._nixl.has_leases else self._meet)(worker, role, other)
        if role == "consumer":
            worker._remote_agents[other] = {rank: rank for rank in ranks}
        worker.dst_xfer_side_handles[other] = {rank: rank for rank in ranks}
        worker.src_xfer_handles_by_block_size = {worker.block_size: 0}
        worker.src_xfer_handles_by_tp_ratio = {-len(ranks): [0] * len(ranks)}
        return connector

    # ---- The result of a handshake: the ranks of the other engine that this one reads from ----

    def _meet(self, worker: Any, role: str, other: str) -> List[int]:
        """0.19.0."""
        worker._tp_size[other] = self.world_sizes[other]
        worker._block_size[other] = worker.block_size
        worker.kv_topo = self._utils.TpKVTopology(
            tp_rank=worker.tp_rank, engine_id=role, remote_tp_size=worker._tp_size, is_mla=False,
            total_num_kv_heads=self._num_heads(), attn_backends=worker.attn_backends,
            remote_block_size=worker._block_size)
        return worker.kv_topo.get_target_remote_ranks_from_engine_id(other)

    def _meet_with_leases(self, worker: Any, role: str, other: str) -> List[int]:
        """0.23.0."""
        size = self.world_sizes[other]
        worker.transfer_topo = self._utils.TransferTopology(
            tp_rank=worker.tp_rank, tp_size=self.world_sizes[role], block_size=worker.block_size, engine_id=role,
            is_mla=False, is_mamba=False, total_num_kv_heads=self._num_heads(), attn_backends=worker.attn_backends)
        worker.transfer_topo.register_remote_engine(other, self._utils.EngineTransferInfo(
            remote_tp_size=size, remote_block_len=1, remote_block_size=worker.block_size,
            remote_physical_blocks_per_logical=1))
        worker.tp_mappings[other] = self._nixl.worker.compute_tp_mapping(worker.transfer_topo, size,
                                                                        worker._group_spec_types)
        return worker.transfer_topo.target_remote_ranks(other)

    def _num_heads(self) -> int:
        """Enough that no two ranks of an engine have the same."""
        return max(self.world_sizes.values())

    # ---- Steps ----

    def seconds(self, clock: float) -> str:
        """A time of upstream's as text."""
        return "none" if clock == math.inf else str(clock - _CLOCK_START)

    def run_step(self, role: str, scheduler_output: Any) -> Any:
        """One step on all ranks: their reports, aggregated by upstream (a KVConnectorOutput)."""
        outputs = [self._run_rank(worker, scheduler_output) for worker in self.workers[role]]
        return self._aggregators[role].aggregate(outputs).kv_connector_output

    def _run_rank(self, worker: Any, scheduler_output: Any) -> Any:
        """As upstream's model runner and its KV connector mixin."""
        worker.bind_connector_metadata(scheduler_output.kv_connector_metadata)
        worker.start_load_kv(None)
        worker.wait_for_save()
        finished_sending, finished_recving = worker.get_finished(scheduler_output.finished_req_ids)
        report = self._outputs.KVConnectorOutput(
            finished_sending=finished_sending,
            finished_recving=finished_recving,
            invalid_block_ids=set(worker.get_block_ids_with_load_errors()),
        )
        # They are not used here; unless taken, they grow.
        worker.get_kv_connector_stats()
        worker.clear_connector_metadata()
        return self._outputs.ModelRunnerOutput(req_ids=[], req_id_to_index={}, kv_connector_output=report)
