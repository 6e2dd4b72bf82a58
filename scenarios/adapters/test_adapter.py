"""Tests of the adapters: the line language, the minimal pool, and each release of vLLM that is on this machine.

Run: python3 scenarios/adapters/test_adapter.py [-v] [CLASS ...], or unittest's own discovery. A release that is neither
installed nor fetched (fetch_vllm.py) is reported as skipped. Exit status: 0, 1 for a failure, 77 for a skip.
"""

import pathlib
import subprocess
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from line_language import (  # noqa: E402
    INTEGER,
    INTEGERS,
    TEXT,
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
        for text in ("do n=1", "do n=-1 ids=[]", "do n=1 ids=[4294967296]", "do n=1 ids=[x]", "do n=1 ids=[] other=1",
                     "do n=true ids=[]", "do it n=1 ids=[]", "do n=1 ids=[] name=[]"):
            with self.subTest(text=text), self.assertRaises(ValueError):
                reader.read(text)


def converse(program, *lines, arguments=(), status=0):
    """The replies of a program to these lines, as fields."""
    command = [sys.executable, str(HERE / program), *arguments]
    child = subprocess.run(command, input="".join(line + "\n" for line in lines), stdout=subprocess.PIPE,
                           stderr=subprocess.PIPE, text=True, timeout=60)
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


class Story(unittest.TestCase):
    """What is common to all pools."""

    def check_replies(self, replies, story):
        self.assertEqual(len(replies), len(story))
        for (command, expected), reply in zip(story, replies):
            fields = parse_line("-> " + expected).expectation
            self.assertEqual({key: reply.get(key, "absent") for key in fields}, fields, command)

    def tell(self, program, profile, *arguments):
        opening = ["target block_pool", f"config num_gpu_blocks=7 profile={profile}"]
        replies = converse(program, *opening, *[command for command, _ in STORY], arguments=arguments)
        self.assertEqual(replies[1], {})
        self.check_replies(replies[2:], STORY)


class Wire(unittest.TestCase):
    def test_replies_survive_a_breakdown(self):
        """Else kvfence could not tell which of the commands that it wrote ahead broke the implementation."""
        program = ("import sys; sys.path.insert(0, sys.argv[1]); from wire import serve;"
                   " serve(lambda line: {'a': '-> x=1', 'b': '-> x=2'}[line])")
        child = subprocess.run([sys.executable, "-B", "-c", program, str(HERE)], input="a\nb\nc\na\n", timeout=60,
                               capture_output=True, text=True, check=False)
        self.assertEqual((child.stdout, child.returncode), ("-> x=1\n-> x=2\n", 1))
        self.assertIn("KeyError", child.stderr)


class MinimalPool(Story):
    def test_story(self):
        self.tell("minimal_pool.py", "v0.19")

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

    def ask(self, *lines, status=0):
        return converse("vllm.py", *lines, arguments=("--release", RELEASE_OF_PROFILE[self.profile]), status=status)

    def test_story(self):
        self.tell("vllm.py", self.profile)
        self.tell("vllm.py", self.profile, "--release", RELEASE_OF_PROFILE[self.profile])

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
        """The hashes themselves are pinned by contract/block_hash_test.cpp; here, that the seed reaches them."""
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


class Release023(Release):
    profile = "v0.23"

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
