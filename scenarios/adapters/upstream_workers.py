"""The workers' halves of a connector of a real vLLM release, rank by rank, driven as by upstream's model runner."""

from __future__ import annotations

import importlib
from typing import Any, List

_KV_CONNECTOR_UTILS = "vllm.distributed.kv_transfer.kv_connector.utils"


class Workers:
    """halves: connectors of upstream with the role WORKER, one per rank."""

    def __init__(self, halves: List[Any]):
        self._halves = halves
        self._outputs = importlib.import_module("vllm.v1.outputs")
        self._aggregator = importlib.import_module(_KV_CONNECTOR_UTILS).KVOutputAggregator(len(halves))

    def run_step(self, scheduler_output: Any) -> Any:
        """One step on all ranks: their reports, aggregated by upstream (a KVConnectorOutput)."""
        outputs = [self._run_rank(rank, scheduler_output) for rank in range(len(self._halves))]
        return self._aggregator.aggregate(outputs).kv_connector_output

    def _forward_context(self, rank: int, scheduler_output: Any) -> Any:
        """The context that upstream's model runner sets for a step."""
        return None

    def _forward(self, rank: int, context: Any) -> None:
        """The model's pass of a step with tokens."""

    def _run_rank(self, rank: int, scheduler_output: Any) -> Any:
        """As upstream's model runner and its KV connector mixin."""
        worker = self._halves[rank]
        context = self._forward_context(rank, scheduler_output)
        meta = scheduler_output.kv_connector_metadata
        worker.handle_preemptions(meta)
        worker.bind_connector_metadata(meta)
        worker.start_load_kv(context)
        if scheduler_output.total_num_scheduled_tokens:
            self._forward(rank, context)
            worker.wait_for_save()
        finished_sending, finished_recving = worker.get_finished(scheduler_output.finished_req_ids)
        report = self._outputs.KVConnectorOutput(
            finished_sending=finished_sending,
            finished_recving=finished_recving,
            kv_connector_worker_meta=worker.build_connector_worker_meta(),
            invalid_block_ids=worker.get_block_ids_with_load_errors(),
            kv_connector_stats=worker.get_kv_connector_stats(),
        )
        worker.clear_connector_metadata()
        return self._outputs.ModelRunnerOutput(req_ids=[], req_id_to_index={}, kv_connector_output=report)
