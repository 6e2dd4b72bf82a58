"""The parts that are checked and fuzzed: a target, or an assembly of target engine, such as engine.offloading."""

import json
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent


def parts_of(kvfence):
    """All parts that the program has."""
    listed = subprocess.run([kvfence, "list", "planted-bugs", "--json"], capture_output=True, text=True, check=True)
    return list(json.loads(listed.stdout))


def fuzzed_parts():
    """The parts in fuzz/targets.txt."""
    lines = (ROOT / "fuzz" / "targets.txt").read_text().splitlines()
    return [line.split()[0] for line in lines if line and not line.startswith("#")]


def arguments_of(part):
    """The options that restrict `kvfence check` to the part."""
    target, _, assembly = part.partition(".")
    return ["--target", target] + (["--config", f"assembly={assembly}"] if assembly else [])
