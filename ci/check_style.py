#!/usr/bin/env python3
"""Checks what compilers and formatters do not: muted tests, paths of one machine, stale paths in
documents, and the like. RULES lists the rules, each a function from a file to its findings.

If a rule is wrong about a file, fix the rule; there is no comment that switches one off.
Exit codes: 0 clean, 1 not.
"""

import pathlib
import re
import sys

from tree import Finding, main, read_text

# Data, not prose: kept byte by byte as received, or malformed on purpose.
DATA = (".jsonl", ".kvs", ".bin")
DATA_FOLDERS = ("fuzz/corpus/",)
CPP = (".h", ".cpp", ".cu", ".cuh")
# The text of the licence is not ours.
QUOTED = ("LICENSE",)


class Source:
    """One file as the rules see it; `root` and `files` for rules that need other files."""

    def __init__(self, root, files, path, text):
        self.root, self.files, self.path, self.text = root, files, path, text
        self.lines = text.splitlines()
        self.suffix = pathlib.Path(path).suffix
        self.is_data = self.suffix in DATA or path.startswith(DATA_FOLDERS)
        self.is_cpp = self.suffix in CPP
        self.is_header = self.suffix in (".h", ".cuh")
        self.is_python = self.suffix == ".py"
        self.is_cmake = self.suffix == ".cmake" or path.endswith("CMakeLists.txt")
        self.is_shell = self.suffix == ".sh" or text.startswith(("#!/usr/bin/env bash", "#!/bin/sh"))
        self.is_code = self.is_cpp or self.is_python or self.is_cmake or self.is_shell


RULES = {}


def rule(name):
    """Registers a function from a Source to pairs (line, message) as the rule of this name."""
    def register(function):
        RULES[name] = function
        return function
    return register


def search(source, pattern, message):
    """(line, message) for each line with the pattern; `{}` in the message becomes the match."""
    for number, line in enumerate(source.lines, start=1):
        found = re.search(pattern, line)
        if found:
            yield number, message.format(found.group(0).strip())


@rule("ascii")
def ascii_only(source):
    if not source.is_data:
        yield from search(source, r"[^\x00-\x7f]", "'{}' is not ASCII")


# The patterns below are written so that they do not match themselves.
@rule("machine-path")
def machine_path(source):
    yield from search(source, r"(?<![\w.}*/])/(?:work|farm|home|root|tmp|Users)(?:/[\w.-]*|(?=[\s\"'`)]))",
                      "'{}' is a path of one machine")


@rule("commented-out-code")
def commented_out_code(source):
    if source.is_cpp:
        code = (r"(?:TEST|TEST_F|TEST_P|TYPED_TEST|RC_GTEST_PROP|RC_ASSERT|EXPECT_\w+|ASSERT_\w+|BENCHMARK)\s*\("
                r"|#\s*(?:include|if|define)\b|return\b[^.]*;$|[\w.\->]+(?:\(.*\)|\s[-+*/|&]?=\s.*);$|(?:if|for|while)\s*\(.*\{$")
        yield from search(source, rf"^\s*//(?!/)\s*(?:{code})", "'{}' is code in a comment")
        yield from search(source, r"^\s*#\s*if\s+0\b", "'{}' is code that never compiles")
    elif source.is_cmake:
        yield from search(source, r"^\s*#\s*(?:add_\w+|kvfence_add_\w+|target_\w+|set)\s*\([^)<]*\)?\s*$",
                          "'{}' is code in a comment")
    elif source.is_python:
        yield from search(source, r"^\s*#\s*(?:def \w+\(.*:|class \w+.*:|import \w+|assert .*[=<>]|return \w+\()",
                          "'{}' is code in a comment")


@rule("muted-test")
def muted_test(source):
    if source.is_code:
        yield from search(source, r"\bDISABLED_\w|\bDISABLED\s+(?:TRUE|ON|1)\b|@unittest\.(?:skip|expectedFailure)\b",
                          "'{}' mutes a test")


@rule("unfinished")
def unfinished(source):
    if not source.is_data:
        yield from search(source, r"\b(?:TO" r"DO|FIX" r"ME|XX" r"X|HA" r"CK)\b", "'{}': do it, or open an issue")


@rule("sleep")
def sleep(source):
    if source.is_cpp or source.is_python:
        yield from search(source, r"\b(?:sleep_(?:for|until)|[un](?:ano)?sleep)\b|\btime\.sleep\b|\bsleep\s*\(\d",
                          "'{}': wait for the event, not for time")


@rule("assert")
def plain_assert(source):
    if source.is_cpp:
        yield from search(source, r"(?<![\w.])assert\s*\(|<cassert>|<assert\.h>",
                          "'{}' vanishes under NDEBUG: KVFENCE_CHECK")


@rule("long-comment")
def long_comment(source):
    # clang-format does not format comments here: it would join their lists to paragraphs.
    if source.is_cpp:
        yield from search(source, r"^\s*//.{99,}$", "a comment of more than 100 columns")


# These name the words; the change log keeps what it said.
OWN_WORDS = ("ci/check_style.py", "ci/test_lint.py", "CHANGELOG.md")
# Words that are not used here: the word, lines in which it is allowed, what to write instead.
WORDS = (
    (r"\b(behind)\b", r"\b(left|leaves?|leaving|stays?|is|furthest) (\w+ )?behind\b|behind the tier's back", "after"),
    (r"\b((?:un)?told|tell(?:s|ing)?)\b", None, "reports, sends, notifies or shows"),
    (r"\b(babbl\w*|dear|ledgers?)\b", None, "malformed output, expensive, model"),
    (r"\b((?:one|once|twice|digits|ns|us|ms) an?) (?:block|call|entry|event|group|hash|interval|job|key|layer"
     r"|page|rank|request|round|slot|step|token)\b(?! (?:earlier|of the))", None, "per"),
)


@rule("plain-words")
def plain_words(source):
    # Of data, what was written by hand: the comments of scenarios.
    is_scenario = source.path.startswith("scenarios/cases/")
    if source.path in OWN_WORDS or (source.is_data and not is_scenario):
        return
    for number, line in enumerate(source.lines, start=1):
        if is_scenario and not line.startswith("#"):
            continue
        for word, exception, instead in WORDS:
            found = re.search(word, line, re.IGNORECASE)
            if found and not (exception and re.search(exception, line, re.IGNORECASE)):
                yield number, f"'{found.group(1)}' is not a word of this house: {instead}"


@rule("trailing-space")
def trailing_space(source):
    if not source.is_data:
        yield from search(source, r"[ \t]+$", "space at the end of the line")


@rule("tab")
def tab(source):
    if source.is_code or source.suffix == ".md":
        yield from search(source, r"\t", "a tab")


@rule("final-newline")
def final_newline(source):
    if not source.is_data and source.text and (not source.text.endswith("\n") or source.text.endswith("\n\n")):
        yield max(len(source.lines), 1), "a file ends with exactly one newline"


@rule("pragma-once")
def pragma_once(source):
    if source.is_header and "#pragma once" not in source.lines[:3]:
        yield 1, "a header opens with #pragma once"


@rule("header-comment")
def header_comment(source):
    """Says what the header is for, before its first include."""
    if source.is_header:
        opening = [line for line in source.lines if line.strip() and line != "#pragma once"][:1]
        if not opening or not opening[0].startswith("//"):
            yield 1, "a header says first what it is, in a comment"


# The runtime API that builds without the CUDA toolkit declare. Builds with it would accept anything else, too.
DECLARATIONS = "cuda/virtual/declarations/cuda_runtime_api.h"
RUNTIME_NAME = re.compile(r"\bcuda[A-Z]\w*")


@rule("undeclared-runtime-name")
def undeclared_runtime_name(source):
    """Only the toolkit's compiler compiles kernels; all other code has to build without it."""
    if not source.is_cpp or source.suffix in (".cu", ".cuh") or source.path == DECLARATIONS:
        return
    declarations = source.root / DECLARATIONS
    known = set(RUNTIME_NAME.findall(declarations.read_text())) if declarations.exists() else set()
    for number, line in enumerate(source.lines, start=1):
        code = line.split("//")[0]
        for name in RUNTIME_NAME.findall(code):
            if name not in known:
                yield number, f"{name} is not in {DECLARATIONS}"
        header = re.search(r"#\s*include\s*<(cuda\w*\.h|device_\w+\.h|driver_types\.h)>", code)
        if header and header.group(1) != "cuda_runtime_api.h":
            yield number, f"<{header.group(1)}> is the toolkit's alone: include <cuda_runtime_api.h>"


MARKDOWN_LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
CODE_SPAN = re.compile(r"`([^`]+)`")
PATH_WORD = re.compile(r"^[\w.-]+(?:/[\w.-]+)*/?$")


@rule("stale-path")
def stale_path(source):
    """A link, or a path in backquotes, to no file. A path in backquotes is a word that starts with a
    folder of the repository, or a bare name with an ending of C++."""
    if source.suffix != ".md":
        return
    here = pathlib.Path(source.path).parent
    top = {path.split("/")[0] for path in source.files if "/" in path}
    names = {pathlib.Path(path).name for path in source.files}
    fenced = False
    for number, line in enumerate(source.lines, start=1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        if fenced:
            continue
        for target in MARKDOWN_LINK.findall(line):
            if "://" not in target and not (source.root / here / target).exists():
                yield number, f"the link goes to {target}, which does not exist"
        for word in (word for span in CODE_SPAN.findall(line) for word in span.split()):
            if not PATH_WORD.match(word):
                continue
            if "/" in word:
                roots = (source.root, source.root / here)
                if word.split("/")[0] in top and not any((root / word).exists() for root in roots):
                    yield number, f"{word} does not exist"
            elif word.endswith(CPP) and word not in names and word not in CPP:
                yield number, f"no file is named {word}"


def check_file(source):
    return [Finding(source.path, line, name, message)
            for name, function in RULES.items() for line, message in function(source)]


def check(root, files):
    findings = []
    for path in files:
        text = read_text(root / path)
        if text is not None and path not in QUOTED:
            findings += check_file(Source(root, files, path, text))
    return findings


if __name__ == "__main__":
    sys.exit(main(check, "style"))
