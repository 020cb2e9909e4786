"""What result pages say: of a monitored training, of gradients, of a check of calls, of settings."""

from __future__ import annotations

from msprobe.messages.entry import Piece

# fmt: off
#: Of the page of `msprobe monitor report`.
MONITOR: tuple[Piece, ...] = (
    Piece("monitor-title", "", "Training monitor", "训练监控"),
    Piece("monitor-training", "", "Training", "训练"),
    Piece("monitor-map", "", "Layer by step", "各层随 step 的变化"),
    Piece("monitor-alerts", "", "Alerts", "告警"),
    Piece("monitor-steps", "first last", "steps {first} to {last}", "step {first} 至 {last}"),
    Piece("monitor-no-steps", "", "no steps", "没有 step"),
    Piece("monitor-ranks", "ranks", "ranks {ranks}", "rank {ranks}"),
    Piece("monitor-ranks-not-shown", "count", " ({count} more are not shown)", "（另有 {count} 个未显示）"),
    Piece("monitor-started", "time", "started {time}", "开始于 {time}"),
    Piece("monitor-reference", "", "reference", "标杆侧"),
    Piece("monitor-candidate", "", "candidate", "待比对侧"),
    Piece(
        "monitor-differs-from-start", "",
        "The candidate and the reference differ by more than rounding from their first common step on. Usual causes: different data, a different seed, or a different model",
        "从首个共同的 step 起，待比对侧与标杆侧的差异就超出舍入误差。常见原因：数据、随机种子或模型不同",
    ),
    Piece(
        "monitor-first-bad-step", "step rank",
        "First bad step: {step}. From this step on, the candidate differs from the reference by more than rounding explains (rank {rank})",
        "首个异常 step：{step}。从这一 step 起，待比对侧与标杆侧的差异超出舍入误差（rank {rank}）",
    ),
    Piece(
        "monitor-departure", "quantity label op reference candidate rank",
        "{quantity} {label}, {op}: {candidate} in the candidate, {reference} in the reference (rank {rank})",
        "{quantity} {label}，{op}：待比对侧 {candidate}，标杆侧 {reference}（rank {rank}）",
    ),
    Piece("monitor-departures-more", "count", "and {count} more at this step", "该 step 另有 {count} 个"),
    Piece(
        "monitor-band-left-without-bad-step", "step",
        "No bad step: rounding explains all differences. At step {step} the candidate leaves the range of the reference, at a point where the reference hardly changes",
        "没有异常 step：所有差异都在舍入误差之内。待比对侧在 step {step} 离开标杆侧的范围，此处标杆侧几乎没有变化",
    ),
    Piece(
        "monitor-outside-band-from", "step",
        "The candidate is outside the range of the reference from step {step} on",
        "从 step {step} 起，待比对侧在标杆侧的范围之外",
    ),
    Piece(
        "monitor-band-left-there", "quantity label op",
        "The candidate leaves the range of the reference at that step, first in {quantity} {label} ({op})",
        "待比对侧在该 step 离开标杆侧的范围，首先是 {quantity} {label}（{op}）",
    ),
    Piece(
        "monitor-band-left-later", "bad step quantity label op",
        "The difference of step {bad} shows in the curves at step {step}, where it exceeds the reference's own changes: first in {quantity} {label} ({op})",
        "step {bad} 的差异在 step {step} 时超过标杆侧自身的变化、在曲线上显现：首先是 {quantity} {label}（{op}）",
    ),
    Piece(
        "monitor-band-kept", "",
        "The candidate stays in the range of the reference in all common steps",
        "在所有共同的 step 中，待比对侧都在标杆侧的范围之内",
    ),
    Piece(
        "monitor-ranks-differ", "whose",
        "{whose}Ranks that held the same numbers no longer do",
        "{whose}原本数值相同的 rank 不再相同",
    ),
    Piece(
        "monitor-alerts-from", "whose count step",
        "{whose}{count} alerts, the first at step {step}",
        "{whose}{count} 个告警，第一个在 step {step}",
    ),
    Piece("monitor-no-alerts", "whose", "{whose}No alerts were written", "{whose}没有写出告警"),
    Piece("monitor-whose", "run", "{run}: ", "{run}："),
    Piece("monitor-nothing-finite", "", "no finite values", "没有有限的数值"),
    Piece("monitor-at-step", "name step value", "{name}step {step}: {value}", "{name}step {step}：{value}"),
    Piece("monitor-at-steps", "first last value", "steps {first} to {last}: {value}", "step {first} 至 {last}：{value}"),
    Piece("monitor-loss", "", "Loss", "损失"),
    Piece("monitor-lr", "", "Learning rate", "学习率"),
    Piece("monitor-grad-norm", "", "Total gradient norm", "梯度总范数"),
    Piece("monitor-update-ratio", "", "Update-to-weight ratio", "更新与权重之比"),
    Piece("monitor-no-curves", "", "Neither a loss nor gradients were measured.", "没有测量损失或梯度。"),
    Piece("monitor-run", "", "Run", "运行"),
    Piece("monitor-rank", "", "Rank", "Rank"),
    Piece("monitor-quantity", "", "Quantity", "量"),
    Piece("monitor-filter", "", "text in a name", "名称中的文本"),
    Piece("monitor-no-map", "", "Nothing was measured tensor by tensor.", "没有逐张量的测量。"),
    Piece("monitor-size", "", " size, logarithmic", " 大小，对数"),
    Piece("monitor-zero", "", "zero", "零"),
    Piece("monitor-nan", "", "NaN or infinite", "NaN 或无穷"),
    Piece("monitor-no-tensor", "", "no tensor", "没有张量"),
    Piece("monitor-alert", "", "alert", "告警"),
    Piece("monitor-click", "", "click a row for its curve", "点击一行查看曲线"),
    Piece(
        "monitor-columns-of-steps", "",
        "a column is several steps: the value that deviates most",
        "一列为多个 step：取偏离最大的值",
    ),
    Piece("monitor-op-of", "quantity op label", "{quantity}: {op} of {label}", "{quantity}：{label} 的 {op}"),
    Piece("monitor-alerts-in-file", "count", "{count} more are in anomaly.json.", "另有 {count} 个在 anomaly.json 中。"),
    Piece(
        "monitor-map-keys", "",
        "Heat map: tensors down, steps across; arrow keys move, Enter draws the tensor",
        "热力图：纵向为张量，横向为 step；方向键移动，Enter 显示曲线",
    ),
    Piece("monitor-column-step", "", "step", "step"),
    Piece("monitor-column-rank", "", "rank", "rank"),
    Piece("monitor-column-rule", "", "rule", "规则"),
    Piece("monitor-column-quantity", "", "quantity", "量"),
    Piece("monitor-column-tensor", "", "tensor", "张量"),
    Piece("monitor-column-statistic", "", "statistic", "统计量"),
    Piece("monitor-column-value", "", "value", "值"),
)
#: Of the page of `msprobe grad_compare`.
GRADIENTS: tuple[Piece, ...] = (
    Piece("gradients-title", "", "Gradients of two runs", "两次运行的梯度"),
    Piece("gradients-first-suspicious", "line", "first suspicious: {line}", "首个可疑：{line}"),
    Piece("gradients-none-suspicious", "", "no suspicious gradient", "没有可疑的梯度"),
    Piece("gradients-filter", "", "text in a parameter's name", "参数名称中的文本"),
    Piece("gradients-rank", "", "rank", "rank"),
    Piece("gradients-chart", "", "similarity over steps", "相似度随 step 的变化"),
    Piece(
        "gradients-similarity", "",
        "similarity: the share of elements whose signs agree; thick: all parameters together",
        "相似度：符号相同的元素所占比例；粗线：全部参数合计",
    ),
    Piece("gradients-parameter", "", "parameter", "参数"),
    Piece("gradients-suspicious-at", "", "suspicious at", "可疑的 step"),
    Piece("gradients-first", "", "first", "首个"),
    Piece("gradients-least", "", "least", "最低"),
    Piece("gradients-last", "", "last", "最后"),
)
PIECES: tuple[Piece, ...] = (*MONITOR, *GRADIENTS)
