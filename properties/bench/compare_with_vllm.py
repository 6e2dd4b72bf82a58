#!/usr/bin/env python3
"""Times kvfence's block pools and the real BlockPool of vLLM in one session and prints them side by side.

Each round runs, one after the other and on one core: the C++ benchmark at --num-blocks, each release of vLLM at the
same size, the reference, and the optimized pool at the other sizes. What is compared was so measured minutes apart at
most; a ratio is taken within a round, and the table shows the median over the rounds [smallest..largest].

Exit codes: 0 done, 2 a bad argument or no usable benchmark program, 77 no vLLM on this machine.

example: compare_with_vllm.py --rounds 5 --results properties/bench/RESULTS.md
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import pathlib
import platform
import re
import statistics
import subprocess
import sys
from typing import Dict, List, Optional

ROOT = pathlib.Path(__file__).resolve().parents[2]
ADAPTERS = ROOT / "scenarios" / "adapters"
DEFAULT_PROGRAM = ROOT / "build" / "release" / "properties" / "block_pool_bench"
RELEASES = ("0.19.0", "0.23.0")
SIZES = (1_000, 10_000, 100_000, 1_000_000, 10_000_000)
REFERENCE_SIZE = 10_000
SKIPPED = 77

# The name in bench_vllm.py, the name in block_pool_bench, and the speed-up that the issue asks for.
OPERATIONS = (
    ("get_new_blocks", "GetNewBlocks", 20),
    ("free_blocks", "FreeBlocks", 20),
    ("touch", "Touch", 20),
    ("get_cached_block_hit", "GetCachedBlockHit", 20),
    ("get_cached_block_miss", "GetCachedBlockMiss", None),
    ("cache_full_blocks", "CacheFullBlocks", None),
    ("get_new_blocks_evicting", "GetNewBlocksEvicting", 12),
)
NAME_OF = {cpp_name: name for name, cpp_name, _ in OPERATIONS}

Times = Dict[str, float]  # operation: ns a block


class Failure(Exception):
    """A program that could not be run, and what it said."""


def output_of(command: List[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Failure(f"{command[0]} exited with {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def time_cpp(program: pathlib.Path, implementation: str, num_blocks: int, min_time: float) -> Times:
    benchmarks = json.loads(output_of([
        str(program), f"--benchmark_filter=^BM_[A-Za-z]+{implementation}/{num_blocks}/",
        f"--benchmark_min_time={min_time}", "--benchmark_format=json"]))["benchmarks"]
    times = {}
    for one in benchmarks:
        if one.get("error_occurred"):
            raise Failure(f"{one['name']}: {one['error_message']}")
        name = re.sub(rf"^BM_(\w+){implementation}/.*", r"\1", one["name"])
        times[NAME_OF[name]] = one["ns_per_block"]
    if set(times) != set(NAME_OF.values()):
        raise Failure(f"{program} timed {sorted(times)}, expected {sorted(NAME_OF.values())}")
    return times


def time_vllm(version: str, num_blocks: int, repetitions: int) -> Optional[Times]:
    """None if that release is not on this machine."""
    command = [sys.executable, str(ADAPTERS / "bench_vllm.py"), "--release", version,
               "--num-blocks", str(num_blocks), "--repetitions", str(repetitions)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == SKIPPED:
        print(done.stderr.strip(), file=sys.stderr)
        return None
    if done.returncode != 0:
        raise Failure(f"bench_vllm.py exited with {done.returncode}: {done.stderr.strip()}")
    return {name: times["median_ns_per_block"] for name, times in json.loads(done.stdout)["ops"].items()}


def summary(values: List[float]) -> dict:
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def summaries(rounds: List[Times]) -> Dict[str, dict]:
    return {name: summary([times[name] for times in rounds]) for name, _, _ in OPERATIONS}


def measure(arguments: argparse.Namespace) -> dict:
    """All rounds; raises Failure, and SystemExit 77 if no release is here."""
    optimized: Dict[int, List[Times]] = {size: [] for size in SIZES}
    reference: List[Times] = []
    vllm: Dict[str, List[Times]] = {}
    missing = set()
    load_before = os.getloadavg()[0]
    for number in range(arguments.rounds):
        print(f"round {number + 1} of {arguments.rounds}, load {os.getloadavg()[0]:.1f}", file=sys.stderr)
        optimized[arguments.num_blocks].append(
            time_cpp(arguments.program, "Optimized", arguments.num_blocks, arguments.min_time))
        for version in RELEASES:
            times = None if version in missing else time_vllm(version, arguments.num_blocks, arguments.repetitions)
            if times is None:
                missing.add(version)
            else:
                vllm.setdefault(version, []).append(times)
        if not vllm:
            print("compare_with_vllm.py: no release of vLLM to compare with", file=sys.stderr)
            raise SystemExit(SKIPPED)
        reference.append(time_cpp(arguments.program, "Reference", REFERENCE_SIZE, arguments.min_time))
        for size in SIZES:
            if size != arguments.num_blocks:
                optimized[size].append(time_cpp(arguments.program, "Optimized", size, arguments.min_time))

    here = optimized[arguments.num_blocks]
    return {
        "date": arguments.date,
        "machine": machine(),
        "load": [round(load_before, 1), round(os.getloadavg()[0], 1)],
        "python": platform.python_version(),
        "rounds": arguments.rounds,
        "num_blocks": arguments.num_blocks,
        "optimized": {str(size): summaries(rounds) for size, rounds in optimized.items()},
        "reference": {str(REFERENCE_SIZE): summaries(reference)},
        "vllm": {version: summaries(rounds) for version, rounds in vllm.items()},
        "ratio": {version: {name: summary([theirs[name] / ours[name] for ours, theirs in zip(here, rounds)])
                            for name, _, _ in OPERATIONS}
                  for version, rounds in vllm.items()},
    }


def machine() -> str:
    model = platform.processor() or platform.machine()
    try:
        cpuinfo = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        cpuinfo = ""
    found = re.search(r"^model name\s*: (.+)$", cpuinfo, re.MULTILINE)
    return f"{found[1] if found else model}, {os.cpu_count()} cores"


def ns(one: dict) -> str:
    return "{} [{}..{}]".format(*(number(one[key]) for key in ("median", "min", "max")))


def number(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}"


def ratio(one: dict, target: Optional[int]) -> str:
    text = "{:.0f}x [{:.0f}..{:.0f}]".format(one["median"], one["min"], one["max"])
    return text if target is None or one["median"] >= target else text + f", below {target}x"


def table(header: List[str], rows: List[List[str]]) -> str:
    widths = [max(len(row[column]) for row in [header] + rows) for column in range(len(header))]
    lines = [header, ["-" * width for width in widths]] + rows
    return "\n".join("| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths)) + " |" for line in lines)


def comparison_table(results: dict) -> str:
    header = ["operation", "optimized", f"reference ({REFERENCE_SIZE} blocks)"]
    for version in results["vllm"]:
        header += [f"vLLM {version}", "ratio"]
    rows = []
    for name, _, target in OPERATIONS:
        row = [name, ns(results["optimized"][str(results["num_blocks"])][name]),
               ns(results["reference"][str(REFERENCE_SIZE)][name])]
        for version in results["vllm"]:
            row += [ns(results["vllm"][version][name]), ratio(results["ratio"][version][name], target)]
        rows.append(row)
    return table(header, rows)


def flatness_table(results: dict) -> str:
    rows = [[name] + [ns(results["optimized"][str(size)][name]) for size in SIZES] for name, _, _ in OPERATIONS]
    return table(["operation"] + [str(size) for size in SIZES], rows)


def text_of(results: dict) -> str:
    return (f"ns a block at {results['num_blocks']} blocks: median of {results['rounds']} rounds [min..max]; "
            "ratio: of the same round\n\n"
            f"{comparison_table(results)}\n\n"
            f"optimized, ns a block by size of the pool\n\n{flatness_table(results)}\n")


def results_page(results: dict, command: str) -> str:
    return (f"# Results\n\nWritten by `compare_with_vllm.py`; what the figures mean stands in [README.md](README.md).\n\n"
            f"- command: `{command}`\n"
            "- build: `cmake --preset release` (-O3 -DNDEBUG)\n"
            f"- machine: {results['machine']}; load average {results['load'][0]} before, {results['load'][1]} after\n"
            f"- Python {results['python']}\n- date: {results['date']}\n\n{text_of(results)}")


def pin_to_one_core() -> None:
    """This process and what it starts: a migration in the middle of a pass costs more than the pass."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=pathlib.Path, default=DEFAULT_PROGRAM, metavar="FILE",
                        help="block_pool_bench; default: that of --preset release")
    parser.add_argument("--num-blocks", type=int, choices=SIZES, default=100_000,
                        help="where implementations are compared")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--repetitions", type=int, default=3, help="of bench_vllm.py in a round")
    parser.add_argument("--min-time", type=float, default=0.1, metavar="SECONDS",
                        help="each C++ operation is repeated for that long in a round")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of the tables")
    parser.add_argument("--results", type=pathlib.Path, metavar="FILE", help="write the tables there as well")
    parser.add_argument("--date", default=datetime.date.today().isoformat(), help="for --results; default: today's")
    arguments = parser.parse_args()
    if arguments.rounds < 1 or arguments.repetitions < 1 or arguments.min_time <= 0:
        parser.error("at least 1 round, 1 repetition and a time above 0")
    if not os.access(arguments.program, os.X_OK):
        parser.error(f"{arguments.program} is no program: cmake --preset release && "
                     "cmake --build --preset release --target block_pool_bench")
    pin_to_one_core()
    try:
        results = measure(arguments)
    except Failure as failure:
        print(f"compare_with_vllm.py: {failure}", file=sys.stderr)
        return 2
    print(json.dumps(results) if arguments.json else text_of(results), end="\n" if arguments.json else "")
    if arguments.results is not None:
        command = f"compare_with_vllm.py --num-blocks {arguments.num_blocks} --rounds {arguments.rounds}"
        arguments.results.write_text(results_page(results, command), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
