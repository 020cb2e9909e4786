"""Errors and warnings of configurations, scripts and packs (E3)."""

from __future__ import annotations

from msprobe.messages.entry import Message, Piece

# fmt: off
MESSAGES: tuple[Message, ...] = (
    Message(
        "E301", "tolerance-wrong", "error:checkpoint", "tolerance",
        "the tolerance must be a number from 0 up to, but not including, 1; found {tolerance}.",
        "容差必须是大于等于 0 且小于 1 的数，实际为 {tolerance}。", severity="error",
    ),
    Message(
        "E302", "pack-path-wrong", "error:checkpoint", "suffix path",
        "the path of a pack must be a text that ends with {suffix}, found {path!r}.",
        "打包文件的路径必须是以 {suffix} 结尾的文本，实际为 {path!r}。", severity="error",
    ),
    Message(
        "E303", "pack-entry-too-large", "error:checkpoint", "name bytes limit",
        "{name} has {bytes} bytes; the limit is {limit}.",
        "{name} 有 {bytes} 字节；上限为 {limit}。", severity="error",
    ),
    Message(
        "E304", "pack-not-written", "error:checkpoint", "path problem",
        'cannot write pack "{path}": {problem}.',
        '无法写入打包文件 "{path}"：{problem}。', severity="error",
    ),
    Message(
        "E305", "pack-too-large", "error:checkpoint", "path limit",
        'pack "{path}" would have more than {limit} bytes.',
        '打包文件 "{path}" 会超过 {limit} 字节。', severity="error",
    ),
    Message(
        "E306", "pack-left-as-it-is", "error:checkpoint", "message",
        "{message} The file is unchanged; give a different path.",
        "{message} 文件没有改动；请给出其他路径。", severity="error",
    ),
    Message(
        "E307", "pack-entry-is-no-object", "error:checkpoint", "path name type",
        '"{path}": entry {name} must be a JSON object, found a {type}.',
        '"{path}"：条目 {name} 必须是 JSON 对象，实际为 {type}。', severity="error",
    ),
    Message(
        "E308", "pack-entry-no-utf8", "error:checkpoint", "path name",
        '"{path}": entry {name} is not UTF-8 text.',
        '"{path}"：条目 {name} 不是 UTF-8 文本。', severity="error",
    ),
    Message(
        "E309", "pack-entry-missing", "error:checkpoint", "path name",
        '"{path}" has no entry {name}; collect the pack again.',
        '"{path}" 没有条目 {name}；请重新打包。', severity="error",
    ),
    Message(
        "E310", "pack-entry-unpacks-too-large", "error:checkpoint", "path name",
        '"{path}": entry {name} unpacks to more than a pack may hold.',
        '"{path}"：条目 {name} 解压后超过打包文件允许的大小。', severity="error",
    ),
    Message(
        "E311", "pack-unpacks-too-large", "error:checkpoint", "path bytes limit",
        '"{path}" unpacks to {bytes} bytes; the limit is {limit}.',
        '"{path}" 解压后有 {bytes} 字节；上限为 {limit}。', severity="error",
    ),
    Message(
        "E312", "no-pack", "error:checkpoint", "path",
        '"{path}" is no pack of config_check: it has none of env, pip, hyperparameters, ....',
        '"{path}" 不是 config_check 的打包文件：没有 env、pip、hyperparameters 等条目。', severity="error",
    ),
    Message(
        "E313", "pack-entries-left-out", "warning:work", "path count",
        '"{path}": {count} entries that do not belong in a pack are left out.',
        '"{path}"：略过 {count} 个不属于打包文件的条目。', severity="warning",
    ),
    Message(
        "E314", "pack-entry-leads-out", "error:checkpoint", "path entry",
        '"{path}" is rejected: its entry {entry} leads out of the pack.',
        '拒绝 "{path}"：其条目 {entry} 指向打包文件之外。', severity="error",
    ),
    Message(
        "E315", "pack-entry-is-link", "error:checkpoint", "path entry",
        '"{path}" is rejected: its entry {entry} is a symbolic link.',
        '拒绝 "{path}"：其条目 {entry} 是符号链接。', severity="error",
    ),
    Message(
        "E316", "pack-entry-encrypted", "error:checkpoint", "path entry",
        '"{path}": its entry {entry} is encrypted; entries of packs are not.',
        '"{path}"：其条目 {entry} 已加密；打包文件的条目不加密。', severity="error",
    ),
    Message(
        "E317", "pack-entry-compression", "error:checkpoint", "path entry",
        '"{path}": its entry {entry} is compressed in a way that packs do not use.',
        '"{path}"：其条目 {entry} 的压缩方式不是打包文件所用的。', severity="error",
    ),
    Message(
        "E318", "pack-entry-bomb", "error:checkpoint", "path entry unpacked packed",
        '"{path}": its entry {entry} unpacks to {unpacked} bytes from {packed}.',
        '"{path}"：其条目 {entry} 从 {packed} 字节解压成 {unpacked} 字节。', severity="error",
    ),
    Message(
        "E319", "pack-locked", "error:checkpoint", "path",
        'a different process has been writing pack "{path}" for more than a minute.',
        '其他进程写入打包文件 "{path}" 已超过一分钟。', severity="error",
    ),
    Message(
        "E320", "packs-cannot-be-locked", "warning:work", "problem",
        "packs cannot be locked here ({problem}); let each rank write a pack of its own.",
        "此处无法给打包文件加锁（{problem}）；请让每个 rank 写自己的打包文件。", severity="warning",
    ),
    Message(
        "E321", "variables-file-form", "error:checkpoint", "path",
        '"{path}" must hold names of environment variables, each with a level or an object.',
        '"{path}" 中必须是环境变量名，每个对应一个级别或对象。', severity="error",
    ),
    Message(
        "E322", "hydra-too-many-files", "error:checkpoint", "path most_files most_depth",
        '"{path}": the configuration consists of more than {most_files} files, or is nested deeper than {most_depth}.',
        '"{path}"：配置由超过 {most_files} 个文件组成，或嵌套超过 {most_depth} 层。', severity="error",
    ),
    Message(
        "E323", "sources-are-no-list", "error:checkpoint", "paths",
        "the sources of hyper-parameters must be a list of file paths, found {paths!r:.100}.",
        "超参来源必须是文件路径的列表，实际为 {paths!r:.100}。", severity="error",
    ),
    Message(
        "E324", "source-unknown", "error:checkpoint", "files endings",
        "{files} cannot be read for hyper-parameters: a file must end in one of {endings}.",
        "无法从 {files} 读取超参：文件后缀必须是 {endings} 之一。", severity="error",
    ),
    Message(
        "E325", "script-too-large", "error:checkpoint", "path limit",
        '"{path}" has more than {limit} bytes; it is no launch script.',
        '"{path}" 超过 {limit} 字节；不是启动脚本。', severity="error",
    ),
    Message(
        "E326", "no-training-arguments", "error:checkpoint", "path arguments",
        '"{path}" holds no arguments of a training (looked for: {arguments}).',
        '"{path}" 中没有训练参数（查找了：{arguments}）。', severity="error",
    ),
    Message(
        "E327", "folder-without-settings", "error:checkpoint", "path in_folders",
        '"{path}" is a folder without {in_folders}; give a file.',
        '"{path}" 是没有 {in_folders} 的文件夹；请给出文件。', severity="error",
    ),
    Message(
        "E328", "settings-json-unreadable", "error:checkpoint", "path problem",
        '"{path}" is no readable JSON file: {problem}.',
        '"{path}" 不是可读的 JSON 文件：{problem}。', severity="error",
    ),
    Message(
        "E329", "toml-needs-newer-python", "error:checkpoint", "path",
        'TOML ("{path}") needs Python 3.11 or newer; write the settings as YAML or JSON.',
        'TOML（"{path}"）需要 Python 3.11 或更新版本；请把配置写成 YAML 或 JSON。', severity="error",
    ),
    Message(
        "E330", "settings-name-too-deep", "error:checkpoint", "path limit",
        '"{path}" has a name with more than {limit} dots; it is no settings file.',
        '"{path}" 中有超过 {limit} 段的名称；不是配置文件。', severity="error",
    ),
    Message(
        "E331", "toml-unreadable", "error:checkpoint", "path problem",
        '"{path}" is no readable TOML file: {problem}.',
        '"{path}" 不是可读的 TOML 文件：{problem}。', severity="error",
    ),
    Message(
        "E332", "ini-bracket", "error:checkpoint", "path line",
        '"{path}" is no readable INI file: line {line} has "[" without "]".',
        '"{path}" 不是可读的 INI 文件：第 {line} 行有 "[" 而没有 "]"。', severity="error",
    ),
    Message(
        "E333", "ini-line", "error:checkpoint", "path line found",
        '"{path}" is no readable INI file: line {line} must be a section or NAME = VALUE, found {found!r}.',
        '"{path}" 不是可读的 INI 文件：第 {line} 行必须是节或 NAME = VALUE，实际为 {found!r}。', severity="error",
    ),
    Message(
        "E334", "python-settings-too-large", "error:checkpoint", "path limit",
        '"{path}" has more than {limit} bytes; it is no settings file.',
        '"{path}" 超过 {limit} 字节；不是配置文件。', severity="error",
    ),
    Message(
        "E335", "python-settings-unreadable", "error:checkpoint", "path problem",
        '"{path}" is no readable Python file: {problem}.',
        '"{path}" 不是可读的 Python 文件：{problem}。', severity="error",
    ),
    Message(
        "E336", "settings-form", "error:checkpoint", "path type",
        '"{path}" must hold names and values, found a {type}.',
        '"{path}" 中必须是名称和值，实际为 {type}。', severity="error",
    ),
    Message(
        "E337", "settings-too-deep", "error:checkpoint", "source",
        '"{source}" is nested too deep, or holds too many values, for a settings file.',
        '作为配置文件，"{source}" 嵌套过深或值过多。', severity="error",
    ),
    Message(
        "E338", "log-arguments", "error:checkpoint", "files",
        "-vv takes one log, or a YAML file and a log, in this order; found {files} files.",
        "-vv 接受一个日志，或依次给出 YAML 文件和日志；实际为 {files} 个文件。", severity="error",
    ),
    Message(
        "E339", "log-arguments-order", "error:checkpoint", "file",
        '-vv takes a YAML file and then a log; "{file}" is no .yaml file.',
        '-vv 依次接受 YAML 文件和日志；"{file}" 不是 .yaml 文件。', severity="error",
    ),
    Message(
        "E340", "wanted-values-form", "error:checkpoint", "file",
        '"{file}" must hold names and wanted values.',
        '"{file}" 中必须是名称和期望值。', severity="error",
    ),
    Message(
        "E341", "no-log-name", "error:checkpoint", "path",
        '"{path}" is no log: its name must end in .log or .txt.',
        '"{path}" 不是日志：名称后缀必须是 .log 或 .txt。', severity="error",
    ),
    Message(
        "E342", "log-too-large", "error:checkpoint", "path limit",
        '"{path}" has more than {limit} bytes; cut out the lines with the configuration.',
        '"{path}" 超过 {limit} 字节；请截取含配置的部分。', severity="error",
    ),
    Message(
        "E343", "log-without-configuration", "error:checkpoint", "path",
        "\"{path}\" has no dict that starts with 'actor_rollout_ref'; is it a log of verl?",
        "\"{path}\" 中没有以 'actor_rollout_ref' 开头的字典；它是 verl 的日志吗？", severity="error",
    ),
    Message(
        "E344", "log-configuration-no-plain-dict", "error:checkpoint", "path",
        '"{path}": the printed configuration is no dict of plain values.',
        '"{path}"：打印的配置不是由普通值组成的字典。', severity="error",
    ),
    Message(
        "E345", "log-configuration-no-dict", "error:checkpoint", "path",
        '"{path}": the printed configuration is no dict.',
        '"{path}"：打印的配置不是字典。', severity="error",
    ),
    Message(
        "E346", "log-configuration-too-deep", "error:checkpoint", "path",
        '"{path}": the printed configuration is nested too deep.',
        '"{path}"：打印的配置嵌套过深。', severity="error",
    ),
    Message(
        "E347", "log-brackets-open", "error:checkpoint", "path",
        '"{path}": the brackets of the printed configuration are not closed; the log may be cut off.',
        '"{path}"：打印的配置括号没有闭合；日志可能被截断。', severity="error",
    ),
    Message(
        "E348", "log-without-arguments", "error:checkpoint", "path",
        '"{path}" has no list of arguments between the lines "arguments" and "end of arguments".',
        '"{path}" 在 "arguments" 与 "end of arguments" 两行之间没有参数列表。', severity="error",
    ),
    Message(
        "E349", "fmk-of-compare", "error:checkpoint", "fmk",
        'ConfigChecker.compare(): fmk must be "pytorch" or "mindspore", found {fmk!r:.80}.',
        'ConfigChecker.compare()：fmk 必须是 "pytorch" 或 "mindspore"，实际为 {fmk!r:.80}。', severity="error",
    ),
    Message(
        "E350", "config-check-of-graph", "error:checkpoint", "",
        "config_check: the model runs as a compiled graph, whose forward passes are not seen; call collect(*inputs) of the ConfigChecker before each step to have its inputs and weights in the pack.",
        "config_check：模型以编译图运行，看不到其前向；请在每个 step 之前调用 ConfigChecker 的 collect(*inputs)，使包中含有其输入和权重。", severity="warning",
    ),
    Message(
        "E351", "config-check-without-forward", "error:checkpoint", "",
        "config_check: no forward pass of the model was seen, so the pack has neither its weights nor inputs. Compile a model before you give it to ConfigChecker; where methods other than model(...) are called, call collect(*inputs).",
        "config_check：没有看到模型的前向，因此包中没有其权重和输入。请在交给 ConfigChecker 之前编译模型；如果调用的不是 model(...)，请调用 collect(*inputs)。", severity="warning",
    ),
    Message(
        "E352", "config-check-ends", "error:checkpoint", "problem",
        "config_check ends its collection: {problem}",
        "config_check 结束收集：{problem}", severity="error",
    ),
    Message(
        "E353", "fmk-unknown", "error:checkpoint", "names found near",
        "fmk must be one of {names}, found {found!r:.80}{near}",
        "fmk 必须是 {names} 之一，实际为 {found!r:.80}{near}", severity="error",
    ),
    Message(
        "E354", "config-check-of-wrong-cell", "error:checkpoint", "kind",
        "ConfigChecker: model must be a mindspore.nn.Cell, or a list of them, found {kind}.",
        "ConfigChecker：model 必须是 mindspore.nn.Cell，或由它们组成的列表，实际为 {kind}。", severity="error",
    ),
    Message(
        "E355", "random-calls-not-counted", "error:checkpoint", "problem",
        "config_check: calls of random functions are not counted: {problem}",
        "config_check：不统计随机函数的调用：{problem}", severity="error",
    ),
    Message(
        "E356", "settings-of-wrong-class", "error:checkpoint", "kind",
        "settings must be a dict, a namespace of arguments, a dataclass or a configuration, or a list of those; found {kind}.",
        "settings 必须是 dict、参数的命名空间、dataclass 或配置，或由它们组成的列表；实际为 {kind}。", severity="error",
    ),
    Message(
        "E357", "folder-has-more-than-result", "error:checkpoint", "folder path",
        '"{folder}" holds more than an earlier result of config_check ("{path}"); nothing was written or removed, give a different -o.',
        '"{folder}" 中除了此前 config_check 的结果还有其他内容（"{path}"）；没有写入或删除任何内容，请给出别的 -o。', severity="error",
    ),
)

PIECES: tuple[Piece, ...] = (
    Piece("pack-entry-unknown", "name", "a pack has no entry {name!r}", "打包文件没有条目 {name!r}"),
)
