"""Folders with one file per layer, as in contract/connectors/synchronous/shared_storage.h, on real files in a folder of their own.

Files are those of safetensors: 8 bytes with the length of a header, the header, the tensor. A storage stands for what
upstream's ExampleConnector calls of `os` and of `safetensors.torch`; commands choose the operations that fail.
"""

from __future__ import annotations

import errno
import json
import os
import pathlib
import re
import shutil
import struct
import tempfile
import weakref
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple

from minimal_torch import Rows

# The operations on a file that can fail, in the order of saving and loading.
OPERATIONS = ("make_folder", "create", "write", "open", "read")

_FILE_NAME = "model.layers.{}.self_attn.attn.safetensors"
_file_name = re.compile(_FILE_NAME.replace(".", r"\.").format("([0-9]+)"))


def layer_name(layer: int) -> str:
    return _FILE_NAME.format(layer).removesuffix(".safetensors")


def layer_of(name: str) -> int:
    """Of the name of a layer or of its file."""
    return int(name.split(".")[2])


class StoredFile(NamedTuple):
    folder: str
    layer: int
    symbols: Optional[List[int]]  # None: not whole


class ScriptedStorage:
    """A temporary folder, removed with this object or at the end of the process."""

    path = os.path  # as a part of upstream's `os`

    def __init__(self) -> None:
        self.root = tempfile.mkdtemp(prefix="kvfence-")
        weakref.finalize(self, shutil.rmtree, self.root, ignore_errors=True)
        # The layer whose file is about to be named.
        self.layer = 0
        self._faults: Set[Tuple[int, str]] = set()

    # ---- What upstream calls ----

    def makedirs(self, folder: str, exist_ok: bool) -> None:
        assert exist_ok
        self._may_fail(self.layer, "make_folder")
        os.makedirs(folder, exist_ok=True)

    def save_file(self, tensors: Dict[str, Rows], filename: str) -> None:
        layer = layer_of(os.path.basename(filename))
        file = pathlib.Path(filename)
        file.unlink(missing_ok=True)
        self._may_fail(layer, "create")
        data = _encode(tensors["kv_cache"].values)
        try:
            self._may_fail(layer, "write")
        except OSError:
            file.write_bytes(data[:-1])
            raise
        file.write_bytes(data)

    def load_file(self, filename: str, device: str = "") -> Dict[str, Rows]:
        layer = layer_of(os.path.basename(filename))
        self._may_fail(layer, "open")
        data = pathlib.Path(filename).read_bytes()
        self._may_fail(layer, "read")
        symbols = _decode(data)
        if symbols is None:
            raise OSError(errno.EIO, "not the whole file", filename)
        return {"kv_cache": Rows(symbols)}

    def _may_fail(self, layer: int, operation: str) -> None:
        if (layer, operation) in self._faults:
            self._faults.remove((layer, operation))
            raise OSError(errno.EIO, f"{operation} fails in layer {layer}")

    # ---- Commands ----

    def fail_next(self, layer: int, operation: str) -> None:
        self._faults.add((layer, operation))

    def make_folder(self, folder: str) -> None:
        os.makedirs(os.path.join(self.root, folder), exist_ok=True)

    def put_file(self, folder: str, layer: int, symbols: Sequence[int]) -> None:
        self._file(folder, layer).write_bytes(_encode(symbols))

    def remove_folder(self, folder: str) -> bool:
        """Whether it was there; likewise below."""
        try:
            shutil.rmtree(os.path.join(self.root, folder))
        except FileNotFoundError:
            return False
        return True

    def remove_file(self, folder: str, layer: int) -> bool:
        try:
            self._file(folder, layer).unlink()
        except FileNotFoundError:
            return False
        return True

    def truncate_file(self, folder: str, layer: int) -> bool:
        file = self._file(folder, layer)
        if not file.is_file():
            return False
        os.truncate(file, max(file.stat().st_size, 1) - 1)
        return True

    def _file(self, folder: str, layer: int) -> pathlib.Path:
        return pathlib.Path(self.root, folder, _FILE_NAME.format(layer))

    # ---- What is observed ----

    def folders(self) -> List[str]:
        return sorted(os.listdir(self.root))

    def files(self) -> Iterator[StoredFile]:
        """By folder and layer."""
        for folder in self.folders():
            names = os.listdir(os.path.join(self.root, folder))
            for layer in sorted([int(_file_name.fullmatch(name)[1]) for name in names]):
                yield StoredFile(folder, layer, _decode(self._file(folder, layer).read_bytes()))


def _encode(symbols: Sequence[int]) -> bytes:
    num_bytes = 4 * len(symbols)
    tensor: Dict[str, Any] = {"dtype": "U32", "shape": [len(symbols)], "data_offsets": [0, num_bytes]}
    header = json.dumps({"kv_cache": tensor}).encode()
    return struct.pack(f"<Q{len(header)}s{len(symbols)}I", len(header), header, *symbols)


def _decode(data: bytes) -> Optional[List[int]]:
    """Nothing for a file of the wrong length."""
    if len(data) < 8:
        return None
    (header_size,) = struct.unpack_from("<Q", data)
    header = data[8:8 + header_size]
    if len(header) < header_size:
        return None
    (num_symbols,) = json.loads(header)["kv_cache"]["shape"]
    if len(data) != 8 + header_size + 4 * num_symbols:
        return None
    return list(struct.unpack_from(f"<{num_symbols}I", data, 8 + header_size))
