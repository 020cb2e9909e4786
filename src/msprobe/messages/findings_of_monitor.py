"""What the monitor and its comparisons find (M3)."""

from __future__ import annotations

from msprobe.messages.entry import Message, Piece

# fmt: off
MESSAGES: tuple[Message, ...] = (
    Message(
        "M301", "tensor-jumps", "error:monitor", "tensor distance before",
        "{tensor}: differs by {distance} (relative); {before}",
        "{tensor}：相差 {distance}（相对）；{before}", severity="finding",
    ),
    Message(
        "M302", "tensors-appear", "error:monitor", "quantity count",
        "{quantity}: {count} more tensors",
        "{quantity}：多 {count} 个张量", severity="finding",
    ),
    Message(
        "M303", "tensors-vanish", "error:monitor", "quantity count",
        "{quantity}: {count} fewer tensors",
        "{quantity}：少 {count} 个张量", severity="finding",
    ),
    Message(
        "M304", "batch-differs", "error:monitor", "",
        "different batch of data",
        "数据批次不同", severity="finding",
    ),
    Message(
        "M305", "rate-differs", "error:monitor", "rate reference",
        "learning rate {rate:.6g} instead of {reference:.6g}",
        "学习率为 {rate:.6g}，标杆侧为 {reference:.6g}", severity="finding",
    ),
    Message(
        "M306", "gradient-scaled-between", "error:monitor", "tensor factor usual",
        "gradient of {tensor}: multiplied by {factor:.4g} between backward and step, compared with the other tensors and the reference (usual: at most {usual:.2g})",
        "{tensor} 的梯度：与其他张量及标杆侧相比，在反向与更新之间变为 {factor:.4g} 倍（通常最多相差 {usual:.2g}）", severity="finding",
    ),
    Message(
        "M307", "norm-scaled-steadily", "error:monitor", "tensor factor steps before others",
        "norm of {tensor}: {factor:.4g} times the reference in {steps} successive steps; it differed by {before:.3g} before, other tensors differ by {others:.3g}",
        "{tensor} 的范数：连续 {steps} 个 step 为标杆侧的 {factor:.4g} 倍；之前相差 {before:.3g}，其他张量相差 {others:.3g}", severity="finding",
    ),
    Message(
        "M308", "gradients-differ-generally", "error:monitor", "level limit first",
        "gradients of most tensors differ by {level:.2g}; rounding explains {limit:.2g} (in step 0 they differ by {first:.2g})",
        "多数张量的梯度相差 {level:.2g}；舍入误差可解释 {limit:.2g}（step 0 相差 {first:.2g}）", severity="finding",
    ),
    Message(
        "M309", "weights-differ-before-start", "error:monitor", "tensor distance",
        "weights {tensor} differ before the first step: {distance:.3g} (relative)",
        "权重 {tensor} 在首个 step 之前就不同：{distance:.3g}（相对）", severity="finding",
    ),
    Message(
        "M310", "weights-change-between", "error:monitor", "tensor step distance",
        "weights {tensor} change between step {step} and this one in the candidate only: {distance:.3g} (relative)",
        "只有待比对侧的权重 {tensor} 在 step {step} 与本 step 之间改变：{distance:.3g}（相对）", severity="finding",
    ),
    Message(
        "M311", "update-differs-of-equal-gradients", "error:monitor", "tensor distance limit",
        "gradients agree, the update of {tensor} does not: it differs by {distance:.3g} of its size; the gradient explains {limit:.3g}",
        "梯度一致，而 {tensor} 的更新量不同：相对差异为 {distance:.3g}；梯度可解释 {limit:.3g}", severity="finding",
    ),
    Message(
        "M312", "update-adds-steadily", "error:monitor", "tensor steps more step errors",
        "norm of weights {tensor}: each of the first {steps} updates adds {more:+.3g} more than in the reference (an update is {step:.3g}; {errors:.0f} standard errors)",
        "权重 {tensor} 的范数：前 {steps} 次更新每次比标杆侧多 {more:+.3g}（一次更新为 {step:.3g}；{errors:.0f} 个标准误差）", severity="finding",
    ),
    Message(
        "M323", "state-leaves-what-it-follows", "error:monitor", "tensor distance limit",
        "state {tensor}, which no optimizer owns, differs by {distance:.3g} (relative); what it follows explains {limit:.2g}",
        "不属于任何优化器的状态 {tensor} 相差 {distance:.3g}（相对）；它所跟随的数值可解释 {limit:.2g}", severity="finding",
    ),
    Message(
        "M313", "rank-diverges", "error:monitor", "rank reference step quantity tensor op value reference_value count",
        "rank {rank} differs from rank {reference} from step {step} on: {quantity} of {tensor}, {op} {value:.9g} and {reference_value:.9g}; {count} tensors differ at that step",
        "rank {rank} 从 step {step} 起与 rank {reference} 不同：{tensor} 的 {quantity}，{op} 为 {value:.9g} 与 {reference_value:.9g}；该 step 有 {count} 个张量不同", severity="finding",
    ),
    Message(
        "M314", "alert-of-step", "error:monitor", "rank step state what rule next",
        "Alert on rank {rank} at step {step}{state}: {what}{rule}; next: {next}",
        "rank {rank} 在 step {step}{state}告警：{what}{rule}；下一步：{next}", severity="warning",
    ),
    Message(
        "M315", "alert-step-not-recorded", "error:monitor", "step config",
        "Step {step} itself was not recorded. To record it, save {config} as record.json and repeat the training from its start, or from a checkpoint of step N with --first-step N: `msprobe run --config record.json SCRIPT`; then `msprobe check ./dump_of_alert`.",
        "step {step} 本身没有采集。如需采集，请把 {config} 存为 record.json，从头重复训练，或从 step N 的检查点续训并加 --first-step N：`msprobe run --config record.json SCRIPT`；然后运行 `msprobe check ./dump_of_alert`。", severity="warning",
    ),
    Message(
        "M316", "first-bad-step", "error:monitor", "step rank run compared",
        "first bad step: {step} (rank {rank}{run}; compared {compared})",
        "首个异常 step：{step}（rank {rank}{run}；比对了 {compared}）", severity="finding",
    ),
    Message(
        "M317", "no-bad-step", "error:monitor", "alone compared",
        "no bad step{alone}: in {compared}, the candidate agrees with the reference, except for rounding",
        "没有异常 step{alone}：在 {compared}中，除舍入误差外待比对侧与标杆侧一致", severity="note",
    ),
    Message(
        "M318", "read-from-csv", "error:monitor", "",
        "read from csv files; sketches show smaller differences",
        "读取自 csv 文件；概要（sketch）能显示更小的差异", severity="note",
    ),
    Message(
        "M324", "update-not-measured", "error:monitor", "step before",
        "weights and updates were not measured in both runs: what is wrong at step {step} may have been done by the update of step {before} (learning rate, gradients, optimizer); param_distribution measures them",
        "两侧没有都测量权重和更新量：step {step} 的异常可能由 step {before} 的更新造成（学习率、梯度、优化器）；param_distribution 可测量它们", severity="note",
    ),
    Message(
        "M319", "runs-end-at-different-steps", "error:monitor", "reference candidate",
        "the reference ends at step {reference}, the candidate at step {candidate}; the common steps are compared",
        "标杆侧到 step {reference} 结束，待比对侧到 step {candidate}；只比对共同的 step", severity="note",
    ),
    Message(
        "M320", "not-compared-because", "error:monitor", "what",
        "not compared: {what}",
        "未比对：{what}", severity="note",
    ),
    Message(
        "M321", "no-alerts-found", "error:monitor", "steps",
        "No alerts{steps} in what was read:",
        "读取的内容中{steps}没有告警：", severity="note",
    ),
    Message(
        "M322", "alerts-unknown", "error:monitor", "",
        "It is unknown whether there were alerts: nothing was read.",
        "没有读取任何内容，无法知道是否有告警。", severity="note",
    ),
)

PIECES: tuple[Piece, ...] = (
    Piece("before-at-most", "usual", "before, it was at most {usual:.3g}", "之前最多 {usual:.3g}"),
    Piece("before-equal", "", "before, it was equal", "之前相同"),
    Piece("of-the-run", "run", " of the run {run}", "，运行 {run}"),
    Piece(
        "steps-of-ranks", "steps ranks",
        "{steps} steps of {ranks} ranks",
        "{ranks} 个 rank 的 {steps} 个 step",
    ),
    Piece("steps-of-one-rank", "steps", "{steps} steps of 1 rank", "1 个 rank 的 {steps} 个 step"),
    Piece("of-steps", "steps", " of steps {steps}", "（step {steps}）"),
    Piece("alert-of-loss", "value limit", "loss is {value}{limit}", "损失为 {value}{limit}"),
    Piece(
        "alert-of-tensor", "op what value limit",
        "{op} of {what}: {value}{limit}",
        "{what} 的 {op}：{value}{limit}",
    ),
    Piece(
        "alert-of-first-tensor", "op what value limit",
        "the first bad tensor is {op} of {what}: {value}{limit}",
        "第一个异常张量为 {what} 的 {op}：{value}{limit}",
    ),
    Piece("alert-limit", "limit", " (limit: {limit})", "（界限：{limit}）"),
    Piece("alert-numbers-more", "count", "{count} more numbers", "另有 {count} 个数"),
    Piece("alert-one-number-more", "", "1 more number", "另有 1 个数"),
    Piece("alert-rule", "rules", "; rule {rules}", "；规则 {rules}"),
    Piece(
        "alert-record-this-step", "",
        "record this step and the one before it (msprobe run --config record.json SCRIPT), then msprobe check",
        "采集该 step 与前一个 step（msprobe run --config record.json SCRIPT），然后 msprobe check",
    ),
    Piece(
        "first-alerts-of", "shown count",
        "The first {shown} of {count} alerts:",
        "{count} 个告警中的前 {shown} 个：",
    ),
)
