"""Questions of the page that cannot be answered (V2)."""

from __future__ import annotations

from msprobe.messages.entry import Message, Piece

# fmt: off
MESSAGES: tuple[Message, ...] = (
    Message(
        "V201", "question-number-wrong", "error:page", "name found",
        "{name} must be a whole number, found {found!r}.",
        "{name} 必须是整数，实际为 {found!r}。", severity="error",
    ),
    Message(
        "V202", "question-no-json", "error:page", "",
        "the question is no JSON.",
        "请求不是 JSON。", severity="error",
    ),
    Message(
        "V203", "question-no-object", "error:page", "",
        "the question must be a JSON object.",
        "请求必须是 JSON 对象。", severity="error",
    ),
    Message(
        "V204", "question-fields-wrong", "error:page", "",
        "index must be a whole number, candidate a name, reference a name or null.",
        "index 必须是整数，candidate 为名称，reference 为名称或 null。", severity="error",
    ),
    Message(
        "V205", "mistake-of-msprobe", "error:page", "kind problem",
        "view: an internal error of msprobe: {kind}: {problem}",
        "view：msprobe 内部错误：{kind}：{problem}", severity="error",
    ),
    Message(
        "V206", "row-not-there", "error:page", "row count",
        "there is no row {row}; this place has {count}.",
        "没有第 {row} 行；此处有 {count} 行。", severity="error",
    ),
    Message(
        "V207", "row-without-tensor", "error:page", "slot",
        "this row has no tensor {slot!r}.",
        "该行没有张量 {slot!r}。", severity="error",
    ),
    Message(
        "V208", "step-not-there", "error:page", "step",
        "there is no step {step}.",
        "没有 step {step}。", severity="error",
    ),
    Message(
        "V209", "place-not-there", "error:page", "place count",
        "there is no place {place}; there are {count}.",
        "没有位置 {place}；共有 {count} 个。", severity="error",
    ),
    Message(
        "V210", "values-not-on-both-sides", "error:page", "",
        'the values were not recorded on both sides: record with "task": "tensor".',
        '没有在两侧都采集数值：请以 "task": "tensor" 采集。', severity="error",
    ),
    Message(
        "V211", "tensor-file-unreadable-here", "error:page", "name",
        "the file {name} cannot be read: it is missing or broken.",
        "文件 {name} 无法读取：缺失或已损坏。", severity="error",
    ),
    Message(
        "V212", "file-changed-since", "error:page", "path what",
        '"{path}" {what} since it was opened; run msprobe view again.',
        '"{path}" 自打开后{what}；请重新运行 msprobe view。', severity="error",
    ),
    Message(
        "V213", "too-large-for-memory", "error:page", "",
        "this is too large for the memory of this machine.",
        "内容太大，本机内存放不下。", severity="error",
    ),
    Message(
        "V214", "mistake-on-console", "error:page", "kind",
        "an internal error of msprobe, {kind}; its console has the details.",
        "msprobe 内部错误 {kind}；详情见其控制台。", severity="error",
    ),
    Message(
        "V215", "question-too-slow", "error:page", "seconds",
        "the request was not received within {seconds:g} seconds.",
        "请求在 {seconds:g} 秒内没有到达。", severity="error",
    ),
    Message(
        "V216", "question-too-long", "error:page", "bytes",
        "the question has more than {bytes} bytes.",
        "请求超过 {bytes} 字节。", severity="error",
    ),
)

PIECES: tuple[Piece, ...] = (
    Piece("file-vanished", "", "vanished", "已消失"),
    Piece("file-changed", "", "changed", "已更改"),
    Piece("file-appeared", "", "appeared", "才出现"),
)
