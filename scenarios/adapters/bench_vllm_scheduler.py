#!/usr/bin/env python3
"""Times a step of steady decode of the real Scheduler of vLLM, and prints one JSON object.

The shape, which the C++ benchmark repeats. --num-requests N are running, each of other tokens, none of which stops;
request i has a prompt of 128 + i % 16 tokens. Caching on, events off, block size and hash block size 16, sha256_cbor,
seed "0", one group of full attention, 25 blocks per request and the null block, policy fcfs, statistics on; no
connector, no speculation, not asynchronous. A first step schedules all prompts. Then every step schedules one token of
every request and takes one token back for each: in 16 steps each request takes a block, and fills, hashes and caches
one, N / 16 requests in every step.

  schedule            Scheduler.schedule
  update_from_output  Scheduler.update_from_output, with upstream's own ModelRunnerOutput, made beforehand
  step                both

A repetition starts from the beginning and runs 256 steps, fewer if N is large: at least 16, and otherwise at most 16384
tokens. Python's garbage collector is off meanwhile; the engine freezes its heap likewise. The EngineCoreOutput of each
token is a msgspec structure in the engine and a dataclass here (upstream_import.py): about 0.6 us per token more, 0.15 of
1.75 ms per step at 256 requests (measured against msgspec 0.22.0).

example: bench_vllm_scheduler.py --release 0.19.0 --num-requests 256
"""

from __future__ import annotations

import gc
import sys
import time
from typing import Any, Dict

from bench_common import check, run
from kv_cache_target import Group
from upstream_pool import Modules
from upstream_scheduler import Settings, make_output, make_request, make_scheduler

BLOCK_SIZE = 16
PROMPT_TOKENS = 128
MAX_STEPS = 256
MAX_TOKENS = PROMPT_TOKENS + BLOCK_SIZE + MAX_STEPS


class Bench:
    def __init__(self, modules: Modules, num_requests: int):
        self._modules = modules
        self._num_requests = num_requests
        self._num_steps = BLOCK_SIZE * max(1, min(MAX_STEPS, 16_384 // num_requests) // BLOCK_SIZE)
        self._hasher = modules.block_hasher("sha256_cbor", "0", BLOCK_SIZE)
        self._settings = Settings(
            num_gpu_blocks=1 + num_requests * (MAX_TOKENS // BLOCK_SIZE),
            groups=[Group("full", BLOCK_SIZE)],
            enable_kv_cache_events=False,
            hash_block_size=BLOCK_SIZE,
            max_model_len=MAX_TOKENS + 1,
            max_num_batched_tokens=num_requests * (PROMPT_TOKENS + BLOCK_SIZE),
            max_num_seqs=num_requests,
            take_new_block_ids=False,
        )

    def _output(self, step: int) -> Any:
        return make_output({str(number): [step] for number in range(self._num_requests)})

    def repetition(self) -> Dict[str, float]:
        """Nanoseconds per step of each operation."""
        scheduler = make_scheduler(self._modules, self._settings)
        for number in range(self._num_requests):
            first = number * MAX_TOKENS
            tokens = list(range(first, first + PROMPT_TOKENS + number % BLOCK_SIZE))
            scheduler.add_request(make_request(self._modules, str(number), tokens, self._hasher, MAX_TOKENS))
        scheduler.update_from_output(scheduler.schedule(), self._output(0))
        results = [self._output(step) for step in range(1, self._num_steps + 1)]

        clock = time.perf_counter_ns
        schedule_ns = update_ns = num_scheduled = 0
        gc.collect()
        gc.disable()
        for result in results:
            begin = clock()
            output = scheduler.schedule()
            middle = clock()
            scheduler.update_from_output(output, result)
            end = clock()
            schedule_ns += middle - begin
            update_ns += end - middle
            num_scheduled += output.total_num_scheduled_tokens
        gc.enable()

        check(num_scheduled == self._num_requests * self._num_steps and len(scheduler.running) == self._num_requests)
        times = {"schedule": schedule_ns, "update_from_output": update_ns, "step": schedule_ns + update_ns}
        return {name: total / self._num_steps for name, total in times.items()}


if __name__ == "__main__":
    sys.exit(run(__doc__, Bench, "step", "--num-requests", range(1, 16_385), 256))
