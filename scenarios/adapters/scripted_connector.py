"""A connector that answers as it is told and writes down its calls: contract/scripted/scripted_connector.h, for upstream."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from engine_target import Script
from line_language import print_integers


def block_ids_text(blocks: Sequence[Sequence[int]]) -> str:
    """Block ids by group."""
    return f"[{' '.join(map(print_integers, blocks))}]"


def make_scripted_connector(base: Any, make_cleared_event: Callable[[], Any], name_texts: Dict[str, str]) -> Any:
    """base: upstream's SupportsHMA. name_texts: request name -> its text in a reply."""

    class ScriptedConnector(base):
        def __init__(self) -> None:
            self._scripts: Dict[str, Script] = {}
            self._calls: List[str] = []
            self._num_events = 0
            self.reset_fails = False
            # Whom the last lookup put off.
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
            script = self._scripts[name]
            if script.ask_again:
                self._scripts[name] = script._replace(ask_again=script.ask_again - 1)
                self.put_off = name
                self._note("get_num_new_matched_tokens", request, num_computed_tokens, "again")
                return None, False
            self.put_off = None
            can_be_whole = script.load_async and request.num_tokens > 1
            loadable = min(script.num_external_tokens, request.num_tokens - (not can_be_whole))
            num_matched = max(loadable - num_computed_tokens, 0)
            load_async = script.load_async and num_matched > 0
            self._note("get_num_new_matched_tokens", request, num_computed_tokens,
                       f"{num_matched} async" if load_async else str(num_matched))
            return num_matched, load_async

        def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
            self._note("update_state_after_alloc", request, num_external_tokens,
                       blocks=block_ids_text(blocks.get_block_ids()))

        def build_connector_meta(self, scheduler_output: Any) -> None:
            self._note("build_connector_meta", num_tokens=scheduler_output.total_num_scheduled_tokens)

        def update_connector_output(self, connector_output: Any) -> None:
            self._note("update_connector_output")

        def request_finished_all_groups(self, request: Any, block_ids: Sequence[Sequence[int]]) -> Tuple[bool, None]:
            hold = self._scripts[request.request_id].hold_blocks
            self._note("request_finished", request, answer="hold" if hold else "free", blocks=block_ids_text(block_ids))
            return hold, None

        def take_events(self) -> List[Any]:
            events = [make_cleared_event() for _ in range(self._num_events)]
            self._num_events = 0
            return events

        def reset_cache(self) -> bool:
            self._note("reset_cache", answer="failed" if self.reset_fails else "done")
            self._num_events += not self.reset_fails
            return not self.reset_fails

    return ScriptedConnector()
