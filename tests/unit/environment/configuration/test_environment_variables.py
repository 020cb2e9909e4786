from __future__ import annotations

from pathlib import Path

import pytest
from support.row_by_row import for_each

from msprobe.environment.configuration.environment_variables import collected, compare
from msprobe.environment.configuration.secrets import redacted_settings
from msprobe.environment.configuration.variables import NAMES, TABLE, extended
from msprobe.errors import InvalidInputError


def test_sides_are_where_they_belong_and_defaults_are_known() -> None:
    part = compare({"CUDA_LAUNCH_BLOCKING": "1"}, {})
    assert part.rows == [("CUDA_LAUNCH_BLOCKING", "CUDA_LAUNCH_BLOCKING", "1", "0", "error")]
    assert part.level == "error"
    assert compare({}, {"NCCL_ALGO": "Ring"}).rows == [("NCCL_ALGO", "NCCL_ALGO", "None", "Ring", "error")]


@for_each(
    ("name", "one", "two"),
    [
        ("CUDA_LAUNCH_BLOCKING", "0", None),
        ("NCCL_DETERMINISTIC", "0", None),
        ("NCCL_DETERMINISTIC", "false", None),
        ("NCCL_DETERMINISTIC", "1", "True"),
        ("HCCL_BUFFSIZE", "200.0", None),
        ("NCCL_ALGO", "", None),
        ("INF_NAN_MODE_ENABLE", " 1 ", "on"),
    ],
)
def test_values_that_mean_the_same_are_no_difference(name: str, one: str, two: str | None) -> None:
    part = compare({name: one}, {} if two is None else {name: two})
    assert part.level == "pass"
    assert [row for row in part.rows if row[-1] != "info"] == []


def test_an_npu_and_a_gpu_are_compared_by_what_variables_mean() -> None:
    npu = {"ASCEND_HOME_PATH": "/usr/local/Ascend", "HCCL_DETERMINISTIC": "true", "HCCL_INTRA_ROCE_ENABLE": "1"}
    gpu = {"CUDA_LAUNCH_BLOCKING": "1"}
    part, lone = compare(npu, gpu), "only {} has this env".format
    assert part.rows == [
        ("HCCL_DETERMINISTIC", "NCCL_DETERMINISTIC", "true", "False", "error"),
        ("ASCEND_LAUNCH_BLOCKING", "CUDA_LAUNCH_BLOCKING", "0", "1", "error"),
        ("HCCL_INTRA_ROCE_ENABLE", lone("bench"), "1", None, "warning"),
        ("ASCEND_HOME_PATH", "", "/usr/local/Ascend", None, "info"),
    ]
    assert compare(gpu, npu).rows[2] == (lone("cmp"), "HCCL_INTRA_ROCE_ENABLE", None, "1", "warning")


def test_what_is_not_in_the_table_is_reported_and_changes_nothing() -> None:
    part = compare({"USER": "a", "_": "x", "SHLVL": "1"}, {"EDITOR": "vi", "_": "y", "USER": "a"})
    assert part.rows == [("", "EDITOR", None, "vi", "info")]
    assert part.level == "pass"


def test_the_table_has_what_changes_numbers_each_name_once() -> None:
    names = [name for one in TABLE for name in {one.npu, one.gpu} if name]
    assert len(names) == len(set(names)) >= 60
    assert {"CUBLAS_WORKSPACE_CONFIG", "NVIDIA_TF32_OVERRIDE", "PYTHONHASHSEED", "OMP_NUM_THREADS"} <= NAMES
    assert all(one.why for one in TABLE)


def test_a_file_extends_the_table(tmp_path: Path) -> None:
    path = tmp_path / "own.yaml"
    path.write_text("OWN: {level: error, default: 3, effect: first step}\nMINE: warning\nOMP_NUM_THREADS: info\n")
    table = extended(str(path))
    part = compare({"OWN": "4", "MINE": "a", "OMP_NUM_THREADS": "4"}, {"OMP_NUM_THREADS": "8"}, table)
    assert part.rows == [
        ("OWN", "OWN", "4", "3", "error"),
        ("MINE", "MINE", "a", "None", "warning"),
        ("OMP_NUM_THREADS", "OMP_NUM_THREADS", "4", "8", "info"),
    ]
    path.write_text("A: fatal\nB: {levle: error}\nC: {effect: big}\n")
    with pytest.raises(InvalidInputError) as told:
        extended(str(path))
    for text in ("found 'fatal'", "B.levle is not known", "found 'big'"):
        assert text in told.value.message


def test_secrets_are_hidden_and_still_comparable() -> None:
    environ = {
        "HF_TOKEN": "hf_secret",
        "AWS_SECRET_ACCESS_KEY": "s3cr3t",
        "DB_PASSWORD": "pw",
        "MY_CREDENTIALS": "c",
        "TOKENIZERS_PARALLELISM": "false",
        "https_proxy": "http://user:pw123@proxy:80",
        "EMPTY_KEY": "",
    }
    found = collected(environ)
    text = str(found)
    assert not any(secret in text for secret in ("hf_secret", "s3cr3t", "'pw'", "pw123", "'c'"))
    assert found["TOKENIZERS_PARALLELISM"] == "false"
    assert found["https_proxy"].endswith("@proxy:80")
    assert found == collected(environ)
    assert found["HF_TOKEN"] != collected({"HF_TOKEN": "other"})["HF_TOKEN"]
    assert collected({"A_KEY": "x"})["A_KEY"] != collected({"B_KEY": "x"})["B_KEY"]
    assert collected(environ, keep_secrets=True) == environ


def test_settings_that_are_only_called_like_secrets_stay() -> None:
    settings = {
        "pad_token": "<pad>",
        "num_key_value_heads": "8",
        "eos_token": "<|endoftext|>",
        "max_tokens": 4096,
        "wandb_api_key": "abcdef0123456789",
        "hub.token": "hf_abcdefghij",
    }
    found = redacted_settings(settings)
    assert {name for name in settings if found[name] != settings[name]} == {"wandb_api_key", "hub.token"}
