"""Tests of the adapters: line language, configuration of engines, minimal pool, each release of vLLM that is here.

Run: python3 scenarios/adapters/test_adapter.py [-v] [CLASS ...], or unittest's own discovery. A release that is neither
installed nor fetched (fetch_vllm.py) is reported as skipped. Exit status: 0, 1 for a failure, 77 for a skip.
"""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import corrected_connector  # noqa: E402
import corrected_disaggregated  # noqa: E402
import corrected_multi_connector  # noqa: E402
import corrected_simple_offload  # noqa: E402
import corrected_synchronous_connector  # noqa: E402
from corrected_scheduler import CORRECTIONS  # noqa: E402
from engine_target import AddRequest, Offloading, Simple, World, config_from_line  # noqa: E402
from line_language import (  # noqa: E402
    INTEGER,
    INTEGERS,
    TEXT,
    TEXTS,
    CommandReader,
    Line,
    LineError,
    Record,
    parse_line,
    parse_value,
    print_decimal,
    print_line,
    print_value,
)
from releases import RELEASE_OF_PROFILE, ReleaseNotFound, find_release  # noqa: E402
from upstream_import import REQUIRED_PACKAGES  # noqa: E402


class LineLanguage(unittest.TestCase):
    def test_canonical_text_survives(self):
        for text in (
            "",
            "# only a comment",
            "target block_pool",
            "touch blocks=[1 2 3]",
            "get_new_blocks num_blocks=2 -> error=none blocks=[1 2]",
            "->",
            "-> events=[(stored block_hashes=[0x00ff] parent_block_hash=none) (cleared)] # two",
            'request id=A tokens=[] cache_salt="two words" lora_name="none"',
            'request id="" lora_name="\\"\\\\\\n\\t\\r\\x00\\x7f\\xff" x=A:1*2/0 y=0x z=-9223372036854775808',
            "x a=0.5 b=1.0 c=1e+30 d=[[] [none true false]] e=(r) f=(r k=[(s)])",
        ):
            with self.subTest(text=text):
                self.assertEqual(print_line(parse_line(text)), text)

    def test_values_survive(self):
        for value in (None, True, False, 0, -1, 2**63 - 1, b"", b"\x00\xff", "", "word", "none", "a b", 'q"\\',
                      "\x00\n", "\xe9", "\udcff", 0.1, 1e-300, 5e-324, 1e22, 123456789012345678.0, -0.0, [],
                      [1, [b"x"]],
                      Record("r", {"k": [Record("s", {})]})):
            with self.subTest(value=value):
                again = parse_value(print_value(value))
                self.assertEqual((type(again), again), (type(value), value))

    def test_other_spellings(self):
        line = parse_line('touch   blocks=[ 1  2 ]\t x="\\x41"  -> k=007 #c\r')
        self.assertEqual(line, Line("touch", "", {"blocks": [1, 2], "x": "A"}, {"k": 7}, "c"))

    def test_decimals_are_shortest(self):
        for value, text in ((0.0, "0.0"), (0.25, "0.25"), (100000.0, "1e+05"), (0.0001, "1e-04"), (12345.0, "12345.0"),
                            (0.30000000000000004, "0.30000000000000004"), (-2.5, "-2.5")):
            self.assertEqual(print_decimal(value), text)

    def test_errors(self):
        for text in ("touch blocks=[1,2]", "touch n=1 n=2", "touch blocks=[1", "a=1", "x k=9223372036854775808",
                     "x k=1.", "x k=0xA", 'x k="a', 'x k="\\q"', "x -> -> k=1", "x k=1e400", "x k=\x01", "x k=1#c",
                     "x # \x01", "x k=" + "[" * 17 + "]" * 17):
            with self.subTest(text=text), self.assertRaises(LineError):
                parse_line(text)

    def test_command_reader(self):
        reader = CommandReader("do", {"n": INTEGER, "ids": INTEGERS, "name": TEXT}, {"name": None})
        for text, arguments in (
            ("do n=1 ids=[2 3] name=x", [1, [2, 3], "x"]),
            ("do n=1 ids=[]", [1, [], None]),
            ("do  ids=[ 4 ] n=4294967295 name=none", [4294967295, [4], None]),
            ('do n=1 ids=[] name="none" # said', [1, [], "none"]),
        ):
            with self.subTest(text=text):
                self.assertEqual(reader.read(text), arguments)
        reader = CommandReader("end", {"names": TEXTS})
        for text, names in (("end names=[]", []), ("end names=[A r-1]", ["A", "r-1"]),
                            ('end names=["none" "a b"]', ["none", "a b"])):
            self.assertEqual(reader.read(text), [names])
        for text in ("end names=[none]", "end names=[1]", "end names=A", "end names=[A 0]"):
            with self.subTest(text=text), self.assertRaises(ValueError):
                reader.read(text)

    def test_command_reader_refuses(self):
        reader = CommandReader("do", {"n": INTEGER, "ids": INTEGERS, "name": TEXT}, {"name": None})
        for text in ("do n=1", "do n=-1 ids=[]", "do n=1 ids=[4294967296]", "do n=1 ids=[x]", "do n=1 ids=[] other=1",
                     "do n=true ids=[]", "do it n=1 ids=[]", "do n=1 ids=[] name=[]"):
            with self.subTest(text=text), self.assertRaises(ValueError):
                reader.read(text)


class EngineTarget(unittest.TestCase):
    def test_assemblies(self):
        on_device = "config assembly=offloading_on_device"
        for line, connector, device, engines in (
            ("config", "NoneType", "scripted", 1),
            ("config assembly=scheduler", "NoneType", "scripted", 1),
            ("config connectors=none", "NoneType", "scripted", 1),
            ("config assembly=scheduler connectors=[(scripted)]", "Scripted", "scripted", 1),
            ("config assembly=offloading", "Offloading", "scripted", 1),
            (on_device, "Offloading", "virtual", 1),
            (f"{on_device} connectors=[(offloading)] device=symbols", "Offloading", "symbols", 1),
            ("config assembly=on_device", "Multi", "virtual", 1),
            ("config assembly=on_device connectors=[] device=symbols", "NoneType", "symbols", 1),
            ("config connectors=[(nixl)] device=virtual engines=2", "Nixl", "virtual", 2),
            ("config assembly=simple", "Simple", "scripted", 1),
            ("config assembly=synchronous", "Example", "scripted", 1),
            ("config assembly=synchronous connectors=[(decode_bench)]", "DecodeBench", "scripted", 1),
            ("config assembly=prefill_decode", "Nixl", "scripted", 2),
            ("config connectors=[(nixl deadline=0)] engines=2 ranks=4 consumer_ranks=2", "Nixl", "scripted", 2),
        ):
            with self.subTest(line=line):
                config = config_from_line(parse_line(line))
                self.assertEqual((type(config.connector).__name__, config.device, config.engines),
                                 (connector, device, engines))

    def test_records(self):
        config = config_from_line(parse_line(
            "config connectors=[(offloading num_cpu_blocks=3 eviction_policy=arc spec_name=TieringOffloadingSpec"
            " num_tiers=2 file_tiers=[0 1] arc_refuses_with_idle_t1=none)] ranks=2 num_gpu_blocks=9"))
        self.assertEqual(config.connector, Offloading(3, eviction_policy="arc", spec_name="TieringOffloadingSpec",
                                                      num_tiers=2, file_tiers=[0, 1]))
        self.assertEqual((config.ranks, config.num_gpu_blocks), (2, 9))
        config = config_from_line(parse_line("config connectors=[(simple simple_offload_aligns_stores=false)]"))
        self.assertEqual(config.connector, Simple(simple_offload_aligns_stores=False))

    def test_config_refuses(self):
        for fields in (
            "assembly=other", "assembly=simple connectors=[(offloading)]",
            "assembly=scheduler connectors=[(nixl)] engines=2",
            "assembly=offloading connectors=[(offloading)] device=virtual", "connectors=[(other)]",
            "connectors=(simple)", "connectors=[simple]", "connectors=[(simple) (scripted)]",
            "connectors=[(scripted num_cpu_blocks=1)]", "connectors=[(simple lazy_offload=1)]",
            "connectors=[(simple num_cpu_blocks=0)]", "connectors=[(nixl)]", "engines=2",
            "device=symbols connectors=[(example)]",
            "device=other connectors=[(offloading)]", "ranks=0", "consumer_ranks=0", "max_num_seqs=0",
            "max_concurrent_batches=3", "policy=other", "kv_load_failure_policy=other",
            "connectors=[(offloading eviction_policy=other)]", "connectors=[(offloading block_size_factor=0)]",
            "connectors=[(offloading spec_name=Other)]", "connectors=[(offloading num_tiers=1)]",
            "connectors=[(offloading spec_name=TieringOffloadingSpec num_tiers=9)]",
            "connectors=[(offloading spec_name=TieringOffloadingSpec num_tiers=1 file_tiers=[1])]",
            "connectors=[(offloading spec_name=TieringOffloadingSpec store_threshold=2)]",
            "connectors=[(example num_layers=0)]", "connectors=[(example decode_bench_hma=true)]",
            "connectors=[(decode_bench)] groups=[(full block_size=4) (sliding block_size=8 window=8)]",
            "assembly=synchronous policy=priority", "assembly=prefill_decode ranks=2 consumer_ranks=3",
            "connectors=[(nixl deadline=1000000001)] engines=2",
            "assembly=prefill_decode groups=[(sliding block_size=4 window=4)]",
            *(f"connectors=[(nixl deadline=0)] engines=2 {fields}" for fields in (
                "profile=v0.19 groups=[(sliding block_size=4 window=4)]",
                "profile=v0.23 groups=[(sliding block_size=4 window=1)]",
                "profile=v0.23 groups=[(full block_size=4) (sliding block_size=8 window=8)]",
                "profile=v0.23 groups=[(mamba block_size=4)]",
                "profile=v0.23 groups=[(sliding block_size=4 window=4)] device=symbols")),
            "connectors=[(nixl deadline=0 transport_may_fail=true)] engines=2 profile=v0.23"
            " groups=[(full block_size=4) (sliding block_size=4 window=4)]",
            "world_size=1", "connector=true", "num_cpu_blocks=1",
        ):
            with self.subTest(fields=fields), self.assertRaises(ValueError):
                config_from_line(parse_line(f"config {fields}"))

    def test_world(self):
        world = World()
        for name in "BCA":
            self.assertTrue(world.declare(AddRequest(name, [1])))
        self.assertFalse(world.declare(AddRequest("C", [2])))
        self.assertEqual(world.requests["C"].tokens, [1])
        self.assertEqual((world.in_order({"A", "B"}), world.in_order(None)), (["B", "A"], []))
        self.assertEqual((world.knows(["A", "B"]), world.knows(["A", "D"]), world.knows([])), (True, False, True))


def converse(program, *lines, arguments=(), status=0, environment=None):
    """The replies of a program to these lines, as fields."""
    command = [sys.executable, str(HERE / program), *arguments]
    child = subprocess.run(command, input="".join(line + "\n" for line in lines), stdout=subprocess.PIPE,
                           stderr=subprocess.PIPE, text=True, timeout=60, env=environment)
    if child.returncode != status:
        raise AssertionError(f"{program} exited with {child.returncode}: {child.stderr}")
    return [parse_line(text).expectation for text in child.stdout.splitlines()]


# Command -> part of the reply. Profile v0.19, blocks of 4 tokens; 7 blocks, the null block among them.
STORY = (
    ("request id=A tokens=[1 2 3 4 5 6 7 8 9] cache_salt=salt", "error=none num_free_blocks=6 num_referenced=1"),
    ("append_tokens request=A tokens=[10 11 12]", "error=none"),
    ("append_tokens request=B tokens=[1]", "error=unknown_request"),
    ("get_new_blocks num_blocks=3", "error=none blocks=[1 2 3] free_queue=[4 5 6] usage=0.5 ref_cnts=[0 1 1 1 0 0 0]"),
    ("get_new_blocks num_blocks=4", "error=no_free_blocks num_free_blocks=3"),
    ("cache_full_blocks request=A blocks=[1 2 3] num_cached_blocks=0 num_full_blocks=2 block_size=4 group=0",
     "error=none num_cached_keys=2"),
    ("cache_full_blocks request=A blocks=[3 2 3] num_cached_blocks=0 num_full_blocks=2 block_size=4 group=0",
     "error=already_hashed num_cached_keys=2"),
    ("cache_full_blocks request=A blocks=[1 1 3] num_cached_blocks=2 num_full_blocks=4 block_size=4 group=0",
     "error=bad_range"),
    ("cache_full_blocks request=A blocks=[1 1 1 3] num_cached_blocks=2 num_full_blocks=4 block_size=4 group=0",
     "error=missing_hash"),
    ("cache_full_blocks request=A blocks=[1 1 9] num_cached_blocks=2 num_full_blocks=3 block_size=4 group=0",
     "error=unknown_block"),
    ("get_cached_block request=A index=1 block_size=4 groups=[0]", "error=none hit=true blocks=[2]"),
    ("get_cached_block request=A index=1 block_size=4 groups=[0 1]", "error=none hit=false"),
    ("get_cached_block request=A index=3 block_size=4 groups=[0]", "error=missing_hash"),
    ("get_cached_block request=A index=0 block_size=6 groups=[0]", "error=bad_block_size"),
    ("free_blocks blocks=[3 3]", "error=double_free ref_cnts=[0 1 1 1 0 0 0]"),
    ("free_blocks blocks=[3 0 2]", "error=none free_queue=[4 5 6 3 2] num_empty=4 num_cached=1"),
    ("free_blocks blocks=[2]", "error=double_free"),
    ("touch blocks=[2 0 2]", "error=none free_queue=[4 5 6 3] ref_cnts=[0 1 2 0 0 0 0]"),
    ("touch blocks=[1 7]", "error=unknown_block ref_cnts=[0 1 2 0 0 0 0]"),
    ("free_blocks blocks=[2 2]", "error=double_free"),
    ("evict_blocks blocks=[1 7]", "error=unknown_block num_cached_keys=2"),
    ("evict_blocks blocks=[2 1 2]", "error=none num_cached_keys=0 ref_cnts=[0 1 2 0 0 0 0]"),
    ("reset_prefix_cache", "error=none success=false"),
    ("free_blocks blocks=[2]", "error=none"),
    ("free_blocks blocks=[2 1]", "error=none free_queue=[4 5 6 3 2 1]"),
    ("reset_prefix_cache", "error=none success=true free_queue=[4 5 6 3 2 1] num_empty=6 usage=0.0"),
)


# Command -> part of the reply. One group of full attention, blocks of 4 tokens; 7 blocks.
UNITARY = (
    ("request id=A tokens=[1 2 3 4 5 6 7 8 9]", "error=none tables=[]"),
    ("request id=A tokens=[1]", "error=already_declared"),
    ("get_num_common_prefix_blocks request=A", "error=not_allocated"),
    ("allocate_slots request=A num_computed_tokens=0 num_new_tokens=9 from_cache=true",
     "error=none allocated=true blocks=[[1 2 3]] num_free_blocks=3 num_cached_keys=2 usage=0.5"
     " tables=[(table request=A blocks=[[1 2 3]])]"),
    ("request id=B tokens=[1 2 3 4 5 6 7 8 10 11 12 13]", "error=none"),
    ("get_computed_blocks request=B", "error=none blocks=[[1 2]] num_hit_tokens=8"),
    ("allocate_slots request=B num_computed_tokens=0 num_new_tokens=4 from_cache=true num_lookahead_tokens=1",
     "error=none allocated=true blocks=[[4 5]] ref_cnts=[0 2 2 1 1 1 0]"
     " tables=[(table request=A blocks=[[1 2 3]]) (table request=B blocks=[[1 2 4 5]])]"),
    ("get_num_common_prefix_blocks request=B", "error=none counts=[2]"),
    ("allocate_slots request=B num_computed_tokens=0 num_new_tokens=0", "error=no_tokens"),
    ("allocate_slots request=B num_computed_tokens=12 num_new_tokens=60", "error=beyond_model_length"),
    ("allocate_slots request=B num_computed_tokens=12 num_new_tokens=1 num_external_tokens=1",
     "error=already_allocated"),
    ("allocate_slots request=B num_computed_tokens=12 num_new_tokens=20", "error=none allocated=false blocks=absent"),
    ("append_tokens request=A tokens=[20 21 22]", "error=none"),
    ("cache_blocks request=A num_computed_tokens=13", "error=missing_hash"),
    ("append_tokens request=A tokens=[23 24 25 26]", "error=none"),
    ("cache_blocks request=A num_computed_tokens=16", "error=bad_range"),
    ("cache_blocks request=A num_computed_tokens=12", "error=none num_cached_keys=4"),
    ("evict_blocks blocks=[3 9]", "error=unknown_block num_cached_keys=4"),
    ("evict_blocks blocks=[3]", "error=none num_cached_keys=3"),
    ("free request=B", "error=none free_queue=[6 5 4] tables=[(table request=A blocks=[[1 2 3]])]"),
    ("reset_prefix_cache", "error=none success=false"),
    ("free request=A", "error=none free_queue=[6 5 4 3 2 1] tables=[]"),
    ("free request=A", "error=none free_queue=[6 5 4 3 2 1]"),
    ("take_new_block_ids", "error=none block_ids=[1 2 3 4 5]"),
    ("request id=C tokens=[]", "error=none"),
    ("get_computed_blocks request=C was_preempted=true", "error=none blocks=[[]] num_hit_tokens=0"),
    ("reset_prefix_cache", "error=none success=true num_cached_keys=0"),
    ("take_prefix_cache_stats", "error=none stats=[1 3 33 16 1 0 0]"),
    ("take_prefix_cache_stats", "error=none stats=[0 0 0 0 0 0 0]"),
    ("remove_skipped_blocks request=D total_computed_tokens=1", "error=unknown_request"),
)

# Full attention and a window of 4 tokens; 12 blocks.
HYBRID = (
    ("request id=A tokens=[1 2 3 4 5 6 7 8 9 10 11 12 13]", "error=none"),
    ("allocate_slots request=A num_computed_tokens=0 num_new_tokens=8 num_encoder_tokens=5",
     "error=none allocated=true blocks=[[1 2] [3 4]] num_cached_keys=4"),
    ("allocate_slots request=A num_computed_tokens=8 num_new_tokens=5",
     "error=none allocated=true blocks=[[5 6] [7 8]] ref_cnts=[0 1 1 0 1 1 1 1 1 0 0 0]"
     " tables=[(table request=A blocks=[[1 2 5 6] [0 4 7 8]])]"),
    ("remove_skipped_blocks request=A total_computed_tokens=13",
     "error=none free_queue=[9 10 11 3 4] tables=[(table request=A blocks=[[1 2 5 6] [0 0 7 8]])]"),
    ("get_num_common_prefix_blocks request=A", "error=none counts=[4 0]"),
    ("request id=B tokens=[1 2 3 4 5 6 7 8 9 10 11 12 13]", "error=none"),
    ("get_computed_blocks request=B", "error=none blocks=[[1 2 5] [0 0 7]] num_hit_tokens=12"),
    ("allocate_slots request=B num_computed_tokens=4 num_new_tokens=1 from_cache=true", "error=already_allocated"),
    ("allocate_slots request=B num_computed_tokens=0 num_new_tokens=1 from_cache=true delay_cache_blocks=true",
     "error=none allocated=true blocks=[[9] [10]]"
     " tables=[(table request=A blocks=[[1 2 5 6] [0 0 7 8]]) (table request=B blocks=[[1 2 5 9] [0 0 7 10]])]"),
    ("take_new_block_ids", "error=none block_ids=[1 2 5 6 9]"),
    ("free request=B", "error=none"),
    ("request id=C tokens=[1 2 3 4] skip_reading_prefix_cache=true", "error=none"),
    ("get_computed_blocks request=C", "error=none blocks=[[] []] num_hit_tokens=0"),
    ("take_prefix_cache_stats", "error=none stats=[0 3 39 36 0 0 0]"),
)

# Full attention and Mamba in mode align with a speculative block; 16 blocks.
MAMBA = (
    ("request id=A tokens=[1 2 3 4 5 6 7 8 9 10 11 12]", "error=none"),
    ("allocate_slots request=A num_computed_tokens=0 num_new_tokens=8 num_lookahead_tokens=1",
     "error=none allocated=true blocks=[[1 2 3] [0 4 5]] num_cached_keys=3"),
    ("request id=B tokens=[1 2 3 4 5 6 7 8 9]", "error=none"),
    ("allocate_slots request=B num_computed_tokens=0 num_new_tokens=1 from_cache=true",
     "error=none allocated=false"),
    ("new_step_starts", "error=none"),
    ("allocate_slots request=B num_computed_tokens=0 num_new_tokens=1 from_cache=true",
     "error=none allocated=true blocks=[[6] [7 8]] ref_cnts=[0 2 2 1 2 1 1 1 1 0 0 0 0 0 0 0]"),
    ("cache_blocks request=A num_computed_tokens=12", "error=bad_range"),
    ("allocate_slots request=A num_computed_tokens=8 num_new_tokens=4",
     "error=none allocated=true blocks=[[] [9]] num_cached_keys=5"),
    ("free request=A", "error=none"),
    ("free request=B", "error=none num_free_blocks=15 tables=[]"),
    ("request id=C tokens=[50 51 52 53 54 55 56 57]", "error=none"),
    ("allocate_slots request=C num_computed_tokens=0 num_new_tokens=4 num_external_tokens=4",
     "error=none allocated=true"),
    ("take_prefix_cache_stats", "error=none stats=[0 2 18 16 0 0 0]"),
)

# Command -> part of the reply, whatever the policy. 3 blocks.
POLICY = (
    ("get key=1", "error=none found=[] size=0 target_t1_size=0.0 t1=[] t2=[] b1=[] b2=[]"),
    ("insert key=1 slot=7", "error=none size=1 t1=[(block key=1 slot=7)]"),
    ("insert key=1", "error=already_stored size=1"),
    ("acquire key=1", "error=not_ready"),
    ("release key=1", "error=not_ready"),
    ("make_ready key=1", "error=none t1=[(block key=1 slot=7 ready=true)]"),
    ("make_ready key=1", "error=already_ready"),
    ("release key=1", "error=not_reading"),
    ("acquire key=1", "error=none"),
    ("acquire key=1", "error=none t1=[(block key=1 slot=7 ready=true readers=2)]"),
    ("get key=1", "error=none found=[(block key=1 slot=7 ready=true readers=2)]"),
    ("evict num_blocks=1", "error=none success=false evicted=absent size=1"),
    ("release key=1", "error=none t1=[(block key=1 slot=7 ready=true readers=1)]"),
    ("release key=1", "error=none"),
    ("insert key=2 slot=8", "error=none"),
    ("make_ready key=2", "error=none"),
    ("insert key=3 slot=9", "error=none size=3"),
    ("insert key=4", "error=no_free_blocks size=3"),
    ("make_ready key=4", "error=unknown_key"),
    ("acquire key=4", "error=unknown_key"),
    ("release key=4", "error=unknown_key"),
    ("remove key=4", "error=unknown_key size=3"),
    ("evict num_blocks=0", "error=none success=true evicted=[]"),
    ("evict num_blocks=4294967295", "error=none success=false"),
    ("evict num_blocks=1 protected=[1 1 9]", "error=none success=true evicted=[(evicted key=2 slot=8)] size=2"),
    ("remove key=3", "error=none t1=[(block key=1 slot=7 ready=true)]"),
    ("clear", "error=none size=0 t1=[] t2=[] b1=[] b2=[]"),
)

# LRU, 3 blocks.
LRU = (
    ("insert key=1", "error=none"),
    ("insert key=2", "error=none"),
    ("insert key=3", "error=none"),
    ("touch keys=[2 9 1 2]", "error=none t1=[(block key=3 slot=0) (block key=1 slot=0) (block key=2 slot=0)] t2=[]"),
    ("make_ready key=1", "error=none"),
    ("evict num_blocks=1", "error=none evicted=[(evicted key=1 slot=0)] b1=[] target_t1_size=0.0"),
)

# ARC, 3 blocks.
ARC = (
    ("insert key=1", "error=none"),
    ("touch keys=[1]", "error=none t1=[(block key=1 slot=0)] t2=[]"),
    ("make_ready key=1", "error=none"),
    ("insert key=2", "error=none"),
    ("make_ready key=2", "error=none"),
    ("insert key=3", "error=none"),
    ("make_ready key=3", "error=none"),
    ("touch keys=[3]", "error=none t2=[(block key=3 slot=0 ready=true)]"),
    ("evict num_blocks=3", "error=none evicted=[(evicted key=1 slot=0) (evicted key=2 slot=0) (evicted key=3 slot=0)]"
     " b1=[1 2] b2=[3]"),
    ("touch keys=[1]", "error=none target_t1_size=1.0 b1=[2 1]"),
    ("touch keys=[3]", "error=none target_t1_size=0.0 b2=[3]"),
    ("touch keys=[1 1 1 1]", "error=none target_t1_size=3.0"),
    ("insert key=1", "error=none b1=[2] t1=[(block key=1 slot=0)]"),
    ("make_ready key=1", "error=none"),
    ("evict num_blocks=1", "error=none success=false"),
    ("clear", "error=none target_t1_size=0.0 b1=[] b2=[]"),
)

# LRU, 3 slots; both releases.
OFFLOAD = (
    ("prepare_store keys=[1 2]", "error=none stored=true keys_to_store=[1 2] slots=[0 1] evicted=[]"
     " t1=[(block key=1 slot=0) (block key=2 slot=1)] size=2 num_free_slots=1"),
    ("prepare_load keys=[1]", "error=not_ready"),
    ("prepare_load keys=[1 9]", "error=unknown_key"),
    ("complete_load keys=[1]", "error=not_reading"),
    ("take_events", "error=none events=[]"),
    ("complete_store keys=[2 1 2 9]", "error=none"),
    ("take_events", "error=none events=[(event keys=[2 1])]"),
    ("prepare_load keys=[2 1 2]", "error=none slots=[1 0 1]"
     " t1=[(block key=1 slot=0 ready=true readers=1) (block key=2 slot=1 ready=true readers=2)]"),
    ("complete_load keys=[1 9]", "error=unknown_key"),
    ("complete_load keys=[1 1]", "error=not_reading"),
    ("prepare_store keys=[3 4 3]", "error=listed_twice size=2"),
    ("prepare_store keys=[3 4]", "error=none stored=false keys_to_store=absent slots=absent evicted=absent size=2"),
    ("complete_load keys=[1 2 2]", "error=none"),
    ("touch keys=[1]", "error=none"),
    ("prepare_store keys=[1 3 4]", "error=none stored=true keys_to_store=[3 4] slots=[2 1]"
     " evicted=[(evicted key=2 slot=1)] num_free_slots=0"),
    ("prepare_store keys=[1 3]", "error=none stored=true keys_to_store=[] slots=[] evicted=[]"),
    ("complete_store keys=[3 1] success=false", "error=none num_free_slots=1"
     " t1=[(block key=1 slot=0 ready=true) (block key=4 slot=1)]"),
    ("take_events", "error=none events=[(event keys=[2] removed=true)]"),
)


# The connector above one tier of blocks of 4 tokens; 0.23.0.
TIERED_CONNECTOR = (
    ("add_request id=A tokens=[1 2 3 4 5]",
     "error=none tier_calls=[(call method=on_new_request tier=0 request=A answer=block_level)] num_tier_jobs=0"),
    ("tier_add tier=0 request=A blocks=[1]", "error=bad_range"),
    ("tier_add tier=0 request=B blocks=[0]", "error=unknown_request"),
    ("tier_add tier=0 request=A blocks=[0] group=1", "error=not_in_config"),
    ("tier_add tier=0 request=A blocks=[0]", "error=none num_pending_promotions=0"),
    ("tier_ask_again tier=0 request=A block=0", "error=none"),
    ("schedule", "error=none scheduled=[] num_tier_jobs=0 num_skipped_waiting=1"),
    ("update", "error=none"),
    ("schedule", "error=none scheduled=[] num_tier_jobs=1 num_skipped_waiting=1 num_free_slots=7"),
    ("update", "error=none"),
    ("tier_finish tier=0 job=0", "error=none num_tier_jobs=1"),
    ("schedule", "error=none num_tier_jobs=0 loads=[(transfer job=0 request=A gpu_blocks=[1] group_sizes=[1]"
                 " block_indices=[0] slots=[0])]"),
    ("tier_drop tier=0 request=A blocks=[0]", "error=none tiers=[(tier held=[])]"),
    ("tier_finish tier=1 job=0", "error=not_in_config"),
    ("reset_prefix_cache reset_connector=true", "error=not_in_config"),
    ("finish_requests requests=[A]",
     "error=none tier_calls=[(call method=on_request_finished tier=0 request=A)]"),
)

# LRU, 2 slots, 2 tiers; 0.23.0.
TIERING = (
    ("on_new_request request=A request_level=[1]", "error=none request_level=true"
     " tier_calls=[(call method=on_new_request tier=0 request=A answer=block_level)"
     " (call method=on_new_request tier=1 request=A answer=request_level)]"),
    ("prepare_store keys=[1 1] request=A", "error=listed_twice"
     " tier_calls=[(call method=get_finished_jobs tier=0) (call method=get_finished_jobs tier=1)]"),
    ("complete_store keys=[1] request=A", "error=unknown_key"),
    ("prepare_store keys=[1] request=A", "error=none stored=true keys_to_store=[1] slots=[0] evicted=[]"),
    ("complete_store keys=[1] request=A", "error=none num_jobs=2"
     " tier_calls=[(call method=submit_store tier=0 request=A job=0 keys=[1] slots=[0])"
     " (call method=submit_store tier=1 request=A job=1 keys=[1] slots=[0])]"
     " t1=[(block key=1 slot=0 ready=true readers=2)]"),
    ("complete_load keys=[1]", "error=not_reading"),
    ("prepare_store keys=[1] request=A", "error=none num_jobs=3 jobs=["
     "(transfer job=0 tier=0 request=A keys=[1] slots=[0]) (transfer job=1 tier=1 request=A keys=[1] slots=[0])"
     " (transfer job=2 tier=1 request=A keys=[1] slots=[0])]"),
    ("tier_finish tier=0 job=0 success=false", "error=none tiers=[(tier held=[]) (tier held=[])]"),
    ("tier_finish tier=1 job=1", "error=none tiers=[(tier held=[]) (tier held=[1])]"),
    ("tier_finish tier=1 job=1", "error=none num_jobs=3"),
    ("tier_finish tier=1 job=9", "error=none"),
    ("tier_finish tier=2 job=0", "error=not_in_config"),
    ("tier_faults tier=0 faults=[(fault operation=write fails_with=EIO)]", "error=not_in_config"),
    ("tier_damage tier=1 key=1 damage=flip at=3", "error=not_in_config"),
    ("tier_restart tier=1", "error=not_in_config"),
    ("tier_writer tier=1 number=1 does=claims", "error=not_in_config"),
    ("on_schedule_end", "error=none num_jobs=3"),
    ("lookup key=1 request=A", "error=none result=hit num_jobs=1"
     " tier_calls=[(call method=get_finished_jobs tier=0 answer=\"0 failed\")"
     " (call method=get_finished_jobs tier=1 answer=\"1 done 1 done 9 done\")]"),
    ("tier_add tier=1 keys=[5 6]", "error=none"),
    ("tier_ask_again tier=0 key=5", "error=none"),
    ("lookup key=5 request=B", "error=none result=pending num_pending=1"
     " pending=[(transfer tier=1 promotion=true request=B keys=[5] slots=[1])]"),
    ("complete_store keys=[5] request=B", "error=not_ready"),
    ("lookup key=6 request=B", "error=none result=miss"),
    ("on_request_finished request=B", "error=none"),
    ("on_schedule_end", "error=none tier_calls=[(call method=submit_load tier=1 request=B job=3 keys=[5] slots=[1])"
     " (call method=on_schedule_end tier=0) (call method=on_schedule_end tier=1)]"),
    ("reset_cache", "error=none size=2"),
    ("tier_drop tier=1 keys=[5]", "error=none tiers=[(tier held=[]) (tier held=[1 6])]"),
    ("tier_finish tier=1 job=3 success=false", "error=none"),
    ("prepare_load keys=[5]", "error=unknown_key size=1 num_free_slots=1"),
    ("lookup key=5 request=A", "error=none result=miss"),
    ("take_events", "error=none events=[(event keys=[1])]"),
)


# Command -> part of the reply: the scheduler, with a connector, 16 blocks of 4 tokens. A loads two blocks while it
# waits, B is held at its end, C waits for its grammar.
SCHEDULER = (
    ("add_request id=A tokens=[1 2 3 4 5 6 7 8 9 10] max_tokens=2 external_tokens=8 load_async=true",
     "error=none waiting=[A] num_unfinished=1"),
    ("add_request id=B tokens=[1 2 3 4 5] max_tokens=3 stop_tokens=[7] hold_blocks=true", "error=none waiting=[A B]"),
    ("add_request id=C tokens=[1] grammar=true", "error=none waiting=[A B] skipped_waiting=[C]"),
    ("add_request id=A tokens=[1]", "error=already_declared"),
    ("add_request id=D tokens=[1] max_tokens=0", "error=no_tokens"),
    ("add_request id=D tokens=[1] max_tokens=0", "error=already_declared"),
    ("add_request id=E tokens=[1] max_tokens=2 min_tokens=3", "error=bad_range"),
    ("add_request id=F tokens=[1] max_tokens=64 min_tokens=64", "error=beyond_model_length"),
    ("update", "error=no_step_in_flight"),
    ("schedule",
     "error=none scheduled=[(scheduled request=B num_tokens=5 samples=true)]"
     " new_reqs=[(new request=B num_computed_tokens=0 blocks=[[3 4]])] cached_reqs=[] common_prefix=[0]"
     " new_block_ids=[1 2 3 4] running=[B] waiting=[] skipped_waiting=[C A]"
     " connector_calls=[(call method=get_num_new_matched_tokens request=A answer=\"8 async\")"
     " (call method=update_state_after_alloc request=A num_tokens=8 blocks=[[1 2]])"
     " (call method=get_num_new_matched_tokens request=B answer=\"0\")"
     " (call method=update_state_after_alloc request=B blocks=[[3 4]])"
     " (call method=build_connector_meta num_tokens=5)]"),
    ("schedule", "error=steps_in_flight"),
    ("update samples=[(sample request=B tokens=[1 2])]", "error=wrong_token_count"),
    ("update samples=[(sample request=A tokens=[1])]", "error=wrong_token_count"),
    ("update finished_recving=[X]", "error=unknown_request"),
    ("update invalid_blocks=[16]", "error=unknown_block"),
    ("update finished_recving=[A] finished_sending=[A]", "error=listed_twice"),
    ("update finished_recving=[B]", "error=not_loading"),
    ("update finished_sending=[A]", "error=not_finished"),
    ("update token=6 finished_recving=[A]",
     "error=none outputs=[(output request=B tokens=[6])] stats=[0 2 15 0 0 0 0] connector_stats=[0 2 15 8 0 0 0]"
     " spec_stats=[0 0 0] connector_calls=[(call method=update_connector_output)]"),
    ("schedule",
     "error=none scheduled=[(scheduled request=B num_tokens=1 samples=true)"
     " (scheduled request=A num_tokens=2 samples=true)] cached_reqs=[(cached request=B num_computed_tokens=5"
     " num_output_tokens=1)] new_reqs=[(new request=A num_computed_tokens=8 blocks=[[1 2 5]])] skipped_waiting=[C]"),
    ("update samples=[(sample request=B tokens=[7])]",
     "error=none outputs=[(output request=B tokens=[7] status=finished_stopped stop_reason=7)"
     " (output request=A tokens=[1])] running=[A] has_finished=true connector_calls=[(call method=request_finished"
     " request=B answer=hold blocks=[[3 4]])]"),
    ("grammar_compiled request=C", "error=none"),
    ("schedule", "error=none finished=[B] running=[A C] tables=[(table request=A blocks=[[1 2 5]])"
                 " (table request=B blocks=[[3 4]]) (table request=C blocks=[[6]])]"),
    ("reset_prefix_cache reset_running_requests=true reset_connector=true",
     "error=none success=false running=[] waiting=[A C] connector_calls=absent"),
    ("update finished_sending=[B]",
     "error=none outputs=[(output request=A tokens=[1] status=finished_length_capped) (output request=C tokens=[1])]"
     " waiting=[C] requests=[(request id=C status=preempted num_tokens=2 num_computed_tokens=0 num_preemptions=1)]"
     " num_referenced_blocks=1"),
    ("reset_prefix_cache reset_connector=true", "error=none success=true"),
    ("finish_requests requests=[C] status=running", "error=bad_range"),
    ("finish_requests requests=[C A C]", "error=none requests=[] num_unfinished=0 has_finished=true"),
    ("set_pause_state state=paused_new", "error=none"),
    ("update_draft_token_ids request=C tokens=[1]", "error=not_in_config"),
    ("update_draft_token_ids request=C tokens=[]", "error=none"),
)

# Correction -> the shortest commands that show it, and its part of the last reply: corrected, and as upstream answers
# (None: it raises).
# Command -> part of the reply. Two children of one class, one group; {finished} is the method that this release calls.
MULTI = (
    ("add_request id=A tokens=[1 2 3 4 5] max_tokens=1 hold_blocks=true", "error=none"),
    ("script_connector request=A child=1 external_tokens=4 load_async=true hold_blocks=true params=p", "error=none"),
    ("script_connector request=A child=2", "error=not_in_config"),
    ("schedule", "chosen=[(chosen request=A child=1)]"),
    ("update reports=[(report child=1 recving=[A])]", "finished_recving=[A]"),
    ("schedule", "error=none"),
    ("update", "client_params=[(params request=A params=p)] extra_saves=[(extra request=A saves=1)]"),
    ("schedule", "error=none"),
    ("update reports=[(report child=1 sending=[A] stats=[3])]",
     "finished_sending=[] stats_of_children=[(stats class=b type=scripted sizes=[3])]"),
    ("schedule", "error=none"),
    ("update reports=[(report sending=[A])]", "finished_sending=[A] num_chosen=0 num_extra_saves=0"),
    ("reset_prefix_cache reset_connector=true failing_children=[0]", "success=false"),
    ("add_request id=B tokens=[1 2 3] max_tokens=1 params=p", "error=none"),
    ("script_connector request=B child=1 params=q", "error=none"),
    ("schedule", "error=none"),
    ("finish_requests requests=[B]", "engine_ended=several_params num_unfinished=0"),
    ("update", "error=no_step_in_flight"),
)

MULTI_OVER_NIXL = (
    ("add_request id=A tokens=[1 2 3 4 5] max_tokens=1 do_remote_decode=true child=1 hold_blocks=true", "error=none"),
    ("schedule", "reqs_in_batch=[A] consumer_num_chosen=0"),
    ("update", "finished_prefills=[(prefill request=A blocks=[1 2 3])] extra_saves=[(extra request=A saves=1)]"
               " client_params=[(params request=A params=A)]"),
    ("hand_over request=A id=B max_tokens=1", "error=none"),
    ("script_connector request=B external_tokens=4 engine=consumer", "error=not_in_config"),
    ("script_connector request=B child=1 external_tokens=4 engine=consumer", "error=none"),
    ("schedule engine=consumer", "consumer_chosen=[(chosen request=B child=0)] chosen=[] reqs_to_recv=[(receive request=B"
                                 " remote_request=A local_blocks=[1 2 3] remote_blocks=[1 2 3])]"),
    ("update engine=consumer", "consumer_stats_of_children=[] finished_recving=[]"),
    ("advance_read read=0", "error=none"),
    ("advance_transfer job=0 engine=consumer", "error=not_in_config"),
    ("schedule engine=consumer", "reqs_to_recv=[]"),
    ("update engine=consumer", "finished_recving=[B]"),
    ("add_request id=C tokens=[1 2 3] max_tokens=1 do_remote_decode=true child=1 params=p", "error=none"),
    ("schedule", "reqs_to_send=[(send request=A expires=30)]"),
    ("update", "engine_ended=several_params requests=[] consumer_requests=[]"),
    ("hand_over request=A id=D", "error=not_finished"),
)

CORRECTED_MULTI = {
    "stats_overwritten": (
        ("v0.19",),
        ("connectors=[(multi children=[(scripted) (scripted)])]", "schedule",
         "update reports=[(report stats=[1]) (report child=1 stats=[2])]"),
        "stats_of_children=[(stats class=a type=scripted sizes=[1 2])]",
        "stats_of_children=[(stats class=a type=scripted sizes=[2])]"),
}

CORRECTED = {
    "stopped_among_skipped": (
        ("connectors=[(scripted)] max_concurrent_batches=2", "add_request id=A tokens=[1 2] max_tokens=1", "schedule",
         "reset_prefix_cache reset_running_requests=true", "script_connector request=A ask_again=1", "schedule",
         "update", "update", "schedule"),
        "finished=[A] skipped_waiting=[]", None),
    "stale_outputs": (
        ("max_concurrent_batches=2", "add_request id=A tokens=[1 2]", "schedule",
         "reset_prefix_cache reset_running_requests=true", "schedule", "update"),
        "outputs=[]", "outputs=[(output request=A tokens=[1])]"),
    "invalid_blocks_in_flight": (
        ("max_concurrent_batches=2 max_num_batched_tokens=4 connectors=[(scripted)] kv_load_failure_policy=recompute",
         "add_request id=A tokens=[1 2 3 4 5 6 7 8 9 10 11 12] external_tokens=4", "schedule", "schedule",
         "update invalid_blocks=[1]", "update"),
        "outputs=[]", "outputs=[(output request=A tokens=[1])]"),
    "whole_load_failed": (
        ("connectors=[(scripted)] kv_load_failure_policy=recompute", "add_request id=A tokens=[1 2 3 4 5] max_tokens=1",
         "schedule", "update", "add_request id=B tokens=[1 2 3 4 5 6 7 8] external_tokens=8 load_async=true",
         "add_request id=C tokens=[1 2 3 4 5 6 7 8] external_tokens=8 load_async=true", "schedule",
         "update finished_recving=[C] invalid_blocks=[1]", "schedule"),
        "scheduled=[(scheduled request=C num_tokens=1 samples=true)]", None),
    "lost_load_reserves": (
        ("num_gpu_blocks=5 connectors=[(scripted)] kv_load_failure_policy=recompute",
         "add_request id=A tokens=[1 2 3 4 5 6 7 8 9] external_tokens=8 load_async=true", "schedule",
         "update finished_recving=[A] invalid_blocks=[1]", "script_connector request=A ask_again=1",
         "add_request id=B tokens=[7 7 7 7 7 7 7 7 7] external_tokens=8 load_async=true", "schedule"),
        "skipped_waiting=[A B]", "never_fits=B"),
    "never_fits": (
        ("num_gpu_blocks=3", "add_request id=A tokens=[1 2 3 4 5 6 7 8 9]", "schedule"),
        "never_fits=A requests=[]", "never_fits=absent waiting=[A]"),
}


# Command -> part of the reply: the connector, with two workers. A stores two blocks and ends before its transfers do,
# B loads them. The differences of a release are in HOLD (0.19.0) or FENCE (0.23.0).
CONNECTOR = (
    ("add_request id=A tokens=[1 2 3 4 5 6 7 8 9] max_tokens=2", "error=none waiting=[A] num_free_slots=8 t1=[]"),
    ("add_request id=A tokens=[1]", "error=already_declared"),
    ("update", "error=no_step_in_flight"),
    ("schedule", "error=none scheduled=[(scheduled request=A num_tokens=9 samples=true)] loads=[] requests_to_flush=[]"
                 " jobs_to_flush=[] num_free_slots=6 transfers=[] target_t1_size=0.0 connector_calls=absent"),
    ("update samples=[(sample request=B tokens=[1])]", "error=unknown_request"),
    ("update", "error=none finished_recving=[] finished_sending=[] invalid_blocks=[] completed_jobs=[] transfers=[]"),
    ("schedule", "error=none stores=[]"),
    ("update", "error=none transfers=[(transfer rank=0 job=0 request=A store=true progress=submitted)"
               " (transfer rank=1 job=0 request=A store=true progress=submitted)]"),
    ("advance_transfer rank=2 job=0", "error=not_in_config"),
    ("advance_transfer job=0 progress=failed", "error=not_in_config"),
    ("advance_transfer job=0 progress=submitted", "error=bad_range"),
    ("advance_transfer job=1", "error=unknown_job"),
    ("advance_transfer job=0 progress=part", "error=none"),
    ("advance_transfer job=0", "error=none transfers=[(transfer rank=0 job=0 request=A store=true progress=finished)"
                               " (transfer rank=1 job=0 request=A store=true progress=submitted)]"),
    ("advance_transfer job=0", "error=unknown_job"),
    ("report_transfer_again job=0", "error=unknown_job"),
    ("schedule", "error=none finished=[A]"),
    ("update", "error=none finished_recving=[] finished_sending=[]"),
    ("report_transfer_again job=0", "error=none"),
    ("advance_transfer rank=1 job=0", "error=none"),
    ("schedule", "error=none finished=[]"),
    ("update", "error=none transfers=[] requests=[]"),
    ("reset_prefix_cache", "error=none success=true num_free_slots=6"),
    ("add_request id=B tokens=[1 2 3 4 5 6 7 8 9] max_tokens=1", "error=none"),
    ("schedule", "error=none skipped_waiting=[B]"),
    ("update", "error=none transfers=[(transfer rank=0 job=1 request=B progress=submitted)"
               " (transfer rank=1 job=1 request=B progress=submitted)]"),
    ("advance_transfer job=1", "error=none"),
    ("advance_transfer rank=1 job=1", "error=none"),
    ("schedule", "error=none scheduled=[]"),
    ("update", "error=none finished_recving=[B] transfers=[]"),
    ("schedule", "error=none new_reqs=[(new request=B num_computed_tokens=8 blocks=[[4 5 6]])] loads=[]"),
    ("update", "error=none outputs=[(output request=B tokens=[1] status=finished_length_capped)]"),
    ("reset_prefix_cache reset_connector=true", "error=none success=true"),
    ("log_stats engine_idx=1", "error=bad_range"),
    ("log_stats", "error=none interval_stats=[] logged=[]"),
)
# Line of CONNECTOR -> part of the reply.
HOLD = {
    3: "stores=[(transfer request=A job=0 gpu_blocks=[1 2] group_sizes=[2] block_indices=[] slots=[0 1])]",
    7: "requests=[(request id=A status=finished_length_capped num_tokens=11 num_computed_tokens=10)]",
    16: "jobs_to_flush=[]",
    17: "completed_jobs=[] transfers=[(transfer rank=1 job=0 request=A store=true progress=submitted)]",
    21: "finished_sending=[A] completed_jobs=[]",
    24: "loads=[(transfer job=0 request=B gpu_blocks=[4 5] group_sizes=[2] block_indices=[0] slots=[0 1])]",
    29: "completed_jobs=[]",
    32: "num_free_slots=6",
}
FENCE = {
    3: "stores=[(transfer job=0 request=A gpu_blocks=[1 2] group_sizes=[2] block_indices=[0] slots=[0 1])]",
    7: "requests=[]",
    16: "jobs_to_flush=[0]",
    17: "completed_jobs=[(completed job=0 num_workers=2)] transfers=[]",
    19: "error=unknown_job",
    21: "finished_sending=[] completed_jobs=[]",
    24: "loads=[(transfer job=1 request=B gpu_blocks=[4 5] group_sizes=[2] block_indices=[0] slots=[0 1])]",
    29: "completed_jobs=[(completed job=1 num_workers=2)]",
    32: "num_free_slots=8 t1=[]",
}

# As CORRECTED, for the connector, with the profiles in which the correction does anything.
CORRECTED_CONNECTOR = {
    "held_while_loading": (
        ("v0.19",),
        ("num_gpu_blocks=4", "add_request id=B tokens=[2]", "add_request id=A tokens=[1 1 1 1 1 1 1 1]", "schedule",
         "update", "schedule", "finish_requests requests=[B]", "update", "reset_prefix_cache", "schedule",
         "finish_requests requests=[A]", "update", "schedule", "update"),
        "finished_sending=[] num_referenced_blocks=3 transfers=[(transfer rank=0 job=1 request=A progress=submitted)]",
        "finished_sending=[A] num_referenced_blocks=1"
        " transfers=[(transfer rank=0 job=1 request=A progress=submitted)]"),
    "duplicate_reports": (
        ("v0.19", "v0.23"),
        ("", "add_request id=A tokens=[1 2 3 4]", "schedule", "update", "schedule", "update", "advance_transfer job=0",
         "schedule", "update", "report_transfer_again job=0", "schedule", "update"),
        "error=none", None),
    "reset_keeps_jobs": (
        ("v0.23",),
        ("", "add_request id=A tokens=[1 2 3 4]", "schedule", "reset_prefix_cache reset_connector=true",
         "finish_all_requests"),
        "error=none", None),
    "reset_twice": (
        ("v0.23",),
        ("", "add_request id=A tokens=[1 2 3 4]", "schedule", "reset_prefix_cache reset_connector=true",
         "reset_prefix_cache reset_connector=true"),
        "error=none", None),
    "stale_after_reset": (
        ("v0.23",),
        ("num_gpu_blocks=4 max_num_batched_tokens=4 groups=[(sliding block_size=4 window=4)]",
         "add_request id=A tokens=[1 1 1 1 2 2 2 2 3 3 3 3 4 4 4 4]", "schedule", "update", "schedule", "update",
         "schedule", "update", "schedule", "update", "reset_prefix_cache reset_connector=true", "schedule"),
        "stores=[(transfer job=4 request=A gpu_blocks=[3 1] group_sizes=[2] block_indices=[2] slots=[0 1])]",
        "stores=[(transfer job=4 request=A gpu_blocks=[1 3 1] group_sizes=[3] block_indices=[0] slots=[0 1 2])]"),
    "part_of_a_slot": (
        ("v0.23",),
        ("num_gpu_blocks=3 max_num_batched_tokens=4 connectors=[(offloading block_size_factor=2)]"
         " groups=[(sliding block_size=4 window=1)]",
         "add_request id=A tokens=[1 1 1 1 2 2 2 2]", "schedule", "update", "schedule"),
        "stores=[]",
        "stores=[(transfer job=0 request=A gpu_blocks=[1] group_sizes=[1] block_indices=[1] slots=[0])]"),
    "load_beside_stores": (
        ("v0.23",),
        ("num_gpu_blocks=4 enable_caching=false long_prefill_token_threshold=4 max_concurrent_batches=2"
         " groups=[(sliding block_size=4 window=4)]",
         "add_request id=B tokens=[2 2 2]", "add_request id=A tokens=[1 1 1 1 1 1 1 1]", "schedule", "update",
         "schedule", "update", "set_pause_state state=paused_all", "schedule", "update", "advance_transfer job=1",
         "schedule", "update", "set_pause_state state=unpaused", "schedule", "finish_requests requests=[B]",
         "schedule"),
        "scheduled=[] loads=[] skipped_waiting=[A]", None),
}

# Command -> part of the reply, in both releases; two ranks.
SIMPLE_OFFLOAD = (
    ("add_request id=A tokens=[1 2 3 4 5 6 7 8 9] max_tokens=2", "error=none num_empty_cpu_blocks=7"
     " num_cached_cpu_blocks=0 num_referenced_cpu_blocks=1 has_pending_stores=false copies=[] pins=[]"),
    ("add_request id=A tokens=[1]", "error=already_declared"),
    ("schedule", "error=none store_gpu_blocks=[] load_gpu_blocks=[] need_flush=false"),
    ("update", "error=none completed_jobs=[]"),
    ("schedule", "error=none store_event=0 store_gpu_blocks=[1 2] store_cpu_blocks=[1 2] has_pending_stores=true"
                 " cpu_free_queue=[3 4 5 6 7] cpu_ref_cnts=[0 1 1 0 0 0 0 0]"
                 " cpu_keys=[none none none none none none none none] copies=[]"),
    ("update", "error=none copies=[(copy rank=0 store=true event=0 progress=submitted)"
               " (copy rank=1 store=true event=0 progress=submitted)]"),
    ("advance_copy", "error=unknown_job"),
    ("advance_copy rank=2 store=true progress=failed", "error=bad_range"),
    ("advance_copy rank=2 store=true", "error=not_in_config"),
    ("advance_copy store=true progress=part", "error=none copies=[(copy rank=0 store=true event=0 progress=part)"
                                              " (copy rank=1 store=true event=0 progress=submitted)]"),
    ("advance_copy store=true", "error=none"),
    ("advance_copy store=true", "error=unknown_job"),
    ("schedule", "error=none store_event=absent store_gpu_blocks=[]"),
    ("update", "error=none completed_jobs=[(completed job=0 num_workers=1)] has_pending_stores=true"
               " copies=[(copy rank=1 store=true event=0 progress=submitted)]"),
    ("advance_copy rank=1 store=true", "error=none"),
    ("schedule", "error=none"),
    ("update", "error=none completed_jobs=[(completed job=0 num_workers=1)] has_pending_stores=false copies=[]"
               " num_cached_cpu_blocks=2 cpu_free_queue=[3 4 5 6 7 1 2] cpu_ref_cnts=[0 0 0 0 0 0 0 0]"),
    ("reset_prefix_cache", "error=none success=true num_cached_blocks=0 num_cached_cpu_blocks=2"),
    ("add_request id=B tokens=[1 2 3 4 5 6 7 8 9] max_tokens=1", "error=none"),
    ("schedule", "error=none load_event=0 load_gpu_blocks=[4 5] load_cpu_blocks=[1 2] load_requests=[B] scheduled=[]"
                 " cpu_free_queue=[3 4 5 6 7] pins=[]"),
    ("update", "error=none copies=[(copy rank=0 event=0 progress=submitted) (copy rank=1 event=0 progress=submitted)]"),
    ("advance_copy", "error=none"),
    ("schedule", "error=none load_event=absent"),
    ("update", "error=none finished_recving=[] copies=[(copy rank=1 event=0 progress=submitted)]"),
    ("advance_copy rank=1", "error=none"),
    ("schedule", "error=none"),
    ("update", "error=none finished_recving=[B] copies=[] cpu_free_queue=[3 4 5 6 7 1 2]"),
    ("schedule", "error=none new_reqs=[(new request=B num_computed_tokens=8 blocks=[[4 5 6]])]"),
    ("update", "error=none outputs=[(output request=B tokens=[1] status=finished_length_capped)]"),
)

# As CORRECTED, for the simple CPU offload connector: name, profiles, story, last reply with and without.
_WINDOW = "groups=[(full block_size=4) (sliding block_size=4 window=1)]"
CORRECTED_SIMPLE_OFFLOAD = (
    ("stale_window_blocks", ("v0.19",),
     ("num_gpu_blocks=6 " + _WINDOW, "add_request id=A tokens=[1 1 1 1 2 2 2 2] skip_reading_prefix_cache=true",
      *("schedule", "update") * 4, "schedule"),
     "store_gpu_blocks=[] tables=[(table request=A blocks=[[1 2 5] [0 0 4]])]", "store_gpu_blocks=[4]"),
    ("stale_window_blocks", ("v0.23",),
     ("connectors=[(simple num_cpu_blocks=4)] async_scheduling=true max_concurrent_batches=2"
      " max_num_batched_tokens=8 num_gpu_blocks=12 "
      + _WINDOW, "add_request id=A tokens=[1 1 1 1 2 2 2 2 3 3 3 3 4 4 4 4 5] skip_reading_prefix_cache=true",
      "schedule", "schedule", "update", "update", "advance_copy store=true", "schedule", "update", "schedule"),
     "store_gpu_blocks=[3]", "store_gpu_blocks=[4 4] store_cpu_blocks=[1 2]"),
    ("flush_of_queued_copies", ("v0.19", "v0.23"),
     ("num_gpu_blocks=5", "add_request id=A tokens=[1 1 1 1 1 1 1]", "add_request id=B tokens=[2 2 2 2]",
      *("schedule", "update") * 3),
     "completed_jobs=[(completed job=0 num_workers=1)]", "completed_jobs=[]"),
    *(("evictions_reported_as_gpu", (profile,),
       ("connectors=[(simple num_cpu_blocks=2)]", "add_request id=A tokens=[1 1 1 1] max_tokens=2",
        *("schedule", "update") * 2,
        "advance_copy store=true", "add_request id=B tokens=[2 2 2 2]", *("schedule", "update") * 2),
       "events=[]", "events=[(removed block_hash=0x5cd19b3df384c243f84a2ded6640234f"
       f"f0d4d24adccfe082549612bce489d3a7{group})]")
      for profile, group in (("v0.19", ""), ("v0.23", " group_idx=0"))),
    ("reset_raises", ("v0.19", "v0.23"),
     ("", "reset_prefix_cache reset_connector=true"), "error=none success=false", None),
)


# Command -> part of the reply: an ExampleConnector with a layer in each of two ranks. A's first block is kept in files; C
# finds it, and one of the files cannot be read, which ends the engine; D reads both. Blocks of 4 tokens.
_FOLDER = '"9f66c130786a1a05e4731f71a3c5f172"'
_SYMBOLS = ("[84696349 259429540 4222352936 1472272637]", "[101473968 897126163 1083357933 2482782994]")
_STORED = [f"(stored folder={_FOLDER} layer={layer} symbols={symbols})" for layer, symbols in enumerate(_SYMBOLS)]
EXAMPLE = (
    ("add_request id=A tokens=[1 2 3 4 5 6]", "error=none waiting=[A] num_engine_starts=1 folders=[] files=[]"),
    ("add_request id=A tokens=[1]", "error=already_declared"),
    ("update", "error=no_step_in_flight"),
    ("update samples=[(sample request=Z tokens=[1])]", "error=unknown_request"),
    ("schedule", f"error=none file_transfers=[(transfer request=A store=true folder={_FOLDER} num_tokens=4 blocks=[1])]"
                 " fills=[] folders=[]"),
    ("schedule", "error=steps_in_flight"),
    ("update samples=[(sample request=A tokens=[1 2])]", "error=wrong_token_count folders=[]"),
    ("update",
     "error=none outputs=[(output request=A tokens=[1])] loaded=[] filled=[] failed=[]"
     f" saved=[(file request=A layer=0 folder={_FOLDER} blocks=[1] symbols={_SYMBOLS[0]})"
     f" (file request=A layer=1 folder={_FOLDER} blocks=[1] symbols={_SYMBOLS[1]})]"
     f" folders=[{_FOLDER}] files=[{' '.join(_STORED)}]"),
    ("finish_requests requests=[A] status=running", "error=bad_range"),
    ("finish_requests requests=[A Z]", "error=unknown_request"),
    ("finish_requests requests=[A]", "error=none running=[] num_referenced_blocks=1"),
    ("reset_prefix_cache reset_connector=true", f"error=none success=true num_cached_blocks=0 folders=[{_FOLDER}]"),
    ("add_request id=C tokens=[1 2 3 4 7 7]", "error=none"),
    ("fail_next_file layer=1 operation=read", "error=none"),
    ("schedule",
     "error=none new_reqs=[(new request=C num_computed_tokens=4 blocks=[[3 4]])]"
     f" file_transfers=[(transfer request=C folder={_FOLDER} num_tokens=4 blocks=[3])]"),
    ("update",
     f"error=none outputs=absent events=absent saved=[] failed=[(failed request=C layer=1 folder={_FOLDER})]"
     f" loaded=[(file request=C layer=0 folder={_FOLDER} blocks=[3] symbols={_SYMBOLS[0]})]"
     " num_engine_starts=2 running=[] requests=[] num_referenced_blocks=1"
     f" symbols=[[{' '.join(['0'] * 24)}] [{' '.join(['0'] * 24)}]] files=[{' '.join(_STORED)}]"),
    ("update", "error=no_step_in_flight"),
    ("finish_requests requests=[C]", "error=none"),
    ("add_request id=C tokens=[1]", "error=already_declared"),
    ("add_request id=D tokens=[1 2 3 4 7 7]", "error=none"),
    ("schedule", f"file_transfers=[(transfer request=D folder={_FOLDER} num_tokens=4 blocks=[1])]"),
    ("update",
     f"error=none failed=[] loaded=[(file request=D layer=0 folder={_FOLDER} blocks=[1] symbols={_SYMBOLS[0]})"
     f" (file request=D layer=1 folder={_FOLDER} blocks=[1] symbols={_SYMBOLS[1]})] num_engine_starts=2"),
    ("truncate_file tokens=[1 2 3 4] layer=0",
     f"error=none files=[(stored folder={_FOLDER} layer=0 whole=false symbols=[]) {_STORED[1]}]"),
    ("truncate_file tokens=[1 2 3 5] layer=0", "error=unknown_key"),
    ("truncate_file tokens=[1 2 3 4] layer=2", "error=not_in_config"),
    ("remove_file tokens=[1 2 3 4] layer=1", f"error=none folders=[{_FOLDER}]"),
    ("remove_file tokens=[1 2 3 4] layer=1", "error=unknown_key"),
    ("remove_file tokens=[1 2 3 4] layer=2", "error=not_in_config"),
    ("fail_next_file layer=2 operation=open", "error=not_in_config"),
    ("write_entry tokens=[1] num_files=1", "error=bad_range"),
    ("write_entry tokens=[1] num_files=3", "error=not_in_config"),
    ("write_entry tokens=[1 2 3 4] num_files=1", f"error=none files=[{_STORED[0]}]"),
    ("remove_entry tokens=[1 2 3 4]", "error=none folders=[] files=[]"),
    ("remove_entry tokens=[1 2 3 4]", "error=unknown_key"),
)

# The same for a DecodeBenchConnector with two layers: what is filled, and what the model computes from it.
_FILLED = "0 0 0 0 1 1 1 1 1 16777620 1 1" + " 0" * 12
DECODE_BENCH = (
    ("add_request id=A tokens=[1 2 3 4 5 6]", "error=none filled_requests=[]"),
    ("schedule", "error=none new_reqs=[(new request=A num_computed_tokens=5 blocks=[[1 2]])] file_transfers=[]"
                 " fills=[(fill request=A num_tokens=5 blocks=[[1 2]])] filled_requests=[A]"),
    ("update", "error=none loaded=[] saved=[] failed=[] filled=[(filled request=A layer=0 blocks=[1 2])"
               f" (filled request=A layer=1 blocks=[1 2])] symbols=[[{_FILLED}] [{_FILLED}]]"),
    ("schedule", "error=none fills=[]"),
    ("finish_requests requests=[A]", "error=none filled_requests=[]"),
    ("write_entry tokens=[] num_files=0", "error=not_in_config"),
    ("remove_entry tokens=[]", "error=not_in_config"),
    ("remove_file tokens=[] layer=0", "error=not_in_config"),
    ("truncate_file tokens=[] layer=0", "error=not_in_config"),
    ("fail_next_file layer=0 operation=create", "error=not_in_config"),
)

# As CORRECTED, for the synchronous connectors: name, profiles, story, last reply with and without.
_BOTH = ("v0.19", "v0.23")
CORRECTED_SYNCHRONOUS_CONNECTOR = (
    ("negative_match", _BOTH,
     ("", "add_request id=A tokens=[1 1 1 1] max_tokens=1", "schedule", "update", "add_request id=B tokens=[1 1 1 1 1]",
      "schedule"),
     "new_reqs=[(new request=B num_computed_tokens=4 blocks=[[1 2]])]",
     "new_reqs=[(new request=B num_computed_tokens=0 blocks=[[1 2]])]"),
    ("negative_match", _BOTH,
     ("", "add_request id=A tokens=[1] max_tokens=1", "schedule", "update", "add_request id=B tokens=[2]", "schedule"),
     "scheduled=[(scheduled request=B num_tokens=1 samples=true)]",
     "scheduled=[(scheduled request=B num_tokens=5 samples=true)]"
     " new_reqs=[(new request=B num_computed_tokens=-4 blocks=[[2]])]"),
    ("stores_uncomputed_tokens", _BOTH,
     ("max_num_batched_tokens=5", "add_request id=A tokens=[1 1 1 1 1 1 1 1 1]", "schedule", "update"),
     "saved=[]",
     'saved=[(file request=A layer=0 folder="bb9a9e079341b9d7bd973734cff4ca4c" blocks=[1 2]'
     " symbols=[84696349 259429541 4239130557 2143524485 2783310685 0 0 0])]"),
    ("stores_uncomputed_tokens", _BOTH,
     ("max_num_batched_tokens=8", "add_request id=A tokens=[1 1 1 1 1 1 1 1 1 1 1 1 1]", "schedule", "update",
      "finish_requests requests=[A]", "add_request id=B tokens=[1 1 1 1 1 1 1 1 1 1 1 1 1 1]", "schedule", "update"),
     "failed=[]", None),
    ("file_errors", _BOTH,
     ("", "write_entry tokens=[1 1 1 1] num_files=0", "add_request id=A tokens=[1 1 1 1 1 1]", "schedule", "update"),
     'failed=[(failed request=A layer=0 folder="2f342f8c9cbe534abded11c763eddc3f")] num_engine_starts=2', None),
)


# Command -> part of the reply: a producer with one worker and a consumer with two. B reads what A computed; C, of the same
# prompt, is aborted before it is admitted; the producer's workers are notified. Blocks of 4 tokens.
DISAGGREGATED = (
    ("add_request id=A tokens=[1 2 3 4 5 6 7 8] do_remote_decode=true max_tokens=1",
     "error=none waiting=[A] consumer_waiting=[] now=0 reads=[] notices=[]"),
    ("add_request engine=consumer id=A tokens=[1]", "error=already_declared"),
    ("add_request engine=consumer id=X tokens=[1] do_remote_decode=true", "error=not_in_config"),
    ("hand_over request=A id=Y", "error=not_finished"),
    ("hand_over request=Z id=B", "error=unknown_request"),
    ("hand_over request=A id=X", "error=already_declared"),
    ("update", "error=no_step_in_flight"),
    ("schedule", "error=none reqs_in_batch=[A] reqs_not_processed=[] reqs_to_send=[]"
                                 " scheduled=[(scheduled request=A num_tokens=8 samples=true)]"
                                 " consumer_scheduled=absent reqs_to_recv=absent heartbeats=absent"),
    ("update samples=[(sample request=B tokens=[1])]", "error=unknown_request"),
    ("update samples=[(sample request=X tokens=[1])]", "error=wrong_token_count"),
    ("update", "error=none finished_prefills=[(prefill request=A blocks=[1 2])] finished_sending=[]"
                               " finished_recving=[] invalid_blocks=[] num_referenced_blocks=3"),
    ("hand_over request=A id=B max_tokens=2", "error=none consumer_waiting=[B]"),
    ("hand_over request=A id=C", "error=none"),
    ("finish_requests engine=consumer requests=[C A] status=finished_stopped", "error=bad_range"),
    ("finish_requests engine=consumer requests=[C A]", "error=none consumer_waiting=[B] num_referenced_blocks=3"),
    ("schedule engine=consumer",
     "error=none reqs_to_recv=[(receive request=C remote_request=A)"
     " (receive request=B remote_request=A local_blocks=[1 2] remote_blocks=[1 2])] consumer_skipped_waiting=[B]"
     " scheduled=absent reqs_to_send=absent"),
    ("update engine=consumer",
     "error=none finished_prefills=absent reads=[(read read=0 request=B remote_request=A local_blocks=[1 2]"
     " remote_blocks=[1 2] progress=submitted) (read read=1 rank=1 request=B remote_request=A local_blocks=[1 2]"
     " remote_blocks=[1 2] progress=submitted)]"),
    ("schedule", "error=none finished=[A] reqs_to_send=[(send request=A expires=30)]"),
    ("update", "error=none finished_sending=[]"),
    ("advance_read read=0 progress=submitted", "error=bad_range"),
    ("advance_read read=0 progress=failed", "error=not_in_config"),
    ("lose_notice notice=0", "error=not_in_config"),
    ("repeat_notice notice=0", "error=not_in_config"),
    ("advance_read read=2", "error=unknown_job"),
    ("deliver_notice notice=9", "error=unknown_job"),
    ("advance_clock seconds=1000000001", "error=bad_range now=0"),
    ("advance_read read=0 progress=part", "error=none"),
    ("advance_read read=0", "error=none"),
    ("schedule engine=consumer", "error=none consumer_scheduled=[]"),
    ("update engine=consumer", "error=none finished_recving=[] reads=[(read read=1 rank=1 request=B remote_request=A"
                               " local_blocks=[1 2] remote_blocks=[1 2] progress=submitted)]"),
    ("advance_read read=1", "error=none"),
    ("schedule engine=consumer", "error=none"),
    ("update engine=consumer", "error=none finished_recving=[B] reads=[]"),
    ("schedule engine=consumer",
     "error=none consumer_new_reqs=[(new request=B num_computed_tokens=7 blocks=[[1 2]])] reqs_to_recv=[]"),
    ("update engine=consumer", "error=none consumer_outputs=[(output request=B tokens=[1])]"),
    ("deliver_notice notice=LAST", "error=none"),
    ("schedule", "error=none"),
    ("update", "error=none finished_sending=[]"),
    ("deliver_notice notice=FIRST", "error=none"),
    ("advance_clock seconds=29", "error=none now=29"),
    ("schedule", "error=none"),
    ("update", "error=none finished_sending=[A] num_referenced_blocks=1"),
    ("reset_prefix_cache", "error=none success=true consumer_success=absent"),
    ("set_pause_state engine=consumer state=paused_all", "error=none"),
    ("finish_all_requests engine=consumer", "error=none consumer_requests=[]"),
)

_PREFILLS_A = ("add_request id=A tokens=[1 2 3 4 5 6 7 8] do_remote_decode=true max_tokens=1",
               "schedule", "update")
_READS_A = (*_PREFILLS_A, "hand_over request=A id=B", "schedule engine=consumer", "update engine=consumer",
            "schedule", "update")

# As CORRECTED_CONNECTOR, for a pair.
CORRECTED_DISAGGREGATED = {
    "reads_after_the_end": (
        ("v0.19", "v0.23"),
        ("", *_READS_A, "advance_clock seconds=30", "schedule", "update",
         "advance_read read=0"),
        "error=unknown_job", "error=none num_referenced_blocks=1"),
    "expired_after_a_renewed": (
        ("v0.23",),
        ("max_num_seqs=1", *_PREFILLS_A,
         "add_request id=X tokens=[9 9 9 9] do_remote_decode=true max_tokens=1",
         "schedule", "update", "advance_clock seconds=20", "hand_over request=A id=B",
         "schedule engine=consumer", "update engine=consumer", "deliver_notice notice=0", "schedule",
         "update", "advance_clock seconds=10", "schedule", "update"),
        "finished_sending=[X]", "finished_sending=[]"),
    "repeated_notices": (
        ("v0.19", "v0.23"),
        ("engines=2 consumer_ranks=2 connectors=[(nixl deadline=0)]", *_PREFILLS_A, "hand_over request=A id=B",
         "hand_over request=A id=C", "schedule engine=consumer", "update engine=consumer", "advance_read read=0", "advance_read read=1",
         "deliver_notice notice=0", "deliver_notice notice=1", "schedule", "update"),
        "finished_sending=[]", "finished_sending=[A]"),
    "first_failed_read": (
        ("v0.23",),
        ("engines=2 ranks=2 connectors=[(nixl transport_may_fail=true)]", *_READS_A, "advance_read read=0 progress=failed",
         "schedule engine=consumer", "update engine=consumer"),
        "finished_recving=[] invalid_blocks=[1 2] consumer_num_referenced_blocks=3",
        "finished_recving=[B] invalid_blocks=[1 2] consumer_num_referenced_blocks=1"),
    "blocks_from_the_end": (
        ("v0.19", "v0.23"),
        ("", "add_request id=A tokens=[1 2 3 4] do_remote_decode=true max_tokens=2",
         "schedule", "update", "schedule", "update",
         "hand_over request=A id=B", "schedule engine=consumer"),
        "reqs_to_recv=[(receive request=B remote_request=A local_blocks=[1] remote_blocks=[1])]",
        "reqs_to_recv=[(receive request=B remote_request=A local_blocks=[1] remote_blocks=[2])]"),
    "load_of_one_token": (
        ("v0.19", "v0.23"),
        ("", "add_request id=A tokens=[5] do_remote_decode=true max_tokens=1",
         "schedule", "update", "hand_over request=A id=B", "schedule engine=consumer"),
        "reqs_to_recv=[(receive request=B remote_request=A)]"
        " consumer_scheduled=[(scheduled request=B num_tokens=1 samples=true)]",
        "reqs_to_recv=[(receive request=B remote_request=A local_blocks=[1] remote_blocks=[1])] consumer_scheduled=[]"),
    "heartbeats_of_others": (
        ("v0.23",),
        ("engines=2 connectors=[(nixl deadline=5)]", *_PREFILLS_A, "hand_over request=A id=B", "hand_over request=A id=C",
         "finish_requests engine=consumer requests=[B]", "schedule engine=consumer"),
        "heartbeats=[A]", "heartbeats=[]"),
    "finished_without_blocks": (
        ("v0.19", "v0.23"),
        ("num_gpu_blocks=3 async_scheduling=true max_concurrent_batches=2",
         "add_request id=B tokens=[1 2 3]", "schedule", "update",
         "add_request id=A tokens=[9] do_remote_decode=true max_tokens=1", "schedule",
         "schedule", "update"),
        "finished_prefills=[]", "finished_prefills=[(prefill request=A blocks=[])]"),
}


class Story(unittest.TestCase):
    """Shared by all pools."""

    def check_replies(self, replies, story):
        self.assertEqual(len(replies), len(story))
        for (command, expected), reply in zip(story, replies):
            fields = parse_line("-> " + expected).expectation
            self.assertEqual({key: reply.get(key, "absent") for key in fields}, fields, command)

    def check_story(self, program, profile, *arguments):
        opening = ["target block_pool", f"config num_gpu_blocks=7 profile={profile}"]
        replies = converse(program, *opening, *[command for command, _ in STORY], arguments=arguments)
        self.assertEqual(replies[1], {})
        self.check_replies(replies[2:], STORY)


class Wire(unittest.TestCase):
    def test_replies_survive_a_breakdown(self):
        """Without them kvfence would not know which of the commands that it wrote ahead broke the implementation."""
        program = ("import sys; sys.path.insert(0, sys.argv[1]); from wire import serve;"
                   " serve(lambda line: {'a': '-> x=1', 'b': '-> x=2'}[line])")
        child = subprocess.run([sys.executable, "-B", "-c", program, str(HERE)], input="a\nb\nc\na\n", timeout=60,
                               capture_output=True, text=True, check=False)
        self.assertEqual((child.stdout, child.returncode), ("-> x=1\n-> x=2\n", 1))
        self.assertIn("KeyError", child.stderr)

    def test_a_reader_that_leaves(self):
        child = subprocess.Popen([sys.executable, str(HERE / "minimal_pool.py")], stdin=subprocess.PIPE,
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        child.stdout.close()
        child.stdin.write(b"target block_pool\n")
        child.stdin.close()
        self.assertEqual((child.stderr.read(), child.wait(60)), (b"", 0))
        child.stderr.close()


class MinimalPool(Story):
    def test_story(self):
        self.check_story("minimal_pool.py", "v0.19")

    def test_protocol(self):
        replies = converse(
            "minimal_pool.py", "target other", "get_new_blocks num_blocks=1", "config profile=v0.23", "config other=1",
            "config num_gpu_blocks=3", "observe state=false", "get_new_blocks num_blocks=1", "touch", "nonsense",
            "touch [", "", "observe state=true", "touch blocks=[1]", "config num_gpu_blocks=2",
            "get_new_blocks num_blocks=1")
        keys = [sorted(reply) for reply in replies]
        self.assertEqual(keys[:6], [["unsupported"], ["malformed"], ["unsupported"], ["malformed"], [], []])
        self.assertNotIn("free_queue", keys[6])
        self.assertEqual(keys[7:11], [["malformed"], ["malformed"], ["malformed"], []])
        self.assertEqual(replies[11]["ref_cnts"], [0, 2, 0])
        self.assertEqual(replies[13]["ref_cnts"], [0, 1])


class Release(Story):
    """A release of vLLM; its profile is the class of tests that is run."""

    profile = None

    @classmethod
    def setUpClass(cls):
        try:
            find_release(RELEASE_OF_PROFILE[cls.profile])
            for package in REQUIRED_PACKAGES:
                __import__(package)
        except (ReleaseNotFound, ImportError) as error:
            raise unittest.SkipTest(str(error)) from error

    def ask(self, *lines, options=(), status=0, environment=None):
        return converse("vllm.py", *lines, arguments=("--release", RELEASE_OF_PROFILE[self.profile], *options),
                        status=status, environment=environment)

    def test_story(self):
        self.check_story("vllm.py", self.profile)
        self.check_story("vllm.py", self.profile, "--release", RELEASE_OF_PROFILE[self.profile])

    def test_without_assertions(self):
        replies = self.ask("target block_pool", f"config profile={self.profile}",
                           environment={**os.environ, "PYTHONOPTIMIZE": "1"})
        self.assertEqual([list(reply) for reply in replies], [["unsupported"]] * 2)

    def test_environment(self):
        """Whichever model runner the environment asks for."""
        replies = self.ask(
            "target engine", f"config profile={self.profile} assembly=scheduler num_gpu_blocks=3",
            "add_request id=A tokens=[1]", "schedule", "update", "reset_prefix_cache reset_running_requests=true",
            "schedule",
            environment={**os.environ, "VLLM_USE_V2_MODEL_RUNNER": "1"})
        self.assertEqual(replies[-1]["new_reqs"], [])

    def ask_manager(self, config, *lines):
        replies = self.ask("target kv_cache", f"config profile={self.profile} {config}", *lines)
        self.assertEqual(replies[:2], [self.ask("target block_pool")[0], {}])
        return replies[2:]

    def test_kv_cache(self):
        for config, story in (
            ("num_gpu_blocks=7", UNITARY),
            ("num_gpu_blocks=12 groups=[(full block_size=4) (sliding block_size=4 window=4)]", HYBRID),
            ("num_gpu_blocks=16 groups=[(full block_size=4) (mamba block_size=4 align=true spec_blocks=1)]", MAMBA),
        ):
            with self.subTest(config=config):
                self.check_replies(self.ask_manager(config, *[command for command, _ in story]), story)

    def test_every_kind_without_caching(self):
        replies = self.ask_manager(
            "num_gpu_blocks=20 enable_caching=false groups=[(full block_size=4) (sliding block_size=8 window=9)"
            " (chunked block_size=4 chunk=8) (mamba block_size=4 spec_blocks=1) (cross block_size=4)]",
            "request id=A tokens=[1 2 3 4 5 6 7 8 9]",
            "allocate_slots request=A num_computed_tokens=0 num_new_tokens=9 from_cache=true num_encoder_tokens=5",
            "cache_blocks request=A num_computed_tokens=99", "get_num_common_prefix_blocks request=A")
        self.assertEqual(replies[1]["blocks"], [[1, 2, 3], [4, 5], [6, 7, 8], [9, 10, 11, 12], [13, 14]])
        self.assertEqual((replies[2]["error"], replies[3]["counts"]), (None, [0] * 5))

    def test_blocks_that_upstream_does_not_count(self):
        """A request that claims computed tokens without slots: upstream counts 1 new block, takes 3, and raises."""
        replies = self.ask_manager(
            "num_gpu_blocks=3 groups=[(sliding block_size=4 window=4)]", "request id=A tokens=[1 2 3 4 5 6 7 8 9]",
            "allocate_slots request=A num_computed_tokens=8 num_new_tokens=1",
            "allocate_slots request=A num_computed_tokens=4 num_new_tokens=1")
        self.assertEqual([reply.get("allocated") for reply in replies[1:]], [False, True])

    def test_hit_longer_than_its_tokens(self):
        """The hit of a second kind of full attention is not cut: upstream then asks for -3 blocks and counts them."""
        tokens = " ".join(map(str, range(33)))
        replies = self.ask_manager(
            "num_gpu_blocks=40 groups=[(full block_size=4) (full block_size=8) (sliding block_size=8 window=2)]",
            f"request id=A tokens=[{tokens}]", "allocate_slots request=A num_computed_tokens=0 num_new_tokens=33",
            "evict_blocks blocks=[15 16 17 18]", f"request id=B tokens=[{tokens}]", "get_computed_blocks request=B",
            "allocate_slots request=B num_computed_tokens=0 num_new_tokens=1 num_external_tokens=1 from_cache=true",
            "free request=A", "free request=B")
        self.assertEqual((replies[4]["blocks"], replies[4]["num_hit_tokens"]), ([[], [10, 11, 12, 13], []], 0))
        self.assertEqual([reply["num_free_blocks"] for reply in replies[5:]], [18, 33, 39])

    def ask_scheduler(self, config, *lines, options=(), status=0):
        return self.ask("target engine", f"config profile={self.profile} {config}", *lines, options=options,
                        status=status)[2:]

    def test_scheduler(self):
        replies = self.ask_scheduler("connectors=[(scripted)]", *[command for command, _ in SCHEDULER])
        self.check_replies(replies, SCHEDULER)
        notified = [call.fields["request"] for call in replies[0].get("connector_calls", [])]
        self.assertEqual(notified, ["A"] if self.profile == "v0.23" else [])

    def test_asynchronous_scheduler(self):
        """Plans with drafts that are not known yet; a victim takes its outputs under way."""
        replies = self.ask_scheduler(
            "async_scheduling=true max_concurrent_batches=2 num_speculative_tokens=2 policy=priority num_gpu_blocks=5",
            "add_request id=A tokens=[1 2 3 4 5 6 7] priority=1", "add_request id=B tokens=[9 9 9 9]", "schedule",
            "schedule", "update token=4", "update token=5 accepted=1", "update_draft_token_ids request=A tokens=[]")
        self.check_replies(replies[3:], (
            ("schedule", "scheduled=[(scheduled request=B num_tokens=3 samples=true"
                         " spec_tokens=[4294967295 4294967295])] preempted=[A] running=[B] waiting=[A]"),
            ("update", "outputs=[(output request=B tokens=[4]) (output request=A tokens=[4])]"),
            ("update", "outputs=[(output request=B tokens=[5 5])] spec_stats=[1 2 1 1 0]"),
            ("update_draft_token_ids", "error=not_in_config"),
        ))

    def test_says_how_many_faults_it_corrects(self):
        (reply,) = self.ask("target engine")
        (uncorrected,) = self.ask("target engine", options=("--uncorrected", next(iter(CORRECTIONS))))
        self.assertEqual(reply["corrections"], uncorrected["corrections"] + 1)
        self.assertNotIn("corrections", self.ask("target block_pool")[0])

    def test_corrections(self):
        self.assertEqual(list(CORRECTED), list(CORRECTIONS))
        for name, (lines, corrected, uncorrected) in CORRECTED.items():
            if name == "lost_load_reserves" and self.profile == "v0.19":
                uncorrected = corrected  # nothing is reserved
            with self.subTest(name=name):
                options = ("--uncorrected", name)
                if uncorrected is None:
                    self.assertEqual(len(self.ask_scheduler(*lines, options=options, status=1)), len(lines) - 2)
                else:
                    replies = self.ask_scheduler(*lines, options=options)
                    self.check_replies(replies[-1:], [(lines[-1], uncorrected)])
        stories = [(f"config profile={self.profile} {lines[0]}", *lines[1:]) for lines, _, _ in CORRECTED.values()]
        replies = self.ask("target engine", *[line for story in stories for line in story])[1:]
        for story, (name, (_, corrected, _)) in zip(stories, CORRECTED.items()):
            with self.subTest(name=name):
                self.check_replies(replies[len(story) - 1:len(story)], [(story[-1], corrected)])
            replies = replies[len(story):]

    def test_connector(self):
        parts = HOLD if self.profile == "v0.19" else FENCE
        story = [(command, parts.get(line, expected) if parts.get(line, "").startswith("error=")
                  else f"{expected} {parts.get(line, '')}")
                 for line, (command, expected) in enumerate(CONNECTOR)]
        replies = self.ask("target engine", f"config profile={self.profile} assembly=offloading ranks=2",
                           *[command for command, _ in story])[2:]
        self.check_replies(replies, story)
        (event,) = replies[17 if self.profile == "v0.23" else 21]["events"]
        self.assertEqual((event.verb, event.fields["medium"], event.fields["token_ids"]), ("stored", "CPU", []))
        self.assertEqual([[block_hash] for block_hash in event.fields["block_hashes"]],
                         [[key[:32]] for key in replies[3]["keys"][1:3]])

    def test_disaggregated(self):
        # In 0.23.0 a heartbeat of each of the consumer's ranks comes in between.
        numbers = {"FIRST": "4" if self.profile == "v0.23" else "2", "LAST": "5" if self.profile == "v0.23" else "3"}
        story = []
        for command, expected in DISAGGREGATED:
            for word, number in numbers.items():
                command = command.replace(word, number)
            story.append((command, expected))
        config = f"config num_gpu_blocks=9 profile={self.profile} assembly=prefill_decode consumer_ranks=2"
        replies = self.ask("target engine", config, *[command for command, _ in story])[2:]
        self.check_replies(replies, story)

    def test_disaggregated_corrections(self):
        self.assertEqual(set(CORRECTED_DISAGGREGATED), set(corrected_disaggregated.CORRECTIONS))
        self.check_corrections("prefill_decode", [(name, *story) for name, story in CORRECTED_DISAGGREGATED.items()])

    def check_corrections(self, assembly, stories):
        """stories: name, profiles, lines, what the last reply is with and without the correction."""
        for name, profiles, lines, corrected, uncorrected in stories:
            if self.profile not in profiles:
                continue
            story = ("target engine", f"config profile={self.profile} assembly={assembly} {lines[0]}", *lines[1:])
            for options, expected in (((), corrected), (("--uncorrected", name), uncorrected)):
                with self.subTest(name=name, options=options):
                    replies = self.ask(*story, options=options, status=int(expected is None))
                    if expected is None:
                        self.assertEqual(len(replies), len(story) - 1)
                    else:
                        self.check_replies(replies[-1:], [(lines[-1], expected)])

    def test_multi(self):
        # A child that takes one group alone makes upstream finish requests by another method.
        for hma in ("true", "false"):
            children = f"[(scripted) (scripted class=b hma={hma})]"
            replies = self.ask("target engine", f"config profile={self.profile} hash_block_size=2"
                               f" groups=[(full block_size=2)] connectors=[(multi children={children})]",
                               *[command for command, _ in MULTI])[2:]
            self.check_replies(replies, MULTI)

    def test_multi_over_nixl(self):
        replies = self.ask("target engine", f"config profile={self.profile} engines=2 hash_block_size=2"
                           " groups=[(full block_size=2)] connectors=[(multi children=[(nixl) (scripted)])]",
                           *[command for command, _ in MULTI_OVER_NIXL])[2:]
        self.check_replies(replies, MULTI_OVER_NIXL)

    def test_multi_corrections(self):
        self.assertEqual(set(CORRECTED_MULTI), set(corrected_multi_connector.CORRECTIONS))
        self.check_corrections("multi", [(name, *story) for name, story in CORRECTED_MULTI.items()])

    def test_unsupported_multi(self):
        several = "groups=[(full block_size=4) (sliding block_size=4 window=4)]"
        for children, config, answer in (("[]", "", "malformed"), ("[(other)]", "", "malformed"),
                                         ("[(scripted size=1)]", "", "malformed"),
                                         ("[(scripted)]", several, "unsupported" if self.profile == "v0.19" else None),
                                         ("[(nixl)]", "", "malformed"),
                                         ("[(nixl) (offloading)]", "engines=2", "unsupported")):
            (reply,) = self.ask("target engine",
                                f"config profile={self.profile} connectors=[(multi children={children})] {config}")[1:]
            self.assertEqual(list(reply), [answer] if answer else [], f"{children} {config}")

    def test_connector_corrections(self):
        self.assertEqual(set(CORRECTED_CONNECTOR), set(corrected_connector.CORRECTIONS))
        self.check_corrections("offloading", [(name, *story) for name, story in CORRECTED_CONNECTOR.items()])

    def test_simple_offload(self):
        replies = self.ask("target engine", f"config profile={self.profile} assembly=simple ranks=2",
                           *[command for command, _ in SIMPLE_OFFLOAD])[2:]
        self.check_replies(replies, SIMPLE_OFFLOAD)
        self.assertEqual(replies[16]["cpu_keys"][1:3], replies[16]["keys"][1:3])

    def test_lazy_simple_offload(self):
        """Blocks that are about to be evicted are stored, from the cursor on."""
        config = f"config profile={self.profile} connectors=[(simple lazy_offload=true)] num_gpu_blocks=5"
        replies = self.ask("target engine", config,
                           "add_request id=A tokens=[1 2 3 4 5 6 7 8] max_tokens=1", "schedule", "update", "schedule")
        self.check_replies(replies[3:], (
            ("schedule", "error=none lazy_cursor=4 store_gpu_blocks=[]"),
            ("update", "error=none free_queue=[3 4 2 1]"),
            ("schedule", "error=none lazy_cursor=1 store_event=0 store_gpu_blocks=[2 1] free_queue=[3 4]")))

    def test_simple_offload_corrections(self):
        names = [name for name, *_ in CORRECTED_SIMPLE_OFFLOAD]
        self.assertEqual(set(names), set(corrected_simple_offload.CORRECTIONS))
        self.check_corrections("simple", CORRECTED_SIMPLE_OFFLOAD)

    def test_unsupported_simple_offload(self):
        other = "false" if self.profile == "v0.23" else "true"
        for config, answer in (("enable_caching=false", "unsupported"),
                               (f"connectors=[(simple simple_offload_pins_hits={other})]", "unsupported"),
                               ("groups=[(sliding block_size=4 window=4)]", "unsupported"),
                               ("groups=[(full block_size=4) (chunked block_size=4 chunk=8)]", "unsupported")):
            with self.subTest(config=config):
                (reply,) = self.ask("target engine", f"config profile={self.profile} assembly=simple {config}")[1:]
                self.assertEqual(list(reply), [answer])
        replies = self.ask("target engine", f"config profile={self.profile} assembly=simple {_WINDOW}",
                           "add_request id=A tokens=[1]")
        self.assertEqual(replies[-1]["error"], "not_in_config")

    def test_synchronous_connector(self):
        for config, story in (("ranks=2", EXAMPLE), ("connectors=[(decode_bench num_layers=2)]", DECODE_BENCH)):
            replies = self.ask("target engine",
                               f"config profile={self.profile} assembly=synchronous num_gpu_blocks=6 {config}",
                               *[command for command, _ in story])[2:]
            self.check_replies(replies, story)

    def test_synchronous_connector_leaves_no_files(self):
        with tempfile.TemporaryDirectory() as folder:
            replies = self.ask(
                "target engine", *[f"config profile={self.profile} assembly=synchronous"] * 2,
                "add_request id=A tokens=[1 2 3 4 5 6]", "schedule", "update",
                environment={**os.environ, "TMPDIR": folder})
            self.assertEqual(len(replies[-1]["files"]), 1)
            self.assertEqual(list(pathlib.Path(folder).iterdir()), [])

    def test_synchronous_connector_corrections(self):
        names = [name for name, *_ in CORRECTED_SYNCHRONOUS_CONNECTOR]
        self.assertEqual(set(names), set(corrected_synchronous_connector.CORRECTIONS))
        self.check_corrections("synchronous", CORRECTED_SYNCHRONOUS_CONNECTOR)

    def test_unsupported_synchronous_connector(self):
        two_groups = "groups=[(full block_size=4) (sliding block_size=4 window=4)]"
        other = "false" if self.profile == "v0.23" else "true"
        for config, answer in ((f"connectors=[(decode_bench decode_bench_hma={other})]", "unsupported"),
                               (two_groups, "unsupported"),
                               (f"connectors=[(decode_bench)] {two_groups}",
                                "unsupported" if self.profile == "v0.19" else None)):
            with self.subTest(config=config):
                (reply,) = self.ask("target engine", f"config profile={self.profile} assembly=synchronous {config}")[1:]
                self.assertEqual(list(reply), [answer] if answer else [])

    def test_unsupported_connector(self):
        for config in ("connectors=[(offloading)] device=symbols", "connectors=[(offloading)] device=virtual",
                       "assembly=offloading_on_device", "connectors=[(offloading transfers_may_fail=true)]",
                       "connectors=[(offloading arc_refuses_with_idle_t1=false)]",
                       "connectors=[(multi children=[(scripted)] multi_connector_shares_blocks=true)]",
                       "connectors=[(offloading)] groups=[(full block_size=4) (chunked block_size=4 chunk=8)]"):
            with self.subTest(config=config):
                (reply,) = self.ask("target engine", f"config profile={self.profile} {config}")[1:]
                self.assertEqual(list(reply), ["unsupported"])

    def test_commands_of_what_is_not_there(self):
        commands = ("execute", "execute engine=consumer", "advance stream=load", "fail_next stream=load", "poll", "drain",
                    "advance_transfer job=0", "report_transfer_again job=0", "log_stats", "tier_finish tier=0 job=0", "tier_add tier=0 request=A blocks=[0]",
                    "advance_copy", "write_entry tokens=[] num_files=0", "fail_next_file layer=0 operation=read",
                    "advance_read read=0", "deliver_notice notice=0", "advance_clock seconds=1",
                    "script_connector request=A", "add_request id=C tokens=[1] do_remote_decode=true",
                    "hand_over request=A id=B", "hand_over request=E id=F")
        of_engines = ("schedule", "update", "finish_requests requests=[A]", "finish_all_requests",
                      "set_pause_state state=unpaused", "reset_prefix_cache", "add_request id=D tokens=[1]")
        refused = [*commands, *[f"{command} engine=consumer" for command in of_engines]]
        used = [f"add_request id={name} tokens=[1]" for name in "BCD"]
        replies = self.ask_scheduler("", "add_request id=A tokens=[1]", *refused, *used, "add_request id=F tokens=[1]")
        self.assertEqual([reply["error"] for reply in replies],
                         [None, *["not_in_config"] * len(refused), *["already_declared"] * len(used), None])

        refused = ("update finished_recving=[A]", "reset_prefix_cache reset_running_requests=true",
                   "reset_prefix_cache connector_fails=true", "script_connector request=A",
                   "add_request id=C tokens=[1] do_remote_decode=true", "schedule engine=consumer", "poll")
        for assembly in ("offloading", "simple", "synchronous"):
            with self.subTest(assembly=assembly):
                replies = self.ask_scheduler(f"assembly={assembly}", "add_request id=A tokens=[1]", *refused)
                expected = [None, *["not_in_config"] * len(refused)]
                if assembly != "offloading":
                    expected[2] = None  # the reset of running requests
                self.assertEqual([reply["error"] for reply in replies], expected)

    def test_a_script_for_a_child_that_is_not_there_is_no_script(self):
        replies = self.ask("target engine", f"config profile={self.profile} connectors=[(scripted)]",
                           "add_request id=A tokens=[0] max_tokens=1 child=1", "schedule")
        self.assertEqual([reply["error"] for reply in replies[2:]], [None, None])

    def test_unsupported_scheduler(self):
        for config, answer in (("priority_victim_shifts_loop=false", "unsupported"), ("policy=other", "malformed"),
                               ("priority_victim_shifts_loop=true", None)):
            (reply,) = self.ask("target engine", f"config profile={self.profile} {config}")[1:]
            self.assertEqual(list(reply), [answer] if answer else [])

    def test_external_blocks_after_hits(self):
        for rule, tables in (("false", [[[1, 2], [2, 3]]]), ("true", [[[1, 3], [2, 4]]])):
            replies = self.ask("target engine", "config connectors=[(scripted)] num_gpu_blocks=5 "
                               "groups=[(full block_size=4) (sliding block_size=4 window=8)] "
                               f"profile={self.profile} external_blocks_after_hits={rule}",
                               "add_request id=A tokens=[1 2 3 4] max_tokens=1",
                               "add_request id=C tokens=[9 9 9 9] max_tokens=1", "schedule", "update",
                               "add_request id=B tokens=[1 2 3 4 5 6 7 8] external_tokens=8 load_async=true", "schedule")
            self.assertEqual([table.fields["blocks"] for table in replies[-1]["tables"]], tables)

    def test_unsupported_groups(self):
        for groups in ("[(full block_size=4 window=8)]", "[(full block_size=4) (full block_size=4)]"):
            self.assertEqual(list(self.ask("target kv_cache", f"config profile={self.profile} groups={groups}")[-1]),
                             ["unsupported"])
        for groups in ("[]", "[(other block_size=4)]", "[(full)]", "[(full block_size=4 other=1)]"):
            self.assertEqual(list(self.ask("target kv_cache", f"config profile={self.profile} groups={groups}")[-1]),
                             ["malformed"])

    def ask_offload(self, target, config, *lines):
        replies = self.ask(f"target {target}", f"config profile={self.profile} {config}", *lines)
        self.assertEqual(replies[:2], [self.ask("target block_pool")[0], {}])
        return replies[2:]

    def test_eviction(self):
        for policy, story in (("lru", POLICY), ("arc", POLICY), ("lru", LRU), ("arc", ARC)):
            with self.subTest(policy=policy, story=story[:3]):
                config = f"policy={policy} capacity=3"
                self.check_replies(self.ask_offload("eviction", config, *[command for command, _ in story]), story)

    def test_offload(self):
        replies = self.ask_offload("offload", "capacity=3", *[command for command, _ in OFFLOAD])
        self.check_replies(replies, OFFLOAD)

    def test_victims_become_ghosts_of_a_failed_store(self):
        replies = self.ask_offload("offload", "policy=arc capacity=1 enable_events=false", "prepare_store keys=[1]",
                                   "complete_store keys=[1]", "prepare_store keys=[2]",
                                   "complete_store keys=[2] success=false", "touch keys=[1]", "take_events")
        self.assertEqual((replies[3]["b1"], replies[3]["size"]), ([1], 0))
        self.assertEqual((replies[4]["target_t1_size"], replies[5]["events"]), (1.0, []))

    def test_unsupported_policies(self):
        for target in ("eviction", "offload"):
            for config, reply in (("arc_refuses_with_idle_t1=false", "unsupported"), ("policy=fifo", "malformed"),
                                  ("capacity=0", "malformed")):
                self.assertEqual(list(self.ask(f"target {target}", f"config profile={self.profile} {config}")[-1]),
                                 [reply])
        replies = self.ask("target offload", f"config profile={self.profile} store_threshold=2 max_tracker_size=0")
        self.assertEqual(list(replies[-1]), ["malformed"])

    def test_says_what_it_is(self):
        self.assertEqual(self.ask("target block_pool"),
                         [{"implementation": "vllm", "version": RELEASE_OF_PROFILE[self.profile]}])

    def test_other_profile_is_unsupported(self):
        others = [profile for profile in RELEASE_OF_PROFILE if profile != self.profile]
        is_later = self.profile != "v0.19"
        wrong_rule = f"config profile={self.profile} free_blocks_prepend={str(not is_later).lower()}"
        right_rule = f"config profile={self.profile} free_blocks_prepend={str(is_later).lower()}"
        for reply in self.ask(*[f"config profile={other}" for other in others], wrong_rule):
            self.assertEqual(list(reply), ["unsupported"])
        self.assertEqual(self.ask(right_rule), [{}])

    def test_hash_of_one_block(self):
        """Checks that the hashes depend on the seed; contract/pool/block_hash_test.cpp pins the hashes themselves."""
        keys = []
        for seed in ("0", "1"):
            replies = self.ask(
                f'config num_gpu_blocks=3 profile={self.profile} hash_seed="{seed}"', "request id=A tokens=[1 2 3 4]",
                "get_new_blocks num_blocks=1",
                "cache_full_blocks request=A blocks=[1] num_cached_blocks=0 num_full_blocks=1 block_size=4 group=258",
            )
            keys.append(replies[-1]["keys"][1])
            self.assertEqual((len(keys[-1]), keys[-1][-4:]), (36, b"\x00\x00\x01\x02"))
        self.assertNotEqual(keys[0], keys[1])

    def test_events(self):
        group = {} if self.profile == "v0.19" else {"group_idx": 0}
        replies = self.ask(
            f"config num_gpu_blocks=4 profile={self.profile}",
            "request id=A tokens=[1 2 3 4 5 6 7 8] lora_name=ad lora_id=3"
            " mm_features=[(item id=cat offset=2 length=2)]",
            "get_new_blocks num_blocks=2",
            "cache_full_blocks request=A blocks=[1 2] num_cached_blocks=0 num_full_blocks=1 block_size=4 group=0",
            "cache_full_blocks request=A blocks=[1 0] num_cached_blocks=1 num_full_blocks=2 block_size=4 group=0",
            "evict_blocks blocks=[1]", "free_blocks blocks=[1 2]", "reset_prefix_cache", "take_events", "take_events",
        )
        first, nothing, removed, cleared = replies[-2]["events"]
        (block_hash,) = first.fields["block_hashes"]
        self.assertEqual(first, Record("stored", {
            "block_hashes": [block_hash], "parent_block_hash": None, "token_ids": [1, 2, 3, 4], "block_size": 4,
            "lora_name": "ad", "lora_id": 3,
            "extra_keys": [["ad", Record("item", {"id": "cat", "offset": 2})]], **group}))
        self.assertEqual(nothing, Record("stored", {
            "block_hashes": [], "parent_block_hash": block_hash, "token_ids": [5, 6, 7, 8], "block_size": 4,
            "lora_name": "ad", "lora_id": 3, **group}))
        self.assertEqual(removed, Record("removed", {"block_hash": block_hash, **group}))
        self.assertEqual(cleared, Record("cleared", {}))
        self.assertEqual(replies[-1]["events"], [])


class Release019(Release):
    profile = "v0.19"

    def test_later_options_are_refused(self):
        replies = self.ask(
            "config profile=v0.19", "request id=A tokens=[]", "free_blocks blocks=[] prepend=true",
            "cache_full_blocks request=A blocks=[] num_cached_blocks=1 num_full_blocks=1 block_size=4 group=0"
            " block_mask=[]")
        self.assertEqual([reply["error"] for reply in replies[2:]], ["not_in_profile"] * 2)

    def test_tiering_is_not_there(self):
        (reply,) = self.ask("target tiering", "config profile=v0.19")[1:]
        self.assertIn("no tiering manager", reply["unsupported"])
        config = "config profile=v0.19 connectors=[(offloading spec_name=TieringOffloadingSpec)]"
        (reply,) = self.ask("target engine", config)[1:]
        self.assertIn("no tiering manager", reply["unsupported"])

    def test_kv_cache_of_this_release(self):
        replies = self.ask_manager(
            "num_gpu_blocks=8 groups=[(full block_size=4) (mamba block_size=4 align=true)]",
            "request id=A tokens=[1 2 3 4 5 6 7 8 9]",
            "can_fit_full_sequence request=A num_encoder_tokens=1",
            "allocate_slots request=A num_computed_tokens=0 num_new_tokens=9 reserved_blocks=1",
            "allocate_slots request=A num_computed_tokens=0 num_new_tokens=9",
            "allocate_slots request=A num_computed_tokens=0 num_new_tokens=8",
            "can_fit_full_sequence request=A num_external_tokens=1")
        self.assertEqual([reply["error"] for reply in replies],
                         [None, None, "not_in_profile", None, "table_shrinks", "already_allocated"])
        self.assertIs(replies[1]["fits"], True)
        replies = self.ask("target kv_cache", "config retention_interval=4 groups=[(sliding block_size=4 window=8)]")
        self.assertEqual(list(replies[1]), ["unsupported"])

    def test_offload_of_this_release(self):
        replies = self.ask_offload(
            "offload", "capacity=4 store_threshold=2 max_tracker_size=2", "lookup_key key=1", "reset_cache",
            "lookup keys=[1 2 1]", "prepare_store keys=[1 2]", "complete_store keys=[1]", "lookup keys=[1 3]",
            "prepare_store keys=[2 3]", "prepare_store keys=[3 1 3]", "lookup keys=[1 3 1]")
        self.assertEqual([reply["error"] for reply in replies], ["not_in_profile"] * 2 + [None] * 7)
        self.assertEqual([reply.get("num_hits") for reply in replies], [None, None, 0, None, None, 1, None, None, 1])
        self.assertEqual([reply.get("keys_to_store") for reply in replies if "stored" in reply], [[1], [], []])

    def test_sink(self):
        (reply,) = self.ask_manager("num_gpu_blocks=6 groups=[(sink block_size=4 sink_len=8)]", "reset_prefix_cache")
        self.assertEqual((reply["success"], reply["free_queue"], reply["ref_cnts"]), (False, [3, 4, 5], [0] * 6))


class Release023(Release):
    profile = "v0.23"

    def test_the_profile_of_each_config_says_which_release_answers(self):
        try:
            find_release(RELEASE_OF_PROFILE["v0.19"])
        except ReleaseNotFound as error:
            self.skipTest(str(error))
        commands = ("request id=A tokens=[1 2 3 4]", "get_new_blocks num_blocks=2", "free_blocks blocks=[1]",
                    "free_blocks blocks=[2] prepend=true")
        alone = {profile: converse("vllm.py", f"config num_gpu_blocks=4 profile={profile}", *commands)
                 for profile in RELEASE_OF_PROFILE}
        self.assertNotEqual(alone["v0.19"], alone["v0.23"])
        both = converse("vllm.py", *(line for profile in ("v0.19", "v0.23", "v0.19")
                                     for line in (f"config num_gpu_blocks=4 profile={profile}", *commands)))
        self.assertEqual(both, alone["v0.19"] + alone["v0.23"] + alone["v0.19"])

    def test_prepend_and_mask(self):
        command = ("cache_full_blocks request=A blocks=[1 2 3] num_cached_blocks=0 num_full_blocks=3 block_size=4"
                   " group=0")
        replies = self.ask(
            "config num_gpu_blocks=6 profile=v0.23", "request id=A tokens=[1 2 3 4 5 6 7 8 9 10 11 12]",
            "get_new_blocks num_blocks=3", command + " block_mask=[true]", command + " block_mask=[true false true]",
            "free_blocks blocks=[2 1] prepend=true", "free_blocks blocks=[3]")
        self.assertEqual([reply["error"] for reply in replies[1:]], [None, None, "bad_mask", None, None, None])
        self.assertEqual([key is not None for key in replies[4]["keys"]], [False, True, False, True, False, False])
        self.assertEqual(replies[-1]["free_queue"], [2, 1, 4, 5, 3])

    def test_kv_cache_of_this_release(self):
        replies = self.ask_manager(
            "num_gpu_blocks=12 use_eagle=true eagle_groups=[1] retention_interval=0"
            " groups=[(full block_size=4) (sliding block_size=4 window=5)]",
            "request id=A tokens=[1 2 3 4 5 6 7 8 9 10 11 12]", "can_fit_full_sequence request=A",
            "allocate_slots request=A num_computed_tokens=0 num_new_tokens=4 full_sequence_must_fit=true"
            " reserved_blocks=10",
            "allocate_slots request=A num_computed_tokens=0 num_new_tokens=12 reserved_blocks=5",
            "take_events")
        self.assertEqual([reply["error"] for reply in replies], [None, "not_in_profile", None, None, None])
        self.assertEqual([reply.get("allocated") for reply in replies[2:4]], [False, True])
        spec = [(event.fields["group_idx"], event.fields["kv_cache_spec_kind"],
                 event.fields.get("kv_cache_spec_sliding_window"), len(event.fields["block_hashes"]))
                for event in replies[4]["events"]]
        self.assertEqual(spec, [(0, "full_attention", None, 3), (1, "sliding_window", 5, 2)])

    def test_offload_of_this_release(self):
        replies = self.ask_offload(
            "offload", "capacity=4 store_threshold=2 max_tracker_size=2", "lookup keys=[1]", "lookup_key key=1",
            "prepare_store keys=[1]", "lookup_key key=1", "prepare_store keys=[1]", "lookup_key key=1",
            "complete_store keys=[1]", "lookup_key key=1", "reset_cache", "lookup_key key=1", "take_events")
        self.assertEqual([reply["error"] for reply in replies], ["not_in_profile"] + [None] * 10)
        self.assertEqual([reply["result"] for reply in replies if "result" in reply],
                         ["miss", "miss", "pending", "hit", "miss"])
        self.assertEqual([reply.get("keys_to_store") for reply in replies if "stored" in reply], [[], [1]])
        self.assertEqual((replies[8]["size"], replies[8]["num_free_slots"]), (0, 4))
        self.assertEqual(replies[-1]["events"], [Record("event", {"keys": [1]})])

    def test_tiering(self):
        replies = self.ask_offload("tiering", "capacity=2 num_tiers=2", *[command for command, _ in TIERING])
        self.check_replies(replies, TIERING)
        for config in ("num_tiers=9", "file_tiers=[1]", "num_tiers=2 file_tiers=[1 0]"):
            reply = self.ask("target tiering", f"config {config}")[-1]
            self.assertEqual(list(reply), ["malformed"], config)
        reply = self.ask("target tiering", "config file_tiers=[0]")[-1]
        self.assertIn("expected file_tiers=[]", reply["unsupported"])

    def test_connector_without_file_tiers(self):
        config = "config profile=v0.23 connectors=[(offloading spec_name=TieringOffloadingSpec num_tiers=1"
        self.assertIn("expected file_tiers=[]",
                      self.ask("target engine", f"{config} file_tiers=[0])]")[-1]["unsupported"])
        replies = self.ask("target engine", f"{config})]", "add_request id=A tokens=[1 2 3 4]",
                           "tier_faults tier=0 faults=[(fault operation=write fails_with=EIO)]",
                           "tier_damage tier=0 request=A block=0 damage=flip at=3")
        self.assertEqual([reply["error"] for reply in replies[3:]], ["not_in_config"] * 2)

    def test_connector_with_tiers(self):
        replies = self.ask("target engine",
                           "config profile=v0.23 connectors=[(offloading spec_name=TieringOffloadingSpec num_tiers=1)]",
                           *[command for command, _ in TIERED_CONNECTOR])[2:]
        self.check_replies(replies, TIERED_CONNECTOR)

    def test_multi_notifies_of_new_requests(self):
        (reply,) = self.ask("target engine", "config profile=v0.23 connectors=[(multi children=[(scripted) (scripted)])]",
                            "add_request id=A tokens=[1]")[2:]
        self.assertEqual([call.fields["method"] for call in reply["connector_calls"]][-2:], ["on_new_request"] * 2)

    def test_synchronous_connector_of_several_groups(self):
        """The layers are those of group 0."""
        replies = self.ask(
            "target engine", "config profile=v0.23 connectors=[(decode_bench)]"
            " groups=[(full block_size=4) (sliding block_size=4 window=4)]", "add_request id=A tokens=[1]",
            "add_request id=B tokens=[1 2 3 4 5 6] skip_reading_prefix_cache=true", "schedule", "update")
        self.check_replies(replies[2:], (
            ("add_request", "error=not_in_config"), ("add_request", "error=none"),
            ("schedule", "file_transfers=[] fills=[(fill request=B num_tokens=5 blocks=[[1 2] [3 4]])]"),
            ("update", "filled=[(filled request=B layer=0 blocks=[1 2])]")))

    def test_pins(self):
        """The hit of a request that does not get its blocks is held, and held again at the next try."""
        replies = self.ask(
            "target engine", "config profile=v0.23 assembly=simple num_gpu_blocks=4",
            "add_request id=A tokens=[1 1 1 1 1] max_tokens=2", "schedule", "update", "schedule", "update",
            "advance_copy store=true", "schedule", "update", "add_request id=B tokens=[2 2 2 2 2 2 2 2 2]", "schedule",
            "add_request id=C tokens=[1 1 1 1 1]", "update", "schedule", "finish_requests requests=[C]")
        self.check_replies(replies[-2:], (
            ("schedule", "waiting=[C] pins=[(pin request=C cpu_blocks=[1])] cpu_ref_cnts=[0 1 1 1 0 0 0 0]"),
            ("finish_requests", "pins=[] cpu_ref_cnts=[0 0 1 1 0 0 0 0]")))

    def test_sink_cannot_be_built(self):
        """0.23.0 passes SinkFullAttentionManager an argument that it does not take."""
        (reply,) = self.ask("target kv_cache", "config profile=v0.23 groups=[(sink block_size=4 sink_len=8)]")[1:]
        self.assertIn("scheduler_block_size", reply["unsupported"])


# The base itself holds no tests of its own.
del Story, Release

def main() -> int:
    result = unittest.main(exit=False).result
    for test, why in result.skipped:
        print(f"SKIPPED {test}: {why}", file=sys.stderr)
    if not result.wasSuccessful():
        return 1
    return 77 if result.skipped else 0


if __name__ == "__main__":
    sys.exit(main())
