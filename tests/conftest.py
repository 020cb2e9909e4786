"""What all tests share."""

from __future__ import annotations

import gc
import os
import re
import tempfile
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from msprobe import log

# Before torch is imported by any test: sums must not depend on how many cores the machine has.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Nor answers on the locale of its user.
os.environ["MSPROBE_LANG"] = "en"


def _room_in_memory() -> Path | None:
    """A folder in memory with room for the temporary files of all tests, None where there is none: they are tens of
    thousands, most of them small, and what writes them waits for the disk.
    """
    place = Path("/dev/shm")
    try:
        found = os.statvfs(place)
        available = re.search(r"MemAvailable: +(\d+) kB", Path("/proc/meminfo").read_text())
    except OSError:
        return None
    room = min(found.f_bavail * found.f_frsize, int(available[1]) << 10 if available else 0)
    return None if room < _ROOM or found.f_flag & os.ST_NOEXEC or not os.access(place, os.W_OK) else place


_ROOM = 6 << 30
if "TMPDIR" not in os.environ and (place := _room_in_memory()):
    os.environ["TMPDIR"] = str(place)
    tempfile.tempdir = None

# Timings never decide a test, nor does chance: each run draws the same few examples. `make fuzz-properties` draws many
# others, as it does each night.
settings.register_profile(
    "same", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True, max_examples=40
)
settings.register_profile("others", settings.get_profile("same"), derandomize=False, max_examples=1000)
settings.load_profile(os.environ.get("MSPROBE_EXAMPLES", "same"))

#: What a file of tests imports that measures memory.
_MEASURE_MEMORY = {"tracemalloc", "resource", "most_bytes_in"}
_USUALLY, _SELDOM = gc.get_threshold(), (20_000, 20, 50)


class _Running:
    """The file of the test that runs."""

    file: Path | None = None


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--cpu-times", metavar="LEG", help="show the CPU seconds of folders, files and tests at the end")


def pytest_configure(config: pytest.Config) -> None:
    if leg := config.getoption("--cpu-times"):
        from cpu_times import CpuTimes  # not on Windows

        config.pluginmanager.register(CpuTimes(config, leg))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Modules and tests, of which there are a million objects, are looked through for garbage neither while they are
    loaded nor, afterwards, by each test that collects garbage.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Before ``-m`` chooses: of long tables a share is for each change, and the rest for the night; what costs most is
    for `make test-long`.
    """
    from support.shares import mark_long, share_out

    share_out(items)
    mark_long(items)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Garbage is looked for seldom, which takes a tenth of all time otherwise; as usual where memory is measured. What
    earlier files have left (compiled code, caches) is not looked through again by each test that collects garbage or
    looks for all models and optimizers.
    """
    if item.path != _Running.file:
        _Running.file = item.path
        gc.collect()
        gc.freeze()
    measures = vars(item.module).keys() & _MEASURE_MEMORY if isinstance(item, pytest.Function) else ()
    gc.set_threshold(*(_USUALLY if measures else _SELDOM))


@pytest.fixture(scope="session")
def simulated_device() -> None:
    """The simulated accelerator is built, for programs of their own to load it; skipped where that cannot be."""
    from simdev.build import NoCompiler, build

    try:
        build()
    except NoCompiler as problem:
        pytest.skip(str(problem))


@pytest.fixture
def forked_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes that check calls are forks, which need not import torch: for tests of what they answer."""
    from support import forked

    from msprobe.children import starting

    monkeypatch.setattr(starting, "start_module", forked.start_module)


@pytest.fixture(autouse=True)
def _default_log_level(monkeypatch: pytest.MonkeyPatch) -> None:
    """A level set in the shell must not change what the tests see."""
    monkeypatch.delenv("MSPROBE_LOG_LEVEL", raising=False)
    # What is said once is said once in each test.
    log.forget_once()
