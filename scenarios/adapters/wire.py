"""The line protocol between kvfence and an outside implementation, seen from the implementation: stdin to stdout."""

from __future__ import annotations

import os
import sys
from typing import Callable

from line_language import print_text

_READ_BYTES = 1 << 18
_WRITE_BYTES = 1 << 16


def malformed(why: object) -> str:
    """The reply to a line that cannot be understood."""
    return f"-> malformed={print_text(str(why))}"


def unsupported(why: object) -> str:
    """The reply to a target or a config that this implementation does not support."""
    return f"-> unsupported={print_text(str(why))}"


def serve(answer: Callable[[str], str]) -> None:
    """Answers every line of stdin with answer(line) until the end of input. A blank line has no reply.

    All that has arrived is answered before waiting for more, so a parent may write ahead as well as wait for each
    reply.
    """
    # The implementation's own prints must not end up among the replies.
    replies_to = os.dup(1)
    os.dup2(2, 1)
    sys.stdout = sys.stderr

    replies = []
    num_bytes = 0
    partial = []
    while True:
        chunk = os.read(0, _READ_BYTES)
        if not chunk:
            break
        if b"\n" not in chunk:
            partial.append(chunk)
            continue
        lines = b"".join(partial + [chunk]).split(b"\n")
        partial = [lines.pop()]
        for line in lines:
            if not line or line.isspace():
                continue
            try:
                reply = answer(line.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")
            except BaseException:
                # The replies so far show which command the implementation broke down on.
                if replies:
                    _write(replies_to, replies)
                raise
            replies.append(reply)
            num_bytes += len(reply) + 1
            if num_bytes >= _WRITE_BYTES:
                _write(replies_to, replies)
                num_bytes = 0
        if replies:
            _write(replies_to, replies)
            num_bytes = 0


def _write(descriptor: int, replies: list) -> None:
    rest = memoryview(b"\n".join(replies) + b"\n")
    replies.clear()
    try:
        while rest:
            rest = rest[os.write(descriptor, rest):]
    except BrokenPipeError:
        # Nobody reads any more: a check that has seen enough ends so.
        sys.exit(0)
