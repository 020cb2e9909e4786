"""What is wrong with a value of a file of settings, as a piece behind its field."""

from __future__ import annotations

from msprobe.messages.entry import Piece

# fmt: off
PIECES: tuple[Piece, ...] = (
    Piece(
        "must-be-whole-from-to", "least most found",
        "must be a whole number from {least} to {most}, found {found}",
        "必须是 {least} 到 {most} 的整数，实际为 {found}",
    ),
    Piece(
        "must-be-whole-from", "least found",
        "must be a whole number from {least}, found {found}",
        "必须是不小于 {least} 的整数，实际为 {found}",
    ),
    Piece(
        "must-be", "what found",
        "must be {what}, found {found}",
        "必须是{what}，实际为 {found}",
    ),
    Piece(
        "must-be-one-of", "words found near",
        "must be one of {words}, found {found}{near}",
        "必须是 {words} 之一，实际为 {found}{near}",
    ),
    Piece(
        "must-be-either", "words found near",
        "must be {words}, found {found}{near}",
        "必须是 {words}，实际为 {found}{near}",
    ),
    Piece(
        "one-or-other", "first second",
        "{first} or {second}",
        "{first} 或 {second}",
    ),
    Piece(
        "field-missing", "hint",
        "is missing; {hint}",
        "缺失；{hint}",
    ),
    Piece(
        "is-missing", "",
        "is missing",
        "缺失",
    ),
    Piece(
        "field-not-known", "hint",
        "is not known{hint}",
        "未知{hint}",
    ),
    Piece(
        "known-are", "names",
        "; known are {names}",
        "；已知的有 {names}",
    ),
    Piece(
        "name-must-be-text", "found",
        "the name before the colon must be a text, found {found}",
        "冒号之前的名称必须是文本，实际为 {found}",
    ),
    Piece(
        "value-unreadable", "found",
        "cannot be read, found {found}",
        "无法读取，实际为 {found}",
    ),
    Piece(
        "whole-file", "file what",
        "{file} {what}",
        "{file}{what}",
    ),
    Piece(
        "is-empty-give-dump", "",
        "is empty; give the path of a dump.json or of a step folder",
        "为空；请给出 dump.json 或 step 文件夹的路径",
    ),
    Piece(
        "is-empty-give-api", "",
        "is empty; give at least api: a list of names of APIs",
        "为空；请至少给出 api：API 名称列表",
    ),
    Piece(
        "must-be-object-give-api", "",
        "must be an object; give at least api: a list of names of APIs",
        "必须是对象；请至少给出 api：API 名称列表",
    ),
    Piece(
        "is-empty-expected", "expected",
        "is empty; expected {expected}",
        "为空；应为 {expected}",
    ),
    Piece(
        "is-of-sort-expected", "sort expected",
        "is {sort}; expected {expected}",
        "是{sort}；应为 {expected}",
    ),
    Piece(
        "expected-found", "what found",
        "expected {what}, found {found}",
        "应为{what}，实际为{found}",
    ),
    Piece(
        "must-be-object-with", "names found",
        "must be an object with {names}, found {found}",
        "必须是含 {names} 的对象，实际为 {found}",
    ),
    Piece(
        "must-be-object-with-some", "names found",
        "must be an object with some of {names}, found {found}",
        "必须是含 {names} 中若干项的对象，实际为 {found}",
    ),
    Piece(
        "must-be-list-of", "names found",
        "must be a list of {names}, found {found}",
        "必须是由 {names} 组成的列表，实际为 {found}",
    ),
    Piece(
        "must-name-axes", "",
        "must name the axes and their sizes, the slowest first, as {{data: 2, tensor: 2}}",
        "必须列出各轴及其大小，变化最慢的在前，例如 {{data: 2, tensor: 2}}",
    ),
    Piece(
        "must-have-sides", "",
        "must be an object with the keys candidate, reference, or both",
        "必须是含键 candidate、reference 或两者的对象",
    ),
    Piece(
        "no-field-of-monitor", "",
        "is no field of a monitor",
        "不是监控的字段",
    ),
    Piece(
        "must-be-csv", "found",
        'must be "csv", found {found}; TrainerMon has other formats',
        '必须是 "csv"，实际为 {found}；其他格式请用 TrainerMon',
    ),
    Piece(
        "value-of-type", "kind",
        "a value of type {kind}",
        "类型为 {kind} 的值",
    ),
    Piece(
        "must-be-object-of-names", "found",
        "must be an object whose keys are names of modules or parameters, found {found}",
        "必须是以模块或参数名称为键的对象，实际为 {found}",
    ),
    Piece(
        "member-must-be-object", "name found",
        "[{name!r}] must be an object, found {found}",
        "[{name!r}] 必须是对象，实际为 {found}",
    ),
    Piece(
        "must-be-two-timestamps", "found",
        "must be empty, or the first and the last timestamp, found {found}",
        "必须为空，或给出第一个和最后一个时间戳，实际为 {found}",
    ),
    Piece(
        "must-be-object-with-rules", "found",
        "must be an object with rules, found {found}",
        "必须是含 rules 的对象，实际为 {found}",
    ),
    Piece(
        "no-metric", "name near",
        "{name} is not a metric{near}",
        "{name} 不是指标{near}",
    ),
    Piece(
        "layer-mapping-needs-both", "",
        "a layer mapping needs both parts",
        "层映射需要两部分",
    ),
)
