#!/usr/bin/env python3
"""kvfence adapter for the block pool, KV-cache manager, offloading managers and MultiConnector of the real vLLM, and
for its engine: the scheduler, alone or with an offloading, NIXL or synchronous connector.

Speaks the protocol of README.md on stdin and stdout.

Runs without a GPU and without vLLM's dependencies; needs cbor2, xxhash and Python 3.10. Looks for the release in
--path, among the installed packages, and where fetch_vllm.py puts it. Without --release the profile of each config
decides which one answers.

example: printf 'config num_gpu_blocks=4\\nget_new_blocks num_blocks=2\\n' | vllm.py --release 0.19.0
"""

from __future__ import annotations

import argparse
import functools
import sys
from typing import Any, Callable, Dict, FrozenSet, Optional

import corrected_connector
import corrected_disaggregated
import corrected_multi_connector
import corrected_scheduler
import corrected_simple_offload
import corrected_synchronous_connector
from block_pool_target import block_pool_target
from engine_commands import UpstreamEngine
from engine_target import engine_target
from eviction_target import eviction_target
from kv_cache_target import kv_cache_target
from line_language import print_text
from offload_target import offload_target
from releases import RELEASE_OF_PROFILE, Release, ReleaseNotFound, find_release
from session import Session, Unsupported
from tiering_target import tiering_target
from upstream_import import ReleaseSetAside
from upstream_kv_cache import UpstreamKVCache
from upstream_offload import KVOffload, UpstreamEviction, UpstreamOffload
from upstream_pool import Modules, UpstreamPool, check_supported
from upstream_tiering import UpstreamTiering
from wire import serve

CORRECTIONS = (*corrected_scheduler.CORRECTIONS, *corrected_connector.CORRECTIONS,
               *corrected_multi_connector.CORRECTIONS,
               *corrected_disaggregated.CORRECTIONS,
               *corrected_simple_offload.CORRECTIONS,
               *corrected_synchronous_connector.CORRECTIONS)


class Loaded:
    """A release that was loaded; its modules are importable while it is in use."""

    def __init__(self, release: Release):
        self.modules = Modules(release)
        self._kv_offload: Optional[KVOffload] = None
        self._aside: Optional[ReleaseSetAside] = None

    def kv_offload(self) -> KVOffload:
        if self._kv_offload is None:
            self._kv_offload = KVOffload(self.modules)
        return self._kv_offload

    def set_aside(self) -> None:
        self._aside = ReleaseSetAside()

    def take_back(self) -> None:
        if self._aside is not None:
            self._aside.take_back()
            self._aside = None


class Upstream:
    """Releases of vLLM, each loaded at the first configuration that needs it: the chosen one, or by default that of the
    configuration's profile."""

    def __init__(self, version: Optional[str], folder: Optional[str]):
        self._version = version
        self._folder = folder
        self._loaded: Dict[Optional[str], Loaded] = {}
        self._in_use: Optional[Loaded] = None

    def describe(self) -> str:
        if not self._is_chosen():
            return "implementation=vllm"
        return f"implementation=vllm version={print_text(self._find(self._version).version)}"

    def maker(self, implementation: Any) -> Callable[[Any], Any]:
        """implementation(modules, config), as a function of the config alone."""
        return lambda config: implementation(self._modules_for(config), config)

    def offload_maker(self, implementation: Any) -> Callable[[Any], Any]:
        """The same for what takes the offloading modules."""
        return lambda config: implementation(self._kv_offload_for(config), config)

    def make_engine(self, uncorrected: FrozenSet[str], config: Any) -> UpstreamEngine:
        return UpstreamEngine(self._modules_for(config), lambda: self._kv_offload_for(config), config, uncorrected)

    def _kv_offload_for(self, config: Any) -> KVOffload:
        return self._loaded_for(config).kv_offload()

    def _modules_for(self, config: Any) -> Modules:
        return self._loaded_for(config).modules

    def _loaded_for(self, config: Any) -> Loaded:
        if config.profile not in RELEASE_OF_PROFILE:
            raise Unsupported(f"profile {config.profile}, expected one of {', '.join(RELEASE_OF_PROFILE)}")
        loaded = self._use(self._version if self._is_chosen() else RELEASE_OF_PROFILE[config.profile])
        check_supported(loaded.modules, config)
        return loaded

    def _use(self, version: Optional[str]) -> Loaded:
        loaded = self._loaded.get(version)
        if loaded is not None and loaded is self._in_use:
            return loaded
        release = self._find(version) if loaded is None else None
        if self._in_use is not None:
            self._in_use.set_aside()
            self._in_use = None
        if release is not None:
            try:
                loaded = self._loaded[version] = Loaded(release)
            except ImportError as error:
                ReleaseSetAside()
                raise Unsupported(f"{error}; perhaps: python3 -m pip install cbor2 xxhash") from error
        loaded.take_back()
        self._in_use = loaded
        return loaded

    def _is_chosen(self) -> bool:
        return self._version is not None or self._folder is not None

    def _find(self, version: Optional[str]) -> Release:
        try:
            return find_release(version, self._folder)
        except ReleaseNotFound as error:
            raise Unsupported(error) from error


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--release", metavar="VERSION", help="such as 0.19.0")
    parser.add_argument("--path", metavar="FOLDER", help="where a wheel was unpacked; contains vllm/")
    parser.add_argument("--uncorrected", metavar="NAME", action="append", default=[], choices=CORRECTIONS,
                        help=f"keeps a fault of upstream's scheduler or connectors: {', '.join(CORRECTIONS)}")
    arguments = parser.parse_args()
    uncorrected = frozenset(arguments.uncorrected)
    upstream = Upstream(arguments.release, arguments.path)
    session = Session(upstream.describe, block_pool_target(upstream.maker(UpstreamPool)),
                      kv_cache_target(upstream.maker(UpstreamKVCache)),
                      engine_target(functools.partial(upstream.make_engine, uncorrected))._replace(
                          corrections=len(set(CORRECTIONS) - uncorrected)),
                      eviction_target(upstream.offload_maker(UpstreamEviction)),
                      offload_target(upstream.offload_maker(UpstreamOffload)),
                      tiering_target(upstream.offload_maker(UpstreamTiering)))
    serve(session.answer)
    return 0


if __name__ == "__main__":
    sys.exit(main())
