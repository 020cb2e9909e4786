"""Files are opened, unpacked and parsed in the few places that bound what it costs, and nowhere else."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import msprobe

ROOT = Path(msprobe.__file__).parent

#: What may open, unpack or parse by itself, and why. Paths begin with what is named here.
ALLOWED: dict[str, dict[str, str]] = {
    "open": {
        "foreign/opening.py": "the one opener",
        "store/processes.py": "the system's own files",
        "store/file_systems.py": "the system's own files",
        "perturb/torch/running.py": "the system's own files",
        "precheck/memory.py": "the system's own files",
        "environment/configuration/pack_lock.py": "the system's own files",
        "graph/vis_file.py": "a file that this process has written a moment ago",
        "launcher/runscript.py": "the script that the user runs",
        "capture/mindspore/graphs/kernel_statistics.py": "files of the recorder itself, of this process",
        "precheck/scripts": "part of a script, which imports nothing of this package; files of the package",
        "precheck/mindspore/standalone": "part of a script, which imports nothing of this package",
        "precheck/writer.py": "the result of this process",
        "precheck/online": "spool of this process; signs of life",
        "demo/showing.py": "a file of the package",
        "demo/train.py": "a program as users write it, which imports nothing of this package",
        "monitor/report/page.py": "a file of the package",
        "view/page_files.py": "files of the package",
        "config/load.py": "a file of the package",
        "config/yaml_source.py": "checked to be a regular file, with a limit of its own",
        "capture/api_list.py": "a file of the package",
        "diagnose/measured/classes.py": "a file of the package",
        "compare/name_table.py": "a file of the package",
        "precheck/standards.py": "a file of the package",
        "precheck/operators.py": "checked to be a regular file",
        "environment/configuration/packages.py": "facts of installed packages",
        # Tables and settings: readers of their own bound them.
        "compare/kernels.py": "csv, checked to be a regular file",
        "compare/merge_results.py": "csv, checked to be a regular file",
        "diagnose/code_mapping/dumped_kernels.py": "csv, checked to be a regular file",
        "diagnose/layout/annotation.py": "settings",
        "environment/hyperparameters": "settings",
        "environment/rl_logs.py": "logs, with a limit of their own",
        "monitor/csv_files.py": "csv, with a limit of its own",
        "monitor/diff.py": "the beginning of a csv file that was listed as a regular file",
        "monitor/config.py": "settings of the monitor",
    },
    "json": {
        "foreign/json_text.py": "the one parser",
        "foreign/json_places.py": "its relative for large objects",
        "store/json_index.py": "records of a dump, one by one: errors as in the one parser",
        "store/part.py": "records of a dump, one by one: errors as in the one parser",
        "config/jsonc.py": "a single text of a file whose parser counts",
        "capture": "texts that this process has written",
        "precheck/pool.py": "what a process of ours says",
        "precheck/worker.py": "what the process says that started it",
        "precheck/job.py": "what the process says that started it",
        "precheck/online": "frames, with a limit of their own",
        "environment/configuration/collecting.py": "entries that this process has made",
        "environment/configuration/packages.py": "facts of installed packages and of the toolkit",
        "environment/hyperparameters/settings_files.py": "settings",
        "environment/rl_logs.py": "a block of a log, whose brackets are counted",
        "graph/graph_files.py": "a field of a node: length and errors as its file's",
        "graph/vis_db_reader.py": "a field of a row: length and errors as its database's",
        "view/vis.py": "a shape, in text",
        "view/server.py": "a question, with a limit of its own",
        "store/ownership.py": "a match of some hundred letters",
    },
    "unpack": {
        "foreign/archives.py": "the one unpacker",
        "environment/configuration/pack.py": "writes packs",
        "report/workbook.py": "writes sheets",
        "view/server.py": "what it has compressed itself",
        "view/single_file.py": "compresses",
    },
    "map": {
        "foreign": "bounded by the open file",
        "store": "an open regular file, or memory of the recorder",
        "environment/checkpoint": "an open regular file",
        "grad_probe/reading.py": "a file whose size was compared with its header",
    },
    "unpickle": {
        "engine.py": "an error that was pickled in the same line, to see whether it can be",
        "children/job_process.py": "what a process and the jobs that it has started say over their own pipes",
    },
    "load": {"capture/mindspore/graphs/kernel_statistics.py": "files of the recorder itself, of this process"},
}
KINDS = {
    **dict.fromkeys(("read_bytes", "read_text"), "open"),
    **dict.fromkeys(("json.loads", "json.load", "orjson.loads"), "json"),
    **dict.fromkeys(("mmap.mmap", "np.memmap", "np.fromfile"), "map"),
    **dict.fromkeys(("pickle.load", "pickle.loads", "pickle.Unpickler", "torch.load", "marshal.loads"), "unpickle"),
    **dict.fromkeys(("np.load", "np.loadtxt", "np.genfromtxt", "np.lib.format.read_array"), "load"),
}
UNPACKERS = (
    "zipfile.",
    "gzip.",
    "bz2.",
    "lzma.",
    "tarfile.",
    "zlib.decompress",
    "zstandard.",
    "compression.",
    "shutil.unpack_archive",
)


def _dotted(node: ast.expr) -> str:
    names = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    names.append(node.id if isinstance(node, ast.Name) else "?")
    return ".".join(reversed(names))


def _mode(call: ast.Call, place: int) -> str:
    given = [*call.args[place : place + 1], *(word.value for word in call.keywords if word.arg == "mode")]
    return next((str(one.value) for one in given if isinstance(one, ast.Constant)), "")


def _kind(call: ast.Call) -> str | None:
    name = _dotted(call.func)
    own, method = name.rpartition(".")[::2]
    if name in ("open", "io.open"):
        return None if set(_mode(call, 1)) & {"w", "a", "x"} else "open"
    if own and method == "open" and set(_mode(call, 0)) == {"r", "b"}:
        return "open"  # of a Path
    if own.endswith("archive") and method in ("read", "extract", "extractall"):
        return None if len(call.args) == 2 else "unpack"  # ours is told how much at most
    if name.startswith(UNPACKERS) and method not in ("ZipInfo", "is_zipfile", "BadZipFile"):
        return "unpack"
    return KINDS.get(name) or (KINDS.get(method) if method in ("read_bytes", "read_text") else None)


def found_in(text: str) -> Iterator[tuple[str, int]]:
    """What a module does of what has a place of its own, and in which line."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and (kind := _kind(node)):
            yield kind, node.lineno


def test_files_are_read_in_their_places() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line} ({kind})"
        for path in sorted(ROOT.rglob("*.py"))
        for kind, line in found_in(path.read_text("utf-8"))
        if not str(path.relative_to(ROOT)).startswith(tuple(ALLOWED[kind]))
    ]
    assert not wrong, "use msprobe.foreign (opening, json_text, archives) here, or say why not"


def test_the_rule_sees_what_it_forbids() -> None:
    for text in (
        "open(path)",
        "open(path, 'rb')",
        "Path(p).read_text()",
        "path.read_bytes()",
        "path.open('rb')",
        "json.loads(text)",
        "orjson.loads(text)",
        "json.load(file)",
        "zipfile.ZipFile(path)",
        "archive.read(name)",
        "gzip.open(path)",
        "np.load(path)",
        "torch.load(path)",
        "pickle.load(file)",
        "mmap.mmap(0, 1)",
    ):
        assert list(found_in(text)), text
    for text in ("open(path, 'w')", "open(path, mode='wb')", "file.read()", "json.dumps(x)", "writer.open()"):
        assert not list(found_in(text)), text
