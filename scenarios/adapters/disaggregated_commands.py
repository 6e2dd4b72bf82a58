"""Two schedulers of a real vLLM release, paired by its NIXL connector, behind contract/connectors/disaggregated/disaggregated_target.h.

What scheduler_commands.py says of the scheduler holds for both; of the connector, what corrected_disaggregated.py says.
"""

from __future__ import annotations

import copy
from typing import Any, Dict, FrozenSet, List, NamedTuple, Sequence

from disaggregated_target import ROLES, Config
from line_language import print_integers
from scheduler_commands import UpstreamScheduler
from scripted_transport import Notice, Read, is_heartbeat, requests_of
from upstream_disaggregated import Connectors
from upstream_pool import Modules
from upstream_scheduler import make_output

_ENDS_FROM_OUTSIDE = ("finished_aborted", "finished_error")


class _Engine(UpstreamScheduler):
    """One of the pair: a scheduler with its half of the connector, and the workers of all of its ranks."""

    def __init__(self, modules: Modules, config: Config, uncorrected: FrozenSet[str], connectors: Connectors, role: str,
                 names: Dict[str, int]):
        self.prefix = f"{role}_"
        self._connectors = connectors
        self._role = role
        # What each request that finished told, and what was told last.
        self.told: Dict[str, Dict[str, Any]] = {}
        self._told_now: List[str] = []
        super().__init__(modules, config._replace(num_gpu_blocks=connectors.num_gpu_blocks(role)), uncorrected)
        # A name is used once in both.
        self._names = names

    def _make_connector(self) -> Any:
        return self._connectors.schedulers[self._role]

    def declare(self, name: str) -> None:
        self._names[name] = len(self._names)

    def update(self, token: int, samples: Sequence[tuple]) -> str:
        if not self._are_known([name for name, _ in samples]):
            return "error=unknown_request"
        if not self._scheduler.in_flight:
            return "error=no_step_in_flight"
        sampled = self._sampled(token, 0, samples)
        if sampled is None:
            return "error=wrong_token_count"
        report = self._connectors.run_step(self._role, self._scheduler.in_flight[0].output)
        report.finished_recving = self._in_order_of_names(report.finished_recving)
        report.finished_sending = self._in_order_of_names(report.finished_sending)
        report.invalid_block_ids = sorted(report.invalid_block_ids)
        output = make_output(sampled)
        output.kv_connector_output = report
        self._told_now = []
        text = (f"{self._take(output)} finished_sending={self._names_text(report.finished_sending)}"
                f" finished_recving={self._names_text(report.finished_recving)}"
                f" invalid_blocks={print_integers(report.invalid_block_ids)}")
        if self._role == "producer":
            text += f" finished_prefills=[{' '.join(map(self._prefill_text, self._told_now))}]"
        return text

    def finish(self, names: Any, status: str) -> str:
        """names: None for all."""
        if names is not None and not self._are_known(names):
            return "error=unknown_request"
        return self._finish(names, status) if status in _ENDS_FROM_OUTSIDE else "error=bad_range"

    def reset_prefix_cache(self, reset_connector: bool) -> str:
        success = self._scheduler.reset_prefix_cache(reset_connector=reset_connector)
        return f"error=none {self.prefix}success={'true' if success else 'false'}"

    # ---- Answers ----

    def _output_text(self, output: Any) -> str:
        if output.kv_transfer_params:
            self.told[output.request_id] = output.kv_transfer_params
            self._told_now.append(output.request_id)
        return super()._output_text(output)

    def _prefill_text(self, name: str) -> str:
        (blocks,) = self.told[name]["remote_block_ids"]
        return f"(prefill request={self._name_texts[name]} blocks={print_integers(blocks)})"

    def _plan_text(self, output: Any) -> str:
        meta = output.kv_connector_metadata
        if self._role == "producer":
            sends = [f"(send request={self._name_texts[name]} expires={self._connectors.seconds(expires)})"
                     for name, expires in meta.reqs_to_send.items()]
            return (f" reqs_in_batch={self._names_text(meta.reqs_in_batch)}"
                    f" reqs_not_processed={self._names_text(meta.reqs_not_processed)} reqs_to_send=[{' '.join(sends)}]")
        receives = [self._receive_text(name, request) for name, request in meta.reqs_to_recv.items()]
        heartbeats = [name for info in getattr(meta, "heartbeat_by_engine", {}).values() for name in info.req_ids]
        return f" reqs_to_recv=[{' '.join(receives)}] heartbeats={self._names_text(heartbeats)}"

    def _receive_text(self, name: str, request: Any) -> str:
        text = f"(receive request={self._name_texts[name]} remote_request={self._name_texts[request.remote.request_id]}"
        if not request.local_block_ids:
            return text + ")"
        (local,), (remote,) = request.local_block_ids, request.remote.block_ids
        # As the worker cuts them.
        return f"{text} local_blocks={print_integers(local)} remote_blocks={print_integers(remote[-len(local):])})"

    def _calls_text(self) -> str:
        return ""


class _Handed(NamedTuple):
    """What of a producer's request goes to the consumer."""

    tokens: List[int]
    cache_salt: Any


class UpstreamDisaggregated:
    """A producer and a consumer engine; between them a router, a transport and a clock."""

    def __init__(self, modules: Modules, config: Config, uncorrected: FrozenSet[str] = frozenset()):
        self._config = config
        self._connectors = Connectors(modules, config, uncorrected)
        self._transport = self._connectors.transport
        self._names: Dict[str, int] = {}
        self._specs: Dict[str, _Handed] = {}
        self._engines = {role: _Engine(modules, config, uncorrected, self._connectors, role, self._names)
                         for role in ROLES}
        self._producer = self._engines["producer"]
        self._consumer = self._engines["consumer"]

    # ---- Commands of the engines (contract/connectors/disaggregated/disaggregated_target.h) ----

    def add_request(self, role, name, tokens, do_remote_decode, max_tokens, stop_tokens, priority, arrival_time,
                    cache_salt, skip_reading_prefix_cache) -> str:
        if name in self._names:
            return "error=already_declared"
        self._specs[name] = _Handed(tokens, cache_salt)
        engine = self._engines[role]
        if do_remote_decode and role == "consumer":
            engine.declare(name)
            return "error=not_in_config"
        params = {"do_remote_decode": True, "do_remote_prefill": False} if do_remote_decode else None
        return engine._add(name, list(tokens), max_tokens, stop_token_ids=stop_tokens, priority=priority,
                           arrival_time=arrival_time, cache_salt=cache_salt,
                           skip_reading_prefix_cache=skip_reading_prefix_cache, kv_transfer_params=params)

    def hand_over(self, name, new_name, max_tokens, priority, arrival_time) -> str:
        if name not in self._names:
            return "error=unknown_request"
        if new_name in self._names:
            return "error=already_declared"
        self._specs[new_name] = spec = self._specs[name]
        told = self._producer.told.get(name)
        if told is None:
            self._consumer.declare(new_name)
            return "error=not_finished"
        # A router sends it as JSON.
        return self._consumer._add(new_name, list(spec.tokens), max_tokens, priority=priority,
                                   arrival_time=arrival_time, cache_salt=spec.cache_salt,
                                   kv_transfer_params=copy.deepcopy(told))

    def schedule(self, role) -> str:
        return self._engines[role].schedule()

    def update(self, role, token, samples) -> str:
        return self._engines[role].update(token, samples)

    def finish_requests(self, role, names, status) -> str:
        return self._engines[role].finish(names, status)

    def finish_all_requests(self, role, status) -> str:
        return self._engines[role].finish(None, status)

    def set_pause_state(self, role, state) -> str:
        return self._engines[role].set_pause_state(state)

    def reset_prefix_cache(self, role, reset_connector) -> str:
        return self._engines[role].reset_prefix_cache(reset_connector)

    # ---- Commands of the transport and the clock ----

    def advance_read(self, read, progress) -> str:
        if progress == "submitted":
            return "error=bad_range"
        if progress == "failed" and not self._config.transport_may_fail:
            return "error=not_in_config"
        return self._known(self._transport.advance(read, progress))

    def deliver_notice(self, notice) -> str:
        return self._known(self._transport.deliver(notice))

    def lose_notice(self, notice) -> str:
        if not self._config.transport_may_fail:
            return "error=not_in_config"
        return self._known(self._transport.lose(notice))

    def repeat_notice(self, notice) -> str:
        if not self._config.transport_may_fail:
            return "error=not_in_config"
        return self._known(self._transport.repeat(notice))

    def advance_clock(self, seconds) -> str:
        return "error=none" if self._transport.advance_clock(seconds) else "error=bad_range"

    @staticmethod
    def _known(is_known: bool) -> str:
        return "error=none" if is_known else "error=unknown_job"

    # ---- What is observed ----

    def observe(self, state: bool) -> str:
        text = f"{self._producer.observe(state)}{self._consumer.observe(state)} now={self._transport.now}"
        if not state:
            return text
        return (f"{text} reads=[{' '.join(map(self._read_text, self._transport.reads.values()))}]"
                f" notices=[{' '.join(map(self._notice_text, self._transport.notices.values()))}]")

    def _read_text(self, read: Read) -> str:
        names = self._producer._name_texts
        return (f"(read read={read.number}{_rank_text(read)} request={names[read.request]}"
                f" remote_request={names[read.remote_request]} local_blocks={print_integers(read.local_blocks)}"
                f" remote_blocks={print_integers(read.remote_blocks)} progress={read.progress})")

    def _notice_text(self, notice: Notice) -> str:
        heartbeat = " heartbeat=true" if is_heartbeat(notice.message) else ""
        delivered = " delivered=true" if notice.is_delivered else ""
        return (f"(notice notice={notice.number}{_rank_text(notice)}{heartbeat}"
                f" requests={self._producer._names_text(requests_of(notice.message))}{delivered})")


def _rank_text(item: Any) -> str:
    rank = f" rank={item.rank}" if item.rank else ""
    return f"{rank} remote_rank={item.remote_rank}" if item.remote_rank else rank
