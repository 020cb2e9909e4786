"""The commands of ``msprobe parse``, and the shell that reads them from a terminal or a pipe."""

from __future__ import annotations

import argparse
import contextlib
import shlex
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TextIO

from msprobe import log
from msprobe.cli.output_folder import usable_output
from msprobe.cli.parser import Parser
from msprobe.cli.statuses import COULD_NOT
from msprobe.coverage import Coverage, NotRead
from msprobe.errors import InvalidInputError, MsprobeError, PathError
from msprobe.foreign.console import say
from msprobe.foreign.letters import printable
from msprobe.messages import both, joined, said, translated
from msprobe.paths import make_folder, write_atomically
from msprobe.store.kernel_files.convert import FileType

_PROMPT = "Parse >>> "
FAILED_FILE = "convert_failed_file_list.txt"
_ARRAYS = (".pt", ".npy")
_LEAST_PARTS = 5
_INVALID = "Command invalid, Only support command start with cad/vc/dc/pk/cn/pt"


def convert(
    path: Path,
    folder: Path,
    target: str,
    file_type: FileType,
    shape: tuple[int, ...] = (),
    place: Callable[[Path], Path | None] | None = None,
) -> bool:
    """Convert a dump file, or all files of a folder; True if none failed. What fails is reported, and listed in a file.

    ``place``: the folder of a file's results in ``folder``; None leaves the file out.
    """
    from msprobe.store.kernel_files.convert import convert_file

    folder = usable_output(folder)
    if not path.exists():
        raise PathError(said("kernel-dump-missing", path))
    files = sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
    inside = folder.resolve()
    files = [file for file in files if file.suffix not in (".json", ".csv") and inside not in file.resolve().parents]
    arrays = [file for file in files if file.suffix in _ARRAYS]
    files = [file for file in files if file.suffix not in _ARRAYS]
    if arrays:
        text = said("arrays-need-no-converting", path, len(arrays))
        if not files:
            raise InvalidInputError(text)
        log.info(text)
    if not files:
        raise PathError(said("kernel-dump-empty", path))
    failed: dict[Path, str] = {}
    count = 0
    for file in files:
        where = folder if place is None else place(file)
        if where is None:
            log.warning(said("not-named-as-dump-file", file.name))
            continue
        try:
            written, remarks = convert_file(file, where, target, file_type, shape)
        except MsprobeError as problem:
            log.error(problem.message)
            failed[file] = problem.message
            continue
        count += len(written)
        for remark in remarks:
            log.warning(remark)
    if failed:
        listed = "".join(f"{file}\n" for file in failed).encode("utf-8", "backslashreplace")
        write_atomically(make_folder(folder) / FAILED_FILE, listed)
    log.info(said("dump-files-converted", count, len(files) - len(failed), folder, len(failed)))
    if failed:
        missing = tuple(NotRead(file.name, why) for file, why in failed.items())
        say(printable(translated(Coverage({"files": len(files) - len(failed)}, missing).sentence("converted"))))
    return not failed


class Shell:
    """Reads commands to the end, or to ``quit``; remembers whether one failed."""

    def __init__(self) -> None:
        self.failed = False

    def run(self, source: TextIO) -> int:
        """Carry out all commands; the exit status is 2 if one of a pipe failed."""
        terminal = source.isatty()
        if terminal:
            _edit_lines()
        while True:
            try:
                line = input(_PROMPT) if terminal else source.readline()
            except EOFError:
                break
            except KeyboardInterrupt:
                say()
                break
            if not terminal and not line:
                break
            try:
                words = shlex.split(line)
            except ValueError as problem:
                self._fail(said("line-without-closing-quote", str(problem).lower()))
                continue
            if words and words[0] in ("quit", "exit"):
                break
            if words and not self.do(words):
                self.failed = True
        return COULD_NOT if self.failed and not terminal else 0

    def do(self, words: list[str]) -> bool:
        """Carry out one command; True if it succeeded."""
        if words[0] not in COMMANDS:
            say(_INVALID)
            return False
        purpose, configure, execute = COMMANDS[words[0]]
        parser = Parser(prog=f"parse {words[0]}", description=purpose)
        configure(parser)
        try:
            return execute(parser.parse(words[1:], intermixed=False))
        except SystemExit as end:
            return not end.code
        except MsprobeError as problem:
            log.error(problem.message)
        except MemoryError:
            log.error(said("not-enough-memory"))
        except KeyboardInterrupt:
            say()
        return False

    def _fail(self, message: str) -> None:
        log.error(message)
        self.failed = True


def _edit_lines() -> None:
    """History, and names of files with Tab."""
    with contextlib.suppress(ImportError):
        import readline

        readline.set_completer_delims(" \t\n")
        readline.parse_and_bind("tab: complete")


def _now() -> str:
    return time.strftime("%Y%m%d%H%M%S")


def _configure_convert(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-n",
        required=True,
        metavar="PATH",
        help=both("dump file or folder", "dump 文件或文件夹"),
    )
    parser.add_argument(
        "-f",
        default="auto",
        metavar="FORMAT",
        help=both(
            "auto, raw, NCHW, NHWC, ND, HWCN, FRACTAL_Z, NCDHW", "auto、raw、NCHW、NHWC、ND、HWCN、FRACTAL_Z、NCDHW"
        ),
    )
    parser.add_argument(
        "-s",
        metavar="SHAPE",
        help=both("shape before the device padded it, as 1,20,4,4", "设备补齐之前的 shape，如 1,20,4,4"),
    )
    parser.add_argument(
        "-t",
        choices=("npy", "pt"),
        default="npy",
        help=both("type of the files", "写出文件的类型"),
    )
    parser.add_argument("-out", default="parse_data/dump_convert", metavar="DIR")
    parser.add_argument(
        "-cmp_path",
        metavar="FILE",
        help=both("accepted for old command lines; not needed", "为旧命令行保留；不需要"),
    )


def _convert(args: argparse.Namespace) -> bool:
    from msprobe.store.kernel_files.device_formats import check_target

    shape: tuple[int, ...] = ()
    if args.s is not None:
        words = args.s.split(",")
        if not all(word.strip().isdecimal() and len(word) < 12 for word in words) or len(words) > 32:
            raise InvalidInputError(said("shape-text-wrong", args.s))
        shape = tuple(int(word) for word in words)
    return convert(Path(args.n), Path(args.out), check_target(args.f), args.t, shape)


def _configure_sorted(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-m",
        required=True,
        metavar="DIR",
        help=both("folder of a device", "设备的文件夹"),
    )
    parser.add_argument(
        "-out",
        metavar="DIR",
        help=both("default: parse_data/batch_dump_convert/TIME", "默认：parse_data/batch_dump_convert/TIME"),
    )
    parser.add_argument(
        "-asc",
        metavar="FILE",
        help=both("accepted for old command lines; not needed", "为旧命令行保留；不需要"),
    )


def _convert_sorted(args: argparse.Namespace) -> bool:
    from msprobe.compare.kernel_arrays import RealNames

    folder = Path(args.out or f"parse_data/batch_dump_convert/{_now()}")
    names = RealNames()

    def place(file: Path) -> Path | None:
        words = names.of(file).split(".")
        if len(words) < _LEAST_PARTS or words[1] in ("", ".."):
            return None
        # The time has the most digits of all numbers in the name.
        return folder / words[1] / max((word for word in words[2:] if word.isdecimal()), key=len, default="0")

    return convert(Path(args.m), folder, "auto", "npy", place=place)


def _configure_compare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-m",
        required=True,
        metavar="DIR",
        help=both("the dump that is doubted", "待比对侧的 dump"),
    )
    parser.add_argument(
        "-g",
        required=True,
        metavar="DIR",
        help=both("the trusted dump", "标杆侧的 dump"),
    )
    parser.add_argument("-out", default="parse_data/batch_compare_result", metavar="DIR")
    parser.add_argument(
        "-cmp_path",
        metavar="FILE",
        help=both("accepted for old command lines; not needed", "为旧命令行保留；不需要"),
    )


def _compare(args: argparse.Namespace) -> bool:
    from msprobe.compare.kernel_arrays import compare_folders
    from msprobe.report.kernel_tables import comparison_csv

    folder = usable_output(args.out)
    rows = list(compare_folders(args.m, args.g))
    file = make_folder(folder) / f"batch_compare_{int(time.time())}.csv"
    write_atomically(file, comparison_csv(rows))
    apart = [row for row in rows if not row.same_crc]
    if apart:
        first = apart[0]
        log.info(said("tensors-differ-first", len(apart), len(rows), first.candidate or first.reference))
    else:
        log.info(said("tensors-all-same", len(rows)))
    log.info(said("result-written", file))
    return True


def _configure_print(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-n",
        required=True,
        metavar="FILE",
        help=both(".npy file (or .pt)", ".npy 文件（或 .pt）"),
    )
    parser.add_argument(
        "-s",
        action="store_true",
        help=both("write FILE.txt", "写出 FILE.txt"),
    )


def _print(args: argparse.Namespace) -> bool:
    from msprobe.report.kernel_tables import array_lines, write_text

    path, array = _array(args.n)
    _say(array_lines(path, array, write_text(path, array) if args.s else None))
    return True


def _configure_pair(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-m",
        required=True,
        metavar="FILE",
        help=both("the doubted array", "待比对的数组"),
    )
    parser.add_argument(
        "-g",
        required=True,
        metavar="FILE",
        help=both("the trusted array", "标杆数组"),
    )
    parser.add_argument(
        "-p",
        default="20",
        metavar="N",
        help=both("elements that are shown (20)", "显示多少个元素（20）"),
    )
    parser.add_argument(
        "-al",
        default="0.001",
        metavar="X",
        help=both("absolute limit (0.001)", "绝对误差上限（0.001）"),
    )
    parser.add_argument(
        "-rl",
        default="0.001",
        metavar="X",
        help=both("relative limit (0.001)", "相对误差上限（0.001）"),
    )
    parser.add_argument(
        "-s",
        action="store_true",
        help=both("write both as text, too", "同时把两者写成文本"),
    )


def _pair(args: argparse.Namespace) -> bool:
    from msprobe.report.kernel_tables import pair_lines, write_text

    limits = {}
    problems = [] if args.p.isdecimal() and len(args.p) < 10 else [said("no-number-of-elements", args.p)]
    for name in ("al", "rl"):
        try:
            limits[name] = float(getattr(args, name))
        except ValueError:
            limits[name] = -1.0
        if not 0 <= limits[name] < float("inf"):
            problems.append(said("no-limit", name, getattr(args, name)))
    if problems:
        raise InvalidInputError(joined(" ", problems))
    left, right = _array(args.m), _array(args.g)
    for path, array in (left, right) if args.s else ():
        say(f"TxtFile: {write_text(path, array)}")
    _say(pair_lines(left, right, int(args.p), limits["al"], limits["rl"]))
    return True


def _array(path: str) -> tuple[Path, Any]:
    from msprobe.store.values import read_values

    return Path(path), read_values(path).array


def _configure_header(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-n",
        required=True,
        metavar="FILE",
        help=both("dump file of a kernel", "kernel 的 dump 文件"),
    )


def _header(args: argparse.Namespace) -> bool:
    from msprobe.report.kernel_tables import header_lines
    from msprobe.store.kernel_files.acl_dump import read_acl_dump

    _say(header_lines(read_acl_dump(args.n)))
    return True


def _configure_statistics(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-f",
        required=True,
        metavar="FILE",
        help=both("dump.json", "dump.json"),
    )
    parser.add_argument(
        "-n",
        required=True,
        metavar="API",
        help=both("name of a record, as Functional.conv2d.0.forward", "记录的名称，如 Functional.conv2d.0.forward"),
    )


def _statistics(args: argparse.Namespace) -> bool:
    from msprobe.diagnose.steps.timeline import flatten, is_tensor
    from msprobe.report.phrases import clean
    from msprobe.store.reader import open_dump

    if args.f.endswith(".pkl"):
        raise InvalidInputError(said("old-pickle-dump", args.f))
    part = open_dump(args.f).part()
    try:
        if args.n not in part:
            raise InvalidInputError(said("record-unknown", args.f, args.n))
        slots: list[tuple[str, Any]] = []
        flatten("", part.record(args.n), slots)
        say("Statistic Info:")
        for slot, leaf in slots:
            if is_tensor(leaf):
                keys = ("dtype", "shape", "Max", "Min", "Mean")
                _say([f"  [{args.n}.{slot}]" + "".join(f"[{leaf.get(key)}]" for key in keys)])
        stack = part.stack(args.n)
        if stack:
            say("Trace back:")
            _say(f"  {clean(line)}" for line in stack)
    finally:
        part.close()
    return True


def _say(lines: Iterable[str]) -> None:
    for line in lines:
        say(line.encode("utf-8", "backslashreplace").decode())


_Command = tuple[str, Callable[[argparse.ArgumentParser], None], Callable[[argparse.Namespace], bool]]
COMMANDS: dict[str, _Command] = {
    "cad": (
        both("convert the folder of a device, sorted by operator and time", "转换设备的文件夹，按算子与时间整理"),
        _configure_sorted,
        _convert_sorted,
    ),
    "vc": (
        both(
            "compare two dumps of kernels or operators, or their converted files",
            "比对两份 kernel 或算子的 dump，或其转换后的文件",
        ),
        _configure_compare,
        _compare,
    ),
    "dc": (
        both("convert a dump file, or a folder of such files", "转换一个 dump 文件或一个文件夹"),
        _configure_convert,
        _convert,
    ),
    "pk": (
        both("print statistics and stack of an API in a dump.json", "打印 dump.json 中一个 API 的统计量与调用栈"),
        _configure_statistics,
        _statistics,
    ),
    "cn": (both("compare two arrays element by element", "逐元素比对两个数组"), _configure_pair, _pair),
    "pt": (both("print an array", "打印数组"), _configure_print, _print),
    "ph": (both("print the header of a dump file", "打印 dump 文件头"), _configure_header, _header),
}
