"""The scheduler and the SimpleCPUOffloadConnector of a real vLLM release behind the commands of
contract/connectors/simple/simple_offload_target.h.

What scheduler_commands.py says of the scheduler holds; of the connector, what corrected_simple_offload.py says.
"""

from __future__ import annotations

from typing import Any, FrozenSet, List

from line_language import print_integers
from scheduler_commands import UpstreamScheduler
from simple_offload_target import Config
from upstream_pool import Modules, PoolView
from upstream_scheduler import make_output
from upstream_simple_offload import SimpleOffloadConnectors


class UpstreamSimpleOffload(UpstreamScheduler):
    """A scheduler with its connector, and the workers of all ranks, which take steps in the order of planning."""

    def __init__(self, modules: Modules, config: Config, uncorrected: FrozenSet[str] = frozenset()):
        self._connectors = SimpleOffloadConnectors(modules, config, uncorrected)
        self._cpu_view = PoolView(modules, self._connectors.cpu_pool)
        super().__init__(modules, config, uncorrected)

    def _make_connector(self) -> Any:
        return self._connectors.scheduler

    # ---- Commands (contract/connectors/simple/simple_offload_target.h) ----

    def add_request(self, name, tokens, max_tokens, priority, arrival_time, cache_salt,
                    skip_reading_prefix_cache) -> str:
        if name in self._names:
            return "error=already_declared"
        if len(self._config.groups) > 1 and not skip_reading_prefix_cache:
            self._names[name] = len(self._names)
            return "error=not_in_config"
        return self._add(name, tokens, max_tokens, priority=priority, arrival_time=arrival_time, cache_salt=cache_salt,
                         skip_reading_prefix_cache=skip_reading_prefix_cache)

    def update(self, token, samples) -> str:
        if not self._are_known([name for name, _ in samples]):
            return "error=unknown_request"
        if not self._scheduler.in_flight:
            return "error=no_step_in_flight"
        sampled = self._sampled(token, 0, samples)
        if sampled is None:
            return "error=wrong_token_count"
        report = self._connectors.workers.run_step(self._scheduler.in_flight[0].output)
        # Upstream reports sets of names: here in the order in which the requests were added.
        report.finished_recving = self._in_order_of_names(report.finished_recving)
        meta = report.kv_connector_worker_meta
        completed = {}
        if meta is not None:
            completed = meta.completed_store_events = dict(sorted(meta.completed_store_events.items()))
        output = make_output(sampled)
        output.kv_connector_output = report
        completed_texts = [f"(completed event={event} num_workers={count})" for event, count in completed.items()]
        return (f"{self._take(output)} finished_recving={self._names_text(report.finished_recving)}"
                f" completed_stores=[{' '.join(completed_texts)}]")

    def advance_copy(self, rank, store, progress) -> str:
        if progress not in ("part", "finished"):
            return "error=bad_range"
        if rank >= self._config.world_size:
            return "error=not_in_config"
        return "error=none" if self._connectors.backends[rank].advance(store, progress) else "error=unknown_job"

    def reset_prefix_cache(self, reset_connector) -> str:
        success = self._scheduler.reset_prefix_cache(reset_connector=reset_connector)
        return f"error=none success={'true' if success else 'false'}"

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

    def _calls_text(self) -> str:
        return ""

    def observe(self, state: bool) -> str:
        connectors = self._connectors
        free_blocks = connectors.cpu_pool.free_block_queue.get_all_free_blocks()
        num_queued = len(free_blocks)
        num_empty = [block.block_hash for block in free_blocks].count(None)
        cursor = connectors.lazy_cursor()
        text = (
            f"{super().observe(state)} num_empty_cpu_blocks={num_empty} num_cached_cpu_blocks={num_queued - num_empty}"
            f" num_referenced_cpu_blocks={self._config.num_cpu_blocks - num_queued}"
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
