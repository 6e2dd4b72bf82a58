#!/usr/bin/env python3
"""Tests of ci/mutants: which places it changes and how, and that each change is an edit that plant.py takes."""

import importlib.machinery
import importlib.util
import pathlib
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

    def test_each_is_an_edit_that_can_be_planted(self):
        for number, (first, last, new) in enumerate(mutants.changes_of(self.source)):
            lines = mutants.edit_of(self.source, first, last, new)
            text = f"bug m{number} ours\n  A mutant.\n  in layer/a.cpp\n" + "\n".join(lines) + "\n"
            edits = plant.parse_edits("room.edits", text)
            edits[0].number = 1000
            copy = plant.plant({"room": edits}, {"layer/a.cpp": SOURCE})["layer/a.cpp"]
            self.assertIn("none_of<1000>", copy)

    def test_a_change_that_has_no_place_of_its_own_is_left_out(self):
        again = plant.Source("layer/a.cpp", "void f() {\n" + "  go(1);\n" * 40 + "}\n")
        middle = [index for index, text in enumerate(again.texts) if text == "1"][20]
        self.assertIsNone(mutants.edit_of(again, middle, middle + 1, "2"))

    def test_files_have_rooms_and_targets(self):
        for path in mutants.copied_files():
            room = mutants.room_of(path)
            self.assertTrue((mutants.PLANTED / f"{room}.edits").is_file(), path)

    def test_the_table_of_equivalent_mutants_can_be_read(self):
        for key in mutants.equivalent_mutants():
            self.assertEqual(len(key), 4)
            self.assertTrue((plant.ROOT / key[0]).is_file(), key[0])


if __name__ == "__main__":
    unittest.main()
