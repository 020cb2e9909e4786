"""What stands beside a row of a comparison: in the column of messages of sheets."""

from __future__ import annotations

from msprobe.messages.entry import Piece

# fmt: off
PIECES: tuple[Piece, ...] = (
    Piece("file-not-in", "label", "not in {label}", "{label} 中没有"),
    Piece("must-be-value-file", "", "must be a .pt or .npy file", "必须是 .pt 或 .npy 文件"),
    Piece("target-file-missing", "", "There is no such file of the target.", "待比对侧没有这个文件。"),
    Piece(
        "tensor-shapes-differ", "target bench",
        "The tensors have the shapes {target} and {bench}.",
        "张量的 shape 为 {target} 与 {bench}。",
    ),
    Piece(
        "element-types-differ", "target bench",
        "The element types are {target} and {bench}.",
        "元素类型为 {target} 与 {bench}。",
    ),
    Piece("files-cannot-be-read", "problem", "The files cannot be read: {problem}.", "文件无法读取：{problem}。"),
    Piece("target-value-none", "", "The target has no value here (None).", "待比对侧在此处没有值（None）。"),
    Piece("bench-value-none", "", "The bench has no value here (None).", "标杆侧在此处没有值（None）。"),
    Piece(
        "row-shapes-differ", "target bench",
        "The shapes are {target} and {bench}.",
        "shape 为 {target} 与 {bench}。",
    ),
    Piece("other-side-has-none", "", "the other side has none", "另一侧没有"),
    Piece("kernels-do-not-fit", "target bench", "{target} and {bench} do not match", "{target} 与 {bench} 不匹配"),
    Piece("no-elements-to-compare", "", "there are no elements", "没有元素"),
    Piece(
        "not-finite-on-one-side", "count",
        "{count} elements are NaN or infinite on one side only",
        "{count} 个元素只在一侧为 NaN 或无穷",
    ),
    Piece("one-side-without-statistics", "", "One side has no statistics.", "有一侧没有统计量。"),
    Piece("values-are-no-numbers", "", "The values are no numbers.", "值不是数值。"),
    Piece("tensor-is-empty", "", "The tensor is empty.", "张量为空。"),
    Piece(
        "target-single-value", "shape",
        "The target has one value, the bench the shape {shape}.",
        "待比对侧只有一个值，标杆侧的 shape 为 {shape}。",
    ),
    Piece(
        "relative-error-not-finite", "",
        "The relative error is not finite: the bench has zeros.",
        "相对误差不是有限数：标杆侧有零。",
    ),
    Piece("norms-overflow", "", "The norms overflow, so there is no cosine.", "范数溢出，因此没有余弦。"),
    Piece(
        "single-value-measures", "",
        "A single value has only an absolute and a relative error.",
        "单个值只有绝对误差与相对误差。",
    ),
    Piece("one-element-no-cosine", "", "A tensor of one element has no cosine.", "只有一个元素的张量没有余弦。"),
    Piece(
        "target-all-zero", "",
        "All values of the target are zero, so there is no cosine.",
        "待比对侧全为零，因此没有余弦。",
    ),
    Piece(
        "bench-all-zero", "",
        "All values of the bench are zero, so there is no cosine.",
        "标杆侧全为零，因此没有余弦。",
    ),
    Piece(
        "not-finite-at-other-places", "",
        "NaN or infinities are not at the same places.",
        "两侧 NaN 或无穷的位置不同。",
    ),
    Piece(
        "tensors-missing-of", "missing total first",
        "{missing} of {total} tensors ({first})",
        "{total} 个张量中的 {missing} 个（{first}）",
    ),
    Piece("target-row-missing", "", "The target has no such tensor.", "待比对侧没有这个张量。"),
    Piece(
        "weight-is-packed", "",
        "The engine packs this weight; msprobe rollout reads it.",
        "推理引擎打包了该权重；msprobe rollout 可以读取。",
    ),
    Piece("values-of-row-differ", "", "The values differ.", "数值不同。"),
    Piece("no-data-file", "", "Neither side has a data file.", "两侧都没有数据文件。"),
    Piece("target-without-data-file", "", "The target has no data file.", "待比对侧没有数据文件。"),
    Piece("bench-without-data-file", "", "The bench has no data file.", "标杆侧没有数据文件。"),
    Piece("row-is-no-tensor", "", "This is no tensor.", "这不是张量。"),
    Piece("two-values-differ", "", "The two values differ.", "两侧的值不同。"),
    Piece(
        "data-file-unreadable", "side name problem",
        "The data file {name} of the {side} cannot be read: {problem}",
        "{side}的数据文件 {name} 无法读取：{problem}",
    ),
    Piece(
        "data-files-unreadable", "target bench problem",
        "The data files {target} and {bench} cannot be read: {problem}.",
        "数据文件 {target} 与 {bench} 无法读取：{problem}。",
    ),
    Piece("side-target", "", "target", "待比对侧"),
    Piece("side-bench", "", "bench", "标杆侧"),
    Piece(
        "check-this-api", "",
        "A statistic is off by more than half of itself: check this API.",
        "有统计量的偏差超过自身的一半：请检查该 API。",
    ),
    Piece(
        "target-not-finite", "",
        "The target has a NaN or an infinity that the bench does not have.",
        "待比对侧有标杆侧没有的 NaN 或无穷。",
    ),
    Piece(
        "within-rounding-of-inputs", "",
        "The difference is within the rounding of its inputs.",
        "差异在其输入的舍入误差之内。",
    ),
    Piece(
        "paired-fuzzily", "",
        "Paired with a call of a different number (fuzzy matching).",
        "与编号不同的调用对应（模糊匹配）。",
    ),
    Piece(
        "rows-without-partner", "count side other names",
        "{count} rows of the {side} have no partner in the {other}: {names}.",
        "{side}有 {count} 行在{other}没有对应：{names}。",
    ),
    Piece("no-saved-value-differs", "", "No saved value differs.", "保存的值都相同。"),
    Piece(
        "first-saved-value-that-differs", "",
        "This saved value is the first that differs.",
        "这是第一个不同的保存值。",
    ),
    Piece("needs-field-beside-it", "field", "needs {field} beside it", "还需要同时给出 {field}"),
    Piece("names-one-twice", "", "names one of them twice", "重复写了其中一个"),
    Piece("says-again", "other", 'repeats "{other}"', '与 "{other}" 重复'),
    Piece("metrics-are", "names", "; the metrics are {names}", "；可用指标为 {names}"),
    Piece(
        "has-matrix-already", "tensor place",
        "{tensor} already has a {place} matrix",
        "{tensor} 已有 {place} 矩阵",
    ),
    Piece("value-file-missing", "", "the file does not exist", "文件不存在"),
    Piece("rank-and-step", "rank step", "rank {rank} step {step}", "rank {rank} step {step}"),
    Piece(
        "longer-array", "file size other",
        "warning: {file} has {size} elements, the other {other}: it is the longer.",
        "警告：{file} 有 {size} 个元素，另一个有 {other} 个：它较长。",
    ),
    Piece(
        "shorter-array", "file size other",
        "warning: {file} has {size} elements, the other {other}: it is the shorter, padded with zeros.",
        "警告：{file} 有 {size} 个元素，另一个有 {other} 个：它较短，以零填充。",
    ),
    Piece("no-elements-in-arrays", "", "There are no elements.", "没有元素。"),
    Piece("rest-of-text", "path", 'the rest of "{path}"', '"{path}" 的其余部分'),
    Piece("ends-in-a-graph", "", "it ends in the middle of a graph", "文本在图的中间结束"),
    Piece("graph-lacks-kernels", "", "the graph does not have them", "图中没有它们"),
    Piece("kernels-of-other-graphs", "", "they are of other graphs than the IR", "它们属于 IR 之外的图"),
    Piece("one-kernel", "", "1 kernel", "1 个算子"),
    Piece("so-many-kernels", "count", "{count} kernels", "{count} 个算子"),
    Piece(
        "suffix-is-the-rank", "",
        "suffix is the name of the rank here; leave it out",
        "此处 suffix 是 rank 的名称；请去掉它",
    ),
    Piece(
        "must-be-path-or-dict", "name kind",
        "{name} must be a path or a dict, found a {kind}",
        "{name} 必须为路径或 dict，现为 {kind}",
    ),
    Piece(
        "suffix-must-be-a-word", "value",
        "suffix must be a word for a file name, found {value}",
        "suffix 必须是可用于文件名的词，现为 {value}",
    ),
    Piece("must-be-a-path", "name kind", "{name} must be a path, found a {kind}", "{name} 必须为路径，现为 {kind}"),
    Piece("must-be-a-dict", "name kind", "{name} must be a dict, found a {kind}", "{name} 必须为 dict，现为 {kind}"),
    Piece(
        "flag-must-be-a-bool", "name value",
        "{name} = {value} must be True or False",
        "{name} = {value} 必须为 True 或 False",
    ),
    Piece(
        "field-must-be-a-dump", "field value",
        'field "{field}" of input_param must be the path of a dump.json, found {value}',
        'input_param 的字段 "{field}" 必须为 dump.json 的路径，现为 {value}',
    ),
)
