"""The transport of KV between two engines, driven by commands: contract/scripted/scripted_transport.h, for upstream's NIXL agents.

A notice is the bytes that upstream sends: `A:2` from one of two ranks that need request A no more, `HB:A,B` to keep A
and B. An agent is called by its rank.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Dict, List, Set, Tuple

from engine_target import SECONDS_MAX

_HEARTBEAT = b"HB:"


class Read:
    """One rank of the consumer reads from one of the producer; upstream's transfer handle."""

    def __init__(self, rank: int, remote_rank: int, request: str, local_blocks: List[int], remote_blocks: List[int],
                 message: bytes):
        self.number = -1
        self.rank = rank
        self.remote_rank = remote_rank
        self.request = request
        self.local_blocks = local_blocks
        self.remote_blocks = remote_blocks
        self.message = message
        self.progress = "submitted"

    @property
    def remote_request(self) -> str:
        return requests_of(self.message)[0]

    def is_under_way(self) -> bool:
        return self.progress in ("submitted", "part")


class Notice:
    def __init__(self, number: int, rank: int, remote_rank: int, message: bytes):
        self.number = number
        self.rank = rank
        self.remote_rank = remote_rank
        self.message = message
        self.is_delivered = False


def is_heartbeat(message: bytes) -> bool:
    return message.startswith(_HEARTBEAT)


def requests_of(message: bytes) -> List[str]:
    """The producer's requests that a notice is about."""
    if is_heartbeat(message):
        return message[len(_HEARTBEAT):].decode().split(",")
    return [message.decode().rsplit(":", 1)[0]]


class ScriptedTransport:
    def __init__(self) -> None:
        self.now = 0
        # In the order of submission; those whose end a rank has seen are gone.
        self.reads: Dict[int, Read] = {}
        # In the order of sending; those that were lost or seen are gone.
        self.notices: Dict[int, Notice] = {}
        self._num_reads = 0
        self._num_notices = 0
        self._delivered: List[Notice] = []
        self._seen: Dict[int, Notice] = {}
        self._closed: Set[Tuple[int, str]] = set()

    # ---- What agents and workers do ----

    def start(self, read: Read) -> None:
        read.number = self._num_reads
        self._num_reads += 1
        self.reads[read.number] = read
        if (read.remote_rank, read.remote_request) in self._closed:
            read.progress = "failed"

    def forget(self, read: Read) -> None:
        """Its rank has seen its end."""
        self.reads.pop(read.number, None)

    def send(self, rank: int, remote_rank: int, message: bytes) -> None:
        number = self._num_notices
        self._num_notices += 1
        self.notices[number] = Notice(number, rank, remote_rank, message)

    def take_notices(self, remote_rank: int) -> Dict[int, List[bytes]]:
        """The notices that reached that rank, by sender."""
        taken: Dict[int, List[bytes]] = {}
        for notice in [notice for notice in self._delivered if notice.remote_rank == remote_rank]:
            taken.setdefault(notice.rank, []).append(notice.message)
            self._delivered.remove(notice)
            self._seen[notice.number] = self.notices.pop(notice.number)
        return taken

    def close(self, remote_rank: int, remote_request: str) -> None:
        """Its blocks must not be read from now on."""
        self._closed.add((remote_rank, remote_request))
        for read in self.reads.values():
            if (read.remote_rank, read.remote_request) == (remote_rank, remote_request) and read.is_under_way():
                read.progress = "failed"

    # ---- Commands: whether they fit ----

    def advance_clock(self, seconds: int) -> bool:
        if seconds > SECONDS_MAX - self.now:
            return False
        self.now += seconds
        return True

    def advance(self, number: int, progress: str) -> bool:
        read = self.reads.get(number)
        if read is None or not read.is_under_way():
            return False
        read.progress = progress
        if progress == "finished":
            self.send(read.rank, read.remote_rank, read.message)
        return True

    def deliver(self, number: int) -> bool:
        notice = self.notices.get(number)
        if notice is None or notice.is_delivered:
            return False
        notice.is_delivered = True
        self._delivered.append(notice)
        return True

    def lose(self, number: int) -> bool:
        notice = self.notices.get(number)
        if notice is None or notice.is_delivered:
            return False
        del self.notices[number]
        return True

    def repeat(self, number: int) -> bool:
        notice = self.notices.get(number) or self._seen.get(number)
        if notice is None or not notice.is_delivered:
            return False
        self.send(notice.rank, notice.remote_rank, notice.message)
        return True


class ScriptedAgent:
    """Stands for the nixl_agent of one rank. Upstream's dlist handles are ranks, its descriptors block ids."""

    def __init__(self, transport: ScriptedTransport, is_producer: bool, rank: int):
        self._transport = transport
        self._is_producer = is_producer
        self._rank = rank
        # The request of the next read, which upstream does not name.
        self.request = ""

    def make_prepped_xfer(self, operation: str, local_handle: int, local_blocks: List[int], remote_rank: int,
                          remote_blocks: List[int], notif_msg: bytes) -> Read:
        return Read(self._rank, remote_rank, self.request, list(local_blocks), list(remote_blocks), notif_msg)

    def transfer(self, read: Read) -> None:
        self._transport.start(read)

    def check_xfer_state(self, read: Read) -> str:
        return {"finished": "DONE", "failed": "ERR"}.get(read.progress, "PROC")

    def get_xfer_telemetry(self, read: Read) -> Any:
        return SimpleNamespace(xferDuration=0, postDuration=0, totalBytes=0, descCount=len(read.local_blocks))

    def release_xfer_handle(self, read: Read) -> None:
        self._transport.forget(read)

    def send_notif(self, remote_rank: int, notif_msg: bytes) -> None:
        self._transport.send(self._rank, remote_rank, notif_msg)

    def get_new_notifs(self) -> Dict[int, List[bytes]]:
        return self._transport.take_notices(self._rank) if self._is_producer else {}

    # At the end of its life upstream gives all of its handles back.

    def release_dlist_handle(self, handle: int) -> None:
        pass

    def remove_remote_agent(self, agent: int) -> None:
        pass
