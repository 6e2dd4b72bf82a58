"""The eviction policies and the offloading manager of a real vLLM release driven by the commands of
contract/eviction/eviction_target.h and contract/offload/offload_target.h.

Every decision comes from upstream's classes. The adapter itself decides only what contract/eviction/cache_policy.h and
contract/offload/offloading_manager.h refuse and upstream would not refuse cleanly: README.md has the list. Where upstream does
refuse by itself, before it has changed anything, it is called and has to.
"""

from __future__ import annotations

import importlib
import inspect
from collections import Counter
from typing import Any, Callable, Dict, Iterable, List, Optional

import eviction_target
import offload_target
from line_language import print_decimal, print_integers
from session import Unsupported
from upstream_pool import Modules, UpstreamChanged

# The length of upstream's block hashes.
_KEY_BYTES = 32


class KVOffload:
    """The offloading modules of one release."""

    def __init__(self, modules: Modules):
        self.modules = modules
        self.version = modules.release.version
        self.manager = importlib.import_module("vllm.v1.kv_offload.cpu.manager")
        manager = self.manager.CPUOffloadingManager
        # The rules of contract/core/rules.h as this release has them.
        self.lookup_by_key = "key" in inspect.signature(manager.lookup).parameters
        self.offload_reset = hasattr(manager, "reset_cache")
        self.arc_refuses_with_idle_t1 = self._refuses_with_idle_t1()
        if self.lookup_by_key:
            self.reuse_manager = None
            self.context = (importlib.import_module("vllm.v1.kv_offload.base").ReqContext(req_id=""),)
        else:
            self.reuse_manager = importlib.import_module("vllm.v1.kv_offload.reuse_manager")
            self.context = ()

    def make_policy(self, config: Any) -> Any:
        name = {"lru": "LRUCachePolicy", "arc": "ARCCachePolicy"}[config.policy]
        return getattr(self.manager, name)(cache_capacity=config.capacity)

    def make_managers(self, policy: str, capacity: int, enable_events: bool, store_threshold: int,
                      max_tracker_size: int, block_size: int = 1) -> tuple:
        """A CPUOffloadingManager, and in front of it FilterReusedOffloadingManager if 0.19.0 filters."""
        settings = {"num_blocks": capacity, "cache_policy": policy, "enable_events": enable_events}
        if self.reuse_manager is None:
            manager = self.manager.CPUOffloadingManager(**settings, store_threshold=store_threshold,
                                                        max_tracker_size=max_tracker_size)
            return manager, manager
        manager = self.manager.CPUOffloadingManager(**settings, block_size=block_size)
        if store_threshold < 2:
            return manager, manager
        return manager, self.reuse_manager.FilterReusedOffloadingManager(manager, store_threshold, max_tracker_size)

    def make_block(self, slot: int) -> Any:
        return self.manager.BlockStatus(slot)

    def check_supported(self, config: Any) -> None:
        """Raises Unsupported."""
        if config.arc_refuses_with_idle_t1 not in (None, self.arc_refuses_with_idle_t1):
            has = str(self.arc_refuses_with_idle_t1).lower()
            raise Unsupported(f"vLLM {self.version} has arc_refuses_with_idle_t1={has}")

    def _refuses_with_idle_t1(self) -> bool:
        policy = self.manager.ARCCachePolicy(cache_capacity=2)
        block = self.make_block(0)
        block.ref_cnt = 0
        policy.insert(b"", block)
        policy.target_t1_size = 2.0
        return policy.evict(1, set()) is None


class _Keys:
    """Numbers <-> the bytes that upstream sees."""

    def __init__(self):
        self._numbers: Dict[bytes, int] = {}
        self._keys: Dict[int, bytes] = {}

    def of(self, number: int) -> bytes:
        key = self._keys.get(number)
        if key is None:
            key = self._keys[number] = number.to_bytes(_KEY_BYTES, "big")
            self._numbers[key] = number
        return key

    def list_of(self, numbers: List[int]) -> List[bytes]:
        return [self.of(number) for number in numbers]

    def number(self, key: bytes) -> int:
        return self._numbers[key]

    def numbers(self, keys: Iterable[bytes]) -> str:
        return print_integers([self._numbers[key] for key in keys])


class KeyBytes:
    """Keys in replies as they are."""

    @staticmethod
    def number(key: bytes) -> str:
        return "0x" + key.hex()

    def numbers(self, keys: Iterable[bytes]) -> str:
        return f"[{' '.join(map(self.number, keys))}]"


class PolicyView:
    """The observed state of one policy of upstream."""

    def __init__(self, policy: Any, keys: Any = None):
        """keys: their form in replies; by default numbers."""
        self.policy = policy
        self.keys = keys or _Keys()
        self._target_texts: Dict[float, str] = {}

    def blocks(self) -> Dict[bytes, Any]:
        """What is held, by key."""
        policy = self.policy
        return policy.blocks if hasattr(policy, "blocks") else {**policy.t1, **policy.t2}

    def size(self) -> int:
        policy = self.policy
        return len(policy.blocks) if hasattr(policy, "blocks") else len(policy.t1) + len(policy.t2)

    def entry(self, key: bytes, block: Any) -> str:
        text = f"(block key={self.keys.number(key)} slot={block.block_id}"
        if block.ref_cnt >= 0:
            text += " ready=true"
        if block.ref_cnt > 0:
            text += f" readers={block.ref_cnt}"
        return text + ")"

    def target(self) -> str:
        target = float(getattr(self.policy, "target_t1_size", 0.0))
        text = self._target_texts.get(target)
        if text is None:
            text = self._target_texts[target] = print_decimal(target)
        return text

    def state(self) -> str:
        policy = self.policy
        if hasattr(policy, "blocks"):
            return f" t1={self._entries(policy.blocks)} t2=[] b1=[] b2=[]"
        numbers = self.keys.numbers
        return (f" t1={self._entries(policy.t1)} t2={self._entries(policy.t2)} b1={numbers(policy.b1)}"
                f" b2={numbers(policy.b2)}")

    def _entries(self, blocks: Dict[bytes, Any]) -> str:
        return "[" + " ".join([self.entry(key, block) for key, block in blocks.items()]) + "]"


class UpstreamEviction:
    """One policy. What upstream's manager does to a block's ref_cnt, the adapter does."""

    def __init__(self, modules: KVOffload, config: eviction_target.Config):
        modules.check_supported(config)
        self._modules = modules
        self._config = config
        self._view = PolicyView(modules.make_policy(config))

    def get(self, number: int) -> str:
        key, block = self._find(number)
        return f"error=none found=[{'' if block is None else self._view.entry(key, block)}]"

    def insert(self, number: int, slot: int) -> str:
        key, block = self._find(number)
        if block is not None:
            return "error=already_stored"
        if self._view.size() >= self._config.capacity:
            return "error=no_free_blocks"
        self._view.policy.insert(key, self._modules.make_block(slot))
        return "error=none"

    def remove(self, number: int) -> str:
        key, block = self._find(number)
        if block is None:
            # ARC does nothing, LRU refuses.
            try:
                self._view.policy.remove(key)
            except KeyError:
                return "error=unknown_key"
            if self._config.policy == "lru":
                raise UpstreamChanged("remove did not refuse an absent key")
            return "error=unknown_key"
        self._view.policy.remove(key)
        return "error=none"

    def make_ready(self, number: int) -> str:
        _, block = self._find(number)
        if block is None:
            return "error=unknown_key"
        if block.is_ready:
            return "error=already_ready"
        block.ref_cnt = 0
        return "error=none"

    def acquire(self, number: int) -> str:
        _, block = self._find(number)
        if block is None:
            return "error=unknown_key"
        if not block.is_ready:
            return "error=not_ready"
        block.ref_cnt += 1
        return "error=none"

    def release(self, number: int) -> str:
        _, block = self._find(number)
        if block is None:
            return "error=unknown_key"
        if not block.is_ready:
            return "error=not_ready"
        if block.ref_cnt == 0:
            return "error=not_reading"
        block.ref_cnt -= 1
        return "error=none"

    def touch(self, numbers: List[int]) -> str:
        self._view.policy.touch(self._view.keys.list_of(numbers))
        return "error=none"

    def evict(self, num_blocks: int, protected: List[int]) -> str:
        keys = self._view.keys
        evicted = self._view.policy.evict(num_blocks, set(keys.list_of(protected)))
        if evicted is None:
            return "error=none success=false"
        victims = [f"(evicted key={keys.number(key)} slot={block.block_id})" for key, block in evicted]
        return f"error=none success=true evicted=[{' '.join(victims)}]"

    def clear(self) -> str:
        if hasattr(self._view.policy, "clear"):
            self._view.policy.clear()
        else:
            self._view.policy = self._modules.make_policy(self._config)
        return "error=none"

    def observe(self, state: bool) -> str:
        text = f" size={self._view.size()} target_t1_size={self._view.target()}"
        return text + self._view.state() if state else text

    def _find(self, number: int) -> tuple:
        key = self._view.keys.of(number)
        return key, self._view.policy.get(key)


class UpstreamOffload:
    """One CPUOffloadingManager, with FilterReusedOffloadingManager around it if 0.19.0 filters."""

    def __init__(self, modules: KVOffload, config: offload_target.Config):
        modules.check_supported(config)
        self._modules = modules
        self._context = modules.context
        self._cpu_manager, self._manager = modules.make_managers(
            config.policy, config.capacity, config.enable_events, config.store_threshold, config.max_tracker_size)
        self._view = PolicyView(self._cpu_manager._policy)

    def lookup(self, numbers: List[int]) -> str:
        if self._modules.lookup_by_key:
            return "error=not_in_profile"
        return f"error=none num_hits={self._manager.lookup(self._view.keys.list_of(numbers))}"

    def lookup_key(self, number: int) -> str:
        if not self._modules.lookup_by_key:
            return "error=not_in_profile"
        result = self._manager.lookup(self._view.keys.of(number), *self._context)
        return "error=none result=" + {False: "miss", None: "pending", True: "hit"}[result]

    def touch(self, numbers: List[int]) -> str:
        self._manager.touch(self._view.keys.list_of(numbers), *self._context)
        return "error=none"

    def prepare_load(self, numbers: List[int]) -> str:
        keys, blocks = self._find(numbers)
        code = None
        if None in blocks:
            code = "unknown_key"
        elif not all(block.is_ready for block in blocks):
            code = "not_ready"
        if code is not None:
            if blocks[0] is None or not blocks[0].is_ready:
                self._has_to_refuse(self._manager.prepare_load, keys)
            return f"error={code}"
        spec = self._manager.prepare_load(keys, *self._context)
        return f"error=none slots={print_integers(spec.block_ids)}"

    def complete_load(self, numbers: List[int]) -> str:
        keys, blocks = self._find(numbers)
        code = None
        if None in blocks:
            code = "unknown_key"
        elif any(block.ref_cnt < num_listed for block, num_listed in zip(blocks, map(Counter(keys).get, keys))):
            code = "not_reading"
        if code is not None:
            if blocks[0] is None or blocks[0].ref_cnt <= 0:
                self._has_to_refuse(self._manager.complete_load, keys)
            return f"error={code}"
        self._manager.complete_load(keys, *self._context)
        return "error=none"

    def prepare_store(self, numbers: List[int]) -> str:
        keys, blocks = self._find(numbers)
        to_store = [key for key, block in zip(keys, blocks) if block is None and self._passes_filter(key)]
        if len(set(to_store)) < len(to_store):
            return "error=listed_twice"
        # Upstream names its victims by their keys alone.
        slots = {key: block.block_id for key, block in self._view.blocks().items()}
        output = self._manager.prepare_store(keys, *self._context)
        if output is None:
            return "error=none stored=false"
        if self._modules.lookup_by_key:
            stored_keys, evicted_keys = output.keys_to_store, output.evicted_keys
        else:
            stored_keys, evicted_keys = output.block_hashes_to_store, output.block_hashes_evicted
        number = self._view.keys.number
        evicted = " ".join([f"(evicted key={number(key)} slot={slots[key]})" for key in evicted_keys])
        return (f"error=none stored=true keys_to_store={self._view.keys.numbers(stored_keys)}"
                f" slots={print_integers(output.store_spec.block_ids)} evicted=[{evicted}]")

    def complete_store(self, numbers: List[int], success: bool) -> str:
        self._manager.complete_store(self._view.keys.list_of(numbers), *self._context, success=success)
        return "error=none"

    def reset_cache(self) -> str:
        if not self._modules.offload_reset:
            return "error=not_in_profile"
        self._manager.reset_cache()
        return "error=none"

    def take_events(self) -> str:
        return f"error=none events=[{' '.join(map(self._event_text, self._manager.take_events()))}]"

    def observe(self, state: bool) -> str:
        view = self._view
        text = (f" size={view.size()} num_free_slots={self._cpu_manager._get_num_free_blocks()}"
                f" target_t1_size={view.target()}")
        return text + view.state() if state else text

    def _find(self, numbers: List[int]) -> tuple:
        keys = self._view.keys.list_of(numbers)
        return keys, [self._view.policy.get(key) for key in keys]

    def _passes_filter(self, key: bytes) -> bool:
        counts: Optional[Dict[bytes, int]] = getattr(self._manager, "counts", None)
        return counts is None or counts.get(key, 0) >= self._manager.store_threshold

    def _has_to_refuse(self, call: Callable, keys: List[bytes]) -> None:
        """Whether upstream refuses at the first key, before it has changed anything."""
        try:
            call(keys, *self._context)
        except AssertionError:
            return
        raise UpstreamChanged(f"{call.__name__} did not refuse its first key")

    def _event_text(self, event: Any) -> str:
        keys = event.keys if self._modules.lookup_by_key else event.block_hashes
        return f"(event keys={self._view.keys.numbers(keys)}{' removed=true' if event.removed else ''})"
