#!/usr/bin/env python3
"""Times kvfence's implementations and the real class of vLLM in one session and prints them side by side.

--suite block_pool (the default): the block pools and BlockPool; kv_cache: the KV-cache managers and KVCacheManager;
scheduler: the schedulers and Scheduler.

Each round runs, one after the other and on one core: the C++ benchmark at --size, each release of vLLM at the
same size, the reference, and the optimized implementation at the suite's other sizes. What is compared was so measured
minutes apart at most; a ratio is taken within a round, and the table shows the median over the rounds
[smallest..largest].

Exit codes: 0 done, 2 a bad argument or no usable benchmark program, 77 no vLLM on this machine.

examples: compare_with_vllm.py --rounds 5 --results properties/bench/RESULTS.md
          compare_with_vllm.py --suite kv_cache --repetitions 15 --results properties/bench/RESULTS_kv_cache.md
          compare_with_vllm.py --suite scheduler --results properties/bench/RESULTS_scheduler.md
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
from typing import Dict, List, NamedTuple, Optional, Tuple

ROOT = pathlib.Path(__file__).resolve().parents[2]
ADAPTERS = ROOT / "scenarios" / "adapters"
PROGRAMS = ROOT / "build" / "release" / "properties"
RELEASES = ("0.19.0", "0.23.0")
SKIPPED = 77


class Suite(NamedTuple):
    """What is timed, by whom, and how large."""

    # The name in the adapter, the name in the C++ program, and the speed-up that the issue asks for.
    operations: Tuple[Tuple[str, str, Optional[int]], ...]
    program: str
    adapter: str
    size_option: str  # of the adapter
    unit: str  # what the times are of
    what: str  # what a size counts
    sizes: Tuple[int, ...]
    default_size: int
    reference_size: int

    def names(self) -> List[str]:
        return [name for name, _, _ in self.operations]


SUITES = {
    "block_pool": Suite(
        operations=(
            ("get_new_blocks", "GetNewBlocks", 20),
            ("free_blocks", "FreeBlocks", 20),
            ("touch", "Touch", 20),
            ("get_cached_block_hit", "GetCachedBlockHit", 20),
            ("get_cached_block_miss", "GetCachedBlockMiss", None),
            ("cache_full_blocks", "CacheFullBlocks", None),
            ("get_new_blocks_evicting", "GetNewBlocksEvicting", 12),
        ),
        program="block_pool_bench", adapter="bench_vllm.py", size_option="--num-blocks", unit="block",
        what="blocks", sizes=(1_000, 10_000, 100_000, 1_000_000, 10_000_000), default_size=100_000,
        reference_size=10_000),
    "kv_cache": Suite(
        operations=(
            ("allocate_slots_decode", "AllocateSlotsDecode", None),
            ("get_computed_blocks_hit", "GetComputedBlocksHit", None),
            ("get_computed_blocks_miss", "GetComputedBlocksMiss", None),
            ("allocate_slots_hit", "AllocateSlotsHit", None),
            ("free", "Free", None),
            ("get_computed_blocks_hit_hybrid", "GetComputedBlocksHitHybrid", None),
        ),
        program="kv_cache_bench", adapter="bench_vllm_kv_cache.py", size_option="--prompt-blocks", unit="call",
        what="blocks of the long prompt", sizes=(8192,), default_size=8192, reference_size=8192),
    "scheduler": Suite(
        operations=(
            ("schedule", "Schedule", None),
            ("update_from_output", "UpdateFromOutput", None),
            ("step", "Step", None),
        ),
        program="scheduler_bench", adapter="bench_vllm_scheduler.py", size_option="--num-requests", unit="step",
        what="running requests", sizes=(1, 64, 256, 1024, 16_384), default_size=256, reference_size=256),
}

Times = Dict[str, float]  # operation: ns a unit of the suite


class Failure(Exception):
    """A program that could not be run, and what it said."""


def output_of(command: List[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Failure(f"{command[0]} exited with {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def time_cpp(suite: Suite, program: pathlib.Path, implementation: str, size: int, min_time: float) -> Times:
    output = output_of([
        str(program), f"--benchmark_filter=^BM_[A-Za-z]+{implementation}/{size}/",
        f"--benchmark_min_time={min_time}", "--benchmark_format=json"])
    # Where the filter matches nothing, Google Benchmark prints nothing.
    benchmarks = json.loads(output)["benchmarks"] if output else []
    name_of = {cpp_name: name for name, cpp_name, _ in suite.operations}
    times = {}
    for one in benchmarks:
        if one.get("error_occurred"):
            raise Failure(f"{one['name']}: {one['error_message']}")
        name = re.sub(rf"^BM_(\w+){implementation}/.*", r"\1", one["name"])
        times[name_of.get(name, name)] = one[f"ns_per_{suite.unit}"]
    if set(times) != set(suite.names()):
        raise Failure(f"{program} timed {sorted(times)}, expected {sorted(suite.names())}")
    return times


def time_vllm(suite: Suite, version: str, size: int, repetitions: int) -> Optional[Times]:
    """None if that release is not on this machine."""
    command = [sys.executable, str(ADAPTERS / suite.adapter), "--release", version,
               suite.size_option, str(size), "--repetitions", str(repetitions)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == SKIPPED:
        print(done.stderr.strip(), file=sys.stderr)
        return None
    if done.returncode != 0:
        raise Failure(f"{suite.adapter} exited with {done.returncode}: {done.stderr.strip()}")
    return {name: times[f"median_ns_per_{suite.unit}"] for name, times in json.loads(done.stdout)["ops"].items()}


def summary(values: List[float]) -> dict:
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def summaries(rounds: List[Times]) -> Dict[str, dict]:
    return {name: summary([times[name] for times in rounds]) for name in rounds[0]}


def measure(suite: Suite, arguments: argparse.Namespace) -> dict:
    """All rounds; raises Failure, and SystemExit 77 if no release is here."""
    optimized: Dict[int, List[Times]] = {size: [] for size in suite.sizes}
    reference: List[Times] = []
    vllm: Dict[str, List[Times]] = {}
    missing = set()
    load_before = os.getloadavg()[0]
    for number in range(arguments.rounds):
        print(f"round {number + 1} of {arguments.rounds}, load {os.getloadavg()[0]:.1f}", file=sys.stderr)
        optimized[arguments.size].append(
            time_cpp(suite, arguments.program, "Optimized", arguments.size, arguments.min_time))
        for version in RELEASES:
            times = None
            if version not in missing:
                times = time_vllm(suite, version, arguments.size, arguments.repetitions)
            if times is None:
                missing.add(version)
            else:
                vllm.setdefault(version, []).append(times)
        if not vllm:
            print("compare_with_vllm.py: no release of vLLM to compare with", file=sys.stderr)
            raise SystemExit(SKIPPED)
        reference.append(time_cpp(suite, arguments.program, "Reference", suite.reference_size, arguments.min_time))
        for size in suite.sizes:
            if size != arguments.size:
                optimized[size].append(time_cpp(suite, arguments.program, "Optimized", size, arguments.min_time))

    here = optimized[arguments.size]
    return {
        "suite": arguments.suite,
        "date": arguments.date,
        "machine": machine(),
        "load": [round(load_before, 1), round(os.getloadavg()[0], 1)],
        "python": platform.python_version(),
        "rounds": arguments.rounds,
        "size": arguments.size,
        "optimized": {str(size): summaries(rounds) for size, rounds in optimized.items()},
        "reference": {str(suite.reference_size): summaries(reference)},
        "vllm": {version: summaries(rounds) for version, rounds in vllm.items()},
        "ratio": {version: {name: summary([theirs[name] / ours[name] for ours, theirs in zip(here, rounds)])
                            for name in suite.names()}
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


def time_text(one: dict) -> str:
    """All three in ns, or in the unit that suits the median."""
    divisor, unit = 1.0, ""
    if one["median"] >= 1e4:
        divisor, unit = (1e6, " ms") if one["median"] >= 1e6 else (1e3, " us")
    return "{} [{}..{}]".format(*(number(one[key] / divisor) for key in ("median", "min", "max"))) + unit


def number(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}"


def ratio(one: dict, target: Optional[int]) -> str:
    text = "{:.0f}x [{:.0f}..{:.0f}]".format(one["median"], one["min"], one["max"])
    return text if target is None or one["median"] >= target else text + f", below {target}x"


def table(header: List[str], rows: List[List[str]]) -> str:
    widths = [max(len(row[column]) for row in [header] + rows) for column in range(len(header))]
    lines = [header, ["-" * width for width in widths]] + rows
    return "\n".join("| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths)) + " |" for line in lines)


def comparison_table(suite: Suite, results: dict) -> str:
    reference = "reference"
    if suite.reference_size != results["size"]:
        reference += f" ({suite.reference_size} {suite.what})"
    header = ["operation", "optimized", reference]
    for version in results["vllm"]:
        header += [f"vLLM {version}", "ratio"]
    rows = []
    for name, _, target in suite.operations:
        row = [name, time_text(results["optimized"][str(results["size"])][name]),
               time_text(results["reference"][str(suite.reference_size)][name])]
        for version in results["vllm"]:
            row += [time_text(results["vllm"][version][name]), ratio(results["ratio"][version][name], target)]
        rows.append(row)
    return table(header, rows)


def flatness_table(suite: Suite, results: dict) -> str:
    rows = [[name] + [time_text(results["optimized"][str(size)][name]) for size in suite.sizes]
            for name in suite.names()]
    return table(["operation"] + [str(size) for size in suite.sizes], rows)


def text_of(results: dict) -> str:
    suite = SUITES[results["suite"]]
    text = (f"ns a {suite.unit} (unless a cell has another unit) at {results['size']} {suite.what}: median of "
            f"{results['rounds']} rounds [min..max]; ratio: of the same round\n\n{comparison_table(suite, results)}\n")
    if len(suite.sizes) > 1:
        text += f"\noptimized, ns a {suite.unit} by number of {suite.what}\n\n{flatness_table(suite, results)}\n"
    return text


def results_page(results: dict, command: str) -> str:
    return (f"# Results: {results['suite']}\n\n"
            "Written by `compare_with_vllm.py`; what the figures mean stands in [README.md](README.md).\n\n"
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
    parser.add_argument("--suite", choices=SUITES, default="block_pool")
    parser.add_argument("--program", type=pathlib.Path, metavar="FILE",
                        help="the suite's C++ benchmark; default: that of --preset release")
    parser.add_argument("--size", "--num-blocks", type=int, metavar="N",
                        help="where implementations are compared; one of the suite's sizes")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--repetitions", type=int, default=3, help="of vLLM's side in a round")
    parser.add_argument("--min-time", type=float, default=0.1, metavar="SECONDS",
                        help="each C++ operation is repeated for that long in a round")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of the tables")
    parser.add_argument("--results", type=pathlib.Path, metavar="FILE", help="write the tables there as well")
    parser.add_argument("--date", default=datetime.date.today().isoformat(), help="for --results; default: today's")
    arguments = parser.parse_args()
    if arguments.rounds < 1 or arguments.repetitions < 1 or arguments.min_time <= 0:
        parser.error("at least 1 round, 1 repetition and a time above 0")
    suite = SUITES[arguments.suite]
    arguments.program = arguments.program or PROGRAMS / suite.program
    arguments.size = arguments.size or suite.default_size
    if arguments.size not in suite.sizes:
        parser.error(f"--size is one of {', '.join(map(str, suite.sizes))}")
    if not os.access(arguments.program, os.X_OK):
        parser.error(f"{arguments.program} is no program: cmake --preset release && "
                     f"cmake --build --preset release --target {suite.program}")
    pin_to_one_core()
    try:
        results = measure(suite, arguments)
    except Failure as failure:
        print(f"compare_with_vllm.py: {failure}", file=sys.stderr)
        return 2
    print(json.dumps(results) if arguments.json else text_of(results), end="\n" if arguments.json else "")
    if arguments.results is not None:
        command = (f"compare_with_vllm.py --suite {arguments.suite} --size {arguments.size} "
                   f"--rounds {arguments.rounds} --repetitions {arguments.repetitions}")
        arguments.results.write_text(results_page(results, command), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
