"""The checks of an installation, each with a subject of its own."""

from __future__ import annotations

import os
import platform
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path

from msprobe import __version__, distribution
from msprobe.doctor.findings import DoctorFinding, DoctorStatus
from msprobe.errors import MsprobeError, reason_of
from msprobe.foreign.opening import open_regular
from msprobe.messages import both, said

_LEAST_TORCH = (2, 1)
_LEAST_TORCH_WITH_NUMPY_2 = (2, 3)
_LEAST_MINDSPORE = (2, 7)
_LEAST_BYTES = 1 << 30
_MOST_SCRIPT_BYTES = 1 << 16
#: Optional packages, and what needs them.
EXTRAS = {
    "compare": (
        ("polars", "python-calamine"),
        both("compare --parquet; reading sheets of xlsx", "compare --parquet；读取 xlsx 结果表"),
    ),
    "view": (("starlette", "uvicorn"), both("view as a server", "以服务方式运行 view")),
    "plots": (("matplotlib",), both("pictures of grad_compare", "grad_compare 的图")),
    "ray": (("ray",), "--engine ray"),
    "tensorboard": (("tensorboard",), both("event files of the monitor", "监控的 event 文件")),
}


def all_checks(folders: Sequence[Path]) -> Iterator[DoctorFinding]:
    """All findings but those of devices; ``folders``: where the user wants to write."""
    yield check_python()
    yield from check_neighbours()
    yield from check_files()
    yield check_command()
    yield check_extension()
    yield from check_frameworks()
    yield check_extras()
    yield from check_folders([*folders, Path(tempfile.gettempdir())])


def check_python() -> DoctorFinding:
    """Which Python and which machine."""
    version = platform.python_version()
    data = {"python": version, "msprobe": __version__, "machine": platform.machine(), "system": platform.system()}
    data["executable"] = sys.executable
    text = said("doctor-python", __version__, version, platform.system(), platform.machine())
    return DoctorFinding("python", "ok", text, (), data)


def check_neighbours() -> Iterator[DoctorFinding]:
    """Other packages with files or a command of our names."""
    names = distribution.sharers()
    if not names:
        yield DoctorFinding("neighbours", "ok", said("doctor-no-neighbours"))
    for name in names:
        shared = distribution.shared_files(name)
        version = _version_of(name)
        if shared:
            listed = ", ".join(shared[:3])
            text = said("doctor-neighbour-owns-files", name, version or "", len(shared), listed)
        else:
            text = said("doctor-neighbour-owns-name", name, version or "")
        data = {"package": name, "version": version, "shared": shared}
        yield DoctorFinding("neighbours", "error", text, distribution.repair([name]), data)


def check_files() -> Iterator[DoctorFinding]:
    """Are the files of our own package those that were installed?"""
    damaged = distribution.damaged_files()
    if damaged:
        yield DoctorFinding(
            "files",
            "error",
            said("doctor-files-damaged", len(damaged), damaged[0]),
            distribution.repair([]),
            {"damaged": damaged},
        )
    else:
        yield DoctorFinding("files", "ok", said("doctor-files-whole", Path(distribution.__file__).parent))


def check_command() -> DoctorFinding:
    """Which program the shell starts as ``msprobe``."""
    place = shutil.which("msprobe")
    beside = Path(sys.executable).with_name("msprobe")
    if place is None:
        by_module = said("doctor-call-module", sys.executable)
        remedy = said("doctor-call-or-activate", beside) if beside.exists() else by_module
        return DoctorFinding("command", "warning", said("doctor-not-on-path"), (remedy,))
    module = _module_of(Path(place))
    if module is not None and module.split(".")[0] == "msprobe" and module not in ("msprobe.cli", "msprobe.__main__"):
        text = said("doctor-command-of-other", place, module)
        return DoctorFinding("command", "error", text, distribution.repair([]), {"path": place, "module": module})
    if Path(place).parent.resolve() != beside.parent.resolve():
        text = said("doctor-command-elsewhere", place, sys.executable)
        return DoctorFinding("command", "warning", text, (said("doctor-call-module", sys.executable),), {"path": place})
    return DoctorFinding("command", "ok", said("doctor-command-is", place), (), {"path": place})


def check_extension() -> DoctorFinding:
    """Are the C extensions in use, of recording and of comparing tensors?"""
    from msprobe.capture import native
    from msprobe.diagnose.differences import elements

    why = native.unused_because or ("" if elements.is_in_c else said("doctor-elements-not-built"))
    if not why:
        return DoctorFinding("extension", "ok", said("doctor-extension-in-use"), (), {"in_use": True})
    remedy = (
        "unset MSPROBE_NATIVE" if "MSPROBE_NATIVE" in why else said("doctor-install-wheel", distribution.repair([])[-1])
    )
    text = said("doctor-extension-not-in-use", why)
    return DoctorFinding("extension", "warning", text, (remedy,), {"in_use": False, "why": why})


def check_frameworks() -> Iterator[DoctorFinding]:
    """Versions of PyTorch, MindSpore and numpy, by their metadata, and pairs that do not work together."""
    torch, mindspore, numpy = (_version_of(name) for name in ("torch", "mindspore", "numpy"))
    if torch is None and mindspore is None:
        text = said("doctor-no-framework")
        yield DoctorFinding("frameworks", "note", text, (distribution.install("torch"),))
    if torch is not None:
        yield _torch(torch, numpy)
    if mindspore is not None:
        yield _mindspore(mindspore, numpy)


def _torch(version: str, numpy: str | None) -> DoctorFinding:
    data = {"torch": version, "numpy": numpy}
    if _numbers(version) < _LEAST_TORCH:
        return DoctorFinding("torch", "error", said("doctor-torch-too-old", version), ("pip install -U torch",), data)
    if numpy is not None and _numbers(numpy) >= (2,) and _numbers(version) < _LEAST_TORCH_WITH_NUMPY_2:
        text = said("doctor-torch-with-numpy", version, numpy)
        return DoctorFinding("torch", "error", text, ("pip install 'numpy<2'",), data)
    plug_in = _version_of("torch_npu")
    if plug_in is not None and _numbers(plug_in)[:2] != _numbers(version)[:2]:
        text = said("doctor-torch-npu", plug_in, version)
        remedy = said("doctor-install-torch-npu", ".".join(map(str, _numbers(version)[:2])))
        return DoctorFinding("torch", "error", text, (remedy,), {**data, "torch_npu": plug_in})
    if plug_in is None:
        text = said("doctor-torch", version, numpy)
    else:
        text = said("doctor-torch-and-npu", version, plug_in, numpy)
    return DoctorFinding("torch", "ok", text, (), {**data, "torch_npu": plug_in})


def _mindspore(version: str, numpy: str | None) -> DoctorFinding:
    data = {"mindspore": version, "numpy": numpy}
    if numpy is not None and _numbers(numpy) >= (2,):
        text = said("doctor-mindspore-with-numpy", version, numpy)
        return DoctorFinding("mindspore", "error", text, ("pip install 'numpy<2'",), data)
    if _numbers(version) < _LEAST_MINDSPORE:
        return DoctorFinding("mindspore", "warning", said("doctor-mindspore-untried", version), (), data)
    if sys.version_info >= (3, 13):
        text = said("doctor-mindspore-on-python", version, platform.python_version())
        return DoctorFinding("mindspore", "warning", text, (), data)
    return DoctorFinding("mindspore", "ok", said("doctor-mindspore", version, numpy), (), data)


def check_extras() -> DoctorFinding:
    """Which optional packages are there."""
    missing = {
        extra: what
        for extra, (packages, what) in EXTRAS.items()
        if any(_version_of(package) is None for package in packages)
    }
    if not missing:
        return DoctorFinding("extras", "ok", said("doctor-extras-there"))
    listed = "; ".join(f"{extra} ({what})" for extra, what in missing.items())
    return DoctorFinding(
        "extras",
        "note",
        said("doctor-extras-missing", listed),
        (distribution.install(*missing),),
        {"missing": [*missing]},
    )


def check_folders(folders: Sequence[Path]) -> Iterator[DoctorFinding]:
    """Can these folders be written to, and is there room?"""
    for folder in dict.fromkeys(folder.resolve() for folder in folders):
        there = folder
        while not there.exists() and there.parent != there:
            there = there.parent
        data: dict[str, object] = {"folder": str(folder)}
        try:
            with tempfile.TemporaryFile(dir=there):
                pass
            free = shutil.disk_usage(there).free
        except OSError as problem:
            reason = reason_of(problem)
            text = said("doctor-folder-not-writable", folder, reason)
            yield DoctorFinding("write-access", "error", text, (said("doctor-choose-folder"),), data)
            continue
        data["free_bytes"] = free
        status: DoctorStatus = "ok" if free >= _LEAST_BYTES else "warning"
        yield DoctorFinding(
            "write-access", status, said("doctor-folder-writable", folder, free / 1000000000.0), (), data
        )


def _version_of(name: str) -> str | None:
    """The installed version of a distribution, without importing it."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _numbers(version: str) -> tuple[int, ...]:
    match = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(int(number) for number in match[0].split(".")) if match else ()


def _module_of(script: Path) -> str | None:
    """The module that a script of pip imports; None for a program of a different kind."""
    try:
        with open_regular(os.path.realpath(script)) as file:
            text = file.read(_MOST_SCRIPT_BYTES).decode("utf-8", "replace")
    except (OSError, MsprobeError):
        return None
    match = re.search(r"^from ([\w.]+) import", text, re.MULTILINE)
    return match[1] if match else None
