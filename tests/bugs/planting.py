"""What a planted bug is: edits of a program's text, and the answers that name it rightly.

A bed is a program as a user would write it. A pattern edits its text, as a user would have, so that candidate and
reference differ by what is planted and by nothing else. Words in edits that begin with ``@`` are drawn:
``@layer``, ``@rank`` and the choices of the pattern.
"""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

BEDS = Path(__file__).parent / "beds"


@dataclass(frozen=True)
class Edit:
    """``old`` must be in the program exactly once (``times``); ``new`` takes its place."""

    old: str
    new: str
    times: int = 1


@dataclass(frozen=True)
class Draw:
    """One instance of a pattern: sizes, seed, layer, and the values drawn for its choices."""

    number: int
    settings: Mapping[str, Any]
    words: Mapping[str, str]

    @property
    def layer(self) -> int:
        """The layer that the bug sits in."""
        return int(self.words["@layer"])

    def fill(self, text: str) -> str:
        """Put what was drawn in the place of the words that begin with ``@``."""
        for word in sorted(self.words, key=len, reverse=True):
            text = text.replace(word, self.words[word])
        return text


@dataclass(frozen=True)
class Answer:
    """One right answer: a finding of one of ``kinds`` that names one of the calls (or the parameter) described.

    ``line``: a part of the program's text that stands on one line; calls made by that line (or by the lines down to
    ``until``) count. ``api``: an expression that the entry's name must contain. ``module``: the calls run inside this
    module, or are its own entry. ``side``: whose entries; a call that only the reference makes has no other.
    ``occurrence``: of calls of the same API, only those of these places in the order of execution, from 0
    (``any``: all; ``chained``: those of which one gets the result of the other). ``ranks``: only entries of this rank.
    ``parameter``: the finding names a parameter that this expression describes.
    """

    kinds: frozenset[str]
    line: str | None = None
    until: str | None = None
    api: str | None = None
    module: str | None = None
    side: str = "candidate"
    step: int = 0
    ranks: str | None = None
    direction: str = "forward"
    recompute: bool | None = None
    occurrence: str = "0"
    parameter: str | None = None


def answer(kinds: str, line: str | None = None, **more: Any) -> Answer:
    """An answer; ``kinds`` are separated by blanks."""
    return Answer(frozenset(kinds.split()), line, **more)


@dataclass(frozen=True)
class Pattern:
    """One way to be wrong.

    ``plant`` changes the candidate; ``bed`` changes both sides before (the pattern needs another bed). ``truth``:
    what may be named first. ``same``: what the planting must leave as it is, checked when it is verified:
    ``loss`` (the losses of the first step), ``gradients`` (after its backward passes), ``weights`` (after the step).
    ``differs``: what must change. ``harmless``: the training is not affected (None: a
    matter of opinion). ``blind``: the first wrong thing keeps
    all statistics. ``expected``: of a pair in which nothing is wrong, the verdicts that are no false alarm.
    ``precisions``: those of :mod:`bugs.precision` in which the two programs run and differ.
    ``source``: the public thread that tells of it. ``large``: a model of real size, recorded in tens of seconds, which
    can be left out. ``headers``: by side, what its dumps tell of their precision beside what was recorded; None:
    nothing at all. ``device``: the candidate runs on this one of
    :data:`bugs.kernels.variants.VARIANTS`; empty: on none.
    """

    id: str
    title: str
    group: str
    plant: tuple[Edit, ...]
    truth: tuple[Answer, ...]
    bed: tuple[Edit, ...] = ()
    program: str = "single"
    choices: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    suits: Callable[[Mapping[str, Any], Mapping[str, str]], bool] | None = None
    same: frozenset[str] = frozenset()
    differs: frozenset[str] = frozenset()
    harmless: bool | None = False
    blind: bool = False
    expected: frozenset[str] = frozenset()
    precisions: tuple[str, ...] = ("float32", "bfloat16", "autocast")
    steps: int = 2
    world: int = 1
    reference_world: int | None = None
    source: str = ""
    large: bool = False
    headers: Mapping[str, Mapping[str, Any] | None] = field(default_factory=dict)
    device: str = ""


#: Words of Python that begin with ``@``.
_DECORATORS = ("@torch", "@staticmethod", "@property", "@dataclass", "@classmethod", "@contextmanager", "@rounded")
_HEADS = ((4, 2), (4, 4), (2, 1), (8, 2), (6, 3), (6, 2), (4, 1))


def _sizes_of_images(generator: random.Random) -> dict[str, Any]:
    groups, layers = generator.choice((2, 4)), generator.choice((1, 2))
    return {
        "layers": layers,
        "groups": groups,
        "width": groups * generator.choice((2, 4, 6)),
        "heads": 2,
        "batch": generator.choice((2, 3, 4)),
        "size": 8 if layers == 2 else generator.choice((4, 8)),
        "words": generator.choice((4, 6, 7)),
        "vocabulary": generator.choice((24, 32)),
    }


def _sizes_of_recurrent(generator: random.Random) -> dict[str, Any]:
    return {
        "layers": generator.randint(1, 3),
        "width": generator.choice((8, 12, 16)),
        "experts": generator.choice((4, 5, 6)),
        "batch": generator.choice((3, 4, 5)),
        "length": generator.choice((6, 8)),
        "notes": generator.choice((4, 6, 7)),
        "vocabulary": generator.choice((32, 48)),
    }


def _sizes_of_large(generator: random.Random) -> dict[str, Any]:
    return {"layers": 12, "length": generator.choice((128, 120, 112)), "vocabulary": generator.choice((10000, 12000))}


#: The sizes of the programs that have others than the decoder and the model of several ranks.
_SIZES = {"images": _sizes_of_images, "recurrent": _sizes_of_recurrent, "large": _sizes_of_large}


def draw(pattern: Pattern, number: int, salt: str = "") -> Draw:
    """Draw sizes, seed, layer and choices; the same number gives the same draw."""
    generator = random.Random(f"{pattern.id} {number} {salt}")
    while True:
        settings = {**_drawn_settings(pattern.program, generator), **pattern.settings}
        words = _drawn_words(pattern, settings, generator)
        if pattern.suits is None or pattern.suits(settings, words):
            return Draw(number, settings, words)


def small_draw(pattern: Pattern) -> Draw:
    """A draw with at most two layers, whose sizes and seed are those of the other patterns of its program, wherever
    they suit it: patterns that do not change the reference have one reference then.
    """
    for number in itertools.count():
        settings = _drawn_settings(pattern.program, random.Random(f"{pattern.program} {number}"))
        settings["layers"] = min(2, settings["layers"])
        settings.update(pattern.settings)
        words = _drawn_words(pattern, settings, random.Random(f"{pattern.id} {number}"))
        if pattern.suits is None or pattern.suits(settings, words):
            return Draw(number, settings, words)
    raise AssertionError("one of endlessly many suits")


def _drawn_settings(program: str, generator: random.Random) -> dict[str, Any]:
    heads, kv_heads = generator.choice(_HEADS)
    settings: dict[str, Any] = {
        "seed": generator.randrange(10_000),
        "layers": generator.randint(2, 4),
        "heads": heads,
        "kv_heads": kv_heads,
        "width": heads * generator.choice((8, 12, 16)),
        "batch": generator.randint(2, 4),
        "length": generator.choice((12, 16, 20, 24)),
        "vocabulary": generator.choice((64, 80, 96)),
    }
    if program in _SIZES:
        settings = {"seed": settings["seed"], **_SIZES[program](generator)}
    elif program != "single":
        settings = {"seed": settings["seed"], "layers": generator.randint(1, 3), "batch": generator.choice((4, 6))}
        settings["width"] = generator.choice((16, 24, 32))
        settings["length"] = generator.choice((8, 12))
        settings["vocabulary"] = generator.choice((32, 48))
    return settings


def _drawn_words(pattern: Pattern, settings: Mapping[str, Any], generator: random.Random) -> dict[str, str]:
    words = {"@layer": str(generator.randrange(settings.get("layers", 1)))}
    words["@rank"] = str(generator.randrange(max(1, pattern.world)))
    # How many matrices the model of one process has: the embedding, and six in each layer.
    words["@matrices"] = str(1 + 6 * settings.get("layers", 0))
    # Place of the layer's query weight among them, and how many parameters there are.
    words["@last"] = str(settings.get("layers", 1) - 1)
    words["@query"] = str(1 + 6 * int(words["@layer"]))
    words["@total"] = str(3 + 16 * settings.get("layers", 0))
    for name, choices in pattern.choices.items():
        words[f"@{name}"] = generator.choice(choices)
    if "which" in pattern.choices and pattern.program == "ranks":
        words["@owner"] = words["@which"].rpartition(".")[0]
        words["@place"] = str(_names_of_ranks(settings["layers"]).index(words["@which"]))
    return words


def _names_of_ranks(layers: int) -> list[str]:
    """The parameters of the model of several ranks, in their order."""
    inner = ("norm.weight", "norm.bias", "up.weight", "up.bias", "down.weight", "down.bias")
    blocks = [f"blocks.{index}.{name}" for index in range(layers) for name in inner]
    return ["embedding.weight", *blocks, "norm.weight", "norm.bias", "head.weight"]


def programs(pattern: Pattern, drawn: Draw) -> tuple[str, str]:
    """The texts of the candidate's and of the reference's program."""
    reference = edited((BEDS / f"{pattern.program}.py").read_text(), pattern.bed, drawn, pattern.id)
    return edited(reference, pattern.plant, drawn, pattern.id), reference


def edited(text: str, edits: tuple[Edit, ...], drawn: Draw, what: str = "") -> str:
    """The text after the edits; ValueError if one of them has no place."""
    for edit in edits:
        old, new = drawn.fill(edit.old), drawn.fill(edit.new)
        if text.count(old) != edit.times:
            raise ValueError(f"{what}: {old!r} is in the program {text.count(old)} times, not {edit.times}")
        text = text.replace(old, new)
    for edit in edits:
        left = [word for word in re.findall(r"@[a-z]+", drawn.fill(edit.new)) if word not in _DECORATORS]
        if left:
            raise ValueError(f"{what}: {left[0]} was not drawn")
    return text


def line_number(text: str, snippet: str) -> int:
    """The number, from 1, of the only line of a program that holds ``snippet``."""
    found = [number for number, line in enumerate(text.splitlines(), 1) if snippet in line]
    if len(found) != 1:
        raise ValueError(f"{snippet!r} stands on {len(found)} lines of the program, not on one")
    return found[0]
