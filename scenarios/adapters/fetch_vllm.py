#!/usr/bin/env python3
"""Fetches the Python sources of vLLM releases to where the adapters look for them.

pip downloads the wheel (270 to 430 MB) without its dependencies into a temporary folder; only the sources that the
adapters may need are kept (a few MB), in ${XDG_CACHE_HOME:-~/.cache}/kvfence/vllm-<release>. Also installs cbor2 and
xxhash for block hashes, and msgspec and pyzmq for the publisher, if they are absent. A release that exists already is not
fetched again.

Exit status: 0 all there, 77 no network, 1 anything else.
example: fetch_vllm.py 0.19.0 0.23.0
"""

from __future__ import annotations

import argparse
import importlib.util
import pathlib
import re
import subprocess
import sys
import tempfile
import zipfile

from releases import RELEASE_OF_PROFILE, cache_folder, version_in
from upstream_import import REQUIRED_PACKAGES

EXIT_NO_NETWORK = 77

# Needed by vLLM's publisher of KV events: module and package.
PUBLISHER_PACKAGES = {"msgspec": "msgspec", "zmq": "pyzmq"}

# The parts of a wheel that are kept.
WANTED = re.compile(r"vllm/[^/]+\.py|vllm/(?:distributed|utils|v1)/.+\.py|[^/]+\.dist-info/(?:licenses/)?LICENSE")

# The wheels are for Linux; their Python sources serve any machine.
PLATFORMS = ("manylinux_2_35_x86_64", "manylinux_2_31_x86_64", "manylinux_2_28_x86_64", "manylinux_2_17_x86_64",
             "manylinux2014_x86_64", "manylinux1_x86_64")

NO_NETWORK = re.compile(
    "NewConnectionError|NameResolutionError|Temporary failure in name resolution|Name or service not known"
    "|Network is unreachable|Connection refused|ConnectTimeout|ReadTimeout|timed out|ProxyError|Max retries exceeded"
    r"|\(from versions: none\)"
)


class FetchError(Exception):
    """The error, and the exit status."""

    def __init__(self, message: str, status: int = 1):
        super().__init__(message)
        self.status = status


def say(message: str) -> None:
    print(message, flush=True)


def pip(*arguments: str) -> None:
    """Runs pip of this interpreter; its output goes to the terminal. Raises FetchError."""
    command = [sys.executable, "-m", "pip", *arguments]
    say("$ " + " ".join(command))
    lines = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          errors="replace") as child:
        for line in child.stdout:
            print("  " + line, end="", flush=True)
            lines.append(line)
    if child.returncode == 0:
        return
    if NO_NETWORK.search("".join(lines)):
        raise FetchError("no network: the package index cannot be reached", EXIT_NO_NETWORK)
    raise FetchError(f"pip failed with status {child.returncode}: {lines[-1].strip() if lines else 'no output'}")


def install_required_packages() -> None:
    modules = {**{package: package for package in REQUIRED_PACKAGES}, **PUBLISHER_PACKAGES}
    missing = [package for module, package in modules.items() if importlib.util.find_spec(module) is None]
    if missing:
        say(f"installing {' '.join(missing)}, which block hashes are computed and events are published with")
        pip("install", *missing)


def unpack(wheel: pathlib.Path, folder: pathlib.Path) -> int:
    """Unpacks the needed parts of a wheel; the number of files."""
    with zipfile.ZipFile(wheel) as archive:
        members = [name for name in archive.namelist() if WANTED.fullmatch(name) and ".." not in name.split("/")]
        archive.extractall(folder, members)
    return len(members)


def fetch(version: str) -> None:
    target = cache_folder(version)
    if version_in(target) == version:
        say(f"vLLM {version} is there already: {target}")
        return
    if target.exists():
        raise FetchError(f"{target} exists and is not vLLM {version}: remove it")
    target.parent.mkdir(parents=True, exist_ok=True)
    # In the cache's own folder: the rename at the end is atomic, and a wheel is too large for some /tmp.
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f"fetch-{version}-") as temporary:
        downloads = pathlib.Path(temporary, "wheel")
        pip("download", "--no-deps", "--no-cache-dir", "--only-binary=:all:", "--ignore-requires-python",
            *[f"--platform={platform}" for platform in PLATFORMS], f"--dest={downloads}", f"vllm=={version}")
        wheels = list(downloads.glob("*.whl"))
        if len(wheels) != 1:
            raise FetchError(f"expected one wheel of vLLM {version}, found {[wheel.name for wheel in wheels]}")
        unpacked = pathlib.Path(temporary, "unpacked")
        num_files = unpack(wheels[0], unpacked)
        if version_in(unpacked) != version:
            raise FetchError(f"{wheels[0].name} has version {version_in(unpacked)}, expected {version}")
        unpacked.rename(target)
    say(f"vLLM {version}: {num_files} files in {target}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("releases", nargs="+", metavar="RELEASE",
                        help=f"such as {' or '.join(RELEASE_OF_PROFILE.values())}")
    arguments = parser.parse_args()
    try:
        for version in arguments.releases:
            if not re.fullmatch(r"[0-9]+(\.[0-9]+)+[A-Za-z0-9.]*", version):
                raise FetchError(f"{version!r} is no release, expected one such as 0.19.0")
        install_required_packages()
        for version in arguments.releases:
            fetch(version)
    except FetchError as error:
        print(f"fetch_vllm.py: {error}", file=sys.stderr)
        return error.status
    except OSError as error:
        print(f"fetch_vllm.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
