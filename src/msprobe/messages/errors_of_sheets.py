"""Errors and warnings of comparisons and their sheets (A2)."""

from __future__ import annotations

from msprobe.messages.entry import Message, Piece

# fmt: off
MESSAGES: tuple[Message, ...] = (
    Message(
        "A201", "task-unknown", "error:input", "task",
        "the task {task!r} is not known.",
        "未知的 task {task!r}。", severity="error",
    ),
    Message(
        "A202", "framework-not-named", "error:input", "path named frameworks",
        '"{path}": field "framework" is {named!r} and no tensor names the framework; expected one of {frameworks}.',
        '"{path}"：字段 "framework" 为 {named!r}，且没有张量表明框架；应为 {frameworks} 之一。', severity="error",
    ),
    Message(
        "A203", "kernel-folder-missing", "error:input", "folder",
        'folder "{folder}" does not exist; give the folder of a dump, or of converted files.',
        '文件夹 "{folder}" 不存在；请给出 dump 文件夹，或转换后文件的文件夹。', severity="error",
    ),
    Message(
        "A204", "no-kernel-files", "error:input", "folder",
        'folder "{folder}" holds no .npy, .pt or dump file of a kernel.',
        '文件夹 "{folder}" 中没有算子的 .npy、.pt 或 dump 文件。', severity="error",
    ),
    Message(
        "A205", "same-folder-twice", "error:input", "",
        "-m and -g are the same folder; give two.",
        "-m 与 -g 是同一文件夹；请给出两个。", severity="error",
    ),
    Message(
        "A206", "kernel-dump-folder-missing", "error:input", "field base",
        '{field}: folder "{base}" does not exist; give the folder of a kernel dump.',
        '{field}：文件夹 "{base}" 不存在；请给出算子 dump 的文件夹。', severity="error",
    ),
    Message(
        "A207", "no-kernel-dump-below", "error:input", "field base",
        '{field}: folder "{base}" holds no kernel dump: no rank_0/NET/GRAPH/STEP below it.',
        '{field}：文件夹 "{base}" 中没有算子 dump：其下没有 rank_0/NET/GRAPH/STEP。', severity="error",
    ),
    Message(
        "A208", "places-of-one-side", "warning:work", "side places",
        "only the {side} has {places}; they are not compared.",
        "仅{side}有 {places}；不比对。", severity="warning",
    ),
    Message(
        "A209", "no-common-place", "error:input", "asked",
        "the two kernel dumps have no rank and step in common{asked}.",
        "两份算子 dump 没有共同的 rank 与 step{asked}。", severity="error",
    ),
    Message(
        "A210", "kernels-missing", "error:input", "place statistics_file",
        '"{place}" holds neither .npy files of kernels nor rows in a {statistics_file}.',
        '"{place}" 中既没有算子的 .npy 文件，{statistics_file} 中也没有行。', severity="error",
    ),
    Message(
        "A211", "files-without-kernel-name", "warning:work", "count folder",
        '{count} .npy files in "{folder}" do not have the name of a kernel and are left out.',
        '"{folder}" 中有 {count} 个 .npy 文件的名称不是算子名称，已略过。', severity="warning",
    ),
    Message(
        "A212", "statistics-file-wrong", "error:input", "path what statistics_file least_columns",
        '"{path}" {what}; a {statistics_file} of MindSpore has {least_columns} or more.',
        '"{path}" {what}；MindSpore 的 {statistics_file} 有 {least_columns} 列或更多。', severity="error",
    ),
    Message(
        "A213", "csv-row-length", "error:input", "path line cells columns",
        '"{path}":{line}: the row has {cells} cells, the header {columns}.',
        '"{path}":{line}：该行有 {cells} 格，表头有 {columns} 格。', severity="error",
    ),
    Message(
        "A214", "api-mapping-not-in-candidate", "warning:work", "api",
        "api mapping: {api} is not in the candidate; this entry has no effect.",
        "api mapping：待比对侧没有 {api}；该条目无效。", severity="warning",
    ),
    Message(
        "A215", "api-mapping-not-in-reference", "warning:work", "api",
        "api mapping: {api} is not in the reference; this entry has no effect.",
        "api mapping：标杆侧没有 {api}；该条目无效。", severity="warning",
    ),
    Message(
        "A216", "api-mapping-twice", "warning:work", "api",
        "api mapping: {api} is mapped twice; the first entry counts.",
        "api mapping：{api} 映射了两次；以第一条为准。", severity="warning",
    ),
    Message(
        "A217", "data-mapping-unknown", "warning:work", "side unknown more",
        "data mapping: the {side} has no tensor {unknown}{more}.",
        "data mapping：{side}没有张量 {unknown}{more}。", severity="warning",
    ),
    Message(
        "A218", "api-mapping-empty", "error:input", "source",
        "{source}: the api mapping is an empty list; expected entries with ms_api and pt_api.",
        "{source}：api mapping 是空列表；应为含 ms_api 和 pt_api 的条目。", severity="error",
    ),
    Message(
        "A219", "api-mapping-entry-left-out", "warning:work", "where text",
        "{where} {text}; this entry of the api mapping is left out.",
        "{where} {text}；api mapping 的该条目已略过。", severity="warning",
    ),
    Message(
        "A220", "mapping-argument-wrong", "error:input", "argument given type",
        "argument {argument}: must be the path of a .yaml file or an object, found {given} ({type}).",
        "参数 {argument}：必须是 .yaml 文件的路径或对象，实际为 {given}（{type}）。", severity="error",
    ),
    Message(
        "A221", "results-folder-missing", "error:input", "folder",
        'folder "{folder}" does not exist; give the folder with the results of compare.',
        '文件夹 "{folder}" 不存在；请给出 compare 结果的文件夹。', severity="error",
    ),
    Message(
        "A222", "several-results-of-rank", "warning:work", "rank folder newer older",
        '{rank} has several results in "{folder}"; "{newer}" is read and "{older}" is not.',
        '{rank} 在 "{folder}" 中有几个结果；读取 "{newer}"，不读取 "{older}"。', severity="warning",
    ),
    Message(
        "A223", "no-results-of-ranks", "error:input", "folder",
        'folder "{folder}" holds no results of ranks; they are called compare_result_rank0_{{time}}.xlsx or .csv.',
        '文件夹 "{folder}" 中没有各 rank 的结果；文件名应为 compare_result_rank0_{{time}}.xlsx 或 .csv。', severity="error",
    ),
    Message(
        "A224", "results-of-two-kinds", "error:input", "first first_mode path mode",
        '"{first}" compares {first_mode} and "{path}" {mode}; only results of one kind can be merged.',
        '"{first}" 比对的是 {first_mode}，"{path}" 是 {mode}；只能合并同一种结果。', severity="error",
    ),
    Message(
        "A225", "results-without-apis", "error:input", "folder apis",
        'none of the results in "{folder}" has a tensor of {apis}.',
        '"{folder}" 的结果中没有 {apis} 的张量。', severity="error",
    ),
    Message(
        "A226", "result-of-digests", "error:input", "path",
        '"{path}" compares digests (md5); it has no metrics to merge.',
        '"{path}" 比对的是摘要（md5）；没有可合并的指标。', severity="error",
    ),
    Message(
        "A227", "no-result-of-compare", "error:input", "path",
        '"{path}" is no result of compare: it has neither "Max diff" nor "Cosine" among its columns.',
        '"{path}" 不是 compare 的结果：列中既没有 "Max diff" 也没有 "Cosine"。', severity="error",
    ),
    Message(
        "A228", "metric-not-in-result", "error:input", "path mode missing there",
        'compare_index: "{path}" compares {mode} and has no {missing}; it has {there}.',
        'compare_index："{path}" 比对的是 {mode}，没有 {missing}；它有 {there}。', severity="error",
    ),
    Message(
        "A229", "result-lacks-column", "error:input", "path missing",
        '"{path}" has no column {missing}.',
        '"{path}" 没有 {missing} 列。', severity="error",
    ),
    Message(
        "A230", "calamine-missing", "error:input", "path install",
        '"{path}" is read with python-calamine, which is not installed: {install}.',
        '读取 "{path}" 需要 python-calamine，但没有安装：{install}。', severity="error",
    ),
    Message(
        "A231", "sheets-differ", "error:input", "path name",
        '"{path}": the columns of sheet "{name}" are not those of the first sheet.',
        '"{path}"：工作表 "{name}" 的列与第一个不同。', severity="error",
    ),
    Message(
        "A232", "xlsx-unreadable", "error:input", "path problem",
        '"{path}" is no readable xlsx file: {problem}.',
        '"{path}" 不是可读的 xlsx 文件：{problem}。', severity="error",
    ),
    Message(
        "A233", "multiplication-shapes", "error:input", "tensor path left_shape right_shape",
        '{tensor} cannot be multiplied by "{path}": the shapes are {left_shape} and {right_shape}.',
        '{tensor} 不能与 "{path}" 相乘：shape 为 {left_shape} 和 {right_shape}。', severity="error",
    ),
    Message(
        "A234", "metric-column-taken", "error:input", "path column",
        '"{path}": column "{column}" already exists; choose a different name.',
        '"{path}"：已有 "{column}" 列；请换一个名称。', severity="error",
    ),
    Message(
        "A235", "metric-file-name", "error:input", "path",
        '"{path}": a file with a metric must be called alg_NAME.py.',
        '"{path}"：指标文件必须名为 alg_NAME.py。', severity="error",
    ),
    Message(
        "A236", "metric-file-fails", "error:input", "path error",
        '"{path}" cannot be run: {error}.',
        '"{path}" 无法运行：{error}。', severity="error",
    ),
    Message(
        "A237", "metric-column-name", "error:input", "path name",
        '"{path}": column_name() must return a text, found {name!r}.',
        '"{path}"：column_name() 必须返回文本，实际为 {name!r}。', severity="error",
    ),
    Message(
        "A238", "metric-function-missing", "error:input", "path name",
        '"{path}" has no function {name}(); it needs column_name() and compare(n, b).',
        '"{path}" 没有函数 {name}()；需要 column_name() 和 compare(n, b)。', severity="error",
    ),
    Message(
        "A239", "metric-compare-fails", "warning:work", "path error unsupported",
        '"{path}": compare() fails: {error}; its cells are {unsupported} there.',
        '"{path}"：compare() 失败：{error}；相应单元格为 {unsupported}。', severity="warning",
    ),
    Message(
        "A240", "record-is-no-object", "error:dump", "path name found",
        '"{path}": record {name!r} must be an object, found {found}.',
        '"{path}"：记录 {name!r} 必须是对象，实际为 {found}。', severity="error",
    ),
    Message(
        "A241", "record-too-deep", "error:dump", "path name slot most_depth",
        '"{path}": record {name!r}: {slot} is nested deeper than {most_depth} levels.',
        '"{path}"：记录 {name!r}：{slot} 的嵌套超过 {most_depth} 层。', severity="error",
    ),
    Message(
        "A242", "record-statistic-wrong", "error:dump", "path name slot statistic found",
        '"{path}": record {name!r}, {slot}: {statistic} must be a number or null, found {found}.',
        '"{path}"：记录 {name!r} 的 {slot}：{statistic} 必须是数值或 null，实际为 {found}。', severity="error",
    ),
    Message(
        "A243", "record-shape-wrong", "error:dump", "path name slot found",
        '"{path}": record {name!r}, {slot}: the shape must be a list of whole numbers, found {found}.',
        '"{path}"：记录 {name!r} 的 {slot}：shape 必须是整数列表，实际为 {found}。', severity="error",
    ),
    Message(
        "A244", "field-is-no-path", "error:input", "field path",
        'field "{field}" must be the path of a file or a folder, found {path!r}.',
        '字段 "{field}" 必须是文件或文件夹的路径，实际为 {path!r}。', severity="error",
    ),
    Message(
        "A245", "path-of-field-missing", "error:input", "field path where_instead",
        'field "{field}": "{path}" does not exist.{where_instead}',
        '字段 "{field}"："{path}" 不存在。{where_instead}', severity="error",
    ),
    Message(
        "A246", "file-against-folder", "error:input", "candidate kind reference reference_kind",
        '"{candidate}" is {kind} and "{reference}" is {reference_kind}; give two files or two folders.',
        '"{candidate}" 是 {kind}，"{reference}" 是 {reference_kind}；请给出两个文件或两个文件夹。', severity="error",
    ),
    Message(
        "A247", "file-of-dump-named", "error:input", "path dump_file debug_file",
        '"{path}" must be named {dump_file} or {debug_file}.',
        '"{path}" 必须名为 {dump_file} 或 {debug_file}。', severity="error",
    ),
    Message(
        "A248", "files-of-two-kinds", "error:input", "candidate reference dump_file debug_file",
        '"{candidate}" and "{reference}" are of two kinds; compare two {dump_file} or two {debug_file}.',
        '"{candidate}" 与 "{reference}" 不是同一种文件；请比对两个 {dump_file} 或两个 {debug_file}。', severity="error",
    ),
    Message(
        "A249", "rank-counts-differ", "error:input", "candidate ranks reference reference_ranks",
        '"{candidate}" has {ranks} ranks and "{reference}" has {reference_ranks}; their number must be the same.',
        '"{candidate}" 有 {ranks} 个 rank，"{reference}" 有 {reference_ranks} 个；数量必须相同。', severity="error",
    ),
    Message(
        "A250", "no-rank-folders", "error:input", "empty hint",
        'folder "{empty}" has no rank folders (rank, rank0, rank1, ...).{hint}',
        '文件夹 "{empty}" 中没有 rank 文件夹（rank、rank0、rank1 等）。{hint}', severity="error",
    ),
    Message(
        "A251", "no-common-rank", "error:input", "candidate reference",
        '"{candidate}" and "{reference}" have no rank in common.',
        '"{candidate}" 与 "{reference}" 没有共同的 rank。', severity="error",
    ),
    Message(
        "A252", "not-rank-folders-only", "error:input", "folder listed hint",
        'folder "{folder}" must hold rank folders only (rank, rank0, rank1, ...), found {listed}.{hint}',
        '文件夹 "{folder}" 中只能有 rank 文件夹（rank、rank0、rank1 等），实际有 {listed}。{hint}', severity="error",
    ),
    Message(
        "A253", "ranks-of-one-side", "warning:work", "side listed",
        '"{side}" has no {listed}; the other side has, and they are not compared.',
        '"{side}" 没有 {listed}；另一侧有，不比对。', severity="warning",
    ),
    Message(
        "A254", "no-npy-files", "error:input", "candidate",
        'npu_path: folder "{candidate}" holds no .npy file.',
        'npu_path：文件夹 "{candidate}" 中没有 .npy 文件。', severity="error",
    ),
    Message(
        "A255", "point-file-counts-differ", "warning:work", "folder name files reference_files",
        '"{folder}": {name} has {files} files in the target and {reference_files} in the bench.',
        '"{folder}"：{name} 在待比对侧有 {files} 个文件，在标杆侧有 {reference_files} 个。', severity="warning",
    ),
    Message(
        "A256", "points-of-bench", "warning:work", "folder alone",
        '"{folder}": only the bench has {alone}.',
        '"{folder}"：只有标杆侧有 {alone}。', severity="warning",
    ),
    Message(
        "A257", "folder-of-bench", "warning:work", "folder",
        'only the bench has the sub-folder "{folder}"; it is not compared.',
        '只有标杆侧有子文件夹 "{folder}"；不比对。', severity="warning",
    ),
    Message(
        "A258", "point-folder-missing", "error:input", "field base",
        '{field}: folder "{base}" does not exist; give a folder with .npy files.',
        '{field}：文件夹 "{base}" 不存在；请给出含 .npy 文件的文件夹。', severity="error",
    ),
    Message(
        "A259", "single-save-missing", "error:input", "folder",
        'folder "{folder}" does not exist; give the dump_path of a SingleSave.',
        '文件夹 "{folder}" 不存在；请给出 SingleSave 的 dump_path。', severity="error",
    ),
    Message(
        "A260", "arrays-of-one-folder", "warning:work", "count which keys",
        "{count} arrays are only in the {which} folder and are left out; they are of: {keys}.",
        "{count} 个数组仅在{which}文件夹中，已略过；它们属于：{keys}。", severity="warning",
    ),
    Message(
        "A261", "no-common-array", "error:input", "",
        "the two folders have no array in common: no key with the same step, rank and element.",
        "两个文件夹没有共同的数组：没有 step、rank 和元素都相同的 key。", severity="error",
    ),
    Message(
        "A262", "pair-left-out", "warning:work", "message",
        "{message} This pair is left out.",
        "{message} 略过这一对。", severity="warning",
    ),
    Message(
        "A263", "stacks-are-no-object", "error:input", "path type",
        '"{path}" must hold a JSON object, found a {type}.',
        '"{path}" 必须是 JSON 对象，实际为 {type}。', severity="error",
    ),
    Message(
        "A264", "stacks-field-wrong", "error:input", "path key",
        '"{path}": field {key!r} must hold names and frames.',
        '"{path}"：字段 {key!r} 必须含有名称和调用栈。', severity="error",
    ),
    Message(
        "A265", "task-missing", "error:input", "path",
        '"{path}": field "task" is missing; it says of which kind the dump is.',
        '"{path}"：缺少字段 "task"；它说明 dump 的种类。', severity="error",
    ),
    Message(
        "A266", "tasks-differ", "error:input", "task path reference_task reference",
        'the dumps are of two tasks: {task!r} in "{path}", {reference_task!r} in "{reference}"; dump both with the same task.',
        '两份 dump 的 task 不同："{path}" 为 {task!r}，"{reference}" 为 {reference_task!r}；请以相同的 task 采集。', severity="error",
    ),
    Message(
        "A267", "task-structure-has-no-values", "error:input", "path reference",
        "the task of \"{path}\" and \"{reference}\" is 'structure': such dumps hold no values to compare; dump statistics or tensors.",
        "\"{path}\" 与 \"{reference}\" 的 task 为 'structure'：这种 dump 没有可比对的数值；请采集统计量或张量。", severity="error",
    ),
    Message(
        "A268", "task-not-comparable", "error:input", "path reference task comparable",
        'the task of "{path}" and "{reference}" is {task!r}; dumps of the tasks {comparable} can be compared.',
        '"{path}" 与 "{reference}" 的 task 为 {task!r}；可以比对 task 为 {comparable} 的 dump。', severity="error",
    ),
    Message(
        "A269", "digests-on-one-side", "error:input", "path other",
        '"{path}" was dumped with summary_mode md5 and "{other}" with statistics; dump both with the same summary_mode.',
        '"{path}" 以 summary_mode md5 采集，"{other}" 以 statistics 采集；请以相同的 summary_mode 采集。', severity="error",
    ),
    Message(
        "A270", "inference-needs-tensors", "error:input", "path task",
        '"{path}": training and inference are compared by their tensors; the task is {task!r}.',
        '"{path}"：训练与推理以张量比对；此处 task 为 {task!r}。', severity="error",
    ),
    Message(
        "A271", "tensor-without-file", "error:input", "name",
        "{name} has no data file.",
        "{name} 没有数据文件。", severity="error",
    ),
)

PIECES: tuple[Piece, ...] = (
    Piece("among-ranks-and-steps", "ranks steps", " among ranks {ranks} and steps {steps}", "（rank {ranks}，step {steps}）"),
    Piece("lacks-columns", "missing", "has no column {missing}", "没有 {missing} 列"),
    Piece("list-lengths-differ", "mine dotted theirs", "has {mine} values and {dotted} has {theirs}", "有 {mine} 个值，而 {dotted} 有 {theirs} 个"),
    Piece("no-result-of-rank", "", "no result of it is there", "没有它的结果"),
    Piece("api-on-no-rank", "", "no rank has a tensor of it", "没有任何 rank 有它的张量"),
    Piece("behind-end", "path", 'what followed the end of "{path}"', '"{path}" 结束之后的内容'),
    Piece("was-not-recorded", "", "it was not recorded", "没有采集"),
    Piece("give-step-folder", "folder", ' Give the folder of a step, such as "{folder}".', '请给出一个 step 的文件夹，如 "{folder}"。'),
    Piece("has-columns", "count", "has {count} columns", "有 {count} 列"),
    Piece("the-first", "", "first", "第一个"),
    Piece("the-second", "", "second", "第二个"),
    Piece("a-folder", "", "a folder", "文件夹"),
    Piece("a-file", "", "a file", "文件"),
    Piece("and-more-tensors", "count", " and {count} more", "等另外 {count} 个"),
)
