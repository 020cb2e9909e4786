"""What all tests share."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

from msprobe import log

# Before torch is imported by any test: sums must not depend on how many cores the machine has.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Timings never decide a test.
settings.register_profile("msprobe", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("msprobe")


@pytest.fixture(autouse=True)
def _default_log_level(monkeypatch: pytest.MonkeyPatch) -> None:
    """A level set in the shell must not change what the tests see."""
    monkeypatch.delenv("MSPROBE_LOG_LEVEL", raising=False)
    # What is said once is said once in each test.
    log.forget_once()


@pytest.hookimpl(tryfirst=True)  # the workers read the groups in the same hook
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With several workers (``make test``), what shares a recording or a bare training runs in one of them."""
    if not config.pluginmanager.hasplugin("xdist"):
        return
    for item in items:
        group = item.path.stem
        if group == "test_innocence" and isinstance(item, pytest.Function) and hasattr(item, "callspec"):
            group = f"{group}-{item.callspec.params.get('name')}"  # an architecture of the zoo is trained bare once
        item.add_marker(pytest.mark.xdist_group(group))
