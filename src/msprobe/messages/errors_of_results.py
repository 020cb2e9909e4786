"""Errors of what Python programs ask of results, of the demo and of the facades (A5)."""

from __future__ import annotations

from msprobe.messages.entry import Message

# fmt: off
MESSAGES: tuple[Message, ...] = (
    Message(
        "A501", "demo-needs-torch", "error:input", "advice",
        "`msprobe demo` trains with PyTorch, which is not installed: {advice}.",
        "`msprobe demo` 用 PyTorch 训练，而它没有安装：{advice}。", severity="error",
    ),
    Message(
        "A502", "demo-folder-not-empty", "error:files", "folder",
        '"{folder}" is not an empty folder; give a new one: msprobe demo -o FOLDER.',
        '"{folder}" 不是空文件夹；请给出新的文件夹：msprobe demo -o FOLDER。', severity="error",
    ),
    Message(
        "A503", "demo-command-failed", "error:files", "command status expected",
        "`{command}` ended with status {status}, expected {expected}; its output is above.",
        "`{command}` 以状态 {status} 结束，应为 {expected}；其输出见上。", severity="error",
    ),
    Message(
        "A504", "demo-missed-line", "error:files", "findings",
        "the comparison did not name the changed line: {findings}.",
        "比对没有指出被修改的行：{findings}。", severity="error",
    ),
    Message(
        "A505", "record-without-tensor", "error:input", "record slot slots",
        "{record} has no tensor {slot!r}; it has {slots}",
        "{record} 没有张量 {slot!r}；现有 {slots}", severity="error",
    ),
    Message(
        "A506", "no-such-place", "error:input", "place",
        "{place!r} names no step; give a step, or a step and a rank",
        "{place!r} 没有指明 step；请给出 step，或 step 和 rank", severity="error",
    ),
    Message(
        "A507", "step-no-number", "error:input", "step kind",
        "step must be a whole number, found {step!r} ({kind}).",
        "step 必须是整数，实际为 {step!r}（{kind}）。", severity="error",
    ),
    Message(
        "A508", "runs-without-pairs", "error:input", "",
        "the two runs have no step and rank in common, so no calls are pairs.",
        "两次运行没有共同的 step 与 rank，因此没有成对的调用。", severity="error",
    ),
    Message(
        "A509", "place-not-in-common", "error:input", "place there more",
        "the two runs have no {place} in common; they have {there}{more}.",
        "两次运行没有共同的 {place}；共同的有 {there}{more}。", severity="error",
    ),
    Message(
        "A510", "columns-of-lengths", "error:input", "",
        "the columns of a table must have one length",
        "表的各列长度必须相同", severity="error",
    ),
    Message(
        "A511", "columns-missing", "error:input", "unknown columns",
        "this table has no column {unknown}; it has {columns}.",
        "该表没有列 {unknown}；现有 {columns}。", severity="error",
    ),
    Message(
        "A512", "column-missing", "error:input", "name columns",
        "no column {name!r} in this table; it has {columns}",
        "该表没有列 {name!r}；现有 {columns}", severity="error",
    ),
    Message(
        "A513", "table-needs-package", "error:input", "package",
        "this table needs {package}, which is not installed: pip install {package}. Without it, .rows gives plain dicts.",
        "该表需要 {package}，而它没有安装：pip install {package}。没有它时，.rows 给出普通 dict。", severity="error",
    ),
    Message(
        "A514", "names-of-checks-wrong", "error:input", "what found",
        "{what} must be a list of names of checks, found {found!r}.",
        "{what} 必须是检查项名称的列表，实际为 {found!r}。", severity="error",
    ),
    Message(
        "A515", "no-such-checks", "error:input", "unknown checks",
        "no check {unknown}; the checks are {checks}.",
        "没有检查项 {unknown}；检查项有 {checks}。", severity="error",
    ),
    Message(
        "A516", "no-check-left", "error:input", "",
        "only and skip leave no check to make; name others.",
        "only 和 skip 没有留下任何检查项；请指定其他检查项。", severity="error",
    ),
    Message(
        "A517", "one-job-without-ray", "note:recording", "",
        "There is one job only: it runs in this process, without Ray.",
        "只有一个作业：在本进程中运行，不使用 Ray。", severity="note",
    ),
    Message(
        "A518", "process-of-jobs-ended", "error:input", "how",
        "a process that ran jobs has ended ({how}), perhaps for lack of memory; use fewer jobs.",
        "运行作业的进程已结束（{how}），可能是内存不足；请减少作业数。", severity="error",
    ),
    Message(
        "A519", "mindspore-missing", "error:recording", "name",
        "msprobe.mindspore.{name} needs MindSpore: pip install mindspore 'numpy<2'.",
        "msprobe.mindspore.{name} 需要 MindSpore：pip install mindspore 'numpy<2'。", severity="error",
    ),
    Message(
        "A520", "torch-missing", "error:recording", "name",
        "msprobe.pytorch.{name} needs PyTorch, which is not installed: pip install torch.",
        "msprobe.pytorch.{name} 需要 PyTorch，而它没有安装：pip install torch。", severity="error",
    ),
    Message(
        "A521", "torch-name-not-available", "error:recording", "name work",
        "msprobe.pytorch.{name}: {work} is not available in this version.",
        "msprobe.pytorch.{name}：本版本不支持{work}。", severity="error",
    ),
    Message(
        "A522", "work-failed", "error:fault", "what kind error",
        "Could not do {what}: {kind}: {error}",
        "未能完成 {what}，{kind}：{error}", severity="error",
    ),
    Message(
        "A523", "no-such-record", "error:input", "name part near",
        "no record {name!r} in {part}{near}",
        "{part} 中没有记录 {name!r}{near}", severity="error",
    ),
)
