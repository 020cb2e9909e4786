"""The gate of the diagnosis: what every planted bug and every healthy pair is answered, in each precision.

`make test-bugs` records each pair in one of the precisions (the whole, minutes more: `make test-bugs BUGS=all`) and
compares it. Programs are small, and pairs share their references, see :func:`bugs.planting.small_draw`: what other
sizes are answered is measured by ``bench/localise``. What is missed today stands in ``missed.json``; nothing else may
be. So is each pair with the candidate on another device (``F05@tiles``), whose kernels give other bits everywhere, and
each program as it is: one of eight, with BUGS=all each in all precisions.
"""

from __future__ import annotations

import importlib.util
import json
import os
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from bugs.cache import recorded
from bugs.clean import CLEAN
from bugs.layouts import LAYOUTS
from bugs.patterns import PATTERNS
from bugs.planting import small_draw
from bugs.precision import PRECISIONS

_BENCH = Path(__file__).resolve().parents[2] / "bench" / "localise" / "run.py"

MISSED: dict[str, list[str]] = json.loads(Path(__file__).with_name("missed.json").read_text())
#: Devices whose products have all bits of their type; no header says otherwise.
DEVICES = ("tiles", "splits", "halves", "fast", "wide")
SAME = {name: pattern for name, pattern in {**PATTERNS, **CLEAN, **LAYOUTS}.items() if not pattern.large}
OTHER = {
    f"{name}@{device}": replace(pattern, device=device)
    for number, (name, pattern) in enumerate(SAME.items())
    for device in [DEVICES[number % len(DEVICES)]]
    # These change the device themselves, or are of one that draws otherwise.
    if name not in LAYOUTS and not pattern.headers
}
#: Each program as it is, on two devices.
HEALTHY = {
    f"{program}{world}.{bed}@{device}": replace(
        pattern, plant=(), reference_world=None, expected=frozenset(("agree",)), device=device
    )
    for number, ((program, world, bed), pattern) in enumerate(
        {
            (pattern.program, pattern.world, len(pattern.bed)): pattern
            for pattern in reversed(PATTERNS.values())
            if not pattern.large
        }.items()
    )
    for device in (DEVICES[number % len(DEVICES)], DEVICES[(number + 2) % len(DEVICES)])
}
EVERY = {**SAME, **OTHER, **HEALTHY}
PAIRS = [
    (name, precision)
    for pairs, share in ((SAME, 1), (OTHER, 8), (HEALTHY, 8))
    for number, (name, pattern) in enumerate(pairs.items())
    for precision in PRECISIONS
    if precision in pattern.precisions
    and (
        os.environ.get("BUGS") == "all"
        or (number % share == 0 and pattern.precisions[number // share % len(pattern.precisions)] == precision)
    )
]


@pytest.mark.bugs
@pytest.mark.parametrize(("name", "precision"), PAIRS)
def test_it_is_named_first_and_nothing_is_said_of_a_healthy_pair(
    name: str, precision: str, tmp_path: Path, references: Path
) -> None:
    pattern = EVERY[name]
    cache = Path(os.environ["BUGS_CACHE"]) if "BUGS_CACHE" in os.environ else tmp_path
    pair = recorded(pattern, small_draw(pattern), "statistics", precision, cache, references)
    answer: dict[str, Any] = _bench().judged(pair)
    known = f"{name} {precision}" in MISSED["first"] or f"{name} {precision}" in MISSED["detected"]
    if pattern.expected:
        if f"{name} {precision}" not in MISSED["alarms"]:
            assert answer["status"] in pattern.expected, answer["findings"]
    else:
        if f"{name} {precision}" not in MISSED["detected"]:
            assert answer["detected"], answer
        if not known:
            assert answer["place"] == 0, answer["findings"]


@pytest.fixture(scope="module")
def references(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where each reference is kept while these tests run."""
    return tmp_path_factory.mktemp("references")


@lru_cache(1)
def _bench() -> ModuleType:
    """``bench/localise/run.py``, which judges an answer."""
    spec = importlib.util.spec_from_file_location("localise", _BENCH)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_what_is_missed_are_pairs_that_there_are() -> None:
    known = {f"{name} {precision}" for name, pattern in EVERY.items() for precision in pattern.precisions}
    for kind, names in MISSED.items():
        assert kind in ("first", "detected", "alarms")
        assert set(names) <= known
        assert names == sorted(names)
