"""What is wrong with a field of a file, behind its place; the message of the file has the code."""

from __future__ import annotations

from msprobe.messages.entry import Piece

# fmt: off

PIECES: tuple[Piece, ...] = (
    Piece("none-of-them", "", "none", "无"),
    Piece(
        "no-axis-of-mesh", "axis axes",
        "{axis!r} is no axis of the mesh; it has {axes}",
        "{axis!r} 不是 mesh 的轴；有 {axes}",
    ),
    Piece(
        "must-be-axis-of-mesh", "axes found",
        "must be an axis of the mesh ({axes}), found {found}",
        "必须是 mesh 的轴（{axes}），实际为 {found}",
    ),
    Piece(
        "placement-unknown", "word",
        "{word!r} is not known; write replicate, shard(0), partial or interleave(0)",
        "不认识 {word!r}；请写 replicate、shard(0)、partial 或 interleave(0)",
    ),
    Piece(
        "slot-unknown", "",
        "is not known; the slots are input, output, and one of them (output.0)",
        "不认识；可用的有 input、output，或其中之一（output.0）",
    ),
    Piece(
        "stages-not-all-listed", "count found",
        "must list the first number of each of the {count} stages, found {found}",
        "必须列出 {count} 个 stage 各自的起始编号，实际为 {found}",
    ),
    Piece("must-be-regular-expression", "problem", "is no regular expression: {problem}", "不是正则表达式：{problem}"),
    Piece(
        "replacements-wrong", "problems",
        "must name what replaces each expression, but {problems}",
        "必须给出每个表达式的替换内容，但 {problems}",
    ),
    Piece(
        "cannot-stand-for", "new pattern problem",
        "{new} cannot stand for {pattern} ({problem})",
        "{new} 不能替换 {pattern}（{problem}）",
    ),
    Piece(
        "not-in-format", "name kind problem",
        "{name} is no {kind}: {problem}",
        "{name} 不是 {kind}：{problem}",
    ),
    Piece("pattern-cannot-be-used", "problem", "cannot be used: {problem}", "无法使用：{problem}"),
)
