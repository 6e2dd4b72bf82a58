#!/usr/bin/env python3
"""Random traffic through the BlockPool of a real vLLM release, published by its own ZmqEventPublisher.

The pool gets the calls of a KV-cache manager: prompts with shared prefixes, some with images, an adapter or a salt,
looked up, cached and freed in one group of whole blocks and, from 0.23.0 on, one of a sliding window with blocks twice
as large. Events are annotated with the kind of their group, as the manager does. The publisher is upstream's, except
that its socket is XPUB instead of PUB, which is the same on the wire and reports subscriptions, so that nothing is
published before there are `--subscribers`. Port * takes a free one; the first line on stdout has it.

Exit status: 0 published, 1 no subscriber, or one that never left; 77 without the release, msgspec or pyzmq.
example: publish_vllm.py 0.33.0 --commands 100000 --seed 1
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time

from block_pool_target import MmFeature
from releases import ReleaseNotFound, find_release

EXIT_CANNOT_RUN = 77
PATIENCE_SECONDS = 60

BLOCK_SIZE = 4
WINDOW = 16
FULL_ATTENTION, SLIDING_WINDOW = 0, 1


class Request:
    """A real request, its blocks by group, and how many of each group are cached."""

    def __init__(self, request, groups):
        self.request = request
        self.blocks = {group: [] for group in groups}
        self.num_cached = dict.fromkeys(groups, 0)


class Traffic:
    """Random commands to one pool, from a seed."""

    def __init__(self, modules, seed, num_blocks, algorithm):
        self.num_commands = 0
        self._modules = modules
        self._random = random.Random(seed)
        self._hasher = modules.block_hasher(algorithm, "0", BLOCK_SIZE)
        self._pool = modules.block_pool.BlockPool(num_blocks, True, BLOCK_SIZE, enable_kv_cache_events=True)
        self._groups = {FULL_ATTENTION: BLOCK_SIZE}
        if modules.rules["events_carry_group"]:
            self._groups[SLIDING_WINDOW] = 2 * BLOCK_SIZE
        self._prompts = [self._tokens(8 * BLOCK_SIZE) for _ in range(8)]
        self._running = []
        self._num_requests = 0

    def step(self):
        """One action, of a few commands; returns the events of the pool."""
        action, = self._random.choices((self._admit, self._grow, self._finish, self._evict, self._reset),
                                       (5, 6, 5, 1, 0.05))
        action()
        events = self._pool.take_events()
        for event in events:
            if getattr(event, "group_idx", None) is not None and hasattr(event, "kv_cache_spec_kind"):
                is_window = event.group_idx == SLIDING_WINDOW
                event.kv_cache_spec_kind = "sliding_window" if is_window else "full_attention"
                event.kv_cache_spec_sliding_window = WINDOW if is_window else None
        return events

    def _tokens(self, number):
        return [self._random.randrange(1000) for _ in range(number)]

    def _call(self, name, *arguments):
        self.num_commands += 1
        return getattr(self._pool, name)(*arguments)

    def _admit(self):
        prompt = self._random.choice(self._prompts)
        tokens = prompt[:self._random.randrange(1, len(prompt))] + self._tokens(self._random.randrange(2 * BLOCK_SIZE))
        lora = self._random.choice((None, None, None, "adapter"))
        salt = self._random.choice((None, None, None, "salt"))
        # None beyond the last full block: 0.33 would look it up with a function of a package that imports torch.
        ends = range(2 * BLOCK_SIZE, len(tokens) + 1, 2 * BLOCK_SIZE)
        items = [MmFeature(f"image{self._random.randrange(2)}", end - BLOCK_SIZE - 1, BLOCK_SIZE + 1)
                 for end in ends if self._random.random() < 0.2]
        self._num_requests += 1
        made = Request(self._modules.make_request(f"r{self._num_requests}", tokens, self._hasher, lora, 7, salt, items),
                       self._groups)
        for group, size in self._groups.items():
            for block_hash in self._hashes(made, size)[:(len(tokens) - 1) // size]:
                hit = self._call("get_cached_block", block_hash, [group])
                if hit is None:
                    break
                made.blocks[group] += hit
            made.num_cached[group] = len(made.blocks[group])
            self._call("touch", made.blocks[group])
        self._running.append(made)
        self._fill(made)

    def _grow(self):
        if self._running:
            made = self._random.choice(self._running)
            made.request.append_output_token_ids(self._tokens(self._random.randrange(1, 2 * BLOCK_SIZE)))
            self._fill(made)

    def _finish(self):
        if self._running:
            self._end(self._random.choice(self._running))

    def _evict(self):
        """As after a failed load, of blocks that no request has."""
        free = [block.block_id for block in self._pool.blocks if block.ref_cnt == 0 and block.block_hash is not None]
        self._call("evict_blocks", set(self._random.sample(free, min(len(free), 2))))

    def _reset(self):
        for made in list(self._running):
            self._end(made)
        self._call("reset_prefix_cache")

    def _hashes(self, made, size):
        hashes = made.request.block_hashes
        if size == BLOCK_SIZE:
            return hashes
        return list(self._modules.kv_cache_utils.BlockHashListWithBlockSize(hashes, BLOCK_SIZE, size))

    def _fill(self, made):
        """Allocates blocks for all tokens, and caches the full ones; the request ends if there is no room."""
        num_tokens = made.request.num_tokens
        for group, size in self._groups.items():
            blocks = made.blocks[group]
            num_new = -(-num_tokens // size) - len(blocks)
            if num_new > self._pool.get_num_free_blocks():
                self._end(made)
                return
            if num_new > 0:
                blocks += self._call("get_new_blocks", num_new)
            first, end = made.num_cached[group], num_tokens // size
            arguments = [made.request, blocks, first, end, size, group]
            if group == SLIDING_WINDOW and first < end and self._random.random() < 0.3:
                arguments.append([self._random.random() < 0.5 for _ in range(first, end)])
            self._call("cache_full_blocks", *arguments)
            made.num_cached[group] = max(first, end)
            tail = num_tokens // BLOCK_SIZE * BLOCK_SIZE
            if hasattr(self._pool, "cache_partial_block") and tail % size and self._random.random() < 0.3:
                self._call("cache_partial_block", made.request, blocks[end], tail, group, size)

    def _end(self, made):
        self._running.remove(made)
        for group in self._groups:
            self._call("free_blocks", made.blocks[group][::-1])


def publisher_of(modules, zmq, options):
    kv_events = modules.kv_events
    zmq.PUB, kept = zmq.XPUB, zmq.PUB
    try:
        publisher = kv_events.ZmqEventPublisher(0, options.endpoint, options.replay_endpoint, topic=options.topic)
    finally:
        zmq.PUB = kept
    publisher._pub.setsockopt(zmq.XPUB_VERBOSER, 1)
    return publisher


def wait_for(socket, number, count):
    """Waits until there are so many subscriptions; returns the new count, or None after the patience."""
    end = time.monotonic() + PATIENCE_SECONDS
    while count != number:
        if not socket.poll(max(0, end - time.monotonic()) * 1000):
            return None
        count += 1 if socket.recv()[:1] == b"\1" else -1
    return count


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("release", help="such as 0.33.0")
    parser.add_argument("--commands", type=int, default=5000, help="calls of the pool (default: 5000)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--num-blocks", type=int, default=200, help="blocks of the pool, with the null block (default: 200)")
    parser.add_argument("--hash-algorithm", default="xxhash_cbor", help="the seed is 0 (default: xxhash_cbor)")
    parser.add_argument("--int-hashes", action="store_true", help="publish 64 bits of a hash, upstream's default")
    parser.add_argument("--endpoint", default="tcp://*:*")
    parser.add_argument("--replay-endpoint", default="tcp://*:*")
    parser.add_argument("--topic", default="")
    parser.add_argument("--subscribers", type=int, default=1, help="wait for this many first (default: 1)")
    options = parser.parse_args()
    try:
        import msgspec._utils  # noqa: F401 before the release, which would get placeholders
        import zmq
        release = find_release(options.release)
    except (ImportError, ReleaseNotFound) as error:
        print(f"publish_vllm.py: {error}", file=sys.stderr)
        return EXIT_CANNOT_RUN
    from upstream_pool import Modules
    modules = Modules(release)
    os.environ["VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES"] = "1" if options.int_hashes else "0"
    traffic = Traffic(modules, options.seed, options.num_blocks, options.hash_algorithm)
    publisher = publisher_of(modules, zmq, options)
    sockets = (publisher._pub, publisher._replay)
    ends = [socket.getsockopt_string(zmq.LAST_ENDPOINT).replace("0.0.0.0", "127.0.0.1") for socket in sockets]
    print(f"publishing on {ends[0]}, replay on {ends[1]}", flush=True)
    count = wait_for(publisher._pub, options.subscribers, 0)
    if count is None:
        print("publish_vllm.py: no subscriber connected", file=sys.stderr)
        return 1
    num_messages = num_events = 0
    while traffic.num_commands < options.commands:
        events = traffic.step()
        if events:
            publisher.publish(modules.kv_events.KVEventBatch(ts=time.time(), events=events))
            num_messages += 1
            num_events += len(events)
    publisher._event_queue.join()
    print(f"published {num_messages} messages, {num_events} events of {traffic.num_commands} commands", flush=True)
    has_left = wait_for(publisher._pub, 0, count) is not None
    publisher.shutdown()
    return 0 if has_left else 1


if __name__ == "__main__":
    sys.exit(main())
