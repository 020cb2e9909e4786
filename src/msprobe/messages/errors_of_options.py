"""Options that are wrong, whatever the command (U3)."""

from __future__ import annotations

from msprobe.messages.entry import Message, Piece

# fmt: off
MESSAGES: tuple[Message, ...] = (
    Message(
        "U301", "option-unknown", "error:usage", "option",
        "there is no option {option!r}",
        "没有选项 {option!r}", severity="error",
    ),
    Message(
        "U302", "option-wrong", "error:usage", "option problem",
        "argument {option}: {problem}",
        "参数 {option}：{problem}", severity="error",
    ),
    Message(
        "U303", "one-argument-too-many", "error:usage", "argument",
        "{argument!r} is one argument too many",
        "多了一个参数 {argument!r}", severity="error",
    ),
    Message(
        "U304", "arguments-required", "error:usage", "arguments",
        "the following arguments are required: {arguments}",
        "缺少以下参数：{arguments}", severity="error",
    ),
    Message(
        "U305", "one-argument-required", "error:usage", "arguments",
        "one of the arguments {arguments} is required",
        "必须给出以下参数之一：{arguments}", severity="error",
    ),
    Message(
        "U306", "option-unused", "error:usage", "options why them",
        "{options}: {why}; leave {them} out.",
        "{options}：{why}；请去掉{them}。", severity="error",
    ),
    Message(
        "U307", "path-in-object-storage", "error:files", "url",
        '"{url}" is no folder of this machine: copy it with `msprobe collect {url} -o DIR`, or mount it.',
        '"{url}" 不是本机的文件夹：请用 `msprobe collect {url} -o DIR` 复制，或挂载它。', severity="error",
    ),
    Message(
        "U308", "input-cannot-be-read", "error:files", "problem",
        "an input cannot be read: {problem}. Leave it out, or show with --debug where it was met.",
        "有一个输入无法读取：{problem}。请去掉它，或用 --debug 查看在何处遇到。", severity="error",
    ),
    Message(
        "U309", "output-not-printed", "error:files", "reason",
        "what the command prints cannot be written: {reason}. Send it to a file or a terminal that takes it.",
        "命令打印的内容无法写出：{reason}。请输出到可写的文件或终端。", severity="error",
    ),
    Message(
        "U310", "system-refuses-path", "error:files", "path reason",
        'the system refuses "{path}": {reason}. --debug shows where it was met.',
        '系统拒绝访问 "{path}"：{reason}。用 --debug 查看在何处遇到。', severity="error",
    ),
    Message(
        "U311", "system-refuses", "error:files", "reason",
        "the system refuses to go on: {reason}. --debug shows where it was met.",
        "系统拒绝继续执行：{reason}。用 --debug 查看在何处遇到。", severity="error",
    ),
)

PIECES: tuple[Piece, ...] = (
    Piece("did-you-mean-word", "meant", "did you mean {meant!r}?", "是否为 {meant!r}？"),
    Piece("it", "", "it", "它"),
    Piece("them", "", "them", "它们"),
    Piece("one-value-expected", "", "expected one argument", "需要一个值"),
    Piece("one-value-at-most", "", "expected at most one argument", "最多一个值"),
    Piece("one-value-at-least", "", "expected at least one argument", "至少需要一个值"),
    Piece("values-expected", "count", "expected {count} arguments", "需要 {count} 个值"),
    Piece("option-excluded-by", "option", "not allowed with argument {option}", "不能与参数 {option} 同时使用"),
    Piece("option-takes-no-value", "value", "takes no value, found {value}", "不带值，实际为 {value}"),
    Piece("value-not-allowed", "value allowed", "{value!r} is none of {allowed}", "{value!r} 不在 {allowed} 之中"),
    Piece("value-of-wrong-type", "value kind", "{value!r} is not {kind}", "{value!r} 不是{kind}"),
    Piece("a-whole-number", "", "a whole number", "整数"),
    Piece("a-number", "", "a number", "数"),
    Piece(
        "seconds-wanted", "most found",
        "must be seconds above 0, at most {most}, found {found}",
        "必须是大于 0 的秒数，最多 {most}，实际为 {found}",
    ),
    Piece(
        "finding-number-wanted", "found",
        "{found!r} is no finding; give a whole number from 1",
        "{found!r} 不是问题项编号；请给出从 1 开始的整数",
    ),
    Piece("step-wanted", "found", "{found!r} is no step; give a whole number from 0", "{found!r} 不是 step；请给出从 0 开始的整数"),
    Piece("number-above-0-wanted", "found", "must be a number above 0, found {found}", "必须是大于 0 的数，实际为 {found}"),
    Piece("these-are", "names", "these are {names}.", "有 {names}。"),
    Piece("the-commands-are", "names", "the commands are {names}.", "命令有 {names}。"),
    Piece("help-lists-commands", "", "`msprobe help` lists them.", "`msprobe help` 会列出所有命令。"),
    Piece("explain-lists-codes", "", "`msprobe explain --list` lists all.", "`msprobe explain --list` 会列出全部。"),
    Piece("not-in-memory", "", "it does not fit into the memory of this process", "本进程的内存放不下它"),
    Piece(
        "number-or-text-too-large", "problem",
        "it has a number or a text that nothing here can hold ({problem})",
        "其中有此处无法容纳的数或文本（{problem}）",
    ),
)
