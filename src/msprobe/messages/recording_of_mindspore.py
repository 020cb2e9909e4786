"""Messages of the recorder of MindSpore while a program runs (R3)."""

from __future__ import annotations

from msprobe.messages.entry import Message, Piece

# fmt: off
MESSAGES: tuple[Message, ...] = (
    Message(
        "R301", "cells-in-two-dumps", "note:recording", "folder inner_folder",
        'The model has compiled cells: calls outside of them are recorded in "{folder}", cells inside them in "{inner_folder}".',
        '模型有编译的 cell：其外部的调用采集到 "{folder}"，其内部的 cell 采集到 "{inner_folder}"。', severity="note",
    ),
    Message(
        "R302", "filters-and-compiled-cells", "warning:recording", "",
        "scope and list have no effect on cells inside compiled ones.",
        "scope 和 list 对编译的 cell 内部没有作用。", severity="warning",
    ),
    Message(
        "R303", "cells-in-compiled-functions", "note:recording", "folder",
        'Cells inside compiled functions are recorded in "{folder}".',
        '编译函数内部的 cell 采集到 "{folder}"。', severity="note",
    ),
    Message(
        "R304", "compiled-cells-without-records", "warning:recording", "cells",
        "Cells inside compiled ones ({cells}, ...) have no records: they did not run, or were compiled before the first start().",
        "编译的 cell 内部的 cell（{cells} 等）没有记录：它们没有运行，或在第一次 start() 之前已编译。", severity="warning",
    ),
    Message(
        "R305", "opt-without-effect", "warning:recording", "",
        "PrecisionDebugger(): opt has no effect: optimizers are found without it.",
        "PrecisionDebugger()：opt 没有作用：无需它即可找到优化器。", severity="warning",
    ),
    Message(
        "R306", "listeners-of-static-graph", "warning:listener", "",
        "Listeners get no events from inside a static graph (GRAPH_MODE).",
        "监听者收不到静态图（GRAPH_MODE）内部的事件。", severity="warning",
    ),
    Message(
        "R307", "rounded-cells-not-recorded", "warning:recording", "cell",
        "Cells of mixed precision in compiled graphs are not recorded ({cell}, ...): to record a rounded value would round it, which the compiler does not do everywhere.",
        "不采集编译图中混合精度的 cell（{cell} 等）：采集舍入后的值会使它真的舍入，而编译器并非处处如此。", severity="warning",
    ),
    Message(
        "R308", "cells-of-unknown-shapes", "warning:recording", "cell",
        "Tensors in compiled graphs are not recorded if their shape or type is not known before the graph runs ({cell}, ...).",
        "编译图中 shape 或类型在图运行之前未知的张量不采集（{cell} 等）。", severity="warning",
    ),
    Message(
        "R309", "cells-cannot-be-compiled", "warning:recording", "kind error",
        "Cells inside this compiled code are not recorded, as it cannot be compiled with the recorder's operators: {kind}: {error}",
        "不采集这段编译代码内部的 cell，因为带有采集算子时无法编译，{kind}：{error}", severity="warning",
    ),
    Message(
        "R310", "variable-set-already", "warning:recording", "name",
        "{name} is set already; the recording replaces its value until it ends.",
        "{name} 已有值；采集期间用采集的值代替它。", severity="warning",
    ),
    Message(
        "R311", "graph-kernels-dumped", "note:recording", "folder",
        'The kernels that MindSpore dumped are in "{folder}".',
        'MindSpore dump 的算子在 "{folder}"。', severity="note",
    ),
    Message(
        "R312", "graph-kernels-missing", "warning:recording", "folder",
        'MindSpore has dumped no kernel into "{folder}": call start() before the first run.',
        'MindSpore 没有向 "{folder}" dump 任何算子：请在第一次运行之前调用 start()。', severity="warning",
    ),
    Message(
        "R313", "graph-value-not-written", "error:fault", "error",
        "save(): a value could not be written: {error}",
        "save()：有一个值未能写出：{error}", severity="error",
    ),
    Message(
        "R314", "compiler-of-functions-unknown", "warning:recording", "",
        "The compiler of functions of this MindSpore is not where the recorder expects it; do not compile while recording.",
        "此版本 MindSpore 的函数编译器不在预期的位置；采集时请勿编译。", severity="warning",
    ),
    Message(
        "R315", "jit-without-arguments", "warning:recording", "function",
        "Jit.{function} has no arguments; it is not recorded.",
        "Jit.{function} 没有参数；不采集。", severity="warning",
    ),
    Message(
        "R316", "kernel-statistics-unreadable", "warning:recording", "path problem",
        '"{path}" cannot be read: {problem}.',
        '无法读取 "{path}"：{problem}。', severity="warning",
    ),
    Message(
        "R317", "compiled-cells-not-recorded", "warning:recording", "count device",
        "{count} cells inside compiled ones are not recorded: graphs on {device} cannot call Python.",
        "不采集编译的 cell 内部的 {count} 个 cell：{device} 上的图不能调用 Python。", severity="warning",
    ),
    Message(
        "R318", "argument-gradients-unseen", "warning:recording", "",
        "Gradients of arguments are null, as this MindSpore does not show the graph of its backward pass (2.8 and newer do). Gradients of results and parameters are recorded.",
        "参数（argument）的梯度为 null，因为此版本的 MindSpore 不提供反向图（2.8 及更新的版本提供）。结果和参数（parameter）的梯度照常采集。", severity="warning",
    ),
    Message(
        "R319", "seeded-mindspore", "note:recording", "seed mode dropout",
        "seed_all: seed {seed}, deterministic kernels {mode}, dropout {dropout}.",
        "seed_all：种子 {seed}，确定性算子{mode}，dropout {dropout}。", severity="note",
    ),
    Message(
        "R320", "o2-only-on-ascend", "warning:recording", "device",
        'jit_level "O2" compiles whole graphs with GE, which exists on Ascend only; on the {device} the graph runs, and is recorded, kernel by kernel.',
        'jit_level "O2" 用 GE 编译整图，仅 Ascend 支持；在 {device} 上图逐个算子运行，也逐个算子采集。', severity="warning",
    ),
    Message(
        "R321", "kernel-list-by-full-name", "warning:recording", "kinds",
        "list: with jit_level O2 kernels have their full names; {kinds} may match nothing.",
        "list：jit_level O2 的算子使用全名；{kinds} 可能匹配不到。", severity="warning",
    ),
    Message(
        "R322", "fields-without-effect", "warning:recording", "where fields",
        "{where} these fields have no effect: {fields}.",
        "{where}，以下字段没有作用：{fields}。", severity="warning",
    ),
    Message(
        "R323", "static-graph-hides-optimizer", "warning:recording", "function",
        "{function}: in a static graph (GRAPH_MODE) an optimizer that is compiled with the network gives no events; only steps that the program calls itself are noticed. The dynamic graph (PYNATIVE_MODE) gives all events.",
        "{function}：静态图（GRAPH_MODE）中与网络一起编译的优化器没有事件；只能得知程序自己调用的 step。动态图（PYNATIVE_MODE）提供全部事件。", severity="warning",
    ),
)
PIECES: tuple[Piece, ...] = (
    Piece(
        "mindspore-results-fixed", "",
        "MindSpore's results cannot be written to",
        "MindSpore 的结果不能改写",
    ),
    Piece(
        "mindspore-tensors-fixed", "",
        "MindSpore's tensors cannot be written to",
        "MindSpore 的张量不能改写",
    ),
    Piece(
        "save-allowed-mindspore", "",
        "a tensor, int, float, bool, str, or a list, tuple or dict of them",
        "张量、int、float、bool、str，或由它们组成的 list、tuple、dict",
    ),
    Piece(
        "save-holds-nothing", "where kind allowed",
        "{where} ({kind}) holds nothing that can be saved; allowed: {allowed}",
        "{where}（{kind}）中没有可保存的内容；允许：{allowed}",
    ),
    Piece(
        "use-dynamic-graph", "",
        "use the dynamic graph: mindspore.set_context(mode=mindspore.PYNATIVE_MODE)",
        "使用动态图：mindspore.set_context(mode=mindspore.PYNATIVE_MODE)",
    ),
    Piece(
        "in-dynamic-graph", "",
        "In the dynamic graph of MindSpore",
        "在 MindSpore 动态图中",
    ),
    Piece(
        "for-cells-of-static-graph", "",
        "For the cells of a static graph",
        "对静态图的 cell",
    ),
    Piece(
        "for-kernels-of-static-graph", "",
        "For the kernels of a static graph",
        "对静态图的算子",
    ),
    Piece(
        "kernels-as-mindspore-can", "",
        "MindSpore itself dumps the kernels",
        "由 MindSpore 自己 dump 算子",
    ),
    Piece(
        "cells-whole", "",
        "cells are recorded whole",
        "整体采集 cell",
    ),
    Piece(
        "l0-with-o2", "",
        'level "L0" does not exist with jit_level "O2"; choose level "L2", or jit_level "O0" or "O1"',
        'jit_level "O2" 没有 level "L0"；请选择 level "L2"，或 jit_level "O0"、"O1"',
    ),
    Piece(
        "graph-task-of-cells", "task",
        'task is "{task}", it must be "statistics" or "tensor"',
        'task 为 "{task}"，必须是 "statistics" 或 "tensor"',
    ),
    Piece(
        "graph-rank-empty", "",
        "rank must be []: all ranks compile the same graph",
        "rank 必须是 []：所有 rank 编译同一个图",
    ),
    Piece(
        "graph-scope-empty", "",
        "scope must be []",
        "scope 必须是 []",
    ),
    Piece(
        "graph-list-empty", "",
        "list must be []",
        "list 必须是 []",
    ),
    Piece(
        "graph-summary-of-cells", "mode names",
        'summary_mode is "{mode}", it must be "statistics" or a list of {names}',
        'summary_mode 为 "{mode}"，必须是 "statistics" 或由 {names} 组成的列表',
    ),
    Piece(
        "graph-data-mode-of-cells", "",
        'data_mode must be ["all"], ["forward"] or ["backward"]',
        'data_mode 必须是 ["all"]、["forward"] 或 ["backward"]',
    ),
    Piece(
        "graph-overflow-needs-o2", "found device",
        'task is "overflow_check", which needs jit_level "O2" on Ascend; found jit_level "{found}" on the {device}',
        'task 为 "overflow_check"，需要 Ascend 上的 jit_level "O2"；实际为 {device} 上的 jit_level "{found}"',
    ),
    Piece(
        "graph-task-of-kernels", "task",
        'task is "{task}", it must be "statistics", "tensor" or "exception_dump"',
        'task 为 "{task}"，必须是 "statistics"、"tensor" 或 "exception_dump"',
    ),
    Piece(
        "graph-data-mode-of-kernels", "",
        'data_mode must be ["all"], ["input"] or ["output"]',
        'data_mode 必须是 ["all"]、["input"] 或 ["output"]',
    ),
    Piece(
        "graph-summary-of-kernels", "mode",
        'summary_mode is "{mode}", it must be "statistics", "md5" or a list',
        'summary_mode 为 "{mode}"，必须是 "statistics"、"md5" 或列表',
    ),
    Piece(
        "graph-summary-unknown", "kinds",
        "summary_mode has {kinds}, which MindSpore does not compute",
        "summary_mode 含 {kinds}，MindSpore 不计算它",
    ),
)
