from __future__ import annotations

import json
import pickle
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.coded_texts import mentions, raising

from msprobe.environment.hyperparameters.reading import NotAListError, UnknownSourceError, read, read_sources
from msprobe.errors import InvalidInputError


def written(folder: Path, name: str, text: str) -> str:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_values_of_yaml_keep_their_type_and_lists_their_items(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        "a.yaml",
        "model: {hidden_size: 64, flag: true, none: null}\nlr: 1.0e-5\nsizes: [1, 2.5, x]\nempty: []\n"
        "items:\n- {a: 1}\n- [3]\nday: 2024-01-02\nref: !ENV ${HOME}\n---\nsecond: !!python/name:os.system ''\n",
    )
    assert read([path]) == {
        "model.hidden_size": 64,
        "model.flag": True,
        "model.none": None,
        "lr": 1.0e-5,
        "sizes": [1, 2.5, "x"],
        "empty": [],
        "items.0.a": 1,
        "items.1": [3],
        "day": "2024-01-02",
        "ref": "${HOME}",
        "second": "",
    }


def test_json_ini_and_python_files_are_read(tmp_path: Path) -> None:
    deepspeed = written(
        tmp_path, "ds.json", '{"train_batch_size": 8, "fp16": {"enabled": false}, "betas": [0.9, 0.95]}'
    )
    assert read([deepspeed]) == {"train_batch_size": 8, "fp16.enabled": False, "betas": [0.9, 0.95]}
    assert read([written(tmp_path, "a.ini", "[opt]\nLR = 1e-3 ; x\n")]) == {"opt.LR": "1e-3 ; x"}
    assert read([written(tmp_path, "b.cfg", "lr = 1%\n")]) == {"lr": "1%"}
    python = (
        "import os\nlr = 3e-4 / 2\nwidth = 5 * 1024\nhidden: int = width\n_private = 1\nname = os.getcwd()\n"
        "a = b = [1, (2, -3)]\nopt = dict(type='AdamW', lr=lr, betas=(0.9, 0.95))\nfast = not 0\nbig = 9**9**9\n"
        "class Config:\n    dropout = 0.1\n    path = f'{lr}'\nlr = open('/nowhere')\n"
    )
    assert read([written(tmp_path, "c.py", python)]) == {
        "width": 5120,
        "hidden": 5120,
        "a.0": 1,
        "a.1": [2, -3],
        "b.0": 1,
        "b.1": [2, -3],
        "fast": True,
        "opt.type": "AdamW",
        "opt.lr": 1.5e-4,
        "opt.betas": [0.9, 0.95],
        "Config.dropout": 0.1,
    }


@pytest.mark.skipif(sys.version_info < (3, 11), reason="tomllib")
def test_toml_is_read(tmp_path: Path) -> None:
    assert read([written(tmp_path, "a.toml", "[opt]\nlr = 1e-3\n")]) == {"opt.lr": 1e-3}


def test_files_are_merged_and_a_name_with_two_values_says_so(tmp_path: Path) -> None:
    first = written(tmp_path, "a.yaml", "lr: 0.00001\nseed: 1\n")
    second = written(tmp_path, "train.sh", "python train.py --lr 1e-5 --seed 2 --bf16\n")
    assert read([first, second]) == {
        "lr": 0.00001,
        "seed": {"description": "duplicate_value", "values": [1, "2"]},
        "bf16": True,
    }


def test_missing_files_are_left_out_and_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing = str(tmp_path / "no.sh")
    assert read([missing]) == {}
    assert mentions(capsys.readouterr().out, "source-does-not-exist", path=missing)


def test_a_settings_file_that_a_script_names_is_asked_for_unless_it_is_given(tmp_path: Path) -> None:
    script = written(
        tmp_path, "run.sh", "accelerate launch --config_file conf/acc.yaml train.py --lr 1 --data d.json\n"
    )
    (tmp_path / "conf").mkdir()
    settings = written(tmp_path / "conf", "acc.yaml", "num_processes: 4\n")
    assert [note for note in read_sources([script]).notes if "acc.yaml" in note]
    notes = read_sources([script, settings]).notes
    assert not [note for note in notes if "acc.yaml" in note]
    assert [note for note in notes if '"d.json" is named' in note]


def test_everything_wrong_is_reported_at_once(tmp_path: Path) -> None:
    with raising(TypeError, "sources-are-no-list"):
        read("x.sh")  # type: ignore[arg-type]
    assert issubclass(NotAListError, InvalidInputError)
    with raising(ValueError, "source-unknown"):
        read([written(tmp_path, "x.docx", "")])
    assert issubclass(UnknownSourceError, InvalidInputError)
    broken = {
        "a.yaml": "a: [", "b.json": "{", "c.json": "[1]", "d.py": "a =", "e.ini": "[a", "f.log": "x", "g.bin": "x",
        "h.yaml": "&a [*a]", "i.json": "[" * 100_000, "j.py": "-" * 20_000 + "1",
        "k.yaml": "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
            f"{chr(98 + n)}: &{chr(98 + n)} [{','.join([f'*{chr(97 + n)}'] * 9)}]\n" for n in range(9)
        ),
    }  # fmt: skip
    paths = [written(tmp_path, name, text) for name, text in broken.items()]
    with pytest.raises(InvalidInputError) as caught:
        read(paths)
    assert all(f'{path}"' in caught.value.message for path in paths)


def test_hydra_is_put_together_as_hydra_does(tmp_path: Path) -> None:
    written(
        tmp_path,
        "config.yaml",
        "defaults:\n- optim: adam\n- _self_\n- model@net: big\n- override hydra/launcher: x\n- optional data: none\n"
        "- extra\n- gone: a\noptim: {lr: 2}\nname: run-${optim.lr}-${oc.env:HOME}\nsame: ${optim}\n",
    )
    written(tmp_path, "optim/adam.yaml", "defaults:\n- base\nlr: 1\nbetas: [0.9, 0.95]\n")
    written(tmp_path, "optim/base.yaml", "eps: 1.0e-8\nlr: 9\n")
    written(tmp_path, "model/big.yaml", "hidden: 4\n")
    written(tmp_path, "extra.yaml", "# @package _global_\nseed: 3\n")
    found = read_sources([str(tmp_path)])
    assert found.values == {
        "optim.lr": 2,
        "optim.betas": [0.9, 0.95],
        "net.hidden": 4,
        "seed": 3,
        "same.lr": 2,
        "optim.eps": 1e-8,
        "name": "run-2-${oc.env:HOME}",
        "same.betas": [0.9, 0.95],
        "same.eps": 1e-8,
    }
    assert [note.split('"')[1].endswith("gone/a.yaml") for note in found.notes] == [True]
    written(tmp_path, ".hydra/config.yaml", "resolved: 1\n")
    assert read([str(tmp_path)]) == {"resolved": 1}


def saved(path: Path, tree: Any) -> str:
    """As torch.save writes what has no tensors."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x/data.pkl", pickle.dumps(tree, 2))
    return str(path)


def test_arguments_in_saved_files_are_read_as_data(tmp_path: Path) -> None:
    arguments = SimpleNamespace(lr=1e-3, tp=2, path=Path("a"), items=[1, 2], none=None, _hidden=1, call=print)
    expected = {"lr": 1e-3, "tp": 2, "path": "a", "items": [1, 2], "none": None, "call": "__builtin__.print"}
    assert read([saved(tmp_path / "training_args.bin", arguments)]) == expected
    assert read([saved(tmp_path / "lightning.ckpt", {"epoch": 1, "hyper_parameters": {"lr": 1}})]) == {"lr": 1}
    folder = tmp_path / "ckpt" / "iter_0000010" / "mp_rank_00"
    folder.mkdir(parents=True)
    saved(folder / "model_optim_rng.pt", {"args": arguments, "iteration": 10})
    written(tmp_path, "ckpt/latest_checkpointed_iteration.txt", "10\n")
    assert read([str(tmp_path / "ckpt")]) == expected
    with raising(InvalidInputError, "no-training-arguments"):
        read([saved(tmp_path / "x.pt", {"model": {}})])
    with raising(InvalidInputError, "folder-without-settings"):
        read([str(tmp_path / "ckpt" / "iter_0000010" / "mp_rank_00")])


def test_trainer_states_and_logs_are_read(tmp_path: Path) -> None:
    state = {"log_history": [{"loss": 1}], "max_steps": 5, "train_batch_size": 2, "epoch": 1.0, "global_step": 3}
    assert read([written(tmp_path, "trainer_state.json", json.dumps(state))]) == {"max_steps": 5, "train_batch_size": 2}
    megatron = (
        "loading\n[rank0]: ------------------------ arguments ------------------------\n"
        "  adam_beta1 ...................................... 0.9\n  bf16 ............................... True\n"
        "  data_path ....................................... ['a', 'b']\n"
        "-------------------- end of arguments ---------------------\n"
    )
    assert read([written(tmp_path, "train.log", megatron)]) == {
        "adam_beta1": 0.9,
        "bf16": True,
        "data_path": "['a', 'b']",
    }
    verl = "(TaskRunner pid=1) {'actor_rollout_ref': {'actor': {'lr': 1e-6}}}\n"
    assert read([written(tmp_path, "verl.log", verl)]) == {"actor_rollout_ref.actor.lr": 1e-6}
