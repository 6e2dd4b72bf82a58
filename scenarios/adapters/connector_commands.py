"""The scheduler and the OffloadingConnector of a real vLLM release behind the commands of contract/connectors/offloading/connector_target.h.

What scheduler_commands.py says of the scheduler holds; of the connector, what corrected_connector.py says.
"""

from __future__ import annotations

from typing import Any, Dict, FrozenSet, Iterable, List, Optional, Tuple

from connector_target import Config
from line_language import print_integers
from scheduler_commands import UpstreamScheduler
from session import Unsupported
from upstream_connector import Connectors, PlannedTransfer
from upstream_offload import KeyBytes, KVOffload, PolicyView
from upstream_scheduler import make_output, make_request


class UpstreamConnector(UpstreamScheduler):
    """A scheduler with its connector, and the workers of all ranks, which take steps in the order of planning."""

    def __init__(self, kv_offload: KVOffload, config: Config, uncorrected: FrozenSet[str] = frozenset()):
        kv_offload.check_supported(config)
        if config.kv_connector != "offloading":
            raise Unsupported(f"kv_connector {config.kv_connector}, expected offloading")
        if config.transfers_may_fail:
            raise Unsupported(f"vLLM {kv_offload.version} asserts that no transfer fails")
        if config.file_tiers:
            raise Unsupported("file_tiers: upstream's files have no header and no planned faults, expected file_tiers=[]")
        self._connectors = Connectors(kv_offload, config, uncorrected)
        self._cpu_manager = self._connectors.cpu_manager
        self._tiered = self._connectors.tiered
        # Of every name that was told, its prompt and its salt.
        self._prompts: Dict[str, Tuple[List[int], Optional[str]]] = {}
        self._policy_view = PolicyView(self._cpu_manager._policy, KeyBytes())
        super().__init__(kv_offload.modules, config, uncorrected)

    def _make_connector(self) -> Any:
        return self._connectors.scheduler

    # ---- Commands (contract/connectors/offloading/connector_target.h) ----

    def add_request(self, name, tokens, max_tokens, priority, arrival_time, cache_salt, skip_reading_prefix_cache,
                    max_offload_tokens) -> str:
        if name in self._names:
            return "error=already_declared"
        self._prompts[name] = tokens, cache_salt
        if len(self._config.groups) > 1 and not skip_reading_prefix_cache:
            self._names[name] = len(self._names)
            return "error=not_in_config"
        params = None if max_offload_tokens is None else {"max_offload_tokens": max_offload_tokens}
        return self._add(name, tokens, max_tokens, priority=priority, arrival_time=arrival_time, cache_salt=cache_salt,
                         skip_reading_prefix_cache=skip_reading_prefix_cache, kv_transfer_params=params)

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
        report.finished_sending = self._in_order_of_names(report.finished_sending)
        report.invalid_block_ids = sorted(report.invalid_block_ids)
        meta = report.kv_connector_worker_meta
        completed = {}
        if meta is not None:
            completed = meta.completed_jobs = dict(sorted(meta.completed_jobs.items()))
        output = make_output(sampled)
        output.kv_connector_output = report
        completed_texts = [f"(completed job={job_id} num_workers={count})" for job_id, count in completed.items()]
        return (
            f"{self._take(output)} finished_recving={self._names_text(report.finished_recving)}"
            f" finished_sending={self._names_text(report.finished_sending)}"
            f" invalid_blocks={print_integers(report.invalid_block_ids)} completed_jobs=[{' '.join(completed_texts)}]"
            f" transfer_stats=[{' '.join(self._operation_texts(report.kv_connector_stats))}]"
        )

    def advance_transfer(self, rank, job_id, progress, microseconds) -> str:
        if progress == "submitted":
            return "error=bad_range"
        if rank >= self._config.world_size or progress == "failed":
            return "error=not_in_config"
        return "error=none" if self._connectors.engines[rank].advance(
            job_id, progress, microseconds) else "error=unknown_job"

    def report_transfer_again(self, rank, job_id) -> str:
        if rank >= self._config.world_size:
            return "error=not_in_config"
        return "error=none" if self._connectors.engines[rank].report_again(job_id) else "error=unknown_job"

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
        if name not in self._prompts:
            return "unknown_request", []
        tokens, cache_salt = self._prompts[name]
        hashes = make_request(self._modules, name, tokens, self._hasher, 1, 0, priority=0, arrival_time=0,
                              cache_salt=cache_salt).block_hashes if tokens else []
        size = self._config.groups[group].block_size * self._config.block_size_factor
        ends = [(block + 1) * (size // self._config.hash_block_size) for block in blocks]
        if any(end > len(hashes) for end in ends):
            return "bad_range", []
        return "", [self._tiered.base.make_offload_key(hashes[end - 1], group) for end in ends]

    def reset_prefix_cache(self, reset_connector) -> str:
        if reset_connector and self._tiered:
            return "error=not_in_config"
        success = self._scheduler.reset_prefix_cache(reset_connector=reset_connector)
        return f"error=none success={'true' if success else 'false'}"

    # ---- Answers ----

    @staticmethod
    def _operation_texts(stats: Any) -> List[str]:
        data = {} if stats is None else stats.data
        return [f"(operation type={transfer_type} bytes={operation.op_size} microseconds={round(operation.op_time * 1e6)})"
                for transfer_type, operations in data.items() for operation in operations]

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

    def _calls_text(self) -> str:
        return ""

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
        transfers = [text for rank in range(self._config.world_size) for text in self._transfer_texts(rank)]
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
