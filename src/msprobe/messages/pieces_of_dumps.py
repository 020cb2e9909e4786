"""Pieces of what is said of dumps: which steps and ranks are there, and why something cannot be read."""

from __future__ import annotations

from msprobe.messages.entry import Piece

# fmt: off
PIECES: tuple[Piece, ...] = (
    Piece(
        "json-line-and-column", "line column",
        "line {line}, column {column}",
        "第 {line} 行第 {column} 列",
    ),
    Piece(
        "json-byte", "place",
        "byte {place}",
        "第 {place} 字节",
    ),
    Piece(
        "json-problem-at", "problem where",
        "{problem} at {where}",
        "{where}：{problem}",
    ),
    Piece(
        "json-byte-no-utf8", "place",
        "byte {place} is no UTF-8",
        "第 {place} 字节不是 UTF-8",
    ),
    Piece(
        "nested-too-deeply", "",
        "it is nested too deeply",
        "嵌套过深",
    ),
    Piece(
        "json-byte-of-encoding", "place encoding",
        "byte {place} is no {encoding}",
        "第 {place} 字节不是 {encoding}",
    ),
    Piece(
        "does-not-fit-memory", "",
        "it does not fit into memory",
        "内存不足以容纳",
    ),
    Piece(
        "json-name-no-utf8", "",
        "a name in it is no UTF-8",
        "其中某个名称不是 UTF-8",
    ),
    Piece(
        "json-digits", "limit",
        "a number in it has more than {limit} digits",
        "其中某个数超过 {limit} 位",
    ),
    Piece(
        "one-rank-at", "rank where paths",
        "rank {rank}{where} is in {paths}.",
        "rank {rank}{where} 位于 {paths}。",
    ),
    Piece(
        "several-ranks-at", "ranks where paths",
        "ranks {ranks}{where} are in {paths}.",
        "rank {ranks}{where} 位于 {paths}。",
    ),
    Piece(
        "single-folder-at", "where paths",
        "the folder rank (of a single process){where} is in {paths}.",
        "文件夹 rank（单个进程）{where} 位于 {paths}。",
    ),
    Piece(
        "path-and-in", "first second",
        "{first} and in {second}",
        "{first} 和 {second}",
    ),
    Piece(
        "collect-more-steps", "count",
        "So it is in {count} more steps.",
        "另有 {count} 个 step 也是如此。",
    ),
    Piece(
        "collect-give-folders", "",
        "Give folders of one run, each once, recorded with the ranks of the whole run (RANK, not LOCAL_RANK).",
        "请给出同一次运行的文件夹，每个一次，且按整个运行的 rank（RANK，而非 LOCAL_RANK）采集。",
    ),
    Piece(
        "of-step", "step",
        " of step {step}",
        "（step {step}）",
    ),
    Piece(
        "numbers-in-all", "count",
        ", ... ({count} in all)",
        "等（共 {count} 个）",
    ),
    Piece(
        "place-unreadable", "place problem",
        "{place} cannot be read: {problem}",
        "无法读取 {place}：{problem}",
    ),
    Piece(
        "dump-file-gone", "file",
        "it has no {file}, though other files of a dump are there.",
        "它没有 {file}，而 dump 的其他文件存在。",
    ),
    Piece(
        "rank-missing-in-step", "step ranks",
        "step {step}: rank {ranks} is missing, which other steps have; killed before this step, or not recorded",
        "step {step}：缺少其他 step 都有的 rank {ranks}；它在该 step 之前被终止，或没有采集",
    ),
    Piece(
        "ranks-missing-in-step", "step ranks",
        "step {step}: ranks {ranks} are missing, which other steps have; killed before this step, or not recorded",
        "step {step}：缺少其他 step 都有的 rank {ranks}；它们在该 step 之前被终止，或没有采集",
    ),
    Piece(
        "rank-missing-everywhere", "ranks",
        "rank {ranks}: missing from every step; not copied to this place, or not recorded",
        "rank {ranks}：所有 step 都缺少；没有复制到此处，或没有采集",
    ),
    Piece(
        "ranks-missing-everywhere", "ranks",
        "ranks {ranks}: missing from every step; not copied to this place, or not recorded",
        "rank {ranks}：所有 step 都缺少；没有复制到此处，或没有采集",
    ),
    Piece(
        "and-more-of", "count",
        " and {count} more",
        "等另外 {count} 个",
    ),
    Piece(
        "acl-bytes-left", "count",
        "{count} bytes after the last tensor are not described and left out",
        "最后一个张量之后有 {count} 字节没有描述，略过",
    ),
    Piece(
        "kernel-type-as-bytes", "kind",
        "{kind} is given as bytes",
        "{kind} 以字节形式给出",
    ),
    Piece(
        "kernel-tensor-without-data", "name",
        "{name} has no data and is left out",
        "{name} 没有数据，略过",
    ),
    Piece(
        "format-not-convertible", "source wanted",
        "there is no conversion from {source} to {wanted}; it is left as it is",
        "不能从 {source} 转换为 {wanted}；保持原样",
    ),
    Piece(
        "format-kept", "source problem",
        "it is left in {source}: {problem}",
        "保持 {source}：{problem}",
    ),
    Piece(
        "dumps-are-in-give", "paths",
        "There are dumps in {paths}: give one of these paths.",
        "dump 在 {paths}：请给出其中一个路径。",
    ),
    Piece(
        "dump-is-there", "path",
        'The dump is in "{path}": give this path.',
        'dump 在 "{path}"：请给出此路径。',
    ),
    Piece(
        "may-be-checkpoint", "",
        "If it is a checkpoint, `msprobe config_check -c A B` compares two.",
        "如果它是检查点，请用 `msprobe config_check -c A B` 比对。",
    ),
    Piece(
        "may-be-pack", "",
        "If it is a pack of `msprobe config_check`, `msprobe config_check -c A B` compares two.",
        "如果它是 `msprobe config_check` 的配置包，请用 `msprobe config_check -c A B` 比对。",
    ),
    Piece(
        "is-output-of-monitor", "",
        "It is the output of the monitor: `msprobe monitor diff CANDIDATE REFERENCE` compares two, `msprobe monitor report` shows one.",
        "它是监控的输出：`msprobe monitor diff CANDIDATE REFERENCE` 比对两份，`msprobe monitor report` 展示一份。",
    ),
    Piece(
        "is-of-grad-probe", "",
        "It is a recording of grad_probe: `msprobe grad_compare CANDIDATE REFERENCE -o DIR` compares two.",
        "它是 grad_probe 的记录：请用 `msprobe grad_compare CANDIDATE REFERENCE -o DIR` 比对。",
    ),
    Piece(
        "belongs-to-dump", "path",
        'It belongs to the dump in "{path}": give this path.',
        '它属于 "{path}" 中的 dump：请给出此路径。',
    ),
    Piece(
        "belongs-to-dump-of-steps", "path whole",
        'It belongs to the dump in "{path}": give this path, or "{whole}" for all steps.',
        '它属于 "{path}" 中的 dump：请给出此路径，或用 "{whole}" 给出所有 step。',
    ),
    Piece(
        "folder-has-steps", "folder names",
        '"{folder}" has {names}.',
        '"{folder}" 中有 {names}。',
    ),
    Piece(
        "dumps-are-in", "paths",
        "There are dumps in {paths}.",
        "dump 在 {paths}。",
    ),
    Piece(
        "mean-path", "path",
        'Did you mean "{path}"?',
        '是否指 "{path}"？',
    ),
    Piece(
        "mean-path-below", "path below",
        'Did you mean "{path}"? {below}',
        '是否指 "{path}"？{below}',
    ),
    Piece(
        "and-more-dumps", "",
        " and more",
        "等",
    ),
    Piece(
        "two-paths", "first last",
        "{first} and {last}",
        "{first} 和 {last}",
    ),
    Piece(
        "give-existing-file", "",
        "give the path of an existing file.",
        "请给出已有文件的路径。",
    ),
    Piece(
        "mean-shown", "path",
        "did you mean {path}?",
        "是否指 {path}？",
    ),
    Piece(
        "link-that-leads-nowhere", "",
        "a symbolic link to nothing",
        "指向不存在目标的符号链接",
    ),
    Piece(
        "packages-share-name", "subject commands",
        "the installed {subject} the name and files of this tool, which may break both: {commands} (`msprobe doctor` says more).",
        "已安装的{subject}与本工具相同的名称和文件，两者都可能损坏：{commands}（详见 `msprobe doctor`）。",
    ),
    Piece(
        "one-package-shares", "name",
        "package {name} shares",
        "包 {name} 使用",
    ),
    Piece(
        "packages-share", "names",
        "packages {names} share",
        "包 {names} 使用",
    ),
)
