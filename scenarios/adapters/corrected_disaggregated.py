"""Upstream's NIXL connector, corrected and with fixed orders: contract/connectors/disaggregated/disaggregated_connector.h.

As corrected_scheduler.py: each correction is about one place where upstream goes wrong, and can be left out. The orders
that upstream leaves to sets of names are those in which the names came.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Dict, FrozenSet, List, Set, Tuple

from corrected_connector import OrderedSet
from scripted_transport import ScriptedTransport, is_heartbeat

# Name -> what upstream does without it.
CORRECTIONS = {
    "reads_after_the_end": "a read of blocks that a producer gave back continues, over blocks of another request,"
                           " and the read succeeds",
    "expired_after_a_renewed": "a request whose lease was renewed keeps those after it from expiring (0.23.0,"
                                " vllm#58222)",
    "repeated_notices": "a notice that comes twice stands for a reader that is not done",
    "first_failed_read": "a load is over at its first failed read, while others still write; another one that fails is"
                         " an AssertionError (0.23.0, vllm#56104)",
    "blocks_from_the_end": "as many remote blocks as local ones are read, from the end: others, if there are blocks"
                           " after the prompt (vllm#50558)",
    "load_of_one_token": "a prompt of one token is loaded, and then still computed",
    "heartbeats_of_others": "one reader that is done stops the heartbeats of the others (0.23.0)",
    "finished_without_blocks": "a request that is finished while it is preempted is handed over without blocks: an"
                               " AssertionError at the consumer; the producer's workers expect it forever",
}


def corrected_halves(scheduler_half: Any, worker_half: Any, uncorrected: FrozenSet[str] = frozenset()) -> tuple:
    """Subclasses of NixlConnectorScheduler and NixlConnectorWorker. The latter's `transport` has to be set."""

    def corrects(name: str) -> bool:
        return name not in uncorrected

    class CorrectedScheduler(scheduler_half):
        def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> tuple:
            """load_of_one_token."""
            if request.num_prompt_tokens == 1 and corrects("load_of_one_token"):
                return 0, False
            return super().get_num_new_matched_tokens(request, num_computed_tokens)

        def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
            """blocks_from_the_end: makes the lists that upstream cuts afterwards as long as they should be."""
            params = request.kv_transfer_params
            is_read = bool(params and params.get("do_remote_prefill") and num_external_tokens)
            super().update_state_after_alloc(request, blocks, num_external_tokens)
            if is_read and corrects("blocks_from_the_end"):
                places = [[place for place, block in enumerate(group) if block.block_hash is None and not block.is_null]
                          for group in blocks.blocks]
                self._reqs_need_recv[request.request_id] = request, tuple(
                    [group[place].block_id for place in of_group] for group, of_group in zip(blocks.blocks, places))
                params["remote_block_ids"] = tuple(
                    [remote[place] for place in of_group]
                    for remote, of_group in zip(params["remote_block_ids"], places))

        def build_connector_meta(self, scheduler_output: Any) -> Any:
            """The metadata gets its own copy of the heartbeats: later changes belong to later metadata."""
            meta = super().build_connector_meta(scheduler_output)
            if hasattr(meta, "heartbeat_by_engine"):
                meta.heartbeat_by_engine = {
                    engine: dataclasses.replace(info, req_ids=OrderedSet(info.req_ids))
                    for engine, info in meta.heartbeat_by_engine.items()}
            return meta

        def _stop_heartbeat(self, request_id: str) -> None:
            """heartbeats_of_others."""
            if not corrects("heartbeats_of_others"):
                super()._stop_heartbeat(request_id)
                return
            engine, _ = self._heartbeat_req_engine.get(request_id, (None, None))
            info = self._heartbeat_by_engine.get(engine)
            super()._stop_heartbeat(request_id)
            left = OrderedSet(remote for of, remote in self._heartbeat_req_engine.values() if of == engine)
            if info is not None and left:
                info.req_ids = left
                self._heartbeat_by_engine[engine] = info

        def request_finished(self, request: Any, block_ids: Any) -> Tuple[bool, Any]:
            """finished_without_blocks; and blocks_from_the_end: upstream leaves some of those before a window away."""
            is_held, params = super().request_finished(request, block_ids)
            if is_held and corrects("blocks_from_the_end"):
                params["remote_block_ids"] = block_ids
            if params is not None and not is_held and corrects("finished_without_blocks"):
                self._reqs_not_processed.add(request.request_id)
                return False, None
            return is_held, params

    class CorrectedWorker(worker_half):
        transport: ScriptedTransport

        def __init__(self, *arguments: Any):
            super().__init__(*arguments)
            # By rank that sent it.
            self._heard: Set[Tuple[int, bytes]] = set()
            if corrects("repeated_notices"):
                get_new_notifs = self.nixl_wrapper.get_new_notifs
                self.nixl_wrapper.get_new_notifs = lambda: self._without_repeated(get_new_notifs())

        def _without_repeated(self, notices: Dict[int, List[bytes]]) -> Dict[int, List[bytes]]:
            """repeated_notices. Heartbeats may come as often as they like."""
            new: Dict[int, List[bytes]] = {rank: [] for rank in notices}
            for rank, messages in notices.items():
                for message in messages:
                    if (rank, message) not in self._heard:
                        new[rank].append(message)
                    if not is_heartbeat(message):
                        self._heard.add((rank, message))
            return new

        def _get_new_notifs(self) -> Any:
            """expired_after_a_renewed: upstream takes the first for the one that expires first."""
            done = super()._get_new_notifs()
            if corrects("expired_after_a_renewed"):
                self._reqs_to_send = dict(sorted(self._reqs_to_send.items(), key=lambda item: item[1]))
            return done

        def _pop_done_transfers(self, transfers: Any) -> Any:
            """first_failed_read."""
            done = super()._pop_done_transfers(transfers)
            if corrects("first_failed_read") and hasattr(self._failed_recv_reqs, "get_nowait"):
                failed = [self._failed_recv_reqs.get_nowait() for _ in range(self._failed_recv_reqs.qsize())]
                for request_id in failed:
                    if request_id not in transfers:
                        self._failed_recv_reqs.put(request_id)
            return done

        def get_finished(self) -> tuple:
            """reads_after_the_end."""
            done_sending, done_recving = super().get_finished()
            if corrects("reads_after_the_end"):
                for request_id in done_sending:
                    self.transport.close(self.tp_rank, request_id)
            return done_sending, done_recving

        # ---- A block's descriptor is its number; and the request that a read is for ----

        def _read_blocks(self, **arguments: Any) -> None:
            self.nixl_wrapper.request = arguments["request_id"]
            super()._read_blocks(**arguments)

        def _get_block_descs_ids(self, engine_id: str, block_ids: Any, block_size_ratio: Any = None) -> List[int]:
            return self._compute_desc_ids(block_ids)

        def _compute_desc_ids(self, block_ids: Any, **_: Any) -> List[int]:
            return [block for group in block_ids for block in group]

    return CorrectedScheduler, CorrectedWorker
