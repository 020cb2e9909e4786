from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.graph_dumps import BACKWARD_LINES, BUILT, DUMPED, FORWARD_LINES, LOOP_LINES, program_line

from msprobe.diagnose.code_mapping.code_stacks import EMPTY, CodeStacks
from msprobe.diagnose.code_mapping.ir_text import IrGraph, read_ir
from msprobe.diagnose.code_mapping.kernel_lookup import KernelLookup


def lookup(*scopes: str, without: Sequence[int] = (), graph: int | None = None) -> KernelLookup:
    """Of a graph whose n-th node, from 0, has the source line ``In file n``; those of ``without`` have none."""
    stacks = CodeStacks()
    code = [EMPTY if number in without else stacks.push(EMPTY, b"In file %d" % number) for number in range(len(scopes))]
    return KernelLookup(IrGraph(Path("graph.ir"), stacks, list(scopes), code, graph))


def places(graph: KernelLookup, *names: str) -> list[int | None]:
    """Which node each of the names is."""
    found = graph.find(names)
    return [int(found[name].text().removeprefix("In file ")) if name in found else None for name in names]


@pytest.mark.parametrize("texts", [BUILT, DUMPED])
def test_kernels_of_a_real_dump_have_their_lines_in_either_text(texts: Path) -> None:
    for number, wanted in {0: FORWARD_LINES | BACKWARD_LINES, **LOOP_LINES}.items():
        (file,) = [*texts.glob(f"graph_build_{number}_*.ir"), *texts.glob(f"ms_output_trace_code_graph_{number}.ir")]
        found = KernelLookup(read_ir(file)).find(wanted)
        assert {name: program_line(code.text()) for name, code in found.items()} == wanted


def test_an_equal_name_goes_before_all() -> None:
    graph = lookup("Default/Add-op1", "Default/net/Add-op10", "Default/net/Add-op1", "Default/net/Add-op0")
    assert places(graph, "Default_net_Add-op1", "Default_net_Add-op10", "Default_Add-op1") == [2, 1, 0]


def test_a_number_never_answers_for_a_longer_one() -> None:
    graph = lookup("Default/net/Add-op0", "Default/net/Add-op1")
    assert places(graph, "Default_net_Add-op10", "Default_net_Add-op11") == [None, None]
    assert places(graph, "Default_net_Add-op10", "Default_net_Add-op1") == [None, 1]
    assert places(graph, "Default_net_Add-op1_x", "Default_net_Add-op10_x") == [1, None]


def test_a_name_with_more_behind_or_before_it_is_found_in_whole_words() -> None:
    graph = lookup("Default/net/MatMul-op1", "Default/net/MatMul-op12", "net/MatMul-op1")
    assert places(graph, "Default_net_MatMul-op12_TransData") == [1]
    assert places(graph, "Kernel_Default_net_MatMul-op1") == [0]
    assert places(graph, "Default_net_MatMul-op1x", "xDefault_net_MatMul-op1x") == [None, None]


def test_the_forward_kernel_never_answers_for_a_gradient() -> None:
    graph = lookup("Default/net/Add-op0")
    assert places(graph, "Gradients_Default_net_Add-op0", "Default_net_Add-op0") == [None, 0]


def test_kernels_that_were_counted_anew_are_told_by_their_order() -> None:
    graph = lookup("Default/AddN-op2", "Default/AddN-op3", "Default/Add-op0", "Default/Add-op1", "Default/Tanh-op7")
    names = ["Default_AddN-op1", "Default_AddN-op0", "Default_Add-op1", "Default_Tanh-op0"]
    assert places(graph, *names) == [1, 0, 3, 4]


def test_the_order_of_the_text_counts_and_not_the_old_number() -> None:
    graph = lookup("Default/AddN-op2", "Default/AddN-op0", "Default/Tanh-op1")
    assert places(graph, "Default_AddN-op0", "Default_AddN-op1", "Default_Tanh-op0") == [0, 1, 2]


def test_numbers_that_the_text_knows_are_taken_as_they_are() -> None:
    graph = lookup("Default/AddN-op2", "Default/AddN-op0", "Default/Tanh-op7")
    assert places(graph, "Default_AddN-op0", "Default_AddN-op2", "Default_Tanh-op7") == [1, 0, 2]


def test_numbers_go_on_from_graph_to_graph() -> None:
    scopes = ["Default/Tanh-op0", "Default/Tanh-op1"]
    assert places(lookup(*scopes, graph=3), "Default_Tanh-op10", "Default_Tanh-op9") == [1, 0]
    assert places(lookup(*scopes, graph=3), "Default_Tanh-op10", "Default_Tanh-op8") == [None, None]
    assert places(lookup(*scopes, graph=0), "Default_Tanh-op10", "Default_Tanh-op9") == [None, None]


def test_no_node_is_better_than_a_guess() -> None:
    graph = lookup("Default/Tanh-op4", "Default/Tanh-op5", "Default/Tanh-op6", "Default/Sin-op3")
    assert places(graph, "Default_Tanh-op5", "Default_Tanh-op17", "Default_Sin-op0") == [None, None, 3]


def test_of_several_nodes_of_one_name_the_first_with_lines_answers() -> None:
    same = ["Default/Tanh-op0"] * 3
    assert places(lookup(*same), "Default_Tanh-op0") == [0]
    assert places(lookup(*same, without=[0]), "Default_Tanh-op0") == [1]


def test_a_point_in_the_name_of_a_cell_may_be_a_separator_in_the_dump() -> None:
    graph = lookup("Default/a_b/Add-op0", "Default/a.b/Add-op0", "Default/a.c/Add-op0")
    assert places(graph, "Default_a_b_Add-op0", "Default_a.b_Add-op0", "Default_a_c_Add-op0") == [0, 1, 2]


def test_a_text_of_an_early_pass_gives_the_lines_that_a_cell_has_in_common() -> None:
    stacks = CodeStacks()
    outer = stacks.push(EMPTY, b"In file outer")
    below = stacks.push(outer, b"Corresponding forward node candidate:")
    one, other = stacks.push(below, b"In file one"), stacks.push(below, b"In file other")
    scopes = ["Default/net-Net", "Default/net-Net", "Default/net-Net", "Default/net-Net/fc-Dense", "0"]
    graph = KernelLookup(IrGraph(Path("graph.ir"), stacks, scopes, [one, EMPTY, other, other, one]))
    assert not graph.names_kernels
    deep = "Default_net-Net_fc-Dense_MatMul-op0"
    assert graph.find([deep])[deep].text().splitlines()[-1] == "In file other"
    found = graph.find(["Default_net-Net_Add-op0", deep, "a_0_b"])
    assert {name: (code.scope, code.text()) for name, code in found.items()} == {
        "Default_net-Net_Add-op0": ("Default/net-Net", "In file outer"),
        "Default_net-Net_fc-Dense_MatMul-op0": ("Default/net-Net/fc-Dense", graph.find([deep])[deep].text()),
    }


NAME = st.lists(
    st.sampled_from(["Default", "Gradients", "net", "", "Add-op", "Add-op0", "Add-op1", "1", "x"]), max_size=6
)


@given(st.lists(NAME, max_size=8), st.lists(NAME, max_size=8))
def test_every_answer_is_a_node_of_the_name_or_of_a_part_of_it(scopes: list[list[str]], names: list[list[str]]) -> None:
    graph = lookup(*map("/".join, scopes))
    wanted = ["_".join(name) for name in names]
    found = graph.find(wanted)
    for name, code in found.items():
        family = code.scope.replace("/", "_").rpartition("-op")[0] or code.scope.replace("/", "_")
        assert name in wanted
        assert family in name
    for name in wanted:
        if name in {"_".join(scope) for scope in scopes} and "-op" in name[-4:] and name[-1].isdigit():
            assert name in found or any(other.rpartition("-op")[0] == name.rpartition("-op")[0] for other in wanted)


def test_names_that_are_nothing_but_separators_or_numbers_take_no_time() -> None:
    graph = lookup("Default/net/Add-op0")
    names = ["_" * 250, "_" * 1_000_000, "a_" * 2_000 + "op0", *(f"{number}" + "_-op0" * 800 for number in range(50))]
    began = time.process_time()
    assert places(graph, *names) == [None] * len(names)
    assert time.process_time() - began < 1
