"""The ExampleConnector and the DecodeBenchConnector of a real vLLM release, both halves, over layers of symbols.

The connectors and KVOutputAggregator are upstream's. What stands in: torch (minimal_torch.py), the layers and the model
that computes them (scripted_kv_cache.py), folders and files (scripted_storage.py), and the configuration, bags of
attributes.
"""

from __future__ import annotations

import importlib
from types import SimpleNamespace
from typing import Any, FrozenSet, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import minimal_torch
from corrected_connector import OrderedSet
from corrected_synchronous_connector import corrected_example_connector, with_block_ids
from engine_target import Config, Example
from scripted_kv_cache import FILLED_WITH_DUMMIES, Layer
from scripted_storage import ScriptedStorage, layer_name, layer_of
from session import Unsupported
from upstream_kv_cache import make_kv_cache_config, refusals
from upstream_pool import Modules
from upstream_workers import Workers

_V1 = "vllm.distributed.kv_transfer.kv_connector.v1"


class FileCopy(NamedTuple):
    """A file that was read or written."""

    request: str
    layer: int
    folder: str
    blocks: Sequence[int]
    symbols: Sequence[int]


class FailedFile(NamedTuple):
    request: str
    is_store: bool
    layer: int
    folder: str


class FilledBlocks(NamedTuple):
    request: str
    layer: int
    blocks: Sequence[int]


class Transfer(NamedTuple):
    """Files that a step reads or writes."""

    request: str
    is_store: bool
    folder: str
    num_tokens: int
    blocks: Sequence[int]


class Report:
    """The ranks' file operations in a step, and the requests that they are for."""

    def __init__(self) -> None:
        self.loaded: List[FileCopy] = []
        self.saved: List[FileCopy] = []
        self.filled: List[FilledBlocks] = []
        self.file: Optional[FailedFile] = None  # the one that is read or written
        self.filled_for: str = ""

    def load(self, blocks: Sequence[int], symbols: Sequence[int]) -> None:
        file = self.file
        self.loaded.append(FileCopy(file.request, file.layer, file.folder, blocks, symbols))

    def save(self, blocks: Sequence[int], symbols: Sequence[int]) -> None:
        file = self.file
        self.saved.append(FileCopy(file.request, file.layer, file.folder, blocks, symbols))


class Run(NamedTuple):
    """The model's computation for one request in a step."""

    first_token: int
    tokens: Sequence[int]
    table: Sequence[Sequence[int]]  # blocks, by group


class SynchronousConnectors(Workers):
    """The connector of one engine: the scheduler's half, and of each rank the worker's half with its layers."""

    def __init__(self, modules: Modules, config: Config, storage: ScriptedStorage, uncorrected: FrozenSet[str]):
        """Raises Unsupported. storage: outlives this engine."""
        self._config = config
        self._storage = storage
        self._is_example = isinstance(config.connector, Example)
        self._module = importlib.import_module(f"{_V1}.{'example' if self._is_example else 'decode_bench'}_connector")
        self._module.torch = minimal_torch
        self._check_supported(modules)
        connector_type = self._example_type(uncorrected) if self._is_example else self._decode_bench_type()
        vllm_config = SimpleNamespace(
            cache_config=SimpleNamespace(block_size=config.groups[0].block_size),
            kv_transfer_config=SimpleNamespace(get_from_extra_config={
                "shared_storage_path": storage.root, "fill_mean": FILLED_WITH_DUMMIES}.get),
        )
        kv_cache_config = make_kv_cache_config(modules, config.num_gpu_blocks, config.groups,
                                               retention_interval=config.retention_interval)
        role = importlib.import_module(f"{_V1}.base").KVConnectorRole
        with refusals(modules):
            self.scheduler = connector_type(vllm_config, role.SCHEDULER, kv_cache_config)
            halves = [connector_type(vllm_config, role.WORKER, kv_cache_config) for _ in range(config.ranks)]
        super().__init__(halves)
        self.report = Report()
        self._runs: Sequence[Run] = ()
        numbers = range(config.connector.num_layers)
        self._layers = [[self._make_layer(rank * config.connector.num_layers + number) for number in numbers]
                        for rank in range(config.ranks)]
        if not self._is_example:
            self.scheduler.connector_scheduler._filled_requests = OrderedSet()
            for half, layers in zip(halves, self._layers):
                half.register_kv_caches({layer_name(layer.number): layer for layer in layers})

    def _check_supported(self, modules: Modules) -> None:
        config = self._config
        bench = importlib.import_module(f"{_V1}.decode_bench_connector").DecodeBenchConnector
        has_hma = issubclass(bench, importlib.import_module(f"{_V1}.base").SupportsHMA)
        if not self._is_example and config.connector.decode_bench_hma not in (None, has_hma):
            raise Unsupported(f"vLLM {modules.release.version} has decode_bench_hma={str(has_hma).lower()}")
        if len(config.groups) > 1 and (self._is_example or not has_hma):
            raise Unsupported(f"vLLM {modules.release.version} has no such connector for several groups")
        if any(group.kind not in ("full", "sliding") for group in config.groups):
            raise Unsupported("groups other than of full attention and sliding window")

    def _example_type(self, uncorrected: FrozenSet[str]) -> Any:
        module = self._module
        storage = self._storage
        module.os = storage
        module.safetensors = SimpleNamespace(torch=SimpleNamespace(load_file=storage.load_file,
                                                                   save_file=self._save_file))
        if not hasattr(module.ExampleConnectorMetadata, "keeps_block_ids"):
            module.ExampleConnectorMetadata = with_block_ids(module.ExampleConnectorMetadata)
        connectors = self

        class NamingFiles(corrected_example_connector(module.ExampleConnector, uncorrected)):
            def _generate_filename_debug(self, name: str, token_ids: Any, mm_hashes: List[str]) -> str:
                folder = self._generate_foldername_debug(token_ids, mm_hashes)
                (transfer,) = [each for each in self._connector_metadata.requests if each.token_ids is token_ids]
                storage.layer = layer_of(name)
                connectors.report.file = FailedFile(transfer.request_id, transfer.is_store, storage.layer,
                                                    storage.path.basename(folder))
                return super()._generate_filename_debug(name, token_ids, mm_hashes)

        return NamingFiles

    def _decode_bench_type(self) -> Any:
        connectors = self

        class NamingFills(self._module.DecodeBenchConnector):
            # It never puts a request off.
            put_off = None

            def start_load_kv(self, forward_context: Any) -> None:
                fills = self._connector_metadata.reqs_to_fill
                # A request's lists of blocks are its own.
                self._name_of = {id(ids): name for name, (groups, _) in fills.items() for ids in groups}
                self.connector_worker._fill_blocks = self._fill_blocks
                super().start_load_kv(forward_context)

            def _fill_blocks(self, group: int, block_ids: List[int], num_tokens: int) -> None:
                connectors.report.filled_for = self._name_of[id(block_ids)]
                type(self.connector_worker)._fill_blocks(self.connector_worker, group, block_ids, num_tokens)

        return NamingFills

    def _make_layer(self, number: int) -> Layer:
        return Layer(number, self._config.num_gpu_blocks, self._config.groups[0].block_size,
                     lambda _, blocks, symbols: self.report.load(blocks, symbols),
                     lambda layer, blocks: self.report.filled.append(
                         FilledBlocks(self.report.filled_for, layer, blocks)))

    def _save_file(self, tensors: Any, filename: str) -> None:
        self._storage.save_file(tensors, filename)
        self.report.save(tensors["kv_cache"].blocks, tensors["kv_cache"].values)

    # ---- A step ----

    def run(self, scheduler_output: Any, runs: Sequence[Run]) -> Any:
        """Runs a step on all ranks; returns their reports, aggregated. Raises OSError at a file; report has it."""
        self.report = Report()
        self._runs = runs
        return self.run_step(scheduler_output)

    def _forward_context(self, rank: int, scheduler_output: Any) -> Any:
        # 0.19.0 infers the layout of KV caches from the backend. The one with blocks before keys and values:
        backend = getattr(self._module, "TritonAttentionMetadata", SimpleNamespace)
        layers = {layer_name(layer.number): SimpleNamespace(kv_cache=layer) for layer in self._layers[rank]}
        has_tokens = scheduler_output.total_num_scheduled_tokens > 0
        return SimpleNamespace(
            no_compile_layers={**layers, "mlp": SimpleNamespace()},
            attn_metadata={name: backend.__new__(backend) for name in layers} if has_tokens else None,
        )

    def _forward(self, rank: int, context: Any) -> None:
        """Each layer of attention, as upstream wraps it."""
        worker = self._halves[rank]
        for layer in self._layers[rank]:
            name = layer_name(layer.number)
            worker.wait_for_layer_load(name)
            for run in self._runs:
                for blocks in run.table:
                    layer.compute(blocks, run.first_token, run.tokens)
            worker.save_kv_layer(name, layer, context.attn_metadata[name])

    # ---- What is observed ----

    def folder_name(self, tokens: Sequence[int]) -> str:
        return self._folder_name(minimal_torch.tensor(tokens), [])

    def _folder_name(self, token_ids: Any, mm_hashes: List[str]) -> str:
        return self._storage.path.basename(self.scheduler._generate_foldername_debug(token_ids, mm_hashes))

    def transfers(self, meta: Any) -> Iterator[Transfer]:
        """The plan in a step's metadata."""
        block_size = self._config.groups[0].block_size
        for transfer in meta.requests if self._is_example else ():
            blocks = [slot // block_size for slot in transfer.slot_mapping.values[::block_size]]
            yield Transfer(transfer.request_id, transfer.is_store,
                           self._folder_name(transfer.token_ids, transfer.mm_hashes), len(transfer.token_ids), blocks)

    def fills(self, meta: Any) -> Sequence[Tuple[str, Tuple[Sequence[Sequence[int]], int]]]:
        """Requests with their blocks by group, and the number of tokens."""
        return () if self._is_example else meta.reqs_to_fill.items()

    def filled_requests(self) -> Sequence[str]:
        return () if self._is_example else list(self.scheduler.connector_scheduler._filled_requests)

    def symbols(self) -> Iterator[Sequence[int]]:
        """By layer."""
        for layers in self._layers:
            for layer in layers:
                yield layer.symbols
