"""Errors and warnings of the online check, of modules and of worker processes (P2)."""

from __future__ import annotations

from msprobe.messages.entry import Message, Piece

# fmt: off
MESSAGES: tuple[Message, ...] = (
    Message(
        "P201", "online-disk-nearly-full", "warning:work", "folder waiting",
        'online check: the disk of "{folder}" is nearly full, and {waiting} steps wait there: trainings wait until they are checked. TMPDIR can name a larger disk.',
        '在线检查："{folder}" 所在磁盘几乎已满，有 {waiting} 个 step 等待：训练会等到检查完成。可用 TMPDIR 指定更大的磁盘。', severity="warning",
    ),
    Message(
        "P202", "online-cannot-listen", "error:precheck", "host port error",
        "cannot listen at {host}:{port}: {error}.",
        "无法监听 {host}:{port}：{error}。", severity="error",
    ),
    Message(
        "P203", "online-connections-not-named", "warning:work", "",
        "online check: further connections that end like this are not reported.",
        "在线检查：其余同样结束的连接不再逐一报告。", severity="warning",
    ),
    Message(
        "P204", "online-waits-for-ranks", "error:precheck", "nfs_path",
        'online check: waiting for ranks in "{nfs_path}".',
        '在线检查：在 "{nfs_path}" 等待各 rank。', severity="note",
    ),
    Message(
        "P205", "online-without-tls", "warning:work", "",
        "online check: without tls_path everybody who reaches this address can send records, and they are sent unencrypted.",
        "在线检查：没有 tls_path 时，任何能访问此地址的人都可发送记录，且传输不加密。", severity="warning",
    ),
    Message(
        "P206", "online-step-not-checked", "warning:work", "step rank why",
        "online check: step {step} of rank {rank} is not checked: {why}",
        "在线检查：不检查 rank {rank} 的 step {step}：{why}", severity="warning",
    ),
    Message(
        "P207", "online-call-wrong", "warning:work", "call step rank",
        "online check: {call} of step {step}, rank {rank} is wrong.",
        "在线检查：rank {rank} 的 step {step} 中 {call} 有误。", severity="warning",
    ),
    Message(
        "P208", "nfs-path-is-no-folder", "error:precheck", "folder",
        'nfs_path: "{folder}" is no folder.',
        'nfs_path："{folder}" 不是文件夹。', severity="error",
    ),
    Message(
        "P209", "nfs-path-without-reader", "error:precheck", "folder",
        'nfs_path: no check reads "{folder}".',
        'nfs_path：没有检查在读取 "{folder}"。', severity="error",
    ),
    Message(
        "P210", "nfs-path-not-kept", "error:precheck", "folder reason",
        'nfs_path: the check that reads "{folder}" has not processed everything that was sent: {reason}',
        'nfs_path：读取 "{folder}" 的检查没有处理完发送的全部内容：{reason}', severity="error",
    ),
    Message(
        "P211", "online-nothing-comes", "warning:work", "idle",
        "nothing was received for {idle:g} seconds: the check ends here and reports what was received.",
        "{idle:g} 秒内没有收到内容：检查到此结束，并报告已收到的内容。", severity="warning",
    ),
    Message(
        "P212", "nfs-path-unreadable", "error:precheck", "folder reason",
        'nfs_path: "{folder}" can no longer be read: {reason}.',
        'nfs_path：无法再读取 "{folder}"：{reason}。', severity="error",
    ),
    Message(
        "P213", "online-files-not-named", "warning:work", "",
        "online check: further files that are no frames are not reported.",
        "在线检查：其余不是帧的文件不再逐一报告。", severity="warning",
    ),
    Message(
        "P214", "rank-of-earlier-run", "error:precheck", "rank why",
        "online check: rank {rank} of an earlier run ({why}) is not waited for.",
        "在线检查：不等待更早运行的 rank {rank}（{why}）。", severity="note",
    ),
    Message(
        "P215", "rank-died", "warning:work", "rank why",
        "online check: rank {rank} has died: {why}. What it had sent is judged.",
        "在线检查：rank {rank} 已终止：{why}。判定它已发送的内容。", severity="warning",
    ),
    Message(
        "P216", "rank-is-back", "warning:work", "rank",
        "online check: rank {rank} is alive again.",
        "在线检查：rank {rank} 重新有响应。", severity="warning",
    ),
    Message(
        "P217", "marks-of-earlier-run-removed", "error:precheck", "folder count",
        'online check: "{folder}" had the marks of {count} ranks of an earlier run; they were removed.',
        '在线检查："{folder}" 中有更早运行的 {count} 个 rank 的标记；已删除。', severity="note",
    ),
    Message(
        "P218", "online-sends-no-more", "warning:work", "why",
        "online check: {why}. Nothing more is sent; the training continues.",
        "在线检查：{why}。不再发送；训练继续。", severity="warning",
    ),
    Message(
        "P219", "online-frame-wrong", "warning:work", "kind step rank why",
        "online check: a {kind!r} of step {step}, rank {rank} is wrong: {why}",
        "在线检查：rank {rank} 的 step {step} 中有错误的 {kind!r}：{why}", severity="warning",
    ),
    Message(
        "P220", "online-step-began-before", "warning:work", "step rank",
        "online check: step {step} of rank {rank} began before this check and is left out.",
        "在线检查：rank {rank} 的 step {step} 在本次检查之前开始，已略过。", severity="warning",
    ),
    Message(
        "P221", "online-step-did-not-end", "warning:work", "step",
        "{step} did not end: nothing of it can be checked.",
        "{step} 没有结束：无法检查其内容。", severity="warning",
    ),
    Message(
        "P222", "online-step-ended-early", "warning:work", "step count",
        "{step} did not end: the {count} records that were received are checked.",
        "{step} 没有结束：检查已收到的 {count} 条记录。", severity="warning",
    ),
    Message(
        "P223", "peer-hung-up", "error:precheck", "where error",
        "{where} closed the connection: {error}",
        "{where} 关闭了连接：{error}", severity="error",
    ),
    Message(
        "P224", "peer-rejects-step", "error:precheck", "where kind step reason",
        "{where} does not accept a {kind} of step {step}: {reason}",
        "{where} 不接受 step {step} 的 {kind}：{reason}", severity="error",
    ),
    Message(
        "P225", "peer-rejects", "error:precheck", "where kind times",
        "{where} does not accept a {kind}, sent {times} times",
        "{where} 不接受 {kind}，已发送 {times} 次", severity="error",
    ),
    Message(
        "P226", "peer-does-not-listen", "error:precheck", "where error",
        "{where} does not listen: {error}",
        "{where} 没有监听：{error}", severity="error",
    ),
    Message(
        "P227", "peer-tls", "error:precheck", "where error",
        "{where} does not agree on TLS: {error}",
        "与 {where} 无法建立 TLS：{error}", severity="error",
    ),
    Message(
        "P228", "rank-connection-broke", "warning:work", "rank patience",
        "online check: rank {rank} has died: its connection broke, and it did not come back for {patience:g} seconds. What it had sent is judged.",
        "在线检查：rank {rank} 已终止：连接中断，{patience:g} 秒内没有恢复。判定它已发送的内容。", severity="warning",
    ),
    Message(
        "P229", "tls-files-missing", "error:precheck", "folder missing",
        'tls_path: "{folder}" has no {missing}; "" means plain TCP.',
        'tls_path："{folder}" 没有 {missing}；"" 表示普通 TCP。', severity="error",
    ),
    Message(
        "P230", "tls-files-not-usable", "error:precheck", "folder error passphrase",
        'tls_path: the key and certificates in "{folder}" cannot be used: {error}. The passphrase of an encrypted key is read from the environment variable {passphrase}.',
        'tls_path：无法使用 "{folder}" 中的密钥和证书：{error}。加密密钥的口令取自环境变量 {passphrase}。', severity="error",
    ),
    Message(
        "P231", "worker-did-not-start", "error:precheck", "problem",
        "a worker did not start: {problem}",
        "工作进程没有启动：{problem}", severity="error",
    ),
    Message(
        "P232", "python-cannot-be-run", "error:precheck", "python problem",
        '"{python}" cannot be run: {problem}; python:PATH is the python of an environment, such as /venv/bin/python.',
        '无法运行 "{python}"：{problem}；python:PATH 是某个环境的 python，如 /venv/bin/python。', severity="error",
    ),
    Message(
        "P233", "worker-timed-out", "error:precheck", "timeout",
        "no answer within {timeout:g} s; the worker was ended.",
        "{timeout:g} 秒内没有回答；已结束工作进程。", severity="error",
    ),
    Message(
        "P234", "input-cannot-be-copied", "error:precheck", "problem",
        "it cannot be copied ({problem}); wrap the modules in it instead.",
        "无法复制它（{problem}）；请改为包装其中的模块。", severity="error",
    ),
    Message(
        "P235", "argument-cannot-be-copied", "error:precheck", "what problem",
        "an argument is an object that cannot be copied ({what}: {problem}).",
        "有参数是无法复制的对象（{what}：{problem}）。", severity="error",
    ),
    Message(
        "P236", "check-api-wants-function", "error:precheck", "function",
        "check_api checks a function, found {function!r}; give torch.softmax, for instance.",
        "check_api 检查函数，实际为 {function!r}；例如请给出 torch.softmax。", severity="error",
    ),
    Message(
        "P237", "check-api-runs-here", "error:precheck", "candidate",
        "candidate {candidate!r}: check_api runs in this Python; run_ut can use a different one.",
        "candidate {candidate!r}：check_api 在本 Python 中运行；run_ut 可使用其他的。", severity="error",
    ),
    Message(
        "P238", "check-api-standard", "error:precheck", "standard alone",
        "standard {standard!r} is none of {alone}, which need no control.",
        "standard {standard!r} 不可用；不需要对照的标准为 {alone}。", severity="error",
    ),
    Message(
        "P239", "wrap-wants-module", "error:precheck", "module",
        "wrap takes a module, found {module!r}.",
        "wrap 接受模块，实际为 {module!r}。", severity="error",
    ),
    Message(
        "P240", "depth-wrong", "error:precheck", "depth",
        "depth must be a whole number from 1 on, found {depth!r}.",
        "depth 必须是不小于 1 的整数，实际为 {depth!r}。", severity="error",
    ),
    Message(
        "P241", "install-is-for-single-pass", "error:precheck", "",
        "install is for single_pass=True; with single_pass=False call compare(run_step, model).",
        "install 用于 single_pass=True；single_pass=False 时请调用 compare(run_step, model)。", severity="error",
    ),
    Message(
        "P242", "nothing-installed", "error:precheck", "",
        "nothing is watched: call install before the step, and collect once after it.",
        "没有监视任何内容：请在 step 之前调用 install，之后调用一次 collect。", severity="error",
    ),
    Message(
        "P243", "compare-runs-twice", "error:precheck", "",
        "compare runs a step twice: create the checker with single_pass=False.",
        "compare 会执行 step 两次：请以 single_pass=False 创建检查器。", severity="error",
    ),
    Message(
        "P244", "installed-already", "error:precheck", "",
        "the checker is already installed; call collect first.",
        "检查器已安装；请先调用 collect。", severity="error",
    ),
    Message(
        "P245", "no-module-wrapped", "error:precheck", "",
        "no module is to be checked: call wrap, wrap_by_policy or wrap_all_children first.",
        "没有要检查的模块：请先调用 wrap、wrap_by_policy 或 wrap_all_children。", severity="error",
    ),
    Message(
        "P246", "types-are-no-modules", "error:precheck", "types",
        "types must be classes of modules, found {types!r}.",
        "types 必须是模块类，实际为 {types!r}。", severity="error",
    ),
    Message(
        "P247", "loss-is-no-number", "warning:work", "type",
        "the loss is no single number but a {type}; it is left out.",
        "loss 不是单个数值而是 {type}；略过。", severity="warning",
    ),
    Message(
        "P248", "compiler-left-all", "error:precheck", "",
        "the compiler left all of it unchanged.",
        "编译器没有改动任何内容。", severity="error",
    ),
    Message(
        "P249", "compiled-result-counts", "error:precheck", "compiled eager",
        "compiled, it gives {compiled} results, eager {eager}.",
        "编译后给出 {compiled} 个结果，未编译为 {eager} 个。", severity="error",
    ),
    Message(
        "P250", "operators-compared", "error:precheck", "count failed more folder",
        '{count} operators were compared, {failed} do not agree{more}; see "{folder}".',
        '比较了 {count} 个算子，{failed} 个不一致{more}；见 "{folder}"。', severity="note",
    ),
    Message(
        "P251", "operator-not-compared", "warning:work", "name error",
        "{name} is not compared: {error}",
        "不比较 {name}：{error}", severity="warning",
    ),
    Message(
        "P252", "operator-could-not-be-compared", "warning:work", "name type error",
        "{name} could not be compared: {type}: {error}",
        "无法比较 {name}：{type}：{error}", severity="warning",
    ),
    Message(
        "P253", "operator-disagrees", "warning:work", "name who why",
        "{name} does not agree with {who}: {why}.",
        "{name} 与 {who} 不一致：{why}。", severity="warning",
    ),
    Message(
        "P254", "operator-agrees", "error:precheck", "name who",
        "{name} agrees with {who}.",
        "{name} 与 {who} 一致。", severity="note",
    ),
    Message(
        "P255", "api-list-unknown", "warning:work", "unknown",
        "PtdbgDispatch: {unknown} in api_list is no operator of torch.ops.aten.",
        "PtdbgDispatch：api_list 中的 {unknown} 不是 torch.ops.aten 的算子。", severity="warning",
    ),
)

PIECES: tuple[Piece, ...] = (
    Piece("frame-magic-wrong", "found magic", "a frame begins with {found!r}, not with {magic!r}", "帧以 {found!r} 开头，而不是 {magic!r}"),
    Piece("frame-lengths", "header_length length", "a frame says that it has {header_length} bytes of header and {length} of data", "帧声明有 {header_length} 字节头部和 {length} 字节数据"),
    Piece("frame-checksum-wrong", "", "the checksum of a frame is wrong", "帧的校验和错误"),
    Piece("mark-too-large", "most_bytes", "it has more than {most_bytes} bytes", "超过 {most_bytes} 字节"),
    Piece("mark-nested", "", "it is nested too deep", "嵌套过深"),
    Piece("mark-rank-wrong", "", "a rank must be a whole number of 31 bits", "rank 必须是 31 位整数"),
    Piece("mark-names-no-process", "", "it names no process", "没有指明进程"),
    Piece("header-too-deep", "most_depth", "the header of a frame is nested more than {most_depth} deep", "帧头嵌套超过 {most_depth} 层"),
    Piece("header-is-no-json", "error", "the header of a frame is no JSON: {error}", "帧头不是 JSON：{error}"),
    Piece("header-is-no-object", "", "the header of a frame is no object", "帧头不是对象"),
    Piece("frame-kind-unknown", "kind", "no frame is of the kind {kind}", "没有种类为 {kind} 的帧"),
    Piece("frame-lacks-field", "kind field", 'a frame of the kind "{kind}" has no "{field}"', '种类为 "{kind}" 的帧没有 "{field}"'),
    Piece("frame-field-wrong", "field kind found allowed", '"{field}" of a frame of the kind "{kind}" is {found}; allowed: {allowed}', '种类为 "{kind}" 的帧的 "{field}" 为 {found}；允许：{allowed}'),
    Piece("frame-field-unknown", "kind field", 'a frame of the kind "{kind}" has no field {field}', '种类为 "{kind}" 的帧没有字段 {field}'),
    Piece("frame-bytes-do-not-fit", "length dtype shape", "{length} bytes do not fit a tensor of type {dtype} and shape {shape}", "{length} 字节与类型 {dtype}、shape {shape} 的张量不符"),
    Piece("frame-record-length", "length most_record_bytes", "a record has {length} bytes; allowed: 1 to {most_record_bytes}", "记录有 {length} 字节；允许 1 到 {most_record_bytes}"),
    Piece("frame-data-not-allowed", "kind length", 'a frame of the kind "{kind}" has {length} bytes of data; allowed: none', '种类为 "{kind}" 的帧有 {length} 字节数据；不允许有数据'),
    Piece("sent-record-too-deep", "most_depth", "a record is nested more than {most_depth} deep", "记录嵌套超过 {most_depth} 层"),
    Piece("sent-record-is-no-json", "error", "a record is no JSON: {error}", "记录不是 JSON：{error}"),
    Piece("sent-record-is-no-object", "", "a record is no object", "记录不是对象"),
    Piece("sent-nested-too-deep", "what most_depth", "{what} is nested more than {most_depth} deep", "{what} 嵌套超过 {most_depth} 层"),
    Piece("number-too-long", "digits", "a number has more than 64 bits: {digits}...", "有数值超过 64 位：{digits}..."),
    Piece("number-not-finite", "found", "a number is not finite: {found}", "有数值为 NaN 或无穷大：{found}"),
    Piece("frame-of-different-file", "", "its name or its length is that of a different frame", "其名称或长度属于其他帧"),
    Piece("bytes-missing", "found length", "{found} of {length} bytes are there", "{length} 字节中只有 {found} 字节"),
    Piece("frame-out-of-order", "sequence last", "frame {sequence} follows frame {last}", "帧 {sequence} 在帧 {last} 之后"),
    Piece("kind-not-known", "", "nothing is known of its kind", "种类未知"),
    Piece("second-sender", "", "a connection has one sender, and this frame is from a second one", "一个连接只有一个发送方，而此帧来自第二个"),
    Piece("key-without-passphrase", "passphrase", "the key is encrypted, and {passphrase} is not set", "密钥已加密，而没有设置 {passphrase}"),
    Piece("reason-too-long", "number", "a reason of {number} bytes is no answer of a check", "{number} 字节的原因不是检查的回答"),
    Piece("bytes-received", "found length", "{found} of {length} bytes were received", "收到 {length} 字节中的 {found} 字节"),
)
