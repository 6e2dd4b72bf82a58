#!/usr/bin/env python3
"""Runs my_indexer on `kvfence replay --publish`: it must be right if the events are, and wrong if they are not.

Usage: check_my_indexer.py KVFENCE. Exit status: 0, 1, or 77 where ZeroMQ or a Python package of it is absent.
"""

import importlib.util
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
TRACE = HERE.parent / "traffic" / "mooncake_conversation_excerpt.jsonl"
CANNOT_RUN = 77

POOL = ("--gpu-blocks", "1000")
SCHEDULER = ("--target", "scheduler", "--gpu-blocks", "2000", "--block-size", "512", "--profile", "v0.23")
# Options of the publication, and the exit status of the indexer.
RUNS = (
    (POOL, 0),
    ((*POOL, "--encoding", "maps", "--hashes", "low64"), 0),
    ((*SCHEDULER, "--encoding", "arrays"), 0),
    ((*SCHEDULER, "--encoding", "maps"), 0),
    ((*POOL, "--inject", "repeated@7/7"), 0),
    ((*POOL, "--inject", "lost@5/5", "--replay-endpoint", "tcp://127.0.0.1:0"), 0),
    ((*SCHEDULER, "--inject", "lost@5/5", "--replay-endpoint", "tcp://127.0.0.1:0", "--encoding", "maps"), 0),
    ((*POOL, "--inject", "lost@5/5"), 1),
    ((*POOL, "--inject", "removal_left_out@50"), 1),
    ((*POOL, "--planted-bug", "removed_event_dropped_on_reuse"), 1),
)


def run(kvfence, arguments, folder):
    """The exit status of the indexer, and what it printed."""
    truth = folder / "truth.jsonl"
    command = [kvfence, "replay", TRACE, "--quiet", "--publish", "tcp://127.0.0.1:0", "--truth", truth, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as engine:
        first = engine.stdout.readline()
        endpoints = re.findall(r"tcp://\S+[0-9]", first)
        if not endpoints:
            return engine.wait(), first
        indexer = [sys.executable, "-B", HERE / "my_indexer" / "my_indexer.py", endpoints[0], truth, *endpoints[1:]]
        done = subprocess.run(indexer, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120)
        engine.communicate()
    return done.returncode, done.stdout


def main(kvfence):
    for package in ("zmq", "msgpack"):
        if importlib.util.find_spec(package) is None:
            print(f"check_my_indexer.py: no Python package {package}: my_indexer cannot run here")
            return CANNOT_RUN
    failures = 0
    for arguments, expected in RUNS:
        with tempfile.TemporaryDirectory() as folder:
            status, text = run(kvfence, arguments, pathlib.Path(folder))
        if status == CANNOT_RUN:
            return CANNOT_RUN
        print(f"{'ok' if status == expected else 'WRONG'}: {' '.join(arguments)}: exit status {status}, "
              f"expected {expected}: {text.strip()[:200]}", flush=True)
        failures += status != expected
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
