from __future__ import annotations

import contextlib
import re
import time
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.coded_texts import raising
from support.graph_dumps import BUILT, DUMPED, FORWARD_LINES, TRAINING, program_line
from support.row_by_row import for_each

from msprobe.diagnose.code_mapping.ir_text import IrGraph, read_ir
from msprobe.errors import InvalidInputError, PathError

FOLDER = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


def read(folder: Path, text: str | bytes) -> IrGraph:
    file = folder / "graph.ir"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_ir(file)


FORWARD, INPUT = (f"Corresponding {kind} node candidate:" for kind in ("forward", "input"))


def texts(graph: IrGraph) -> dict[str, str]:
    return {scope: graph.stacks.text(code) for scope, code in zip(graph.scopes, graph.code, strict=True)}


def node(number: int, statement: str, scope: str, *lines: str) -> str:
    return "".join(
        f"{line}\n"
        for line in (
            f"  %{number}(CNode_{number}) = {statement}",
            "      : (<Tensor[Float32], (2)>) -> (<Tensor[Float32], (2)>)",
            f"      # Fullname with scope: ({scope})",
            *(f"      # {line}" for line in lines),
        )
    )


def graph_of(*nodes: str) -> str:
    return "# IR entry: @kernel_graph7\n\nsubgraph @kernel_graph7() {\n" + "".join(nodes) + "}\n"


@for_each("file", [*sorted(BUILT.glob("*.ir")), *sorted(DUMPED.glob("*.ir"))])
def test_every_node_of_a_real_graph_is_read(file: Path) -> None:
    graph = read_ir(file)
    lines = file.read_text().splitlines()
    assert len(graph.scopes) == sum("# Fullname with scope:" in line for line in lines)
    number = re.search(r"graph_(?:build_)?(\d+)", file.name)
    assert number is not None
    assert graph.number == int(number[1])
    assert graph.whole


def test_kernels_of_the_forward_pass_name_their_line_of_the_program() -> None:
    found = texts(read_ir(TRAINING))
    lines = {scope.replace("/", "_"): program_line(code) for scope, code in found.items()}
    assert {name: lines[name] for name in FORWARD_LINES} == FORWARD_LINES


def test_the_lines_of_a_node_stand_without_comment_sign_and_final_slash(tmp_path: Path) -> None:
    source = "In file a b.py:18, 12~20/        h = x / (3)  # Scope: (none)"
    text = graph_of(
        node(0, "PrimFunc_Div(%para1_x, I64(3))", "Default/Div-op0", f"{source}/", "In file c.py:1~3, 0~1/@jit/")
    )
    graph = read(tmp_path, text)
    assert texts(graph) == {"Default/Div-op0": f"{source}\nIn file c.py:1~3, 0~1/@jit"}
    assert graph.number == 7


def test_a_scope_may_have_parentheses_and_any_letters(tmp_path: Path) -> None:
    scope = "Default/net-Net(1)/层-Layer/Add-op0"
    assert read(tmp_path, graph_of(node(0, "Add(%1)", scope, "In file a.py:1, 1~1/x/"))).scopes == [scope]


def test_a_backward_node_without_lines_has_those_of_its_forward_node(tmp_path: Path) -> None:
    forward = node(
        0, 'Tanh(%para1_x) cnode_primal_attrs: {unique_id: "55"}', "Default/Tanh-op0", "In file a.py:1, 1~1/x/"
    )
    other = node(1, 'Sin(%para1_x) cnode_primal_attrs: {unique_id: "56"}', "Default/Sin-op0", "In file a.py:2, 1~1/y/")
    backward = node(2, 'TanhGrad(%1) cnode_primal_attrs: {forward_unique_id: "55"}', "Gradients/Default/TanhGrad-op0")
    for order in ([forward, other, backward], [other, backward, forward]):
        code = texts(read(tmp_path, graph_of(*order)))["Gradients/Default/TanhGrad-op0"]
        assert code == FORWARD + "\nIn file a.py:1, 1~1/x"


def test_a_recomputed_node_has_the_lines_of_the_node_that_it_repeats(tmp_path: Path) -> None:
    attributes = "cnode_attrs: {{recompute_id: I64({}), {}: Bool(1)}}"
    text = graph_of(
        node(0, f"Sin(%x) {attributes.format(7, 'recompute')}", "Default/Sin-op0", "In file a.py:1, 1~1/x/"),
        node(1, f"Tanh(%0) {attributes.format(70, 'recompute')}", "Default/Tanh-op0", "In file a.py:2, 1~1/y/"),
        node(2, f"Tanh(%0) {attributes.format(70, 'duplicated')}", "recompute_Default/Tanh-op1"),
    )
    code = texts(read(tmp_path, text))["recompute_Default/Tanh-op1"]
    assert code == FORWARD + "\nIn file a.py:2, 1~1/y"


def test_a_node_of_the_compiler_has_the_lines_of_what_goes_into_it(tmp_path: Path) -> None:
    text = graph_of(
        node(0, "Tanh(%para1_x)", "Default/Tanh-op0", "In file a.py:1, 1~1/x/", "In file a.py:2, 1~1/y/"),
        node(1, "Sin(%para1_x)", "Default/Sin-op0", "In file a.py:1, 1~1/x/", "In file a.py:3, 1~1/z/"),
        node(2, "AddN(%0, %1)", "Default/AddN-op0", "Corresponding code candidate:"),
        node(3, "Cast(%2)", "Default/Cast-op0"),
        node(4, "Load(%para1_x, U)", "Default/Load-op0"),
    )
    found = texts(read(tmp_path, text))
    lines = ["In file a.py:1, 1~1/x", "In file a.py:2, 1~1/y", "In file a.py:3, 1~1/z"]
    assert found["Default/AddN-op0"].splitlines() == [INPUT, *lines]
    assert found["Default/Cast-op0"] == found["Default/AddN-op0"]
    assert found["Default/Load-op0"] == ""


def test_what_stands_in_attributes_is_no_operand(tmp_path: Path) -> None:
    text = graph_of(
        node(0, "Tanh(%para1_x)", "Default/Tanh-op0", "In file a.py:1, 1~1/x/"),
        node(1, "Sin(%para1_x)", "Default/Sin-op0", "In file a.py:2, 1~1/y/"),
        node(2, 'Cast(%1) {instance name: cast} primitive_attrs: {format: "%0"}', "Default/Cast-op0"),
        node(3, 'Cast(%1) primitive_attrs: {format: "%0"}', "Default/Cast-op1"),
    )
    found = texts(read(tmp_path, text))
    lines = "Corresponding input node candidate:\nIn file a.py:2, 1~1/y"
    assert (found["Default/Cast-op0"], found["Default/Cast-op1"]) == (lines, lines)


def test_of_two_scopes_of_a_node_the_first_counts(tmp_path: Path) -> None:
    text = graph_of(node(0, "Tanh(%para1_x)", "Default/Tanh-op0", "Scope: (Default)"))
    assert read(tmp_path, text).scopes == ["Default/Tanh-op0"]


def test_the_depth_of_a_stack_has_an_end(tmp_path: Path) -> None:
    lines = [f"In file a.py:{number}, 1~1/x/" for number in range(5000)]
    (code,) = texts(read(tmp_path, graph_of(node(0, "Tanh(%x)", "Default/Tanh-op0", *lines)))).values()
    assert code.splitlines() == [line.removesuffix("/") for line in lines[:1000]]


def test_the_rest_of_a_line_that_is_too_long_is_no_line(tmp_path: Path) -> None:
    rest = b"  %1(a) = Tanh(%x)\n      # Fullname with scope: (Default/Tanh-op0)\n"
    for length in ((1 << 20) - 1, (1 << 20), (1 << 20) + 1):
        with raising(InvalidInputError, "no-graph-nodes", file=str(tmp_path / "graph.ir")):
            read(tmp_path, b"#" + b"x" * length + rest)


def test_names_of_operands_are_those_of_their_own_graph(tmp_path: Path) -> None:
    first = node(0, "Tanh(%para1_x)", "Default/Tanh-op0", "In file a.py:1, 1~1/x/")
    second = node(1, "Cast(%0)", "Default/Cast-op0")
    text = f"subgraph @a() {{\n{first}}}\nsubgraph @b() {{\n{second}}}\n"
    assert texts(read(tmp_path, text))["Default/Cast-op0"] == ""


def test_comments_around_the_nodes_are_not_theirs(tmp_path: Path) -> None:
    around = "# In file b.py:9, 0~1/def f():/\n"
    text = f"{around}subgraph @a() {{\n{node(0, 'Tanh(%x)', 'Default/Tanh-op0')}}}\n# Order:\n{around}"
    assert texts(read(tmp_path, text)) == {"Default/Tanh-op0": ""}


def test_a_text_that_is_cut_off_says_so_and_keeps_what_is_there(tmp_path: Path) -> None:
    whole = TRAINING.read_bytes()
    full = texts(read_ir(TRAINING))
    graph = read(tmp_path, whole[: len(whole) * 2 // 3])
    assert not graph.whole
    cut = texts(graph)
    assert 10 < len(cut) < len(full)
    complete = list(cut)[:-1]
    assert {scope: cut[scope] for scope in complete} == {scope: full[scope] for scope in complete}


NO_GRAPHS = [
    b"",
    b"\n\n",
    b"import os\n\ndef main():\n    x = {1: 2}\n",
    bytes(range(256)) * 50,
    b"%PDF-1.4\n% x = (\n",
    b"# Scope: (Default/Add-op0)\n",
]


@pytest.mark.parametrize("content", NO_GRAPHS)
def test_what_is_no_graph_is_refused_in_one_line(tmp_path: Path, content: bytes) -> None:
    with raising(InvalidInputError, "no-graph-nodes") as caught:
        read(tmp_path, content)
    assert "graph.ir" in caught.value.message


def test_a_missing_file_is_an_error_of_its_path(tmp_path: Path) -> None:
    with pytest.raises(PathError, match="does not exist"):
        read_ir(tmp_path / "absent.ir")


PIECE = st.sampled_from(
    [
        *[
            line.encode() + b"\n"
            for line in node(1, "AddN(%0, %1) {x: %3}", "Default/AddN-op1", "In file a:1/b/").splitlines()
        ],
        *(
            b"  %0(a) = %0[@@x]()\n",
            b"}\n",
            b"subgraph @x() {\n",
            b"subgraph @",
            b"  %1() = Tanh(",
            b"  Return(%1)\n",
            b"#",
        ),
        *(b"(", b")", b"%", b"=", b"\n", b"      # Scope: (Default/x)\n", b"      # Scope: (", b"\xff\xfe", b"\0"),
        *(b"# IR entry: @kernel_graph99999999999999\n", b'cnode_primal_attrs: {forward_unique_id: "1"}\n'),
        *(b"      # Corresponding forward node candidate:\n", b"\r\n", b'unique_id: "1"'),
    ]
)


@FOLDER
@given(pieces=st.lists(PIECE | st.binary(max_size=20), max_size=40))
def test_no_text_makes_the_reader_fail(tmp_path: Path, pieces: list[bytes]) -> None:
    with contextlib.suppress(InvalidInputError):
        graph = read(tmp_path, b"".join(pieces))
        assert len(graph.scopes) == len(graph.code) > 0
        assert all(graph.stacks.text(code) is not None for code in graph.code)


REAL = TRAINING.read_bytes()


@settings(FOLDER, max_examples=40)
@given(begin=st.integers(0, len(REAL)), end=st.integers(0, len(REAL)), noise=st.binary(max_size=8))
def test_no_damage_to_a_real_text_makes_the_reader_fail(tmp_path: Path, begin: int, end: int, noise: bytes) -> None:
    whole = set(read_ir(TRAINING).scopes)
    with contextlib.suppress(InvalidInputError):
        graph = read(tmp_path, REAL[: min(begin, end)] + noise + REAL[max(begin, end) :])
        # One line at most is new: that where the two parts meet.
        assert len(set(graph.scopes) - whole) <= 1


@pytest.mark.parametrize(
    "text",
    [
        b"  %1(" + b"(" * 3_000_000,
        b"  %1(a)" + b" " * 3_000_000,
        b"  %1(a) = Add(" + b") " * 1_500_000,
        b"  %1(a) = Add(%2)\n      # scope" + b" " * 3_000_000,
        b"  %1(a) = Add(%2)\n      # " + b"scope " * 500_000,
        b"  %1(a) = Add(%2)\n      # scope: (" + b"(" * 3_000_000,
        b"  %1(a) = Add(" + b"%1, " * 750_000 + b")",
        b"subgraph @x() {\n" * 200_000,
    ],
    ids=range(8),
)
def test_hostile_lines_take_linear_time(tmp_path: Path, text: bytes) -> None:
    began = time.process_time()
    with raising(InvalidInputError, "no-graph-nodes", file=str(tmp_path / "graph.ir")):
        read(tmp_path, text)
    assert time.process_time() - began < 2


def copies(count: int) -> bytes:
    """The real graph many times over, as the layers of a large model would be."""
    head, body = REAL.split(b"subgraph @kernel_graph0() {\n")
    body = body.split(b"\n}\n")[0] + b"\n"
    layers = (
        body.replace(b"network-Net/", b"network-Net/%d-Layer/" % layer).replace(b"(Expand", b"(%d/Expand" % layer)
        for layer in range(count)
    )
    return head + b"subgraph @kernel_graph0() {\n" + b"".join(layers) + b"}\n"


def test_time_grows_with_the_text_and_memory_only_with_what_is_new_in_it(tmp_path: Path) -> None:
    costs = []
    for count in (20, 200):
        file = tmp_path / f"{count}.ir"
        file.write_bytes(copies(count))
        began = time.process_time()
        graph = read_ir(file)
        seconds = time.process_time() - began
        assert len(graph.scopes) == count * len(read_ir(TRAINING).scopes)
        tracemalloc.start()
        graph = read_ir(file)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        costs.append((seconds, peak, file.stat().st_size))
    (seconds, _, _), (many_seconds, many_peak, size) = costs
    assert many_seconds < 25 * max(seconds, 0.01)
    # 12 MB of text: names of nodes, and one stack for all layers.
    assert many_peak < size / 4
