"""What the columns of the tables hold: their meaning, their unit, and when they are None. ``docs/python.md`` says the
same.
"""

from __future__ import annotations

from msprobe.messages import both
from msprobe.statistics_table import USUAL, meanings

#: All calls of one step of one rank of two runs, one row for each pair and for each call of one side alone.
CALLS = {
    "name": both(
        "the candidate's record; None for a call of the reference alone", "待比对侧的记录；仅标杆侧有的调用为 None"
    ),
    "reference_name": both(
        "the record of the reference that answers to it; None for a call of the candidate alone",
        "标杆侧与之对应的记录；仅待比对侧有的调用为 None",
    ),
    "module": both(
        "path of the module that it is a pass of, or runs in; None outside of all",
        "所属或所在模块的路径；不在任何模块中时为 None",
    ),
    "inside": both(
        "name of the module pass around it; None outside of all", "外层模块执行的名称；不在任何模块中时为 None"
    ),
    "phase": both("forward, backward or optimizer", "forward、backward 或 optimizer"),
    "order": both(
        "place in the order of execution, from 0; a module has that of the first call in it",
        "执行次序中的位置，从 0 开始；模块取其中第一个调用的位置",
    ),
    "status": both(
        "same, rounding, explained (by its inputs), unexplained, candidate only, reference only, or not measured",
        "same、rounding、explained（由输入解释）、unexplained、candidate only、reference only 或 not measured",
    ),
    "input_delta": both(
        "largest relative difference of its inputs (no unit; inf: without size, as NaN on one side); "
        "None without partner",
        "输入的最大相对差异（无单位；inf：无法衡量，如只有一侧为 NaN）；没有对应时为 None",
    ),
    "output_delta": both("the same of its outputs", "输出的同一项"),
    "allowed": both(
        "how much of output_delta rounding and the inputs explain (inf: any); None without partner, and "
        "where nothing differs",
        "舍入误差与输入能解释的 output_delta（inf：任意大）；没有对应或没有差异时为 None",
    ),
    "largest": both(
        "largest absolute value of its floating-point results (in the candidate, if that has it); None "
        "if not recorded or not finite",
        "浮点结果的最大绝对值（待比对侧有则取其值）；没有采集或不是有限数时为 None",
    ),
    "norm": both(
        "L2 norm of these results together; None if not recorded or not finite",
        "这些结果合起来的 L2 范数；没有采集或不是有限数时为 None",
    ),
    "not_finite": both("True if one of these results holds NaN or infinity", "这些结果中有 NaN 或无穷时为 True"),
    "finding": both(
        "number of the first finding that names it, in .findings; None for the others",
        "第一个提到它的问题项在 .findings 中的编号；其他为 None",
    ),
}

#: All tensors of one step of one rank of two runs, one row for each pair and for each tensor of one side alone.
TENSOR_PAIRS = {
    "name": CALLS["name"],
    "reference_name": CALLS["reference_name"],
    "module": CALLS["module"],
    "slot": both(
        "which of its tensors: input.0, input.weight, parameters.bias, output.0",
        "它的哪个张量：input.0、input.weight、parameters.bias、output.0",
    ),
    "group": both(
        "input, parameter or output; of a backward call its incoming and outgoing gradients",
        "input、parameter 或 output；反向调用为传入与传出的梯度",
    ),
    "status": both(
        "as of calls; of an input, explained: it was made elsewhere, and differs",
        "同调用；输入为 explained 表示它在别处产生且不同",
    ),
    "difference": both(
        "relative difference of the two (no unit: of the values if both were recorded, else the largest "
        "of the statistics; inf: without size); 0 if they are equal; None without partner or numbers",
        "两者的相对差异（无单位：双方都采集了数值时按数值，否则取统计量中最大的；inf：无法衡量）；"
        "相等时为 0；没有对应或没有数时为 None",
    ),
    "units": both(
        "the difference in units of the rounding of its dtype; None without a difference that has a size",
        "以其 dtype 的舍入单位计的差异；没有可衡量的差异时为 None",
    ),
    "dtype": both(
        "type in the candidate, without the framework's prefix; None if the candidate has none",
        "待比对侧的类型，不含框架前缀；待比对侧没有时为 None",
    ),
    "reference_dtype": both("the same of the reference", "标杆侧的同一项"),
    "shape": both(
        "shape in the candidate, as text; None if the candidate has none, or it was not recorded",
        "待比对侧的 shape（文本）；待比对侧没有或没有采集时为 None",
    ),
    "reference_shape": both("the same of the reference", "标杆侧的同一项"),
    "max": both("largest element in the candidate; None if not recorded", "待比对侧的最大元素；没有采集时为 None"),
    "reference_max": both("the same of the reference", "标杆侧的同一项"),
    "min": both("least element in the candidate; None if not recorded", "待比对侧的最小元素；没有采集时为 None"),
    "reference_min": both("the same of the reference", "标杆侧的同一项"),
    "mean": both("mean in the candidate; None if not recorded", "待比对侧的均值；没有采集时为 None"),
    "reference_mean": both("the same of the reference", "标杆侧的同一项"),
    "norm": both("L2 norm in the candidate; None if not recorded", "待比对侧的 L2 范数；没有采集时为 None"),
    "reference_norm": both("the same of the reference", "标杆侧的同一项"),
}

#: All tensors of one step of one rank of one run.
TENSORS = {
    "record": both("name of the record", "记录的名称"),
    "module": CALLS["module"],
    "slot": TENSOR_PAIRS["slot"],
    "dtype": both("type without the framework's prefix", "类型，不含框架前缀"),
    "shape": both("shape as text; None if not recorded", "shape（文本）；没有采集时为 None"),
    **meanings(USUAL),
    "digest": both(
        "digest of the values, its kind before a colon; None if not recorded",
        "数值的摘要，冒号前为其种类；没有采集时为 None",
    ),
}

#: The findings of a comparison or a check, in their order.
FINDINGS = {
    "kind": both(
        "what sort of finding (docs/verdict.md, docs/check.md)", "问题项的类型（docs/verdict.md、docs/check.md）"
    ),
    "where": both("what is wrong, in words", "出问题之处的文字说明"),
    "module": both(
        "path of the module that the record ran in; None outside of all", "记录所在模块的路径；不在任何模块中时为 None"
    ),
    "entry": both(
        "record that shows it: of the candidate, or of the reference where the candidate has none; None "
        "if it is about no record",
        "体现它的记录：取待比对侧，待比对侧没有时取标杆侧；不针对记录时为 None",
    ),
    "step": both(
        "step of the candidate; None if it is about no step, or the folder has no number",
        "待比对侧的 step；不针对 step 或文件夹没有编号时为 None",
    ),
    "rank": both(
        "number of the rank, or name of its folder; None if it is about no single rank",
        "rank 编号或其文件夹名；不针对单个 rank 时为 None",
    ),
    "direction": both(
        "forward, backward, recompute, gradient, optimizer, or none",
        "forward、backward、recompute、gradient、optimizer 或 none",
    ),
    "order": both(
        "place in the order of execution, from 0; None if not known", "执行次序中的位置，从 0 开始；未知时为 None"
    ),
    "harmless": both(
        "True if nothing that counts (loss, gradients, weights) is changed by it",
        "不改变任何重要内容（损失、梯度、权重）时为 True",
    ),
    "message": both("the finding in a sentence", "问题项的一句话说明"),
}

_LOSS = both(
    "last number before the backward pass that gradients go back from; None if not recorded",
    "反向所从出发的、反向之前的最后一个数；没有采集时为 None",
)
_GRADIENTS = both(
    "L2 norm of the gradients as the optimizer takes them, before clipping; None if not recorded",
    "优化器得到的梯度的 L2 范数（裁剪之前）；没有采集时为 None",
)
_WEIGHTS = both(
    "L2 norm of the parameters of all modules; None if not recorded", "所有模块参数的 L2 范数；没有采集时为 None"
)

#: The steps of a run, one row for each rank of each.
STEPS = {
    "step": both("number of the step; None if the folder has none", "step 编号；文件夹没有编号时为 None"),
    "rank": both("number of the rank, or name of its folder", "rank 编号或其文件夹名"),
    "loss": _LOSS,
    "gradient_norm": _GRADIENTS,
    "weight_norm": _WEIGHTS,
}

#: The same of two runs.
STEP_PAIRS = {
    "step": STEPS["step"],
    "rank": STEPS["rank"],
    "loss": both("{}, or the candidate has no such step", "{0}；待比对侧没有这个 step 时也为 None", _LOSS),
    "reference_loss": both("the same of the reference", "标杆侧的同一项"),
    "gradient_norm": both(
        "{}, or the candidate has no such step", "{0}；待比对侧没有这个 step 时也为 None", _GRADIENTS
    ),
    "reference_gradient_norm": both("the same of the reference", "标杆侧的同一项"),
    "weight_norm": both("{}, or the candidate has no such step", "{0}；待比对侧没有这个 step 时也为 None", _WEIGHTS),
    "reference_weight_norm": both("the same of the reference", "标杆侧的同一项"),
}
