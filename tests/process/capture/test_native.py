"""The C extension in interpreters and processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from msprobe.capture import native

native_only = pytest.mark.skipif(not native.built, reason="the C extension was not built")


@native_only
def test_another_interpreter_is_refused_the_static_state() -> None:

    pytest.importorskip("_xxsubinterpreters", reason="Python has them under this name until 3.12")
    from msprobe.capture import _native

    inside = f"""
import importlib.util
spec = importlib.util.spec_from_file_location("_native", {_native.__file__!r})
try:
    spec.loader.exec_module(importlib.util.module_from_spec(spec))
except ImportError as error:
    assert "interpreter" in str(error), error
else:
    raise AssertionError("loaded")
"""
    program = f"import _xxsubinterpreters as other; other.run_string(other.create(), {inside!r})"
    # In a process of its own: torch's backward pass fails in one that has had two interpreters.
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_python_versions_are_chosen_when_asked_for() -> None:

    program = "from msprobe.capture import native as n; print(n.built, n.numbers, n.encode({'a': 1}, 0))"
    out = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        # What is tested here, wherever it is imported from.
        env={"MSPROBE_NATIVE": "0", "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        check=True,
    ).stdout
    assert out.split(" ", 2) == ["False", "None", "b'{\\n \"a\": 1\\n}'\n"]


def test_an_extension_of_another_version_is_not_used_and_it_is_said() -> None:
    words = (
        "import sys, types; old = types.ModuleType('old'); old.KINDS = {};"
        "sys.modules['msprobe.capture._native'] = old;"
        "from msprobe.capture import native; print(native.built, native.RowTable); print(native.unused_because)"
    )
    env = {**os.environ, "MSPROBE_NATIVE": "1"}
    ended = subprocess.run([sys.executable, "-c", words], capture_output=True, text=True, timeout=60, env=env)
    state, reason = ended.stdout.splitlines()
    assert state == "False None"
    assert "RowTable" in reason
