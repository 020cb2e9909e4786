"""Messages of what writes and reads the files of a dump (S2)."""

from __future__ import annotations

from msprobe.messages.entry import Message, Piece

# fmt: off
MESSAGES: tuple[Message, ...] = (
    Message(
        "S201", "files-not-waited-for", "error:dump", "kind error",
        "msprobe no longer waits until files are on the disk: {kind}: {error}",
        "不再等待文件落盘，{kind}：{error}", severity="error",
    ),
    Message(
        "S202", "files-perhaps-not-on-disk", "error:dump", "kind error",
        "Files may not be on the disk yet: {kind}: {error}",
        "文件可能尚未落盘，{kind}：{error}", severity="error",
    ),
    Message(
        "S203", "folder-of-running-process", "note:recording", "folder pid host seconds",
        '"{folder}" has files of process {pid} on {host}; waiting up to {seconds:.0f} seconds to see whether it still runs.',
        '"{folder}" 中有主机 {host} 上进程 {pid} 的文件；最多等待 {seconds:.0f} 秒以确认它是否仍在运行。', severity="note",
    ),
    Message(
        "S204", "journal-gone", "error:dump", "path",
        'journal "{path}" cannot be read: it no longer exists, as its step was finished meanwhile.',
        '无法读取 journal "{path}"：它已不存在，其 step 已在此期间完成。', severity="error",
    ),
    Message(
        "S205", "url-without-dump", "error:dump", "url file",
        '"{url}" holds no dump: no step* or rank* folder, and no {file}.',
        '"{url}" 中没有 dump：没有 step* 或 rank* 文件夹，也没有 {file}。', severity="error",
    ),
    Message(
        "S206", "url-larger-than-disk", "error:files", "url size folder free",
        '"{url}" has {size:.1f} GB, and the disk of "{folder}" has {free:.1f} GB free; give a folder on a different disk, or the URL of one step or rank.',
        '"{url}" 有 {size:.1f} GB，而 "{folder}" 所在磁盘只剩 {free:.1f} GB；请给出其他磁盘上的文件夹，或单个 step、rank 的 URL。', severity="error",
    ),
    Message(
        "S207", "url-of-several-storages", "error:files", "url",
        '"{url}" chains several storages ("::"), which is not supported; give one URL.',
        '"{url}" 串联了多个存储（"::"），不支持；请给出单个 URL。', severity="error",
    ),
    Message(
        "S208", "url-needs-package", "error:files", "url package",
        '"{url}" needs the package {package}: pip install {package}.',
        '"{url}" 需要包 {package}：pip install {package}。', severity="error",
    ),
    Message(
        "S209", "url-needs-further-package", "error:files", "url problem",
        '"{url}" needs a further package: {problem}.',
        '"{url}" 还需要一个包：{problem}。', severity="error",
    ),
    Message(
        "S210", "url-of-too-many-files", "error:files", "url count",
        '"{url}" holds {count} files; give the URL of one step or rank.',
        '"{url}" 含 {count} 个文件；请给出单个 step 或 rank 的 URL。', severity="error",
    ),
    Message(
        "S211", "file-changed-while-copied", "error:files", "name",
        '"{name}" changed while it was copied; copy it again.',
        '"{name}" 在复制期间发生变化；请重新复制。', severity="error",
    ),
    Message(
        "S212", "folder-of-other-process", "warning:recording", "folder pid host own_pid beside",
        'folder "{folder}" belongs to process {pid} on {host}, which still runs; process {own_pid} writes to "{beside}" beside it. If these are ranks of one job, set RANK or call start() after init_process_group().',
        '文件夹 "{folder}" 属于主机 {host} 上仍在运行的进程 {pid}；进程 {own_pid} 写入其旁边的 "{beside}"。如果它们是同一作业的 rank，请设置 RANK，或在 init_process_group() 之后调用 start()。', severity="warning",
    ),
    Message(
        "S213", "dangling-link", "error:dump", "path",
        '"{path}" is a symbolic link whose target does not exist: it is left out.',
        '"{path}" 是符号链接，其目标不存在：略过它。', severity="warning",
    ),
    Message(
        "S214", "rows-missing", "error:dump", "path",
        '"{path}" does not have all rows of statistics that the dump names: it is missing, or cut off. What needs these rows is not judged.',
        '"{path}" 没有 dump 列出的全部统计量行：文件缺失或被截断。不判定需要这些行的内容。', severity="warning",
    ),
    Message(
        "S215", "rows-unreadable", "error:dump", "path reason",
        '"{path}" is no readable file of statistics: {reason}. Nothing of it is used.',
        '"{path}" 不是可读的统计量文件：{reason}。不使用其中任何内容。', severity="warning",
    ),
    Message(
        "S216", "tensor-not-written", "error:dump", "name problem",
        '"{name}" is not written: {problem}',
        '没有写出 "{name}"：{problem}', severity="warning",
    ),
    Message(
        "S217", "tensor-files-failed", "error:dump", "problem",
        "{problem} The training goes on; tensors of this dump are missing, and further failures of this kind are not reported.",
        "{problem}训练照常进行；此 dump 缺少张量，同类失败不再提示。", severity="error",
    ),
    Message(
        "S218", "tensor-files-not-all-written", "error:dump", "kind error",
        "Tensor files are not all written: {kind}: {error}",
        "张量文件没有全部写出，{kind}：{error}", severity="error",
    ),
    Message(
        "S219", "dump-refused", "error:dump", "problem",
        "{problem} The training goes on; this step is not recorded, nor any step that meets the same problem, and the old dump stays as it is.",
        "{problem}训练照常进行；不采集该 step 及遇到同样问题的 step，旧 dump 保持原样。", severity="error",
    ),
    Message(
        "S220", "dump-failed", "error:dump", "problem folder",
        "{problem} The training goes on; the dump of {folder} is incomplete, `msprobe summary` shows which records can be read, and further failures of this kind are not reported.",
        "{problem}训练照常进行；{folder} 的 dump 不完整，`msprobe summary` 可显示能读取的记录，同类失败不再提示。", severity="error",
    ),
    Message(
        "S221", "journal-not-written", "error:dump", "folder reason",
        'cannot write the journal in "{folder}": {reason}.',
        '无法写入 "{folder}" 中的 journal：{reason}。', severity="error",
    ),
    Message(
        "S222", "tensor-files-not-written", "error:dump", "folder reason",
        'cannot write tensor files in "{folder}": {reason}.',
        '无法写入 "{folder}" 中的张量文件：{reason}。', severity="error",
    ),
    Message(
        "S223", "earlier-run-not-removed", "error:dump", "folder reason",
        '"{folder}" of an earlier run cannot be removed: {reason}.',
        '无法删除此前运行的 "{folder}"：{reason}。', severity="error",
    ),
    Message(
        "S224", "tensor-file-missing", "error:dump", "path",
        'tensor file "{path}" does not exist.',
        '张量文件 "{path}" 不存在。', severity="error",
    ),
    Message(
        "S225", "tensor-file-unreadable", "error:dump", "path problem",
        'tensor file "{path}" cannot be read: {problem}.',
        '无法读取张量文件 "{path}"：{problem}。', severity="error",
    ),
    Message(
        "S226", "url-unreadable", "error:dump", "url reason",
        '"{url}" cannot be read: {reason}.',
        '无法读取 "{url}"：{reason}。', severity="error",
    ),
    Message(
        "S299", "collect-ranks-twice", "error:dump", "problems",
        "{problems}",
        "{problems}", severity="error",
    ),
)
PIECES: tuple[Piece, ...] = (
    Piece(
        "value-not-recordable", "kind",
        "a record cannot hold a value of type {kind}",
        "记录不能容纳类型为 {kind} 的值",
    ),
    Piece(
        "record-too-long", "count limit",
        "a record of {count} bytes; the journal takes up to {limit}",
        "一条记录有 {count} 字节；journal 最多容纳 {limit} 字节",
    ),
    Piece(
        "journal-shorter", "",
        "the journal is shorter than what was written to it",
        "journal 比写入的内容短",
    ),
    Piece(
        "acl-header-length", "length count",
        "its header has a length of {length} bytes, the file has {count}",
        "文件头标明长度 {length} 字节，而文件只有 {count} 字节",
    ),
    Piece(
        "acl-too-many-tensors", "limit",
        "it describes more than {limit} tensors",
        "它描述了超过 {limit} 个张量",
    ),
    Piece(
        "acl-tensor-too-large", "shape",
        "a tensor of shape {shape} is larger than any file",
        "shape 为 {shape} 的张量大于任何文件",
    ),
    Piece(
        "acl-tensors-beyond-file", "total left",
        "its tensors have {total} bytes, and {left} follow the header",
        "其张量共 {total} 字节，而文件头之后只有 {left} 字节",
    ),
    Piece(
        "format-needs-four-dimensions", "",
        "its original shape does not have four dimensions, give one with -s",
        "其原始 shape 不是四维，请用 -s 给出",
    ),
    Piece(
        "format-shape-does-not-hold", "shape logical",
        "the shape {shape} does not hold {logical}",
        "shape {shape} 容纳不下 {logical}",
    ),
    Piece(
        "format-padded-too-much", "shape limit",
        "the shape {shape} is padded to more than {limit} times its size",
        "shape {shape} 被填充到其大小的 {limit} 倍以上",
    ),
    Piece(
        "format-under-four-dimensions", "shape",
        "the shape {shape} has less than four dimensions",
        "shape {shape} 不足四维",
    ),
    Piece(
        "format-original-does-not-fit", "logical",
        "the original shape {logical} does not fit",
        "原始 shape {logical} 不相符",
    ),
    Piece(
        "format-dimensions", "shape dimensions",
        "the shape {shape} does not have {dimensions} dimensions",
        "shape {shape} 不是 {dimensions} 维",
    ),
    Piece(
        "rows-version-unknown", "",
        "its version is not known",
        "其版本未知",
    ),
    Piece(
        "rows-byte-order-unknown", "",
        "its byte order is not known",
        "其字节序未知",
    ),
    Piece(
        "rows-without-sums", "",
        "it has no sums",
        "它没有求和列",
    ),
    Piece(
        "rows-field-undescribed", "",
        "a field is not described as name, type, count and offset",
        "某个字段没有按名称、类型、个数、偏移描述",
    ),
    Piece(
        "rows-field-of-other-kind", "name",
        "its field {name!r} is of a different kind",
        "其字段 {name!r} 的类型不同",
    ),
    Piece(
        "rows-field-outside", "name",
        "its field {name!r} lies outside of a row",
        "其字段 {name!r} 超出一行的范围",
    ),
    Piece(
        "rows-sizes-wrong", "",
        "its sizes contradict each other",
        "其各项大小互相矛盾",
    ),
    Piece(
        "rows-begin-differently", "",
        "it begins with different bytes",
        "开头的字节不对",
    ),
    Piece(
        "rows-header-too-large", "",
        "its header is too large",
        "文件头过大",
    ),
    Piece(
        "rows-header-cut-off", "",
        "its header is cut off",
        "文件头被截断",
    ),
    Piece(
        "array-bytes-wrong", "count shape",
        "it has {count} bytes, and its header names the shape {shape}",
        "它有 {count} 字节，而文件头的 shape 为 {shape}",
    ),
    Piece(
        "array-is-archive", "",
        "it is an archive of arrays",
        "它是多个数组的归档",
    ),
    Piece(
        "array-version-unknown", "version",
        "its version {version} is not known",
        "其版本 {version} 未知",
    ),
    Piece(
        "array-header-unreadable", "kind",
        "its header cannot be read ({kind})",
        "无法读取其文件头（{kind}）",
    ),
    Piece(
        "array-of-objects", "",
        "it holds Python objects",
        "它含有 Python 对象",
    ),
    Piece(
        "array-size-unlikely", "count shape",
        "its header names elements of {count} bytes in the shape {shape}",
        "其文件头标明每个元素 {count} 字节、shape 为 {shape}",
    ),
)
