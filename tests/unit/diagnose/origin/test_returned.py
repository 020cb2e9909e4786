"""What was said of a module that gives back another result, among findings whose names are lists."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from msprobe.diagnose.evidence import NamedFact
from msprobe.diagnose.findings import Finding
from msprobe.diagnose.origin.returned import is_returned_otherwise


def said(*facts: NamedFact) -> Any:
    finding = Finding("structure", "it is another", "here", facts=facts)
    return SimpleNamespace(finding=finding)


@pytest.mark.parametrize("name", ["Torch.mul.0.forward", "Torch.mul.1.forward"])
def test_a_weight_that_was_exchanged_stands_in_the_way_of_nothing(name: str) -> None:
    exchanged = said(NamedFact("candidate_takes", ["a.weight"]), NamedFact("reference_takes", ["b.weight"]))
    returned = said(
        NamedFact("candidate_takes", "Torch.mul.0.forward"),
        NamedFact("reference_takes", "Torch.add.0.forward"),
    )
    scene: Any = SimpleNamespace(ledger=SimpleNamespace(suspects=[exchanged, returned]))
    maker: Any = SimpleNamespace(name=name)
    other: Any = SimpleNamespace(name="Torch.add.0.forward")

    assert is_returned_otherwise(scene, maker, other) is (name == "Torch.mul.0.forward")
