"""Wrong command lines (U1)."""

from __future__ import annotations

from msprobe.messages.entry import Message

# fmt: off
MESSAGES: tuple[Message, ...] = (
    Message(
        "U101", "top-negative", "error:usage", "",
        "--top must be 0 or more.",
        "--top 必须不小于 0。", severity="error",
    ),
    Message(
        "U102", "check-without-dump", "error:usage", "",
        "give the folder of a dump (or --list).",
        "请给出 dump 文件夹（或 --list）。", severity="error",
    ),
    Message(
        "U103", "check-unknown", "error:usage", "names meant the known",
        "no check {names}; {meant}{the} checks are {known}.",
        "没有检查项 {names}；{meant}{the}可用的检查项有 {known}。", severity="error",
    ),
    Message(
        "U104", "no-check-chosen", "error:usage", "",
        "--only and --skip leave no check; name others.",
        "--only 与 --skip 没有留下任何检查项；请指定其他的。", severity="error",
    ),
    Message(
        "U105", "code-mapping-of-torch", "error:usage", "",
        "code_mapping reads graphs of MindSpore; write `msprobe -f mindspore code_mapping ...`. A PyTorch dump has the lines of each call in its stack.json.",
        "code_mapping 读取 MindSpore 的图；请写 `msprobe -f mindspore code_mapping ...`。PyTorch 的 dump 在 stack.json 中有每个调用的代码行。", severity="error",
    ),
    Message(
        "U106", "compare-form-unclear", "error:usage", "found",
        "give one of: two dumps; -i compare.json; -tp and -gp; {found}.",
        "请给出其中一种：两份 dump；-i compare.json；-tp 和 -gp；{found}。", severity="error",
    ),
    Message(
        "U107", "options-exclude", "error:usage", "options",
        "{options} exclude each other.",
        "{options} 不能同时使用。", severity="error",
    ),
    Message(
        "U109", "target-without-golden", "error:usage", "",
        "-tp and -gp belong together; one of them is missing.",
        "-tp 和 -gp 必须一起给出；缺少其中一个。", severity="error",
    ),
    Message(
        "U110", "backend-without-consistent-check", "error:usage", "",
        "--backend belongs to --consistent_check.",
        "--backend 须与 --consistent_check 一起使用。", severity="error",
    ),
    Message(
        "U111", "option-of-two-dumps", "error:usage", "flag",
        "{flag} belongs to the form with two dumps; leave it out.",
        "{flag} 用于两份 dump 的形式；请去掉。", severity="error",
    ),
    Message(
        "U112", "numbers-expected", "error:usage", "flag text",
        "{flag} must be whole numbers with commas, found {text!r}.",
        "{flag} 必须是以逗号分隔的整数，实际为 {text!r}。", severity="error",
    ),
    Message(
        "U113", "noise-option-is-compared", "error:usage", "noise",
        '--noise: "{noise}" is compared itself; give a run of its own.',
        '--noise："{noise}" 本身就在比对中；请给出另一次运行。', severity="error",
    ),
    Message(
        "U114", "compare-needs-two", "error:usage", "dumps",
        "give two dumps, the candidate and the reference; found {dumps}.",
        "请给出两份 dump：待比对侧与标杆侧；实际为 {dumps}。", severity="error",
    ),
    Message(
        "U115", "option-not-of-two-dumps", "error:usage", "wrong",
        "{wrong}: not an option of the form with two dumps; leave it out.",
        "{wrong}：不是两份 dump 形式的选项；请去掉。", severity="error",
    ),
    Message(
        "U116", "all-steps-without-tables", "error:usage", "table_flags",
        "--all-steps chooses the steps of which tables are written; ask for a table, too ({table_flags}).",
        "--all-steps 用于选择写出哪些 step 的表格；请同时指定表格（{table_flags}）。", severity="error",
    ),
    Message(
        "U117", "naming-option-without-tables", "error:usage", "wrong table_flags",
        "{wrong} says how names match in a sheet; ask for a sheet, too ({table_flags}), or leave it out: the verdict matches names by itself.",
        "{wrong} 指定表格中名称的对应方式；请同时指定表格（{table_flags}），或去掉它：结论会自动对应名称。", severity="error",
    ),
    Message(
        "U118", "fail-on-unknown", "error:usage", "outcome outcomes meant the kinds",
        "--fail-on: {outcome} is neither {outcomes} nor a kind of finding; {meant}{the} kinds are {kinds}.",
        "--fail-on：{outcome} 既不是 {outcomes}，也不是问题项的种类；{meant}{the}可用的种类有 {kinds}。", severity="error",
    ),
    Message(
        "U119", "fail-on-never-alone", "error:usage", "",
        "--fail-on: never excludes the other words; give one or the other.",
        "--fail-on：never 不能与其他词同时使用；请给出其中一种。", severity="error",
    ),
    Message(
        "U120", "option-does-nothing-here", "error:usage", "wrong",
        "{wrong}: leave it out here.",
        "{wrong}：请在这里去掉。", severity="error",
    ),
    Message(
        "U121", "config-sides-twice", "error:usage", "",
        "--candidate and --reference stand in place of -c; leave one or the other out.",
        "--candidate 和 --reference 代替 -c；请去掉其中一种。", severity="error",
    ),
    Message(
        "U122", "config-check-without-task", "error:usage", "",
        "say what to do: -d packs, -c compares, -vc, -vv and -sc read logs.",
        "请指定要做什么：-d 打包，-c 比对，-vc、-vv 和 -sc 读取日志。", severity="error",
    ),
    Message(
        "U123", "checkpoint-options-exclude", "error:usage", "",
        "--with-optim and --weights-only exclude each other.",
        "--with-optim 与 --weights-only 不能同时使用。", severity="error",
    ),
    Message(
        "U124", "config-paths-missing", "error:usage", "paths ending",
        "{paths} do{ending} not exist; give the paths of existing files.",
        "{paths} 不存在；请给出已有文件的路径。", severity="error",
    ),
    Message(
        "U125", "pack-and-checkpoint", "error:usage", "others",
        '"{others}" is no pack (.zip), the other one is: give two packs, or two checkpoints.',
        '"{others}" 不是 pack（.zip），另一个是：请给出两个 pack，或两个 checkpoint。', severity="error",
    ),
    Message(
        "U126", "confirm-script-failed", "error:usage", "status",
        "the script ended with status {status}; nothing is confirmed.",
        "脚本以状态 {status} 结束；没有得到确认。", severity="error",
    ),
    Message(
        "U127", "message-unknown", "error:usage", "repr meant",
        "there is no message {repr}; {meant}",
        "没有消息 {repr}；{meant}", severity="error",
    ),
    Message(
        "U128", "explain-list-and-codes", "error:usage", "",
        "--list lists all codes; give it, or codes to explain.",
        "--list 列出全部代码；请给出它，或要解释的代码。", severity="error",
    ),
    Message(
        "U129", "graph-pairings-exclude", "error:usage", "asked",
        "{asked} exclude each other: choose one way to pair nodes.",
        "{asked} 不能同时使用：请选择一种匹配节点的方式。", severity="error",
    ),
    Message(
        "U130", "graph-pairing-of-merged", "error:usage", "asked",
        "{asked} is not available for merged ranks, which are paired by name and order; leave it out.",
        "{asked} 不能用于合并的 rank，它们按名称和次序匹配；请去掉。", severity="error",
    ),
    Message(
        "U131", "rank-size-needs-more", "error:usage", "options verb",
        "{options} {verb} required with --rank_size.",
        "使用 --rank_size 时必须给出 {options}。", severity="error",
    ),
    Message(
        "U132", "merged-json-not-compared", "error:usage", "",
        "--file_type json writes merged ranks as a dump and cannot compare; leave out -gp.",
        "--file_type json 把合并的 rank 写成 dump，不能比对；请去掉 -gp。", severity="error",
    ),
    Message(
        "U133", "needs-rank-size", "error:usage", "given",
        "{given} need --rank_size.",
        "{given} 需要 --rank_size。", severity="error",
    ),
    Message(
        "U134", "rank-size-values", "error:usage", "name word values",
        "--{name} must have {word}; found {values}.",
        "--{name} 必须有 {word}；实际为 {values}。", severity="error",
    ),
    Message(
        "U135", "command-unknown", "error:usage", "name hint",
        "there is no command {name!r}; {hint}",
        "没有命令 {name!r}；{hint}", severity="error",
    ),
    Message(
        "U136", "lockstep-without-script", "error:usage", "command",
        "no script to run; write it after --, as in: msprobe {command} ... -- train.py",
        "没有要运行的脚本；请写在 -- 之后，如：msprobe {command} ... -- train.py", severity="error",
    ),
    Message(
        "U137", "lockstep-command-for-mindspore", "error:usage", "",
        "lockstep is for PyTorch; leave out `-f mindspore`.",
        "lockstep 仅支持 PyTorch；请去掉 `-f mindspore`。", severity="error",
    ),
    Message(
        "U138", "lockstep-without-torch", "error:usage", "install",
        "lockstep needs PyTorch; install it: {install}.",
        "lockstep 需要 PyTorch；安装方法：{install}。", severity="error",
    ),
    Message(
        "U139", "monitor-report-runs", "error:usage", "runs",
        "give the folder of one run, or of two, the candidate first; found {runs}.",
        "请给出一次运行的文件夹，或两次的，待比对侧在前；实际为 {runs}。", severity="error",
    ),
    Message(
        "U140", "watch-every-too-short", "error:usage", "every",
        "--every must be at least 0.1 seconds, found {every:g}.",
        "--every 必须不小于 0.1 秒，实际为 {every:g}。", severity="error",
    ),
    Message(
        "U141", "watch-json-needs-once", "error:usage", "",
        "--json shows what there is now: give --once, too.",
        "--json 显示当前内容：请同时给出 --once。", severity="error",
    ),
    Message(
        "U142", "watch-top-too-small", "error:usage", "top",
        "--top must be at least 1, found {top}.",
        "--top 必须不小于 1，实际为 {top}。", severity="error",
    ),
    Message(
        "U143", "op-check-dtype-unknown", "error:usage", "unknown DTYPES",
        "--dtypes: {unknown} is no type; allowed: {DTYPES}.",
        "--dtypes：{unknown} 不是类型；可用：{DTYPES}。", severity="error",
    ),
    Message(
        "U144", "op-check-numbers", "error:usage", "",
        "--samples must be 1 or more, --jobs from 1 to 64.",
        "--samples 必须不小于 1，--jobs 为 1 到 64。", severity="error",
    ),
    Message(
        "U145", "op-check-names", "error:usage", "ops",
        "--ops: {ops!r} is no list of names of operators.",
        "--ops：{ops!r} 不是算子名称的列表。", severity="error",
    ),
    Message(
        "U146", "op-output-is-file", "error:usage", "folder",
        '-o "{folder}" is a file; give a folder.',
        '-o "{folder}" 是文件；请给出文件夹。', severity="error",
    ),
    Message(
        "U147", "op-generate-source", "error:usage", "",
        "give either -i config_op.json or --dump dump.json and --api NAME.",
        "请给出 -i config_op.json，或 --dump dump.json 和 --api NAME。", severity="error",
    ),
    Message(
        "U148", "op-dump-without-api", "error:usage", "",
        "--dump needs --api: the name of a call, such as Functional.softmax.0.",
        "--dump 需要 --api：调用的名称，如 Functional.softmax.0。", severity="error",
    ),
    Message(
        "U149", "minimize-for-mindspore", "error:usage", "",
        "--minimize looks for smaller calls of PyTorch only; leave it out for a MindSpore dump.",
        "--minimize 只为 PyTorch 查找更小的调用；MindSpore 的 dump 请去掉它。", severity="error",
    ),
    Message(
        "U150", "control-with-fault", "error:usage", "control",
        "--control {control!r}: a control is trusted; leave its fault and its type out.",
        "--control {control!r}：对照是可信的；请去掉其故障和类型。", severity="error",
    ),
    Message(
        "U151", "op-device-for-mindspore", "error:usage", "device",
        "--device {device!r}: a script of a MindSpore call takes a device alone, such as cpu, cuda:0 or npu:0; give a fault to the script itself: --inject 1e-2.",
        "--device {device!r}：MindSpore 调用的脚本只接受设备，如 cpu、cuda:0 或 npu:0；故障请给脚本本身，如 --inject 1e-2。", severity="error",
    ),
    Message(
        "U152", "op-option-for-mindspore", "error:usage", "given",
        "{given}: scripts of PyTorch calls alone have it; leave it out for MindSpore.",
        "{given}：仅 PyTorch 调用的脚本支持；MindSpore 请去掉。", severity="error",
    ),
    Message(
        "U153", "reference-function-missing", "error:usage", "text",
        "--reference {text!r} must be FILE.py:FUNCTION, of a file that exists.",
        "--reference {text!r} 必须是 FILE.py:FUNCTION，且文件存在。", severity="error",
    ),
    Message(
        "U154", "api-names-direction", "error:usage", "api direction propagation",
        "--api {api} names the {direction} call; leave --propagation {propagation} out.",
        "--api {api} 指明了 {direction} 调用；请去掉 --propagation {propagation}。", severity="error",
    ),
    Message(
        "U155", "output-folder-not-writable", "error:usage", "path reason there",
        'folder "{path}" cannot be written: {reason} (in "{there}"); choose another folder.',
        '无法写入文件夹 "{path}"：{reason}（位于 "{there}"）；请选择其他文件夹。', severity="error",
    ),
    Message(
        "U156", "output-file-is-folder", "error:usage", "folder",
        '"{folder}" is a folder, and a file of this name is to be written; move it away.',
        '"{folder}" 是文件夹，而要写入同名文件；请移走它。', severity="error",
    ),
    Message(
        "U157", "kernel-dump-missing", "error:usage", "path",
        '"{path}" does not exist; give a dump file of a kernel, or a folder of them.',
        '"{path}" 不存在；请给出算子的 dump 文件，或含有它们的文件夹。', severity="error",
    ),
    Message(
        "U158", "kernel-dump-empty", "error:usage", "path",
        'folder "{path}" holds no file of a kernel.',
        '文件夹 "{path}" 中没有算子的文件。', severity="error",
    ),
    Message(
        "U159", "old-pickle-dump", "error:usage", "path",
        '"{path}": .pkl files of old versions are not read; give a dump.json.',
        '"{path}"：不读取旧版本的 .pkl 文件；请给出 dump.json。', severity="error",
    ),
    Message(
        "U161", "shape-text-wrong", "error:usage", "s",
        "-s: {s!r} is no shape; write 1,20,4,4.",
        "-s：{s!r} 不是 shape；请写 1,20,4,4。", severity="error",
    ),
    Message(
        "U162", "record-unknown", "error:usage", "path record",
        '"{path}" has no record {record!r}; `msprobe summary` lists them.',
        '"{path}" 没有记录 {record!r}；`msprobe summary` 可列出。', severity="error",
    ),
    Message(
        "U163", "rollout-one-field", "error:usage", "field engine",
        'both sides are the field "{field}" of "{engine}", which says nothing; give the file of the other side, or one that has a field for each (rollout_log_probs and old_log_probs).',
        '两侧都是 "{engine}" 的字段 "{field}"，没有意义；请给出另一侧的文件，或两侧各有字段的文件（rollout_log_probs 与 old_log_probs）。', severity="error",
    ),
    Message(
        "U164", "rollout-sides-missing", "error:usage", "",
        "give --log-probs ENGINE TRAINER, or ROLL and --trainer MODEL.",
        "请给出 --log-probs ENGINE TRAINER，或 ROLL 和 --trainer MODEL。", severity="error",
    ),
    Message(
        "U165", "trainer-packages-missing", "error:usage", "",
        "--trainer runs the trainer's operators; pip install torch transformers.",
        "--trainer 要运行训练侧的算子；pip install torch transformers。", severity="error",
    ),
    Message(
        "U166", "run-without-script", "error:usage", "",
        "no script to run; write: msprobe run --config config.json -- train.py ARGUMENT ...",
        "没有要运行的脚本；请写：msprobe run --config config.json -- train.py ARGUMENT ...", severity="error",
    ),
    Message(
        "U167", "run-for-mindspore", "error:usage", "",
        "`msprobe run` records PyTorch scripts only in this version; leave out `-f mindspore`.",
        "本版本的 `msprobe run` 只采集 PyTorch 脚本；请去掉 `-f mindspore`。", severity="error",
    ),
    Message(
        "U168", "run-without-torch", "error:usage", "install",
        "`msprobe run` needs PyTorch; install it: {install}.",
        "`msprobe run` 需要 PyTorch；安装方法：{install}。", severity="error",
    ),
    Message(
        "U169", "overflow-device-negative", "error:usage", "device",
        "argument -d/--device: must be >= 0, found {device}.",
        "参数 -d/--device：必须不小于 0，实际为 {device}。", severity="error",
    ),
    Message(
        "U170", "overflow-candidate-recorded", "error:usage", "",
        "--candidate recorded: run_overflow_check runs calls; leave it out, or name a device.",
        "--candidate recorded：run_overflow_check 要运行调用；请去掉，或指定设备。", severity="error",
    ),
    Message(
        "U171", "overflow-candidate-of-mindspore", "error:usage", "",
        "of a MindSpore dump the record says what overflowed on the device; leave --candidate out.",
        "MindSpore 的 dump 已记录设备上的溢出；请去掉 --candidate。", severity="error",
    ),
    Message(
        "U172", "calls-not-recorded", "error:usage", "part why use",
        '"{part}" {why}; {use}record level L1 or mix.',
        '"{part}" {why}；{use}请以 level L1 或 mix 采集。', severity="error",
    ),
    Message(
        "U173", "online-ranks-too-few", "error:usage", "",
        "--ranks must be 1 or more.",
        "--ranks 必须不小于 1。", severity="error",
    ),
    Message(
        "U174", "online-control", "error:usage", "",
        "--control: an online check runs its control itself; give an executor, such as cpu.",
        "--control：在线检查自行运行对照；请给出执行器，如 cpu。", severity="error",
    ),
    Message(
        "U175", "online-without-steps", "error:usage", "wanted",
        "the online check has ended, and no step of any rank{wanted} has come.",
        "在线检查已结束，没有收到任何 rank{wanted} 的 step。", severity="error",
    ),
    Message(
        "U176", "online-without-calls", "error:usage", "",
        "the online check has ended, and no call was checked: what came had none, or all were left out (their rows say why).",
        "在线检查已结束，没有检查任何调用：收到的内容没有调用，或都被略过（各行有原因）。", severity="error",
    ),
    Message(
        "U177", "api-info-missing", "error:usage", "",
        "provide api_info_file: -api_info DUMP/step0/rank0/dump.json.",
        "请给出 api_info_file：-api_info DUMP/step0/rank0/dump.json。", severity="error",
    ),
    Message(
        "U178", "repeat-and-top", "error:usage", "",
        "--repeat must be 1 or more, and --top 0 or more.",
        "--repeat 必须不小于 1，--top 不小于 0。", severity="error",
    ),
    Message(
        "U179", "clean-output-compiled", "error:usage", "",
        "--clean-output is a function of yours, which is not compiled: leave +compile out.",
        "--clean-output 是用户的函数，不会被编译：请去掉 +compile。", severity="error",
    ),
    Message(
        "U180", "online-with-api-info", "error:usage", "",
        '"is_online": true listens for calls, so give no -api_info; or set it to false.',
        '"is_online": true 监听调用，因此不要给出 -api_info；或设为 false。', severity="error",
    ),
    Message(
        "U181", "compiler-standard-without-control", "error:usage", "",
        "--standard compiler needs a trusted device to compare with: give --control cpu, or a different device.",
        "--standard compiler 需要可信的设备作对照：请给出 --control cpu 或其他。", severity="error",
    ),
    Message(
        "U182", "load-missing", "error:usage", "what",
        '--load "{what}" is no file; give a .py, a .so or the name of a module.',
        '--load "{what}" 不是文件；请给出 .py、.so 或模块名。', severity="error",
    ),
    Message(
        "U183", "devices-repeat", "error:usage", "devices",
        "argument -d/--device: must be unique, found {devices}.",
        "参数 -d/--device：不能重复，实际为 {devices}。", severity="error",
    ),
    Message(
        "U184", "ms-atol-for-torch", "error:usage", "",
        "--ms-atol is for a MindSpore dump; leave it out.",
        "--ms-atol 用于 MindSpore 的 dump；请去掉。", severity="error",
    ),
    Message(
        "U185", "device-negative", "error:usage", "word",
        "argument -d/--device: must be >= 0, found {word}.",
        "参数 -d/--device：必须不小于 0，实际为 {word}。", severity="error",
    ),
    Message(
        "U186", "candidate-and-device", "error:usage", "",
        "--candidate names a device; leave out -d.",
        "--candidate 指明了设备；请去掉 -d。", severity="error",
    ),
    Message(
        "U187", "one-run-too-many", "error:usage", "left",
        "--candidate and --reference name the two runs; {left!r} is one too many.",
        "--candidate 和 --reference 指明两次运行；多了 {left!r}。", severity="error",
    ),
    Message(
        "U188", "reference-without-candidate", "error:usage", "",
        "--reference needs the other run, too: give --candidate.",
        "--reference 还需要待比对侧的运行：请给出 --candidate。", severity="error",
    ),
    Message(
        "U189", "two-runs-needed", "error:usage", "what found",
        "give two {what}, the candidate and the reference; found {found}.",
        "请给出两个 {what}：待比对侧与标杆侧；实际为 {found}。", severity="error",
    ),
    Message(
        "U190", "engine-package-missing", "error:usage", "what module extra",
        "{what} {module}, which is not installed: {extra}.",
        "{what} {module}，但没有安装：{extra}。", severity="error",
    ),
    Message(
        "U191", "engine-unknown", "error:usage", "ENGINES engine",
        "the engine must be one of {ENGINES}, found {engine!r}.",
        "engine 必须是 {ENGINES} 之一，实际为 {engine!r}。", severity="error",
    ),
    Message(
        "U192", "jobs-too-few", "error:usage", "count",
        "jobs (--jobs) must be a whole number of 1 or more, found {count!r}.",
        "jobs（--jobs）必须是不小于 1 的整数，实际为 {count!r}。", severity="error",
    ),
    Message(
        "U193", "ray-cluster-missing", "error:usage", "environ",
        "there is no Ray cluster at {environ} (environment variable RAY_ADDRESS).",
        "{environ} 处没有 Ray 集群（环境变量 RAY_ADDRESS）。", severity="error",
    ),
)
