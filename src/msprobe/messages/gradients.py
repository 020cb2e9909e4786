"""Where two runs differ: gradients (D4), the optimizer (D5)."""

from __future__ import annotations

from msprobe.messages.entry import Message

# fmt: off
MESSAGES: tuple[Message, ...] = (
    Message(
        "D401", "extra-call-without-gradient", "kind:missing_gradient", "side call other_call other_side",
        "only the {side} calls {call}, which passes no gradient back; {other_call} of the {other_side} does",
        "仅{side}调用 {call}，梯度不经它回传；{other_side}的 {other_call} 会回传",
    ),
    Message(
        "D402", "detached", "kind:missing_gradient", "slot call side other_side",
        "no gradient flows back through {slot} of {call} in the {side}, as it does in the {other_side}: it is detached",
        "{side}没有梯度经 {call} 的 {slot} 回传，{other_side}有：它被 detach",
    ),
    Message(
        "D403", "gradient-not-required", "kind:missing_gradient", "call what",
        "no gradient reaches {call}, unlike in the reference: {what} requires a gradient only there",
        "没有梯度传到 {call}，标杆侧有：仅标杆侧的 {what} 需要梯度",
    ),
    Message(
        "D404", "incoming-gradient-differs", "kind:gradient", "call how why",
        "the incoming gradient of {call} differs{how}; no call recorded before it does{why}",
        "传到 {call} 的梯度不同{how}，而此前采集的调用都没有差异{why}",
    ),
    Message(
        "D405", "gradient-missing", "kind:missing_gradient", "calls",
        "no gradient reaches {calls}, unlike in the reference",
        "没有梯度传到 {calls}，标杆侧有",
    ),
    Message(
        "D406", "gradient-extra", "kind:missing_gradient", "calls",
        "a gradient reaches {calls}, unlike in the reference",
        "有梯度传到 {calls}，标杆侧没有",
    ),
    Message(
        "D407", "gradient-changed-after-backward", "cause:on_its_way", "slot call how",
        "{slot} of {call}, a gradient by its shape, differs{how} by more than what the backward passes gave. Something changed it in between, such as a missing zero_grad, a reduction or a scaling",
        "{call} 的 {slot}（从 shape 看是梯度）不同{how}，超出了反向传播给出的差异。其间有操作改变了它，例如没有清零、规约或缩放",
    ),
    Message(
        "D408", "gradient-differs-as-delivered", "kind:gradient", "slot call how parameter",
        "{slot} of {call}, a gradient by its shape, differs{how}; backward already gives the gradient of {parameter} with this difference. The cause is a call that the candidate computes differently",
        "{call} 的 {slot}（从 shape 看是梯度）不同{how}，而反向得到的 {parameter} 的梯度已有这一差异：原因在待比对侧以不同方式计算的调用中",
    ),
    Message(
        "D409", "gradients-not-cleared-on-one-side", "cause:not_cleared", "side when what count plural",
        "gradients were not cleared: {when}, those of {side} ({what}) are this step's plus the previous step's (checked on the means of {count} parameter{plural}). zero_grad() is missing between these steps",
        "梯度没有清零：{when}，{side}的梯度（{what}）是本 step 与上一个 step 之和（按 {count} 个参数的均值核对）。两个 step 之间缺少 zero_grad()",
    ),
    Message(
        "D410", "tied-on-one-side", "cause:tie", "first second side other_side",
        '"{first}" and "{second}" are one tensor in the {side} (tied weights) and two in the {other_side}, where each gets only the gradient of its own use',
        "{first} 与 {second} 在{side}是同一个张量（权重共享），在{other_side}是两个，各自只得到自己那部分的梯度",
    ),
    Message(
        "D411", "saved-tensor-overwritten", "kind:mutation", "what call how",
        "{what} a tensor saved for {call}: its gradients differ{how} by more than its incoming gradients and the forward pass do",
        "{what} {call} 仍需使用的张量：它的梯度不同{how}，超出了传入的梯度和前向的差异",
    ),
    Message(
        "D412", "parameter-gradient-differs", "kind:parameter_gradient", "parameter how",
        "the gradient of {parameter} differs{how}, while those of the calls that use it agree",
        "{parameter} 的梯度不同{how}，而使用它的各调用的梯度一致",
    ),
    Message(
        "D413", "backward-result-differs", "kind:gradient", "call slot how why",
        "{call}: the gradient of {slot} differs{how}; {why}, and its forward pass agrees",
        "{call}：{slot} 的梯度不同{how}；{why}，前向也一致",
    ),
    Message(
        "D415", "gradients-not-averaged", "cause:not_averaged", "parameters ranks side mean other_side",
        "gradients of {parameters} were not averaged over ranks {ranks} of the {side}: each rank steps with its own, and their {mean} equals what each rank of the {other_side} has",
        "{parameters} 的梯度在{side}的 rank {ranks} 之间没有取平均：每个 rank 用各自的梯度更新，它们的 {mean} 等于{other_side}每个 rank 的梯度",
    ),
    Message(
        "D501", "optimizer-class-differs", "cause:class", "candidate reference",
        "the optimizer is {candidate}, in the reference {reference}",
        "优化器是 {candidate}，标杆侧是 {reference}",
    ),
    Message(
        "D502", "optimizer-setting-differs", "kind:optimizer", "optimizer setting candidate reference parameters",
        "{optimizer}: {setting} is {candidate}, in the reference {reference}, for {parameters}",
        "{optimizer}：{parameters} 的 {setting} 为 {candidate}，标杆侧为 {reference}",
    ),
    Message(
        "D503", "optimizer-state-on-one-side", "cause:state", "optimizer field parameters when side",
        "{optimizer}: {field} of {parameters} exists {when} in the {side} only",
        "{optimizer}：{parameters} 的 {field} 仅{side}在{when}存在",
    ),
    Message(
        "D504", "update-differs", "kind:optimizer", "optimizer field parameter how",
        '{optimizer}: {field} of "{parameter}" differs after the step{how}; gradients, states and settings agree',
        "{optimizer}：{parameter} 的 {field} 在更新之后不同{how}；梯度、状态和设置都一致",
    ),
    Message(
        "D505", "gradient-missing-at-optimizer", "kind:missing_gradient", "parameter",
        '"{parameter}" has no gradient when the optimizer steps; in the reference it has one',
        "优化器更新时 {parameter} 没有梯度，标杆侧有",
    ),
    Message(
        "D506", "gradient-extra-at-optimizer", "kind:missing_gradient", "parameter",
        '"{parameter}" has a gradient when the optimizer steps; in the reference it has none',
        "优化器更新时 {parameter} 有梯度，标杆侧没有",
    ),
    Message(
        "D507", "clipping-on-one-side", "cause:clipping", "who calls slot call factor",
        "{who} gradients by their norm ({calls}): {slot} of {call} is {factor}",
        "{who}按范数裁剪梯度（{calls}）：{call} 的 {slot} {factor}",
    ),
    Message(
        "D508", "update-differs-by-framework", "kind:optimizer", "count total parameter factor",
        "the optimizer moved {count} of {total} parameters differently in the previous step ({parameter}{factor}), although their gradients agree: a setting differs, such as learning rate, betas, weight decay or epsilon",
        "上一个 step 中，优化器对 {total} 个参数中的 {count} 个更新不同（{parameter}{factor}），而梯度一致：学习率、betas、权重衰减、epsilon 等设置不同",
    ),
    Message(
        "D509", "gradients-clipped-with-loss-scale", "cause:scaled_clipping", "how",
        "all gradients differ when the optimizer steps{how}, by the loss scale ",
        "优化器更新时所有梯度都不同{how}，相差损失缩放系数",
    ),
    Message(
        "D510", "gradient-at-optimizer-differs", "cause:on_its_way", "parameter how",
        'the gradient of "{parameter}" differs when the optimizer steps{how} by more than what the backward passes gave. Something changed it in between, such as a missing zero_grad, a reduction or a scaling',
        "优化器更新时 {parameter} 的梯度不同{how}，超出了反向传播给出的差异。其间有操作改变了它，例如没有清零、规约或缩放",
    ),
    Message(
        "D517", "gradient-of-unrecorded-backward", "kind:gradient", "parameter how",
        'the gradient of "{parameter}" differs when the optimizer steps{how}. The backward pass that made it was not recorded: call start() before the forward pass',
        "优化器更新时 {parameter} 的梯度不同{how}。产生它的反向没有采集：请在前向之前调用 start()",
    ),
    Message(
        "D511", "optimizer-state-differs", "cause:state", "optimizer field parameter how",
        '{optimizer}: {field} of "{parameter}" differs before the step{how}',
        "{optimizer}：{parameter} 的 {field} 在更新之前已不同{how}",
    ),
    Message(
        "D512", "optimizer-lacks-parameters", "cause:members", "parameters are were",
        "{parameters} {are} not among its parameters, which {were} in the reference",
        "其参数中没有 {parameters}，标杆侧有",
    ),
    Message(
        "D513", "optimizer-has-extra-parameters", "cause:members", "parameters are",
        "{parameters} {are} among its parameters only in the candidate",
        "仅待比对侧的参数中有 {parameters}",
    ),
    Message(
        "D518", "models-have-other-parameters", "cause:members", "optimizer parameters others",
        "{optimizer}: the models have parameters of different names, which are not compared: {parameters} in the candidate, {others} in the reference",
        "{optimizer}：两侧模型的参数名称不同，因而未比对：待比对侧为 {parameters}，标杆侧为 {others}",
    ),
    Message(
        "D514", "clipped-before-unscaled", "cause:scaled_clipping", "side clip undoes call limit other_side otherwise",
        "the {side} clips gradients ({clip}) before it {undoes} ({call}){limit}; the {other_side} {otherwise}",
        "{side}先裁剪梯度（{clip}），之后才{undoes}（{call}）{limit}；{other_side}{otherwise}",
    ),
    Message(
        "D515", "optimizer-step-missing", "cause:no_step", "parameters optimizer",
        "no optimizer of the candidate updates {parameters}; {optimizer} does in the reference",
        "待比对侧没有优化器更新 {parameters}，标杆侧由 {optimizer} 更新",
    ),
    Message(
        "D516", "optimizer-step-extra", "cause:no_step", "optimizer parameters",
        "{optimizer} updates {parameters}; no optimizer of the reference does",
        "{optimizer} 更新了 {parameters}，标杆侧没有优化器更新它们",
    ),
    Message(
        "D519", "optimizer-step-again", "cause:step_again", "optimizer side parameters",
        "only the {side} calls {optimizer}: it updates {parameters} once more in this step",
        "仅{side}调用 {optimizer}：它在本 step 中再次更新了 {parameters}",
    ),
    Message(
        "D520", "gradients-in-parts-differ", "cause:in_parts", "optimizer",
        "{optimizer}: the sides have the gradients in different parts, and the norm of all parts of all ranks differs beyond rounding. Something changed them after the backward pass, such as a missing zero_grad, a reduction or a scaling",
        "{optimizer}：两侧对梯度的切分不同，且所有 rank 全部分片合起来的范数之差超出舍入误差。反向之后有操作改变了梯度，例如没有清零、规约或缩放",
    ),
)
