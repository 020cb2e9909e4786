"""What scripts that reproduce a call say, and what workers that run one (P4). A script has the few that it needs in it."""

from __future__ import annotations

from msprobe.messages.entry import Message, Piece

# fmt: off
MESSAGES: tuple[Message, ...] = (
    Message(
        "P401", "plugin-form", "error:precheck", "",
        "a plugin is plugin:package.module:function",
        "插件的写法为 plugin:package.module:function", severity="error",
    ),
    Message(
        "P402", "executor-word-unknown", "error:precheck", "word",
        "{word!r} is not known",
        "{word!r} 未知", severity="error",
    ),
    Message(
        "P403", "fault-unknown", "error:precheck", "word allowed",
        "the fault {word!r} is not known; allowed: {allowed}",
        "故障 {word!r} 未知；允许：{allowed}", severity="error",
    ),
    Message(
        "P404", "device-not-here", "error:precheck", "device plan",
        "the device {device!r}{plan} is not available here",
        "此处没有设备 {device!r}{plan}", severity="error",
    ),
    Message(
        "P405", "device-number-too-large", "error:precheck", "device kind count",
        "there is no device {device}: {kind} has {count} of them",
        "没有设备 {device}：{kind} 有 {count} 个", severity="error",
    ),
    Message(
        "P406", "plugin-not-imported", "error:precheck", "plugin problem",
        "{plugin!r} cannot be imported: {problem}; its folder must be in PYTHONPATH",
        "无法导入 {plugin!r}：{problem}；其文件夹须在 PYTHONPATH 中", severity="error",
    ),
    Message(
        "P407", "plugin-is-no-function", "error:precheck", "plugin",
        "{plugin!r} is no function",
        "{plugin!r} 不是函数", severity="error",
    ),
    Message(
        "P408", "constant-not-in-torch", "error:precheck", "version kind name",
        "torch {version} has no {kind} {name!r}",
        "torch {version} 没有 {kind} {name!r}", severity="error",
    ),
    Message(
        "P409", "file-is-no-python", "error:precheck", "path",
        "{path} is no file of Python",
        "{path} 不是 Python 文件", severity="error",
    ),
    Message(
        "P410", "reference-form", "error:precheck", "text",
        "{text!r} must be FILE.py:FUNCTION, of a file that exists",
        "{text!r} 必须是 FILE.py:FUNCTION，且文件存在", severity="error",
    ),
    Message(
        "P411", "reference-not-in-file", "error:precheck", "file name",
        '"{file}" has no function {name!r}',
        '"{file}" 没有函数 {name!r}', severity="error",
    ),
    Message(
        "P412", "function-not-in-torch", "error:precheck", "version kind name",
        "torch {version} has no {kind}.{name}",
        "torch {version} 没有 {kind}.{name}", severity="error",
    ),
    Message(
        "P413", "torch-npu-lacks-function", "error:precheck", "name problem",
        "torch_npu.{name} is called, which is not here: {problem}",
        "调用了 torch_npu.{name}，而此处没有：{problem}", severity="error",
    ),
    Message(
        "P414", "operator-not-registered", "error:precheck", "name",
        "torch has no operator that is recorded as Ops.{name}; name what registers it with --load",
        "torch 没有采集为 Ops.{name} 的算子；请用 --load 给出注册它的文件或模块", severity="error",
    ),
    Message(
        "P415", "function-class-not-loaded", "error:precheck", "",
        "a record of a Function has only the name of its class, and none of that name is loaded: name its file with --load",
        "Function 的记录只有类名，而没有加载该名称的类：请用 --load 给出其文件", severity="error",
    ),
    Message(
        "P416", "function-class-loaded-often", "error:precheck", "count",
        "a record of a Function has only the name of its class, and {count} of that name are loaded: name its file with --load",
        "Function 的记录只有类名，而加载了 {count} 个该名称的类：请用 --load 给出其文件", severity="error",
    ),
    Message(
        "P417", "layout-of-attention-unknown", "error:precheck", "layout allowed",
        "the layout {layout} of npu_fusion_attention is none of {allowed}",
        "npu_fusion_attention 的布局 {layout} 不是 {allowed} 之一", severity="error",
    ),
    Message(
        "P418", "call-cannot-be-run", "error:precheck", "api side problem",
        "{api} cannot be run on {side}: {problem}",
        "无法在 {side} 上运行 {api}：{problem}", severity="error",
    ),
    Message(
        "P419", "reference-cannot-be-run", "error:precheck", "problem",
        "the reference, double precision on the CPU, cannot be run: {problem}; name a function that computes the same there with --reference FILE.py:FUNCTION",
        "无法运行标杆（CPU 双精度）：{problem}；请用 --reference FILE.py:FUNCTION 给出在 CPU 上计算相同结果的函数", severity="error",
    ),
    Message(
        "P420", "script-results-missing", "error:precheck", "api count reference",
        "{api} gives {count} results, the reference {reference}",
        "{api} 给出 {count} 个结果，标杆给出 {reference} 个", severity="error",
    ),
    Message(
        "P421", "minimize-needs-file", "error:precheck", "",
        "--minimize writes a smaller script, of the file of this one: run it as a file",
        "--minimize 由本脚本的文件写出更小的脚本：请以文件方式运行", severity="error",
    ),
    Message(
        "P422", "loaded-kernels-replace-reference", "error:precheck", "load",
        "--load {load}: its kernels stand in for double precision on the CPU as well, which is the reference here; let them take the types in question only, and leave float64 to torch",
        "--load {load}：其算子实现也替换了 CPU 上的双精度计算，即此处的标杆；请让它们只处理相关类型，float64 留给 torch", severity="error",
    ),
    Message(
        "P423", "script-load-failed", "error:precheck", "load problem",
        "--load {load}: {problem}",
        "--load {load}：{problem}", severity="error",
    ),
    Message(
        "P424", "script-dtype-unknown", "error:precheck", "dtype allowed",
        "--dtype {dtype!r} is none of {allowed}",
        "--dtype {dtype!r} 不是 {allowed} 之一", severity="error",
    ),
    Message(
        "P425", "script-device-wrong", "error:precheck", "device problem allowed",
        "{device!r}: {problem}; allowed behind a device, each with a +: {allowed}",
        "{device!r}：{problem}；设备之后允许（各以 + 连接）：{allowed}", severity="error",
    ),
    Message(
        "P426", "script-fault-not-allowed", "error:precheck", "fault allowed",
        "the fault {fault!r} is not one of a script; allowed: {allowed}",
        "故障 {fault!r} 不适用于脚本；允许：{allowed}", severity="error",
    ),
    Message(
        "P427", "script-needs-reference", "error:precheck", "name",
        "torch_npu.{name} runs on an NPU alone: give --reference FILE.py:FUNCTION",
        "torch_npu.{name} 只能在 NPU 上运行：请给出 --reference FILE.py:FUNCTION", severity="error",
    ),
    Message(
        "P428", "mindspore-api-not-run", "error:precheck", "version name",
        "MindSpore {version} has no API {name} that is run",
        "MindSpore {version} 没有可运行的 API {name}", severity="error",
    ),
    Message(
        "P429", "script-target-wrong", "error:precheck", "device problem",
        "--device {device}: {problem}",
        "--device {device}：{problem}", severity="error",
    ),
    Message(
        "P430", "mindspore-call-fails", "error:precheck", "api type problem",
        "{api} cannot be run: {type}: {problem}",
        "无法运行 {api}：{type}：{problem}", severity="error",
    ),
)

PIECES: tuple[Piece, ...] = (
    Piece("of-executor", "text", " of {text!r}", "（{text!r}）"),
    Piece("gradient-of-argument-title", "number name", "{number}, the gradient of {name}", "{number}，{name} 的梯度"),
    Piece("script-verdict", "status api propagation device", "Verdict: {status} ({api}.{propagation} on {device})", "判定：{status}（{api}.{propagation}，{device}）"),
    Piece("script-verdict-alone", "status api propagation", "Verdict: {status} ({api}.{propagation})", "判定：{status}（{api}.{propagation}）"),
    Piece("script-iteration", "number", "iter: {number}:", "迭代 {number}："),
    Piece("script-result", "", "Compare result:", "比对结果："),
    Piece("script-finished", "", "Compare finished.", "比对完成。"),
    Piece("script-smallest", "api shapes file", "Smallest failing call: {api} with shapes {shapes}: {file}", "最小的失败调用：{api}，shape 为 {shapes}：{file}"),
    Piece("script-nothing-fails", "", "Nothing fails, so nothing is made smaller. If the call was wrong in the training, run this where the training ran, with its device, versions and kernels (--load).", "没有失败，因此无需缩小。如果调用在训练中有误，请在训练环境中运行：使用其设备、版本和算子实现（--load）。"),
    Piece("script-help-device", "words", "cpu, cuda:0, npu:0, ...; behind it, each with a +: {words}; or plugin:package.module:function, called with (function, args, kwargs)", "cpu、cuda:0、npu:0 等；其后（各以 + 连接）：{words}；或 plugin:package.module:function，以 (function, args, kwargs) 调用"),
    Piece("script-help-dtype", "dtypes", "of float arguments: {dtypes}", "浮点参数的类型：{dtypes}"),
    Piece("script-help-control", "", "a trusted device, whose errors are allowed", "可信设备，其误差视为允许"),
    Piece("script-help-inject", "faults", "a fault: {faults}", "故障：{faults}"),
    Piece("script-help-load", "", "what has the kernels or classes: a .py, a .so, a module", "含有算子实现或类的 .py、.so 或模块"),
    Piece("script-help-reference", "", "FILE.py:FUNCTION that computes the same on the CPU in double precision, where the call itself cannot", "在 CPU 上以双精度计算相同结果的 FILE.py:FUNCTION，用于调用本身无法做到的情况"),
    Piece("script-help-minimize", "", "look for a smaller call that fails; write it beside", "寻找更小的失败调用，写在旁边"),
    Piece("script-about", "api propagation", "Reproduces {api} ({propagation}).", "复现 {api}（{propagation}）。"),
    Piece("script-help-target", "", "CPU, GPU or Ascend (MindSpore's own)", "CPU、GPU 或 Ascend（MindSpore 的名称）"),
    Piece("script-help-share", "", "a fault: results are off by this share, such as 1e-2", "故障：结果偏离这一比例，如 1e-2"),
)
