"""Messages of the readers of files of other programs (F2)."""

from __future__ import annotations

from msprobe.messages.entry import Message, Piece

# fmt: off
MESSAGES: tuple[Message, ...] = (
    Message(
        "F201", "archive-entries", "error:files", "path count bytes limit",
        '"{path}" has {count} entries in {bytes} bytes; it may have {limit}.',
        '"{path}" 在 {bytes} 字节中有 {count} 个条目；最多 {limit} 个。', severity="error",
    ),
    Message(
        "F202", "no-zip-file", "error:files", "path",
        '"{path}" is not a zip file.',
        '"{path}" 不是 zip 文件。', severity="error",
    ),
    Message(
        "F203", "table-not-plain", "error:files", "path table",
        '"{path}": {table} is no plain table, and nothing else is read.',
        '"{path}"：{table} 不是普通表，不读取其他内容。', severity="error",
    ),
    Message(
        "F204", "table-with-computed-columns", "error:files", "path table",
        '"{path}": the table {table} has computed columns, which are not read.',
        '"{path}"：表 {table} 含计算列，不支持读取。', severity="error",
    ),
    Message(
        "F205", "table-missing", "error:files", "path table",
        '"{path}" lacks the table {table}.',
        '"{path}" 缺少表 {table}。', severity="error",
    ),
    Message(
        "F206", "no-database", "error:files", "path",
        '"{path}" is no database: file is not a database.',
        '"{path}" 不是数据库：文件格式不对。', severity="error",
    ),
    Message(
        "F207", "database-journal-too-large", "error:files", "path",
        '"{path}" cannot be read: its journal is larger than the database explains.',
        '无法读取 "{path}"：其 journal 大于该数据库应有的大小。', severity="error",
    ),
    Message(
        "F208", "no-readable-yaml", "error:files", "source where problem",
        '"{source}" is no readable YAML file{where}: {problem}.',
        '"{source}" 不是可读的 YAML 文件{where}：{problem}。', severity="error",
    ),
    Message(
        "F209", "zstd-package-missing", "error:files", "name",
        '"{name}" is compressed, and no package here reads it: pip install zstandard, or unpack it with "zstd -d".',
        '"{name}" 经过压缩，此处没有能读取它的包：pip install zstandard，或用 "zstd -d" 解压。', severity="error",
    ),
    Message(
        "F210", "zstd-cut-off", "error:files", "name",
        '"{name}" is cut off: its last frame has no end.',
        '"{name}" 被截断：最后一帧没有结尾。', severity="error",
    ),
    Message(
        "F211", "zstd-unreadable", "error:files", "name problem",
        '"{name}" is no readable zstandard file: {problem}.',
        '"{name}" 不是可读的 zstandard 文件：{problem}。', severity="error",
    ),
    Message(
        "F212", "zstd-trailing", "error:files", "name",
        '"{name}" has bytes after its end; a different program wrote it.',
        '"{name}" 在结尾之后还有字节；它由其他程序写出。', severity="error",
    ),
    Message(
        "F213", "file-outside-folder", "error:files", "named_by name",
        '"{named_by}" names the file {name!a}, which is not in its folder; nothing else is read. Put the file there.',
        '"{named_by}" 指出文件 {name!a}，但它不在其文件夹中；不读取其他位置。请把文件放到那里。', severity="error",
    ),
    Message(
        "F214", "file-is-empty", "error:files", "path",
        '"{path}" is empty.',
        '"{path}" 是空文件。', severity="error",
    ),
)
PIECES: tuple[Piece, ...] = (
    Piece(
        "json-number-too-long", "count limit",
        "a number has {count} digits, at most {limit} are read",
        "某个数有 {count} 位，最多读取 {limit} 位",
    ),
    Piece(
        "replacement-too-long", "limit",
        "a replacement has more than {limit} letters",
        "替换文本超过 {limit} 个字符",
    ),
    Piece(
        "pattern-problem", "pattern what",
        "the pattern {pattern} {what}",
        "模式 {pattern} {what}",
    ),
    Piece(
        "pattern-too-long", "limit",
        "a pattern has more than {limit} letters",
        "模式超过 {limit} 个字符",
    ),
    Piece(
        "pattern-endless", "pattern problem",
        "the pattern {pattern} may run without end, as {problem}; write it in a simpler way",
        "模式 {pattern} 可能无限运行，因为{problem}；请改用更简单的写法",
    ),
    Piece(
        "no-regular-expression", "pattern reason",
        "{pattern} is no regular expression: {reason}",
        "{pattern} 不是正则表达式：{reason}",
    ),
    Piece(
        "pattern-repeats-empty", "",
        "it repeats something that may be empty",
        "它重复的内容可能为空",
    ),
    Piece(
        "pattern-repeats-lengths", "",
        "it repeats something that itself repeats with several lengths",
        "它重复的内容自身长度不定",
    ),
    Piece(
        "pattern-repeats-choice", "",
        "it repeats a choice of which several may fit",
        "它重复的分支中有多个可能匹配",
    ),
    Piece(
        "pattern-text-too-long", "count",
        "is not applied to a text of {count} letters, which is too long",
        "不用于 {count} 个字符的文本（过长）",
    ),
    Piece(
        "pattern-slow-for-text", "count",
        "may take too long for a text of {count} letters; write it in a simpler way",
        "对 {count} 个字符的文本可能过慢；请改用更简单的写法",
    ),
    Piece(
        "pattern-slow-for-all", "",
        "takes too long for all these texts; write it in a simpler way",
        "对所有这些文本来说过慢；请改用更简单的写法",
    ),
    Piece(
        "protobuf-field-zero", "place",
        "a field has the number 0 at byte {place}",
        "第 {place} 字节处的字段编号为 0",
    ),
    Piece(
        "protobuf-wire-type", "kind place",
        "a field has the unknown wire type {kind} at byte {place}",
        "第 {place} 字节处的字段使用未知的 wire type {kind}",
    ),
    Piece(
        "protobuf-field-beyond", "count place",
        "a field of {count} bytes at byte {place} reaches beyond the end",
        "第 {place} 字节处 {count} 字节的字段超出末尾",
    ),
    Piece(
        "protobuf-list-too-long", "limit",
        "a list has more than {limit} numbers",
        "某个列表超过 {limit} 个数",
    ),
    Piece(
        "protobuf-number-cut-off", "",
        "a number is cut off at the end",
        "末尾的数被截断",
    ),
    Piece(
        "protobuf-number-too-long", "place",
        "a number has more than 64 bits at byte {place}",
        "第 {place} 字节处的数超过 64 位",
    ),
    Piece(
        "stored-archive-without-entry", "",
        "its directory points to no entry",
        "其目录没有指向任何条目",
    ),
    Piece(
        "yaml-no-utf8", "",
        "not UTF-8 text; save the file as UTF-8",
        "不是 UTF-8 文本；请将文件保存为 UTF-8",
    ),
    Piece(
        "yaml-documents", "count",
        "it must be one document, and holds {count}",
        "必须是单个文档，实际有 {count} 个",
    ),
    Piece(
        "yaml-merges-objects", "",
        "only objects can be merged",
        "只能合并对象",
    ),
    Piece(
        "yaml-name-wrong", "",
        "the name before the colon is a list or an object; give a plain value",
        "冒号之前的名称是列表或对象；请给出普通的值",
    ),
    Piece(
        "yaml-place", "line column",
        ": line {line}, column {column}",
        "：第 {line} 行第 {column} 列",
    ),
    Piece(
        "yaml-no-value", "found problem",
        "{found!r} is no value of its kind ({problem})",
        "{found!r} 不是该类型的值（{problem}）",
    ),
    Piece(
        "yaml-tag", "tag",
        "the tag {tag} is not allowed; write plain values",
        "不允许标签 {tag}；请写普通的值",
    ),
    Piece(
        "yaml-cannot-be-read", "",
        "it cannot be read",
        "无法读取",
    ),
    Piece(
        "budget-hint", "",
        " If you trust it, raise the limits with --limit 10 (ten times as much).",
        "如果信任该文件，可用 --limit 10 放宽上限（十倍）。",
    ),
    Piece(
        "budget-bytes", "limit",
        "more than {limit} bytes",
        "超过 {limit} 字节",
    ),
    Piece(
        "budget-values", "limit",
        "more than {limit} values",
        "超过 {limit} 个值",
    ),
    Piece(
        "budget-depth", "limit",
        "containers nested more than {limit} deep",
        "容器嵌套超过 {limit} 层",
    ),
    Piece(
        "budget-digits", "limit",
        "a number of more than {limit} digits",
        "超过 {limit} 位的数",
    ),
    Piece(
        "budget-seconds", "limit",
        "more than {limit} seconds",
        "超过 {limit} 秒",
    ),
)
