"""Messages of task free_benchmark (B1)."""

from __future__ import annotations

from msprobe.messages.entry import Message, Piece

# fmt: off
MESSAGES: tuple[Message, ...] = (
    Message(
        "B101", "preheat-sample", "note:benchmark", "step name number total",
        "preheat sample in step{step}api_name {name}, curr_called_seq: {number}/{total}",
        "预热采样：step{step}，API {name}，第 {number}/{total} 次调用", severity="note",
    ),
    Message(
        "B102", "perturbation-of-call", "note:benchmark", "mode name",
        "[msprobe] Free benchmark: Perturbation is {mode} of {name}.",
        "[msprobe] 无标杆比对：对 {name} 施加扰动 {mode}。", severity="note",
    ),
    Message(
        "B103", "call-not-perturbed", "note:benchmark", "name reason",
        "[msprobe] Free Benchmark: For {name}, {reason}. Cancel perturbation.",
        "[msprobe] 无标杆比对：{name}：{reason}。取消扰动。", severity="note",
    ),
    Message(
        "B104", "to-cpu-for-mindspore", "error:recording", "",
        'free_benchmark.pert_mode: "to_cpu" is available for PyTorch only; for MindSpore choose "improve_precision", "add_noise", "bit_noise", "change_value" or "no_change".',
        'free_benchmark.pert_mode："to_cpu" 仅支持 PyTorch；MindSpore 请选择 "improve_precision"、"add_noise"、"bit_noise"、"change_value" 或 "no_change"。', severity="error",
    ),
    Message(
        "B105", "benchmark-fields-for-mindspore", "warning:recording", "",
        "free_benchmark: if_preheat, fix_graph and offload have no effect for MindSpore.",
        "free_benchmark：if_preheat、fix_graph 和 offload 对 MindSpore 没有作用。", severity="warning",
    ),
    Message(
        "B106", "benchmark-without-calls", "note:benchmark", "",
        "Free benchmark: no call was checked.",
        "无标杆比对：没有检查任何调用。", severity="warning",
    ),
    Message(
        "B107", "benchmark-fixed", "note:benchmark", "changed calls apis",
        "Free benchmark: {changed} of {calls} calls of {apis} APIs got a different result.",
        "无标杆比对：{apis} 个 API 的 {calls} 次调用中，有 {changed} 次换用了不同的结果。", severity="note",
    ),
    Message(
        "B108", "benchmark-checked", "note:benchmark", "checks calls apis further",
        "Free benchmark: {checks} checks of {calls} calls of {apis} APIs{further}.",
        "无标杆比对：对 {apis} 个 API 的 {calls} 次调用做了 {checks} 次检查{further}。", severity="note",
    ),
    Message(
        "B109", "benchmark-without-risk", "note:benchmark", "rounding",
        "Free benchmark: no precision risk was found{rounding}.",
        "无标杆比对：没有发现精度风险{rounding}。", severity="note",
    ),
    Message(
        "B110", "benchmark-risks", "note:benchmark", "api risks checks calls worst way",
        "Free benchmark: {api}: {risks} risks in {checks} checks of {calls} calls, worst max_rel {worst}{way}",
        "无标杆比对：{api}：{calls} 次调用的 {checks} 次检查中有 {risks} 处风险，最差 max_rel {worst}{way}", severity="warning",
    ),
    Message(
        "B111", "benchmark-more-risks", "note:benchmark", "apis file",
        "Free benchmark: {apis} more APIs with risks: see {file}.",
        "无标杆比对：另有 {apis} 个 API 存在风险：见 {file}。", severity="warning",
    ),
    Message(
        "B112", "benchmark-checked-nothing", "note:benchmark", "reason file",
        "Free benchmark: nothing was checked (most often: {reason}); see {file}.",
        "无标杆比对：没有做任何检查（最常见的原因：{reason}）；见 {file}。", severity="warning",
    ),
    Message(
        "B113", "benchmark-entry-unmatched", "warning:recording", "field entry hint",
        'free_benchmark: {field} matched no API: "{entry}"{hint}',
        'free_benchmark：{field} 没有匹配任何 API："{entry}"{hint}', severity="warning",
    ),
)
PIECES: tuple[Piece, ...] = (
    Piece(
        "repeated-shape-differs", "own other",
        "its result has shape {own}, and {other} when it is made again",
        "其结果的 shape 为 {own}，重复执行时为 {other}",
    ),
    Piece(
        "repeated-results-differ", "own others",
        "it has {own} results, and {others} when it is made again",
        "它有 {own} 个结果，重复执行时有 {others} 个",
    ),
    Piece(
        "exchange-gradients-unknown", "",
        "the effect of exchanging two elements on its gradients is not known",
        "交换两个元素对其梯度的影响未知",
    ),
    Piece(
        "gradient-of-equal-elements", "",
        "its gradient goes to any one of several equal elements",
        "其梯度会流向若干相等元素中的任意一个",
    ),
    Piece(
        "no-such-result-then", "",
        "it has no such result then",
        "此时它没有这个结果",
    ),
    Piece(
        "repeated-parts-differ", "own others",
        "its result has {own} parts, and {others} when it is made again",
        "其结果有 {own} 部分，重复执行时有 {others} 部分",
    ),
    Piece(
        "repeated-shape-other", "",
        "its result has a different shape when it is made again",
        "重复执行时其结果的 shape 不同",
    ),
    Piece(
        "benchmark-explained", "count",
        "; {count} deviations are explained by rounding",
        "；{count} 处偏差可由舍入解释",
    ),
    Piece(
        "benchmark-not-judged", "count file",
        "; {count} could not be judged: see {file}",
        "；{count} 处无法判定：见 {file}",
    ),
    Piece(
        "benchmark-rounding", "count shares",
        "; {count} results deviated and count as rounding, in {shares} of their elements",
        "；{count} 个结果有偏差，视为舍入，涉及其 {shares} 的元素",
    ),
    Piece(
        "benchmark-shares", "least most",
        "{least:.2g} to {most:.2g} %",
        "{least:.2g} 到 {most:.2g} %",
    ),
    Piece(
        "no-call-with-floats", "",
        "no call has a tensor of floats",
        "没有调用带有浮点张量",
    ),
    Piece(
        "seeks-equal-elements", "",
        "it seeks equal elements, which noise makes unequal",
        "它查找相等的元素，而噪声会使其不等",
    ),
    Piece(
        "no-half-precision-argument", "",
        "no tensor of float16 or bfloat16 among its arguments",
        "其参数中没有 float16 或 bfloat16 张量",
    ),
    Piece(
        "exchange-result-unknown", "",
        "the effect of exchanging two elements on its result is not known",
        "交换两个元素对其结果的影响未知",
    ),
    Piece(
        "no-float-argument", "",
        "no float tensor among its arguments: input types of this API are not supported",
        "其参数中没有浮点张量：不支持该 API 的输入类型",
    ),
    Piece(
        "results-for-gradients", "results gradients",
        "{results} results in place of {gradients}",
        "有 {results} 个结果，应为 {gradients} 个",
    ),
    Piece(
        "writes-to-arguments", "",
        "it writes to its arguments, which are copied from the next call on",
        "它改写其参数，从下一次调用起复制参数",
    ),
    Piece(
        "call-left-out", "",
        "it communicates, moves memory or chooses at random, and is not made again",
        "它进行通信、搬移内存或随机选择，不重复执行",
    ),
    Piece(
        "called-function-unknown", "",
        "the function that it called is not known",
        "不知道它调用的函数",
    ),
    Piece(
        "too-little-memory", "",
        "there is too little free memory for a second run",
        "空闲内存不足以再执行一次",
    ),
    Piece(
        "second-run-failed", "kind error",
        "the second run failed: {kind}: {error}",
        "第二次执行失败，{kind}：{error}",
    ),
    Piece(
        "writes-result-into-argument", "",
        "it writes its result into an argument, which cannot be replaced",
        "它把结果写入参数，不能替换",
    ),
    Piece(
        "result-is-view-of-argument", "",
        "its result is an argument or a view of one",
        "其结果是某个参数或其视图",
    ),
    Piece(
        "call-cannot-be-read", "kind",
        "its arguments cannot be read: {kind}",
        "无法读取其参数：{kind}",
    ),
    Piece(
        "result-cannot-be-read", "kind",
        "its result cannot be read: {kind}",
        "无法读取其结果：{kind}",
    ),
    Piece(
        "gradients-of-written-arguments", "",
        "its gradients are not computed again, as it writes to its arguments",
        "它改写其参数，因此不重新计算其梯度",
    ),
    Piece(
        "arguments-written-before-gradients", "",
        "its arguments were written to before its gradients came",
        "在其梯度到来之前，其参数已被改写",
    ),
    Piece(
        "arguments-freed-before-gradients", "",
        "the memory of its arguments was freed before its gradients came",
        "在其梯度到来之前，其参数的内存已释放",
    ),
    Piece(
        "gradients-not-computable", "kind",
        "its gradients cannot be computed again: {kind}",
        "无法重新计算其梯度：{kind}",
    ),
    Piece(
        "gradients-cannot-be-read", "kind",
        "its gradients cannot be read: {kind}",
        "无法读取其梯度：{kind}",
    ),
    Piece(
        "no-wider-type", "kind",
        "it does not run in a wider type to judge its deviations by ({kind})",
        "它不能以更宽的类型运行来判定其偏差（{kind}）",
    ),
    Piece(
        "has-value-of-kind", "kind",
        "it has a {kind}",
        "它带有 {kind}",
    ),
    Piece(
        "has-parameter-without-gradient", "",
        "it has a parameter without a gradient, which it may write to",
        "它带有不求梯度的参数，可能会改写它",
    ),
    Piece(
        "draws-unrepeatable-numbers", "",
        "it draws random numbers that cannot be drawn again",
        "它使用无法再次得到的随机数",
    ),
    Piece(
        "writes-to-parameter", "",
        "it writes to a parameter",
        "它改写参数",
    ),
    Piece(
        "is-given-function", "",
        "it gets a function, which may have side effects",
        "它接收一个函数，该函数可能有副作用",
    ),
    Piece(
        "draws-from-generator", "",
        "it draws from a generator that it gets",
        "它使用传入的随机数生成器",
    ),
    Piece(
        "has-value-with-effects", "kind",
        "it has a {kind}, which may communicate or have side effects",
        "它带有 {kind}，可能会通信或有副作用",
    ),
    Piece(
        "inside-transform", "",
        "it is inside of a transform of torch.func",
        "它在 torch.func 的变换内部",
    ),
    Piece(
        "tensor-type-unsupported", "",
        "dtype unsupported: it has a tensor that is sparse, nested or quantized",
        "不支持的 dtype：它带有稀疏、嵌套或量化张量",
    ),
    Piece(
        "tensor-on-meta", "",
        "it has a tensor without memory (meta)",
        "它带有没有内存的张量（meta）",
    ),
    Piece(
        "tensor-memory-given-back", "",
        "it has a tensor whose memory was freed",
        "它带有内存已释放的张量",
    ),
    Piece(
        "benchmark-near-names", "names",
        "; near are {names}",
        "；相近的有 {names}",
    ),
)
