#!/usr/bin/env python3
"""Writes the golden statistics: what vLLM's own classes and the real Prometheus client answer, for
kv_connector_stats_unit_test.cpp.

Drives OffloadingConnectorStats and OffloadPromMetrics of each release given (loaded from its files, with placeholders
for what they import of the engine) and prometheus_client's generate_latest without the `_created` series, and prints
the answers once if all releases agree. Output: `#` comment lines, then one JSON object per line.

Needs prometheus_client, and the unpacked wheels (`python3 -m zipfile -e <wheel> <folder>`).

example: generate_stats_golden.py --release wheels/v0.19.0 --release wheels/v0.23.0 \\
             > contract/golden/kv_connector_stats_golden.txt
"""

import argparse
import dataclasses
import importlib.util
import json
import pathlib
import random
import sys
import types

import prometheus_client
from prometheus_client.utils import floatToGoString

CONNECTOR = "vllm.distributed.kv_transfer.kv_connector"

# Modules that the two files import and that need torch, with the names they are asked for.
PLACEHOLDERS = {
    "vllm": (),
    "vllm.config": ("KVTransferConfig", "VllmConfig"),
    "vllm.logger": (),
    "vllm.distributed": (),
    "vllm.distributed.kv_transfer": (),
    CONNECTOR: (),
    CONNECTOR + ".factory": ("KVConnectorFactory",),
    CONNECTOR + ".v1": (),
    CONNECTOR + ".v1.offloading": (),
    "vllm.v1": (),
    "vllm.v1.kv_offload": (),
    "vllm.v1.kv_offload.worker": (),
    "vllm.v1.kv_offload.worker.worker": ("TransferType",),
}

# Both sides of each bucket's bound, and sizes that a double does not hold.
BOUNDS = [1e6, 5e6, 10e6, 20e6, 40e6, 60e6, 80e6, 100e6, 150e6, 200e6]
SIZES = [0, 1, 2**53 + 1, 2**63 + 1] + [int(bound) + step for bound in BOUNDS for step in (-1, 0, 1)]
TIMES = [0.0, 0.1, 0.2, 0.3, 1e-7, 1e-3, 1.5, 12345.678, 1e6, 1e16]
TYPES = [("GPU", "CPU"), ("CPU", "GPU"), ("CPU", "DISK")]

NUMBERS = [0.0, -0.0, 1.0, -1.5, 0.1, 0.30000000000000004, 1e-4, 9.999e-5, 1e-7, 5e-324, 999999.0, 999999.99, 1e6,
           1000000.5, 1234567.0, -1e6, -1234567.5, 12345678901.25, 1e15, 9007199254740993.0, 1e16, 1.5e16, -1e16,
           1e22, 1e100, 1.7976931348623157e308, float("inf"), float("-inf"), float("nan")]


def load_release(folder):
    """The module of OffloadingConnectorStats and OffloadPromMetrics."""
    for name in [name for name in sys.modules if name.split(".")[0] == "vllm"]:
        del sys.modules[name]
    for name, members in PLACEHOLDERS.items():
        module = types.ModuleType(name)
        module.__path__ = []
        for member in members:
            setattr(module, member, type(member, (), {}))
        sys.modules[name] = module
    sys.modules["vllm.logger"].init_logger = lambda name: types.SimpleNamespace(info=print)
    for name in (CONNECTOR + ".v1.metrics", CONNECTOR + ".v1.offloading.metrics"):
        path = pathlib.Path(folder, *name.split(".")).with_suffix(".py")
        spec = importlib.util.spec_from_file_location(name, path)
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return module


def serialized(data):
    """As the statistics come out of the message between two processes."""
    return json.loads(json.dumps(data, default=dataclasses.asdict))


def pairs(data):
    return [[name, [[op["op_size"], op["op_time"]] for op in ops]] for name, ops in serialized(data).items()]


def stats_cases(release):
    """Two sets of statistics, one aggregated into the other."""
    chooser = random.Random(1)
    for num_left, num_right in ((0, 0), (0, 3), (1, 0), (1, 1), (5, 3), (12, 12)):
        case = {"kind": "stats", "left": [], "right": []}
        sides = {}
        for side, count in (("left", num_left), ("right", num_right)):
            sides[side] = release.OffloadingConnectorStats()
            for _ in range(count):
                size, time, kind = chooser.choice(SIZES), chooser.choice(TIMES), chooser.choice(TYPES)
                sides[side].record_transfer(size, time, kind)
                case[side].append([size, time, *kind])
        total = release.OffloadingConnectorStats(data=serialized(sides["left"].data))
        total = total.aggregate(release.OffloadingConnectorStats(data=serialized(sides["right"].data)))
        reduced = total.reduce()
        yield {**case, "is_empty": total.is_empty(), "data": pairs(total.data),
               # Modulo 2**64, since the contract has no longer numbers.
               "reduced": [[name, value % 2**64 if isinstance(value, int) else value]
                           for name, value in reduced.items()],
               "log": ", ".join(f"{k}={v % 2**64 if isinstance(v, int) else v}" for k, v in reduced.items())}


def metrics_case(release, labelnames, engines, observations):
    registry = prometheus_client.CollectorRegistry()

    def in_registry(metric):
        return lambda **arguments: metric(registry=registry, **arguments)

    metric_types = {kind: in_registry(kind)
                    for kind in (prometheus_client.Gauge, prometheus_client.Counter, prometheus_client.Histogram)}
    metrics = release.OffloadPromMetrics(types.SimpleNamespace(kv_transfer_config=None), metric_types,
                                         list(labelnames), dict(engines))
    for engine, data in observations:
        metrics.observe({name: [{"op_size": size, "op_time": time} for size, time in ops] for name, ops in data},
                        engine)
    return {"kind": "metrics", "labelnames": labelnames, "engines": list(engines.items()),
            "observations": observations, "text": prometheus_client.generate_latest(registry).decode()}


def metrics_cases(release):
    names = ["model_name", "engine"]
    one = {0: ["a-model", "0"]}
    yield metrics_case(release, names, one, [])
    yield metrics_case(release, names, one, [[0, []], [0, [["GPU_to_CPU", []]]]])
    yield metrics_case(release, names, one, [[0, [["GPU_to_CPU", [[size, 0.1] for size in SIZES]]]]])
    yield metrics_case(release, names, one, [[0, [["CPU_to_GPU", [[1, time] for time in TIMES]]]]])
    odd = 'a "model"\\with\nlines'
    yield metrics_case(release, ["z_last", "a_first", "model_name"], {3: ["z", "a", odd]},
                       [[3, [["GPU_to_CPU", [[1000000, 0.5]]]]]])
    yield metrics_case(release, [], {0: []}, [[0, [["GPU_to_CPU", [[7, 0.25]]]]]])
    chooser = random.Random(2)
    shared = {0: ["m", "0"], 1: ["m", "1"], 2: ["m", "0"]}
    observations = []
    for _ in range(8):
        kinds = chooser.sample(["GPU_to_CPU", "CPU_to_GPU", "CPU_to_DISK"], chooser.randint(0, 3))
        observations.append([chooser.choice(list(shared)),
                             [[kind, [[chooser.choice(SIZES), chooser.choice(TIMES)]
                                      for _ in range(chooser.randint(0, 5))]] for kind in kinds]])
    yield metrics_case(release, names, shared, observations)


def number_cases(_):
    for number in NUMBERS:
        yield {"kind": "number", "hex": number.hex(), "text": floatToGoString(number)}


def all_cases(folder):
    release = load_release(folder)
    return [json.dumps(case) for cases in (number_cases, stats_cases, metrics_cases) for case in cases(release)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--release", action="append", required=True, help="folder of an unpacked wheel")
    releases = parser.parse_args().release
    prometheus_client.disable_created_metrics()
    answers = [all_cases(folder) for folder in releases]
    for folder, answer in zip(releases, answers):
        if answer != answers[0]:
            sys.exit(f"{folder} answers otherwise than {releases[0]}: one golden file cannot hold both")
    print("# What vLLM's OffloadingConnectorStats and OffloadPromMetrics and prometheus_client answer.")
    print("# Written by contract/golden/generate_stats_golden.py: one JSON object per line.")
    for line in answers[0]:
        print(line)


if __name__ == "__main__":
    main()
