"""What is said of two checkpoints and of their tensors."""

from __future__ import annotations

from msprobe.messages.entry import Piece

# fmt: off
PIECES: tuple[Piece, ...] = (
    Piece(
        "holds-no-state", "path what",
        '"{path}" holds no {what}, so none is compared',
        '"{path}" 中没有 {what}，因此未比对',
    ),
    Piece("holds-none", "path", '"{path}" holds none', '"{path}" 中没有'),
    Piece("what-of-checkpoint", "what path", '{what} of "{path}"', '"{path}" 的 {what}'),
    Piece("section-state", "section", "{section} state", "{section} 状态"),
    Piece(
        "parameters-measured", "done",
        "{done} parameters done",
        "已完成 {done} 个参数",
    ),
    Piece(
        "states-paired-by-number", "",
        "optimizer states are paired by the numbers of their parameters, as the weights are saved in different orders",
        "两侧权重的保存顺序不同，因此优化器状态按参数编号对应",
    ),
    Piece(
        "facts-differ", "facts",
        "single values that differ, which are no tensors: {facts}",
        "不同的单个值（非张量）：{facts}",
    ),
    Piece(
        "facts-of-one-side", "keys",
        "single values that one side alone has, and that were not compared: {keys}",
        "只有一侧具有、因此未比对的单个值：{keys}",
    ),
    Piece(
        "random-states-of-one-side", "names",
        "random states that only one side has are not compared: {names}",
        "只有一侧有的随机状态未比对：{names}",
    ),
    Piece("second-is-earlier", "", "the second is what the earlier checkpoint has", "第二个等于更早检查点中的值"),
    Piece("tensor-broken", "problem", "it is broken ({problem})", "已损坏（{problem}）"),
    Piece("tensor-out-of-memory", "", "there is not enough memory for it", "内存不足"),
    Piece(
        "second-has-value-of", "name",
        "the second has here what the first has in {name}",
        "第二个在此处的值是第一个中 {name} 的值",
    ),
    Piece("iterations-from-to", "first second", "iterations {first} and {second}", "迭代 {first} 与 {second}"),
    Piece(
        "weights-same-between", "count total span",
        "{count} of {total} weights are the same in {span}",
        "{span}：{total} 个权重中 {count} 个相同",
    ),
    Piece("not-updated-between", "span", "not updated between {span}", "{span} 之间没有更新"),
    Piece(
        "weight-kept-twice", "path name twin",
        '"{path}" holds {twin} twice, also as {name}; the other checkpoint holds it once',
        '"{path}" 把 {twin} 保存了两份，另一份名为 {name}；另一个检查点只保存一份',
    ),
    Piece(
        "shards-by-names-of-megatron", "count",
        "the shards of {count} model-parallel ranks are put together by Megatron's names",
        "{count} 个模型并行 rank 的分片按 Megatron 的名称拼合",
    ),
    Piece("slices-of-ranks", "", "slices of ranks", "各 rank 的分片"),
    Piece("ranks-there", "count total", "{count} of {total} ranks are there", "{total} 个 rank 中有 {count} 个"),
    Piece(
        "extra-states-not-compared", "",
        "extra states of modules (TransformerEngine) are not compared",
        "模块的 extra state（TransformerEngine）未比对",
    ),
    Piece("axes-exchanged", "", "the last two axes are exchanged", "最后两维互换"),
    Piece("same-order-of-elements", "", "same elements in the same order", "元素及次序相同"),
    Piece(
        "different-order-and-shape", "",
        "same elements in a different order and shape",
        "元素相同，次序和 shape 不同",
    ),
    Piece(
        "rows-padded-equal", "first second",
        "rows are padded: {first} and {second}; the common ones are equal",
        "行数经过填充：{first} 与 {second}；共有的行相同",
    ),
    Piece(
        "rows-padded-compared", "first second",
        "rows are padded: {first} and {second}; the common ones are compared",
        "行数经过填充：{first} 与 {second}；比对的是共有的行",
    ),
    Piece(
        "nan-and-inf-of-both", "nan other_nan inf other_inf",
        "NaN: {nan} and {other_nan}; Inf: {inf} and {other_inf}",
        "NaN：{nan} 与 {other_nan}；Inf：{inf} 与 {other_inf}",
    ),
    Piece(
        "equal-but-for-rounding-of-types", "first second",
        "{first} and {second}, equal within their rounding",
        "{first} 与 {second}，在舍入误差内相等",
    ),
    Piece("first-all-zeros", "", "the first is all zeros", "第一个全为零"),
    Piece("second-all-zeros", "", "the second is all zeros", "第二个全为零"),
    Piece("rows-in-different-order", "blocks", "same rows in a different order{blocks}", "行相同，次序不同{blocks}"),
    Piece(
        "columns-in-different-order", "blocks",
        "same columns in a different order{blocks}",
        "列相同，次序不同{blocks}",
    ),
    Piece(
        "elements-in-different-order", "blocks",
        "same elements in a different order{blocks}",
        "元素相同，次序不同{blocks}",
    ),
    Piece(
        "in-blocks-as-heads", "size",
        ", in blocks of {size}, as where heads or q, k, v are exchanged",
        "，以 {size} 为一块，如同交换了各 head 或 q、k、v",
    ),
    Piece("in-blocks", "size", ", in blocks of {size}", "，以 {size} 为一块"),
    Piece(
        "second-is-times-first", "factor",
        "the second is {factor:.9g} times the first",
        "第二个是第一个的 {factor:.9g} 倍",
    ),
    Piece("file-of-rank-missing", "", "its file is missing", "文件缺失"),
    Piece("optimizer-state-of", "name", "optimizer state of {name}", "{name} 的优化器状态"),
    Piece(
        "state-of-other-weights", "path",
        '"{path}" does not belong to the weights beside it',
        '"{path}" 与旁边的权重不匹配',
    ),
    Piece(
        "no-strategy-file", "",
        "no strategy file says how slices are put together, so ranks are compared one by one",
        "没有说明分片拼合方式的 strategy 文件，因此逐个 rank 比对",
    ),
    Piece(
        "last-of-checkpoints", "count folder name",
        'of {count} checkpoints in "{folder}", the last one is compared: {name}',
        '"{folder}" 中有 {count} 个检查点，比对最后一个：{name}',
    ),
    Piece(
        "known-checkpoints", "",
        "a file .pt, .pth, .bin, .ckpt, .safetensors, .npz or .npy, or a folder of Megatron, DeepSpeed, Hugging Face or torch.distributed.checkpoint",
        ".pt、.pth、.bin、.ckpt、.safetensors、.npz 或 .npy 文件，或 Megatron、DeepSpeed、Hugging Face、torch.distributed.checkpoint 的文件夹",
    ),
    Piece("give-one-of-held", "names", "; it holds {names}: give one of them", "；其中有 {names}：请给出其中一个"),
    Piece(
        "own-checkpoint", "",
        "it is a checkpoint of its own; give its folder",
        "它自身是一个检查点；请给出它的文件夹",
    ),
    Piece(
        "master-copies-not-compared", "",
        "float32 copies of weights, which the optimizer of only one side has, are not compared",
        "只有一侧的优化器有 float32 权重副本，未比对",
    ),
    Piece(
        "settings-of-one-optimizer", "count",
        "{count} settings of the optimizer are known of one side only and not compared",
        "{count} 个优化器设置只有一侧可知，未比对",
    ),
    Piece(
        "flat-buffers-not-compared", "",
        "the optimizer state of one side consists of flat buffers of its ranks (dp_reshardable), so it is compared with the same layout only",
        "一侧的优化器状态是各 rank 的扁平缓冲区（dp_reshardable），只能与相同布局比对",
    ),
    Piece(
        "checkpoints-compared", "first first_format second second_format weights entries",
        "{first} ({first_format}) and {second} ({second_format}): {weights}, {entries}",
        "{first}（{first_format}）与 {second}（{second_format}）：{weights}，{entries}",
    ),
    Piece("one-weight", "", "1 weight", "1 个权重"),
    Piece("so-many-weights", "count", "{count} weights", "{count} 个权重"),
    Piece("one-entry-in-all", "", "1 entry in all", "共 1 项"),
    Piece("entries-in-all", "count", "{count} entries in all", "共 {count} 项"),
    Piece("checkpoints-differ", "counts", "They differ: {counts}.", "二者不同：{counts}。"),
    Piece("checkpoints-agree", "counts", "No difference that matters: {counts}.", "没有实质差异：{counts}。"),
    Piece(
        "checkpoints-agree-where-compared", "counts",
        "No difference in what was compared: {counts}.",
        "所比对的内容没有差异：{counts}。",
    ),
    Piece("more-in-table", "count", "and {count} more in the table", "表中另有 {count} 项"),
    Piece(
        "copies-differ-between-ranks", "sides name files",
        "copies differ between ranks of the {sides}: {name} (not as in the first rank: {files})",
        "{sides}检查点各 rank 的副本不同：{name}（与第一个 rank 不同：{files}）",
    ),
    Piece("first-checkpoint", "", "first", "第一个"),
    Piece("second-checkpoint", "", "second", "第二个"),
    Piece("both-checkpoints", "", "first and second", "两个"),
    Piece("missing-in-second", "name", "missing in the second: {name}", "第二个中缺失：{name}"),
    Piece("extra-in-second", "name", "extra in the second: {name}", "第二个中多出：{name}"),
)
