"""Errors, warnings and notes of graphs (A3)."""

from __future__ import annotations

from msprobe.messages.entry import Message, Piece

# fmt: off
MESSAGES: tuple[Message, ...] = (
    Message(
        "A301", "transfers-without-end", "warning:work", "count",
        "{count} transfers between two ranks have no other end on the ranks of this step.",
        "该 step 的各 rank 中，有 {count} 次 rank 间传输没有另一端。", severity="warning",
    ),
    Message(
        "A302", "no-common-step", "error:input", "field reference_field",
        "no step is in both {field} and {reference_field}.",
        "{field} 与 {reference_field} 没有共同的 step。", severity="error",
    ),
    Message(
        "A303", "graph-path-empty", "error:input", "field",
        "{field}: the path is empty; give the folder of a dump.",
        "{field}：路径为空；请给出 dump 文件夹。", severity="error",
    ),
    Message(
        "A304", "graph-folder-missing", "error:input", "field path where_instead",
        "{field}: folder {path!r} does not exist.{where_instead}",
        "{field}：文件夹 {path!r} 不存在。{where_instead}", severity="error",
    ),
    Message(
        "A305", "graph-path-is-no-folder", "error:input", "field path",
        "{field}: {path!r} is not a folder; give the folder of a dump.",
        "{field}：{path!r} 不是文件夹；请给出 dump 文件夹。", severity="error",
    ),
    Message(
        "A306", "ranks-beside-steps", "error:input", "field path listed",
        "{field}: {path!r} holds ranks and steps side by side ({listed}); give a folder of one kind, or one of them.",
        "{field}：{path!r} 中并列着 rank 与 step（{listed}）；请给出只含一种的文件夹，或其中之一。", severity="error",
    ),
    Message(
        "A307", "not-ranks-nor-steps", "error:input", "field path dump_file listed",
        "{field}: {path!r} must hold rank<N> folders, step<N> folders, or {dump_file}; found: {listed}.",
        "{field}：{path!r} 中必须有 rank<N> 文件夹、step<N> 文件夹或 {dump_file}；实际为：{listed}。", severity="error",
    ),
    Message(
        "A308", "also-in-graph-folder", "warning:work", "field path listed",
        "{field}: {path!r} also holds {listed}, which is left out.",
        "{field}：{path!r} 中还有 {listed}，已略过。", severity="warning",
    ),
    Message(
        "A309", "no-rank-folder", "error:input", "field folder listed",
        '{field}: "{folder}" holds no rank<N> folder; found: {listed}.',
        '{field}："{folder}" 中没有 rank<N> 文件夹；实际为：{listed}。', severity="error",
    ),
    Message(
        "A310", "graph-needs-file", "error:input", "field folder name",
        '{field}: "{folder}" has no {name}; a graph needs it.',
        '{field}："{folder}" 没有 {name}；构图需要它。', severity="error",
    ),
    Message(
        "A311", "graph-without-stacks", "warning:work", "field folder stack_file",
        '{field}: "{folder}" has no {stack_file}; the graph has no stacks.',
        '{field}："{folder}" 没有 {stack_file}；图中没有调用栈。', severity="warning",
    ),
    Message(
        "A312", "graph-folders-of-two-kinds", "error:input", "field kind reference_field reference_kind",
        "{field} holds {kind}, {reference_field} holds {reference_kind}; give two of one kind.",
        "{field} 中是 {kind}，{reference_field} 中是 {reference_kind}；请给出同一种。", severity="error",
    ),
    Message(
        "A313", "no-common-step-and-rank", "error:input", "sides",
        "no step and rank is on both sides: {sides}.",
        "两侧没有共同的 step 与 rank：{sides}。", severity="error",
    ),
    Message(
        "A314", "common-steps-only", "warning:work", "count",
        "only the {count} steps and ranks that both sides have are compared.",
        "只比对两侧都有的 {count} 个 step 与 rank。", severity="warning",
    ),
    Message(
        "A315", "no-graph-file-name", "error:input", "path",
        '"{path}" is no graph file: its name ends neither in .vis nor in .vis.db.',
        '"{path}" 不是图文件：文件名后缀不是 .vis 或 .vis.db。', severity="error",
    ),
    Message(
        "A316", "node-data-unreadable", "error:input", "name problem",
        "node {name!r}: its data is no readable JSON: {problem}.",
        "节点 {name!r}：其数据不是可读的 JSON：{problem}。", severity="error",
    ),
    Message(
        "A317", "copies-of-model-differ", "error:input", "copies field reference_copies reference_field",
        "the sides hold different numbers of copies of the model: {copies} in {field}, {reference_copies} in {reference_field}.",
        "两侧的模型副本数不同：{field} 有 {copies} 个，{reference_field} 有 {reference_copies} 个。", severity="error",
    ),
    Message(
        "A318", "rank-size-wrong", "error:input", "field rank_size ranks where",
        "{field}: rank_size is {rank_size}, and there are {ranks} rank folders in {where}.",
        "{field}：rank_size 为 {rank_size}，而 {where} 中有 {ranks} 个 rank 文件夹。", severity="error",
    ),
    Message(
        "A319", "ranks-not-numbered", "error:input", "field where named",
        "{field}: the ranks in {where} must be numbered from 0 on, found {named}.",
        "{field}：{where} 中的 rank 必须从 0 起连续编号，实际为 {named}。", severity="error",
    ),
    Message(
        "A320", "merge-needs-statistics", "error:input", "tasks",
        "ranks can only be merged if they were dumped as statistics; found {tasks}.",
        "只能合并 task 为 statistics 的 dump；实际为 {tasks}。", severity="error",
    ),
    Message(
        "A321", "graph-tasks-differ", "error:input", "kind reference_kind",
        "cannot compare: the debug side is {kind}, the bench side is {reference_kind}; dump both for the same task.",
        "无法比对：调试侧为 {kind}，标杆侧为 {reference_kind}；请以相同的 task 采集。", severity="error",
    ),
    Message(
        "A322", "graph-frameworks-differ", "error:input", "framework reference_framework",
        "the debug side is a dump of {framework}, the bench side one of {reference_framework}: different frameworks need --layer_mapping (-lm).",
        "调试侧是 {framework} 的 dump，标杆侧是 {reference_framework} 的：不同框架需要 --layer_mapping（-lm）。", severity="error",
    ),
    Message(
        "A323", "parallel-merge-wrong", "warning:work", "name needed",
        'compare file "{name}": parallel_merge is not {needed}; ranks are not merged.',
        '比对文件 "{name}"：parallel_merge 不是 {needed}；不合并 rank。', severity="warning",
    ),
    Message(
        "A324", "layout-is-no-object", "error:input", "where",
        "{where} must be an object with rank_size, tp and pp.",
        "{where} 必须是含 rank_size、tp 和 pp 的对象。", severity="error",
    ),
    Message(
        "A325", "parent-is-no-name", "error:input", "path name found",
        '"{path}": the parent of {name!r} must be a name or null, found {found}.',
        '"{path}"：{name!r} 的父节点必须是名称或 null，实际为 {found}。', severity="error",
    ),
    Message(
        "A326", "graph-of-interrupted", "error:input", "",
        "the dump was interrupted: what was still running has no record.",
        "dump 中断：尚未完成的内容没有记录。", severity="note",
    ),
    Message(
        "A327", "graph-without-modules", "error:input", "",
        "no modules are recorded, so all calls are side by side; dump with level L0 or mix to see modules.",
        "没有采集模块，所有调用并列显示；以 level L0 或 mix 采集可看到模块。", severity="note",
    ),
    Message(
        "A328", "records-without-place", "error:input", "count",
        "{count} records are not in construct.json; shown at the top.",
        "{count} 条记录不在 construct.json 中；显示在顶层。", severity="note",
    ),
    Message(
        "A329", "nodes-of-unknown-kind", "error:input", "records",
        "{records} of an unknown kind; shown as a module.",
        "{records}种类未知；按模块显示。", severity="note",
    ),
    Message(
        "A330", "gradients-without-backward", "error:input", "records",
        "{records} of parameters without a backward pass; shown at the top.",
        "{records}属于没有反向的参数；显示在顶层。", severity="note",
    ),
    Message(
        "A331", "passes-without-record", "error:input", "records",
        "{records} without a record: not finished.",
        "{records}没有记录：没有完成。", severity="note",
    ),
    Message(
        "A332", "modules-inside-themselves", "error:input", "records named",
        "construct.json says that {records} runs inside itself; shown at the top: {named}.",
        "construct.json 中{records}以自身为上级模块；显示在顶层：{named}。", severity="note",
    ),
    Message(
        "A333", "no-graph-database", "error:input", "path problem",
        '"{path}" is no graph database: {problem}.',
        '"{path}" 不是图数据库：{problem}。', severity="error",
    ),
    Message(
        "A334", "graph-database-not-whole", "error:input", "path",
        '"{path}" is no complete graph database: its table tb_config is empty.',
        '"{path}" 不是完整的图数据库：表 tb_config 为空。', severity="error",
    ),
    Message(
        "A335", "graph-row-broken", "error:input", "path node problem",
        '"{path}": the row of node {node!r} is broken: {problem}.',
        '"{path}"：节点 {node!r} 的行已损坏：{problem}。', severity="error",
    ),
    Message(
        "A336", "graph-database-lacks", "error:input", "path lacking",
        '"{path}" is no graph database of mindstudio-probe 8.2 to 26.2: it lacks {lacking}.',
        '"{path}" 不是 mindstudio-probe 8.2 至 26.2 的图数据库：缺少 {lacking}。', severity="error",
    ),
    Message(
        "A337", "no-graph-file", "error:input", "path",
        '"{path}" is no graph file: it has neither "NPU" nor "node".',
        '"{path}" 不是图文件：既没有 "NPU" 也没有 "node"。', severity="error",
    ),
    Message(
        "A338", "graph-file-lacks-node", "error:input", "path source",
        '"{path}": "{source}" must hold an object "node".',
        '"{path}"："{source}" 必须含有对象 "node"。', severity="error",
    ),
    Message(
        "A339", "graph-file-header-broken", "error:input", "path problem",
        '"{path}": ToolTip or MicroSteps is broken: {problem}.',
        '"{path}"：ToolTip 或 MicroSteps 已损坏：{problem}。', severity="error",
    ),
    Message(
        "A340", "graph-node-is-no-object", "error:input", "path name",
        '"{path}": node {name!r} must be an object.',
        '"{path}"：节点 {name!r} 必须是对象。', severity="error",
    ),
    Message(
        "A341", "graph-node-broken", "error:input", "path name problem",
        '"{path}": node {name!r} is broken: {problem}.',
        '"{path}"：节点 {name!r} 已损坏：{problem}。', severity="error",
    ),
    Message(
        "A342", "graph-folder-empty", "error:input", "field path",
        "{field}: {path!r} is empty.",
        "{field}：{path!r} 是空文件夹。", severity="error",
    ),
    Message(
        "A343", "graph-table-broken", "error:input", "path table problem",
        '"{path}": its table {table} is broken: {problem}.',
        '"{path}"：表 {table} 已损坏：{problem}。', severity="error",
    ),
)

PIECES: tuple[Piece, ...] = (
    Piece("no-list-of-names", "found", "{found!r} is no list of names", "{found!r} 不是名称列表"),
    Piece("a-single-dump", "", "a single dump", "单份 dump"),
)
