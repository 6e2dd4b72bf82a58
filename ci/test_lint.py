#!/usr/bin/env python3
"""Tests of the lint scripts: each rule flags a bad sample and accepts a good one.

The bad samples are assembled from parts, so that this file itself is clean.
"""

import os
import pathlib
import subprocess
import tempfile
import unittest

import check_layers
import check_style
import tree

CI = pathlib.Path(__file__).resolve().parent
SLASH = "/"

# rule: (path, text that breaks it, text that does not).
HEADER = "#pragma once\n\n/// What it is.\n"
STYLE_SAMPLES = {
    "ascii": [("a.cpp", "// caf\u00e9\n", "// cafe\n"), ("README.md", "a \u2192 b\n", "a -> b\n")],
    "machine-path": [
        ("a.cpp", f'open("{SLASH}work/main/x");\n', 'open("work/main/x");\n'),
        ("ci/x.sh", f"cd {SLASH}home/me\n", "cd $HOME/me\n"),
        ("a.md", f"see `{SLASH}tmp`\n", "see `build/tmp`\n"),
    ],
    "commented-out-code": [
        ("a_test.cpp", "// TEST" "(Pool, Frees) {\n", "// TEST names are behaviours.\n"),
        ("a.cpp", "  // pool.free(3);\n", "  // The pool frees block 3; the others stay.\n"),
        ("a.cpp", "  // size = 3;\n", "  // size = 3 would overflow.\n"),
        ("a.cpp", "// #include \"b.h\"\n", "// An include of b.h would be a cycle.\n"),
        ("a.cpp", "#if 0\n#endif\n", "#if KVFENCE_CUDA\n#endif\n"),
        ("x/CMakeLists.txt", "# add_test(a)\n", "# add_test(<name>): what it does\n"),
        ("a.py", "# def old(x):\n", "# def is a keyword\n"),
    ],
    "muted-test": [
        ("a_test.cpp", "TEST(Pool, DIS" "ABLED_Frees) {}\n", "TEST(Pool, Frees) {}\n"),
        ("x/CMakeLists.txt", "set_tests_properties(a PROPERTIES DIS" "ABLED TRUE)\n", "add_test(a b)\n"),
        ("a.py", "@unittest" ".skip('later')\n", "class A:\n    pass\n"),
    ],
    "unfinished": [("a.cpp", "// TO" "DO: free it\n", "// todos: none\n"), ("a.md", "FIX" "ME\n", "Fixed.\n")],
    "sleep": [
        ("a.cpp", "std::this_thread::sle" "ep_for(1s);\n", "condition.wait(lock);\n"),
        ("a.py", "time.sle" "ep(1)\n", "process.wait()\n"),
    ],
    "assert": [("a.cpp", "ass" "ert(x);\n", "static_assert(x);\nKVFENCE_CHECK(x);\n")],
    "long-comment": [("a.cpp", "// " + "x" * 98 + "\n", "// " + "x" * 97 + "\n")],
    "plain-words": [
        ("a.cpp", "// The block be" "hind it.\n", "// The block after it. Nothing is left be" "hind.\n"),
        ("a.md", "A worker te" "lls the scheduler.\n", "A worker reports to the scheduler.\n"),
        ("a.md", "One a" " request.\n", "One per request.\n"),
        ("scenarios/cases/a.kvs", "# It is to" "ld.\n", "finish request=told\n"),
    ],
    "trailing-space": [("a.cpp", "int a; \n", "int a;\n"), ("a.md", "text\t\n", "text\n")],
    "tab": [("a.cpp", "\tint a;\n", "  int a;\n")],
    "final-newline": [("a.cpp", "int a;", "int a;\n"), ("a.md", "a\n\n", "a\n")],
    "pragma-once": [("a.h", "/// What it is.\nint a;\n", HEADER)],
    "header-comment": [("a.h", "#pragma once\n#include <span>\n", HEADER), ("a.h", "#pragma once\n", HEADER)],
    "undeclared-runtime-name": [
        ("cuda/a.cpp", "cudaMallocAsync(p);\n", "cudaFree(p);  // not cudaFreeAsync\n"),
        ("cuda/a.h", "#include <cuda_runtime.h>\n", "#include <cuda_runtime_api.h>\n"),
        ("scenarios/a.cpp", "cudaFoo();\n", "kvfence_cudaFoo();\n"),
    ],
    "stale-path": [
        ("README.md", "[x](contract/gone.h)\n", "[x](contract/core/types.h#L3) and [y](https://example.org/z)\n"),
        ("README.md", "see `contract/gone.h`\n", "see `contract/core/types.h` and `contract/`\n"),
        ("contract/README.md", "see `gone.h`\n", "see `types.h`, `vllm/v1/gone.py`\n"),
    ],
}

# rule: (path, include that breaks it, include that does not).
LAYER_SAMPLES = {
    "layer": [
        ("optimized/a.cpp", '"planted/optimized/pool.h"', '"optimized/pool.h"'),
        ("optimized/a.cpp", '"properties/planted/switches.h"', '"optimized/pool.h"'),
        ("optimized/b_test.cpp", '"properties/core/lockstep.h"', '"properties/planted/switches.h"'),
        ("optimized/a_test.cpp", '"planted/reference/pool.h"', '"planted/optimized/pool.h"'),
        ("contract/a.h", '"reference/pool.h"', '"contract/core/types.h"'),
        ("reference/a.h", '"optimized/pool.h"', '"reference/pool.h"'),
        ("optimized/a_test.cpp", '"reference/pool.h"', '"optimized/pool.h"'),
        ("optimized/a_test.cpp", '"properties/core/lockstep.h"', '"contract/core/types.h"'),
        ("cuda/a.cu", '"optimized/pool.h"', '"contract/core/types.h"'),
        ("properties/a.h", '"reference/pool.h"', '"properties/core/lockstep.h"'),
        ("properties/a_test.cpp", '"optimized/pool.h"', '"contract/core/types.h"'),
        ("properties/a_prop_test.cpp", '"scenarios/run.h"', '"optimized/pool.h"'),
        ("properties/a.h", '"properties/core/prop_test_support.h"', '"properties/core/lockstep.h"'),
        ("properties/a_test.cpp", '"reference/pool.h"', '"scenarios/targets/targets.h"'),
        ("properties/core/prop_test_support.h", '"fuzz/decoder.h"', '"scenarios/targets/targets.h"'),
        ("properties/bench/a.cpp", '"fuzz/decoder.h"', '"reference/pool.h"'),
        ("fuzz/a.cpp", '"scenarios/run.h"', '"scenarios/targets/targets.h"'),
        ("properties/b.cpp", '"scenarios/targets/targets.h"', '"properties/core/lockstep.h"'),
        ("scenarios/a.cpp", '"fuzz/decoder.h"', '"properties/core/lockstep.h"'),
    ],
    "include-root": [("optimized/a.cpp", '"pool.h"', '"optimized/pool.h"'),
                     ("scenarios/examples/mine/a.cpp", '"pool.h"', '"a.cpp"')],
    "foreign-header-in-quotes": [("fuzz/a_test.cpp", '"gtest/gtest.h"', "<gtest/gtest.h>")],
    "own-header-in-angle-brackets": [("fuzz/a.cpp", "<contract/core/types.h>", '"contract/core/types.h"')],
    "standard-library-only": [
        ("contract/a.h", "<xxhash.h>", "<vector>"),
        ("optimized/a.cpp", "<CLI/CLI.hpp>", "<cstdint>"),
    ],
    "test-library-in-product": [
        ("reference/a.cpp", "<gtest/gtest.h>", "<map>"),
        ("scenarios/a.cpp", "<rapidcheck.h>", "<CLI/CLI.hpp>"),
    ],
    "source-included": [("reference/a_test.cpp", '"reference/pool.cpp"', '"reference/pool.h"')],
    "unknown-folder": [("src/a.cpp", "<vector>", None)],
    "component": [
        ("optimized/pool/a.h", '"optimized/scheduler/scheduler.h"', '"optimized/base/list.h"'),
        ("optimized/connectors/a.h", '"optimized/connectors/simple/worker.h"', '"optimized/base/list.h"'),
    ],
}


class WithTree(unittest.TestCase):
    """Runs on a small repository of empty files in a temporary folder."""

    FILES = ("contract/core/types.h", "reference/pool.h", "reference/pool.cpp", "optimized/pool.h",
             "properties/core/lockstep.h", "properties/planted/switches.h", "properties/core/prop_test_support.h", "fuzz/decoder.h", "scenarios/run.h",
             "scenarios/targets/targets.h", "optimized/base/list.h", "optimized/scheduler/scheduler.h",
             "optimized/connectors/simple/worker.h")

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.root = pathlib.Path(self.folder.name)
        for path in self.FILES:
            self.write(path, "")

    def write(self, path, text):
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text, encoding="utf-8")


class StyleTest(WithTree):
    def setUp(self):
        super().setUp()
        self.write(check_style.DECLARATIONS, "cudaError_t cudaFree(void* devPtr);\n")

    def rules_broken(self, path, text):
        source = check_style.Source(self.root, list(self.FILES), path, text)
        return {finding.rule for finding in check_style.check_file(source)}

    def test_every_rule_has_samples(self):
        self.assertEqual(set(check_style.RULES), set(STYLE_SAMPLES))

    def test_bad_samples_are_flagged_and_good_ones_are_not(self):
        for rule, samples in STYLE_SAMPLES.items():
            for path, bad, good in samples:
                with self.subTest(rule=rule, bad=bad):
                    self.assertIn(rule, self.rules_broken(path, bad))
                with self.subTest(rule=rule, good=good):
                    self.assertNotIn(rule, self.rules_broken(path, good))

    def test_kernels_may_use_all_of_the_toolkit(self):
        self.assertNotIn("undeclared-runtime-name", self.rules_broken("cuda/a.cu", "cudaLaunchKernel(f);\n"))

    def test_data_is_left_alone(self):
        self.assertEqual(set(), self.rules_broken("fuzz/corpus/line/x.txt", "caf\u00e9 \t"))

    def test_a_whole_tree_is_read_and_named(self):
        self.write("contract/bad.h", "int a;")
        found = check_style.check(self.root, ["contract/bad.h"])
        self.assertEqual({"pragma-once", "header-comment", "final-newline"}, {f.rule for f in found})
        self.assertTrue(str(found[0]).startswith("contract/bad.h:1: "))

    def test_exit_code(self):
        self.assertEqual(0, tree.report([], "nothing"))
        self.assertEqual(1, tree.report([tree.Finding("a", 1, "r", "m")], "one"))


class LayersTest(WithTree):
    def rules_broken(self, path, include):
        self.write(path, f"// A comment.\n#include {include}\n")
        return {finding.rule for finding in check_layers.check(self.root, [path])}

    def test_bad_includes_are_flagged_and_good_ones_are_not(self):
        for rule, samples in LAYER_SAMPLES.items():
            for path, bad, good in samples:
                with self.subTest(rule=rule, path=path, bad=bad):
                    self.assertEqual({rule}, self.rules_broken(path, bad))
                if good:
                    with self.subTest(rule=rule, path=path, good=good):
                        self.assertEqual(set(), self.rules_broken(path, good))

    def test_every_layer_is_covered(self):
        covered = {path.split("/")[0] for path, _, _ in LAYER_SAMPLES["layer"]}
        self.assertEqual(set(check_layers.LAYERS), covered)


class TreeTest(WithTree):
    def test_without_git_build_folders_are_left_out(self):
        self.write("build/dev/x.cpp", "")
        self.assertEqual(sorted(self.FILES), tree.project_files(self.root))

    def test_the_repository_itself_is_found(self):
        self.assertIn("ci/test_lint.py", tree.project_files())

    def test_a_corpus_of_bytes_is_no_text(self):
        (self.root / "x").write_bytes(b"\xff\x00")
        self.assertIsNone(tree.read_text(self.root / "x"))


class FormatTest(WithTree):
    """Uses a fake clang-format, so that the results are the same on every machine."""

    def run_with(self, version, verdict):
        stand_in = self.root / "bin" / "clang-format"
        self.write("bin/clang-format", "#!/bin/sh\n"
                   f'[ "$1" = --version ] && echo "Debian clang-format version {version}" || exit {verdict}\n')
        stand_in.chmod(0o755)
        path = f"{stand_in.parent}:{os.environ['PATH']}"
        return subprocess.run([str(CI / "check_format.sh")], env={**os.environ, "PATH": path},
                              capture_output=True, text=True, check=False)

    def test_a_badly_laid_out_file_fails(self):
        self.assertEqual(1, self.run_with("14.0.6", 1).returncode)

    def test_well_laid_out_files_pass(self):
        self.assertEqual(0, self.run_with("14.0.6", 0).returncode)

    def test_another_version_is_a_skip_that_says_so(self):
        done = self.run_with("18.1.3", 0)
        self.assertEqual((77, True), (done.returncode, "found 18" in done.stdout))


class ShellTest(unittest.TestCase):
    def test_every_shell_script_parses(self):
        scripts = [path for path in tree.project_files()
                   if (tree.read_text(tree.ROOT / path) or "").startswith("#!/usr/bin/env bash")]
        self.assertIn("ci/test", scripts)
        for path in scripts + ["ci/lib.sh"]:
            with self.subTest(path=path):
                done = subprocess.run(["bash", "-n", str(tree.ROOT / path)], capture_output=True, check=False)
                self.assertEqual((0, b""), (done.returncode, done.stderr))

    def test_help_is_shown_and_nothing_is_run(self):
        scripts = [path for path in sorted((tree.ROOT / "ci").iterdir())
                   if path.is_file() and '/lib.sh"\n' in path.read_text() and path.name != "test_lint.py"]
        self.assertGreater(len(scripts), 5)
        for path in scripts:
            with self.subTest(path=path.name):
                done = subprocess.run([path, "--help"], capture_output=True, text=True, timeout=5, check=False)
                self.assertEqual((0, ""), (done.returncode, done.stderr))
                self.assertIn(f"\n  ci/{path.name}", done.stdout)
                self.assertNotIn("lib.sh", done.stdout)


if __name__ == "__main__":
    unittest.main()
