"""Trainings in which one function of msprobe raises each time it is called, or at one of its calls.

Every function of msprobe begins, in the processes of this file, with a question: whether it is the one that is broken.
One process imports all, runs nothing, and forks one for each training; what came of it is an :class:`Ended`.

This file is also what that process runs: ``broken_functions.py TRAININGS REQUESTS ANSWERS``, a module of trainings
(functions that get a folder and return lists of tensors and words) and the two ends of pipes.
"""

from __future__ import annotations

import ast
import atexit
import builtins
import dataclasses
import gc
import hashlib
import importlib
import importlib.abc
import importlib.machinery
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

_QUESTION = "_msprobe_is_broken"
_SECONDS = 60.0


class Unlucky(RuntimeError):
    """What a broken function raises."""


@dataclasses.dataclass(frozen=True)
class Ended:
    """What came of a training."""

    #: 0 if it ended as it should; 1 if an exception ended it.
    status: int
    #: Of all that it computed.
    digest: str
    #: The functions of msprobe that it called once :func:`arm` was called: how often, by ``file:name:line``.
    called: dict[str, int]
    #: How often the broken one raised.
    raised: int
    #: What it wrote to stdout and stderr.
    output: str


class Trainings:
    """The process that runs the trainings of one module, which is in a folder of ``sys.path``."""

    def __init__(self, module: str, env: dict[str, str] | None = None) -> None:
        requests, to_it = os.pipe()
        from_it, answers = os.pipe()
        words = [sys.executable, "-W", "ignore", __file__, module, str(requests), str(answers)]
        found = {**os.environ, **(env or {}), "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        found["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
        self._process = subprocess.Popen(words, env=found, stdin=subprocess.DEVNULL, pass_fds=(requests, answers))
        os.close(requests)
        os.close(answers)
        self._requests = open(to_it, "wb", buffering=0)  # noqa: SIM115
        self._answers = open(from_it, "rb")  # noqa: SIM115

    def run(self, name: str, folder: Path, broken: str = "", call: int = 0, **options: Any) -> Ended:
        """Run the training ``name`` with ``options``; the function ``broken`` raises, at its call number ``call`` (from
        1) or, 0, at all.
        """
        request = {"name": name, "folder": str(folder), "broken": broken, "call": call, "options": options}
        self._requests.write(json.dumps(request).encode() + b"\n")
        answer = self._answers.readline()
        assert answer, "the process that forks trainings has ended"
        return Ended(**json.loads(answer))

    def close(self) -> None:
        """End the process."""
        self._requests.close()
        self._answers.close()
        self._process.wait()


# ---------------------------------------------------------------- in the process that forks, and in its forks


class _State:
    armed = False
    broken = ""
    call = 0
    raised = 0
    #: Of the thread in which it raised, the innermost functions: for whoever mends it.
    where = ""


_called: dict[str, int] = {}


def arm() -> None:
    """From here on functions count, and one raises: called by a training when it has made what it needs."""
    _State.armed = True


def _is_broken(name: str) -> None:
    if not _State.armed:
        return
    _called[name] = number = _called.get(name, 0) + 1
    if name == _State.broken and _State.call in (0, number):
        _State.raised += 1
        raise Unlucky(f"{name} is broken")


class _Questioned(ast.NodeTransformer):
    """Puts the question first in each function."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._names: list[str] = []

    def _visit_named(self, node: Any) -> Any:
        self._names.append(node.name)
        self.generic_visit(node)
        if not isinstance(node, ast.ClassDef):
            key = f"{self._file}:{'.'.join(self._names)}:{node.lineno}"
            asked = ast.Expr(ast.Call(ast.Name(_QUESTION, ast.Load()), [ast.Constant(key)], []))
            has_text = ast.get_docstring(node, clean=False) is not None
            body = node.body[1:] if has_text else node.body
            ast.copy_location(asked, node.body[0])
            ast.fix_missing_locations(asked)
            if not body:
                node.body.append(asked)
            elif isinstance(body[0], ast.Try) and _catches_all(body[0]):
                body[0].body.insert(0, asked)
            elif not _begins_guarded(body[0]) and not (isinstance(body[0], ast.Try) and not body[0].handlers):
                node.body.insert(1 if has_text else 0, asked)
        self._names.pop()
        return node

    visit_FunctionDef = visit_AsyncFunctionDef = visit_ClassDef = _visit_named


def _catches_all(block: ast.Try) -> bool:
    kinds = [handler.type for handler in block.handlers]
    return any(kind is None or (isinstance(kind, ast.Name) and kind.id == "Exception") for kind in kinds)


def _begins_guarded(first: ast.stmt) -> bool:
    """True for the first line of a function that stands around one of the program's, and does nothing itself but by
    way of the guard: ``begun = attempt(...)``.
    """
    value = getattr(first, "value", None)
    if not isinstance(first, (ast.Assign, ast.Expr)) or not isinstance(value, ast.Call):
        return False
    name = value.func.attr if isinstance(value.func, ast.Attribute) else getattr(value.func, "id", "")
    return name in ("attempt", "guard")


class _Loader(importlib.machinery.SourceFileLoader):
    def get_code(self, fullname: str) -> types.CodeType:
        path = self.get_filename(fullname)
        source = Path(path).read_bytes()
        tree = ast.parse(source)
        short = path.rpartition(f"msprobe{os.sep}")[2]
        return compile(_Questioned(short).visit(tree), path, "exec", dont_inherit=True)


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        if fullname.partition(".")[0] != "msprobe":
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path)
        if spec is not None and type(spec.loader) is importlib.machinery.SourceFileLoader:
            spec.loader = _Loader(fullname, str(spec.origin))
        return spec


def _digest_of(found: Any) -> str:
    import torch

    digest = hashlib.sha256()

    def add(value: Any) -> None:
        if isinstance(value, torch.Tensor):
            value = value.detach().cpu().contiguous().reshape(-1)
            digest.update(str(value.dtype).encode())
            digest.update(value.view(torch.uint8).numpy().tobytes() if value.numel() else b"")
        elif isinstance(value, (list, tuple)):
            for one in value:
                add(one)
        else:
            digest.update(repr(value).encode())

    add(found)
    return digest.hexdigest()


def _run(trainings: types.ModuleType, request: dict[str, Any], answer: str) -> NoReturn:
    """In a fork: run the training, and what Python runs at its end; leave the answer in a file."""
    output = f"{answer}.output"
    descriptor = os.open(output, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    _State.broken, _State.call = request["broken"], request["call"]
    status, digest = 0, ""
    folder = Path(request["folder"])
    folder.mkdir(parents=True, exist_ok=True)
    os.chdir(folder)
    try:
        found = getattr(trainings, request["name"])(folder, **request["options"])
        digest = _digest_of(found)
    except BaseException:
        status = 1
        traceback.print_exc()
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    said = Path(output).read_text(errors="replace")
    if "Exception ignored" in said or "Error in atexit" in said or "Exception in thread" in said:
        status = status or 3
    ended = Ended(status, digest, _called, _State.raised, said[-6000:])
    Path(answer).write_text(json.dumps(dataclasses.asdict(ended)))
    os._exit(0)


def _serve(module: str, requests: int, answers: int) -> None:
    trainings = importlib.import_module(module)
    assert len(os.listdir("/proc/self/task")) == 1, "threads do not survive a fork"
    gc.collect()
    gc.freeze()
    # Without an end of its own, which would run in each fork.
    beside = tempfile.mkdtemp()
    with open(requests, "rb") as asked, open(answers, "wb", buffering=0) as told:
        for number, line in enumerate(asked):
            request = json.loads(line)
            answer = os.path.join(beside, str(number))
            child = os.fork()
            if child == 0:
                _run(trainings, request, answer)
            told.write(_answer_of(child, answer).encode() + b"\n")
    shutil.rmtree(beside)


def _answer_of(child: int, answer: str) -> str:
    until = time.monotonic() + _SECONDS
    while not (waited := os.waitpid(child, os.WNOHANG))[0]:
        if time.monotonic() > until:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            break
        time.sleep(0.005)
    try:
        return Path(answer).read_text()
    except OSError:
        said = Path(f"{answer}.output")
        output = said.read_text(errors="replace")[-6000:] if said.exists() else ""
        return json.dumps(
            dataclasses.asdict(Ended(2, "", {}, 0, f"{output}\nno answer: status {waited[1]}, within {_SECONDS} s"))
        )


def every(called: Sequence[str], share: int, first: int = 0) -> list[str]:
    """One of ``share`` of these functions, in the same order each time, from the one of number ``first`` on."""
    return sorted(called)[first % share :: share]


if __name__ == "__main__":
    sys.modules["support.broken_functions"] = sys.modules["__main__"]
    setattr(builtins, _QUESTION, _is_broken)
    sys.meta_path.insert(0, _Finder())
    _serve(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
