#!/usr/bin/env python3
"""Times the real BlockPool of vLLM per block, in bulk, and prints one JSON object.

The shapes, which the C++ benchmark repeats. N blocks (the null block among them), caching on, events off, block size
and hash block size 16, sha256_cbor, seed "0", group 0. "In calls of 1000" means that the last call may be shorter.
The shuffled order is: ids 1 .. N-1 sorted by splitmix64(id), the finaliser of SplitMix64 applied to
id + 0x9e3779b97f4a7c15 modulo 2**64.

  get_new_blocks           all N-1 blocks of a fresh pool, in calls of 1000
  free_blocks              all of them, in shuffled order, in calls of 1000
  touch                    all of them while they are free, in shuffled order, in calls of 1000: each leaves the queue
  cache_full_blocks        one request for each 1000 blocks (ids ascending), each cached by one call over its
                           whole range; request r has the tokens r*16000, r*16000 + 1, ...; its hashes are
                           computed beforehand
  get_cached_block_hit     one hash per call, groups [0], every cached block once, in shuffled order
  get_cached_block_miss    one hash per call, groups [0], as many hashes that are not in the cache
  get_new_blocks_evicting  all N-1 blocks, hashed and free (freed in shuffled order), in calls of 1000: each evicts

Each repetition runs this list once on a fresh pool; times are of the calls alone, the lists that they are given are
built beforehand. Python's garbage collector is off while an operation is timed; the engine freezes its heap likewise.

example: bench_vllm.py --release 0.19.0 --num-blocks 100000
"""

from __future__ import annotations

import gc
import hashlib
import sys
import time
from typing import Callable, Dict, List

from bench_common import check, run
from upstream_pool import Modules

CALL_BLOCKS = 1000
BLOCK_SIZE = 16
_MASK = (1 << 64) - 1


def splitmix64(value: int) -> int:
    value = (value + 0x9E3779B97F4A7C15) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


def in_calls(items: list) -> List[list]:
    return [items[begin : begin + CALL_BLOCKS] for begin in range(0, len(items), CALL_BLOCKS)]


class Bench:
    def __init__(self, modules: Modules, num_blocks: int):
        self._modules = modules
        self._num_blocks = num_blocks
        self._num_usable = num_blocks - 1
        self._order = sorted(range(1, num_blocks), key=splitmix64)
        hasher = modules.block_hasher("sha256_cbor", "0", BLOCK_SIZE)
        self._requests = []
        for number, ids in enumerate(in_calls(list(range(1, num_blocks)))):
            first = number * CALL_BLOCKS * BLOCK_SIZE
            tokens = list(range(first, first + len(ids) * BLOCK_SIZE))
            self._requests.append((modules.make_request(str(number), tokens, hasher), ids))
        hashes = [block_hash for request, _ in self._requests for block_hash in request.block_hashes]
        self._hits = [hashes[block_id - 1] for block_id in self._order]
        self._misses = [hashlib.sha256(b"miss" + block_hash).digest() for block_hash in self._hits]
        self._seconds: Dict[str, float] = {}

    def _time(self, name: str, calls: list, operation: Callable) -> list:
        """Runs operation(*arguments) for each entry of calls; the results."""
        gc.collect()
        gc.disable()
        begin = time.perf_counter()
        results = [operation(*arguments) for arguments in calls]
        self._seconds[name] = time.perf_counter() - begin
        gc.enable()
        return results

    def repetition(self) -> Dict[str, float]:
        """Nanoseconds per block of each operation."""
        pool = self._modules.block_pool.BlockPool(self._num_blocks, True, BLOCK_SIZE, False)
        blocks = pool.blocks
        shuffled = [([blocks[block_id] for block_id in ids],) for ids in in_calls(self._order)]
        counts = [(len(ids),) for ids in in_calls(self._order)]

        self._time("get_new_blocks", counts, pool.get_new_blocks)
        self._time("free_blocks", shuffled, pool.free_blocks)
        self._time("touch", shuffled, pool.touch)
        caching = [(request, [blocks[block_id] for block_id in ids], 0, len(ids), BLOCK_SIZE, 0)
                   for request, ids in self._requests]
        self._time("cache_full_blocks", caching, pool.cache_full_blocks)
        found = self._time("get_cached_block_hit", [(one, [0]) for one in self._hits], pool.get_cached_block)
        missed = self._time("get_cached_block_miss", [(one, [0]) for one in self._misses], pool.get_cached_block)
        for arguments in shuffled:
            pool.free_blocks(*arguments)
        self._time("get_new_blocks_evicting", counts, pool.get_new_blocks)

        found_ids = [hit[0].block_id for hit in found]
        check(found_ids == self._order and not any(missed) and len(pool.cached_block_hash_to_block) == 0)
        return {name: seconds * 1e9 / self._num_usable for name, seconds in self._seconds.items()}


if __name__ == "__main__":
    sys.exit(run(__doc__, Bench, "block", "--num-blocks", range(2, 100_000_001), 100_000))
