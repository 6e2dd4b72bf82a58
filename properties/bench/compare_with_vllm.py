#!/usr/bin/env python3
"""Times kvfence's implementations and the real class of vLLM in one session and prints them side by side.

--suite block_pool (the default): the block pools and BlockPool; kv_cache: the KV-cache managers and KVCacheManager;
scheduler: the schedulers and Scheduler; eviction: LRU and ARC, the policies of the CPU cache, and an LRU of the standard
library.

Each round runs, one after the other on one core: the C++ benchmark at --size, each release of vLLM at the same size,
the reference, and the optimized implementation at the suite's other sizes. The suite eviction compares at each of its
sizes, and has the LRU of the standard library instead of the reference. So compared figures were measured at most minutes
apart; ratios are within a round, and the table shows the median over the rounds [smallest..largest].

Exit codes: 0 done, 2 a bad argument or no usable benchmark program, 77 no vLLM on this machine.

examples: compare_with_vllm.py --rounds 5 --results properties/bench/RESULTS.md
          compare_with_vllm.py --suite kv_cache --repetitions 15 --results properties/bench/RESULTS_kv_cache.md
          compare_with_vllm.py --suite scheduler --results properties/bench/RESULTS_scheduler.md
          compare_with_vllm.py --suite eviction --rounds 3 --results properties/bench/RESULTS_eviction.md
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
from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

ROOT = pathlib.Path(__file__).resolve().parents[2]
ADAPTERS = ROOT / "scenarios" / "adapters"
PROGRAMS = ROOT / "build" / "release" / "properties"
RELEASES = ("0.19.0", "0.23.0")
SKIPPED = 77


class Suite(NamedTuple):
    """What is timed, by which programs, and the sizes."""

    # The name in the adapter, the name in the C++ program, and the required speed-up.
    operations: Tuple[Tuple[str, str, Optional[int]], ...]
    program: str
    adapter: str
    size_option: str  # of the adapter
    unit: str  # that times are per
    what: str  # what a size counts
    sizes: Tuple[int, ...]
    compared_sizes: Tuple[int, ...]  # where vLLM runs as well; --size chooses another one
    peer: str  # the other implementation of the C++ program
    peer_title: str
    peer_size: Optional[int]  # None: it is compared at the same sizes as vLLM
    peer_lacks: Tuple[str, ...] = ()  # operations
    peer_target: Optional[int] = None

    def names(self) -> List[str]:
        return [name for name, _, _ in self.operations]

    def peer_names(self) -> List[str]:
        return [name for name in self.names() if name not in self.peer_lacks]


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
        what="blocks", sizes=(1_000, 10_000, 100_000, 1_000_000, 10_000_000), compared_sizes=(100_000,),
        peer="Reference", peer_title="reference", peer_size=10_000),
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
        what="blocks of the long prompt", sizes=(8192,), compared_sizes=(8192,),
        peer="Reference", peer_title="reference", peer_size=8192),
    "scheduler": Suite(
        operations=(
            ("schedule", "Schedule", None),
            ("update_from_output", "UpdateFromOutput", None),
            ("step", "Step", None),
        ),
        program="scheduler_bench", adapter="bench_vllm_scheduler.py", size_option="--num-requests", unit="step",
        what="running requests", sizes=(1, 64, 256, 1024, 16_384), compared_sizes=(256,),
        peer="Reference", peer_title="reference", peer_size=256),
    "eviction": Suite(
        operations=(
            ("zipf_lru", "ZipfLRU", 10),
            ("scan_lru", "ScanLRU", 10),
            ("loop_lru", "LoopLRU", 10),
            ("zipf_arc", "ZipfARC", 10),
            ("scan_arc", "ScanARC", 10),
            ("loop_arc", "LoopARC", 10),
        ),
        program="cache_policy_bench", adapter="bench_vllm_eviction.py", size_option="--capacity", unit="access",
        what="blocks held", sizes=(10_000, 100_000, 1_000_000, 10_000_000),
        compared_sizes=(10_000, 100_000, 1_000_000, 10_000_000),
        peer="Std", peer_title="std::list and std::unordered_map", peer_size=None,
        peer_lacks=("zipf_arc", "scan_arc", "loop_arc"), peer_target=2),
}

Times = Dict[str, float]  # operation: ns per unit of the suite
Hits = Dict[str, int]  # operation: hits, if the suite counts them


class Failure(Exception):
    """A program that could not be run, and its output."""


def output_of(command: List[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Failure(f"{command[0]} exited with {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def time_cpp(suite: Suite, program: pathlib.Path, implementation: str, names: Sequence[str], size: int,
             min_time: float) -> Tuple[Times, Hits]:
    output = output_of([
        str(program), f"--benchmark_filter=^BM_[A-Za-z]+{implementation}/{size}/",
        f"--benchmark_min_time={min_time}", "--benchmark_format=json"])
    # If the filter matches nothing, Google Benchmark prints nothing.
    benchmarks = json.loads(output)["benchmarks"] if output else []
    name_of = {cpp_name: name for name, cpp_name, _ in suite.operations}
    times = {}
    hits = {}
    for one in benchmarks:
        if one.get("error_occurred"):
            raise Failure(f"{one['name']}: {one['error_message']}")
        name = re.sub(rf"^BM_(\w+){implementation}/.*", r"\1", one["name"])
        name = name_of.get(name, name)
        times[name] = one[f"ns_per_{suite.unit}"]
        if "hits" in one:
            hits[name] = round(one["hits"])
    if set(times) != set(names):
        raise Failure(f"{program} timed {sorted(times)}, expected {sorted(names)}")
    return times, hits


def time_vllm(suite: Suite, version: str, size: int, repetitions: int) -> Optional[Tuple[Times, Hits]]:
    """The times of a release; None if it is not on this machine."""
    command = [sys.executable, str(ADAPTERS / suite.adapter), "--release", version,
               suite.size_option, str(size), "--repetitions", str(repetitions)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == SKIPPED:
        print(done.stderr.strip(), file=sys.stderr)
        return None
    if done.returncode != 0:
        raise Failure(f"{suite.adapter} exited with {done.returncode}: {done.stderr.strip()}")
    operations = json.loads(done.stdout)["ops"]
    return ({name: one[f"median_ns_per_{suite.unit}"] for name, one in operations.items()},
            {name: one["hits"] for name, one in operations.items() if "hits" in one})


def summary(values: List[float]) -> dict:
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def summaries(rounds: List[Times]) -> Dict[str, dict]:
    return {name: summary([times[name] for times in rounds]) for name in rounds[0]}


def ratios(ours: List[Times], theirs: List[Times]) -> Dict[str, dict]:
    """Ratios within each round."""
    return {name: summary([their[name] / our[name] for our, their in zip(ours, theirs)]) for name in theirs[0]}


class Rounds:
    """Times by implementation and size, a list with one entry per round."""

    def __init__(self):
        self.times: Dict[str, Dict[int, List[Times]]] = {}
        self._hits: Dict[int, Hits] = {}

    def add(self, implementation: str, size: int, measured: Tuple[Times, Hits]) -> None:
        times, hits = measured
        self.times.setdefault(implementation, {}).setdefault(size, []).append(times)
        expected = self._hits.setdefault(size, {})
        for name, count in hits.items():
            if expected.setdefault(name, count) != count:
                raise Failure(f"{name} at {size}: {implementation} has {count} hits, others {expected[name]}")

    def summaries(self, implementation: str) -> Dict[str, dict]:
        return {str(size): summaries(rounds) for size, rounds in self.times[implementation].items()}

    def ratios(self, implementation: str) -> Dict[str, dict]:
        ours = self.times["optimized"]
        return {str(size): ratios(ours[size], rounds) for size, rounds in self.times[implementation].items()}


def measure(suite: Suite, arguments: argparse.Namespace) -> dict:
    """All rounds; raises Failure, and SystemExit 77 if no release is here."""
    rounds = Rounds()
    missing = set()

    def time_program(implementation: str, names: Sequence[str], size: int) -> Tuple[Times, Hits]:
        return time_cpp(suite, arguments.program, implementation, names, size, arguments.min_time)

    load_before = os.getloadavg()[0]
    for number in range(arguments.rounds):
        for size in arguments.compared_sizes:
            print(f"round {number + 1} of {arguments.rounds}, {size} {suite.what}, load {os.getloadavg()[0]:.1f}",
                  file=sys.stderr)
            rounds.add("optimized", size, time_program("Optimized", suite.names(), size))
            if suite.peer_size is None:
                rounds.add("peer", size, time_program(suite.peer, suite.peer_names(), size))
            for version in RELEASES:
                measured = None
                if version not in missing:
                    measured = time_vllm(suite, version, size, arguments.repetitions)
                if measured is None:
                    missing.add(version)
                else:
                    rounds.add(version, size, measured)
            if len(missing) == len(RELEASES):
                print("compare_with_vllm.py: no release of vLLM to compare with", file=sys.stderr)
                raise SystemExit(SKIPPED)
        if suite.peer_size is not None:
            rounds.add("peer", suite.peer_size, time_program(suite.peer, suite.peer_names(), suite.peer_size))
        for size in suite.sizes:
            if size not in arguments.compared_sizes:
                rounds.add("optimized", size, time_program("Optimized", suite.names(), size))

    versions = [version for version in RELEASES if version not in missing]
    return {
        "suite": arguments.suite,
        "date": arguments.date,
        "machine": machine(),
        "load": [round(load_before, 1), round(os.getloadavg()[0], 1)],
        "python": platform.python_version(),
        "rounds": arguments.rounds,
        "compared_sizes": list(arguments.compared_sizes),
        "optimized": rounds.summaries("optimized"),
        "peer": rounds.summaries("peer"),
        "peer_ratio": rounds.ratios("peer") if suite.peer_size is None else {},
        "vllm": {version: rounds.summaries(version) for version in versions},
        "ratio": {version: rounds.ratios(version) for version in versions},
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
    """All three figures in ns, or in the unit that suits the median."""
    divisor, unit = 1.0, ""
    if one["median"] >= 1e4:
        divisor, unit = (1e6, " ms") if one["median"] >= 1e6 else (1e3, " us")
    return "{} [{}..{}]".format(*(number(one[key] / divisor) for key in ("median", "min", "max"))) + unit


def number(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}"


def ratio(one: dict, target: Optional[int]) -> str:
    form = "{:.1f}" if one["median"] < 10 else "{:.0f}"
    text = f"{form}x [{form}..{form}]".format(one["median"], one["min"], one["max"])
    return text if target is None or one["median"] >= target else text + f", below {target}x"


def table(header: List[str], rows: List[List[str]]) -> str:
    widths = [max(len(row[column]) for row in [header] + rows) for column in range(len(header))]
    lines = [header, ["-" * width for width in widths]] + rows
    return "\n".join("| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths)) + " |" for line in lines)


def comparison_table(suite: Suite, results: dict, size: int) -> str:
    peer_size = suite.peer_size or size
    peer = suite.peer_title + (f" ({peer_size} {suite.what})" if peer_size != size else "")
    header = ["operation", "optimized", peer]
    if suite.peer_size is None:
        header.append("ratio")
    for version in results["vllm"]:
        header += [f"vLLM {version}", "ratio"]
    rows = []
    for name, _, target in suite.operations:
        peer_times = results["peer"][str(peer_size)].get(name)
        row = [name, time_text(results["optimized"][str(size)][name]), time_text(peer_times) if peer_times else ""]
        if suite.peer_size is None:
            row.append(ratio(results["peer_ratio"][str(size)][name], suite.peer_target) if peer_times else "")
        for version, times in results["vllm"].items():
            row += [time_text(times[str(size)][name]), ratio(results["ratio"][version][str(size)][name], target)]
        rows.append(row)
    return table(header, rows)


def flatness_table(suite: Suite, results: dict) -> str:
    rows = [[name] + [time_text(results["optimized"][str(size)][name]) for size in suite.sizes]
            for name in suite.names()]
    return table(["operation"] + [str(size) for size in suite.sizes], rows)


def text_of(results: dict) -> str:
    suite = SUITES[results["suite"]]
    text = (f"ns a {suite.unit} (unless a cell has another unit): median of {results['rounds']} rounds [min..max]; "
            "ratio: of the same round\n")
    for size in results["compared_sizes"]:
        text += f"\n{size} {suite.what}\n\n{comparison_table(suite, results, size)}\n"
    if len(suite.sizes) > 1:
        text += f"\noptimized, ns a {suite.unit} by number of {suite.what}\n\n{flatness_table(suite, results)}\n"
    return text


def results_page(results: dict, command: str) -> str:
    return (f"# Results: {results['suite']}\n\n"
            "Written by `compare_with_vllm.py`. [README.md](README.md) explains the figures.\n\n"
            f"- command: `{command}`\n"
            "- build: `cmake --preset release` (-O3 -DNDEBUG)\n"
            f"- machine: {results['machine']}; load average {results['load'][0]} before, {results['load'][1]} after\n"
            f"- Python {results['python']}\n- date: {results['date']}\n\n{text_of(results)}")


def pin_to_one_core() -> None:
    """Pins this process and its children: a migration in the middle of a pass costs more than the pass."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suite", choices=SUITES, default="block_pool")
    parser.add_argument("--program", type=pathlib.Path, metavar="FILE",
                        help="the suite's C++ benchmark; default: that of --preset release")
    parser.add_argument("--size", "--num-blocks", type=int, metavar="N",
                        help="compare only at this size of the suite; default: where the suite compares")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--repetitions", type=int, default=3, help="of vLLM's side per round")
    parser.add_argument("--min-time", type=float, default=0.1, metavar="SECONDS",
                        help="how long each C++ operation is repeated per round")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of the tables")
    parser.add_argument("--results", type=pathlib.Path, metavar="FILE", help="write the tables there as well")
    parser.add_argument("--date", default=datetime.date.today().isoformat(), help="for --results; default: today's")
    arguments = parser.parse_args()
    if arguments.rounds < 1 or arguments.repetitions < 1 or arguments.min_time <= 0:
        parser.error("at least 1 round, 1 repetition and a time above 0")
    suite = SUITES[arguments.suite]
    arguments.program = arguments.program or PROGRAMS / suite.program
    arguments.compared_sizes = (arguments.size,) if arguments.size else suite.compared_sizes
    if not set(arguments.compared_sizes) <= set(suite.sizes):
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
        command = f"compare_with_vllm.py --suite {arguments.suite}"
        command += f" --size {arguments.size}" if arguments.size else ""
        command += f" --rounds {arguments.rounds} --repetitions {arguments.repetitions}"
        arguments.results.write_text(results_page(results, command), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
