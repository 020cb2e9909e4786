"""vLLM's plug-in: nothing without its variable; with it a worker records, told apart by the requests it is given."""

from __future__ import annotations

import json
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from msprobe.integrations.vllm_worker import WorkerRecording  # noqa: E402
from msprobe.store.reader import open_dump  # noqa: E402


def test_vllm_finds_the_plug_in_by_its_entry_point() -> None:
    (found,) = metadata.entry_points(group="vllm.general_plugins", name="msprobe")
    assert found.load().__module__ == "msprobe.integrations.vllm_plugin"


class Policy(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed = torch.nn.Embedding(16, 8)
        self.head = torch.nn.Linear(8, 16)

    def forward(self, input_ids: Any, positions: Any) -> Any:
        return self.head(self.embed(input_ids))


class LogProbs(SimpleNamespace):
    def slice_request(self, place: int, count: int) -> Any:
        return LogProbs(logprobs=self.logprobs[place : place + count])


class Runner:
    """Gives each request its next token; the log-prob is the number of the pass, negative."""

    def __init__(self, is_late: bool) -> None:
        self.model = Policy()
        self.input_batch = SimpleNamespace(req_ids=[])
        self.passes, self.is_late = 0, is_late

    def execute_model(self, scheduled: Any) -> Any:
        counts = scheduled.num_scheduled_tokens
        self.input_batch.req_ids = list(counts)
        if not counts:
            return None
        rows = sum(counts.values())
        self.model(input_ids=torch.zeros(rows, dtype=torch.long), positions=torch.arange(rows))
        self.passes += 1
        return None

    def sample_tokens(self) -> Any:
        names = self.input_batch.req_ids
        found = SimpleNamespace(
            req_id_to_index={name: place for place, name in enumerate(names)},
            sampled_token_ids=[[self.passes] for _ in names],
            logprobs=LogProbs(logprobs=torch.full((len(names), 1), -float(self.passes)).numpy()),
        )
        return SimpleNamespace(get_output=lambda: found) if self.is_late else found


def new(name: str, *prompt: int) -> Any:
    sampling = SimpleNamespace(temperature=1.0)
    return SimpleNamespace(req_id=name, prompt_token_ids=list(prompt), num_computed_tokens=0, sampling_params=sampling)


def batch(counts: dict[str, int], *added: Any, finished: tuple[str, ...] = ()) -> Any:
    return SimpleNamespace(num_scheduled_tokens=counts, scheduled_new_reqs=added, finished_req_ids=set(finished))


A, B, C = "a-00000001", "b-00000002", "c-00000003"


@pytest.mark.parametrize("is_late", [False, True])
def test_a_step_lasts_from_the_first_request_of_an_idle_engine_until_all_have_ended(
    tmp_path: Path, is_late: bool
) -> None:
    runner = Runner(is_late)
    worker = SimpleNamespace(model_runner=runner, rank=0, vllm_config=SimpleNamespace(instance_id="one"))
    recording = WorkerRecording(worker, str(tmp_path))

    def run(scheduled: Any) -> None:
        runner.execute_model(scheduled)
        answer = runner.sample_tokens()
        if is_late:
            answer.get_output()

    run(batch({"_warmup_0_": 2}, new("_warmup_0_", 1, 1)))
    run(batch({A: 2}, new(A, 4, 5)))
    run(batch({A: 1, B: 3}, new(B, 6, 7, 8)))
    run(batch({B: 1}, finished=(A,)))
    run(batch({C: 1}, new(C, 9), finished=(B,)))
    recording.end()
    recording.end()
    assert open_dump(tmp_path / "one").steps == [0, 1]
    steps = [tmp_path / "one" / f"step{step}" for step in (0, 1)]
    rows = [[json.loads(line) for line in (one / "responses.jsonl").read_text().splitlines()] for one in steps]
    assert [(row["request_id"], row["prompt_token_ids"], row["token_ids"], row["log_probs"]) for row in rows[0]] == [
        ("a", [4, 5], [2, 3], [-2.0, -3.0]),
        ("b", [6, 7, 8], [3, 4], [-3.0, -4.0]),
    ]
    assert [row["request_id"] for row in rows[1]] == ["c"]
    engine = json.loads((steps[0] / "engine.json").read_text())
    assert [one["rows"] for one in engine["steps"]] == [[[A, 2]], [[A, 1], [B, 3]], [[B, 1]]]
    assert set(engine["modules"]) == {"embed", "head"}


def test_another_rank_records_and_leaves_the_answers_to_the_first(tmp_path: Path) -> None:
    runner = Runner(False)
    recording = WorkerRecording(SimpleNamespace(model_runner=runner, rank=1), str(tmp_path))
    runner.execute_model(batch({A: 1}, new(A, 4)))
    recording.end()
    assert not list(tmp_path.rglob("responses.jsonl"))
    assert len(list(tmp_path.rglob("dump.json"))) == 1


def test_a_fault_of_ours_stops_no_generation(tmp_path: Path) -> None:
    runner = Runner(False)
    WorkerRecording(SimpleNamespace(model_runner=runner, rank=0), str(tmp_path))
    runner.execute_model(SimpleNamespace(num_scheduled_tokens={A: 1}))
    assert runner.passes == 1
