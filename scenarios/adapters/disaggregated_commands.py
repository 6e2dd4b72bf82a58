"""Two schedulers of a real vLLM release, paired by its NIXL connector, with the transport and clock between them.

The commands are those of contract/connectors/disaggregated/nixl_facet.h.

What scheduler_commands.py says of the scheduler holds for both; of the connector, what corrected_disaggregated.py says.
"""

from __future__ import annotations

from typing import Any, Dict, FrozenSet, List

from engine_target import Config, World
from line_language import print_integers
from scheduler_commands import UpstreamScheduler
from scripted_transport import Notice, Read, ScriptedTransport, is_heartbeat, requests_of
from upstream_disaggregated import Connectors
from upstream_kv_cache import NameTexts
from upstream_pool import Modules


class OfPair(UpstreamScheduler):
    """One of a pair."""

    has_workers = True

    def _start_in_pair(self, nixl: Connectors, role: str) -> None:
        self._nixl = nixl
        self._role = role
        self.has_readers = role == "producer"
        self.prefix = "" if role == "producer" else f"{role}_"
        # The transfer parameters of each finished request, and the requests that finished last.
        self.transfer_params: Dict[str, Dict[str, Any]] = {}
        self._finished_now: List[str] = []

    def _can_end_with(self, status: str) -> bool:
        return status in ("finished_aborted", "finished_error")

    def _metadata_of_nixl(self, output: Any) -> Any:
        return output.kv_connector_metadata

    # ---- Answers ----

    def _output_text(self, output: Any) -> str:
        if output.kv_transfer_params and "remote_block_ids" in output.kv_transfer_params:
            self.transfer_params[output.request_id] = output.kv_transfer_params
            self._finished_now.append(output.request_id)
        return super()._output_text(output)

    def _report_text(self, report: Any) -> str:
        if self._role == "consumer":
            return ""
        return f" finished_prefills=[{' '.join(map(self._prefill_text, self._finished_now))}]"

    def _prefill_text(self, name: str) -> str:
        blocks = [block for group in self.transfer_params[name]["remote_block_ids"] for block in group if block]
        return f"(prefill request={self._name_texts[name]} blocks={print_integers(blocks)})"

    def _plan_text(self, output: Any) -> str:
        meta = self._metadata_of_nixl(output)
        if self._role == "producer":
            sends = [f"(send request={self._name_texts[name]} expires={self._nixl.seconds(expires)})"
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
        local, remote = [], []
        for of_group, of_remote in zip(request.local_block_ids, request.remote.block_ids):
            local += of_group
            # As the worker cuts them.
            remote += of_remote[-len(of_group):]
        return f"{text} local_blocks={print_integers(local)} remote_blocks={print_integers(remote)})"


class UpstreamDisaggregated(OfPair):
    """A scheduler with its half of the connector, and the workers of all of its ranks."""

    def __init__(self, modules: Modules, config: Config, world: World, uncorrected: FrozenSet[str],
                 connectors: Connectors, role: str):
        self._start_in_pair(connectors, role)
        super().__init__(modules, config._replace(num_gpu_blocks=connectors.num_gpu_blocks(role)), world, uncorrected)

    def _make_connector(self) -> Any:
        return self._nixl.schedulers[self._role]

    def _run_workers(self, scheduler_output: Any) -> Any:
        self._finished_now = []
        return self._nixl.run_step(self._role, scheduler_output)


class Between:
    """The transport and the clock between the two."""

    def __init__(self, transport: ScriptedTransport, may_fail: bool):
        self.start(transport)
        self._may_fail = may_fail
        self._name_texts = NameTexts()

    def start(self, transport: ScriptedTransport) -> None:
        self._transport = transport

    # ---- Commands (contract/connectors/disaggregated/nixl_facet.h) ----

    def advance_read(self, read, progress) -> str:
        if progress == "submitted":
            return "error=bad_range"
        if progress == "failed" and not self._may_fail:
            return "error=not_in_config"
        return self._known(self._transport.advance(read, progress))

    def deliver_notice(self, notice) -> str:
        return self._known(self._transport.deliver(notice))

    def lose_notice(self, notice) -> str:
        return self._known(self._transport.lose(notice)) if self._may_fail else "error=not_in_config"

    def repeat_notice(self, notice) -> str:
        return self._known(self._transport.repeat(notice)) if self._may_fail else "error=not_in_config"

    def advance_clock(self, seconds) -> str:
        return "error=none" if self._transport.advance_clock(seconds) else "error=bad_range"

    @staticmethod
    def _known(is_known: bool) -> str:
        return "error=none" if is_known else "error=unknown_job"

    # ---- What is observed ----

    def observe(self, state: bool) -> str:
        text = f" now={self._transport.now}"
        if not state:
            return text
        return (f"{text} reads=[{' '.join(map(self._read_text, self._transport.reads.values()))}]"
                f" notices=[{' '.join(map(self._notice_text, self._transport.notices.values()))}]")

    def _read_text(self, read: Read) -> str:
        return (f"(read read={read.number}{_rank_text(read)} request={self._name_texts[read.request]}"
                f" remote_request={self._name_texts[read.remote_request]}"
                f" local_blocks={print_integers(read.local_blocks)}"
                f" remote_blocks={print_integers(read.remote_blocks)} progress={read.progress})")

    def _notice_text(self, notice: Notice) -> str:
        heartbeat = " heartbeat=true" if is_heartbeat(notice.message) else ""
        delivered = " delivered=true" if notice.is_delivered else ""
        requests = " ".join([self._name_texts[name] for name in requests_of(notice.message)])
        return f"(notice notice={notice.number}{_rank_text(notice)}{heartbeat} requests=[{requests}]{delivered})"


def _rank_text(item: Any) -> str:
    rank = f" rank={item.rank}" if item.rank else ""
    return f"{rank} remote_rank={item.remote_rank}" if item.remote_rank else rank
