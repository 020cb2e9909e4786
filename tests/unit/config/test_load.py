from __future__ import annotations

import dataclasses
import itertools
import json
from pathlib import Path

import pytest
from support.coded_texts import mentions

from msprobe.config.load import load_settings
from msprobe.config.settings import LEVELS, TASKS, Settings

API = "Functional.relu.0.forward"
API_END = "Ops.mine.scale.0.backward"
MODULE = "Module.a.Linear.forward.0"
MODULE_END = "Module.b.Linear.backward.0"


@pytest.fixture
def warnings(capsys):
    """The warnings in the log so far, each once taken."""
    return lambda: [
        line.partition("[WARNING] ")[2] for line in capsys.readouterr().out.splitlines() if "[WARNING] " in line
    ]


class TestPrecedence:
    def test_without_file_and_arguments_the_packaged_default_holds(self, tmp_path, monkeypatch, warnings):
        monkeypatch.chdir(tmp_path)
        settings = load_settings()
        assert settings == Settings(task="statistics", level="L1", dump_path="./dump_path", ranks=(), steps=())
        assert settings.config_path is None
        assert warnings() == []

    def test_the_file_wins_over_the_default(self, write_config):
        path = write_config({"task": "tensor", "level": "L0", "dump_path": "/tmp/d", "rank": [1], "step": ["2-4"]})
        settings = load_settings(path)
        assert (settings.task, settings.level, settings.dump_path) == ("tensor", "L0", "/tmp/d")
        assert (settings.ranks, settings.steps) == ((1,), (2, 3, 4))
        assert settings.config_path == path

    def test_arguments_win_over_the_file(self, load, tmp_path):
        settings = load(
            {
                "task": "tensor",
                "level": "L0",
                "dump_path": "x",
                "rank": [1],
                "step": [1],
                "statistics": {"list": ["a"]},
            },
            task="statistics",
            level="mix",
            dump_path=tmp_path / "other",
            rank=[0],
            step=(0, "2-3"),
        )
        assert (settings.task, settings.level, settings.dump_path) == (
            "statistics",
            "mix",
            str(tmp_path / "other"),
        )
        assert (settings.ranks, settings.steps) == ((0,), (0, 2, 3))
        assert settings.api_list == ("a",)

    def test_arguments_that_are_none_leave_the_file_as_it_is(self, load):
        settings = load({"task": "tensor", "level": "L0", "step": [1]}, task=None, level=None, step=None, rank=None)
        assert (settings.task, settings.level, settings.steps) == ("tensor", "L0", (1,))

    def test_a_value_of_the_file_that_an_argument_replaces_may_be_wrong_or_absent(self, write_config, tmp_path):
        path = write_config('{"level": "L9", "statistics": {"list": 3}}')
        settings = load_settings(path, level="L0", dump_path=tmp_path / "d", list=["a"])
        assert (settings.level, settings.api_list) == ("L0", ("a",))

    def test_any_field_of_the_top_level_and_of_the_section_can_be_an_argument(self, load):
        content = {"statistics": {"list": ["a"], "summary_mode": "md5"}}
        settings = load(content, summary_mode="xxh3", api_list=("b", "c"), api_scope="listed", optimizer=False)
        assert settings.summary_mode == "xxh3"
        assert settings.api_list == ("b", "c")
        assert settings.api_scope == "listed"
        assert settings.optimizer is False
        assert load({}, ranks=range(2, 4), steps=[1]).ranks == (2, 3)

    def test_of_a_key_that_stands_twice_the_last_counts_with_a_warning(self, load, warnings):
        settings = load(
            '{"dump_path": "d",\n "level": "L0",\n "statistics": {"list": [],\n "list": ["a"]},\n "level": "mix"}'
        )
        assert settings.level == "mix"
        assert settings.api_list == ("a",)
        said = "\n".join(warnings())
        assert mentions(said, "field-twice", line=5, field="level", first=2) == 1
        assert mentions(said, "field-twice", line=4, field="statistics.list", first=3) == 1


class TestValidForms:
    @pytest.mark.parametrize(("task", "level"), list(itertools.product(TASKS, LEVELS)))
    def test_every_task_at_every_level(self, task, level, load):
        settings = load({"task": task, "level": level})
        assert settings.task == task
        assert settings.level == ("mix" if task == "structure" and level not in ("L0", "mix") else level)

    @pytest.mark.parametrize("empty", ["", None])
    def test_empty_task_and_level_mean_the_default(self, empty, load):
        settings = load({"task": empty, "level": empty, "rank": None, "step": None, "statistics": None})
        assert (settings.task, settings.level, settings.ranks, settings.steps) == ("statistics", "L1", (), ())

    def test_null_means_absent_in_every_field_but_dump_path(self, load):
        names = [field.name for field in dataclasses.fields(Settings)]
        content = {name: None for name in names if name not in ("task", "dump_path", "config_path")}
        section = dict.fromkeys(("scope", "list", "tensor_list", "data_mode", "summary_mode", "slice"))
        settings = load({**content, "statistics": section})
        assert settings == dataclasses.replace(Settings(), dump_path=settings.dump_path)

    @pytest.mark.parametrize(
        ("value", "numbers"),
        [
            ([], ()),
            ([0], (0,)),
            ([4, "1-2", "4"], (1, 2, 4)),
            ([" 4 - 6 "], (4, 5, 6)),
            (["0-1000000"], tuple(range(1_000_001))),
        ],
    )
    @pytest.mark.parametrize("name", ["rank", "step"])
    def test_rank_and_step(self, name, value, numbers, load):
        assert getattr(load({name: value}), f"{name}s") == numbers

    @pytest.mark.parametrize(
        ("data_mode", "expected"),
        [
            ([], "fbio"),
            (["all"], "fbio"),
            (["forward"], "fio"),
            (["backward"], "bio"),
            (["input"], "fbi"),
            (["output"], "fbo"),
            (["forward", "output"], "fo"),
            (["backward", "input"], "bi"),
            (["forward", "backward"], "fbio"),
            (["input", "output", "forward"], "fio"),
            (["forward", "forward"], "fio"),
        ],
    )
    @pytest.mark.parametrize("task", TASKS)
    def test_data_mode_is_completed(self, task, data_mode, expected, load):
        settings = load({"task": task, task: {"data_mode": data_mode}})
        switches = {"f": settings.forward, "b": settings.backward, "i": settings.input, "o": settings.output}
        assert "".join(letter for letter, on in switches.items() if on) == expected

    @pytest.mark.parametrize(
        ("level", "scope"),
        [
            ("L0", [MODULE, MODULE_END]),
            ("L1", [API, API_END]),
            ("mix", [API, API_END]),
            ("mix", [MODULE, MODULE]),
            ("L2", ["Aten.mm.0.forward", API_END]),
            ("L1", []),
        ],
    )
    @pytest.mark.parametrize("task", ["statistics", "tensor", "overflow_check", "nan_check"])
    def test_scope(self, task, level, scope, load):
        assert load({"task": task, "level": level, task: {"scope": scope}}).scope == tuple(scope)

    def test_the_scope_of_structure_follows_the_level_it_is_recorded_at(self, load):
        assert load({"task": "structure", "level": "L1", "structure": {"scope": [MODULE, API]}}).scope == (
            MODULE,
            API,
        )

    def test_statistics(self, load):
        settings = load(
            {
                "statistics": {
                    "list": ["relu", "name-regex(^Torch)"],
                    "tensor_list": ["linear"],
                    "summary_mode": "xor",
                }
            }
        )
        assert settings.api_list == ("relu", "name-regex(^Torch)")
        assert settings.tensor_list == ("linear",)
        assert settings.summary_mode == "xor"
        assert [pattern.matches("Torch.relu.0.forward") for pattern in settings.list_patterns()] == [
            True,
            True,
        ]
        assert [pattern.matches("Torch.relu.0.forward") for pattern in settings.tensor_list_patterns()] == [False]

    def test_tensor(self, load):
        settings = load({"task": "tensor", "tensor": {"file_format": "bin", "summary_mode": "md5", "list": ["a"]}})
        assert (settings.file_format, settings.summary_mode, settings.api_list) == ("bin", "md5", ("a",))
        assert load({"task": "tensor", "tensor": {"file_format": ""}}).file_format is None

    @pytest.mark.parametrize("task", ["overflow_check", "nan_check"])
    @pytest.mark.parametrize("number", [-1, 1, 7])
    def test_overflow_and_nan_check(self, task, number, load):
        settings = load({"task": task, task: {"overflow_nums": number, "check_mode": "atomic"}})
        assert (settings.overflow_nums, settings.check_mode) == (number, "atomic")

    def test_only_the_section_of_the_task_counts(self, load):
        content = {"statistics": {"list": ["a"], "summary_mode": "md5"}, "tensor": {"list": ["b"]}}
        assert load({"task": "tensor", **content}).api_list == ("b",)
        assert load({"task": "tensor", **content}).summary_mode == "statistics"
        assert load({"task": "nan_check", **content}).api_list == ()

    def test_all_fields_of_the_top_level(self, load):
        content = {
            "enable_dataloader": True,
            "async_dump": True,
            "dump_enable": False,
            "extra_info": False,
            "precision": "high",
            "risk_level": "CORE",
            "custom_op_namespaces": ["a", "b"],
            "api_scope": "listed",
            "optimizer": True,
            "strict_json": True,
            "jitter": True,
            "record_root": True,
            "existing": "refuse",
            "compile": "eager",
            "graphs": "record",
            "buffers": True,
        }
        settings = load(content)
        for name, value in content.items():
            assert getattr(settings, name) == (tuple(value) if isinstance(value, list) else value)

    @pytest.mark.parametrize("level", ["L0", "L1", "mix", "debug"])
    @pytest.mark.parametrize("task", ["statistics", "tensor"])
    def test_async_dump(self, task, level, load):
        assert load({"task": task, "level": level, "async_dump": True, task: {"list": ["a"]}}).async_dump
        assert load({"task": task, "level": "debug", "async_dump": True}).async_dump

    @pytest.mark.parametrize("name", ["a b", "a+b@c,d:e~f", "数据", "ü"])
    def test_dump_path_may_have_any_characters(self, name, load, tmp_path):
        assert load({"dump_path": str(tmp_path / name)}).dump_path == str(tmp_path / name)
        assert not (tmp_path / name).exists()

    def test_comments_byte_order_mark_and_last_commas(self, write_config):
        text = '\ufeff// for rank 0\n{"dump_path": "d", /* only */ "rank": [0,],\n "statistics": {"list": ["a//b",],},}'
        settings = load_settings(write_config(text))
        assert settings.ranks == (0,)
        assert settings.api_list == ("a//b",)


class TestWarnings:
    def test_nothing_is_said_about_a_good_file(self, load, warnings):
        load(
            {
                "rank": [],
                "statistics": {"list": []},
                "seed": 1,
                "is_deterministic": True,
                "_note": "x",
                "$schema": "y",
            }
        )
        assert warnings() == []

    @pytest.mark.parametrize("task", TASKS)
    def test_fields_of_mindspore_and_of_newer_releases_are_known(self, task, load, warnings):
        sections = {
            "statistics": {"device": "device", "precision": "high", "request_id": "", "slice": []},
            "tensor": {"file_format": "npy", "online_run_ut": False, "nfs_path": "", "host": "", "port": -1,
                       "tls_path": "./", "online_run_ut_recompute": False, "bench_path": "", "diff_nums": 1},
            "overflow_check": {"overflow_nums": 1, "check_mode": "all"},
            "nan_check": {},
            "structure": {"scope": [], "list": []},
            "free_benchmark": {"scope": [], "list": [], "fuzz_device": "npu", "pert_mode": "add_noise",
                               "handler_type": "check", "fuzz_level": "L1", "fuzz_stage": "forward",
                               "if_preheat": False, "preheat_step": 15, "max_sample": 20},
            "grad_probe": {"grad_level": "L1", "param_list": [], "bounds": [-1, 0, 1]},
            "run_ut": {"white_list": [], "black_list": [], "error_data_path": "./"},
            "diff_check": {"anything": 1},
            "load": {"path": "", "modules": [], "step": [], "rank": [], "dump_after_load": False},
        }  # fmt: skip
        load(
            {
                "task": task,
                "level": "mix",
                "risk_level": "ALL",
                "extra_info": True,
                "precision": "low",
                **sections,
            }
        )
        assert warnings() == []

    @pytest.mark.parametrize(
        ("content", "told"),
        [
            ({"levl": "L0"}, 'field "levl": unknown field, ignored; did you mean "level"?'),
            ({"Task": "tensor"}, 'field "Task": unknown field, ignored; did you mean "task"?'),
            ({"statistic": {}}, 'field "statistic": unknown field, ignored; did you mean "statistics"?'),
            (
                {"summary_mode": "md5"},
                '"summary_mode": unknown field, ignored; it belongs in section "statistics"',
            ),
            ({"sumary_mode": "md5"}, '; did you mean "summary_mode", which belongs in section "statistics"?'),
            ({"zzzzzz": 1}, 'field "zzzzzz": unknown field, ignored'),
            (
                {"statistics": {"lst": []}},
                'field "statistics.lst": unknown field, ignored; did you mean "list"?',
            ),
            (
                {"statistics": {"level": "L0"}},
                '"statistics.level": unknown field, ignored; it belongs at the top level',
            ),
            ({"statistics": {"overflow_nums": 1}}, 'it belongs in section "overflow_check"'),
            (
                {"load": {"module": []}},
                'field "load.module": unknown field, ignored; did you mean "modules"?',
            ),
            ({"tensor": {"list": 5}}, 'field "tensor.list": found 5; allowed: a list of texts'),
            (
                {"free_benchmark": {"max_sample": 0}},
                '(section "free_benchmark" is not used by task "statistics")',
            ),
        ],
    )
    def test_what_nobody_reads_is_reported_with_the_nearest_name_and_stops_nothing(self, content, told, load, warnings):
        assert load(content).task == "statistics"
        (line,) = warnings()
        assert told in line
        assert "config.json:" in line

    def test_a_misspelled_dump_path_is_reported_beside_the_error(self, write_config, warnings):
        with pytest.raises(Exception, match="dump_path"):
            load_settings(write_config('{"dump_pth": "x"}'))
        assert mentions(warnings()[0], "did-you-mean", name="dump_path")

    @pytest.mark.parametrize(
        ("content", "told"),
        [
            (
                {"task": "structure", "level": "L1"},
                'task "structure" is recorded at level L0 or mix; mix is taken, not L1',
            ),
            ({"task": "structure", "level": "debug"}, "mix is taken, not debug"),
            ({"task": "overflow_check", "level": "debug"}, "nothing will be recorded"),
            (
                {"task": "nan_check", "async_dump": True},
                'field "async_dump": has no effect with task "nan_check"',
            ),
            ({"level": "debug", "statistics": {"tensor_list": ["a"]}}, "has no effect at level debug"),
        ],
    )
    def test_what_will_not_be_done_as_asked_is_reported(self, content, told, load, warnings):
        settings = load(content)
        (line,) = warnings()
        assert told in line
        if content.get("level") == "debug":
            assert settings.tensor_list == ()


class TestSettings:
    def test_are_frozen(self, load):
        with pytest.raises(dataclasses.FrozenInstanceError):
            load({}).level = "L0"

    def test_rank_and_step_filters(self):
        settings = Settings(ranks=(1, 4), steps=(0, 5, 6))
        assert [rank for rank in range(7) if settings.wants_rank(rank)] == [1, 4]
        assert [step for step in range(9) if settings.wants_step(step)] == [0, 5, 6]
        assert settings.last_step == 6
        assert Settings().wants_rank(3)
        assert Settings().wants_step(10**7)
        assert Settings().last_step is None


def test_the_packaged_default_is_plain_json():
    import msprobe.config

    text = (Path(msprobe.config.__file__).parent / "default_config.json").read_text(encoding="utf-8")
    assert json.loads(text)["dump_path"] == "./dump_path"
