"""Makes the decision core of vLLM importable without its dependencies.

The modules that decide (block pool, hashes, requests, events, offloading) are plain Python, but importing them
pulls in torch, the model zoo and the server. `use_release(folder)` loads exactly the modules named
in `REAL_MODULES` from an unpacked wheel and replaces every other import of vLLM, and those of
`PLACEHOLDER_PACKAGES`, by modules of placeholders: neither a GPU nor torch is needed.
`use_release(None)` is for a normally installed vLLM, with its dependencies.
"""

from __future__ import annotations

import dataclasses
import importlib.abc
import importlib.machinery
import importlib.util
import pathlib
import sys
import types

# Loaded from the release. Their parent packages are bare namespaces unless named here themselves.
REAL_MODULES = frozenset(
    {
        "vllm.distributed.kv_events",
        "vllm.distributed.kv_transfer.kv_connector.utils",
        "vllm.distributed.kv_transfer.kv_connector.v1",
        "vllm.distributed.kv_transfer.kv_connector.v1.base",
        "vllm.distributed.kv_transfer.kv_connector.v1.decode_bench_connector",
        "vllm.distributed.kv_transfer.kv_connector.v1.example_connector",
        "vllm.distributed.kv_transfer.kv_connector.v1.metrics",
        "vllm.distributed.kv_transfer.kv_connector.v1.multi_connector",
        "vllm.distributed.kv_transfer.kv_connector.v1.nixl.connector",
        "vllm.distributed.kv_transfer.kv_connector.v1.nixl.metadata",
        "vllm.distributed.kv_transfer.kv_connector.v1.nixl.scheduler",
        "vllm.distributed.kv_transfer.kv_connector.v1.nixl.stats",
        "vllm.distributed.kv_transfer.kv_connector.v1.nixl.tp_mapping",
        "vllm.distributed.kv_transfer.kv_connector.v1.nixl.utils",
        "vllm.distributed.kv_transfer.kv_connector.v1.nixl.worker",
        "vllm.distributed.kv_transfer.kv_connector.v1.nixl_connector",
        "vllm.distributed.kv_transfer.kv_connector.v1.offloading.common",
        "vllm.distributed.kv_transfer.kv_connector.v1.offloading.metrics",
        "vllm.distributed.kv_transfer.kv_connector.v1.offloading.scheduler",
        "vllm.distributed.kv_transfer.kv_connector.v1.offloading.worker",
        "vllm.distributed.kv_transfer.kv_connector.v1.offloading_connector",
        "vllm.distributed.kv_transfer.kv_connector.v1.simple_cpu_offload_connector",
        "vllm.envs",
        "vllm.utils",
        "vllm.utils.hashing",
        "vllm.utils.math_utils",
        "vllm.v1.core.block_pool",
        "vllm.v1.core.encoder_cache_manager",
        "vllm.v1.core.kv_cache_coordinator",
        "vllm.v1.core.kv_cache_manager",
        "vllm.v1.core.kv_cache_metrics",
        "vllm.v1.core.kv_cache_utils",
        "vllm.v1.core.sched.async_scheduler",
        "vllm.v1.core.sched.interface",
        "vllm.v1.core.sched.output",
        "vllm.v1.core.sched.request_queue",
        "vllm.v1.core.sched.scheduler",
        "vllm.v1.core.sched.utils",
        "vllm.v1.core.single_type_kv_cache_manager",
        "vllm.v1.engine",
        "vllm.v1.kv_cache_interface",
        "vllm.v1.kv_cache_spec_registry",
        "vllm.v1.kv_offload.abstract",
        "vllm.v1.kv_offload.base",
        "vllm.v1.kv_offload.cpu.common",
        "vllm.v1.kv_offload.cpu.manager",
        "vllm.v1.kv_offload.cpu.policies.abstract",
        "vllm.v1.kv_offload.cpu.policies.arc",
        "vllm.v1.kv_offload.cpu.policies.base",
        "vllm.v1.kv_offload.cpu.policies.lru",
        "vllm.v1.kv_offload.mediums",
        "vllm.v1.kv_offload.reuse_manager",
        "vllm.v1.kv_offload.tiering.base",
        "vllm.v1.kv_offload.tiering.manager",
        "vllm.v1.kv_offload.worker.worker",
        "vllm.v1.metrics.stats",
        "vllm.v1.outputs",
        "vllm.v1.request",
        "vllm.v1.simple_kv_offload.manager",
        "vllm.v1.simple_kv_offload.metadata",
        "vllm.v1.simple_kv_offload.worker",
        "vllm.v1.spec_decode.metrics",
        "vllm.v1.structured_output.request",
        "vllm.v1.utils",
    }
)

# Replaced by placeholders, whether installed or not: the result must not depend on the machine.
PLACEHOLDER_PACKAGES = frozenset(
    {
        "msgspec",
        "numpy",
        "prometheus_client",
        "psutil",
        "regex",
        "safetensors",
        "torch",
        "typing_extensions",
        "uvloop",
        "zmq",
    }
)

# Needed to compute block hashes: these have to be installed.
REQUIRED_PACKAGES = ("cbor2", "xxhash")


class _PlaceholderType(type):
    """Makes every attribute of a placeholder class another placeholder class."""

    def __getattr__(cls, name: str):
        if name.startswith("__"):
            raise AttributeError(name)
        return _placeholder_class(name)


class _Placeholder(metaclass=_PlaceholderType):
    """Stands for any class, function, decorator or object of a module that is not loaded."""

    def __init__(self, *args, **kwargs):
        pass

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__()

    def __class_getitem__(cls, item):
        return cls

    def __call__(self, *args, **kwargs):
        # As a decorator, hands back what it decorates.
        return args[0] if len(args) == 1 and callable(args[0]) and not kwargs else self

    def __getattr__(self, name: str):
        if name.startswith("__"):
            raise AttributeError(name)
        return _Placeholder()


def _placeholder_class(name: str) -> type:
    return _PlaceholderType(name, (_Placeholder,), {})


class _PlaceholderModule(types.ModuleType):
    """A module whose attributes are its real submodules, and placeholder classes."""

    def __getattr__(self, name: str):
        if name.startswith("__"):
            raise AttributeError(name)
        submodule = f"{self.__name__}.{name}"
        value = (
            importlib.import_module(submodule)
            if submodule in REAL_MODULES
            else _placeholder_class(name)
        )
        setattr(self, name, value)
        return value


class _Struct:
    """The part of msgspec.Struct that the loaded modules use: a dataclass."""

    def __init_subclass__(cls, kw_only: bool = False, **kwargs):
        super().__init_subclass__()
        for name in cls.__dict__.get("__annotations__", {}):
            default = cls.__dict__.get(name)
            # msgspec copies empty mutable defaults; a dataclass needs a factory.
            if isinstance(default, (dict, list, set)):
                setattr(cls, name, dataclasses.field(default_factory=type(default)))
        dataclasses.dataclass(cls, kw_only=kw_only)


class _ReleaseFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds vllm in a folder, and placeholders for the modules of it and around it that are not needed."""

    def __init__(self, folder: pathlib.Path):
        self._folder = folder

    def find_spec(self, fullname, path=None, target=None):
        top = fullname.partition(".")[0]
        if fullname in REAL_MODULES:
            # A module that this release does not have is an ImportError, never a placeholder.
            location = self._location(fullname)
            return location and importlib.util.spec_from_file_location(fullname, location)
        if top == "vllm" or top in PLACEHOLDER_PACKAGES:
            return importlib.machinery.ModuleSpec(fullname, self, is_package=True)
        return None

    def create_module(self, spec):
        module = _PlaceholderModule(spec.name)
        if spec.name == "msgspec":
            module.Struct = _Struct
            module.field = dataclasses.field
        elif spec.name == "numpy":
            # The offloading manager only wraps lists of slots.
            module.array = lambda values, dtype=None: list(values)
        elif spec.name == "typing_extensions":
            module.override = lambda method: method
        return module

    def exec_module(self, module):
        pass

    def _location(self, fullname: str) -> pathlib.Path | None:
        stem = self._folder.joinpath(*fullname.split("."))
        for location in (stem.with_suffix(".py"), stem / "__init__.py"):
            if location.is_file():
                return location
        return None


class ReleaseSetAside:
    """What was imported of the release in use, out of the way of another one until take_back()."""

    def __init__(self):
        self._finders = [finder for finder in sys.meta_path if isinstance(finder, _ReleaseFinder)]
        self._modules = {name: module for name, module in sys.modules.items()
                         if name.partition(".")[0] in {"vllm", *PLACEHOLDER_PACKAGES}}
        sys.meta_path[:] = [finder for finder in sys.meta_path if finder not in self._finders]
        for name in self._modules:
            del sys.modules[name]

    def take_back(self):
        """Requires: no other release is in use."""
        sys.meta_path[:0] = self._finders
        sys.modules.update(self._modules)


def use_release(folder: str | pathlib.Path | None) -> None:
    """Makes `REAL_MODULES` importable; to be called before the first import of vllm.

    folder: where a wheel of vLLM was unpacked (it contains `vllm/`), or None for the installed one.
    Raises FileNotFoundError if there is no vLLM in the folder, ImportError if a required package
    is missing, RuntimeError if vllm was imported already.
    """
    if "vllm" in sys.modules:
        raise RuntimeError("use_release must come before the first import of vllm")
    if folder is None:
        # `vllm.py` beside this file is an adapter, not the package.
        here = pathlib.Path(__file__).resolve().parent
        sys.path[:] = [entry for entry in sys.path if pathlib.Path(entry or ".").resolve() != here]
        return
    folder = pathlib.Path(folder)
    if not (folder / "vllm" / "v1" / "core" / "block_pool.py").is_file():
        raise FileNotFoundError(
            f"{folder}: no vllm/v1/core/block_pool.py, expected an unpacked wheel of vLLM"
        )
    for package in REQUIRED_PACKAGES:
        importlib.import_module(package)
    sys.meta_path.insert(0, _ReleaseFinder(folder))
