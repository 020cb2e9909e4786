"""What is said of two packs of settings, and of scripts and logs that settings are read from."""

from __future__ import annotations

from msprobe.messages.entry import Piece

# fmt: off
PIECES: tuple[Piece, ...] = (
    Piece(
        "variables-field-unknown", "name field known",
        "{name}.{field} is not known; known are {known}",
        "{name}.{field} 不是已知字段；已知字段为 {known}",
    ),
    Piece(
        "variables-level-wrong", "name levels value",
        "{name}: the level must be one of {levels}, found {value}",
        "{name}：level 必须为 {levels} 之一，现为 {value}",
    ),
    Piece(
        "variables-effect-wrong", "name effects value",
        "{name}.effect must be one of {effects}, found {value}",
        "{name}.effect 必须为 {effects} 之一，现为 {value}",
    ),
    Piece(
        "file-in-one-pack", "file side",
        "{file} is not in {side}, so it is not compared",
        "{side} 中没有 {file}，因此未比对",
    ),
    Piece(
        "no-hyperparameters-in-common", "",
        "the packs have no file of hyper-parameters in common",
        "两个配置包没有共同的超参数文件",
    ),
    Piece(
        "packs-lack", "names hint",
        "{names}: in neither pack, so not compared; {hint}",
        "{names}：两个配置包都没有，因此未比对；{hint}",
    ),
    Piece("give-launch-script", "", "give -d the launch script and settings files", "请把启动脚本与设置文件传给 -d"),
    Piece(
        "collect-in-training", "",
        "ConfigChecker in the training script collects them",
        "在训练脚本中使用 ConfigChecker 即可收集",
    ),
    Piece(
        "optimizer-not-in-packs", "",
        "no pack holds its settings and states; checkpoints do",
        "配置包中没有它的设置与状态；检查点中有",
    ),
    Piece("the-optimizer", "", "the optimizer", "优化器"),
    Piece("in-neither-pack", "", "in neither pack", "两个配置包都没有"),
    Piece("collect-for-side", "side", "collect it for {side}, too", "请也为 {side} 收集"),
    Piece("whole-part", "", "the whole part", "整个部分"),
    Piece(
        "may-explain-start-weights", "why",
        "{why}; it may explain why the start weights differ",
        "{why}；这可能是起始权重不同的原因",
    ),
    Piece(
        "but-start-weights-agree", "why",
        "{why}; but both start with the same weights",
        "{why}；但双方的起始权重相同",
    ),
    Piece("but-first-inputs-agree", "why", "{why}; but the first inputs are equal", "{why}；但最初的输入相同"),
    Piece(
        "set-by-published-command", "path names",
        '"{path}": the command of 8.1.1 sets {names} itself; they are left out',
        '"{path}"：{names} 由 8.1.1 的命令自行设置，已略过',
    ),
    Piece(
        "random-numbers-drawn-before", "",
        "different random numbers are drawn before the first forward pass",
        "首次前向之前抽取的随机数不同",
    ),
    Piece(
        "ranks-in-one-pack", "part ranks",
        "{part}: ranks {ranks} are in one pack only and not compared",
        "{part}：rank {ranks} 只在一个配置包中，未比对",
    ),
    Piece("if-any-are-drawn", "why", "{why}, if any are drawn from them", "{why}（如果用到它们）"),
    Piece(
        "micro-steps-in-one-pack", "part steps side",
        "{part}: micro-steps {steps} are in {side} only and not compared",
        "{part}：micro-step {steps} 只在 {side} 中，未比对",
    ),
    Piece("no-step-in-both-packs", "", "no step is in both packs", "没有两个配置包共有的 step"),
    Piece(
        "inputs-or-weights-at-step", "count total what step ranks names",
        "{count} of {total} {what} at micro-step {step}{ranks}: {names}",
        "micro-step {step}{ranks}：{total} 个{what}中的 {count} 个：{names}",
    ),
    Piece("weights-in-count", "", "weights", "权重"),
    Piece("inputs-in-count", "", "inputs", "输入"),
    Piece("data-of-trainings-differ", "", "the two trainings see different data", "两次训练的数据不同"),
    Piece("start-weights-differ", "", "the two trainings start with different weights", "两次训练的起始权重不同"),
    Piece(
        "an-update-differs", "step",
        "the weights are equal until micro-step {step}: an update differs",
        "权重到 micro-step {step} 为止相同：某次更新不同",
    ),
    Piece("some-ranks-in-one-pack", "", "some ranks are in one pack only", "有些 rank 只在一个配置包中"),
    Piece("only-on-these-ranks", "ranks", "only here: {ranks}", "只在此处有：{ranks}"),
    Piece(
        "configurations-differ", "errors warnings",
        "The configurations differ: {errors}, {warnings}.",
        "配置不同：{errors}，{warnings}。",
    ),
    Piece(
        "no-decisive-difference", "warnings",
        "No difference that must change the numbers; {warnings}.",
        "没有必然改变数值的差异；{warnings}。",
    ),
    Piece("no-difference-in-compared", "", "No difference in what was compared.", "所比对的内容没有差异。"),
    Piece("one-error", "", "1 error", "1 个错误"),
    Piece("errors", "count", "{count} errors", "{count} 个错误"),
    Piece("one-warning", "", "1 warning", "1 个警告"),
    Piece("warnings", "count", "{count} warnings", "{count} 个警告"),
    Piece("most-likely-cause", "", "What most likely explains a divergence, first", "最可能导致分叉的差异在前"),
    Piece(
        "more-in-findings-sheet", "count",
        "and {count} more, see sheet findings",
        "另有 {count} 项，见 findings 表",
    ),
    Piece("note-before", "text", "note: {text}", "说明：{text}"),
    Piece("more-in-result", "count", "{count} more in result.xlsx.", "result.xlsx 中另有 {count} 行。"),
    Piece("configuration-check-title", "", "Configuration check", "配置比对"),
    Piece("all-rows", "", "All rows", "全部行"),
    Piece("one-row", "", "1 row", "1 行"),
    Piece("so-many-rows", "count", "{count} rows", "{count} 行"),
    Piece("missing-in-side", "side", "missing in {side}", "{side} 中缺失"),
    Piece("rows-for-information", "count", "{count} rows for information", "{count} 行仅供参考"),
    Piece("one-row-differs", "", "1 row differs", "1 行不同"),
    Piece("rows-differ", "count", "{count} rows differ", "{count} 行不同"),
    Piece(
        "parameters-in-logs-differ", "count total folder",
        "{count} of {total} parameters differ; see {folder}",
        "{total} 个参数中 {count} 个不同；见 {folder}",
    ),
    Piece(
        "no-parameter-in-logs-differs", "total folder",
        "None of {total} parameters differs; see {folder}",
        "{total} 个参数都相同；见 {folder}",
    ),
    Piece("packs-operation", "", "-c with two packs (.zip)", "-c 与两个配置包（.zip）"),
    Piece("checkpoints-operation", "", "-c with two checkpoints", "-c 与两个检查点"),
    Piece("option-of-operation", "option operation", "{option} belongs to {operation}", "{option} 用于 {operation}"),
    Piece(
        "hydra-file-missing", "path name",
        '"{path}" is named by "{name}" and was not found',
        '"{name}" 引用了 "{path}"，但未找到该文件',
    ),
    Piece(
        "no-training-command", "",
        "no command was found that starts a training with options",
        "没有找到带选项启动训练的命令",
    ),
    Piece(
        "give-named-file", "line name",
        'line {line}: "{name}" is named; give this file, too, if it holds settings',
        '第 {line} 行：引用了 "{name}"；如果其中有设置，请一并给出',
    ),
    Piece(
        "known-sources-in-folder", "",
        "training_args.bin, trainer_state.json, .hydra/config.yaml, config.yaml, or a checkpoint of Megatron",
        "training_args.bin、trainer_state.json、.hydra/config.yaml、config.yaml 或 Megatron 检查点",
    ),
    Piece("source-does-not-exist", "path", '"{path}" does not exist and is left out', '"{path}" 不存在，已略过'),
    Piece(
        "script-too-deep", "",
        "the script is nested too deep; what follows is not read",
        "脚本嵌套过深；后面的内容未读取",
    ),
    Piece(
        "scripts-too-long", "",
        "the scripts that it reads or writes are too long; no further one is followed",
        "它读入或生成的脚本过长；不再跟进其他脚本",
    ),
    Piece(
        "script-too-many-steps", "",
        "the script has too many steps or too long values; no further loop or function is followed",
        "脚本步骤过多或值过长；不再跟进循环与函数",
    ),
    Piece(
        "condition-unknown", "line",
        "line {line}: the condition is only known when the script runs; taken as false",
        "第 {line} 行：条件只有运行脚本才能知道；按不成立处理",
    ),
    Piece(
        "sourced-file-not-beside", "name",
        '"{name}" is sourced, but is not beside the script, and is not read',
        '脚本 source 了 "{name}"，但它不在脚本旁边，未读取',
    ),
    Piece("script-unreadable", "name", '"{name}" cannot be read', '"{name}" 无法读取'),
    Piece(
        "cannot-be-read-because", "path reason",
        '"{path}" cannot be read: {reason}.',
        '"{path}" 无法读取：{reason}。',
    ),
    Piece("number-of-too-many-bits", "", "a number of more than 1024 bits", "超过 1024 位的数"),
    Piece(
        "profile-parameters-skipped", "count",
        "{count} parameters of profiles and of Ray are not compared",
        "{count} 个 profile 与 Ray 的参数未比对",
    ),
    Piece(
        "configuration-printed-more-than-once", "path count",
        '"{path}" prints its configuration {count} times; the last is used',
        '"{path}" 中配置打印了 {count} 次；使用最后一次',
    ),
    Piece("last-argument-list", "path", 'the last list of arguments in "{path}"', '"{path}" 中最后一个参数列表'),
    Piece("list-without-end", "", "it has no end; the one before it was read", "它没有结尾；已读取前一个"),
)
