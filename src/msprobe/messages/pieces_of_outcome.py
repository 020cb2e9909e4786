"""Pieces of what is said when a recording ends: which steps and ranks are there, how many records."""

from __future__ import annotations

from msprobe.messages.entry import Piece

# fmt: off
PIECES: tuple[Piece, ...] = (
    Piece(
        "program-of-one-process", "",
        "is a single process, which is rank 0",
        "是单个进程，即 rank 0",
    ),
    Piece(
        "program-of-ranks", "last",
        "has the ranks 0 to {last}",
        "的 rank 为 0 到 {last}",
    ),
    Piece(
        "records-with-overwritten", "",
        " with those that were overwritten",
        "（含被覆盖的记录）",
    ),
    Piece(
        "no-overflow-in-dump", "",
        "; no overflow was found",
        "；没有发现溢出",
    ),
    Piece(
        "no-failure-in-dump", "",
        "; nothing failed",
        "；没有失败",
    ),
    Piece(
        "steps-of-earlier-runs", "steps",
        "; the folder still has {steps} of earlier runs",
        "；文件夹中还有此前运行的 {steps}",
    ),
    Piece(
        "failed-steps-readable", "steps records",
        "; {steps} failed, {records} of it can be read",
        "；{steps} 失败，其中{records}可读",
    ),
    Piece(
        "failed-steps-lost", "steps",
        "; {steps} failed, nothing of it can be read",
        "；{steps} 失败，没有可读的内容",
    ),
    Piece(
        "tensor-files-missing", "steps",
        "; tensor files of {steps} are missing",
        "；缺少 {steps} 的张量文件",
    ),
    Piece(
        "error-above-says", "text",
        "{text} (an error above says why)",
        "{text}（原因见上面的错误）",
    ),
    Piece(
        "start-raised", "",
        "start() raised an error, which says what to do",
        "start() 抛出了错误，其中说明了处理方法",
    ),
    Piece(
        "never-saved", "",
        "level debug records the values that save() gets, and save() was not called",
        "level debug 采集传给 save() 的值，而 save() 没有被调用",
    ),
    Piece(
        "never-started", "",
        "start() was never called",
        "start() 没有被调用",
    ),
    Piece(
        "no-step-recorded", "",
        "no step was recorded",
        "没有采集到 step",
    ),
    Piece(
        "one-number-of", "what number",
        "{what} {number}",
        "{what} {number}",
    ),
    Piece(
        "several-numbers-of", "what numbers",
        "{what}s {numbers}",
        "{what} {numbers}",
    ),
    Piece(
        "numbers-from-to", "first last",
        "{first} to {last}",
        "{first} 到 {last}",
    ),
    Piece(
        "numbers-and-more", "numbers more last",
        "{numbers}, {more} more and {last}",
        "{numbers}，另有 {more} 个，以及 {last}",
    ),
    Piece(
        "one-of-steps", "",
        "1 step",
        "1 个 step",
    ),
    Piece(
        "several-steps", "count",
        "{count} steps",
        "{count} 个 step",
    ),
    Piece(
        "one-record", "",
        "1 record",
        "1 条记录",
    ),
    Piece(
        "several-records", "count",
        "{count} records",
        "{count} 条记录",
    ),
    Piece(
        "one-overflow", "",
        "1 overflow was",
        "1 处溢出",
    ),
    Piece(
        "several-overflows", "count",
        "{count} overflows were",
        "{count} 处溢出",
    ),
    Piece(
        "one-script", "",
        "1 Python script",
        "1 个 Python 脚本",
    ),
    Piece(
        "several-scripts", "count",
        "{count} Python scripts",
        "{count} 个 Python 脚本",
    ),
    Piece(
        "step-of-rank", "step rank",
        "step {step} of rank {rank}",
        "rank {rank} 的 step {step}",
    ),
    Piece(
        "switched-on", "",
        "on",
        "开启",
    ),
    Piece(
        "switched-off", "",
        "off",
        "关闭",
    ),
    Piece(
        "attribute-missing", "",
        "has no attribute",
        "没有属性",
    ),
    Piece(
        "attribute-not-callable", "",
        "cannot be called:",
        "不能调用：",
    ),
    Piece(
        "torch-module-allowed", "",
        "a torch.nn.Module, or a list or tuple of them",
        "torch.nn.Module，或由它们组成的 list、tuple",
    ),
    Piece(
        "cell-allowed", "kind",
        "a {kind}, or a list or tuple of them",
        "{kind}，或由它们组成的 list、tuple",
    ),
    Piece(
        "the-class", "name",
        "the class {name}",
        "类 {name}",
    ),
    Piece(
        "no-such-wants", "found what",
        "{found!r} is no {what}",
        "{found!r} 不是 {what}",
    ),
)
