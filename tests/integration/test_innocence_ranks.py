"""The promise of test_innocence.py for trainings of two gloo ranks: DDP, FSDP, tensor parallel, pipeline,
collectives; and no alarm is raised where two of them are the same. So it is with a listener, and under the free
benchmark."""

from __future__ import annotations

from pathlib import Path

import pytest
import zoo
from innocence_benchmark import SETTINGS, table
from innocence_observation import Observation, differences
from innocence_ranks import WORLD_SIZE, Job, Outcome, run_jobs
from innocence_run import Setting, without_known_once
from support.row_by_row import in_turn

from msprobe.diagnose import compare_runs
from msprobe.diagnose.check import check_run

NAMES = [name for name, a in zoo.load_all().items() if a.ranks == WORLD_SIZE]
MIX = Setting("mix")
LEVELS = [Setting("L0"), Setting("L1"), Setting("L2")]
OTHERS = [Setting("mix", "tensor"), Setting("mix", "statistics", {"summary_mode": "md5"})]
# The schedules of torch's pipelines differ in the order of the same calls: other tasks are tried with one of them.
LEVELS_ONLY = {"pipeline_gpipe", "pipeline_interleaved_1f1b", "pipeline_zero_bubble"}
# Other tasks record of these nothing that they do not record of another one.
LIKE_ANOTHER = {"ddp_communication_hook", "fsdp2_mixed_precision", "pipeline_1f1b"}
RECORDED = [
    *(pytest.param(Job(*row.values), marks=row.marks) for row in in_turn(NAMES, LEVELS, always=MIX)),
    *(
        pytest.param(Job(name, setting), marks=[pytest.mark.slow] * (name in LIKE_ANOTHER))
        for name in NAMES
        for setting in OTHERS
        if name not in LEVELS_ONLY
    ),
]
# Recorded once more, in memory that others have used meanwhile: buffers that are gathered or received into hold
# something else before.
HEALTHY = ["fsdp1_flat_parameters", "fsdp2_mixed_precision", "pipeline_gpipe", "pipeline_interleaved_1f1b"]
TWIN = Setting("mix", top={"async_dump": False})
HEARD = [Job(name, MIX, listens=True) for name in ("fsdp2", "ddp")]
PERTURBED = [
    Job(name, Setting("L1", "free_benchmark", SETTINGS[kind]))
    for name in ("fsdp2", "ddp")
    for kind in ("forward", "backward")
]


@pytest.fixture(scope="module")
def outcomes(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[Job, list[Outcome]]:
    """All trainings that the chosen tests ask for, in one launch of the ranks: starting them costs more than
    training.
    """
    asked = [item.callspec.params for item in request.session.items if item.path == request.path]  # type: ignore[attr-defined]
    recorded = [params[kind] for kind in ("job", "heard", "perturbed") for params in asked if kind in params]
    twins = [params["healthy"] for params in asked if "healthy" in params]
    recorded += [job for name in twins for job in (Job(name, MIX), Job(name, TWIN)) if job not in recorded]
    bare = {job.name: Job(job.name, None) for job in recorded}
    bare |= {params["name"]: Job(params["name"], None) for params in asked if "name" in params}
    return run_jobs([*bare.values(), *recorded], tmp_path_factory.mktemp("ranks"))


def compare(what: str, off: Outcome, on: Observation) -> None:
    assert not off.error, f"bare: {off.error}"
    found = differences(*without_known_once(off.observation, on))
    assert not found, f"{what}: {len(found)} differences\n" + "\n".join(map(str, found[:15]))


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", NAMES)
def test_bare_ranks_are_reproducible(name: str, outcomes: dict[Job, list[Outcome]]) -> None:
    for rank, outcome in enumerate(outcomes[Job(name, None)]):
        compare(f"{name}, bare again, rank {rank}", outcome, outcome.again)
        assert [path for path in outcome.observation if path.startswith("step2/")]


@pytest.mark.parametrize("job", RECORDED, ids=str)
def test_recording_ranks_changes_nothing(job: Job, outcomes: dict[Job, list[Outcome]]) -> None:
    for rank, (off, outcome) in enumerate(zip(outcomes[Job(job.name, None)], outcomes[job], strict=True)):
        assert not outcome.error, f"{job}, rank {rank}: {outcome.error}"
        compare(f"{job}, rank {rank}", off, outcome.observation)
        assert sorted(outcome.entries) == ["step0", "step1", "step2"], f"rank {rank}"
        assert all(outcome.entries.values()), f"rank {rank}: a step without a single entry"
        assert outcome.folders == [f"step{i}/rank{r}" for i in range(3) for r in range(WORLD_SIZE)]


@pytest.mark.parametrize("healthy", HEALTHY)
def test_two_healthy_trainings_of_ranks_agree(healthy: str, outcomes: dict[Job, list[Outcome]]) -> None:
    one, other = (outcomes[Job(healthy, setting)][0].dump for setting in (MIX, TWIN))
    verdict = compare_runs(one, other)
    assert verdict.status == "agree", [str(finding)[:300] for finding in verdict.findings]
    assert check_run(one).findings == ()


@pytest.mark.parametrize("heard", HEARD, ids=str)
def test_a_listener_that_looks_at_everything_changes_nothing(heard: Job, outcomes: dict[Job, list[Outcome]]) -> None:
    for rank, (off, on) in enumerate(zip(outcomes[Job(heard.name, None)], outcomes[heard], strict=True)):
        assert not on.error, on.error
        compare(f"{heard}, rank {rank}", off, on.observation)
        # All that is dumped was told; a further record of each pass of a parameter's gradient is one event of many.
        dumped = {entry for entries in on.entries.values() for entry in entries}
        assert {entry for entry in dumped if "parameters_grad." not in entry} <= on.told


@pytest.mark.parametrize("perturbed", PERTURBED, ids=str)
def test_the_free_benchmark_changes_nothing(perturbed: Job, outcomes: dict[Job, list[Outcome]]) -> None:
    for rank, (off, on) in enumerate(zip(outcomes[Job(perturbed.name, None)], outcomes[perturbed], strict=True)):
        assert not on.error, on.error
        compare(f"{perturbed}, rank {rank}", off, on.observation)
        rows = table(Path(on.dump) / f"rank{rank}", "free_benchmark_summary.csv")
        assert sum(int(row["checked"]) for row in rows), f"rank {rank}"
