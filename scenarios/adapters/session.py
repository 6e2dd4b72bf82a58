"""A session that speaks the protocol of README.md, for any target.

A target is a configuration, commands with their fields, and an implementation made from a configuration: an object with
one method per command, named like its verb, that takes the command's fields in order and returns the answer as text
(`error=none blocks=[1 2]`), and with `observe(state)`, which returns the text of the observation after it;
`observe_refused(state)`, if there is one, does so after a refused command.
"""

from __future__ import annotations

import traceback
from typing import Any, Callable, Dict, NamedTuple

from line_language import FLAG, CommandReader, FieldKind, Line, parse_line, print_value
from wire import malformed, unsupported


class Unsupported(Exception):
    """The reason why an implementation cannot serve a target or config line."""


class Target(NamedTuple):
    name: str
    config_from_line: Callable[[Line], Any]  # raises ValueError
    readers: Dict[str, CommandReader]  # by verb
    make: Callable[[Any], Any]  # a fresh implementation from a configuration; raises Unsupported
    corrections: int = 0  # faults of the engine that the adapter corrects


def read_config(line: Line, config_type: Any, kinds: Dict[str, FieldKind]) -> Any:
    """A NamedTuple with the fields of a config line. `none` spells a default of None. Raises ValueError."""
    fields = {}
    for key, value in line.fields.items():
        if key not in kinds:
            raise ValueError(f"unknown key {key}, expected one of {', '.join(kinds)}")
        if value is None and config_type._field_defaults[key] is None:
            continue
        try:
            fields[key] = kinds[key].check(value)
        except ValueError as error:
            raise ValueError(f"{key}={print_value(value)[:60]}, expected {kinds[key].name}: {error}") from None
    return config_type(**fields)


class Session:
    """Takes lines, gives replies: pass `answer` to wire.serve.

    describe() gives the fields of the reply to `target ...` and may raise Unsupported. The first target is the one
    before any such line.
    """

    def __init__(self, describe: Callable[[], str], *targets: Target):
        self._describe = describe
        self._targets = {target.name: target for target in targets}
        self._target = targets[0]
        self._commands: dict = {}
        self._observe: Callable[[bool], str] = str
        self._observe_refused: Callable[[bool], str] = str
        self._observe_state = True

    def answer(self, text: str) -> str:
        try:
            command = self._commands.get(text.partition(" ")[0])
            if command is None:
                line = parse_line(text)
                command = self._commands.get(line.verb)
                if command is None:
                    return self._answer_protocol(line)
            read, run = command
            arguments = read(text)
        except Unsupported as why:
            return unsupported(why)
        except ValueError as error:
            return malformed(error)
        try:
            answer = run(*arguments)
            observe = self._observe if answer.startswith("error=none") else self._observe_refused
            return f"-> {answer}{observe(self._observe_state)}"
        except Exception as error:
            # kvfence shows the last line of stderr.
            traceback.print_exc()
            raise SystemExit(f"{type(error).__name__} {error} on: {text[:200]}") from None

    def _answer_protocol(self, line: Line) -> str:
        if line.verb == "target":
            if line.subject not in self._targets:
                raise Unsupported(f"target {line.subject}, expected {' or '.join(self._targets)}")
            description = self._describe()
            self._target = self._targets[line.subject]
            self._commands = {}
            corrections = self._target.corrections
            return f"-> {description}{f' corrections={corrections}' if corrections else ''}"
        if line.subject:
            raise ValueError(f"found {line.subject}, expected key=value")
        if line.verb == "config":
            config = self._target.config_from_line(line)
            self._commands = {}
            implementation = self._target.make(config)
            self._observe = implementation.observe
            self._observe_refused = getattr(implementation, "observe_refused", implementation.observe)
            self._commands = {
                verb: (reader.read, getattr(implementation, verb)) for verb, reader in self._target.readers.items()
            }
            return "->"
        if line.verb == "observe":
            if list(line.fields) != ["state"]:
                raise ValueError("expected observe state=true or observe state=false")
            self._observe_state = FLAG.check(line.fields["state"])
            return "->"
        if line.verb not in self._target.readers:
            raise ValueError(f"unknown command {line.verb}, expected one of {', '.join(self._target.readers)}")
        raise ValueError("a command before a supported config")
