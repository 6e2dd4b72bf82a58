#!/usr/bin/env python3
"""Checks that each planted bug of each target, and of each assembly of target engine, has a scenario, and that none is
of a bug that is gone. A scenario is in bugs/, or is a race that names the bug.

    check_bug_cases.py KVFENCE     in the folder of cases/

That the scenario is green, and red with its bug, is a test of its own. Exit codes: 0 clean, 1 not.
"""

import pathlib
import subprocess
import sys


def planted_bugs(kvfence):
    """The names of the planted bugs of each target, such as block_pool, or assembly, such as engine.offloading."""
    listed = subprocess.run([kvfence, "list", "planted-bugs"], capture_output=True, text=True, check=True)
    bugs = {}
    names = None
    for line in listed.stdout.splitlines():
        if not line.startswith(" "):
            names = bugs.setdefault(line.strip(), set())
        else:
            names.add(line.split()[0])
    return bugs


def races(folder):
    """The planted bugs that open the races of a folder: each file names one."""
    for case in folder.glob("*.kvs"):
        for line in case.read_text().splitlines():
            if line.startswith("# Planted bug: "):
                yield line.removeprefix("# Planted bug: ").strip()


def findings(bugs):
    if not bugs or not all(bugs.values()):
        yield "a target or an assembly without planted bugs, or no target at all"
    for part, names in bugs.items():
        folder = pathlib.Path("cases", *part.split("."), "bugs")
        cases = {case.stem for case in folder.glob("*.kvs")}
        opened = set(races(folder.parent / "races"))
        for name in sorted(names - cases - opened):
            yield f"{folder / name}.kvs: is missing, and no race is opened by it"
        for name in sorted((cases | opened) - names):
            yield f"{folder / name}.kvs: no planted bug has this name"


def main():
    bugs = planted_bugs(sys.argv[1])
    found = list(findings(bugs))
    print("\n".join(found + [f"{sum(map(len, bugs.values()))} planted bugs, {len(found)} findings"]))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
