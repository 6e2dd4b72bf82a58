#!/usr/bin/env python3
"""Sums what ci/test ran and judges it: prints the failures, then "N passed, N failed, N skipped".

Usage: sum_results.py RESULTS EXPECTED_SKIPS

RESULTS holds one <build>.xml for each ctest run (JUnit, as ctest writes it) and gates.txt, with a line
"name passed|failed|skipped" for each other gate. EXPECTED_SKIPS is ci/expected_skips.txt. A test that
GoogleTest skipped inside a program that passed counts as a skip of its own.

Exit codes: 0 nothing failed and something passed; 1 otherwise; 2 unreadable input.
"""

import importlib.util
import os
import pathlib
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

GTEST_SKIPPED = re.compile(r"^\[  SKIPPED \] ([\w/]+\.[\w/]+)", re.MULTILINE)
OUTPUT_LINES_SHOWN = 40
ROOT = pathlib.Path(__file__).resolve().parents[1]
ADAPTERS = ROOT / "scenarios" / "adapters"


def clang_format_is_14():
    """Whether the format check can run here; the same condition as in ci/check_format.sh."""
    if not shutil.which("clang-format"):
        return False
    version = subprocess.run(["clang-format", "--version"], capture_output=True, text=True, check=False)
    return bool(re.search(r"version 14\.", version.stdout))


def has_vllm(version):
    """Whether the real vLLM of this release can run here; the same condition as in
    scenarios/adapters/test_adapter.py."""
    if str(ADAPTERS) not in sys.path:
        sys.path.append(str(ADAPTERS))
    from releases import ReleaseNotFound, find_release
    from upstream_import import REQUIRED_PACKAGES
    try:
        find_release(version)
        for package in REQUIRED_PACKAGES:
            importlib.import_module(package)
    except (ReleaseNotFound, ImportError):
        return False
    return True


def has_gpu():
    """Whether there is a GPU; the same condition as in ci/gpu."""
    return any(pathlib.Path(path).exists() for path in ("/dev/nvidiactl", "/dev/dxg"))


def compiles_kernels():
    """Whether the optimized build has the toolkit, and with it the tests that need a GPU."""
    cache = ROOT / "build" / "release" / "CMakeCache.txt"
    return cache.exists() and "KVFENCE_HAS_NVCC:INTERNAL=ON" in cache.read_text()


def has_zmq(*packages):
    """Whether the optimized build has ZeroMQ, and Python these packages besides pyzmq."""
    cache = ROOT / "build" / "release" / "CMakeCache.txt"
    is_built = cache.exists() and re.search(r"^cppzmq_DIR:PATH=/", cache.read_text(), re.MULTILINE) is not None
    return is_built and all(importlib.util.find_spec(package) for package in ("zmq", *packages))


CONDITIONS = {
    "always": lambda: True,
    "no_clang_format_14": lambda: not clang_format_is_14(),
    "no_traces": lambda: "KVFENCE_TRACES" not in os.environ,
    "no_gpu": lambda: not has_gpu(),
    "toolkit_and_no_gpu": lambda: compiles_kernels() and not has_gpu(),
    "no_vllm_0.19.0": lambda: not has_vllm("0.19.0"),
    "no_vllm_0.23.0": lambda: not has_vllm("0.23.0"),
    "no_zmq": lambda: not has_zmq("msgpack"),
    **{f"no_publisher_{version}": lambda version=version: not (has_vllm(version) and has_zmq("msgspec"))
       for version in ("0.19.0", "0.23.0", "0.33.0")},
}


class Outcomes:
    """The names of passed and skipped tests; failed ones with their output."""

    def __init__(self):
        self.passed = []
        self.skipped = []
        self.failed = {}


def read_junit(path, outcomes):
    """Adds the tests of one ctest run. A test that is neither "run" nor skipped by its own request has
    failed, also one that ctest could not start."""
    build = path.stem
    cases = list(ElementTree.parse(path).getroot().iter("testcase"))
    for case in cases:
        name = f"{build}/{case.get('name')}"
        output = case.findtext("system-out") or ""
        skip = case.find("skipped")
        if case.get("status") == "run":
            outcomes.passed.append(name)
            outcomes.skipped += sorted({f"{name}/{test}" for test in GTEST_SKIPPED.findall(output)})
        elif skip is not None and (skip.get("message") or "").startswith("SKIP_"):
            outcomes.skipped.append(name)
        else:
            failure = case.find("failure")
            reason = "" if failure is None else failure.get("message") or ""
            outcomes.failed[name] = f"{output}\n{reason}".strip() or f"status {case.get('status')}"
    if not cases:
        outcomes.failed[f"{build}/(all)"] = "ctest ran no test"


def read_gates(path, outcomes):
    for line in path.read_text().splitlines():
        name, verdict = line.split()
        if verdict == "passed":
            outcomes.passed.append(name)
        elif verdict == "skipped":
            outcomes.skipped.append(name)
        elif verdict == "failed":
            outcomes.failed[name] = ""
        else:
            raise ValueError(f"{path}: expected passed, failed or skipped, found '{verdict}'")


def read_expected_skips(path, conditions):
    """The names of skips whose condition holds here."""
    expected = set()
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        words = line.split(maxsplit=2)
        if len(words) < 3 or words[1] not in conditions:
            known = ", ".join(conditions)
            raise ValueError(f"{path}:{number}: expected name, condition ({known}) and reason, found '{line}'")
        if conditions[words[1]]():
            expected.add(words[0])
    return expected


def judge_skips(outcomes, expected):
    """Turns each unexpected skip, and each expected one that did not happen, into a failure."""
    for name in sorted(set(outcomes.skipped) - expected):
        outcomes.failed[name] = "skipped, and ci/expected_skips.txt does not say so"
    for name in sorted(expected - set(outcomes.skipped)):
        outcomes.failed[f"skip of {name}"] = "ci/expected_skips.txt expects it, and it was not skipped"
    outcomes.skipped = sorted(set(outcomes.skipped) & expected)


def sum_results(results, expected_skips, conditions=None):
    outcomes = Outcomes()
    for path in sorted(results.glob("*.xml")):
        read_junit(path, outcomes)
    if (results / "gates.txt").exists():
        read_gates(results / "gates.txt", outcomes)
    judge_skips(outcomes, read_expected_skips(expected_skips, conditions or CONDITIONS))
    return outcomes


def main(arguments):
    if len(arguments) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        outcomes = sum_results(pathlib.Path(arguments[0]), pathlib.Path(arguments[1]))
    except (OSError, ValueError, ElementTree.ParseError) as error:
        print(f"sum_results.py: {error}", file=sys.stderr)
        return 2
    for name in outcomes.skipped:
        print(f"  skipped, as expected: {name}")
    for name, output in outcomes.failed.items():
        print(f"  FAILED: {name}")
        for line in output.splitlines()[-OUTPUT_LINES_SHOWN:]:
            print(f"    | {line}")
    print()
    print(f"{len(outcomes.passed)} passed, {len(outcomes.failed)} failed, {len(outcomes.skipped)} skipped")
    return 0 if outcomes.passed and not outcomes.failed else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
