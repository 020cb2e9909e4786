"""Command lines of mindstudio-probe 8.1.1 and 26.2.0 are understood as they were: each word, in its own place."""

from __future__ import annotations

from typing import Any

import pytest
from support.row_by_row import for_each

from msprobe.cli import commands

LINES: list[tuple[str, str, dict[str, Any]]] = [
    ("compare", "-i c.json -o out -s -c -f", {"input_path": "c.json", "output_path": "out", "stack_mode": True,
                                              "compare_only": True, "fuzzy_match": True}),
    ("compare", "-i c.json -o", {"output_path": "./output"}),
    ("compare", "--input_path c.json --output_path out --stack_mode --compare_only --fuzzy_match",
     {"input_path": "c.json", "output_path": "out", "fuzzy_match": True}),
    ("compare", "-i c.json -cm -am api.yaml -dm data.yaml -lm",
     {"cell_mapping": True, "api_mapping": "api.yaml", "data_mapping": "data.yaml", "layer_mapping": True}),
    ("compare", "-tp A -gp B -fm -da -tensor_log --xlsx -m auto", {"target_path": "A", "golden_path": "B",
     "fuzzy_match": True, "diff_analyze": True, "is_print_compare_log": True, "xlsx": True}),
    ("compare", "--target_path A --golden_path B --consistent_check --backend fsdp --rank 0,1 --step 2",
     {"consistent_check": True, "backend": "fsdp", "rank": "0,1", "step": "2"}),
    ("merge_result", "-i in -o out -config c.yaml", {"input_dir": "in", "output_dir": "out", "config_path": "c.yaml"}),
    ("merge_result", "--input_dir in --output_dir out --config-path c.yaml", {"input_dir": "in"}),
    ("run_ut", "-api_info d.json -o out -save_error_data -j -d 0 1 -csv_path r.csv -f -config c.json",
     {"api_info_file": "d.json", "out_path": "out", "save_error_data": True, "jit_compile": True, "device": ["0", "1"],
      "result_csv_path": "r.csv", "filter_api": True, "config_path": "c.json"}),
    ("run_ut", "--api_info_file d.json --out_path out --jit_compile --device 0 --filter_api", {"device": ["0"]}),
    ("multi_run_ut", "-api_info d.json -n 4 -d 0 1", {"num_splits": 4, "device": ["0", "1"]}),
    ("multi_run_ut", "--api_info_file d.json --num_splits 4", {"num_splits": 4}),
    ("api_precision_compare", "-npu n.csv -gpu g.csv -o out",
     {"npu_csv_path": "n.csv", "gpu_csv_path": "g.csv", "out_path": "out"}),
    ("run_overflow_check", "-api_info d.json -j True -d 1", {"jit_compile": "True", "device": "1"}),
    ("op_generate", "-i op.json -o out", {"config_input": "op.json", "api_output_path": "out"}),
    ("graph", "-i c.json -o out -lm m.yaml -oc -f -cs", {"layer_mapping": "m.yaml", "overflow_check": True,
                                                         "fuzzy_match": True, "complete_stack": True}),
    ("graph_visualize", "-tp A -gp B -o out -lm -oc -fm -tensor_log -progress_log --rank_size 8 8 --tp 2 2 --pp 4 4",
     {"target_path": "A", "golden_path": "B", "layer_mapping": True, "rank_size": [8, 8], "tp": [2, 2],
      "is_print_progress_log": True}),
    ("nan_analyze", "-i A -o out", {"input_path": "A", "output_path": "out"}),
    ("nan_analyze", "--input_path A --output_path out", {"input_path": "A"}),
    ("config_check", "-d a.sh b.yaml -o p.zip", {"dump": ["a.sh", "b.yaml"], "output": "p.zip"}),
    ("config_check", "-c a.zip b.zip -o out", {"compare": ["a.zip", "b.zip"]}),
    ("config_check", "-vc a b", {"verl_compare": ["a", "b"]}),
    ("config_check", "-vv w.yaml a", {"verl_verify": ["w.yaml", "a"]}),
    ("config_check", "--slime-compare a b", {"slime_compare": ["a", "b"]}),
    ("parse", "", {"dump_path": None}),
    ("parse", "-d A -t npy -o out", {"dump_path": "A", "type": "npy", "output_path": "out"}),
    ("code_mapping", "--ir g.ir --dump_data A --output out", {"ir": "g.ir", "dump_data": "A", "output": "out"}),
    ("monitor to-db", "--db out --data A --format monitor --mapping m.json --micro_step false --process_num 3",
     {"db": "out", "data": "A", "micro_step": "false", "process_num": 3}),
    ("monitor analyse", "A -o out -k 3 -s [1,2]", {"out_path": "out", "topk": 3, "step": "[1,2]"}),
]  # fmt: skip


@for_each(("name", "line", "understood"), LINES)
def test_a_published_command_line_is_understood(name: str, line: str, understood: dict[str, Any]) -> None:
    found = vars(commands.parser_of(commands.COMMANDS[name]).parse(line.split(), intermixed=True))
    assert {key: found[key] for key in understood} == understood


@pytest.mark.parametrize("name", ["acc_check", "multi_acc_check", "overflow_check", "data2db"])
def test_a_published_name_is_one_of_a_command(name: str) -> None:
    assert commands.ALIASES[name] in commands.COMMANDS
