"""Builds the C++ half of the simulated accelerator, once for each version of its text and of torch.

What is built lies in ``.simdev`` of the checkout, which git ignores; processes that ask at the same time wait for the
one that builds. Without torch: what is built is found in a millisecond.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
from importlib.metadata import version
from pathlib import Path

_HERE = Path(__file__).parent
_FOLDER = Path(__file__).parents[2] / ".simdev"
_SOURCES = ("device.cpp", "memory.h", "rows.h", "streams.h")
NAME = "simdev_device"


_OLDEST_TORCH = (2, 9)


class NoCompiler(Exception):
    """There is no C++ compiler, or torch is too old."""


def build() -> Path:
    """The shared library, which is built if it is not there yet. Raises :class:`NoCompiler`; RuntimeError with what the
    compiler says if it does not take the text.
    """
    if tuple(int(part) for part in version("torch").split(".")[:2]) < _OLDEST_TORCH:
        raise NoCompiler("torch is too old")
    text = b"".join((_HERE / name).read_bytes() for name in _SOURCES)
    key = hashlib.sha256(text + f"{version('torch')} {sys.version}".encode()).hexdigest()[:16]
    built = _FOLDER / key / f"{NAME}.so"
    failed = built.with_suffix(".failed")
    if not built.exists():
        built.parent.mkdir(parents=True, exist_ok=True)
        with open(_FOLDER / "lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not built.exists() and not failed.exists():
                _compile(built, failed)
    if not built.exists():
        raise RuntimeError(failed.read_text())
    return built


def _compile(built: Path, failed: Path) -> None:
    compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("c++")
    if compiler is None:
        raise NoCompiler("no C++ compiler")
    spec = importlib.util.find_spec("torch")
    assert spec is not None
    assert spec.origin is not None
    torch = Path(spec.origin).parent
    started = built.with_suffix(f".{os.getpid()}")
    words = [
        *compiler.split(),
        *("-O0", "-g0", "-std=c++20", "-fPIC", "-shared", "-w", "-D_GLIBCXX_USE_CXX11_ABI=1"),
        *(f"-I{torch / 'include' / place}" for place in ("", "torch/csrc/api/include")),
        f"-I{sysconfig.get_paths()['include']}",
        *(str(_HERE / "device.cpp"), "-o", str(started), f"-L{torch / 'lib'}"),
        *("-ltorch_python", "-ltorch_cpu", "-ltorch", "-lc10"),
    ]
    done = subprocess.run(words, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode:
        failed.write_text(done.stderr[:20000] or str(done.returncode))
    else:
        os.replace(started, built)


if __name__ == "__main__":
    print(build())
