"""A secondary tier whose answers are set by commands and that records its calls: contract/scripted/scripted_tier.h, for upstream."""

from __future__ import annotations

from typing import Any, Dict, Iterator, List, Set, Tuple

from line_language import print_integers, print_text


class Calls:
    """The calls on all tiers of one manager, as the text of a reply."""

    def __init__(self, keys: Any):
        self.keys = keys  # numbers <-> bytes
        self._texts: List[str] = []

    def note(self, method: str, tier: int, request: Any = None, *, job: Any = None, keys: Any = (),
             answer: str = "") -> None:
        text = f"(call method={method} tier={tier}"
        if request is not None:
            text += f" request={print_text(request.req_id)}"
        if job is not None:
            text += f" job={job.job_id}"
        if len(keys):
            text += f" keys={self.keys.numbers(keys)}"
        if job is not None and len(keys):
            text += f" slots={print_integers(job.block_ids)}"
        if answer:
            text += f" answer={print_text(answer)}"
        self._texts.append(text + ")")

    def take(self) -> str:
        """The calls since the last time as a field of a reply, oldest first; nothing if there were none."""
        if not self._texts:
            return ""
        text = f" tier_calls=[{' '.join(self._texts)}]"
        self._texts.clear()
        return text


def make_scripted_tier(tiering_base: Any, kv_offload_base: Any, place: int, calls: Calls) -> Any:
    """tiering_base, kv_offload_base: upstream's v1/kv_offload/tiering/base.py and v1/kv_offload/base.py."""

    class ScriptedTier(tiering_base.SecondaryTierManager):
        def __init__(self) -> None:
            super().__init__(None, None, "scripted")
            self.held: Set[bytes] = set()
            self.is_request_level = False
            self._ask_again: Dict[bytes, int] = {}
            self._stores: Dict[int, List[bytes]] = {}
            self._finished: List[Tuple[int, bool]] = []
            # Submitted, and not yet reported.
            self.under_way: Set[int] = set()

        # A set of a few tiers, as upstream keeps one, is in the order of their places.
        def __hash__(self) -> int:
            return place

        def __eq__(self, other: Any) -> bool:
            return self is other

        # ---- What is commanded ----

        def finish(self, job_id: int, success: bool) -> None:
            self._finished.append((job_id, success))
            keys = self._stores.pop(job_id, [])
            if success:
                self.held.update(keys)

        def ask_again(self, key: bytes, times: int) -> None:
            self._ask_again[key] = times

        # ---- What upstream calls ----

        def lookup(self, key: bytes, req_context: Any) -> Any:
            result: Any = key in self.held
            if self._ask_again.get(key, 0) > 0:
                self._ask_again[key] -= 1
                result = None
            calls.note("lookup", place, req_context, keys=[key],
                       answer={False: "miss", None: "pending", True: "hit"}[result])
            return result

        def submit_store(self, job_metadata: Any) -> None:
            calls.note("submit_store", place, job_metadata.req_context, job=job_metadata, keys=job_metadata.keys)
            self._stores[job_metadata.job_id] = list(job_metadata.keys)
            self.under_way.add(job_metadata.job_id)

        def submit_load(self, job_metadata: Any) -> None:
            calls.note("submit_load", place, job_metadata.req_context, job=job_metadata, keys=job_metadata.keys)
            self.under_way.add(job_metadata.job_id)

        def get_finished_jobs(self) -> Iterator[Any]:
            finished, self._finished = self._finished, []
            calls.note("get_finished_jobs", place,
                       answer=" ".join(f"{job_id} {'done' if success else 'failed'}" for job_id, success in finished))
            return self._known(finished)

        def _known(self, finished: List[Tuple[int, bool]]) -> Iterator[Any]:
            """Upstream asserts at a result that names no job under way."""
            for job_id, success in finished:
                if job_id in self.under_way:
                    self.under_way.remove(job_id)
                    yield tiering_base.JobResult(job_id=job_id, success=success)

        def touch(self, keys: Any, req_context: Any) -> None:
            calls.note("touch", place, req_context, keys=keys)

        def on_new_request(self, req_context: Any) -> Any:
            name = "request_level" if self.is_request_level else "block_level"
            calls.note("on_new_request", place, req_context, answer=name)
            return kv_offload_base.RequestOffloadingContext(policy=kv_offload_base.OffloadPolicy(name))

        def on_request_finished(self, req_context: Any) -> None:
            calls.note("on_request_finished", place, req_context)

        def on_schedule_end(self) -> None:
            calls.note("on_schedule_end", place)

    return ScriptedTier()
