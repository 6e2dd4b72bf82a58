#!/usr/bin/env python3
"""Writes the golden file names: what vLLM's own FileMapper answers, for file_mapper_test.cpp.

Runs v1/kv_offload/file_mapper.py of the release given, with the three functions of base.py that it imports, and
writes one JSON object per line: the arguments, the base path, config.json's path and text, and names by key (hex).

Needs nothing but the unpacked wheel (`python3 -m zipfile -e <wheel> <folder>`).

example: generate_file_names.py wheels/v0.23.0 > contract/golden/file_names_golden.txt
"""

import ast
import json
import pathlib
import sys
import types

KEY_FUNCTIONS = ("make_offload_key", "get_offload_block_hash", "get_offload_group_idx")

GROUPS = [{"block_size": 16, "layer_names": ["model.layers.0.self_attn", "model.layers.1.self_attn"]},
          {"block_size": 64, "layer_names": []}]

PLAIN = {"root_dir": "/cache", "model_name": "llama", "hash_block_size": 16, "gpu_blocks_per_file": 1, "tp_size": 1,
         "pp_size": 1, "pcp_size": 1, "dcp_size": 1, "rank": 0, "dtype": "auto"}

# What each differs in from PLAIN.
CONFIGS = [{}, {"model_name": "meta-llama/Llama-3.1-8B-Instruct"}, {"root_dir": "relative/folder"},
           {"hash_block_size": 32}, {"gpu_blocks_per_file": 4}, {"tp_size": 2}, {"pp_size": 2}, {"pcp_size": 2},
           {"dcp_size": 2}, {"rank": 3}, {"dtype": "fp8_e4m3"}, {"kv_cache_groups": GROUPS},
           {"kv_cache_groups": GROUPS[::-1]}, {"inference_engine": "other"},
           {"tp_size": 4, "pp_size": 2, "rank": 5, "parallel_agnostic": True},
           {"model_name": "a \"quoted\" \\ name\n\t\x01\x7f"}, {"model_name": "\u00e9\u4e2d\U0001f600/x"},
           {"kv_cache_groups": [{"block_size": 1, "layer_names": ["\u00fc", "/"]}]}]

HASHES = [bytes(range(32)), bytes(32), b"\xff" * 32, bytes.fromhex("0123456789abcdef"), b"\x00", b"\xab\xcd", b""]
GROUP_IDS = [0, 1, 255, 65536, 2**32 - 1]


def load_file_mapper(release):
    """file_mapper.py of the release as a module, without the rest of vLLM."""
    folder = pathlib.Path(release) / "vllm" / "v1" / "kv_offload"
    base = types.ModuleType("vllm.v1.kv_offload.base")
    base.OffloadKey, base.OffloadingSpec = bytes, object
    tree = ast.parse((folder / "base.py").read_text())
    wanted = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name in KEY_FUNCTIONS]
    exec(compile(ast.Module(wanted, []), "base.py", "exec"), vars(base))
    for name in ("vllm", "vllm.v1", "vllm.v1.kv_offload"):
        sys.modules[name] = types.ModuleType(name)
    sys.modules[base.__name__] = base
    mapper = types.ModuleType("file_mapper")
    exec(compile((folder / "file_mapper.py").read_text(), "file_mapper.py", "exec"), vars(mapper))
    return mapper.FileMapper, base.make_offload_key


def main(release):
    FileMapper, make_offload_key = load_file_mapper(release)
    print(f"# vLLM {pathlib.Path(release).name} v1/kv_offload/file_mapper.py; see generate_file_names.py")
    for config in CONFIGS:
        arguments = {**PLAIN, **config}
        mapper = FileMapper(**arguments)
        keys = [make_offload_key(block_hash, group) for block_hash in HASHES for group in GROUP_IDS]
        if config:
            keys = keys[:2]
        print(json.dumps({
            "arguments": arguments,
            "base_path": mapper.base_path,
            "config_file_path": mapper.get_config_file_path(),
            "run_config": json.dumps(mapper.get_run_config(), indent=2, sort_keys=True),
            "file_names": {key.hex(): mapper.get_file_name(key) for key in keys},
        }))


if __name__ == "__main__":
    main(sys.argv[1])
