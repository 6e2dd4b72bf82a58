#!/usr/bin/env python3
"""Times a scheduler's calls of the real KVCacheManager of vLLM, per call, and prints one JSON object.

The shapes, which the C++ benchmark repeats. 20000 blocks (the null block among them), caching on, events off, block
size and hash block size 16, sha256_cbor, seed "0"; one group of full attention, in "hybrid" another one with a sliding
window of 1024 tokens. The prompt has --prompt-blocks full blocks and one token more: all of its full blocks may be hit.
It was allocated and freed once, so that they are cached and free. Requests are hashed beforehand.

  allocate_slots_decode         256 running requests of 1024 tokens, each of other tokens, decode 16 tokens one per call,
                                in turns: 4096 calls, each request's first one takes a block and its last one caches it
  get_computed_blocks_hit       the prompt: every full block is hit
  get_computed_blocks_miss      a prompt of that length, of which the first block is not cached already; 1000 calls
  allocate_slots_hit            one new token after that hit: every full block is touched, one block is taken
  free                          the request that was so allocated
  get_computed_blocks_hit_hybrid  as get_computed_blocks_hit, in both groups

Each repetition runs this list once; times are of the calls alone, and of the loop over them if they are many. The clock
is the process's CPU time: a lookup takes as long as a time slice, and otherwise the time of another process in the middle
of it would count in every other repetition. Python's garbage collector is off while an operation is timed; the engine
freezes its heap likewise.

example: bench_vllm_kv_cache.py --release 0.19.0
"""

from __future__ import annotations

import gc
import importlib
import sys
import time
from typing import Any, Callable, Dict

import upstream_kv_cache
from bench_common import check, run
from kv_cache_target import Config, Group
from upstream_pool import Modules

BLOCK_SIZE = 16
NUM_GPU_BLOCKS = 20_000
NUM_RUNNING = 256
RUNNING_TOKENS = 1024
NUM_MISSES = 1000
FULL = Group("full", BLOCK_SIZE)
SLIDING = Group("sliding", BLOCK_SIZE, window=1024)


class Bench:
    def __init__(self, modules: Modules, num_prompt_blocks: int):
        self._modules = modules
        self._num_prompt_blocks = num_prompt_blocks
        self._num_prompt_tokens = num_prompt_blocks * BLOCK_SIZE + 1
        self._manager_type = importlib.import_module("vllm.v1.core.kv_cache_manager").KVCacheManager
        self._hasher = modules.block_hasher("sha256_cbor", "0", BLOCK_SIZE)
        self._prompt = self._request("prompt", 0, self._num_prompt_tokens)
        self._stranger = self._request("stranger", 1_000_000, self._num_prompt_tokens)
        num_tokens = RUNNING_TOKENS + BLOCK_SIZE
        self._running = [self._request(f"running{number}", 2_000_000 + number * num_tokens, num_tokens)
                         for number in range(NUM_RUNNING)]
        self._decoding = self._manager(FULL)
        self._full = self._with_prompt(FULL)
        self._hybrid = self._with_prompt(FULL, SLIDING)
        self._ns: Dict[str, float] = {}

    def _request(self, name: str, first_token: int, num_tokens: int) -> Any:
        return self._modules.make_request(name, list(range(first_token, first_token + num_tokens)), self._hasher)

    def _manager(self, *groups: Group) -> Any:
        config = Config(num_gpu_blocks=NUM_GPU_BLOCKS, enable_kv_cache_events=False, hash_block_size=BLOCK_SIZE,
                        groups=list(groups), max_model_len=self._num_prompt_tokens,
                        max_num_batched_tokens=self._num_prompt_tokens)
        return upstream_kv_cache.make_manager(self._modules, self._manager_type, config)

    def _with_prompt(self, *groups: Group) -> Any:
        manager = self._manager(*groups)
        check(manager.allocate_slots(self._prompt, self._num_prompt_tokens) is not None)
        manager.free(self._prompt)
        return manager

    def _time(self, name: str, num_calls: int, operation: Callable) -> Any:
        """Runs operation(), which makes num_calls calls; its result."""
        gc.collect()
        gc.disable()
        begin = time.process_time_ns()
        result = operation()
        self._ns[name] = (time.process_time_ns() - begin) / num_calls
        gc.enable()
        return result

    def _decode(self) -> None:
        manager = self._decoding
        for request in self._running:
            manager.free(request)
        check(manager.reset_prefix_cache())
        for request in self._running:
            request.num_computed_tokens = 0
            check(manager.allocate_slots(request, RUNNING_TOKENS) is not None)
            request.num_computed_tokens = RUNNING_TOKENS

        def steps() -> None:
            running = self._running
            allocate_slots = manager.allocate_slots
            for _ in range(BLOCK_SIZE):
                for request in running:
                    allocate_slots(request, 1)
                    request.num_computed_tokens += 1

        self._time("allocate_slots_decode", NUM_RUNNING * BLOCK_SIZE, steps)
        num_taken = NUM_RUNNING * (RUNNING_TOKENS // BLOCK_SIZE + 1)
        check(manager.block_pool.get_num_free_blocks() == NUM_GPU_BLOCKS - 1 - num_taken)

    def repetition(self) -> Dict[str, float]:
        """Nanoseconds per call of each operation."""
        self._decode()

        prompt, stranger, manager = self._prompt, self._stranger, self._full
        num_free_blocks = manager.block_pool.get_num_free_blocks
        num_full_tokens = self._num_prompt_blocks * BLOCK_SIZE
        hit, num_tokens = self._time("get_computed_blocks_hit", 1, lambda: manager.get_computed_blocks(prompt))
        check(num_tokens == num_full_tokens)
        misses = self._time("get_computed_blocks_miss", NUM_MISSES,
                            lambda: [manager.get_computed_blocks(stranger) for _ in range(NUM_MISSES)])
        check(not any(miss[1] for miss in misses))
        self._time("allocate_slots_hit", 1, lambda: manager.allocate_slots(prompt, 1, num_tokens, hit))
        check(num_free_blocks() == NUM_GPU_BLOCKS - 1 - (self._num_prompt_blocks + 1))
        self._time("free", 1, lambda: manager.free(prompt))
        check(num_free_blocks() == NUM_GPU_BLOCKS - 1)

        hit, num_tokens = self._time("get_computed_blocks_hit_hybrid", 1,
                                     lambda: self._hybrid.get_computed_blocks(prompt))
        check(num_tokens == num_full_tokens)
        return dict(self._ns)


# The hybrid manager holds the prompt twice.
MAX_PROMPT_BLOCKS = (NUM_GPU_BLOCKS - 1) // 2 - 1

if __name__ == "__main__":
    sys.exit(run(__doc__, Bench, "call", "--prompt-blocks", range(1, MAX_PROMPT_BLOCKS + 1), 8192))
