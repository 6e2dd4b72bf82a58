#!/usr/bin/env python3
"""Tests of ci/campaign: what it runs, that it continues after a stop, and which findings are the same."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

CAMPAIGN = pathlib.Path(__file__).resolve().parent / "campaign"
REPORT = CAMPAIGN.with_name("campaign_report.py")
MERGE = CAMPAIGN.with_name("merge_corpora")

# Two parts, of which engine.multi fails: with a scenario that depends on whether the seed is odd.
STUB = '''#!/usr/bin/env python3
import json, pathlib, sys
arguments = sys.argv[1:]
if arguments[0] == "shrink":
    text = pathlib.Path(arguments[1]).read_text()
    pathlib.Path(arguments[3]).write_text(text.replace("add id=B\\n", ""))
    sys.exit(1)
if arguments[0] == "list":
    print(json.dumps({"block_pool": {}, "engine.multi": {}}))
    sys.exit(0)
value = lambda name: arguments[arguments.index(name) + 1]
with open(pathlib.Path(__file__).parent / "seeds.txt", "a") as log:
    print(value("--target"), value("--seed"), file=log)
report = {"commands": int(value("--commands")), "seconds": 1, "reach": {"hit": {"count": 1}, "miss": {"count": 0}}}
if value("--target") == "engine":
    report["divergence"] = {"oracle": "crash"}
    odd = int(value("--seed")) % 2
    (pathlib.Path(value("--out")) / "f.kvs").write_text(f"# seed {value('--seed')}\\ntarget engine\\npoll odd={odd}\\n")
print(json.dumps(report))
sys.exit(1 if "divergence" in report else 0)
'''

# Writes an input to its corpus; for engine.multi it reports a finding.
FUZZ_STUB = '''#!/usr/bin/env python3
import os, pathlib, sys
prefix = next(each for each in sys.argv if each.startswith("-artifact_prefix=")).split("=")[1]
(pathlib.Path(sys.argv[-2]) / "new").write_text("x")
print("#9 NEW cov: 120 ft: 300\\nstat::number_of_executed_units: 50\\nstat::number_of_commands:       500", file=sys.stderr)
if os.environ["KVFENCE_FUZZ_TARGET"] == "engine.multi":
    pathlib.Path(prefix + "crash-1").write_text("y")
    print("# divergence at command 2, seen by lockstep: holders\\ntarget engine\\nadd id=A\\nadd id=B\\n"
          "# end of the scenario\\nSUMMARY: libFuzzer: deadly signal", file=sys.stderr)
    sys.exit(77)
'''


# Fails if all inputs that it replays come from the other program; it gets none of the repository's corpus.
REPLAY_STUB = '''#!/usr/bin/env python3
import pathlib, sys
names = [path.name for path in pathlib.Path(sys.argv[-1]).iterdir()]
print("SUMMARY: AddressSanitizer: heap-use-after-free", file=sys.stderr)
sys.exit(1 if "-runs=0" in sys.argv and names == ["new"] else 0)
'''


# Chooses all inputs that the first folder does not have, and names them as libFuzzer does.
MERGE_STUB = '''#!/usr/bin/env python3
import hashlib, pathlib, sys
into, *sources = [pathlib.Path(each) for each in sys.argv[1:] if not each.startswith("-")]
known = {path.read_bytes() for path in into.iterdir()}
for data in {path.read_bytes() for source in sources for path in source.iterdir()} - known:
    (into / hashlib.sha1(data).hexdigest()).write_bytes(data)
    if data == b"crash":
        sys.exit(1)
'''


class CampaignTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.stub = self.folder / "kvfence"
        self.stub.write_text(STUB)
        self.stub.chmod(0o755)

    def campaign(self, *arguments, out="out"):
        return subprocess.run([sys.executable, "-B", str(CAMPAIGN), str(self.stub), "--out", str(self.folder / out),
                               *arguments], capture_output=True, text=True, timeout=60)

    def seeds(self):
        return (self.folder / "seeds.txt").read_text().split("\n")[:-1]

    def state(self):
        return json.loads((self.folder / "out" / "state.json").read_text())

    def test_agreement_ends_with_0(self):
        done = self.campaign("--rounds", "2", "--part", "block_pool", "--commands", "7")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.state()["parts"]["block_pool"]["commands"], 14)
        curve = (self.folder / "out" / "curve.csv").read_text().splitlines()
        self.assertEqual(curve[-1], "block_pool,check,14,2,1,2")

    def test_a_finding_is_kept_once(self):
        done = self.campaign("--rounds", "8")
        self.assertEqual(done.returncode, 1)
        findings = sorted((self.folder / "out" / "findings").iterdir())
        self.assertEqual(len(findings), 2, "one for odd seeds, one for even ones")
        self.assertEqual(sum(each["times"] for each in self.state()["findings"].values()), 8)
        self.assertIn("target engine", findings[0].read_text())

    def test_it_goes_on_where_it_was_stopped(self):
        self.campaign("--rounds", "1", "--part", "block_pool")
        self.campaign("--rounds", "1", "--part", "block_pool")
        one_by_one = self.seeds()
        (self.folder / "seeds.txt").unlink()
        self.campaign("--rounds", "2", "--part", "block_pool", out="at_once")
        self.assertEqual(self.seeds(), one_by_one)
        self.assertEqual(len(set(one_by_one)), 2)

    def test_shards_share_the_rounds(self):
        for shard in ("0/2", "1/2"):
            self.campaign("--rounds", "2", "--part", "block_pool", "--shard", shard, out=f"shard{shard[0]}")
        shared = self.seeds()
        (self.folder / "seeds.txt").unlink()
        self.campaign("--rounds", "4", "--part", "block_pool", out="alone")
        self.assertEqual(sorted(self.seeds()), sorted(shared))

    def test_fuzzing_keeps_its_corpus_and_shrinks_what_it_finds(self):
        fuzz = self.folder / "fuzz_lockstep"
        fuzz.write_text(FUZZ_STUB)
        fuzz.chmod(0o755)
        done = self.campaign("--rounds", "2", "--fuzz", str(fuzz), "--fuzz-seconds", "1")
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertTrue((self.folder / "out" / "corpus" / "block_pool" / "new").exists())
        self.assertEqual(self.state()["fuzz"]["block_pool"], {"commands": 1000, "seconds": 2, "basic_blocks": 120})
        name = next(name for name in self.state()["findings"] if "lockstep" in name)
        self.assertEqual(self.state()["findings"][name]["times"], 2)
        found = (self.folder / "out" / "findings" / f"{name}.kvs").read_text()
        self.assertIn("add id=A", found)
        self.assertNotIn("add id=B", found)
        self.assertEqual((self.folder / "out" / "findings" / f"{name}.input").read_text(), "y")

    def test_what_fuzzing_finds_is_replayed_once(self):
        programs = []
        for name, text in (("fast", FUZZ_STUB), ("sanitized", REPLAY_STUB)):
            programs.append(self.folder / name)
            programs[-1].write_text(text)
            programs[-1].chmod(0o755)
        done = self.campaign("--rounds", "2", "--part", "block_pool", "--fuzz", str(programs[0]), "--fuzz-seconds", "1",
                             "--replay", str(programs[1]))
        self.assertEqual(done.returncode, 1, done.stderr)
        (name, known), = self.state()["findings"].items()
        self.assertEqual(known["times"], 1, "in the second round nothing is new")
        self.assertIn("heap-use-after-free", (self.folder / "out" / "findings" / f"{name}.kvs").read_text())

    def test_a_task_of_a_slurm_array_is_a_shard(self):
        """The second of the tasks 3 to 5."""
        task = {"SLURM_ARRAY_TASK_MIN": "3", "SLURM_ARRAY_TASK_MAX": "5", "SLURM_ARRAY_TASK_ID": "4"}
        done = subprocess.run(["bash", str(CAMPAIGN.parent / "clusters" / "campaign.sbatch"), str(self.stub),
                               str(self.folder), "--rounds", "1", "--part", "block_pool"], capture_output=True, text=True,
                              timeout=60, cwd=CAMPAIGN.parent.parent, env={**os.environ, **task})
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(json.loads((self.folder / "shard-4" / "state.json").read_text())["shard"], "1/3")

    def test_the_report_adds_shards_up(self):
        for shard in ("0/2", "1/2"):
            self.campaign("--rounds", "2", "--shard", shard, "--commands", "7", out=f"shards/{shard[0]}")
        done = subprocess.run([sys.executable, "-B", str(REPORT), str(self.folder / "shards"), "--json"],
                              capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 1, done.stderr)
        report = json.loads(done.stdout)
        self.assertEqual({row["part"]: (row["commands"], row["reached"], row["last_new_at"]) for row in report["curves"]},
                         {"block_pool": (28, 1, 14), "engine.multi": (28, 1, 14)})
        self.assertEqual(sum(finding["times"] for finding in report["findings"].values()), 4)
        done = subprocess.run([sys.executable, "-B", str(REPORT), str(self.folder)], capture_output=True, text=True,
                              timeout=60)
        self.assertEqual(done.returncode, 2)
        self.assertIn("expected the folder of a campaign", done.stderr)

    def test_what_was_found_is_merged_into_the_corpora(self):
        stub = self.folder / "fuzz_lockstep"
        stub.write_text(MERGE_STUB)
        stub.chmod(0o755)
        corpus, found = self.folder / "corpora" / "offload_lockstep", self.folder / "out" / "corpus" / "offload"
        for folder, name in ((corpus, "reaches_hit"), (corpus, "found_old"), (found, "new")):
            folder.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(name)

        def merge(*arguments):
            return subprocess.run([sys.executable, "-B", str(MERGE), str(stub), str(self.folder / "out"), "--part", "offload",
                                   "--into", str(self.folder / "corpora"), *arguments], capture_output=True, text=True,
                                  timeout=60)
        done = merge()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("1 found inputs before, 2 now", done.stdout)
        contents = {"reaches": set(), "found": set()}
        for path in corpus.iterdir():
            contents[path.name.partition("_")[0]].add(path.read_text())
        self.assertEqual(contents, {"reaches": {"reaches_hit"}, "found": {"found_old", "new"}})

        before = sorted(corpus.iterdir())
        (found / "newer").write_text("crash")
        self.assertEqual(merge().returncode, 1)
        self.assertEqual(sorted(corpus.iterdir()), before)
        for arguments, words in (((str(self.folder),), "expected a folder of ci/campaign --fuzz"),
                                 (("--part", "no_such"), "expected a part of fuzz/targets.txt")):
            done = merge(*arguments)
            self.assertEqual(done.returncode, 2, arguments)
            self.assertIn(words, done.stderr)
        stub.unlink()
        self.assertEqual(merge().returncode, 77)

    def test_bad_input(self):
        self.campaign("--rounds", "1", "--part", "block_pool")
        for arguments, words in ((("--name", "other", "--rounds", "1"), "holds a campaign with --name campaign"),
                                 (("--part", "no_such", "--rounds", "1"), "expected some of block_pool"),
                                 (("--shard", "2/2"), "expected K/N"),
                                 (("--replay", str(self.stub)), "expected --fuzz")):
            done = self.campaign(*arguments)
            self.assertEqual(done.returncode, 2, arguments)
            self.assertIn(words, done.stderr)
        done = self.campaign("--rounds", "1", "--fuzz", str(self.folder / "no_such"))
        self.assertEqual(done.returncode, 77)
        self.assertIn("no_such cannot be run", done.stderr)
        self.stub.unlink()
        self.assertEqual(self.campaign("--rounds", "1").returncode, 77)


if __name__ == "__main__":
    unittest.main()
