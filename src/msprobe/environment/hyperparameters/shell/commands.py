"""The commands of a script, and what surrounds them: branches, loops, functions. A script that is not well formed gives
the commands that can be recognised.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from msprobe.environment.hyperparameters.shell.words import Token, tokens_of

_MOST_DEPTH = 80
_SEPARATORS = frozenset({"\n", ";", "&"})
_JOINS = frozenset({"&&", "||", "|", "|&"})
_CASE_ENDS = frozenset({";;", ";&", ";;&"})


@dataclass
class ShellCommand:
    """A simple command: its words as they are written."""

    words: list[str]
    line: int
    #: Its here-document, written as one quoted word.
    document: str = ""


@dataclass
class JoinedCommands:
    """Commands with ``&&``, ``||`` and ``|`` between them: ``joins[i]`` stands before ``parts[i + 1]``."""

    parts: list[Node]
    joins: list[str]
    is_negated: bool = False


@dataclass
class Branches:
    """``if``: conditions and what each leads to; the last has None for a condition where there is an ``else``."""

    branches: list[tuple[list[Node] | None, list[Node]]]
    line: int
    #: Which of them may begin a training, once somebody has asked.
    launches: list[bool] | None = None


@dataclass
class Loop:
    """``for`` with a ``name`` (its words; None for those of the call), or ``while`` with a condition (``until``:
    negated).
    """

    body: list[Node]
    name: str = ""
    words: list[str] | None = None
    condition: list[Node] | None = None
    is_negated: bool = False


@dataclass
class Cases:
    """``case``: a word, and for each branch its patterns and its commands."""

    word: str
    branches: list[tuple[list[str], list[Node]]] = field(default_factory=list)


@dataclass
class ShellGroup:
    """``{ ... }`` or ``( ... )``, which keeps its variables for itself."""

    body: list[Node]
    is_apart: bool = False


@dataclass
class ShellFunction:
    """A function's name and body."""

    name: str
    body: list[Node]


Node = ShellCommand | JoinedCommands | Branches | Loop | Cases | ShellGroup | ShellFunction


def commands_of(text: str) -> list[Node]:
    """What a script does, one after the other."""
    return _Parser(tokens_of(text)).everything()


class _Parser:
    def __init__(self, tokens: list[Token]) -> None:
        self.tokens, self.place, self.depth = tokens, 0, 0

    def everything(self) -> list[Node]:
        nodes: list[Node] = []
        while self.place < len(self.tokens):
            nodes += self.list_until(frozenset())
            self.place += 1  # a closing word without its opening one
        return nodes

    # ---- tokens

    def peek(self) -> Token | None:
        return self.tokens[self.place] if self.place < len(self.tokens) else None

    def is_operator(self, *texts: str) -> bool:
        token = self.peek()
        return token is not None and token.is_operator and token.text in texts

    def is_word(self, *texts: str) -> bool:
        token = self.peek()
        return token is not None and not token.is_operator and token.text in texts

    def skip_lines(self) -> None:
        while self.is_operator(*_SEPARATORS):
            self.place += 1

    def take_word(self, *texts: str) -> bool:
        """Step over one of these words, if it comes next."""
        is_there = self.is_word(*texts)
        self.place += is_there
        return is_there

    # ---- structure

    def list_until(self, ends: frozenset[str]) -> list[Node]:
        """Commands up to one of the words (or operators) ``ends``, which is left to be taken."""
        nodes: list[Node] = []
        self.depth += 1
        while True:
            self.skip_lines()
            token = self.peek()
            if token is None or token.text in ends or (token.is_operator and token.text in _CASE_ENDS):
                break
            if token.is_operator and token.text == ")":
                break
            before = self.place
            node = self.joined()
            if node is not None:
                nodes.append(node)
            if self.place == before:
                self.place += 1
        self.depth -= 1
        return nodes

    def joined(self) -> Node | None:
        is_negated = self.take_word("!")
        first = self.single()
        if first is None:
            return None
        parts, joins = [first], []
        while self.is_operator(*_JOINS):
            joins.append(self.tokens[self.place].text)
            self.place += 1
            while self.is_operator("\n"):
                self.place += 1
            following = self.single()
            if following is None:
                joins.pop()
                break
            parts.append(following)
        return JoinedCommands(parts, joins, is_negated) if joins or is_negated else first

    def single(self) -> Node | None:
        token = self.peek()
        if token is None:
            return None
        if token.is_operator:
            return self.subshell() if token.text == "(" and self.depth < _MOST_DEPTH else None
        if self.depth < _MOST_DEPTH:
            known = {
                "if": self.branches,
                "for": self.for_loop,
                "select": self.for_loop,
                "while": self.while_loop,
                "until": self.while_loop,
                "case": self.cases,
                "{": self.group,
                "function": self.named_function,
            }.get(token.text)
            if known is not None:
                self.place += 1
                return known()
        return self.simple()

    def subshell(self) -> Node:
        self.place += 1
        body = self.list_until(frozenset())
        self.place += self.is_operator(")")
        return ShellGroup(body, is_apart=True)

    def group(self) -> Node:
        body = self.list_until(frozenset({"}"}))
        self.take_word("}")
        return ShellGroup(body)

    def branches(self) -> Node:
        line = self.tokens[self.place - 1].line
        conditions: list[tuple[list[Node] | None, list[Node]]] = []
        while True:
            condition = self.list_until(frozenset({"then"}))
            self.take_word("then")
            body = self.list_until(frozenset({"elif", "else", "fi"}))
            conditions.append((condition, body))
            if not self.take_word("elif"):
                break
        if self.take_word("else"):
            conditions.append((None, self.list_until(frozenset({"fi"}))))
        self.take_word("fi")
        return Branches(conditions, line)

    def for_loop(self) -> Node:
        token = self.peek()
        name = "" if token is None or token.is_operator else token.text
        self.place += bool(name)
        words: list[str] | None = None
        self.skip_lines()
        if self.take_word("in"):
            words = []
            while (token := self.peek()) is not None and not token.is_operator:
                words.append(token.text)
                self.place += 1
        return Loop(self.loop_body(), name, [] if name.startswith("((") else words)

    def while_loop(self) -> Node:
        is_negated = self.tokens[self.place - 1].text == "until"
        condition = self.list_until(frozenset({"do"}))
        return Loop(self.loop_body(), condition=condition, is_negated=is_negated)

    def loop_body(self) -> list[Node]:
        self.skip_lines()
        self.take_word("do")
        body = self.list_until(frozenset({"done"}))
        self.take_word("done")
        return body

    def cases(self) -> Node:
        token = self.peek()
        cases = Cases("" if token is None or token.is_operator else token.text)
        self.place += 1
        self.skip_lines()
        self.take_word("in")
        while True:
            self.skip_lines()
            if self.peek() is None or self.take_word("esac"):
                return cases
            before = self.place
            self.place += self.is_operator("(")
            patterns: list[str] = []
            while (token := self.peek()) is not None and not self.is_operator(")", "\n"):
                if not token.is_operator:
                    patterns.append(token.text)
                self.place += 1
            self.place += self.is_operator(")")
            cases.branches.append((patterns, self.list_until(frozenset({"esac"}))))
            self.place += self.is_operator(*_CASE_ENDS)
            self.place += self.place == before

    def named_function(self) -> Node:
        token = self.peek()
        name = "" if token is None or token.is_operator else token.text
        self.place += bool(name)
        return self.function(name)

    def function(self, name: str) -> Node:
        while self.is_operator("(", ")", "\n"):
            self.place += 1
        body = self.single()
        return ShellFunction(name, [] if body is None else [body])

    def simple(self) -> Node:
        line = self.tokens[self.place].line
        words: list[str] = []
        document = ""
        while (token := self.peek()) is not None:
            if token.document is not None:
                document = token.document
                self.place += 1
                continue
            in_test = bool(words) and words[0] == "[["
            if token.is_operator and not (in_test and token.text != "\n"):
                break
            words.append(token.text)
            self.place += 1
            if in_test and token.text == "]]":
                break
        following = self.tokens[self.place + 1 : self.place + 2]
        if len(words) == 1 and self.is_operator("(") and following and following[0].text == ")":
            return self.function(words[0])
        return ShellCommand(words or [":"], line, document)
