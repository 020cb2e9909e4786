"""The commands: each declared once, in :data:`COMMANDS`. Importing this imports none of them.

Help, parsers, completion and the reference in docs/ are made from these declarations and from what a command's module
adds to its parser.
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, cast

if TYPE_CHECKING:
    from msprobe.cli.parser import Parser

#: Name -> what one does with its commands, in the order in which a session goes.
GROUPS: dict[str, str] = {
    "record": "record a training",
    "look": "look at one recording",
    "compare": "compare two recordings",
    "prove": "prove which call is wrong",
    "watch": "watch a training of many steps",
    "environment": "installation, settings, weights",
}


class Module(Protocol):
    """What a command's module provides.

    One that runs a program of the user also has ``split(words) -> (own, program)``, see ``run``.
    """

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Add the command's arguments."""

    def execute(self, args: argparse.Namespace) -> int:
        """Do the work and return the exit status."""


@dataclass(frozen=True)
class Command:
    """One command, as all that is made of it needs it.

    ``name``: as it is typed; of two words for a command of a family (``monitor diff``). ``module``: below
    ``msprobe.cli``; imported when the command is called. ``reads`` and ``writes``: inputs and outputs in words, for the
    table of the reference. ``clean``, ``found``, ``could_not``: what exit status 0, 1 and 2 say; no ``found``: it never
    answers with 1; ``could_not`` is what there is beside wrong usage and bad input. ``aliases``: further names.
    ``published``: its command line is that of mindstudio-probe, so its single letters mean what they mean there.
    """

    name: str
    module: str
    group: str
    purpose: str
    reads: str
    writes: str = ""
    clean: str = "done"
    found: str = ""
    could_not: str = ""
    aliases: tuple[str, ...] = ()
    published: bool = False

    def load(self) -> Module:
        """Its module, imported now."""
        return cast(Module, importlib.import_module(f"msprobe.cli.{self.module}"))

    @property
    def sentence(self) -> str:
        """What it is for."""
        return f"{self.purpose[0].upper()}{self.purpose[1:]}."

    @property
    def statuses(self) -> str:
        """What its exit statuses say, in a sentence."""
        two = "wrong usage or bad input" + (f", or {self.could_not}" if self.could_not else "")
        one = f"1 {self.found}; " if self.found else ""
        return f"Exit status: 0 {self.clean}; {one}2 {two}."


_NOT_ALL = "nothing was found and not all could be read"
_CHECKED = "done, whatever was found (as mindstudio-probe)"
_ERRORS = "with --fail-on: there are errors"
_DECLARED: tuple[Command, ...] = (
    Command(
        "run",
        "run",
        "record",
        "record a training script without touching its source",
        reads="a script",
        writes="a dump",
        clean="the script's own status, as every other",
        could_not="there is nothing to run",
    ),
    Command(
        "collect",
        "collect",
        "record",
        "make one dump of folders that each have the ranks of one machine",
        reads="folders of dumps, or URLs of object storage",
        writes="a dump of links",
    ),
    Command(
        "summary",
        "summary",
        "look",
        "show what a dump contains",
        reads="a dump",
        found="a step or rank of it cannot be read, or a rank is missing",
    ),
    Command(
        "view",
        "view",
        "look",
        "show a run, or two runs side by side, in the browser",
        reads="one dump, or two, a verdict or a graph file",
        writes="with -o: a page",
    ),
    Command(
        "check",
        "check",
        "look",
        "name what is wrong in one dump, without a second one",
        reads="a dump",
        writes="with -o: check.json",
        clean="nothing was found, or only what is harmless",
        found="something was",
        could_not=_NOT_ALL,
    ),
    Command(
        "nan_analyze",
        "nan_analyze",
        "look",
        "name the rank and the call where a NaN or an infinity comes from first",
        reads="a dump",
        writes="anomaly_analyze_*.json",
        clean=_CHECKED,
        found="with --fail-on found: there is one",
        could_not=_NOT_ALL,
        aliases=("overflow_check",),
        published=True,
    ),
    Command(
        "graph",
        "graph",
        "look",
        "write the graph of a dump, or of two compared, for TensorBoard, as .vis files",
        reads="compare.json",
        writes="*.vis",
        could_not="a step or a rank of one side was not compared",
        published=True,
    ),
    Command(
        "graph_visualize",
        "graph_visualize",
        "look",
        "write the graph of a dump, or of two compared, for TensorBoard, as one .vis.db",
        reads="one dump, or two",
        writes="*.vis.db",
        could_not="a step or a rank of one side was not compared",
        published=True,
    ),
    Command(
        "parse",
        "parse",
        "look",
        "convert, print and compare dump files of kernels",
        reads="files of kernels",
        writes="with -d: .npy or .pt files",
        could_not="a file cannot be converted",
        published=True,
    ),
    Command(
        "code_mapping",
        "code_mapping",
        "look",
        "name the source lines of the kernels of a MindSpore graph",
        reads="a graph and a dump of kernels",
        writes="code_mapping_*.csv",
        published=True,
    ),
    Command(
        "compare",
        "compare",
        "compare",
        "compare two dumps: the first call that differs, and a sheet of all tensors",
        reads="two dumps, or compare.json",
        writes="with -o: verdict.json; a sheet",
        clean="they agree, or differ harmlessly (--fail-on changes that); a sheet is written",
        found="they differ",
        could_not="they cannot be compared, or agree where not all of both was compared",
        published=True,
    ),
    Command(
        "grad_compare",
        "grad_compare",
        "compare",
        "compare the gradients of two runs that grad_probe has recorded",
        reads="two folders of grad_probe",
        writes="gradients.html, verdict.csv",
        clean="no gradient is suspicious",
        found="some are",
        could_not="none is and not all could be compared",
    ),
    Command(
        "merge_result",
        "merge_result",
        "compare",
        "show the sheets of several ranks in one workbook",
        reads="sheets of compare",
        writes="a workbook",
        could_not="a rank or a name is missing",
        published=True,
    ),
    Command(
        "rollout",
        "rollout",
        "compare",
        "name where an inference engine and the trainer first disagree",
        reads="two files of log-probs, or a recorded engine and a model",
        writes="with -o: rollout.json, rollout.html",
        clean="they agree",
        found="something does not hold",
        could_not=_NOT_ALL,
    ),
    Command(
        "lockstep",
        "lockstep",
        "prove",
        "run a training against a recorded one, and name every wrong call in one run",
        reads="a dump with tensors and a script",
        writes="a dump and verdict.json",
        clean="they agree",
        found="calls differ beyond rounding",
        could_not="they cannot be compared, or the script failed before anything was found",
    ),
    Command(
        "confirm",
        "confirm",
        "prove",
        "run a training with one call put right, and say whether it agrees then",
        reads="verdict.json and a script",
        writes="a dump",
        clean="they agree then, so this explains all",
        found="they do not",
        could_not="they cannot be compared",
    ),
    Command(
        "reproduce",
        "reproduce",
        "prove",
        "write a script that reproduces the call which a verdict names",
        reads="verdict.json",
        writes="a script",
        clean="the script is written",
        could_not="with --minimize: it cannot be run",
    ),
    Command(
        "op_generate",
        "op_generate",
        "prove",
        "write a script that reproduces one call of a dump",
        reads="dump.json, or config_op.json",
        writes="a script",
        clean="the script is written",
        could_not="with --minimize: it cannot be run",
        published=True,
    ),
    Command(
        "run_ut",
        "run_ut",
        "prove",
        "check the calls of a dump on a device, one API at a time",
        reads="dump.json",
        writes="accuracy_checking_*.csv",
        clean=_CHECKED,
        found=_ERRORS,
        aliases=("acc_check",),
        published=True,
    ),
    Command(
        "multi_run_ut",
        "multi_run_ut",
        "prove",
        "run_ut in several processes",
        reads="dump.json",
        writes="accuracy_checking_*.csv",
        clean=_CHECKED,
        found=_ERRORS,
        aliases=("multi_acc_check",),
        published=True,
    ),
    Command(
        "api_precision_compare",
        "api_precision_compare",
        "prove",
        "compare what run_ut found on two devices",
        reads="two files of run_ut",
        writes="api_precision_compare_*.csv",
        clean=_CHECKED,
        found="with --fail-on found: there are errors",
        published=True,
    ),
    Command(
        "run_overflow_check",
        "run_overflow_check",
        "prove",
        "say of each call whether its overflow is one on the CPU, too",
        reads="dump.json",
        clean=_CHECKED,
        found="with --fail-on found: a call overflows on one side only",
        could_not="no call overflows on one side only, and not all could be checked",
        published=True,
    ),
    Command(
        "op_check",
        "op_check",
        "prove",
        "check PyTorch's own samples of each operator on a device",
        reads="nothing",
        writes="accuracy_checking_*.csv",
        clean="no errors",
        found="there are some",
    ),
    Command(
        "monitor watch",
        "monitor.watch",
        "watch",
        "show a training while it runs, in the terminal",
        reads="a monitored run",
    ),
    Command(
        "monitor analyse",
        "monitor.analyse",
        "watch",
        "name the earliest alerts of all ranks, and ranks that no longer agree",
        reads="a monitored run",
        writes="anomaly_analyse.json",
        clean="rules looked at all ranks and runs, and there are none (with -s: none of these steps)",
        found="there are some, or ranks that held the same numbers no longer do",
        could_not="there are none in what was read and of something it is not known",
        published=True,
    ),
    Command(
        "monitor diff",
        "monitor.diff",
        "watch",
        "name the first step at which two trainings differ",
        reads="two monitored runs",
        clean="no bad step",
        found="there is one",
        could_not="there is none in what was compared, and a rank, a run, a quantity or steps in between were not",
    ),
    Command(
        "monitor report",
        "monitor.report",
        "watch",
        "write one run, or two side by side, as a page that needs nothing else",
        reads="a monitored run, or two",
        writes="monitor.html",
    ),
    Command(
        "monitor to-db",
        "monitor.to_db",
        "watch",
        "write the database that the trend viewer and SQL read",
        reads="a monitored run, or a dump",
        writes="*.trend.db",
        aliases=("data2db",),
        published=True,
    ),
    Command(
        "monitor to-tensorboard",
        "monitor.to_tensorboard",
        "watch",
        "write event files for TensorBoard",
        reads="a monitored run",
        writes="event files",
    ),
    Command(
        "config_check",
        "config_check",
        "environment",
        "name what differs before training starts: settings, packages, weights, data",
        reads="two packs, two checkpoints or two logs",
        writes="a pack, or what differs",
        clean="nothing that matters differs, or a pack was written",
        found="something does",
        could_not="nothing differs in what was read and not all of the input was",
        published=True,
    ),
    Command(
        "doctor",
        "doctor",
        "environment",
        "check this installation: other packages of our name, frameworks, extension, write access",
        reads="nothing",
        clean="nothing is an error",
        found="something is",
    ),
    Command(
        "demo",
        "demo",
        "environment",
        "break a small training and find the line; the first minute with msprobe",
        reads="nothing",
        writes="two dumps, a verdict and a page",
    ),
    Command(
        "explain",
        "explain",
        "environment",
        "say what a message means, what usually causes it, and what to do",
        reads="nothing",
    ),
    Command(
        "completion",
        "completion",
        "environment",
        "print what completes command lines in bash, zsh or fish",
        reads="nothing",
    ),
    Command(
        "help",
        "help",
        "environment",
        "explain a command; --all lists further names of commands, too",
        reads="nothing",
    ),
)

#: Name -> command, in the order of the groups.
COMMANDS: dict[str, Command] = {one.name: one for one in _DECLARED}
#: Further name -> the name of its command.
ALIASES: dict[str, str] = {alias: one.name for one in _DECLARED for alias in one.aliases}


def known_names() -> list[str]:
    """Every first word that a command line may have."""
    return list(dict.fromkeys([*(name.split()[0] for name in COMMANDS), *ALIASES]))


def family(word: str) -> dict[str, Command]:
    """Second word -> command, of a command of two words; empty if ``word`` is none."""
    return {name.split()[1]: one for name, one in COMMANDS.items() if name.split()[0] == word and " " in name}


def named(word: str) -> str:
    """A first word as it stands here: hyphens may stand for underscores."""
    return word if word in known_names() else word.replace("-", "_")


def of_group(group: str) -> Sequence[Command]:
    """The commands of a group."""
    return [one for one in _DECLARED if one.group == group]


def parser_of(command: Command, called: str = "") -> Parser:
    """The whole parser of a command, with the options of all. ``called``: the name that was typed."""
    from msprobe.cli.common import add_common
    from msprobe.cli.parser import Parser

    parser = Parser(prog=f"msprobe {called or command.name}", description=command.sentence)
    command.load().configure(parser)
    add_common(parser)
    parser.settle()
    parser.add_statuses(command.statuses)
    return parser
