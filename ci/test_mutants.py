#!/usr/bin/env python3
"""Tests of ci/mutants: which places it changes and how, how one text contains them, and how they are counted."""

import importlib.machinery
import importlib.util
import pathlib
import tempfile
import unittest

import plant

LOADER = importlib.machinery.SourceFileLoader("mutants", str(pathlib.Path(__file__).resolve().parent / "mutants"))
mutants = importlib.util.module_from_spec(importlib.util.spec_from_loader("mutants", LOADER))
LOADER.exec_module(mutants)

SOURCE = """namespace kvfence::layer {

std::vector<int> Counter::next(int x) {
  if (x > 3) return {};
  int y = x + 1;
  std::vector<int> all(y);
  log(y, x);
  last_ = y;
  KVFENCE_CHECK(y > 0 &&
                    y < 9,
                "a promise");
  return all;
}

void Counter::add_to(StateHash& hash) const { hash.add(last_ + 1); }

constexpr int kMost = 7;

}  // namespace kvfence::layer
"""


class Mutants(unittest.TestCase):
    def setUp(self):
        self.source = plant.Source("layer/a.cpp", SOURCE)

    def changes(self):
        return [(" ".join(self.source.texts[first:last]), new) for first, last, new in mutants.changes_of(self.source)]

    def test_every_place_of_a_function_and_no_other(self):
        self.assertEqual(self.changes(), [
            ("x > 3", "!(x > 3)"), (">", ">="), ("3", "4"), ("+", "-"), ("1", "2"), ("log ( y , x ) ;", ""),
            ("last_ = y ;", "")])

    def test_each_target_but_the_worker_has_texts_and_digests_of_both_releases(self):
        for target in mutants.ALL_TARGETS:
            found = {(path.parent.name, path.suffix) for path in mutants.recordings_of(target)}
            releases = {"worker": (), "tiering": ("v0.23",)}.get(target, ("v0.19", "v0.23"))
            self.assertEqual(found, {(release, suffix) for release in releases for suffix in (".kvs", ".gz")}, target)

    def test_what_a_compiler_runs_is_left_alone(self):
        table = plant.Source("layer/a.cpp", "constexpr auto kAll = [] {\n  int n = 1;\n  n += 2;\n  return n;\n}();\n"
                                            "constexpr int f(int n) {\n  return n + 1;\n}\n"
                                            "constexpr auto g = [](int n) {\n  return n - 3;\n};\n")
        self.assertEqual([table.texts[first] for first, _, _ in mutants.changes_of(table)], ["+", "1", "-", "3"])

    def test_the_head_of_a_loop_has_no_statement(self):
        loop = plant.Source("layer/a.cpp", "void f() {\n  for (int i = 0; i < n(); ++i) go([&] { run(); });\n}\n")
        left_out = [" ".join(loop.texts[first:last]) for first, last, new in mutants.changes_of(loop) if not new]
        self.assertEqual(left_out, ["run ( ) ;"])

    def test_all_stand_in_one_text_behind_switches(self):
        changes = list(mutants.changes_of(self.source))
        those = [mutants.mutant_of(self.source, number, change) for number, change in enumerate(changes, start=1)]
        text = mutants.instrumented(self.source, those)
        self.assertIn("namespace kvfence::layer {", text)
        for mutant in those:
            self.assertIn(f'"layer/a.cpp[{mutant.name}]"', text)
            self.assertIn(str(mutant.number()), text)
        self.assertIn("if (!(x > 3) ) return {};", text)
        self.assertNotIn("hash.add(last_ + 2)", text)

    def test_a_mutant_names_its_place(self):
        change = next(change for change in mutants.changes_of(self.source) if change[2] == ">=")
        mutant = mutants.mutant_of(self.source, 7, change)
        self.assertEqual(mutant.text(), "layer/a.cpp:4: `>` becomes `>=`: if (x > 3) return {};")
        self.assertEqual((mutant.name, mutant.number(), mutant.layer()), ("m7", 7, "layer"))

    def test_files_of_each_layer_and_what_uses_them(self):
        files = mutants.mutable_files()
        for path in ("optimized/pool/block_pool.cpp", "cuda/worker/worker.cpp", "reference/pool/block_pool.cpp",
                     "contract/core/line.cpp", "properties/pool/driver.h", "properties/engine/nixl/facet.cpp"):
            self.assertIn(path, files)
        for path in ("properties/pool/rules.cpp", "contract/core/line_test.cpp", "cuda/virtual/virtual_device.cpp"):
            self.assertNotIn(path, files)
        self.assertEqual(mutants.parts_of("optimized/pool/block_pool.cpp"), ("block_pool", "engine"))
        self.assertEqual(mutants.parts_of("optimized/files/file_tier.cpp")[0], "tiering")
        self.assertEqual(mutants.parts_of("properties/engine/files/facet.cpp")[0], "engine.synchronous")
        for path in files:
            for target in mutants.targets_of(mutants.parts_of(path)):
                self.assertTrue((plant.ROOT / "scenarios" / "cases" / target).is_dir(), path)

    def test_the_sums_of_a_layer(self):
        one = mutants.mutant_of(self.source, 1, next(mutants.changes_of(self.source)))
        all_three = {name: one._replace(path="reference/pool/block_pool.cpp") for name in ("m1", "m2", "m3")}
        verdicts = {"m1": {"random": "lockstep", "traces": None}, "m2": {"random": "numbers_add_up", "traces": None},
                    "m3": {"random": None, "traces": "expectation"}}
        row = mutants.rows_of_layers(all_three, verdicts, set())["reference"]
        self.assertEqual((row["mutants"], row["killed"], row["random"], row["by traces, golden values or rules"]), (3, 3, 2, 2))

    def test_a_run_goes_on_where_it_was_stopped(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "verdicts.jsonl")
            self.assertEqual(mutants.known_verdicts(file, {"seed": 1}), {})
            file.write_text('{"seed": 1}\n{"name": "m1", "mutant": "a", "verdict": {"random": null}}\n{"name": "m2", "mu')
            self.assertEqual(mutants.known_verdicts(file, {"seed": 1}), {"m1": {"random": None}})
            self.assertEqual(mutants.known_verdicts(file, {"seed": 2}), {}, "of another run")
            file.write_text("")
            self.assertEqual(mutants.known_verdicts(file, {"seed": 1}), {})

    def test_the_table_of_equivalent_mutants_can_be_read(self):
        for key in mutants.equivalent_mutants():
            self.assertEqual(len(key), 4)
            self.assertTrue((plant.ROOT / key[0]).is_file(), key[0])


if __name__ == "__main__":
    unittest.main()
