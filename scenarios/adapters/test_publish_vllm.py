#!/usr/bin/env python3
"""vLLM's own publisher against `kvfence audit`, and its own encoder against scenarios/audit/golden/wire.txt.

Usage: test_publish_vllm.py KVFENCE RELEASE. Exit status: 0, 1, or 77 without the release, msgspec, pyzmq or ZeroMQ.
"""

import json
import os
import pathlib
import re
import signal
import struct
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
WIRE = HERE.parent / "audit" / "golden" / "wire.txt"
CANNOT_RUN = 77

RECORDING_HEAD = b"kvfence-audit 1\n"

KVFENCE = RELEASE = ""


def read_records(file, number):
    """Reads that many records of scenarios/audit/recording.h as they are written."""
    file.read(len(RECORDING_HEAD))
    for _ in range(number):
        length, _ = struct.unpack("<II", file.read(8))
        file.read(length)


def audited(*options):
    """Publishes and audits; returns the audit's exit status and object, and the publisher's last output."""
    with tempfile.TemporaryDirectory() as folder:
        recording = pathlib.Path(folder, "audit.kvev")
        os.mkfifo(recording)
        publish = [sys.executable, "-B", HERE / "publish_vllm.py", RELEASE, *options]
        with subprocess.Popen(publish, stdout=subprocess.PIPE, text=True) as publisher:
            endpoint, replay = re.findall(r"tcp://[0-9.:]+", publisher.stdout.readline())
            command = [KVFENCE, "audit", "--endpoint", endpoint, "--replay-endpoint", replay, "--record", recording,
                       "--num-blocks", "200", "--json", "--quiet"]
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as audit:
                with open(recording, "rb") as records:
                    said = publisher.stdout.readline()
                    read_records(records, int(said.split()[1]))
                    audit.send_signal(signal.SIGINT)
                    text = audit.communicate()[0]
    return audit.returncode, json.loads(text.splitlines()[-1]), said.strip()


def batches(events):
    """The batches of scenarios/audit/encode_test.cpp, by name, of the classes of one release."""
    has_group, has_maps = RELEASE != "0.19.0", RELEASE == "0.33.0"
    group = {"group_idx": 1} if has_group else {}
    spec = {"kv_cache_spec_kind": "sliding_window", "kv_cache_spec_sliding_window": 4096} if has_group else {}

    def stored(hashes, tokens, size, parent=None, medium="GPU", lora_id=None, lora_name=None, **more):
        return events.BlockStored(block_hashes=hashes, parent_block_hash=parent, token_ids=tokens, block_size=size,
                                  lora_id=lora_id, medium=medium, lora_name=lora_name, **more)

    made = {
        "plain": (1.5, [stored([b"\1" * 32, b"\2" * 32], [1, 127, 128, 65536], 2)], None),
        "full": (2.25, [
            stored([b"\3" * 16, b"\4" * 16], [0x80000001, 255, 256, 65535], 2, b"\x09" * 16, lora_id=7,
                   lora_name="adapter", extra_keys=[("adapter", ("image", -3), "salt", b"\1\2"), None], **group, **spec),
            events.BlockRemoved(block_hashes=[b"\3" * 16], medium="GPU", **group), events.AllBlocksCleared()], 3),
        "integers": (0.0, [stored([2**64 - 1, 5, 300], [], 16, 70000, "CPU"),
                           events.BlockRemoved(block_hashes=[2**32], medium=None)], 0),
        "long": (0.0, [stored([], list(range(20)), 20, lora_name="l" * 40)], None),
    }
    if has_maps:
        made["of_0_33"] = (0.0, [
            stored([b"\1" * 32], [1, 2], 2, medium="CPU", locality="LOCAL", ownership="disk", session_id="s",
                   lookahead_token_ids=[[3, 4]]),
            events.BlockRemoved(block_hashes=[b"\1" * 32], medium="CPU", locality="REMOTE", ownership="disk")], None)
    return made


class PublishVllm(unittest.TestCase):
    def test_the_golden_bytes_are_upstreams(self):
        import msgspec._utils  # before the release, which would get placeholders
        from releases import find_release
        from upstream_pool import Modules
        events = Modules(find_release(RELEASE)).kv_events
        found = {}
        for name, (time, of_batch, rank) in batches(events).items():
            batch = events.KVEventBatch(ts=time, events=of_batch, data_parallel_rank=rank)
            found[name] = msgspec.msgpack.encode(batch).hex()
        lines = [line.split() for line in WIRE.read_text().splitlines()]
        self.assertEqual(found, {name: payload for release, name, payload in
                                 [line for line in lines if len(line) == 3] if release == RELEASE})

    def test_a_sound_release_has_no_findings(self):
        for options in ((), ("--seed", "2", "--int-hashes"), ("--seed", "3", "--hash-algorithm", "sha256_cbor")):
            status, found, said = audited(*options)
            self.assertEqual(status, 0, f"{options}: {said}: {found}")
            self.assertEqual(found["messages"], int(said.split()[1]))
            self.assertEqual(found["events"], int(said.split()[3]))


def main():
    global KVFENCE, RELEASE
    KVFENCE, RELEASE = sys.argv[1:3]
    sys.path.insert(0, str(HERE))
    from releases import ReleaseNotFound, find_release
    try:
        import msgspec  # noqa: F401
        import zmq  # noqa: F401
        find_release(RELEASE)
    except (ImportError, ReleaseNotFound) as error:
        print(f"test_publish_vllm.py: {error}")
        return CANNOT_RUN
    # With ZeroMQ this endpoint is bad input.
    command = [KVFENCE, "audit", "--endpoint", "nowhere", "--quiet"]
    if subprocess.run(command, capture_output=True).returncode == CANNOT_RUN:
        return CANNOT_RUN
    return 0 if unittest.main(argv=sys.argv[:1] + sys.argv[3:], exit=False, verbosity=2).result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
