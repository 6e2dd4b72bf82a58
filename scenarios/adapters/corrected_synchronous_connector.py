"""Upstream's ExampleConnector, corrected: contract/connectors/synchronous/synchronous_connector.h.

As corrected_scheduler.py: each correction is about one place where upstream goes wrong, and can be left out.
"""

from __future__ import annotations

from typing import Any, FrozenSet, Optional

# Name -> what upstream does without it, and where that was seen in public.
CORRECTIONS = {
    "negative_match": "a prompt that is found in files, but further in the GPU's cache, or that has one token, has a"
                      " negative number of external tokens: the hit is computed again, or tokens that do not exist"
                      " (vllm#53495)",
    "stores_uncomputed_tokens": "a prompt that a step computes in part is stored with that step: fewer blocks"
                                " than its name says, or blocks with tokens that are not computed",
    "file_errors": "a file that cannot be read or written ends the process",
}


def corrected_example_connector(base: Any, uncorrected: FrozenSet[str] = frozenset()) -> Any:
    """A subclass of ExampleConnector, for both roles. The transfers of a step get the names of their requests."""

    def corrects(name: str) -> bool:
        return name not in uncorrected

    class CorrectedExampleConnector(base):
        # It never puts a request off.
        put_off: Optional[str] = None

        def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> tuple:
            """negative_match."""
            num_tokens, load_async = super().get_num_new_matched_tokens(request, num_computed_tokens)
            return max(num_tokens, 0) if corrects("negative_match") else num_tokens, load_async

        def build_connector_meta(self, scheduler_output: Any) -> Any:
            """stores_uncomputed_tokens."""
            meta = super().build_connector_meta(scheduler_output)
            # A transfer does not name its request; its list of blocks, made for this step, identifies it.
            cached = scheduler_output.scheduled_cached_reqs
            name_of = {id(new.block_ids[0]): new.req_id for new in scheduler_output.scheduled_new_reqs}
            name_of.update([(id(blocks[0]), name) for name, blocks in zip(cached.req_ids, cached.new_block_ids)
                            if blocks is not None])
            for transfer in meta.requests:
                transfer.request_id = name_of[id(transfer.block_ids)]
            if corrects("stores_uncomputed_tokens"):
                num_computed_of = {
                    new.req_id: new.num_computed_tokens + scheduler_output.num_scheduled_tokens[new.req_id]
                    for new in scheduler_output.scheduled_new_reqs
                }
                meta.requests = [transfer for transfer in meta.requests if not transfer.is_store
                                 or len(transfer.token_ids) <= num_computed_of[transfer.request_id]]
            return meta

    return CorrectedExampleConnector


def with_block_ids(base: Any) -> Any:
    """A subclass of ExampleConnectorMetadata whose transfers keep the list of blocks that they were made from."""

    class MetadataWithBlockIds(base):
        keeps_block_ids = True

        def add_request(self, token_ids: Any, block_ids: Any, **options: Any) -> None:
            super().add_request(token_ids=token_ids, block_ids=block_ids, **options)
            self.requests[-1].block_ids = block_ids

    return MetadataWithBlockIds
