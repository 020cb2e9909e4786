"""What scripts and notebooks ask for that there is not (T1)."""

from __future__ import annotations

from msprobe.messages.entry import Message, Piece

# fmt: off
MESSAGES: tuple[Message, ...] = (
    Message(
        "T101", "step-no-whole-number", "error:input", "found kind",
        "step must be a whole number, found {found!r} ({kind}).",
        "step 必须是整数，实际为 {found!r}（{kind}）。", severity="error",
    ),
    Message(
        "T102", "no-step-and-rank-in-common", "error:input", "",
        "the two runs have no step and rank in common, so no calls are paired.",
        "两次运行没有共同的 step 与 rank，因此没有成对的调用。", severity="error",
    ),
    Message(
        "T103", "place-not-in-common", "error:input", "wanted there",
        "the two runs have no {wanted} in common; they have {there}.",
        "两次运行没有共同的 {wanted}；共同的有 {there}。", severity="error",
    ),
    Message(
        "T104", "columns-of-different-lengths", "error:input", "",
        "the columns of a table must have the same length.",
        "一张表的各列长度必须相同。", severity="error",
    ),
    Message(
        "T105", "column-unknown", "error:input", "unknown columns",
        "this table has no column {unknown}; it has {columns}.",
        "该表没有列 {unknown}；有 {columns}。", severity="error",
    ),
    Message(
        "T106", "table-needs-package", "error:input", "package",
        "this table needs {package}, which is not installed: pip install {package}. Without it, .rows gives plain dicts.",
        "该表需要 {package}，但未安装：pip install {package}。没有它时，.rows 给出普通字典。", severity="error",
    ),
    Message(
        "T107", "checks-must-be-a-list", "error:input", "argument found",
        "{argument} must be a list of names of checks, found {found!r}.",
        "{argument} 必须是检查项名称的列表，实际为 {found!r}。", severity="error",
    ),
    Message(
        "T108", "checks-unknown", "error:input", "unknown known",
        "no check {unknown}; the checks are {known}.",
        "没有检查项 {unknown}；检查项有 {known}。", severity="error",
    ),
    Message(
        "T109", "checks-all-skipped", "error:input", "",
        "only and skip leave no check; name others.",
        "only 与 skip 没有留下任何检查项；请指定其他的。", severity="error",
    ),
    Message(
        "T110", "tensor-not-in-record", "error:input", "record slot slots",
        "{record} has no tensor {slot!r}; it has {slots}.",
        "{record} 没有张量 {slot!r}；有 {slots}。", severity="error",
    ),
    Message(
        "T111", "record-not-in-part", "error:input", "record part meant",
        "no record {record!r} in {part}{meant}",
        "{part} 中没有记录 {record!r}{meant}", severity="error",
    ),
    Message(
        "T112", "no-place-of-run", "error:input", "place",
        "{place!r} is no place; give a step, or a step and a rank.",
        "{place!r} 不是位置；请给出 step，或 step 与 rank。", severity="error",
    ),
    Message(
        "T113", "column-not-in-table", "error:input", "column columns",
        "no column {column!r} in this table; it has {columns}.",
        "该表没有列 {column!r}；有 {columns}。", severity="error",
    ),
)

PIECES: tuple[Piece, ...] = (
    Piece("none-of-them", "", "none", "无"),
    Piece("and-more-places", "listed count", "{listed}; and {count} more", "{listed}；另有 {count} 个"),
)
