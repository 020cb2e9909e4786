"""Errors of comparisons and checks (A1), of lockstep (K1), and of the page (V1)."""

from __future__ import annotations

from msprobe.messages.entry import Message

# fmt: off
MESSAGES: tuple[Message, ...] = (
    Message(
        "A101", "dump-without-records", "error:input", "path reason",
        '"{path}" holds no record that can be read.{reason}',
        '"{path}" 中没有可读的记录。{reason}', severity="error",
    ),
    Message(
        "A102", "dump-without-statistics", "error:input", "path",
        '"{path}" has no statistics of tensors (Max, Min), as with summary_mode md5 or task structure; record it again with task statistics and "summary_mode": "statistics".',
        '"{path}" 没有张量的统计量（Max、Min），如 summary_mode md5 或 task structure；请以 task statistics 和 "summary_mode": "statistics" 重新采集。', severity="error",
    ),
    Message(
        "A103", "rank-file-missing", "error:input", "file",
        'file "{file}" does not exist; give --partial to go on without this rank.',
        '文件 "{file}" 不存在；使用 --partial 可在缺少该 rank 时继续。', severity="error",
    ),
    Message(
        "A104", "nothing-recorded-there", "error:input", "path",
        '"{path}" holds no record: nothing was recorded, or the folder is the wrong one.',
        '"{path}" 中没有记录；没有采集任何内容，或给错了文件夹。', severity="error",
    ),
    Message(
        "A105", "no-kernel-dump", "error:input", "given STATISTICS_FILE",
        '"{given}" holds no .npy files of kernels and no {STATISTICS_FILE}; give a kernel dump.',
        '"{given}" 中没有算子的 .npy 文件，也没有 {STATISTICS_FILE}；请给出算子 dump。', severity="error",
    ),
    Message(
        "A106", "kernel-folder-unreadable", "error:input", "filename strerror",
        'folder "{filename}" cannot be read: {strerror}.',
        '无法读取文件夹 "{filename}"：{strerror}。', severity="error",
    ),
    Message(
        "A107", "kernel-subfolder-unreadable", "error:input", "folder strerror",
        'folder "{folder}" cannot be read: {strerror}.',
        '无法读取文件夹 "{folder}"：{strerror}。', severity="error",
    ),
    Message(
        "A108", "kernel-file-unreadable", "error:input", "file strerror",
        '"{file}" cannot be read: {strerror}.',
        '无法读取 "{file}"：{strerror}。', severity="error",
    ),
    Message(
        "A109", "kernel-csv-broken", "error:input", "file problem",
        '"{file}" is no readable csv file: {problem}.',
        '"{file}" 不是可读的 csv 文件：{problem}。', severity="error",
    ),
    Message(
        "A110", "kernel-csv-empty", "error:input", "file STATISTICS_FILE",
        '"{file}" is empty; it is no {STATISTICS_FILE}.',
        '"{file}" 为空；不是 {STATISTICS_FILE}。', severity="error",
    ),
    Message(
        "A111", "kernel-csv-row-length", "error:input", "file line_num row header",
        '"{file}":{line_num}: {row} cells, the first line has {header}.',
        '"{file}":{line_num}：有 {row} 个单元格，第一行有 {header} 个。', severity="error",
    ),
    Message(
        "A112", "kernel-csv-column-missing", "error:input", "file OP_NAME STATISTICS_FILE",
        '"{file}" has no column "{OP_NAME}"; it is no {STATISTICS_FILE}.',
        '"{file}" 没有 "{OP_NAME}" 列；不是 {STATISTICS_FILE}。', severity="error",
    ),
    Message(
        "A113", "no-graph-files", "error:input", "folder",
        'folder "{folder}" holds no graph_build_*.ir and no ms_output_trace_code_graph_*.ir, nor do rank_0, rank_1, ... in it; give the file of one graph.',
        '文件夹 "{folder}" 中没有 graph_build_*.ir 和 ms_output_trace_code_graph_*.ir，其中的 rank_0、rank_1 等也没有；请给出一个图的文件。', severity="error",
    ),
    Message(
        "A114", "no-graph-nodes", "error:input", "file",
        'no graph nodes found in "{file}"; --ir takes the text of a MindSpore graph, such as graph_build_0_*.ir.',
        '"{file}" 中没有图节点；--ir 接受 MindSpore 图的文本，如 graph_build_0_*.ir。', severity="error",
    ),
    Message(
        "A115", "graph-file-unreadable", "error:input", "file reason",
        'file "{file}" cannot be read: {reason}.',
        '无法读取文件 "{file}"：{reason}。', severity="error",
    ),
    Message(
        "A116", "layout-file-too-large", "error:input", "path",
        '"{path}" is larger than 4 MiB, so it is no annotation of a layout.',
        '"{path}" 大于 4 MiB，因此不是布局标注。', severity="error",
    ),
    Message(
        "A117", "layout-file-no-utf8", "error:input", "path problem",
        '"{path}" is not UTF-8 text: {problem}.',
        '"{path}" 不是 UTF-8 文本：{problem}。', severity="error",
    ),
    Message(
        "A118", "layout-file-unreadable", "error:input", "path lower",
        '"{path}" cannot be read: {lower}.',
        '无法读取 "{path}"：{lower}。', severity="error",
    ),
    Message(
        "A119", "layout-mesh-too-small", "error:input", "name size last",
        "layout file: {name}.mesh has {size} ranks, and the {name} has a rank {last}; give the sizes of all axes.",
        "布局文件：{name}.mesh 有 {size} 个 rank，而 {name} 有 rank {last}；请给出所有轴的大小。", severity="error",
    ),
    Message(
        "A120", "noise-is-compared", "error:input", "noise",
        'noise: "{noise}" is compared itself; give a second healthy run of its own.',
        'noise："{noise}" 本身就在比对中；请给出另一次正常运行。', severity="error",
    ),
    Message(
        "A121", "noise-without-common-step", "error:input", "noise reference",
        'noise: "{noise}" has no step and rank in common with the reference "{reference}"; give a second healthy run of the same training.',
        'noise："{noise}" 与标杆 "{reference}" 没有共同的 step 与 rank；请给出同一训练的第二次正常运行。', severity="error",
    ),
    Message(
        "A122", "compare-of-folders", "error:input", "",
        "compare: both paths are folders; use compare_distributed for them.",
        "compare：两个路径都是文件夹；请使用 compare_distributed。", severity="error",
    ),
    Message(
        "A123", "compare-distributed-of-files", "error:input", "",
        "compare_distributed: both paths are files; use compare for them.",
        "compare_distributed：两个路径都是文件；请使用 compare。", severity="error",
    ),
    Message(
        "A124", "package-missing-for-option", "error:input", "flag package extra",
        "{flag} needs {package}, which is not installed: {extra}.",
        "{flag} 需要 {package}，但没有安装：{extra}。", severity="error",
    ),
    Message(
        "A125", "kinds-of-files-differ", "error:input", "ours our_kinds theirs their_kinds",
        '"{ours}" holds {our_kinds} and "{theirs}" {their_kinds}; both must hold the same.',
        '"{ours}" 中是 {our_kinds}，"{theirs}" 中是 {their_kinds}；两者必须相同。', severity="error",
    ),
    Message(
        "A126", "num-processes-wrong", "error:input", "num_processes",
        "num_processes must be a whole number from 1, found {num_processes!r}.",
        "num_processes 必须是不小于 1 的整数，实际为 {num_processes!r}。", severity="error",
    ),
    Message(
        "A127", "sheet-not-written", "error:input", "target reason",
        'cannot write file "{target}": {reason}.',
        '无法写入文件 "{target}"：{reason}。', severity="error",
    ),
    Message(
        "K101", "lockstep-into-reference", "error:lockstep", "folder",
        'lockstep: the candidate would be recorded into "{folder}", where the reference is; choose another folder.',
        'lockstep：待比对侧会采集到 "{folder}"，而标杆侧在那里；请选择其他文件夹。', severity="error",
    ),
    Message(
        "K102", "no-lockstep-dump", "error:lockstep", "folder",
        '"{folder}" has no dump that was recorded in lockstep: the program made no step that the reference has.',
        '"{folder}" 中没有以 lockstep 采集的 dump：程序没有执行标杆侧有的 step。', severity="error",
    ),
    Message(
        "K103", "lockstep-file-broken", "error:lockstep", "path problem",
        '"{path}" is no file of lockstep: {problem}.',
        '"{path}" 不是 lockstep 的文件：{problem}。', severity="error",
    ),
    Message(
        "K104", "no-verdict-of-dumps", "error:lockstep", "path",
        '"{path}" is no verdict of two dumps: it has no findings or no reference.',
        '"{path}" 不是两份 dump 的结论：没有 findings 或 reference。', severity="error",
    ),
    Message(
        "K105", "verdict-without-findings", "error:lockstep", "path",
        '"{path}" has no findings: there is no call to replace.',
        '"{path}" 中没有问题项：没有可替换的调用。', severity="error",
    ),
    Message(
        "K106", "finding-number-wrong", "error:lockstep", "path findings number",
        '"{path}" has the findings 1 to {findings}, and no finding {number}.',
        '"{path}" 有问题项 1 到 {findings}，没有问题项 {number}。', severity="error",
    ),
    Message(
        "K107", "finding-not-confirmable", "error:lockstep", "number path kind",
        'finding {number} of "{path}" is of kind {kind}: it names no result of a call that both sides have, so the reference has nothing to replace it by; choose a different one with --finding.',
        '"{path}" 的问题项 {number} 属于 {kind}：它没有指出两侧都有的调用结果，无法用标杆侧的值替换；请用 --finding 选择另一项。', severity="error",
    ),
    Message(
        "K108", "finding-names-no-call", "error:lockstep", "number path entry",
        'finding {number} of "{path}" names {entry!r}, which is no call and no pass of a module; choose a different one with --finding.',
        '"{path}" 的问题项 {number} 指出 {entry!r}，它不是调用，也不是模块的执行；请用 --finding 选择另一项。', severity="error",
    ),
    Message(
        "K109", "lockstep-reference-unfit", "error:lockstep", "path wrong",
        'lockstep: the reference "{path}" cannot be run against: {wrong}.',
        'lockstep：不能与标杆 "{path}" 对齐运行：{wrong}。', severity="error",
    ),
    Message(
        "K110", "lockstep-reference-wrong", "error:lockstep", "path wrong",
        'lockstep: the reference "{path}": {wrong}.',
        'lockstep：标杆 "{path}"：{wrong}。', severity="error",
    ),
    Message(
        "V101", "candidate-record-missing", "error:page", "candidate",
        "the candidate has no record {candidate!r} here.",
        "待比对侧在这里没有记录 {candidate!r}。", severity="error",
    ),
    Message(
        "V102", "reference-record-missing", "error:page", "reference",
        "the reference has no record {reference!r} here.",
        "标杆侧在这里没有记录 {reference!r}。", severity="error",
    ),
    Message(
        "V103", "records-cannot-match", "error:page", "candidate left reference right",
        "{candidate!r} ({left}) cannot be matched with {reference!r} ({right}); choose two of a kind.",
        "{candidate!r}（{left}）不能与 {reference!r}（{right}）匹配；请选择同类的两个。", severity="error",
    ),
    Message(
        "V104", "not-matched-by-hand", "error:page", "candidate",
        "{candidate!r} was not matched by hand; nothing to undo.",
        "{candidate!r} 不是手动匹配的；没有可撤销的内容。", severity="error",
    ),
    Message(
        "V105", "hand-pairs-are-no-object", "error:page", "file",
        '"{file}" must hold an object of names; repair or remove it.',
        '"{file}" 必须是名称的对象；请修复或删除它。', severity="error",
    ),
    Message(
        "V106", "hand-pairs-broken", "error:page", "file",
        '"{file}" is not the JSON of pairs made by hand; repair or remove it.',
        '"{file}" 不是手动匹配的 JSON；请修复或删除它。', severity="error",
    ),
    Message(
        "V107", "too-many-hand-pairs", "error:page", "MOST_PAIRS",
        "more than {MOST_PAIRS} pairs by hand; match modules, not single calls.",
        "手动匹配超过 {MOST_PAIRS} 对；请匹配模块而不是单个调用。", severity="error",
    ),
    Message(
        "V108", "view-paths-wrong", "error:page", "paths",
        "give one path, or two dumps (candidate and reference); found {paths}.",
        "请给出一个路径，或两份 dump（待比对侧与标杆侧）；实际为 {paths}。", severity="error",
    ),
    Message(
        "V109", "only-for-comparison", "error:page", "given",
        "{given}: only for a comparison; give two dumps, or leave it out.",
        "{given}：仅用于比对；请给出两份 dump，或去掉它。", severity="error",
    ),
    Message(
        "V110", "no-result-of-msprobe", "error:page", "file keys",
        '"{file}" does not name {keys}: it is no result of msprobe.',
        '"{file}" 没有指明 {keys}：不是 msprobe 的结果。', severity="error",
    ),
    Message(
        "V111", "dumps-of-result-gone", "error:page", "file missing verb",
        '"{file}" names {missing}, which {verb} no longer there; give the dumps themselves: msprobe view CANDIDATE REFERENCE.',
        '"{file}" 指明的 {missing} 已不存在；请直接给出 dump：msprobe view CANDIDATE REFERENCE。', severity="error",
    ),
    Message(
        "V112", "graph-file-is-both-sides", "error:page", "",
        "graph files hold both sides already; give one path.",
        "图文件已包含两侧；请给出一个路径。", severity="error",
    ),
    Message(
        "V113", "nothing-to-view-inside", "error:page", "problem VERDICT_FILES GRAPH_SUFFIXES",
        "{problem} It holds no {VERDICT_FILES} and no graph file ({GRAPH_SUFFIXES}) either.",
        "{problem} 其中也没有 {VERDICT_FILES} 和图文件（{GRAPH_SUFFIXES}）。", severity="error",
    ),
    Message(
        "V114", "nothing-to-view", "error:page", "given VERDICT_FILES GRAPH_SUFFIXES",
        '"{given}" is nothing that can be opened: give the folder of a dump or its dump.json, a {VERDICT_FILES} of msprobe, or a graph file ({GRAPH_SUFFIXES}).',
        '"{given}" 无法打开：请给出 dump 文件夹或其 dump.json、msprobe 的 {VERDICT_FILES}，或图文件（{GRAPH_SUFFIXES}）。', severity="error",
    ),
    Message(
        "V115", "page-not-built", "error:page", "folder missing",
        'the page was not built into this installation: "{folder}" lacks {missing}; install msprobe from a wheel, or build the page (see web/README.md).',
        '此安装中没有页面："{folder}" 缺少 {missing}；请从 wheel 安装 msprobe，或构建页面（见 web/README.md）。', severity="error",
    ),
    Message(
        "V116", "picture-shapes-differ", "error:page", "candidate_shape reference_shape",
        "the shapes differ ({candidate_shape}, in the reference {reference_shape}): there is no picture of their difference.",
        "shape 不同（{candidate_shape}，标杆侧 {reference_shape}）：没有差异图。", severity="error",
    ),
    Message(
        "V117", "picture-too-large", "error:page", "size",
        "a tensor of {size} elements is too large for a picture.",
        "{size} 个元素的张量太大，无法绘图。", severity="error",
    ),
    Message(
        "V118", "picture-without-difference", "error:page", "",
        "these values have no difference that could be shown.",
        "这些数值没有可显示的差异。", severity="error",
    ),
    Message(
        "V119", "picture-of-nothing", "error:page", "",
        "the tensor is empty: there is nothing to show.",
        "张量为空：没有可显示的内容。", severity="error",
    ),
    Message(
        "V120", "page-packages-missing", "error:page", "missing verb install",
        "the page needs {missing}, which {verb} not installed: {install}. Without them, --html FILE writes the page as one file.",
        "页面需要 {missing}，但没有安装：{install}。没有它们时，--html FILE 可把页面写成一个文件。", severity="error",
    ),
    Message(
        "V121", "port-not-available", "error:page", "host port reason",
        "cannot listen on {host}, port {port}: {reason}; choose another --host or --port (0 is any free one).",
        "无法监听 {host} 的端口 {port}：{reason}；请换 --host 或 --port（0 为任意空闲端口）。", severity="error",
    ),
    Message(
        "V122", "one-run-to-match", "error:page", "",
        "there is one run alone: nothing to match.",
        "只有一次运行：没有可匹配的内容。", severity="error",
    ),
    Message(
        "V123", "one-side-to-match", "error:page", "",
        "only one run has this step and rank: nothing to match.",
        "只有一次运行有这个 step 与 rank：没有可匹配的内容。", severity="error",
    ),
    Message(
        "V124", "graph-file-missing", "error:page", "path",
        'file "{path}" does not exist; give a graph file, or the folder of several.',
        '文件 "{path}" 不存在；请给出图文件，或含有几个图文件的文件夹。', severity="error",
    ),
    Message(
        "V125", "graph-file-empty", "error:page", "path",
        '"{path}" holds no graph.',
        '"{path}" 中没有图。', severity="error",
    ),
    Message(
        "V126", "graph-source-unknown", "error:page", "file source SOURCES",
        '"{file}" has a graph of {source!r}; allowed: {SOURCES}.',
        '"{file}" 中有 {source!r} 的图；可用：{SOURCES}。', severity="error",
    ),
    Message(
        "V127", "graph-there-twice", "error:page", "file path at",
        '"{file}" and "{path}" both hold {at}; give one of them.',
        '"{file}" 与 "{path}" 都含有 {at}；请给出其中一个。', severity="error",
    ),
)
