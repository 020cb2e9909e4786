"""Errors of the files of checkpoints (E1)."""

from __future__ import annotations

from msprobe.messages.entry import Message, Piece

# fmt: off
MESSAGES: tuple[Message, ...] = (
    Message(
        "E101", "safetensors-header-length", "error:checkpoint", "path length",
        '"{path}" is no safetensors file: its header would have {length} bytes.',
        '"{path}" 不是 safetensors 文件：其头部会有 {length} 字节。', severity="error",
    ),
    Message(
        "E102", "safetensors-header-is-no-object", "error:checkpoint", "path",
        '"{path}" is no safetensors file: its header is no JSON object.',
        '"{path}" 不是 safetensors 文件：其头部不是 JSON 对象。', severity="error",
    ),
    Message(
        "E103", "tensor-bytes-shared", "error:checkpoint", "path tensor",
        '"{path}", tensor {tensor!r}: its bytes also belong to a different tensor.',
        '"{path}" 的张量 {tensor!r}：其字节也属于其他张量。', severity="error",
    ),
    Message(
        "E104", "header-name-twice", "error:checkpoint", "path twice",
        '"{path}": its header has {twice!r} twice.',
        '"{path}"：其头部有两个 {twice!r}。', severity="error",
    ),
    Message(
        "E105", "tensor-entry-is-no-object", "error:checkpoint", "where",
        "{where}: its entry in the header is no object.",
        "{where}：其头部条目不是对象。", severity="error",
    ),
    Message(
        "E106", "tensor-entry-type-unknown", "error:checkpoint", "where dtype",
        "{where}: the element type {dtype!r} is not known.",
        "{where}：未知的元素类型 {dtype!r}。", severity="error",
    ),
    Message(
        "E107", "tensor-shape-is-no-list", "error:checkpoint", "where",
        "{where}: its shape or its offsets are no list of whole numbers.",
        "{where}：其 shape 或偏移不是整数列表。", severity="error",
    ),
    Message(
        "E108", "tensor-bytes-wrong", "error:checkpoint", "where begin end dtype shape size",
        "{where}: bytes {begin} to {end} do not fit a {dtype} tensor of shape {shape} in a file of {size} bytes.",
        "{where}：字节 {begin} 到 {end} 与 {size} 字节文件中 shape 为 {shape} 的 {dtype} 张量不符。", severity="error",
    ),
    Message(
        "E109", "archive-lost-array", "error:checkpoint", "path member",
        '"{path}" has no array {member!r} any more.',
        '"{path}" 中不再有数组 {member!r}。', severity="error",
    ),
    Message(
        "E110", "archive-array-unreadable", "error:checkpoint", "path member problem",
        '"{path}", array {member!r} cannot be read: {problem}.',
        '无法读取 "{path}" 的数组 {member!r}：{problem}。', severity="error",
    ),
    Message(
        "E111", "archive-holds-no-array", "error:checkpoint", "path entry",
        '"{path}" holds {entry!r}, which is no array.',
        '"{path}" 中的 {entry!r} 不是数组。', severity="error",
    ),
    Message(
        "E112", "array-archive-unreadable", "error:checkpoint", "path problem",
        '"{path}" is no readable archive of arrays: {problem}.',
        '"{path}" 不是可读的数组压缩包：{problem}。', severity="error",
    ),
    Message(
        "E113", "array-size-wrong", "error:checkpoint", "where bytes shape",
        "{where}: it has {bytes} bytes, which do not fit its shape {shape}.",
        "{where}：有 {bytes} 字节，与其 shape {shape} 不符。", severity="error",
    ),
    Message(
        "E114", "array-type-is-no-number", "error:checkpoint", "where dtype",
        "{where}: elements of the type {dtype} are no numbers.",
        "{where}：类型为 {dtype} 的元素不是数值。", severity="error",
    ),
    Message(
        "E115", "mindspore-checkpoint-unreadable", "error:checkpoint", "path",
        '"{path}" is no readable checkpoint of MindSpore; it may be encrypted or cut off.',
        '"{path}" 不是可读的 MindSpore 检查点；可能已加密或被截断。', severity="error",
    ),
    Message(
        "E116", "mindspore-parameter-type-unknown", "error:checkpoint", "path parameter dtype",
        '"{path}", parameter {parameter!r}: the element type {dtype!r} is not known.',
        '"{path}" 的参数 {parameter!r}：未知的元素类型 {dtype!r}。', severity="error",
    ),
    Message(
        "E117", "mindspore-checkpoint-empty", "error:checkpoint", "path",
        '"{path}" is no checkpoint of MindSpore: it holds no parameter.',
        '"{path}" 不是 MindSpore 检查点：其中没有参数。', severity="error",
    ),
    Message(
        "E118", "mindspore-parameter-size-wrong", "error:checkpoint", "path parameter elements shape",
        '"{path}", parameter {parameter!r}: it has {elements} elements, which do not fit its shape {shape}.',
        '"{path}" 的参数 {parameter!r}：有 {elements} 个元素，与其 shape {shape} 不符。', severity="error",
    ),
    Message(
        "E119", "checkpoint-entry-too-deep", "error:checkpoint", "entry",
        "{entry!r} of the checkpoint is nested too deep, or holds too many values. If you trust it, raise the limits with --limit 10.",
        "检查点的 {entry!r} 嵌套过深或值过多。如果信任它，请用 --limit 10 提高上限。", severity="error",
    ),
    Message(
        "E120", "checkpoint-name-too-long", "error:checkpoint", "begin letters",
        "the checkpoint has a name of {letters} letters, which is too long: {begin!r}...",
        "检查点中有一个 {letters} 个字符的名称，过长：{begin!r}...", severity="error",
    ),
    Message(
        "E121", "checkpoint-holds-no-tensor", "error:checkpoint", "path",
        '"{path}" holds no tensor.',
        '"{path}" 中没有张量。', severity="error",
    ),
    Message(
        "E122", "settings-file-too-large", "error:checkpoint", "path limit",
        '"{path}" has more than {limit} bytes; it is no settings file.',
        '"{path}" 超过 {limit} 字节；不是配置文件。', severity="error",
    ),
    Message(
        "E123", "named-file-missing", "error:checkpoint", "path named_by",
        '"{path}" does not exist; "{named_by}" names it.',
        '"{path}" 不存在，而 "{named_by}" 引用了它。', severity="error",
    ),
    Message(
        "E124", "latest-names-no-folder", "error:checkpoint", "latest folder",
        '"{latest}" names the folder {folder!r}, which is not beside it.',
        '"{latest}" 指定了文件夹 {folder!r}，但该文件夹不在它旁边。', severity="error",
    ),
    Message(
        "E125", "deepspeed-lacks-model-states", "error:checkpoint", "place missing",
        '"{place}" lacks mp_rank_{missing:02d}_model_states.pt, a share of the model.',
        '"{place}" 缺少 mp_rank_{missing:02d}_model_states.pt，它是模型的一部分。', severity="error",
    ),
    Message(
        "E126", "deepspeed-split-unknown", "error:checkpoint", "place ranks",
        '"{place}" is split over {ranks} model-parallel ranks, and its parameters do not have the names of Megatron, so how they are split is unknown; give a merged checkpoint.',
        '"{place}" 切分在 {ranks} 个模型并行 rank 上，参数名不是 Megatron 的名称，无法得知切分方式；请给出合并后的检查点。', severity="error",
    ),
    Message(
        "E127", "deepspeed-holds-no-state", "error:checkpoint", "place models",
        '"{place}/{models}" holds no training state.',
        '"{place}/{models}" 中没有训练状态。', severity="error",
    ),
    Message(
        "E128", "zero-holds-no-state", "error:checkpoint", "path",
        '"{path}" holds no state of a ZeRO optimizer.',
        '"{path}" 中没有 ZeRO 优化器状态。', severity="error",
    ),
    Message(
        "E129", "zero-lacks-files", "error:checkpoint", "place some",
        '"{place}" lacks the optimizer files zero_pp_rank_N_mp_rank_00_optim_states.pt of rank {some}; weights cannot be assembled without them.',
        '"{place}" 缺少 rank {some} 的优化器文件 zero_pp_rank_N_mp_rank_00_optim_states.pt；没有它们无法拼出权重。', severity="error",
    ),
    Message(
        "E130", "zero-lacks-shapes", "error:checkpoint", "place",
        '"{place}" does not have the shapes of its parameters (param_shapes).',
        '"{place}" 没有参数的 shape（param_shapes）。', severity="error",
    ),
    Message(
        "E131", "zero-slice-not-flat", "error:checkpoint", "",
        "a slice of parameters is no flat tensor.",
        "参数的分片不是扁平张量。", severity="error",
    ),
    Message(
        "E132", "zero-lacks-key", "error:checkpoint", "key",
        "the optimizer files do not hold {key}.",
        "优化器文件中没有 {key}。", severity="error",
    ),
    Message(
        "E133", "zero-lacks-groups", "error:checkpoint", "groups",
        "the optimizer files have fewer groups than param_shapes, which has {groups}.",
        "优化器文件的组数少于 param_shapes 的 {groups} 组。", severity="error",
    ),
    Message(
        "E134", "frozen-parameter-is-no-tensor", "error:checkpoint", "path parameter",
        '"{path}": the frozen parameter {parameter!r} is no tensor.',
        '"{path}"：冻结参数 {parameter!r} 不是张量。', severity="error",
    ),
)

PIECES: tuple[Piece, ...] = (
    Piece("shape-too-large", "", "a shape is larger than that of any tensor", "shape 大于任何张量"),
    Piece("place-before-file", "", "an offset before the start of the file", "偏移在文件开头之前"),
    Piece("pickle-refers-outside", "", "it is a pickle that refers to values outside of it", "它是引用外部值的 pickle"),
    Piece("pickle-too-deep", "", "it is nested too deep", "嵌套过深"),
    Piece("storage-too-small", "key size", "the values {key} have {size} bytes, fewer than their description says", "数值 {key} 有 {size} 字节，少于其描述所说"),
    Piece("tensor-without-shape", "", "a tensor has no shape", "有张量没有 shape"),
    Piece("size-is-no-list", "", "a size is no list of numbers", "有 size 不是数值列表"),
    Piece("array-type-unknown", "code", "an array has elements of type {code!r}", "有数组的元素类型为 {code!r}"),
    Piece("array-not-as-numpy", "", "an array is not described in the form of numpy", "有数组的描述不是 numpy 的形式"),
)
