"""The scheduler and the OffloadingConnector of a real vLLM release driven by the commands of
contract/connectors/offloading/offloading_facet.h.

What scheduler_commands.py says of the scheduler holds; of the connector, what corrected_connector.py says.
"""

from __future__ import annotations

from typing import Any, FrozenSet, Iterable, List, Tuple

from engine_target import Config, World
from line_language import print_integers
from scheduler_commands import UpstreamScheduler
from session import Unsupported
from upstream_connector import Connectors, PlannedTransfer
from upstream_offload import KeyBytes, KVOffload, PolicyView
from upstream_stats import operations_text, plain


class UpstreamConnector(UpstreamScheduler):
    """A scheduler with its connector, and the workers of all ranks, which take steps in the order of planning."""

    has_workers = True

    def __init__(self, kv_offload: KVOffload, config: Config, world: World, uncorrected: FrozenSet[str] = frozenset()):
        kv_offload.check_supported(config.connector)
        if config.connector.transfers_may_fail:
            raise Unsupported(f"vLLM {kv_offload.version} asserts that no transfer fails")
        if config.connector.file_tiers:
            raise Unsupported("file_tiers: upstream's files have no header and no planned faults, expected file_tiers=[]")
        self._connectors = Connectors(kv_offload, config, uncorrected)
        self._cpu_manager = self._connectors.cpu_manager
        self._tiered = self._connectors.tiered
        self._policy_view = PolicyView(self._cpu_manager._policy, KeyBytes())
        super().__init__(kv_offload.modules, config, world, uncorrected)

    def _make_connector(self) -> Any:
        return self._connectors.scheduler

    def _run_workers(self, scheduler_output: Any) -> Any:
        return self._connectors.workers.run_step(scheduler_output)

    # ---- Commands (contract/connectors/offloading/offloading_facet.h) ----

    def advance_transfer(self, rank, job_id, progress, microseconds) -> str:
        if progress == "submitted":
            return "error=bad_range"
        if rank >= self._config.ranks or progress == "failed":
            return "error=not_in_config"
        return "error=none" if self._connectors.engines[rank].advance(
            job_id, progress, microseconds) else "error=unknown_job"

    def report_transfer_again(self, rank, job_id) -> str:
        if rank >= self._config.ranks:
            return "error=not_in_config"
        return "error=none" if self._connectors.engines[rank].report_again(job_id) else "error=unknown_job"

    def log_stats(self, engine_idx) -> str:
        if engine_idx >= len(self._config.connector.engine_labels):
            return "error=bad_range"
        return f"error=none {self._connectors.loggers.log(engine_idx)}"

    def tier_finish(self, place, job_id, success) -> str:
        if self._tier(place) is None:
            return "error=not_in_config"
        self._tier(place).finish(job_id, success)
        return "error=none"

    def tier_ask_again(self, place, name, block, group, times) -> str:
        error, keys = self._find_keys(place, name, group, [block])
        if not error:
            self._tier(place).ask_again(keys[0], times)
        return f"error={error or 'none'}"

    def tier_add(self, place, name, blocks, group) -> str:
        error, keys = self._find_keys(place, name, group, blocks)
        if not error:
            self._tier(place).held.update(keys)
        return f"error={error or 'none'}"

    def tier_drop(self, place, name, blocks, group) -> str:
        error, keys = self._find_keys(place, name, group, blocks)
        if not error:
            self._tier(place).held.difference_update(keys)
        return f"error={error or 'none'}"

    # No tier keeps files.

    def tier_faults(self, place, faults) -> str:
        return "error=not_in_config"

    def tier_damage(self, place, name, block, group, damage, at) -> str:
        return "error=not_in_config"

    def _tier(self, place: int) -> Any:
        return self._tiered.tier(place) if self._tiered else None

    def _find_keys(self, place: int, name: str, group: int, blocks: List[int]) -> Tuple[str, List[bytes]]:
        """Those of a prompt, or an error."""
        if self._tier(place) is None or group >= len(self._config.groups):
            return "not_in_config", []
        if not self._world.knows([name]):
            return "unknown_request", []
        prompt = self._world.requests[name]
        hashes = self._make_request(prompt).block_hashes if prompt.tokens else []
        size = self._config.groups[group].block_size * self._config.connector.block_size_factor
        ends = [(block + 1) * (size // self._config.hash_block_size) for block in blocks]
        if any(end > len(hashes) for end in ends):
            return "bad_range", []
        return "", [self._tiered.base.make_offload_key(hashes[end - 1], group) for end in ends]

    def reset_prefix_cache(self, reset_running_requests, reset_connector, *children) -> str:
        if reset_running_requests or reset_connector and self._tiered:
            return "error=not_in_config"
        return super().reset_prefix_cache(reset_running_requests, reset_connector, *children)

    # ---- Answers ----

    def _report_text(self, report: Any) -> str:
        data = plain(report.kv_connector_stats)
        self._connectors.loggers.observe(data)
        return f" transfer_stats={operations_text(data)}"

    def _plan_text(self, output: Any) -> str:
        plan = self._connectors.plan(output.kv_connector_metadata)
        return (
            f" loads=[{self._planned_text(plan.loads)}] stores=[{self._planned_text(plan.stores)}]"
            f" requests_to_flush={self._names_text(plan.requests_to_flush)}"
            f" jobs_to_flush={print_integers(plan.jobs_to_flush)}"
        )

    def _planned_text(self, transfers: Iterable[PlannedTransfer]) -> str:
        return " ".join([
            f"(transfer job={transfer.job_id} request={self._name_texts[transfer.request_id]}"
            f" gpu_blocks={print_integers(transfer.gpu_blocks)} group_sizes={print_integers(transfer.group_sizes)}"
            f" block_indices={print_integers(transfer.block_indices)} slots={print_integers(transfer.slots)})"
            for transfer in transfers
        ])

    # ---- What is observed ----

    def observe(self, state: bool) -> str:
        view = self._policy_view
        text = (f"{super().observe(state)} num_free_slots={self._cpu_manager._get_num_free_blocks()}"
                f" target_t1_size={view.target()}")
        tiered = self._tiered
        if tiered:
            text += (f"{tiered.calls.take()} num_tier_jobs={len(tiered.jobs())}"
                     f" num_pending_promotions={tiered.num_pending()}")
        if not state:
            return text
        transfers = [text for rank in range(self._config.ranks) for text in self._transfer_texts(rank)]
        text = f"{text} transfers=[{' '.join(transfers)}]{view.state()}"
        if not tiered:
            return text
        held = [f"(tier held={tiered.keys.numbers(sorted(tier.held))})" for tier in tiered.tiers]
        return (f"{text} tier_jobs=[{tiered.jobs_text()}] pending_promotions=[{tiered.pending_text()}]"
                f" tiers=[{' '.join(held)}]")

    def _transfer_texts(self, rank: int) -> List[str]:
        return [
            f"(transfer rank={rank} job={transfer.job_id}"
            f" request={self._name_texts[self._connectors.request_of(rank, transfer.job_id)]}"
            f"{' store=true' if transfer.is_store else ''} progress={transfer.progress})"
            for transfer in self._connectors.engines[rank].transfers.values()
        ]
