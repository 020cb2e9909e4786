"""The list of commands: what there is, and which module does it. Importing this imports none of them."""

from __future__ import annotations

import argparse
import importlib
from typing import Protocol, cast


class Command(Protocol):
    """What a command's module provides.

    A command that runs another program also has ``split(words) -> (own, program)``, see ``run``. A command of several
    parts is a package that has ``SUBCOMMANDS`` instead, in the form of :data:`AVAILABLE`, see ``monitor``.
    """

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Add the command's arguments."""

    def execute(self, args: argparse.Namespace) -> int:
        """Do the work and return the exit status."""


# Name -> (module in this package, one line of help). The module is imported when the command is called.
AVAILABLE: dict[str, tuple[str, str]] = {
    "acc_check": ("run_ut", "the name of run_ut since 26.2"),
    "api_precision_compare": ("api_precision_compare", "compare what run_ut found on two devices"),
    "check": ("check", "say what is wrong in one dump, without another to compare it with"),
    "code_mapping": ("code_mapping", "name the source lines of the kernels of a MindSpore graph"),
    "collect": ("collect", "make one dump of folders that each have the ranks of one machine"),
    "compare": ("compare", "compare two dumps: where they part, and a sheet of all tensors"),
    "config_check": ("config_check", "say what differs before training starts: settings, packages, weights, data"),
    "confirm": ("confirm", "run a training with one call put right, and say whether it agrees then"),
    "data2db": ("data2db", "write runs of the monitor as a database, as `msprobe monitor to-db` does"),
    "demo": ("demo", "break a small training and find the line; the first minute with msprobe"),
    "doctor": ("doctor", "check this installation: other packages of our name, frameworks, extension, write access"),
    "grad_compare": ("grad_compare", "compare the gradients of two runs that grad_probe has recorded"),
    "graph": ("graph", "write the graph of a dump, or of two compared, for TensorBoard, as .vis files"),
    "graph_visualize": (
        "graph_visualize",
        "write the graph of a dump, or of two compared, for TensorBoard, as one .vis.db",
    ),
    "lockstep": ("lockstep", "run a training against a recorded one, and name every guilty call in one run"),
    "merge_result": ("merge_result", "show the comparisons of several ranks in one workbook"),
    "monitor": ("monitor", "watch, report and convert what the monitor wrote of a training"),
    "multi_acc_check": ("multi_run_ut", "the name of multi_run_ut since 26.2"),
    "multi_run_ut": ("multi_run_ut", "run_ut in several processes"),
    "nan_analyze": ("nan_analyze", "name the rank and the call where a NaN or an infinity comes from first"),
    "op_check": ("op_check", "check PyTorch's own samples of each operator on a device"),
    "op_generate": ("op_generate", "write a script that reproduces one call of a dump"),
    "overflow_check": ("nan_analyze", "the same as nan_analyze, under its newer name"),
    "parse": ("parse", "convert, print and compare dump files of kernels"),
    "reproduce": ("reproduce", "write a script that reproduces the call which a verdict names"),
    "rollout": ("rollout", "say where an inference engine and the trainer first disagree"),
    "run": ("run", "record a training script without touching its source"),
    "run_overflow_check": ("run_overflow_check", "say of each call whether its overflow is one on the CPU, too"),
    "run_ut": ("run_ut", "check the calls of a dump on a device, one API at a time"),
    "summary": ("summary", "show what a dump contains"),
    "view": ("view", "show a run, or two runs side by side, in the browser"),
}


def load(name: str) -> Command:
    """Import the module of an available command."""
    module, _ = AVAILABLE[name]
    return cast(Command, importlib.import_module(f"msprobe.cli.{module}"))


def load_part(name: str, module: str) -> Command:
    """Import the module of a part of a command."""
    return cast(Command, importlib.import_module(f"msprobe.cli.{AVAILABLE[name][0]}.{module}"))
