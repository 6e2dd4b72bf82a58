#!/usr/bin/env python3
"""Tests of ci/sum_results.py: what counts as passed, failed and skipped, and that nothing is missed."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

import sum_results

PASSED = '<testcase name="{}" status="run"><system-out>{}</system-out></testcase>'
FAILED = '<testcase name="{}" status="fail"><failure message="no"/><system-out>{}</system-out></testcase>'
SKIPPED = '<testcase name="{}" status="notrun"><skipped message="SKIP_RETURN_CODE=77"/></testcase>'
NOT_FOUND = '<testcase name="{}" status="notrun"><skipped message="Unable to find executable"/></testcase>'


class SumResultsTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.results = pathlib.Path(folder.name)
        self.expected = self.results / "expected.txt"
        self.expected.write_text("")

    def junit(self, *cases, build="release"):
        (self.results / f"{build}.xml").write_text(f"<testsuite>{''.join(cases)}</testsuite>")

    def sum(self, holds=True):
        outcomes = sum_results.sum_results(self.results, self.expected, {"here": lambda: holds})
        return len(outcomes.passed), len(outcomes.failed), len(outcomes.skipped)

    def test_builds_and_gates_add_up(self):
        self.junit(PASSED.format("a", ""), PASSED.format("b", ""))
        self.junit(PASSED.format("a", ""), FAILED.format("b", "why"), build="asan")
        (self.results / "gates.txt").write_text("headers passed\nfuzz failed\n")
        self.assertEqual((4, 2, 0), self.sum())

    def test_a_program_that_is_missing_failed(self):
        self.junit(PASSED.format("a", ""), NOT_FOUND.format("b"))
        self.assertEqual((1, 1, 0), self.sum())

    def test_a_run_without_tests_failed(self):
        self.junit()
        self.assertEqual((0, 1, 0), self.sum())

    def test_an_unexpected_skip_failed(self):
        self.junit(PASSED.format("a", ""), SKIPPED.format("b"))
        self.assertEqual((1, 1, 0), self.sum())

    def test_an_expected_skip_is_one(self):
        self.junit(PASSED.format("a", ""), SKIPPED.format("b"))
        self.expected.write_text("# why\n\nrelease/b here because\n")
        self.assertEqual((1, 0, 1), self.sum())
        self.assertEqual((1, 1, 0), self.sum(holds=False))

    def test_an_expected_skip_that_ran_failed(self):
        self.junit(PASSED.format("b", ""))
        self.expected.write_text("release/b here because\n")
        self.assertEqual((1, 1, 0), self.sum())
        self.assertEqual((1, 0, 0), self.sum(holds=False))

    def test_a_skip_inside_a_program_does_not_hide(self):
        output = "[  SKIPPED ] Pool.Frees (0 ms)\n[  SKIPPED ] 1 test, listed below:\n[  SKIPPED ] Pool.Frees\n"
        self.junit(PASSED.format("pool_test", output))
        self.assertEqual((1, 1, 0), self.sum())
        self.expected.write_text("release/pool_test/Pool.Frees here because\n")
        self.assertEqual((1, 0, 1), self.sum())

    def test_a_gate_that_skipped_is_judged_alike(self):
        (self.results / "gates.txt").write_text("headers passed\nfuzz_smoke skipped\n")
        self.assertEqual((1, 1, 0), self.sum())

    def test_malformed_input_is_named(self):
        self.expected.write_text("release/b nowhere because\n")
        with self.assertRaisesRegex(ValueError, "expected.txt:1: expected name, condition"):
            self.sum()
        (self.results / "gates.txt").write_text("headers perhaps\n")
        with self.assertRaisesRegex(ValueError, "found 'perhaps'"):
            self.sum()

    def test_the_committed_list_is_read(self):
        committed = pathlib.Path(sum_results.__file__).with_name("expected_skips.txt")
        sum_results.read_expected_skips(committed, sum_results.CONDITIONS)

    def test_the_last_line_and_the_exit_code(self):
        for cases, line, code in (
            ([PASSED.format("a", "")], "1 passed, 0 failed, 0 skipped", 0),
            ([FAILED.format("a", "why")], "0 passed, 1 failed, 0 skipped", 1),
        ):
            self.junit(*cases)
            done = subprocess.run(
                [sys.executable, "-B", sum_results.__file__, str(self.results), str(self.expected)],
                capture_output=True, text=True, check=False)
            self.assertEqual((line, code), (done.stdout.splitlines()[-1], done.returncode))


if __name__ == "__main__":
    unittest.main()
