"""Why a call or a result of it is not judged, and what else to know of its verdict (P3)."""

from __future__ import annotations

from msprobe.messages.entry import Message

# fmt: off
MESSAGES: tuple[Message, ...] = (
    Message(
        "P301", "result-is-none", "note:precheck", "",
        "the result is None.",
        "结果为 None。", severity="note",
    ),
    Message(
        "P304", "result-without-elements", "note:precheck", "",
        "the result has no elements.",
        "结果没有元素。", severity="note",
    ),
    Message(
        "P311", "first-verdict-alone", "note:precheck", "dtype",
        "{dtype}: no metrics of a standard, only the first verdict.",
        "{dtype}：没有标准的指标，只有初步判定。", severity="note",
    ),
    Message(
        "P323", "differ-by-rounded-inputs", "note:precheck", "count",
        "{count} elements differ where rounding of the inputs decides.",
        "{count} 个元素不同，其值由输入的舍入决定。", severity="note",
    ),
    Message(
        "P331", "random-without-tensor", "note:precheck", "",
        "random: it is no tensor, nothing is compared.",
        "随机：不是张量，不作比较。", severity="note",
    ),
    Message(
        "P332", "random-by-distribution", "note:precheck", "",
        "random: compared by its distribution.",
        "随机：比较其分布。", severity="note",
    ),
    Message(
        "P335", "random-too-few", "note:precheck", "count",
        "random: {count} elements are too few to compare.",
        "随机：只有 {count} 个元素，无法比较。", severity="note",
    ),
    Message(
        "P337", "random-reference-not-finite", "note:precheck", "",
        "random: the reference has NaN or infinities, so nothing is compared.",
        "随机：标杆侧有 NaN 或无穷大，不作比较。", severity="note",
    ),
    Message(
        "P340", "random-relation-holds", "note:precheck", "",
        "random: each element has the expected relation to the argument.",
        "随机：每个元素与参数的关系成立。", severity="note",
    ),
    Message(
        "P342", "random-gradient-fits", "note:precheck", "",
        "random: the gradient is that of its own draw.",
        "随机：梯度与本次抽取相符。", severity="note",
    ),
    Message(
        "P345", "backward-is-derivative", "note:precheck", "",
        "the backward is the derivative of the forward (finite differences).",
        "反向是前向的导数（有限差分）。", severity="note",
    ),
    Message(
        "P347", "formula-not-checked", "note:precheck", "why",
        "the formula cannot be checked: {why}",
        "无法检查公式：{why}", severity="note",
    ),
    Message(
        "P348", "no-gradient-required", "note:precheck", "",
        "no argument requires a gradient.",
        "没有参数需要梯度。", severity="note",
    ),
    Message(
        "P350", "module-settings-missing", "note:precheck", "",
        "its record does not have all settings that the module was made with.",
        "其记录没有创建该模块的全部设置。", severity="note",
    ),
    Message(
        "P351", "written-not-recorded", "note:precheck", "",
        "it returns nothing, and its record does not have what it wrote.",
        "它没有返回值，而记录中没有它写入的内容。", severity="note",
    ),
    Message(
        "P352", "memory-short", "note:precheck", "",
        "there is not enough memory for it.",
        "内存不足。", severity="note",
    ),
    Message(
        "P353", "gradient-up-to-sign", "note:precheck", "",
        "the gradient depends on the signs of the vectors, which are not defined.",
        "梯度取决于向量的符号，而符号没有定义。", severity="note",
    ),
    Message(
        "P354", "call-skipped", "note:precheck", "",
        "skipped.",
        "已略过。", severity="note",
    ),
    Message(
        "P355", "out-has-no-gradient", "note:precheck", "",
        "a call with out= has no gradient of its own.",
        "带 out= 的调用没有自己的梯度。", severity="note",
    ),
    Message(
        "P356", "argument-returned", "note:precheck", "",
        "the call returns its argument: the recorded gradient is that of the call before.",
        "调用返回其参数：采集的梯度属于前一个调用。", severity="note",
    ),
    Message(
        "P357", "backward-not-by-standard", "note:precheck", "api",
        "the backward of {api} is not checked by this standard.",
        "此标准不检查 {api} 的反向。", severity="note",
    ),
    Message(
        "P358", "several-results-not-by-standard", "note:precheck", "",
        "the backward through several results (multiple backward) is not checked by this standard.",
        "此标准不检查经过多个结果的反向（multiple backward）。", severity="note",
    ),
    Message(
        "P361", "gradient-not-in-dump", "note:precheck", "path",
        "the dump has no gradient of argument {path}.",
        "dump 中没有参数 {path} 的梯度。", severity="note",
    ),
    Message(
        "P362", "argument-requires-none", "note:precheck", "path",
        "argument {path} requires no gradient.",
        "参数 {path} 不需要梯度。", severity="note",
    ),
    Message(
        "P363", "argument-without-gradient", "note:precheck", "path",
        "argument {path} has no gradient.",
        "参数 {path} 没有梯度。", severity="note",
    ),
    Message(
        "P364", "draw-not-visible", "note:precheck", "",
        "random: what it drew cannot be seen, and its gradient has no relation to its result.",
        "随机：无法看到它抽取的数，且梯度与结果没有关系。", severity="note",
    ),
    Message(
        "P365", "draws-have-own-gradients", "note:precheck", "",
        "random call: each draw has its own gradient; gradients are not compared.",
        "随机调用：每次抽样有各自的梯度；不比对梯度。", severity="note",
    ),
    Message(
        "P368", "no-gradient-fits", "note:precheck", "",
        "no recorded gradient belongs to an argument.",
        "采集的梯度不属于任何参数。", severity="note",
    ),
    Message(
        "P369", "gradient-values-missing", "note:precheck", "",
        "the dump does not have the values of all incoming gradients.",
        "dump 没有全部传入梯度的数值。", severity="note",
    ),
    Message(
        "P370", "gradient-result-unknown", "note:precheck", "",
        "the record does not say which of its results each incoming gradient belongs to.",
        "记录没有说明各传入梯度属于哪个结果。", severity="note",
    ),
    Message(
        "P371", "module-made-differently", "note:precheck", "given recorded",
        "made again, its results have the shapes {given}, recorded are {recorded}: the module was made with settings that are not in its record.",
        "重新创建后结果的 shape 为 {given}，采集的为 {recorded}：创建该模块的设置不在其记录中。", severity="note",
    ),
    Message(
        "P372", "record-requires-no-gradient", "note:precheck", "",
        "no argument of the record requires a gradient.",
        "记录中没有参数需要梯度。", severity="note",
    ),
    Message(
        "P373", "results-independent", "note:precheck", "",
        "no result with a recorded gradient depends on the arguments.",
        "有梯度记录的结果都不依赖于参数。", severity="note",
    ),
    Message(
        "P374", "recorded-gradient-shape", "note:precheck", "gradient result",
        "the recorded gradient has the shape {gradient}, the result {result}.",
        "采集的梯度的 shape 为 {gradient}，结果为 {result}。", severity="note",
    ),
    Message(
        "P375", "no-reason-given", "note:precheck", "",
        "no reason was given.",
        "没有给出原因。", severity="note",
    ),
    Message(
        "P376", "overflow-is-normal", "note:precheck", "key",
        "The {key} overflow is a normal overflow.",
        "{key} 的溢出是正常溢出。", severity="note",
    ),
    Message(
        "P378", "overflow-not-checked", "note:precheck", "key why",
        "The {key} was skipped: {why}",
        "{key} 被略过：{why}", severity="note",
    ),
    Message(
        "P379", "worker-killed", "note:precheck", "signal",
        "the worker died of {signal}.",
        "工作进程因 {signal} 终止。", severity="note",
    ),
    Message(
        "P380", "worker-ended", "note:precheck", "status",
        "the worker ended with exit status {status}.",
        "工作进程以退出码 {status} 结束。", severity="note",
    ),
    Message(
        "P381", "killed-for-memory", "note:precheck", "problem",
        "{problem} Is there too little memory?",
        "{problem}是否内存不足？", severity="note",
    ),
    Message(
        "P382", "in-black-list", "note:precheck", "name",
        "{name} is in black_list.",
        "{name} 在 black_list 中。", severity="note",
    ),
    Message(
        "P383", "never-checked", "note:precheck", "name",
        "{name} is never checked: it does not compute its result.",
        "{name} 从不检查：其结果不是计算得到的。", severity="note",
    ),
    Message(
        "P384", "not-in-white-list", "note:precheck", "name",
        "{name} is not in white_list.",
        "{name} 不在 white_list 中。", severity="note",
    ),
    Message(
        "P385", "collectives-need-ranks", "note:precheck", "",
        "collectives need other ranks.",
        "集合通信需要其他 rank。", severity="note",
    ),
    Message(
        "P386", "mindspeed-needed", "note:precheck", "",
        "functions of MindSpeed need its package.",
        "MindSpeed 的函数需要其软件包。", severity="note",
    ),
    Message(
        "P387", "prefix-not-checked", "note:precheck", "",
        "not checked.",
        "不检查。", severity="note",
    ),
    Message(
        "P388", "topk-unsorted", "note:precheck", "",
        "topk with sorted=False: the order of its results is not defined, and an NPU ignores sorted=False.",
        "topk 使用 sorted=False：结果的次序没有定义，且 NPU 忽略 sorted=False。", severity="note",
    ),
    Message(
        "P389", "control-of-other-arguments", "note:precheck", "",
        "the control's row is of other arguments: it was made from a different dump.",
        "对照的行属于其他参数：它来自不同的 dump。", severity="note",
    ),
    Message(
        "P390", "control-lacks-row", "note:precheck", "",
        "the control's file has no row of this output.",
        "对照文件没有此输出的行。", severity="note",
    ),
    Message(
        "P391", "skipped-by-check", "note:precheck", "",
        "skipped by the check.",
        "检查时已略过。", severity="note",
    ),
    Message(
        "P392", "type-not-compared", "note:precheck", "dtype",
        "{dtype} is not compared.",
        "不比较 {dtype}。", severity="note",
    ),
    Message(
        "P393", "candidate-lacks-rows", "note:precheck", "",
        "the candidate's file has none of them",
        "待比对侧的文件没有这些行", severity="note",
    ),
    Message(
        "P394", "sample-missing", "note:precheck", "",
        "there is no sample of it in this type",
        "没有该类型的样例", severity="note",
    ),
    Message(
        "P395", "control-as-far-off", "note:precheck", "control",
        "the control on {control} is as far off",
        "对照 {control} 的误差同样大", severity="note",
    ),
)
