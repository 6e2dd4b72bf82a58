"""The KV cache of a layer as symbols, and a model that computes it, as in contract/scripted/scripted_kv_cache.h.

A layer is what upstream's workers take for a tensor of the shape [blocks, 2, block_size]: a symbol stands for the key
and the value of a slot.
"""

from __future__ import annotations

from typing import Any, Callable, Iterator, List, Sequence, Tuple

from minimal_torch import Constant, Integers, Rows

NOTHING_COMPUTED = 0
FILLED_WITH_DUMMIES = 1
NULL_BLOCK = 0


def _symbol_before(layer: int) -> int:
    return (2166136261 + layer) & 0xFFFFFFFF


def _symbol_after(before: int, token: int) -> int:
    return (before * 16777619 & 0xFFFFFFFF) ^ (token + 1 & 0xFFFFFFFF)


def symbols_of(layer: int, tokens: Sequence[int]) -> Iterator[int]:
    """The symbols that the model computes in a layer for each token of a sequence."""
    symbol = _symbol_before(layer)
    for token in tokens:
        symbol = _symbol_after(symbol, token)
        yield symbol


class Layer:
    """One layer's cache of one rank. Slot block * block_size + offset is that of a block's token at that offset."""

    device = "none"
    dtype = None

    def __init__(self, number: int, num_blocks: int, block_size: int,
                 written: Callable[[int, List[int], List[int]], None], filled: Callable[[int, List[int]], None]):
        """written(number, blocks, symbols), filled(number, blocks): called for what a connector did."""
        self.number = number  # of all ranks' layers
        self.shape = (num_blocks, 2, block_size)
        self.symbols = [NOTHING_COMPUTED] * (num_blocks * block_size)
        self._block_size = block_size
        self._written = written
        self._filled = filled

    def compute(self, blocks: Sequence[int], first_token: int, tokens: Sequence[int]) -> None:
        """As ScriptedKVCache::compute."""
        size = self._block_size
        for token, value in enumerate(tokens, first_token):
            if blocks[token // size] == NULL_BLOCK:
                continue
            last = token - 1
            before = self.symbols[blocks[last // size] * size + last % size] if token else _symbol_before(self.number)
            self.symbols[blocks[token // size] * size + token % size] = _symbol_after(before, value)

    # ---- What upstream calls ----

    def __getitem__(self, index: Tuple[Integers, slice, Integers]) -> Rows:
        slots = self._slots(index)
        return Rows([self.symbols[slot] for slot in slots], self._blocks(slots))

    def __setitem__(self, index: Any, source: Any) -> None:
        if type(source) is Constant:
            self._fill(index, source)
            return
        slots = self._slots(index)
        if len(source.values) != len(slots):
            raise RuntimeError(f"{len(source.values)} tokens for {len(slots)} slots")
        for slot, symbol in zip(slots, source.values):
            self.symbols[slot] = symbol
        self._written(self.number, self._blocks(slots), source.values)

    def _fill(self, blocks: Integers, source: Constant) -> None:
        assert source.shape == (len(blocks), *self.shape[1:])
        size = self._block_size
        for block in blocks.values:
            self.symbols[block * size:(block + 1) * size] = [source.value] * size
        self._filled(self.number, blocks.values)

    def _slots(self, index: Tuple[Integers, slice, Integers]) -> List[int]:
        blocks, keys_and_values, offsets = index
        assert keys_and_values == slice(None)
        return [block * self._block_size + offset for block, offset in zip(blocks.values, offsets.values)]

    def _blocks(self, slots: List[int]) -> List[int]:
        return [slot // self._block_size for slot in slots[::self._block_size]]
