#!/usr/bin/env python3
"""Compares the speed of `kvfence audit` with a plain indexer in Python that makes the same checks of each event.

Usage: compare_speed.py KVFENCE RECORDING [FUNCTION], which is xxhash_cbor (the default) or sha256_cbor.
The recording is a sound one with whole hashes, as `kvfence replay TRACE --target scheduler --publish FILE` writes it.
Both take it three times, in turns; shown are events per second of processor time, reading included, the fastest of
each. Exit status: 0, 1 where the two do not agree, 77 without cbor2, msgpack or xxhash.
"""

import hashlib
import json
import os
import pathlib
import struct
import subprocess
import sys
import time

SEED = "0"
# Fields of an array, up to 0.23.
STORED = ("block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium", "lora_name",
          "extra_keys", "group_idx")
REMOVED = ("block_hashes", "medium", "group_idx")


def payloads(recording):
    """Sequence number and payload of each message."""
    at = 16  # after the first line
    while at < len(recording):
        length, _ = struct.unpack_from("<II", recording, at)
        sequence, = struct.unpack_from("<Q", recording, at + 17)
        begin = at + 25
        for _ in ("engine", "topic"):
            begin += 2 + struct.unpack_from("<H", recording, begin)[0]
        at += 8 + length
        yield sequence, recording[begin:at]


class Indexer:
    """A mirror of each group: hash to copies, and the checks of each event."""

    def __init__(self, digest):
        import cbor2
        import msgpack
        self._dumps, self._unpack, self._digest = cbor2.dumps, msgpack.unpackb, digest
        self._root = digest(cbor2.dumps(SEED, canonical=True))
        self._next = 0
        self._AllBlocksCleared(None)
        self.events = self.stored = self.removed = 0

    def take(self, sequence, payload):
        assert sequence == self._next, "a gap"
        self._next += 1
        for event in self._unpack(payload)[1]:
            self.events += 1
            if isinstance(event, list):
                names = {"BlockStored": STORED, "BlockRemoved": REMOVED}.get(event[0], ())
                event = {"type": event[0], **dict(zip(names, event[1:]))}
            getattr(self, "_" + event["type"])(event)

    def _BlockStored(self, event):
        hashes, tokens, size = event["block_hashes"], event["token_ids"], event["block_size"]
        group, parent = event.get("group_idx"), event["parent_block_hash"]
        assert len(tokens) == len(hashes) * size, "counts"
        assert parent is None or (group, parent) in self.copies, "the parent"
        parent = parent or self._root
        for index, block_hash in enumerate(hashes):
            content = parent, tuple(tokens[index * size:(index + 1) * size]), None
            assert self._digest(self._dumps(content, canonical=True)) == block_hash, "the hash"
            key, digest = (group, block_hash), hash(content)
            assert self.contents.setdefault(key, digest) == digest, "two contents"
            self.copies[key] = self.copies.get(key, 0) + 1
            parent = block_hash
        self.stored += len(hashes)

    def _BlockRemoved(self, event):
        for block_hash in event["block_hashes"]:
            key = event.get("group_idx"), block_hash
            assert self.copies.get(key, 0) > 0, "not held"
            self.copies[key] -= 1
            if self.copies[key] == 0:
                del self.copies[key], self.contents[key]
        self.removed += len(event["block_hashes"])

    def _AllBlocksCleared(self, _):
        self.copies, self.contents = {}, {}


def main(kvfence, path, function="xxhash_cbor"):
    try:
        import cbor2  # noqa: F401
        import msgpack  # noqa: F401
        import xxhash
    except ImportError as error:
        print(f"compare_speed.py: {error}", file=sys.stderr)
        return 77
    digest = xxhash.xxh3_128_digest if function == "xxhash_cbor" else lambda text: hashlib.sha256(text).digest()
    python, audited = [], []
    for _ in range(3):
        indexer = Indexer(digest)
        begin = time.process_time()
        for sequence, payload in payloads(pathlib.Path(path).read_bytes()):
            indexer.take(sequence, payload)
        python.append(indexer.events / (time.process_time() - begin))
        command = [kvfence, "audit", path, "--hash-algorithm", function, "--hash-seed", SEED, "--json", "--quiet"]
        begin = sum(os.times()[2:4])
        found = json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True).stdout.splitlines()[-1])
        audited.append(found["events"] / (sum(os.times()[2:4]) - begin))
        theirs = [found[name] for name in ("events", "stored", "hashes_checked", "removed", "gpu_blocks")]
        ours = [indexer.events, indexer.stored, indexer.stored, indexer.removed, len(indexer.copies)]
        if found["findings"] or theirs != ours:
            print(f"compare_speed.py: found {theirs}, expected {ours}", file=sys.stderr)
            return 1
    print(f"{indexer.events:,} events: kvfence audit {max(audited):,.0f} per second, plain Python {max(python):,.0f}")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
