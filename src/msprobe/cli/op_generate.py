"""``msprobe op_generate``: a script that reproduces one call of a dump, and needs torch alone.

- ``msprobe op_generate --dump dump.json --api Functional.softmax.0 -o DIR``: with the values of the dump, or those of
  ``run_ut``
- ``msprobe -f pytorch op_generate -i config_op.json -o DIR``: as mindstudio-probe 8.1.1
"""

from __future__ import annotations

import argparse
import re
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from msprobe.cli import answers
from msprobe.cli.common import add_output
from msprobe.cli.parser import UsageError, refuse_unused
from msprobe.cli.run_ut import loaded
from msprobe.cli.statuses import CLEAN, COULD_NOT
from msprobe.foreign.console import say
from msprobe.messages import both, said, translated

if TYPE_CHECKING:
    from msprobe.precheck.executors import ScriptWords

_SEED = 1234
_MINDSPORE_DEVICE = re.compile(r"(?:(?:cpu|cuda|npu)(?::\d+)?)?")
_EPILOG = both(
    "The script runs the call on a device and in double precision on the CPU, and prints the "
    "differences and a verdict; its exit status is 1 if that is an error, 2 if it cannot be run. "
    "Large values are written beside it. `python SCRIPT --minimize` looks for a smaller call that "
    "still fails, and writes it beside the script.",
    "脚本在设备上、并在 CPU 上以双精度运行该调用，打印差异与结论；结论为错误时退出码为 1，无法运行时"
    "为 2。较大的数值写在其旁。`python SCRIPT --minimize` 寻找仍然失败的更小的调用，并写在脚本旁。",
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.epilog = _EPILOG
    parser.add_argument(
        "-i",
        "--config_input",
        metavar="FILE",
        help=both("config_op.json: which call of which dump", "config_op.json：哪份 dump 的哪个调用"),
    )
    add_output(
        parser,
        both("folder for the script", "脚本的文件夹"),
        "--api_output_path",
        required=True,
    )
    parser.add_argument(
        "--dump",
        metavar="FILE",
        help=both("dump.json, in place of -i", "dump.json，代替 -i"),
    )
    parser.add_argument(
        "--api",
        metavar="NAME",
        help=both(
            "the call, as Functional.softmax.0, or its record (...0.backward)",
            "调用，如 Functional.softmax.0，或其记录（...0.backward）",
        ),
    )
    parser.add_argument(
        "--propagation",
        choices=("forward", "backward"),
        help=both("forward (default)", "forward（默认）"),
    )
    parser.add_argument(
        "--seed",
        type=int,
        help=both(
            "random seed of values that the dump does not have (1234)", "dump 中没有的数值所用的随机种子（1234）"
        ),
    )
    add_script_options(parser)


def add_script_options(parser: argparse.ArgumentParser) -> None:
    """The arguments that say how a script is written and run."""
    parser.add_argument(
        "--device",
        default="",
        metavar="WHO",
        help=both(
            "default of the script's own --device: cpu, cuda:0, cpu+threads=1, as run_ut --candidate",
            "脚本自身 --device 的默认值：cpu、cuda:0、cpu+threads=1，同 run_ut --candidate",
        ),
    )
    parser.add_argument(
        "--load",
        default="",
        metavar="WHAT",
        help=both(
            "default of the script's own --load: what registers the kernels, a .py, a .so or a module",
            "脚本自身 --load 的默认值：注册 kernel 的 .py、.so 或模块",
        ),
    )
    parser.add_argument(
        "--reference",
        default="",
        metavar="FILE.py:FUNCTION",
        help=both(
            "default of the script's own --reference: a function that computes the same in double precision, "
            "if the call itself cannot",
            "脚本自身 --reference 的默认值：调用本身不支持双精度时，以双精度计算同样结果的函数",
        ),
    )
    parser.add_argument(
        "--control",
        default="",
        metavar="WHO",
        help=both("a trusted device, whose errors are allowed", "标杆设备，其误差视为允许"),
    )
    parser.add_argument(
        "--data-in-files",
        action="store_true",
        help=both("write all values beside the script", "把全部数值写在脚本旁"),
    )
    parser.add_argument(
        "--minimize",
        action="store_true",
        help=both("run the script, and look for a smaller call that fails", "运行脚本，并寻找仍然失败的更小的调用"),
    )


def execute(args: argparse.Namespace) -> int:
    """Write the script, and run it for ``--minimize``."""
    folder = Path(args.api_output_path)
    if folder.exists() and not folder.is_dir():
        raise UsageError(said("op-output-is-file", folder))
    if (args.config_input is None) == (args.dump is None):
        raise UsageError(said("op-generate-source"))
    if args.config_input is not None:
        dump_options = ("api", "propagation", "seed", "device", "load", "reference", "control", "data_in_files")
        given = {f"--{name.replace('_', '-')}": getattr(args, name) not in (None, "", False) for name in dump_options}
        refuse_unused(
            given,
            both("only for --dump; with -i, the file describes the script", "只用于 --dump；使用 -i 时由文件说明脚本"),
        )
        from msprobe.precheck.scripts.writing import generate, load_op_config

        return run_script(generate(load_op_config(args.config_input), folder), args.minimize)
    if args.api is None:
        raise UsageError(said("op-dump-without-api"))
    from msprobe.precheck.requests import open_requests

    api, propagation = args.api, args.propagation or "forward"
    for direction in ("forward", "backward"):
        if api.endswith(f".{direction}"):
            if args.propagation not in (None, direction):
                raise UsageError(said("api-names-direction", api, direction, propagation))
            api, propagation = api.removesuffix(f".{direction}"), direction
    requests = open_requests(args.dump, modules=api.startswith("Module."))
    return write_and_run(requests, args, api, propagation, _SEED if args.seed is None else args.seed, folder)


def write_and_run(
    requests: object,
    args: argparse.Namespace,
    api: str,
    propagation: str,
    seed: int,
    folder: Path,
    hint: str = "",
) -> int:
    """Write the script of one call with the options of the command line, and run it for ``--minimize``. ``hint``: why
    the call itself is probably right.
    """
    from msprobe.precheck.executors import script_words
    from msprobe.precheck.requests import Requests
    from msprobe.precheck.scripts.writing import ScriptRequest, write_script
    from msprobe.report.phrases import clean

    assert isinstance(requests, Requests)
    if args.minimize and requests.framework == "mindspore":
        raise UsageError(said("minimize-for-mindspore"))
    device, control = script_words(args.device), script_words(args.control, "--control")
    if control.fault or control.dtype:
        raise UsageError(said("control-with-fault", args.control))
    if requests.framework == "mindspore":
        _demand_plain(device, args)
    request = ScriptRequest(
        api,
        propagation,
        folder,
        seed=seed,
        device=device.device,
        inject=device.fault,
        dtype=device.dtype,
        in_files=args.data_in_files,
        load=loaded(args.load),
        reference=_reference(args.reference),
        control=control.device,
    )
    written = write_script(requests, request)
    if not requests.has_values:
        say(translated(said("script-of-statistics")))
    if not written.coverage.is_complete:
        say(clean(translated(written.coverage.sentence("reproduced"))))
    status = run_script(written.path, args.minimize, hint, requests.framework != "mindspore")
    return status or written.coverage.status(has_findings=False)


def _demand_plain(device: ScriptWords, args: argparse.Namespace) -> None:
    """A script of a MindSpore call knows a device alone. Raises UsageError."""
    if device.fault or device.dtype or not _MINDSPORE_DEVICE.fullmatch(device.device):
        raise UsageError(said("op-device-for-mindspore", args.device))
    given = [name for name in ("--load", "--control", "--reference") if getattr(args, name[2:])]
    if given:
        raise UsageError(said("op-option-for-mindspore", ", ".join(given)))


def _reference(text: str) -> str:
    """``FILE.py:FUNCTION`` with the whole path of the file. Raises UsageError."""
    file, _, name = text.rpartition(":")
    if text and not (file.endswith(".py") and name.isidentifier() and Path(file).is_file()):
        raise UsageError(said("reference-function-missing", text))
    return f"{Path(file).resolve()}:{name}" if text else ""


def run_script(path: Path, minimize: bool, hint: str = "", can_minimize: bool = True) -> int:
    """Print where the script is, and how it is run; run it for ``--minimize``, which scripts of MindSpore do not have.
    ``hint``: see :func:`write_and_run`.
    """
    from msprobe.report.phrases import clean

    answers.wrote([path])
    say(clean(f"  {path}"))
    if hint:
        say(translated(hint))
    if minimize:
        sys.stdout.flush()
        from msprobe.children import starting

        status = starting.run_script(path, ["--minimize"])
        # A script ends with 1 where the call is wrong.
        return CLEAN if status in (0, 1) else COULD_NOT
    script = clean(shlex.quote(str(path)))
    if hint:
        say(translated(said("run-all-the-same", script)))
        return 0
    say(translated(said("run-on-device", script)))
    if can_minimize:
        say(translated(said("run-minimize", script)))
    return 0
