#!/usr/bin/env python3
"""Times the real eviction policies of vLLM per access and prints one JSON object.

The streams, which the C++ benchmark repeats. The key of a number is the SHA-256 of its 8 bytes, least significant
first. A policy of capacity C holds the keys of 0 .. C-1 beforehand, in the order that the stream says, each inserted
and made ready. Access i, counted from 0 over all passes, is of the key of

  zipf  floor((4C + 1) ** u) - 1, u = (splitmix64(i) >> 11) / 2**53: one of 4C numbers, n with a weight of
        log(1 + 1 / (n + 1)), which is Zipf's law of exponent 1; C-1 was inserted first
  scan  as zipf in every other 1000 accesses, beginning with the first; in the others 2**32 + i, never seen again
  loop  (C + i) modulo (C + C/4), in turn; 0 was inserted first

An access is get(key); if the block is held, touch([key]); if not, evict(1) if C blocks are held, insert into the freed
slot, and ready, like an owner that reads and writes at once. A pass is 1000000 accesses; its keys, new objects in each
pass, are made beforehand.

Times are of the passes alone, by the process's CPU time: a pass is far longer than a time slice. Python's garbage
collector is off; the engine freezes its heap likewise.

example: bench_vllm_eviction.py --release 0.19.0 --capacity 100000
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import json
import math
import platform
import statistics
import sys
import time
from types import SimpleNamespace
from typing import Any, Iterator, List

from bench_vllm import splitmix64
from releases import RELEASE_OF_PROFILE, ReleaseNotFound, find_release
from upstream_offload import KVOffload
from upstream_pool import Modules

POLICIES = ("lru", "arc")
STREAMS = ("zipf", "scan", "loop")
PASS_ACCESSES = 1_000_000
SCAN_LENGTH = 1000
FIRST_SCANNED = 1 << 32


def key_of(number: int) -> bytes:
    return hashlib.sha256(number.to_bytes(8, "little")).digest()


def numbers_of(stream: str, capacity: int) -> Iterator[int]:
    log_num_ranks = math.log(4 * capacity + 1)
    i = 0
    while True:
        if stream == "loop":
            yield (capacity + i) % (capacity + capacity // 4)
        elif stream == "scan" and i // SCAN_LENGTH % 2 == 1:
            yield FIRST_SCANNED + i
        else:
            yield int(math.exp((splitmix64(i) >> 11) * 2.0**-53 * log_num_ranks)) - 1
        i += 1


class Cache:
    """A policy and what its owner does with it."""

    def __init__(self, offload: KVOffload, policy: str, capacity: int):
        self._policy = offload.make_policy(SimpleNamespace(policy=policy, capacity=capacity))
        self._make_block = offload.make_block
        self._capacity = capacity
        self._num_held = 0

    def access(self, keys: List[bytes]) -> int:
        """The number of hits."""
        policy: Any = self._policy
        get, touch, evict, insert, make_block = policy.get, policy.touch, policy.evict, policy.insert, self._make_block
        none_protected: set = set()
        num_hits = 0
        for key in keys:
            if get(key) is not None:
                touch([key])
                num_hits += 1
                continue
            slot = self._num_held
            if slot == self._capacity:
                slot = evict(1, none_protected)[0][1].block_id
            else:
                self._num_held += 1
            insert(key, make_block(slot))
            get(key).ref_cnt = 0
        return num_hits

    def is_full(self) -> bool:
        return self._num_held == self._capacity


def time_stream(offload: KVOffload, policy: str, stream: str, capacity: int, num_passes: int) -> dict:
    cache = Cache(offload, policy, capacity)
    first = range(capacity) if stream == "loop" else range(capacity - 1, -1, -1)
    cache.access([key_of(number) for number in first])
    numbers = numbers_of(stream, capacity)
    num_hits = 0
    times = []
    for _ in range(num_passes):
        keys = [key_of(next(numbers)) for _ in range(PASS_ACCESSES)]
        begin = time.process_time_ns()
        num_hits += cache.access(keys)
        times.append((time.process_time_ns() - begin) / PASS_ACCESSES)
    if not cache.is_full():
        raise SystemExit("bench_vllm_eviction.py: the policy did not do what was timed")
    return {
        "median_ns_per_access": round(statistics.median(times), 1),
        "min": round(min(times), 1),
        "max": round(max(times), 1),
        "hits": num_hits,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--release", metavar="VERSION",
                        help=f"default: {RELEASE_OF_PROFILE['v0.19']}, or what --path has")
    parser.add_argument("--path", metavar="FOLDER", help="where a wheel was unpacked; contains vllm/")
    parser.add_argument("--capacity", type=int, default=100_000)
    parser.add_argument("--repetitions", type=int, default=3, help="passes of each stream")
    arguments = parser.parse_args()
    if arguments.capacity < 4 or arguments.repetitions < 1:
        parser.error("a capacity of at least 4 and 1 repetition")
    version = arguments.release
    if version is None and arguments.path is None:
        version = RELEASE_OF_PROFILE["v0.19"]
    try:
        release = find_release(version, arguments.path)
    except ReleaseNotFound as error:
        print(f"bench_vllm_eviction.py: {error}", file=sys.stderr)
        return 77

    gc.disable()
    offload = KVOffload(Modules(release))
    print(json.dumps({
        "implementation": f"vllm {release.version}",
        "capacity": arguments.capacity,
        "repetitions": arguments.repetitions,
        "python": platform.python_version(),
        "ops": {f"{stream}_{policy}": time_stream(offload, policy, stream, arguments.capacity, arguments.repetitions)
                for policy in POLICIES for stream in STREAMS},
    }))
    return 0


if __name__ == "__main__":
    sys.exit(main())
