#!/usr/bin/env python3
"""Tests of ci/coverage: how it reads an export of llvm-cov. The samples are as clang 14 writes them."""

import importlib.machinery
import importlib.util
import pathlib
import subprocess
import sys
import unittest

COVERAGE = pathlib.Path(__file__).resolve().parent / "coverage"
LOADER = importlib.machinery.SourceFileLoader("coverage", str(COVERAGE))
coverage = importlib.util.module_from_spec(importlib.util.spec_from_loader("coverage", LOADER))
LOADER.exec_module(coverage)

TEXT = """\
#include "a.h"
#include <string>
// Never called.
int unused(int value) {
  return value + 1;
}
int choose(int value) {
  switch (value) {
    case 1:
      return 10;
    case 2:
      return 20;
    default:
      break;
  }
  if (value > 100) {
    value += 1;
    value += 2;
  } else {
    value = 0;
  }
  return value > 3 ? value : 2;
}
"""
SEGMENTS = [
    [4, 23, 0, True, True, False], [6, 2, 0, False, False, False], [7, 23, 2, True, True, False],
    [8, 18, 0, True, False, True], [9, 5, 0, True, True, False], [10, 16, 0, True, False, True],
    [11, 5, 1, True, True, False], [12, 16, 0, True, False, True], [13, 5, 1, True, True, False],
    [14, 12, 2, True, False, False], [15, 4, 1, True, False, True], [16, 3, 1, True, True, False],
    [16, 7, 1, True, True, False], [16, 18, 1, True, False, False], [16, 19, 0, True, False, True],
    [16, 20, 0, True, True, False], [19, 4, 1, True, False, True], [19, 10, 1, True, True, False],
    [21, 4, 1, True, False, False], [22, 10, 1, True, True, False], [22, 19, 1, True, False, False],
    [22, 21, 0, True, False, True], [22, 22, 0, True, True, False], [22, 27, 1, True, False, False],
    [22, 30, 1, True, True, False], [22, 31, 2, True, False, False], [23, 2, 0, False, False, False],
]


def exported(*files):
    return {"data": [{"files": [{"filename": name, "segments": segments} for name, segments in files]}]}


class CoverageTest(unittest.TestCase):
    def setUp(self):
        self.segments = [coverage.Segment(*segment) for segment in SEGMENTS]

    def test_lines_count_as_llvm_cov_counts_them(self):
        lines = coverage.lines_of(self.segments)
        self.assertEqual(sorted(set(range(1, 24)) - set(lines)), [1, 2, 3])
        self.assertEqual([line for line, count in lines.items() if not count], [4, 5, 6, 9, 10, 17, 18])
        self.assertEqual(lines[8], 2)

    def test_pieces_that_never_ran_are_named(self):
        pieces = coverage.never_reached("optimized/a.cpp", self.segments, TEXT)
        self.assertEqual([(piece.first, piece.last, piece.text) for piece in pieces],
                         [(4, 5, "int unused(int value) {"), (9, 10, "case 1:"), (16, 18, "if (value > 100) {"),
                          (22, 22, "`value` of `return value > 3 ? value : 2;`")])

    def test_brackets_and_comments_are_no_piece(self):
        text = "int f() {\n  // nothing\n  break;\n}\n"
        segments = [coverage.Segment(1, 10, 0, True, True, False), coverage.Segment(4, 2, 0, False, False, False)]
        self.assertEqual([piece.text for piece in coverage.never_reached("a.cpp", segments, text)], [])
        self.assertEqual(len(coverage.never_reached("a.cpp", segments, text.replace("// nothing", "g();"))), 1)

    def test_the_product_alone_counts(self):
        root = pathlib.Path("/house")
        files = ["/house/optimized/pool/a.h", "/house/optimized/pool/a_test.cpp", "/house/properties/core/b.h",
                 "/house/build/planted/optimized/pool/a.h", "/usr/include/optimized/c.h", "/house/cuda/figures/d.cpp"]
        found = coverage.segments_of(exported(*((name, SEGMENTS) for name in files)), root)
        self.assertEqual(list(found), ["optimized/pool/a.h"])

    def test_the_table_has_rooms_sources_and_a_sum(self):
        lines = {"optimized/pool/a.h": {1: 3, 2: 0}, "optimized/pool/b.h": {5: 1}, "reference/pool/a.h": {1: 0}}
        rooms = coverage.table_of(lines, {"fuzz": {"optimized/pool/a.h": {1: 3, 2: 0}}, "traces": {"optimized/pool/b.h": {5: 1}}})
        self.assertEqual(list(rooms), ["optimized/pool", "reference/pool", "all"])
        self.assertEqual(rooms["optimized/pool"], {"lines": 3, "covered": 2, "fuzz": 1, "traces": 1})
        self.assertEqual(rooms["all"], {"lines": 4, "covered": 2, "fuzz": 1, "traces": 1})
        text = coverage.text_of(rooms, [coverage.Piece("optimized/pool/a.h", 2, 2, "return;")], ["fuzz", "traces"])
        self.assertIn("optimized/pool      3        2  66.7     1       1", text)
        self.assertIn("1 pieces that fuzz, traces never reach:\n  optimized/pool/a.h:2: return;", text)

    def test_bad_input(self):
        done = subprocess.run([sys.executable, "-B", str(COVERAGE), "--sources", "fuzz,luck"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 2)
        self.assertIn("expected a list of random, scenarios, traces, fuzz", done.stderr)


if __name__ == "__main__":
    unittest.main()
