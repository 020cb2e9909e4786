"""A field that is accepted does something: every field of config.json has a value that changes what is left or said."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from msprobe import log  # noqa: E402
from msprobe.config.fields import TASK_SECTIONS, CommonFields, known_names  # noqa: E402
from msprobe.config.load import load_settings  # noqa: E402
from msprobe.config.other_tasks import OTHER_TASK_SECTIONS, LoadFields  # noqa: E402
from msprobe.errors import MsprobeError  # noqa: E402
from msprobe.precheck.settings import load_settings as load_check_settings  # noqa: E402
from msprobe.pytorch import PrecisionDebugger  # noqa: E402

Seen = dict[str, object]


@dataclass(frozen=True)
class Case:
    """A value of a field, with ``more`` fields of its section on both sides. ``top``: of the top level. ``only_asked``:
    what it does takes too long here, so that the settings which the tool gets are looked at. ``refused``: with a
    sentence that names the field.
    """

    value: Any
    more: dict[str, Any] = field(default_factory=dict)
    top: dict[str, Any] = field(default_factory=dict)
    only_asked: bool = False
    refused: bool = False


FILTERS: dict[str, Any] = {
    "scope": ["Functional.linear.0.forward", "Functional.linear.0.backward"],
    "list": ["relu"],
    "data_mode": ["forward"],
}
ROWS = [{"dim": 0, "begin": 0, "end": 1}]
OVERFLOW = {**FILTERS, "overflow_nums": 3, "check_mode": "aicore"}
COMMON: dict[str, Any] = {
    "task": "structure",
    "dump_path": "elsewhere",
    "rank": [5],
    "step": [1],
    "level": "L0",
    "enable_dataloader": True,
    "async_dump": True,
    "dump_enable": False,
    "extra_info": False,
    "precision": "high",
    "risk_level": "CORE",
    "custom_op_namespaces": Case(["every_field"], top={"api_scope": "listed"}),
    "api_scope": "listed",
    "api_list_file": "names.yaml",
    "custom_api_file": "own.yaml",
    "optimizer": False,
    "strict_json": True,
    "jitter": True,
    "compress": "zstd",
    "record_root": Case(True, top={"level": "mix"}),
    "existing": "overwrite",
    "compile": Case("eager", only_asked=True),
    "graphs": Case("record", only_asked=True),
    "buffers": Case(True, top={"level": "mix"}),
}
VALUES = {
    **FILTERS,
    "summary_mode": "md5",
    "slice": Case(ROWS, refused=True),
    "request_id": Case("r1", refused=True),
    # Of MindSpore's kernels: a line says so.
    "device": "device",
    "precision": "low",
}
ADDRESS = {"nfs_path": "/tmp", "host": "localhost", "port": 5000, "tls_path": "/tmp"}
_ONLINE = {"is_online": True, "host": "localhost", "port": 5000}
# What the settings of a check of calls come to, which read this section themselves.
CHECK: dict[str, Any] = {
    "white_list": ["relu"],
    "black_list": ["relu"],
    "error_data_path": "/",
    "precision": 3,
    "is_online": Case(True, {"host": "localhost", "port": 5000}),
    "rank_list": Case([1], _ONLINE),
    "nfs_path": Case("/tmp", _ONLINE),
    "host": Case("127.0.0.1", _ONLINE),
    "port": Case(5001, _ONLINE),
    "tls_path": Case("/tmp", _ONLINE, refused=True),  # it has no keys
}
LOAD: dict[str, Any] = {name: Case(value, {"path": "/tmp"}, refused=True) for name, value in (
    ("path", "/tmp/x"), ("modules", ["fc"]), ("step", [1]), ("rank", [0]), ("dump_after_load", True),
)}  # fmt: skip
SECTIONS: dict[str, dict[str, Any]] = {
    "statistics": {**VALUES, "tensor_list": ["linear"]},
    "tensor": {
        **VALUES,
        **ADDRESS,
        "file_format": "bin",
        "online_run_ut": Case(True, refused=True),  # without an address
        "online_run_ut_recompute": Case(True, refused=True),
        "bench_path": Case("/tmp", refused=True),
        "diff_nums": 3,
    },
    "overflow_check": OVERFLOW,
    "nan_check": OVERFLOW,
    "structure": FILTERS,
    "exception_dump": {name: Case(value, refused=True) for name, value in FILTERS.items()},
    "lockstep": {
        **{name: Case(value, {"reference": "/tmp/x"}, only_asked=True) for name, value in FILTERS.items()},
        "reference": Case("/tmp/y", {"reference": "/tmp/x"}, only_asked=True),
        "verdict": Case("later", {"reference": "/tmp/x"}, only_asked=True),
        "only": Case("Torch.exp.0", {"reference": "/tmp/x"}, only_asked=True),
    },
    "free_benchmark": {
        name: Case(value, only_asked=True)
        for name, value in {
            "scope": ["Functional.linear.0.forward", "Functional.relu.0.forward"],
            "list": ["relu"],
            "pert_mode": "add_noise",
            "handler_type": "fix",
            "if_preheat": True,
            "noise": "absolute",
            "noise_scale": 2,
            "sample_ratio": 0.5,
            "max_calls_per_api": 2,
            "offload": True,
            "report": "risks",
        }.items()
    }
    | {
        "fuzz_level": Case("L2", refused=True),
        "fuzz_device": Case("cpu", refused=True),  # goes with to_cpu alone
        "fix_graph": Case(True, {"handler_type": "fix"}, only_asked=True),
        "fuzz_stage": Case("backward", only_asked=True),
        "preheat_step": Case(3, {"if_preheat": True}, only_asked=True),
        "max_sample": Case(3, {"if_preheat": True}, only_asked=True),
    },
    "grad_probe": {
        "grad_level": "L0",
        "param_list": ["fc.weight"],
        "bounds": Case([0, 1], {"grad_level": "L2"}),
        "checksum": Case("md5", {"grad_level": "L0"}),
        "direction": "ternary",
        "compat_norm": Case(True, only_asked=True),
    },
    "run_ut": CHECK,
    "acc_check": CHECK,
}


# ---------------------------------------------------------------- what there is


def test_every_field_has_a_row_and_no_row_is_of_none() -> None:
    assert COMMON.keys() == set(known_names(CommonFields))
    assert LOAD.keys() == set(known_names(LoadFields))
    models = {**TASK_SECTIONS, **{name: model for name, model in OTHER_TASK_SECTIONS.items() if model is not None}}
    assert SECTIONS.keys() == models.keys()
    for task, model in models.items():
        assert SECTIONS[task].keys() == set(known_names(model)), task


# ---------------------------------------------------------------- what it changes


class Small(nn.Module):
    """Calls that are listed and one that is not, a buffer, and an infinity."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.norm = nn.BatchNorm1d(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.relu(self.norm(self.fc(x)))
        # An infinity that reaches neither loss nor gradients.
        (hidden.detach() / 0).sum()
        made: torch.Tensor = torch.ops.every_field.twice(hidden) + torch.cos(hidden)
        return made.sum()


@pytest.fixture(scope="module", autouse=True)
def _own_operator() -> Iterator[None]:
    library = torch.library.Library("every_field", "DEF")
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", lambda x: x * 2, "CompositeImplicitAutograd")
    yield
    library._destroy()


def _train(debugger: PrecisionDebugger) -> None:
    torch.manual_seed(0)
    model = Small()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    if debugger.settings.gradient_probe is not None:
        debugger.monitor(model)
    loader = torch.utils.data.DataLoader(torch.ones(4, 2, 4))
    for batch in loader:
        with debugger.recording(model):
            optimizer.zero_grad()
            model(batch[0]).backward()
            optimizer.step()


class Recording:
    """Records a small training with a config.json, and says what was left and said."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.capsys = capsys
        self.monkeypatch = monkeypatch
        self.count = 0

    def seen(self, content: dict[str, Any], only_asked: bool = False) -> Seen:
        self.count += 1
        place = self.folder / str(self.count)
        place.mkdir()
        self.monkeypatch.chdir(place)
        (place / "names.yaml").write_text("torch: [cos]\n")
        (place / "own.yaml").write_text("torch.ops.every_field: [twice]\n")
        earlier = place / "dump" / "step0" / "rank"
        earlier.mkdir(parents=True)
        (earlier / "dump.json").write_text("{}")
        (place / "config.json").write_text(json.dumps({"dump_path": "dump", **content}))
        log.forget_once()
        PrecisionDebugger.reset()
        self.capsys.readouterr()
        found: Seen = {}
        try:
            if only_asked:
                found["settings"] = repr(load_settings(place / "config.json")).replace(str(place), "HERE")
            else:
                _train(PrecisionDebugger(str(place / "config.json")))
        except MsprobeError as problem:
            found["refused"] = problem.message.replace(str(place), "HERE")
        finally:
            PrecisionDebugger.reset()
        said = self.capsys.readouterr()
        found |= {f"said {_plain(line, place)}": 1 for line in (said.out + said.err).splitlines()}
        for file in sorted(place.rglob("*")):
            if file.is_file() and file.name not in ("config.json", "names.yaml", "own.yaml"):
                data = file.read_bytes()
                text = _plain(data.decode(errors="replace"), place)
                found[f"file {file.relative_to(place)}"] = hashlib.sha256(text.encode()).hexdigest()
        return found


def _plain(text: str, place: Path) -> str:
    text = re.sub(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+)?( \(\d+\))?", "TIME", text.replace(str(place), "HERE"))
    return re.sub(r"line \d+|0x[0-9a-f]+", "#", text)


@pytest.fixture
def recording(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Recording]:
    PrecisionDebugger.reset()
    yield Recording(tmp_path, capsys, monkeypatch)
    PrecisionDebugger.reset()


def _check(
    see: Callable[[dict[str, Any]], Seen], usual: dict[str, Any], changed: dict[str, Any], case: Case, name: str
) -> None:
    if case.refused:
        found = see(changed)
        assert name in str(found.get("refused")), found
        return
    first, second, found = see(usual), see(usual), see(changed)
    assert "refused" not in {**first, **found}, (first, found)
    stable = {key: value for key, value in first.items() if second.get(key) == value}
    gone = {key for key, value in stable.items() if found.get(key) != value}
    differs = gone or found.keys() - first.keys() - second.keys()
    assert differs, f"{name} changes nothing"


@pytest.mark.parametrize("name", COMMON)
def test_a_field_of_the_top_level_changes_something(recording: Recording, name: str) -> None:
    case = COMMON[name] if isinstance(COMMON[name], Case) else Case(COMMON[name])
    usual = {"task": "statistics", "level": "L1", **case.top}
    _check(lambda content: recording.seen(content, case.only_asked), usual, {**usual, name: case.value}, case, name)


@pytest.mark.parametrize(
    ("task", "name"),
    [(task, name) for task, section in SECTIONS.items() if section is not CHECK for name in section],
)
def test_a_field_of_a_task_changes_something_or_is_refused(recording: Recording, task: str, name: str) -> None:
    given = SECTIONS[task][name]
    case = given if isinstance(given, Case) else Case(given)
    top = {"task": task, "level": "L1", **case.top}
    usual, changed = {**top, task: case.more}, {**top, task: {**case.more, name: case.value}}
    if case.refused and task == "exception_dump":
        name = task
    _check(lambda content: recording.seen(content, case.only_asked), usual, changed, case, name)


@pytest.mark.parametrize("name", LOAD)
def test_the_section_load_is_refused_with_all_its_fields(recording: Recording, name: str) -> None:
    case = LOAD[name]
    changed = {"task": "statistics", "load": {**case.more, name: case.value}}
    _check(recording.seen, {"task": "statistics"}, changed, case, "load")


@pytest.mark.parametrize("task", ["run_ut", "acc_check"])
@pytest.mark.parametrize("name", CHECK)
def test_a_field_of_a_check_of_calls_changes_its_settings_or_is_refused(tmp_path: Path, task: str, name: str) -> None:
    def see(content: dict[str, Any]) -> Seen:
        (tmp_path / "config.json").write_text(json.dumps({"task": task, task: content}))
        try:
            return {"settings": load_check_settings(str(tmp_path / "config.json"))}
        except MsprobeError as problem:
            return {"refused": problem.message}

    case = CHECK[name] if isinstance(CHECK[name], Case) else Case(CHECK[name])
    _check(see, case.more, {**case.more, name: case.value}, case, name)
