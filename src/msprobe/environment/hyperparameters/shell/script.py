"""A launch script followed from its first line to its last: which commands it would run, with which words.

Only assignments, branches, loops, functions and the files it takes in (``source``, ``bash other.sh``, if they lie
beside it) are followed. No command is run, the environment is not looked at, and nothing is raised for what a
script says.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from msprobe.environment.hyperparameters.shell.arithmetic import NoNumberError
from msprobe.environment.hyperparameters.shell.commands import (
    Branches,
    Cases,
    JoinedCommands,
    Loop,
    Node,
    ShellCommand,
    ShellFunction,
    ShellGroup,
    commands_of,
)
from msprobe.environment.hyperparameters.shell.conditions import is_true, opposite
from msprobe.environment.hyperparameters.shell.expansion import (
    MOST_LETTERS,
    OUTPUT,
    UNSET,
    Value,
    Variables,
    as_one_text,
    fields,
    plain,
)
from msprobe.environment.hyperparameters.shell.words import tokens_of
from msprobe.errors import PathError
from msprobe.foreign.opening import open_regular
from msprobe.messages import said

_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(?:\[([^\]]*)\])?(\+?)=(.*)", re.DOTALL)
_ASSIGNED = re.compile(r"(?<![\w$-])([A-Za-z_]\w*)\+?=")
_BEHIND_UNKNOWN = re.compile(r".*[)`}\w]/")
_ELEMENT = re.compile(r"\[([^\]]*)\]=(.*)", re.DOTALL)
_DECLARING = frozenset({"export", "declare", "typeset", "local", "readonly"})
_TESTS = frozenset({"[", "[[", "test"})
_SHELLS = frozenset({"bash", "sh", "zsh", "ksh", "dash"})
_MOST_COMMANDS = 20_000
_MOST_DEPTH = 12
_MOST_ROUNDS = 64
_MOST_BYTES = 1 << 20
#: Letters of scripts that are taken in, and of texts that are run as scripts, in all.
_MOST_FURTHER = 2 << 20
_MOST_NAME = 4096
_MOST_NOTE, _MOST_NOTES = 300, 200


@dataclass(frozen=True)
class Called:
    """A command that the script runs: its words, and the line it stands in."""

    words: tuple[str, ...]
    line: int


@dataclass
class FollowedScript:
    """What a script does: the commands it runs, the variables it exports, and notes for people."""

    called: list[Called] = field(default_factory=list)
    exported: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def follow(text: str, path: str, arguments: Sequence[str] = ()) -> FollowedScript:
    """What the script ``text`` of the file ``path`` would run if it is called with ``arguments``."""
    follower = _Follower(os.path.abspath(path))
    follower.variables.arguments = [path, *arguments]
    follower.variables.left[0] += 2 * len(text)
    follower.further = len(text) + _MOST_FURTHER
    try:
        follower.run(follower.parsed(text))
    except RecursionError:
        follower.note(said("script-too-deep"))
    return follower.followed


class _Follower:
    def __init__(self, path: str) -> None:
        self.path = path
        self.variables = Variables()
        self.followed = FollowedScript()
        self.functions: dict[str, list[Node]] = {}
        self.steps, self.depth = 0, 0
        #: How many letters of scripts may still be read.
        self.further = _MOST_FURTHER

    def parsed(self, text: str) -> list[Node]:
        """The commands of a text. What it assigns anywhere is empty before: it is not meant to come from outside."""
        self.further -= len(text)
        if self.further < 0:
            self.note(said("scripts-too-long"))
            return []
        self.variables.own.update(_ASSIGNED.findall(text))
        return commands_of(text)

    # ---- structure: each method says whether what it followed succeeds, None where that is not known

    def run(self, nodes: list[Node]) -> bool | None:
        status: bool | None = True
        self.depth += 1
        for node in nodes:
            self.steps += 1
            is_long = self.steps > _MOST_COMMANDS or self.variables.is_full
            if (is_long and self.depth > 1) or self.depth > _MOST_DEPTH * 8:
                self.note(said("script-too-many-steps"))
                break
            status = self.node(node)
        self.depth -= 1
        return status

    def node(self, node: Node) -> bool | None:
        if isinstance(node, ShellCommand):
            return self.command(node)
        if isinstance(node, JoinedCommands):
            return self.joined(node)
        if isinstance(node, Branches):
            return self.branches(node)
        if isinstance(node, Loop):
            return self.loop(node)
        if isinstance(node, Cases):
            return self.cases(node)
        if isinstance(node, ShellFunction):
            self.functions[node.name] = node.body
            return True
        return self.group(node)

    def group(self, node: ShellGroup) -> bool | None:
        if not node.is_apart:
            return self.run(node.body)
        kept = dict(self.variables.values)
        status = self.run(node.body)
        self.variables.values = kept
        return status

    def joined(self, node: JoinedCommands) -> bool | None:
        status = self.node(node.parts[0])
        for join, part in zip(node.joins, node.parts[1:], strict=True):
            if join == "&&":
                status = self.node(part) if status is not False else False
            elif join == "||":
                # What is not known is taken to succeed, as in a training that works.
                status = self.node(part) if status is False else status
            else:
                status = self.node(part)
        return opposite(status) if node.is_negated else status

    def branches(self, node: Branches) -> bool | None:
        undecided = False
        for number, (condition, body) in enumerate(node.branches):
            decided = True if condition is None else self.run(condition)
            if decided:
                return self.run(body)
            if decided is None:
                undecided = True
                if node.launches is None:
                    node.launches = [_launches(launches) for _, launches in node.branches]
                if node.launches[number] and sum(node.launches) == 1:
                    return self.run(body)
        if undecided:
            self.note(said("condition-unknown", node.line))
        return True

    def loop(self, node: Loop) -> bool | None:
        if node.condition is not None:
            for _ in range(_MOST_ROUNDS):
                decided = self.run(node.condition)
                if (opposite(decided) if node.is_negated else decided) is not True:
                    break
                self.run(node.body)
            return True
        if node.words == []:
            return self.run(node.body)
        words = self.variables.arguments[1:] if node.words is None else fields(node.words, self.variables)
        for word in words[:_MOST_ROUNDS]:
            self.variables.values[node.name] = word
            self.run(node.body)
        return True

    def cases(self, node: Cases) -> bool | None:
        word = as_one_text(node.word, self.variables)
        value = "" if UNSET in word else word
        chosen = ShellCommand(["[[", "x", "==", "x", "]]"], 0)
        held = Variables(
            {**self.variables.values, "_case": value},
            self.variables.arguments,
            self.variables.own,
            self.variables.left,
        )
        self.steps += len(held.values) // 100
        for patterns, body in node.branches:
            for pattern in patterns:
                self.steps += 1
                if self.steps > _MOST_COMMANDS and self.depth > 1:
                    return None
                chosen.words = ["[[", '"$_case"', "==", pattern, "]]"]
                if pattern == "*" or (OUTPUT not in value and is_true(chosen.words, held)):
                    return self.run(body)
        return True

    # ---- commands

    def command(self, node: ShellCommand) -> bool | None:
        words = list(node.words)
        if words[0] in _TESTS or words[0].startswith("(("):
            return self.test(words)
        assigned = 0
        for word in words:
            if not _ASSIGNMENT.fullmatch(word):
                break
            assigned += 1
        if assigned == len(words):
            for word in words:
                self.assign(word)
            return True
        name = words[assigned]
        if name in _DECLARING:
            return self.declare(words[assigned + 1 :], name == "export")
        if name == "read":
            # Only what stands in the script can be read.
            text = as_one_text(node.document, self.variables)
            self.variables.values[words[-1]] = text if "-d" in words else text.partition("\n")[0]
            return True
        expanded = fields(words[assigned:], self.variables)
        return self.call(expanded, node.line) if expanded else True

    def test(self, words: list[str]) -> bool | None:
        text = words[0][2:-2] if words[0].startswith("((") else ""
        match = re.fullmatch(r"\s*(\w+)\s*(\+=|-=|=|\+\+|--)\s*(.*)", text, re.DOTALL)
        if match and not match[3].startswith("="):
            right = match[3] or "1"
            expression = right if match[2] == "=" else f"{match[1]} {match[2][0]} ({right})"
            self.assign(f"{match[1]}=$(({expression}))")
            return True
        return is_true(words, self.variables)

    def call(self, words: list[str], line: int) -> bool | None:
        name = plain(words[0])
        rest = words[1:]
        if name in ("eval", "exec", "command", "builtin"):
            return self.evaluated(name, rest, line)
        if name in ("source", "."):
            self.take_in(rest, shares=True)
        elif name in self.functions and self.depth < _MOST_DEPTH * 4:
            self.within(rest, lambda: self.run(self.functions[name]))
        elif name == "set" and "--" in rest:
            self.variables.arguments[1:] = rest[rest.index("--") + 1 :]
        elif name == "shift":
            count = int(rest[0]) if rest and rest[0].isdecimal() else 1
            del self.variables.arguments[1 : 1 + count]
        elif name == "unset":
            for word in rest:
                self.variables.values.pop(word, None)
        elif name == "let":
            for word in rest:
                variable, _, expression = word.partition("=")
                self.assign(f"{variable}=$(({expression}))")
        elif name in (":", "true", "false"):
            return name != "false"
        elif os.path.basename(name) in _SHELLS or name.endswith(".sh"):
            self.inner_shell(words, line)
        else:
            self.followed.called.append(Called(tuple(words), line))
            return None
        return True

    def evaluated(self, name: str, words: list[str], line: int) -> bool | None:
        if name != "eval":
            words = words[1:] if words and words[0] in ("-v", "-p", "-a", "-c", "-l") else words
            return self.call(words, line) if words else True
        return self.run_text(" ".join(words), line)

    def run_text(self, text: str, line: int) -> bool | None:
        if self.depth > _MOST_DEPTH * 4:
            return None
        self.further -= len(text)
        if self.further < 0:
            self.note(said("scripts-too-long"))
            return None
        nodes = commands_of(text)
        for node in nodes:
            for command in node.parts if isinstance(node, JoinedCommands) else [node]:
                if isinstance(command, ShellCommand):
                    command.line = line
        return self.run(nodes)

    def inner_shell(self, words: list[str], line: int) -> None:
        """``bash -c "..."`` is followed, and ``bash other.sh`` if it lies beside this script; else it is a command."""
        at = 0 if plain(words[0]).endswith(".sh") else 1
        while at < len(words) and words[at].startswith("-"):
            if words[at].lstrip("-").endswith("c") and not words[at].startswith("--"):
                kept = dict(self.variables.values)
                self.run_text(" ".join(words[at + 1 : at + 2]), line)
                self.variables.values = kept
                return
            at += 1
        if at >= len(words) or not self.take_in(words[at:], shares=False):
            self.followed.called.append(Called(tuple(words), line))

    def take_in(self, words: list[str], shares: bool) -> bool:
        """Follow another script. ``shares``: it sees and changes the variables of this one."""
        if not words:
            return False
        name = plain(words[0])
        path = self.beside(words[0])
        if path is None or self.depth > _MOST_DEPTH * 2:
            if shares and not name.endswith(_EVERYDAY):
                self.note(said("sourced-file-not-beside", name))
            return False
        try:
            with open_regular(path) as file:
                text = file.read(_MOST_BYTES).decode("utf-8", "replace")
        except (OSError, PathError):
            self.note(said("script-unreadable", name))
            return True
        kept, here = self.variables, self.path
        exported: dict[str, Value] = {name: kept.values.get(name, "") for name in self.followed.exported}
        values = kept.values if shares else exported
        arguments = [path, *words[1:]] if len(words) > 1 or not shares else kept.arguments
        self.variables, self.path = Variables(values, arguments, kept.own, kept.left), path
        self.run(self.parsed(text))
        self.variables, self.path = kept, here
        return True

    def beside(self, name: str) -> str | None:
        """The file that a script names: relative to its own folder, or to one above it from which it may be started."""
        folder = os.path.dirname(self.path)
        # "$(dirname "$0")/x.sh" and "`pwd`/x.sh" and "$SCRIPT_DIR/x.sh": what stands before the last unknown part.
        if len(name) > _MOST_NAME:
            return None
        last = max(name.rfind(UNSET), name.rfind(OUTPUT))
        if last >= 0 and (known := _BEHIND_UNKNOWN.match(name, last + 1)):
            name = name[known.end() :]
        if os.path.isabs(name) and os.path.commonpath([os.path.realpath(name), folder]) != folder:
            return None
        for _ in range(5):
            path = os.path.join(folder, name)
            if os.path.isfile(path) and os.path.realpath(path) != os.path.realpath(self.path):
                return path
            folder = os.path.dirname(folder)
        return None

    def within(self, arguments: list[str], run: object) -> None:
        kept = self.variables.arguments
        self.variables.arguments = [kept[0], *arguments]
        if callable(run):
            run()
        self.variables.arguments = kept

    # ---- variables

    def declare(self, words: list[str], exports: bool) -> bool:
        for word in words:
            match = _ASSIGNMENT.fullmatch(word)
            if match:
                self.assign(word)
            name = match[1] if match else word
            value = self.variables.text(name)
            if exports and value is not None and name.isidentifier():
                self.followed.exported[name] = plain(value)
        return True

    def assign(self, word: str) -> None:
        match = _ASSIGNMENT.fullmatch(word)
        if match is None:
            return
        name, index, adds, text = match.groups()
        values = self.variables.values
        if text.startswith("(") and index is None:
            elements = self.array(text[1:-1] if text.endswith(")") else text[1:])
            if adds and isinstance(elements, list):
                elements = [*(self.variables.elements(name) or []), *elements]
            values[name] = elements
            return
        value = as_one_text(text, self.variables)
        if index is not None:
            self.put_element(name, index, value)
        elif adds:
            before = values.get(name)
            if self.variables.is_full:
                return
            whole = (self.variables.text(name) or "") + value
            self.variables.spend(len(before) if isinstance(before, list) else len(whole) // 64)
            values[name] = [*before, value] if isinstance(before, list) else whole[:MOST_LETTERS]
        else:
            values[name] = value

    def put_element(self, name: str, index: str, value: str) -> None:
        known = self.variables.values.get(name)
        if isinstance(known, list):
            try:
                place = self.variables.number(as_one_text(index, self.variables))
                known[place : place + 1] = [value]
                return
            except NoNumberError:
                pass
        keyed = known if isinstance(known, dict) else {}
        keyed[as_one_text(index, self.variables)] = value
        self.variables.values[name] = keyed

    def array(self, text: str) -> Value:
        words = [token.text for token in tokens_of(text) if not token.is_operator and token.document is None]
        keyed = [_ELEMENT.fullmatch(word) for word in words]
        if words and all(keyed):
            return {
                as_one_text(item[1], self.variables): as_one_text(item[2], self.variables) for item in keyed if item
            }
        return fields(words, self.variables)

    def note(self, text: str) -> None:
        text = text if len(text) <= _MOST_NOTE else f"{text[:_MOST_NOTE]}..."
        if text not in self.followed.notes and len(self.followed.notes) < _MOST_NOTES:
            self.followed.notes.append(text)


#: Files that everybody takes in, and that have no hyper-parameters.
_EVERYDAY = ("/activate", "bashrc", "profile", "conda.sh", "set_env.sh")
_LAUNCH = re.compile(r"\b(torchrun|msrun|deepspeed|accelerate|python[\d.]*|srun|mpirun|\w+\.py)\b")


def _launches(nodes: list[Node]) -> bool:
    """True if there is a command among them that may begin a training."""
    return any(map(_may_launch, nodes))


def _may_launch(node: Node) -> bool:
    if isinstance(node, ShellCommand):
        if _ASSIGNMENT.fullmatch(node.words[0]) or node.words[0] == "echo":
            return False
        return bool(_LAUNCH.search(" ".join(node.words)))
    if isinstance(node, JoinedCommands):
        return _launches(node.parts)
    if isinstance(node, Branches):
        return any(_launches(body) for _, body in node.branches)
    return isinstance(node, (ShellGroup, Loop)) and _launches(node.body)
