"""Call stacks: kept once for each place, written as stack.json has them, free of msprobe's and hidden frames."""

from __future__ import annotations

import gc
import sys
import types
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from msprobe.capture import stacks
from msprobe.capture.stacks import CallStack, CallStacks


def stacks_with(
    framework: Callable[[str], bool] = lambda file: False,
    recompute: Callable[[types.CodeType], bool] = lambda code: False,
    hidden: Callable[[types.CodeType], bool] = lambda code: False,
) -> CallStacks:
    return CallStacks(framework, recompute, hidden)


def make(text: str, file: str, **names: Any) -> Any:
    """The function ``f`` of a program in ``file``."""
    space: dict[str, Any] = dict(names)
    exec(compile(text, file, "exec"), space)
    return space["f"]


def test_one_place_has_one_stack() -> None:
    known = stacks_with()
    found = {known.here() for _ in range(3)}
    assert len(found) == 1
    (stack,) = found
    assert stack.source == f"{__file__}:{sys._getframe().f_lineno - 3}"


def test_two_calls_in_one_line_are_two_places() -> None:
    known = stacks_with()
    first, second = known.here(), known.here()
    assert first is not second
    assert first.lines() == second.lines()


def test_one_function_called_from_two_places() -> None:
    known = stacks_with()

    def call() -> CallStack:
        return known.here()

    found = [call(), call()]
    assert found[0] is not found[1]
    assert found[0].source == found[1].source


def test_one_place_has_one_stack_on_whichever_road_the_recorder_was_reached() -> None:
    known = stacks_with()
    own = str(Path(stacks.__file__).parent / "torch" / "calls.py")
    roads = [make("def f():\n    return here()", own, here=known.here)]
    roads.append(make("def f():\n    return road()", own, road=roads[0]))
    user = make("def f(road):\n    return road()", "/home/train.py")
    first, second = [user(road) for road in roads]  # one instruction of this test, too
    assert first is second
    assert first.lines()[0].startswith("File /home/train.py, line 2, in f, ")


def test_frames_are_written_innermost_first_with_their_lines(tmp_path: Path) -> None:
    known = stacks_with()
    file = tmp_path / "program.py"
    text = "def inner():\n    return here()\n\ndef f():\n    x = 1\n    return inner()\n"
    file.write_text(text)
    lines = make(text, str(file), here=known.here)().lines()
    assert lines[0] == f"File {file}, line 2, in inner, \n return here()"
    assert lines[1] == f"File {file}, line 6, in f, \n return inner()"
    assert f"File {__file__}, line " in lines[2]


def test_code_without_a_file_has_no_source_line() -> None:
    known = stacks_with()
    (first, *_) = make("def f():\n    return here()", "<made up>", here=known.here)().lines()
    assert first == "File <made up>, line 2, in f, \n unknown"


def test_a_call_over_several_lines_has_a_line_of_it() -> None:
    known = stacks_with()
    begin = sys._getframe().f_lineno
    stack = known.here(
        # not here
    )
    assert stack.source in {f"{__file__}:{begin + n}" for n in (1, 2, 3)}


def test_the_source_is_the_innermost_frame_of_the_user() -> None:
    known = stacks_with(framework=lambda file: file.startswith("/framework/"))
    text = "def f():\n    return here()"
    inside = make(text, "/framework/functional.py", here=known.here)
    user = make("def f():\n\n    return inside()", "/home/train.py", inside=inside)
    outer = make("def f():\n    return user()", "/home/main.py", user=user)
    stack = outer()
    assert stack.source == "/home/train.py:3"
    assert stack.lines()[0].startswith("File /framework/functional.py, line 2, in f, ")


def test_a_stack_of_framework_frames_only_has_no_source() -> None:
    assert stacks_with(framework=lambda file: True).here().source == ""


def test_own_and_hidden_frames_are_not_there() -> None:
    own = str(Path(stacks.__file__).parent / "torch" / "calls.py")
    known = stacks_with(hidden=lambda code: code.co_name == "way_in")
    ours = make("def f():\n    return here()", own, here=known.here)
    way_in = make("def way_in():\n    return ours()\nf = way_in", "/framework/overrides.py", ours=ours)
    user = make("def f():\n    return way_in()", "/home/train.py", way_in=way_in)
    stack = user()
    assert stack.lines()[0] == "File /home/train.py, line 2, in f, \n unknown"
    assert stack.source == "/home/train.py:2"
    assert not any(own in line or "way_in," in line for line in stack.lines())


def test_recomputation_is_seen_anywhere_above() -> None:
    known = stacks_with(recompute=lambda code: code.co_name == "recompute_fn")

    def call() -> CallStack:
        return known.here()

    def recompute_fn() -> CallStack:
        return call()

    assert not call().recompute
    assert recompute_fn().recompute
    assert not call().recompute


def test_recursion_of_another_depth_is_another_stack() -> None:
    known = stacks_with()

    def down(depth: int) -> CallStack:
        return known.here() if depth == 0 else down(depth - 1)

    found = [down(n % 3) for n in range(9)]
    assert len(set(found)) == 9 // 3
    assert [len(stack.lines()) - len(found[0].lines()) for stack in found[:3]] == [0, 1, 2]
    assert [stack.depth - found[0].depth for stack in found[:3]] == [0, 1, 2]


def test_code_made_anew_is_never_taken_for_code_that_is_gone() -> None:
    """The key holds addresses; a new function must not get the stack of one that was freed from its address."""
    known = stacks_with()
    for number in range(300):
        function = make(f"def f():\n    return here()  # {number}", f"/made/{number}.py", here=known.here)
        assert function().source == f"/made/{number}.py:2"
        del function
        gc.collect(0)


def test_stacks_are_not_kept_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stacks, "_MOST_STACKS", 20)
    known = stacks_with()
    functions = []
    for number in range(50):
        function = make("def f():\n    return here()", f"/made/{number}.py", here=known.here)
        function()
        functions.append(weakref.ref(function.__code__))
    del function
    gc.collect()
    assert len(known.known) <= 21
    assert sum(reference() is not None for reference in functions) <= 21


def test_no_frame_is_kept() -> None:
    """A frame would keep its local variables, and so tensors, alive."""
    known = stacks_with()

    class Large:
        pass

    def work() -> weakref.ref[Large]:
        large = Large()
        known.here().lines()
        return weakref.ref(large)

    assert work()() is None
