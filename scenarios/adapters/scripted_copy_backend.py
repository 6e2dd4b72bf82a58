"""A copy backend whose progress is commands, as upstream's DmaCopyBackend: no thread, no streams, no memory."""

from __future__ import annotations

from typing import Any, List, Tuple


class Copy:
    """One copy, and the event that upstream waits for."""

    def __init__(self, event_idx: int, is_store: bool, events: List[Tuple[int, Any]]):
        self.event_idx = event_idx
        self.is_store = is_store
        self.progress = "submitted"
        self._is_started = False
        self._events = events

    def start(self) -> None:
        """The copying thread takes it up: from now on the worker knows its event."""
        if not self._is_started:
            self._is_started = True
            self._events.append((self.event_idx, self))

    def is_reported(self) -> bool:
        """Whether the worker has seen its end."""
        return self._is_started and all(event is not self for _, event in self._events)

    # ---- What upstream calls ----

    def query(self) -> bool:
        return self.progress == "finished"

    def synchronize(self) -> None:
        self.progress = "finished"


class ScriptedCopyBackend:
    def __init__(self) -> None:
        self._copies: List[Copy] = []

    def copies(self) -> List[Copy]:
        """In the order of submission; reported ones are gone."""
        self._copies = [copy for copy in self._copies if not copy.is_reported()]
        return self._copies

    # ---- What upstream calls ----

    def launch_copy(self, src_blocks: List[int], dst_blocks: List[int], is_store: bool, event_idx: int,
                    events_list: List[Tuple[int, Any]]) -> None:
        assert len(src_blocks) == len(dst_blocks)
        self._copies.append(Copy(event_idx, is_store, events_list))

    # ---- Commands ----

    def advance(self, is_store: bool, progress: str) -> bool:
        """Sets the progress of the oldest copy of that direction; False if none is under way."""
        for copy in self.copies():
            # One thread starts the copies of both directions, one by one.
            copy.start()
            if copy.is_store == is_store and not copy.query():
                copy.progress = progress
                return True
        return False

    def start_all(self) -> None:
        for copy in self.copies():
            copy.start()
