#!/usr/bin/env python3
"""A short `kvfence check` of every target against a release of the real vLLM: the adapter reports all that the reference shows.

Usage: test_agreement.py KVFENCE RELEASE. Exit status: 0, 1, or 77 without the release.
"""

import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
CANNOT_RUN = 77
NUM_COMMANDS = 5000

# Tiers are there from 0.23.0 on.
TARGETS = {
    "0.19.0": ("block_pool", "kv_cache", "eviction", "offload", "engine"),
    "0.23.0": ("block_pool", "kv_cache", "eviction", "offload", "tiering", "engine"),
}


def main():
    kvfence, release = sys.argv[1:]
    adapter = f"{sys.executable} -B {HERE / 'vllm.py'} --release {release}"
    statuses = []
    for target in TARGETS[release]:
        with tempfile.TemporaryDirectory() as folder:
            status = subprocess.run([kvfence, "check", "--target", target, "--commands", str(NUM_COMMANDS), "--sut",
                                     adapter, "--quiet", "--no-shrink", "--out", folder], check=False).returncode
        if status == CANNOT_RUN:
            return CANNOT_RUN
        statuses.append(status)
    return 1 if any(statuses) else 0


if __name__ == "__main__":
    sys.exit(main())
