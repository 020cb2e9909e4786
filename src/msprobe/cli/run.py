"""``msprobe run``: record a training script whose source is not touched."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from msprobe.capture.step_on import StepOn
from msprobe.cli import answers
from msprobe.cli.common import add_output
from msprobe.distribution import install
from msprobe.errors import InvalidInputError, NotAvailableError
from msprobe.messages import both, said

TASKS = ("statistics", "tensor", "structure", "overflow_check", "nan_check", "lockstep")
LEVELS = ("L0", "L1", "L2", "mix", "debug")

# The options that take a value as the next word; `split` has to know them to find where the script begins.
_VALUED = (
    *("-o", "--output", "--config", "--task", "--level", "--dump-path", "--dump_path", "--first-step", "--first_step"),
    *("--step-on", "--step_on", "--reference", "--verdict", "--only", "--limit"),
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``msprobe run``."""
    parser.usage = (
        "msprobe run [--config FILE] [--task T] [--level L] [-o DIR] [--first-step N] [--step-on WHAT] [--jitter] [--] "
        "SCRIPT [ARGUMENT ...]"
    )
    parser.epilog = both(
        "SCRIPT and its arguments are run as `python SCRIPT ARGUMENT ...` would run them; `-m MODULE` "
        "and commands such as torchrun are possible after `--`, and the ranks that the script starts are "
        "recorded as well. A step ends when the weights are updated, by a step of the optimizer or by "
        "hand; --step-on names a different event. The model is found when it is first called. A script "
        "that constructs a PrecisionDebugger itself is recorded by that one.",
        "SCRIPT 及其参数与 `python SCRIPT ARGUMENT ...` 一样运行；`--` 之后也可以是 `-m MODULE` 或 "
        "torchrun 等命令，脚本启动的各 rank 同样会被采集。权重更新（优化器的一步，或手动更新）时 step 结"
        "束；--step-on 可指定其他时机。模型在首次调用时自动找到。自己构造 PrecisionDebugger 的脚本由它自"
        "己采集。",
    )
    parser.add_argument(
        "--config",
        metavar="FILE",
        help=both("config.json; without it: statistics at level L1", "config.json；不给则为 L1 级统计量"),
    )
    parser.add_argument(
        "--task",
        choices=TASKS,
        help=both("overrides the one of the configuration", "覆盖配置中的值"),
    )
    parser.add_argument(
        "--level",
        choices=LEVELS,
        help=both("overrides the one of the configuration", "覆盖配置中的值"),
    )
    add_output(
        parser,
        both("where the dump goes, instead of the configured folder", "dump 写到哪里，覆盖配置中的文件夹"),
        "--dump-path",
        "--dump_path",
    )
    parser.add_argument(
        "--first-step",
        "--first_step",
        type=step_number,
        metavar="N",
        help=both(
            "the number of the first step (0); for a resumed training, the step at which it continues",
            "第一个 step 的编号（0）；续训时为继续的那个 step",
        ),
    )
    add_step_on(parser)
    parser.add_argument(
        "--jitter",
        action="store_true",
        default=None,
        help=both(
            "move what operators compute by a unit in the last place, as on a different device: the dump is a second "
            "healthy run for msprobe compare --noise",
            "让算子的计算结果移动最后一位的一个单位，如同换了一台设备：得到的 dump 可作为 msprobe compare --noise "
            "的第二次正常运行",
        ),
    )
    # Of task lockstep: what `msprobe lockstep` passes to the ranks that its script starts.
    for option in ("--reference", "--verdict", "--only"):
        parser.add_argument(option, help=argparse.SUPPRESS)


def add_step_on(parser: argparse.ArgumentParser) -> None:
    """Add the option of all commands that run a script, and count its steps."""
    parser.add_argument(
        "--step-on",
        "--step_on",
        type=step_on,
        metavar="WHAT",
        help=both(
            "what ends a step, if it is not the update of the weights: backward (each backward pass), "
            "optimizer:NAME (a step of that optimizer: its class, a variable of the script, or its number in "
            "the order of creation, from 0), or call:FUNCTION (the return of a function: train_step, "
            "Trainer.train_step, or package.module.train_step)",
            "不以权重更新结束 step 时，以什么结束：backward（每次反向）、optimizer:NAME（该优化器的一步：类名"
            "、脚本中的变量，或创建次序编号，从 0 开始），或 call:FUNCTION（函数返回：train_step、"
            "Trainer.train_step 或 package.module.train_step）",
        ),
    )


def step_number(text: str) -> int:
    """A number of a step, from an option."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(said("step-wanted", text))
    return int(text)


def step_on(text: str) -> str:
    """What ends a step, from an option."""
    try:
        return str(StepOn.parse(text))
    except InvalidInputError as problem:
        raise argparse.ArgumentTypeError(problem.message.removeprefix("--step-on: ")) from None


def split(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """Separate the options of msprobe from the script and its arguments.

    The script begins after the first ``--`` or at the first word that is neither an option nor its value.
    """
    skip = False
    for position, word in enumerate(argv):
        if skip:
            skip = False
        elif word == "--":
            return list(argv[:position]), list(argv[position + 1 :])
        elif word in _VALUED:
            skip = True
        elif not word.startswith("-"):
            return list(argv[:position]), list(argv[position:])
    return list(argv), []


def execute(args: argparse.Namespace) -> int:
    """Run the script with recording on; the exit status is the script's own."""
    if not args.foreign:
        raise InvalidInputError(said("run-without-script"))
    if args.framework == "mindspore":
        raise NotAvailableError(said("run-for-mindspore"))
    try:
        from msprobe.launcher.runscript import run_script
    except ModuleNotFoundError as problem:
        if problem.name != "torch":
            raise
        raise NotAvailableError(said("run-without-torch", install("torch"))) from problem
    overrides: dict[str, Any] = {
        name: value
        for name, value in (
            ("task", args.task),
            ("level", args.level),
            ("dump_path", args.dump_path),
            ("first_step", args.first_step),
            ("step_on", args.step_on),
            ("jitter", args.jitter),
            ("reference", args.reference),
            ("verdict", args.verdict),
            ("only", args.only),
        )
        if value is not None
    }
    answers.note(script=args.foreign, dump_path=args.dump_path)
    return run_script(args.config, args.foreign, **overrides)
