"""What a module or a command loads: no framework, and nothing heavy before it is needed. Each in a fresh process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from support.command_line import call
from support.hand_made import call as record
from support.hand_made import tensor, write_part

FRAMEWORKS = ("torch", "mindspore")
HEAVY = (*FRAMEWORKS, "pydantic", "rich", "numpy", "orjson", "yaml")
#: Statements, and beginnings of names of modules that they do not load.
PROGRAMS: dict[str, tuple[str, tuple[str, ...]]] = {
    "the package": ("import msprobe", ("msprobe.", *HEAVY)),
    "the help": ("main(['-h'])", HEAVY),
    "the log": ("import msprobe.log", (*FRAMEWORKS, "numpy", "pydantic")),
    "the settings": ("import msprobe.config", (*FRAMEWORKS, "pydantic")),
    "settings that are read": ("import msprobe.config.load as load; load.load_settings()", FRAMEWORKS),
    "progress that is shown": (
        "import msprobe.cli.progress as p; p.Bar('checking')('step 1')",
        ("msprobe.diagnose", "msprobe.compare", "numpy"),
    ),
    "a comparison of MindSpore": ("from msprobe.mindspore.compare.ms_compare import ms_compare", FRAMEWORKS),
    "results": (
        "import msprobe; msprobe.compare('a', 'b')._repr_html_(); msprobe.check('a'); list(msprobe.open('a'))",
        FRAMEWORKS,
    ),
    "summary": ("main(['summary', 'a'])", FRAMEWORKS),
    "nan_analyze": ("main(['nan_analyze', '-i', 'a/step0', '-o', 'out'])", FRAMEWORKS),
    "statistics that are compared": ("main(['compare', 'a', 'b', '--html', '--csv'])", FRAMEWORKS),
    "a verdict on statistics": ("main(['compare', 'a', 'b'])", (*FRAMEWORKS, "numpy")),
    "checkpoints that are compared": (
        "main(['config_check', '-c', 'a.pt', 'a.pt', '-o', 'o.json'])",
        (*FRAMEWORKS, "transformers"),
    ),
    "packs that are compared": (
        "main(['config_check', '-c', 's.zip', 's.zip'])",
        (*FRAMEWORKS, "pydantic", "msprobe.diagnose", "msprobe.capture"),
    ),
}
#: Where a command is called: after that of the package alone, which calls none.
PROGRAM = """
import sys
try:
    if 'main(' in sys.argv[1]:
        from msprobe.cli import main as command
    def main(words):
        assert command(words) in (0, 1)
    exec(sys.argv[1])
except SystemExit:
    pass
print('\\nloaded', *sorted(name for name in sys.modules if name.startswith(tuple(sys.argv[2:]))))
"""


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two dumps, a checkpoint and a pack."""
    folder = tmp_path_factory.mktemp("inputs")
    for side, value in (("a", 1.0), ("b", 2.0)):
        bad = tensor(2, value=float("nan"))
        data = {"Torch.mul.0.forward": record(tensor(2, value=value)), "Torch.div.0.forward": record(out=bad)}
        write_part(folder / side / "step0" / "rank", data, construct=dict.fromkeys(data))
    torch.save({"weight": torch.ones(2)}, folder / "a.pt")
    (folder / "train.sh").write_text("torchrun train.py --seed 3\n")
    assert call("config_check", "-d", "train.sh", "-o", "s.zip", cwd=folder).returncode == 0
    return folder


@pytest.mark.parametrize("name", PROGRAMS)
def test_nothing_is_loaded_that_is_not_needed(inputs: Path, name: str) -> None:
    statements, unwanted = PROGRAMS[name]
    command = [sys.executable, "-c", PROGRAM, statements, *unwanted]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=inputs)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "loaded", done.stdout


def test_the_plugin_of_vllm_loads_nothing_without_its_variable() -> None:
    code = (
        "import sys; from msprobe.integrations.vllm_plugin import register; before = set(sys.modules); register(); "
        "assert set(sys.modules) == before; assert not {'torch', 'numpy', 'vllm'} & before"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": ":".join(sys.path)}, timeout=60)


def test_compare_can_be_called_before_and_after_its_room_is_imported(inputs: Path) -> None:
    code = (
        "import msprobe; one = msprobe.compare('a', 'b')\nimport msprobe.compare.rows\n"
        "assert one == msprobe.compare('a', 'b')"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=inputs)
