"""Recording an engine, with a stand-in for vLLM's ``LLM``: workers of this process, and answers of its shape."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from support.command_line import call  # noqa: E402

from msprobe.errors import InvalidInputError  # noqa: E402
from msprobe.integrations.vllm import RESPONSES, Probe, recording  # noqa: E402
from msprobe.rollout.torch.digests import row_digests  # noqa: E402
from msprobe.store.reader import open_dump  # noqa: E402


class Policy(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed = torch.nn.Embedding(16, 8)
        self.head = torch.nn.Linear(8, 16)

    def forward(self, tokens: Any) -> Any:
        return self.head(self.embed(tokens))


class Worker(Probe):
    def __init__(self, eager: bool) -> None:
        self.model_runner = SimpleNamespace(model=Policy(), model_config=SimpleNamespace(enforce_eager=eager))


class Engine:
    """Greedy answers of three tokens, a forward pass for each, as vLLM's outputs name them."""

    def __init__(self, eager: bool = True, has_probe: bool = True) -> None:
        self.worker = Worker(eager) if has_probe else object()
        self.model = Policy() if not has_probe else self.worker.model_runner.model  # type: ignore[attr-defined]
        self.model(torch.tensor([[0]]))  # what measures memory

    def collective_rpc(self, method: str, args: tuple[Any, ...] = ()) -> list[Any]:
        return [getattr(self.worker, method)(*args)]

    def generate(self, prompts: list[list[int]], sampling_params: Any = None) -> list[Any]:
        if not prompts:
            raise ValueError("no prompts")
        outputs = []
        for number, prompt in enumerate(prompts):
            tokens, entries = list(prompt), []
            for _ in range(3):
                found = torch.log_softmax(self.model(torch.tensor(tokens))[-1], -1)
                tokens.append(int(found.argmax()))
                entries.append({tokens[-1]: SimpleNamespace(logprob=found.max().item())})
            answer = SimpleNamespace(
                index=0, token_ids=tuple(tokens[len(prompt) :]), logprobs=entries, finish_reason="length"
            )
            outputs.append(
                SimpleNamespace(request_id=str(number), prompt_token_ids=prompt, outputs=[answer], num_cached_tokens=0)
            )
        return outputs


def test_each_generate_is_a_step_with_its_answers(tmp_path: Path) -> None:
    engine = Engine()
    alone = engine.generate([[1, 2], [3]])
    with recording(engine, dump_path=str(tmp_path), task="tensor", level="L0"):
        engine.generate([[1, 2], [3]], SimpleNamespace(temperature=0.0, top_p=1.0))
        engine.generate([[4]])
    engine.generate([[5]])
    dump = open_dump(tmp_path)
    assert dump.steps == [0, 1]
    names = [name for name, _ in dump.part(0, dump.ranks(0)[0]).records()]
    assert sum(name.startswith("Module.head.Linear.forward") for name in names) == 6
    rows = [json.loads(line) for line in (tmp_path / "step0" / RESPONSES).read_text().splitlines()]
    assert [tuple(row["token_ids"]) for row in rows] == [one.outputs[0].token_ids for one in alone]
    assert rows[0]["sampling_params"] == {"temperature": 0.0, "top_p": 1.0}
    assert (rows[1]["request_id"], rows[1]["prompt_token_ids"], rows[1]["cached_tokens"]) == ("1", [3], 0)


def test_the_answers_are_what_the_command_reads(tmp_path: Path) -> None:
    engine = Engine()
    with recording(engine, dump_path=str(tmp_path)):
        engine.generate([[1, 2], [3]], SimpleNamespace(temperature=1.0))
    answers = tmp_path / "step0" / RESPONSES
    copied = tmp_path / "trainer.jsonl"
    copied.write_bytes(answers.read_bytes())
    assert call("rollout", "--log-probs", answers, copied).returncode == 0
    assert call("rollout", "--log-probs", answers, answers).returncode == 2, "one field against itself"


def test_a_generate_that_raises_ends_its_step_and_the_engine_goes_on(tmp_path: Path) -> None:
    engine = Engine()
    with recording(engine, dump_path=str(tmp_path)):
        with pytest.raises(ValueError, match="no prompts"):
            engine.generate([])
        engine.generate([[1]])
    assert open_dump(tmp_path).steps == [0, 1]


def test_a_compiled_engine_says_that_little_is_recorded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    engine = Engine(eager=False)
    with recording(engine, dump_path=str(tmp_path)):
        engine.generate([[1]])
    assert "enforce_eager" in capsys.readouterr().out


def test_workers_without_the_probe_are_refused(tmp_path: Path) -> None:
    engine = Engine(has_probe=False)
    with recording(engine, dump_path=str(tmp_path)), pytest.raises(InvalidInputError, match="worker_extension_cls"):
        engine.generate([[1]])
    assert len(engine.generate([[1]])) == 1


def test_an_adapter_that_the_first_request_binds_is_that_of_the_step(tmp_path: Path) -> None:
    engine = Engine()
    engine.model.head.lora_a_stacked = (torch.zeros(1, 1, 4, 8),)

    def bind(module: Any, given: Any) -> None:
        module.head.lora_a_stacked[0].fill_(1.0)

    engine.model.register_forward_pre_hook(bind)
    with recording(engine, dump_path=str(tmp_path), task="tensor", level="L0"):
        engine.generate([[1, 2]])
    modules = json.loads((tmp_path / "step0" / "engine.json").read_text())["modules"]
    bound = modules["head"]["weights"]["lora_a.0"]
    engine.model.head.lora_a_stacked[0].zero_()
    assert bound != row_digests(engine.model.head.lora_a_stacked[0][0, 0])
