"""Errors of the recorder and its configuration (R1)."""

from __future__ import annotations

from msprobe.messages.entry import Message

# fmt: off
MESSAGES: tuple[Message, ...] = (
    Message(
        "R101", "config-is-no-object", "error:recording", "name line document",
        "{name}:{line}: the file must be an object {{...}}, found {document}.",
        "{name}:{line}：文件必须是对象 {{...}}，实际为 {document}。", severity="error",
    ),
    Message(
        "R102", "config-unreadable", "error:recording", "name reason",
        'file "{name}" cannot be read: {reason}.',
        '无法读取文件 "{name}"：{reason}。', severity="error",
    ),
    Message(
        "R103", "l2-of-npu", "error:recording", "mistakes",
        "level L2 on an NPU records the kernels of one API: {mistakes}.",
        "NPU 上的 level L2 只采集一个 API 的算子：{mistakes}。", severity="error",
    ),
    Message(
        "R104", "yaml-unreadable", "error:recording", "what path strerror",
        '{what}: file "{path}" cannot be read: {strerror}.',
        '{what}：无法读取文件 "{path}"：{strerror}。', severity="error",
    ),
    Message(
        "R105", "listener-of-wrong-class", "error:recording", "name",
        "add(): a listener is an Observer or a Changer (msprobe.listeners), found {name}.",
        "add()：监听者必须是 Observer 或 Changer（msprobe.listeners），实际为 {name}。", severity="error",
    ),
    Message(
        "R106", "listener-already-added", "error:recording", "name",
        "add(): this {name} listens already.",
        "add()：该 {name} 已在监听。", severity="error",
    ),
    Message(
        "R107", "init-step-wrong", "error:recording", "step",
        "set_init_step(): step must be an int from 0, found {step!r}.",
        "set_init_step()：step 必须是不小于 0 的整数，实际为 {step!r}。", severity="error",
    ),
    Message(
        "R108", "debugger-not-created", "error:recording", "",
        "PrecisionDebugger: instance is not created; construct PrecisionDebugger(...) before calling its methods.",
        "PrecisionDebugger：尚未创建实例；请先构造 PrecisionDebugger(...) 再调用其方法。", severity="error",
    ),
    Message(
        "R109", "wants-wrong", "error:recording", "mistakes KINDS DIRECTIONS",
        "Wants: {mistakes}. Kinds are {KINDS}; directions are {DIRECTIONS}.",
        "Wants：{mistakes}。kind 可取 {KINDS}；direction 可取 {DIRECTIONS}。", severity="error",
    ),
    Message(
        "R110", "cadence-wrong", "error:recording", "every",
        "Cadence: every must be at least 1, found {every!r}.",
        "Cadence：every 必须不小于 1，实际为 {every!r}。", severity="error",
    ),
    Message(
        "R111", "changes-wrong", "error:recording", "names",
        "Changes: names must be a list of texts, found {names!r}.",
        "Changes：names 必须是文本列表，实际为 {names!r}。", severity="error",
    ),
    Message(
        "R112", "listening-beside-debugger", "error:recording", "",
        "Listening(): there is a PrecisionDebugger in this process; give it the listeners: debugger.add(listener).",
        "Listening()：本进程中已有 PrecisionDebugger；请把监听者交给它：debugger.add(listener)。", severity="error",
    ),
    Message(
        "R113", "token-range-wrong", "error:recording", "token_range",
        "start(): token_range must be [a, b] with whole numbers 0 <= a <= b, found {token_range!r}.",
        "start()：token_range 必须是 [a, b]，a、b 为整数且 0 <= a <= b，实际为 {token_range!r}。", severity="error",
    ),
    Message(
        "R114", "rank-id-wrong", "error:recording", "rank_id",
        "start(): rank_id must be an int from 0, found {rank_id!r}.",
        "start()：rank_id 必须是不小于 0 的整数，实际为 {rank_id!r}。", severity="error",
    ),
    Message(
        "R115", "scheduled-tokens-not-available", "error:recording", "scheduled_tokens",
        "start(): scheduled_tokens={scheduled_tokens!r:.80} asks for the rows of one request; that is not available in this version: tensors are recorded whole; leave it out.",
        "start()：scheduled_tokens={scheduled_tokens!r:.80} 要求某个请求的行；本版本不支持：张量整体采集；请去掉该参数。", severity="error",
    ),
    Message(
        "R116", "custom-api-is-no-text", "error:recording", "api",
        "register_custom_api(): api must be a str, found {api!r}.",
        "register_custom_api()：api 必须是 str，实际为 {api!r}。", severity="error",
    ),
    Message(
        "R117", "custom-prefix-is-no-text", "error:recording", "prefix",
        "register_custom_api(): api_prefix must be a str, found {prefix!r}.",
        "register_custom_api()：api_prefix 必须是 str，实际为 {prefix!r}。", severity="error",
    ),
    Message(
        "R118", "custom-api-missing", "error:recording", "holder what api",
        'register_custom_api(): {holder} {what} "{api}"; give a module and the name of a function.',
        'register_custom_api()：{holder} {what} "{api}"；请给出模块和函数名。', severity="error",
    ),
    Message(
        "R119", "callback-without-debugger", "error:recording", "name",
        "MsprobeStep(): debugger must be a PrecisionDebugger, found {name}.",
        "MsprobeStep()：debugger 必须是 PrecisionDebugger，实际为 {name}。", severity="error",
    ),
    Message(
        "R120", "start-of-wrong-model", "error:recording", "where allowed found",
        "start(): {where} must be {allowed}, found {found}.",
        "start()：{where} 必须是 {allowed}，实际为 {found}。", severity="error",
    ),
    Message(
        "R121", "start-of-empty-model", "error:recording", "name allowed",
        "start(): model is an empty {name}; pass {allowed}.",
        "start()：model 是空的 {name}；请传入 {allowed}。", severity="error",
    ),
    Message(
        "R122", "lockstep-for-mindspore", "error:recording", "",
        "task \"lockstep\" is for PyTorch; MindSpore's results cannot be written to.",
        'task "lockstep" 仅支持 PyTorch；MindSpore 的结果不能改写。', severity="error",
    ),
    Message(
        "R123", "token-range-of-static-graph", "error:recording", "token_range",
        "start(): token_range {token_range} counts calls of the model, which a static graph (GRAPH_MODE) does not report; leave it out, or use the dynamic graph.",
        "start()：token_range {token_range} 按模型的调用计数，而静态图（GRAPH_MODE）不提供；请去掉该参数，或使用动态图。", severity="error",
    ),
    Message(
        "R124", "save-names-wrong", "error:recording", "folder name",
        "save(): save_dir and name must be texts, found {folder!r} and {name!r}.",
        "save()：save_dir 和 name 必须是文本，实际为 {folder!r} 和 {name!r}。", severity="error",
    ),
    Message(
        "R125", "kernel-statistics-at-level", "error:recording", "counted level TENSOR_KINDS",
        'summary_mode: {counted} are statistics of the kernels of a static graph (level "L2"); at level "{level}" a list may have {TENSOR_KINDS}.',
        'summary_mode：{counted} 是静态图算子的统计量（level "L2"）；level "{level}" 的列表可含 {TENSOR_KINDS}。', severity="error",
    ),
    Message(
        "R196", "jitter-for-mindspore", "error:recording", "",
        "jitter: true is there for PyTorch only; for MindSpore record a second healthy run on a different device or with a different number of threads.",
        "jitter: true 仅支持 PyTorch；MindSpore 请在另一种设备上，或以不同的线程数再采集一次正常训练。", severity="error",
    ),
    Message(
        "R126", "kernel-statistics-at-start", "error:recording", "counted TENSOR_KINDS",
        "start(): summary_mode: {counted} are statistics of the kernels of a static graph (GRAPH_MODE); here a list may have {TENSOR_KINDS}.",
        "start()：summary_mode：{counted} 是静态图（GRAPH_MODE）算子的统计量；这里的列表可含 {TENSOR_KINDS}。", severity="error",
    ),
    Message(
        "R127", "level-of-static-graph", "error:recording", "level DYNAMIC",
        "start(): level {level} records calls, which a static graph (GRAPH_MODE) does not have; choose level L0, or {DYNAMIC}.",
        "start()：level {level} 采集调用，而静态图（GRAPH_MODE）没有；请选择 level L0，或 {DYNAMIC}。", severity="error",
    ),
    Message(
        "R128", "l0-of-static-graph", "error:recording", "device DYNAMIC",
        'level: "L0" of a static graph on {device}: its cells are recorded by operators that call Python, which graphs cannot do there; choose "L2", or {DYNAMIC}.',
        'level："L0" 用于 {device} 上的静态图：cell 由调用 Python 的算子采集，那里的图不支持；请选择 "L2"，或 {DYNAMIC}。', severity="error",
    ),
    Message(
        "R129", "start-of-static-graph", "error:recording", "what mistakes",
        "start(): of a static graph (GRAPH_MODE) {what}: {mistakes}.",
        "start()：静态图（GRAPH_MODE）{what}：{mistakes}。", severity="error",
    ),
    Message(
        "R130", "l2-not-reported", "error:recording", "",
        'level: "L2" records kernels, which this MindSpore does not report (mindspore.utils.MsDispatchMode, since 2.10); choose "L0", "L1", "mix" or "debug".',
        'level："L2" 采集算子，而此版本的 MindSpore 不提供（mindspore.utils.MsDispatchMode，自 2.10 起）；请选择 "L0"、"L1"、"mix" 或 "debug"。', severity="error",
    ),
    Message(
        "R131", "exception-dump-on-cpu", "error:recording", "DYNAMIC",
        'task: "exception_dump" of a static graph: MindSpore does not dump what fails on the CPU; choose another task, or {DYNAMIC}.',
        'task："exception_dump" 用于静态图：MindSpore 在 CPU 上不 dump 失败的内容；请选择其他 task，或 {DYNAMIC}。', severity="error",
    ),
    Message(
        "R132", "recorded-already", "error:recording", "place",
        "recording(into=...): {place} is being recorded already; end it with step() first.",
        "recording(into=...)：{place} 已在采集；请先用 step() 结束。", severity="error",
    ),
    Message(
        "R133", "single-save-without-folder", "error:recording", "name",
        "{name} has no folder yet; create it first: {name}(dump_path).",
        "{name} 还没有文件夹；请先创建：{name}(dump_path)。", severity="error",
    ),
    Message(
        "R134", "single-save-framework", "error:recording", "FRAMEWORKS fmk",
        "SingleSave: fmk must be one of {FRAMEWORKS}, found {fmk!r}.",
        "SingleSave：fmk 必须是 {FRAMEWORKS} 之一，实际为 {fmk!r}。", severity="error",
    ),
    Message(
        "R135", "step-on-wrong", "error:recording", "text FORMS",
        "--step-on: {text!r} ends no step; give {FORMS}.",
        "--step-on：{text!r} 不能结束 step；请给出 {FORMS}。", severity="error",
    ),
    Message(
        "R136", "no-script", "error:recording", "",
        "no script to run; give a script, or -m and a module.",
        "没有要运行的脚本；请给出脚本，或 -m 加模块。", severity="error",
    ),
    Message(
        "R137", "script-is-an-option", "error:recording", "words",
        '"{words}" is no script; options of Python are not taken here.',
        '"{words}" 不是脚本；这里不接受 Python 的选项。', severity="error",
    ),
    Message(
        "R138", "script-missing", "error:recording", "words",
        'the script "{words}" does not exist.',
        '脚本 "{words}" 不存在。', severity="error",
    ),
    Message(
        "R139", "grad-probe-by-run", "error:recording", "",
        'task: "grad_probe" is begun by the script: PrecisionDebugger(config_path=...).monitor(model); `msprobe run` records with the other tasks.',
        'task："grad_probe" 由脚本启动：PrecisionDebugger(config_path=...).monitor(model)；`msprobe run` 使用其他 task。', severity="error",
    ),
    Message(
        "R140", "module-dump-of-wrong-class", "error:recording", "name",
        "module_dump(): module must be a torch.nn.Module, found {name}.",
        "module_dump()：module 必须是 torch.nn.Module，实际为 {name}。", severity="error",
    ),
    Message(
        "R141", "module-dump-of-script", "error:recording", "name",
        "module_dump(): a {name} is a ScriptModule and cannot be watched.",
        "module_dump()：{name} 是 ScriptModule，无法监听。", severity="error",
    ),
    Message(
        "R142", "module-dump-name", "error:recording", "name",
        "module_dump(): name must be a text that is not empty, found {name!r}.",
        "module_dump()：name 必须是非空文本，实际为 {name!r}。", severity="error",
    ),
    Message(
        "R143", "exception-dump-for-torch", "error:recording", "",
        'task: "exception_dump" is there for MindSpore; for PyTorch choose "statistics", "tensor", "structure", "overflow_check" or "nan_check".',
        'task："exception_dump" 用于 MindSpore；PyTorch 请选择 "statistics"、"tensor"、"structure"、"overflow_check" 或 "nan_check"。', severity="error",
    ),
    Message(
        "R144", "summary-mode-for-torch", "error:recording", "unknown TENSOR_KINDS",
        "summary_mode: {unknown} is there for the kernels of MindSpore; for PyTorch a list may have {TENSOR_KINDS}.",
        "summary_mode：{unknown} 用于 MindSpore 的算子；PyTorch 的列表可含 {TENSOR_KINDS}。", severity="error",
    ),
    Message(
        "R145", "start-of-script-module", "error:recording", "where kind allowed",
        "start(): {where} is a {kind} (ScriptModule), whose inside cannot be watched; pass {allowed} that is not scripted.",
        "start()：{where} 是 {kind}（ScriptModule），其内部无法监听；请传入未经 script 的 {allowed}。", severity="error",
    ),
    Message(
        "R146", "start-of-empty-list", "error:recording", "name allowed",
        "start(): model is an empty {name} (empty list); pass {allowed}.",
        "start()：model 是空的 {name}（空列表）；请传入 {allowed}。", severity="error",
    ),
    Message(
        "R147", "inside-captured-graph", "error:recording", "calls passes",
        "the program captures a graph: what ran in it (calls: {calls}, passes of modules: {passes}) is recorded without "
        "numbers and values, and what replays of it compute is not recorded.",
        "程序捕获了一个图：图内执行的内容（调用：{calls}，模块执行：{passes}）只有记录，没有统计量和数值，图重放时的计算不会被采集。",
        severity="warning",
    ),
    Message(
        "R148", "captured-graph-is-recorded", "warning:recording", "calls passes",
        "the program captures a graph: each replay of it in a recorded step writes the records of what ran in it (calls: "
        "{calls}, passes of modules: {passes}) with the numbers of that replay. Gradients inside of it are not recorded.",
        "程序捕获了一个图：在采集的 step 内，每次重放都会写出图内执行内容的记录（调用：{calls}，模块执行：{passes}）及该次重放的统计量。图内的梯度不采集。",
        severity="warning",
    ),
    Message(
        "R149", "graph-captured-elsewhere", "warning:recording", "",
        "the program replays a graph that it did not capture between start() and stop(): what runs in it is not recorded. "
        "Capture it in a step that is recorded.",
        "程序重放了一个不是在 start() 与 stop() 之间捕获的图：图内执行的内容不会被采集。请在采集的 step 内捕获它。",
        severity="warning",
    ),
)
