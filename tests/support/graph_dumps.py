"""A kernel dump of two MindSpore networks as MindSpore 2.10 left it, and the texts of their graphs."""

from __future__ import annotations

from pathlib import Path

DATA = Path(__file__).parents[1] / "data" / "code_mapping"
# What MS_DEV_SAVE_GRAPHS leaves, and what the dump itself leaves: the numbers of kernels differ.
BUILT = DATA / "graphs"
DUMPED = DATA / "dump_graphs"
TRAINING = BUILT / "graph_build_0_0095.ir"

PROGRAM = "/home/user/program.py"

# Kernel -> line of the program, read off the program itself.
FORWARD_LINES = {
    "Default_network-Net_fc1-Dense_MatMul-op0": 16,
    "Default_network-Net_fc1-Dense_BiasAdd-op0": 16,
    "Default_network-Net_Tanh-op0": 16,
    "Default_network-Net_Sin-op0": 19,
    "Default_network-Net_Mul-op0": 17,
    "Default_network-Net_fc2-Dense_MatMul-op0": 21,
    "Default_network-Net_fc2-Dense_BiasAdd-op0": 21,
    "Default_network-Net_Add-op0": 21,
    "Expand__SumExt_ReduceSum-op0": 22,
}
BACKWARD_LINES = {
    "Gradients_Default_network-Net_Grad_Tanh_TanhGrad-op0": 16,
    "Gradients_Default_network-Net_Grad_Sin_Cos-op0": 19,
    "Gradients_Default_network-Net_Grad_Sin_Mul-op0": 19,
    "Gradients_Default_network-Net_Grad_Mul_Mul-op0": 17,
    "Gradients_Default_network-Net_Grad_Mul_Mul-op1": 17,
}
# The graphs of the loop: graph -> kernel -> line. In graph 5 runs line 34, but MindSpore writes into the text where a
# function was called first.
LOOP_LINES = {
    1: {"Default_Tanh-op0": 31},
    2: {"Expand__SumExt_ReduceSum-op1": 32, "Default_Greater-op0": 32},
    3: {"Default_fc-Dense_MatMul-op0": 33, "Default_fc-Dense_BiasAdd-op0": 33, "Default_Sub-op0": 33},
    5: {"Default_fc-Dense_MatMul-op1": 33, "Default_fc-Dense_BiasAdd-op1": 33, "Default_Tanh-op1": 31},
}


def make_dump(folder: Path) -> Path:
    """The files of the dump, empty: a mapping reads their names only."""
    dump = folder / "dump"
    for name in (DATA / "dump_files.txt").read_text().splitlines():
        (dump / name).parent.mkdir(parents=True, exist_ok=True)
        (dump / name).touch()
    return dump


def program_line(code: str, program: str = PROGRAM) -> int:
    """The innermost line of the program in a stack of code; 0 if there is none."""
    places = [line.removeprefix(f"In file {program}:") for line in code.splitlines() if program in line]
    return int(places[-1].split(",")[0].split("~")[0]) if places else 0
