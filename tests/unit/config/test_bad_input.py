"""Every wrong value of config.json gives its error; the text has the field, the value and what is allowed."""

from __future__ import annotations

import json
import os
import re
from typing import get_args

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.coded_texts import mentions, raising

from msprobe.config.fields import TASK_SECTIONS, CommonFields, known_names
from msprobe.config.load import load_settings
from msprobe.config.other_tasks import OTHER_TASK_SECTIONS, LoadFields
from msprobe.config.settings import ProbeTask, Task
from msprobe.core.common.exceptions import FileCheckException, MsprobeException, ScopeException
from msprobe.errors import InvalidInputError, MsprobeError, NotAvailableError, PathError, ScopeError
from msprobe.messages import said

API = "Functional.relu.0.forward"
API_END = "Torch.bmm.0.backward"
MODULE = "Module.a.Linear.forward.0"
MODULE_END = "Module.b.Linear.forward.0"
LEVELS = '"L0", "L1", "L2", "mix", "debug"'
TASKS = '"statistics", "tensor", "structure", "overflow_check", "nan_check", "exception_dump"'
RANGES = 'a list of numbers 0..1000000 and of ranges such as "4-6"; [] means all'


def statistics(**fields):
    return {"statistics": fields}


def tensor(**fields):
    return {"task": "tensor", "tensor": fields}


def overflow(**fields):
    return {"task": "overflow_check", "overflow_check": fields}


# content, field, what the text must say
BAD_VALUES = [
    ({"task": "foo"}, "task", [f'found "foo"; allowed: {TASKS}']),
    ({"task": "Tensor"}, "task", ['found "Tensor"', 'did you mean "tensor"?']),
    ({"task": 3}, "task", [f"found 3; allowed: {TASKS}"]),
    ({"task": ["tensor"]}, "task", ['found ["tensor"]']),
    ({"level": "L9"}, "level", [f'found "L9"; allowed: {LEVELS}']),
    ({"level": "l0"}, "level", [f'found "l0"; allowed: {LEVELS}; did you mean "L0"?']),
    ({"level": 1}, "level", [f"found 1; allowed: {LEVELS}"]),
    ({"dump_path": 3}, "dump_path", ["found 3; allowed: the path of a folder"]),
    ({"dump_path": ""}, "dump_path", ['found "" (the path is empty); allowed: the path of a folder']),
    ({"dump_path": " "}, "dump_path", ['found " " (the path is empty)']),
    ({"dump_path": None}, "dump_path", ["missing"]),
    *[
        ({name: value}, field.format(name), [found, RANGES])
        for name in ("rank", "step")
        for value, field, found in [
            ("0", "{}", 'found "0"'),
            (5, "{}", "found 5"),
            ({"0": 1}, "{}", 'found {"0": 1}'),
            ([1.5], "{}[0]", "found 1.5 (an element must be a whole number or a text, not a fraction)"),
            ([True], "{}[0]", "found true (an element must be a whole number or a text, not a boolean)"),
            ([0, -1], "{}[1]", "found -1 (numbers must be between 0 and 1000000)"),
            ([1000001], "{}[0]", "found 1000001 (numbers must be between 0 and 1000000)"),
            (["6-4"], "{}[0]", 'found "6-4" (the left number must not be greater than the right one)'),
            (["a-b"], "{}[0]", 'found "a-b"'),
            (["1-2-3"], "{}[0]", 'found "1-2-3"'),
            (["-1"], "{}[0]", 'found "-1"'),
            ([[1]], "{}[0]", "found [1] (an element must be a whole number or a text, not a list)"),
        ]
    ],
    *[
        ({name: value}, name, [f"found {json.dumps(value)}; allowed: true or false"])
        for name in (
            "enable_dataloader",
            "async_dump",
            "dump_enable",
            "extra_info",
            "optimizer",
            "strict_json",
            "jitter",
            "record_root",
            "buffers",
        )
        for value in ("true", 1, [])
    ],
    ({"precision": "mid"}, "precision", ['found "mid"; allowed: "low", "high"']),
    ({"risk_level": "core"}, "risk_level", ['allowed: "CORE", "FOCUS", "ALL"; did you mean "CORE"?']),
    ({"custom_op_namespaces": "x"}, "custom_op_namespaces", ['found "x"; allowed: a list of torch.ops']),
    ({"custom_op_namespaces": [1]}, "custom_op_namespaces[0]", ["found 1"]),
    ({"api_scope": "some"}, "api_scope", ['found "some"; allowed: "all", "listed"']),
    ({"existing": "keep"}, "existing", ['found "keep"; allowed: "overwrite", "clean", "refuse"']),
    ({"compile": True}, "compile", ['found true; allowed: "boundary", "eager"']),
    ({"graphs": True}, "graphs", ['found true; allowed: "skip", "record"']),
    *[
        ({"graphs": "record", "task": task, **more}, "graphs", [found])
        for task, more, found in [
            ("tensor", {}, 'task "tensor"'),
            ("structure", {}, 'task "structure"'),
            ("statistics", {"statistics": {"summary_mode": "md5"}}, 'summary_mode "md5"'),
            ("statistics", {"statistics": {"summary_mode": ["max", "md5"]}}, 'summary_mode "md5"'),
            ("statistics", {"statistics": {"summary_mode": "xxh3"}}, 'summary_mode "xxh3"'),
            ("statistics", {"statistics": {"tensor_list": ["relu"]}}, "tensor_list"),
            ("statistics", {"level": "L2"}, 'level "L2"'),
            ("statistics", {"statistics": {"data_mode": ["backward"]}}, "data_mode"),
        ]
    ],
    (statistics(list="relu"), "statistics.list", ['found "relu"; allowed: a list of texts']),
    (statistics(list=["relu", 1]), "statistics.list[1]", ["found 1; allowed: a list of texts"]),
    (statistics(list=["name-regex(*)"]), "statistics.list[0]", ["bad regular expression: nothing to repeat"]),
    (statistics(tensor_list="relu"), "statistics.tensor_list", ['found "relu"; allowed: a list of texts']),
    (statistics(tensor_list=[None]), "statistics.tensor_list[0]", ["found null"]),
    (statistics(scope="x"), "statistics.scope", ['found "x"; allowed: [] or two names']),
    (statistics(scope=[1, API]), "statistics.scope[0]", ["found 1"]),
    (
        statistics(data_mode=["all", "input"]),
        "statistics.data_mode",
        ['["all", "input"] ("all" must be the only element)'],
    ),
    (
        statistics(data_mode=["foo"]),
        "statistics.data_mode",
        ['found ["foo"]; allowed: ["all"], or a list of any of "forward", "backward", "input", "output"'],
    ),
    (statistics(data_mode="all"), "statistics.data_mode", ['found "all"; allowed: ["all"]']),
    (statistics(data_mode=[1]), "statistics.data_mode", ["found [1]; allowed:"]),
    (
        statistics(summary_mode="foo"),
        "statistics.summary_mode",
        ['found "foo"; allowed: "statistics", "md5", "xor", "xxh3"'],
    ),
    (
        statistics(summary_mode=["max", "maxx"]),
        "statistics.summary_mode",
        ['found ["max", "maxx"] (no such statistic: \'maxx\')', 'a list of any of "max", "min", "mean", "l2norm"'],
    ),
    (statistics(summary_mode=[]), "statistics.summary_mode", ["found []"]),
    (statistics(summary_mode="statistic"), "statistics.summary_mode", ['did you mean "statistics"?']),
    (statistics(device="npu"), "statistics.device", ['found "npu"; allowed: "host", "device"']),
    (tensor(precision="middle"), "tensor.precision", ['found "middle"; allowed: "low", "high"']),
    ({**statistics(summary_mode=["max", "md5"]), "async_dump": True}, "async_dump", ['summary_mode "md5"']),
    (statistics(slice={"dim": 0}), "statistics.slice", ['allowed: a list of {"dim": 0']),
    (statistics(slice=[{"dim": 0, "begin": 1}]), "statistics.slice[0]", ['found {"dim": 0, "begin": 1}']),
    (statistics(slice=[{"dim": 0, "begin": 1, "end": "2"}]), "statistics.slice[0].end", ['found "2"']),
    (statistics(request_id=5), "statistics.request_id", ["found 5; allowed: a text"]),
    ({"statistics": []}, "statistics", ["found []; allowed: an object {...}"]),
    (tensor(file_format="pt"), "tensor.file_format", ['found "pt"; allowed: "npy", "bin"']),
    (tensor(port=70000), "tensor.port", ["found 70000; allowed: a whole number 1..65535"]),
    (
        overflow(overflow_nums=0),
        "overflow_check.overflow_nums",
        ["found 0; allowed: a whole number above 0, or -1"],
    ),
    (overflow(overflow_nums=-2), "overflow_check.overflow_nums", ["found -2"]),
    (overflow(overflow_nums="1"), "overflow_check.overflow_nums", ['found "1"']),
    (overflow(overflow_nums=True), "overflow_check.overflow_nums", ["found true"]),
    (overflow(overflow_nums=1.0), "overflow_check.overflow_nums", ["found 1.0"]),
    (
        overflow(check_mode="x"),
        "overflow_check.check_mode",
        ['found "x"; allowed: "all", "aicore", "atomic"'],
    ),
    ({**tensor(list=[]), "async_dump": True}, "async_dump", ['task "tensor" and no list']),
    ({**tensor(list=[]), "async_dump": True, "level": "L0"}, "async_dump", ["no list"]),
    ({**tensor(), "async_dump": True, "level": "mix"}, "async_dump", ["no list"]),
    ({**statistics(summary_mode="md5"), "async_dump": True}, "async_dump", ['summary_mode "md5"']),
    ({**tensor(summary_mode="md5", list=["a"]), "async_dump": True}, "async_dump", ['summary_mode "md5"']),
    (
        {**tensor(summary_mode="md5"), "async_dump": True, "level": "debug"},
        "async_dump",
        ['summary_mode "md5"'],
    ),
    ({"load": {"step": ["x"]}}, "load.step[0]", ['found "x"']),
    (
        {"task": "free_benchmark", "free_benchmark": {"pert_mode": "x"}},
        "free_benchmark.pert_mode",
        ['"add_noise"'],
    ),
    (
        {"task": "grad_probe", "grad_probe": {"bounds": [1, 1]}},
        "grad_probe.bounds",
        ["the numbers must ascend"],
    ),
    ({"task": "grad_probe", "grad_probe": {"bounds": ["1"]}}, "grad_probe.bounds[0]", ['found "1"']),
    (
        {"task": "grad_probe", "grad_probe": {"grad_level": 1}},
        "grad_probe.grad_level",
        ['allowed: "L0", "L1", "L2"'],
    ),
    ({"task": "run_ut", "run_ut": {"white_list": "linear"}}, "run_ut.white_list", ['found "linear"']),
]


OTHER_TASKS = ["run_ut", "acc_check", "diff_check"]


@pytest.mark.parametrize(("content", "field", "told"), BAD_VALUES)
def test_a_wrong_value_is_reported_with_line_field_value_and_what_is_allowed(content, field, told, write_config):
    path = write_config(content)
    with pytest.raises(InvalidInputError) as caught:
        load_settings(path)
    assert type(caught.value) is InvalidInputError
    assert isinstance(caught.value, MsprobeException)
    text = str(caught.value)
    assert text.startswith("[msprobe] ")
    if content.get("task") in OTHER_TASKS:
        # That this version does not have the task is a line of its own.
        assert " has 2 mistakes:\n" in text
    else:
        assert "\n" not in text
    located = re.search(rf'{re.escape(str(path))}(?::(\d+))?: field "{re.escape(field)}": ', text)
    assert located, text
    for part in told:
        assert part in text
    if located[1]:
        key = re.sub(r"\[\d+\]$", "", field).rpartition(".")[2]
        lines = path.read_text().splitlines()
        # Elements have a line of their own, after that of their field.
        assert any(f'"{key}"' in line for line in lines[: int(located[1])])


SCOPES = [
    ("L1", [API], ["1 name", "at level L1 two full names of API entries"]),
    ("L1", [API, API_END, API], ["3 names"]),
    ("L1", ["relu", "linear"], ['scope[0]": found "relu" (not the full name', 'scope[1]": found "linear"']),
    ("L1", [API, "linear"], ['scope[1]": found "linear" (not the full name of an entry)']),
    (
        "L1",
        [MODULE, MODULE_END],
        ["(the name of a module entry); allowed: [], or at level L1 two full names of API"],
    ),
    (
        "L0",
        [API, API_END],
        ["(the name of an API entry); allowed: [], or at level L0 two full names of module"],
    ),
    ("mix", ["relu", MODULE], ["two full names of entries, such as"]),
    ("mix", [MODULE], ["1 name"]),
    ("debug", [API], ["1 name"]),
]


@pytest.mark.parametrize("task", ["statistics", "tensor", "overflow_check", "nan_check"])
@pytest.mark.parametrize(("level", "scope", "told"), SCOPES)
def test_a_scope_of_wrong_length_or_names_is_a_scope_error(task, level, scope, told, write_config):
    path = write_config({"task": task, "level": level, task: {"scope": scope}})
    with pytest.raises(ScopeError) as caught:
        load_settings(path)
    assert isinstance(caught.value, ScopeException)
    assert f'field "{task}.scope' in str(caught.value)
    for part in told:
        assert part in str(caught.value)


def test_a_scope_error_beside_another_mistake_is_an_ordinary_error(load):
    with pytest.raises(InvalidInputError, match="2 mistakes") as caught:
        load({"level": "L9", **statistics(scope=["relu", MODULE])})
    assert type(caught.value) is InvalidInputError
    # With no level to go by, the name of any entry is taken.
    assert "scope[0]" in str(caught.value)
    assert "scope[1]" not in str(caught.value)


class TestConfigFile:
    def test_missing(self, tmp_path):
        with pytest.raises(FileCheckException, match=r"nothing\.json.*does not exist"):
            load_settings(tmp_path / "nothing.json")

    def test_directory(self, tmp_path):
        with pytest.raises(FileCheckException, match="is a folder"):
            load_settings(tmp_path)

    def test_not_json_by_name(self, write_config):
        with pytest.raises(FileCheckException, match=r"must end in \.json"):
            load_settings(write_config({}, "config.txt"))

    @pytest.mark.parametrize("path", [5, ["config.json"], ""])
    def test_no_path_at_all(self, path):
        with pytest.raises(FileCheckException):
            load_settings(path)

    @pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
    def test_not_readable(self, write_config):
        path = write_config({})
        path.chmod(0)
        with pytest.raises(FileCheckException, match="permission"):
            load_settings(path)

    def test_broken_json_says_line_and_column(self, write_config):
        path = write_config('{\n "task": "tensor"\n "level": "L1"\n}')
        with pytest.raises(RuntimeError, match=re.escape(f"{path}:3:2: broken JSON")) as caught:
            load_settings(path)
        assert isinstance(caught.value, MsprobeException)

    @pytest.mark.parametrize("text", ["[]", '"x"', "3", "null", "[{}]"])
    def test_something_else_than_an_object(self, text, write_config):
        with pytest.raises(MsprobeException, match="an object") as caught:
            load_settings(write_config(f"\n{text}"))
        assert "config.json:2:" in str(caught.value)
        assert f"found {text}" in str(caught.value)


class TestDumpPath:
    def test_absent(self, write_config):
        path = write_config('{"task": "tensor"}')
        with pytest.raises(InvalidInputError, match=re.escape(f'{path}: field "dump_path": missing')):
            load_settings(path)

    def test_existing_file(self, load, tmp_path):
        (tmp_path / "file").touch()
        with pytest.raises(FileCheckException, match=r'config\.json:2: field "dump_path": .*is a file'):
            load({"dump_path": str(tmp_path / "file")})
        with pytest.raises(FileCheckException, match=r'argument "dump_path": .*is a file'):
            load({}, dump_path=tmp_path / "file" / "below")

    @pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
    def test_unwritable(self, load, tmp_path):
        (tmp_path / "closed").mkdir(mode=0o500)
        with pytest.raises(FileCheckException, match="no permission"):
            load({"dump_path": str(tmp_path / "closed" / "dump")})

    def test_is_one_mistake_among_others(self, load, tmp_path):
        (tmp_path / "file").touch()
        with pytest.raises(InvalidInputError, match="2 mistakes"):
            load({"dump_path": str(tmp_path / "file"), "level": "x"})


def test_all_mistakes_are_reported_at_once_in_the_order_of_the_file(write_config):
    path = write_config(
        """{
    "task": "tensor", // "statistics"
    "level": "l1",
    "rank": [0, "3-1", true],
    "async_dump": 1,
    "tensor": {
        "scope": ["Functional.relu.0.forward"],
        "list": [1],
        "data_mode": ["foo"],
        "summary_mode": "sum"
    },
    "dump_path": ""
}"""
    )
    with pytest.raises(InvalidInputError) as caught:
        load_settings(path, step=["x"], api_scope="none", lvl="L1")
    first, *lines = str(caught.value).splitlines()
    assert first == f"[msprobe] the configuration ({path} and arguments) has 12 mistakes:"
    fields = [re.match(r'  (?:argument|.*config\.json:(\d+): field) "(.*?)": ', line).groups() for line in lines]
    assert sorted(fields[:3], key=str) == [(None, "api_scope"), (None, "lvl"), (None, "step[0]")]
    assert fields[3:] == [
        ("3", "level"),
        ("4", "rank[1]"),
        ("4", "rank[2]"),
        ("5", "async_dump"),
        ("7", "tensor.scope"),
        ("8", "tensor.list[0]"),
        ("9", "tensor.data_mode"),
        ("10", "tensor.summary_mode"),
        ("12", "dump_path"),
    ]


def test_mistakes_of_a_section_are_reported_even_if_the_task_is_misspelled(load):
    with pytest.raises(InvalidInputError) as caught:
        load({"task": "Tensors", "tensor": {"data_mode": "all"}})
    assert mentions(str(caught.value), "did-you-mean", name="tensor")
    assert 'field "tensor.data_mode": found "all"' in str(caught.value)


def test_long_and_strange_values_are_shown_on_one_line(load):
    with pytest.raises(InvalidInputError) as caught:
        load({"level": "L1\u2028\x1b[31m" + "x" * 10_000})
    assert len(str(caught.value)) < 700
    assert str(caught.value).isprintable()


class TestArguments:
    def test_several_mistakes_of_arguments_alone_blame_no_file(self, tmp_path):
        with pytest.raises(InvalidInputError) as caught:
            load_settings(dump_path=tmp_path, level="L9", rank=["x"])
        first, *lines = str(caught.value).splitlines()
        assert first == "[msprobe] the arguments have 2 mistakes:"
        assert len(lines) == 2
        assert "default_config" not in str(caught.value)

    def test_a_question_ends_the_sentence(self, tmp_path):
        with raising(InvalidInputError, "config-mistake") as caught:
            load_settings(dump_path=tmp_path, sumary_mode="md5")
        assert caught.value.message.endswith(said("did-you-mean", "summary_mode"))

    @pytest.mark.parametrize(
        ("arguments", "told"),
        [
            ({"task": "foo"}, f'argument "task": found "foo"; allowed: {TASKS}'),
            ({"task": 3}, 'argument "task": found 3'),
            ({"level": "l0"}, 'argument "level": found "l0"'),
            ({"dump_path": 3}, 'argument "dump_path": found 3'),
            ({"dump_path": ""}, 'argument "dump_path": found ""'),
            ({"step": "0"}, 'argument "step": found "0"'),
            ({"step": [0, "6-4"]}, 'argument "step[1]": found "6-4"'),
            ({"rank": [True]}, 'argument "rank[0]": found true'),
            ({"rank": [0] * 1_000_001}, 'argument "rank": found [0, 0, '),
            ({"rank": [0] * 1_000_001}, "(the list has 1000001 elements)"),
            ({"data_mode": ["foo"]}, 'argument "data_mode": found ["foo"]'),
            ({"api_list": "relu"}, 'argument "api_list": found "relu"'),
            (
                {"levle": "L0"},
                'argument "levle": found "L0"; task "statistics" has no such field; did you mean "level"?',
            ),
            ({"overflow_nums": 2}, "it is a field of task overflow_check and nan_check"),
            ({"statistics": {}}, 'argument "statistics": found {}'),
            ({"level": object()}, 'argument "level": found "<object'),
        ],
    )
    def test_a_wrong_argument_is_reported_by_its_name(self, arguments, told, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        with pytest.raises(InvalidInputError) as caught:
            load_settings(**arguments)
        assert told in str(caught.value)

    def test_a_wrong_scope_argument_is_a_scope_error(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        with pytest.raises(ScopeError, match=r'argument "scope\[1\]": found "linear"'):
            load_settings(scope=[API, "linear"])


class TestNotAvailable:
    @pytest.mark.parametrize("task", OTHER_TASKS)
    def test_tasks_of_other_tools_are_named(self, task, load):
        for content in ({"task": task}, {"task": task, task: {}}):
            with pytest.raises(NotAvailableError, match=rf'config\.json:\d+: field "task": task "{task}"') as caught:
                load(content)
            assert isinstance(caught.value, MsprobeError)
        with raising(NotAvailableError, "config-mistake", name="task", task=task):
            load({}, task=task)

    def test_it_is_reported_together_with_the_mistakes(self, load, write_config):
        with pytest.raises(InvalidInputError, match=r'(?s)has 2 mistakes.*task "acc_check" is not.*rank\[0\]'):
            load({"task": "acc_check", "rank": ["x"]})
        with pytest.raises(InvalidInputError) as caught:
            load_settings(write_config('{"task": "acc_check"}'))
        assert 'field "dump_path": missing' in str(caught.value)
        assert mentions(str(caught.value), "task-not-in-version", task="acc_check")

    @pytest.mark.parametrize(
        ("content", "field"),
        [
            (
                {"load": {"path": "/dump/step0", "modules": ["a"], "step": [0], "dump_after_load": True}},
                "load",
            ),
            (tensor(summary_mode="md5", bench_path="/dump", diff_nums=2), "tensor.bench_path"),
            (statistics(slice=[{"dim": 0, "begin": 0, "end": 2}]), "statistics.slice"),
            (tensor(slice=[{"dim": -1, "begin": 0, "end": 8, "size": 64}]), "tensor.slice"),
            (statistics(request_id="r1"), "statistics.request_id"),
            (tensor(request_id="0"), "tensor.request_id"),
        ],
    )
    def test_additions_of_other_tools_are_named(self, content, field, load):
        with pytest.raises(NotAvailableError, match=rf'field "{field}": .* this version'):
            load(content)

    def test_arguments_are_refused_as_fields_are(self, load):
        with pytest.raises(NotAvailableError, match=r'argument "slice": .*recorded whole; remove it'):
            load({}, slice=[{"dim": 0, "begin": 0, "end": 2}])
        with pytest.raises(NotAvailableError, match=r'argument "request_id": .*remove it'):
            load({}, task="tensor", request_id="r1")

    def test_those_that_are_switched_off_do_not_matter(self, load):
        loaded = load(
            {
                "load": {"path": ""},
                **tensor(online_run_ut=False, bench_path="", host="", port=-1, slice=[], request_id=""),
            }
        )
        assert loaded.task == "tensor"


class TestKernelDumpOnNpu:
    def test_asks_for_task_tensor_no_scope_and_one_name(self, load):
        load({"level": "L2", **tensor(list=["Torch.bmm.0.forward"])}).check_npu_kernel_dump()

    @pytest.mark.parametrize("level", ["L0", "L1", "mix", "debug"])
    def test_asks_nothing_of_other_levels(self, level, load):
        load({"level": level}).check_npu_kernel_dump()

    @pytest.mark.parametrize(
        ("content", "told"),
        [
            (statistics(list=["a"]), ['task is "statistics", it must be "tensor"']),
            (tensor(scope=[API, API_END], list=["a"]), ["scope has 2 names, it must be empty"]),
            (tensor(), ["list has 0 names, it must be exactly one API name"]),
            (tensor(list=["a", "b"]), ["list has 2 names"]),
            (statistics(scope=[API, API_END]), ["task is", "scope has", "list has"]),
        ],
    )
    def test_says_all_that_is_wrong(self, content, told, load):
        loaded = load({"level": "L2", **content})
        with pytest.raises(MsprobeException, match="level L2 on an NPU") as caught:
            loaded.check_npu_kernel_dump()
        for part in told:
            assert part in str(caught.value)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from(["all", "L0", API]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["dim", "list", "x"]), inner, max_size=3)
    ),
    max_leaves=5,
)
SECTIONS = {**TASK_SECTIONS, **OTHER_TASK_SECTIONS, "load": LoadFields}
CONTENTS = st.fixed_dictionaries(
    {},
    optional={
        **{name: JSON for name in known_names(CommonFields) if name != "dump_path"},
        "task": st.sampled_from([*SECTIONS, "", 3]),
        "unknown": JSON,
        **{
            section: st.fixed_dictionaries({}, optional=dict.fromkeys(known_names(model), JSON)) | JSON
            for section, model in SECTIONS.items()
            if model is not None
        },
    },
)


# What settings that could be loaded may have as their task: also those of the rooms above the recorder.
LOADED = {*get_args(Task), *get_args(ProbeTask)}


def outcome(content, load):
    """The task of what was loaded, or what was said against it."""
    try:
        return load(content).task
    except MsprobeError as problem:
        return str(problem)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(content=CONTENTS)
def test_any_content_gives_settings_or_an_error_of_ours(content, load, monkeypatch):
    monkeypatch.setenv("MSPROBE_LOG_LEVEL", "4")
    found = outcome(content, load)
    assert found in LOADED or "field " in found


@pytest.mark.parametrize("task", sorted(SECTIONS))
def test_each_task_with_all_defaults_gives_settings_or_an_error_of_ours(task, load):
    # What is drawn is seldom right in all fields at once, so that no task may depend on being drawn.
    found = outcome({"task": task}, load)
    assert found in LOADED or "field " in found


def test_path_errors_and_value_errors_are_different_classes():
    assert not issubclass(PathError, InvalidInputError)
