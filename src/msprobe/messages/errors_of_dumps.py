"""Errors of reading and writing dumps (S1)."""

from __future__ import annotations

from msprobe.messages.entry import Message, Piece

# fmt: off
MESSAGES: tuple[Message, ...] = (
    Message(
        "S101", "collect-folder-not-empty", "error:dump", "target",
        'folder "{target}" is not empty; give a new one for the collected dump.',
        '文件夹 "{target}" 不为空；请为收集的 dump 给出新文件夹。', severity="error",
    ),
    Message(
        "S102", "step-without-number", "error:dump", "",
        "one of the folders is of a step without a number; give folders of dumps, or step{{N}}.",
        "其中一个文件夹的 step 没有编号；请给出 dump 文件夹，或 step{{N}}。", severity="error",
    ),
    Message(
        "S103", "journal-of-something-else", "error:dump", "path start MAGIC",
        '"{path}" is no journal of msprobe: it begins with {start!r}, not with {MAGIC!r}.',
        '"{path}" 不是 msprobe 的日志：开头是 {start!r}，应为 {MAGIC!r}。', severity="error",
    ),
    Message(
        "S104", "journal-unreadable", "error:dump", "path reason",
        'journal "{path}" cannot be read: {reason}.',
        '无法读取日志 "{path}"：{reason}。', severity="error",
    ),
    Message(
        "S105", "dump-json-unreadable", "error:dump", "path what reason",
        '"{path}"{what} is no readable JSON: {reason}.',
        '"{path}"{what} 不是可读的 JSON：{reason}。', severity="error",
    ),
    Message(
        "S106", "dump-json-without-data", "error:dump", "path",
        '"{path}" is no dump.json: it has no "data"; give the dump.json of a step and rank.',
        '"{path}" 不是 dump.json：没有 "data"；请给出某个 step 与 rank 的 dump.json。', severity="error",
    ),
    Message(
        "S107", "dump-data-is-no-object", "error:dump", "path kind",
        '"{path}": "data" must be an object, found {kind}.',
        '"{path}"："data" 必须是对象，实际为 {kind}。', severity="error",
    ),
    Message(
        "S108", "dump-json-broken", "error:dump", "path problem",
        '"{path}" is no readable JSON: {problem}.',
        '"{path}" 不是可读的 JSON：{problem}。', severity="error",
    ),
    Message(
        "S109", "acl-dump-of-small-device", "error:dump", "file",
        '"{file}" is in the format of small devices, which is not read; dump it on a server.',
        '"{file}" 是小型设备的格式，不支持；请在服务器上采集。', severity="error",
    ),
    Message(
        "S110", "acl-dump-of-statistics", "error:dump", "file",
        '"{file}" is a text, as a dump of statistics writes it; it holds no tensors.',
        '"{file}" 是统计量 dump 写出的文本，不含张量。', severity="error",
    ),
    Message(
        "S111", "acl-dump-size-wrong", "error:dump", "role index data kind shape wanted",
        "{role} {index} has {data} bytes; {kind} {shape} needs {wanted}.",
        "{role} {index} 有 {data} 字节；{kind} {shape} 需要 {wanted} 字节。", severity="error",
    ),
    Message(
        "S112", "acl-dump-broken", "error:dump", "file problem",
        '"{file}" is no ACL dump file: {problem}.',
        '"{file}" 不是 ACL dump 文件：{problem}。', severity="error",
    ),
    Message(
        "S113", "acl-dump-unreadable", "error:dump", "file lower",
        'file "{file}" cannot be read: {lower}.',
        '无法读取文件 "{file}"：{lower}。', severity="error",
    ),
    Message(
        "S114", "atb-file-without-end", "error:dump", "path",
        '"{path}" is no tensor file of ATB: it has no line $End=1.',
        '"{path}" 不是 ATB 的张量文件：没有 $End=1 行。', severity="error",
    ),
    Message(
        "S115", "atb-shape-wrong", "error:dump", "path lines",
        '"{path}": dims={lines} is no shape.',
        '"{path}"：dims={lines} 不是 shape。', severity="error",
    ),
    Message(
        "S116", "atb-type-unknown", "error:dump", "path code",
        '"{path}": the element type {code} is not known.',
        '"{path}"：未知的元素类型 {code}。', severity="error",
    ),
    Message(
        "S117", "atb-file-unreadable", "error:dump", "path lower",
        'file "{path}" cannot be read: {lower}.',
        '无法读取文件 "{path}"：{lower}。', severity="error",
    ),
    Message(
        "S118", "atb-file-without-dtype", "error:dump", "path",
        '"{path}" is no tensor file of ATB: dtype or dims is missing or no number.',
        '"{path}" 不是 ATB 的张量文件：dtype 或 dims 缺失或不是数字。', severity="error",
    ),
    Message(
        "S119", "type-not-for-pt", "error:dump", "path kind",
        '"{path}": a .pt file cannot hold {kind}; use -t npy.',
        '"{path}"：.pt 文件不能存放 {kind}；请使用 -t npy。', severity="error",
    ),
    Message(
        "S120", "format-conversion-unknown", "error:dump", "name TARGETS",
        "-f: there is no conversion to {name!r}; give one of {TARGETS}.",
        "-f：不能转换为 {name!r}；请给出 {TARGETS} 之一。", severity="error",
    ),
    Message(
        "S121", "dump-exists", "error:dump", "folder found name",
        'folder "{folder}" already holds {found} files of a dump, the first is "{name}", and "existing" is "refuse": choose another dump_path, or let the old files be removed ("clean").',
        '文件夹 "{folder}" 中已有 {found} 个 dump 文件，第一个是 "{name}"，而 "existing" 为 "refuse"：请换一个 dump_path，或允许清除旧文件（"clean"）。', severity="error",
    ),
    Message(
        "S122", "dump-folder-is-link", "error:dump", "folder",
        'folder "{folder}" is a symbolic link to a folder with files of a dump; msprobe removes no files through a link: remove them yourself or choose another dump_path.',
        '文件夹 "{folder}" 是指向含有 dump 文件的文件夹的符号链接；msprobe 不清除链接后面的内容：请自行清除，或换一个 dump_path。', severity="error",
    ),
    Message(
        "S123", "old-dump-not-removed", "error:dump", "path strerror",
        'cannot remove "{path}" of an earlier dump: {strerror}.',
        '无法清除早先 dump 的 "{path}"：{strerror}。', severity="error",
    ),
    Message(
        "S124", "folder-of-another-process", "error:dump", "beside",
        'folder "{beside}" belongs to another process; choose another dump_path.',
        '文件夹 "{beside}" 属于另一个进程；请换一个 dump_path。', severity="error",
    ),
    Message(
        "S125", "tensor-file-outside", "error:dump", "path given folder",
        '"{path}": data_name {given} is not the name of a file in the folder of the dump, and nothing else is read; put the file into "{folder}".',
        '"{path}"：data_name {given} 不是 dump 文件夹中文件的名称，其他内容不读取；请把文件放入 "{folder}"。', severity="error",
    ),
    Message(
        "S126", "tensor-file-name-wrong", "error:dump", "path data_name",
        '"{path}": data_name {data_name} is not the name of a file.',
        '"{path}"：data_name {data_name} 不是文件名。', severity="error",
    ),
    Message(
        "S127", "dump-json-is-no-object", "error:dump", "path name",
        '"{path}" must hold a JSON object, found a {name}.',
        '"{path}" 必须是 JSON 对象，实际为 {name}。', severity="error",
    ),
    Message(
        "S128", "rank-folder-empty", "error:dump", "folder path",
        'folder "{folder}" holds neither "{path}" nor a journal of it.',
        '文件夹 "{folder}" 中既没有 "{path}"，也没有它的日志。', severity="error",
    ),
    Message(
        "S129", "dump-field-is-no-list", "error:dump", "path key name",
        '"{path}": {key!r} must hold a list, found a {name}.',
        '"{path}"：{key!r} 必须是列表，实际为 {name}。', severity="error",
    ),
    Message(
        "S130", "stack-field-wrong", "error:dump", "path key",
        '"{path}": {key!r} must hold a list of names and a list of frames.',
        '"{path}"：{key!r} 必须含有名称列表和栈帧列表。', severity="error",
    ),
    Message(
        "S131", "step-missing", "error:dump", "path step steps",
        '"{path}" has no step {step}; it has {steps}.',
        '"{path}" 没有 step {step}；有 {steps}。', severity="error",
    ),
    Message(
        "S132", "dump-path-is-special", "error:dump", "given",
        '"{given}" is neither a file nor a folder; give the folder of a dump.',
        '"{given}" 既不是文件也不是文件夹；请给出 dump 文件夹。', severity="error",
    ),
    Message(
        "S133", "rank-missing", "error:dump", "path rank chosen ranks",
        '"{path}" has no rank {rank!r} in step {chosen}; it has {ranks}.',
        '"{path}" 在 step {chosen} 中没有 rank {rank!r}；有 {ranks}。', severity="error",
    ),
    Message(
        "S134", "dump-gone", "error:dump", "path",
        'folder "{path}" holds no dump any more; it was moved or removed.',
        '文件夹 "{path}" 中已没有 dump：被移动或删除。', severity="error",
    ),
    Message(
        "S135", "step-not-chosen", "error:dump", "path steps",
        '"{path}" has the steps {steps}; name one of them.',
        '"{path}" 有 step {steps}；请指定其中一个。', severity="error",
    ),
    Message(
        "S136", "dump-folder-unreadable", "error:dump", "given lower",
        'folder "{given}" cannot be read: {lower}.',
        '无法读取文件夹 "{given}"：{lower}。', severity="error",
    ),
    Message(
        "S137", "two-dumps-in-folder", "error:dump", "message step_by_step compiled",
        '{message} It has two: "{step_by_step}" of what ran step by step, "{compiled}" of what was compiled; give one of them.',
        '{message} 有两个："{step_by_step}" 是逐步执行的部分，"{compiled}" 是编译的部分；请给出其中一个。', severity="error",
    ),
    Message(
        "S138", "rank-not-chosen", "error:dump", "path ranks",
        '"{path}" has the ranks {ranks}; name one of them.',
        '"{path}" 有 rank {ranks}；请指定其中一个。', severity="error",
    ),
    Message(
        "S139", "tensor-file-ending", "error:dump", "path",
        '"{path}" is no tensor file; the ending must be .pt, .npy or .bin.',
        '"{path}" 不是张量文件；后缀必须是 .pt、.npy 或 .bin。', severity="error",
    ),
    Message(
        "S140", "tensor-type-unknown", "error:dump", "path dtype",
        '"{path}": the element type {dtype!r} is not known.',
        '"{path}"：未知的元素类型 {dtype!r}。', severity="error",
    ),
    Message(
        "S144", "pt-holds-no-tensor", "error:dump", "path what",
        '"{path}" holds a {what}, not one plain tensor.',
        '"{path}" 中是 {what}，不是单个张量。', severity="error",
    ),
    Message(
        "S145", "pt-values-missing", "error:dump", "path name",
        '"{path}": the values ({name!r}) are missing.',
        '"{path}"：缺少数值（{name!r}）。', severity="error",
    ),
    Message(
        "S146", "pt-values-size", "error:dump", "path name nbytes",
        '"{path}": the values have {name} bytes, the description says {nbytes}.',
        '"{path}"：数值有 {name} 字节，描述为 {nbytes} 字节。', severity="error",
    ),
    Message(
        "S147", "bin-needs-type-and-shape", "error:dump", "path",
        '"{path}" holds bare bytes; its element type and shape must be given.',
        '"{path}" 只有原始字节；必须给出元素类型和 shape。', severity="error",
    ),
    Message(
        "S148", "npy-unreadable", "error:dump", "path problem",
        '"{path}" is no readable .npy file: {problem}.',
        '"{path}" 不是可读的 .npy 文件：{problem}。', severity="error",
    ),
    Message(
        "S149", "pt-unreadable", "error:dump", "path problem",
        '"{path}" is no readable .pt file: {problem}.',
        '"{path}" 不是可读的 .pt 文件：{problem}。', severity="error",
    ),
    Message(
        "S150", "pt-of-old-torch", "error:dump", "path",
        '"{path}" is not a zip archive as torch 1.6 or later writes it; only torch can read it.',
        '"{path}" 不是 torch 1.6 及以后写出的 zip 包；只有 torch 能读取。', severity="error",
    ),
    Message(
        "S152", "journal-removed", "error:dump", "folder",
        'the journal in "{folder}" is gone: another process writes there, or removed it.',
        '"{folder}" 中的日志不见了：另一个进程在那里写入，或删除了它。', severity="error",
    ),
    Message(
        "S153", "dump-missing", "error:dump", "path",
        '"{path}" does not exist.',
        '"{path}" 不存在。', severity="error",
    ),
    Message(
        "S154", "folder-holds-no-dump", "error:dump", "folder dump_file",
        'folder "{folder}" holds no dump: neither it nor its folders step* and rank* have a {dump_file}.',
        '文件夹 "{folder}" 中没有 dump：其中以及 step*、rank* 文件夹中都没有 {dump_file}。', severity="error",
    ),
    Message(
        "S155", "dump-file-name-wrong", "error:dump", "path dump_file debug_file",
        '"{path}" must be named {dump_file} or {debug_file}, or be a folder.',
        '"{path}" 必须名为 {dump_file} 或 {debug_file}，或是文件夹。', severity="error",
    ),
)

PIECES: tuple[Piece, ...] = (
    Piece("give-folder-of-dump", "dump_file", "Give the folder of a dump or its {dump_file}.", "请给出 dump 文件夹或其 {dump_file}。"),
    Piece("inner-folder-may-be-dump", "folder", 'Its folder "{folder}" may be the dump.', '其中的文件夹 "{folder}" 可能是 dump。'),
)
