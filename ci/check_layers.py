#!/usr/bin/env python3
"""Checks that every #include follows the layers, as shown in ci/README.md.

    L3   scenarios/   fuzz/   properties/*_test.cpp   properties/bench/
    L2   properties/                        knows concepts, never an implementation
    L1   reference/   optimized/   cuda/    never each other
    L0   contract/

Within a layer, components have an order too (COMPONENTS): optimized/pool does not include optimized/scheduler.

The library targets of CMake cannot check this: all folders share one include root. Exit codes: 0 clean, 1 not.
"""

import fnmatch
import pathlib
import re
import sys

from tree import Finding, main, read_text

LAYERS = ("contract", "reference", "optimized", "cuda", "properties", "fuzz", "scenarios")
SOURCES = (".h", ".cpp", ".cu", ".cuh")
BELOW_L3 = ("contract", "reference", "optimized", "cuda", "properties")

# The files of properties/ that belong to L3. Only the first three name an implementation's own headers;
# the other tests there reach implementations through PLUG, as their contract shows them.
NAME_IMPLEMENTATIONS = ("properties/*_prop_test.cpp", "properties/*/prop_test.cpp", "properties/*_unit_test.cpp",
                        "properties/core/prop_test_support.h",
                        "properties/core/campaign_test_support.h", "properties/bench/*")
L3 = NAME_IMPLEMENTATIONS + ("properties/*_test.cpp", "fuzz/*", "scenarios/*")

# First match decides: which folders of the repository a file may include.
MAY_INCLUDE = tuple((pattern, BELOW_L3) for pattern in NAME_IMPLEMENTATIONS) + (
    ("contract/*", ("contract",)),
    ("reference/*", ("contract", "reference")),
    ("optimized/*", ("contract", "optimized")),
    ("cuda/*", ("contract", "cuda")),
    ("properties/*", ("contract", "properties")),
    ("fuzz/fuzz_kv_events.cpp", BELOW_L3 + ("fuzz", "scenarios")),
    ("fuzz/*", BELOW_L3 + ("fuzz",)),
    ("scenarios/*", BELOW_L3 + ("scenarios",)),
)

# The components of a layer, lowest first: a room includes only earlier ones of its layer.
COMPONENTS = ("core", "base", "pool", "eviction", "kv_cache", "offload", "files", "worker", "connectors", "scripted",
              "scheduler", "tiering", "connectors/*", "engine", "planted")
ORDERED = ("contract", "reference", "optimized", "properties")
# Exceptions to the order, each with the reason.
COMPONENT_EXCEPTIONS = {
    "contract/core/digest.cpp": "digests are of block hashes, whose library calls stand there",
    "contract/core/shared_fields.h": "the fields of a request",
    "contract/scripted/*": "scripted doubles follow the concepts of every component",
    "contract/tiering/secondary_tier_factory.cpp": "a tier is made from a connector's spec",
    "contract/connectors/test_connector_library.cpp": "what a test opens",
}

# The exception: this file plugs the implementations together, once for all of L3.
PLUG = "scenarios/targets/targets.h"

# The instrumented copies, which ci/plant.py writes at build time: "planted/<layer>/x.h" is a copy of "<layer>/x.h",
# for the tests of that file and for code that plugs implementations together, shows what a bug does, or measures it.
COPY = "planted/"
COPY_USERS = ("scenarios/targets/*", "scenarios/story/*", "cuda/figures/held_races.cpp")
# The switch of the copies, their counters, and the list of their bugs, for the same users.
SWITCHES = ("properties/planted/switches.h", "properties/planted/bugs.h")

# Separate projects, to be copied: their own headers lie beside them.
EXAMPLES = "scenarios/examples/"

# Files that need only a compiler: besides they may include only the standard library.
STD_ONLY = ("contract/*.h", "reference/*", "optimized/*")
# Except files with system calls: those of the file tier, and the one that asks for huge pages.
SYSTEM_CALLS = ("optimized/base/huge_pages.cpp", "optimized/files/posix_file_operations.cpp")
PRODUCT = ("contract/*", "reference/*", "optimized/*", "cuda/*", "scenarios/*")
TEST_FILES = ("*_test.cpp", "*/bench/*")
TEST_LIBRARIES = ("gtest/", "gmock/", "rapidcheck", "benchmark/")

INCLUDE = re.compile(r'^\s*#\s*include\s*(?:"([^"]+)"|<([^>]+)>)')


def matches(path, patterns):
    return any(fnmatch.fnmatchcase(path, pattern) for pattern in patterns)


def check_include(root, path, quoted, angled):
    """What is wrong with one include of one file: (rule, message), or None."""
    if quoted and quoted.startswith(TEST_LIBRARIES):
        return "foreign-header-in-quotes", f'"{quoted}" is not ours: write <{quoted}>'
    test = matches(path, TEST_FILES)
    if angled:
        if angled.split("/")[0] in LAYERS and (root / angled).is_file():
            return "own-header-in-angle-brackets", f'<{angled}> is ours: write "{angled}"'
        if not test and angled.startswith(TEST_LIBRARIES) and matches(path, PRODUCT):
            return "test-library-in-product", f"<{angled}> belongs into tests"
        if (not test and matches(path, STD_ONLY) and not matches(path, SYSTEM_CALLS)
                and ("." in angled or "/" in angled)):
            return "standard-library-only", f"<{angled}> is not of the C++ standard library"
        return None
    if quoted in SWITCHES and (test or matches(path, COPY_USERS)):
        return None
    if quoted.startswith(COPY):
        quoted = quoted.removeprefix(COPY)
        if not test and not matches(path, COPY_USERS):
            return "layer", f'"{COPY}{quoted}" is a copy for tests'
    if path.startswith(EXAMPLES) and ((root / path).parent / quoted).is_file():
        return None
    if not (root / quoted).is_file():
        return "include-root", f'"{quoted}" is not a path from the root of the repository'
    if quoted == PLUG and matches(path, L3):
        return None
    if matches(quoted, L3) and not matches(path, L3):
        return "layer", f'"{quoted}" is of L3, which nothing below includes'
    folder = quoted.split("/")[0]
    allowed = next((folders for pattern, folders in MAY_INCLUDE if fnmatch.fnmatchcase(path, pattern)), ())
    if folder not in allowed:
        return "layer", f'may include {", ".join(allowed) or "nothing"}; found "{quoted}"'
    if quoted.endswith((".cpp", ".cu")):
        return "source-included", f'"{quoted}" is no header'
    return None if test else check_component(path, quoted)


def component_of(path):
    """The index of a file's component in COMPONENTS; None if its layer has no order or the file has no component."""
    layer, _, room = str(pathlib.PurePosixPath(path).parent).partition("/")
    if layer not in ORDERED:
        return None
    known = [place for place, pattern in enumerate(COMPONENTS) if fnmatch.fnmatchcase(room, pattern)]
    return known[0] if known else None


def check_component(path, quoted):
    """What is wrong with an include within a layer, as check_include."""
    own, other = component_of(path), component_of(quoted)
    same_layer = path.split("/")[0] == quoted.split("/")[0]
    if own is None or other is None or not same_layer or other <= own:
        return None
    if any(fnmatch.fnmatchcase(path, pattern) for pattern in COMPONENT_EXCEPTIONS):
        return None
    return "component", f'"{quoted}" stands above {pathlib.PurePosixPath(path).parent}: {", ".join(COMPONENTS)}'


def check(root, files):
    findings = []
    for path in files:
        if pathlib.Path(path).suffix not in SOURCES:
            continue
        if path.split("/")[0] not in LAYERS:
            findings.append(Finding(path, 1, "unknown-folder", f"C++ lives in {', '.join(LAYERS)}"))
            continue
        for number, line in enumerate((read_text(root / path) or "").splitlines(), start=1):
            include = INCLUDE.match(line)
            wrong = include and check_include(root, path, include.group(1), include.group(2))
            if wrong:
                findings.append(Finding(path, number, *wrong))
    return findings


if __name__ == "__main__":
    sys.exit(main(check, "layers"))
