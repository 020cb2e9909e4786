"""What comparisons and sheets note, and what they cannot use (A4)."""

from __future__ import annotations

from msprobe.messages.entry import Message, Piece

# fmt: off
MESSAGES: tuple[Message, ...] = (
    Message(
        "A401", "graph-text-cut-off", "warning:work", "path",
        '"{path}" ends in the middle of a graph; kernels of the missing rest stay without code.',
        '"{path}" 在图的中间结束；缺失部分的算子没有代码行。', severity="warning",
    ),
    Message(
        "A402", "graph-of-early-pass", "warning:work", "ir",
        '"{ir}" is of an early pass and names cells, not kernels: every kernel gets the lines that all calls of its cell share. graph_build_*.ir names the kernels.',
        '"{ir}" 属于较早的阶段，只有 cell 名称，没有算子名称：每个算子得到其 cell 各调用共有的代码行。graph_build_*.ir 有算子名称。', severity="warning",
    ),
    Message(
        "A403", "graph-of-different-network", "warning:work", "ir dump",
        '"{ir}" has none of the kernels of "{dump}"; is it the graph of a different network?',
        '"{ir}" 不含 "{dump}" 中的任何算子；是否为另一个网络的图？', severity="warning",
    ),
    Message(
        "A404", "stack-file-missing", "error:input", "path",
        'field "stack_path": "{path}" does not exist.',
        '字段 "stack_path"："{path}" 不存在。', severity="error",
    ),
    Message(
        "A405", "stack-column-left-out", "warning:work", "path",
        'there is no stack.json beside "{path}", so the column NPU_Stack_Info is left out.',
        '"{path}" 旁没有 stack.json，因此没有 NPU_Stack_Info 列。', severity="warning",
    ),
    Message(
        "A406", "all-not-read-in-file", "warning:work", "summary path",
        '{summary} The whole list is in "{path}".',
        '{summary}完整列表见 "{path}"。', severity="warning",
    ),
    Message(
        "A407", "rank-not-compared", "error:input", "rank why",
        "{rank} is not compared: {why}",
        "未比对 {rank}：{why}", severity="error",
    ),
    Message(
        "A408", "data-field-empty", "warning:work", "path",
        '"{path}": field "data" is empty, so there is nothing to compare.',
        '"{path}"：字段 "data" 为空，没有可比对的内容。', severity="warning",
    ),
    Message(
        "A409", "values-missing-to-multiply", "warning:work", "",
        "the values of these dumps were not saved, so nothing is multiplied.",
        "这些 dump 没有保存数值，因此没有做乘法。", severity="warning",
    ),
    Message(
        "A410", "multiplied-data-missing", "warning:work", "side names count",
        "multiplications: the {side} has no data {names} ({count} in all).",
        "乘法：{side}没有数据 {names}（共 {count} 个）。", severity="warning",
    ),
    Message(
        "A411", "dump-not-finished", "warning:work", "path",
        '"{path}" was not finished; only its complete records are compared.',
        '"{path}" 没有写完；只比对其中完整的记录。', severity="warning",
    ),
    Message(
        "A412", "values-missing-for-own-metrics", "warning:work", "",
        "the values of these dumps were not saved, so the metrics of your own have nothing to compare.",
        "这些 dump 没有保存数值，因此自定义指标无法比对。", severity="warning",
    ),
    Message(
        "A413", "few-rows-have-partner", "warning:work", "matched count why",
        "only {matched} of {count} rows of the target have a partner; {why}",
        "待比对侧 {count} 行中只有 {matched} 行有对应；{why}", severity="warning",
    ),
    Message(
        "A414", "tensor-measured", "warning:work", "name cosine error",
        "{name}: cosine {cosine}, max error {error}",
        "{name}：余弦相似度 {cosine}，最大误差 {error}", severity="note",
    ),
    Message(
        "A415", "consistent-check-backend", "error:usage", "allowed found",
        "--consistent_check needs --backend {allowed}, found {found!r}.",
        "--consistent_check 需要 --backend {allowed}，实际为 {found!r}。", severity="error",
    ),
    Message(
        "A416", "training-tensors-paired", "warning:work", "matched count path",
        "{matched} of {count} tensors of the training have a partner; written: {path}",
        "训练侧 {count} 个张量中有 {matched} 个有对应；已写出：{path}", severity="note",
    ),
    Message(
        "A417", "no-training-tensor-paired", "warning:work", "",
        "no tensor of the training has a partner in the inference; is --backend right?",
        "训练侧没有任何张量在推理侧有对应；--backend 是否正确？", severity="warning",
    ),
    Message(
        "A418", "pair-without-dump-json", "error:dump", "candidate reference",
        '"{candidate}" or "{reference}" has no dump.json.',
        '"{candidate}" 或 "{reference}" 没有 dump.json。', severity="error",
    ),
    Message(
        "A419", "no-call-differs-by-half", "warning:work", "where",
        "no call has a result that differs from the bench by more than half in a statistic{where}.",
        "没有调用的结果统计量与标杆侧相差超过一半{where}。", severity="note",
    ),
    Message(
        "A420", "first-difference-of-rank", "warning:work", "rank name time",
        "first difference: {rank}, {name} (after {time} communications).",
        "首个差异：{rank}，{name}（在 {time} 次通信之后）。", severity="note",
    ),
    Message(
        "A421", "keywords-unknown", "warning:work", "function unknown known",
        "{function}: {unknown} not known, so not used; known are {known}.",
        "{function}：不认识 {unknown}，因此未使用；可用的有 {known}。", severity="warning",
    ),
    Message(
        "A422", "rank-step-not-compared", "error:input", "rank step why",
        "rank {rank} step {step} is not compared: {why}",
        "未比对 rank {rank} step {step}：{why}", severity="error",
    ),
    Message(
        "A423", "rank-step-compared", "warning:work", "rank step path",
        "rank {rank} step {step} is compared: {path}",
        "已比对 rank {rank} step {step}：{path}", severity="note",
    ),
    Message(
        "A424", "no-anomaly-node", "warning:work", "",
        "Cannot find any anomaly node, no need to generate analyze file.",
        "没有发现异常节点，无需生成分析文件。", severity="note",
    ),
    Message(
        "A425", "anomaly-file-written", "warning:work", "file",
        "The analyze result is saved in: {file}",
        "分析结果已保存到：{file}", severity="note",
    ),
    Message(
        "A426", "no-table-of", "warning:work", "name why",
        "no table of {name}: {why}",
        "没有 {name} 的结果表：{why}", severity="warning",
    ),
    Message(
        "A427", "keys-compared", "warning:work", "count folder",
        '{count} keys are compared; the results are in "{folder}".',
        '已比对 {count} 个 key；结果在 "{folder}" 中。', severity="note",
    ),
    Message(
        "A428", "no-common-file", "error:dump", "candidate reference",
        '"{candidate}" and "{reference}" have neither dump.json nor debug.json in common.',
        '"{candidate}" 与 "{reference}" 没有共同的 dump.json 或 debug.json。', severity="error",
    ),
    Message(
        "A429", "rows-compared", "warning:work", "matched count red yellow failed",
        "{matched} of {count} rows of the target were compared: {red} red, {yellow} yellow{failed}",
        "待比对侧 {count} 行中比对了 {matched} 行：{red} 红，{yellow} 黄{failed}", severity="note",
    ),
    Message(
        "A430", "file-written", "warning:work", "file",
        "written: {file}",
        "已写出：{file}", severity="note",
    ),
    Message(
        "A431", "what-first-difference-is", "warning:work", "candidate reference",
        'this is the first call whose result differs by more than half in a statistic, or in its digest. The cause may be earlier: `msprobe compare "{candidate}" "{reference}"` also looks for arguments, extra calls and smaller differences.',
        '这是首个结果统计量相差超过一半（或摘要不同）的调用。原因可能在它之前：`msprobe compare "{candidate}" "{reference}"` 还会查找参数不同、仅一侧有的调用和较小的差异。', severity="note",
    ),
)

PIECES: tuple[Piece, ...] = (
    Piece("are-programs-the-same", "", "are these dumps of the same program?", "这两份 dump 是否来自同一程序？"),
    Piece(
        "calls-of-one-framework", "",
        "calls inside layers, and calls that only one of the frameworks makes, have none.",
        "层内部的调用，以及只有一个框架才有的调用，没有对应。",
    ),
    Piece("none-failed", "", "; none failed", "；全部通过"),
    Piece("did-not-pass", "count", "; {count} did not pass", "；{count} 行未通过"),
    Piece("target-side", "", "target", "待比对侧"),
    Piece("bench-side", "", "bench", "标杆侧"),
    Piece("in-what-was-compared", "", " in what was compared", "（在已比对的内容中）"),
    Piece("only-in", "side", "only in {side}", "只在 {side} 中"),
    Piece("without-records", "", "it has no records", "没有记录"),
)
