"""Two healthy trainings of ranks are the same, whatever was in the memory that their libraries allocate: `compare`
says nothing, nor does `check` of either, and `summary` tells of no NaN.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from unwritten_trainings import MODES, TRAININGS, record

from msprobe.cli.summary import summarise
from msprobe.diagnose import compare_runs
from msprobe.diagnose.check import check_run
from msprobe.store.reader import open_dump

LEVELS = ("L0", "L1", "mix", "L2")
#: Each training in its own way at least at a level that sees calls, and those with most buffers at L2.
QUICK = {
    *(f"{name}@mix-statistics" for name in ("fsdp1_parameters", "fsdp2_kept_bfloat16", "tensor_parallel", "zero1")),
    *(f"{name}@mix-xxh3" for name in ("one_forward_one_backward", "zero_bubble", "by_hand", "fsdp2")),
    *(f"{name}@L2-statistics" for name in ("ddp_views", "fsdp1", "fsdp2", "tensor_parallel", "interleaved")),
    *(f"{name}@L2-tensor" for name in ("fsdp2_bfloat16", "fsdp1_bfloat16")),
    *("interleaved@L0-statistics", "zero_bubble@L1-md5", "gpipe@mix-tensor", "by_hand@L1-statistics"),
}
JOBS = [
    f"{name}@{level}-{mode}"
    for name in TRAININGS
    for level in LEVELS
    for mode in MODES
    if level in ("mix", "L2") or mode == "statistics" or f"{name}@{level}-{mode}" in QUICK
]


@pytest.fixture(scope="module")
def recorded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All trainings that the chosen tests ask for, in one launch of the ranks."""
    folder = tmp_path_factory.mktemp("unwritten")
    items = [item for item in request.session.items if item.path == request.path]
    record(folder, [item.callspec.params["job"] for item in items])  # type: ignore[attr-defined]
    return folder


@pytest.mark.timeout(2400)
@pytest.mark.parametrize("job", [pytest.param(job, marks=[] if job in QUICK else [pytest.mark.slow]) for job in JOBS])
def test_what_was_in_memory_is_no_difference(job: str, recorded: Path) -> None:
    clean, soiled = recorded / job / "clean", recorded / job / "soiled"
    verdict = compare_runs(soiled, clean)
    assert (verdict.status, [found.message for found in verdict.findings]) == ("agree", [])
    for side in (clean, soiled):
        assert [found.message for found in check_run(side).findings] == []
        dump = open_dump(side)
        for step in dump.steps:
            for rank in dump.ranks(step):
                assert summarise(dump.part(step, rank)).first_not_finite is None
