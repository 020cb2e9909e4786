from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from msprobe.diagnose.code_mapping.code_stacks import EMPTY, CodeStacks

STACK = st.lists(st.sampled_from([b"In file a", b"In file b", b"heading", b""]), max_size=6)


def push_all(stacks: CodeStacks, lines: list[bytes]) -> int:
    stack = EMPTY
    for line in lines:
        stack = stacks.push(stack, line)
    return stack


@given(st.lists(STACK, max_size=8))
def test_a_stack_gives_back_its_lines_whatever_others_there_are(all_lines: list[list[bytes]]) -> None:
    stacks = CodeStacks()
    numbers = [push_all(stacks, lines) for lines in all_lines]
    for lines, number in zip(all_lines, numbers, strict=True):
        assert stacks.lines(number) == lines
        assert push_all(stacks, lines) == number
        assert stacks.text(number) == b"\n".join(lines).decode()


@given(STACK, STACK)
def test_what_two_stacks_have_in_common_is_their_longest_equal_beginning(one: list[bytes], other: list[bytes]) -> None:
    stacks = CodeStacks()
    equal = 0
    while equal < min(len(one), len(other)) and one[equal] == other[equal]:
        equal += 1
    assert stacks.lines(stacks.common(push_all(stacks, one), push_all(stacks, other))) == one[:equal]


def test_a_heading_without_source_below_it_is_cut_off() -> None:
    stacks = CodeStacks()
    source = push_all(stacks, [b"heading", b"In file a"])
    assert stacks.to_source(push_all(stacks, [b"heading", b"In file a", b"heading"])) == source
    assert stacks.to_source(source) == source
    assert stacks.to_source(push_all(stacks, [b"heading"])) == EMPTY


def test_equal_beginnings_are_held_once() -> None:
    stacks = CodeStacks()
    for last in range(1000):
        push_all(stacks, [*(b"In file %d" % depth for depth in range(30)), b"In file x%d" % last])
    assert len(stacks) == 1 + 30 + 1000
