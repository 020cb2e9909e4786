"""Steps of ``msprobe run`` are what the program makes of them, and nobody judges them as what they are not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from step_programs import HEAD, PROGRAMS
from support import forked
from support.command_line import call
from support.torch_dumps import Dump

from msprobe.messages import said

RUN = ("-m", "msprobe", "run", "--level", "mix")


def run(folder: Path, *words: str) -> forked.Completed:
    return forked.run(*words, cwd=folder, env={**os.environ, "OMP_NUM_THREADS": "1"})


def record(folder: Path, text: str, dump: str, *words: str) -> forked.Completed:
    (folder / "program.py").write_text(HEAD + text)
    return run(folder, *RUN, "--dump-path", dump, *words, "--", "program.py")


def own_lines(ended: forked.Completed) -> list[str]:
    """What the program itself has printed."""
    return [line for line in ended.stdout.splitlines() if "[INFO]" not in line and "[WARNING]" not in line]


def warnings(ended: forked.Completed) -> list[str]:
    return [line.split("[WARNING] ")[1] for line in ended.stdout.splitlines() if "[WARNING]" in line]


@pytest.mark.parametrize("name", PROGRAMS)
def test_steps_are_what_the_program_makes_of_them(tmp_path: Path, name: str) -> None:
    program = PROGRAMS[name]
    recorded = [record(tmp_path, program.text, dump, *program.words) for dump in ("a", "b")]
    bare = run(tmp_path, "program.py")
    for ended in recorded:
        assert (ended.returncode, own_lines(ended), ended.stderr) == (0, bare.stdout.splitlines(), bare.stderr)
        assert warnings(ended) == []
    dump = Dump(tmp_path / "a")
    steps = range(program.first, program.first + program.steps)
    assert dump.steps() == [f"step{step}" for step in steps]
    for step in steps:
        assert dump.file(step)["msprobe"]["complete"] is True
        assert len(dump.names(step, "Optimizer.")) == program.optimizers
        names = [n for n in dump.names(step, ".Linear.forward.") if n.startswith(("Module.0.", "Module.a."))]
        assert program.forwards in (None, len(names))
    assert call("check", dump.folder).returncode == 0
    assert call("compare", dump.folder, tmp_path / "b").returncode == 0


def test_a_step_that_the_scaler_leaves_out_says_so(tmp_path: Path) -> None:
    record(tmp_path, PROGRAMS["a step that the scaler leaves out"].text, "a")
    dump = Dump(tmp_path / "a")
    skipped = [dump.data(step)["Optimizer.SGD.0.forward"].get("skipped", False) for step in range(3)]
    assert skipped == [False, True, False]
    found = call("check", dump.folder)
    assert found.returncode == 0
    assert "scaler" in found.stdout


@pytest.mark.parametrize("level", ["L1", "mix"])
def test_what_the_program_does_behind_the_first_call_of_a_step_function_is_in_no_step(
    tmp_path: Path, level: str
) -> None:
    """The function is defined behind the optimizer: it is met as it runs for the first time."""
    text = """
m = net(); opt = torch.optim.SGD(m.parameters(), 0.1)
def train_step(s):
    opt.zero_grad(); loss = F.mse_loss(m(x[s]), y[s]); loss.backward(); opt.step(); return loss.detach().abs()
for s in range(3):
    loss = train_step(s)
    print(loss.sqrt().item(), m(x[5]).cosh().sum().item())
"""
    record(tmp_path, text, "a", "--level", level, "--step-on", "call:train_step")
    dump = Dump(tmp_path / "a")
    assert dump.steps() == ["step0", "step1", "step2"]
    for step in range(3):
        names = dump.names(step)
        # What comes last in the function, but for gradients of parameters.
        assert names[-1] == "Tensor.abs.0.forward"
        assert not [name for name in names if "sqrt" in name or "cosh" in name]


def test_a_model_whose_forward_is_called_has_the_names_of_a_model_that_is_called(tmp_path: Path) -> None:
    text = PROGRAMS["forward called directly"].text
    record(tmp_path, text, "direct")
    record(tmp_path, text.replace("m.forward(", "m("), "called")
    for step in range(3):
        assert Dump(tmp_path / "direct").names(step) == Dump(tmp_path / "called").names(step)


def test_a_program_that_is_killed_in_an_evaluation_leaves_what_was_recorded(tmp_path: Path) -> None:
    kill = "import os; m(x[5]); os.kill(os.getpid(), 9)"
    text = PROGRAMS["an evaluation with gradients behind the last step"].text.replace("m.eval()", kill)
    assert record(tmp_path, text, "a").returncode == -9
    assert Dump(tmp_path / "a").steps() == ["step0", "step1", "step2", "step3"]
    found = call("check", tmp_path / "a")
    assert found.returncode == 0
    assert f"step 3: {said('recording-interrupted')}" in " ".join(found.stdout.split())


def test_an_evaluation_that_fails_is_kept_as_incomplete(tmp_path: Path) -> None:
    text = PROGRAMS["an evaluation with gradients behind the last step"].text + "m(x[5]); 1 / 0"
    assert record(tmp_path, text, "a").returncode == 1
    assert Dump(tmp_path / "a").file(3)["msprobe"]["complete"] is False


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (("--step-on", "optimizer:SGD"), ("optimizer:SGD", "Adam (number 0)")),
        (("--step-on", "call:nothing"), ("call:nothing",)),
    ],
)
def test_what_ends_no_step_is_said(tmp_path: Path, words: tuple[str, ...], parts: tuple[str, ...]) -> None:
    ended = record(tmp_path, PROGRAMS["forward called directly"].text, "a", *words)
    assert ended.returncode == 0
    (line, *_) = warnings(ended)
    assert all(part in line for part in parts)


INNER_LOOPS = """
m = net()
for r in range(4):
    learner = copy.deepcopy(m); opt = torch.optim.SGD(learner.parameters(), 0.1)
    for k in range(2): opt.zero_grad(); F.mse_loss(learner(x[k]), y[k]).backward(); opt.step()
    with torch.no_grad():
        for p, q in zip(m.parameters(), learner.parameters()): p.lerp_(q, 0.5)
"""


def test_optimizers_made_again_and_again_are_counted_and_a_line_says_what_to_do(tmp_path: Path) -> None:
    ended = record(tmp_path, INNER_LOOPS, "a")
    assert len(Dump(tmp_path / "a").steps()) == 8
    assert len([line for line in ended.stdout.splitlines() if "--step-on" in line]) == 1
    assert call("check", tmp_path / "a").returncode == 0


def test_an_update_that_leaves_no_micro_batches_is_not_judged_as_such(tmp_path: Path) -> None:
    """A language model whose last chunk is shorter, trained by hand."""
    text = """
model = nn.Sequential(nn.Embedding(20, 8), nn.Linear(8, 20)); ce = nn.CrossEntropyLoss()
data = torch.randint(0, 20, (56, 4))
for i in range(0, 55, 16):
    n = min(16, 55 - i); x = data[i:i + n]; y = data[i + 1:i + 1 + n].view(-1)
    model.zero_grad(); loss = ce(model(x).view(-1, 20), y); loss.backward()
    for p in model.parameters(): p.data.add_(p.grad, alpha=-0.1)
"""
    record(tmp_path, text, "a")
    assert Dump(tmp_path / "a").steps() == ["step0", "step1", "step2", "step3"]
    assert call("check", tmp_path / "a").returncode == 0
