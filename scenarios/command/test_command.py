#!/usr/bin/env python3
"""The `kvfence` command as a user runs it: exit codes, messages, JSON, JUnit, the files that it writes.

Usage: test_command.py KVFENCE [unittest arguments]
"""

import gzip
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import unittest
import urllib.request
import xml.etree.ElementTree as ElementTree

KVFENCE = ""
HERE = pathlib.Path(__file__).resolve().parent.parent
EXCERPT = HERE / "traffic" / "mooncake_conversation_excerpt.jsonl"
BUG = "hash_kept_on_reuse"

TARGETS = ("block_pool", "kv_cache", "eviction", "offload", "tiering", "worker", "engine")
ASSEMBLIES = ("scheduler", "offloading", "offloading_on_device", "on_device", "simple", "synchronous", "prefill_decode",
              "multi")

AGREE, DISAGREEMENT, BAD_INPUT, CANNOT_RUN = 0, 1, 2, 77


def long_under_sanitizers(test):
    """What runs for minutes there, and no other code than shorter tests do."""
    return unittest.skipIf(os.environ.get("KVFENCE_SANITIZED") == "1", "minutes under sanitizers")(test)


class Command(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def kvfence(self, *arguments):
        return subprocess.run([KVFENCE, *arguments], cwd=self.folder, text=True, capture_output=True, timeout=300)

    def expect(self, code, *arguments):
        """Runs the command and returns it; its output is shown where the exit code is another."""
        done = self.kvfence(*arguments)
        self.assertEqual(done.returncode, code, f"{arguments}\n{done.stdout}\n{done.stderr}")
        return done

    def json_of(self, code, *arguments):
        return json.loads(self.expect(code, *arguments, "--json").stdout.splitlines()[-1])

    def write(self, name, *lines):
        (self.folder / name).write_text("\n".join(lines) + "\n")
        return name


class Output(Command):
    """What every subcommand does with stdout, and with --json."""

    SCENARIO = ("target block_pool", "get_new_blocks num_blocks=1")

    def test_a_stdout_that_is_full_is_no_success(self):
        self.write("a.kvs", *self.SCENARIO)
        for arguments in (("check", "--target", "block_pool", "--commands", "10"), ("run", "a.kvs"), ("explain", "a.kvs"),
                          ("run", "a.kvs", "--json"), ("record", "a.kvs", "--out", "b.kvs"), ("list",), ("--help",),
                          ("generate", "man"), ("replay", str(EXCERPT), "--requests", "3")):
            with open("/dev/full", "wb") as full:
                done = subprocess.run([KVFENCE, *arguments], cwd=self.folder, stdout=full, stderr=subprocess.PIPE,
                                      text=True, timeout=300)
            self.assertEqual(done.returncode, BAD_INPUT, arguments)
            self.assertRegex(done.stderr, r"^kvfence: stdout: cannot be written.*\n$", arguments)

    def test_a_file_that_cannot_be_written_is_found_before_the_run(self):
        self.write("a.kvs", *self.SCENARIO)
        race = str(HERE / Explain.RACE)
        check = ("check", "--target", "block_pool", "--commands", "9")
        for *arguments, path in ((*check, "--junit", "gone/a.xml"), (*check, "--junit", "."), (*check, "--junit", "a.kvs/b"),
                                 ("run", "a.kvs", "--junit", "gone/a.xml"), ("shrink", "a.kvs", "--out", "gone/a.kvs"),
                                 ("record", "a.kvs", "--out", "gone/a.kvs"), ("record", "a.kvs", "--out", "."),
                                 ("explain", race, "--html", "gone/a.html"), ("explain", race, "--trace", "."),
                                 ("record", "--out", "gone/a.kvs"), ("audit", "a.kvs", "--junit", "gone/a.xml"),
                                 ("replay", str(EXCERPT), "--csv", "gone/a.csv"),
                                 ("replay", str(EXCERPT), "--target", "scheduler", "--svg", "gone/a.svg")):
            done = self.expect(BAD_INPUT, *arguments, path)
            self.assertEqual((done.stdout, done.stderr.split(": ")[:3]), ("", ["kvfence", path, "cannot be written"]))
        (self.folder / "a.xml").write_text("as it was")
        self.expect(BAD_INPUT, "check", "--target", "block_pool", "--junit", "a.xml", "--config", "nope=1")
        self.assertEqual((self.folder / "a.xml").read_text(), "as it was")
        self.expect(AGREE, *check, "--out", "new", "--junit", "new/a.xml")
        ElementTree.parse(self.folder / "new" / "a.xml")

    def test_a_link_is_written_through(self):
        (self.folder / "link.xml").symlink_to("a.xml")  # which does not exist
        self.expect(AGREE, "check", "--target", "block_pool", "--commands", "9", "--junit", "link.xml")
        self.assertTrue((self.folder / "link.xml").is_symlink())
        ElementTree.parse(self.folder / "a.xml")

    def test_json_says_what_is_wrong(self):
        self.write("a.kvs", *self.SCENARIO)
        for arguments, words in ((("check", "--target", "nope"), "--target: found target 'nope'"),
                                 (("check", "--target", "block_pool", "--seed", "x"), "--seed: found 'x'"),
                                 (("shrink", "a.kvs"), "expected a scenario that fails"),
                                 (("shrink", "gone.kvs"), "gone.kvs: found No such file"),
                                 (("record", "gone.kvs"), "gone.kvs: found No such file"),
                                 (("replay", "gone.jsonl"), "gone.jsonl: found"),
                                 (("list", "goals", "--target", "nope"), "--target: found target 'nope'"),
                                 (("audit", "gone.kva"), "gone.kva: found No such file")):
            found = self.json_of(BAD_INPUT, *arguments)
            self.assertEqual((list(found), found["exit_code"]), (["error", "exit_code"], BAD_INPUT))
            self.assertIn(words, found["error"], arguments)

    def test_json_of_a_recording(self):
        self.write("a.kvs", *self.SCENARIO)
        self.assertEqual(self.json_of(AGREE, "record", "a.kvs", "--out", "b.kvs"),
                         {"out": "b.kvs", "traces": 1, "commands": 1})
        self.assertEqual(self.json_of(AGREE, "record", "--episodes", "2", "--episode-commands", "5", "--out", "many"),
                         {"out": "many", "traces": 2, "commands": 10})


class Check(Command):
    def test_agreement_in_json(self):
        for target, assembly in [(name, None) for name in TARGETS] + [("engine", name) for name in ASSEMBLIES]:
            pinned = ("--config", f"assembly={assembly}") if assembly else ()
            result = self.json_of(AGREE, "check", "--target", target, "--commands", "2000", "--seed", "3", *pinned)
            self.assertEqual(result["target"], target)
            self.assertEqual(result["seed"], 3)
            self.assertEqual(result["commands"], 2000)
            self.assertEqual(result["disagreements"], 0)
            self.assertGreater(result["seconds"], 0)
            self.assertGreater(result["commands_per_second"], 0)

    def test_a_failure_leaves_a_scenario_that_its_last_line_reproduces(self):
        done = self.expect(DISAGREEMENT, "check", "--target", "block_pool", "--planted-bug", BUG, "--commands", "9999")
        last = done.stdout.splitlines()[-1]
        self.assertTrue(last.startswith("reproduce: kvfence run "), last)
        again = self.expect(DISAGREEMENT, *last.split()[2:])
        self.assertIn("expected", again.stdout)
        scenario = next(self.folder.glob("*.kvs"))
        self.expect(AGREE, "run", scenario.name)

    def test_the_line_that_reproduces_is_one_that_a_shell_takes(self):
        out = "it's a folder"
        done = self.expect(DISAGREEMENT, "check", "--target", "block_pool", "--planted-bug", BUG, "--commands", "9999",
                           "--out", out)
        last = done.stdout.splitlines()[-1]
        self.assertEqual(shlex.split(last)[3], f"{out}/kvfence-block_pool-seed1-episode2.kvs")
        again = self.expect(DISAGREEMENT, *shlex.split(last)[2:])
        self.assertEqual(shlex.split(again.stdout.splitlines()[-1])[:3], shlex.split(last)[:3])

    def test_what_fails_from_a_pipe_is_shrunk_into_this_folder(self):
        text = "target block_pool\nget_new_blocks num_blocks=2\nfree_blocks blocks=[1 2]\n"
        done = subprocess.run([KVFENCE, "run", "/dev/stdin", "--planted-bug", "free_reverses_list"], cwd=self.folder,
                              input=text, text=True, capture_output=True, timeout=300)
        self.assertEqual(done.returncode, DISAGREEMENT, done.stderr)
        last = done.stdout.splitlines()[-1]
        self.assertEqual(last, "reproduce: kvfence run stdin.shrunk.kvs --planted-bug free_reverses_list")
        self.expect(DISAGREEMENT, *shlex.split(last)[2:])

    def test_a_failure_that_cannot_be_written_is_drawn_again(self):
        name = "kvfence-block_pool-seed1-episode2.kvs"
        (self.folder / name).mkdir()
        commands = "9999"
        for _ in range(2):
            done = self.expect(DISAGREEMENT, "check", "--target", "block_pool", "--planted-bug", BUG, "--commands", commands)
            self.assertIn(f"{name}: cannot be written", done.stderr)
            last = done.stdout.splitlines()[-1]
            self.assertIn("kvfence check --target block_pool --seed 1 --episode 2 ", last)
            again = self.expect(DISAGREEMENT, *shlex.split(last)[2:], "--out", "other")
            self.assertEqual([line for line in again.stdout.splitlines() if line.startswith("> ")],
                             [line for line in done.stdout.splitlines() if line.startswith("> ")])
            # The second time the episode ends at the command that fails.
            commands = re.search(r"ran +([\d,]+) commands", done.stdout)[1].replace(",", "")
        scenario = next((self.folder / "other").glob("*.kvs"))
        (self.folder / "other" / f"{scenario.stem}.shrunk.kvs").mkdir()
        for command, code in (("run", DISAGREEMENT), ("shrink", BAD_INPUT)):
            done = self.expect(code, command, str(scenario), "--planted-bug", BUG)
            self.assertEqual(done.stdout.splitlines()[-1],
                             f"reproduce: kvfence run {scenario} --planted-bug {BUG}", command)

    def test_a_library_that_cannot_be_used_is_named(self):
        arguments = ("check", "--commands", "10", "--connector-library", "no_such.so", "--target")
        done = self.expect(BAD_INPUT, *arguments, "engine")
        self.assertIn("--connector-library: no_such.so: found ", done.stderr)
        self.assertIn("kvfence_connector", done.stderr)
        done = self.expect(BAD_INPUT, *arguments, "block_pool")
        self.assertIn("--connector-library: not with --target block_pool", done.stderr)

    def test_a_seed_decides_the_run(self):
        arguments = ("check", "--target", "block_pool", "--planted-bug", BUG, "--commands", "9999", "--no-shrink")
        texts = []
        for jobs in ("1", "1", "4"):
            self.expect(DISAGREEMENT, *arguments, "--jobs", jobs)
            texts.append(next(self.folder.glob("*.kvs")).read_text())
        self.assertEqual(len(set(texts)), 1)

    def test_junit(self):
        self.expect(DISAGREEMENT, "check", "--target", "block_pool", "--planted-bug", BUG, "--commands", "9999",
                    "--junit", "out.xml")
        root = ElementTree.parse(self.folder / "out.xml").getroot()
        self.assertEqual(root.get("failures"), "1")
        self.assertIsNotNone(root.find(".//failure"))

    # The rules alone run up to the bound if they find nothing, ten times as slow in a sanitized build;
    # lockstep finds these bugs within the bounds below.
    @long_under_sanitizers
    def test_the_table_of_planted_bugs(self):
        for target in ("block_pool", "eviction", "offload"):
            result = self.json_of(AGREE, "check", "--target", target, "--planted-bugs", "--seeds", "1",
                                  "--commands", "20000")
            self.assertGreaterEqual(result["planted_bugs"], 10, target)
            self.assertEqual(result["caught"], result["planted_bugs"], target)

    @long_under_sanitizers
    def test_the_table_of_one_assembly(self):
        result = self.json_of(AGREE, "check", "--target", "engine", "--config", "assembly=prefill_decode",
                              "--planted-bugs", "--seeds", "1", "--commands", "100000")
        self.assertGreaterEqual(result["planted_bugs"], 10)
        self.assertEqual({row["assembly"] for row in result["rows"]}, {"prefill_decode"})

    def test_an_episode_of_an_assembly_is_named_by_it(self):
        self.expect(DISAGREEMENT, "check", "--target", "engine", "--config", "assembly=offloading", "--planted-bug",
                    "directions_swapped", "--no-shrink", "--commands", "99999")
        scenario = next(self.folder.glob("*.kvs"))
        self.assertTrue(scenario.name.startswith("kvfence-engine.offloading-seed1-episode"), scenario.name)
        self.assertIn("assembly=offloading", scenario.read_text())
        self.expect(DISAGREEMENT, "run", scenario.name, "--planted-bug", "directions_swapped", "--no-shrink")

    def test_an_unknown_target_is_named(self):
        for arguments in (("check",), ("check", "--planted-bugs"), ("record", "--out", "traces"), ("list", "goals"),
                          ("serve",)):
            done = self.expect(BAD_INPUT, *arguments, "--target", "nope")
            self.assertIn("--target: found target 'nope', expected one of block_pool", done.stderr, arguments)

    def test_a_bug_that_is_not_looked_for_long_enough_fails_the_table(self):
        self.expect(DISAGREEMENT, "check", "--target", "block_pool", "--planted-bugs", "--seeds", "1", "--commands", "2")

    def test_bad_input(self):
        for arguments, words in (
            (("--target", "nope"), "--target: found target 'nope', expected one of block_pool, kv_cache"),
            (("--target", "engine", "--config", "assembly=nope"), "one of scheduler, offloading"),
            (("--target", "block_pool", "--seconds", "-1"), "--seconds"),
            (("--target", "block_pool", "--jobs", "0"), "--jobs"),
            (("--target", "block_pool", "--memory-limit", "-1"), "--memory-limit"),
            (("--target", "block_pool", "--config", "num_gpu_blocks"), "expected key=value"),
            (("--target", "block_pool", "--config", "num_gpu_blocks=0"), "--config: found num_gpu_blocks=0"),
            (("--target", "block_pool", "--config", "num_gpu_blocks=6", "--config", "num_gpu_blocks=7"),
             "--config: found key num_gpu_blocks given twice"),
            (("--target", "block_pool", "--config", "profile=v9"), "expected one of v0.19, v0.23"),
            (("--target", "block_pool", "--planted-bug", "nope"), "expected one of"),
            (("--target", "block_pool", "--bogus"), "--bogus"),
            ((), "--target"),
            *((("--target", "block_pool", *option), f"{option[0]}: found '{option[1]}', expected {words}")
              for *option, words in (
                  ("--seed", "-1", "an integer from 0 to 18446744073709551615"),
                  ("--seed", "18446744073709551616", "an integer from 0 to 18446744073709551615"),
                  ("--seed", "010", "an integer from 0"), ("--commands", "1e3", "an integer from 0"),
                  ("--commands", "99999999999999999999999", "an integer from 0"), ("--commands", "0", "more than 0"),
                  ("--episode", "-1", "an integer from 0"), ("--jobs", "4294967296", "an integer from 0 to 4294967295"),
                  ("--jobs", "100000", "at most 1024"), ("--seconds", "nan", "a number"), ("--seconds", "0", "more than 0"),
                  ("--timeout", "inf", "a number"), ("--memory-limit", "1.5", "an integer from 0"),
                  ("--sut", "", "a name"), ("--planted-bug", "", "a name"), ("--connector-library", "", "a name"),
                  ("--junit", "", "a name"))),
            *((("--target", "block_pool", "--planted-bugs", *option), f"{option[0]}: not with --planted-bugs")
              for option in (("--sut", "cat"), ("--planted-bug", BUG), ("--seconds", "1"), ("--junit", "a.xml"),
                             ("--no-shrink",), ("--episode", "1"))),
            (("--target", "block_pool", "--seeds", "2"), "--seeds: not without --planted-bugs"),
            (("--target", "block_pool", "--markdown"), "--markdown: not without --planted-bugs"),
        ):
            self.assertIn(words, self.expect(BAD_INPUT, "check", *arguments).stderr, arguments)
        self.assertIn("source     random, seed 16\n",
                      self.expect(AGREE, "check", "--target", "block_pool", "--seed", "0x10", "--commands", "9").stdout)
        self.assertIn("found 'chekc', expected one of run, check, replay", self.expect(BAD_INPUT, "chekc").stderr)


class LeftOut(Command):
    """--oracles: a bug in an order, which no rule finds, and one that a rule finds."""
    ORDER, COUNT, RULE = "free_reverses_list", "touch_counts_repeats_once", "ref_cnt_counts_holders"

    def check(self, code, bug, oracles, *arguments):
        return self.json_of(code, "check", "--target", "block_pool", "--commands", "9999", "--planted-bug", bug,
                            "--oracles", oracles, *arguments)

    def reproduced(self, found):
        """The report of what the line runs that reproduces another."""
        again = self.json_of(DISAGREEMENT, *found["reproduce"].split()[1:], "--no-shrink")
        return again["reports"][0]

    def test_only_the_selected_oracles_judge(self):
        self.assertEqual(self.check(AGREE, self.ORDER, "rules")["oracles"], "rules")
        for oracles, oracle in (("rules", self.RULE), ("lockstep", "lockstep"), ("rules,lockstep", "lockstep")):
            found = self.check(DISAGREEMENT, self.COUNT, oracles)
            self.assertEqual(found["divergence"]["oracle"], oracle)
            self.assertTrue(found["reproduce"].endswith(f" --planted-bug {self.COUNT} --oracles {found['oracles']}"))
            self.assertEqual(self.reproduced(found)["divergence"], found["divergence"])

    def test_a_verdict_claims_no_more_than_was_judged(self):
        done = self.expect(AGREE, "check", "--target", "block_pool", "--commands", "100", "--oracles", "rules")
        self.assertIn("agree block_pool: optimized holds\n", done.stdout)
        self.assertRegex(done.stdout, "oracles +rules alone")

    def test_run(self):
        bugs = HERE / "cases" / "block_pool" / "bugs"
        scenario = shutil.copy(bugs / f"{self.ORDER}.kvs", self.folder)
        arguments = ("run", scenario, "--planted-bug", self.ORDER, "--oracles")
        self.expect(AGREE, *arguments, "rules")
        for shrink in ((), ("--no-shrink",)):
            found = self.json_of(DISAGREEMENT, *arguments, "lockstep", *shrink)["reports"][0]
            self.assertEqual(self.reproduced(found)["divergence"]["oracle"], "lockstep")

    def test_an_expectation_judges_the_side_that_nothing_compares(self):
        # One holds digests, the other texts.
        for trace, bug in (("block_pool-tight-seed101.kvs.gz", self.ORDER), ("block_pool.kvs", "free_puts_unhashed_at_head")):
            arguments = ("run", "--no-shrink", str(HERE / "traces" / "v0.19" / trace), "--planted-bug", bug, "--oracles")
            self.expect(AGREE, *arguments, "rules")
            found = self.json_of(DISAGREEMENT, *arguments, "expectation")["reports"][0]
            self.assertEqual(found["divergence"]["oracle"], "expectation")
        wrong = self.write("a.kvs", "target block_pool", "get_new_blocks num_blocks=1 -> blocks=[2]")
        self.expect(AGREE, "run", wrong, "--oracles", "lockstep,rules")
        self.expect(DISAGREEMENT, "run", wrong, "--oracles", "expectation")

    def test_shrink(self):
        self.check(DISAGREEMENT, self.COUNT, "rules", "--no-shrink")
        scenario = next(self.folder.glob("*.kvs")).name
        for oracles, oracle in (("rules", self.RULE), ("lockstep", "lockstep")):
            small = self.json_of(AGREE, "shrink", scenario, "--planted-bug", self.COUNT, "--oracles", oracles)
            self.assertEqual(small["divergence"]["oracle"], oracle)
            self.assertEqual(self.reproduced(small)["divergence"], small["divergence"])
        self.check(DISAGREEMENT, self.ORDER, "lockstep", "--out", "order")
        order = next((self.folder / "order").glob("*.kvs"))
        done = self.expect(BAD_INPUT, "shrink", str(order), "--planted-bug", self.ORDER, "--oracles", "rules")
        self.assertIn("found both sides in agreement", done.stderr)

    def test_bad_input(self):
        scenario = self.write("a.kvs", "target block_pool", "get_new_blocks num_blocks=1")
        for command in (("check", "--target", "block_pool"), ("run", scenario), ("shrink", scenario)):
            for names, words in (("rules,crash", "found 'crash', expected a list of lockstep, expectation, rules, leaks"),
                                 ("", "expected a list of lockstep, expectation, rules, leaks")):
                self.assertIn(words, self.expect(BAD_INPUT, *command, "--oracles", names).stderr)
        done = self.expect(BAD_INPUT, "check", "--target", "block_pool", "--planted-bugs", "--oracles", "rules")
        self.assertIn("--planted-bugs excludes --oracles", done.stderr)


class Outside(Command):
    def check(self, code, command, *arguments):
        return self.expect(code, "check", "--target", "block_pool", "--commands", "1000", "--timeout", "1",
                           "--no-shrink", "--sut", command, *arguments)

    def test_serve_is_an_implementation(self):
        self.check(AGREE, f"{KVFENCE} serve --target block_pool")
        self.check(DISAGREEMENT, f"{KVFENCE} serve --target block_pool --planted-bug free_reverses_list")
        serve = ("serve", "--target", "block_pool", "--planted-bug")
        self.assertIn("--planted-bug: found 'nope', expected one of", self.expect(BAD_INPUT, *serve, "nope").stderr)
        self.assertIn("excludes", self.expect(BAD_INPUT, *serve, "free_reverses_list", "--reference").stderr)

    def test_a_command_that_is_no_implementation(self):
        for command, words in (("exit 3", "exited with status 3"), ("echo hi; cat", "sent malformed output: found 'hi'")):
            self.assertIn(words, self.check(DISAGREEMENT, command).stdout, command)
        done = self.check(CANNOT_RUN, "no-such-command-here", "--jobs", "4")
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
        self.assertIn("no-such-command-here: exited with status 127", done.stderr)
        done = self.check(DISAGREEMENT, "echo why >&2; exit 3", "--jobs", "4")
        self.assertEqual(done.stderr, "why\n")

    def test_what_the_child_does_not_have_is_left_out_and_named(self):
        child = f"python3 -B {HERE / 'adapters' / 'minimal_pool.py'}"
        for jobs in ("1", "3"):
            result = self.json_of(AGREE, "check", "--target", "block_pool", "--commands", "4000", "--sut", child,
                                  "--jobs", jobs)
            self.assertEqual((result["actual"], result["commands"]), ("minimal_pool", 4000))
            self.assertEqual(result["unreported"], ["events", "keys"])
            self.assertEqual(result["compared"][:3], ["error", "hit", "blocks"])
            self.assertEqual(result["unjudged"], ["null_block_stays_out", "numbers_add_up", "lookup_agrees_with_keys",
                                                  "keys_are_what_was_cached", "events_mirror_the_keys",
                                                  "refused_changes_nothing"])
            self.assertEqual(set(result["refused"]), {"profile v0.23, only v0.19 is known", "rules of later profiles"})

    def pool_of_its_own(self, *methods, order="reverse"):
        """The command of a pool that hands out other blocks than the reference does, with these methods besides."""
        lines = ("import sys", f"sys.path.insert(0, {str(HERE / 'adapters')!r})", "import minimal_pool",
                 "from block_pool_target import block_pool_target", "from session import Session",
                 "from wire import serve", "", "class Pool(minimal_pool.MinimalPool):",
                 "    def __init__(self, config):", "        super().__init__(config)",
                 f"        self.free_queue.{order}()", *methods,
                 "serve(Session(lambda: minimal_pool.DESCRIPTION, block_pool_target(Pool)).answer)")
        return f"python3 -B {self.folder / self.write('pool.py', *lines)}"

    def test_rules_watch_the_child(self):
        sound = self.pool_of_its_own()
        self.assertIn("differs from reference", self.check(DISAGREEMENT, sound).stdout)
        agreed = self.check(AGREE, sound, "--oracles", "rules").stdout
        self.assertRegex(agreed, r"not judged null_block_stays_out .*\n")
        unsound = self.pool_of_its_own("    def touch(self, blocks):", "        for block in blocks:",
                                       "            self.ref_cnts[block] += block != 0", "        return 'error=none'")
        found = self.check(DISAGREEMENT, unsound, "--oracles", "rules")
        self.assertIn("minimal_pool breaks queue_holds_the_unreferenced", found.stdout)
        again = found.stdout.splitlines()[-1].split("kvfence ")[1]
        self.assertIn("--oracles rules", again)

    def test_an_interrupt_loses_nothing(self):
        child = self.pool_of_its_own("    COUNT = [0]", "    def touch(self, blocks):", "        self.COUNT[0] += 1",
                                     "        if self.COUNT[0] == 500: print('many', file=sys.stderr, flush=True)",
                                     "        return super().touch(blocks)", order="sort")
        for number in (signal.SIGINT, signal.SIGTERM):
            check = subprocess.Popen([KVFENCE, "check", "--target", "block_pool", "--config", "profile=v0.19", "--jobs", "1",
                                      "--seconds", "200", "--sut", child], cwd=self.folder, stdout=subprocess.PIPE,
                                     stderr=subprocess.PIPE, text=True, start_new_session=True)
            self.addCleanup(check.communicate)
            self.assertEqual(check.stderr.readline(), "many\n")
            os.killpg(check.pid, number)  # as from a terminal: to all its processes
            out, err = check.communicate(timeout=60)
            self.assertEqual(check.returncode, 128 + number, out + err)
            self.assertIn("agree block_pool: minimal_pool equals reference", out)
            self.assertTrue(err.endswith("kvfence: interrupted; this is what was compared until then\n"), err)

    def test_a_bound_of_time_holds_within_an_episode(self):
        endless = ("--episode-commands", "4000000000", "--seconds", "1", "--jobs", "2",
                   "--config", "profile=v0.19")
        for subject in ((), ("--sut", f"python3 -B {HERE / 'adapters' / 'minimal_pool.py'}")):
            result = self.json_of(AGREE, "check", "--target", "block_pool", *endless, *subject)
            self.assertGreater(result["commands"], 0)
            self.assertLess(result["seconds"], 10)

    def test_a_timeout_is_found_though_the_time_is_up(self):
        child = "read a; echo '-> implementation=mute'; read b; echo '->'; cat >/dev/null"
        done = self.expect(DISAGREEMENT, "check", "--target", "block_pool", "--seconds", "0.5", "--timeout", "1",
                           "--no-shrink", "--jobs", "1", "--sut", child)
        self.assertIn("timed out after 1000 ms", done.stdout)
        self.assertTrue(done.stdout.endswith(" --timeout 1\n"), done.stdout)
        again = self.expect(DISAGREEMENT, *shlex.split(done.stdout.splitlines()[-1])[2:], "--no-shrink")
        self.assertIn("timed out after 1000 ms", again.stdout)

    def test_a_child_that_is_slow_to_fail_is_started_once(self):
        child = "echo >>starts; sleep 1.2; exit 3"
        check = ("check", "--target", "eviction", "--jobs", "2", "--timeout", "1", "--sut", child)
        done = self.expect(DISAGREEMENT, *check)
        self.assertIn("exited with status 3 while an answer was expected", done.stdout)
        self.assertEqual((self.folder / "starts").read_text(), "\n")
        again = self.expect(DISAGREEMENT, *shlex.split(done.stdout.splitlines()[-1])[2:])
        self.assertIn("exited with status 3 while an answer was expected", again.stdout)
        self.assertEqual((self.folder / "starts").read_text(), "\n\n")

    def test_a_child_that_keeps_something_from_one_episode_to_the_next(self):
        keeping = self.pool_of_its_own("    COUNT = [0]", "    def touch(self, blocks):", "        self.COUNT[0] += 1",
                                       "        return 'error=unknown_block' if self.COUNT[0] > 60 else super().touch(blocks)",
                                       order="sort")
        for shrink in (("--no-shrink",), ()):
            done = self.expect(DISAGREEMENT, "check", "--target", "block_pool", "--commands", "9000", "--sut", keeping,
                               "--config", "profile=v0.19", "--jobs", "1", *shrink)
            self.assertIn("which passes alone, so it depends on what came before it", done.stdout)
            again = self.expect(DISAGREEMENT, *shlex.split(done.stdout.splitlines()[-1])[2:], *shrink)
            self.assertRegex(again.stdout, r"expected +none")

    def test_nothing_compared_is_no_agreement(self):
        child = f"{KVFENCE} serve --target block_pool"
        done = self.expect(CANNOT_RUN, "check", "--target", "block_pool", "--seconds", "0.000001", "--sut", child)
        self.assertIn("nothing was compared", done.stderr)

    def test_a_child_without_the_target(self):
        done = self.check(CANNOT_RUN, "echo '-> unsupported=\"not this one\"'; cat >/dev/null")
        self.assertIn("not this one", done.stderr)


class Run(Command):
    def test_an_expectation_that_is_not_met(self):
        name = self.write("a.kvs", "target block_pool", "get_new_blocks num_blocks=1 -> blocks=[2]")
        done = self.expect(DISAGREEMENT, "run", name)
        self.assertRegex(done.stdout, r"expected\s+\[2\]")
        self.assertRegex(done.stdout, r"actual\s+\[1\]")

    def test_the_examples_of_the_documents_pass(self):
        num_examples = 0
        for document in ("contract/line_language.md", "scenarios/writing_scenarios.md"):
            for example in re.findall(r"^```\n(.*?)^```", (HERE.parent / document).read_text(), re.M | re.S):
                if re.search("^target ", example, re.M):
                    num_examples += 1
                    self.expect(AGREE, "run", self.write("example.kvs", example))
        self.assertGreaterEqual(num_examples, 8)

    def test_folders_and_the_sum_in_json(self):
        self.write("a.kvs", "target block_pool", "get_new_blocks num_blocks=1")
        self.write("b.kvs", "target kv_cache", "new_step_starts")
        result = self.json_of(AGREE, "run", ".")
        self.assertEqual((result["files"], result["failed"], result["commands"]), (2, 0, 2))

    def test_bad_input_names_the_place(self):
        for lines, words in (
            (("target nope",), "a.kvs:1:1: found target 'nope', expected one of block_pool, kv_cache"),
            (("target block_pool", "touch blocks=[1,2]"), "a.kvs:2:16: found `,`"),
            (("target block_pool", "touch blocks=7"), "a.kvs:2:7: found blocks=7, expected a list of integers"),
            (("target block_pool", "touch"), "a.kvs:2:1: found touch without blocks"),
            (("target block_pool", "config num_gpu_blocks=0"), "a.kvs:2:1: found num_gpu_blocks=0"),
            (("target block_pool", "take_events -> nope=1"), "a.kvs:2:16: found key 'nope'"),
            (("# nothing",), "nothing but comments"),
        ):
            self.write("a.kvs", *lines)
            self.assertIn(words, self.expect(BAD_INPUT, "run", "a.kvs").stderr, lines)
        self.assertIn("No such file", self.expect(BAD_INPUT, "run", "gone.kvs").stderr)

    def test_reports_name_what_was_not_run(self):
        self.write("a.kvs", "target block_pool", "get_new_blocks num_blocks=1")
        (self.folder / "b.kvs").write_bytes(b"target \xff\n")
        result = self.json_of(BAD_INPUT, "run", "a.kvs", "b.kvs", "gone.kvs", "--junit", "out.xml")
        self.assertEqual([error.split(":")[0] for error in result["errors"]], ["b.kvs", "gone.kvs"])
        self.assertEqual((result["files"], result["failed"], len(result["reports"])), (3, 2, 1))
        root = ElementTree.parse(self.folder / "out.xml").getroot()
        self.assertEqual((root.get("tests"), root.get("failures"), root.get("errors")), ("3", "0", "2"))
        self.assertEqual([case.get("name") for case in root.iter("testcase") if case.find("error") is not None],
                         ["b.kvs", "gone.kvs"])


class Shrink(Command):
    def test_asks_for_the_side_that_failed(self):
        self.write("a.kvs", "target block_pool", "get_new_blocks num_blocks=1")
        for limits in ((), ("--timeout", "5")):
            self.assertIn("(was it found with --planted-bug or --sut?)",
                          self.expect(BAD_INPUT, "shrink", "a.kvs", *limits).stderr)

    def test_makes_a_failing_scenario_small(self):
        self.expect(DISAGREEMENT, "check", "--target", "block_pool", "--planted-bug", BUG, "--commands", "9999",
                    "--no-shrink")
        long = next(self.folder.glob("*.kvs"))
        self.expect(AGREE, "shrink", long.name, "--planted-bug", BUG, "--out", "short.kvs")
        self.expect(DISAGREEMENT, "run", "short.kvs", "--planted-bug", BUG)
        self.assertLess((self.folder / "short.kvs").stat().st_size, long.stat().st_size)

    def test_a_scenario_that_does_not_fail(self):
        name = self.write("a.kvs", "target block_pool", "get_new_blocks num_blocks=1")
        self.assertIn("expected a scenario that fails", self.expect(BAD_INPUT, "shrink", name).stderr)


class Record(Command):
    def test_a_trace_replays(self):
        self.expect(AGREE, "record", "--target", "kv_cache", "--episodes", "2", "--out", "traces")
        self.assertEqual(len(list((self.folder / "traces").glob("*.kvs"))), 2)
        self.expect(AGREE, "run", "traces")

    def test_traces_of_an_assembly_are_named_by_it(self):
        self.expect(AGREE, "record", "--target", "engine", "--config", "assembly=simple", "--episode-commands", "30",
                    "--out", "traces")
        self.assertEqual([path.name for path in (self.folder / "traces").iterdir()],
                         ["engine.simple-seed1-episode0.kvs"])
        self.expect(AGREE, "run", "traces")

    def test_the_answers_of_another_implementation_do_not(self):
        name = self.write("a.kvs", "target block_pool", "get_new_blocks num_blocks=2", "free_blocks blocks=[1 2]")
        self.expect(AGREE, "record", name, "--out", "b.kvs", "--planted-bug", "free_reverses_list")
        self.expect(DISAGREEMENT, "run", "b.kvs")


    def test_what_a_child_does_not_have_is_drawn_again(self):
        child = f"python3 -B {HERE / 'adapters' / 'minimal_pool.py'}"
        done = self.expect(AGREE, "record", "--target", "block_pool", "--episodes", "9", "--episode-commands", "20",
                           "--sut", child, "--out", "all.kvs")
        self.assertRegex(done.stderr, r"drawn again \d+ times: profile v0.23, only v0.19 is known")
        text = (self.folder / "all.kvs").read_text()
        self.assertEqual(text.count("target block_pool\n"), 9)
        self.assertFalse(" events=" in text or " keys=" in text)  # which it does not report
        self.expect(AGREE, "run", "all.kvs")
        done = self.expect(CANNOT_RUN, "record", "--target", "block_pool", "--config", "profile=v0.23", "--sut", child,
                           "--out", "none.kvs")
        self.assertIn("only v0.19 is known", done.stderr)
        self.assertFalse((self.folder / "none.kvs").exists())


class Digests(Command):
    def record(self, name, *arguments, commands="50"):
        self.expect(AGREE, "record", "--target", "block_pool", "--episodes", "3", "--episode-commands", commands,
                    "--digests", "16", "--out", name, *arguments)
        return self.folder / name

    def test_digests_stand_for_the_text(self):
        path = self.record("a.kvs.gz")
        text = gzip.decompress(path.read_bytes()).decode()
        self.assertEqual(text.count(" -> digest=0x"), 3 * 4)
        self.assertEqual(text.count(" -> "), 3 * 4)
        self.expect(AGREE, "run", "a.kvs.gz")
        result = self.json_of(AGREE, "run", ".")
        self.assertEqual((result["files"], result["commands"]), (1, 150))
        self.expect(AGREE, "run", self.record("b.kvs", "--sparse-state").name)
        self.assertEqual(self.record("again.kvs.gz").read_bytes(), path.read_bytes())
        self.assertIn("Both sides agree", self.expect(AGREE, "explain", "a.kvs.gz", "--episode", "2").stdout)

    def test_a_bug_is_found_and_shrunk_as_in_any_scenario(self):
        self.record("a.kvs.gz", commands="300")
        done = self.expect(DISAGREEMENT, "run", "a.kvs.gz", "--planted-bug", "free_reverses_list")
        self.assertIn("reproduce: kvfence run a.shrunk.kvs --planted-bug free_reverses_list", done.stdout)
        self.assertNotIn("digest", (self.folder / "a.shrunk.kvs").read_text())

    def test_a_record_that_is_not_met_says_how_to_get_its_text(self):
        text = gzip.decompress(self.record("a.kvs.gz").read_bytes()).decode()
        at = text.rindex("digest=0x") + len("digest=0x")
        self.write("b.kvs", text[:at] + ("1" if text[at] == "0" else "0") + text[at + 1:])
        for chosen in ((), ("--episode", "2")):
            done = self.expect(DISAGREEMENT, "run", "b.kvs", *chosen)
            self.assertIn("only a digest", done.stdout)
            self.assertIn("command 50: -> error=", done.stdout)
            self.assertIn("\nreproduce: kvfence run b.kvs --episode 2\n", done.stdout)
            line = re.search(r"reproduces their texts: kvfence (record b.kvs --episode 2 --out full.kvs)$", done.stdout, re.M)
        self.expect(AGREE, *line[1].split())
        self.assertEqual((self.folder / "full.kvs").read_text().count("-> error="), 50)
        self.expect(AGREE, "run", "full.kvs")

    def test_a_damaged_file_is_named(self):
        whole = self.record("a.kvs.gz").read_bytes()
        half = len(whole) // 2
        for damaged in (whole[:half], whole[:-1], whole[:half] + bytes([whole[half] ^ 255]) + whole[half + 1:],
                        whole[:-8] + bytes(8), b"", b"target block_pool\n"):
            (self.folder / "b.kvs.gz").write_bytes(damaged)
            self.assertIn("b.kvs.gz: found a gzip stream that is damaged or cut off",
                          self.expect(BAD_INPUT, "run", "b.kvs.gz").stderr)
        (self.folder / "b.kvs.gz").write_bytes(whole + b"more")
        self.assertIn("b.kvs.gz: found more after its end", self.expect(BAD_INPUT, "run", "b.kvs.gz").stderr)

    def test_bad_input(self):
        self.record("a.kvs")
        self.write("two.kvs", "target block_pool", "take_events", "target kv_cache")
        for arguments, words in (
            (("run", "a.kvs", "--episode", "3"), "a.kvs: found --episode 3, expected one of its 3, counted from 0"),
            (("run", "two.kvs"), "two.kvs:3:1: found target kv_cache, expected target block_pool as in the episodes"),
            (("explain", "a.kvs"), "found a second 'target', expected one scenario (--episode says which)"),
            (("record", "--sparse-state", "--out", "x"), "--sparse-state: not without --digests"),
            (("record", "--digests", "0", "--out", "x"), "--digests"),
            (("record", "--episodes", "0", "--out", "x"), "--episodes"),
            (("record", "a.kvs", "--seed", "2", "--out", "x"), "--seed: not with FILE"),
            (("record", "a.kvs", "--target", "kv_cache", "--out", "x"), "--target: not with FILE"),
        ):
            self.assertIn(words, self.expect(BAD_INPUT, *arguments).stderr, arguments)


class Explain(Command):
    def test_marks_the_difference(self):
        name = self.write("a.kvs", "target block_pool", "get_new_blocks num_blocks=2", "free_blocks blocks=[1 2]")
        self.assertIn("Both sides agree", self.expect(AGREE, "explain", name).stdout)
        text = self.expect(DISAGREEMENT, "explain", name, "--planted-bug", "free_reverses_list").stdout
        self.assertIn("the queues differ", text)
        self.assertIn("\n  step 1, free_queue[5]\n", text)
        done = self.expect(DISAGREEMENT, "run", name, "--planted-bug", "free_reverses_list", "--no-shrink")
        self.assertIn("  step       1 (command 2 of 2): free_blocks", done.stdout)
        text = self.expect(AGREE, "explain", name, "--planted-bug", "free_reverses_list", "--oracles", "rules").stdout
        self.assertIn("Nothing was found, judged by rules alone.", text)

    def test_a_name_does_not_steer_the_terminal(self):
        name = self.write("a.kvs", "target engine", "config assembly=scheduler", 'add_request id="A\\x1b[2J" tokens=[1]')
        self.assertIn("waiting A\\x1b[2J", self.expect(AGREE, "explain", name).stdout)

    def test_explains_a_scenario_of_each_folder(self):
        folders = {file.parent for file in (HERE / "cases").rglob("*.kvs")}
        self.assertGreater(len(folders), 20)
        for folder in sorted(folders):
            self.expect(AGREE, "explain", str(min(folder.glob("*.kvs"))))

    def test_draws_one_engine_or_two(self):
        name = self.write("a.kvs", "target engine", "config assembly=scheduler", "add_request id=A tokens=[1 2 3]",
                          "schedule", "update")
        text = self.expect(AGREE, "explain", name).stdout
        self.assertIn("-> ran A 3", text)
        self.assertNotIn("consumer:", text)
        name = self.write("a.kvs", "target engine", "config assembly=prefill_decode",
                          "add_request id=A tokens=[1 2 3 4 5] do_remote_decode=true", "schedule", "update")
        text = self.expect(AGREE, "explain", name).stdout
        self.assertIn("producer: ", text)
        self.assertIn("consumer: ", text)
        self.assertIn("-> scheduled=[(scheduled request=A ", text)

    def test_draws_the_lists_of_a_policy(self):
        for target, policy, heading in (("eviction", "lru", "blocks, oldest first"),
                                        ("offload", "arc", "T1 | T2 | B1 | B2, target of T1")):
            name = self.write("a.kvs", f"target {target}", f"config policy={policy}", "touch keys=[1]")
            self.assertIn(heading, self.expect(AGREE, "explain", name).stdout, target)

    RACE = "cases/worker/races/store_before_compute.kvs"

    def test_shows_what_the_device_did(self):
        text = self.expect(AGREE, "explain", str(HERE / self.RACE)).stdout
        self.assertIn("store    waits for event 0: forward 2", text)
        self.assertIn("Every two accesses to the same bytes, one a write, are ordered.", text)
        text = self.expect(DISAGREEMENT, "explain", str(HERE / self.RACE), "--planted-bug",
                           "store_ignores_compute").stdout
        self.assertIn("! race 1  forward 2 (compute stream) writes GPU 0,", text)

    def test_draws_what_the_device_did(self):
        self.expect(DISAGREEMENT, "explain", str(HERE / self.RACE), "--planted-bug", "store_ignores_compute",
                    "--html", "a.html", "--trace", "a.json")
        page = (self.folder / "a.html").read_text()
        ElementTree.fromstring(page.split("\n", 1)[1])
        self.assertIn("store_before_compute.kvs", page)
        for word in ("src=", "href=", "url(", "@import"):
            self.assertNotIn(word, page)
        events = json.loads((self.folder / "a.json").read_text())["traceEvents"]
        self.assertEqual([event["ph"] for event in events if event.get("cat") == "race"], ["s", "f"])

    def test_shows_what_an_engines_devices_did(self):
        name = str(HERE / "cases/engine/offloading_on_device/races/store_reads_a_preempted_block.kvs")
        self.assertIn("Every two accesses to the same bytes, one a write, are ordered.",
                      self.expect(AGREE, "explain", name).stdout)
        text = self.expect(DISAGREEMENT, "explain", name, "--planted-bug", "preempted_stores_not_flushed",
                           "--html", "a.html", "--trace", "a.json").stdout
        self.assertIn("! race 1  store 1 (store stream) reads GPU", text)
        self.assertIn("    ! token    C generates ", text)
        ElementTree.fromstring((self.folder / "a.html").read_text().split("\n", 1)[1])
        events = json.loads((self.folder / "a.json").read_text())["traceEvents"]
        self.assertEqual({event["ph"] for event in events if event.get("cat") == "race"}, {"s", "f"})

    def test_pages_and_traces_of_each_race_show_what_the_text_says(self):
        files = [file for folder in ("worker/races", "engine/offloading_on_device/races", "engine/on_device/races")
                 for file in sorted((HERE / "cases" / folder).glob("*.kvs"))]
        self.assertGreaterEqual(len(files), 24)
        for file in files:
            bug = re.search("^# Planted bug: (.+)$", file.read_text(), re.MULTILINE).group(1)
            for code, planted in ((AGREE, ()), (DISAGREEMENT, ("--planted-bug", bug))):
                text = self.expect(code, "explain", str(file), *planted, "--html", "a.html", "--trace", "a.json").stdout
                text = text[text.index("\nThe device"):]
                page = ElementTree.fromstring((self.folder / "a.html").read_text().split("\n", 1)[1])
                shown = [div.get("class") for div in page.iter() if div.tag.endswith("div")]
                races = re.findall(r"^! race (\d+)  ", text, re.MULTILINE)
                misuses = re.findall("^! misuse ", text, re.MULTILINE)
                self.assertEqual(shown.count("race"), len(races) + len(misuses), (file, planted))
                self.assertEqual(shown.count("token"), text.count("    ! token "), (file, planted))
                rows = {row.get("data-step") for row in page.iter() if row.tag.endswith("tr")}
                commands = re.findall(r"^(\d+) +[a-z]", text, re.MULTILINE)
                self.assertEqual(rows, set(commands), (file, planted))
                self.check_trace(races, json.loads((self.folder / "a.json").read_text())["traceEvents"], file)

    def check_trace(self, races, events, file):
        """Each race is a flow between the slices of the two that race, and each thread has a name."""
        thread_of = lambda event: (event["pid"], event["tid"])
        named = {thread_of(event) for event in events if event["ph"] == "M"}
        self.assertLessEqual({thread_of(event) for event in events}, named, file)
        starts = {event["id"]: event for event in events if event["ph"] == "s"}
        ends = {event["id"]: event for event in events if event["ph"] == "f"}
        self.assertEqual([*starts], [int(race) for race in races], file)
        self.assertEqual(starts.keys(), ends.keys(), file)
        for number, start in starts.items():
            self.assertLessEqual(start["ts"], ends[number]["ts"], file)
            joined = [slice for end in (start, ends[number]) for slice in events if slice["ph"] == "X"
                      and thread_of(slice) == thread_of(end) and slice["ts"] <= end["ts"] < slice["ts"] + slice["dur"]
                      and slice["args"].get("is_racing")]
            # "store 7 (store stream) reads GPU 0", "the host (memcpy) writes GPU 0"
            for deed in (start["args"]["first"], start["args"]["second"]):
                who, function = re.match(r"(.*?) \((.*?)\)", deed).groups()
                self.assertTrue(any(slice["name"].removesuffix(" (never ran)") == who or
                                    who == "the host" and f"({function})" in slice["name"] for slice in joined),
                                (file, deed, joined))

    def test_bad_input(self):
        name = self.write("a.kvs", "target block_pool", "get_new_blocks num_blocks=1")
        done = self.expect(BAD_INPUT, "explain", name, "--html", "a.html")
        self.assertIn("--html: found a scenario of target block_pool without a device to draw; "
                      "expected target worker or engine (config assembly=offloading_on_device, or on_device)", done.stderr)
        self.assertIn("--trace: found", self.expect(BAD_INPUT, "explain", name, "--trace", "a.json").stderr)
        (self.folder / "a.kvs").write_text("target engine\nschedule\n")
        self.assertIn("--html: found a scenario of target engine without a device",
                      self.expect(BAD_INPUT, "explain", name, "--html", "a.html").stderr)
        race = str(HERE / self.RACE)
        done = self.expect(BAD_INPUT, "explain", race, "--trace", "a.json", "--sut", "cat")
        self.assertIn("--trace: not with --sut", done.stderr)
        self.assertIn("expected one of", self.expect(BAD_INPUT, "explain", race, "--planted-bug", "nope",
                                                     "--html", "a.html").stderr)
        self.expect(BAD_INPUT, "explain", race, "--html", "no_such_folder/a.html")
        self.assertEqual([path.name for path in self.folder.iterdir()], ["a.kvs"])


class Replay(Command):
    def test_the_excerpt_in_json(self):
        result = self.json_of(AGREE, "replay", str(EXCERPT), "--gpu-blocks", "4000")
        self.assertEqual((result["requests"], result["blocks"]), (600, 16495))
        self.assertEqual(result["hit_rate"], result["hits"] / result["blocks"])
        self.assertGreater(result["evictions"], 0)
        self.assertEqual(result["disagreements"], 0)
        self.assertGreater(result["seconds"], 0)

    def test_a_planted_bug_under_real_traffic(self):
        done = self.expect(DISAGREEMENT, "replay", str(EXCERPT), "--gpu-blocks", "1000", "--requests", "50",
                           "--planted-bug", "free_reverses_list")
        self.expect(DISAGREEMENT, *done.stdout.splitlines()[-1].split()[2:])
        self.expect(DISAGREEMENT, "replay", str(EXCERPT), "--gpu-blocks", "1000", "--requests", "50", "--quiet",
                    "--planted-bug", "free_reverses_list", "--out", "a/new/folder")
        self.assertTrue(list((self.folder / "a/new/folder").glob("*.shrunk.kvs")))

    def test_traffic_that_never_fits_is_no_agreement(self):
        done = self.expect(CANNOT_RUN, "replay", str(EXCERPT), "--gpu-blocks", "2", "--lockstep", "--requests", "5")
        self.assertIn("nothing was replayed", done.stderr)

    def test_a_number_that_must_be_positive(self):
        done = self.expect(BAD_INPUT, "replay", str(EXCERPT), "--gpu-blocks", "0")
        self.assertIn("--gpu-blocks: found '0', expected more than 0\n", done.stderr)

    def test_options_that_exclude_each_other_and_bounds(self):
        for arguments, words in (
                (("--curve", "100", "--lockstep"), "excludes"), (("--curve", "100", "--gpu-blocks", "9"), "excludes"),
                (("--target", "scheduler", "--spec", "1025"), "--spec: found '1025', expected at most 1024")):
            self.assertIn(words, self.expect(BAD_INPUT, "replay", str(EXCERPT), *arguments).stderr, arguments)

    def test_figures_and_pictures(self):
        self.expect(AGREE, "replay", str(EXCERPT), "--only", "optimized", "--csv", "a.csv", "--svg", "a.svg")
        self.assertIn("referenced", (self.folder / "a.csv").read_text())
        ElementTree.parse(self.folder / "a.svg")
        result = self.json_of(AGREE, "replay", str(EXCERPT), "--only", "optimized", "--curve", "100,100000")
        small, large = result["curve"]
        self.assertLess(small["hit_rate"], large["hit_rate"])
        self.assertEqual(large["hit_rate"], result["hit_rate_max"])

    def test_bad_input(self):
        name = self.write("a.jsonl", '{"timestamp": 1}')
        self.assertIn("a.jsonl:1:1: found an object without input_length",
                      self.expect(BAD_INPUT, "replay", name).stderr)
        self.expect(BAD_INPUT, "replay", str(EXCERPT), "--gpu-blocks", "0")

    @long_under_sanitizers
    def test_memory_has_a_limit(self):
        large = ("--target", "block_pool", "--config", "num_gpu_blocks=4000000", "--memory-limit", "9")
        for arguments in (("replay", str(EXCERPT), "--gpu-blocks", "4000000", "--memory-limit", "9"),
                          ("record", *large, "--out", "o")):
            found = self.json_of(DISAGREEMENT, *arguments)["error"]
            self.assertIn("ran out of memory (9 MiB); reproduce: kvfence " + arguments[0], found)
        found = self.expect(DISAGREEMENT, "check", *large).stdout
        self.assertIn("ran out of memory (9 MiB); nor can its commands be drawn", found)


class ReplayGolden(Command):
    """Whole outputs of the replays of a trace of eleven requests, except the figures of a clock.

    KVFENCE_WRITE_GOLDEN=1 writes them again; review the difference before committing it."""

    GOLDEN = HERE / "replay" / "golden"
    CASES = {
        "block_pool": (AGREE, "--gpu-blocks", "9"),
        "curve": (AGREE, "--curve", "40,5,9"),
        "curve_of_a_bug": (DISAGREEMENT, "--curve", "40,9,5", "--planted-bug", BUG),
        "scheduler": (AGREE, "--target", "scheduler", "--block-size", "256", "--gpu-blocks", "12", "--max-num-seqs", "3",
                      "--max-num-batched-tokens", "1024", "--spec", "2", "--accept", "1,0,2", "--step-us", "9000"),
        "offload": (AGREE, "--target", "offload", "--gpu-blocks", "8", "--cpu-blocks", "2,4,16"),
        "engine": (AGREE, "--target", "engine", "--gpu-blocks", "20", "--cpu-blocks", "8", "--block-size", "4"),
    }
    CLOCK = {"seconds", "commands_per_second", "scheduler_seconds", "steps_per_second"}

    def outputs_of(self, code, *arguments):
        trace = str(self.GOLDEN / "trace.jsonl")
        svg = () if "engine" in arguments else ("--svg", "out.svg")
        text = self.expect(code, "replay", trace, *arguments, "--quiet", "--csv", "out.csv", *svg).stdout
        figures = {name: value for name, value in self.json_of(code, "replay", trace, *arguments).items()
                   if name not in self.CLOCK}
        clock = r"[\d.,]+(?= (s\b|us |steps |(a|per) second))"
        text = re.sub(r"^  (wall time|ran) .*", lambda line: re.sub(clock, "#", line[0]), text, flags=re.MULTILINE)
        outputs = {"txt": text.replace(str(self.GOLDEN), "GOLDEN"),
                   "json": json.dumps(figures, indent=1).replace(str(self.GOLDEN), "GOLDEN") + "\n",
                   "csv": (self.folder / "out.csv").read_text()}
        if svg:
            outputs["svg"] = (self.folder / "out.svg").read_text()
            ElementTree.fromstring(outputs["svg"])
        return outputs

    def test_outputs_have_not_changed(self):
        for name, arguments in self.CASES.items():
            for kind, output in self.outputs_of(*arguments).items():
                file = self.GOLDEN / f"{name}.{kind}"
                if os.environ.get("KVFENCE_WRITE_GOLDEN"):
                    file.write_text(output)
                self.assertEqual(output.splitlines(), file.read_text().splitlines(), file.name)


class ReplayThroughTheScheduler(Command):
    def replay(self, code, *arguments):
        return self.expect(code, "replay", str(EXCERPT), "--target", "scheduler", *arguments)

    def figures(self, *arguments):
        result = json.loads(self.replay(AGREE, "--requests", "60", *arguments, "--json").stdout.splitlines()[-1])
        self.assertEqual((result["requests"], result["completed"], result["disagreements"]), (60, 60, 0))
        for wall in ("seconds", "commands_per_second", "scheduler_seconds", "steps_per_second"):
            self.assertGreater(result.pop(wall), 0)
        return result

    def test_the_excerpt_in_json(self):
        result = self.figures()
        self.assertEqual(result["expected"], "optimized")
        self.assertEqual(result["hit_rate"], result["found_tokens"] / result["admitted_tokens"])
        self.assertLessEqual(result["queueing_seconds"]["p50"], result["queueing_seconds"]["p99"])
        self.assertEqual(result, self.figures())

    def test_both_sides_have_the_same_figures(self):
        small = ("--block-size", "512", "--gpu-blocks", "300", "--async", "--spec", "2", "--accept", "1,0,2")
        results = [self.figures(*small, *sides) for sides in ((), ("--only", "reference"), ("--lockstep",))]
        self.assertGreater(results[0]["preemptions"], 0)
        self.assertGreater(results[0]["accepted_draft_tokens"], 0)
        self.assertEqual((results[2]["expected"], results[2]["actual"]), ("reference", "optimized"))
        for result in results:
            del result["expected"], result["actual"]
        self.assertEqual(results[0], results[1])
        self.assertEqual(results[0], results[2])

    @long_under_sanitizers
    def test_options_that_change_figures(self):
        plain = self.figures()
        for arguments in (("--block-size", "512", "--gpu-blocks", "2048"), ("--max-num-seqs", "2"),
                          ("--max-num-batched-tokens", "512"), ("--step-us", "100000"), ("--token-ns", "1"),
                          ("--policy", "priority", "--priorities", "3"), ("--long-prefill-token-threshold", "100")):
            self.assertNotEqual(self.figures(*arguments), plain, arguments)
        for arguments in (("--hash-algorithm", "sha256_cbor"), ("--interval-ms", "1")):
            self.assertEqual(self.figures(*arguments), plain, arguments)

    def test_a_planted_bug_alone_has_nothing_to_disagree_with(self):
        for target, bug in (("block_pool", "free_reverses_list"), ("scheduler", "free_reverses_list"),
                            ("offload", "freed_slots_oldest_first")):
            done = self.expect(AGREE, "replay", str(EXCERPT), "--requests", "9", "--target", target, "--only", "optimized",
                               "--planted-bug", bug)
            self.assertIn(f"optimized with {bug}", done.stdout)

    def test_a_planted_bug_is_found_again_by_its_last_line(self):
        # One of the pool, one of the KV-cache manager, one of the scheduler.
        for bug in (BUG, "freed_in_forward_order", "preempted_to_tail_of_waiting"):
            done = self.replay(DISAGREEMENT, "--requests", "100", "--block-size", "512", "--gpu-blocks", "300",
                               "--planted-bug", bug)
            last = done.stdout.splitlines()[-1]
            self.assertTrue(last.startswith("reproduce: kvfence replay "), last)
            again = self.expect(DISAGREEMENT, *last.split()[2:])
            self.assertIn(f"optimized with {bug} differs from reference", again.stdout)

    def test_the_summary_figures_over_time_and_pictures(self):
        done = self.replay(AGREE, "--requests", "60", "--csv", "a.csv", "--svg", "a.svg", "--junit", "a.xml")
        for word in ("prefix cache", "first token", "referenced", "steps per second", "agree scheduler: optimized holds"):
            self.assertIn(word, done.stdout)
        header, *rows = (self.folder / "a.csv").read_text().splitlines()
        self.assertEqual(header.split(",")[:6], ["time_s", "running", "waiting", "empty", "cached", "referenced"])
        for row in rows:
            self.assertEqual(sum(int(count) for count in row.split(",")[3:6]), 65536)
        ElementTree.parse(self.folder / "a.svg")
        self.assertEqual(ElementTree.parse(self.folder / "a.xml").getroot().get("failures"), "0")

    def test_bad_input(self):
        for arguments, words in (
            (("--concurrency", "3"), "--concurrency: not with --target scheduler"),
            (("--gpu-blocks", "0"), "--gpu-blocks"),
            (("--lockstep", "--only", "reference"), "--only"),
            (("--policy", "lifo"), "--policy"),
            (("--accept", "x"), "--accept"),
            (("--accept", "1"), "--accept: not without --spec"),
            (("--priorities", "2"), "--priorities: not without --policy priority"),
            (("--step-us", "0", "--token-ns", "0"), "expected a step that takes time"),
            (("--trace-block-tokens", "256"), "excerpt.jsonl:1:62: found 14 hash_ids for 6758 tokens, expected 27"),
            (("--planted-bug", "nope"), "expected a name of kvfence list planted-bugs"),
        ):
            self.assertIn(words, self.replay(BAD_INPUT, *arguments).stderr, arguments)
        self.assertIn("--async: not with --target block_pool",
                      self.expect(BAD_INPUT, "replay", str(EXCERPT), "--async").stderr)


class ReplayThroughTheEngine(Command):
    def replay(self, code, *arguments):
        return self.expect(code, "replay", str(EXCERPT), "--target", "engine", *arguments)

    def figures(self, *arguments):
        result = json.loads(self.replay(AGREE, "--requests", "200", *arguments, "--json").stdout.splitlines()[-1])
        self.assertEqual((result["requests"], result["completed"], result["disagreements"]), (200, 200, 0))
        for wall in ("seconds", "commands_per_second"):
            self.assertGreater(result.pop(wall), 0)
        return result

    SMALL = ("--gpu-blocks", "250", "--block-size", "4")

    @long_under_sanitizers
    def test_the_excerpt_in_json(self):
        result = self.figures(*self.SMALL)
        self.assertEqual(result["expected"], "optimized")
        for name in ("gpu_hit_tokens", "cpu_hit_tokens", "stores", "loads", "output_tokens"):
            self.assertGreater(result[name], 0, name)
        self.assertEqual(result["prompt_tokens"],
                         result["gpu_hit_tokens"] + result["cpu_hit_tokens"] + result["computed_tokens"])
        # Two layers of granules of 16 bytes.
        self.assertEqual(result["loaded_bytes"], result["loaded_blocks"] * 4 * 32)
        self.assertEqual(result, self.figures(*self.SMALL))

    @long_under_sanitizers
    def test_both_sides_have_the_same_figures(self):
        small = (*self.SMALL, "--async", "--profile", "v0.23")
        results = [self.figures(*small, *sides) for sides in ((), ("--only", "reference"), ("--lockstep",))]
        self.assertEqual((results[2]["expected"], results[2]["actual"]), ("reference", "optimized"))
        self.assertEqual(results[1]["loaded_bytes"], 0)
        for result in results:
            for name in ("expected", "actual", "stored_bytes", "loaded_bytes"):
                result.pop(name, None)
        self.assertEqual(results[0], results[1])
        self.assertEqual(results[0], results[2])

    @long_under_sanitizers
    def test_options_that_change_figures(self):
        plain = self.figures(*self.SMALL)
        for arguments in (("--cpu-blocks", "1000"), ("--concurrency", "2"), ("--max-num-batched-tokens", "64"),
                          ("--transfers-a-step", "1"), ("--async",)):
            self.assertNotEqual(self.figures(*self.SMALL, *arguments), plain, arguments)

    def test_a_planted_bug_leaves_a_scenario(self):
        done = self.replay(DISAGREEMENT, "--requests", "5", "--planted-bug", "store_ignores_compute")
        last = done.stdout.splitlines()[-1]
        self.assertTrue(last.startswith("reproduce: kvfence run "), last)
        self.assertIn("expected", self.expect(DISAGREEMENT, *last.split()[2:]).stdout)

    def test_the_table_and_the_requests(self):
        done = self.replay(AGREE, *self.SMALL, "--requests", "60", "--csv", "a.csv", "--junit", "a.xml")
        for word in ("as without a cache 60 of them", "in GPU memory", "in CPU memory", "bytes", "agree engine"):
            self.assertIn(word, done.stdout)
        header, *rows = (self.folder / "a.csv").read_text().splitlines()
        self.assertEqual(header.split(",")[:3], ["request", "prompt_tokens", "output_tokens"])
        self.assertEqual(len(rows), 60)
        self.assertEqual(ElementTree.parse(self.folder / "a.xml").getroot().get("failures"), "0")

    def test_bad_input(self):
        for arguments, words in (
            (("--svg", "a.svg"), "--svg: not with --target engine"),
            (("--only", "reference", "--planted-bug", "errors_ignored"), "--planted-bug: not with --only reference"),
            (("--policies", "lru"), "--policies: not with --target engine"),
            (("--gpu-blocks", "5000"), "expected at most 4096"),
            (("--block-size", "64"), "expected at most 32"),
            (("--cpu-blocks", "8,9"), "expected one with --target engine"),
            (("--transfers-a-step", "0"), "--transfers-a-step"),
            (("--planted-bug", "nope"), "expected a name of kvfence list planted-bugs"),
        ):
            self.assertIn(words, self.replay(BAD_INPUT, *arguments).stderr, arguments)
        self.assertIn("--transfers-a-step: not with --target scheduler",
                      self.expect(BAD_INPUT, "replay", str(EXCERPT), "--target", "scheduler",
                                  "--transfers-a-step", "1").stderr)


class ReplayOverTwoTiers(Command):
    def replay(self, code, *arguments):
        return self.expect(code, "replay", str(EXCERPT), "--target", "offload", *arguments)

    def figures(self, *arguments):
        result = json.loads(self.replay(AGREE, *arguments, "--json").stdout.splitlines()[-1])
        self.assertEqual((result["target"], result["disagreements"]), ("offload", 0))
        for wall in ("seconds", "commands_per_second"):
            self.assertGreater(result.pop(wall), 0)
        return result

    @long_under_sanitizers
    def test_the_excerpt_in_json(self):
        result = self.figures()
        self.assertEqual(result["expected"], "optimized")
        self.assertEqual((result["requests"], result["blocks"]), (600, 16495))
        self.assertEqual(result["asked"], result["blocks"] - result["gpu_hits"])
        self.assertEqual([row["cpu_blocks"] for row in result["capacities"]][:2], [1000, 2000])
        for row in result["capacities"]:
            for policy in ("lru", "arc"):
                self.assertEqual(row[policy]["hit_rate"], row[policy]["found"] / result["asked"])
                self.assertLessEqual(row[policy]["found"], row["optimum"]["found"])
                self.assertEqual(row[policy]["hit_rate_of_both_tiers"],
                                 (row[policy]["found"] + result["gpu_hits"]) / result["blocks"])
        self.assertEqual(result["capacities"][-1]["lru"]["found"], result["no_limit"]["found"])
        self.assertEqual(result, self.figures())

    def test_both_sides_have_the_same_figures(self):
        small = ("--gpu-blocks", "300", "--cpu-blocks", "200,2000", "--profile", "v0.23", "--store-threshold", "2")
        results = [self.figures(*small, *sides) for sides in ((), ("--only", "reference"), ("--lockstep",))]
        self.assertGreater(results[0]["capacities"][1]["lru"]["found"], 0)
        self.assertEqual((results[2]["expected"], results[2]["actual"]), ("reference", "optimized"))
        for result in results:
            # Side by side, events are taken too: other commands.
            for name in ("expected", "actual", "commands"):
                result.pop(name, None)
        self.assertEqual(results[0], results[1])
        self.assertEqual(results[0], results[2])

    @long_under_sanitizers
    def test_options_that_change_figures(self):
        small = ("--cpu-blocks", "3000")
        plain = self.figures(*small)["capacities"]
        for arguments in (("--gpu-blocks", "8000"), ("--requests", "400"), ("--store-threshold", "2"),
                          ("--policies", "arc")):
            self.assertNotEqual(self.figures(*small, *arguments)["capacities"], plain, arguments)
        self.assertEqual(list(self.figures(*small, "--policies", "arc")["capacities"][0]),
                         ["cpu_blocks", "arc", "optimum"])

    @long_under_sanitizers
    def test_a_planted_bug_leaves_a_scenario(self):
        done = self.replay(DISAGREEMENT, "--cpu-blocks", "100", "--gpu-blocks", "200", "--requests", "30",
                           "--planted-bug", "freed_slots_oldest_first")
        last = done.stdout.splitlines()[-1]
        self.assertTrue(last.startswith("reproduce: kvfence run "), last)
        again = self.expect(DISAGREEMENT, *last.split()[2:])
        self.assertIn("expected", again.stdout)
        self.expect(AGREE, "run", next(self.folder.glob("*.kvs")).name)

    def test_the_table_figures_and_pictures(self):
        done = self.replay(AGREE, "--cpu-blocks", "500,2000", "--csv", "a.csv", "--svg", "a.svg", "--junit", "a.xml")
        for word in ("CPU tier", "both tiers", "optimum", "no limit", "agree offload: optimized holds"):
            self.assertIn(word, done.stdout)
        header, *rows = (self.folder / "a.csv").read_text().splitlines()
        self.assertEqual(header.split(",")[:4], ["cpu_blocks", "policy", "asked", "found"])
        self.assertEqual([row.split(",")[:2] for row in rows],
                         [[size, name] for size in ("500", "2000") for name in ("lru", "arc", "optimum")])
        ElementTree.parse(self.folder / "a.svg")
        self.assertEqual(ElementTree.parse(self.folder / "a.xml").getroot().get("failures"), "0")

    def test_bad_input(self):
        for arguments, words in (
            (("--curve", "3"), "--curve: not with --target offload"),
            (("--async",), "--async: not with --target offload"),
            (("--cpu-blocks", "0"), "--cpu-blocks"),
            (("--cpu-blocks", "8,8"), "found cpu_blocks=8 twice"),
            (("--cpu-blocks", "999999999"), "expected at most 268435456"),
            (("--policies", "fifo"), "--policies"),
            (("--policies", "lru,lru"), "found policy lru twice"),
            (("--gpu-blocks", "0"), "--gpu-blocks"),
            (("--lockstep", "--only", "reference"), "--only"),
            (("--profile", "v9"), "--profile"),
            (("--store-threshold", "x"), "--store-threshold"),
            (("--planted-bug", "nope"), "expected a name of kvfence list planted-bugs"),
        ):
            self.assertIn(words, self.replay(BAD_INPUT, *arguments).stderr, arguments)
        for target in ("block_pool", "scheduler"):
            self.assertIn(f"--cpu-blocks: not with --target {target}",
                          self.expect(BAD_INPUT, "replay", str(EXCERPT), "--target", target,
                                      "--cpu-blocks", "9").stderr)
        name = self.write("a.jsonl", '{"timestamp": 0, "input_length": 9, "output_length": 1, "hash_ids": [4, 5, 4]}')
        self.assertIn("a.jsonl: found hash id 4 twice in request 1",
                      self.expect(BAD_INPUT, "replay", name, "--target", "offload").stderr)


class Audit(Command):
    """Events of a replay, recorded or live, under audit."""

    def publish(self, *arguments):
        self.expect(AGREE, "replay", str(EXCERPT), "--target", "scheduler", "--requests", "30", "--gpu-blocks", "2000",
                    "--quiet", *arguments)

    def test_a_sound_recording_has_no_finding(self):
        for encoding, hashes in (("arrays", "bytes"), ("maps", "low64")):
            self.publish("--publish", "r.kva", "--encoding", encoding, "--hashes", hashes)
            found = self.json_of(AGREE, "audit", "r.kva", "--num-blocks", "2000", "--junit", "r.xml", "--quiet")
            self.assertEqual(found["findings"], [])
            self.assertGreater(found["events"], 10000)
            self.assertEqual(found["hashes_checked"], found["stored"])
            self.assertLessEqual(found["bytes_per_block"], 200)
            self.assertTrue(found["streams"][0]["certain"])
            suite = ElementTree.parse(self.folder / "r.xml").getroot()
            self.assertEqual((suite.get("tests"), suite.get("failures")), ("14", "0"))

    @long_under_sanitizers
    def test_each_kind_of_fault_is_one_finding_with_its_evidence(self):
        for fault, rule in (("lost", "lost"), ("repeated", "repeated"), ("reordered", "reordered"),
                            ("silent_restart", "restarted"), ("malformed", "malformed"), ("wrong_rank", "wrong_rank"),
                            ("wrong_parent", "wrong_hash"), ("unknown_parent", "unknown_parent"),
                            ("wrong_hash", "wrong_hash"), ("cut_tokens", "token_counts"),
                            ("removed_unknown", "removed_never_stored"), ("removed_twice", "removed_too_often"),
                            ("removed_held", "unknown_parent"), ("cleared_held", "removed_after_clear")):
            with self.subTest(fault):
                self.publish("--publish", "r.kva", "--inject", f"{fault}@100")
                found = self.json_of(DISAGREEMENT, "audit", "r.kva", "--out", "evidence", "--junit", "r.xml", "--quiet")
                self.assertEqual([finding["rule"] for finding in found["findings"]], [rule])
                self.assertEqual(ElementTree.parse(self.folder / "r.xml").getroot().get("failures"), "1")
                evidence = found["findings"][0]["evidence"]
                self.assertLess((self.folder / evidence).stat().st_size, (self.folder / "r.kva").stat().st_size / 4)
                again = self.json_of(DISAGREEMENT, "audit", evidence, "--quiet")
                self.assertEqual([finding["rule"] for finding in again["findings"]], [rule])
                text = self.expect(DISAGREEMENT, "audit", evidence, "--quiet").stdout
                self.assertIn(f"{rule}: kvfence", text)

    def test_a_cut_recording_is_audited_to_the_cut(self):
        self.publish("--publish", "r.kva")
        whole = (self.folder / "r.kva").read_bytes()
        (self.folder / "cut.kva").write_bytes(whole[:len(whole) // 2 + 1])
        done = self.expect(AGREE, "audit", "cut.kva", "--quiet")
        self.assertIn("the recording is cut: byte ", done.stderr)

    def test_what_follows_damage_is_not_audited_and_so_not_green(self):
        self.publish("--publish", "r.kva")
        whole = bytearray((self.folder / "r.kva").read_bytes())
        whole[len(whole) // 2] ^= 1
        (self.folder / "r.kva").write_bytes(whole)
        done = self.expect(BAD_INPUT, "audit", "r.kva", "--quiet", "--junit", "r.xml")
        self.assertIn("the recording is damaged: byte ", done.stderr)
        self.assertEqual(ElementTree.parse(self.folder / "r.xml").getroot().get("errors"), "1")

    def test_bad_input(self):
        self.expect(BAD_INPUT, "audit")
        self.expect(BAD_INPUT, "audit", "missing.kva")
        self.write("text.kva", "hello")
        self.assertEqual(self.expect(BAD_INPUT, "audit", "text.kva").stderr,
                         "kvfence: text.kva: found another first line, expected 'kvfence-audit 1'\n")
        self.expect(BAD_INPUT, "audit", "text.kva", "--endpoint", "tcp://127.0.0.1:1")
        for option in (("--for", "1"), ("--topic", "a"), ("--record", "a.kva"), ("--metrics-port", "0")):
            self.assertIn(f"{option[0]}: not with a recording", self.expect(BAD_INPUT, "audit", "text.kva", *option).stderr)

    def test_an_invalid_and_an_idle_endpoint(self):
        done = self.kvfence("audit", "--endpoint", "nowhere", "--for", "0.01")
        if done.returncode == CANNOT_RUN:
            self.skipTest("this build has no ZeroMQ")
        self.assertEqual((done.returncode, "found 'nowhere' (" in done.stderr), (BAD_INPUT, True))
        live = ("audit", "--endpoint", "tcp://127.0.0.1:1", "--for", "0.01")
        done = self.expect(BAD_INPUT, *live, "--replay-endpoint", "nowhere")
        self.assertIn("--replay-endpoint: found 'nowhere'", done.stderr)
        for *arguments, option in ((*live, "--replay-endpoint"), ("audit", "--endpoint"),
                                   ("replay", str(EXCERPT), "--publish")):
            done = self.expect(BAD_INPUT, *arguments, option, "tcp://127.0.0.1:65536")
            self.assertIn(f"{option}: found 'tcp://127.0.0.1:65536' (a port above 65535)", done.stderr)
        idle = self.expect(CANNOT_RUN, *live)
        self.assertIn("tcp://127.0.0.1:1: no message arrived\nnothing checked: 0 events", idle.stdout)
        both = self.json_of(CANNOT_RUN, *live, "--endpoint", "tcp://127.0.0.1:2")
        self.assertEqual(both["source"], "tcp://127.0.0.1:1, tcp://127.0.0.1:2")

    def test_live_with_figures(self):
        with subprocess.Popen([KVFENCE, "audit", "--endpoint", "tcp://127.0.0.1:1", "--metrics-port", "0"],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as live:
            port = re.search(r"figures at port (\d+)", live.stderr.readline())
            if port is None:
                self.assertEqual(live.wait(), CANNOT_RUN)
                self.skipTest("this build has no ZeroMQ")
            with urllib.request.urlopen(f"http://127.0.0.1:{port.group(1)}/metrics", timeout=30) as answer:
                figures = answer.read().decode()
            self.assertIn("# TYPE kvfence_audit_blocks gauge", figures)
            self.assertIn('kvfence_audit_findings_total{rule="lost"} 0.0', figures)
            live.terminate()
            self.assertEqual(live.wait(timeout=30), CANNOT_RUN)

    def test_a_publisher_that_exits_and_returns(self):
        os.mkfifo(self.folder / "live.kva")

        def start(*arguments):
            process = subprocess.Popen([KVFENCE, *arguments], cwd=self.folder, stdout=subprocess.PIPE, text=True)
            for clean_up in (process.communicate, process.kill):  # the last one first
                self.addCleanup(clean_up)
            return process

        def numbers(of_records, number):
            for _ in range(number):
                length, _ = struct.unpack("<II", of_records.read(8))
                yield struct.unpack_from("<Q", of_records.read(length), 9)[0]

        replay = ("replay", str(EXCERPT), "--gpu-blocks", "1000", "--quiet", "--publish")
        self.expect(AGREE, *replay, "whole.kva")
        expected = self.json_of(AGREE, "audit", "whole.kva")
        # Its first five requests come at once, and the next one after three seconds.
        dying = start(*replay, "tcp://127.0.0.1:0", "--speed", "1")
        said = dying.stdout.readline()
        if not said:
            self.assertEqual(dying.wait(), CANNOT_RUN)
            self.skipTest("this build has no ZeroMQ")
        endpoint = re.search(r"tcp://\S+[0-9]", said).group()
        live = start("audit", "--endpoint", endpoint, "--record", "live.kva", "--num-blocks", "999", "--json", "--quiet")
        with open(self.folder / "live.kva", "rb") as records:
            self.assertEqual(records.read(16), b"kvfence-audit 1\n")
            self.assertEqual(list(numbers(records, 3)), [0, 1, 2])
            dying.kill()
            dying.wait()
            start(*replay, endpoint)
            seen = list(numbers(records, expected["messages"]))
            while seen[-1] + 1 < expected["messages"]:
                seen += numbers(records, 1)
            live.send_signal(signal.SIGINT)
            found = json.loads(live.communicate(timeout=30)[0].splitlines()[-1])
        self.assertEqual([finding["rule"] for finding in found["findings"]], ["restarted"])
        self.assertEqual([stream["certain"] for stream in found["streams"]], [True])
        for figure in ("gpu_blocks", "prefix_depth"):
            self.assertEqual(found[figure], expected[figure])


class Pages(Command):
    """The man page and the completions have the data of --help, and the tools that read them accept them."""

    CHECKS = {"man": ("man", "--warnings", "-l"), "bash": ("bash", "-n"), "zsh": ("zsh", "-n"), "fish": ("fish", "-n")}

    def test_they_have_each_subcommand_and_option_of_the_help(self):
        pages = {what: self.expect(AGREE, "generate", what).stdout for what in self.CHECKS}
        man = pages["man"].replace("\\-", "-")
        commands = re.findall(r"^  ([a-z]+) ", self.expect(AGREE, "--help").stdout.split("Subcommands:")[1], re.MULTILINE)
        self.assertIn("replay", commands)
        for command in commands:
            options = set(re.findall(r"^ +(?:-[a-z],)?--([a-z-]+)", self.expect(AGREE, command, "--help").stdout,
                                     re.MULTILINE))
            self.assertIn("help", options)
            zsh = pages["zsh"].split(f"    {command})\n", 1)[1].split(";;", 1)[0]
            bash = re.search(rf"^ +{command}\) words='([^']*)'", pages["bash"], re.MULTILINE).group(1).split()
            section = man.split(f".SS kvfence {command}\n", 1)[1].split("\n.S", 1)[0]
            self.assertIn(f" -a {command} ", pages["fish"])
            for option in options:
                self.assertRegex(section, rf"--{option}\\fR", (command, option))
                self.assertIn(f"--{option}", bash, command)
                self.assertIn(f"'--{option}[", zsh, command)
                self.assertRegex(pages["fish"], rf"__fish_seen_subcommand_from {command}'.* -l {option}\b")

    def test_their_readers_accept_them(self):
        for what, check in self.CHECKS.items():
            page = self.write(f"kvfence.{what}", self.expect(AGREE, "generate", what).stdout.rstrip("\n"))
            if shutil.which(check[0]) is None:
                continue
            done = subprocess.run([*check, page], cwd=self.folder, text=True, capture_output=True, timeout=60,
                                  env={**os.environ, "MANPAGER": "cat", "LC_ALL": "C"})
            self.assertEqual((done.returncode, done.stderr), (0, ""), what)

    def test_bash_completes_commands_options_and_values(self):
        self.write("kvfence", self.expect(AGREE, "generate", "bash").stdout)
        for words, expected in ((["kvfence", "sh"], "shrink"), (["kvfence", "check", "--sho"], ""),
                                (["kvfence", "check", "--episode-"], "--episode-commands"),
                                (["kvfence", "check", "--target", "kv"], "kv_cache"),
                                (["kvfence", "replay", "x", "--policy", "p"], "priority"),
                                (["kvfence", "run", "kvf"], "kvfence")):
            script = (f"source ./kvfence; COMP_WORDS=({' '.join(words)}); COMP_CWORD={len(words) - 1}; _kvfence; "
                      "echo ${COMPREPLY[*]}")
            done = subprocess.run(["bash", "-c", script], cwd=self.folder, text=True, capture_output=True, timeout=60)
            self.assertEqual((done.stdout.strip(), done.stderr), (expected, ""), words)

    def test_bad_input(self):
        self.expect(BAD_INPUT, "generate")
        self.expect(BAD_INPUT, "generate", "tcsh")


class Publish(Command):
    """kvfence replay --publish into a recording; examples/check_my_indexer.py has the sockets."""

    POOL = ("--requests", "200", "--gpu-blocks", "1000")
    SCHEDULER = ("--target", "scheduler", "--requests", "60", "--gpu-blocks", "500", "--block-size", "256")

    def published(self, *arguments):
        done = self.json_of(AGREE, "replay", str(EXCERPT), "--publish", "a.kvev", *arguments)
        return done["published"]

    @long_under_sanitizers
    def test_sound_events_have_no_findings_and_a_truth(self):
        for target in (self.POOL, self.SCHEDULER, (*self.SCHEDULER, "--profile", "v0.23")):
            for form in ((), ("--encoding", "maps"), ("--hashes", "low64")):
                published = self.published(*target, *form, "--truth", "truth.jsonl")
                found = self.json_of(AGREE, "audit", "a.kvev", "--num-blocks", "999")
                self.assertEqual((found["messages"], found["events"]), (published["messages"], published["events"]))
                truth = [json.loads(line) for line in (self.folder / "truth.jsonl").read_text().splitlines()]
                self.assertEqual(truth.pop(), {"end": published["messages"]})
                held = sum(len(line["added"]) - len(line["removed"]) for line in truth)
                self.assertEqual(held, found["gpu_blocks"] if target is self.POOL else held)

    def test_faults_are_listed_and_found(self):
        for fault, rule in (("lost@20", "lost"), ("removed_twice@20", "removed_too_often"), ("malformed@3", "malformed")):
            published = self.published(*self.POOL, "--inject", fault)
            (injected,) = published["injected"]
            self.assertEqual(injected["kind"], fault.split("@")[0])
            found = self.json_of(DISAGREEMENT, "audit", "a.kvev")
            self.assertEqual([finding["rule"] for finding in found["findings"]], [rule])
        self.assertEqual(len(self.published(*self.POOL, "--inject", "lost@20/50")["injected"]), 4)

    def test_a_planted_bug_publishes_its_events(self):
        self.published(*self.POOL, "--planted-bug", "removed_event_dropped_on_reuse", "--truth", "truth.jsonl")
        found = self.json_of(DISAGREEMENT, "audit", "a.kvev", "--num-blocks", "999")
        self.assertIn("too_many_blocks", {finding["rule"] for finding in found["findings"]})

    def test_bad_input(self):
        for arguments, words in (
                (("--inject", "lost@1/0"), "expected KIND@N"),
                (("--inject", "lose@1"), "expected KIND@N or KIND@N/EVERY, where KIND is one of lost, repeated"),
                (("--lockstep",), "excludes"), (("--curve", "100"), "excludes"), (("--speed", "0"), "--speed"),
                (("--planted-bug", "nothing"), "kvfence list planted-bugs"), (("--target", "engine"), "not with")):
            done = self.expect(BAD_INPUT, "replay", str(EXCERPT), "--publish", "a.kvev", *arguments)
            self.assertIn(words, done.stdout + done.stderr, arguments)
        self.assertIn("requires --publish", self.expect(BAD_INPUT, "replay", str(EXCERPT), "--truth", "t").stderr)
        for path in ("--publish", "no_such/a.kvev"), ("--publish", "a.kvev", "--truth", "no_such/t"):
            self.assertIn("no_such", self.expect(BAD_INPUT, "replay", str(EXCERPT), *path).stderr)


class List(Command):
    def test_every_list_has_something(self):
        for what in ("targets", "commands", "rules", "goals", "planted-bugs", "left-out", "release-rules", "devices"):
            self.assertGreater(len(self.expect(AGREE, "list", what).stdout.splitlines()), 1, what)
        self.assertIn("kv_cache", self.json_of(AGREE, "list")["targets"])
        self.expect(BAD_INPUT, "list", "nothing")
        for what, option, words in (("targets", "--target", "with targets"), ("left-out", "--target", "with left-out"),
                                    ("goals", "--seed", "without factors")):
            self.assertIn(f"{option}: not {words}", self.expect(BAD_INPUT, "list", what, option, "1").stderr)

    def test_bugs_are_listed_under_their_assembly(self):
        listed = self.json_of(AGREE, "list", "planted-bugs")
        self.assertEqual(set(listed), set(TARGETS) - {"engine"} | {f"engine.{name}" for name in ASSEMBLIES})
        for name, bugs in listed.items():
            self.assertGreaterEqual(len(bugs), 10, name)
        self.assertEqual(set(self.json_of(AGREE, "list", "planted-bugs", "--target", "engine")),
                         {f"engine.{name}" for name in ASSEMBLIES})

    def test_what_is_left_out_has_a_reason(self):
        rows = self.json_of(AGREE, "list", "left-out")["left-out"]
        self.assertEqual({row["kind"] for row in rows}, {"pair", "draw", "rule", "refused", "missing", "same"})
        for row in rows:
            self.assertTrue(row["what"] and row["why"], row)
        self.assertEqual(self.expect(AGREE, "list", "left-out").stdout,
                         (HERE.parent / "properties" / "left_out.md").read_text())

    def test_factors_are_listed_under_their_part(self):
        listed = self.json_of(AGREE, "list", "factors", "--target", "eviction", "--configurations", "2000")["eviction"]
        self.assertEqual(sum(int(count) for count in re.findall(r"(?:lru|arc) (\d+)", listed["policy"])), 2000)
        self.assertGreater(int(listed["pairs drawn"]), 30)
        self.assertFalse([name for name in listed if name.startswith("never drawn")])
        other = self.json_of(AGREE, "list", "factors", "--target", "eviction", "--configurations", "2000", "--seed", "2")
        self.assertNotEqual(other["eviction"], listed)

    def test_help_and_version(self):
        self.assertIn("exit codes", self.expect(AGREE, "--help").stdout)
        self.assertIn("kvfence ", self.expect(AGREE, "--version").stdout)
        for command in ("run", "check", "replay", "audit", "shrink", "record", "list", "explain", "serve"):
            self.expect(AGREE, command, "--help")
        self.expect(BAD_INPUT)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("usage: test_command.py KVFENCE")
    KVFENCE = str(pathlib.Path(sys.argv.pop(1)).resolve())
    unittest.main()
