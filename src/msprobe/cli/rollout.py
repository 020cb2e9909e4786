"""``msprobe rollout --log-probs ENGINE TRAINER``: do engine and trainer mean the same by log-probs?

Exit status: 0 they agree; 1 something does not hold; 2 bad input, or nothing found where not all could be read.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING

from msprobe.errors import MsprobeError
from msprobe.foreign.console import say

if TYPE_CHECKING:
    from msprobe.rollout.contract import Contract
    from msprobe.rollout.responses import Responses

BAD_INPUT_STATUS = 2
FILE = "rollout.json"
_EPILOG = f"""\
ENGINE and TRAINER are .jsonl, .json, .csv or .pt files with token ids and log-probs of the same responses, as verl,
slime, TRL, NeMo-RL, vLLM and SGLang write them; one file that has both may be given twice. Names what does not hold:
responses, tokens, masks, weight versions, or what the log-probs mean (temperature, top-k and top-p, a shift, an entry
of a dictionary). With -o DIR it writes DIR/{FILE}.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _EPILOG
    parser.add_argument(
        "--log-probs",
        nargs=2,
        required=True,
        metavar=("ENGINE", "TRAINER"),
        help="log-probs of the engine that generated, and of the trainer for the same tokens",
    )
    parser.add_argument(
        "--prefill", metavar="FILE", help="the engine's log-probs of the same tokens in one pass (prompt_logprobs)"
    )
    parser.add_argument("-o", "--output_path", metavar="DIR", help=f"write {FILE} there")
    parser.add_argument(
        "--json", choices=("-",), metavar="-", help="print the result as JSON and nothing else; no file is written"
    )


def execute(args: argparse.Namespace) -> int:
    """Hold both sides against each other, print what was found, and return the exit status."""
    try:
        return _execute(args)
    except MsprobeError as problem:
        if args.debug:
            raise
        say(f"msprobe: {problem.message}", file=sys.stderr)
        return BAD_INPUT_STATUS


def _execute(args: argparse.Namespace) -> int:
    from msprobe.cli.output_folder import usable_output
    from msprobe.cli.parser import refuse_unused
    from msprobe.paths import make_folder, write_atomically
    from msprobe.rollout.contract import hold
    from msprobe.rollout.texts import lines

    if args.json is not None:
        refuse_unused({"-o": args.output_path}, "--json - prints the result and writes no file")
    folder = usable_output(args.output_path, [FILE]) if args.output_path is not None else None
    engine, trainer, prefill = _read(args)
    contract = hold(engine, trainer, prefill)
    if args.json is not None:
        say(_text(contract, engine, trainer))
        return contract.exit_code
    shown = lines(contract, engine, trainer)
    if folder is not None:
        make_folder(folder)
        write_atomically(folder / FILE, _text(contract, engine, trainer).encode() + b"\n", fsync=False)
        shown.append(f"  written: {folder / FILE}")
    say("\n".join(shown))
    return contract.exit_code


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
    return found[0], found[1], found[2] if len(found) > 2 else None


def _text(contract: Contract, engine: Responses, trainer: Responses) -> str:
    from msprobe.rollout.texts import as_json

    return json.dumps(as_json(contract, engine, trainer), indent=1, ensure_ascii=False, default=str)
