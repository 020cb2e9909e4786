"""The tests of innocence find the guilty: each known way to disturb a training is reported, in the place
where it shows."""

from __future__ import annotations

import pytest
import zoo
from innocence_culprits import CULPRITS
from innocence_observation import differences
from innocence_run import Nobody, run, run_bare, without_known_once

zoo.load_all()


@pytest.mark.parametrize(
    ("culprit", "name", "trace"),
    CULPRITS,
    ids=[f"{c[0].__name__}-{c[1]}-{c[2]}".replace(" ", "_") for c in CULPRITS],
)
def test_culprit_is_caught(culprit: type[Nobody], name: str, trace: str) -> None:
    off = run_bare(name)
    if trace == "raised":
        with pytest.raises(RuntimeError):
            run(name, culprit())
        return
    found = differences(*without_known_once(off, run(name, culprit())))
    assert any(trace in str(line) for line in found), "acquitted, or for another reason:\n" + "\n".join(
        map(str, found[:10])
    )


def test_the_bystander_is_acquitted() -> None:
    off = run_bare("resnet")
    assert differences(*without_known_once(off, run("resnet", Nobody()))) == []
