"""Runs in different layouts: what differs (D6), and notes on them (N6)."""

from __future__ import annotations

from msprobe.messages.entry import Message

# fmt: off
MESSAGES: tuple[Message, ...] = (
    Message(
        "D601", "argument-differs-in-layout", "kind:argument", "operation module argument candidate reference",
        "{operation} in {module}: {argument} is {candidate}, in the reference {reference}",
        "{module} 中的 {operation}：{argument} 为 {candidate}，标杆侧为 {reference}",
    ),
    Message(
        "D602", "parameter-differs-in-layout", "kind:weights", "when ranks relation",
        " differs {when}{ranks} ({relation})",
        " {when}不同{ranks}（{relation}）",
    ),
    Message(
        "D603", "result-differs-in-layout", "kind:computation", "call what ranks relation why",
        "{call}: {what} differs{ranks} ({relation}); {why}",
        "{call}：{what} 不同{ranks}（{relation}）；{why}",
    ),
    Message(
        "D604", "terms-not-added-up", "kind:collective", "call what user",
        "{call}: each rank has its own term of {what}; nothing adds them up before {user}, whose result differs",
        "{call}：各 rank 各有 {what} 的一个分量，在 {user} 之前没有相加，{user} 的结果因此不同",
    ),
    Message(
        "D605", "incoming-gradient-differs-in-layout", "kind:gradient", "slot call ranks relation",
        "{slot} of {call}, an incoming gradient, differs{ranks} ({relation}), while the forward pass and everything recorded before agree",
        "{call} 的 {slot}（传入的梯度）不同{ranks}（{relation}），而前向和此前采集的全部一致",
    ),
    Message(
        "D606", "data-differs-in-layout", "kind:data", "slot call ranks relation",
        "{slot} of {call} comes from outside the recorded modules and differs{ranks} ({relation})",
        "{call} 的 {slot} 来自已采集模块之外，且不同{ranks}（{relation}）",
    ),
    Message(
        "D607", "received-tensor-differs", "kind:collective", "slot call ranks relation received",
        "{slot} of {call} differs{ranks} ({relation}), while all modules before agree: {received} brought it from another rank",
        "{call} 的 {slot} 不同{ranks}（{relation}），而此前的模块全部一致：它由 {received} 从另一 rank 传来",
    ),
    Message(
        "D608", "computed-between-modules-in-layout", "kind:computation", "slot call ranks relation where",
        "{slot} of {call} differs{ranks} ({relation}), while all modules before agree: it is computed between them{where}",
        "{call} 的 {slot} 不同{ranks}（{relation}），而此前的模块全部一致：它在模块之间计算得出{where}",
    ),
    Message(
        "D609", "parameter-gradient-differs-in-layout", "kind:parameter_gradient", "relation ranks",
        " differs ({relation}){ranks}, while the incoming gradient of its module agrees",
        " 不同（{relation}）{ranks}，而传到其模块的内容一致",
    ),
    Message(
        "D610", "gradients-differ-by-one-factor", "kind:parameter_gradient", "parameter more factor",
        'the gradients of "{parameter}" and {more} more are {factor:.3g} times as large when the optimizer steps: one common factor, which is not rounding',
        "优化器更新时，{parameter} 等另外 {more} 个梯度是标杆侧的 {factor:.3g} 倍：同一倍数，不可能来自舍入误差",
    ),
    Message(
        "D611", "state-differs-in-layout", "kind:optimizer", "what ranks relation",
        "{what}{ranks} ({relation}); gradients and settings agree",
        "{what}{ranks}（{relation}）；梯度和设置一致",
    ),
    Message(
        "D612", "optimizer-setting-differs-in-layout", "kind:optimizer", "optimizer setting candidate ranks reference parameters",
        "{optimizer}: {setting} is {candidate}{ranks}, in the reference {reference}, for {parameters}",
        "{optimizer}：{parameters} 的 {setting} 为 {candidate}{ranks}，标杆侧为 {reference}",
    ),
    Message(
        "D613", "gradient-at-optimizer-differs-in-layout", "kind:parameter_gradient", "ranks relation why",
        " differs when the optimizer steps{ranks} ({relation}){why}",
        " 在优化器更新时不同{ranks}（{relation}）{why}",
    ),
    Message(
        "D614", "copies-differ", "kind:replica", "ranks why",
        " should be the same on {ranks} and differs{why}",
        " 在 {ranks} 上应相同但不同{why}",
    ),
    Message(
        "N601", "layouts-differ", "note", "tensors",
        "the layouts differ: modules, their gradients, parameters and the optimizer are compared, not single calls; tensors: {tensors}",
        "并行布局不同：比对模块及其梯度、参数和优化器，不比对单个调用；张量：{tensors}",
        severity="note",
    ),
    Message(
        "N602", "layout-of-one-rank", "note", "side",
        "layout of the {side}: one rank",
        "{side}的布局：单个 rank",
        severity="note",
    ),
    Message(
        "N603", "layout-of-ranks", "note", "side ranks source",
        "layout of the {side}: {ranks} ranks, from {source}",
        "{side}的布局：{ranks} 个 rank，依据{source}",
        severity="note",
    ),
    Message(
        "N604", "interrupted-on-rank", "note", "side rank",
        "the {side} was interrupted on rank {rank}: its records up to there are compared",
        "{side}在 rank {rank} 上中断：比较到中断为止的采集内容",
        severity="note",
    ),
    Message(
        "N605", "tensors-of-several-passes", "note", "count",
        "{count} tensors of the last step were put together from several passes of a module",
        "上一 step 的 {count} 个张量由模块的多次执行拼合而成",
        severity="note",
    ),
    Message(
        "N606", "tensors-not-comparable", "note", "count why",
        "{count} tensors could not be compared ({why})",
        "{count} 个张量无法比对（{why}）",
        severity="note",
    ),
    Message(
        "N607", "arguments-not-compared", "note", "arguments more",
        "arguments of calls differ; they are not compared across layouts: {arguments}{more}",
        "调用的参数不同（并行布局不同时不作比对）：{arguments}{more}",
        severity="note",
    ),
    Message(
        "N608", "gradients-multiplied", "note", "factor",
        "gradients in the backward pass are compared after those of the candidate were multiplied by {factor:g}: ranks take the mean over their own samples",
        "比对反向梯度前，待比对侧的梯度乘以 {factor:g}：各 rank 只对自己的样本求平均",
        severity="note",
    ),
    Message(
        "N609", "values-cannot-be-added", "note", "what",
        "{what}: no values were recorded, or none that can be summed over ranks",
        "{what} 个：没有采集数值，或数值无法跨 rank 合并",
        severity="note",
    ),
    Message(
        "N610", "modules-on-one-side", "note", "side modules more",
        "modules only in the {side}: {modules}{more}",
        "仅{side}有的模块：{modules}{more}",
        severity="note",
    ),
)
