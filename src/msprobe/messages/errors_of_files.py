"""Errors of paths and of files that somebody else wrote (F1)."""

from __future__ import annotations

from msprobe.messages.entry import Message

# fmt: off
MESSAGES: tuple[Message, ...] = (
    Message(
        "F101", "target-leads-out-of-folder", "error:files", "target folder",
        "{target} leads out of the folder {folder}; nothing is written there.",
        "{target} 指向文件夹 {folder} 之外；不在那里写入任何内容。", severity="error",
    ),
    Message(
        "F102", "folder-where-file-is-read", "error:files", "shown",
        "{shown} is a folder; give the path of a file.",
        "{shown} 是文件夹；请给出文件的路径。", severity="error",
    ),
    Message(
        "F103", "not-a-regular-file", "error:files", "shown",
        "{shown} is not a regular file.",
        "{shown} 不是普通文件。", severity="error",
    ),
    Message(
        "F104", "link-where-file-is-read", "error:files", "shown file",
        "{shown} is a symbolic link; give the path of the file itself: {file}.",
        "{shown} 是符号链接；请给出文件本身的路径：{file}。", severity="error",
    ),
    Message(
        "F105", "wrong-file-ending", "error:files", "shown endings",
        "file {shown} must end in {endings}.",
        "文件 {shown} 的后缀必须是 {endings}。", severity="error",
    ),
    Message(
        "F106", "file-too-large", "error:files", "shown st_size max_size",
        "file {shown} has {st_size} bytes; the limit is {max_size} bytes.",
        "文件 {shown} 有 {st_size} 字节；上限为 {max_size} 字节。", severity="error",
    ),
    Message(
        "F107", "file-not-permitted", "error:files", "shown",
        "file {shown} cannot be read: permission denied.",
        "无法读取文件 {shown}：没有权限。", severity="error",
    ),
    Message(
        "F108", "folder-path-too-long", "error:files", "shown MAX_PATH_LENGTH",
        "folder {shown}: the path has more than {MAX_PATH_LENGTH} bytes; choose a shorter one.",
        "文件夹 {shown}：路径超过 {MAX_PATH_LENGTH} 字节；请选择较短的路径。", severity="error",
    ),
    Message(
        "F109", "folder-where-file-is-written", "error:files", "shown",
        "{shown} is a folder; give the name of a file.",
        "{shown} 是文件夹；请给出文件名。", severity="error",
    ),
    Message(
        "F110", "link-to-nothing", "error:files", "shown",
        "{shown} is a symbolic link to nothing; give another name.",
        "{shown} 是指向不存在内容的符号链接；请换一个名称。", severity="error",
    ),
    Message(
        "F111", "not-a-regular-file-to-write", "error:files", "shown",
        "{shown} is not a regular file; give another name.",
        "{shown} 不是普通文件；请换一个名称。", severity="error",
    ),
    Message(
        "F112", "folder-of-file-not-usable", "error:files", "shown folder kind",
        "{shown} cannot be written: folder {folder} {kind}; make it first.",
        "无法写入 {shown}：文件夹 {folder} {kind}；请先创建它。", severity="error",
    ),
    Message(
        "F113", "path-is-no-string", "error:files", "kind path name",
        "the path of a {kind} must be a string, found {path!r} ({name}).",
        "{kind} 的路径必须是字符串，实际为 {path!r}（{name}）。", severity="error",
    ),
    Message(
        "F114", "path-is-empty", "error:files", "kind",
        "the path of a {kind} is empty; give a path.",
        "{kind} 的路径为空；请给出路径。", severity="error",
    ),
    Message(
        "F115", "path-with-nul", "error:files", "text",
        "the path {text} contains a NUL character; remove it.",
        "路径 {text} 含有 NUL 字符；请去掉。", severity="error",
    ),
    Message(
        "F116", "path-too-long", "error:files", "text length MAX_PATH_LENGTH",
        "the path {text} has {length} bytes; the limit is {MAX_PATH_LENGTH}.",
        "路径 {text} 有 {length} 字节；上限为 {MAX_PATH_LENGTH}。", severity="error",
    ),
    Message(
        "F117", "name-too-long", "error:files", "text longest MAX_NAME_LENGTH",
        "the path {text} has a name of {longest} bytes; the limit is {MAX_NAME_LENGTH}.",
        "路径 {text} 中有一个 {longest} 字节的名称；上限为 {MAX_NAME_LENGTH}。", severity="error",
    ),
    Message(
        "F118", "parent-is-no-folder", "error:files", "folder shown",
        "cannot create folder {folder}: {shown} is not a folder.",
        "无法创建文件夹 {folder}：{shown} 不是文件夹。", severity="error",
    ),
    Message(
        "F119", "folder-not-created", "error:files", "folder problem",
        "cannot create folder {folder}: {problem}.",
        "无法创建文件夹 {folder}：{problem}。", severity="error",
    ),
    Message(
        "F120", "file-not-written", "error:files", "path problem",
        "cannot write file {path}: {problem}.",
        "无法写入文件 {path}：{problem}。", severity="error",
    ),
    Message(
        "F121", "file-missing", "error:files", "shown hint",
        "file {shown} does not exist; {hint}",
        "文件 {shown} 不存在；{hint}", severity="error",
    ),
    Message(
        "F122", "file-not-usable", "error:files", "shown problem",
        "file {shown} cannot be used: {problem}.",
        "无法使用文件 {shown}：{problem}。", severity="error",
    ),
    Message(
        "F123", "folder-is-something-else", "error:files", "shown current kind",
        "folder {shown} cannot be used: {current} is {kind}; choose another folder.",
        "无法使用文件夹 {shown}：{current} 是 {kind}；请选择其他文件夹。", severity="error",
    ),
    Message(
        "F124", "place-holds-no-files", "error:files", "shown current",
        "folder {shown} cannot be written: {current} holds no files; choose another folder.",
        "无法写入文件夹 {shown}：{current} 不能存放文件；请选择其他文件夹。", severity="error",
    ),
    Message(
        "F125", "folder-not-permitted", "error:files", "shown current",
        "folder {shown} cannot be written: no permission to write in {current}.",
        "无法写入文件夹 {shown}：没有在 {current} 中写入的权限。", severity="error",
    ),
    Message(
        "F126", "folder-not-usable", "error:files", "shown problem",
        "folder {shown} cannot be used: {problem}.",
        "无法使用文件夹 {shown}：{problem}。", severity="error",
    ),
    Message(
        "F127", "path-with-forbidden-characters", "error:files", "text",
        "the path {text} has characters that this system's file names cannot hold.",
        "路径 {text} 含有本系统文件名不允许的字符。", severity="error",
    ),
    Message(
        "F128", "archive-names-repeat", "error:files", "path",
        '"{path}" holds several entries of one name.',
        '"{path}" 中有几个同名条目。', severity="error",
    ),
    Message(
        "F129", "archive-directory-before-start", "error:files", "path",
        '"{path}": its directory points to before its first byte.',
        '"{path}"：其目录指向首字节之前。', severity="error",
    ),
    Message(
        "F130", "archive-entry-compressed", "error:files", "path entry",
        '"{path}": its entry {entry} is compressed or encrypted.',
        '"{path}"：条目 {entry} 经过压缩或加密。', severity="error",
    ),
    Message(
        "F131", "archive-directory-points-nowhere", "error:files", "path",
        '"{path}": its directory points to no entry.',
        '"{path}"：其目录没有指向任何条目。', severity="error",
    ),
    Message(
        "F132", "archive-entry-too-large", "error:files", "path entry file_size most",
        '"{path}": its entry {entry} unpacks to {file_size} bytes, which is more than the {most} that it may have.',
        '"{path}"：条目 {entry} 解压后有 {file_size} 字节，超过允许的 {most}。', severity="error",
    ),
    Message(
        "F133", "archive-entry-cut", "error:files", "path entry file_size",
        '"{path}": its entry {entry} ends before its {file_size} bytes.',
        '"{path}"：条目 {entry} 不足 {file_size} 字节。', severity="error",
    ),
    Message(
        "F134", "archive-packing-unknown", "error:files", "path entry",
        '"{path}": its entry {entry} is packed in a way that is not read.',
        '"{path}"：条目 {entry} 的打包方式不受支持。', severity="error",
    ),
    Message(
        "F135", "archive-unpacks-too-large", "error:files", "path packed unpacked",
        '"{path}": its {packed} bytes unpack to {unpacked}, more than numbers of a training can. If you trust it, raise the limits with --limit 10.',
        '"{path}"：{packed} 字节解压后有 {unpacked} 字节，训练数据不会如此。如果信任该文件，请用 --limit 10 提高上限。', severity="error",
    ),
    Message(
        "F136", "archive-unreadable", "error:files", "path problem",
        '"{path}" is no readable archive: {problem}.',
        '"{path}" 不是可读的压缩包：{problem}。', severity="error",
    ),
    Message(
        "F137", "archive-entry-damaged", "error:files", "path entry problem",
        '"{path}": its entry {entry} is damaged: {problem}.',
        '"{path}"：条目 {entry} 已损坏：{problem}。', severity="error",
    ),
    Message(
        "F138", "archive-entries-overlap", "error:files", "path entry",
        '"{path}": its entry {entry} lies over the one before.',
        '"{path}"：条目 {entry} 与前一个重叠。', severity="error",
    ),
    Message(
        "F139", "limit-factor-wrong", "error:files", "FACTOR_VARIABLE text",
        "the limit factor ({FACTOR_VARIABLE} or --limit) must be a number above 0 and at most 1e6, found {text!r}.",
        "上限倍数（{FACTOR_VARIABLE} 或 --limit）必须大于 0 且不超过 1e6，实际为 {text!r}。", severity="error",
    ),
    Message(
        "F140", "reading-over-budget", "error:files", "shown what advice",
        'reading "{shown}" needs {what}, which is not allowed.{advice}',
        '读取 "{shown}" 需要 {what}，不允许。{advice}', severity="error",
    ),
    Message(
        "F141", "database-over-budget", "error:files", "path",
        'reading "{path}" takes more than a database of its size explains, which is not allowed. If you trust it, raise the limits with --limit 10 (ten times as much).',
        '读取 "{path}" 的开销超出同等大小的数据库，不允许。如果信任该文件，请用 --limit 10 把上限提高到十倍。', severity="error",
    ),
    Message(
        "F142", "database-missing", "error:files", "path",
        'file "{path}" does not exist.',
        '文件 "{path}" 不存在。', severity="error",
    ),
    Message(
        "F143", "database-unreadable", "error:files", "path strerror",
        'file "{path}" cannot be read: {strerror}.',
        '无法读取文件 "{path}"：{strerror}。', severity="error",
    ),
    Message(
        "F144", "json-is-no-object", "error:files", "source name",
        '"{source}" must hold a JSON object, found a {name}.',
        '"{source}" 必须是 JSON 对象，实际为 {name}。', severity="error",
    ),
    Message(
        "F145", "json-is-no-utf8", "error:files", "source place",
        '"{source}" is no readable JSON: byte {place} is no UTF-8.',
        '"{source}" 不是可读的 JSON：第 {place} 字节不是 UTF-8。', severity="error",
    ),
    Message(
        "F146", "json-unreadable", "error:files", "source reason",
        '"{source}" is no readable JSON: {reason}.',
        '"{source}" 不是可读的 JSON：{reason}。', severity="error",
    ),
    Message(
        "F147", "link-leads-out-of-dump", "error:files", "path",
        '"{path}" is a symbolic link that leads out of the dump, which is not followed. If you trust it, give --follow-links.',
        '"{path}" 是指向 dump 之外的符号链接，不跟随。如果信任它，请使用 --follow-links。', severity="error",
    ),
    Message(
        "F148", "link-in-recorded-folder", "error:files", "path",
        "{path} is a symbolic link; links in a recorded folder are not followed.",
        "{path} 是符号链接；采集文件夹中的链接不跟随。", severity="error",
    ),
    Message(
        "F149", "folder-in-place-of-file", "error:files", "path",
        "{path} is a folder, not a regular file.",
        "{path} 是文件夹，不是普通文件。", severity="error",
    ),
    Message(
        "F150", "special-file", "error:files", "path mode",
        "{path} is {mode}, not a regular file.",
        "{path} 是 {mode}，不是普通文件。", severity="error",
    ),
    Message(
        "F151", "file-unreadable", "error:files", "path reason",
        'file "{path}" cannot be read: {reason}.',
        '无法读取文件 "{path}"：{reason}。', severity="error",
    ),
    Message(
        "F152", "special-file-opened", "error:files", "path kind",
        "{path} is {kind}, not a regular file.",
        "{path} 是 {kind}，不是普通文件。", severity="error",
    ),
    Message(
        "F153", "folder-unreadable", "error:files", "folder reason",
        'folder "{folder}" cannot be read: {reason}.',
        '无法读取文件夹 "{folder}"：{reason}。', severity="error",
    ),
    Message(
        "F154", "folder-of-field-unreadable", "error:files", "field folder reason",
        '{field}: folder "{folder}" cannot be read: {reason}.',
        '{field}：无法读取文件夹 "{folder}"：{reason}。', severity="error",
    ),
    Message(
        "F155", "csv-unreadable", "error:files", "path problem",
        '"{path}" is no readable csv file: {problem}.',
        '"{path}" 不是可读的 csv 文件：{problem}。', severity="error",
    ),
    Message(
        "F156", "file-mostly-unwritten", "error:files", "path size",
        "{path} has {size} bytes by its size, of which most were never written (a sparse file); write it again.",
        "{path} 的大小为 {size} 字节，但其中大部分从未写入（稀疏文件）；请重新写入该文件。", severity="error",
    ),
    Message(
        "F157", "zstd-unpacks-too-large", "error:files", "name packed unpacked",
        '"{name}": its first {packed} bytes unpack to {unpacked}, more than records of a training do. If you trust it, raise the limits with --limit 10.',
        '"{name}"：前 {packed} 字节解压后有 {unpacked} 字节，训练记录不会如此。如果信任该文件，请用 --limit 10 提高上限。', severity="error",
    ),
)
