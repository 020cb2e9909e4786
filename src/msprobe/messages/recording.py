"""Messages of the recorder while a program runs, of any framework and of PyTorch (R2)."""

from __future__ import annotations

from msprobe.messages.entry import Message

# fmt: off
MESSAGES: tuple[Message, ...] = (
    Message(
        "R201", "cadence-fails", "warning:listener", "listener kind error",
        "The listener {listener} gets no events: its cadence failed with {kind}: {error}",
        "监听者 {listener} 收不到事件：其 cadence 出错，{kind}：{error}", severity="error",
    ),
    Message(
        "R202", "listener-failed", "warning:listener", "listener method where kind error",
        "The listener {listener} failed in {method}() at {where}: {kind}: {error}. It gets no further events; the training and other listeners go on.",
        "监听者 {listener} 在 {where} 的 {method}() 中出错，{kind}：{error}。它不再收到事件；训练和其他监听者不受影响。", severity="error",
    ),
    Message(
        "R203", "debugger-constructed-twice", "warning:recording", "",
        "PrecisionDebugger exists already in this process; the arguments of the second construction are ignored. Use PrecisionDebugger() without arguments, change its config.json, or call PrecisionDebugger.reset() before you construct it again.",
        "本进程中已有 PrecisionDebugger；再次构造时给出的参数被忽略。请使用不带参数的 PrecisionDebugger()、修改其 config.json，或在再次构造之前调用 PrecisionDebugger.reset()。", severity="warning",
    ),
    Message(
        "R204", "init-step-later", "warning:recording", "number step",
        "set_init_step({number}) was called inside step {step}, which has records already: it takes effect from the next step on. Call it before start(), or after step().",
        "set_init_step({number}) 在 step {step} 内被调用，而该 step 已有记录：从下一个 step 起生效。请在 start() 之前或 step() 之后调用。", severity="warning",
    ),
    Message(
        "R205", "monitor-without-effect", "warning:recording", "task",
        'monitor() has no effect: it watches gradients with task "grad_probe", and the task is "{task}".',
        'monitor() 没有作用：它以 task "grad_probe" 监测梯度，而当前 task 为 "{task}"。', severity="warning",
    ),
    Message(
        "R206", "level-needs-model", "error:recording", "level what",
        "start(): level {level} records {what}; pass the model: start(model).",
        "start()：level {level} 采集 {what}；请传入模型：start(model)。", severity="error",
    ),
    Message(
        "R207", "token-range-needs-model", "error:recording", "",
        "start(): token_range counts calls of the model; pass it: start(model, token_range=...).",
        "start()：token_range 按模型的调用计数；请传入模型：start(model, token_range=...)。", severity="error",
    ),
    Message(
        "R208", "start-without-monitor", "warning:recording", "",
        'start(): task "grad_probe" watches the model that monitor() got, and monitor() was not called; nothing is watched.',
        'start()：task "grad_probe" 监测传给 monitor() 的模型，而 monitor() 没有被调用；没有监测任何内容。', severity="warning",
    ),
    Message(
        "R209", "call-cannot-be-repeated", "warning:listener", "call",
        "{call} cannot be repeated: the function that it called is not known.",
        "无法重复 {call}：不知道它调用的函数。", severity="error",
    ),
    Message(
        "R210", "changed-config-not-used", "warning:recording", "problem",
        "The changed configuration is not used, recording goes on as before: {problem}",
        "未采用修改后的配置，采集照旧进行：{problem}", severity="warning",
    ),
    Message(
        "R211", "dump-enable-on", "note:recording", "path",
        "dump_enable is on: recording begins with the next start() ({path}).",
        "dump_enable 已打开：从下一次 start() 起采集（{path}）。", severity="note",
    ),
    Message(
        "R212", "native-code-failed", "error:fault", "count error",
        "The C code that describes tensors failed {count} times (last with {error}). Python does its work from here on, which is slower. Please report this.",
        "描述张量的 C 代码失败了 {count} 次（最后一次：{error}）。此后由 Python 完成，速度较慢。请反馈此问题。", severity="warning",
    ),
    Message(
        "R213", "overflow-detected", "note:recording", "name place",
        "Overflow detected in {name}, {place}.",
        "{place} 的 {name} 出现溢出。", severity="warning",
    ),
    Message(
        "R214", "overflows-recorded", "note:recording", "count",
        "{count} recorded, as overflow_nums asks; recording ends here.",
        "已按 overflow_nums 采集 {count}；采集到此结束。", severity="note",
    ),
    Message(
        "R215", "call-failed-and-saved", "note:recording", "name place",
        "{name} failed, {place}; its inputs are saved.",
        "{place} 的 {name} 失败；已保存其输入。", severity="warning",
    ),
    Message(
        "R216", "variable-skipped", "warning:recording", "mistake",
        "save(): {mistake}; this variable is skipped.",
        "save()：{mistake}；跳过该变量。", severity="warning",
    ),
    Message(
        "R217", "earlier-runs-removed", "note:recording", "steps folder",
        '{steps} of an earlier run removed from "{folder}" ("existing": "clean").',
        '已从 "{folder}" 删除此前运行的 {steps}（"existing": "clean"）。', severity="note",
    ),
    Message(
        "R218", "earlier-runs-stay", "warning:recording", "problem",
        "{problem} Files of earlier runs stay beside the files of this run.",
        "{problem} 此前运行的文件与本次运行的文件并存。", severity="warning",
    ),
    Message(
        "R219", "all-recorded", "note:recording", "",
        "All that was asked for is recorded, and msprobe ends successfully. The program goes on without being recorded.",
        "所要求的内容已全部采集，msprobe 正常结束。程序继续运行，不再采集。", severity="note",
    ),
    Message(
        "R220", "filters-without-match", "warning:recording", "filters",
        "These filters matched nothing: {filters}.",
        "以下过滤条件没有匹配任何内容：{filters}。", severity="warning",
    ),
    Message(
        "R221", "recording-faults", "error:fault", "count",
        "{count} values or calls could not be recorded; see dump_error_info.log in the dump.",
        "有 {count} 个值或调用未能采集；详见 dump 中的 dump_error_info.log。", severity="warning",
    ),
    Message(
        "R222", "not-recorded", "error:fault", "what kind error",
        "Could not record {what}: {kind}: {error}",
        "未能采集 {what}，{kind}：{error}", severity="error",
    ),
    Message(
        "R223", "single-save-micro-batch", "warning:recording", "micro_batch",
        "SingleSave: micro_batch must be a whole number from 0, found {micro_batch!r}; nothing is saved.",
        "SingleSave：micro_batch 必须是不小于 0 的整数，实际为 {micro_batch!r}；没有保存任何内容。", severity="warning",
    ),
    Message(
        "R224", "single-save-key", "warning:recording", "key",
        "SingleSave: a key must be a text that can be the name of a file, found {key!r}; this entry is skipped.",
        "SingleSave：键必须是可作文件名的文本，实际为 {key!r}；跳过该项。", severity="warning",
    ),
    Message(
        "R225", "single-save-value", "warning:recording", "key kind",
        "SingleSave: {key!r} must be a tensor, or a list, tuple or dict of tensors, found {kind}; this entry is skipped.",
        "SingleSave：{key!r} 必须是张量，或由张量组成的 list、tuple、dict，实际为 {kind}；跳过该项。", severity="warning",
    ),
    Message(
        "R226", "single-save-element", "error:recording", "name key kind",
        "SingleSave: {name}: element {key!r} must be a tensor, found {kind}.",
        "SingleSave：{name} 的元素 {key!r} 必须是张量，实际为 {kind}。", severity="error",
    ),
    Message(
        "R227", "single-save-inner-key", "error:recording", "name key",
        "SingleSave: {name}: the key {key!r} cannot be the name of a file.",
        "SingleSave：{name} 的键 {key!r} 不能作为文件名。", severity="error",
    ),
    Message(
        "R228", "single-save-no-dict", "warning:recording", "kind",
        "SingleSave: the data must be a dict, found {kind}; nothing is saved.",
        "SingleSave：数据必须是 dict，实际为 {kind}；没有保存任何内容。", severity="warning",
    ),
    Message(
        "R229", "process-not-recorded", "error:fault", "kind error",
        "This process is not recorded: {kind}: {error}",
        "不采集该进程，{kind}：{error}", severity="error",
    ),
    Message(
        "R230", "compiled-runs-eagerly", "note:recording", "",
        'torch.compile: compiled regions run uncompiled while recording, as "compile": "eager" asks.',
        'torch.compile：按 "compile": "eager" 的要求，采集时编译区域以未编译方式运行。', severity="note",
    ),
    Message(
        "R231", "compiled-from-outside", "note:recording", "",
        'torch.compile: compiled regions stay compiled; only their inputs and results are recorded, not the calls inside. To record these, set "compile": "eager": the regions then run uncompiled while recording.',
        'torch.compile：编译区域保持编译；只采集其输入和结果，不采集内部的调用。如需采集，请设置 "compile": "eager"：采集时这些区域以未编译方式运行。', severity="note",
    ),
    Message(
        "R232", "compiled-autograd", "note:recording", "",
        "torch.compile: a backward pass under compiled autograd is not recorded.",
        "torch.compile：不采集 compiled autograd 下的反向。", severity="note",
    ),
    Message(
        "R233", "custom-api-at-level", "note:recording", "level api",
        "register_custom_api(): level {level} records no calls; {api} is not recorded.",
        "register_custom_api()：level {level} 不采集调用；不采集 {api}。", severity="note",
    ),
    Message(
        "R234", "custom-api-not-registered", "warning:recording", "holder api",
        "restore_custom_api(): {holder}.{api} was not registered.",
        "restore_custom_api()：{holder}.{api} 没有注册过。", severity="warning",
    ),
    Message(
        "R235", "custom-file-function-missing", "warning:recording", "module api",
        'custom_api_file: module "{module}" has no function "{api}"; it is not recorded.',
        'custom_api_file：模块 "{module}" 没有函数 "{api}"；不采集它。', severity="warning",
    ),
    Message(
        "R236", "model-argument-deprecated", "warning:recording", "",
        "PrecisionDebugger(model=...) is deprecated: pass the model to start(model).",
        "PrecisionDebugger(model=...) 已弃用：请把模型传给 start(model)。", severity="warning",
    ),
    Message(
        "R237", "dataloader-begins-steps", "warning:recording", "call",
        "enable_dataloader is on: each batch of a DataLoader begins a new step, and {call} in the script has no effect.",
        "enable_dataloader 已打开：DataLoader 的每个 batch 开始一个新的 step，脚本中的 {call} 没有作用。", severity="warning",
    ),
    Message(
        "R238", "kernels-dumped", "note:recording", "call folder",
        "The kernels of {call} were dumped to {folder}.",
        "{call} 的算子已 dump 到 {folder}。", severity="note",
    ),
    Message(
        "R239", "kernel-dump-without-gradient", "warning:recording", "call",
        "{call}: the call has no gradient, so nothing is dumped.",
        "{call}：该调用没有梯度，因此没有 dump 任何内容。", severity="warning",
    ),
    Message(
        "R240", "model-of-one-module", "note:recording", "kind",
        "The model is a single {kind} without modules inside; it is recorded itself.",
        "模型只是一个 {kind}，内部没有模块；直接采集它本身。", severity="note",
    ),
    Message(
        "R241", "module-passes-unseen", "warning:recording", "",
        "This torch runs modules in C code: their passes are not recorded.",
        "此版本的 torch 用 C 代码执行模块：不采集其执行。", severity="warning",
    ),
    Message(
        "R242", "scripted-from-outside", "note:recording", "",
        "Scripted modules (torch.jit) are recorded from outside: the arguments and results of each that the program calls, not the calls inside.",
        "脚本化模块（torch.jit）从外部采集：程序调用的每个模块的参数和结果，不含内部的调用。", severity="note",
    ),
    Message(
        "R243", "optimizer-steps-rarely", "note:recording", "names advice",
        "A step ends without waiting for optimizers that do not step each time: {names}.{advice}",
        "部分优化器并非每个 step 都更新，step 结束时不等待它们：{names}。{advice}", severity="note",
    ),
    Message(
        "R244", "optimizers-made-in-turn", "note:recording", "names advice",
        "This program makes one optimizer after the other ({names}), and each of their steps counts as a step of the training.{advice}",
        "该程序依次创建多个优化器（{names}），每个优化器的每次更新都算作训练的一个 step。{advice}", severity="note",
    ),
    Message(
        "R245", "script-records-itself", "warning:run", "what",
        "The script has {what}: its own calls and settings count, and `msprobe run` with its options has no effect.",
        "脚本中有 {what}：以脚本自己的调用和设置为准，`msprobe run` 及其选项没有作用。", severity="warning",
    ),
    Message(
        "R246", "ranks-without-files", "warning:run", "world ranks folder",
        'The program has {world} ranks, and "{folder}" has no files of {ranks}: their launcher does not start them under `msprobe run`. Start each rank with `python -m msprobe run` in front of the script.',
        '程序有 {world} 个 rank，而 "{folder}" 中没有 {ranks} 的文件：启动器没有用 `msprobe run` 启动它们。请在启动每个 rank 时把 `python -m msprobe run` 放在脚本之前。', severity="warning",
    ),
    Message(
        "R247", "scripts-not-recorded", "warning:run", "scripts names more",
        "The program has started {scripts} ({names}{more}) without recording. To record one that trains, start it with `python -m msprobe run` in front of it and a --dump-path of its own.",
        "程序启动了 {scripts}（{names}{more}），没有采集。如需采集其中进行训练的脚本，请在启动它时把 `python -m msprobe run` 放在最前，并给出单独的 --dump-path。", severity="note",
    ),
    Message(
        "R248", "process-is-no-rank", "warning:run", "process",
        "This process ({process}) trains, and is not recorded: it is no rank of a process group. To record it, make its work a program of its own, started with `python -m msprobe run` in front of it and a --dump-path of its own.",
        "该进程（{process}）在训练，但不采集：它不是进程组的 rank。如需采集，请把它的工作做成单独的程序，启动时把 `python -m msprobe run` 放在最前，并给出单独的 --dump-path。", severity="warning",
    ),
    Message(
        "R249", "rank-not-recorded", "warning:run", "error",
        "This rank is not recorded: {error}",
        "不采集该 rank：{error}", severity="error",
    ),
    Message(
        "R250", "evaluation-after-training", "note:run", "",
        "Computations after the last step without an update (an evaluation) are left out.",
        "略过最后一个 step 之后没有更新的计算（评估）。", severity="note",
    ),
    Message(
        "R251", "evaluation-between-trainings", "note:run", "",
        "Computations between two trainings without an update (an evaluation) are left out.",
        "略过两次训练之间没有更新的计算（评估）。", severity="note",
    ),
    Message(
        "R252", "evaluation-before-training", "note:run", "",
        "The records from before the training (an evaluation) are left out; the training begins here.",
        "略过训练之前的记录（评估）；训练从这里开始。", severity="note",
    ),
    Message(
        "R253", "gradients-without-modules", "note:run", "",
        "The script computes gradients without calling a module (it calls forward() itself, or functions): the first step is not recorded; later steps are recorded with everything between them.",
        "脚本计算梯度时没有调用模块（自行调用 forward() 或函数）：不采集第一个 step；之后的 step 连同其间的所有内容一起采集。", severity="note",
    ),
    Message(
        "R254", "seeded", "note:recording", "seed mode dropout",
        "seed_all: seed {seed}, deterministic algorithms {mode}, dropout {dropout}.",
        "seed_all：种子 {seed}，确定性算法{mode}，dropout {dropout}。", severity="note",
    ),
    Message(
        "R255", "module-dump-without-debugger", "warning:recording", "",
        "module_dump(): there is no PrecisionDebugger in this process; nothing is recorded.",
        "module_dump()：本进程中没有 PrecisionDebugger；没有采集任何内容。", severity="warning",
    ),
    Message(
        "R256", "module-dump-at-level", "note:recording", "level name",
        "module_dump(): level {level} records no modules; {name} is not recorded.",
        "module_dump()：level {level} 不采集模块；不采集 {name}。", severity="note",
    ),
    Message(
        "R257", "module-recorded-already", "note:recording", "name known",
        "module_dump(): {name} is recorded already, as {known}.",
        "module_dump()：{name} 已作为 {known} 采集。", severity="note",
    ),
    Message(
        "R258", "async-dump-for-torch", "warning:recording", "",
        "async_dump has no effect for PyTorch: recording never waits for the disk.",
        "async_dump 对 PyTorch 没有作用：采集从不等待磁盘。", severity="warning",
    ),
    Message(
        "R259", "fields-for-torch", "warning:recording", "fields",
        "For PyTorch these fields of the task's section have no effect: {fields}.",
        "对 PyTorch，task 配置段中的以下字段没有作用：{fields}。", severity="warning",
    ),
    Message(
        "R260", "values-not-saved", "warning:recording", "what",
        "The values of {what} are not saved; the rest of their records is.",
        "不保存{what}的数值；其余记录照常保存。", severity="warning",
    ),
    Message(
        "R261", "listener-names-unmet", "warning:listener", "listener names",
        "The listener {listener} got no event: no call in its steps matches {names}. Names are as a dump has them, without direction and number: Functional.linear, Tensor.add, Module.encoder.Linear.",
        "监听者 {listener} 没有收到事件：其 step 中没有名为 {names} 的内容。名称与 dump 中相同，不含方向和编号：Functional.linear、Tensor.add、Module.encoder.Linear。", severity="warning",
    ),
    Message(
        "R262", "listener-modules-unmet", "warning:listener", "listener field patterns hint",
        "The listener {listener} gets no event: no module of the model matches {field} {patterns} of its Wants{hint}",
        "监听者 {listener} 收不到事件：模型中没有模块匹配其 Wants 的 {field} {patterns}{hint}", severity="warning",
    ),
    Message(
        "R265", "dump-enable-off", "note:recording", "path",
        "dump_enable is off: recording pauses ({path}).",
        "dump_enable 已关闭：采集暂停（{path}）。", severity="note",
    ),
    Message(
        "R266", "seed-arguments-wrong", "error:recording", "mistakes",
        "seed_all(): {mistakes}.",
        "seed_all()：{mistakes}。", severity="error",
    ),
    Message(
        "R267", "device-without-memory", "warning:recording", "",
        "The device has no memory for the statistics of some tensors; their records have no statistics and say so.",
        "设备内存不足，无法计算某些张量的统计量；其记录中没有统计量，并注明原因。", severity="warning",
    ),
    Message(
        "R281", "torch-lacks", "warning:recording", "version reason without",
        "torch {version} {reason}: {without}.",
        "torch {version} {reason}：{without}。", severity="warning",
    ),
    Message(
        "R268", "nothing-recorded-in-step", "warning:recording", "step",
        "Nothing was recorded in step {step}: no call was made between start() and stop(), or the filters (list, scope, data_mode) matched nothing.",
        "step {step} 中没有采集到内容：start() 与 stop() 之间没有调用，或过滤条件（list、scope、data_mode）没有匹配任何内容。", severity="warning",
    ),
    Message(
        "R269", "no-dump-written", "warning:recording", "reason",
        "No dump was written: {reason}.",
        "没有写出 dump：{reason}。", severity="warning",
    ),
    Message(
        "R270", "no-dump-at-folder", "warning:recording", "folder steps",
        'No dump was written to "{folder}": {steps} failed, as the error above says.',
        '没有向 "{folder}" 写出 dump：{steps} 失败，原因见上面的错误。', severity="warning",
    ),
    Message(
        "R271", "dump-without-whole-step", "warning:recording", "folder failed",
        'The dump is in "{folder}": no step is complete{failed}.',
        'dump 在 "{folder}"：没有完整的 step{failed}。', severity="warning",
    ),
    Message(
        "R272", "dump-is-in", "note:recording", "folder steps numbers records further",
        'The dump is in "{folder}": {steps} ({numbers}), {records}{further}.',
        'dump 在 "{folder}"：{steps}（{numbers}），{records}{further}。', severity="note",
    ),
    Message(
        "R273", "dump-with-failures", "warning:recording", "folder steps numbers records further",
        'The dump is in "{folder}": {steps} ({numbers}), {records}{further}.',
        'dump 在 "{folder}"：{steps}（{numbers}），{records}{further}。', severity="warning",
    ),
    Message(
        "R274", "steps-asked-for-only", "warning:recording", "steps last",
        '"step" asks for {steps} only, which the program did not reach: its last step was {last}.',
        '"step" 只要求 {steps}，程序没有执行到：其最后一个 step 为 {last}。', severity="warning",
    ),
    Message(
        "R275", "steps-not-reached", "warning:recording", "steps missing last",
        '"step" asks for {steps}; the program did not reach {missing}: its last step was {last}.',
        '"step" 要求 {steps}；程序没有执行到 {missing}：其最后一个 step 为 {last}。', severity="warning",
    ),
    Message(
        "R276", "ranks-not-there", "warning:recording", "ranks world",
        '"rank" asks for {ranks}, which does not exist: the program {world}.',
        '"rank" 要求 {ranks}，而它不存在：程序{world}。', severity="warning",
    ),
    Message(
        "R277", "ranks-asked-for-only", "warning:recording", "ranks world",
        '"rank" asks for {ranks} only, which does not exist: the program {world}.',
        '"rank" 只要求 {ranks}，而它不存在：程序{world}。', severity="warning",
    ),
    Message(
        "R280", "steps-not-as-asked", "warning:run", "problem",
        "{problem}.",
        "{problem}。", severity="warning",
    ),
)
