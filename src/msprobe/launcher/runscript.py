"""``msprobe run``: run a training script whose source is not touched, and record it."""

from __future__ import annotations

import builtins
import io
import os
import runpy
import shutil
import sys
import types
import zipfile
from collections.abc import Sequence
from importlib.machinery import SourceFileLoader
from typing import Any

from msprobe.errors import InvalidInputError, PathError
from msprobe.guard import attempt
from msprobe.launcher.child_processes import ChildProcesses
from msprobe.launcher.script_recording import ScriptRecording, follow_child
from msprobe.launcher.script_steps import ScriptSteps
from msprobe.messages import said


def run_script(
    config_path: str | None,
    script_argv: Sequence[str],
    first_step: int | None = None,
    step_on: str | None = None,
    **overrides: Any,
) -> int:
    """Run ``script_argv`` as ``python script_argv...`` would, with recording on; the exit status of the
    script.

    ``script_argv``: a script and its arguments, or ``-m``, a module and its arguments. ``config_path`` and
    ``overrides``: as for PrecisionDebugger. ``first_step``: the number of the first step, if the script resumes a
    training. ``step_on``: what ends a step (:class:`msprobe.capture.step_on.StepOn`), if it is not what the program
    makes of its steps. What is recorded when: see :class:`msprobe.launcher.script_steps.ScriptSteps`.
    Processes that the script starts as ranks of a process group are recorded too
    (:mod:`msprobe.launcher.child_processes`); of others that train, a line says that they are not. A script that
    constructs a PrecisionDebugger itself runs as without ``msprobe run``: its own calls and settings count.

    An exception that ends the script is shown with the script's own traceback and gives the status 1.
    Raises InvalidInputError or PathError if there is nothing to run, and the errors of a wrong
    configuration.
    """
    target, argv = _target(script_argv)
    recording = ScriptRecording(config_path, first_step, overrides, step_on)
    recording.debugger.recorder.session.stacks.leave_out_callers()
    children = ChildProcesses(recording.words(), follow_child)
    children.attach()
    try:
        return _status_of(target, argv, recording.steps)
    finally:
        attempt(children.detach)
        attempt(recording.end, children.started, children.others)


class _Target(types.SimpleNamespace):
    """What to run: a module by name, or a file or folder by path."""

    module: str | None
    path: str | None


def _target(script_argv: Sequence[str]) -> tuple[_Target, list[str]]:
    words = list(script_argv)
    if not words or words == ["-m"]:
        raise InvalidInputError(said("no-script"))
    if words[0] == "-m":
        return _Target(module=words[1], path=None), words[1:]
    if words[0].startswith("-"):
        raise InvalidInputError(said("script-is-an-option", words[0]))
    if not os.path.exists(words[0]):
        command = _command_in_python(words[0])
        if command is None:
            raise PathError(said("script-missing", words[0]))
        words[0] = command
    return _Target(module=None, path=words[0]), words


def _command_in_python(name: str) -> str | None:
    """The file of a command that is a Python script, as torchrun is; None if ``name`` is none."""
    places = os.pathsep.join((os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)))
    path = shutil.which(name, path=places) if os.path.basename(name) == name else None
    if path is not None:
        with open(path, "rb") as file:
            first = file.readline(200)
        if first.startswith(b"#!") and b"python" in first:
            return path
    return None


def _status_of(target: _Target, argv: list[str], steps: ScriptSteps) -> int:
    sys.argv = argv
    try:
        if target.module is not None:
            _set_first_path(os.getcwd())
            argv[0] = "-m"  # as long as the module is being looked for
            _run_main_of(target.module, alter_argv=True)
        else:
            path = _absolute(str(target.path))
            if os.path.isfile(path) and not zipfile.is_zipfile(path):
                _run_file(path)
            else:
                _set_first_path(path, always=True)
                _run_main_of("__main__", alter_argv=False)
    except SystemExit as ending:
        return _status(ending.code)
    except KeyboardInterrupt:
        steps.failed = True
        raise
    except BaseException as error:
        steps.failed = True
        error = error.with_traceback(_own_traceback(error.__traceback__))
        sys.excepthook(type(error), error, error.__traceback__)
        return 1
    return 0


def _absolute(path: str) -> str:
    # Not abspath: Python keeps what is in between, such as "..", and so do the paths that the script sees.
    return os.path.join(os.getcwd(), path)


def _run_file(path: str) -> None:
    _set_first_path(os.path.dirname(os.path.realpath(path)))
    with io.open_code(path) as file:
        source = file.read()
    main = _new_main()
    main.__dict__.update(__file__=path, __cached__=None, __loader__=SourceFileLoader("__main__", path))
    exec(compile(source, path, "exec", dont_inherit=True), main.__dict__)


def _run_main_of(module: str, alter_argv: bool) -> None:
    """What ``python -m module`` does (3.10 to 3.13); its ``run_module`` would take the main module away again."""
    _new_main()
    runpy._run_module_as_main(module, alter_argv)  # type: ignore[attr-defined]


def _new_main() -> types.ModuleType:
    """A ``__main__`` module of the script's own, which stays: what runs at exit may still need it."""
    main = types.ModuleType("__main__")
    main.__dict__.update(__builtins__=builtins, __spec__=None, __annotations__={})
    sys.modules["__main__"] = main
    return main


def _set_first_path(place: str, always: bool = False) -> None:
    """Put ``place`` where Python has the script's; ``always``: also where Python is asked not to have one (``-P``)."""
    if not getattr(sys.flags, "safe_path", sys.flags.isolated):
        sys.path[:1] = [place]
    elif always:
        sys.path.insert(0, place)


def _status(code: Any) -> int:
    """The exit status that Python makes of the argument of ``sys.exit``."""
    if code is None:
        return 0
    if isinstance(code, int):
        return code
    print(code, file=sys.stderr)
    return 1


def _own_traceback(traceback: types.TracebackType | None) -> types.TracebackType | None:
    """The traceback from the script's first frame on."""
    ours = os.path.abspath(__file__)
    own = traceback
    while own is not None and (
        os.path.abspath(own.tb_frame.f_code.co_filename) == ours
        or own.tb_frame.f_code.co_filename.startswith("<frozen runpy")
        or own.tb_frame.f_globals.get("__name__") == "runpy"
    ):
        own = own.tb_next
    return own
