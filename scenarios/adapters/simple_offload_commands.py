"""The scheduler and the SimpleCPUOffloadConnector of a real vLLM release driven by the commands of
contract/connectors/simple/simple_facet.h.

What scheduler_commands.py says of the scheduler holds; of the connector, what corrected_simple_offload.py says.
"""

from __future__ import annotations

from typing import Any, FrozenSet, List

from engine_target import Config, World
from line_language import print_integers
from scheduler_commands import UpstreamScheduler
from upstream_pool import Modules, PoolView
from upstream_simple_offload import SimpleOffloadConnectors


class UpstreamSimpleOffload(UpstreamScheduler):
    """A scheduler with its connector, and the workers of all ranks, which take steps in the order of planning."""

    has_workers = True
    completed_jobs = "completed_store_events"

    def __init__(self, modules: Modules, config: Config, world: World, uncorrected: FrozenSet[str] = frozenset()):
        self._connectors = SimpleOffloadConnectors(modules, config, uncorrected)
        self._cpu_view = PoolView(modules, self._connectors.cpu_pool)
        super().__init__(modules, config, world, uncorrected)

    def _make_connector(self) -> Any:
        return self._connectors.scheduler

    def _run_workers(self, scheduler_output: Any) -> Any:
        return self._connectors.workers.run_step(scheduler_output)

    # ---- Commands (contract/connectors/simple/simple_facet.h) ----

    def advance_copy(self, rank, store, progress) -> str:
        if progress not in ("part", "finished"):
            return "error=bad_range"
        if rank >= self._config.ranks:
            return "error=not_in_config"
        return "error=none" if self._connectors.backends[rank].advance(store, progress) else "error=unknown_job"

    # ---- Answers ----

    def _plan_text(self, output: Any) -> str:
        plan = self._connectors.plan(output.kv_connector_metadata)
        load_event = "" if plan.load_event is None else f" load_event={plan.load_event}"
        store_event = "" if plan.store_event is None else f" store_event={plan.store_event}"
        return (
            f"{load_event} load_gpu_blocks={print_integers(plan.load_gpu_blocks)}"
            f" load_cpu_blocks={print_integers(plan.load_cpu_blocks)}"
            f" load_requests={self._names_text(plan.load_requests)}"
            f"{store_event} store_gpu_blocks={print_integers(plan.store_gpu_blocks)}"
            f" store_cpu_blocks={print_integers(plan.store_cpu_blocks)}"
            f" need_flush={'true' if plan.need_flush else 'false'}"
        )

    # ---- What is observed ----

    def observe(self, state: bool) -> str:
        connectors = self._connectors
        free_blocks = connectors.cpu_pool.free_block_queue.get_all_free_blocks()
        num_queued = len(free_blocks)
        num_empty = [block.block_hash for block in free_blocks].count(None)
        cursor = connectors.lazy_cursor()
        text = (
            f"{super().observe(state)} num_empty_cpu_blocks={num_empty} num_cached_cpu_blocks={num_queued - num_empty}"
            f" num_referenced_cpu_blocks={self._config.connector.num_cpu_blocks - num_queued}"
            f" has_pending_stores={'true' if connectors.scheduler.has_pending_transfers() else 'false'}"
            f"{'' if cursor is None else f' lazy_cursor={cursor}'}"
        )
        if not state:
            return text
        pins = [f"(pin request={self._name_texts[name]} cpu_blocks={print_integers(blocks)})"
                for name, blocks in connectors.pins().items()]
        cpu_pool = self._cpu_view.state(free_blocks, "cpu_", connectors.cpu_keys())
        return f"{text} copies=[{' '.join(self._copy_texts())}] pins=[{' '.join(pins)}]{cpu_pool}"

    def _copy_texts(self) -> List[str]:
        return [
            f"(copy rank={rank}{' store=true' if copy.is_store else ''} event={copy.event_idx}"
            f" progress={copy.progress})"
            for rank, backend in enumerate(self._connectors.backends) for copy in backend.copies()
        ]
