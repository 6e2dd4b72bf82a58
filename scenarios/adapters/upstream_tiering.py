"""The tiering manager of a real vLLM release driven by the commands of contract/tiering/tiering_target.h, above scripted tiers.

Every decision comes from upstream's classes. The adapter itself decides only what contract/tiering/tiering_manager.h refuses
and upstream would not refuse cleanly: README.md has the list.
"""

from __future__ import annotations

import importlib
from collections import Counter
from typing import Any, Dict, List, Optional

import tiering_target
from line_language import print_integers, print_text
from scripted_tier import Calls, make_scripted_tier
from session import Unsupported
from upstream_offload import KVOffload, PolicyView


class _NoRegion:
    """The shared memory of the primary tier: no block is moved."""

    def create_kv_memoryview(self) -> None:
        return None

    def cleanup(self) -> None:
        pass


class TieredManager:
    """One TieringOffloadingManager above scripted tiers."""

    def __init__(self, modules: KVOffload, *, capacity: int, policy: str, enable_events: bool, num_tiers: int,
                 keys: Any = None):
        """keys: as of PolicyView. Raises Unsupported."""
        try:
            manager = importlib.import_module("vllm.v1.kv_offload.tiering.manager")
        except ImportError as error:
            raise Unsupported(f"vLLM {modules.version} has no tiering manager") from error
        self.base = importlib.import_module("vllm.v1.kv_offload.base")
        tiering_base = importlib.import_module("vllm.v1.kv_offload.tiering.base")
        self.primary = manager.CPUPrimaryTierOffloadingManager(
            num_blocks=capacity, mmap_region=_NoRegion(), cache_policy=policy, enable_events=enable_events)
        self.view = PolicyView(self.primary._policy, keys)
        self.keys = self.view.keys
        self.calls = Calls(self.keys)
        self.tiers = [make_scripted_tier(tiering_base, self.base, place, self.calls) for place in range(num_tiers)]
        self.manager = manager.TieringOffloadingManager(self.primary, self.tiers, enable_events)

    def tier(self, place: int) -> Any:
        """None if there is no such tier."""
        return self.tiers[place] if place < len(self.tiers) else None

    def jobs(self) -> Dict[int, Any]:
        """Under way, by number."""
        return self.manager._transfer_jobs

    def pending(self) -> List[tuple]:
        """The place of a tier, and what is queued for it."""
        return [(self.tiers.index(tier), entry)
                for tier, entries in self.manager._pending_load_submissions.items() for entry in entries.values()]

    def num_pending(self) -> int:
        return sum(len(entry.keys) for _, entry in self.pending())

    def jobs_text(self) -> str:
        return " ".join([self._transfer_text(job, self._place_of(job_id), job.is_promotion, job_id)
                         for job_id, job in self.jobs().items()])

    def pending_text(self) -> str:
        return " ".join([self._transfer_text(entry, place, True) for place, entry in self.pending()])

    def _transfer_text(self, transfer: Any, place: int, is_promotion: bool, job_id: Optional[int] = None) -> str:
        text = "(transfer"
        if job_id is not None:
            text += f" job={job_id}"
        text += f" tier={place}"
        if is_promotion:
            text += " promotion=true"
        return (f"{text} request={print_text(transfer.req_context.req_id)} keys={self.keys.numbers(transfer.keys)}"
                f" slots={print_integers(transfer.block_ids)})")

    def _place_of(self, job_id: int) -> int:
        return next(place for place, tier in enumerate(self.tiers) if job_id in tier.under_way)


class UpstreamTiering:
    """A TieringOffloadingManager without a connector."""

    def __init__(self, modules: KVOffload, config: tiering_target.Config):
        modules.check_supported(config)
        if config.file_tiers:
            raise Unsupported("file_tiers: upstream's files have no header and no planned faults, expected file_tiers=[]")
        self._tiered = TieredManager(modules, capacity=config.capacity, policy=config.policy,
                                     enable_events=config.enable_events, num_tiers=config.num_tiers)
        self._base = self._tiered.base
        self._primary = self._tiered.primary
        self._view = self._tiered.view
        self._keys = self._tiered.keys
        self._tiers = self._tiered.tiers
        self._manager = self._tiered.manager
        self._contexts: Dict[str, Any] = {}

    # ---- The manager ----

    def lookup(self, number: int, request: str) -> str:
        result = self._manager.lookup(self._keys.of(number), self._context(request))
        return "error=none result=" + {False: "miss", None: "pending", True: "hit"}[result]

    def touch(self, numbers: List[int], request: str) -> str:
        self._manager.touch(self._keys.list_of(numbers), self._context(request))
        return "error=none"

    def prepare_load(self, numbers: List[int]) -> str:
        self._manager._maybe_process_finished_jobs()
        keys, blocks = self._find(numbers)
        if None in blocks:
            return "error=unknown_key"
        if not all(block.is_ready for block in blocks):
            return "error=not_ready"
        spec = self._manager.prepare_load(keys, self._context(""))
        return f"error=none slots={print_integers(spec.block_ids)}"

    def complete_load(self, numbers: List[int]) -> str:
        keys, blocks = self._find(numbers)
        if None in blocks:
            return "error=unknown_key"
        num_cascades = Counter(key for job in self._manager._transfer_jobs.values() if not job.is_promotion
                               for key in job.keys)
        num_listed = Counter(keys)
        if any(block.ref_cnt - num_cascades[key] < num_listed[key] for key, block in zip(keys, blocks)):
            return "error=not_reading"
        self._manager.complete_load(keys, self._context(""))
        return "error=none"

    def prepare_store(self, numbers: List[int], request: str) -> str:
        self._manager._maybe_process_finished_jobs()
        keys, blocks = self._find(numbers)
        to_store = [key for key, block in zip(keys, blocks) if block is None]
        if len(set(to_store)) < len(to_store):
            return "error=listed_twice"
        # Upstream names its victims by their keys alone.
        slots = {key: block.block_id for key, block in self._view.blocks().items()}
        output = self._manager.prepare_store(keys, self._context(request))
        if output is None:
            return "error=none stored=false"
        number = self._keys.number
        evicted = " ".join([f"(evicted key={number(key)} slot={slots[key]})" for key in output.evicted_keys])
        return (f"error=none stored=true keys_to_store={self._keys.numbers(output.keys_to_store)}"
                f" slots={print_integers(output.store_spec.block_ids)} evicted=[{evicted}]")

    def complete_store(self, numbers: List[int], request: str, success: bool) -> str:
        keys, blocks = self._find(numbers)
        if success and None in blocks:
            return "error=unknown_key"
        if not self._promoted_keys().isdisjoint(keys):
            return "error=not_ready"
        self._manager.complete_store(keys, self._context(request), success)
        return "error=none"

    def on_new_request(self, request: str, request_level: List[int]) -> str:
        if any(place >= len(self._tiers) for place in request_level):
            return "error=not_in_config"
        for place, tier in enumerate(self._tiers):
            tier.is_request_level = place in request_level
        policy = self._manager.on_new_request(self._context(request)).policy
        is_request_level = policy == self._base.OffloadPolicy.REQUEST_LEVEL
        return f"error=none request_level={str(is_request_level).lower()}"

    def on_request_finished(self, request: str) -> str:
        self._manager.on_request_finished(self._context(request))
        return "error=none"

    def on_schedule_end(self) -> str:
        self._manager.on_schedule_end()
        return "error=none"

    def reset_cache(self) -> str:
        self._manager.reset_cache()
        return "error=none"

    def take_events(self) -> str:
        events = [f"(event keys={self._keys.numbers(event.keys)}{' removed=true' if event.removed else ''})"
                  for event in self._manager.take_events()]
        return f"error=none events=[{' '.join(events)}]"

    # ---- The tiers ----

    def tier_finish(self, place: int, job_id: int, success: bool) -> str:
        tier = self._tier(place)
        if tier is None:
            return "error=not_in_config"
        tier.finish(job_id, success)
        return "error=none"

    def tier_ask_again(self, place: int, number: int, times: int) -> str:
        tier = self._tier(place)
        if tier is None:
            return "error=not_in_config"
        tier.ask_again(self._keys.of(number), times)
        return "error=none"

    def tier_add(self, place: int, numbers: List[int]) -> str:
        tier = self._tier(place)
        if tier is None:
            return "error=not_in_config"
        tier.held.update(self._keys.list_of(numbers))
        return "error=none"

    def tier_drop(self, place: int, numbers: List[int]) -> str:
        tier = self._tier(place)
        if tier is None:
            return "error=not_in_config"
        tier.held.difference_update(self._keys.list_of(numbers))
        return "error=none"

    def tier_faults(self, place: int, faults: List[Any]) -> str:
        return "error=not_in_config"

    def tier_damage(self, place: int, number: int, damage: str, at: int) -> str:
        return "error=not_in_config"

    def tier_restart(self, place: int, overtaken: bool) -> str:
        return "error=not_in_config"

    def tier_writer(self, place: int, number: int, does: str) -> str:
        return "error=not_in_config"

    # ---- What is observed ----

    def observe(self, state: bool) -> str:
        view = self._view
        tiered = self._tiered
        text = (f"{tiered.calls.take()} size={view.size()} num_free_slots={self._primary._get_num_free_blocks()}"
                f" num_jobs={len(tiered.jobs())} num_pending={tiered.num_pending()} target_t1_size={view.target()}")
        if not state:
            return text
        held = [f"(tier held={print_integers(sorted(map(self._keys.number, tier.held)))})" for tier in self._tiers]
        return (f"{text}{view.state()} jobs=[{tiered.jobs_text()}] pending=[{tiered.pending_text()}]"
                f" tiers=[{' '.join(held)}]")

    def _promoted_keys(self) -> set:
        keys = {key for _, entry in self._tiered.pending() for key in entry.keys}
        return keys.union(*[job.keys for job in self._manager._transfer_jobs.values() if job.is_promotion])

    def _tier(self, place: int) -> Any:
        return self._tiered.tier(place)

    def _find(self, numbers: List[int]) -> tuple:
        keys = self._keys.list_of(numbers)
        return keys, [self._view.policy.get(key) for key in keys]

    def _context(self, request: str) -> Any:
        context = self._contexts.get(request)
        if context is None:
            context = self._contexts[request] = self._base.ReqContext(req_id=request)
        return context
