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
from msprobe.errors import InvalidInputError, MsprobeError, NotAvailableError
from msprobe.foreign.console import say
from msprobe.messages import said, translated
from msprobe.paths import make_folder, write_atomically

if TYPE_CHECKING:
    from msprobe.rollout.responses import Responses

FILE = "rollout.json"
PAGE = "rollout.html"
_EPILOG = f"""\
With --log-probs: .jsonl, .json, .csv or .pt files with token ids and log-probs of the same responses, as verl, slime,
TRL, NeMo-RL, vLLM and SGLang write them; one file that has both may be given twice. Names what does not hold:
responses, tokens, masks, weight versions, or what the log-probs mean (temperature, top-k and top-p, a shift, an entry
of a dictionary).

With ROLL and --trainer: ROLL is a step that msprobe.integrations.vllm recorded with task tensor. Compares the weights
bit by bit, then runs the trainer's operators on the engine's own inputs and names the first that gives other results.

With -o DIR it writes DIR/{FILE}, and the same as a page, DIR/{PAGE}.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.epilog = _EPILOG
    parser.add_argument("roll", nargs="?", metavar="ROLL", help="a recorded step of the engine (with --trainer)")
    parser.add_argument("--trainer", metavar="MODEL", help="folder of the trainer's model, as transformers saves it")
    parser.add_argument(
        "--log-probs",
        nargs=2,
        metavar=("ENGINE", "TRAINER"),
        help="log-probs of the engine that generated, and of the trainer for the same tokens",
    )
    parser.add_argument(
        "--prefill", metavar="FILE", help="the engine's log-probs of the same tokens in one pass (prompt_logprobs)"
    )
    parser.add_argument(
        "--operators", action="store_true", help="show for each module the share of equal bits and its rounding"
    )
    add_output(parser, f"write {FILE} and {PAGE} there", "--output_path")


def execute(args: argparse.Namespace) -> int:
    """Hold both sides against each other, print what was found, and return the exit status."""
    return _execute(args)


def _execute(args: argparse.Namespace) -> int:
    from msprobe.cli.output_folder import usable_output
    from msprobe.cli.parser import refuse_unused

    folder = usable_output(args.output_path, [FILE, PAGE]) if args.output_path is not None else None
    if args.log_probs is None:
        if args.roll is None or args.trainer is None:
            raise InvalidInputError(said("rollout-sides-missing"))
        refuse_unused({"--prefill": args.prefill}, "it goes with --log-probs")
        shown, tree, page, status = _operators(args)
    else:
        unused = {"ROLL": args.roll, "--trainer": args.trainer, "--operators": args.operators or None}
        refuse_unused(unused, "--log-probs compares two files")
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

    found: list[Responses] = []
    problems: list[MsprobeError] = []
    wanted = [(args.log_probs[0], "engine"), (args.log_probs[1], "trainer")]
    wanted += [(args.prefill, "engine")] if args.prefill is not None else []
    for path, side in wanted:
        try:
            found.append(read_responses(path, "engine" if side == "engine" else "trainer"))
        except MsprobeError as problem:
            if problem.message not in [one.message for one in problems]:
                problems.append(problem)
    if problems:
        raise type(problems[0])(" ".join(one.message for one in problems)) from problems[0]
    engine, trainer = found[0], found[1]
    if engine.field == trainer.field and os.path.realpath(engine.path) == os.path.realpath(trainer.path):
        raise InvalidInputError(said("rollout-one-field", engine.field, engine.path))
    return engine, trainer, found[2] if len(found) > 2 else None
