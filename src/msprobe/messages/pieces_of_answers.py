"""What commands print of their work: summaries, counts, what to do next."""

from __future__ import annotations

from msprobe.messages.entry import Message, Piece

# fmt: off
MESSAGES: tuple[Message, ...] = (
    Message(
        "U440", "view-without-path", "error:usage", "opened",
        "give what to show: {opened}.",
        "请给出要显示的内容：{opened}。", severity="error",
    ),
    Message(
        "U441", "view-too-many-paths", "error:usage", "count",
        "give one path, or two dumps (candidate and reference); found {count}.",
        "请给出一个路径，或两份 dump（待比对侧与标杆侧）；现为 {count} 个。", severity="error",
    ),
    Message(
        "U442", "view-host-empty", "error:usage", "",
        "--host: the address to listen on is empty; leave it out for this machine only.",
        "--host：监听地址为空；只用于本机时请去掉它。", severity="error",
    ),
    Message(
        "U443", "view-port-wrong", "error:usage", "value largest",
        "--port: {value} is no port; give a number from 0 (any free one) to {largest}.",
        "--port：{value} 不是端口；请给出 0（任意空闲端口）到 {largest} 的数。", severity="error",
    ),
    Message(
        "U444", "view-matches-no-folder", "error:usage", "value",
        "--matches: {value} is no folder; make it first.",
        "--matches：{value} 不是文件夹；请先建立它。", severity="error",
    ),
    Message(
        "U445", "view-page-wrong", "error:usage", "",
        "the page of this installation has a different form than this version expects; install msprobe again.",
        "本安装的页面与此版本不符；请重新安装 msprobe。", severity="error",
    ),
    Message(
        "U446", "trainer-needs-transformers", "error:usage", "",
        "--trainer loads a model with transformers; pip install transformers.",
        "--trainer 需要用 transformers 加载模型；pip install transformers。", severity="error",
    ),
)
PIECES: tuple[Piece, ...] = (
    Piece("code-mapping-file", "path", "code mapping: {path}", "代码映射：{path}"),
    Piece(
        "kernels-found-in-graph", "mapped total",
        "{mapped} of {total} found in the graph",
        "{total} 个中有 {mapped} 个在图中找到",
    ),
    Piece("mapped-without-lines", "count", "{count} of them without source lines", "其中 {count} 个没有源代码行"),
    Piece("kernels-are-parameters", "count", "{count} are parameters", "{count} 个是参数"),
    Piece(
        "kernels-of-graphs-apart", "count",
        "{count} are of other graphs than the IR",
        "{count} 个属于 IR 之外的图",
    ),
    Piece("kernels-not-found", "count", "{count} not found", "{count} 个未找到"),
    Piece(
        "collected-ranks", "folder ranks steps",
        "{folder}: ranks {ranks} of {steps} steps",
        "{folder}：rank {ranks}，共 {steps} 个 step",
    ),
    Piece("rank-of-step", "step ranks", "step {step}: rank {ranks}", "step {step}：rank {ranks}"),
    Piece("rank-not-collected", "", "not recorded, or its folder was not given", "没有采集，或没有给出它的文件夹"),
    Piece(
        "tables-left-out-same", "steps",
        "no tables of {steps} (the same but for rounding): --all-steps writes them, too",
        "没有写 {steps} 的表（除舍入误差外相同）：--all-steps 会一并写出",
    ),
    Piece(
        "tables-left-out-later", "steps",
        "no tables of {steps} (the same but for rounding, or later): --all-steps writes them, too",
        "没有写 {steps} 的表（除舍入误差外相同，或在其后）：--all-steps 会一并写出",
    ),
    Piece("more-files-in", "count folder", "and {count} more in {folder}", "{folder} 中另有 {count} 个"),
    Piece(
        "nothing-replaced", "call why",
        "{call}: nothing was replaced; {why}.",
        "{call}：没有替换任何内容；{why}。",
    ),
    Piece(
        "no-such-call-made", "",
        "the script made no such call, or its values are the reference's",
        "脚本没有这样的调用，或其值与标杆侧相同",
    ),
    Piece(
        "averages-follow-later", "",
        ", and running averages that it keeps are put right in the steps that follow, of which there is none",
        "，而它保留的滑动均值要在后续 step 中才修正，但没有后续 step",
    ),
    Piece("then-problem", "problem", "then: {problem}", "其次：{problem}"),
    Piece("more-in-verdict-csv", "count", "and {count} more in verdict.csv", "verdict.csv 中另有 {count} 项"),
    Piece(
        "more-notes-in-page", "count",
        "and {count} more notes in gradients.html",
        "gradients.html 中另有 {count} 条说明",
    ),
    Piece("one-value", "", "one value", "一个值"),
    Piece("a-value-for-each-side", "", "two values: one for each side", "两个值：每侧一个"),
    Piece(
        "view-shows-with-dump", "file",
        "{file}  (msprobe view shows it with the dump)",
        "{file}  （msprobe view 可与 dump 一同显示）",
    ),
    Piece(
        "limit-not-above-zero", "option value",
        "--{option}: {value} is no number above 0.",
        "--{option}：{value} 不是大于 0 的数。",
    ),
    Piece(
        "script-of-statistics", "",
        "The dump has statistics only: the script has values that fit them, and the fault may not show with those.",
        "dump 只有统计量：脚本使用与之相符的数值，问题可能不会重现。",
    ),
    Piece("run-all-the-same", "script", "It can still be run: python {script}", "仍可运行：python {script}"),
    Piece(
        "run-on-device", "script",
        "Run it on the suspected device; exit status 1 means that the call is wrong there: python {script}",
        "在可疑设备上运行，如果调用在该设备上有误，退出码为 1：python {script}",
    ),
    Piece(
        "run-minimize", "script",
        "Look for a smaller call that fails: python {script} --minimize",
        "查找更小的出错调用：python {script} --minimize",
    ),
    Piece(
        "reproduce-argument", "",
        "The two runs called it with different arguments, so the call itself is probably right: compare the arguments in the script with those of the reference, and look at the line that makes the call.",
        "两次运行调用它的参数不同，因此调用本身很可能没有问题：请把脚本中的参数与标杆侧的相比较，并查看发出调用的那一行。",
    ),
    Piece(
        "reproduce-structure", "",
        "Only one of the two runs makes this call, so the call itself is probably right: look at the line that makes it, and at what the other run does there.",
        "只有一次运行有这个调用，因此调用本身很可能没有问题：请查看发出调用的那一行，以及另一次运行在那里做了什么。",
    ),
    Piece(
        "reproduce-data", "",
        "What differs was given to the call from outside the recorded calls, so the call itself is probably right: look at the batch, mask or table that it takes, and at what makes it.",
        "差异来自采集范围之外传给该调用的数据，因此调用本身很可能没有问题：请查看它使用的批数据、mask 或表，以及它们由什么产生。",
    ),
    Piece(
        "reproduce-initial-weights", "",
        "The two runs began with different weights, so the call itself is probably right: load the same checkpoint on both sides, or set the same seed.",
        "两次运行的初始权重不同，因此调用本身很可能没有问题：请两侧加载同一个检查点，或设置相同的随机种子。",
    ),
    Piece("after-end-of-dump", "", "what came after the end of the dump", "dump 结束之后的部分"),
    Piece("one-call-skipped", "call why", "The {call} was skipped: {why}", "{call} 被跳过：{why}"),
    Piece(
        "overflow-in-all", "calls one both skipped",
        "Of {calls} calls {one} overflow on one side only, {both} on both, {skipped} were skipped.",
        "{calls} 个调用中，{one} 只在一侧溢出，{both} 在两侧都溢出，{skipped} 个被跳过。",
    ),
    Piece(
        "online-checked", "calls steps wrong",
        "{calls} calls of {steps} steps were checked, {wrong} of them are wrong",
        "检查了 {steps} 个 step 的 {calls} 个调用，其中 {wrong} 个有误",
    ),
    Piece(
        "online-wrong-call", "rank step call",
        "rank {rank}, step {step}: {call}",
        "rank {rank}，step {step}：{call}",
    ),
    Piece(
        "online-unchecked", "rank step",
        "rank {rank}, step {step} could not be checked, see above",
        "rank {rank}，step {step} 无法检查，见上文",
    ),
    Piece(
        "dump-of-kernels", "",
        "is of level L2, which records kernels and no calls of APIs",
        "的 level 为 L2，只采集算子，没有 API 调用",
    ),
    Piece("dump-without-passes", "", "has no pass of a leaf module", "没有叶子模块的执行"),
    Piece("dump-without-calls", "", "has no calls of APIs (level L0)", "没有 API 调用（level L0）"),
    Piece(
        "give-modules-or", "",
        "give --modules, which checks its leaf modules, or ",
        "请给出 --modules 以检查其叶子模块，或",
    ),
    Piece("place-and-problem", "place problem", "{place} cannot be read: {problem}", "{place} 无法读取：{problem}"),
    Piece(
        "dump-recorded-as", "dump task level framework",
        "{dump}: task {task}, level {level}, {framework}",
        "{dump}：task {task}，level {level}，{framework}",
    ),
    Piece(
        "was-interrupted-losing", "count",
        "interrupted; {count} records of it cannot be read",
        "曾中断；其中 {count} 条记录无法读取",
    ),
    Piece("was-interrupted", "", "interrupted", "曾中断"),
    Piece("steps-of-process", "steps process", "{steps} of process {process}", "进程 {process} 的 {steps}"),
    Piece(
        "steps-of-several-runs", "rank count runs",
        "{rank}: the steps come from {count} runs of the program: {runs}",
        "{rank}：这些 step 来自程序的 {count} 次运行：{runs}",
    ),
    Piece("saved-variables", "count", "{count} saved variables", "{count} 个保存的变量"),
    Piece("forward-families", "families", "forward: {families}", "前向：{families}"),
    Piece(
        "masked-on-purpose", "tensor",
        "minus infinity only, from a mask on purpose: {tensor}",
        "只有负无穷，来自有意的 mask：{tensor}",
    ),
    Piece("first-nan-or-inf", "tensor", "first NaN or Inf: {tensor}", "第一个 NaN 或 Inf：{tensor}"),
    Piece("none-of-them-finite", "", "none of them finite", "都不是有限数"),
    Piece(
        "spread-of-statistic", "least greatest median place",
        "{least:.6g} to {greatest:.6g}, median {median:.6g}; greatest: {place}",
        "{least:.6g} 到 {greatest:.6g}，中位数 {median:.6g}；最大：{place}",
    ),
    Piece(
        "statistic-of-tensors", "name count spread",
        "{name} of {count} tensors: {spread}",
        "{count} 个张量的 {name}：{spread}",
    ),
    Piece("part-interrupted", "", "this part was interrupted", "这一部分曾中断"),
    Piece(
        "part-interrupted-losing", "count",
        "this part was interrupted; {count} records of it cannot be read",
        "这一部分曾中断；其中 {count} 条记录无法读取",
    ),
    Piece(
        "view-opened", "",
        "a dump (its folder, or a dump.json), two dumps, a verdict.json or check.json or the folder of one, or a graph file (.vis, .vis.db)",
        "一份 dump（文件夹或 dump.json）、两份 dump、verdict.json 或 check.json 或其文件夹，或图文件（.vis、.vis.db）",
    ),
    Piece(
        "page-written", "file size",
        "{file}  ({size:.1f} MB; opens in any browser, needs no server)",
        "{file}  （{size:.1f} MB；可用任何浏览器打开，不需要服务）",
    ),
    Piece(
        "reachable-from-outside", "host",
        "msprobe: {host} can be reached from other machines, and what is sent is not encrypted: whoever has the address sees the dump.",
        "msprobe：其他机器可以访问 {host}，且传输不加密：有该地址的人都能看到 dump。",
    ),
    Piece(
        "only-page-of-server", "",
        "the request comes from a different page; only the page of this server may ask.",
        "请求来自其他页面；只有本服务的页面可以请求。",
    ),
    Piece(
        "server-of-this-machine", "",
        "this server answers only under the names of this machine; open the address that msprobe printed.",
        "本服务只以本机的名称应答；请打开 msprobe 打印的地址。",
    ),
    Piece(
        "token-wrong", "",
        "the token is missing or wrong; open the address that msprobe printed.",
        "缺少令牌或令牌有误；请打开 msprobe 打印的地址。",
    ),
    Piece("nothing-here", "method", "there is nothing here to {method}.", "此处没有可 {method} 的内容。"),
    Piece("too-many-address-fields", "", "the address has too many fields.", "地址的字段过多。"),
    Piece(
        "graph-without-verdict", "",
        "a graph file holds no verdict: run msprobe compare on the dumps to get one, or msprobe view to see it",
        "图文件中没有结论：请用 msprobe compare 比对 dump 得到结论，用 msprobe view 查看",
    ),
    Piece("place-without-name", "", "a step and rank that their names do not say", "名称中没有写明的 step 与 rank"),
    Piece("one-more-row", "", "and 1 more row", "另有 1 行"),
    Piece("more-rows", "count", "and {count} more rows", "另有 {count} 行"),
    Piece(
        "rows-shown-leading", "count total",
        "{count} of {total} rows, those to look at first; .rows, .to_pandas() and .to_polars() have all",
        "{total} 行中应先看的 {count} 行；.rows、.to_pandas() 与 .to_polars() 含有全部",
    ),
    Piece(
        "rows-shown-first", "count total",
        "{count} of {total} rows, the first; .rows, .to_pandas() and .to_polars() have all",
        "{total} 行中的前 {count} 行；.rows、.to_pandas() 与 .to_polars() 含有全部",
    ),
    Piece("first-of-findings", "count", " (the first of {count} findings)", "（共 {count} 个问题项，这是第一个）"),
    Piece(
        "json-at-line", "reason line column",
        "{reason} at line {line}, column {column}",
        "第 {line} 行第 {column} 列：{reason}",
    ),
    Piece(
        "alias-of-itself", "name",
        "the alias *{name} stands within what it names",
        "别名 *{name} 位于它所指的内容之中",
    ),
    Piece("alias-of-nothing", "name", "the alias *{name} names nothing", "别名 *{name} 没有所指"),
    Piece(
        "no-statistics-of-dtype", "dtype problem",
        "torch has no statistics for {dtype} ({problem})",
        "torch 无法计算 {dtype} 的统计量（{problem}）",
    ),
    Piece(
        "out-of-memory-for-statistics", "problem",
        "out of memory while its statistics were computed ({problem})",
        "计算其统计量时内存不足（{problem}）",
    ),
    Piece(
        "graph-copies-too-large", "most",
        "the tensors of this graph that are copied take more than {most} MiB",
        "该图中需要复制的张量超过 {most} MiB",
    ),
    Piece(
        "device-not-of-graph", "device graph",
        "on {device}, in a graph of {graph}",
        "位于 {device}，而图属于 {graph}",
    ),
    Piece(
        "kernel-row-wrong", "place count dtype found wanted",
        "{place} of {count} elements of {dtype} is {found}, not {wanted}",
        "{dtype} 的 {count} 个元素的 {place} 为 {found}，应为 {wanted}",
    ),
    Piece("updates-of-model-by-hand", "model", "updates of {model} by hand", "{model} 的手写更新"),
    Piece("updates-by-hand", "", "updates by hand", "手写更新"),
    Piece("further-errors-left-out", "", "Further errors of this step are not written.", "该 step 的其他错误不再写出。"),
    Piece(
        "parameter-of-folder-wrong", "folder parameter problem",
        '"{folder}", parameter {parameter!r}: {problem}',
        '"{folder}"，参数 {parameter!r}：{problem}',
    ),
    Piece("lockstep-without-verdict", "problem", "Lockstep: no verdict: {problem}", "Lockstep：没有结论：{problem}"),
    Piece(
        "between-modules-of-model", "",
        "in the forward pass of the model itself, between its modules",
        "在模型自身的前向中、各模块之间",
    ),
    Piece(
        "behind-modules-of-model", "",
        "after the modules of the model: in the loss, or in the backward pass between them",
        "在模型各模块之后的损失中，或在反向的各模块之间",
    ),
    Piece(
        "beyond-together", "calls operator",
        "within its limit by itself, but the {calls} calls of {operator} together are further apart than their inputs and rounding explain",
        "其自身未超限，但 {operator} 的 {calls} 次调用合在一起，超出了输入差异与舍入所能解释的范围",
    ),
    Piece(
        "calls-together-explain", "",
        "; of {} such calls together rounding and the inputs explain {}",
        "；{0} 次这样的调用合在一起，舍入误差和输入差异最多造成 {1}",
    ),
)
