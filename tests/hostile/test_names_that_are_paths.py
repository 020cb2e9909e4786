"""A name out of a dump or a checkpoint is never a path: nothing is written or read outside of the folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from support.coded_texts import mentions

from hostile.limits import Called, Ended
from hostile.made import TENSOR, dump, monitored, record

LARGE = {**TENSOR, "shape": [600, 600]}
SECRET = "of_somebody_else"


def demand_inside(folder: Path, data: dict[str, Any], name: str, *words: str, beside: str = "") -> Ended:
    """A script is made into ``out``, which has a folder ``beside`` already, as one that came with the dump may."""
    file, out = dump(folder / "A", data), folder / "room" / "out"
    (out / beside).mkdir(parents=True)
    before = {path for path in folder.rglob("*") if not path.is_relative_to(out)}
    answer = Called("op_generate", "--dump", file, "--api", name, "-o", out, *words, cwd=folder)
    found = {path for path in folder.rglob("*") if not path.is_relative_to(out)} - before
    assert not found, f"written outside of the output folder: {sorted(path.name for path in found)}"
    answer.demand_quick()
    answer.demand_printable()
    return answer


KEYWORDS = {
    "out of the folder": "x/../../victim",
    "a separator in front": "/../../victim",
    "NUL": "a\0b",
    "of Windows": "x\\..\\..\\victim",
    "controls": "a\x1b[31m\nb",
    "long": "k" * 3000,
    "long, in bytes": "ü" * 200,
    "half of a character": "a\ud800b",
    "dots": "..",
    "nothing": "",
}


@pytest.mark.parametrize("keyword", KEYWORDS.values(), ids=KEYWORDS.keys())
def test_a_keyword_is_no_path(tmp_path: Path, keyword: str) -> None:
    data = {"Functional.gelu.0.forward": record(**{keyword: LARGE})}
    answer = demand_inside(tmp_path, data, "Functional.gelu.0", "--data-in-files", beside="Functional.gelu.0.x")
    assert answer.status == 0, answer.text


def test_keywords_that_differ_in_what_a_file_name_cannot_hold_have_files_of_their_own(tmp_path: Path) -> None:
    data = {"Functional.gelu.0.forward": record(**{"a/b": LARGE, "a_b": LARGE, "a\\b": LARGE, "A_b": LARGE})}
    demand_inside(tmp_path, data, "Functional.gelu.0", "--data-in-files")
    names = [path.name.casefold() for path in (tmp_path / "room" / "out").glob("*.bin")]
    assert len(names) == len(set(names)) == 5, "one is that of the tensor without a name"


@pytest.mark.parametrize(
    "api",
    ["Functional.a/../../../b.0", "Tensor./tmp/x.0", "Functional...0", "Module.a/../b.R.0", "a/b"],
)
def test_the_name_of_a_call_is_no_path(tmp_path: Path, api: str) -> None:
    data = {f"{api}.forward": record()}
    assert demand_inside(tmp_path, data, api).status in (1, 2)


def test_a_smaller_script_is_not_written_through_a_link(tmp_path: Path) -> None:
    other = tmp_path / SECRET
    other.write_text("kept")
    file, out = dump(tmp_path / "A", {"Functional.relu.0.forward": record()}), tmp_path / "out"
    out.mkdir()
    for name in ("Functional.relu.0.forward.py", "Functional.relu.0.forward.min.py"):
        (out / name).symlink_to(other)
    words = ("op_generate", "--dump", file, "--api", "Functional.relu.0", "-o", out, "--minimize")
    answer = Called(*words, "--device", "cpu+inject:scale=0.5", cwd=tmp_path, seconds=90)
    assert "Smallest failing call" in answer.text, answer.text
    assert other.read_text() == "kept"


def values_of(folder: Path, data_name: str) -> Path:
    """A dump whose only tensor has its values in the file of this name."""
    one = {**TENSOR, "shape": [4], "data_name": data_name}
    call = {**record(one), "output": [one]}
    place = dump(folder, {"Functional.relu.0.forward": call}, "tensor").parent / "dump_tensor_data"
    place.mkdir()
    return place


NAMES = {
    "out of the folder": "../../../../{secret}.npy",
    "absolute": "{folder}/{secret}.npy",
    "absolute, with dots": "{folder}/A/step0/rank/dump_tensor_data/../../../../{secret}.npy",
    "a link": "link.npy",
    "long": "x" * 4000 + ".npy",
    "long and a path": "a/" * 3000 + "x.npy",
    "NUL": "a\0b.npy",
    "half of a character": "\ud800.npy",
    "the folder": ".",
    "a loop": "loop/x.npy",
}


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES.keys())
def test_values_are_read_from_the_folder_of_the_dump_alone(tmp_path: Path, name: str) -> None:
    secret = tmp_path / f"{SECRET}.npy"
    np.save(secret, np.full(4, 31.25, np.float32))
    data_name = name.format(folder=tmp_path, secret=SECRET)
    place = values_of(tmp_path / "A", data_name)
    (place / "link.npy").symlink_to(secret)
    (place / "loop").symlink_to(place / "loop")
    words = ("op_generate", "--dump", place.parent / "dump.json", "--api", "Functional.relu.0", "-o", tmp_path / "out")
    answer = Called(*words, cwd=tmp_path)
    answer.demand_quick()
    answer.demand_printable()
    assert answer.status != 0
    for script in (tmp_path / "out").glob("*"):
        assert "AAD6QQ" not in script.read_text(), "values of somebody else are in the script"


def checkpoint(folder: Path, name: str) -> Path:
    """A checkpoint of Hugging Face whose index names a file."""
    folder.mkdir()
    index = {"metadata": {}, "weight_map": {"w": name}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / "config.json").write_text("{}")
    return folder


@pytest.mark.parametrize(
    "name",
    [
        f"../{SECRET}.safetensors",
        f"{{folder}}/{SECRET}.safetensors",
        f"x/../../{SECRET}.safetensors",
        "link.safetensors",
        "linked/of_somebody_else.safetensors",
        "a\0b.safetensors",
        "y" * 3000,
        "\ud800.safetensors",
    ],
)
def test_a_checkpoint_is_read_from_its_folder_alone(tmp_path: Path, name: str) -> None:
    save_file({"w": torch.full((4,), 31.25)}, tmp_path / f"{SECRET}.safetensors")
    for side in ("A", "B"):
        place = checkpoint(tmp_path / side, name.format(folder=tmp_path))
        (place / "link.safetensors").symlink_to(tmp_path / f"{SECRET}.safetensors")
        (place / "linked").symlink_to(tmp_path)
    words = ("config_check", "-c", tmp_path / "A", tmp_path / "B", "-o", tmp_path / "out.json")
    answer = Called(*words, cwd=tmp_path)
    answer.demand_refused()
    answer.demand_printable()
    assert not (tmp_path / "out.json").exists()


def test_a_cache_of_downloads_is_read_through_its_links(tmp_path: Path) -> None:
    model = tmp_path / "models--x"
    (model / "blobs").mkdir(parents=True)
    (model / "snapshots").mkdir()
    save_file({"w": torch.ones(4)}, model / "blobs" / "0123")
    for side in ("A", "B"):
        place = checkpoint(model / "snapshots" / side, "model-1.safetensors")
        (place / "model-1.safetensors").symlink_to("../../blobs/0123")
    words = ("config_check", "-c", model / "snapshots/A", model / "snapshots/B", "-o", tmp_path / "out.json")
    answer = Called(*words, cwd=tmp_path)
    assert answer.status == 0, answer.text


def test_a_link_in_the_output_folder_is_not_followed(tmp_path: Path) -> None:
    """An output folder may have come with the dump."""
    other, out = tmp_path / SECRET, tmp_path / "out"
    other.mkdir()
    monitored(tmp_path / "runs")
    out.mkdir()
    (out / "rank0").symlink_to(other)
    words = ("monitor", "to-tensorboard", tmp_path / "runs", "-o", out)
    answer = Called(*words, cwd=tmp_path, gibibytes=32)
    answer.demand_quick()
    assert mentions(answer.text, "target-leads-out-of-folder"), answer.text
    assert not list(other.iterdir())
