"""The block pool of a real vLLM release driven by the commands of contract/pool/block_pool_target.h.

Every answer comes from upstream's classes. The adapter itself decides only what contract/pool/block_pool.h refuses and
upstream would not refuse cleanly: README.md has the list. Where upstream does refuse by itself, before it has changed
anything, it is called and has to.
"""

from __future__ import annotations

import importlib
import inspect
import os
from collections import Counter
from types import SimpleNamespace
from typing import Any, Callable, Dict, List, Optional, Sequence

from block_pool_target import Config, MmFeature, is_utf8
from line_language import print_integers, print_text
from releases import Release
from session import Unsupported
from upstream_import import use_release

# Key texts that are kept; beyond it they are dropped and made again.
_KEY_TEXTS_MAX = 100_000


class UpstreamChanged(Exception):
    """Upstream accepted a call that it should refuse: the release differs from contract/pool/block_pool.h."""


class Modules:
    """The modules of one release."""

    def __init__(self, release: Release):
        # Events carry the hash itself, not a 64-bit part of it.
        os.environ["VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES"] = "0"
        # Steps list resumed requests apart from new ones.
        os.environ["VLLM_USE_V2_MODEL_RUNNER"] = "0"
        use_release(release.folder)
        self.release = release
        self.hashing = importlib.import_module("vllm.utils.hashing")
        self.kv_cache_utils = importlib.import_module("vllm.v1.core.kv_cache_utils")
        self.block_pool = importlib.import_module("vllm.v1.core.block_pool")
        self.kv_events = importlib.import_module("vllm.distributed.kv_events")
        self.request = importlib.import_module("vllm.v1.request")
        self.envs = importlib.import_module("vllm.envs")
        self.kv_cache_interface = importlib.import_module("vllm.v1.kv_cache_interface")

        pool = self.block_pool.BlockPool
        # The rules of contract/core/rules.h as this release has them.
        self.rules = {
            "free_blocks_prepend": "prepend" in inspect.signature(pool.free_blocks).parameters,
            "cache_full_blocks_mask": "block_mask" in inspect.signature(pool.cache_full_blocks).parameters,
            "events_carry_group": "group_idx" in inspect.get_annotations(self.kv_events.BlockRemoved),
        }

    def block_hasher(self, algorithm: str, seed: str, hash_block_size: int) -> Callable:
        """The function for a request's hashes; sets NONE_HASH, which is global upstream."""
        os.environ["PYTHONHASHSEED"] = seed
        hash_function = self.hashing.get_hash_fn_by_name(algorithm)
        self.kv_cache_utils.init_none_hash(hash_function)
        return self.kv_cache_utils.get_request_block_hasher(hash_block_size, hash_function)

    def make_request(self, name: str, tokens: List[int], block_hasher: Optional[Callable],
                     lora_name: Optional[str] = None, lora_id: int = 0, cache_salt: Optional[str] = None,
                     mm_features: Sequence[MmFeature] = (), skip_reading_prefix_cache: bool = False,
                     **options: Any) -> Any:
        """A real Request: one that generates nothing, unless the options name sampling_params."""
        lora = None
        if lora_name is not None:
            # What LoRARequest has, under both names of each.
            lora = SimpleNamespace(lora_name=lora_name, name=lora_name, lora_int_id=lora_id, adapter_id=lora_id,
                                   lora_path=lora_name)
        options = {
            "sampling_params": None,
            "pooling_params": SimpleNamespace(skip_reading_prefix_cache=skip_reading_prefix_cache),
            "arrival_time": 0.0,
            **options,
        }
        return self.request.Request(
            request_id=name,
            prompt_token_ids=tokens,
            mm_features=[
                SimpleNamespace(identifier=item.identifier,
                                mm_position=SimpleNamespace(offset=item.offset, length=item.length))
                for item in mm_features
            ],
            lora_request=lora,
            cache_salt=cache_salt,
            block_hasher=block_hasher,
            **options,
        )


class _KeyTexts(dict):
    """Packed key -> its text in a reply."""

    def __missing__(self, key: bytes) -> str:
        if len(self) >= _KEY_TEXTS_MAX:
            self.clear()
            self[None] = "none"
        text = self[key] = "0x" + key.hex()
        return text


class PoolView:
    """One BlockPool of upstream: the observation and the commands that every target has."""

    def __init__(self, modules: Modules, pool: Any):
        self._kv_events = modules.kv_events
        self._pool = pool
        self._blocks = pool.blocks
        self._key_texts = _KeyTexts({None: "none"})

    def evict_blocks(self, ids, evict: Callable[[List[int]], None]) -> str:
        """evict: upstream's caller of the pool's evict_blocks."""
        num_blocks = len(self._blocks)
        if ids and max(ids) >= num_blocks:
            # Upstream stops at the first unknown block and keeps what it evicted before it.
            if ids[0] >= num_blocks:
                try:
                    evict(ids)
                except AssertionError:
                    pass
                else:
                    raise UpstreamChanged("evict_blocks did not refuse an unknown block")
            return "error=unknown_block"
        # Upstream declares a set and only iterates it: a list is iterated in the caller's order.
        evict(ids)
        return "error=none"

    def state(self, free_blocks: List[Any], prefix: str = "", keys: Optional[Sequence[Optional[bytes]]] = None) -> str:
        """prefix: of the members' names. keys: by block id, where they are not those of the blocks."""
        ref_cnts = [block.ref_cnt for block in self._blocks]
        # Not maintained upstream: it drifts with every touch and free that lists the null block.
        ref_cnts[self._pool.null_block.block_id] = 0
        if keys is None:
            keys = [block.block_hash for block in self._blocks]
        key_texts = self._key_texts
        return (
            f" {prefix}free_queue=[{' '.join([str(block.block_id) for block in free_blocks])}]"
            f" {prefix}ref_cnts=[{' '.join(map(str, ref_cnts))}]"
            f" {prefix}keys=[{' '.join([key_texts[key] for key in keys])}]"
        )

    def events(self, events: List[Any]) -> str:
        return f"[{' '.join(map(self._event_text, events))}]"

    def _event_text(self, event: Any) -> str:
        events = self._kv_events
        group_idx = getattr(event, "group_idx", None)
        group = "" if group_idx is None else f" group_idx={group_idx}"
        # Only an offloading connector's events are about another place than the GPU.
        medium = " medium=CPU" if getattr(event, "medium", None) == "CPU" else ""
        if isinstance(event, events.BlockRemoved):
            (block_hash,) = event.block_hashes
            return f"(removed block_hash=0x{block_hash.hex()}{group}{medium})"
        if isinstance(event, events.AllBlocksCleared):
            return "(cleared)"
        hashes = " ".join(["0x" + block_hash.hex() for block_hash in event.block_hashes])
        parent = event.parent_block_hash
        lora = ""
        if event.lora_name is not None:
            lora = f" lora_name={print_text(event.lora_name)} lora_id={event.lora_id}"
        extra_keys = ""
        if event.extra_keys is not None and any(keys is not None for keys in event.extra_keys):
            extra_keys = f" extra_keys=[{' '.join(map(_extra_keys_text, event.extra_keys))}]"
        # What a KV-cache manager adds, from 0.23.0 on.
        kind = getattr(event, "kv_cache_spec_kind", None)
        window = getattr(event, "kv_cache_spec_sliding_window", None)
        spec = "" if kind is None else f" kv_cache_spec_kind={kind}"
        if window is not None:
            spec += f" kv_cache_spec_sliding_window={window}"
        return (
            f"(stored block_hashes=[{hashes}] parent_block_hash={'none' if parent is None else '0x' + parent.hex()}"
            f" token_ids={print_integers(event.token_ids)} block_size={event.block_size}{lora}{extra_keys}{group}"
            f"{spec}{medium})"
        )


class UpstreamPool:
    """One BlockPool and the requests that its commands name."""

    def __init__(self, modules: Modules, config: Config):
        self._modules = modules
        self._config = config
        self._rules = modules.rules
        self._hash_list = modules.kv_cache_utils.BlockHashListWithBlockSize
        self._hasher = modules.block_hasher(config.hash_algorithm, config.hash_seed, config.hash_block_size)
        self._pool = modules.block_pool.BlockPool(
            num_gpu_blocks=config.num_gpu_blocks,
            enable_caching=config.enable_caching,
            hash_block_size=config.hash_block_size,
            enable_kv_cache_events=config.enable_kv_cache_events,
        )
        self._view = PoolView(modules, self._pool)
        self._blocks = self._pool.blocks
        self._requests: Dict[str, Any] = {}

    # ---- Commands (contract/pool/block_pool_target.h) ----

    def request(self, name, tokens, lora_name, lora_id, cache_salt, mm_features) -> str:
        self._requests[name] = self._modules.make_request(
            name, tokens, self._hasher, lora_name, lora_id, cache_salt, mm_features)
        return "error=none"

    def append_tokens(self, name, tokens) -> str:
        request = self._requests.get(name)
        if request is None:
            return "error=unknown_request"
        request.append_output_token_ids(tokens)
        return "error=none"

    def get_new_blocks(self, num_blocks) -> str:
        try:
            blocks = self._pool.get_new_blocks(num_blocks)
        except ValueError:
            return "error=no_free_blocks"
        return f"error=none blocks={print_integers([block.block_id for block in blocks])}"

    def get_cached_block(self, name, index, block_size, groups) -> str:
        request = self._requests.get(name)
        if request is None:
            return "error=unknown_request"
        if not self._is_block_size(block_size):
            return "error=bad_block_size"
        hashes = self._hashes(request, block_size)
        if index >= len(hashes):
            return "error=missing_hash"
        blocks = self._pool.get_cached_block(hashes[index], groups)
        if blocks is None:
            return "error=none hit=false"
        return f"error=none hit=true blocks={print_integers([block.block_id for block in blocks])}"

    def touch(self, ids) -> str:
        try:
            blocks = [self._blocks[block_id] for block_id in ids]
        except IndexError:
            return "error=unknown_block"
        self._pool.touch(blocks)
        return "error=none"

    def cache_full_blocks(self, name, ids, num_cached_blocks, num_full_blocks, block_size, group, mask) -> str:
        request = self._requests.get(name)
        if request is None:
            return "error=unknown_request"
        if mask is not None and not self._rules["cache_full_blocks_mask"]:
            return "error=not_in_profile"

        blocks = self._blocks_or_null(ids)
        arguments = [request, blocks, num_cached_blocks, num_full_blocks, block_size, group]
        if mask is not None:
            arguments.append(mask)
        if num_cached_blocks < num_full_blocks:
            num_new = num_full_blocks - num_cached_blocks
            code = self._cache_refusal(request, ids, num_cached_blocks, num_full_blocks, block_size, mask)
            if code is not None:
                hash_block_size = self._config.hash_block_size
                upstream_refuses = (
                    len(request.block_hashes) < num_full_blocks
                    or block_size % hash_block_size != 0
                    or (mask is not None and len(mask) != len(blocks[num_cached_blocks:num_full_blocks]))
                    or (code == "already_hashed" and self._is_first_hashed(blocks, num_cached_blocks, num_new, mask))
                )
                if upstream_refuses:
                    try:
                        self._pool.cache_full_blocks(*arguments)
                    except AssertionError:
                        pass
                    else:
                        raise UpstreamChanged(f"cache_full_blocks did not refuse what kvfence calls {code}")
                return f"error={code}"
        self._pool.cache_full_blocks(*arguments)
        return "error=none"

    def free_blocks(self, ids, prepend) -> str:
        if prepend and not self._rules["free_blocks_prepend"]:
            return "error=not_in_profile"
        try:
            blocks = [self._blocks[block_id] for block_id in ids]
        except IndexError:
            return "error=unknown_block"
        for block_id, num_listed in Counter(ids).items():
            block = self._blocks[block_id]
            # Upstream: ref_cnt falls below 0, or the block joins the queue once for each time it is listed.
            is_too_often = block.ref_cnt < num_listed or block.ref_cnt == num_listed > 1
            if is_too_often and not block.is_null:
                return "error=double_free"
        if prepend:
            self._pool.free_blocks(blocks, prepend=True)
        else:
            self._pool.free_blocks(blocks)
        return "error=none"

    def evict_blocks(self, ids) -> str:
        return self._view.evict_blocks(ids, self._pool.evict_blocks)

    def reset_prefix_cache(self) -> str:
        return f"error=none success={'true' if self._pool.reset_prefix_cache() else 'false'}"

    def take_events(self) -> str:
        return f"error=none events={self._view.events(self._pool.take_events())}"

    # ---- What kvfence refuses (contract/pool/block_pool.h) ----

    def _is_block_size(self, block_size: int) -> bool:
        config = self._config
        return 0 < block_size <= config.max_block_size and block_size % config.hash_block_size == 0

    def _hashes(self, request: Any, block_size: int) -> Sequence[bytes]:
        hash_block_size = self._config.hash_block_size
        if block_size == hash_block_size:
            return request.block_hashes
        return self._hash_list(request.block_hashes, hash_block_size, block_size)

    def _blocks_or_null(self, ids: List[int]) -> List[Any]:
        """The contract ignores unknown ids outside the range; the null block replaces them."""
        try:
            return [self._blocks[block_id] for block_id in ids]
        except IndexError:
            num_blocks = len(self._blocks)
            return [self._blocks[block_id] if block_id < num_blocks else self._pool.null_block for block_id in ids]

    def _cache_refusal(self, request, ids, num_cached_blocks, num_full_blocks, block_size, mask) -> Optional[str]:
        if not self._config.enable_caching:
            return "caching_disabled"
        if not self._is_block_size(block_size):
            return "bad_block_size"
        if num_full_blocks > len(ids):
            return "bad_range"
        if mask is not None and len(mask) != num_full_blocks - num_cached_blocks:
            return "bad_mask"
        if num_full_blocks > len(self._hashes(request, block_size)):
            return "missing_hash"
        new_ids = ids[num_cached_blocks:num_full_blocks]
        if max(new_ids) >= len(self._blocks):
            return "unknown_block"
        seen = set()
        for index, block_id in enumerate(new_ids):
            block = self._blocks[block_id]
            if block.is_null or (mask is not None and not mask[index]):
                continue
            if block.block_hash is not None or block_id in seen:
                return "already_hashed"
            seen.add(block_id)
        return None

    @staticmethod
    def _is_first_hashed(blocks, num_cached_blocks, num_new, mask) -> bool:
        """Whether the first block that is not skipped carries a hash: upstream then refuses before any change."""
        for index in range(num_new):
            block = blocks[num_cached_blocks + index]
            if not block.is_null and (mask is None or mask[index]):
                return block.block_hash is not None
        return False

    # ---- What is observed ----

    def observe(self, state: bool) -> str:
        pool = self._pool
        free_blocks = pool.free_block_queue.get_all_free_blocks()
        num_empty = [block.block_hash for block in free_blocks].count(None)
        num_queued = len(free_blocks)
        text = (
            f" num_free_blocks={pool.get_num_free_blocks()} num_empty={num_empty} num_cached={num_queued - num_empty}"
            f" num_referenced={len(self._blocks) - num_queued} num_cached_keys={len(pool.cached_block_hash_to_block)}"
            f" usage={float(pool.get_usage())!r}"
        )
        return text + self._view.state(free_blocks) if state else text


def _extra_keys_text(keys: Optional[tuple]) -> str:
    if keys is None:
        return "none"
    return "[" + " ".join([
        print_text(key) if isinstance(key, str) else f"(item id={print_text(key[0])} offset={key[1]})" for key in keys
    ]) + "]"


def check_supported(modules: Modules, config: Any) -> None:
    """Raises Unsupported if this release cannot run a configuration of whatever target."""
    version = modules.release.version
    if not (version + ".").startswith(config.profile[1:] + "."):
        raise Unsupported(f"profile {config.profile} on vLLM {version}")
    for rule, has in modules.rules.items():
        if getattr(config, rule, None) not in (None, has):
            raise Unsupported(f"vLLM {version} has {rule}={str(has).lower()}")
    if not hasattr(config, "hash_algorithm"):
        return
    if config.hash_algorithm not in ("sha256_cbor", "xxhash_cbor"):
        raise Unsupported(f"hash_algorithm {config.hash_algorithm}, only sha256_cbor and xxhash_cbor are reproducible")
    if not is_utf8(config.hash_seed) or "\0" in config.hash_seed:
        raise Unsupported("a hash_seed that cannot be the value of PYTHONHASHSEED: zero bytes or not UTF-8")
