"""The MultiConnector of a real vLLM release behind the commands of contract/connectors/multi/multi_connector_target.h, both halves, over
scripted children.

MultiConnector, its metadata and statistics, KVOutputAggregator and KVCacheBlocks are upstream's. What stands in: the
configuration, a bag of the attributes that are read, and the factory that makes the children. README.md has the list of
what the adapter decides itself.
"""

from __future__ import annotations

import importlib
from collections import deque
from types import SimpleNamespace
from typing import Any, Deque, Dict, FrozenSet, List, Optional, Sequence

from corrected_multi_connector import corrected_multi_connector
from line_language import print_integers, print_text
from multi_connector_target import Config
from scripted_child import ChildCalls, child_class_maker, print_texts
from session import Unsupported
from upstream_pool import Modules

_KV_CONNECTOR = "vllm.distributed.kv_transfer.kv_connector"


class _Rank:
    """A worker's half with what waits around it."""

    def __init__(self, connector: Any) -> None:
        self.connector = connector
        self.waiting: Deque[Any] = deque()  # metadata, oldest first
        self.in_step = False
        self.reports: Deque[Any] = deque()  # oldest first


class UpstreamMultiConnector:
    """The scheduler's half of one MultiConnector, and its worker's half on each rank."""

    def __init__(self, modules: Modules, config: Config, uncorrected: FrozenSet[str] = frozenset()):
        module = importlib.import_module(f"{_KV_CONNECTOR}.v1.multi_connector")
        base = importlib.import_module(f"{_KV_CONNECTOR}.v1.base")
        metrics = importlib.import_module(f"{_KV_CONNECTOR}.v1.metrics")
        self._takes_groups = hasattr(module.MultiConnector, "request_finished_all_groups")
        self._learns_requests = hasattr(base.KVConnectorBase_V1, "on_new_request")
        self._check_supported(modules, config)
        self._config = config
        self._outputs = importlib.import_module("vllm.v1.outputs")
        self._blocks_type = importlib.import_module("vllm.v1.core.kv_cache_manager").KVCacheBlocks
        self._aggregator = importlib.import_module(f"{_KV_CONNECTOR}.utils").KVOutputAggregator(config.num_ranks)
        self._calls = ChildCalls()

        make_class = child_class_maker(base, metrics, self._calls)
        classes = [make_class(child.connector_class, child.hma) for child in config.children]
        module.KVTransferConfig = SimpleNamespace
        module.KVConnectorFactory = SimpleNamespace(
            get_connector_class=lambda transfer: classes[transfer.place],
            supports_hma_config=lambda transfer: config.children[transfer.place].hma)
        connector_type = corrected_multi_connector(module, uncorrected)

        def make(role: Any, rank: Optional[int]) -> Any:
            places = [{"place": place} for place in range(len(config.children))]
            vllm_config = SimpleNamespace(
                kv_transfer_config=SimpleNamespace(engine_id="engine", kv_connector_extra_config={"connectors": places}),
                scheduler_config=SimpleNamespace(
                    disable_hybrid_kv_cache_manager=not all(child.hma for child in config.children)),
                rank=rank)
            return connector_type(vllm_config, role, SimpleNamespace())

        self._scheduler = make(base.KVConnectorRole.SCHEDULER, None)
        self._ranks = [_Rank(make(base.KVConnectorRole.WORKER, rank)) for rank in range(config.num_ranks)]

    def _check_supported(self, modules: Modules, config: Config) -> None:
        if config.num_groups == 1:
            return
        if not self._takes_groups:
            raise Unsupported(f"vLLM {modules.release.version} has no MultiConnector for several groups")
        if not all(child.hma for child in config.children):
            raise Unsupported("several groups over a child that takes one")

    # ---- The scheduler's half ----

    def on_new_request(self, request: str) -> str:
        if not self._learns_requests:
            return "error=not_in_profile"
        self._scheduler.on_new_request(SimpleNamespace(request_id=request))
        return "error=none"

    def get_num_new_matched_tokens(self, request: str, num_computed_tokens: int, answers: List[dict]) -> str:
        if not self._script(self._scheduler, answers):
            return "error=not_in_config"
        num_tokens, load_async = self._scheduler.get_num_new_matched_tokens(SimpleNamespace(request_id=request),
                                                                            num_computed_tokens)
        text = "again" if num_tokens is None else str(num_tokens)
        return f'error=none matched="{text}{" async" if load_async else ""}"'

    def update_state_after_alloc(self, request: str, blocks: List[List[int]], num_external_tokens: int) -> str:
        groups = self._groups_of(blocks)
        if groups is None:
            return "error=not_in_config"
        allocated = self._blocks_type(tuple([[SimpleNamespace(block_id=block) for block in group]
                                             for group in groups]))
        self._scheduler.update_state_after_alloc(SimpleNamespace(request_id=request), allocated, num_external_tokens)
        return "error=none"

    def build_connector_meta(self, answers: List[str]) -> str:
        if not self._script(self._scheduler, [{"metadata": text} for text in answers]):
            return "error=not_in_config"
        metadata = self._scheduler.build_connector_meta(SimpleNamespace())
        for rank in self._ranks:
            rank.waiting.append(metadata)
        return (f"error=none metadata={print_texts([part.text for part in metadata.metadata])}"
                f" extra_async_saves={_extras(metadata.extra_async_saves or {})}")

    def update_connector_output(self) -> str:
        if not all(rank.reports for rank in self._ranks):
            return "error=no_step_in_flight"
        outputs = [self._outputs.ModelRunnerOutput(req_ids=[], req_id_to_index={},
                                                   kv_connector_output=rank.reports.popleft())
                   for rank in self._ranks]
        output = self._aggregator.aggregate(outputs).kv_connector_output
        self._scheduler.update_connector_output(output)
        return f"error=none{self._output(output)}"

    def request_finished(self, request: str, blocks: List[List[int]], answers: List[dict]) -> str:
        groups = self._groups_of(blocks)
        if groups is None or not self._script(self._scheduler, answers):
            return "error=not_in_config"
        ended = SimpleNamespace(request_id=request)
        try:
            # As upstream's scheduler in _connector_finished.
            if self._takes_groups:
                hold, params = self._scheduler.request_finished_all_groups(ended, tuple(groups))
            else:
                hold, params = self._scheduler.request_finished(ended, groups[0])
        except RuntimeError as error:
            if "KV transfer params" not in str(error):
                raise
            return "error=several_params"
        return (f"error=none hold={str(hold).lower()}"
                f" kv_transfer_params={'none' if params is None else print_text(params['params'])}")

    def take_events(self, answers: List[dict]) -> str:
        if not self._script(self._scheduler, answers):
            return "error=not_in_config"
        return f"error=none events={print_integers(self._scheduler.take_events())}"

    def reset_cache(self, answers: List[dict]) -> str:
        if not self._script(self._scheduler, answers):
            return "error=not_in_config"
        return f"error=none success={str(self._scheduler.reset_cache()).lower()}"

    # ---- The worker's half of a rank, as upstream's model runner and its KV connector mixin ----

    def handle_preemptions(self, rank: int) -> str:
        error = self._refusal_of_beginning(rank)
        if error is not None:
            return error
        self._ranks[rank].connector.handle_preemptions(self._ranks[rank].waiting[0])
        return "error=none"

    def start_load_kv(self, rank: int) -> str:
        error = self._refusal_of_beginning(rank)
        if error is not None:
            return error
        worker = self._ranks[rank]
        worker.connector.bind_connector_metadata(worker.waiting.popleft())
        worker.connector.start_load_kv(None)
        worker.in_step = True
        return "error=none"

    def wait_for_layer_load(self, rank: int, layer: str) -> str:
        error = self._refusal_within(rank)
        if error is not None:
            return error
        self._ranks[rank].connector.wait_for_layer_load(layer)
        return "error=none"

    def save_kv_layer(self, rank: int, layer: str) -> str:
        error = self._refusal_within(rank)
        if error is not None:
            return error
        self._ranks[rank].connector.save_kv_layer(layer, None, None)
        return "error=none"

    def get_kv_connector_output(self, rank: int, wait_for_save: bool, finished: List[str],
                                answers: List[dict]) -> str:
        error = self._refusal_within(rank)
        if error is not None:
            return error
        worker = self._ranks[rank]
        connector = worker.connector
        if not self._script(connector, answers):
            return "error=not_in_config"
        if wait_for_save:
            connector.wait_for_save()
        output = self._outputs.KVConnectorOutput()
        output.finished_sending, output.finished_recving = connector.get_finished(set(finished))
        output.invalid_block_ids = connector.get_block_ids_with_load_errors()
        output.kv_connector_stats = connector.get_kv_connector_stats()
        output.kv_connector_worker_meta = connector.build_connector_worker_meta()
        connector.clear_connector_metadata()
        worker.in_step = False
        worker.reports.append(output)
        return f"error=none{self._output(output)}"

    # ---- What is observed ----

    def observe(self, state: bool) -> str:
        chosen = self._scheduler._requests_to_connector
        extra = self._scheduler._extra_async_saves
        num_extra = len(extra) + sum([len(rank.connector._extra_async_saves) for rank in self._ranks])
        text = f"{self._calls.take()} num_chosen={len(chosen)} num_extra={num_extra}"
        if not state:
            return text
        who = " ".join([f"(chosen request={print_text(request)} child={place})"
                        for request, place in sorted(chosen.items())])
        ranks = " ".join([
            f"(rank num_waiting={len(rank.waiting)} in_step={str(rank.in_step).lower()}"
            f" num_reports={len(rank.reports)} extra={_extras(rank.connector._extra_async_saves)})"
            for rank in self._ranks])
        return f"{text} chosen=[{who}] extra={_extras(extra)} ranks=[{ranks}]"

    @staticmethod
    def _output(output: Any) -> str:
        """Of a rank, or of all."""
        text = (f" finished_sending={print_texts(sorted(output.finished_sending or ()))}"
                f" finished_recving={print_texts(sorted(output.finished_recving or ()))}"
                f" invalid_block_ids={print_integers(sorted(output.invalid_block_ids))}")
        if output.kv_connector_stats is not None:
            stats = " ".join([f"(stats class={print_text(name)} numbers={print_integers(part.data['numbers'])})"
                              for name, part in output.kv_connector_stats.data.items()])
            text += f" stats=[{stats}]"
        if output.kv_connector_worker_meta is not None:
            parts = " ".join(["(meta)" if part is None else f"(meta numbers={print_integers(part.numbers)})"
                              for part in output.kv_connector_worker_meta.metadata])
            text += f" worker_meta=[{parts}]"
        return text

    # ---- What only the script and the engine know ----

    @staticmethod
    def _script(connector: Any, answers: Sequence[dict]) -> bool:
        """Hands each child its answers; False if there are those of more children than there are."""
        children = connector._connectors
        if len(answers) > len(children):
            return False
        for place, child in enumerate(children):
            child.answers = answers[place] if place < len(answers) else {}
        return True

    def _groups_of(self, blocks: List[List[int]]) -> Optional[List[List[int]]]:
        if len(blocks) > self._config.num_groups:
            return None
        return blocks + [[] for _ in range(self._config.num_groups - len(blocks))]

    def _refusal_of_beginning(self, rank: int) -> Optional[str]:
        if rank >= len(self._ranks):
            return "error=not_in_config"
        if self._ranks[rank].in_step:
            return "error=steps_in_flight"
        return None if self._ranks[rank].waiting else "error=no_step_in_flight"

    def _refusal_within(self, rank: int) -> Optional[str]:
        if rank >= len(self._ranks):
            return "error=not_in_config"
        return None if self._ranks[rank].in_step else "error=no_step_in_flight"


def _extras(numbers: Dict[str, int]) -> str:
    return "[" + " ".join([f"(extra request={print_text(request)} saves={saves})"
                           for request, saves in sorted(numbers.items())]) + "]"
