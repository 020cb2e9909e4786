"""The promise of test_innocence.py for trainings of two gloo ranks: DDP, FSDP2, tensor parallel, pipeline,
collectives."""

from __future__ import annotations

import pytest
import zoo
from innocence_observation import differences
from innocence_ranks import WORLD_SIZE, Job, Outcome, run_jobs
from innocence_run import Setting, without_known_once

NAMES = [name for name, a in zoo.load_all().items() if a.ranks == WORLD_SIZE]
LEVELS = [Setting("L0"), Setting("L1"), Setting("mix"), Setting("L2")]
OTHERS = [Setting("mix", "tensor"), Setting("mix", "statistics", {"summary_mode": "md5"})]
# The schedules of torch's pipelines differ in the order of the same calls: other tasks are tried with one of them.
LEVELS_ONLY = {"pipeline_gpipe", "pipeline_interleaved_1f1b", "pipeline_zero_bubble"}
RECORDED = [Job(name, setting) for name in NAMES for setting in [*LEVELS, *([] if name in LEVELS_ONLY else OTHERS)]]


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[Job, list[Outcome]]:
    """All trainings in one launch of the ranks: starting them costs more than training."""
    bare = [Job(name, None) for name in NAMES]
    again = [Job(name, Setting("bare again")) for name in NAMES]
    found = run_jobs([*bare, *RECORDED], tmp_path_factory.mktemp("ranks"))
    repeated = run_jobs(bare, tmp_path_factory.mktemp("again"))
    return {**found, **{twin: repeated[job] for twin, job in zip(again, bare, strict=True)}}


def compare(outcomes: dict[Job, list[Outcome]], job: Job) -> None:
    for rank, (off, on) in enumerate(zip(outcomes[Job(job.name, None)], outcomes[job], strict=True)):
        assert not off.error, f"bare, rank {rank}: {off.error}"
        assert not on.error, f"{job}, rank {rank}: {on.error}"
        found = differences(*without_known_once(off.observation, on.observation))
        assert not found, f"{job}, rank {rank}: {len(found)} differences\n" + "\n".join(map(str, found[:15]))


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", NAMES)
def test_bare_ranks_are_reproducible(name: str, outcomes: dict[Job, list[Outcome]]) -> None:
    compare(outcomes, Job(name, Setting("bare again")))


@pytest.mark.parametrize("job", RECORDED, ids=str)
def test_recording_ranks_changes_nothing(job: Job, outcomes: dict[Job, list[Outcome]]) -> None:
    compare(outcomes, job)
    for rank, outcome in enumerate(outcomes[job]):
        assert sorted(outcome.entries) == ["step0", "step1", "step2"], f"rank {rank}"
        assert all(outcome.entries.values()), f"rank {rank}: a step without a single entry"
        assert outcome.folders == [f"step{i}/rank{r}" for i in range(3) for r in range(WORLD_SIZE)]
