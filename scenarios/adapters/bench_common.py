"""Shared by the benchmarks of this folder: their arguments, their repetitions, and the JSON that they print."""

from __future__ import annotations

import argparse
import json
import pathlib
import platform
import statistics
import sys
from typing import Any, Callable, Dict, List

from releases import RELEASE_OF_PROFILE, ReleaseNotFound, find_release
from upstream_pool import Modules

_PROGRAM = pathlib.Path(sys.argv[0]).name
_SKIPPED = 77


def check(holds: bool) -> None:
    if not holds:
        raise SystemExit(f"{_PROGRAM}: vLLM did not do what was timed")


def _summary_of(times: List[float], unit: str) -> Dict[str, float]:
    return {f"median_ns_per_{unit}": round(statistics.median(times), 1), "min": round(min(times), 1),
            "max": round(max(times), 1)}


def run(doc: str, make_bench: Callable[[Modules, int], Any], unit: str, size_option: str, sizes: range,
        default_size: int) -> int:
    """Prints one JSON object. The exit code: 77 if the release is not on this machine.

    make_bench(modules, size).repetition() gives the ns per unit of each operation.
    """
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--release", metavar="VERSION",
                        help=f"default: {RELEASE_OF_PROFILE['v0.19']}, or what --path has")
    parser.add_argument("--path", metavar="FOLDER", help="where a wheel was unpacked; contains vllm/")
    parser.add_argument(size_option, type=int, metavar="N", dest="size", default=default_size,
                        help=f"default: {default_size}")
    parser.add_argument("--repetitions", type=int, default=7)
    arguments = parser.parse_args()
    if arguments.size not in sizes or arguments.repetitions < 1:
        parser.error(f"{size_option} {sizes[0]} to {sizes[-1]}, and at least 1 repetition")
    version = arguments.release
    if version is None and arguments.path is None:
        version = RELEASE_OF_PROFILE["v0.19"]
    try:
        release = find_release(version, arguments.path)
    except ReleaseNotFound as error:
        print(f"{_PROGRAM}: {error}", file=sys.stderr)
        return _SKIPPED

    bench = make_bench(Modules(release), arguments.size)
    repetitions = [bench.repetition() for _ in range(arguments.repetitions)]
    print(json.dumps({
        "implementation": f"vllm {release.version}",
        size_option.lstrip("-").replace("-", "_"): arguments.size,
        "repetitions": arguments.repetitions,
        "python": platform.python_version(),
        "ops": {name: _summary_of([repetition[name] for repetition in repetitions], unit) for name in repetitions[0]},
    }))
    return 0
