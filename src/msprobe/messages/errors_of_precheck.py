"""Errors and warnings of the pre-check of calls (P1)."""

from __future__ import annotations

from msprobe.messages.entry import Message, Piece

# fmt: off
MESSAGES: tuple[Message, ...] = (
    Message(
        "P101", "recorded-results-missing", "error:precheck", "recorded dump",
        '--candidate {recorded} judges the results in a dump, and "{dump}" has none of their values; record it with task tensor.',
        '--candidate {recorded} 判定 dump 中的结果，而 "{dump}" 没有结果的数值；请以 task tensor 采集。', severity="error",
    ),
    Message(
        "P102", "recorded-results-needed", "error:precheck", "recorded",
        "--candidate {recorded} judges recorded results; it needs a dump with their values (task tensor).",
        "--candidate {recorded} 判定采集的结果；需要含有其数值的 dump（task tensor）。", severity="error",
    ),
    Message(
        "P103", "not-checked-with-mindspore", "error:precheck", "apis more",
        "not checked with MindSpore, and without a row: {apis}{more}.",
        "不以 MindSpore 检查，因此没有行：{apis}{more}。", severity="note",
    ),
    Message(
        "P104", "no-accelerator", "warning:work", "",
        "no accelerator was found: this CPU itself is checked, and a pass says nothing of the device that made the dump. Run this on that device, or judge the results that a dump of task tensor holds with --candidate recorded.",
        "没有找到加速设备：检查的是本机 CPU 自身，通过并不说明产生 dump 的设备正确。请在该设备上运行，或用 --candidate recorded 判断 task tensor 的 dump 中的结果。", severity="warning",
    ),
    Message(
        "P105", "check-continued-differently", "error:precheck", "how",
        "-csv_path: this check was made {how}; continue it the same way, or start a new one.",
        "-csv_path：此检查{how}；请以同样方式继续，或重新开始。", severity="error",
    ),
    Message(
        "P106", "control-file-missing", "error:precheck", "control",
        '-csv_path: "{control}", which holds the results of the control, is missing; start a new check.',
        '-csv_path：缺少含有对照结果的 "{control}"；请重新检查。', severity="error",
    ),
    Message(
        "P107", "appended-with-other-choices", "warning:work", "choices",
        "-csv_path: the appended calls have a different {choices}.",
        "-csv_path：追加的调用使用不同的 {choices}。", severity="warning",
    ),
    Message(
        "P108", "node-process-lost", "warning:work", "call more",
        "the process of a node that was checking {call} and {more} more is lost.",
        "一个节点的进程丢失，它当时正在检查 {call} 及另外 {more} 个调用。", severity="warning",
    ),
    Message(
        "P109", "control-seed-differs", "error:precheck", "control seeds seed",
        '--control "{control}" was made with --seed {seeds}, and this check has {seed}: their arguments differ. Check both with the same seed.',
        '--control "{control}" 使用 --seed {seeds}，本次检查为 {seed}：参数不同。请以相同的 seed 检查。', severity="error",
    ),
    Message(
        "P110", "control-without-calls", "error:precheck", "control",
        '--control "{control}" has no row of the calls that are checked; give the details file of a check of the same calls.',
        '--control "{control}" 没有本次检查的调用的行；请给出检查相同调用的 details 文件。', severity="error",
    ),
    Message(
        "P111", "control-of-different-dump", "error:precheck", "control",
        '--control "{control}" was made from a different dump: its calls have other arguments. Check the same dump on both sides.',
        '--control "{control}" 来自不同的 dump：调用的参数不同。请在两侧检查同一 dump。', severity="error",
    ),
    Message(
        "P112", "details-unreadable", "error:precheck", "option path problem",
        '{option} "{path}" is no readable csv file: {problem}.',
        '{option} "{path}" 不是可读的 csv 文件：{problem}。', severity="error",
    ),
    Message(
        "P113", "details-lack-columns", "error:precheck", "option path missing",
        '{option} "{path}" lacks the columns {missing}; give an accuracy_checking_details_*.csv.',
        '{option} "{path}" 缺少 {missing} 列；请给出 accuracy_checking_details_*.csv。', severity="error",
    ),
    Message(
        "P114", "details-row-short", "error:precheck", "option path row cells columns",
        '{option} "{path}": row {row} has {cells} of {columns} cells; the file is incomplete.',
        '{option} "{path}"：第 {row} 行只有 {cells} 格，应为 {columns} 格；文件不完整。', severity="error",
    ),
    Message(
        "P115", "details-rows-twice", "error:precheck", "option path twice more",
        '{option} "{path}" has several rows of {twice}{more}; each API may be in it only once.',
        '{option} "{path}" 中 {twice}{more}有多行；每个 API 只能出现一次。', severity="error",
    ),
    Message(
        "P116", "details-of-different-standard", "error:precheck", "option path found wanted words",
        '{option} "{path}" was made with the standard {found}; for the standard {wanted} make it with {words}.',
        '{option} "{path}" 按标准 {found} 生成；标准 {wanted} 需要以 {words} 生成。', severity="error",
    ),
    Message(
        "P117", "executor-fault-wrong", "error:precheck", "option text problem",
        "{option} {text!r}: {problem}; write each behind `inject:`.",
        "{option} {text!r}：{problem}；每个都写在 `inject:` 之后。", severity="error",
    ),
    Message(
        "P118", "script-has-one-python", "error:precheck", "option text python",
        "{option} {text!r}: a script runs in the Python that starts it; leave {option} out and start the script with {python}.",
        "{option} {text!r}：脚本在启动它的 Python 中运行；请去掉 {option}，并用 {python} 启动脚本。", severity="error",
    ),
    Message(
        "P119", "fault-ends-worker", "error:precheck", "option text kind",
        "{option} {text!r}: {kind} ends a worker of run_ut and is no fault of a script.",
        "{option} {text!r}：{kind} 会结束 run_ut 的工作进程，不适用于脚本。", severity="error",
    ),
    Message(
        "P120", "mindspore-type-unknown", "error:precheck", "path dtype",
        "argument {path}: MindSpore has no type {dtype!r}.",
        "参数 {path}：MindSpore 没有类型 {dtype!r}。", severity="error",
    ),
    Message(
        "P121", "mindspore-api-unknown", "error:precheck", "version prefix name",
        "MindSpore {version} has no API {prefix}.{name}.",
        "MindSpore {version} 没有 API {prefix}.{name}。", severity="error",
    ),
    Message(
        "P122", "argument-cannot-be-made", "error:precheck", "path kind value",
        "argument {path}: a value of type {kind} ({value!r}) cannot be made again.",
        "参数 {path}：类型为 {kind} 的值（{value!r}）无法重新生成。", severity="error",
    ),
    Message(
        "P123", "not-for-mindspore", "error:precheck", "mistakes",
        "not available for a MindSpore dump, leave it out: {mistakes}.",
        "不适用于 MindSpore 的 dump，请去掉：{mistakes}。", severity="error",
    ),
    Message(
        "P124", "workers-not-usable", "warning:work", "count message",
        "{count} could not be used, and the others made their calls: {message}",
        "{count}无法使用，全部调用由其余进程执行：{message}", severity="warning",
    ),
    Message(
        "P125", "key-without-direction", "error:precheck", "path name forward backward",
        '"{path}": the key {name!r} ends in neither {forward} nor {backward}; a dump of level L1 or mix is needed.',
        '"{path}"：键 {name!r} 的后缀不是 {forward} 或 {backward}；需要 level L1 或 mix 的 dump。', severity="error",
    ),
    Message(
        "P126", "api-info-file-missing", "error:precheck", "given hint",
        'api_info_file "{given}" does not exist; {hint}',
        'api_info_file "{given}" 不存在；{hint}', severity="error",
    ),
    Message(
        "P127", "api-info-ending", "error:precheck", "given",
        'api_info_file "{given}" must end in .json; give the dump.json of a step and rank.',
        'api_info_file "{given}" 的后缀必须是 .json；请给出某个 step 与 rank 的 dump.json。', severity="error",
    ),
    Message(
        "P128", "dump-without-data", "error:precheck", "path",
        '"{path}" has no key "data"; it is no dump.',
        '"{path}" 没有键 "data"；不是 dump。', severity="error",
    ),
    Message(
        "P129", "samples-not-listed", "error:precheck", "problem",
        "the samples cannot be listed: {problem}",
        "无法列出样例：{problem}", severity="error",
    ),
    Message(
        "P130", "api-not-in-dump", "error:precheck", "path api near",
        '"{path}" has no API {api!r}; {near}.',
        '"{path}" 没有 API {api!r}；{near}。', severity="error",
    ),
    Message(
        "P131", "no-script-of-api", "error:precheck", "api why",
        "no script can be made of {api!r}: {why}.",
        "无法为 {api!r} 生成脚本：{why}。", severity="error",
    ),
    Message(
        "P132", "no-backward-of-api", "error:precheck", "path api",
        '"{path}" has no backward of {api!r}; choose propagation forward.',
        '"{path}" 没有 {api!r} 的反向；请选择前向。', severity="error",
    ),
    Message(
        "P133", "no-script-of-what-is-not-run", "error:precheck", "call",
        "no script can be made of {call!r}: it is no API that can be run.",
        "无法为 {call!r} 生成脚本：它不是可运行的 API。", severity="error",
    ),
    Message(
        "P134", "no-script-of-random", "error:precheck", "call",
        "no script can be made of {call!r}: it draws random numbers, so two healthy runs differ; run_ut compares the distribution of its results.",
        "无法为 {call!r} 生成脚本：它使用随机数，两次正常运行也不同；run_ut 比较其结果的分布。", severity="error",
    ),
    Message(
        "P135", "no-script-of-function-alone", "error:precheck", "call",
        "no script can be made of {call!r} alone: a record of an autograd Function has only the name of its class; give --load FILE.py, or a module, that has the class.",
        "仅凭 {call!r} 无法生成脚本：autograd Function 的记录只有类名；请用 --load FILE.py 或模块给出该类。", severity="error",
    ),
    Message(
        "P136", "no-script-of-unlisted", "error:precheck", "call",
        "no script can be made of {call!r}: it is no API that can be run (no list of torch's computations has it).",
        "无法为 {call!r} 生成脚本：它不是可运行的 API（不在 torch 的计算列表中）。", severity="error",
    ),
    Message(
        "P137", "argument-kind-unknown", "error:precheck", "call path value kind",
        "{call}, argument {path}: {value!a} is no known {kind}.",
        "{call} 的参数 {path}：{value!a} 不是已知的 {kind}。", severity="error",
    ),
    Message(
        "P138", "argument-type-unknown", "error:precheck", "call path dtype",
        "{call}, argument {path}: {dtype!a} is no known element type.",
        "{call} 的参数 {path}：{dtype!a} 不是已知的元素类型。", severity="error",
    ),
    Message(
        "P139", "argument-too-large", "error:precheck", "call path shape free",
        "{call}, argument {path}: values for its shape {shape} take more than the {free:.3g} GiB of memory that are free here.",
        "{call} 的参数 {path}：shape {shape} 的数值所需内存超过此处剩余的 {free:.3g} GiB。", severity="error",
    ),
    Message(
        "P140", "real-data-missing", "error:precheck", "path",
        '"{path}" has no values of tensors (task tensor), which data_mode real_data needs; give the dump itself as "dump_json_path", or choose random_data.',
        '"{path}" 没有 data_mode real_data 所需的张量数值（task tensor）；请以 "dump_json_path" 给出 dump 本身，或选择 random_data。', severity="error",
    ),
    Message(
        "P141", "config-without-section", "warning:work", "name title",
        '{name} has no section "{title}"; nothing else in it is used here.',
        '{name} 没有 "{title}" 部分；其他内容在此不使用。', severity="warning",
    ),
    Message(
        "P142", "samples-missing", "error:precheck", "version problem",
        "torch {version} has no samples of its own: {problem}.",
        "torch {version} 没有自带样例：{problem}。", severity="error",
    ),
    Message(
        "P143", "samples-of-operator-missing", "error:precheck", "version missing hint",
        "torch {version} has no samples of {missing}{hint}.",
        "torch {version} 没有 {missing} 的样例{hint}。", severity="error",
    ),
    Message(
        "P144", "function-option-form", "error:precheck", "option text",
        "{option} {text!r} must be FILE.py:FUNCTION, of a file that exists.",
        "{option} {text!r} 必须是 FILE.py:FUNCTION，且文件存在。", severity="error",
    ),
    Message(
        "P145", "function-not-loaded", "error:precheck", "option text why",
        "{option} {text!r} cannot be loaded: {why}.",
        "无法加载 {option} {text!r}：{why}。", severity="error",
    ),
    Message(
        "P146", "function-not-in-file", "error:precheck", "option text file name",
        '{option} {text!r}: "{file}" has no function {name!r}.',
        '{option} {text!r}："{file}" 没有函数 {name!r}。', severity="error",
    ),
    Message(
        "P147", "load-failed", "error:precheck", "what type problem",
        "--load {what!r} cannot be loaded: {type}: {problem}.",
        "无法加载 --load {what!r}：{type}：{problem}。", severity="error",
    ),
    Message(
        "P148", "verdict-has-no-findings", "error:precheck", "path",
        '"{path}" has no findings: there is nothing to reproduce.',
        '"{path}" 没有问题项：没有可复现的内容。', severity="error",
    ),
    Message(
        "P149", "finding-number-out-of-range", "error:precheck", "number path findings",
        '--finding {number}: "{path}" has the findings 1 to {findings}.',
        '--finding {number}："{path}" 有问题项 1 到 {findings}。', severity="error",
    ),
    Message(
        "P150", "finding-names-no-api", "error:precheck", "number path entry",
        'finding {number} of "{path}" names {entry!r}, which is no call of an API and no pass of a module; choose a different one with --finding.',
        '"{path}" 的问题项 {number} 指出 {entry!r}，它不是 API 调用，也不是模块的执行；请用 --finding 选择另一项。', severity="error",
    ),
    Message(
        "P151", "finding-not-in-dump", "error:precheck", "number path place where",
        'finding {number} of "{path}" is in {place}, which "{where}" does not have (any more); name the dump that has it with --dump.',
        '"{path}" 的问题项 {number} 在 {place}，而 "{where}" 中（已）没有；请用 --dump 给出含有它的 dump。', severity="error",
    ),
    Message(
        "P152", "finding-names-no-leaf", "error:precheck", "number path entry",
        'finding {number} of "{path}" names {entry!r}, which is no leaf module; choose a different one with --finding, or record level mix, where the calls in it have their own records.',
        '"{path}" 的问题项 {number} 指出 {entry!r}，它不是叶子模块；请用 --finding 选择另一项，或以 level mix 采集，使其中的调用有各自的记录。', severity="error",
    ),
    Message(
        "P153", "verdict-is-no-verdict", "error:precheck", "path",
        '"{path}" is no verdict: give the verdict.json that `msprobe compare CANDIDATE REFERENCE -o DIR` writes to DIR.',
        '"{path}" 不是结论：请给出 `msprobe compare CANDIDATE REFERENCE -o DIR` 写入 DIR 的 verdict.json。', severity="error",
    ),
    Message(
        "P154", "verdict-without-dumps", "error:precheck", "path",
        '"{path}" does not say where its dumps are; name one with --dump.',
        '"{path}" 没有说明 dump 在哪里；请用 --dump 给出。', severity="error",
    ),
    Message(
        "P155", "result-name-wrong", "error:precheck", "result",
        '-csv_path "{result}": the name must be accuracy_checking_result_<14 digits>.csv.',
        '-csv_path "{result}"：名称必须是 accuracy_checking_result_<14 位数字>.csv。', severity="error",
    ),
    Message(
        "P156", "details-missing", "error:precheck", "details path",
        '"{details}" does not exist; it belongs to "{path}", and both are continued together.',
        '"{details}" 不存在；它属于 "{path}"，两者须一起继续。', severity="error",
    ),
    Message(
        "P157", "result-header-wrong", "error:precheck", "path",
        '-csv_path: "{path}" does not have the header of such a check, so nothing is appended to it; give the file of a check of this dump, or leave -csv_path out.',
        '-csv_path："{path}" 的表头与本检查不符，因此不追加；请给出本 dump 的检查文件，或去掉 -csv_path。', severity="error",
    ),
)

PIECES: tuple[Piece, ...] = (
    Piece("lists-too-deep", "deepest", "lists are nested more than {deepest} deep", "列表嵌套超过 {deepest} 层"),
    Piece("recorder-could-not-describe", "why", "the recorder could not describe it ({why})", "采集器无法描述它（{why}）"),
    Piece("shape-is-no-lengths", "shape", "shape {shape!r:.200} is no list of lengths", "shape {shape!r:.200} 不是长度列表"),
    Piece("dtype-is-no-text", "dtype", "dtype {dtype!r:.200} is no text", "dtype {dtype!r:.200} 不是文本"),
    Piece("no-device", "device", "{device!r} is no device", "{device!r} 不是设备"),
    Piece("no-extremes-recorded", "", "no Max and Min are recorded", "没有采集 Max 和 Min"),
    Piece("values-cannot-be-made", "dtype", "values of type {dtype} cannot be made", "无法生成类型为 {dtype} 的数值"),
    Piece("extremes-not-finite", "", "the recorded extremes of whole numbers are not finite", "采集的整数极值不是有限值"),
    Piece("min-above-max", "low high", "the recorded Min {low} is above Max {high}", "采集的 Min {low} 大于 Max {high}"),
    Piece("min-above-max-of-floats", "low high", "the recorded Min {low:g} is above Max {high:g}", "采集的 Min {low:g} 大于 Max {high:g}"),
    Piece("memory-too-small", "needed free", "the check takes about {needed:.3g} GiB of memory, and {free:.3g} GiB are free here", "检查约需 {needed:.3g} GiB 内存，此处剩余 {free:.3g} GiB"),
    Piece("results-without-extremes", "", "its results have no Max and Min", "其结果没有 Max 和 Min"),
    Piece("record-of-entry-is-no-object", "entry", "the record of {entry} is no object", "{entry} 的记录不是对象"),
    Piece("arguments-form", "", "input_args must be a list and input_kwargs an object", "input_args 必须是列表，input_kwargs 必须是对象"),
    Piece("name-form", "key", "the name {key!r} does not have the form Type.name.number", "名称 {key!r} 不是 Type.name.number 的形式"),
    Piece("number-missing", "column side what", "{column} of the {side} {what}.", "{side}的 {column} {what}。"),
    Piece("api-without-implementation", "name", "{name} of torch_npu has no implementation for other devices", "torch_npu 的 {name} 没有其他设备上的实现"),
    Piece("api-type-unknown", "prefix", "{prefix!r} is no known type of API", "{prefix!r} 不是已知的 API 类型"),
    Piece("api-not-run", "prefix name", "{prefix}.{name} is no API that can be run", "{prefix}.{name} 不是可运行的 API"),
    Piece("api-not-in-torch", "prefix name version", "{prefix}.{name} does not exist in torch {version}", "torch {version} 中没有 {prefix}.{name}"),
    Piece("api-is-no-function", "prefix name", "{prefix}.{name} is no function", "{prefix}.{name} 不是函数"),
    Piece("api-in-no-list", "prefix name", "{prefix}.{name} is no API that can be run: no list has it", "{prefix}.{name} 不是可运行的 API：不在任何列表中"),
    Piece("hif8-not-here", "", "hif8 is a type of Ascend NPUs, which torch cannot make and the CPU cannot compute with", "hif8 是 Ascend NPU 的类型，torch 无法创建，CPU 也无法计算"),
    Piece("torch-type-unknown", "version dtype", "torch {version} has no type {dtype!r}", "torch {version} 没有类型 {dtype!r}"),
    Piece("too-many-elements", "elements", "{elements} elements are more than one tensor of a check may have", "{elements} 个元素超过检查中单个张量的上限"),
    Piece("file-shape-differs", "file shape recorded", '"{file}" has the shape {shape}, the record {recorded}', '"{file}" 的 shape 为 {shape}，记录中为 {recorded}'),
    Piece("value-cannot-be-made", "path kind value", "argument {path}: a value of type {kind} ({value!r}) cannot be made again", "参数 {path}：类型为 {kind} 的值（{value!r}）无法重新生成"),
    Piece("gradients-of-operator", "found given", "the backward of --operators gives {found} gradients, not {given}", "--operators 的反向给出 {found} 个梯度，而不是 {given} 个"),
    Piece("module-cannot-be-made", "word", "{word} is no module that can be made from its record", "无法从记录创建模块 {word}"),
    Piece("pass-without-argument", "word", "the pass of {word} has no argument", "{word} 的执行没有参数"),
    Piece("convolution-needs-shapes", "", "a convolution needs the shapes of its argument and result", "卷积需要其参数和结果的 shape"),
    Piece("convolution-argument-shape", "dimensions shape", "a convolution of {dimensions} dimensions cannot have an argument of shape {shape}", "{dimensions} 维卷积不能有 shape 为 {shape} 的参数"),
    Piece("convolution-does-not-fit", "result length kernel", "no usual stride and padding make {result} of {length} with a kernel of {kernel}", "没有常用的 stride 与 padding 能以大小为 {kernel} 的卷积核从 {length} 得到 {result}"),
    Piece("recurrent-needs-weights", "", "a recurrent module needs a tensor, its weights and no projection", "循环模块需要张量及其权重，且不能有投影"),
    Piece("recurrent-without-batch", "", "a recurrent module without a batch is not made from its record", "没有 batch 的循环模块不能从记录创建"),
    Piece("record-without-weight", "", "the record has no parameter weight", "记录中没有参数 weight"),
    Piece("draws-differ", "reference candidate", "it draws {reference} times, and the candidate {candidate} times", "标杆侧抽取随机数 {reference} 次，待比对侧 {candidate} 次"),
    Piece("draws-by-different-function", "function", "it draws by {function}, which the candidate did not do there", "标杆侧用 {function} 抽取随机数，待比对侧在该处没有"),
    Piece("draws-into-different-shape", "function shape earlier", "{function} writes to the shape {shape}, and before to {earlier}", "{function} 写入 shape {shape}，之前为 {earlier}"),
    Piece("type-too-narrow", "", "the results are rounded to a narrower type than finite differences need.", "结果舍入到的类型比有限差分所需的更窄。"),
    Piece("no-result-depends", "", "no result depends on the arguments.", "没有结果依赖参数。"),
    Piece("two-runs-differ", "", "two runs of the call differ.", "两次执行该调用的结果不同。"),
    Piece("no-derivative", "", "the function has no derivative there.", "函数在该处没有导数。"),
)
