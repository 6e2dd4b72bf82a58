#!/usr/bin/env python3
"""Tests of plant.py: the code of an edit, each way in which one is refused, and that the copies compile and run."""

import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

import plant

SOURCE = """#include "layer/a.h"

namespace kvfence::layer {

// A comment with braces {{ and text: return x;
int Counter::next(int x) {
  if (x > 3) return x;
  int y = x;  // kept
  y += 1;
  return y;
}

int Counter::last() const { return last_; }

Counter::Counter(int first) : first_(first), last_{first} { last_ = first; }

}  // namespace kvfence::layer
"""
HEADER = """#pragma once

namespace kvfence::layer {

class Counter {
 public:
  explicit Counter(int first);
  int next(int x);
  int last() const;
  int twice(int x) const { return 2 * x; }

 private:
  int first_ = 7;
  int last_;
};

}  // namespace kvfence::layer
"""


def planted(*edits, source=SOURCE):
    """The copies of both files under these edits, by path."""
    rooms = {"room": plant.parse_edits("room.edits", "\n".join(edits) + "\n")}
    for number, edit in enumerate(rooms["room"], start=1000):
        edit.number = number
    return plant.plant(rooms, {"layer/a.cpp": source, "layer/a.h": HEADER})


def bug(name, text, place="layer/a.cpp next"):
    return f"bug {name} ours\n  What it does.\n  in {place}\n{text}"


def tokens(text):
    """The text without directives, spaces and comments."""
    return " ".join(token.text for token in plant.tokens_of(text))


class WhatIsRefused(unittest.TestCase):
    """Each error names the edit, the place and the reason."""

    def refused(self, *edits):
        with self.assertRaises(plant.EditError) as caught:
            planted(*edits)
        return str(caught.exception)

    def test_a_text_that_is_not_there(self):
        message = self.refused(bug("missing", "- y += 2;"))
        self.assertIn("room.edits:3: error: bug missing: its text is not in layer/a.cpp next; line 9 has '1' where "
                      "the edit has '2'", message)

    def test_a_text_that_is_there_more_than_once(self):
        self.assertIn("its text is 3 times in layer/a.cpp, in lines 7, 10, 13",
                      self.refused(bug("often", "- return\n+ break", "layer/a.cpp")))

    def test_a_function_that_is_not_there(self):
        self.assertIn("layer/a.cpp has no function first", self.refused(bug("elsewhere", "- x\n+ y", "layer/a.cpp first")))

    def test_a_file_that_is_not_copied(self):
        self.assertIn("layer/b.cpp is not among", self.refused(bug("b", "- x\n+ y", "layer/b.cpp")))

    def test_no_change(self):
        self.assertIn("it changes nothing", self.refused(bug("same", "- y += 1;\n+ y +=  1;")))

    def test_an_insertion_without_context(self):
        self.assertIn("needs a line of context", self.refused(bug("nowhere", "+ y = 0;")))

    def test_brackets_that_differ(self):
        self.assertIn("its brackets differ", self.refused(bug("open", "- y += 1;\n+ { y += 1;")))

    def test_a_change_outside_of_functions_and_initializers(self):
        self.assertIn("in no function body and in no initializer",
                      self.refused(bug("type", "- int last_;\n+ long last_;", "layer/a.h")))

    def test_a_name_that_is_taken(self):
        self.assertIn("bug twin: the name is taken",
                      self.refused(bug("twin", "- y += 1;"), bug("twin", "- y += 1;")))

    def test_no_sentence_or_no_change(self):
        self.assertIn("a sentence and at least one change", self.refused("bug mute ours\n  in layer/a.cpp next\n- y += 1;"))
        self.assertIn("a sentence and at least one change", self.refused("bug idle ours\n  What it does."))

    def test_a_bug_without_a_thread(self):
        self.assertIn("room.edits:1: error: a bug has a name and a thread", self.refused("bug lonely\n  What it does."))

    def test_a_line_that_belongs_to_no_edit(self):
        self.assertIn("room.edits:1: error: not a line of an edit: y += 1;", self.refused("y += 1;"))

    def test_always_edits_that_cut_each_other(self):
        change = "\n  What it does.\n  in layer/a.cpp next\n- y += 1;\n+ y += 2;"
        self.assertIn("layer/a.cpp:9: error:", self.refused("always one" + change, "always two" + change))

    def test_every_wrong_edit_is_named_at_once(self):
        message = self.refused(bug("one", "- y += 2;"), bug("right", "- y += 1;"), bug("two", "- y += 3;"))
        self.assertIn("bug one", message)
        self.assertIn("bug two", message)
        self.assertNotIn("right", message)


class WhatAnEditBecomes(unittest.TestCase):
    def test_without_edits_a_copy_differs_in_its_names_alone(self):
        copy = planted()["layer/a.cpp"]
        self.assertEqual(copy, '#line 1 "layer/a.cpp"\n' + SOURCE.replace("kvfence::layer", "kvfence::planted::layer")
                         .replace('"layer/a.h"', '"planted/layer/a.h"'))

    def test_the_innermost_block_stands_sound_and_edited(self):
        copy = tokens(planted(bug("more", "- y += 1;\n+ y += 2;"))["layer/a.cpp"])
        sound = "if ( x > 3 ) return x ; int y = x ; y += 1 ; return y ;"
        self.assertIn(tokens("{ if (::kvfence::planted::none_of<1000>()) {") + f" {sound} }} else {{ "
                      + sound.replace("1", "2") + " } }", copy)

    def test_edits_that_overlap_are_branches_of_their_own(self):
        copy = tokens(planted(bug("one", "- y += 1;\n+ y += 2;"), bug("two", "- int y = x;\n- y += 1;\n+ int y = 0;"))
                      ["layer/a.cpp"])
        self.assertIn("none_of < 1000 , 1001 >", copy)
        self.assertIn("else if ( :: kvfence :: planted :: on < 1000 > ( ) ) { if ( x > 3 ) return x ; int y = x ; y += 2 ;",
                      copy)
        self.assertIn("else { if ( x > 3 ) return x ; int y = 0 ; return y ;", copy)

    def test_a_deleted_statement_leaves_its_semicolon(self):
        copy = tokens(planted(bug("endless", "- return x;"))["layer/a.cpp"])
        self.assertIn("if ( x > 3 ) ; int y", copy)

    def test_context_stays_as_it_is(self):
        copy = tokens(planted(bug("late", "  int y = x;\n+ y = 0;\n  y += 1;"))["layer/a.cpp"])
        self.assertIn("int y = x ; y = 0 ; y += 1 ;", copy)

    def test_an_initializer_is_switched_in_place(self):
        copy = tokens(planted(bug("start", "- first_(first)\n+ first_(0)", "layer/a.cpp Counter"))["layer/a.cpp"])
        self.assertIn(tokens("first_((::kvfence::planted::none_of<1000>() ? (first) : (0)))"), copy)

    def test_a_helper_in_a_class_needs_no_switch(self):
        copies = planted(bug("helped", "- return y;\n+ return zero();\n  in layer/a.h\n  int last() const;\n"
                             "+ int zero() const { return 0; }"))
        self.assertIn("int last ( ) const ; int zero ( ) const { return 0 ; }", tokens(copies["layer/a.h"]))
        self.assertNotIn("none_of", copies["layer/a.h"])

    def test_what_is_always_there_is_in_every_branch(self):
        copy = tokens(planted("always count\n  Counts.\n  in layer/a.cpp next\n+ ++calls;\n  if (x > 3)",
                              bug("more", "- y += 1;\n+ y += 2;"))["layer/a.cpp"])
        self.assertEqual(copy.count("++ calls ; if ( x > 3 )"), 2)

    def test_formatting_of_the_source_does_not_matter(self):
        source = SOURCE.replace("y += 1;", "y\n      +=  // by\n      1;")
        self.assertIn("y += 2 ;", tokens(planted(bug("more", "- y += 1;\n+ y += 2;"), source=source)["layer/a.cpp"]))

    def test_line_numbers_are_those_of_the_source_and_name_the_edit(self):
        copy = planted(bug("more", "- y += 1;\n+ y +=\n+   2;"))["layer/a.cpp"]
        file, number, places = "", 0, {}
        for line in copy.splitlines():
            directive = re.match(r'#line (\d+) "(.*)"', line)
            if directive:
                number, file = int(directive[1]), directive[2]
                continue
            places[file, number] = line
            number += 1
        lines = SOURCE.splitlines()
        for number in (6, 7, 8, 9):
            self.assertEqual(places["layer/a.cpp", number + 1], lines[number], number + 1)
        self.assertEqual(places["layer/a.cpp[more]", 8], lines[7])
        self.assertEqual(places["layer/a.cpp[more]", 9].split(), ["y", "+=", "2", ";"])
        self.assertEqual(places["layer/a.cpp[more]", 10], lines[9])
        self.assertEqual(places["layer/a.cpp", 13], lines[12])

    def test_the_table_lists_the_bugs_of_each_room(self):
        rooms = {"room": plant.parse_edits("room.edits", bug("one", "- y += 1;") + "\n\nalways two\n  Counts.\n"
                                           "  in layer/a.cpp\n- x\n")}
        rooms["room"][0].number = 1000
        table = plant.table_of(rooms)
        self.assertIn('{1000, "one", "What it does.", "ours", {}},', table)
        self.assertIn('if (room == "room") return k_room;', table)
        self.assertNotIn("two", table)

    def test_the_table_says_which_assemblies_list_a_bug(self):
        text = bug("one", "- y += 1;").replace("ours", "lib#1, other lib#2; also on_device multi")
        rooms = {"room": plant.parse_edits("room.edits", text)}
        self.assertIn('"lib#1, other lib#2", {"on_device", "multi"}},', plant.table_of(rooms))


class WhatBracesOpen(unittest.TestCase):
    """Only blocks of code are repeated."""

    def kinds(self, text):
        source = plant.Source("a.cpp", text)
        return [source.kind[brace] for brace in sorted(source.kind)]

    def test_scopes(self):
        self.assertEqual(self.kinds("namespace a { struct B final : C<int> { }; template <class T> class D { }; }"),
                         ["scope"] * 3)

    def test_functions(self):
        self.assertEqual(self.kinds("template <class T> int f(T a) { } auto g() -> std::vector<int> { }"), ["code"] * 2)
        self.assertEqual(self.kinds("A::A(int b) : c_{b}, d_(b) { } struct E { int h() const noexcept { } };"),
                         ["other", "code", "scope", "code"])

    def test_statements(self):
        self.assertEqual(self.kinds("void f() { if (a) { } else { } for (;;) { do { } while (b); } { } }"), ["code"] * 6)
        self.assertEqual(self.kinds("void f() { switch (a) { case 1: { } case 2: return { 3 }; } }"),
                         ["code", "switch", "code", "other"])

    def test_lambdas(self):
        self.assertEqual(self.kinds("void f() { g([this] { }, [=](int a) mutable -> bool { }); }"), ["code"] * 3)

    def test_initializers(self):
        self.assertEqual(self.kinds("int a[] = { 1 }; A b{2}; void f() { g({3}, B{4}); return {{5}}; }"),
                         ["other"] * 2 + ["code"] + ["other"] * 4)

    def test_raw_strings_and_characters_hold_no_braces(self):
        self.assertEqual(self.kinds("void f() { g(R\"x({)x\", \"{\", '{'); /* { */ }"), ["code"])


@unittest.skipUnless(shutil.which("c++"), "needs a compiler")
class WhatRuns(unittest.TestCase):
    def test_one_program_runs_sound_and_with_each_edit(self):
        copies = planted(bug("more", "- y += 1;\n+ y += 2;"), bug("start", "- first_(first)\n+ first_(0)",
                                                                "layer/a.cpp Counter"),
                         bug("none", "- return 2 * x;\n+ return x;", "layer/a.h twice"))
        program = """#include "planted/layer/a.h"
#include "properties/planted/switches.h"
#include <cstdio>
int main() {
  for (int bug : {0, 1000, 1001, 1002}) {
    kvfence::planted::plant(bug);
    kvfence::planted::layer::Counter counter(5);
    std::printf("%d %d %d\\n", counter.next(1), counter.first(), counter.twice(4));
  }
}
"""
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for path, text in copies.items():
                plant.write(root / "planted" / path, text.replace(" private:", " int first() const { return first_; }"))
            (root / "main.cpp").write_text(program, encoding="utf-8")
            subprocess.run(["c++", "-std=c++20", "-w", f"-I{root}", f"-I{plant.ROOT}", root / "main.cpp",
                            root / "planted/layer/a.cpp", "-o", root / "main"], check=True)
            printed = subprocess.run([root / "main"], check=True, capture_output=True, text=True).stdout
        self.assertEqual(printed.splitlines(), ["2 5 8", "3 5 8", "2 0 8", "2 5 4"])

    def test_the_copy_of_a_part_uses_the_rest_of_its_layer(self):
        rest = "#pragma once\nnamespace kvfence { struct T {}; }\nnamespace kvfence::layer { struct T { int x = 1; }; }\n"
        part = """#pragma once
#include "layer/rest.h"
namespace kvfence::layer { inline int f(T t) { return t.x; } }
"""
        rooms = {"room": plant.parse_edits("room.edits", "bug b ours\n  Twice.\n  in layer/part.h f\n- t.x\n+ 2 * t.x\n")}
        rooms["room"][0].number = 1000
        program = """#include "layer/part.h"
#include "planted/layer/part.h"
#include <cstdio>
int main() {
  kvfence::planted::plant(1000);
  std::printf("%d %d\\n", kvfence::layer::f({}), kvfence::planted::layer::f({}));
}
"""
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for path, text in {"layer/rest.h": rest, "layer/part.h": part, "main.cpp": program}.items():
                plant.write(root / path, text)
            for path, text in plant.plant(rooms, {"layer/part.h": part}, is_part=True).items():
                plant.write(root / "planted" / path, text)
            subprocess.run(["c++", "-std=c++20", "-w", f"-I{root}", f"-I{plant.ROOT}", root / "main.cpp",
                            "-o", root / "main"], check=True)
            printed = subprocess.run([root / "main"], check=True, capture_output=True, text=True).stdout
        self.assertEqual(printed, "1 2\n")


if __name__ == "__main__":
    unittest.main()
