"""The line language of kvfence in Python: what contract/core/line.h declares, for adapters.

    verb [subject] key=value ... [-> key=value ...]  [# comment]

A value is None, a bool, an int, a float, bytes, a str, a list, or a Record. Text that is not UTF-8 is held with
`surrogateescape`, so that it survives a round trip. parse_line and print_line are exact inverses of each other as in
C++; `CommandReader` is the fast way in for commands whose fields are known beforehand.
"""

from __future__ import annotations

import decimal
import re
from typing import Any, Callable, Dict, List, NamedTuple, Optional

# contract/core/limits.h
LINE_BYTES_MAX = 16 << 20
VALUE_DEPTH_MAX = 16

UINT32_MAX = 0xFFFF_FFFF

Fields = Dict[str, Any]


class LineError(ValueError):
    """An error of a text, and its column (1-based, in characters)."""

    def __init__(self, column: int, found: str, expected: str):
        super().__init__(f"{column}: found {found}, expected {expected}")


class Record(NamedTuple):
    """`(verb key=value ...)`."""

    verb: str
    fields: Fields


class Line(NamedTuple):
    """One line. A blank or comment-only line has an empty verb; expectation is None without `->`."""

    verb: str
    subject: str  # a bare word after the verb, as in `target block_pool`
    fields: Fields
    expectation: Optional[Fields] = None
    comment: str = ""


_WORD = r"[A-Za-z_][A-Za-z0-9_.:/*\-]*"
_word = re.compile(_WORD)
_blanks = re.compile(r"[ \t]*")
_number_token = re.compile(r"[0-9\-][A-Za-z0-9_.:/*+\-]*")
_integer = re.compile(r"-?[0-9]+")
_decimal = re.compile(r"-?[0-9]+(?:\.[0-9]+)?(?:[eE][+\-]?[0-9]+)?")
_hex = re.compile(r"0x((?:[0-9a-fA-F]{2})*)")
_quoted = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
_escape = re.compile(rb"\\(x[0-9a-fA-F]{2}|.)", re.DOTALL)
_integers = re.compile(r"\[([0-9 ]*)\]")
_not_in_comment = re.compile("[\x00-\x08\x0a-\x1f\x7f\ud800-\udfff]")
_to_be_escaped = re.compile('[\x00-\x1f\x7f"\\\\\udc80-\udcff]')

_RESERVED = {"none": None, "true": True, "false": False}
_ESCAPES = {b'"': b'"', b"\\": b"\\", b"n": b"\n", b"t": b"\t", b"r": b"\r"}


class _BadEscape(Exception):
    """A backslash with something after it that is no escape."""


def _unescape(match: "re.Match[bytes]") -> bytes:
    escape = match[1]
    if len(escape) == 3:
        return bytes([int(escape[1:], 16)])
    if escape not in _ESCAPES:
        raise _BadEscape("\\" + escape.decode("latin-1"))
    return _ESCAPES[escape]


class _Parser:
    def __init__(self, text: str):
        self.text = text
        self.at = 0

    def fail(self, expected: str) -> LineError:
        found = self.text[self.at : self.at + 40]
        return LineError(self.at + 1, f"`{found}`" if found else "end of line", expected)

    def skip_blanks(self) -> None:
        self.at = _blanks.match(self.text, self.at).end()

    def at_end(self) -> bool:
        return self.at == len(self.text)

    def at_arrow(self) -> bool:
        return self.text.startswith("->", self.at)

    def gap(self, closer: str) -> None:
        """What may follow a token: blanks, the end, or the closing bracket around it."""
        if not self.at_end() and self.text[self.at] not in " \t" + closer:
            raise self.fail("a blank")
        self.skip_blanks()

    def fields(self, closer: str) -> Fields:
        out: Fields = {}
        while True:
            word = _word.match(self.text, self.at)
            if not word:
                return out
            key = word[0]
            if not self.text.startswith("=", word.end()):
                raise self.fail("key=value")
            if key in out:
                raise LineError(self.at + 1, f"key {key} given twice", "each key once")
            self.at = word.end() + 1
            out[key] = self.value(0)
            self.gap(closer)

    def value(self, depth: int) -> Any:
        text, at = self.text, self.at
        word = _word.match(text, at)
        if word:
            self.at = word.end()
            return _RESERVED.get(word[0], word[0])
        first = text[at : at + 1]
        if first and first in "-0123456789" and not self.at_arrow():
            return self.number_or_bytes()
        if first == '"':
            return self.quoted()
        if not first or first not in "[(":
            raise self.fail("a value")
        if depth == VALUE_DEPTH_MAX:
            raise self.fail(f"at most {VALUE_DEPTH_MAX} levels of lists and records")
        self.at += 1
        self.skip_blanks()
        return self.list(depth + 1) if first == "[" else self.record(depth + 1)

    def number_or_bytes(self) -> Any:
        match = _number_token.match(self.text, self.at)
        token = match[0]
        if _integer.fullmatch(token):
            value = int(token)
            if not -(1 << 63) <= value < 1 << 63:
                raise self.fail("an integer of at most 64 bits")
        elif token.startswith("0x"):
            digits = _hex.fullmatch(token)
            if not digits:
                raise self.fail("two hex digits per byte after 0x")
            value = bytes.fromhex(digits[1])
        elif _decimal.fullmatch(token):
            value = float(token)
            is_zero = not re.search("[1-9]", re.split("[eE]", token)[0])
            if value in (float("inf"), float("-inf")) or (value == 0) != is_zero:
                raise self.fail("a decimal within the range of a double")
        else:
            raise self.fail("a number, or quotes around text")
        self.at = match.end()
        return value

    def quoted(self) -> str:
        match = _quoted.match(self.text, self.at)
        if not match:
            raise self.fail('a closing `"`')
        content = match[1]
        if "\\" in content:
            try:
                raw = _escape.sub(_unescape, content.encode("utf-8", "surrogateescape"))
            except _BadEscape as error:
                raise LineError(self.at + 1, f"`{error}`", 'an escape: \\" \\\\ \\n \\t \\r \\xHH') from None
            content = raw.decode("utf-8", "surrogateescape")
        self.at = match.end()
        return content

    def list(self, depth: int) -> List[Any]:
        out = []
        while not self.text.startswith("]", self.at):
            if self.at_end():
                raise self.fail("a value or `]`")
            out.append(self.value(depth))
            self.gap("]")
        self.at += 1
        return out

    def record(self, depth: int) -> Record:
        verb = self.verb(")")
        fields: Fields = {}
        while not self.text.startswith(")", self.at):
            word = _word.match(self.text, self.at)
            if not word or not self.text.startswith("=", word.end()):
                raise self.fail("key=value or `)`")
            if word[0] in fields:
                raise LineError(self.at + 1, f"key {word[0]} given twice", "each key once")
            self.at = word.end() + 1
            fields[word[0]] = self.value(depth)
            self.gap(")")
        self.at += 1
        return Record(verb, fields)

    def verb(self, closer: str) -> str:
        word = _word.match(self.text, self.at)
        if not word or self.text.startswith("=", word.end()):
            raise self.fail("a verb")
        self.at = word.end()
        self.gap(closer)
        return word[0]

    def subject(self) -> str:
        word = _word.match(self.text, self.at)
        if not word or self.text[word.end() : word.end() + 1].strip(" \t"):
            return ""
        self.at = word.end()
        self.skip_blanks()
        return word[0]


def parse_line(text: str) -> Line:
    """Parses one line without its newline. Raises LineError."""
    if len(text) > LINE_BYTES_MAX:
        raise LineError(LINE_BYTES_MAX, f"a line of {len(text)} characters", f"at most {LINE_BYTES_MAX}")
    parser = _Parser(text[:-1] if text.endswith("\r") else text)
    parser.skip_blanks()
    verb, subject, fields, expectation, comment = "", "", {}, None, ""
    if not parser.at_end() and not parser.at_arrow() and parser.text[parser.at] != "#":
        verb = parser.verb("")
        subject = parser.subject()
        fields = parser.fields("")
    if parser.at_arrow():
        parser.at += 2
        parser.gap("")
        expectation = parser.fields("")
    if not parser.at_end():
        if parser.text[parser.at] != "#":
            raise parser.fail("key=value")
        comment = parser.text[parser.at + 1 :]
        wrong = _not_in_comment.search(comment)
        if wrong:
            parser.at += 1 + wrong.start()
            raise parser.fail("UTF-8 without control bytes in a comment")
    return Line(verb, subject, fields, expectation, comment)


def parse_value(text: str) -> Any:
    """Parses a value alone. Raises LineError."""
    parser = _Parser(text)
    parser.skip_blanks()
    value = parser.value(0)
    parser.skip_blanks()
    if not parser.at_end():
        raise parser.fail("the end of the value")
    return value


_NAMED_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def _escaped(match: "re.Match[str]") -> str:
    character = match[0]
    return _NAMED_ESCAPES.get(character) or f"\\x{ord(character) & 0xFF:02x}"


def print_text(text: str) -> str:
    """A word as it is, anything else between quotes."""
    if _word.fullmatch(text) and text not in _RESERVED:
        return text
    return '"' + _to_be_escaped.sub(_escaped, text) + '"'


def print_decimal(value: float) -> str:
    """The shortest decimal that reads back as value: fixed unless scientific is shorter, as std::to_chars has it."""
    if value != value or value in (float("inf"), float("-inf")):
        raise ValueError("inf and nan are no values of the line language")
    sign, digits, exponent = decimal.Decimal(repr(value)).normalize().as_tuple()
    text = "".join(map(str, digits))
    power = len(text) - 1 + exponent if value else 0
    scientific = text[0] + ("." + text[1:] if len(text) > 1 else "") + f"e{'-' if power < 0 else '+'}{abs(power):02d}"
    if exponent >= 0:
        fixed = str(abs(int(value)))
    elif power >= 0:
        fixed = f"{text[: power + 1]}.{text[power + 1 :]}"
    else:
        fixed = "0." + "0" * (-power - 1) + text
    shortest = fixed if len(fixed) <= len(scientific) else scientific
    if "." not in shortest and "e" not in shortest:
        shortest += ".0"
    return "-" + shortest if sign else shortest


def print_value(value: Any) -> str:
    """Canonical text."""
    if value is None:
        return "none"
    if value is True:
        return "true"
    if value is False:
        return "false"
    kind = type(value)
    if kind is int:
        return str(value)
    if kind is str:
        return print_text(value)
    if kind is bytes:
        return "0x" + value.hex()
    if kind is float:
        return print_decimal(value)
    if kind is Record:
        return f"({value.verb}{print_fields(value.fields)})"
    if kind is list:
        return "[" + " ".join(map(print_value, value)) + "]"
    raise TypeError(f"no value of the line language: {value!r}")


def print_fields(fields: Fields) -> str:
    """` key=value` for each field."""
    return "".join([f" {key}={print_value(value)}" for key, value in fields.items()])


def print_line(line: Line) -> str:
    """Canonical text, without a newline."""
    parts = []
    if line.verb:
        parts.append(line.verb + (" " + line.subject if line.subject else "") + print_fields(line.fields))
    if line.expectation is not None:
        parts.append("->" + print_fields(line.expectation))
    if line.comment:
        parts.append("#" + line.comment)
    return " ".join(parts)


def print_integers(values: Any) -> str:
    """A list of integers; several times as fast as print_value."""
    return "[" + " ".join(map(str, values)) + "]"


# ---- Commands whose fields are known ----


class FieldKind(NamedTuple):
    """A kind of argument: its common spelling, and how a value of it is recognised.

    pattern has one group; read turns that group into the value. check raises ValueError for a parsed value of another
    kind and hands the value back.
    """

    name: str
    pattern: str
    read: Callable[[str], Any]
    check: Callable[[Any], Any]


def _read_integers(text: str) -> List[int]:
    values = list(map(int, text.split()))
    if values and max(values) > UINT32_MAX:
        raise ValueError("an integer above 4294967295")
    return values


def _read_words(text: str) -> List[str]:
    words = text.split()
    for word in words:
        if word in _RESERVED or not _word.fullmatch(word):
            raise ValueError(f"no word: {word}")
    return words


def _checked(accept: Callable[[Any], bool], name: str) -> Callable[[Any], Any]:
    def check(value: Any) -> Any:
        if not accept(value):
            raise ValueError(f"no {name}")
        return value

    return check


def _is_uint32(value: Any) -> bool:
    return type(value) is int and 0 <= value <= UINT32_MAX


def _is_list_of(accept: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: type(value) is list and all(map(accept, value))


def _is_flag(value: Any) -> bool:
    return type(value) is bool


def _kind(name: str, pattern: str, read: Callable[[str], Any], accept: Callable[[Any], bool]) -> FieldKind:
    return FieldKind(name, pattern, read, _checked(accept, name))


INTEGER = _kind("integer from 0 to 4294967295", r"([0-9]{1,9})", int, _is_uint32)
INTEGERS = _kind("list of integers from 0 to 4294967295", r"\[([0-9 ]*)\]", _read_integers, _is_list_of(_is_uint32))
FLAG = _kind("true or false", r"(true|false)", lambda text: text == "true", _is_flag)
FLAGS = _kind("list of true and false", r"\[([a-z ]*)\]",
              lambda text: [FLAG.check(_RESERVED.get(word, word)) for word in text.split()], _is_list_of(_is_flag))
TEXT = _kind("word or quoted string", rf"(?!(?:none|true|false)(?: |$))({_WORD})", str,
             lambda value: type(value) is str)
TEXTS = _kind("list of words and quoted strings", r"\[([A-Za-z0-9_.:/*\- ]*)\]", _read_words,
              _is_list_of(lambda value: type(value) is str))
RECORDS = _kind("list of records", r"\[()\]", lambda text: [], _is_list_of(lambda value: type(value) is Record))


class CommandReader:
    """Reads the arguments of one verb: `CommandReader("touch", {"blocks": INTEGERS})`.

    The common spelling (fields in order, single blanks, plain words) is one regular expression; any other text takes
    the way through parse_line and gives the same arguments.
    """

    def __init__(self, verb: str, fields: Dict[str, FieldKind], optional: Dict[str, Any] = {}):
        """optional: the default of each field that may be absent; `none` spells a default of None."""
        self._fields = fields
        self._optional = optional
        self._readers = [kind.read for kind in fields.values()]
        self._defaults = [optional.get(key) for key in fields]
        self._match = re.compile(
            re.escape(verb)
            + "".join([f"(?: {key}={kind.pattern})?" if key in optional else f" {key}={kind.pattern}"
                       for key, kind in fields.items()])
        ).fullmatch

    def read(self, text: str) -> List[Any]:
        """The arguments in the order of the fields. Raises ValueError."""
        match = self._match(text)
        if match is None:
            line = parse_line(text)
            if line.subject:
                raise ValueError(f"found {line.subject}, expected key=value")
            return self._read_slowly(line.fields)
        if None in match.groups():
            return [default if found is None else read(found)
                    for read, found, default in zip(self._readers, match.groups(), self._defaults)]
        return [read(found) for read, found in zip(self._readers, match.groups())]

    def _read_slowly(self, found: Fields) -> List[Any]:
        for key in found:
            if key not in self._fields:
                raise ValueError(f"unknown key {key}, expected one of {', '.join(self._fields)}")
        arguments = []
        for key, kind in self._fields.items():
            if key not in found:
                if key not in self._optional:
                    raise ValueError(f"{key}=... is missing")
                arguments.append(self._optional[key])
            elif found[key] is None and key in self._optional and self._optional[key] is None:
                arguments.append(None)
            else:
                try:
                    arguments.append(kind.check(found[key]))
                except ValueError:
                    raise ValueError(f"{key}={print_value(found[key])[:40]}, expected {kind.name}") from None
        return arguments
