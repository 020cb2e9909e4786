"""The demo's folder, its scripts, and the commands that are run in it."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import sys
import webbrowser
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from msprobe.children import starting
from msprobe.distribution import install
from msprobe.errors import MsprobeError, NotAvailableError, PathError
from msprobe.foreign.console import say
from msprobe.messages import said, translated
from msprobe.paths import make_folder, write_atomically

#: What is replaced in the copy: the second block scales its attention by the width of the model, not by that of a head.
HEALTHY = "Block(SCALE), Block(SCALE), Block(SCALE)"
BROKEN = "Block(SCALE), Block(1 / math.sqrt(WIDTH)), Block(SCALE)"

_SCRIPT, _CHANGED, _SETTINGS = "train.py", "train_changed.py", "record.json"
_GOOD, _BAD, _RESULTS = "good", "bad", "comparison"
_PAGE = f"{_RESULTS}/verdict.html"
_RECORD = """\
{
    // What is recorded, and when. Without this file: every step, at level L1.
    "task": "statistics",   // numbers of each tensor; "tensor" keeps the values
    "level": "mix",         // modules and calls, forward and backward
    "step": [0, 10, 20]     // steps count from 0
}
"""
_DIVERGED_STATUS = 1


def show(folder: Path, opens_page: bool) -> None:
    """Run the demo in ``folder``, which is made, or is there and empty; raises MsprobeError.

    Where a command fails or the user interrupts, nothing of the demo stays. ``opens_page``: open the page in a browser,
    where there is a display.
    """
    if find_spec("torch") is None:
        raise NotAvailableError(said("demo-needs-torch", install("torch")))
    with _whole_or_nothing(folder):
        line = _write_scripts(folder)
        say(translated(said("demo-trains-twice", folder, _SCRIPT)))
        say(f"  {_CHANGED}, line {line}\n-     {HEALTHY}\n+     {BROKEN}\n")
        for dump, script in ((_GOOD, _SCRIPT), (_BAD, _CHANGED)):
            _run(folder, "run", "--config", _SETTINGS, "--dump-path", dump, "--", script)
        say(translated(said("demo-both-learn")))
        _run(folder, "compare", _BAD, _GOOD, "-o", _RESULTS, "--html", status=_DIVERGED_STATUS)
        _check_verdict(folder / _RESULTS / "verdict.json")
    page = (folder / _PAGE).resolve()
    say(translated(said("demo-page", page)))
    if opens_page and has_display():
        with contextlib.suppress(Exception):
            webbrowser.open(page.as_uri())
    say(_ending(folder))


def has_display() -> bool:
    """Whether a browser would open a window that the user sees: not over ssh, nor without a display on Linux."""
    if os.environ.get("SSH_CONNECTION"):
        return False
    is_windowed = sys.platform in ("win32", "darwin")
    return is_windowed or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


@contextlib.contextmanager
def _whole_or_nothing(folder: Path) -> Iterator[None]:
    """Make the folder; take away what was written where the work does not come to its end."""
    is_new = not folder.exists()
    if not is_new and (not folder.is_dir() or any(folder.iterdir())):
        raise PathError(said("demo-folder-not-empty", folder))
    make_folder(folder)
    try:
        yield
    except BaseException:
        for entry in folder.iterdir():
            if entry.is_dir():
                shutil.rmtree(entry, ignore_errors=True)
            else:
                entry.unlink(missing_ok=True)
        if is_new:
            with contextlib.suppress(OSError):
                folder.rmdir()
        raise


def _write_scripts(folder: Path) -> int:
    """Write both scripts and the settings; the number of the line that differs."""
    healthy = Path(__file__).with_name("train.py").read_text(encoding="utf-8")
    write_atomically(folder / _SCRIPT, healthy.encode())
    write_atomically(folder / _CHANGED, healthy.replace(HEALTHY, BROKEN).encode())
    write_atomically(folder / _SETTINGS, _RECORD.encode())
    return healthy[: healthy.index(HEALTHY)].count("\n") + 1


def _run(folder: Path, *words: str, status: int = 0) -> None:
    """Show a command, run it in the folder, and show what it prints. Raises MsprobeError for a different status."""
    line = f"msprobe {shlex.join(words)}"
    say(f"$ {line}", flush=True)
    exit_status, printed = starting.run_command(words, folder)
    say(printed, flush=True)
    if exit_status != status:
        raise MsprobeError(said("demo-command-failed", line, exit_status, status))


def _check_verdict(file: Path) -> None:
    from msprobe.foreign.json_text import read_json

    findings = read_json(file)["findings"]
    if not findings or findings[0]["kind"] != "argument":
        raise MsprobeError(said("demo-missed-line", json.dumps(findings[:1])[:300]))


def _ending(folder: Path) -> str:
    settings = shlex.quote(os.path.join(os.path.relpath(folder), _SETTINGS))
    return translated(said("demo-with-your-script", settings))
