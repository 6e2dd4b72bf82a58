"""Connectors whose answers are set by commands and that record their calls: contract/scripted/scripted_connector.h, for
upstream. One is a scheduler's own, the others are children of a MultiConnector.
"""

from __future__ import annotations

import collections
from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence, Tuple

from engine_target import ChildReport, Script, Scripted
from line_language import print_integers, print_text


def block_ids_text(blocks: Sequence[Sequence[int]]) -> str:
    """Block ids by group."""
    return f"[{' '.join(map(print_integers, blocks))}]"


def answer_lookup(script: Script, request: Any,
                  num_computed_tokens: int) -> Tuple[Script, Tuple[Optional[int], bool], str]:
    """The rest of the script; the lookup's hit, and whether it is loaded while the request waits; the text."""
    if script.ask_again:
        return script._replace(ask_again=script.ask_again - 1), (None, False), "again"
    can_be_whole = script.load_async and request.num_tokens > 1
    loadable = min(script.num_external_tokens, request.num_tokens - (not can_be_whole))
    num_matched = max(loadable - num_computed_tokens, 0)
    load_async = script.load_async and num_matched > 0
    return script, (num_matched, load_async), f"{num_matched} async" if load_async else str(num_matched)


def end_text(script: Script) -> str:
    """The answer of request_finished, with the parameters for the client after it."""
    text = "hold" if script.hold_blocks else "free"
    return text if script.params is None else f"{text} {script.params}"


def make_scripted_connector(base: Any, make_cleared_event: Callable[[], Any], name_texts: Dict[str, str]) -> Any:
    """base: upstream's SupportsHMA. name_texts: request name -> its text in a reply."""

    class ScriptedConnector(base):
        def __init__(self) -> None:
            # A missing script has the defaults: it belongs to a child that this connector does not have.
            self._scripts: Dict[str, Script] = collections.defaultdict(Script)
            self._calls: List[str] = []
            self._num_events = 0
            self.reset_fails = False
            # Requests that the last lookup put off.
            self.put_off: Optional[str] = None

        def set_script(self, name: str, script: Script) -> None:
            self._scripts[name] = script

        def take_calls(self) -> str:
            """The calls since the last time as a field of a reply, oldest first; nothing if there were none."""
            if not self._calls:
                return ""
            text = f" connector_calls=[{' '.join(self._calls)}]"
            self._calls.clear()
            return text

        def _note(self, method: str, request: Any = None, num_tokens: int = 0, answer: str = "",
                  blocks: str = "") -> None:
            text = f"(call method={method}"
            if request is not None:
                text += f" request={name_texts[request.request_id]}"
            if num_tokens:
                text += f" num_tokens={num_tokens}"
            if answer:
                text += f' answer="{answer}"'
            if blocks:
                text += f" blocks={blocks}"
            self._calls.append(text + ")")

        # ---- What upstream calls ----

        def bind_gpu_block_pool(self, block_pool: Any) -> None:
            pass

        def on_new_request(self, request: Any) -> None:
            self._note("on_new_request", request)

        def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> Tuple[Optional[int], bool]:
            name = request.request_id
            self._scripts[name], found, text = answer_lookup(self._scripts[name], request, num_computed_tokens)
            self.put_off = name if found[0] is None else None
            self._note("get_num_new_matched_tokens", request, num_computed_tokens, text)
            return found

        def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
            self._note("update_state_after_alloc", request, num_external_tokens,
                       blocks=block_ids_text(blocks.get_block_ids()))

        def build_connector_meta(self, scheduler_output: Any) -> None:
            self._note("build_connector_meta", num_tokens=scheduler_output.total_num_scheduled_tokens)

        def update_connector_output(self, connector_output: Any) -> None:
            self._note("update_connector_output")

        def request_finished_all_groups(self, request: Any, block_ids: Sequence[Sequence[int]]) -> Tuple[bool, None]:
            script = self._scripts[request.request_id]
            self._note("request_finished", request, answer=end_text(script), blocks=block_ids_text(block_ids))
            return script.hold_blocks, None

        def take_events(self) -> List[Any]:
            events = [make_cleared_event() for _ in range(self._num_events)]
            self._num_events = 0
            return events

        def reset_cache(self) -> bool:
            self._note("reset_cache", answer="failed" if self.reset_fails else "done")
            self._num_events += not self.reset_fails
            return not self.reset_fails

    return ScriptedConnector()


class ShutdownFailed(Exception):
    """Of a scripted child."""


class ScriptedChildren:
    """Shared by the halves of all scripted children of a MultiConnector."""

    def __init__(self, calls: Iterable[str] = ()) -> None:
        """calls: of an engine that ended with this command."""
        self.scripts: Dict[Tuple[int, str], Script] = {}  # by place and request
        self.reports: Dict[Tuple[int, int], ChildReport] = {}  # by place and rank
        self.failing: set = set()  # places
        self.silent: set = set()
        self.name_texts: Dict[str, str] = {}
        # Requests that the last lookup put off.
        self.put_off: Optional[str] = None
        self.calls = list(calls)
        self._client_params: List[str] = []

    def take_calls(self, prefix: str = "") -> str:
        """As ScriptedConnector.take_calls."""
        if not self.calls:
            return ""
        text = f" {prefix}connector_calls=[{' '.join(self.calls)}]"
        self.calls.clear()
        return text

    def take_client_params(self, prefix: str = "") -> str:
        """The clients' parameters since the last time, likewise."""
        if not self._client_params:
            return ""
        text = f" {prefix}client_params=[{' '.join(self._client_params)}]"
        self._client_params.clear()
        return text

    def note(self, method: str, child: int, rank: Optional[int], rest: str) -> None:
        of_rank = "" if rank is None else f" rank={rank}"
        self.calls.append(f"(call method={method} child={child}{of_rank}{rest})")

    def note_client_params(self, request: Any, answer: Tuple[bool, Any]) -> Tuple[bool, Any]:
        """Of an answer to request_finished."""
        if answer[1] is not None:
            # Those of NIXL are shown as the name of their request.
            params = answer[1].get("params", answer[1].get("remote_request_id"))
            self._client_params.append(f"(params request={self.name_texts[request.request_id]}"
                                       f" params={print_text(params)})")
        return answer

    def names_text(self, key: str, names: Iterable[str]) -> str:
        """Of a set; nothing if it is empty."""
        texts = [self.name_texts[name] for name in sorted(names or ())]
        return f" {key}=[{' '.join(texts)}]" if texts else ""


def make_child_class(base: Any, metrics: Any, make_cleared_event: Callable[[], Any],
                     children: ScriptedChildren) -> Callable[[str, bool], type]:
    """Makes classes of children out of a name, and whether they take several groups. base, metrics: upstream's
    v1/base.py and v1/metrics.py."""

    class Metadata(base.KVConnectorMetadata):
        def __init__(self, text: str) -> None:
            self.text = text

    class WorkerMetadata(base.KVConnectorWorkerMetadata):
        def __init__(self, jobs: List[int]) -> None:
            self.jobs = jobs

        def aggregate(self, other: Any) -> Any:
            return WorkerMetadata(self.jobs + other.jobs)

    class Stats(metrics.KVConnectorStats):
        def aggregate(self, other: Any) -> Any:
            self.data["sizes"].extend(other.data["sizes"])
            return self

        def is_empty(self) -> bool:
            return not self.data["sizes"]

    class Handshake(base.KVConnectorHandshakeMetadata):
        def __init__(self, text: str) -> None:
            self.text = text

    class ScriptedChild(base.KVConnectorBase_V1):
        def __init__(self, vllm_config: Any, role: Any, kv_cache_config: Any) -> None:
            self._place: int = vllm_config.kv_transfer_config.place
            self._traits: Scripted = vllm_config.kv_transfer_config.child
            self._rank: Optional[int] = vllm_config.rank
            self._num_steps = 0
            self._num_events = 0
            self._bound = Metadata("")

        def _note(self, method: str, request: Any = None, num_tokens: int = 0, answer: str = "",
                  blocks: str = "", rest: str = "") -> None:
            text = "" if request is None else f" request={children.name_texts[request.request_id]}"
            if num_tokens:
                text += f" num_tokens={num_tokens}"
            if answer:
                text += f' answer="{answer}"'
            if blocks:
                text += f" blocks={blocks}"
            children.note(method, self._place, self._rank, text + rest)

        def _script(self, request: Any) -> Script:
            return children.scripts.get((self._place, request.request_id), Script())

        def shutdown(self) -> None:
            self._note("shutdown", answer="failed" if self._traits.shutdown_fails else "done")
            if self._traits.shutdown_fails:
                raise ShutdownFailed

        # ---- The scheduler's half ----

        def bind_gpu_block_pool(self, block_pool: Any) -> None:
            pass

        def set_xfer_handshake_metadata(self, metadata: Dict[int, Any]) -> None:
            text = " ".join([handshake.text for _, handshake in sorted(metadata.items())])
            self._note("set_xfer_handshake_metadata", rest=f" metadata={print_text(text)}" if text else "")

        def on_new_request(self, request: Any) -> None:
            self._note("on_new_request", request)

        def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> Tuple[Optional[int], bool]:
            name = request.request_id
            script, found, text = answer_lookup(self._script(request), request, num_computed_tokens)
            if found[0] is None:
                children.scripts[self._place, name] = script
            children.put_off = name if found[0] is None else None
            self._note("get_num_new_matched_tokens", request, num_computed_tokens, text)
            return found

        def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
            self._note("update_state_after_alloc", request, num_external_tokens,
                       blocks=block_ids_text([[block.block_id for block in group] for group in blocks.blocks]))

        def build_connector_meta(self, scheduler_output: Any) -> Any:
            metadata = Metadata(f"{self._place}.{self._num_steps}")
            self._num_steps += 1
            self._note("build_connector_meta", num_tokens=scheduler_output.total_num_scheduled_tokens,
                       rest=self._metadata_text(metadata))
            return metadata

        def update_connector_output(self, connector_output: Any) -> None:
            rest = (children.names_text("sending", connector_output.finished_sending)
                    + children.names_text("recving", connector_output.finished_recving))
            if connector_output.invalid_block_ids:
                rest += f" invalid={print_integers(sorted(connector_output.invalid_block_ids))}"
            if connector_output.kv_connector_worker_meta is not None:
                rest += f" jobs={print_integers(sorted(connector_output.kv_connector_worker_meta.jobs))}"
            self._note("update_connector_output", rest=rest)

        def request_finished(self, request: Any, block_ids: List[int]) -> Tuple[bool, Any]:
            return self._finish(request, [block_ids])

        def _finish(self, request: Any, groups: Sequence[Sequence[int]]) -> Tuple[bool, Any]:
            script = self._script(request)
            self._note("request_finished", request, answer=end_text(script), blocks=block_ids_text(groups))
            return script.hold_blocks, None if script.params is None else {"params": script.params}

        def take_events(self) -> List[Any]:
            events = [make_cleared_event() for _ in range(self._num_events)]
            self._num_events = 0
            return events

        def reset_cache(self) -> Optional[bool]:
            if self._place in children.silent:
                self._note("reset_cache")
                return None
            fails = self._place in children.failing
            self._note("reset_cache", answer="failed" if fails else "done")
            self._num_events += not fails
            return not fails

        # ---- The worker's half ----

        @staticmethod
        def _metadata_text(metadata: Any) -> str:
            return f" metadata={print_text(metadata.text)}"

        @property
        def prefer_cross_layer_blocks(self) -> bool:
            return self._traits.cross_layers

        def register_kv_caches(self, kv_caches: Dict[str, Any]) -> None:
            self._note("register_kv_caches")

        def register_cross_layers_kv_cache(self, kv_cache: Any, attn_backend: Any) -> None:
            self._note("register_cross_layers_kv_cache")

        def get_handshake_metadata(self) -> Optional[Handshake]:
            text = f"{self._place}.{self._rank}" if self._traits.handshake else ""
            self._note("get_handshake_metadata", answer=text)
            return Handshake(text) if text else None

        def handle_preemptions(self, kv_connector_metadata: Any) -> None:
            self._note("handle_preemptions", rest=self._metadata_text(kv_connector_metadata))

        def bind_connector_metadata(self, connector_metadata: Any) -> None:
            self._bound = connector_metadata
            self._note("bind_connector_metadata", rest=self._metadata_text(self._bound))

        def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
            self._note("start_load_kv", rest=self._metadata_text(self._bound))

        def wait_for_layer_load(self, layer_name: str) -> None:
            pass

        def save_kv_layer(self, layer_name: str, kv_layer: Any, attn_metadata: Any, **kwargs: Any) -> None:
            pass

        def wait_for_save(self) -> None:
            self._note("wait_for_save", rest=self._metadata_text(self._bound))

        def _report(self) -> ChildReport:
            return children.reports.get((self._place, self._rank), ChildReport())

        def get_finished(self, finished_req_ids: set) -> Tuple[Optional[set], Optional[set]]:
            self._note("get_finished", rest=self._metadata_text(self._bound)
                       + children.names_text("finished", finished_req_ids))
            report = self._report()
            return set(report.sending) or None, set(report.recving) or None

        def get_block_ids_with_load_errors(self) -> set:
            return set(self._report().invalid)

        def get_kv_connector_stats(self) -> Any:
            sizes = self._report().stats
            return Stats(data={"sizes": list(sizes)}) if sizes else None

        def build_connector_worker_meta(self) -> Any:
            jobs = self._report().jobs
            return WorkerMetadata(list(jobs)) if jobs else None

        def clear_connector_metadata(self) -> None:
            self._note("clear_connector_metadata", rest=self._metadata_text(self._bound))
            self._bound = Metadata("")

    class ScriptedHMAChild(ScriptedChild, base.SupportsHMA):
        def request_finished_all_groups(self, request: Any, block_ids: Sequence[Sequence[int]]) -> Tuple[bool, Any]:
            return self._finish(request, block_ids)

    return lambda name, hma: type(name, (ScriptedHMAChild if hma else ScriptedChild,), {})
