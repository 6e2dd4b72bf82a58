"""Upstream's Scheduler and AsyncScheduler, corrected and with fixed orders: contract/scheduler/scheduler.h.

Nothing here decides what a sound release decides: each correction of CORRECTIONS is about one place where upstream goes
wrong, and can be left out, so that the fault shows (`vllm.py --uncorrected NAME`; README.md says with which scenario).
The orders that upstream leaves to sets of strings are always those of the contract.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Deque, Dict, FrozenSet, List, NamedTuple, Optional, Sequence, Set

# Name -> what upstream does without it, and where that was seen in public.
CORRECTIONS = {
    "stopped_among_skipped": "a preempted request that stops stays in skipped_waiting; the next schedule raises",
    "stale_outputs": "what was planned before reset_prefix_cache(reset_running_requests) is taken, or the wrong output"
                     " dropped (vllm#42043)",
    "invalid_blocks_in_flight": "a request cut back at an invalid block keeps what is in flight (vllm#34484, #45138)",
    "whole_load_failed": "a load of all tokens that shares its invalid blocks keeps them all: nothing to schedule, an"
                         " assertion (vllm#37827)",
    "lost_load_reserves": "blocks stay reserved for a request that lost all that was loaded (0.23.0)",
    "never_fits": "a request that cannot fit is tried forever (vllm#35541)",
}


class Step(NamedTuple):
    """A step in flight."""

    output: Any
    lives: Dict[str, int]  # which life of a request it was planned for; 0 where it is not named
    sampling: Set[str]  # requests that it samples for


def corrected(base: Any, uncorrected: FrozenSet[str] = frozenset()) -> Any:
    """A subclass of Scheduler or AsyncScheduler."""
    return type(f"Corrected{base.__name__}", (_Corrections, base), {"_uncorrected": uncorrected})


class _Corrections:
    """A base before upstream's class."""

    _uncorrected: FrozenSet[str] = frozenset()

    def __init__(self, *arguments: Any, **options: Any):
        self.in_flight: Deque[Step] = deque()
        self.preempted_in_order: List[str] = []
        self.finished_in_order: List[str] = []
        self._is_async = options["vllm_config"].scheduler_config.async_scheduling
        # A request begins another life when the outputs planned for it are to be dropped.
        self._lives: Dict[str, int] = {}
        # Preempted by reset_prefix_cache and not admitted since, without asynchronous scheduling.
        self._was_reset: Dict[str, Any] = {}
        # Requests whose outputs in flight upstream drops by itself, rightly.
        self._dropped_by_upstream: Set[str] = set()
        self._looked_at: Any = None
        super().__init__(*arguments, **options)
        self._num_usable_blocks = self.kv_cache_manager.block_pool.get_num_free_blocks()
        manager = self.kv_cache_manager
        evict_blocks = manager.evict_blocks
        manager.evict_blocks = lambda block_ids: evict_blocks(sorted(block_ids))

    def _corrects(self, name: str) -> bool:
        return name not in self._uncorrected

    # ---- Steps in flight ----

    def schedule(self) -> Any:
        self.preempted_in_order = []
        self._looked_at = None
        output = super().schedule()
        for name, request in list(self._was_reset.items()):
            if request.status.name != "PREEMPTED":
                del self._was_reset[name]
                self._lives[name] = self._lives.get(name, 0) + 1
        lives = {name: self._lives[name] for name in output.num_scheduled_tokens if name in self._lives}
        sampling = {name for name in output.num_scheduled_tokens if not self.requests[name].is_prefill_chunk}
        self.in_flight.append(Step(output, lives, sampling))
        return output

    def update_from_output(self, scheduler_output: Any, model_runner_output: Any) -> Any:
        self._drop_stale_outputs(self.in_flight[0], model_runner_output)
        result = super().update_from_output(scheduler_output, model_runner_output)
        self.in_flight.popleft()
        self._let_stopped_leave_skipped_waiting()
        return result

    def _is_stale(self, step: Step, name: str) -> bool:
        return step.lives.get(name, 0) != self._lives.get(name, 0)

    def _num_tokens_in_flight(self) -> Dict[str, int]:
        num_tokens_of: Dict[str, int] = {}
        for step in self.in_flight:
            for name, num_tokens in step.output.num_scheduled_tokens.items():
                if not self._is_stale(step, name):
                    num_tokens_of[name] = num_tokens_of.get(name, 0) + num_tokens
        return num_tokens_of

    def _make_stale(self, request: Any) -> None:
        """Drops this request's outputs of all steps in flight; upstream must not drop more."""
        name = request.request_id
        self._lives[name] = self._lives.get(name, 0) + 1
        self._set_num_to_drop(request, 0)
        self._dropped_by_upstream.discard(name)

    @staticmethod
    def _num_to_drop(request: Any) -> int:
        """The number of the request's outputs that upstream is going to drop."""
        if hasattr(request, "async_tokens_to_discard"):
            return request.async_tokens_to_discard
        return int(request.discard_latest_async_tokens)

    @staticmethod
    def _set_num_to_drop(request: Any, num: int) -> None:
        if hasattr(request, "async_tokens_to_discard"):
            request.async_tokens_to_discard = num
        else:
            request.discard_latest_async_tokens = num > 0

    # ---- Corrections ----

    def reset_prefix_cache(self, reset_running_requests: bool = False, reset_connector: bool = False) -> bool:
        running = list(self.running) if reset_running_requests else []
        try:
            return super().reset_prefix_cache(reset_running_requests, reset_connector)
        finally:
            if self._corrects("stale_outputs"):
                for request in running:
                    self._forget_planned(request)

    def _forget_planned(self, request: Any) -> None:
        """stale_outputs. Upstream drops them itself if it does so rightly."""
        name = request.request_id
        if not self._is_async:
            self._was_reset[name] = request
            return
        num_to_drop = self._num_to_drop(request)
        steps = [step for step in self.in_flight if name in step.sampling]
        has_drafts = any(name in step.output.scheduled_spec_decode_tokens for step in steps)
        self._make_stale(request)
        if num_to_drop == len(steps) and not has_drafts:
            self._set_num_to_drop(request, num_to_drop)
            self._dropped_by_upstream.add(name)

    def _drop_stale_outputs(self, step: Step, model_runner_output: Any) -> None:
        """stale_outputs, invalid_blocks_in_flight: upstream takes nothing from an empty list."""
        if self._lives:
            for name, index in model_runner_output.req_id_to_index.items():
                if name not in self._dropped_by_upstream and self._is_stale(step, name):
                    model_runner_output.sampled_token_ids[index] = []

    def _let_stopped_leave_skipped_waiting(self) -> None:
        """stopped_among_skipped."""
        if self._corrects("stopped_among_skipped"):
            stopped = [request for request in self.skipped_waiting if request.is_finished()]
            if stopped:
                self.skipped_waiting.remove_requests(stopped)

    def _handle_invalid_blocks(self, invalid_block_ids: Sequence[int], num_scheduled_tokens: Dict[str, int]) -> Any:
        """invalid_blocks_in_flight; and the order of the set that comes back."""
        if self._corrects("invalid_blocks_in_flight"):
            affected = super()._handle_invalid_blocks(invalid_block_ids, self._num_tokens_in_flight())
            for request in self.running:
                if request.request_id in affected:
                    self._make_stale(request)
                    if self._is_async:
                        request.num_output_placeholders = 0
                        request.spec_token_ids = []
        else:
            affected = super()._handle_invalid_blocks(invalid_block_ids, num_scheduled_tokens)
        in_order = [*self.skipped_waiting, *self.running]
        return [request.request_id for request in in_order if request.request_id in affected]

    def _update_waiting_for_remote_kv(self, request: Any) -> None:
        """whole_load_failed, lost_load_reserves."""
        super()._update_waiting_for_remote_kv(request)
        if request.num_computed_tokens == request.num_tokens and self._corrects("whole_load_failed"):
            request.num_computed_tokens -= 1
        if request.num_computed_tokens == 0 and self._corrects("lost_load_reserves"):
            getattr(self, "_inflight_prefills", set()).discard(request)

    def _select_waiting_queue_for_scheduling(self) -> Any:
        queue = super()._select_waiting_queue_for_scheduling()
        self._looked_at = queue.peek_request()
        return queue

    def finish_what_never_fits(self) -> Optional[str]:
        """never_fits, to be called after schedule: the request at which it ended, if now all blocks are free."""
        if self.kv_cache_manager.block_pool.get_num_free_blocks() != self._num_usable_blocks:
            return None
        # With all blocks free, the last victim was the request that needed them.
        request = self.requests[self.preempted_in_order[-1]] if self.preempted_in_order else self._looked_at
        if request is None or not self._corrects("never_fits"):
            return None
        name = request.request_id
        was_put_off = self.connector is not None and self.connector.put_off == name
        # Any other status means that it was admitted or skipped.
        if was_put_off or request.status.name not in ("WAITING", "PREEMPTED"):
            return None
        self.finish_requests(name, type(request.status).FINISHED_ERROR)
        return name

    # ---- Orders that upstream leaves to sets ----

    def _build_kv_connector_meta(self, connector: Any, scheduler_output: Any) -> Any:
        preempted = scheduler_output.preempted_req_ids
        scheduler_output.preempted_req_ids = sorted(preempted or (), key=self.preempted_in_order.index)
        meta = super()._build_kv_connector_meta(connector, scheduler_output)
        scheduler_output.preempted_req_ids = preempted
        return meta

    def finish_requests(self, request_ids: Any, finished_status: Any) -> list:
        if request_ids is None:
            request_ids = list(self.requests)
        elif isinstance(request_ids, str):
            return super().finish_requests(request_ids, finished_status)
        finished = []
        for name in request_ids:
            finished += super().finish_requests(name, finished_status)
        return finished

    def _free_request(self, request: Any, *arguments: Any, **options: Any) -> Any:
        result = super()._free_request(request, *arguments, **options)
        self.finished_in_order.append(request.request_id)
        return result

    def _preempt_request(self, request: Any, timestamp: float) -> None:
        super()._preempt_request(request, timestamp)
        self.preempted_in_order.append(request.request_id)
