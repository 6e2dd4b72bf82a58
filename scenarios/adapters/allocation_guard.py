"""Where allocate_slots of upstream differs from contract/kv_cache/kv_cache_manager.h: refusals, and counts too low."""

from __future__ import annotations

from typing import Any, List, Optional, Sequence, Tuple

from kv_cache_target import Group


def _cdiv(tokens: int, block_size: int) -> int:
    return -(-tokens // block_size)


class AllocationGuard:
    """Wraps one KVCacheManager of upstream.

    Upstream breaks down in the middle of allocate_slots in two places. Its count of the blocks that an allocation needs
    may be too small: get_new_blocks then raises halfway. Seen from here the free blocks do not suffice, and the count
    is made to say so. And it asks the pool for a negative number of blocks where a hit is longer than the computed
    tokens, which makes the pool count free blocks that are not there.
    """

    def __init__(self, manager: Any, groups: Sequence[Group], profile: str):
        self._manager = manager
        self._pool = manager.block_pool
        self._upstream_allocate_slots = manager.allocate_slots
        self._upstream_free = manager.free
        self._table_may_shrink = profile != "v0.19"
        # Requests from their first allocate_slots that succeeds until free.
        self.allocated: set = set()
        # Group by group: the manager, its kind, its table by request.
        self.groups: List[Tuple[Any, Group, dict]] = [
            (single, group, single.req_to_blocks)
            for single, group in zip(manager.coordinator.single_type_managers, groups)
        ]
        # External tokens of the allocate_slots under way.
        self._num_external_tokens: Optional[int] = None
        self._guard_counts()

    def _guard_counts(self) -> None:
        coordinator = self._manager.coordinator
        count = coordinator.get_num_blocks_to_allocate
        get_new_blocks = self._pool.get_new_blocks

        def checked_count(**arguments: Any) -> int:
            num_blocks = count(**arguments)
            if self._num_external_tokens is None or arguments.get("apply_admission_cap"):
                return num_blocks
            num_free = self._pool.get_num_free_blocks()
            if num_blocks <= num_free < self._num_blocks_taken(**arguments):
                return num_free + 1
            return num_blocks

        coordinator.get_num_blocks_to_allocate = checked_count
        self._pool.get_new_blocks = lambda num_blocks: get_new_blocks(max(num_blocks, 0))

    def answer_refusals_with_no(self) -> None:
        """For a scheduler, to which an error of its manager counts as "does not fit"."""
        manager = self._manager
        upstream_fits = getattr(manager, "can_fit_full_sequence", None)

        def allocate_slots(request: Any, num_new_tokens: int, num_new_computed_tokens: int = 0,
                           new_computed_blocks: Any = None, num_lookahead_tokens: int = 0,
                           num_external_computed_tokens: int = 0, **options: Any) -> Any:
            if self.refusal(request, num_new_tokens, num_new_computed_tokens, new_computed_blocks,
                            num_external_computed_tokens):
                return None
            return self.allocate_slots(request, num_new_tokens, num_new_computed_tokens, new_computed_blocks,
                                       num_lookahead_tokens, num_external_computed_tokens, **options)

        def can_fit_full_sequence(request: Any, num_new_computed_tokens: int = 0, new_computed_blocks: Any = None,
                                  num_external_computed_tokens: int = 0, num_encoder_tokens: int = 0) -> bool:
            if self.is_already_allocated(request, new_computed_blocks, num_external_computed_tokens):
                return False
            return upstream_fits(request, num_new_computed_tokens, new_computed_blocks, num_external_computed_tokens,
                                 num_encoder_tokens)

        manager.allocate_slots = allocate_slots
        manager.free = self.free
        if upstream_fits is not None:
            manager.can_fit_full_sequence = can_fit_full_sequence

    def take_external_blocks_after_hits(self) -> None:
        """As releases after 0.23 do, rule external_blocks_after_hits."""
        coordinator = self._manager.coordinator
        upstream = coordinator.allocate_new_computed_blocks

        def allocate(request_id: str, new_computed_blocks: Sequence[Sequence[Any]], num_local_computed_tokens: int,
                     num_external_computed_tokens: int) -> None:
            total = num_local_computed_tokens + num_external_computed_tokens
            hits = []
            for (manager, group, _), hit in zip(self.groups, new_computed_blocks):
                hits += hit[max(manager.get_num_skipped_tokens(total) // group.block_size, 0):]
            self._pool.touch(hits)
            upstream(request_id, new_computed_blocks, num_local_computed_tokens, num_external_computed_tokens)
            for block in hits:
                block.ref_cnt -= 1

        coordinator.allocate_new_computed_blocks = allocate

    def allocate_slots(self, request: Any, num_new_tokens: int, num_hit_tokens: int, hit: Any,
                       num_lookahead_tokens: int, num_external_tokens: int, delay_cache_blocks: bool = False,
                       num_encoder_tokens: int = 0, **gate: Any) -> Any:
        """Upstream's, for what is not refused."""
        self._num_external_tokens = num_external_tokens
        blocks = self._upstream_allocate_slots(request, num_new_tokens, num_hit_tokens, hit, num_lookahead_tokens,
                                               num_external_tokens, delay_cache_blocks, num_encoder_tokens, **gate)
        self._num_external_tokens = None
        if blocks is not None:
            self.allocated.add(request.request_id)
        return blocks

    def free(self, request: Any) -> None:
        self._upstream_free(request)
        self.allocated.discard(request.request_id)

    # ---- What kvfence refuses (contract/kv_cache/kv_cache_manager.h) ----

    def refusal(self, request: Any, num_new_tokens: int, num_hit_tokens: int, hit: Any,
                num_external_tokens: int) -> Optional[str]:
        num_tokens = request.num_computed_tokens + num_hit_tokens + num_external_tokens + num_new_tokens
        if num_tokens > self._manager.max_model_len:
            return "beyond_model_length"
        if self.is_already_allocated(request, hit, num_external_tokens):
            return "already_allocated"
        if not self._table_may_shrink and self._table_shrinks(request.request_id, num_tokens):
            return "table_shrinks"
        return None

    def is_already_allocated(self, request: Any, hit: Any, num_external_tokens: int) -> bool:
        is_hit = hit is not None and hit is not self._manager.empty_kv_cache_blocks
        if request.request_id in self.allocated:
            return num_external_tokens > 0 or is_hit
        return request.num_computed_tokens > 0 and is_hit

    def _table_shrinks(self, name: str, num_tokens: int) -> bool:
        for _, group, tables in self.groups:
            if group.align:
                num_required = _cdiv(num_tokens, group.block_size) + group.spec_blocks
                if num_required < len(tables.get(name, ())):
                    return True
        return False

    def _num_blocks_taken(self, request_id: str, num_tokens: int, new_computed_blocks: Sequence[Sequence[Any]],
                          num_encoder_tokens: int, total_computed_tokens: int, num_tokens_main_model: int,
                          **_: Any) -> int:
        """The number of free blocks that the allocation will take; upstream's own count may be too small."""
        has_computed_blocks = self._num_external_tokens > 0 or any(new_computed_blocks)
        num_taken = 0
        for (manager, group, tables), hit in zip(self.groups, new_computed_blocks):
            block_size = group.block_size
            num_blocks = len(tables.get(request_id, ()))
            if has_computed_blocks and group.kind != "cross" and request_id not in manager.num_cached_block:
                num_skipped_tokens = manager.get_num_skipped_tokens(total_computed_tokens)
                num_skipped = max(num_skipped_tokens // block_size, 0)
                num_external_tokens = self._num_external_tokens
                if num_skipped > 0:
                    hit = hit[num_skipped:]
                    num_external_tokens = min(total_computed_tokens - num_skipped_tokens, num_external_tokens)
                num_blocks = num_skipped + len(hit)
                num_taken += sum([block.ref_cnt == 0 and not block.is_null for block in hit])
                if num_external_tokens > 0:
                    num_external = max(_cdiv(total_computed_tokens, block_size) - num_blocks, 0)
                    num_blocks += num_external
                    num_taken += num_external
            if group.kind == "cross":
                num_taken += max(_cdiv(num_encoder_tokens, block_size) - num_blocks, 0)
            elif group.align:
                num_required = _cdiv(num_tokens_main_model, block_size) + group.spec_blocks
                if num_required > num_blocks:
                    has_state = request_id in manager._allocated_block_reqs
                    num_states = num_required - max(num_blocks, num_required - group.spec_blocks - 1)
                    num_taken += 1 if has_state else num_states
            else:
                num_taken += max(_cdiv(num_tokens, block_size) + group.spec_blocks - num_blocks, 0)
        return num_taken
