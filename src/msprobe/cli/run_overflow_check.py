"""``msprobe run_overflow_check``: is what overflowed on the device an overflow on the CPU as well?

Prints a line for each call and writes no file. Of a MindSpore dump the records say what
overflowed on the device.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence

from msprobe.cli import answers
from msprobe.cli.parser import UsageError, add_fail_on, seconds
from msprobe.cli.statuses import CLEAN
from msprobe.messages import both, said

_SKIPPED = ("Distributed", "MindSpeed", "NPU")
_MOST_NAMED = 5


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "-api_info",
        "--api_info_file",
        required=True,
        metavar="FILE",
        help=both("dump.json", "dump.json"),
    )
    parser.add_argument(
        "-j",
        "--jit_compile",
        metavar="WORD",
        help=both(
            "accepted for old command lines; has no effect, and warns of that", "为旧命令行保留；不起作用，并会提示"
        ),
    )
    parser.add_argument(
        "-d",
        "--device",
        default="0",
        metavar="ID",
        help=both("number or name of the device (0)", "设备的编号或名称（0）"),
    )
    parser.add_argument(
        "--candidate",
        metavar="WHO",
        help=both(
            "the device, in place of -d; `msprobe run_ut -h` lists what can be given",
            "设备，代替 -d；可给出的值见 `msprobe run_ut -h`",
        ),
    )
    add_fail_on(
        parser,
        both("a call that overflows on one side only", "只在一侧溢出的调用"),
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=1234,
        help=both("random seed of generated values (1234)", "生成数值的随机种子（1234）"),
    )
    parser.add_argument(
        "--timeout",
        type=seconds,
        default=600.0,
        metavar="S",
        help=both("seconds for one call (600)", "一个调用的最长秒数（600）"),
    )


def execute(args: argparse.Namespace) -> int:
    """Check all calls and print what was found; 2 where nothing was and not all could be checked."""
    if args.device.lstrip("-").isdigit() and int(args.device) < 0:
        raise UsageError(said("overflow-device-negative", args.device))
    if args.candidate == "recorded":
        raise UsageError(said("overflow-candidate-recorded"))
    from pathlib import Path

    from msprobe import log
    from msprobe.cli.run_ut import demand_calls
    from msprobe.coverage import Coverage, NotRead
    from msprobe.precheck import mindspore_rows
    from msprobe.precheck.executors import executor_of
    from msprobe.precheck.job import Task
    from msprobe.precheck.overflow import ABNORMAL, SKIPPED
    from msprobe.precheck.pool import Pool
    from msprobe.precheck.requests import open_requests
    from msprobe.precheck.selection import Selection
    from msprobe.report.phrases import clean

    if args.jit_compile is not None:
        log.warning(said("overflow-jit-without-effect"))
    candidate = args.candidate or (f"auto:{args.device}" if args.device.isdigit() else args.device)
    executor_of(candidate)
    requests = open_requests(args.api_info_file)
    demand_calls(requests, None)
    is_mindspore = requests.framework == "mindspore"
    if is_mindspore and args.candidate:
        raise UsageError(said("overflow-candidate-of-mindspore"))
    kind = "mindspore overflow" if is_mindspore else "overflow"
    task = Task(str(Path(args.api_info_file).absolute()), candidate=candidate, seed=args.seed, kind=kind)
    keys = [key for key in requests.keys if not Selection().refuse(key, _SKIPPED)]
    if is_mindspore:
        keys = [key for key in keys if mindspore_rows.is_checked(key)]
    keys_by_word: dict[str, list[str]] = {}
    skipped: list[NotRead] = []
    with Pool([task], args.timeout) as pool:
        for answer in pool.answers([(key, False) for key in keys]):
            noted = answer.notes or [said("one-call-skipped", answer.key, answer.result[3])]
            keys_by_word.setdefault(answer.result[1] if answer.notes else SKIPPED, []).append(answer.key)
            if not answer.notes:
                skipped.append(NotRead(answer.key, clean(str(answer.result[3]))))
            log.info(clean(noted[0]))
    if not requests.part.complete:
        skipped.append(NotRead(said("after-end-of-dump"), said("was-not-recorded")))
    covered = Coverage(
        {"calls": sum(map(len, keys_by_word.values())) - len(keys_by_word.get(SKIPPED, ()))}, tuple(skipped)
    )
    answers.whole(json.dumps({"version": 1, "calls": keys_by_word, "coverage": covered.as_json()}, indent=1))
    log.info(clean(_in_all(keys_by_word)))
    if not covered.is_complete:
        log.warning(covered.sentence("checked"))
    log.info("Successfully completed run_overflow_check")
    is_found = bool(keys_by_word.get(ABNORMAL))
    return CLEAN if is_found and args.fail_on == "never" else covered.status(is_found)


def _in_all(keys_by_word: Mapping[str, Sequence[str]]) -> str:
    """All of it in a sentence, with the calls that matter by name. The calls that do not overflow are normal, too."""
    from msprobe.precheck.overflow import ABNORMAL, NORMAL, SKIPPED

    def named(word: str) -> str:
        names = keys_by_word.get(word, ())
        more = ", ..." if len(names) > _MOST_NAMED else ""
        return f"{len(names)} ({', '.join(names[:_MOST_NAMED])}{more})" if names else "0"

    calls = sum(map(len, keys_by_word.values()))
    return said("overflow-in-all", calls, named(ABNORMAL), named(NORMAL), len(keys_by_word.get(SKIPPED, ())))
