"""Errors of distributed checkpoints (E2)."""

from __future__ import annotations

from msprobe.messages.entry import Message

# fmt: off
MESSAGES: tuple[Message, ...] = (
    Message(
        "E201", "distributed-entry-is-no-tensor", "error:checkpoint", "path offset shape",
        '"{path}": the entry at byte {offset} is no tensor of shape {shape}.',
        '"{path}"：字节 {offset} 处的条目不是 shape 为 {shape} 的张量。', severity="error",
    ),
    Message(
        "E202", "no-distributed-checkpoint", "error:checkpoint", "path",
        '"{path}" is no description of a distributed checkpoint.',
        '"{path}" 不是分布式检查点的描述。', severity="error",
    ),
    Message(
        "E203", "distributed-entry-without-name", "error:checkpoint", "path",
        '"{path}": an entry has no name.',
        '"{path}"：有条目没有名称。', severity="error",
    ),
    Message(
        "E204", "distributed-description-too-large", "error:checkpoint", "path size",
        '"{path}" has {size} bytes; it is no description of a checkpoint.',
        '"{path}" 有 {size} 字节；不是检查点的描述。', severity="error",
    ),
    Message(
        "E205", "distributed-bytes-shared", "error:checkpoint", "path file",
        '"{path}" has several values in the same bytes of "{file}".',
        '"{path}" 有几个值在 "{file}" 的相同字节中。', severity="error",
    ),
    Message(
        "E206", "distributed-tensor-not-as-torch", "error:checkpoint", "path tensor",
        '"{path}": the tensor {tensor!r} is not described in the form of torch.',
        '"{path}"：张量 {tensor!r} 的描述不是 torch 的形式。', severity="error",
    ),
    Message(
        "E207", "distributed-blocks-missing", "error:checkpoint", "path tensor blocks stored",
        '"{path}": {tensor!r} has {blocks} blocks, of which {stored} are stored.',
        '"{path}"：{tensor!r} 有 {blocks} 块，其中存有 {stored} 块。', severity="error",
    ),
    Message(
        "E208", "distributed-block-without-place", "error:checkpoint", "path tensor",
        '"{path}": a block of {tensor!r} has no place.',
        '"{path}"：{tensor!r} 的一块没有位置。', severity="error",
    ),
    Message(
        "E209", "distributed-block-size-wrong", "error:checkpoint", "path tensor shape length",
        '"{path}": a block of {tensor!r} has the shape {shape}, and {length} bytes of it are stored.',
        '"{path}"：{tensor!r} 的一块 shape 为 {shape}，存有 {length} 字节。', severity="error",
    ),
    Message(
        "E210", "distributed-place-missing", "error:checkpoint", "path tensor",
        '"{path}" does not say where {tensor!r} is stored.',
        '"{path}" 没有说明 {tensor!r} 存在哪里。', severity="error",
    ),
    Message(
        "E211", "distributed-transformed", "error:checkpoint", "path tensor",
        '"{path}": {tensor!r} is stored in a transformed (compressed) form, which cannot be read.',
        '"{path}"：{tensor!r} 以变换（压缩）形式存储，不支持读取。', severity="error",
    ),
    Message(
        "E212", "megatron-format", "error:checkpoint", "place backend",
        "\"{place}\" is a checkpoint of Megatron in the format {backend}; only torch_dist and zarr can be read. Convert it with Megatron's tools/checkpoint.",
        '"{place}" 是格式为 {backend} 的 Megatron 检查点；只能读取 torch_dist 和 zarr。请用 Megatron 的 tools/checkpoint 转换。', severity="error",
    ),
    Message(
        "E213", "megatron-tracker-wrong", "error:checkpoint", "tracker found",
        '"{tracker}" holds {found!r}; it must hold an iteration or the word release.',
        '"{tracker}" 的内容为 {found!r}；必须是迭代数或 release。', severity="error",
    ),
    Message(
        "E214", "megatron-folder-without-ranks", "error:checkpoint", "place",
        '"{place}" holds no folders mp_rank_*; give the folder of the checkpoint, not that of a rank.',
        '"{place}" 中没有 mp_rank_* 文件夹；请给出检查点的文件夹，而不是某个 rank 的。', severity="error",
    ),
    Message(
        "E215", "megatron-file-missing", "error:checkpoint", "place",
        '"{place}" does not exist.',
        '"{place}" 不存在。', severity="error",
    ),
    Message(
        "E216", "megatron-files-missing", "error:checkpoint", "some more",
        "missing: {some}{more}; copy what is missing, or give --allow-missing to compare without.",
        "缺少：{some}{more}；请补齐，或用 --allow-missing 在缺少时比对。", severity="error",
    ),
    Message(
        "E217", "megatron-ranks-unnamed", "error:checkpoint", "place folders",
        '"{place}" has the ranks {folders}, which do not fit its arguments.',
        '"{place}" 有 rank {folders}，与其参数不符。', severity="error",
    ),
    Message(
        "E218", "megatron-holds-no-state", "error:checkpoint", "path",
        '"{path}" holds no training state.',
        '"{path}" 中没有训练状态。', severity="error",
    ),
    Message(
        "E219", "megatron-sizes-wrong", "error:checkpoint", "sizes",
        "the arguments of the checkpoint ask for {sizes} ranks.",
        "检查点的参数要求 {sizes} 个 rank。", severity="error",
    ),
    Message(
        "E220", "experts-do-not-fit", "error:checkpoint", "name count shape",
        "{name}: {count} experts do not fit into the shape {shape}.",
        "{name}：{count} 个专家与 shape {shape} 不符。", severity="error",
    ),
    Message(
        "E221", "mindspore-rank-missing", "error:checkpoint", "folder missing",
        '"{folder}" lacks rank_{missing}; without it, slices of parameters are missing.',
        '"{folder}" 缺少 rank_{missing}；没有它会缺少参数分片。', severity="error",
    ),
    Message(
        "E222", "strategy-file-unreadable", "error:checkpoint", "file",
        '"{file}" is no readable strategy file of MindSpore.',
        '"{file}" 不是可读的 MindSpore 策略文件。', severity="error",
    ),
    Message(
        "E223", "name-map-replacement-wrong", "error:checkpoint", "new problem",
        "the name map's replacement {new!r} is wrong: {problem}.",
        "名称映射的替换 {new!r} 有误：{problem}。", severity="error",
    ),
    Message(
        "E224", "name-map-form", "error:checkpoint", "path",
        'name map "{path}" must be pairs `name of the first: name of the second`.',
        '名称映射 "{path}" 必须是成对的 `第一侧名称: 第二侧名称`。', severity="error",
    ),
    Message(
        "E225", "num-attention-heads-missing", "error:checkpoint", "path other",
        'neither "{path}" nor "{other}" has num_attention_heads, which is needed to split linear_qkv; put config.json beside the weights, or give --name-map none.',
        '"{path}" 与 "{other}" 都没有拆分 linear_qkv 所需的 num_attention_heads；请把 config.json 放在权重旁边，或使用 --name-map none。', severity="error",
    ),
    Message(
        "E226", "qkv-rows-do-not-fit", "error:checkpoint", "name rows groups each",
        "{name}: {rows} rows are not {groups} groups of {each} queries, one key and one value.",
        "{name}：{rows} 行不是 {groups} 组（每组 {each} 个 query、一个 key 和一个 value）。", severity="error",
    ),
    Message(
        "E227", "checkpoint-missing", "error:checkpoint", "path",
        'checkpoint "{path}" does not exist.',
        '检查点 "{path}" 不存在。', severity="error",
    ),
    Message(
        "E228", "checkpoint-broken", "error:checkpoint", "path problem",
        '"{path}" is broken: its content does not fit its format ({problem!r:.200}).',
        '"{path}" 已损坏：内容与其格式不符（{problem!r:.200}）。', severity="error",
    ),
    Message(
        "E229", "checkpoint-unreadable", "error:checkpoint", "path problem",
        'checkpoint "{path}" cannot be read: {problem}.',
        '无法读取检查点 "{path}"：{problem}。', severity="error",
    ),
    Message(
        "E230", "checkpoint-unknown", "error:checkpoint", "path some known",
        '"{path}" is no known checkpoint{some}; give {known}.',
        '"{path}" 不是已知的检查点{some}；请给出 {known}。', severity="error",
    ),
    Message(
        "E231", "index-without-weight-map", "error:checkpoint", "index",
        '"{index}" has no weight_map.',
        '"{index}" 没有 weight_map。', severity="error",
    ),
    Message(
        "E232", "index-names-absent-tensor", "error:checkpoint", "index tensor file",
        '"{index}" says that {tensor!r} is in "{file}", which does not hold it.',
        '"{index}" 中写着 {tensor!r} 在 "{file}" 中，但该文件没有它。', severity="error",
    ),
    Message(
        "E233", "parameter-in-several-files", "error:checkpoint", "path parameter file",
        '"{path}" has the parameter {parameter!r} in several files, one of them "{file}".',
        '"{path}" 的参数 {parameter!r} 在几个文件中，其一是 "{file}"。', severity="error",
    ),
    Message(
        "E234", "archive-without-data-pkl", "error:checkpoint", "path known",
        '"{path}" is an archive without data.pkl, so it is no file of torch.save; give {known}.',
        '"{path}" 是没有 data.pkl 的压缩包，因此不是 torch.save 的文件；请给出 {known}。', severity="error",
    ),
    Message(
        "E235", "checkpoint-unknown-pack-scripts", "error:checkpoint", "path known",
        '"{path}" is no known checkpoint; give {known}. Launch scripts and settings files are packed first (config_check -d), and the packs are compared.',
        '"{path}" 不是已知的检查点；请给出 {known}。启动脚本和配置文件须先打包（config_check -d），再比对打包文件。', severity="error",
    ),
    Message(
        "E236", "results-in-the-way", "error:checkpoint", "files verb which",
        "{files} already {verb}; move {which} away or give a different -o.",
        "{files} 已存在；请移走，或换一个 -o。", severity="error",
    ),
    Message(
        "E237", "not-a-plain-file", "error:checkpoint", "path",
        '"{path}" is no file, but a folder, a pipe or a device.',
        '"{path}" 不是文件，而是文件夹、管道或设备。', severity="error",
    ),
    Message(
        "E238", "values-cut-off", "error:checkpoint", "path",
        '"{path}" ends before its values do; it may have been cut off.',
        '"{path}" 在数值结束之前就结束了；可能被截断。', severity="error",
    ),
    Message(
        "E239", "shapes-and-values-do-not-fit", "error:checkpoint", "begin end shape wanted",
        "elements {begin} to {end} of a tensor of shape {shape} do not fit the shape {wanted}; shapes and values of the checkpoint do not belong together.",
        "shape 为 {shape} 的张量的元素 {begin} 到 {end} 与 shape {wanted} 不符；检查点的 shape 与数值不匹配。", severity="error",
    ),
    Message(
        "E240", "shards-do-not-join", "error:checkpoint", "shapes",
        "shards of the shapes {shapes} cannot be joined.",
        "shape 为 {shapes} 的分片无法拼接。", severity="error",
    ),
    Message(
        "E241", "shard-sections-wrong", "error:checkpoint", "shape sections",
        "a shard of shape {shape} does not hold sections of the sizes {sections}.",
        "shape 为 {shape} 的分片不能分成大小为 {sections} 的各段。", severity="error",
    ),
    Message(
        "E242", "blocks-overlap", "error:checkpoint", "shape",
        "two blocks of a tensor of shape {shape} begin at the same place.",
        "shape 为 {shape} 的张量有两块起点相同。", severity="error",
    ),
    Message(
        "E243", "block-outside-of-tensor", "error:checkpoint", "block offsets shape",
        "a block of shape {block} at {offsets} is outside of its tensor of shape {shape}.",
        "位于 {offsets}、shape 为 {block} 的块超出 shape 为 {shape} 的张量。", severity="error",
    ),
    Message(
        "E244", "elements-missing", "error:checkpoint", "covered elements shape",
        "only {covered} of {elements} elements of a tensor of shape {shape} are present; files of ranks may be missing.",
        "shape 为 {shape} 的张量的 {elements} 个元素中只有 {covered} 个；可能缺少某些 rank 的文件。", severity="error",
    ),
    Message(
        "E245", "torch-entry-end", "error:checkpoint", "path size end",
        '"{path}" has {size} bytes, and an entry of it would end at byte {end}.',
        '"{path}" 有 {size} 字节，而其中一个条目会在第 {end} 字节结束。', severity="error",
    ),
    Message(
        "E246", "torch-file-unreadable", "error:checkpoint", "path problem",
        '"{path}" is no readable file of torch.save: {problem}.',
        '"{path}" 不是可读的 torch.save 文件：{problem}。', severity="error",
    ),
    Message(
        "E247", "torch-entries-compressed", "error:checkpoint", "path",
        '"{path}" has compressed entries; torch.save does not compress.',
        '"{path}" 有压缩的条目；torch.save 不压缩。', severity="error",
    ),
    Message(
        "E248", "no-torch-file", "error:checkpoint", "path",
        '"{path}" is no file of torch.save.',
        '"{path}" 不是 torch.save 的文件。', severity="error",
    ),
    Message(
        "E249", "torch-file-version", "error:checkpoint", "path",
        '"{path}" is no file of torch.save of a known version.',
        '"{path}" 不是已知版本的 torch.save 文件。', severity="error",
    ),
    Message(
        "E250", "zarr-form", "error:checkpoint", "folder",
        '"{folder}/.zarray" is not the description of an array of zarr version 2 in C order.',
        '"{folder}/.zarray" 不是 zarr 第 2 版、C 顺序的数组。', severity="error",
    ),
    Message(
        "E251", "zarr-compressed", "error:checkpoint", "folder",
        '"{folder}" is compressed, which cannot be read; Megatron writes its values uncompressed.',
        '"{folder}" 经过压缩，不支持读取；Megatron 以未压缩形式写入数值。', severity="error",
    ),
    Message(
        "E252", "zarr-does-not-fit", "error:checkpoint", "folder dtype shape chunks",
        '"{folder}/.zarray": type {dtype!r}, shape {shape} and chunks {chunks} do not fit.',
        '"{folder}/.zarray"：类型 {dtype!r}、shape {shape} 与 chunks {chunks} 不符。', severity="error",
    ),
    Message(
        "E253", "zarr-too-many-chunks", "error:checkpoint", "folder chunks",
        '"{folder}" would have {chunks} chunks.',
        '"{folder}" 会有 {chunks} 个 chunk。', severity="error",
    ),
    Message(
        "E254", "zarr-chunk-missing", "error:checkpoint", "path nbytes",
        '"{path}" is missing, or has fewer than the {nbytes} bytes of a chunk.',
        '"{path}" 缺失，或少于一个 chunk 的 {nbytes} 字节。', severity="error",
    ),
    Message(
        "E255", "zarr-shape-is-no-list", "error:checkpoint", "folder",
        '"{folder}/.zarray": shape or chunks are no list of whole numbers.',
        '"{folder}/.zarray"：shape 或 chunks 不是整数列表。', severity="error",
    ),
    Message(
        "E256", "mindspore-rank-empty", "error:checkpoint", "folder",
        '"{folder}" holds no .ckpt and no .safetensors.',
        '"{folder}" 中没有 .ckpt 或 .safetensors 文件。', severity="error",
    ),
)
