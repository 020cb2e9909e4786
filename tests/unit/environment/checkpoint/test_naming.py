"""Which names of two checkpoints answer to each other."""

from __future__ import annotations

from typing import Any

import pytest

from msprobe.environment.checkpoint.naming import pair_up

PLAIN = ["0.weight", "0.bias", "2.weight", "2.bias"]


def paired(first: list[str], second: list[str]) -> set[tuple[str, str]]:
    sides: list[Any] = [{name: object() for name in names} for names in (first, second)]
    return {(one.name, one.other_name or one.name) for one in pair_up(*sides) if one.first and one.second}


@pytest.mark.parametrize("prefix", ["state.", "trainer.policy."])
def test_a_prefix_of_one_side_is_taken_off(prefix: str) -> None:
    longer = [prefix + name for name in PLAIN]
    assert paired(longer, PLAIN) == set(zip(longer, PLAIN, strict=True))
    assert paired(PLAIN, longer) == set(zip(PLAIN, longer, strict=True))
    assert paired(longer, [*PLAIN, "3.weight"]) == set(zip(longer, PLAIN, strict=True))


def test_two_prefixes_are_one_too_many() -> None:
    assert not paired([prefix + name for prefix in ("state.", "ema.") for name in PLAIN], PLAIN)


def test_layers_of_other_names_stay_apart() -> None:
    assert not paired(["fc.weight", "fc.bias"], ["lin.weight", "lin.bias"])
