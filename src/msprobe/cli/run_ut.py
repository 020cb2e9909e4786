"""``msprobe run_ut`` and ``acc_check``: check the calls of a dump, one API at a time, on the device under suspicion."""

from __future__ import annotations

import argparse
import contextlib
import math
from pathlib import Path
from typing import TYPE_CHECKING

from msprobe.cli import answers
from msprobe.cli.common import add_output, add_workers
from msprobe.cli.parser import UsageError, refuse_unused, seconds
from msprobe.foreign.console import say
from msprobe.messages import both, said, translated

if TYPE_CHECKING:
    from msprobe.precheck.check import CheckReport, CheckRequest
    from msprobe.precheck.requests import Requests
    from msprobe.precheck.settings import Settings

REFERENCES = ("fp64", "legacy")
STANDARDS = ("strict", "assert_close", "compiler", "26.2", "8.1.1")
MOST_SPLITS = 64
_EPILOG = both(
    "Each call of dump.json is made again, from recorded values (task tensor) or from values that fit its statistics, "
    "and run forward and backward on the candidate and in double precision on the CPU. Writes into DIR "
    "accuracy_checking_result_TIME.csv (a row for each call), accuracy_checking_details_TIME.csv (a row for each "
    "output and gradient), and a summary that ranks what failed; with --control, the files of api_precision_compare as "
    "well, and the summary and --fail-on go by these.\n\n"
    "candidates: cpu, cuda:0, npu:1, xpu, mps; behind it +threads=1, +mkldnn=off, +deterministic, +dtype=bf16, "
    "+autocast=bf16, +compile, +inject:scale=1e-3 (also tf32, swap, nan@0, inf@0, drop-tail); "
    "plugin:package.module:function, called with (function, args, kwargs); python:PATH, the torch of a different "
    "environment; recorded, the results in the dump themselves (task tensor), for which only the reference is run.\n\n"
    "standards: strict judges each element by the rounding error possible at its place; assert_close by the tolerances "
    "of torch.testing.assert_close; compiler, beside a --control, by the root mean square error, as PyTorch tests its "
    "compilers; 8.1.1 and 26.2 judge as mindstudio-probe.",
    "用采集的数值（task 为 tensor）或符合其统计量的数值重新执行 dump.json 的每个调用，在待检查的设备上、"
    "并在 CPU 上以双精度运行前向与反向。向 DIR 写出 accuracy_checking_result_TIME.csv（每个调用一行）、"
    "accuracy_checking_details_TIME.csv（每个输出与梯度一行），以及按严重程度排列失败项的汇总；给出 --control 时"
    "还有 api_precision_compare 的文件，汇总与 --fail-on 以它们为准。\n\n"
    "candidate 可为：cpu、cuda:0、npu:1、xpu、mps；其后可加 +threads=1、+mkldnn=off、+deterministic、+dtype=bf16、"
    "+autocast=bf16、+compile、+inject:scale=1e-3（还有 tf32、swap、nan@0、inf@0、drop-tail）；"
    "plugin:package.module:function，以 (function, args, kwargs) 调用；python:PATH，另一个环境的 torch；"
    "recorded，即 dump 中的结果本身（task 为 tensor），此时只运行标杆。\n\n"
    "标准：strict 按每个元素处可能的舍入误差判定；assert_close 按 torch.testing.assert_close 的容差；compiler 与 "
    "--control 同用，按均方根误差，同 PyTorch 测试其编译器的方式；8.1.1 与 26.2 同 mindstudio-probe。",
)
# Of an online check: after so many seconds without a record it ends.
_IDLE = 600.0


def configure(parser: argparse.ArgumentParser, several: bool = False) -> None:
    """Add the command's arguments; ``several``: those of ``multi_run_ut``."""
    parser.epilog = _EPILOG
    parser.add_argument(
        "-api_info",
        "--api_info_file",
        default="",
        metavar="FILE",
        help=both("dump.json of one step and rank", "一个 step 与 rank 的 dump.json"),
    )
    add_output(
        parser,
        both("folder of the results", "结果文件夹"),
        "--out_path",
        default="./",
    )
    parser.add_argument(
        "-save_error_data",
        action="store_true",
        help=both("save arguments and results of calls that fail", "保存失败调用的参数与结果"),
    )
    parser.add_argument(
        "-j",
        "--jit_compile",
        action="store_true",
        help=both("NPU only: compile operators", "仅 NPU：编译算子"),
    )
    parser.add_argument(
        "-d",
        "--device",
        nargs="+",
        default=None,
        metavar="ID",
        help=both("numbers or names of devices (0): 0 1, cpu, cuda:0", "设备的编号或名称（0）：0 1、cpu、cuda:0"),
    )
    parser.add_argument(
        "-csv_path",
        "--result_csv_path",
        default="",
        metavar="FILE",
        help=both("result file of a check to be continued", "要继续的检查的结果文件"),
    )
    parser.add_argument(
        "-f",
        "--filter_api",
        action="store_true",
        help=both("check calls that are the same test only once", "相同的测试只检查一次"),
    )
    parser.add_argument(
        "-config",
        "--config_path",
        default="",
        metavar="FILE",
        help=both("config.json with section run_ut", "含 run_ut 一节的 config.json"),
    )
    ours = parser.add_argument_group(both("beyond mindstudio-probe", "mindstudio-probe 没有的选项"))
    ours.add_argument(
        "--standard",
        choices=STANDARDS,
        default="strict",
        help=both("the standard by which results are judged (strict)", "判定结果的标准（strict）"),
    )
    ours.add_argument(
        "--reference",
        choices=REFERENCES,
        default="",
        help=both(
            "the precision of the reference: fp64; or legacy, as mindstudio-probe: fp32 for half types, fp64 "
            "for fp32 (fp64; legacy for standards 8.1.1 and 26.2)",
            "标杆的精度：fp64；或 legacy，同 mindstudio-probe：半精度类型用 fp32、fp32 用 fp64 计算（fp64；标"
            "准为 8.1.1 与 26.2 时为 legacy）",
        ),
    )
    ours.add_argument(
        "--candidate",
        metavar="WHO",
        help=both(
            "the device that is checked, see below (the best device there is)", "要检查的设备，见下（默认为最好的设备）"
        ),
    )
    ours.add_argument(
        "--control",
        default="",
        metavar="WHO",
        help=both(
            "the trusted device, whose errors are allowed: as --candidate, or the "
            "accuracy_checking_details_*.csv of a check made there",
            "标杆设备，其误差视为允许：写法同 --candidate，或在该设备上检查得到的 accuracy_checking_details_*.csv",
        ),
    )
    ours.add_argument(
        "--seed",
        type=int,
        default=1234,
        help=both("random seed of generated values (1234)", "生成数值的随机种子（1234）"),
    )
    ours.add_argument(
        "--repeat",
        type=int,
        default=1,
        metavar="N",
        help=both("run each call N times, to see whether it is deterministic", "每个调用运行 N 次，检查是否确定性"),
    )
    ours.add_argument(
        "--gradcheck",
        action="store_true",
        help=both("check that each backward is the derivative of its forward", "检查每个反向是否为其前向的导数"),
    )
    ours.add_argument(
        "--modules",
        action="store_true",
        help=both(
            "check leaf modules as well, as Linear and LayerNorm (levels L0 and mix)",
            "也检查叶子模块，如 Linear 与 LayerNorm（level L0 与 mix）",
        ),
    )
    ours.add_argument(
        "--clean-output",
        default="",
        metavar="FILE.py:NAME",
        help=both(
            "function(api_name, output, args, kwargs) that is applied to results before they are compared",
            "function(api_name, output, args, kwargs)：比对之前对结果做的处理",
        ),
    )
    ours.add_argument(
        "--operators",
        default="",
        metavar="FILE.yaml",
        help=both(
            "YAML file with functions that compute what your own operators do", "YAML 文件：与自定义算子等价的函数"
        ),
    )
    ours.add_argument(
        "--load",
        default="",
        metavar="WHAT",
        help=both(
            "the file that registers the kernels of torch.ops.* and has the classes of autograd Functions: a "
            ".py, a .so or a module",
            "注册 torch.ops.* 的 kernel、含有 autograd Function 类的 .py、.so 或模块",
        ),
    )
    ours.add_argument(
        "--ms-atol",
        type=_atol,
        metavar="X",
        help=both(
            "for MindSpore dumps: a result passes below this absolute difference (0.001)",
            "用于 MindSpore dump：绝对误差小于该值的结果通过（0.001）",
        ),
    )
    ours.add_argument(
        "--timeout",
        type=seconds,
        default=600.0,
        metavar="S",
        help=both("seconds for one call (600)", "一个调用的最长秒数（600）"),
    )
    ours.add_argument(
        "--top",
        type=int,
        default=10,
        metavar="K",
        help=both("failed calls that are shown (10)", "显示多少个失败的调用（10）"),
    )
    ours.add_argument(
        "--fail-on",
        choices=("error", "warning", "never"),
        default="never",
        help=both("exit with 1 on these (never)", "出现这些时退出码为 1（never）"),
    )
    online = parser.add_argument_group(
        both("online check (is_online in config.json)", "在线检查（config.json 中的 is_online）")
    )
    online.add_argument(
        "--ranks",
        type=int,
        metavar="N",
        help=both("end when so many ranks have ended (1)", "多少个 rank 结束后结束（1）"),
    )
    online.add_argument(
        "--idle",
        type=seconds,
        metavar="S",
        help=both("or when nothing came for S seconds (600)", "或 S 秒内没有数据时结束（600）"),
    )
    if several:
        add_workers(
            parser,
            both(f"worker processes, 1 to {MOST_SPLITS}", f"工作进程数，1 至 {MOST_SPLITS}"),
            "--num_splits",
            "-n",
            default=8,
            most=MOST_SPLITS,
        )


def _atol(text: str) -> float:
    with contextlib.suppress(ValueError):
        if 0 < (number := float(text)) < math.inf:
            return number
    raise argparse.ArgumentTypeError(said("number-above-0-wanted", text))


def execute(args: argparse.Namespace) -> int:
    """Check with one worker."""
    return check(args, 1)


def check(args: argparse.Namespace, workers: int) -> int:
    """Check with some workers, print what was found, and return the exit status."""
    if args.config_path and not args.api_info_file:
        from msprobe.precheck.settings import load_settings

        settings = load_settings(args.config_path)
        if settings.is_online:
            return _check_online(args, settings, workers)
    request = request_of(args, workers)
    from msprobe.cli.output_folder import usable_output
    from msprobe.cli.progress import progress
    from msprobe.precheck.check import run_check

    usable_output(args.out_path)
    with progress("checking") as bar:
        report = run_check(request, bar)
    _show(report, args.top)
    return _status(report, args.fail_on)


def _check_online(args: argparse.Namespace, settings: Settings, workers: int) -> int:
    """Check what trainings send, until they have ended."""
    from msprobe.cli.output_folder import usable_output
    from msprobe.cli.progress import progress
    from msprobe.errors import NotAvailableError
    from msprobe.precheck.executors import is_details_file
    from msprobe.precheck.job import Task
    from msprobe.precheck.online.receiving import OnlineRequest, run_online

    ranks = 1 if args.ranks is None else args.ranks
    if ranks < 1:
        raise UsageError(said("online-ranks-too-few"))
    refuse_unused(
        _dump_options(args),
        both("only for the calls of a dump, and this check is online", "只用于 dump 的调用，而这是在线检查"),
    )
    demand_control(args.control, args.standard)
    if is_details_file(args.control):
        raise UsageError(said("online-control"))
    usable_output(args.out_path)
    task = Task(dump="", standard=args.standard, control=args.control, seed=args.seed, reference=args.reference)
    request = OnlineRequest(args.out_path, task, settings, max(workers, 1), ranks, args.idle or _IDLE, args.timeout)
    with progress("checking") as bar:
        report = run_online(request, bar)
    if not report.steps:
        wanted = said("of-rank-list", list(settings.ranks)) if settings.ranks else ""
        raise NotAvailableError(said("online-without-steps", wanted))
    say(translated(said("online-checked", report.checked, len(report.steps), len(report.failed))))
    for rank, step, key in report.failed[: args.top]:
        say("  " + translated(said("online-wrong-call", rank, step, key)))
    for rank, step in report.unchecked[: args.top]:
        say("  " + translated(said("online-unchecked", rank, step)))
    for files in report.files.values():
        say(f"  {files.result}\n  {files.details}")
    if not report.judged:
        raise NotAvailableError(said("online-without-calls"))
    return int(bool(report.failed or report.unchecked) and args.fail_on != "never")


def _dump_options(args: argparse.Namespace) -> dict[str, object]:
    """The options that an online check does not know, and what is given of them."""
    return {
        "-save_error_data": args.save_error_data,
        "-j": args.jit_compile,
        "-d": args.device,
        "-csv_path": args.result_csv_path,
        "-f": args.filter_api,
        "--candidate": args.candidate,
        "--repeat": args.repeat != 1,
        "--gradcheck": args.gradcheck,
        "--modules": args.modules,
        "--clean-output": args.clean_output,
        "--operators": args.operators,
        "--load": args.load,
        "--ms-atol": args.ms_atol,
        "--engine": getattr(args, "engine", "local") != "local",
    }


def request_of(args: argparse.Namespace, workers: int) -> CheckRequest:
    """The request of a command line. Raises UsageError or what reading the settings raises."""
    if not args.api_info_file:
        raise UsageError(said("api-info-missing"))
    online = {"--ranks": args.ranks is not None, "--idle": args.idle is not None}
    refuse_unused(
        online,
        both(
            "only for an online check, which is asked for by -config and has no -api_info",
            "只用于在线检查，即由 -config 指定、且没有 -api_info",
        ),
    )
    if args.repeat < 1 or args.top < 0:
        raise UsageError(said("repeat-and-top"))
    from msprobe.precheck.check import CheckRequest
    from msprobe.precheck.executors import executor_of
    from msprobe.precheck.job import MINDSPORE_ATOL, Task
    from msprobe.precheck.operators import read_operators
    from msprobe.precheck.requests import open_requests
    from msprobe.precheck.settings import load_settings

    candidates = candidates_of(args)
    for text in candidates:
        executor_of(text)
    demand_control(args.control, args.standard)
    if args.clean_output and any(executor_of(text).compiled for text in candidates):
        raise UsageError(said("clean-output-compiled"))
    settings = load_settings(args.config_path)
    if settings.is_online:
        raise UsageError(said("online-with-api-info"))
    operators = read_operators(args.operators) if args.operators else {}
    task = Task(
        dump=args.api_info_file,
        standard=args.standard,
        candidate=candidates[0],
        control=args.control,
        seed=args.seed,
        repeat=args.repeat,
        formula=args.gradcheck,
        jit_compile=args.jit_compile,
        modules=args.modules,
        operators=tuple((name, *both) for name, both in operators.items()),
        load=loaded(args.load),
        reference=args.reference,
        ms_atol=args.ms_atol or MINDSPORE_ATOL,
        cleaning=args.clean_output and str(Path(args.clean_output).absolute()),
    )
    requests = open_requests(args.api_info_file, args.modules)
    demand_calls(requests, args.modules)
    if requests.framework == "mindspore":
        _warn_of_unused(args)
    elif args.ms_atol:
        raise UsageError(said("ms-atol-for-torch"))
    return CheckRequest(
        dump=args.api_info_file,
        output=args.out_path,
        task=task,
        candidates=tuple(candidates),
        workers=max(workers, 1),
        engine=getattr(args, "engine", "local"),
        settings=settings,
        resume=args.result_csv_path,
        filtered=args.filter_api,
        save_errors=args.save_error_data,
        timeout=args.timeout,
        top=args.top,
    )


def demand_control(control: str, standard: str) -> None:
    """Raises UsageError or InvalidInputError for a control that is none, and without one where a standard needs it."""
    from msprobe.precheck.executors import executor_of, is_details_file

    if not control and standard == "compiler":
        raise UsageError(said("compiler-standard-without-control"))
    if control and not is_details_file(control):
        executor_of(control, "--control")


def loaded(what: str) -> str:
    """What workers load: files by where they are. Raises UsageError."""
    if not what.endswith((".py", ".so")):
        return what
    if not Path(what).is_file():
        raise UsageError(said("load-missing", what))
    return str(Path(what).resolve())


def demand_calls(requests: Requests, modules: bool | None) -> None:
    """A dump of level L0 has no calls of APIs, one of level L2 the kernels below them, which nothing can be called by.

    ``modules``: passes of leaf modules are among the requests; None for a command that knows none. Raises
    InvalidInputError where nothing can be checked.
    """
    names = requests.part.names()
    if requests.part.header.get("level") == "L2":
        why = said("dump-of-kernels")
    elif requests.keys or not any(name.startswith(("Module.", "Cell.")) for name in names):
        return
    else:
        why = said("dump-without-passes" if modules else "dump-without-calls")
    from msprobe.errors import InvalidInputError

    knows = modules is not None and requests.framework != "mindspore"
    use = said("give-modules-or") if knows and not modules else ""
    raise InvalidInputError(said("calls-not-recorded", requests.part.path, why, use))


def _warn_of_unused(args: argparse.Namespace) -> None:
    """Calls of MindSpore are checked on its own CPU, by the rules of 8.1.1: these options do nothing, others are
    refused (:func:`msprobe.precheck.mindspore_rows.demand_known`).
    """
    given = {"-d": args.device, "--reference": args.reference, "--standard": args.standard not in ("strict", "8.1.1")}
    unused = [option for option, is_given in given.items() if is_given]
    if unused:
        from msprobe import log

        log.warning(said("options-unused-for-mindspore", ", ".join(unused)))


def candidates_of(args: argparse.Namespace) -> list[str]:
    """The executors that are asked for by ``-d`` and ``--candidate``."""
    devices = args.device or ["0"]
    for word in devices:
        if word.lstrip("-").isdigit() and int(word) < 0:
            raise UsageError(said("device-negative", word))
    if len(set(devices)) < len(devices):
        raise UsageError(said("devices-repeat", " ".join(devices)))
    if args.candidate and not args.candidate.startswith("inject:"):
        if args.device:
            raise UsageError(said("candidate-and-device"))
        return [args.candidate]
    named = [f"auto:{word}" if word.isdigit() else word for word in devices]
    return [f"{name}+{args.candidate}" for name in named] if args.candidate else named


def _show(report: CheckReport, top: int) -> None:
    from msprobe import log
    from msprobe.report.phrases import clean

    answers.wrote((*report.files.written, *report.summaries, *report.compared))
    answers.note(is_error=report.ranking.is_error, is_warning=report.ranking.is_warning)
    for line in report.ranking.lines(top):
        say(clean(line))
    for path in (*report.files.written, *report.summaries, *report.compared):
        say(clean(f"  {path}"))
    log.info("Successfully completed run_ut/multi_run_ut")


def _status(report: CheckReport, fail_on: str) -> int:
    if fail_on == "never":
        return 0
    return int(report.ranking.is_error or (fail_on == "warning" and report.ranking.is_warning))
