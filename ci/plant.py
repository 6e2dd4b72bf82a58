#!/usr/bin/env python3
"""Writes the instrumented copy of product sources: every planted bug at once, one switch each.

    plant.py --out DIR --edits ROOM.edits... --files FILE... [--part] [--table FILE]

A bug is an edit of the text of a source (properties/planted/README.md has the format). A copy of
<layer>/<path> goes to DIR/planted/<layer>/<path>, in namespace kvfence::planted::<layer>. With --part the other files of
the layer are not copied: the namespace of the copy is inside the layer's, so that their names are found, and
kvfence::planted::<layer> is an alias of it. The copy contains the innermost block around an edit once per edit and once
unchanged, in the branches of an if on the switch:

    {if (::kvfence::planted::none_of<7, 9>()) {sound text} else if (::kvfence::planted::on<7>()) {...} else {...}}

Each branch has one edit, so edits may overlap. Edits of the kind "always" have no switch: they count operations, and
bound loops that would not end in a broken structure. --table writes the list of all bugs as C++.

An edit has to match exactly once, by C++ tokens; else nothing is written, and each such edit is reported.
Exit codes: 0 written, 1 an edit is wrong.
"""

import argparse
import dataclasses
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
SWITCHES = "properties/planted/switches.h"
IDS_PER_ROOM = 1000

TOKEN = re.compile(r"""
    (?P<directive>^[ \t]*\#(?:\\.|[^\n\\])*)
  | (?P<space>[ \t\r]*\n|[ \t\r\f]+|//[^\n]*|/\*.*?\*/)
  | (?:u8|[uUL])?R"(?P<mark>[^()\\\s]*)\(.*?\)(?P=mark)"
  | (?:u8|[uUL])?"(?:\\.|[^"\\\n])*"
  | '(?:\\.|[^'\\\n])+'
  | \.?[0-9](?:[eEpP][-+]|'(?=\w)|[\w.])*
  | [A-Za-z_]\w*
  | <=>|->\*|\.\.\.|::|->|\+\+|--|&&|\|\||[-+*/%&|^=!<>]=
  | .
""", re.VERBOSE | re.DOTALL | re.MULTILINE)
WORD = re.compile(r"[A-Za-z_]\w*\Z")
CLOSER_OF = {"(": ")", "[": "]", "{": "}"}
CONTROL = {"if", "for", "while", "catch", "constexpr"}
AFTER_PARAMETERS = {"const", "noexcept", "override", "final", "mutable", "&", "&&"}

HEAD = re.compile(r"(bug|always) ([a-z][a-z0-9_]*)(?: (\S[^;]*)(?:; also ([a-z_ ]+))?)?\Z")
PART = re.compile(r"  in (\S+\.(?:h|cpp))(?: (\S+))?\Z")


class EditError(Exception):
    """An edit that cannot be planted, with its place and name."""


@dataclasses.dataclass(frozen=True)
class Token:
    text: str
    start: int
    end: int


def tokens_of(text):
    return [Token(match.group(), match.start(), match.end()) for match in TOKEN.finditer(text)
            if match.lastgroup not in ("directive", "space")]


@dataclasses.dataclass
class Part:
    """One change of one file, and its place: the tokens [first, last) become the text."""

    path: str
    function: str
    line: int
    old: str = ""
    new: str = ""
    first: int = 0
    last: int = 0
    text: str = ""


@dataclasses.dataclass
class Edit:
    kind: str
    name: str
    thread: str
    room: str
    where: str
    number: int = 0
    doc: str = ""
    parts: list = dataclasses.field(default_factory=list)
    also_of: tuple = ()

    def error(self, reason, part=None):
        place = f"{self.where}:{part.line}" if part else self.where
        return EditError(f"{place}: error: {self.kind} {self.name}: {reason}")


def parse_edits(path, text):
    """The edits of one file, which has the name of the room."""
    room = pathlib.PurePath(path).stem
    edits = []
    for number, line in enumerate(text.splitlines(), start=1):
        where = f"{path}:{number}"
        if not line.strip() or line.startswith("#"):
            continue
        head, part = HEAD.match(line), PART.match(line)
        if head:
            kind, name, thread, also_of = head.groups()
            if (kind == "bug") != (thread is not None):
                raise EditError(f"{where}: error: a bug has a name and a thread, an always edit a name: {line}")
            if any(edit.name == name for edit in edits):
                raise EditError(f"{where}: error: {kind} {name}: the name is taken")
            edits.append(Edit(kind, name, thread or "", room, path, also_of=tuple((also_of or "").split())))
            continue
        edit = edits[-1] if edits else None
        if edit and part:
            edit.parts.append(Part(*part.groups(), number))
        elif edit and edit.parts and line[0] in "-+" or edit and edit.parts and line.startswith("  "):
            code = line[1:] + "\n"
            edit.parts[-1].old += code if line[0] != "+" else ""
            edit.parts[-1].new += code if line[0] != "-" else ""
        elif edit and line.startswith("  "):
            edit.doc = f"{edit.doc} {line.strip()}".strip()
        else:
            raise EditError(f"{where}: error: not a line of an edit: {line}")
    for edit in edits:
        if not edit.doc or not edit.parts:
            raise edit.error("an edit has a sentence and at least one change")
    return edits


class Source:
    """A source as tokens, with the kind of each brace."""

    def __init__(self, path, text):
        self.path = path
        self.text = text
        self.tokens = tokens_of(text)
        self.texts = [token.text for token in self.tokens]
        self.partner = self._match_brackets()
        self.kind = {}    # '{' -> code, scope, switch, other
        self.parent = {}  # '{' -> the brace around it, or None
        self.functions = {}  # name -> [(first, last)]
        around = []
        for index, text_of in enumerate(self.texts):
            if text_of == "{":
                self.parent[index] = around[-1] if around else None
                self.kind[index] = self._kind_of(index)
                around.append(index)
            elif text_of == "}" and around:
                around.pop()

    def line_of(self, offset):
        return self.text.count("\n", 0, offset) + 1

    def _match_brackets(self):
        partner, stack = {}, []
        for index, text in enumerate(self.texts):
            if text in CLOSER_OF:
                stack.append(index)
            elif text in CLOSER_OF.values() and stack and CLOSER_OF[self.texts[stack[-1]]] == text:
                partner[index] = stack.pop()
                partner[partner[index]] = index
        return partner

    def _head_of(self, brace):
        """The tokens of the declaration or statement before a brace, without those in brackets."""
        head, index = [], brace - 1
        while index >= 0:
            text = self.texts[index]
            if text in (")", "]") or text == "}" and self.kind.get(self.partner.get(index)) == "other":
                head.append(index)
                index = self.partner.get(index, 0)
            elif text in (";", "{", "}", "(", "[") or text == ":" and self.texts[index - 1] in (
                    "public", "private", "protected"):
                break
            head.append(index)
            index -= 1
        head.reverse()
        if head and self.texts[head[0]] == "template":
            depth = 0
            for place, index in enumerate(head):
                depth += {"<": 1, ">": -1}.get(self.texts[index], 0)
                if place > 0 and depth == 0:
                    return head[place + 1:]
        return head

    def _kind_of(self, brace):
        head = self._head_of(brace)
        words = [self.texts[index] for index in head]
        before = self.texts[brace - 1] if brace > 0 else ";"
        parent = self.kind.get(self.parent[brace], "scope")
        if words[:1] == ["namespace"] or words[:2] == ["inline", "namespace"] or words[:1] == ["extern"] and (
                before.startswith('"')):
            return "scope"
        if words[:1] in (["class"], ["struct"], ["union"]) and before != ")":
            return "scope"
        if before in ("else", "do", "try"):
            return "code"
        if before == ")":
            opener = self.partner.get(brace - 1, 0)
            called = self.texts[opener - 1] if opener > 0 else ""
            if called in ("switch", "requires"):
                return "switch" if called == "switch" else "other"
            return self._function(brace, head) if parent == "scope" and called not in CONTROL else "code"
        after_parameters = any(text == "->" and words[place - 1] in (")", "mutable", "noexcept", "const")
                               for place, text in enumerate(words) if place > 0)
        if before in AFTER_PARAMETERS and ")" in words or after_parameters:
            return self._function(brace, head) if parent == "scope" else "code"
        if before == "]":
            opener = self.partner.get(brace - 1, 0)
            array = WORD.match(self.texts[opener - 1]) and self.texts[opener - 1] != "return"
            return "other" if array or self.texts[opener - 1] in (")", "]") else "code"
        if before == "}" and parent == "scope" and ")" in words:
            return self._function(brace, head)  # after the last braced initializer of a constructor
        return "code" if before in (";", "{", "}", ":") and parent in ("code", "switch") else "other"

    def _function(self, brace, head):
        for place, index in enumerate(head):
            if self.texts[index] == "(" and place > 0 and WORD.match(self.texts[head[place - 1]]):
                self.functions.setdefault(self.texts[head[place - 1]], []).append((head[0], self.partner[brace]))
                break
        return "code"

    def host_of(self, first, last):
        """The brace of the innermost block of code around a range; None at the scope of a class or namespace."""
        around = [brace for brace, kind in self.kind.items()
                  if kind == "code" and brace < first and last <= self.partner.get(brace, -1)]
        return max(around, default=None)

    def expression_around(self, first, last):
        """The tokens of the argument or initializer that a range is in; None if it is in none."""
        index = first - 1
        while index >= 0 and self.texts[index] not in ("(", "{", ",", "="):
            if self.texts[index] in (";", "}"):
                return None
            index = self.partner[index] - 1 if self.texts[index] in (")", "]") else index - 1
        end = last
        while end < len(self.texts) and self.texts[end] not in (")", "}", ",", ";"):
            end = self.partner[end] + 1 if self.texts[end] in CLOSER_OF else end + 1
        return (index + 1, end) if index >= 0 and index + 1 < end < len(self.texts) else None


def open_brackets(texts):
    """The brackets that a text closes without opening them, and opens without closing them."""
    left = []
    for text in texts:
        if left and CLOSER_OF.get(left[-1]) == text:
            left.pop()
        elif text in CLOSER_OF or text in CLOSER_OF.values():
            left.append(text)
    return left


def one_line(text):
    """The tokens of a text with single spaces between separated ones."""
    result, end = "", None
    for token in tokens_of(text):
        result += (" " if end is not None and token.start > end else "") + token.text
        end = token.end
    return result


def locate(edit, part, sources):
    """Finds where a part applies, and which tokens it replaces by which text."""
    source = sources.get(part.path)
    if source is None:
        raise edit.error(f"{part.path} is not among the copied files", part)
    old, new = tokens_of(part.old), tokens_of(part.new)
    wanted, given = [token.text for token in old], [token.text for token in new]
    if not wanted:
        raise edit.error("what is inserted needs a line of context", part)
    if wanted == given:
        raise edit.error("it changes nothing", part)
    ranges = [(0, len(source.texts))]
    if part.function:
        ranges = source.functions.get(part.function)
        if not ranges:
            raise edit.error(f"{part.path} has no function {part.function}", part)
    found, longest, at = [], 0, 0
    for low, high in ranges:
        for start in range(low, high + 1):
            length = 0
            while length < len(wanted) and source.texts[start + length:start + length + 1] == wanted[length:length + 1]:
                length += 1
            if length == len(wanted) and start + length <= high + 1:
                found.append(start)
            if length > longest:
                longest, at = length, start
    place = part.path + (f" {part.function}" if part.function else "")
    lines = [str(source.line_of(source.tokens[start].start)) for start in found]
    if len(found) > 1:
        raise edit.error(f"its text is {len(found)} times in {place}, in lines {', '.join(lines)}", part)
    if not found:
        hint = ""
        if longest:
            stop = source.tokens[min(at + longest, len(source.tokens) - 1)]
            hint = (f"; line {source.line_of(stop.start)} has '{stop.text}' where the edit has "
                    f"'{wanted[longest]}'")
        raise edit.error(f"its text is not in {place}{hint}", part)
    prefix = 0
    while prefix < min(len(wanted), len(given)) and wanted[prefix] == given[prefix]:
        prefix += 1
    suffix = 0
    while suffix < min(len(wanted), len(given)) - prefix and wanted[-1 - suffix] == given[-1 - suffix]:
        suffix += 1
    part.first, part.last = found[0] + prefix, found[0] + len(wanted) - suffix
    removed, added = wanted[prefix:len(wanted) - suffix], new[prefix:len(new) - suffix]
    if open_brackets(removed) != open_brackets([token.text for token in added]):
        raise edit.error("its brackets differ from those that it replaces", part)
    part.text = one_line(part.new[added[0].start:added[-1].end]) if added else ""
    if not added and removed[-1] == ";":
        part.text = ";"  # it may be the whole body of an if


class Copy:
    """The copy of one source."""

    def __init__(self, source, edits):
        self.source = source
        self.always = []  # (start, end, text) in characters
        self.hosts = {}   # the brace of a block -> its edits
        self.expressions = {}  # (first, last) -> its edits
        self.parts = {}   # edit number -> [(start, end, text)]
        for edit in edits:
            for part in edit.parts:
                if part.path == source.path:
                    self._add(edit, part)
        self.always.sort()
        for one, other in zip(self.always, self.always[1:]):
            if other[0] < one[1]:
                raise EditError(f"{source.path}:{source.line_of(other[0])}: error: two always edits overlap")

    def _add(self, edit, part):
        change = self._change(part)
        host = self.source.host_of(part.first, part.last)
        if edit.kind == "always" or host is None and part.first == part.last:
            self.always.append(change)  # in a class or namespace: a helper that another part uses
            return
        self.parts.setdefault(edit.number, []).append(change)
        if host is not None:
            group = self.hosts.setdefault(host, [])
        else:
            expression = self.source.expression_around(part.first, part.last)
            if expression is None:
                raise edit.error(f"it is in no function body and in no initializer of {part.path}", part)
            if any(expression != other and expression[0] < other[1] and other[0] < expression[1]
                   for other in self.expressions):
                raise edit.error("another edit has an initializer around this one, or within", part)
            group = self.expressions.setdefault(expression, [])
        if edit not in group:
            group.append(edit)

    def _change(self, part):
        tokens = self.source.tokens
        if part.first == part.last:
            place = tokens[part.first - 1].end if part.first > 0 else 0
            return (place, place, f" {part.text} ")
        start, end = tokens[part.first].start, tokens[part.last - 1].end
        return (start, end, f"{part.text} " + "\n" * self.source.text.count("\n", start, end))

    def _compose(self, start, end, changes):
        """The text of a range with changes that do not overlap."""
        pieces, at = [], start
        for low, high, text in sorted(changes):
            if low < at:
                raise EditError(f"{self.source.path}:{self.source.line_of(low)}: error: edits cut each other")
            pieces += [self.source.text[at:low], text]
            at = high
        return "".join(pieces) + self.source.text[at:end]

    def _within(self, start, end):
        return [change for change in self.always if start <= change[0] and change[1] <= end]

    def _edited(self, edit, start, end):
        """A range with one edit and all edits of the kind "always"."""
        own = [change for change in self.parts[edit.number] if start <= change[0] and change[1] <= end]
        kept = []
        for low, high, text in self._within(start, end):
            over = [change for change in own if low < change[1] and change[0] < high]
            if any(low < change[0] or change[1] < high for change in over):
                raise edit.error(f"{self.source.path}:{self.source.line_of(low)}: it cuts an always edit")
            kept += [] if over else [(low, high, text)]
        return self._compose(start, end, own + kept)

    def _sound(self, start, end):
        """A range without edits, but with the switches of the blocks within it."""
        tokens, changes, covered = self.source.tokens, [], []
        places = [(tokens[brace].end, tokens[self.source.partner[brace]].start, brace) for brace in self.hosts]
        places += [(tokens[first].start, tokens[last - 1].end, (first, last)) for first, last in self.expressions]
        for low, high, key in sorted(places, key=lambda place: (place[0], -place[1])):
            if start <= low and high <= end and (low, high) != (start, end) and not any(
                    other[0] <= low and high <= other[1] for other in covered):
                covered.append((low, high))
                switched = self._block if isinstance(key, int) else self._expression
                changes.append((low, high, switched(key, low, high)))
        changes += [change for change in self._within(start, end)
                    if not any(low <= change[0] and change[1] <= high for low, high in covered)]
        return self._compose(start, end, changes)

    def _block(self, brace, start, end):
        edits = sorted(self.hosts[brace], key=lambda edit: edit.number)
        path, line = self.source.path, self.source.line_of(start)
        ids = ", ".join(str(edit.number) for edit in edits)
        pieces = [f" if (::kvfence::planted::none_of<{ids}>()) {{\n#line {line} \"{path}\"\n", self._sound(start, end)]
        for edit in edits:
            test = "" if edit is edits[-1] else f" if (::kvfence::planted::on<{edit.number}>())"
            pieces += [f"\n}} else{test} {{\n#line {line} \"{path}[{edit.name}]\"\n", self._edited(edit, start, end)]
        pieces.append(f"\n}}\n#line {self.source.line_of(end)} \"{path}\"\n")
        return "".join(pieces)

    def _expression(self, key, start, end):
        edits = sorted(self.expressions[key], key=lambda edit: edit.number)
        ids = ", ".join(str(edit.number) for edit in edits)
        text = f"(::kvfence::planted::none_of<{ids}>() ? ({self._compose(start, end, self._within(start, end))})"
        for edit in edits:
            test = "" if edit is edits[-1] else f" ::kvfence::planted::on<{edit.number}>() ?"
            text += f" :{test} ({one_line(self._edited(edit, start, end))})"
        return text + ")"

    def text(self, layers, own=None):
        """The whole copy. own: the paths of all copied files, if the other files of a layer are the product's."""
        text = self._sound(0, len(self.source.text))
        head = f'#include "{SWITCHES}"\n' if self.hosts or self.expressions or self.always else ""
        for layer in layers:
            space = f"kvfence::planted::{layer}" if own is None else f"kvfence::{layer}::instrumented"
            text = re.sub(rf"\bkvfence::{layer}\b", space, text)
            text = re.sub(rf'^(\s*#\s*include\s*")({layer}/[^"\n]*)',
                          lambda match: match[1] + ("planted/" if own is None or match[2] in own else "") + match[2],
                          text, flags=re.MULTILINE)
            if own is not None:
                head += f"namespace {space} {{}}\nnamespace kvfence::planted {{ namespace {layer} = {space}; }}\n"
        return f'{head}#line 1 "{self.source.path}"\n{text}'


def quoted(text):
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def table_of(rooms):
    """The list of all bugs, as the definition of planted::bugs_of."""
    text = '#include "properties/planted/bugs.h"\n\nnamespace kvfence::planted {\nnamespace {\n\n'
    bugs = {room: [edit for edit in edits if edit.kind == "bug"] for room, edits in rooms.items()}
    bugs = {room: edits for room, edits in bugs.items() if edits}
    for room, edits in bugs.items():
        rows = "".join(f"    {{{edit.number}, {quoted(edit.name)}, {quoted(edit.doc)}, {quoted(edit.thread)}, "
                       f"{{{', '.join(map(quoted, edit.also_of))}}}}},\n" for edit in edits)
        text += f"constexpr Bug k_{room}[] = {{\n{rows}}};\n"
    text += "\n}  // namespace\n\nstd::span<const Bug> bugs_of(std::string_view room) {\n"
    text += "".join(f"  if (room == {quoted(room)}) return k_{room};\n" for room in bugs)
    return text + "  return {};\n}\n\n}  // namespace kvfence::planted\n"


def read_rooms(paths, root=ROOT):
    """Room -> its edits, numbered."""
    rooms = {}
    for place, path in enumerate(sorted(paths), start=1):
        edits = parse_edits(path, (root / path).read_text(encoding="utf-8"))
        for number, edit in enumerate(edits, start=place * IDS_PER_ROOM):
            edit.number = number
        rooms[pathlib.PurePath(path).stem] = edits
    return rooms


def plant(rooms, texts, is_part=False):
    """path -> text of the copy, of the sources path -> text. Raises EditError with every edit that is wrong."""
    sources = {path: Source(path, text) for path, text in texts.items()}
    layers = sorted({path.split("/")[0] for path in texts})
    errors, planted = [], []
    for edit in (edit for edits in rooms.values() for edit in edits):
        # The copy of the other layer reports wrong edits of that layer.
        if not any(part.path.split("/")[0] in layers for part in edit.parts):
            continue
        try:
            for part in edit.parts:
                locate(edit, part, sources)
            planted.append(edit)
        except EditError as error:
            errors.append(str(error))
    copies = {}
    for path, source in sources.items():
        try:
            copies[path] = Copy(source, planted).text(layers, set(texts) if is_part else None)
        except EditError as error:
            errors.append(str(error))
    if errors:
        raise EditError("\n".join(errors))
    return copies


def write(path, text):
    """Writes only changed files, so that nothing is recompiled without need."""
    if path.is_file() and path.read_text(encoding="utf-8") == text:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--edits", nargs="+", required=True, metavar="FILE", help="from the root of the repository")
    parser.add_argument("--files", nargs="+", required=True, metavar="FILE", help="the sources, from the same root")
    parser.add_argument("--part", action="store_true", help="the sources are not all files of their layer")
    parser.add_argument("--table", type=pathlib.Path)
    options = parser.parse_args(arguments)
    try:
        rooms = read_rooms(options.edits)
        texts = {path: (ROOT / path).read_text(encoding="utf-8") for path in options.files}
        copies = plant(rooms, texts, options.part)
    except EditError as error:
        print(error, file=sys.stderr)
        return 1
    for path, text in copies.items():
        write(options.out / "planted" / path, text)
    if options.table:
        write(options.table, table_of(rooms))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
