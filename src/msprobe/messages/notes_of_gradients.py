"""What the gradient probe and its comparison say of gradients, and what a configuration check inside a training says (M2, E3)."""

from __future__ import annotations

from msprobe.messages.entry import Message, Piece

# fmt: off
MESSAGES: tuple[Message, ...] = (
    Message(
        "M231", "gradients-suspicious-first", "error:monitor", "problem",
        "first suspicious: {problem}",
        "首个可疑处：{problem}", severity="finding",
    ),
    Message(
        "M232", "gradients-all-agree", "error:monitor", "parameters steps ranks rest",
        "no suspicious gradient (parameters: {parameters}, steps: {steps}, ranks: {ranks}){rest}",
        "{ranks} 个 rank、{steps} 个 step 的 {parameters} 个参数中没有可疑的梯度{rest}", severity="note",
    ),
    Message(
        "M233", "gradients-comparison-note", "error:monitor", "note",
        "grad_compare: {note}.",
        "grad_compare：{note}。", severity="note",
    ),
    Message(
        "M234", "grad-comparator-arguments", "error:monitor", "mistakes",
        "GradComparator: {mistakes}.",
        "GradComparator：{mistakes}。", severity="error",
    ),
    Message(
        "M235", "gradients-nothing-written", "warning:work", "reason",
        "grad_probe: nothing was written: {reason}.",
        "grad_probe：没有写出内容：{reason}。", severity="warning",
    ),
    Message(
        "M236", "similarities-replaced", "warning:work", "path",
        'grad_compare: "{path}" is replaced.',
        'grad_compare：已有的 "{path}" 被替换。', severity="warning",
    ),
    Message(
        "M237", "direction-shapes-differ", "error:monitor", "one other",
        "the shapes differ: {one} and {other}",
        "shape 不同：{one} 与 {other}", severity="error",
    ),
    Message(
        "M238", "gradient-of-parameter", "warning:work", "name what",
        "grad_probe: {name}: {what}",
        "grad_probe：{name}：{what}", severity="warning",
    ),
    Message(
        "E391", "config-check-failed", "error:checkpoint", "what problem",
        "config_check {what}: {problem}",
        "config_check {what}：{problem}", severity="error",
    ),
    Message(
        "E392", "config-check-steps-wrong", "error:checkpoint", "found",
        "steps must be a whole number from 1 on, found {found}.",
        "steps 必须是不小于 1 的整数，实际为 {found}。", severity="error",
    ),
)

PIECES: tuple[Piece, ...] = (
    Piece("gradients-and-rest", "rest", ". {rest}", "。{rest}"),
    Piece("gradients-of-rank", "rank", "rank {rank}", "rank {rank}"),
    Piece("gradients-of-rank-in", "rank what", "rank {rank}: {what}", "rank {rank}：{what}"),
    Piece("gradients-of-step", "step", "step {step}", "step {step}"),
    Piece("directions-of-steps", "steps", "directions of step {steps}", "step {steps} 的方向"),
    Piece("not-in-first-run", "", "not in the first run", "第一次运行中没有"),
    Piece("not-in-second-run", "", "not in the second run", "第二次运行中没有"),
    Piece("gradients-no-common-step", "", "no step is in both, nothing is compared", "没有共同的 step，不作比较"),
    Piece("gradient-not-comparable", "problem", "cannot be compared: {problem}", "无法比较：{problem}"),
    Piece("gradient-numbers-differ", "column one other", "{column} differs: {one} and {other}", "{column} 不同：{one} 与 {other}"),
    Piece("gradient-nan-in-both", "", "NaN in both runs", "两次运行都有 NaN"),
    Piece("gradient-nan-in-first", "", "NaN in the first run", "第一次运行有 NaN"),
    Piece("gradient-nan-in-second", "", "NaN in the second run", "第二次运行有 NaN"),
    Piece("gradient-is-noise", "", "the gradients of both runs are tiny (elements below a hundred-thousandth of the usual size: rounding alone); their direction is not judged", "两次运行的梯度都极小（仅为舍入：元素小于通常大小的十万分之一），不判定其方向"),
    Piece("no-direction-in-first", "", "no direction file in the first run", "第一次运行没有方向文件"),
    Piece("no-direction-in-second", "", "no direction file in the second run", "第二次运行没有方向文件"),
    Piece("reason-in-steps", "reason steps", "{reason} (step {steps})", "{reason}（step {steps}）"),
    Piece("names-and-more", "names count", "{names} and {count} more", "{names} 及另外 {count} 个"),
    Piece("two-names-of-argument", "first second", "{first} and {second} are two names of one argument; give one of them", "{first} 与 {second} 是同一参数的两个名称；请只给出一个"),
    Piece("argument-is-missing", "name", "{name} is missing", "缺少 {name}"),
    Piece("ranks-of-folder", "ranks", "rank {ranks}", "rank {ranks}"),
    Piece("gradients-no-rank-folder", "", "no folder rank0, ...", "没有 rank0 等文件夹"),
    Piece("mapping-pattern-wrong", "problem", "is no regular expression with its replacement: {problem}", "不是正则表达式及其替换：{problem}"),
    Piece("optimizer-has-not-stepped", "", "the optimizer has not stepped, or it steps inside a compiled graph, which does not report it", "优化器没有更新，或在编译的图中更新，而图不报告更新"),
    Piece("probed-optimizer-lacks-parameters", "", "the optimizer has none of the wanted parameters", "优化器没有任何所需的参数"),
    Piece("no-optimizer-step", "", "no optimizer step was seen", "没有看到优化器更新"),
    Piece("no-watched-optimizer", "", "no optimizer of a watched parameter has stepped", "被监视参数的优化器都没有更新"),
    Piece("model-lacks-parameters", "", "none of the wanted parameters is in the model", "模型没有任何所需的参数"),
    Piece("steps-not-asked-for", "count asked", "there were {count} steps, and the configuration asks for {asked}", "共有 {count} 个 step，而配置要求 {asked}"),
    Piece("asked-for-steps", "steps", "step {steps}", "step {steps}"),
    Piece("asked-for-ranks", "ranks", "rank {ranks}, and a single process is rank 0", "rank {ranks}，而单个进程为 rank 0"),
    Piece("asked-for-both", "first second", "{first} and {second}", "{first} 和 {second}"),
    Piece("near-parameters", "names", "; near it are {names}", "；相近的有 {names}"),
    Piece("its-parameters", "names", "; it has {names}", "；它有 {names}"),
    Piece("gradient-is-complex", "", "its gradient is complex; numbers and directions are of real and imaginary values", "其梯度是复数；数值与方向针对实部与虚部"),
    Piece("gradient-is-sparse", "", "its gradient is sparse; numbers and directions are of the elements that it stores", "其梯度是稀疏的；数值与方向针对其存储的元素"),
    Piece("gradient-is-empty", "", "its gradient has no elements", "其梯度没有元素"),
    Piece("collects-nothing", "", "collects nothing", "没有收集任何内容"),
    Piece("collects-no-weights", "", "collects no weights and inputs", "没有收集权重和输入"),
    Piece("counts-no-calls", "", "counts no calls of random functions", "没有统计随机函数的调用"),
    Piece("did-not-end", "", "did not end", "没有结束"),
)
