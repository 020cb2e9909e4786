"""``msprobe run``: a script runs as Python would run it, and is recorded."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import zipfile
from pathlib import Path

import pytest
from support import forked
from support.coded_texts import mentions
from support.torch_dumps import Dump
from test_run_launchers import free_port

from msprobe.messages import said

TRAIN = """
import atexit, os, pickle, sys
import torch
from torch import nn
import beside

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 8), nn.Linear(8, 2)
    def forward(self, x):
        return self.b(torch.relu(self.a(x)))

def last_words():
    print("at exit", Net.__module__, flush=True)

if __name__ == "__main__":
    atexit.register(last_words)
    print(sys.argv, os.path.basename(__file__), os.path.basename(sys.path[0]), beside.NAME)
    torch.manual_seed(0)
    net = Net()
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.1)
    for i in range(3):
        net(torch.randn(3, 4)).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    print("weights", sum(p.sum().item() for p in net.parameters()))
    pickle.dumps(net)
    if "--fail" in sys.argv:
        raise ValueError("oops")
    if "--status" in sys.argv:
        sys.exit(7)
    if "--words" in sys.argv:
        sys.exit("goodbye")
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a script and a module beside it, below the working folder."""
    inner = tmp_path / "scripts"
    inner.mkdir()
    (inner / "train.py").write_text(TRAIN)
    (inner / "beside.py").write_text("NAME = 'beside'\n")
    config = {"task": "statistics", "level": "mix", "dump_path": str(tmp_path / "dump")}
    (tmp_path / "config.json").write_text(json.dumps(config))
    return tmp_path


def run(folder: Path, *words: str) -> forked.Completed:
    return forked.run(*words, cwd=folder)


def run_from_nothing(folder: Path, *words: str) -> forked.Completed:
    """As :func:`run`, in a process that imports everything itself: as users do, and seconds slower."""
    return subprocess.run([sys.executable, *words], cwd=folder, capture_output=True, text=True, timeout=200)


def without_log(text: str) -> list[str]:
    return [line for line in text.splitlines() if "[INFO]" not in line]


RUN = ("-m", "msprobe", "run", "--config", "config.json")


def test_the_script_notices_nothing_and_is_recorded(folder: Path) -> None:
    bare = run_from_nothing(folder, "scripts/train.py", "--lr", "3")
    recorded = run_from_nothing(folder, *RUN, "--", "scripts/train.py", "--lr", "3")
    assert bare.returncode == recorded.returncode == 0, recorded.stderr
    assert without_log(recorded.stdout) == bare.stdout.splitlines()
    assert bare.stdout.startswith("['scripts/train.py', '--lr', '3'] train.py scripts beside")
    assert recorded.stderr == bare.stderr
    dump = Dump(folder / "dump")
    assert dump.steps() == ["step0", "step1", "step2"]
    for step in range(3):
        names = dump.names(step)
        assert {"Module.a.Linear.forward.0", "Module.b.Linear.backward.0", "Functional.linear.1.backward"} <= set(names)
        assert [n for n in names if n.startswith("Optimizer.AdamW")]
        assert dump.file(step)["msprobe"]["complete"] is True
    assert outermost_files(dump) == {str(folder / "scripts" / "train.py")}
    assert "runscript" not in json.dumps(dump.file(0, "stack.json"))


def outermost_files(dump: Dump) -> set[str]:
    """Where the call stacks of a step begin."""
    stacks = dump.file(0, "stack.json").values()
    return {frames[-1].split(", line")[0].removeprefix("File ") for _, frames in stacks}


def test_an_exception_is_the_scripts_own(folder: Path) -> None:
    bare = run(folder, "scripts/train.py", "--fail")
    recorded = run(folder, *RUN, "scripts/train.py", "--fail")
    assert bare.returncode == recorded.returncode == 1
    assert recorded.stderr.splitlines()[-1] == "ValueError: oops"
    assert "msprobe" not in recorded.stderr
    assert without_log(recorded.stdout) == bare.stdout.splitlines()
    assert Dump(folder / "dump").steps() == ["step0", "step1", "step2"]


def test_words_as_exit_status(folder: Path) -> None:
    recorded = run(folder, *RUN, "scripts/train.py", "--words")
    assert recorded.returncode == 1
    assert recorded.stderr == "goodbye\n"


def test_a_module_by_name(folder: Path) -> None:
    package = folder / "package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "work.py").write_text(
        textwrap.dedent(
            """
            import os, sys
            import torch
            from . import __name__ as parent
            print(sys.argv[1:], __name__, parent, os.path.samefile(sys.path[0] or ".", "."))
            torch.nn.Linear(2, 2)(torch.ones(1, 2)).sum().backward()
            """
        )
    )
    ended = run(folder, *RUN, "--", "-m", "package.work", "x")
    assert ended.returncode == 0, ended.stderr
    assert "['x'] __main__ package True" in ended.stdout
    assert "Functional.linear.0.backward" in Dump(folder / "dump").names()


ABOUT = """
import sys, inspect, traceback
here = globals()
print(__file__, sys.argv, repr(sys.path[0]), __name__, __package__)
print(type(__loader__).__name__, type(__builtins__).__name__)
print(sorted(name for name in here if name.startswith("__")), __spec__ and __spec__.name, here["__cached__"])
print(sys._getframe().f_code.co_filename, sys.modules["__main__"].__dict__ is here, sys.path.count(sys.path[0]))
print(inspect.getsource(sys.modules["__main__"]) [:10], __annotations__)
if "fail" in sys.argv:
    def inner(): raise KeyError(__file__)
    inner()
"""


FILES = ("scripts/about.py", "./scripts/../scripts/about.py", "{folder}/link.py", "link.py", "scripts/pack", "packed")
MODULES = ("-m scripts.pack", "-m scripts.pack.part", "-m scripts.none")


@pytest.fixture
def about(folder: Path) -> Path:
    """A script that tells what it sees of itself, as a file, a link, a package and an archive."""
    package = folder / "scripts" / "pack"
    package.mkdir()
    for path in (folder / "scripts" / "about.py", package / "__main__.py", package / "part.py"):
        path.write_text(ABOUT)
    (package / "__init__.py").write_text("import sys; print(sys.argv)")
    (folder / "link.py").symlink_to("scripts/about.py")
    with zipfile.ZipFile(folder / "packed", "w") as archive:
        archive.writestr("__main__.py", ABOUT)
    return folder


def check_what_it_sees(bare: forked.Completed, recorded: forked.Completed) -> None:
    assert recorded.stdout == bare.stdout
    # Of the frames of runpy, which come first, ours has none.
    assert bare.stderr.startswith(recorded.stderr.split("\n", 1)[0])
    assert bare.stderr.endswith(recorded.stderr.split("\n", 1)[1])
    assert "runscript" not in recorded.stderr
    assert recorded.returncode == bare.returncode == 1


@pytest.mark.parametrize("way", [*FILES, *MODULES])
def test_a_script_sees_itself_as_under_python(about: Path, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    monkeypatch.setenv("MSPROBE_LOG_LEVEL", "4")
    words = (*way.format(folder=about).split(), "x", "fail")
    check_what_it_sees(run_from_nothing(about, *words), run(about, *RUN, "--", *words))


@pytest.mark.parametrize(
    ("python", "way"),
    [
        ("-P", "packed"),
        *(pytest.param("-P", way, marks=pytest.mark.slow) for way in FILES if way != "packed"),
        *(pytest.param("", way, marks=pytest.mark.slow) for way in (*FILES, *MODULES)),
    ],
)
def test_a_script_sees_itself_as_under_python_with_its_options(
    about: Path, monkeypatch: pytest.MonkeyPatch, python: str, way: str
) -> None:
    if python == "-P" and sys.version_info < (3, 11):
        pytest.skip("this Python has no -P")
    monkeypatch.setenv("MSPROBE_LOG_LEVEL", "4")
    words = (*way.format(folder=about).split(), "x", "fail")
    check_what_it_sees(
        run_from_nothing(about, *python.split(), *words),
        run_from_nothing(about, *python.split(), *RUN, "--", *words),
    )


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("no_such.py",), 'the script "no_such.py" does not exist'),
        (("--", "-m"), "no script to run"),
        (("--", "-c", "1"), '"-c" is no script'),
    ],
)
def test_nothing_to_run_is_one_clear_line(folder: Path, words: tuple[str, ...], told: str) -> None:
    ended = run(folder, *RUN, *words)
    assert ended.returncode == 2
    assert told in ended.stderr
    assert ended.stderr.startswith("msprobe: ")
    assert ended.stderr.count("msprobe:") == 1
    assert "Traceback" not in ended.stderr
    assert not (folder / "dump").exists()


def test_a_script_with_a_syntax_error(folder: Path) -> None:
    (folder / "bad.py").write_text("def f(:\n")
    ended = run(folder, *RUN, "bad.py")
    assert ended.returncode == 1
    assert "SyntaxError" in ended.stderr
    assert "runscript" not in ended.stderr


MODEL = """
import torch
from torch import nn
model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
optimizer = torch.optim.SGD(model.parameters(), 0.1)
"""
LOOP = """
for _ in range(3):
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
"""


def told(ended: forked.Completed, level: str) -> list[str]:
    mark = f"[{level}] "
    return [line.split(mark, 1)[1] for line in ended.stdout.splitlines() if mark in line]


@pytest.mark.parametrize(
    ("script", "words", "reason"),
    [
        ("import torch\ntorch.ones(2).sum()", (), "script-calls-no-module"),
        (MODEL + LOOP, ("--level", "debug"), "script-saves-nothing"),
        ("from torch import nn, ones\nnn.ReLU()(ones(2))", (), "script-modules-without-parameters"),
        (MODEL + "with torch.no_grad(): model(torch.ones(2))", (), "script-modules-without-gradients"),
    ],
)
def test_a_run_that_leaves_no_dump_says_why(folder: Path, script: str, words: tuple[str, ...], reason: str) -> None:
    (folder / "some.py").write_text(script)
    ended = run(folder, *RUN, *words, "some.py")
    assert ended.returncode == 0, ended.stderr
    (line,) = told(ended, "WARNING")
    assert mentions(line, "no-dump-written") == mentions(line, reason) == 1
    assert not told(ended, "INFO")
    assert not (folder / "dump").exists()


def test_the_end_says_where_the_dump_is(folder: Path) -> None:
    (folder / "some.py").write_text(MODEL + LOOP)
    (line,) = told(run(folder, *RUN, "some.py"), "INFO")
    records = f"{3 * len(Dump(folder / 'dump').names())} records"
    assert mentions(line, "dump-is-in", folder=folder / "dump", steps="3 steps", numbers="0 to 2", records=records)
    (folder / "some.py").write_text(MODEL + LOOP.replace("range(3)", "range(1)"))
    removed, last = told(run(folder, *RUN, "some.py"), "INFO")
    assert mentions(removed, "earlier-runs-removed", steps="steps 0 to 2", folder=folder / "dump")
    assert mentions(last, "dump-is-in", steps="1 step", numbers="0")
    assert Dump(folder / "dump").steps() == ["step0"]


@pytest.mark.parametrize(
    ("ending", "complete"),
    [
        ("model(torch.ones(1, 2)).sum().backward()", False),
        ("model(torch.ones(1, 2)).sum().backward(); raise KeyError", False),
        ("model(torch.ones(1, 2)).sum().backward(); optimizer.step(); raise KeyError", True),
    ],
)
def test_a_step_that_the_script_did_not_finish_is_marked(folder: Path, ending: str, complete: bool) -> None:
    (folder / "some.py").write_text(MODEL + LOOP + ending)
    run(folder, *RUN, "some.py")
    dump = Dump(folder / "dump")
    assert dump.steps() == ["step0", "step1", "step2", "step3"]
    assert dump.file(2)["msprobe"]["complete"] is True
    assert dump.file(3)["msprobe"]["complete"] is complete


@pytest.mark.parametrize("failing", [False, True])
def test_a_script_without_optimizer_is_one_step_unless_it_fails(folder: Path, failing: bool) -> None:
    (folder / "some.py").write_text(MODEL + "model(torch.ones(1, 2)).sum().backward()" + "; 1 / 0" * failing)
    run(folder, *RUN, "some.py")
    dump = Dump(folder / "dump")
    assert dump.steps() == ["step0"]
    assert "Functional.linear.0.backward" in dump.names()
    assert dump.file()["msprobe"]["complete"] is not failing


def test_steps_that_never_come_are_reported_once(folder: Path) -> None:
    config = {"level": "L1", "dump_path": str(folder / "dump"), "step": [1, "7-9"]}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "some.py").write_text(MODEL + LOOP)
    ended = run(folder, *RUN, "some.py")
    assert told(ended, "WARNING") == [said("steps-not-reached", "steps 1, 7 to 9", "steps 7 to 9", 2)]
    assert Dump(folder / "dump").steps() == ["step1"]


def test_a_dump_that_is_there_already_is_refused_before_the_script_starts(folder: Path) -> None:
    config = {"level": "L1", "dump_path": str(folder / "dump"), "existing": "refuse"}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "some.py").write_text("print('here we go')" + MODEL + LOOP)
    assert run(folder, *RUN, "some.py").returncode == 0
    before = {path: path.read_bytes() for path in (folder / "dump").rglob("*") if path.is_file()}
    ended = run(folder, *RUN, "some.py")
    assert ended.returncode == 2
    assert ended.stdout == ""
    assert mentions(ended.stderr, "dump-exists", found="4")
    assert len(ended.stderr.splitlines()) == 1
    assert {path: path.read_bytes() for path in (folder / "dump").rglob("*") if path.is_file()} == before


OWN = """
import sys
from msprobe.pytorch import PrecisionDebugger
debugger = PrecisionDebugger(dump_path=sys.argv[1], level="L1", step=[0, 1])
for _ in range(3):
    debugger.start(model)
    model(torch.ones(1, 2)).sum().backward()
    debugger.stop()
    optimizer.step()
    debugger.step()
"""


def test_a_debugger_of_the_scripts_own_counts_alone(folder: Path) -> None:
    (folder / "some.py").write_text(MODEL + OWN)
    bare = run(folder, "some.py", "bare")
    ended = run(folder, *RUN, "some.py", "own")
    assert ended.returncode == 0, ended.stderr
    (line,) = told(ended, "WARNING")
    assert mentions(line, "script-records-itself", what=said("own-debugger"))
    assert [text.replace("own", "bare") for text in told(ended, "INFO")] == told(bare, "INFO")
    assert not (folder / "dump").exists()
    assert Dump(folder / "own").steps() == ["step0", "step1"]
    for step in (0, 1):
        assert Dump(folder / "own").names(step) == Dump(folder / "bare").names(step)


def test_what_was_recorded_before_the_scripts_own_debugger_stays(folder: Path) -> None:
    (folder / "some.py").write_text(MODEL + LOOP + OWN)
    ended = run(folder, *RUN, "some.py", "own")
    assert ended.returncode == 0, ended.stderr
    assert Dump(folder / "dump").steps() == ["step0", "step1", "step2"]
    assert Dump(folder / "own").steps() == ["step0", "step1"]


RANKS = """
import torch, torch.distributed as dist
from torch import nn
dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(2, 2)))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(2):
    model(torch.full((1, 2), float(dist.get_rank()))).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
"""


def check_ranks(dump: Dump) -> None:
    assert dump.steps() == ["step0", "step1"]
    for rank in (0, 1):
        names = list(dump.data(1, rank=f"rank{rank}"))
        assert "Module.module.0.Linear.forward.0" in names


def test_under_a_launcher(folder: Path) -> None:
    """As torchrun starts it: two processes, told their ranks by the environment."""
    (folder / "ranks.py").write_text(RANKS)
    told_to_all = {**os.environ, "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}
    told_to_all["MASTER_PORT"] = free_port()
    ranks = [
        forked.start(*RUN, "ranks.py", cwd=folder, env={**told_to_all, "RANK": str(rank), "LOCAL_RANK": str(rank)})
        for rank in range(2)
    ]
    for ended in [rank.wait() for rank in ranks]:
        assert ended.returncode == 0, ended.stderr[-2000:]
    check_ranks(Dump(folder / "dump"))


@pytest.mark.slow
def test_under_torchrun(folder: Path) -> None:
    (folder / "ranks.py").write_text(RANKS)
    launcher = ("-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", free_port(), "-m")
    ended = run_from_nothing(folder, *launcher, "msprobe", "run", "--config", "config.json", "ranks.py")
    assert ended.returncode == 0, ended.stderr[-2000:]
    check_ranks(Dump(folder / "dump"))


def test_a_resumed_script_counts_on(folder: Path) -> None:
    assert run(folder, *RUN, "--first-step", "100", "scripts/train.py").returncode == 0
    assert sorted(path.name for path in (folder / "dump").iterdir()) == ["step100", "step101", "step102"]


@pytest.mark.parametrize("how", ["module", "script"])
def test_stacks_begin_with_the_script(folder: Path, how: str) -> None:
    """What starts the script is not the user's program."""
    program = folder / "bin" / "msprobe"
    program.parent.mkdir()
    program.write_text("import sys\nfrom msprobe.cli import main\nsys.exit(main())\n")
    start = ["-m", "msprobe"] if how == "module" else [str(program)]
    ended = run(folder, *start, "run", "--config", "config.json", "scripts/train.py")
    assert ended.returncode == 0, ended.stderr
    assert outermost_files(Dump(folder / "dump")) == {str(folder / "scripts" / "train.py")}
