"""Upstream's SimpleCPUOffloadConnector, corrected: contract/connectors/simple/simple_cpu_offload.h.

As corrected_scheduler.py: each correction is about one place where upstream goes wrong, and can be left out.
"""

from __future__ import annotations

import dataclasses
from typing import Any, FrozenSet, Iterable, List, Optional

# Name -> what upstream does without it.
CORRECTIONS = {
    "stale_window_blocks": "a block that a window gave back and that was reused is stored for the old request too,"
                           " under its new key; the same block twice in one store corrupts the GPU's free queue",
    "flush_of_queued_copies": "a flush waits for the copies that the copying thread has started, not for queued ones",
    "evictions_reported_as_gpu": "evictions from CPU memory are reported as removals from the GPU's, and stores never",
    "reset_raises": "reset_cache raises, when the GPU's pool was reset already",
}


def corrected_halves(connector: Any, scheduler_half: Any, worker_half: Any, store_state: Any, own_key: Any,
                     uncorrected: FrozenSet[str] = frozenset()) -> tuple:
    """Subclasses of SimpleCPUOffloadConnector, SimpleCPUOffloadScheduler and SimpleCPUOffloadWorker.

    store_state: upstream's StoreRequestState. own_key(request, group, place): the key that a request's block has there
    when it is full; None before.
    """
    gpu_pool: Any = None

    def corrects(name: str) -> bool:
        return name not in uncorrected

    class CorrectedConnector(connector):
        # It never puts a request off.
        put_off: Optional[str] = None

        def build_connector_meta(self, scheduler_output: Any) -> Any:
            """A copy, as workers in other processes get it: upstream keeps changing the lists."""
            meta = super().build_connector_meta(scheduler_output)
            requests_of = {event: list(names) for event, names in meta.load_event_to_reqs.items()}
            return dataclasses.replace(meta, load_event_to_reqs=requests_of)

        def take_events(self) -> Iterable[Any]:
            """evictions_reported_as_gpu."""
            events = super().take_events()
            return () if corrects("evictions_reported_as_gpu") else events

        def reset_cache(self) -> Optional[bool]:
            """reset_raises."""
            return False if corrects("reset_raises") else super().reset_cache()

    class OwnBlockIds(list):
        """The blocks of a request in a group; a slice has the null block where a block is not the request's own.

        Upstream scans a slice. Which blocks are its own may change from one scan to the next.
        """

        def __init__(self, ids: List[int], request: Any, group: int):
            super().__init__(ids)
            self._request = request
            self._group = group

        def __getitem__(self, index: Any) -> Any:
            if not isinstance(index, slice):
                return super().__getitem__(index)
            places = range(*index.indices(len(self)))
            return [self[place] if self._is_own(place) else 0 for place in places]

        def _is_own(self, place: int) -> bool:
            key = gpu_pool.blocks[self[place]].block_hash
            return key is None or key == own_key(self._request, self._group, place)

    class OwnBlocksState(store_state):
        def __setattr__(self, name: str, value: Any) -> None:
            if name == "block_ids":
                value = tuple([OwnBlockIds(ids, self.request, group) for group, ids in enumerate(value)])
            super().__setattr__(name, value)

    class CorrectedScheduler(scheduler_half):
        def bind_gpu_block_pool(self, gpu_block_pool: Any) -> None:
            nonlocal gpu_pool
            gpu_pool = gpu_block_pool
            super().bind_gpu_block_pool(gpu_block_pool)

        def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
            """stale_window_blocks."""
            super().update_state_after_alloc(request, blocks, num_external_tokens)
            state = self._reqs_to_store.get(request.request_id)
            if type(state) is store_state and corrects("stale_window_blocks"):
                state.__class__ = OwnBlocksState
                state.block_ids = state.block_ids

    class CorrectedWorker(worker_half):
        def _flush_and_sync_all(self) -> None:
            """flush_of_queued_copies."""
            if corrects("flush_of_queued_copies"):
                self._backend.start_all()
            super()._flush_and_sync_all()

    return CorrectedConnector, CorrectedScheduler, CorrectedWorker
