"""``msprobe config_check -d`` packs what a training is started with; ``-c A.zip B.zip`` compares two packs."""

from __future__ import annotations

import argparse
import os
from typing import Any

from msprobe.cli import answers
from msprobe.foreign.console import say
from msprobe.messages import both, said

DEFAULT_PACK = "./config_check_pack.zip"
DEFAULT_RESULT = "./config_check_result"


def add_arguments(parser: argparse.ArgumentParser, operations: Any) -> None:
    """The options of packs."""
    operations.add_argument(
        *("-d", "--dump"),
        nargs="*",
        metavar="FILE",
        help=both(
            "pack the environment variables, the packages and the hyper-parameters of these files (launch "
            f"scripts, .yaml, .json, .toml, ...); -o: {DEFAULT_PACK}",
            f"打包环境变量、软件包，以及这些文件（启动脚本、.yaml、.json、.toml 等）中的超参；-o：{DEFAULT_PACK}",
        ),
    )
    group = parser.add_argument_group(
        both("packs", "配置包"),
        both(
            f"-c A.zip B.zip compares two packs, the trusted one first; -o is the folder ({DEFAULT_RESULT})",
            f"-c A.zip B.zip 比对两个配置包，标杆侧在前；-o 为文件夹（{DEFAULT_RESULT}）",
        ),
    )
    group.add_argument(
        "--env-all",
        action="store_true",
        help=both("with -d: keep secrets in the pack as they are", "与 -d 同用：密钥等原样保留在包中"),
    )
    group.add_argument(
        "--tolerance",
        type=float,
        metavar="REL",
        default=0.0,
        help=both(
            "relative tolerance for statistics of weights and inputs (0: exact)",
            "权重与输入统计量的相对容差（0：必须完全相同）",
        ),
    )
    group.add_argument(
        "--variables",
        metavar="FILE.yaml",
        help=both(
            "further environment variables to compare: {NAME: error, warning or info}",
            "还要比对的环境变量：{NAME: error、warning 或 info}",
        ),
    )
    group.add_argument(
        "--package",
        action="append",
        metavar="NAME",
        default=[],
        help=both("a further package to compare; may be repeated", "还要比对的软件包；可重复给出"),
    )


def is_asked(args: argparse.Namespace) -> bool:
    """True for ``-d``, and for ``-c`` with a pack."""
    return args.dump is not None or any(map(_is_pack, args.compare or ()))


def _is_pack(path: str) -> bool:
    return path.endswith(".zip")


def execute(args: argparse.Namespace) -> int:
    """Pack, or compare; 1 if a part of the packs has an error."""
    return _collect(args) if args.dump is not None else _compare(args)


def _collect(args: argparse.Namespace) -> int:
    environ = dict(os.environ)  # before anything is imported that might set one
    from msprobe.environment.configuration import collecting
    from msprobe.environment.configuration.pack import PackWriter, check_pack_path
    from msprobe.errors import PathError
    from msprobe.paths import check_output_file, make_folder

    path = check_pack_path(args.output or DEFAULT_PACK)
    missing = [name for name in args.dump if not os.path.exists(name)]
    if missing:
        quoted = ", ".join(f'"{name}"' for name in missing)
        raise PathError(said("config-paths-missing", quoted, "es" if len(missing) == 1 else ""))
    make_folder(os.path.dirname(os.path.abspath(path)))
    check_output_file(path)
    entries = collecting.static_entries(environ, args.dump, keep_secrets=args.env_all)
    PackWriter(path).add(entries)
    answers.wrote([path])
    say(f"{path}: {', '.join(collecting.contents(entries))}")
    return 0


def _compare(args: argparse.Namespace) -> int:
    from msprobe.environment.configuration.comparison import Options
    from msprobe.errors import InvalidInputError
    from msprobe.report.configuration.folder import PAGE, RESULT, WORKBOOK, compare_to_folder
    from msprobe.report.configuration.text import lines

    others = [path for path in args.compare if not _is_pack(path)]
    if others:
        raise InvalidInputError(said("pack-and-checkpoint", others[0]))
    folder = args.output or DEFAULT_RESULT
    options = Options(args.tolerance, args.variables, tuple(args.package))
    result = compare_to_folder(args.compare[0], args.compare[1], folder, options)
    for line in lines(result):
        say(line)
    say()
    answers.wrote([os.path.join(folder, name) for name in (WORKBOOK, PAGE, RESULT)])
    answers.note(differs=result.differs)
    for name in (WORKBOOK, PAGE, RESULT):
        say(f"  {os.path.join(folder, name)}")
    return 1 if result.differs else 0
