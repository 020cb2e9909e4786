"""``msprobe rollout``: where an inference engine and the trainer that learns from it first disagree.

``msprobe rollout --log-probs ENGINE TRAINER`` compares what both say of the same tokens, ``msprobe rollout ROLL
--trainer MODEL`` a recorded engine with the trainer's model.
"""

from __future__ import annotations

import argparse
import json
import os
from typing import TYPE_CHECKING, Any

from msprobe.cli import answers
from msprobe.cli.common import add_output
from msprobe.cli.parser import refuse_unused
from msprobe.cli.runs import add_runs, two_runs
from msprobe.errors import InvalidInputError, MsprobeError, NotAvailableError
from msprobe.foreign.console import say
from msprobe.messages import both, joined, said, translated
from msprobe.paths import make_folder, write_atomically

if TYPE_CHECKING:
    from msprobe.rollout.responses import Responses

FILE = "rollout.json"
PAGE = "rollout.html"
_EPILOG = (
    (
        "With --log-probs: .jsonl, .json, .csv or .pt files with token ids and log-probs of the same "
        "responses, as verl, "
        "slime, TRL, NeMo-RL, vLLM and SGLang write them; one file that has both may be given twice. "
        "Names what differs: "
        "responses, tokens, masks, weight versions, or what the log-probs mean (temperature, top-k and "
        "top-p, a shift, an "
        "entry of a dictionary).\n\n"
        "With ROLL and --trainer: ROLL is a step that msprobe.integrations.vllm recorded with task "
        "tensor. Compares the "
        "weights bit by bit, then runs the trainer's operators on the engine's own inputs and names the "
        "first that gives a "
        "different result.\n\n"
        "--candidate and --reference name the engine's side and the trainer's in either form: two files, or ROLL and "
        "MODEL.\n\n"
        "With -o DIR it writes DIR/{}, and the same as a page, DIR/{}."
    ),
    (
        "给出 --log-probs：同样回复的 token id 与 log-prob，.jsonl、.json、.csv 或 .pt 文件，格式同 verl、slime、TRL、"
        "NeMo-RL、vLLM 与 SGLang；含有两侧的一个文件可给出两次。指出不同之处：回复、token、掩码、权重版本，"
        "或 log-prob 的含义（温度、top-k 与 top-p、错位、字典中的条目）。\n\n"
        "给出 ROLL 与 --trainer：ROLL 是 msprobe.integrations.vllm 以 task tensor 采集的一个 step。逐位比对权重，"
        "然后用推理引擎自身的输入运行训练侧的算子，指出首个结果不同的算子。\n\n"
        "两种形式都可用 --candidate 与 --reference 指明推理引擎一侧与训练侧：两个文件，或 ROLL 与 MODEL。\n\n"
        "给出 -o DIR 时写出 DIR/{}，以及同样内容的页面 DIR/{}。"
    ),
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.epilog = both(*_EPILOG, FILE, PAGE)
    parser.add_argument(
        "roll",
        nargs="?",
        metavar="ROLL",
        help=both("a recorded step of the engine (with --trainer)", "推理引擎采集的一个 step（与 --trainer 同用）"),
    )
    parser.add_argument(
        "--trainer",
        metavar="MODEL",
        help=both(
            "folder of the trainer's model, as transformers saves it", "训练侧模型的文件夹，transformers 保存的格式"
        ),
    )
    parser.add_argument(
        "--log-probs",
        nargs=2,
        metavar=("ENGINE", "TRAINER"),
        help=both(
            "log-probs of the engine that generated, and of the trainer for the same tokens",
            "生成时推理引擎的 log-prob，与训练侧对同样 token 的 log-prob",
        ),
    )
    add_runs(parser, None)
    parser.add_argument(
        "--prefill",
        metavar="FILE",
        help=both(
            "the engine's log-probs of the same tokens in one pass (prompt_logprobs)",
            "推理引擎对同样 token 一次前向算出的 log-prob（prompt_logprobs）",
        ),
    )
    parser.add_argument(
        "--operators",
        action="store_true",
        help=both(
            "show for each module the share of equal bits and its rounding", "对每个模块显示逐位相同的比例与舍入"
        ),
    )
    add_output(
        parser,
        both(f"write {FILE} and {PAGE} there", f"在此写出 {FILE} 与 {PAGE}"),
        "--output_path",
    )


def execute(args: argparse.Namespace) -> int:
    """Hold both sides against each other, print what was found, and return the exit status."""
    from msprobe.cli.output_folder import usable_output

    _take_sides(args)
    folder = usable_output(args.output_path, [FILE, PAGE]) if args.output_path is not None else None
    if args.log_probs is None:
        if args.roll is None or args.trainer is None:
            raise InvalidInputError(said("rollout-sides-missing"))
        refuse_unused({"--prefill": args.prefill}, both("it needs --log-probs", "它需要 --log-probs"))
        shown, tree, page, status = _operators(args)
    else:
        unused = {"ROLL": args.roll, "--trainer": args.trainer, "--operators": args.operators or None}
        refuse_unused(unused, both("--log-probs compares two files", "--log-probs 比对两个文件"))
        shown, tree, page, status = _contract(args)
    text = json.dumps(tree, indent=1, ensure_ascii=False, default=str)
    answers.whole(text)
    if folder is not None:
        make_folder(folder)
        write_atomically(folder / FILE, text.encode() + b"\n", fsync=False)
        write_atomically(folder / PAGE, page, fsync=False)
        answers.wrote([folder / FILE, folder / PAGE])
        files = f"{folder / FILE}, {folder / PAGE}"
        shown.append(f"  {translated(said('rollout-written', files))}")
    say("\n".join(shown))
    return status


def _take_sides(args: argparse.Namespace) -> None:
    """Put sides that are given by name where their own options have them: two files, or a recording and a model."""
    if args.candidate is None and args.reference is None:
        return
    unused = {"ROLL": args.roll, "--trainer": args.trainer, "--log-probs": args.log_probs}
    refuse_unused(unused, both("both sides have names", "两侧已按名称给出"))
    engine, trainer = two_runs(args, ())
    if os.path.isdir(engine):
        args.roll, args.trainer = engine, trainer
    else:
        args.log_probs = [engine, trainer]


def _contract(args: argparse.Namespace) -> tuple[list[str], dict[str, Any], bytes, int]:
    from msprobe.rollout.contract import hold
    from msprobe.rollout.page import page
    from msprobe.rollout.texts import as_json, headline, lines, remarks

    engine, trainer, prefill = _read(args)
    contract = hold(engine, trainer, prefill)
    sides = contract, engine, trainer
    shown = page(contract.status, headline(contract), contract.findings, remarks(*sides))
    return lines(*sides), as_json(*sides), shown, contract.exit_code


def _operators(args: argparse.Namespace) -> tuple[list[str], dict[str, Any], bytes, int]:
    from msprobe.rollout.page import page
    from msprobe.rollout.texts import compared_headline, compared_json, compared_lines, compared_remarks

    try:
        from msprobe.rollout.torch.comparing import compare_engine
    except ModuleNotFoundError as problem:
        if problem.name != "torch":
            raise
        raise NotAvailableError(said("trainer-packages-missing")) from problem
    compared = compare_engine(args.roll, args.trainer)
    first, findings = compared_headline(compared), compared.all_findings
    shown = page(compared.status, first, findings, compared_remarks(compared), compared.operators)
    return compared_lines(compared, args.operators), compared_json(compared), shown, compared.exit_code


def _read(args: argparse.Namespace) -> tuple[Responses, Responses, Responses | None]:
    """The files that are given; all that is wrong with them at once."""
    from msprobe.rollout.responses import read_responses

    sides: list[Responses] = []
    problems: list[MsprobeError] = []
    wanted = [(args.log_probs[0], "engine"), (args.log_probs[1], "trainer")]
    wanted += [(args.prefill, "engine")] if args.prefill is not None else []
    for path, side in wanted:
        try:
            sides.append(read_responses(path, "engine" if side == "engine" else "trainer"))
        except MsprobeError as problem:
            if problem.message not in [mistake.message for mistake in problems]:
                problems.append(problem)
    if problems:
        raise type(problems[0])(joined(" ", (mistake.message for mistake in problems))) from problems[0]
    engine, trainer = sides[0], sides[1]
    if engine.field == trainer.field and os.path.realpath(engine.path) == os.path.realpath(trainer.path):
        raise InvalidInputError(said("rollout-one-field", engine.field, engine.path))
    return engine, trainer, sides[2] if len(sides) > 2 else None
