"""Messages of the readers of archives of torch, pickles and .pt files (S2)."""

from __future__ import annotations

from msprobe.messages.entry import Message, Piece

# fmt: off
MESSAGES: tuple[Message, ...] = (
    Message(
        "S240", "archive-of-several-pickles", "error:dump", "path count",
        '"{path}" holds {count} files data.pkl; torch.save writes one.',
        '"{path}" 含 {count} 个 data.pkl 文件；torch.save 只写一个。', severity="error",
    ),
    Message(
        "S241", "archive-is-torchscript", "error:dump", "path",
        '"{path}" is a TorchScript program, which is not read; save its state_dict() with torch.save.',
        '"{path}" 是 TorchScript 程序，不支持读取；请用 torch.save 保存其 state_dict()。', severity="error",
    ),
    Message(
        "S242", "archive-byte-order", "error:dump", "path order",
        '"{path}": the byte order {order!r} is not known.',
        '"{path}"：字节序 {order!r} 未知。', severity="error",
    ),
)
PIECES: tuple[Piece, ...] = (
    Piece(
        "pickle-broken", "place",
        "its pickle is broken at byte {place}",
        "其 pickle 在第 {place} 字节处损坏",
    ),
    Piece(
        "pickle-ends-early", "",
        "its pickle ends too early",
        "其 pickle 过早结束",
    ),
    Piece(
        "pickle-instruction", "code",
        "its pickle has the instruction {code:#04x}, which no checkpoint needs",
        "其 pickle 含指令 {code:#04x}，检查点不需要它",
    ),
    Piece(
        "pickle-instructions", "limit",
        "its pickle has more than {limit} instructions; --limit 10 allows more",
        "其 pickle 超过 {limit} 条指令；--limit 10 可放宽",
    ),
    Piece(
        "pickle-repeats", "",
        "its pickle repeats its content too often",
        "其 pickle 重复内容过多",
    ),
    Piece(
        "pickle-endless-line", "",
        "its pickle has an endless line",
        "其 pickle 有一行没有结尾",
    ),
    Piece(
        "pickle-containers", "limit",
        "its pickle has more than {limit} containers; --limit 10 allows more",
        "其 pickle 超过 {limit} 个容器；--limit 10 可放宽",
    ),
    Piece(
        "pickle-without-mark", "",
        "its pickle lacks a mark where one is needed",
        "其 pickle 在需要标记处缺少标记",
    ),
    Piece(
        "pickle-integer", "length",
        "its pickle has an integer of {length} bytes",
        "其 pickle 含 {length} 字节的整数",
    ),
    Piece(
        "pickle-name-no-text", "",
        "its pickle has a name that is no text",
        "其 pickle 含不是文本的名称",
    ),
    Piece(
        "pickle-calls-no-name", "",
        "its pickle calls something that is no name",
        "其 pickle 调用的不是名称",
    ),
    Piece(
        "pickle-type-undescribed", "",
        "its pickle has a tensor of a type that is not described as torch does it",
        "其 pickle 中某个张量的类型不是按 torch 的方式描述的",
    ),
    Piece(
        "pickle-type-in-type", "",
        "its pickle has a type within a type",
        "其 pickle 含嵌套的类型",
    ),
    Piece(
        "pickle-pairs-no-dict", "",
        "its pickle puts pairs into something that is no dict",
        "其 pickle 向非 dict 写入键值对",
    ),
    Piece(
        "pickle-appends-no-list", "",
        "its pickle appends to something that is no list",
        "其 pickle 向非 list 追加元素",
    ),
    Piece(
        "pickle-keys-too-deep", "",
        "its pickle has keys that are nested too deep",
        "其 pickle 的键嵌套过深",
    ),
    Piece(
        "pickle-key-too-long", "",
        "its pickle has a number of more than 61 bits for a key",
        "其 pickle 以超过 61 位的数作为键",
    ),
    Piece(
        "pickle-negative-keys", "limit",
        "its pickle has more than {limit} numbers below 0 in keys",
        "其 pickle 的键中有超过 {limit} 个负数",
    ),
    Piece(
        "pickle-key-of-kind", "kind",
        "its pickle has a {kind} for a key",
        "其 pickle 以 {kind} 作为键",
    ),
    Piece(
        "pickle-adds-no-set", "",
        "its pickle adds to something that is no set",
        "其 pickle 向非 set 添加元素",
    ),
    Piece(
        "pickle-points-outside", "",
        "its pickle refers to something outside of it",
        "其 pickle 引用了自身之外的内容",
    ),
    Piece(
        "pickle-stack-empty", "",
        "its pickle takes more from its stack than the stack has",
        "其 pickle 从栈中取出的多于栈中所有",
    ),
    Piece(
        "pickle-mark-as-value", "",
        "its pickle takes a mark for a value",
        "其 pickle 把标记当作值",
    ),
    Piece(
        "pt-bytes-wrong", "dtype shape count found",
        "a {dtype} tensor of shape {shape} has {count} bytes, found {found}.",
        "shape 为 {shape} 的 {dtype} 张量应有 {count} 字节，实际为 {found}。",
    ),
    Piece(
        "pt-type-wrong", "dtype",
        "a .pt file cannot hold elements of type {dtype}.",
        ".pt 文件不能容纳类型为 {dtype} 的元素。",
    ),
    Piece(
        "archive-tensor-without-shape", "",
        "a tensor has no shape",
        "某个张量没有 shape",
    ),
    Piece(
        "archive-shape-no-numbers", "",
        "shape, stride or offset of a tensor is no whole number",
        "某个张量的 shape、stride 或偏移不是整数",
    ),
    Piece(
        "archive-strides-differ", "dimensions strides",
        "a tensor has {dimensions} dimensions and {strides} strides",
        "某个张量有 {dimensions} 维，却有 {strides} 个 stride",
    ),
    Piece(
        "archive-tensor-beyond", "shape last count",
        "a tensor of shape {shape} reaches to element {last} of a storage of {count}",
        "shape 为 {shape} 的张量需要存储中的第 {last} 个元素，而存储只有 {count} 个",
    ),
    Piece(
        "archive-tensor-repeats", "shape numel count",
        "a tensor of shape {shape} repeats its elements too often ({numel} of {count}); if you trust it, raise the limits with --limit 10",
        "shape 为 {shape} 的张量重复其元素过多（{numel} 对 {count}）；如果信任该文件，可用 --limit 10 放宽上限",
    ),
    Piece(
        "archive-storage-undescribed", "",
        "a storage is not described as torch does it",
        "某个存储不是按 torch 的方式描述的",
    ),
    Piece(
        "archive-tensor-without-storage", "",
        "a tensor has no storage",
        "某个张量没有存储",
    ),
    Piece(
        "archive-type-unknown", "",
        "a tensor has an unknown element type",
        "某个张量的元素类型未知",
    ),
    Piece(
        "archive-entry-size", "name count",
        "its entry {name!r} has {count} bytes",
        "其条目 {name!r} 有 {count} 字节",
    ),
    Piece(
        "archive-values-cut-off", "",
        "the file ends before its values do",
        "文件在数值结束之前就结束了",
    ),
)
