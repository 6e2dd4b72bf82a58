"""Where the releases of vLLM that kvfence compares with are found on this machine."""

from __future__ import annotations

import importlib.machinery
import os
import pathlib
import re
import sys
from typing import NamedTuple, Optional

HERE = pathlib.Path(__file__).resolve().parent

# The release that each profile (contract/core/rules.h) was pinned to.
RELEASE_OF_PROFILE = {"v0.19": "0.19.0", "v0.23": "0.23.0"}

# dataclass(slots=True) and kw_only, which vLLM uses.
PYTHON_MIN = (3, 10)


class ReleaseNotFound(Exception):
    """The reason why a release cannot be used, and a remedy."""


class Release(NamedTuple):
    version: str
    folder: pathlib.Path  # contains vllm/


def cache_folder(version: str) -> pathlib.Path:
    """Where fetch_vllm.py puts a release."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return pathlib.Path(base) / "kvfence" / f"vllm-{version}"


def version_in(folder: pathlib.Path) -> Optional[str]:
    """The version of the vLLM in a folder without its local part (`+cu129`), None if there is none."""
    try:
        text = (folder / "vllm" / "_version.py").read_text(encoding="utf-8")
    except OSError:
        return None
    found = re.search(r"^__version__ = (?:version = )?['\"]([^'\"+]+)", text, re.MULTILINE)
    return found and found[1]


def installed_folder() -> Optional[pathlib.Path]:
    """The folder of a normally installed vLLM; the adapter vllm.py of this folder is not one."""
    path = [entry for entry in sys.path if pathlib.Path(entry or ".").resolve() != HERE]
    spec = importlib.machinery.PathFinder.find_spec("vllm", path)
    if spec is None or not spec.submodule_search_locations:
        return None
    return pathlib.Path(next(iter(spec.submodule_search_locations))).parent


def find_release(version: Optional[str], folder: Optional[str] = None) -> Release:
    """The release of that version: in the folder if one is given, else installed, else fetched.

    version None takes what the folder has. Raises ReleaseNotFound.
    """
    if not __debug__:
        # The adapter requires upstream's own refusals, which are assertions.
        raise ReleaseNotFound("Python runs without assertions, expected neither -O nor PYTHONOPTIMIZE")
    if sys.version_info < PYTHON_MIN:
        raise ReleaseNotFound("vLLM needs Python {}.{} or later".format(*PYTHON_MIN))
    if folder is not None:
        found = version_in(pathlib.Path(folder))
        if found is None:
            raise ReleaseNotFound(f"{folder}: no vllm/_version.py, expected an unpacked wheel of vLLM")
        if version not in (None, found):
            raise ReleaseNotFound(f"{folder} has vLLM {found}, not {version}")
        return Release(found, pathlib.Path(folder))
    assert version is not None
    for candidate in (installed_folder(), cache_folder(version)):
        if candidate is not None and version_in(candidate) == version:
            return Release(version, candidate)
    raise ReleaseNotFound(
        f"vLLM {version} is neither installed nor fetched: run python3 scenarios/adapters/fetch_vllm.py {version}")
