"""Configurations: many mistakes, many names and long ones end in a bounded sentence, quickly."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hostile.limits import Answer, Called, Ended
from hostile.made import dump, record

NAMES = "{" + ", ".join(f'"step{n}": {n}' for n in range(100_000)) + "}"


def checked(folder: Path, text: str) -> Ended:
    file = dump(folder / "A", {"Functional.forward.0.forward": record()})
    (folder / "config.json").write_text(text)
    words = "run_ut", "-api_info", file, "-o", folder / "out", "-config", folder / "config.json"
    return Called(*words, cwd=folder)


@pytest.mark.parametrize(
    "text",
    [
        "{" + '"a":1,' * 170_000 + '"b":2}',
        "{" + '"a":{"b":[1,2]},' * 60_000 + '"b":2}',
        "{" + "".join(f'"k{n}":1,' for n in range(60_000)) + '"a":{},' * 30_000 + '"b":2}',
        NAMES,
        json.dumps({"white_list": [f"relu{n}" for n in range(60_000)]}),
        json.dumps({"white_list": ["r" * 900_000]}),
        '{"error_data_path": ' + "[" * 90 + "]" * 90 + "}",
        "{" * 900_000,
        "//" * 500_000,
        '{"a": ' + "9" * 900_000 + "}",
    ],
    ids=["twice", "nested", "mixed", "names", "list", "long", "deep", "braces", "comment", "digits"],
)
def test_a_configuration_of_the_check(tmp_path: Path, text: str) -> None:
    answer = checked(tmp_path, text)
    answer.demand_quick()
    assert len(answer.text) < 200_000


@pytest.mark.parametrize(
    "content",
    [
        {"step": list(range(600_000))},
        {"rank": ["0-1000000000"]},
        {"step": ["0-1000000"] * 10_000},
        {"step": ["9" * 5000, "-5", "1-", "5-1"] * 1000},
        {"statistics": {"list": ["name-regex((a+)+$)"]}},
        {"statistics": {"list": [f"relu{n}" for n in range(100_000)]}},
        {"statistics": {f"scope{n}": [] for n in range(60_000)}},
        {"statistics": {"scope": [["x"] * 1000] * 100}},
    ],
)
def test_a_configuration_of_the_recorder(tmp_path: Path, content: object) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"task": "statistics", "dump_path": "out", **content}))
    (tmp_path / "train.py").write_text("print('trained')\n")
    code = f"from msprobe.config.load import load_settings; load_settings({str(tmp_path / 'config.json')!r})"
    program = f"try:\n    {code}\nexcept Exception as problem:\n    print(type(problem).__name__, len(str(problem)))\n"
    answer = Answer("-c", program, cwd=tmp_path, python=True)
    answer.demand_quick()
    assert len(answer.text) < 200_000


def test_mappings_of_names_that_take_for_ever(tmp_path: Path) -> None:
    import numpy as np

    for side in "ab":
        np.savez(tmp_path / f"{side}.npz", **{"a" * 60: np.ones(2), f"w{side}": np.zeros(2)})
    for pattern in ("(a+)+$", "(a|a)*b", ".*" * 30 + "b", "(" * 5000):
        (tmp_path / "map.yaml").write_text(json.dumps({pattern: "x"}))
        words = (
            "-c",
            tmp_path / "a.npz",
            tmp_path / "b.npz",
            "-o",
            tmp_path / "out",
            "--name-map",
            tmp_path / "map.yaml",
        )
        Called("config_check", *words, cwd=tmp_path).demand_refused()
