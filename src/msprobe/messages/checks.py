"""What `msprobe check` finds in one run: values and dtypes (C1), data and labels (C2), modes (C3), gradients and the
optimizer (C4), ranks (C5); notes on a check (N2)."""

from __future__ import annotations

from msprobe.messages.entry import Message

# fmt: off
MESSAGES: tuple[Message, ...] = (
    Message(
        "C101", "computes-in-float64", "check:dtypes", "call shape",
        "{call} computes in float64: one argument, of shape {shape}, is float64 and promotes the others",
        "{call} 以 float64 计算：有一个 shape 为 {shape} 的输入是 float64，提升了其他输入的精度",
    ),
    Message(
        "C102", "cast-down-for-one-call", "check:dtypes", "call dtype",
        "{call} computes in {dtype}: its input is cast down from float32 for this call and its result is cast up again",
        "{call} 以 {dtype} 计算：仅为此调用把输入从 float32 降低精度，结果又升回 float32",
    ),
    Message(
        "C103", "dtype-differs-from-other-layers", "check:dtypes", "call module dtype usual",
        '{call} in "{module}" gives {dtype}; in the other layers of this class it gives {usual}',
        "{module} 中的 {call} 结果为 {dtype}；同类的其他层为 {usual}",
    ),
    Message(
        "C104", "write-unseen-by-autograd", "check:mutation", "call needed_by forward",
        "{call} overwrites a tensor of {forward} that {needed_by} still needs; autograd cannot see the write, so the gradient is computed from the changed values",
        "{call} 改写了 {forward} 的张量，而 {needed_by} 仍需要它；autograd 看不到这次写入，梯度由改写后的值算出",
    ),
    Message(
        "C105", "bad-value-made", "check:overflow", "value call reason",
        "{value} first appears in {call}: {reason}",
        "{call} 产生了 {value}：{reason}",
    ),
    Message(
        "C106", "bad-value-in-input", "check:overflow", "value call",
        "{value} is already in the input of {call}; no recorded call made it",
        "{call} 的输入中已有{value}，采集的调用都没有产生它",
    ),
    Message(
        "C107", "bad-value-from-communication", "check:overflow", "value call",
        "{value} first appears in {call}: the inputs of the ranks are finite, the result is not",
        "{call} 产生了 {value}：各 rank 给出的是有限数，结果不是",
    ),
    Message(
        "C108", "bad-value-from-memory", "check:overflow", "value call",
        "{value} comes from {call}, which reads uninitialised memory",
        "{value}来自 {call}，它读取了未写入过的内存",
    ),
    Message(
        "C109", "call-raised", "check:raised", "call error at then",
        "{call} raised {error}{at}{then}",
        "{call} 抛出 {error}{at}{then}",
    ),
    Message(
        "C110", "recompute-argument-differs", "check:recompute", "recomputed slot forward",
        "recomputation calls it with {recomputed} for {slot}, the forward pass with {forward}",
        "重计算调用它时 {slot} 为 {recomputed}，前向时为 {forward}",
    ),
    Message(
        "C111", "recompute-input-differs", "check:recompute", "slot",
        "recomputation starts from a different {slot} than the forward pass: its input was changed in between",
        "重计算开始时的 {slot} 与前向不同：其输入在此期间被改动",
    ),
    Message(
        "C112", "recompute-result-differs", "check:recompute", "",
        "recomputation has the inputs of the forward pass and a different result (usually different random numbers)",
        "重计算的输入与前向相同，结果却不同（通常是随机数不同）",
    ),
    Message(
        "C113", "softmax-rows-off", "check:softmax", "sum rounding",
        "the rows of the softmax sum to {sum:.6g} on average, not to 1 (rounding: {rounding:.1g})",
        "softmax 各行之和平均为 {sum:.6g}，不是 1（舍入误差：{rounding:.1g}）",
    ),
    Message(
        "C114", "module-recomputed-differently", "check:recompute", "",
        "recomputation of the module gives a result different from that of its forward pass",
        "该模块重计算的结果与前向不同",
    ),
    Message(
        "C201", "attention-looks-ahead", "check:attention", "how",
        "attention looks ahead: {how}, although the labels are the next tokens",
        "注意力看到了后面的位置：{how}，而标签是下一个 token",
    ),
    Message(
        "C202", "mean-of-means", "check:averaging", "count fewest most",
        "each of {count} micro-batches averages its loss over its own labels ({fewest} to {most}): the step is a mean of means. Sum the losses, and divide by the number of labels of the whole step",
        "{count} 个微批次各自按自己的标签数（{fewest} 到 {most} 个）求平均损失：整个 step 成了均值的均值。应先求和，再除以整个 step 的标签数",
    ),
    Message(
        "C203", "labels-ignored", "check:ignored", "share total call index",
        "{share} {total} labels of {call} are ignored ({index}): ",
        "{call} 的 {total} 个标签中，{share}被忽略（{index}）：",
    ),
    Message(
        "C204", "labels-shifted-twice", "check:labels", "call positions tokens",
        "the labels of {call} are {positions} positions ahead of the input tokens ({tokens}): they are shifted more than once, by the data and by the model",
        "{call} 的标签比输入 token（{tokens}）超前 {positions} 个位置：数据和模型都做了移位",
    ),
    Message(
        "C205", "labels-not-shifted", "check:labels", "call tokens",
        "the labels of {call} are the input tokens themselves ({tokens}), not the next ones: the loss rewards copying the input",
        "{call} 的标签就是模型输入的 token（{tokens}），而不是下一个：损失在鼓励复制输入",
    ),
    Message(
        "C206", "batch-repeated", "check:repeated", "call step",
        "{call} gets the same batch as in step {step}: the data do not advance, or restart in the same order (shuffle, set_epoch), unless the data set is this small",
        "{call} 得到的批数据与 step {step} 相同：除非数据集就这么小，否则数据没有前进，或以相同顺序重新开始（shuffle、set_epoch）",
    ),
    Message(
        "C207", "experts-unused", "check:routing", "call share tokens busiest experts",
        "{call} sends {share} of {tokens} tokens to the same experts ({busiest}, of {experts}): the others learn nothing",
        "{call} 把 {tokens} 个 token 的 {share} 都分给同样的专家（{busiest}，共 {experts} 个）：其他专家学不到任何内容",
    ),
    Message(
        "C301", "dropout-left-in-eval", "check:dropout", "module rate",
        'module "{module}" was left in eval mode while the modules around it train: its dropout with rate {rate:g} drops nothing',
        "模块 {module} 停留在 eval 模式，而周围的模块在训练：它的 dropout（比率 {rate:g}）不丢弃任何值",
    ),
    Message(
        "C302", "dropout-called-without-training", "check:dropout", "call rate module",
        '{call} with rate {rate:g} is called with training=False while its module "{module}" is in training mode: nothing is dropped',
        "{call}（比率 {rate:g}）以 training=False 调用，而其模块 {module} 处于训练模式：不丢弃任何值",
    ),
    Message(
        "C303", "dropout-active-in-eval", "check:dropout", "call rate module",
        '{call} with rate {rate:g} drops values although its module "{module}" is in eval mode',
        "模块 {module} 处于 eval 模式，{call}（比率 {rate:g}）却仍在丢弃数值",
    ),
    Message(
        "C304", "trained-in-eval-mode", "check:evaluating", "model before effects",
        "{model} is in eval mode in a step that trains it{before}: {effects} (model.train() was not called)",
        "{model}在训练它的 step 中处于 eval 模式{before}：{effects}（没有调用 model.train()）",
    ),
    Message(
        "C305", "layer-setting-differs", "check:siblings", "call module setting value others usual",
        '{call} in "{module}" has {setting}={value!r}; the {others} other layers have {usual}',
        "{module} 中 {call} 的 {setting}={value!r}；其他 {others} 层为 {usual}",
    ),
    Message(
        "C401", "gradients-not-cleared", "check:clearing", "count",
        "gradients were not cleared: each gradient at the optimizer is this step's plus the previous step's (checked on the means of {count} parameters). zero_grad() is missing between the steps",
        "梯度没有清零：优化器处的每个梯度都是本 step 与上一个 step 之和（按 {count} 个参数的均值核对）。两个 step 之间缺少 zero_grad()",
    ),
    Message(
        "C402", "gradients-cleared-between-passes", "check:clearing", "count",
        "the optimizer gets only the gradient of the last of {count} backward passes: gradients were cleared between the micro-batches of one step",
        "优化器只得到 {count} 次反向中最后一次的梯度：同一 step 的微批次之间清零了梯度",
    ),
    Message(
        "C403", "optimizer-holds-frozen", "check:frozen", "optimizer count",
        "{optimizer} holds {count} parameters that",
        "{optimizer} 中有 {count} 个参数",
    ),
    Message(
        "C404", "modules-never-called", "check:unreached", "modules were steps contrast parameters whose",
        "{modules} {were} not called in {steps}{contrast}: the optimizer holds {parameters} of {whose} that no gradient reaches",
        "{modules} 在{steps}没有被调用{contrast}：优化器持有它们的 {parameters}，这些参数得不到梯度",
    ),
    Message(
        "C405", "gradients-cleared-before-step", "check:unreached", "count optimizer made",
        "none of {count} parameters has a gradient when {optimizer} steps, although backward made {made} of them: they were cleared in between, and nothing is updated",
        "{optimizer} 更新时 {count} 个参数都没有梯度，而反向为其中 {made} 个产生了梯度：它们在此期间被清零，没有任何更新",
    ),
    Message(
        "C406", "padding-gets-gradient", "check:padding", "row embedding norm",
        'row {row} of the embedding "{embedding}" is its padding row and gets a gradient (norm {norm:.3g})',
        "embedding {embedding} 的第 {row} 行表示填充，却得到了梯度（范数 {norm:.3g}）",
    ),
    Message(
        "C407", "loss-scale-left", "check:scale", "scale gradient_factor calls times",
        "the loss is multiplied by {scale:g} and the gradients by {gradient_factor:g} ({calls}): they reach the optimizer {times:g} times too large",
        "损失乘了 {scale:g}，梯度乘了 {gradient_factor:g}（{calls}）：到达优化器时是实际值的 {times:g} 倍",
    ),
    Message(
        "C408", "loss-scale-not-undone", "check:scale", "scale",
        "the loss is multiplied by {scale:g} before the backward pass and no call divides the gradients by it",
        "损失在反向之前乘了 {scale:g}，没有调用把梯度除以它",
    ),
    Message(
        "C409", "tie-lost", "check:ties", "first second",
        '"{first}" and "{second}" have equal values, as tied weights do, but separate gradients: they are two parameters now and will diverge',
        "{first} 与 {second} 数值相等，如同权重共享，但梯度各自独立：它们现在是两个参数，将会分叉",
    ),
    Message(
        "C410", "no-gradient", "check:unreached", "count parameters why optimizer",
        "{count} parameters get no gradient ({parameters}){why}{optimizer}",
        "{count} 个参数没有梯度（{parameters}）{why}{optimizer}",
    ),
    Message(
        "C411", "graph-cut", "check:unreached", "count parameters how call optimizer",
        "{count} parameters get no gradient ({parameters}): what is computed from them {how} in {call}{optimizer}",
        "{count} 个参数没有梯度（{parameters}）：它们的下游在 {call} 处{how}{optimizer}",
    ),
    Message(
        "C412", "module-in-no-optimizer", "check:updates", "counted it held parameters",
        "{counted} a gradient, and no recorded optimizer has {it}, while {held} others are in one: {parameters}",
        "{counted}梯度，而采集到的优化器中都没有{it}，其他 {held} 个在优化器中：{parameters}",
    ),
    Message(
        "C413", "update-lost-to-dtype", "check:updates", "count total dtype type parameters",
        "{count} of {total} parameters in {dtype} do not change in the step: their update is smaller than {type} can hold beside the weight ({parameters})",
        "{total} 个 {dtype} 参数中有 {count} 个在更新之后不变：更新量相对权重太小，{type} 无法表示（{parameters}）",
    ),
    Message(
        "C414", "parameters-in-no-optimizer", "check:updates", "counted are parameters instead",
        "{counted} a gradient and {are} in no optimizer: {parameters}{instead}",
        "{counted}梯度，却不在任何优化器中：{parameters}{instead}",
    ),
    Message(
        "C415", "no-weight-changes", "check:updates", "count parameters",
        "no weight changes in the recorded steps, although {count} parameters get non-zero gradients, and no optimizer step was recorded: optimizer.step() is not called, or the recorded steps are micro-batches of one ({parameters})",
        "采集的各 step 中权重都没有变化，尽管 {count} 个参数有非零梯度，也没有采集到优化器更新：没有调用 optimizer.step()，或采集的 step 其实是同一 step 的微批次（{parameters}）",
    ),
    Message(
        "C416", "weights-unchanged", "check:updates", "count total parameters",
        "{count} of {total} parameters do not change in the step, although their gradient and learning rate are not zero: {parameters}",
        "{total} 个参数中有 {count} 个在更新之后不变，尽管梯度和学习率都不为零：{parameters}",
    ),
    Message(
        "C417", "weights-unchanged-since", "check:updates", "count changed parameters",
        "{count} parameters had a gradient in the previous step and did not change, while {changed} others did: {parameters}",
        "{count} 个参数在上一个 step 有梯度，却没有变化，另外 {changed} 个发生了变化：{parameters}",
    ),
    Message(
        "C501", "collective-shapes-differ", "check:collectives", "call shapes",
        "the ranks get results of different shapes from {call}: {shapes}",
        "各 rank 从 {call} 得到的结果 shape 不同：{shapes}",
    ),
    Message(
        "C502", "collective-results-differ", "check:collectives", "call rank other_rank relation",
        "{call}: the result on rank {rank} differs from that on rank {other_rank} ({relation}). Data was lost or changed in transit, or the ranks are at different calls",
        "{call}：rank {rank} 的结果与 rank {other_rank} 不同（{relation}）。数据在传输中丢失或改变，或各 rank 处于不同的调用",
    ),
    Message(
        "C503", "collective-tensors-differ", "check:collectives", "call tensors",
        "the ranks call {call} with different tensors: {tensors}",
        "各 rank 参与 {call} 时的张量不同：{tensors}",
    ),
    Message(
        "C504", "collective-without-counterpart", "check:collectives", "call rank operation",
        "{call} on rank {rank} has no counterpart: the ranks made or recorded different numbers of {operation} calls",
        "{call} 在 rank {rank} 上没有对应：各 rank 发起或采集的 {operation} 次数不同",
    ),
    Message(
        "C505", "batch-same-on-ranks", "check:replicas", "ranks on call",
        "ranks {ranks}{on} get the same batch: all input tensors of {call} are the same on them, so all compute the same gradients. The data are not divided among the ranks (DistributedSampler, or rank and number of ranks for the data set)",
        "rank {ranks}{on} 得到相同的批数据：{call} 的输入张量在它们上面全部相同，因此都算出同样的梯度；没有把数据分配到各 rank（DistributedSampler，或为数据集指定 rank 与 rank 数）",
    ),
    Message(
        "C506", "optimizer-settings-differ-on-ranks", "check:replicas", "rank setting value usual count parameters more",
        "the optimizer of rank {rank} has {setting} {value}, those of the other ranks {usual}, for {count} parameters that are the same on all ranks ({parameters}): they will diverge{more}",
        "rank {rank} 的优化器的 {setting} 为 {value}，其他 rank 为 {usual}，涉及各 rank 相同的 {count} 个参数（{parameters}）：它们将会分叉{more}",
    ),
    Message(
        "C507", "gradient-not-reduced", "check:replicas", "parameters count",
        "no collective sums the gradient of {parameters} over the ranks, as is done for the other replicated parameters; the gradients of {count} of these differ at the optimizer",
        "没有集合通信对 {parameters} 的梯度在各 rank 间求和，而其他各 rank 相同的参数都做了；其中 {count} 个的梯度在优化器处不同",
    ),
    Message(
        "C508", "gradients-differ-on-ranks", "check:replicas", "count how parameters",
        "the gradients of {count} replicated parameters differ between the ranks at the optimizer{how}: {parameters}; the weights will diverge",
        "各 rank 相同的 {count} 个参数，其梯度在优化器处各 rank 不同{how}：{parameters}；权重将会分叉",
    ),
    Message(
        "C509", "weights-differ-after-step", "check:replicas", "count parameters",
        "{count} parameters were the same on all ranks before the last step and differ now: {parameters}",
        "{count} 个参数在上一个 step 之前各 rank 相同，现在不同：{parameters}",
    ),
    Message(
        "C510", "ranks-compute-differently", "check:replicas", "call rank other_rank relation",
        "{call} gets the same tensors on ranks {rank} and {other_rank}, but its results differ: {relation}",
        "{call} 在 rank {rank} 和 {other_rank} 上的输入张量相同，结果却不同：{relation}",
    ),
    Message(
        "C511", "weight-differs-on-ranks", "check:replicas", "parameter",
        '"{parameter}" differs between the ranks before the step, although all ranks get the same gradient for it',
        "{parameter} 在更新之前各 rank 不同，尽管各 rank 得到的梯度相同",
    ),
    Message(
        "C512", "collective-missing-on-rank", "check:sequence", "rank ranks call other_rank",
        "rank {rank} calls no collective over ranks {ranks}; rank {other_rank} calls {call} there and waits for it",
        "rank {rank} 在通信组 {ranks} 上没有任何集合通信，而 rank {other_rank} 调用了 {call}：它们在等它",
    ),
    Message(
        "C513", "collective-missing-after", "check:sequence", "rank ranks last call other_rank",
        "rank {rank} calls no collective over ranks {ranks} after {last}; rank {other_rank} calls {call} there and waits for it",
        "rank {rank} 在通信组 {ranks} 上于 {last} 之后不再调用集合通信；rank {other_rank} 在该组上调用了 {call}，一直在等待它",
    ),
    Message(
        "C514", "collective-alone", "check:sequence", "rank call ranks other_rank",
        "rank {rank} calls {call} over ranks {ranks} and waits; rank {other_rank} calls no further collective there",
        "rank {rank} 在通信组 {ranks} 上调用了 {call} 并一直等待；rank {other_rank} 在该组上不再调用集合通信",
    ),
    Message(
        "C515", "collectives-differ", "check:sequence", "rank call ranks other_call other_rank",
        "rank {rank} calls {call} over ranks {ranks}, rank {other_rank} calls {other_call}: they wait for each other",
        "rank {rank} 在通信组 {ranks} 上调用了 {call}，而 rank {other_rank} 调用了 {other_call}：它们互相等待",
    ),
    Message(
        "C516", "collective-inputs-differ", "check:sequence", "rank tensor call other_tensor other_rank",
        "rank {rank} gives {tensor} to {call}, rank {other_rank} gives {other_tensor}: these tensors do not belong together",
        "rank {rank} 传给 {call} 的是 {tensor}，而 rank {other_rank} 传入的是 {other_tensor}：这些张量不属于同一次通信",
    ),
    Message(
        "N201", "ranks-not-in-dump", "note", "ranks",
        "groups name ranks that are not in the dump: {ranks}; what they did is not known",
        "通信组中有 dump 里没有的 rank：{ranks}；它们做了什么无从得知",
        severity="note",
    ),
    Message(
        "N202", "infinities-masked", "note", "calls",
        "infinities that are masked out again do not count; they are made in {calls}",
        "以下调用产生的无穷随后又被 mask 掉，因此不计：{calls}",
        severity="note",
    ),
    Message(
        "N203", "interrupted-records", "note", "place",
        "{place} was interrupted; its complete records are checked",
        "{place} 被中断；只检查其中完整的记录",
        severity="note",
    ),
    Message(
        "N204", "statistics-not-recorded", "note", "how",
        "no statistics were recorded{how}; most checks need them",
        "没有采集统计量{how}；大多数检查需要它们",
        severity="note",
    ),
    Message(
        "N206", "cannot-be-read", "note", "what why",
        "{what} cannot be read: {why}",
        "{what} 无法读取：{why}",
        severity="note",
    ),
    Message(
        "N207", "level-debug", "note", "",
        "level debug holds values that were saved by hand; the checks look at calls, and there are none",
        "level debug：手动保存的数值；检查针对调用，而这里没有调用",
        severity="note",
    ),
    Message(
        "N208", "recording-interrupted", "note", "",
        "the recording was interrupted; its records up to there were checked",
        "采集曾被中断；检查了中断之前的内容",
        severity="note",
    ),
    Message(
        "N209", "no-calls", "note", "",
        "no call was recorded",
        "没有采集任何调用",
        severity="note",
    ),
    Message(
        "N210", "only-modules", "note", "",
        "only modules were recorded (L0): checks of single calls see nothing",
        "只采集了模块（L0）：针对单个调用的检查无从进行",
        severity="note",
    ),
    Message(
        "N211", "no-backward-pass", "note", "",
        "no backward pass was recorded",
        "没有采集反向",
        severity="note",
    ),
)
