"""Files of log-probs, recorded engines and trainers that cannot be read (U501 to U513)."""

from __future__ import annotations

from msprobe.messages.entry import Message

# fmt: off
MESSAGES: tuple[Message, ...] = (
    Message(
        "U501", "log-probs-missing", "error:usage", "path found names",
        '"{path}" has no field of log-probs; found {found}. Call it log_probs (or one of {names}, ...), with a number for each token.',
        '"{path}" 中没有 log-prob 字段；实际有 {found}。请命名为 log_probs（或 {names} 等之一），每个 token 一个数。', severity="error",
    ),
    Message(
        "U502", "responses-unreadable", "error:usage", "path field why",
        '"{path}": no response of it can be read from its field "{field}"{why}.',
        '"{path}"：无法从字段 "{field}" 读出任何回答{why}。', severity="error",
    ),
    Message(
        "U503", "log-probs-file-unknown", "error:usage", "path",
        '"{path}" is no file of log-probs; known are .jsonl, .json, .csv, .tsv and .pt.',
        '"{path}" 不是 log-prob 文件；支持 .jsonl、.json、.csv、.tsv 和 .pt。', severity="error",
    ),
    Message(
        "U504", "log-probs-csv-unreadable", "error:usage", "path problem",
        '"{path}" is no readable csv file: {problem}.',
        '"{path}" 不是可读的 csv 文件：{problem}。', severity="error",
    ),
    Message(
        "U505", "log-probs-tree-unknown", "error:usage", "path what",
        '"{path}" holds {what}; save a dict of tensors, or a list of dicts.',
        '"{path}" 的内容是 {what}；请保存张量的 dict，或 dict 的列表。', severity="error",
    ),
    Message(
        "U506", "log-probs-row-unknown", "error:usage", "path type",
        '"{path}" holds a {type} where a dict of fields was expected.',
        '"{path}" 中应为各字段的 dict 的位置是 {type}。', severity="error",
    ),
    Message(
        "U507", "engine-file-broken", "error:usage", "path problem",
        '"{path}" is no file that the recorder of an engine wrote: {problem}.',
        '"{path}" 不是引擎采集写出的文件：{problem}。', severity="error",
    ),
    Message(
        "U508", "one-step-of-the-engine", "error:usage", "path count",
        '"{path}" has {count} steps; give one of them (a folder step0, ...).',
        '"{path}" 有 {count} 个 step；请给出其中一个（文件夹 step0 等）。', severity="error",
    ),
    Message(
        "U509", "engine-without-modules", "error:usage", "path",
        '"{path}" has no results of modules; record the engine with level L0 and task tensor.',
        '"{path}" 没有模块的结果；请以 level L0、task tensor 采集引擎。', severity="error",
    ),
    Message(
        "U510", "trainer-unreadable", "error:usage", "path problem",
        '"{path}" is no folder of a model in safetensors that transformers loads: {problem}',
        '"{path}" 不是 transformers 能以 safetensors 加载的模型文件夹：{problem}', severity="error",
    ),
    Message(
        "U511", "workers-without-probe", "error:usage", "method worker",
        'the workers of the engine have no method "{method}"; make it with LLM(..., worker_extension_cls="{worker}").',
        '引擎的 worker 没有方法 "{method}"；请用 LLM(..., worker_extension_cls="{worker}") 创建。', severity="error",
    ),
)
