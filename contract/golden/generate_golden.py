#!/usr/bin/env python3
"""Writes the golden block hashes: what vLLM's own functions answer, for block_hash_test.cpp.

Drives hash_block_tokens, generate_block_hash_extra_keys, get_request_block_hasher (through
Request), init_none_hash, make_block_hash_with_group_id and BlockHashListWithBlockSize of each
release given, and prints the values once if all releases agree. Output: `#` comment lines, then
one JSON object per line; hashes are hex.

Needs cbor2 and xxhash, and the unpacked wheels (`python3 -m zipfile -e <wheel> <folder>`), or an
installed vLLM if no release is given.

example: generate_golden.py --release v0.19.0=wheels/v0.19.0 --release v0.23.0=wheels/v0.23.0 \\
             > contract/golden/block_hash_golden.txt
"""

import argparse
import collections
import json
import multiprocessing
import os
import pathlib
import sys
from types import SimpleNamespace

ADAPTERS = pathlib.Path(__file__).resolve().parents[2] / "scenarios" / "adapters"

ALGORITHMS = ("sha256_cbor", "xxhash_cbor")
SEEDS = ("0", "", "42", "a seed of more than 23 bytes")

# Both sides of every width of a CBOR integer, as far as a token id reaches.
WIDTH_BOUNDARIES = [0, 23, 24, 255, 256, 65535, 65536, 4294967295]

# Both sides of every width of a CBOR length, and text of more than one byte a letter.
NAMES = ["", "a", "n" * 23, "n" * 24, "n" * 255, "n" * 256, "\u00e9\u4e2d\U0001f600"]

FACTORS = (2, 4)


def request_fields(prompt, lora=None, cache_salt=None, mm_features=()):
    """What a request is given: lora is (name, id), an item (identifier, offset, length)."""
    return {
        "prompt": list(prompt),
        "lora": None if lora is None else {"name": lora[0], "id": lora[1]},
        "cache_salt": cache_salt,
        "mm_features": [list(feature) for feature in mm_features],
    }


def extra_key_requests():
    """Requests whose blocks are asked for their extra keys, window by window."""
    two_apart = [("hash1", 0, 5), ("hash2", 10, 5)]
    return [
        request_fields(range(20)),
        request_fields(range(20), mm_features=two_apart),
        request_fields(range(20), mm_features=[("long", 3, 14)]),
        request_fields(
            range(20), mm_features=[("x", 2, 2), ("y", 4, 1), ("x", 5, 3), ("z", 9, 11)]
        ),
        request_fields(range(20), mm_features=[("zero length", 4, 0), ("after", 6, 3)]),
        request_fields(range(20), cache_salt="salt"),
        request_fields(range(20), cache_salt=""),
        request_fields(range(20), lora=("adapter", 1)),
        request_fields(range(20), lora=("", 2)),
        request_fields(range(20), lora=("adapter", 1), cache_salt="salt", mm_features=two_apart),
    ]


def hashed_requests():
    """(request, hash_block_size, tokens appended batch by batch) of the chains."""
    cases = []
    for size in (1, 4, 16):
        cases += [
            (request_fields([]), size, []),
            (request_fields(range(3 * size)), size, []),
            (request_fields(range(9 * size - 1)), size, [[7]]),
            (request_fields(range(size)), size, [[1] * size, [], [2] * (2 * size + 1)]),
            (request_fields((WIDTH_BOUNDARIES * 8)[: 4 * size]), size, []),
            (request_fields(range(4 * size), cache_salt="salt"), size, [[5] * size]),
            (request_fields(range(4 * size), cache_salt=""), size, []),
            (request_fields([], cache_salt="salt"), size, [[5] * size, [6] * size]),
            (request_fields(range(4 * size), lora=("adapter", 3)), size, [[5] * size]),
        ]
    cases += [(request_fields(range(8), lora=(name, 1), cache_salt=name), 4, []) for name in NAMES]

    spanning = [("image", 3, 10)]
    two_in_a_block = [("first", 4, 2), ("second", 6, 2)]
    cases += [
        (request_fields(range(16), mm_features=spanning), 4, []),
        (request_fields(range(16), mm_features=two_in_a_block), 4, []),
        (request_fields(range(16), mm_features=[("whole", 0, 16)]), 4, []),
        (request_fields(range(12), mm_features=[("aligned", 4, 4), ("next", 8, 4)]), 4, []),
        (request_fields([1] * 320, mm_features=[("far back", 1, 400)]), 16, []),
        (request_fields(range(64), mm_features=spanning + [("late", 40, 3)]), 16, []),
        (request_fields(range(6), mm_features=[("one token", 2, 1), ("another", 3, 1)]), 1, []),
        # Blocks that generated tokens complete look at the last item only.
        (request_fields(range(6), mm_features=two_in_a_block), 4, [[6, 7]]),
        (request_fields(range(5), mm_features=spanning), 4, [[5, 6, 7], [8, 9, 10, 11], [12] * 9]),
        (
            request_fields(range(6), mm_features=[("a", 0, 2), ("b", 4, 1), ("c", 5, 1)]),
            4,
            [[6], [7], [8] * 4],
        ),
        (
            request_fields(range(4), mm_features=[("a", 4, 2), ("b", 6, 1), ("c", 9, 2)]),
            4,
            [list(range(4, 16))],
        ),
        (request_fields(range(2), mm_features=two_in_a_block), 4, [[2, 3, 4, 5, 6, 7, 8]]),
        (request_fields(range(9), ("adapter", 3), "salt", two_in_a_block), 4, [[9] * 8]),
    ]
    return cases


class Upstream:
    """The functions of one release, called with the plain values of the cases."""

    def __init__(self, folder):
        sys.path.insert(0, str(ADAPTERS))
        from upstream_import import use_release

        use_release(folder)
        from vllm.utils import hashing
        from vllm.v1.core import kv_cache_utils
        from vllm.v1.request import Request

        self._hashing = hashing
        self._kv_cache_utils = kv_cache_utils
        self._request_type = Request

    def none_hash(self, algorithm, seed):
        os.environ["PYTHONHASHSEED"] = seed
        self._kv_cache_utils.init_none_hash(self._hashing.get_hash_fn_by_name(algorithm))
        return self._kv_cache_utils.NONE_HASH

    def hash_block_tokens(self, algorithm, parent, tokens, extra_keys):
        hash_function = self._hashing.get_hash_fn_by_name(algorithm)
        keys = extra_keys and tuple(
            tuple(key) if isinstance(key, list) else key for key in extra_keys
        )
        return self._kv_cache_utils.hash_block_tokens(hash_function, parent, tokens, keys)

    def request(self, fields, block_hasher=None):
        lora = fields["lora"]
        return self._request_type(
            request_id="request",
            prompt_token_ids=list(fields["prompt"]),
            sampling_params=None,
            pooling_params=SimpleNamespace(skip_reading_prefix_cache=None),
            mm_features=[
                SimpleNamespace(
                    identifier=identifier, mm_position=SimpleNamespace(offset=offset, length=length)
                )
                for identifier, offset, length in fields["mm_features"]
            ],
            lora_request=lora and SimpleNamespace(lora_name=lora["name"], lora_int_id=lora["id"]),
            cache_salt=fields["cache_salt"],
            block_hasher=block_hasher,
        )

    def hashed_request(self, algorithm, hash_block_size, fields):
        hash_function = self._hashing.get_hash_fn_by_name(algorithm)
        hasher = self._kv_cache_utils.get_request_block_hasher(hash_block_size, hash_function)
        return self.request(fields, hasher)

    def extra_keys(self, fields, start, end, mm_cursor):
        return self._kv_cache_utils.generate_block_hash_extra_keys(
            self.request(fields), start, end, mm_cursor
        )

    def merged(self, hashes, factor):
        return list(self._kv_cache_utils.BlockHashListWithBlockSize(hashes, 1, factor))

    def packed(self, block_hash, group_id):
        key = self._kv_cache_utils.make_block_hash_with_group_id(block_hash, group_id)
        assert self._kv_cache_utils.get_block_hash(key) == block_hash
        assert self._kv_cache_utils.get_group_id(key) == group_id
        return key


def none_hash_cases(upstream):
    for algorithm in ALGORITHMS:
        for seed in SEEDS:
            yield {
                "kind": "none_hash",
                "algorithm": algorithm,
                "seed": seed,
                "hash": upstream.none_hash(algorithm, seed).hex(),
            }


def block_cases(upstream):
    blocks = [([token], None) for token in WIDTH_BOUNDARIES]
    # Lengths of the token list around the widths of an array's head.
    blocks += [([1] * num_tokens, None) for num_tokens in (0, 23, 24, 255, 256)]
    blocks += [(WIDTH_BOUNDARIES, [name]) for name in NAMES]
    blocks += [
        ([1, 2, 3, 4], [["image", offset]])
        for boundary in WIDTH_BOUNDARIES
        for offset in (boundary, -1 - boundary)
    ]
    blocks += [
        ([1, 2, 3, 4], ["adapter", ["image", -3], ["image", 2], "salt"]),
        ([1, 2, 3, 4], ["key"] * 24),
    ]
    for algorithm in ALGORITHMS:
        parent = upstream.none_hash(algorithm, "0")
        for tokens, extra_keys in blocks:
            block_hash = upstream.hash_block_tokens(algorithm, parent, tokens, extra_keys)
            yield {
                "kind": "block",
                "algorithm": algorithm,
                "parent": parent.hex(),
                "tokens": tokens,
                "extra_keys": extra_keys,
                "hash": block_hash.hex(),
            }
            parent = block_hash


def extra_keys_cases(upstream):
    windows = [
        (0, 4),
        (0, 5),
        (0, 15),
        (0, 20),
        (1, 5),
        (3, 8),
        (4, 8),
        (4, 12),
        (6, 10),
        (12, 14),
        (15, 20),
        (16, 20),
    ]
    for fields in extra_key_requests():
        num_features = len(fields["mm_features"])
        for start, end in windows:
            for mm_cursor in range(-num_features, num_features + 1):
                keys, next_mm_cursor = upstream.extra_keys(fields, start, end, mm_cursor)
                yield {
                    "kind": "extra_keys",
                    **fields,
                    "start": start,
                    "end": end,
                    "mm_cursor": mm_cursor,
                    "extra_keys": keys,
                    "next_mm_cursor": next_mm_cursor,
                }


def request_cases(upstream):
    def hex_of(hashes):
        return [block_hash.hex() for block_hash in hashes]

    settings = [(algorithm, "0") for algorithm in ALGORITHMS]
    for index, (fields, hash_block_size, appended) in enumerate(hashed_requests()):
        other_seeds = (
            [(algorithm, seed) for algorithm in ALGORITHMS for seed in ("", "42")]
            if index < 4
            else []
        )
        for algorithm, seed in settings + other_seeds:
            upstream.none_hash(algorithm, seed)
            request = upstream.hashed_request(algorithm, hash_block_size, fields)
            num_hashes = [len(request.block_hashes)]
            for tokens in appended:
                request.append_output_token_ids(list(tokens))
                num_hashes.append(len(request.block_hashes))
            yield {
                "kind": "request",
                "algorithm": algorithm,
                "seed": seed,
                "hash_block_size": hash_block_size,
                **fields,
                "appended": appended,
                "num_hashes": num_hashes,
                "hashes": hex_of(request.block_hashes),
                **{
                    f"merged_by_{factor}": hex_of(upstream.merged(request.block_hashes, factor))
                    for factor in FACTORS
                },
            }


def packed_cases(upstream):
    for algorithm in ALGORITHMS:
        block_hash = upstream.none_hash(algorithm, "0")
        for packed_hash in (block_hash, block_hash * 4):
            for group_id in (0, 1, 255, 256, 65536, 0x01020304, 4294967295):
                yield {
                    "kind": "packed",
                    "hash": packed_hash.hex(),
                    "group_id": group_id,
                    "key": upstream.packed(packed_hash, group_id).hex(),
                }


def lines_of(folder):
    """The cases of one release as JSON lines. A process holds one vLLM: run() gives it its own."""
    upstream = Upstream(folder)
    producers = (none_hash_cases, block_cases, extra_keys_cases, request_cases, packed_cases)
    return [
        json.dumps(case, separators=(",", ":"))
        for producer in producers
        for case in producer(upstream)
    ]


def run(release):
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(lines_of, (release[1],))


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--release",
        action="append",
        metavar="NAME=FOLDER",
        help="a release and the folder its wheel was unpacked in; repeat to check that they agree",
    )
    arguments = parser.parse_args()
    releases = [tuple(text.partition("=")[::2]) for text in arguments.release or []] or [
        ("installed", None)
    ]

    lines = run(releases[0])
    for release in releases[1:]:
        if run(release) != lines:
            print(f"{release[0]} and {releases[0][0]} hash differently", file=sys.stderr)
            return 1

    names = [name for name, _ in releases]
    num_cases = collections.Counter(json.loads(line)["kind"] for line in lines)
    print("# Block hashes of vLLM, from upstream's own functions; equal in every release named.")
    print(f"# releases: {' '.join(names)}")
    print(
        "# command: contract/golden/generate_golden.py "
        + " ".join(f"--release {name}=<folder of the unpacked wheel>" for name in names)
    )
    print("# cases: " + " ".join(f"{kind} {count}" for kind, count in num_cases.items()))
    print("\n".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
