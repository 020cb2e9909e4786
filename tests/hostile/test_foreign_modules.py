"""No process that a command starts imports from the working directory, a dump or the output folder."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest
from support.command_line import call

from hostile.limits import Answer
from hostile.made import TENSOR, dump, monitored, record

#: Modules that something imports in each command, and some that only a process imports when it starts.
NAMES = (
    *("json.py", "torch.py", "numpy.py", "torch_npu.py", "argparse.py", "typing.py", "__future__.py", "struct.py"),
    *("sitecustomize.py", "usercustomize.py", "pickle.py", "multiprocessing.py", "joblib.py", "yaml.py", "orjson.py"),
    *("msprobe/__init__.py", "msprobe/cli/__init__.py", "msprobe/precheck/worker.py", "mindspore/__init__.py"),
    *("signal.py", "selectors.py", "subprocess.py", "importlib.py", "platform.py", "own.pth"),
)
CALL = "Functional.relu.0"


def plant(folder: Path, mark: Path, names: tuple[str, ...] = NAMES) -> None:
    """Put modules into a folder that leave a mark when they are run."""
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"import sys; open({str(mark)!r}, 'a').write({name!r} + ' ')\n")


def stranger(folder: Path) -> Path:
    """A folder with dumps of two ranks, a monitored run, and modules beside and in all of them."""
    place = folder / "of_a_stranger"
    for side in ("A", "B"):
        data = {f"{CALL}.forward": record(), f"{CALL}.backward": {"input": [TENSOR], "output": [TENSOR]}}
        file = dump(place / side, data)
        for name in ("rank0", "rank1"):
            copy = file.parent.parent / name
            copy.mkdir()
            (copy / "dump.json").write_text(file.read_text())
            (copy / "construct.json").write_text("{}")
            (copy / "stack.json").write_text("{}")
    monitored(place / "monitored")
    other = place / "monitored" / "Nov01_10-00-00-rank1-0123abcd"
    other.mkdir()
    csv = next((place / "monitored").rglob("*.csv"))
    (other / csv.name).write_text(csv.read_text())
    mark = folder / "mark"
    for where in (place, place / "A", file.parent, place / "A" / "step0" / "rank0", place / "out", place / "monitored"):
        where.mkdir(exist_ok=True)
        plant(where, mark)
    return place


def demand_not_run(folder: Path, *words: object) -> None:
    """The command ends by itself and runs nothing of the stranger's folder, which is where it is called."""
    place = stranger(folder)
    answer = Answer(*words, cwd=place, seconds=90, gibibytes=32)
    mark = folder / "mark"
    assert not mark.exists(), f"run by {words[:2]}: {mark.read_text()}"
    answer.demand_quick(90, 4096)


FILE = "A/step0/rank/dump.json"
COMMANDS = {
    "run_ut": f"run_ut -api_info {FILE} -o out",
    "run_ut of ranks": "run_ut -api_info A -o out",
    "multi_run_ut": f"multi_run_ut -api_info {FILE} -o out -n 2",
    "run_overflow_check": f"run_overflow_check -api_info {FILE}",
    "op_check": "op_check --ops nn.functional.relu -o out",
    "op_generate": f"op_generate --dump {FILE} --api {CALL} -o out",
    "op_generate --minimize": f"op_generate --dump {FILE} --api {CALL} -o out --minimize",
    "op_generate --minimize, into the working directory": f"op_generate --dump {FILE} --api {CALL} -o . --minimize",
    "compare --jobs": "compare A B -o out --jobs 2",
    "compare --csv": f"compare {FILE} B/step0/rank/dump.json -o out --csv",
    "check --jobs": "check A --jobs 2",
    "summary": "summary A",
    "graph": f"graph_visualize -tp {FILE} -gp B/step0/rank/dump.json -o out",
    "monitor diff": "monitor diff monitored monitored",
    "monitor to-db": "monitor to-db monitored -o out --process_num 2",
    "monitor to-tensorboard": "monitor to-tensorboard monitored -o out --jobs 2",
    "monitor report": "monitor report monitored -o out/page.html",
    "monitor analyse": "monitor analyse monitored",
    "config_check --jobs": "config_check -c A B -o out/result.json --jobs 2",
    "nan_analyze": "nan_analyze -i A/step0 -o out",
    "view": "view A B --html out/page.html --jobs 2",
    "grad_compare": "grad_compare A B -o out",
}


#: Each starts workers as one of the others does; that there is one place for it is a test below.
LIKE_ANOTHER = ("run_ut of ranks", "multi_run_ut", "run_overflow_check", "op_generate --minimize")
LIKE_ANOTHER += ("check --jobs", "config_check --jobs", "monitor to-tensorboard")


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(words, marks=[pytest.mark.slow] * (name in LIKE_ANOTHER), id=name)
        for name, words in COMMANDS.items()
    ],
)
def test_a_command_runs_no_module_of_the_working_directory_or_the_dump(tmp_path: Path, words: str) -> None:
    demand_not_run(tmp_path, *words.split())


@pytest.mark.parametrize("given", [":", "{elsewhere}:", ":{elsewhere}"])
def test_an_empty_entry_of_pythonpath_is_no_working_directory(tmp_path: Path, given: str) -> None:
    """What Python itself imports when msprobe starts is not ours; what is planted is what a check imports."""
    place, mark = tmp_path / "of_a_stranger", tmp_path / "mark"
    dump(place / "A", {f"{CALL}.forward": record()})
    plant(place, mark, ("torch.py", "torch_npu.py", "selectors.py", "orjson.py", "yaml.py", "numpy.py"))
    paths = given.format(elsewhere=tmp_path)
    answer = Answer(*COMMANDS["run_ut"].split(), cwd=place, seconds=90, variables={"PYTHONPATH": paths})
    assert not mark.exists(), mark.read_text()
    assert answer.status == 0, answer.text


def test_a_folder_that_pythonpath_names_is_searched(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "kernels_of_mine.py").write_text(
        "def call(function, args, kwargs):\n    return function(*args, **kwargs) * 3\n"
    )
    dump(tmp_path / "A", {f"{CALL}.forward": record()})
    words = f"run_ut -api_info {FILE} -o out --candidate plugin:kernels_of_mine:call"
    answer = Answer(*words.split(), cwd=tmp_path, seconds=90, variables={"PYTHONPATH": str(tmp_path / "elsewhere")})
    assert "1 error" in answer.text, answer.text


STARTS = {
    "as a file": ("{script}",),
    "of its folder": ("{name}",),
    "by a link": ("link.py",),
    "as a module": ("-m", "{stem}"),
    "isolated": ("-I", "{script}"),
}


@pytest.mark.parametrize("words", STARTS.values(), ids=STARTS.keys())
def test_a_script_imports_nothing_of_its_folder_or_the_working_directory(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    out, mark = tmp_path / "out", tmp_path / "mark"
    file = dump(tmp_path / "A", {f"{CALL}.forward": record()})
    assert call("op_generate", "--dump", file, "--api", CALL, "-o", out, cwd=tmp_path).returncode == 0
    written = next(out.glob("*.py"))
    script = written.rename(out / "written_call.py")
    (out / "link.py").symlink_to(script)
    plant(out, mark, tuple(name for name in NAMES if name != "importlib.py"))
    given = [word.format(script=str(script), name=script.name, stem=script.stem) for word in words]
    answer = Answer(*given, cwd=out, python=True, seconds=90)
    if words[0] == "-m":  # Python looks for the module itself, and its runpy imports before the script does
        mark.unlink(missing_ok=True)
    assert not mark.exists(), mark.read_text()
    assert answer.status == 0, answer.text
    assert "Verdict: pass" in answer.text


def test_a_script_from_standard_input_imports_nothing_of_the_working_directory(tmp_path: Path) -> None:
    file = dump(tmp_path / "A", {f"{CALL}.forward": record()})
    assert call("op_generate", "--dump", file, "--api", CALL, "-o", tmp_path / "out", cwd=tmp_path).returncode == 0
    place, mark = tmp_path / "place", tmp_path / "mark"
    place.mkdir()
    plant(place, mark)
    script = next((tmp_path / "out").glob("*.py"))
    reading = f"import subprocess, sys; subprocess.run([sys.executable, '-'], stdin=open({str(script)!r}), check=True)"
    answer = Answer("-P", "-c", reading, cwd=place, python=True, seconds=90)
    assert not mark.exists(), mark.read_text()
    assert "Verdict: pass" in answer.text


def test_python_m_msprobe_drops_the_working_directory(tmp_path: Path) -> None:
    """Python finds the package and its own runpy before; all else is ours."""
    place, mark = tmp_path / "place", tmp_path / "mark"
    dump(place / "A", {f"{CALL}.forward": record()})
    names = tuple(name for name in NAMES if not name.startswith(("msprobe/", "importlib")))
    plant(place, mark, names)
    answer = Answer("-m", "msprobe", "summary", "A", cwd=place, python=True)
    assert not mark.exists(), mark.read_text()
    assert answer.status == 0, answer.text


def test_ranks_of_a_recorded_script_import_what_they_would_alone(tmp_path: Path) -> None:
    """A script finds modules of its own folder, and nothing of the working directory, alone and as a rank."""
    scripts, place, mark = tmp_path / "scripts", tmp_path / "place", tmp_path / "mark"
    scripts.mkdir()
    place.mkdir()
    (scripts / "own_layers.py").write_text("import json\nNAME = json.__file__\n")
    (scripts / "train.py").write_text("import own_layers, sys\nprint('found', own_layers.NAME, len(sys.argv))\n")
    (scripts / "launch.py").write_text(
        "import os, subprocess, sys\n"
        "environment = {**os.environ, 'RANK': '1', 'WORLD_SIZE': '2', 'LOCAL_RANK': '1'}\n"
        "train = os.path.join(os.path.dirname(__file__), 'train.py')\n"
        "sys.exit(subprocess.run([sys.executable, train, 'word'], env=environment).returncode)\n"
    )
    plant(place, mark)
    answer = Answer("run", scripts / "launch.py", cwd=place, seconds=90)
    assert not mark.exists(), mark.read_text()
    assert f"found {json.__file__} 2" in answer.text, answer.text
    assert answer.status == 0


# What starts a process, and where that may be: in the room for it, and where processes of the user's program are seen.
STARTERS = {
    "subprocess",
    "multiprocessing",
    "joblib",
    "pty",
    "asyncio.subprocess",
    "loky",
    "concurrent.futures.process",
}
CALLS = {"system", "popen", "execv", "execve", "execvp", "execl", "spawnv", "spawnl", "posix_spawn", "fork", "forkpty"}
ALLOWED = {
    "children/starting.py": {"subprocess"},
    "launcher/child_processes.py": {"subprocess", "multiprocessing"},
    "launcher/trainer_recording.py": {"multiprocessing"},
    "launcher/script_recording.py": {"multiprocessing"},  # the name of this process
}


def starters_in(tree: ast.Module) -> set[str]:
    """What a file uses of all that starts processes."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {one.name.partition(".")[0] for one in node.names} & STARTERS
        elif isinstance(node, ast.ImportFrom) and not node.level:
            name = node.module or ""
            found |= {name.partition(".")[0]} & STARTERS
            found |= {one.name for one in node.names if one.name == "ProcessPoolExecutor"}
            found |= {one.name for one in node.names if name == "os" and one.name in CALLS}
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "os":
            found |= {node.attr} & CALLS
        elif isinstance(node, (ast.List, ast.Tuple)) and len(node.elts) > 1:
            first, second = node.elts[:2]
            is_python = isinstance(first, ast.Attribute) and first.attr == "executable"
            found |= (
                {"-m"} if is_python and isinstance(second, ast.Constant) and second.value in ("-m", "-c") else set()
            )
    return found


def test_processes_are_started_in_one_place() -> None:
    import msprobe

    root = Path(msprobe.__file__).parent
    found = {}
    for path in sorted(root.rglob("*.py")):
        name = path.relative_to(root).as_posix()
        used = starters_in(ast.parse(path.read_text(encoding="utf-8"))) - ALLOWED.get(name, set())
        if used:
            found[name] = used
    assert not found, "start processes with msprobe.children.starting"


@pytest.mark.parametrize(
    "text",
    [
        "import subprocess",
        "from subprocess import run",
        "import multiprocessing.pool",
        "from multiprocessing import get_context",
        "from concurrent.futures import ProcessPoolExecutor",
        "import os\nos.system('x')",
        "from os import execv",
        "import sys\nwords = [sys.executable, '-m', 'msprobe']",
        "def f():\n    import joblib",
    ],
)
def test_the_rule_knows_the_ways_to_start_a_process(text: str) -> None:
    assert starters_in(ast.parse(text))
