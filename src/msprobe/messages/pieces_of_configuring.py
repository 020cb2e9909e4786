"""Pieces of what is said of config.json."""

from __future__ import annotations

from msprobe.messages.entry import Piece

# fmt: off
PIECES: tuple[Piece, ...] = (
    Piece(
        "path-is-blank", "",
        "the path is empty",
        "路径为空",
    ),
    Piece(
        "compression-needs-package", "command",
        "it needs the package zstandard: {command}, or use Python 3.14",
        "需要包 zstandard：{command}，或使用 Python 3.14",
    ),
    Piece(
        "list-has-elements", "count",
        "the list has {count} elements",
        "列表有 {count} 个元素",
    ),
    Piece(
        "all-stands-alone", "",
        '"all" must be the only element',
        '"all" 必须是唯一的元素',
    ),
    Piece(
        "no-such-statistic", "names",
        "no such statistic: {names}",
        "没有这种统计量：{names}",
    ),
    Piece(
        "scope-beside-list", "found",
        "found {found} together with a list; allowed: one of both, the other one []",
        "实际为 {found}，同时给出了 list；允许：二者之一，另一个为 []",
    ),
    Piece(
        "only-with-handler-fix", "",
        'found true; allowed: false, or with handler_type "fix"',
        '实际为 true；允许：false，或与 handler_type "fix" 一起使用',
    ),
    Piece(
        "found-null", "allowed",
        "found null; allowed: {allowed}; or leave it out",
        "实际为 null；允许：{allowed}；或不填",
    ),
    Piece(
        "fuzz-device-wrong", "device modes",
        'found {device} with pert_mode {modes}; allowed: fuzz_device "cpu" together with pert_mode "to_cpu" alone, and neither without the other',
        '实际为 {device}，pert_mode 为 {modes}；允许：fuzz_device "cpu" 只与单独的 pert_mode "to_cpu" 一起使用，二者缺一不可',
    ),
    Piece(
        "fix-needs-forward", "",
        'found "backward" with handler_type "fix"; allowed: "forward"',
        '实际为 "backward"，handler_type 为 "fix"；允许："forward"',
    ),
    Piece(
        "fix-modes", "found",
        'found {found} with handler_type "fix"; allowed: "improve_precision", "to_cpu"',
        '实际为 {found}，handler_type 为 "fix"；允许："improve_precision"、"to_cpu"',
    ),
    Piece(
        "fix-without-preheat", "",
        'found true with handler_type "fix"; allowed: false',
        '实际为 true，handler_type 为 "fix"；允许：false',
    ),
    Piece(
        "json-depth", "limit",
        "at most {limit} nested brackets",
        "至多 {limit} 层括号",
    ),
    Piece(
        "json-closing-bracket", "bracket line column",
        '"{bracket}" for the bracket opened in line {line}, column {column}',
        '与第 {line} 行第 {column} 列的括号对应的 "{bracket}"',
    ),
    Piece(
        "json-comma-or-bracket", "bracket line column",
        '"," or "{bracket}" (bracket opened in line {line}, column {column})',
        '"," 或 "{bracket}"（括号始于第 {line} 行第 {column} 列）',
    ),
    Piece(
        "json-closing-quote", "",
        'a closing " for this text',
        '该文本的结束引号 "',
    ),
    Piece(
        "json-closing-quote-in-line", "",
        'a closing " in the same line; a line break or tab inside a text is written \\n or \\t',
        '同一行中的结束引号 "；文本内的换行或制表符写作 \\n 或 \\t',
    ),
    Piece(
        "json-escapes", "",
        'one of the escapes \\" \\\\ \\/ \\b \\f \\n \\r \\t \\uXXXX',
        '转义 \\" \\\\ \\/ \\b \\f \\n \\r \\t \\uXXXX 之一',
    ),
    Piece(
        "json-endless-text", "",
        "a text that never ends",
        "没有结尾的文本",
    ),
    Piece(
        "json-bad-escape", "",
        "a bad escape",
        "错误的转义",
    ),
    Piece(
        "json-fewer-digits", "",
        "a number with fewer digits",
        "位数更少的数",
    ),
    Piece(
        "json-number-of-digits", "count",
        "a number of {count} digits",
        "{count} 位的数",
    ),
    Piece(
        "json-value-quoted", "",
        "a value (texts stand in double quotes)",
        "值（文本须加双引号）",
    ),
    Piece(
        "json-value", "",
        "a value",
        "值",
    ),
    Piece(
        "json-comment-end", "",
        '"*/" for this comment',
        '该注释的 "*/"',
    ),
    Piece(
        "json-endless-comment", "",
        "a comment that never ends",
        "没有结尾的注释",
    ),
    Piece(
        "json-end-of-line", "",
        "the end of the line",
        "行尾",
    ),
    Piece(
        "json-character", "code",
        "the character U+{code:04X}",
        "字符 U+{code:04X}",
    ),
    Piece(
        "json-field-name", "",
        'a field name in double quotes, or "}}"',
        '加双引号的字段名，或 "}}"',
    ),
    Piece(
        "json-colon", "name",
        '":" after the field name "{name}"',
        '字段名 "{name}" 之后的 ":"',
    ),
    Piece(
        "file-and-arguments", "file",
        "{file} and arguments",
        "{file} 及参数",
    ),
    Piece(
        "did-you-mean", "name",
        '; did you mean "{name}"?',
        '；是否指 "{name}"？',
    ),
    Piece(
        "and-more-mistakes", "count",
        "and {count} more",
        "另有 {count} 处",
    ),
    Piece(
        "argument-named", "name",
        'argument "{name}"',
        '参数 "{name}"',
    ),
    Piece(
        "field-named", "place field",
        '{place}: field "{field}"',
        '{place}：字段 "{field}"',
    ),
    Piece(
        "numbers-within-64-bits", "",
        "the numbers must be within -2^63 and 2^63 - 1",
        "数必须在 -2^63 与 2^63 - 1 之间",
    ),
    Piece(
        "numbers-must-ascend", "",
        "the numbers must ascend",
        "数必须递增",
    ),
    Piece(
        "no-such-mode", "names",
        "no such mode: {names}",
        "没有这种模式：{names}",
    ),
    Piece(
        "range-element-of-kind", "kind",
        "an element must be a whole number or a text, not {kind}",
        "元素必须是整数或文本，而不是{kind}",
    ),
    Piece(
        "range-text-wrong", "",
        'a text must be a number or two numbers with one hyphen, such as "4" or "4-6"',
        '文本必须是一个数，或用一个连字符相连的两个数，例如 "4" 或 "4-6"',
    ),
    Piece(
        "range-numbers-between", "most",
        "numbers must be between 0 and {most}",
        "数必须在 0 与 {most} 之间",
    ),
    Piece(
        "range-left-greater", "",
        "the left number must not be greater than the right one",
        "左边的数不能大于右边的数",
    ),
    Piece(
        "yaml-second-document", "",
        "it must be one document, and a second one begins here",
        "必须是单个文档，而此处开始了第二个",
    ),
    Piece(
        "yaml-levels", "limit",
        "more than {limit} levels within each other",
        "嵌套超过 {limit} 层",
    ),
    Piece(
        "yaml-tag-not-allowed", "tag",
        "the tag {tag} is not allowed; write plain texts, lists and objects",
        "不允许标签 {tag}；请写普通的文本、列表和对象",
    ),
    Piece(
        "field-of-tasks", "tasks",
        "; it is a field of task {tasks}",
        "；它是 task {tasks} 的字段",
    ),
    Piece(
        "task-has-no-field", "found task hint",
        'found {found}; task "{task}" has no such field{hint}',
        '实际为 {found}；task "{task}" 没有该字段{hint}',
    ),
    Piece(
        "reference-missing", "",
        "missing; give the path of the dump of task tensor that the training is to run against",
        "缺失；请给出训练所对照的 dump（task tensor）的路径",
    ),
    Piece(
        "dump-path-missing", "",
        "missing; give the path of the folder to write to",
        "缺失；请给出要写入的文件夹路径",
    ),
    Piece(
        "in-section", "section",
        'in section "{section}"',
        '配置段 "{section}"',
    ),
    Piece(
        "at-top-level", "",
        "at the top level",
        "顶层",
    ),
    Piece(
        "task-not-in-version", "task tasks",
        'task "{task}" is not available in this version; choose {tasks}',
        '本版本没有 task "{task}"；请选择 {tasks}',
    ),
    Piece(
        "inputs-not-replaceable", "",
        "replacing module inputs is not available in this version; remove it",
        "本版本不支持替换模块输入；请去掉",
    ),
    Piece(
        "rows-not-recordable", "",
        "recording some rows of tensors is not available in this version: tensors are recorded whole; remove it",
        "本版本不支持采集张量的部分行：张量整体采集；请去掉",
    ),
    Piece(
        "request-not-recordable", "",
        "recording the rows of one request is not available in this version: tensors are recorded whole; remove it",
        "本版本不支持采集某个请求的行：张量整体采集；请去掉",
    ),
    Piece(
        "no-recompute-before-sending", "",
        "computing calls again before they are sent is not available in this version; remove it",
        "本版本不支持在发送前重新计算调用；请去掉",
    ),
    Piece(
        "no-comparing-while-recording", "",
        "comparing while recording is not available in this version; remove it",
        "本版本不支持边采集边比对；请去掉",
    ),
    Piece(
        "online-without-address", "",
        'found true without an address; give "host" and "port" of the process that checks, or "nfs_path", a folder that both sides see',
        '实际为 true，却没有地址；请给出检查进程的 "host" 和 "port"，或双方都能访问的文件夹 "nfs_path"',
    ),
    Piece(
        "online-folder-missing", "found",
        "found {found}, which is no existing folder; make one that both sides see",
        "实际为 {found}，该文件夹不存在；请创建一个双方都能访问的文件夹",
    ),
    Piece(
        "online-tls-files", "found names",
        'found {found}, which has no {names}; allowed: a folder with them, or "" for plain TCP',
        '实际为 {found}，其中没有 {names}；允许：含有它们的文件夹，或用 "" 表示普通 TCP',
    ),
    Piece(
        "online-at-level", "level",
        'found true at level "{level}"; allowed: level "L1" or "mix", which have calls',
        '实际为 true，level 为 "{level}"；允许：level "L1" 或 "mix"，它们有调用',
    ),
    Piece(
        "graphs-with-task", "task",
        'found "record" together with task "{task}"; allowed: "skip", or task "statistics", "overflow_check" or "nan_check" (in a graph there are statistics, no values)',
        '实际为 "record"，同时 task 为 "{task}"；允许："skip"，或 task 为 "statistics"、"overflow_check" 或 "nan_check"（图内只有统计量，没有数值）',
    ),
    Piece(
        "graphs-with-digests", "mode",
        'found "record" together with summary_mode "{mode}"; allowed: "skip", or summary_mode "statistics" (a digest needs the values)',
        '实际为 "record"，同时 summary_mode 为 "{mode}"；允许："skip"，或 summary_mode 为 "statistics"（摘要需要数值）',
    ),
    Piece(
        "graphs-with-tensor-list", "",
        'found "record" together with a tensor_list; allowed: "skip", or no tensor_list (in a graph there are statistics, no values)',
        '实际为 "record"，同时有 tensor_list；允许："skip"，或不设 tensor_list（图内只有统计量，没有数值）',
    ),
    Piece(
        "graphs-at-level", "level",
        'found "record" together with level "{level}"; allowed: "skip", or level "L0", "L1" or "mix"',
        '实际为 "record"，同时 level 为 "{level}"；允许："skip"，或 level 为 "L0"、"L1" 或 "mix"',
    ),
    Piece(
        "graphs-without-forward", "",
        'found "record" together with a data_mode without forward records; allowed: "skip", or "forward" in data_mode (in a graph no gradients are followed)',
        '实际为 "record"，同时 data_mode 不含前向记录；允许："skip"，或在 data_mode 中加入 "forward"（图内不跟踪梯度）',
    ),
    Piece(
        "async-with-md5", "",
        'found true together with summary_mode "md5"; allowed: false, or a summary_mode other than "md5" (the digest needs the values on the host at once)',
        '实际为 true，同时 summary_mode 为 "md5"；允许：false，或 "md5" 以外的 summary_mode（摘要需要立即在主机上得到数值）',
    ),
    Piece(
        "async-without-list", "",
        'found true together with task "tensor" and no list; allowed: false, or name the entries to keep in "tensor.list" (their tensors stay in memory until the step ends)',
        '实际为 true，同时 task 为 "tensor" 且没有 list；允许：false，或在 "tensor.list" 中列出要保留的条目（其张量在 step 结束前留在内存中）',
    ),
    Piece(
        "not-full-name", "",
        "not the full name of an entry",
        "不是条目的全名",
    ),
    Piece(
        "name-of-kind-of-entry", "kind",
        "the name of {kind} entry",
        "{kind}条目的名称",
    ),
    Piece(
        "scope-of-names", "found count allowed",
        "found {found} ({count} names); allowed: {allowed}",
        "实际为 {found}（{count} 个名称）；允许：{allowed}",
    ),
    Piece(
        "scope-of-one-name", "found allowed",
        "found {found} (1 name); allowed: {allowed}",
        "实际为 {found}（1 个名称）；允许：{allowed}",
    ),
    Piece(
        "found-allowed", "found allowed hint",
        "found {found}; allowed: {allowed}{hint}",
        "实际为 {found}；允许：{allowed}{hint}",
    ),
    Piece(
        "found-because", "found reason allowed hint",
        "found {found} ({reason}); allowed: {allowed}{hint}",
        "实际为 {found}（{reason}）；允许：{allowed}{hint}",
    ),
    Piece(
        "scope-for-apis", "example",
        "[], or at level L1 two full names of API entries, such as {example}",
        "[]，或在 level L1 下两个 API 条目的全名，例如 {example}",
    ),
    Piece(
        "scope-for-modules", "example",
        "[], or at level L0 two full names of module entries, such as {example}",
        "[]，或在 level L0 下两个模块条目的全名，例如 {example}",
    ),
    Piece(
        "scope-for-both", "api module",
        "[], or two full names of entries, such as {api} or {module}",
        "[]，或两个条目的全名，例如 {api} 或 {module}",
    ),
    Piece(
        "inside-brackets", "number",
        " (character {number} inside the brackets)",
        "（括号内第 {number} 个字符）",
    ),
    Piece(
        "bad-regular-expression", "reason where",
        "bad regular expression: {reason}{where}",
        "正则表达式有误：{reason}{where}",
    ),
    Piece(
        "belongs-to-place", "place",
        "; it belongs {place}",
        "；它属于{place}",
    ),
    Piece(
        "mean-name-at-place", "name place",
        '; did you mean "{name}", which belongs {place}?',
        '；是否指属于{place}的 "{name}"？',
    ),
    Piece(
        "l2-task", "task",
        'task is "{task}", it must be "tensor"',
        'task 为 "{task}"，必须是 "tensor"',
    ),
    Piece(
        "l2-scope", "count",
        "scope has {count} names, it must be empty",
        "scope 有 {count} 个名称，必须为空",
    ),
    Piece(
        "l2-list", "count",
        "list has {count} names, it must be exactly one API name",
        "list 有 {count} 个名称，必须恰好是一个 API 名",
    ),
)
