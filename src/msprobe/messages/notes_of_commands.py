"""What commands note, and what is wrong with what they are given (U4)."""

from __future__ import annotations

from msprobe.messages.entry import Message, Piece

# fmt: off
MESSAGES: tuple[Message, ...] = (
    Message(
        "U401", "mode-not-available", "error:usage", "mode",
        "-m {mode} is not available in this version; leave it out.",
        "本版本没有 -m {mode}；请去掉它。", severity="error",
    ),
    Message(
        "U402", "option-of-input-form", "error:usage", "option",
        "{option} has no meaning with -tp and -gp; leave it out.",
        "{option} 与 -tp 和 -gp 同用没有意义；请去掉它。", severity="error",
    ),
    Message(
        "U403", "field-of-mindspore-graphs", "error:usage", "path field",
        '{path}: field "{field}" compares MindSpore graphs only; use `msprobe -f mindspore compare`.',
        '{path}：字段 "{field}" 只用于比对 MindSpore 图；请使用 `msprobe -f mindspore compare`。', severity="error",
    ),
    Message(
        "U404", "fuzzy-beside-mapping", "warning:work", "",
        "fuzzy matching has no effect beside a mapping.",
        "给出映射时，模糊匹配不起作用。", severity="warning",
    ),
    Message(
        "U405", "no-row-has-partner", "error:input", "",
        "no row of the target has a partner in the bench: these are dumps of different programs.",
        "待比对侧没有任何一行在标杆侧有对应：这是不同程序的 dump。", severity="error",
    ),
    Message(
        "U406", "mappings-between-frameworks", "error:usage", "options",
        "{options}: only for MindSpore against PyTorch; for two PyTorch dumps use -dm.",
        "{options}：只用于 MindSpore 与 PyTorch 比对；两份 PyTorch dump 请用 -dm。", severity="error",
    ),
    Message(
        "U407", "compare-field-without-effect", "warning:work", "name field where",
        'compare file "{name}": {field} has no effect {where}.',
        '比对文件 "{name}"：{field} {where}不起作用。', severity="warning",
    ),
    Message(
        "U408", "graph-written", "warning:work", "file",
        'The graph is in "{file}".',
        '图已写入 "{file}"。', severity="note",
    ),
    Message(
        "U409", "tensor-log-without-effect", "warning:work", "",
        "-tensor_log has no effect: a graph has no log of its tensors.",
        "-tensor_log 不起作用：图没有张量日志。", severity="warning",
    ),
    Message(
        "U410", "json-needs-rank-size", "warning:work", "",
        "--file_type json needs --rank_size; a database is written.",
        "--file_type json 需要 --rank_size；已改为写数据库。", severity="warning",
    ),
    Message(
        "U411", "overflow-jit-without-effect", "warning:work", "",
        "-j has no effect: run_overflow_check runs each call as it is.",
        "-j 不起作用：run_overflow_check 按原样运行每个调用。", severity="warning",
    ),
    Message(
        "U412", "options-unused-for-mindspore", "warning:work", "options",
        "{options}: not used, as the dump is of MindSpore, whose calls are checked on its CPU.",
        "{options}：未使用；这是 MindSpore 的 dump，其调用在 CPU 上检查。", severity="warning",
    ),
    Message(
        "U413", "not-named-as-dump-file", "warning:work", "file",
        '"{file}": the name is not that of a dump file; it is left out.',
        '"{file}"：不是 dump 文件的名称；已略过。', severity="warning",
    ),
    Message(
        "U414", "dump-files-converted", "warning:work", "written read folder failed",
        "{read} dump files were converted to {written} files in {folder}; {failed} failed.",
        "{read} 个 dump 文件已转换为 {folder} 中的 {written} 个文件；{failed} 个失败。", severity="note",
    ),
    Message(
        "U415", "not-enough-memory", "error:input", "",
        "there is not enough memory for it.",
        "内存不足。", severity="error",
    ),
    Message(
        "U416", "line-without-closing-quote", "error:usage", "problem",
        "the line cannot be split into words: {problem}.",
        "无法把该行拆分为单词：{problem}。", severity="error",
    ),
    Message(
        "U417", "tensors-differ-first", "warning:work", "differing count first",
        "{differing} of {count} tensors differ; the first is {first}.",
        "{count} 个张量中有 {differing} 个不同；第一个是 {first}。", severity="note",
    ),
    Message(
        "U418", "tensors-all-same", "warning:work", "count",
        "all {count} tensors are the same.",
        "全部 {count} 个张量相同。", severity="note",
    ),
    Message(
        "U419", "result-written", "warning:work", "file",
        "The result is in {file}.",
        "结果已写入 {file}。", severity="note",
    ),
    Message(
        "U425", "nothing-to-compare", "error:usage", "",
        "give the two dumps to compare: `msprobe compare CANDIDATE REFERENCE` (or -i compare.json, or -tp and -gp; `msprobe compare -h` explains).",
        "请给出要比对的两份 dump：`msprobe compare CANDIDATE REFERENCE`（或 -i compare.json，或 -tp 和 -gp；见 `msprobe compare -h`）。", severity="error",
    ),
    Message(
        "U426", "arrays-need-no-converting", "error:input", "path count",
        '"{path}" has {count} files .pt or .npy, which need no converting: pt prints, vc compares them.',
        '"{path}" 有 {count} 个 .pt 或 .npy 文件，无需转换：用 pt 打印、用 vc 比对。', severity="error",
    ),
)

PIECES: tuple[Piece, ...] = (
    Piece("found-these", "forms", "found {forms}", "实际为 {forms}"),
    Piece("found-none-of-them", "", "found none of them", "都没有给出"),
    Piece("not-done-with", "done listed", "Not {done}: {listed}.", "未{done}：{listed}。"),
    Piece("and-so-many-more", "count", "and {count} more", "另有 {count} 项"),
    Piece("done-compared", "", "compared", "比对"),
    Piece("done-judged", "", "judged", "判定"),
    Piece("done-read", "", "read", "读取"),
    Piece("done-converted", "", "converted", "转换"),
    Piece("done-reproduced", "", "reproduced", "复现"),
    Piece("done-mapped", "", "mapped", "对应到代码"),
    Piece("done-merged", "", "merged", "合并"),
    Piece("done-checked", "", "checked", "检查"),
    Piece("done-collected", "", "collected", "汇总"),
    Piece("done-shown", "", "shown", "显示"),
    Piece(
        "no-number-of-elements", "found",
        "-p: {found!r} is no number of elements.",
        "-p：{found!r} 不是元素个数。",
    ),
    Piece(
        "no-limit", "name found",
        "-{name}: {found!r} is no limit; give 0 or more.",
        "-{name}：{found!r} 不是上限；请给出不小于 0 的数。",
    ),
)
