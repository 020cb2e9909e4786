"""Unit tests start no process, so that they are quick anywhere; those that must are in ``tests/process``."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Generator
from multiprocessing import util
from typing import Any

import pytest
from support import forked

from msprobe.children import jobs

#: What the test that runs now has started, its fixtures included.
_started: list[str] = []


def _noted(owner: Any, name: str) -> None:
    """Have calls of a function noted, in this process alone."""
    function: Callable[..., Any] | None = getattr(owner, name, None)
    if function is None:
        return
    own = os.getpid()

    def noted(*args: Any, **kwargs: Any) -> Any:
        if os.getpid() == own:
            _started.append(f"{getattr(owner, '__name__', owner)}.{name}")
        return function(*args, **kwargs)

    setattr(owner, name, noted)


for _owner, _name in (
    (subprocess.Popen, "__init__"),
    (os, "fork"),
    (os, "posix_spawn"),
    (util, "spawnv_passfds"),
    (forked, "start"),
    (forked, "start_module"),
    (jobs, "hired"),  # also one that waits since an earlier test
):
    _noted(_owner, _name)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Begin anew with each test."""
    _started.clear()
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(request: pytest.FixtureRequest) -> Generator[None, object, object]:
    """What a fixture of a whole file starts is for its file to say, and not for the test that asks first."""
    before = len(_started)
    found = yield
    if request.scope != "function":
        if request.scope == "module" and _started[before:]:
            _refuse(request.node, _started[before:])
        del _started[before:]
    return found


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    """Fail a test that has started a process."""
    found = yield
    if _started:
        _refuse(item, _started)
    return found


def _refuse(node: pytest.Collector | pytest.Item, started: list[str]) -> None:
    pytest.fail(f"{node.nodeid} starts a process ({started[0]}); it belongs in tests/process", pytrace=False)
