"""Errors and warnings of the monitor (M1)."""

from __future__ import annotations

from msprobe.messages.entry import Message

# fmt: off
MESSAGES: tuple[Message, ...] = (
    Message(
        "M101", "top-k-wrong", "error:monitor", "top",
        "the top k number must be above 0, found {top!r}.",
        "top k 必须大于 0，实际为 {top!r}。", severity="error",
    ),
    Message(
        "M102", "step-list-unreadable", "error:monitor", "text",
        "the step list must be a list such as [1, 2], found {text!r}.",
        "step 列表必须是 [1, 2] 这样的列表，实际为 {text!r}。", severity="error",
    ),
    Message(
        "M103", "step-list-wrong", "error:monitor", "wrong",
        "the step list must hold integers from 0 on, found {wrong!r}.",
        "step 列表中必须是不小于 0 的整数，实际为 {wrong!r}。", severity="error",
    ),
    Message(
        "M104", "no-alerts-folder", "error:monitor", "folder kind",
        '"{folder}" {kind}; give the folder anomaly_detected of the monitor.',
        '"{folder}" {kind}；请给出监控的 anomaly_detected 文件夹。', severity="error",
    ),
    Message(
        "M105", "no-alerts-file", "error:monitor", "path",
        '"{path}" is no file of alerts: it must be a JSON object whose values are objects.',
        '"{path}" 不是告警文件：必须是以对象为值的 JSON 对象。', severity="error",
    ),
    Message(
        "M106", "no-monitor-folder", "error:monitor", "folder kind",
        '"{folder}" {kind}; give the folder that the monitor writes to (MONITOR_OUTPUT_DIR).',
        '"{folder}" {kind}；请给出监控的输出文件夹（MONITOR_OUTPUT_DIR）。', severity="error",
    ),
    Message(
        "M107", "alert-wrong", "error:monitor", "config",
        "alert must be an object with rules and dump, found {config!r}.",
        "alert 必须是含 rules 和 dump 的对象，实际为 {config!r}。", severity="error",
    ),
    Message(
        "M108", "alert-without-rules", "warning:work", "",
        "alert has no rules: nothing is checked. Name some, as {{'rules': [{{'rule_name': 'AnomalyNan'}}]}}.",
        "alert 没有 rules：不检查任何内容。请写出规则，如 {{'rules': [{{'rule_name': 'AnomalyNan'}}]}}。", severity="warning",
    ),
    Message(
        "M109", "alert-rule-needs-threshold", "warning:work", "where name",
        "{where}: {name} needs args with a threshold, and is left out.",
        "{where}：{name} 需要带 threshold 的 args，已略过。", severity="warning",
    ),
    Message(
        "M111", "alerts-are-at", "error:monitor", "base",
        "anomaly.json is at {base}.",
        "anomaly.json 在 {base}。", severity="note",
    ),
    Message(
        "M112", "alerts-held-back", "error:monitor", "held_back",
        "{held_back} further alerts were held back: their tensors had raised several just before.",
        "另有 {held_back} 条告警未报告：其张量刚刚已告警多次。", severity="note",
    ),
    Message(
        "M113", "alert-callback-failed", "warning:work", "type problem",
        "a callback for alerts failed and is not called again: {type}: {problem}",
        "告警回调失败，不再调用：{type}：{problem}", severity="warning",
    ),
    Message(
        "M114", "monitor-config-unreadable", "error:monitor", "where reason",
        'the monitor configuration "{where}" cannot be read: {reason}.',
        '无法读取监控配置 "{where}"：{reason}。', severity="error",
    ),
    Message(
        "M115", "monitor-config-is-no-object", "error:monitor", "where type",
        'the monitor configuration "{where}" must be a JSON object, found {type}.',
        '监控配置 "{where}" 必须是 JSON 对象，实际为 {type}。', severity="error",
    ),
    Message(
        "M116", "no-monitor-runs", "error:monitor", "folder",
        '"{folder}" has no folders of runs, such as Dec03_21-34-40-rank0-0123abcd; give the folder that holds them.',
        '"{folder}" 中没有 Dec03_21-34-40-rank0-0123abcd 这样的运行文件夹；请给出含有它们的文件夹。', severity="error",
    ),
    Message(
        "M117", "monitor-mapping-is-no-object", "error:monitor", "path",
        'mapping "{path}" must be an object of texts and their replacements.',
        '映射 "{path}" 必须是对象：键为原文本，值为替换文本。', severity="error",
    ),
    Message(
        "M118", "monitor-mapping-wrong", "error:monitor", "path wrong",
        'mapping "{path}": {wrong!r} must be a text that is replaced by a text.',
        '映射 "{path}"：{wrong!r} 的原文本与替换文本都必须是字符串。', severity="error",
    ),
    Message(
        "M119", "no-monitor-runs-between", "error:monitor", "folder time_start time_end",
        '"{folder}" has no folders of runs between {time_start} and {time_end}.',
        '"{folder}" 中没有 {time_start} 到 {time_end} 之间的运行文件夹。', severity="error",
    ),
    Message(
        "M120", "monitor-numbers-written", "error:monitor", "count types output",
        "{count} numbers of {types} data types are in {output}.",
        "{types} 种数据的 {count} 个数值已写入 {output}。", severity="note",
    ),
    Message(
        "M121", "rank-folders-without-number", "error:monitor", "folder count",
        '"{folder}" has {count} folders of ranks without a number; name them rank0, rank1, ... first.',
        '"{folder}" 中有 {count} 个没有编号的 rank 文件夹；请先命名为 rank0、rank1 等。', severity="error",
    ),
    Message(
        "M122", "dump-without-float-statistics", "error:monitor", "folder",
        '"{folder}" has no statistics of floating tensors; record task statistics or tensor without a digest.',
        '"{folder}" 中没有浮点张量的统计量；请以 task statistics 或不带摘要的 tensor 采集。', severity="error",
    ),
    Message(
        "M123", "csv-lines-damaged", "warning:work", "path count",
        'file "{path}": {count} damaged lines are left out.',
        '文件 "{path}"：略过 {count} 行损坏的内容。', severity="warning",
    ),
    Message(
        "M124", "monitor-csv-columns", "error:monitor", "path columns",
        'file "{path}" is no csv file of the monitor: it has {columns} columns.',
        '文件 "{path}" 不是监控的 csv 文件：它有 {columns} 列。', severity="error",
    ),
    Message(
        "M125", "monitor-csv-column-missing", "error:monitor", "path missing",
        'file "{path}" is no csv file of the monitor: its first line has no column {missing}.',
        '文件 "{path}" 不是监控的 csv 文件：首行没有 {missing} 列。', severity="error",
    ),
    Message(
        "M126", "monitor-runs-without-common-rank", "error:monitor", "first ranks second other_ranks",
        '"{first}" has the ranks {ranks} and "{second}" {other_ranks}: they have none in common.',
        '"{first}" 有 rank {ranks}，"{second}" 有 {other_ranks}：没有共同的 rank。', severity="error",
    ),
    Message(
        "M127", "monitor-runs-without-common-step", "error:monitor", "first second",
        '"{first}" and "{second}" have no step in common.',
        '"{first}" 与 "{second}" 没有共同的 step。', severity="error",
    ),
    Message(
        "M128", "training-goes-on", "warning:work", "steps_taken",
        "set_monitor(): start_iteration is 0, and the optimizer has already taken {steps_taken} steps. If this training continues an earlier one, pass start_iteration={steps_taken}; otherwise its steps are numbered from 0, and it counts as a run of its own.",
        "set_monitor()：start_iteration 为 0，而优化器已更新 {steps_taken} 步。如果是续训，请传入 start_iteration={steps_taken}；否则 step 从 0 编号，并算作单独的一次运行。", severity="warning",
    ),
    Message(
        "M129", "appended-steps-replaced", "warning:work", "first last",
        "set_monitor(): start_iteration is 0, and the folder that append_output continues has steps {first} to {last}: they are replaced. Pass start_iteration, the number of the first step of this training.",
        "set_monitor()：start_iteration 为 0，而 append_output 续写的文件夹已有 step {first} 到 {last}：它们会被替换。请传入 start_iteration，即本次训练第一个 step 的编号。", severity="warning",
    ),
    Message(
        "M130", "timestamp-wrong", "error:monitor", "where text",
        "illegal timestamp: {where} is {text!r}; write the beginning of a run's folder, such as 'Dec03_21-34-40'.",
        "时间戳不合法：{where} 为 {text!r}；请写运行文件夹名称的开头，如 'Dec03_21-34-40'。", severity="error",
    ),
    Message(
        "M131", "monitor-runs-merged", "error:monitor", "rank count names",
        "rank {rank}: {count} runs are merged; where several have a step, the newest counts: {names}.",
        "rank {rank}：合并 {count} 次运行；同一 step 以最新的为准：{names}。", severity="note",
    ),
    Message(
        "M132", "append-output-wrong", "error:monitor", "count",
        "append_output has {count} entries; give two timestamps, the first and the last to look for.",
        "append_output 有 {count} 项；请给出两个时间戳，即查找的起止。", severity="error",
    ),
    Message(
        "M133", "append-output-finds-nothing", "warning:work", "base rank first last",
        'append_output: "{base}" has no folder of rank {rank} from {first} to {last}; a new one is created.',
        'append_output："{base}" 中没有 rank {rank} 从 {first} 到 {last} 的文件夹；新建一个。', severity="warning",
    ),
    Message(
        "M134", "collectives-need-process-group", "warning:work", "",
        "monitor: cc_distribution needs a process group; no collectives are measured.",
        "监控：cc_distribution 需要进程组；不测量集合通信。", severity="warning",
    ),
    Message(
        "M135", "monitor-targets-unknown", "warning:work", "missing there",
        "monitor: {missing} in targets is no module and no trained parameter of the model{there}.",
        "监控：targets 中的 {missing} 不是模型的模块或可训练参数{there}。", severity="warning",
    ),
    Message(
        "M136", "monitor-target-is-prefix", "warning:work", "target near begun more",
        "monitor: {target} in targets is no whole name{near}: parameters whose names begin with it are measured ({begun}{more}), and no module.",
        "监控：targets 中的 {target} 不是完整名称{near}：测量以它开头的参数（{begun}{more}），不测量模块。", severity="warning",
    ),
    Message(
        "M137", "no-unreduced-gradients-in-mindspore", "warning:work", "",
        "monitor: MindSpore does not report gradients of parameters before they are reduced, for instance where a compiled function computes them; grad_unreduced is left out, grad_reduced is the gradient that the optimizer gets.",
        "监控：MindSpore 不给出规约之前的参数梯度，例如由编译函数计算时；略过 grad_unreduced，grad_reduced 是优化器得到的梯度。", severity="warning",
    ),
    Message(
        "M138", "main-grad-has-no-effect", "warning:work", "params_have_main_grad",
        "TrainerMon(): params_have_main_grad={params_have_main_grad!r:.80} has no effect: parameters of MindSpore have no main_grad.",
        "TrainerMon()：params_have_main_grad={params_have_main_grad!r:.80} 不起作用：MindSpore 的参数没有 main_grad。", severity="warning",
    ),
    Message(
        "M139", "monitor-model-wrong", "error:monitor", "module_word type",
        "set_monitor(): model must be a {module_word} or a list of them, found {type}.",
        "set_monitor()：model 必须是 {module_word} 或其列表，实际为 {type}。", severity="error",
    ),
    Message(
        "M140", "monitor-mindspore-optimizer-wrong", "error:monitor", "type",
        "set_monitor(): optimizer must be a mindspore.nn.Optimizer or one of mindspore.mint.optim, found {type}; pass the optimizer of the training.",
        "set_monitor()：optimizer 必须是 mindspore.nn.Optimizer 或 mindspore.mint.optim 中的优化器，实际为 {type}；请传入训练的优化器。", severity="error",
    ),
    Message(
        "M141", "not-measured-in-mindspore", "warning:work", "without",
        "monitor: {without} cannot be measured in MindSpore; all other quantities are.",
        "监控：MindSpore 中无法测量 {without}；其他都会测量。", severity="warning",
    ),
    Message(
        "M142", "scope-global-in-mindspore", "warning:work", "",
        'monitor: scope "global" is not known in MindSpore: each rank measures its own slice of a tensor that is spread over several.',
        '监控：MindSpore 不支持 scope "global"：张量分布在多个 rank 上时，每个 rank 只测量自己的一片。', severity="warning",
    ),
    Message(
        "M143", "sketches-written", "error:monitor", "path",
        'Monitor: sketches of the steps before the alert are in "{path}".',
        '监控：告警之前各 step 的概要（sketch）在 "{path}"。', severity="note",
    ),
    Message(
        "M144", "step-recorded-because", "error:monitor", "step why",
        "monitor: step {step} is recorded, because: {why}",
        "监控：采集 step {step}，因为：{why}", severity="note",
    ),
    Message(
        "M145", "step-recorded-for-alert", "error:monitor", "role step place quoted",
        'monitor: {role}, {step}, is recorded in "{place}"; next: msprobe check {quoted}',
        '监控：{role}（{step}）采集在 "{place}"；下一步：msprobe check {quoted}', severity="note",
    ),
    Message(
        "M146", "step-not-recorded", "warning:work", "step message",
        "monitor: step {step} could not be recorded for alerts, and none is from now on. {message}",
        "监控：无法为告警采集 step {step}，此后也不再采集。{message}", severity="warning",
    ),
    Message(
        "M147", "step-recorded-by-program", "error:monitor", "step",
        "monitor: the program itself records step {step}; nothing is recorded for alerts in such steps.",
        "监控：程序自己采集 step {step}；这些 step 不为告警采集。", severity="note",
    ),
    Message(
        "M148", "kept-step-stays", "warning:work", "message",
        "monitor: a step that was kept is not removed. {message}",
        "监控：保留的 step 没有删除。{message}", severity="warning",
    ),
    Message(
        "M149", "no-files-of-monitor", "warning:work", "path hint",
        '"{path}" has no csv files and no database of the monitor{hint}.',
        '"{path}" 中没有监控的 csv 文件和数据库{hint}。', severity="warning",
    ),
    Message(
        "M150", "too-many-files-of-quantity", "error:monitor", "folder quantity step",
        '"{folder}" has too many files of {quantity} for step {step}.',
        '"{folder}" 中 {quantity} 在 step {step} 的文件太多。', severity="error",
    ),
    Message(
        "M151", "tensorboard-missing", "error:monitor", "install",
        "TensorBoard files need tensorboard, which is not installed: {install}.",
        "TensorBoard 文件需要 tensorboard，但没有安装：{install}。", severity="error",
    ),
    Message(
        "M152", "wandb-missing", "error:monitor", "install",
        "format wandb needs wandb, which is not installed: {install}.",
        "格式 wandb 需要 wandb，但没有安装：{install}。", severity="error",
    ),
    Message(
        "M153", "sketch-not-written", "error:files", "folder file_name problem",
        'cannot write file "{folder}/{file_name}": {problem}.',
        '无法写入文件 "{folder}/{file_name}"：{problem}。', severity="error",
    ),
    Message(
        "M154", "no-sketches-file", "error:monitor", "path problem",
        '"{path}" is no readable file of sketches: {problem}.',
        '"{path}" 不是可读的概要（sketch）文件：{problem}。', severity="error",
    ),
    Message(
        "M155", "optimizer-without-moments", "warning:work", "name",
        "monitor: {name} has no moments exp_avg and exp_avg_sq to measure.",
        "监控：{name} 没有可测量的动量 exp_avg 和 exp_avg_sq。", severity="warning",
    ),
    Message(
        "M156", "monitor-switch-failed", "warning:work", "message",
        "{message} The monitor continues unchanged.",
        "{message} 监控保持不变。", severity="warning",
    ),
    Message(
        "M157", "dynamic-on-not-reset", "warning:work", "path error",
        'monitor: dynamic_on could not be set to false in "{path}": {error}',
        '监控：无法在 "{path}" 中把 dynamic_on 设为 false：{error}', severity="warning",
    ),
    Message(
        "M158", "fsdp-parameters-unreadable", "warning:work", "error",
        "monitor: the flat parameters of FSDP cannot be read, so only the slices are measured: {error}",
        "监控：无法读取 FSDP 的扁平参数，只测量分片：{error}", severity="warning",
    ),
    Message(
        "M159", "fsdp-gradients-not-measured", "warning:work", "error",
        "monitor: the gradients of FSDP could not be measured: {error}",
        "监控：无法测量 FSDP 的梯度：{error}", severity="warning",
    ),
    Message(
        "M160", "l2-target-unknown", "warning:work", "missing name",
        "monitor: {missing} in l2_targets.{name} is no module of the model.",
        "监控：l2_targets.{name} 中的 {missing} 不是模型的模块。", severity="warning",
    ),
    Message(
        "M161", "attention-without-q-and-k", "warning:work", "module",
        "monitor: {module} in l2_targets.attention_hook does not get Q and K as its first positional arguments, so its attention is not measured.",
        "监控：l2_targets.attention_hook 中的 {module} 前两个位置参数不是 Q 和 K，因此不测量其注意力。", severity="warning",
    ),
    Message(
        "M162", "optimizer-not-followed", "warning:work", "where error",
        "monitor: {where} could not be followed: {error}",
        "监控：无法跟踪 {where}：{error}", severity="warning",
    ),
    Message(
        "M163", "opt-ty-has-no-effect", "warning:work", "opt_ty",
        "TrainerMon(): opt_ty={opt_ty!r:.80} has no effect: the kind of optimizer is found automatically.",
        "TrainerMon()：opt_ty={opt_ty!r:.80} 不起作用：优化器种类自动识别。", severity="warning",
    ),
    Message(
        "M164", "monitor-torch-model-wrong", "error:monitor", "type",
        "set_monitor(): model must be a torch.nn.Module or a list of them, found {type}.",
        "set_monitor()：model 必须是 torch.nn.Module 或其列表，实际为 {type}。", severity="error",
    ),
    Message(
        "M165", "monitor-optimizer-wrong", "error:monitor", "type hint",
        "set_monitor(): optimizer must have a method step, found {type}; {hint}.",
        "set_monitor()：optimizer 必须有 step 方法，实际为 {type}；{hint}。", severity="error",
    ),
    Message(
        "M166", "loss-not-noted", "warning:work", "problem",
        "monitor: the loss could not be recorded: {problem}",
        "监控：无法记录 loss：{problem}", severity="warning",
    ),
    Message(
        "M167", "monitor-watches-already", "error:monitor", "",
        "set_monitor(): the monitor already watches a training; call stop() first.",
        "set_monitor()：监控已在监视训练；请先调用 stop()。", severity="error",
    ),
    Message(
        "M168", "monitor-without-optimizer", "warning:work", "",
        "monitor_gnorm_with_ad(): no optimizer was given, so nothing is monitored.",
        "monitor_gnorm_with_ad()：没有传入优化器，因此不监控。", severity="warning",
    ),
    Message(
        "M169", "reload-xy-deprecated", "warning:work", "",
        "reload_xy() is deprecated: set DYNAMIC_MONITOR and change the configuration file.",
        "reload_xy() 已弃用：请设置 DYNAMIC_MONITOR 并修改配置文件。", severity="warning",
    ),
    Message(
        "M170", "wgrad-arguments-have-no-effect", "warning:work", "",
        "generate_wgrad_metrics(): its arguments have no effect; leave them out.",
        "generate_wgrad_metrics()：其参数不起作用；请去掉。", severity="warning",
    ),
    Message(
        "M171", "steps-skipped", "warning:work", "count",
        "monitor: {count} steps in a row were skipped: their gradients are not finite.",
        "监控：连续跳过 {count} 个 step：梯度不是有限值。", severity="warning",
    ),
    Message(
        "M172", "grad-unreduced-lacks", "warning:work", "lacking more",
        "monitor: grad_unreduced lacks {lacking}{more}: no backward pass of the module that owns it was seen.",
        "监控：grad_unreduced 缺少 {lacking}{more}：没有看到所属模块的反向。", severity="warning",
    ),
    Message(
        "M173", "collect-times-reached", "error:monitor", "steps",
        "monitor: {steps} steps were measured, as collect_times asks for; it stops now.",
        "监控：已按 collect_times 测量 {steps} 个 step；到此结束。", severity="note",
    ),
    Message(
        "M174", "nothing-measured", "warning:work", "",
        "monitor: nothing was measured so far. Check targets, and whether the configuration asks for anything (xy_distribution, wg_distribution, mv_distribution, param_distribution, ...).",
        "监控：至今没有测量任何内容。请检查 targets，以及配置是否要求了内容（xy_distribution、wg_distribution、mv_distribution、param_distribution 等）。", severity="warning",
    ),
    Message(
        "M175", "print-struct-ends-training", "error:monitor", "path",
        'print_struct: the structure of the model is in "{path}"; the training ends here, as the monitor configuration asks for. Set print_struct to "continue" to go on with the training, or to false.',
        'print_struct：模型结构在 "{path}"；按监控配置在此结束训练。要继续训练请把 print_struct 设为 "continue" 或 false。', severity="error",
    ),
    Message(
        "M176", "cc-log-only-ends-training", "error:monitor", "",
        "cc_log_only: the call stacks of the collectives of one step are printed above; the training ends here, as the monitor configuration asks for.",
        "cc_log_only：上面是一个 step 的集合通信调用栈；按监控配置在此结束训练。", severity="error",
    ),
    Message(
        "M177", "module-ranks-without-group", "warning:work", "ranks",
        "monitor: module_ranks {ranks} has no effect in a single process; this process is measured.",
        "监控：module_ranks {ranks} 在单进程中不起作用；测量本进程。", severity="warning",
    ),
    Message(
        "M178", "set-monitor-number-wrong", "warning:work", "name least value default",
        "set_monitor(): {name} must be a whole number from {least}, found {value!r}; {default} is used.",
        "set_monitor()：{name} 必须是不小于 {least} 的整数，实际为 {value!r}；使用 {default}。", severity="warning",
    ),
    Message(
        "M179", "trend-database-unreadable", "error:monitor", "path reason",
        'database "{path}" cannot be read: {reason}.',
        '无法读取数据库 "{path}"：{reason}。', severity="error",
    ),
    Message(
        "M180", "no-monitor-enabled", "warning:work", "name monitors",
        '{name} enables none of {monitors}, so nothing is measured; write for example "monitors": {{"weight_grad": {{"enabled": true}}}}.',
        '{name} 没有启用 {monitors} 中的任何一个，因此不测量；可以写 "monitors": {{"weight_grad": {{"enabled": true}}}}。', severity="warning",
    ),
    Message(
        "M181", "rows-appended", "warning:work", "path",
        'monitor: "{path}" is of an earlier run; rows are appended.',
        '监控："{path}" 属于更早的运行；新行追加在末尾。', severity="warning",
    ),
    Message(
        "M182", "monitor-v2-watches-already", "error:monitor", "",
        "start(): the monitor already watches a training; call stop() first.",
        "start()：监控已在监视训练；请先调用 stop()。", severity="error",
    ),
    Message(
        "M183", "module-target-unknown", "warning:work", "target",
        "monitor: no module of the model has {target} of monitors.module.targets in its name.",
        "监控：模型中没有名称含 monitors.module.targets 的 {target} 的模块。", severity="warning",
    ),
    Message(
        "M184", "monitor-step-skipped", "warning:work", "",
        "monitor: step() has no effect, since steps are already those of the optimizer.",
        "监控：step() 不起作用，因为 step 已由优化器确定。", severity="warning",
    ),
    Message(
        "M185", "one-run-of-rank-read", "warning:work", "rank count chosen others",
        "rank {rank} has {count} separate runs; {chosen} is read, and {others} is not: give the folder of such a run to read it.",
        "rank {rank} 有 {count} 次单独的运行；读取 {chosen}，不读取 {others}：要读取它，请给出其文件夹。", severity="warning",
    ),
    Message(
        "M186", "runs-go-on", "error:monitor", "rank chosen",
        "rank {rank}: {chosen} continue each other; where several have a step, the newest counts.",
        "rank {rank}：{chosen} 前后相续；同一 step 以最新的为准。", severity="note",
    ),
    Message(
        "M187", "monitor-files-not-ended", "warning:work", "seconds queue",
        "the monitor's files could not be completed within {seconds:.0f} seconds; {queue} steps may be missing.",
        "{seconds:.0f} 秒内无法写完监控文件；可能缺少 {queue} 个 step。", severity="warning",
    ),
    Message(
        "M188", "monitor-files-slow", "warning:work", "queue",
        "writing the monitor's files takes longer than the steps of the training: {queue} steps wait, so the training waits as well. Choose a larger step_interval, fewer targets, or a faster disk.",
        "写监控文件比训练的 step 更慢：{queue} 个 step 在等待，训练也随之等待。请加大 step_interval、减少 targets，或使用更快的磁盘。", severity="warning",
    ),
    Message(
        "M189", "monitored-step-unreadable", "warning:work", "reason",
        "a monitored step could not be read: {reason}",
        "无法读取一个被监控的 step：{reason}", severity="warning",
    ),
    Message(
        "M190", "sink-given-up", "warning:work", "sink reason which",
        "the monitor stops writing to {sink}: {reason} The training continues{which}.",
        "监控停止写入 {sink}：{reason} 训练继续{which}。", severity="warning",
    ),
)
