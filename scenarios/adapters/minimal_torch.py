"""The part of torch that the synchronous connectors of upstream use: lists in the place of tensors.

`module.torch = minimal_torch` puts this file in torch's place.
"""

from __future__ import annotations

import array
from typing import Any, List, Optional, Sequence, Tuple

long = "int64"


class Integers:
    """An int64 tensor of one dimension, or of two; values in the order of rows."""

    def __init__(self, values: List[int], shape: Optional[Tuple[int, ...]] = None):
        self.values = values
        self.shape = shape or (len(values),)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: Any) -> Integers:
        """Of one dimension: a slice, or where a mask says so."""
        assert len(self.shape) == 1
        if isinstance(index, slice):
            return Integers(self.values[index])
        return Integers([value for value, chosen in zip(self.values, index) if chosen])

    def reshape(self, shape: Tuple[int, int]) -> Integers:
        assert shape[0] * shape[1] == len(self.values)
        return Integers(self.values, shape)

    def flatten(self) -> Integers:
        return Integers(self.values)

    def __mul__(self, factor: int) -> Integers:
        return Integers([value * factor for value in self.values], self.shape)

    def __add__(self, column: Integers) -> Integers:
        """A row plus a column: all sums."""
        assert self.shape[0] == 1 and column.shape[1] == 1
        return Integers([value + other for other in column.values for value in self.values],
                        (column.shape[0], self.shape[1]))

    def __floordiv__(self, divisor: int) -> Integers:
        return Integers([value // divisor for value in self.values], self.shape)

    def __mod__(self, divisor: int) -> Integers:
        return Integers([value % divisor for value in self.values], self.shape)

    def __lt__(self, bound: int) -> List[bool]:
        return [value < bound for value in self.values]

    def numpy(self) -> array.array:
        """Something with tobytes: 8 bytes each, in the machine's order."""
        return array.array("q", self.values)


class Rows:
    """The values of tokens in a layer, one each, and the blocks that they were taken from, if any."""

    def __init__(self, values: List[int], blocks: Sequence[int] = ()):
        self.values = values
        self.blocks = blocks

    def detach(self) -> Rows:
        return self

    def cpu(self) -> Rows:
        return self

    def cuda(self) -> Rows:
        return self


class Constant:
    """A tensor of one value."""

    def __init__(self, shape: Tuple[int, ...], value: int):
        self.shape = shape
        self.value = value


Tensor = Integers


def tensor(values: Sequence[int], dtype: Any = None, device: Any = None) -> Integers:
    return Integers(list(values))


def arange(start: int, end: int) -> Integers:
    return Integers(list(range(start, end)))


def full(size: Tuple[int, ...], fill_value: int, dtype: Any = None, device: Any = None) -> Constant:
    return Constant(size, fill_value)
