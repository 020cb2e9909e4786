"""Tables that tests go through: all rows in one test (:func:`for_each`), or a share of all pairs (:func:`in_turn`)."""

from __future__ import annotations

import functools
import inspect
import traceback
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

import pytest

_SHOWN = 20


def for_each(names: str | Sequence[str], rows: Iterable[Any]) -> Callable[[Callable[..., Any]], Callable[..., None]]:
    """One test over a table, in place of ``pytest.mark.parametrize`` with one for each row: pytest needs some
    milliseconds for a test, whatever it does. For tests that set nothing up for a row; all rows are tried, and one
    report names each that fails. Several tables of one test are tried in all combinations.
    """
    words = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    table = [row if len(words) > 1 else (row,) for row in rows]
    assert table, "a table without a row"

    def of(test: Callable[..., Any]) -> Callable[..., None]:
        signature = inspect.signature(test)

        @functools.wraps(test)
        def each_row(*given: Any, **more: Any) -> None:
            failed = []
            for row in table:
                try:
                    test(*given, **more, **dict(zip(words, row, strict=True)))
                except (Exception, pytest.fail.Exception) as error:
                    place = traceback.extract_tb(error.__traceback__)[-1]
                    said = f"{type(error).__name__}: {error}" if str(error) else f"{type(error).__name__}"
                    failed.append(f"{dict(zip(words, row, strict=True))}: line {place.lineno}: {said}")
            if failed:
                count = f"{len(failed)} of {len(table)} rows fail"
                pytest.fail("\n".join([count, *failed[:_SHOWN]]), pytrace=False)

        left = [one for name, one in signature.parameters.items() if name not in words]
        each_row.__signature__ = signature.replace(parameters=left)  # type: ignore[attr-defined]
        return each_row

    return of


def in_turn(names: Iterable[str], ways: Sequence[Any], always: Any, slow: Collection[str] = ()) -> list[Any]:
    """Rows of a test: each name with ``always`` and with one of ``ways``, of which each has its turn. With the other
    ways, and for names in ``slow``, a test is a slow one.
    """
    rows = [
        (name, way, name in slow or turn not in (number % len(ways), len(ways)))
        for number, name in enumerate(names)
        for turn, way in enumerate([*ways, always])
    ]
    return [pytest.param(name, way, marks=[pytest.mark.slow] * is_slow) for name, way, is_slow in rows]
