"""Where two runs differ: data and weights (D1), calls and their arguments (D2), results (D3)."""

from __future__ import annotations

from msprobe.messages.entry import Message

# fmt: off
MESSAGES: tuple[Message, ...] = (
    Message(
        "D101", "data-differs", "kind:data", "slot call how",
        "{slot} of {call} comes from outside the recorded calls and differs{how}: input data, a mask, a table or a buffer",
        "{call} 的 {slot} 来自未采集的代码，且不同{how}：可能是输入数据、mask、表或缓冲区",
    ),
    Message(
        "D102", "buffer-differs", "kind:weights", "when how",
        " differs {when}{how}: a state that the module keeps",
        " {when}不同{how}：它是模块保留的状态",
    ),
    Message(
        "D103", "parameter-differs", "kind:weights", "parameter when how",
        'parameter "{parameter}" differs {when}{how}',
        "参数 {parameter} {when}已不同{how}",
    ),
    Message(
        "D204", "argument-differs", "kind:argument", "call argument candidate reference",
        "{call}: {argument} is {candidate}, in the reference {reference}",
        "{call}：{argument} 为 {candidate}，标杆侧为 {reference}",
    ),
    Message(
        "D205", "arguments-differ", "kind:argument", "call arguments",
        "{call}: {arguments}",
        "{call}：{arguments}",
    ),
    Message(
        "D206", "replaced-call-with-other-arguments", "kind:structure", "call other_call arguments",
        "the candidate calls {call} where the reference calls {other_call}: {arguments}",
        "待比对侧调用 {call}，标杆侧调用的是 {other_call}：{arguments}",
    ),
    Message(
        "D207", "broadcasts", "kind:structure", "call shapes side",
        "{call} gets {shapes}: the {side} broadcasts them, so every element of one is combined with every element of the other",
        "{call} 的输入是 {shapes}：{side}对其做了广播，一方的每个元素都与另一方的所有元素运算",
    ),
    Message(
        "D208", "replaced-calls", "kind:structure", "calls other_calls",
        "the candidate calls {calls} where the reference calls {other_calls}",
        "待比对侧调用 {calls}，标杆侧调用的是 {other_calls}",
    ),
    Message(
        "D209", "extra-calls", "kind:structure", "calls",
        "only the candidate calls {calls}",
        "仅待比对侧调用 {calls}",
    ),
    Message(
        "D210", "missing-calls", "kind:structure", "calls",
        "only the reference calls {calls}",
        "仅标杆侧调用 {calls}",
    ),
    Message(
        "D211", "overwritten-by-unrecorded", "kind:mutation", "slot call maker how",
        "{slot} of {call}: in the candidate this tensor was overwritten after {maker} made it{how}, by an operation that was not recorded",
        "{call} 的 {slot}：在待比对侧，该张量在 {maker} 产生之后被未采集的操作改写{how}",
    ),
    Message(
        "D212", "overwritten-by-call", "kind:mutation", "writer call slot maker",
        "{writer} overwrites {slot} of {call}; in the reference it is still the unchanged result of {maker}",
        "{writer} 改写了 {call} 的 {slot}；标杆侧仍是 {maker} 未被改动的结果",
    ),
    Message(
        "D213", "input-comes-from-elsewhere", "kind:structure", "slot call candidate reference",
        "{slot} of {call} is {candidate}; in the reference it is {reference}",
        "{call} 的 {slot} 是 {candidate}；标杆侧是 {reference}",
    ),
    Message(
        "D214", "outside-dtype-differs", "kind:dtype", "slot call candidate reference",
        "{slot} of {call}, which comes from outside the recorded calls, is {candidate}; in the reference it is {reference}",
        "{call} 的 {slot} 来自未采集的代码，dtype 为 {candidate}，标杆侧为 {reference}",
    ),
    Message(
        "D215", "dtype-differs-by-extra-call", "kind:dtype", "what verb candidate reference how side call",
        "{what} {verb} {candidate}, in the reference {reference}{how}: only the {side} calls {call}",
        "{what} {verb} {candidate}，标杆侧{reference}{how}：仅{side}调用 {call}",
    ),
    Message(
        "D216", "result-dtype-differs", "kind:dtype", "call slot candidate reference",
        "{call} gives {slot} in {candidate}, in the reference in {reference}, from inputs of the same dtypes, as where autocast covers this call on one side only",
        "{call} 的 {slot} 为 {candidate}，标杆侧为 {reference}，而输入的 dtype 相同：例如 autocast 只在一侧覆盖了该调用",
    ),
    Message(
        "D217", "extra-random-call", "kind:structure", "call side other_call",
        "{call} draws different random numbers: only the {side} calls {other_call}, which draws some before",
        "{call} 产生的随机数不同：仅{side}调用了 {other_call}，它在此之前消耗了随机数",
    ),
    Message(
        "D218", "strides-differ", "kind:layout", "slot call candidate reference",
        "{slot} of {call} has the same values in a different memory layout (strides {candidate}, in the reference {reference})",
        "{call} 的 {slot} 数值相同，但内存布局不同（步长 {candidate}，标杆侧 {reference}）",
    ),
    Message(
        "D219", "random-numbers-differ", "cause:random", "call",
        "{call} draws different random numbers: seed or generator state differ",
        "{call} 产生的随机数不同：随机种子或生成器状态不一致",
    ),
    Message(
        "D221", "different-parameter-used", "kind:structure", "slot call candidate reference",
        "{slot} of {call} is {candidate}, in the reference {reference}",
        "{call} 的 {slot} 是 {candidate}，标杆侧是 {reference}",
    ),
    Message(
        "D230", "parameter-moved", "kind:structure", "slot call parameter",
        '{slot} of {call} is "{parameter}" with its elements in a different order than in the reference, as after a transpose',
        '{call} 的 {slot} 是“{parameter}”，但元素顺序与标杆侧不同，例如经过转置',
    ),
    Message(
        "D232", "parameter-of-other-shape", "kind:structure", "slot call parameter shape other other_shape",
        '{slot} of {call} is "{parameter}" {shape}, in the reference "{other}" {other_shape}: the models have different parameters there',
        '{call} 的 {slot} 是“{parameter}”{shape}，标杆侧是“{other}”{other_shape}：两侧模型在此处的参数不同',
    ),
    Message(
        "D222", "replaced-write", "kind:structure", "call other_call more",
        "the candidate calls {call} where the reference calls {other_call}, on the same tensors{more}; both change state that is kept for the next step, and leave different values in it",
        "对同样的张量，待比对侧调用 {call}，标杆侧调用的是 {other_call}{more}；两者都改变保留到下一个 step 的状态，留下的值不同",
    ),
    Message(
        "D223", "whole-numbers-rounded", "cause:rounded_numbers", "call dtype of largest limit",
        "{call} converts to {dtype} whole numbers {of}up to {largest:.0f}; that type holds each of them only up to {limit:.0f}, beyond which neighbours become one number",
        "{call} 把整数{of}（最大 {largest:.0f}）转换为 {dtype}，该类型只能逐一表示到 {limit:.0f}：更大的相邻整数会变成同一个数",
    ),
    Message(
        "D224", "kept-state-differs", "kind:mutation", "call difference argument recorded",
        "what {call} keeps for the next step differs (relative difference {difference:.2g}) from {argument} of {recorded}, the nearest tensor that the reference uses there: an average or a state",
        "{call} 为下一个 step 保留的内容（相对差异 {difference:.2g}）与 {recorded} 的 {argument} 不同，后者是标杆侧在该处使用的最接近的张量：这是滑动平均或状态",
    ),
    Message(
        "D226", "before-the-step", "kind:structure", "call slot how",
        "the candidate calls {call} before the step of the optimizer, the reference calls it after that step; {slot} differs{how}",
        "待比对侧在优化器 step 之前调用 {call}，标杆侧在其之后调用；{slot} 不同{how}",
    ),
    Message(
        "D227", "after-the-step", "kind:structure", "call slot how",
        "the candidate calls {call} after the step of the optimizer, the reference calls it before that step; {slot} differs{how}",
        "待比对侧在优化器 step 之后调用 {call}，标杆侧在其之前调用；{slot} 不同{how}",
    ),
    Message(
        "D228", "written-before-the-step", "kind:structure", "call",
        "the candidate calls {call} before the step of the optimizer, the reference calls it after that step; the gradients that the optimizer gets differ",
        "待比对侧在优化器 step 之前调用 {call}，标杆侧在其之后调用；优化器得到的梯度不同",
    ),
    Message(
        "D229", "written-after-the-step", "kind:structure", "call",
        "the candidate calls {call} after the step of the optimizer, the reference calls it before that step; the gradients that the optimizer gets differ",
        "待比对侧在优化器 step 之后调用 {call}，标杆侧在其之前调用；优化器得到的梯度不同",
    ),
    Message(
        "D301", "beyond-rounding", "cause:beyond", "what verb difference limit",
        "{what} {verb} by {difference} (relative); rounding explains {limit:.2g}. No single call differs by more than its inputs explain: the difference builds up",
        "{what}的相对差异为 {difference}，舍入误差能解释 {limit:.2g}。没有哪个调用的差异单独超出其输入所能解释的范围：差异是逐步累积的",
    ),
    Message(
        "D390", "kernel-wrong-on-one-side", "cause:wrong_alone", "call side why",
        "{call}: computed again from its own inputs in double precision, the result of the {side} is wrong and that of the other side is right: {why}",
        "{call}：用自身输入以双精度重新计算，{side}的结果有误，而另一侧的结果正确：{why}",
    ),
    Message(
        "D302", "near-tie", "kind:choice", "call token difference",
        "near tie at {call}: rounding decides which token is chosen ({token}); their values differ by {difference:.2g} (relative). Later tokens may differ for this reason alone",
        "{call} 处几乎并列：由舍入决定选哪个 token（{token}）；候选值的相对差异为 {difference:.2g}。此后的 token 可能仅因此而不同",
    ),
    Message(
        "D231", "computed-beyond-all-before", "cause:between", "slot call how where",
        "{slot} of {call} differs{how}, by more than everything recorded before explains: it is computed {where}. Record level mix to see the call",
        "{call} 的 {slot} 不同{how}，超出此前采集的一切所能解释的范围：它{where}计算得出。请以 level mix 采集以看到具体调用",
    ),
    Message(
        "D303", "computed-between-modules", "cause:between", "slot call how where",
        "{slot} of {call} differs{how}, while everything recorded before agrees: it is computed {where}. Record level mix to see the call",
        "{call} 的 {slot} 不同{how}，而此前采集的全部一致：它{where}计算得出。请以 level mix 采集以看到具体调用",
    ),
    Message(
        "D304", "recompute-starts-differently", "kind:recompute", "call slot forward",
        "recomputation {call} starts from a different {slot} than {forward}: a saved tensor was modified after the forward pass (not so in the reference)",
        "重计算 {call} 的 {slot} 与 {forward} 不同：保存的张量在前向之后被改写（标杆侧没有）",
    ),
    Message(
        "D305", "nan-or-infinity-made", "kind:overflow", "call slot",
        "{call} makes NaN or infinity in {slot} from finite inputs; the reference does not",
        "{call} 由有限的输入得到 NaN 或无穷（{slot}），标杆侧没有",
    ),
    Message(
        "D306", "collective-result-differs", "kind:collective", "call slot how why",
        "{call}: {slot} differs{how}, {why}",
        "{call}：{slot} 不同{how}，{why}",
    ),
    Message(
        "D307", "result-differs", "kind:computation", "call slot how why",
        "{call}: {slot} differs{how}; {why}",
        "{call}：{slot} 不同{how}；{why}",
    ),
    Message(
        "D308", "recomputed-result-differs", "kind:recompute", "call slot how why",
        "recomputation {call} gives a different {slot}{how}; {why}",
        "重计算 {call} 得到的 {slot} 不同{how}；{why}",
    ),
    Message(
        "D309", "recompute-draws-other-numbers", "kind:recompute", "call forward",
        "recomputation {call} takes what {forward} took and draws different random numbers (not so in the reference): the generator state was not restored",
        "重计算 {call} 的输入与 {forward} 相同，产生的随机数却不同（标杆侧没有）：随机数发生器的状态没有恢复",
    ),
)
