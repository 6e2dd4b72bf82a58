#!/usr/bin/env python3
"""Times random commands on engines, with every oracle on and without, and prints a table.

Each round runs build/release/properties/engine_bench once, pinned to one core; the table has the median over the rounds
[smallest..largest]. There are no figures of vLLM: it has no such engine without a GPU.

Exit codes: 0 done, 1 below --at-least, 2 a bad argument or no usable benchmark program.

example: time_engine.py --rounds 5 --results properties/bench/RESULTS_engine.md
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import pathlib
import sys
from typing import Dict, List, Optional

from compare_with_vllm import PROGRAMS, Failure, machine, output_of, pin_to_one_core, summary, table

WHAT = {
    "BM_Campaign": "reference, optimized and its witness, every oracle on",
    "BM_CommandsOptimized": "optimized alone, on the virtual device",
    "BM_CommandsOptimizedOnSymbols": "optimized alone, on the reference's device",
    "BM_CommandsReference": "reference alone",
}
COUNTERS = ("ns_per_command", "ns_per_step", "commands_per_step")


def run_once(program: pathlib.Path, min_time: float) -> dict:
    output = output_of([str(program), f"--benchmark_min_time={min_time}", "--benchmark_format=json"])
    answer = json.loads(output)
    measured: Dict[str, Dict[str, float]] = {}
    for one in answer["benchmarks"]:
        if one.get("error_occurred"):
            raise Failure(f"{one['name']}: {one['error_message']}")
        measured[one["name"].split("/")[0]] = {counter: one[counter] for counter in COUNTERS}
    if set(measured) != set(WHAT):
        raise Failure(f"{program} timed {sorted(measured)}, expected {sorted(WHAT)}")
    return {"allocator": answer["context"]["allocator"], "measured": measured}


def measure(arguments: argparse.Namespace) -> dict:
    load_before = os.getloadavg()[0]
    rounds = []
    for number in range(arguments.rounds):
        print(f"round {number + 1} of {arguments.rounds}, load {os.getloadavg()[0]:.1f}", file=sys.stderr)
        rounds.append(run_once(arguments.program, arguments.min_time))

    def a_second(name: str, counter: str) -> dict:
        return summary([1e9 / one["measured"][name][counter] for one in rounds])

    return {
        "date": arguments.date,
        "machine": machine(),
        "allocator": rounds[0]["allocator"],
        "load": [round(load_before, 1), round(os.getloadavg()[0], 1)],
        "rounds": arguments.rounds,
        "commands_per_step": rounds[0]["measured"]["BM_Campaign"]["commands_per_step"],
        "commands_a_second": {name: a_second(name, "ns_per_command") for name in WHAT},
        "steps_a_second": {name: a_second(name, "ns_per_step") for name in WHAT},
    }


def cell(one: dict) -> str:
    return "{:,.0f} [{:,.0f}..{:,.0f}]".format(one["median"], one["min"], one["max"])


def text_of(results: dict) -> str:
    rows = [[what, cell(results["commands_a_second"][name]), cell(results["steps_a_second"][name])]
            for name, what in WHAT.items()]
    return (f"Per second of CPU time on one core: median of {results['rounds']} rounds [min..max]; "
            f"{results['commands_per_step']:.1f} commands per step\n\n"
            + table(["what runs", "commands per second", "steps per second"], rows) + "\n")


def results_page(results: dict, command: str) -> str:
    return ("# Results: engine\n\n"
            "Written by `time_engine.py`. [README.md](README.md) explains the figures.\n\n"
            f"- command: `{command}`\n"
            f"- build: `cmake --preset release` (-O3 -DNDEBUG); allocator: {results['allocator']}\n"
            f"- machine: {results['machine']}; load average {results['load'][0]} before, {results['load'][1]} after\n"
            f"- date: {results['date']}\n\n{text_of(results)}")


def is_too_slow(results: dict, at_least: Optional[int]) -> bool:
    campaign = results["steps_a_second"]["BM_Campaign"]["median"]
    if at_least is None or campaign >= at_least:
        return False
    print(f"time_engine.py: {campaign:,.0f} steps per second with every oracle on, expected at least {at_least:,}",
          file=sys.stderr)
    return True


def main(argv: Optional[List[str]] = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=pathlib.Path, default=PROGRAMS / "engine_bench", help="the C++ benchmark")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--min-time", type=float, default=2.0, help="seconds per figure")
    parser.add_argument("--at-least", type=int, metavar="N", help="steps per second with every oracle on")
    parser.add_argument("--results", type=pathlib.Path, help="write the page here")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--date", default=datetime.date.today().isoformat(), help="for --results; default: today's")
    arguments = parser.parse_args(argv)
    if arguments.rounds < 1 or arguments.min_time <= 0:
        parser.error("at least 1 round and a time above 0")
    if not os.access(arguments.program, os.X_OK):
        parser.error(f"{arguments.program} is no program: cmake --preset release && "
                     "cmake --build --preset release --target engine_bench")
    pin_to_one_core()
    try:
        results = measure(arguments)
    except Failure as failure:
        print(f"time_engine.py: {failure}", file=sys.stderr)
        return 2
    print(json.dumps(results) if arguments.json else text_of(results), end="\n" if arguments.json else "")
    if arguments.results is not None:
        command = f"time_engine.py --rounds {arguments.rounds} --min-time {arguments.min_time:g}"
        arguments.results.write_text(results_page(results, command), encoding="utf-8")
    return 1 if is_too_slow(results, arguments.at_least) else 0


if __name__ == "__main__":
    sys.exit(main())
