"""Errors and warnings of the gradient probe (M2)."""

from __future__ import annotations

from msprobe.messages.entry import Message, Piece

# fmt: off
MESSAGES: tuple[Message, ...] = (
    Message(
        "M201", "gradients-without-common-rank", "error:monitor", "one ranks other other_ranks",
        'no rank is in both runs: "{one}" has {ranks}, "{other}" has {other_ranks}; give the dump_path of each run.',
        '两次运行没有共同的 rank："{one}" 有 {ranks}，"{other}" 有 {other_ranks}；请给出每次运行的 dump_path。', severity="error",
    ),
    Message(
        "M202", "no-gradients-folder", "error:monitor", "folder what",
        'folder "{folder}" {what}; give a folder that grad_probe wrote.',
        '文件夹 "{folder}" {what}；请给出 grad_probe 写出的文件夹。', severity="error",
    ),
    Message(
        "M205", "no-gradients-to-compare", "error:monitor", "reasons",
        "nothing can be compared: {reasons}.",
        "没有可比较的内容：{reasons}。", severity="error",
    ),
    Message(
        "M206", "gradients-watched-already", "warning:work", "",
        "monitor(): gradients are already watched; the second call is ignored.",
        "monitor()：已在监视梯度；忽略第二次调用。", severity="warning",
    ),
    Message(
        "M207", "gradient-optimizer-wrong", "error:monitor", "kind",
        "monitor(): pass the optimizer, a mindspore.nn.Optimizer or similar; found {kind}.",
        "monitor()：请传入优化器（mindspore.nn.Optimizer 或类似对象）；实际为 {kind}。", severity="error",
    ),
    Message(
        "M208", "gradients-watched", "error:monitor", "level count",
        "grad_probe {level}: the gradients of {count} parameters are watched.",
        "grad_probe {level}：监视 {count} 个参数的梯度。", severity="note",
    ),
    Message(
        "M211", "no-pictures-of-gradients", "warning:work", "",
        "grad_compare: no pictures without matplotlib (pip install matplotlib); gradients.html shows all curves.",
        "grad_compare：没有 matplotlib，不生成图片（pip install matplotlib）；gradients.html 中有全部曲线。", severity="warning",
    ),
    Message(
        "M212", "param-list-unknown", "warning:work", "name hint",
        'grad_probe.param_list: the model has no parameter "{name}"{hint}.',
        'grad_probe.param_list：模型没有参数 "{name}"{hint}。', severity="warning",
    ),
    Message(
        "M213", "gradients-of-earlier-run", "error:monitor", "folder",
        'monitor(): "{folder}" holds gradients of an earlier run, and "existing" is "refuse"; choose another dump_path, or remove them.',
        'monitor()："{folder}" 中有更早运行的梯度，而 "existing" 为 "refuse"；请选择其他 dump_path 或删除它们。', severity="error",
    ),
    Message(
        "M214", "gradient-unreadable", "warning:work", "name type error_type error",
        "grad_probe: the gradient of {name} ({type}) cannot be read, its row has no numbers: {error_type}: {error}",
        "grad_probe：无法读取 {name}（{type}）的梯度，其行没有数值：{error_type}：{error}", severity="warning",
    ),
    Message(
        "M215", "gradients-written", "error:monitor", "count steps folder",
        'grad_probe: gradients of {count} {steps} are in "{folder}".',
        'grad_probe：{count} 个 step 的梯度在 "{folder}"。', severity="note",
    ),
    Message(
        "M216", "earlier-gradients-replaced", "warning:work", "folder count",
        'grad_probe: "{folder}" holds {count} steps of an earlier run; those that this run writes are replaced, the others stay ("existing": "overwrite").',
        'grad_probe："{folder}" 中有更早运行的 {count} 个 step；本次运行写出的会替换它们，其余保留（"existing": "overwrite"）。', severity="warning",
    ),
    Message(
        "M217", "earlier-gradients-removed", "error:monitor", "count folder",
        'grad_probe: {count} steps of an earlier run were removed from "{folder}" ("existing": "clean").',
        'grad_probe：已从 "{folder}" 删除更早运行的 {count} 个 step（"existing": "clean"）。', severity="note",
    ),
    Message(
        "M218", "gradients-file-too-large", "error:monitor", "file limit",
        '"{file}" has more than {limit} bytes; it is no summary of gradients.',
        '"{file}" 超过 {limit} 字节；不是梯度汇总。', severity="error",
    ),
    Message(
        "M219", "gradients-file-no-utf8", "error:monitor", "file",
        '"{file}" is not UTF-8 text; it is no summary of gradients.',
        '"{file}" 不是 UTF-8 文本；不是梯度汇总。', severity="error",
    ),
    Message(
        "M220", "gradients-file-first-column", "error:monitor", "file found",
        '"{file}": the first column must be param_name, found {found}.',
        '"{file}"：第一列必须是 param_name，实际为 {found}。', severity="error",
    ),
    Message(
        "M221", "direction-unreadable", "error:monitor", "file problem",
        '"{file}" is no .npy file of a direction: {problem}.',
        '"{file}" 不是方向的 .npy 文件：{problem}。', severity="error",
    ),
    Message(
        "M222", "direction-type-wrong", "error:monitor", "file dtype",
        '"{file}": a direction must be bool, int8 or uint8, found {dtype}.',
        '"{file}"：方向必须是 bool、int8 或 uint8，实际为 {dtype}。', severity="error",
    ),
    Message(
        "M223", "direction-size-wrong", "error:monitor", "file size shape",
        '"{file}" has {size} elements, and its header has the shape {shape}.',
        '"{file}" 有 {size} 个元素，而其头部的 shape 为 {shape}。', severity="error",
    ),
    Message(
        "M224", "direction-needs-shape", "error:monitor", "",
        "a packed direction needs the shape of its gradient, which the csv does not have",
        "压缩的方向需要梯度的 shape，而 csv 中没有", severity="error",
    ),
    Message(
        "M225", "direction-shape-wrong", "error:monitor", "size shape",
        "a packed direction of {size} bytes does not fit the shape {shape}",
        "{size} 字节的压缩方向与 shape {shape} 不符", severity="error",
    ),
    Message(
        "M226", "gradient-model-wrong", "error:monitor", "type",
        "monitor(): pass the model, found the optimizer {type}.",
        "monitor()：请传入模型，实际为优化器 {type}。", severity="error",
    ),
    Message(
        "M227", "gradients-missing", "error:monitor", "parameters more step",
        "grad is None: {parameters}{more}; first at step {step}, left out there.",
        "grad 为 None：{parameters}{more}；首次在 step {step}，在该处略过。", severity="note",
    ),
    Message(
        "M228", "gradients-not-written", "warning:work", "step folder reason",
        "grad_probe: step {step} could not be written to {folder}: {reason} The training continues; further failures of this kind are not reported.",
        "grad_probe：step {step} 无法写入 {folder}：{reason} 训练继续；同类失败不再报告。", severity="warning",
    ),
)
PIECES: tuple[Piece, ...] = (
    Piece(
        "no-parameter-there", "",
        "no parameter is there",
        "没有参数",
    ),
    Piece(
        "no-elements-here", "",
        "it has no elements here",
        "它在此处没有元素",
    ),
    Piece(
        "numbers-not-on-host", "",
        "the numbers of this step were not brought to the host",
        "该 step 的数值没有传到主机",
    ),
)
