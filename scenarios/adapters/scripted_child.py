"""Children of a MultiConnector that answer as they are told and write down their calls: contract/scripted/scripted_child.h, for
upstream."""

from __future__ import annotations

from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence

from line_language import print_integers, print_text


def print_texts(texts: Iterable[str]) -> str:
    return "[" + " ".join(map(print_text, texts)) + "]"


def print_groups(groups: Iterable[Sequence[int]]) -> str:
    return "[" + " ".join(map(print_integers, groups)) + "]"


class ChildCalls:
    """The calls on all children of all halves, as the text of a reply."""

    def __init__(self) -> None:
        self._texts: List[str] = []

    def note(self, method: str, child: int, rank: Optional[int], rest: str = "") -> None:
        of_rank = "" if rank is None else f" rank={rank}"
        self._texts.append(f"(call method={method} child={child}{of_rank}{rest})")

    def take(self) -> str:
        """The calls since the last time as a field of a reply, oldest first; nothing if there were none."""
        if not self._texts:
            return ""
        text = f" calls=[{' '.join(self._texts)}]"
        self._texts.clear()
        return text


def child_class_maker(base: Any, stats_base: Any, calls: ChildCalls) -> Callable[[str, bool], type]:
    """Makes connector classes out of a name, and whether they take several groups. base, stats_base: upstream's
    v1/base.py and v1/metrics.py.

    An instance has `place`, `rank` (None in the scheduler) and `answers`, what it answers to the next call.
    """

    class Metadata(base.KVConnectorMetadata):
        def __init__(self, text: str) -> None:
            self.text = text

    class WorkerMetadata(base.KVConnectorWorkerMetadata):
        def __init__(self, numbers: List[int]) -> None:
            self.numbers = numbers

        def aggregate(self, other: Any) -> Any:
            return WorkerMetadata(self.numbers + other.numbers)

    class Stats(stats_base.KVConnectorStats):
        def aggregate(self, other: Any) -> Any:
            self.data["numbers"].extend(other.data["numbers"])
            return self

        def is_empty(self) -> bool:
            return not self.data["numbers"]

    class ScriptedChild(base.KVConnectorBase_V1):
        def __init__(self, vllm_config: Any, role: Any, kv_cache_config: Any) -> None:
            self.place: int = vllm_config.kv_transfer_config.place
            self.rank: Optional[int] = vllm_config.rank
            self.answers: Dict[str, Any] = {}

        def _note(self, method: str, rest: str = "") -> None:
            calls.note(method, self.place, self.rank, rest)

        # ---- The scheduler's half ----

        def on_new_request(self, request: Any) -> None:
            self._note("on_new_request", f" request={print_text(request.request_id)}")

        def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> tuple:
            self._note("get_num_new_matched_tokens",
                       f" request={print_text(request.request_id)} num_tokens={num_computed_tokens}")
            return self.answers.get("num_tokens", 0), self.answers.get("load_async", False)

        def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
            groups = [[block.block_id for block in group] for group in blocks.blocks]
            self._note("update_state_after_alloc", f" request={print_text(request.request_id)}"
                       f" num_tokens={num_external_tokens} blocks={print_groups(groups)}")

        def build_connector_meta(self, scheduler_output: Any) -> Any:
            self._note("build_connector_meta")
            return Metadata(self.answers.get("metadata", ""))

        def update_connector_output(self, connector_output: Any) -> None:
            rest = "".join([f" {key}={print_texts(sorted(requests))}" for key, requests in (
                ("sending", connector_output.finished_sending), ("recving", connector_output.finished_recving))
                if requests])
            if connector_output.invalid_block_ids:
                rest += f" invalid={print_integers(sorted(connector_output.invalid_block_ids))}"
            if connector_output.kv_connector_worker_meta is not None:
                rest += f" meta={print_integers(connector_output.kv_connector_worker_meta.numbers)}"
            self._note("update_connector_output", rest)

        def request_finished(self, request: Any, block_ids: List[int]) -> tuple:
            return self._finish("request_finished", request, [block_ids])

        def _finish(self, method: str, request: Any, groups: Iterable[Sequence[int]]) -> tuple:
            self._note(method, f" request={print_text(request.request_id)} blocks={print_groups(groups)}")
            params = self.answers.get("params")
            return self.answers.get("hold", False), None if params is None else {"params": params}

        def take_events(self) -> List[int]:
            self._note("take_events")
            return self.answers.get("ids", [])

        def reset_cache(self) -> Optional[bool]:
            self._note("reset_cache")
            return self.answers.get("done")

        # ---- The worker's half ----

        def handle_preemptions(self, kv_connector_metadata: Any) -> None:
            self._note("handle_preemptions", self._metadata(kv_connector_metadata))

        def bind_connector_metadata(self, connector_metadata: Any) -> None:
            self._note("bind_connector_metadata", self._metadata(connector_metadata))

        @staticmethod
        def _metadata(metadata: Any) -> str:
            return f" metadata={print_text(metadata.text)}" if metadata.text else ""

        def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
            self._note("start_load_kv")

        def wait_for_layer_load(self, layer_name: str) -> None:
            self._note("wait_for_layer_load", self._layer(layer_name))

        def save_kv_layer(self, layer_name: str, kv_layer: Any, attn_metadata: Any, **kwargs: Any) -> None:
            self._note("save_kv_layer", self._layer(layer_name))

        @staticmethod
        def _layer(layer_name: str) -> str:
            return f" layer={print_text(layer_name)}" if layer_name else ""

        def wait_for_save(self) -> None:
            self._note("wait_for_save")

        def get_finished(self, finished_req_ids: set) -> tuple:
            self._note("get_finished",
                       f" finished={print_texts(sorted(finished_req_ids))}" if finished_req_ids else "")
            return set(self.answers.get("sending", ())) or None, set(self.answers.get("recving", ())) or None

        def get_block_ids_with_load_errors(self) -> set:
            self._note("get_block_ids_with_load_errors")
            return set(self.answers.get("invalid", ()))

        def get_kv_connector_stats(self) -> Any:
            self._note("get_kv_connector_stats")
            numbers = self.answers.get("stats")
            return None if numbers is None else Stats(data={"numbers": list(numbers)})

        def build_connector_worker_meta(self) -> Any:
            self._note("build_connector_worker_meta")
            numbers = self.answers.get("meta")
            return None if numbers is None else WorkerMetadata(numbers)

        def clear_connector_metadata(self) -> None:
            self._note("clear_connector_metadata")

    class ScriptedHMAChild(ScriptedChild, base.SupportsHMA):
        def request_finished_all_groups(self, request: Any, block_ids: Iterable[Sequence[int]]) -> tuple:
            return self._finish("request_finished_all_groups", request, block_ids)

    return lambda name, hma: type(name, (ScriptedHMAChild if hma else ScriptedChild,), {})
