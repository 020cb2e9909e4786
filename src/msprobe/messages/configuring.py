"""Messages of the configuration: config.json, its arguments, and other files of settings (G1)."""

from __future__ import annotations

from msprobe.messages.entry import Message

# fmt: off
MESSAGES: tuple[Message, ...] = (
    Message(
        "G101", "setting-left-out", "warning:config", "field what",
        "{field} is left out: it {what}",
        "略过 {field}：它{what}", severity="warning",
    ),
    Message(
        "G102", "benchmark-takes-l1", "warning:config", "where task level",
        '{where}: task "{task}" records calls; L1 is taken, not {level}',
        '{where}：task "{task}" 采集调用；采用 L1，而不是 {level}', severity="warning",
    ),
    Message(
        "G103", "benchmark-scope-without-match", "warning:config", "where found stage",
        "{where}: found {found}: in stage {stage} names end in .{stage}, so nothing can match",
        "{where}：实际为 {found}：stage {stage} 的名称以 .{stage} 结尾，因此不会匹配任何内容", severity="warning",
    ),
    Message(
        "G104", "json-text-not-utf8", "error:recording", "name line column encoding byte",
        "{name}:{line}:{column}: not {encoding} text (byte 0x{byte:02x}); save the file as UTF-8.",
        "{name}:{line}:{column}：不是 {encoding} 文本（字节 0x{byte:02x}）；请将文件保存为 UTF-8。", severity="error",
    ),
    Message(
        "G105", "json-broken", "error:recording", "name line column found expected",
        "{name}:{line}:{column}: broken JSON: found {found}; expected {expected}.",
        "{name}:{line}:{column}：JSON 有误：实际为{found}；应为{expected}。", severity="error",
    ),
    Message(
        "G106", "field-twice", "warning:config", "name line field first",
        '{name}:{line}: field "{field}" is there twice, first in line {first}; the last one counts',
        '{name}:{line}：字段 "{field}" 出现两次，第一次在第 {first} 行；以最后一个为准', severity="warning",
    ),
    Message(
        "G107", "more-fields-twice", "warning:config", "name count",
        "{name}: {count} more fields are there twice; the last one counts",
        "{name}：另有 {count} 个字段出现两次；以最后一个为准", severity="warning",
    ),
    Message(
        "G108", "field-also-in-line", "warning:config", "name line field first",
        '{name}:{line}: field "{field}" is also in line {first}; this one counts.',
        '{name}:{line}：字段 "{field}" 在第 {first} 行也有；以此处为准。', severity="warning",
    ),
    Message(
        "G109", "more-fields-also", "warning:config", "name count",
        "{name}: {count} more fields are there twice; the last one counts.",
        "{name}：另有 {count} 个字段出现两次；以最后一个为准。", severity="warning",
    ),
    Message(
        "G110", "arguments-have-mistakes", "error:recording", "count mistakes",
        "the arguments have {count} mistakes:{mistakes}",
        "参数有 {count} 处错误：{mistakes}", severity="error",
    ),
    Message(
        "G111", "config-has-mistakes", "error:recording", "place count mistakes",
        "the configuration ({place}) has {count} mistakes:{mistakes}",
        "配置（{place}）有 {count} 处错误：{mistakes}", severity="error",
    ),
    Message(
        "G112", "config-mistake", "error:recording", "mistake",
        "{mistake}",
        "{mistake}", severity="error",
    ),
    Message(
        "G113", "mistake-in-unused-section", "warning:config", "mistake section task",
        '{mistake} (section "{section}" is not used by task "{task}")',
        '{mistake}（task "{task}" 不使用配置段 "{section}"）', severity="warning",
    ),
    Message(
        "G114", "no-effect-with-task", "warning:config", "where task",
        '{where}: has no effect with task "{task}"',
        '{where}：对 task "{task}" 没有作用', severity="warning",
    ),
    Message(
        "G115", "no-effect-at-debug", "warning:config", "where",
        "{where}: has no effect at level debug",
        "{where}：在 level debug 下没有作用", severity="warning",
    ),
    Message(
        "G116", "no-effect-without-online", "warning:config", "where",
        "{where}: has no effect without online_run_ut: true",
        "{where}：没有 online_run_ut: true 时没有作用", severity="warning",
    ),
    Message(
        "G117", "no-effect-without-bench", "warning:config", "where",
        "{where}: has no effect, as this version does not compare while it records (bench_path)",
        "{where}：没有作用，因为本版本不支持边采集边比对（bench_path）", severity="warning",
    ),
    Message(
        "G118", "structure-takes-mix", "warning:config", "where level",
        '{where}: task "structure" is recorded at level L0 or mix; mix is taken, not {level}',
        '{where}：task "structure" 以 level L0 或 mix 采集；采用 mix，而不是 {level}', severity="warning",
    ),
    Message(
        "G119", "debug-needs-task", "warning:config", "where task",
        '{where}: level debug records the values that save() gets, and save() needs task "statistics" or "tensor"; with task "{task}" nothing will be recorded',
        '{where}：level debug 采集传给 save() 的值，而 save() 需要 task "statistics" 或 "tensor"；task "{task}" 不会采集任何内容', severity="warning",
    ),
    Message(
        "G120", "unknown-field", "warning:config", "where hint",
        "{where}: unknown field, ignored{hint}",
        "{where}：未知字段，已忽略{hint}", severity="warning",
    ),
    Message(
        "G121", "more-unknown-fields", "warning:config", "name count",
        "{name}: {count} more unknown fields, ignored",
        "{name}：另有 {count} 个未知字段，已忽略", severity="warning",
    ),
)
