"""``msprobe grad_compare CANDIDATE REFERENCE -o OUT``: where gradients differ that ``grad_probe`` has recorded."""

from __future__ import annotations

import argparse
from pathlib import Path

from msprobe.cli import answers
from msprobe.cli.common import add_output
from msprobe.cli.runs import add_runs, two_runs
from msprobe.foreign.console import say
from msprobe.messages import both, said, translated

_FURTHER = 9
_EPILOG = both(
    "Give the dump_path of both runs, or a folder rank{N} of each. Writes gradients.html (all "
    "curves), verdict.csv (suspicious gradients, in the order in which to look at them) and, for "
    "each rank, similarities.csv and pictures (with matplotlib).\n\nA gradient is suspicious if fewer "
    "than 97 % of its elements have the same sign in the first step, or if this share falls by more "
    "than 3 percentage points in one step.",
    "请给出两次运行的 dump_path，或各自的一个 rank{N} 文件夹。写出 gradients.html（全部曲线）、"
    "verdict.csv（可疑的梯度，按查看次序）；每个 rank 还有 similarities.csv 与图片（需 matplotlib）。"
    "\n\n第一个 step 中符号相同的元素不足 97%，或该比例在一个 step 内下降超过 3 个百分点的梯度视为可疑"
    "。",
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.epilog = _EPILOG
    parser.usage = "msprobe grad_compare CANDIDATE REFERENCE -o DIR [OPTION ...]"
    add_runs(
        parser,
        "runs",
        both(
            "candidate and reference: dump_path of each run, or a folder rank{N} in it",
            "待比对侧与标杆侧：各自的 dump_path，或其中的 rank{N} 文件夹",
        ),
    )
    add_output(
        parser,
        both("folder for the results", "结果文件夹"),
        "--output_path",
        required=True,
    )
    parser.add_argument(
        "--plot",
        choices=("all", "summary", "none"),
        help=both(
            "pictures of each parameter, of all together, or none; default: all up to 50 parameters, else summary",
            "每个参数一张图（all）、只有汇总图（summary）或不画（none）；默认：参数不超过 50 个时为 all，否则 summary",
        ),
    )
    parser.add_argument(
        "--least",
        type=_share,
        default=None,
        metavar="S",
        help=both(
            "least share of equal signs in the first step; default: 0.97", "第一个 step 中符号相同的最低比例；默认 0.97"
        ),
    )
    parser.add_argument(
        "--drop",
        type=_share,
        default=None,
        metavar="S",
        help=both("largest loss of that share in one step; default: 0.03", "该比例在一个 step 内的最大降幅；默认 0.03"),
    )
    parser.add_argument(
        "--mapping",
        metavar="FILE",
        help=both(
            'JSON file {"name in the candidate": "name in the reference"}; regular expressions, too',
            'JSON 文件 {"待比对侧的名称": "标杆侧的名称"}；也可用正则表达式',
        ),
    )


def _share(text: str) -> float:
    value = float(text)
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(said("share-wanted", text))
    return value


def execute(args: argparse.Namespace) -> int:
    """Compare, print what was found, and return the exit status."""
    from msprobe.grad_probe import layout
    from msprobe.grad_probe.comparator import GradComparator
    from msprobe.grad_probe.verdict import DROP, FIRST

    candidate, reference = two_runs(args, args.runs)
    first = Path(candidate)
    is_rank = first.is_dir() and not layout.ranks_of(first) and bool(layout.summaries_of(first))
    compare = GradComparator.compare if is_rank else GradComparator.compare_distributed
    result = compare(
        candidate,
        reference,
        args.output_path,
        plot=args.plot,
        first=FIRST if args.least is None else args.least,
        drop=DROP if args.drop is None else args.drop,
        mapping=args.mapping,
        quiet=True,
    )
    answers.wrote(result.written)
    answers.note(problems=[problem.line for problem in result.problems], notes=list(result.notes))
    say(_printable(translated(result.line)))
    # One line for each parameter, the first one has been printed.
    seen = {(problem.rank, problem.parameter) for problem in result.problems[:1]}
    further = 0
    for problem in result.problems:
        if (problem.rank, problem.parameter) not in seen:
            seen.add((problem.rank, problem.parameter))
            further += 1
            if further <= _FURTHER:
                say("  " + _printable(translated(said("then-problem", problem.line))))
    if further > _FURTHER:
        say("  " + translated(said("more-in-verdict-csv", further - _FURTHER)))
    for note in result.notes[:20]:
        say("  " + _printable(translated(said("note-before", note))))
    if len(result.notes) > 20:
        say("  " + translated(said("more-notes-in-page", len(result.notes) - 20)))
    for path in result.written[:2]:
        say(_printable(f"  {path}"))
    return result.exit_code


def _printable(text: str) -> str:
    return "".join(character if character.isprintable() else ascii(character)[1:-1] for character in text)
