#!/usr/bin/env python3
"""A whole block pool in plain lists, as a template for adapters to other engines. Speaks the protocol of README.md.

Rules of profile v0.19. Hashes are small numbers here, so keys and events are not observed; everything else is.
"""

import sys

from block_pool_target import block_pool_target
from line_language import print_integers
from session import Session, Unsupported
from wire import serve

DESCRIPTION = (
    "implementation=minimal_pool observes=[error hit blocks success num_free_blocks num_empty num_cached"
    " num_referenced num_cached_keys usage free_queue ref_cnts]"
)


class Refused(Exception):
    """An error code of contract/core/status.h."""


def refusing(method):
    """Turns Refused into its answer."""

    def answer(*arguments):
        try:
            return f"error=none{method(*arguments) or ''}"
        except Refused as code:
            return f"error={code}"

    return answer


class Request:
    def __init__(self, lora_name, cache_salt, mm_features):
        self.tokens, self.lora_name, self.cache_salt, self.items = [], lora_name, cache_salt, mm_features
        self.hashes = []

    def extra_keys(self, start, end, cursor):
        """What the hash depends on besides the tokens, and the next cursor over the multimodal items."""
        keys = [] if self.lora_name is None else [self.lora_name]
        items = self.items
        if items and items[-1].offset + items[-1].length > start:
            cursor %= len(items) + (cursor >= 0)
            while cursor < len(items) and items[cursor].offset < end:
                item_end = items[cursor].offset + items[cursor].length
                if item_end > start:
                    keys.append((items[cursor].identifier, items[cursor].offset - start))
                    if item_end > end:
                        break
                cursor += 1
        if start == 0 and self.cache_salt:
            keys.append(self.cache_salt)
        return tuple(keys), cursor


class MinimalPool:
    def __init__(self, config):
        if config.profile != "v0.19":
            raise Unsupported(f"profile {config.profile}, only v0.19 is known")
        if any((config.free_blocks_prepend, config.cache_full_blocks_mask, config.events_carry_group)):
            raise Unsupported("rules of later profiles")
        self.config = config
        self.requests = {}
        self.hash_of_content = {}
        self.free_queue = list(range(1, config.num_gpu_blocks))
        self.ref_cnts = [0] * config.num_gpu_blocks
        self.keys = [None] * config.num_gpu_blocks
        self.cache = {}  # key -> blocks, first inserted first

    # ---- Requests ----

    def request(self, name, tokens, lora_name, lora_id, cache_salt, mm_features):
        self.requests[name] = Request(lora_name, cache_salt, mm_features)
        return self.append_tokens(name, tokens)

    @refusing
    def append_tokens(self, name, tokens):
        request = self.find_request(name)
        request.tokens += tokens
        size = self.config.hash_block_size
        cursor = -1 if request.hashes else 0
        for start in range(len(request.hashes) * size, len(request.tokens) - size + 1, size):
            extra_keys, cursor = request.extra_keys(start, start + size, cursor)
            parent = request.hashes[-1] if request.hashes else None
            content = (parent, tuple(request.tokens[start : start + size]), extra_keys)
            request.hashes.append(self.hash_of_content.setdefault(content, len(self.hash_of_content)))

    def find_request(self, name):
        if name not in self.requests:
            raise Refused("unknown_request")
        return self.requests[name]

    def merged_hashes(self, request, block_size):
        if not 0 < block_size <= self.config.max_block_size or block_size % self.config.hash_block_size:
            raise Refused("bad_block_size")
        factor = block_size // self.config.hash_block_size
        num_blocks = len(request.hashes) // factor
        return [tuple(request.hashes[index * factor : (index + 1) * factor]) for index in range(num_blocks)]

    # ---- The pool ----

    def need_known(self, blocks):
        if any(block >= len(self.keys) for block in blocks):
            raise Refused("unknown_block")

    def evict(self, block):
        key, self.keys[block] = self.keys[block], None
        if key is not None:
            self.cache[key].remove(block)
            if not self.cache[key]:
                del self.cache[key]

    @refusing
    def get_new_blocks(self, num_blocks):
        if num_blocks > len(self.free_queue):
            raise Refused("no_free_blocks")
        blocks, self.free_queue = self.free_queue[:num_blocks], self.free_queue[num_blocks:]
        for block in blocks:
            self.evict(block)
            self.ref_cnts[block] = 1
        return f" blocks={print_integers(blocks)}"

    @refusing
    def get_cached_block(self, name, index, block_size, groups):
        hashes = self.merged_hashes(self.find_request(name), block_size)
        if index >= len(hashes):
            raise Refused("missing_hash")
        found = [self.cache.get((hashes[index], group)) for group in groups]
        if None in found:
            return " hit=false"
        return f" hit=true blocks={print_integers([blocks[0] for blocks in found])}"

    @refusing
    def touch(self, blocks):
        self.need_known(blocks)
        for block in blocks:
            if block != 0:
                if self.ref_cnts[block] == 0:
                    self.free_queue.remove(block)
                self.ref_cnts[block] += 1

    @refusing
    def cache_full_blocks(self, name, blocks, num_cached_blocks, num_full_blocks, block_size, group, block_mask):
        request = self.find_request(name)
        if block_mask is not None:
            raise Refused("not_in_profile")
        if num_cached_blocks >= num_full_blocks:
            return
        if not self.config.enable_caching:
            raise Refused("caching_disabled")
        hashes = self.merged_hashes(request, block_size)
        if num_full_blocks > len(blocks):
            raise Refused("bad_range")
        if num_full_blocks > len(hashes):
            raise Refused("missing_hash")
        new = blocks[num_cached_blocks:num_full_blocks]
        self.need_known(new)
        if any(block != 0 and (self.keys[block] is not None or new.count(block) > 1) for block in new):
            raise Refused("already_hashed")
        for block, block_hash in zip(new, hashes[num_cached_blocks:]):
            if block != 0:
                self.keys[block] = (block_hash, group)
                self.cache.setdefault((block_hash, group), []).append(block)

    @refusing
    def free_blocks(self, blocks, prepend):
        if prepend:
            raise Refused("not_in_profile")
        self.need_known(blocks)
        for block in blocks:
            listed = blocks.count(block)
            if block != 0 and self.ref_cnts[block] < listed + (listed > 1):
                raise Refused("double_free")
        for block in blocks:
            if block != 0:
                self.ref_cnts[block] -= 1
        self.free_queue += [block for block in blocks if block != 0 and self.ref_cnts[block] == 0]

    @refusing
    def evict_blocks(self, blocks):
        self.need_known(blocks)
        for block in blocks:
            self.evict(block)

    @refusing
    def reset_prefix_cache(self):
        if len(self.free_queue) != len(self.keys) - 1:
            return " success=false"
        self.cache = {}
        self.keys = [None] * len(self.keys)
        return " success=true"

    @refusing
    def take_events(self):
        return ""

    def observe(self, state):
        num_free, num_usable = len(self.free_queue), len(self.keys) - 1
        num_cached = sum(self.keys[block] is not None for block in self.free_queue)
        text = (
            f" num_free_blocks={num_free} num_empty={num_free - num_cached} num_cached={num_cached}"
            f" num_referenced={len(self.keys) - num_free} num_cached_keys={len(self.cache)}"
            f" usage={1.0 - num_free / num_usable if num_usable else 0.0}"
        )
        if state:
            text += f" free_queue={print_integers(self.free_queue)} ref_cnts={print_integers(self.ref_cnts)}"
        return text


if __name__ == "__main__":
    serve(Session(lambda: DESCRIPTION, block_pool_target(MinimalPool)).answer)
    sys.exit(0)
