"""Upstream's OffloadingConnector, corrected and with fixed orders: contract/connectors/offloading/offloading_connector.h.

As corrected_scheduler.py: each correction is about one place where upstream goes wrong, and can be left out. The orders
that upstream leaves to sets of keys are those in which the keys were planned.
"""

from __future__ import annotations

from typing import Any, FrozenSet, Iterable, Iterator, List, Optional

# Name -> what upstream does without it.
CORRECTIONS = {
    "held_while_loading": "a request that stored, was preempted and is finished while it loads is reported as sent too:"
                          " its blocks are freed under the load (0.19.0)",
    "duplicate_reports": "a transfer that is reported twice is a KeyError, or counts for another worker (0.23.0)",
    "reset_keeps_jobs": "requests keep the numbers of jobs that a reset forgets: KeyError at their next one (0.23.0)",
    "reset_twice": "a second reset before the next step is an AssertionError if the first left jobs to flush (0.23.0)",
    "stale_after_reset": "after a reset, blocks that left a window and were reused since are stored again under"
                         " their old keys (0.23.0)",
    "part_of_a_slot": "a block of several GPU blocks is stored also if the leading ones left the window: its slot is"
                      " ready, and a load reads bytes that were never written (0.23.0)",
    "load_beside_stores": "a preempted request that comes in again while its stores are under way may load: an"
                          " AssertionError (0.23.0, vllm#46014)",
}


class OrderedSet(dict):
    """A set in the order of insertion, as far as upstream's scheduler half uses one."""

    def __init__(self, items: Iterable[Any] = ()):
        super().__init__(dict.fromkeys(items))

    def add(self, item: Any) -> None:
        self[item] = None

    def discard(self, item: Any) -> None:
        super().pop(item, None)

    def pop(self) -> Any:
        return self.popitem()[0]

    def remove(self, item: Any) -> None:
        del self[item]

    def update(self, items: Iterable[Any]) -> None:
        super().update(dict.fromkeys(items))

    def difference_update(self, items: Iterable[Any]) -> None:
        for item in items:
            self.discard(item)

    def __ior__(self, items: Iterable[Any]) -> "OrderedSet":
        self.update(items)
        return self


def corrected_halves(base: Any, scheduler_half: Any, worker_half: Any, worker_type: Any, kv_events: Any,
                     uncorrected: FrozenSet[str] = frozenset()) -> tuple:
    """Subclasses of OffloadingConnector, OffloadingConnectorScheduler and OffloadingConnectorWorker.

    worker_type: upstream's OffloadingWorker.
    """
    has_fence = hasattr(scheduler_half, "reset_cache")

    def corrects(name: str) -> bool:
        return name not in uncorrected

    class CorrectedConnector(base):
        # Requests that the last lookup put off.
        put_off: Optional[str] = None

        def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> tuple:
            answer = super().get_num_new_matched_tokens(request, num_computed_tokens)
            self.put_off = request.request_id if answer[0] is None else None
            return answer

        def take_events(self) -> Iterator[Any]:
            """As everywhere in kvfence, one removed block per event."""
            for event in super().take_events():
                if isinstance(event, kv_events.BlockRemoved):
                    for block_hash in event.block_hashes:
                        yield kv_events.BlockRemoved(block_hashes=[block_hash], medium=event.medium)
                else:
                    yield event

    class HoldingScheduler(scheduler_half):
        """0.19.0."""

        def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
            """held_while_loading: its stores ended when it was preempted; from now on only the load holds it."""
            super().update_state_after_alloc(request, blocks, num_external_tokens)
            name = request.request_id
            if num_external_tokens and corrects("held_while_loading") and not self._reqs_being_stored.get(name, True):
                del self._reqs_being_stored[name]

    class FencingScheduler(scheduler_half):
        """0.23.0."""

        def __init__(self, spec: Any):
            super().__init__(spec)
            # The last GPU blocks of an offloaded one that a load may want, by group. Mamba, which has no
            # sliding_window: the last state, and where each token has one, that before a prompt's last token.
            factor = self.config.block_size_factor
            self._num_needed = {}
            for index in self._sliding_window_groups:
                kv_cache_spec = spec.kv_cache_config.kv_cache_groups[index].kv_cache_spec
                num_states = 2 if kv_cache_spec.block_size == 1 else 1
                is_window = hasattr(kv_cache_spec, "sliding_window")
                self._num_needed[index] = factor if is_window else min(factor, num_states)

        def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> tuple:
            """load_beside_stores."""
            status = self._req_status[request.request_id]
            if not status.transfer_jobs or not corrects("load_beside_stores"):
                return super().get_num_new_matched_tokens(request, num_computed_tokens)
            for group_state in status.group_states:
                group_state.block_ids.clear()
            return None, False

        def reset_cache(self) -> None:
            """reset_keeps_jobs, reset_twice."""
            to_flush = list(self._current_batch_jobs_to_flush)
            if corrects("reset_twice"):
                self._current_batch_jobs_to_flush.clear()
            super().reset_cache()
            self._current_batch_jobs_to_flush.update(to_flush)
            if corrects("reset_keeps_jobs"):
                for name, status in list(self._req_status.items()):
                    status.transfer_jobs.clear()
                    if status.req.is_finished():
                        del self._req_status[name]

        def _update_req_states(self, scheduler_output: Any) -> None:
            """stale_after_reset, part_of_a_slot."""
            self._forget_stale_blocks(scheduler_output)
            if corrects("part_of_a_slot"):
                self._skip_parts()

        def _forget_stale_blocks(self, scheduler_output: Any) -> None:
            """Upstream looks for reused blocks only after the cursor."""
            if not corrects("stale_after_reset"):
                return super()._update_req_states(scheduler_output)
            groups = [group for status in self._req_status.values() for group in status.group_states]
            cursors = [group.next_stored_block_idx for group in groups]
            for group in groups:
                group.next_stored_block_idx = 0
            super()._update_req_states(scheduler_output)
            for group, cursor in zip(groups, cursors):
                group.next_stored_block_idx = cursor
            return None

        def _skip_parts(self) -> None:
            """Upstream skips a block whose last GPU block is 0."""
            factor = self.config.block_size_factor
            for status in self._req_status.values():
                for config, group in zip(self.config.kv_group_configs, status.group_states):
                    num_needed = self._num_needed.get(config.group_idx, 0)
                    for end in range(factor, len(group.block_ids) + 1, factor):
                        if 0 in group.block_ids[end - num_needed:end]:
                            group.block_ids[end - 1] = 0

    class ReportingOnce(worker_type):
        """duplicate_reports."""

        def __init__(self) -> None:
            super().__init__()
            self._under_way: set = set()

        def transfer_async(self, job_id: int, spec: Any) -> bool:
            self._under_way.add(job_id)
            return super().transfer_async(job_id, spec)

        def get_finished(self) -> List[Any]:
            results = []
            for result in super().get_finished():
                if result.job_id in self._under_way:
                    self._under_way.remove(result.job_id)
                    results.append(result)
            return results

    class CorrectedWorker(worker_half):
        def __init__(self, spec: Any):
            super().__init__(spec)
            if corrects("duplicate_reports"):
                self.worker = ReportingOnce()

        def start_kv_transfers(self, metadata: Any) -> None:
            """held_while_loading."""
            super().start_kv_transfers(metadata)
            if not has_fence and corrects("held_while_loading"):
                for name in metadata.reqs_to_load:
                    if not self._store_jobs.get(name, True):
                        del self._store_jobs[name]

    return CorrectedConnector, FencingScheduler if has_fence else HoldingScheduler, CorrectedWorker
