"""The pages of docs/reference that are made from the code: commands, settings, Python.

``python tests/reference_pages.py`` writes them; a test holds that they are what it would write.
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
import inspect
import re
import textwrap
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, get_args, get_origin

from msprobe.cli import commands, common
from msprobe.cli.parser import Parser
from msprobe.cli.spellings import filled, others, shown
from msprobe.messages import Language, in_language

FOLDER = Path(__file__).parents[1] / "docs" / "reference"
_MADE = "<!-- Written by `python tests/reference_pages.py`; change the code, and run it again. -->\n"


def _cell(text: object) -> str:
    """A text as it stands in a cell of a table."""
    return " ".join(str(text).split()).replace("|", "\\|").replace("<", "&lt;")


def _code(text: object) -> str:
    return f"`{_cell(text)}`".replace("&lt;", "<")


# ---------------------------------------------------------------- commands

_BEFORE = (
    """\
# Command line

[中文](commands.zh.md)

`msprobe COMMAND ...`; `msprobe COMMAND -h` explains a command, `msprobe help --all` has further names of commands.

- **Spelling.** Options begin with `--` and have hyphens. Each spelling of mindstudio-probe (8.1.1, 26.2.0) works
  beside it in the commands that come from there: a single letter, `-api_info`, underscores. In names of commands a
  hyphen may stand for an underscore.
- **Letters.** `-o` is the output, `-q` quiet, `-h` help, `-f` before the command the framework. In commands of
  mindstudio-probe its letters mean what they mean there (`compare -f`: `--fuzzy-match`); the help names them behind
  the text of their option.
- **Two runs.** The doubted one (candidate) stands first, the trusted one (reference) second; or `--candidate RUN
  --reference RUN` in any order. `config_check -c` has the trusted one first, as in mindstudio-probe.
- **`--json`** prints the result as one JSON object and nothing else: what the command has as a file
  (`verdict.json`, `check.json`, ...), or `version`, `command`, `exit_status`, facts of the command, `files` and
  `text`; of a command that could not do its work `error`. What a script of the user prints goes to stderr then.
  `--json -` is the older form.
- **Language.** Help, answers, errors and warnings are in Chinese if `MSPROBE_LANG=zh` or the locale asks for it;
  `MSPROBE_LANG=en` asks for English. Files and `--json` are in English, with codes; html pages have both languages.
- **`--quiet`** prints nothing on stdout but what a script of the user prints; errors and warnings go to stderr.
- **Completion.** `eval "$(msprobe completion bash)"`; also for `zsh` and `fish`.

## Options of every command

They stand before the name of the command or behind it.

{common}

## Exit status

0 is clean, 1 says that something was found, 2 that it could not be done: wrong usage, bad input, or nothing was
found where not all could be read. Commands of mindstudio-probe that answer with 0 whatever they find do so here,
too; `--fail-on` asks for 1. Ctrl-C ends with 130, `msprobe run` with the status of the script, a script of
`reproduce` or `op_generate` with 1 where the call is wrong.

{statuses}
""",
    """\
# 命令行

[English](commands.md)

`msprobe COMMAND ...`；`msprobe COMMAND -h` 说明一个命令，`msprobe help --all` 列出命令的其他名称。

- **写法。** 选项以 `--` 开头，用连字符。来自 mindstudio-probe（8.1.1、26.2.0）的命令同时接受其原有写法：单个字母、
  `-api_info`、下划线。命令名中连字符可代替下划线。
- **字母。** `-o` 为输出，`-q` 为安静，`-h` 为帮助，命令之前的 `-f` 为框架。mindstudio-probe 的命令中，字母的含义与
  原来相同（`compare -f`：`--fuzzy-match`）；帮助在选项说明之后列出它们。
- **两次运行。** 待比对侧（candidate）在前，标杆侧（reference）在后；或以任意次序写 `--candidate RUN --reference RUN`。
  `config_check -c` 同 mindstudio-probe，标杆侧在前。
- **`--json`** 只打印一个 JSON 对象作为结果：命令写成文件的内容（`verdict.json`、`check.json` 等），或 `version`、
  `command`、`exit_status`、命令的各项结果、`files` 与 `text`；无法完成时为 `error`。用户脚本打印的内容此时写到
  stderr。`--json -` 是旧写法。
- **语言。** `MSPROBE_LANG=zh` 或 locale 为中文时，帮助、结果、错误与警告用中文；`MSPROBE_LANG=en` 为英文。文件与
  `--json` 用英文并带代码；html 页面两种语言都有。
- **`--quiet`** 除用户脚本打印的内容外，stdout 上不打印任何内容；错误与警告写到 stderr。
- **补全。** `eval "$(msprobe completion bash)"`；也支持 `zsh` 与 `fish`。

## 所有命令共有的选项

可写在命令名之前或之后。

{common}

<a id="exit-status"></a>

## 退出码

0 表示没有问题，1 表示有发现，2 表示无法完成：用法错误、输入有误，或没有发现但未能全部读取。mindstudio-probe 中无论
发现什么都返回 0 的命令在此相同；`--fail-on` 可要求返回 1。Ctrl-C 以 130 结束；`msprobe run` 以脚本的退出码结束；
`reproduce` 或 `op_generate` 写出的脚本在调用有误时以 1 结束。

{statuses}
""",
)
_LANGUAGES: tuple[Language, Language] = ("en", "zh")
_COLUMNS = (("option", "meaning", "also"), ("选项", "含义", "也可写作"))
_STATUSES = (
    ("command", "0", "1", "2, beside wrong usage and bad input"),
    ("命令", "0", "1", "2（用法错误与输入有误之外）"),
)
_FACTS = (("Reads {}.", "Writes {}.", "Also called {}."), ("读取{}。", "写出{}。", "也称 {}。"))


def commands_page(place: int = 0) -> str:
    """All commands: what they are called with, and what they answer; in English (0) or in Chinese (1)."""
    only = Parser(add_help=False)
    common.add_common(only)
    head = _BEFORE[place].format(common="\n".join(_options(only, place)), statuses="\n".join(_statuses(place)))
    return head + "".join(_group(*group, place) for group in commands.GROUPS.items())


def _head(columns: Sequence[str]) -> str:
    return f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}"


def _statuses(place: int) -> Iterator[str]:
    yield _head(_STATUSES[place])
    for one in commands.COMMANDS.values():
        said = " | ".join(
            _cell(in_language(text, _LANGUAGES[place])) for text in (one.clean, one.on_findings, one.could_not)
        )
        yield f"| [`{one.name}`](#{_anchor(one.name)}) | {said} |"


def _anchor(name: str) -> str:
    return re.sub(r"[^\w-]", "", name.replace(" ", "-")).lower()


def _group(group: str, text: str, place: int) -> str:
    language, (reads, writes, also) = _LANGUAGES[place], _FACTS[place]
    text = in_language(text, language)
    lines = [f"\n## {text[0].upper()}{text[1:]}\n"]
    for one in commands.commands_of_group(group):
        parser = commands.parser_of(one)
        parser_usage = textwrap.dedent(str(parser.usage).replace("       ", ""))
        lines += [f"### {one.name}\n", in_language(one.sentence, language), "", f"```\n{parser_usage}\n```", ""]
        if one.aliases:
            lines += [also.format(", ".join(map(_code, one.aliases))), ""]
        facts = [reads.format(in_language(one.reads, language))] if one.reads != "nothing" else []
        facts += [writes.format(in_language(one.writes, language))] if one.writes else []
        lines += [(" " if language == "en" else "").join(facts), ""] if facts else []
        lines += [*_options(parser, place, {"json", "quiet", "debug", "limit", "follow_links", "help"}), ""]
        if parser.epilog:
            lines += ["```", filled(in_language(parser.epilog, language), 118), "```", ""]
    return "\n".join(lines)


def _options(parser: argparse.ArgumentParser, place: int, without: Collection[str] = ()) -> Iterator[str]:
    actions = [one for one in parser._actions if one.dest not in without and one.help != argparse.SUPPRESS]
    if actions:
        yield _head(_COLUMNS[place])
    for one in actions:
        names = ", ".join(shown(one.option_strings)) or str(one.metavar or one.dest)
        value = "" if one.nargs == 0 or not one.option_strings else f" {_value(one)}"
        also = ", ".join(map(_code, others(one.option_strings)))
        yield f"| {_code(names + value)} | {_cell(in_language(one.help or '', _LANGUAGES[place]))} | {also} |"


def _value(action: argparse.Action) -> str:
    if action.metavar is None:
        name = f"{{{','.join(map(str, action.choices))}}}" if action.choices is not None else action.dest.upper()
    else:
        name = action.metavar if isinstance(action.metavar, str) else " ".join(action.metavar)
    return {"?": f"[{name}]", "*": f"[{name} ...]", "+": f"{name} [{name} ...]"}.get(str(action.nargs), name)


# ---------------------------------------------------------------- settings


def settings_page() -> str:
    """All settings of a recording, as the program holds them."""
    from msprobe.config import settings

    head = f"""\
{_MADE}# All settings

What `config.json` becomes, field by field, with default and allowed values. What they do:
[Settings](../configuration.md), [grad_probe](../grad_probe.md), [free_benchmark](../free_benchmark.md),
[lockstep](../lockstep.md); of a monitor: [monitor](../monitor.md).
"""
    classes = {
        "Recording": settings.Settings,
        "Section `grad_probe`": settings.GradientProbe,
        "Section `free_benchmark`": settings.FreeBenchmark,
        "Online check": settings.Online,
        "Task `lockstep`": settings.Lockstep,
    }
    return head + "".join(_fields(title, found) for title, found in classes.items())


def _fields(title: str, found: type[Any]) -> str:
    about = " ".join((inspect.getdoc(found) or "").replace("``", "`").split())
    about = re.sub(r":\w+:`([^`]*)`", r"`\1`", about)
    lines = [f"\n## {title}\n", about, "", "| field | default | values | |", "|---|---|---|---|"]
    notes = _notes(found)
    hints = inspect.get_annotations(found)
    module = inspect.getmodule(found)
    assert module is not None
    for one in dataclasses.fields(found):
        default = "required" if one.default is dataclasses.MISSING else _code(repr(one.default))
        kind = eval(str(hints[one.name]), vars(module))  # the annotations are texts of this module
        lines.append(f"| `{one.name}` | {default} | {_values(kind)} | {_cell(notes.get(one.name, ''))} |")
    return "\n".join(lines) + "\n"


def _values(kind: Any) -> str:
    if get_args(kind) and all(isinstance(one, str) for one in get_args(kind)):
        return ", ".join(_code(one) for one in get_args(kind))
    options = [one for one in get_args(kind) if one is not type(None)]
    if type(None) in get_args(kind) or str(get_origin(kind)) in ("typing.Union", "<class 'types.UnionType'>"):
        return ", ".join(map(_values, options))
    if get_origin(kind) is tuple:
        return f"list of {', '.join(dict.fromkeys(_values(one) for one in get_args(kind) if one is not Ellipsis))}"
    words = {"str": "text", "bool": "true, false", "int": "whole number", "float": "number", "Path": "path"}
    name = getattr(kind, "__name__", str(kind))
    return words.get(name, name)


def _notes(found: type[Any]) -> dict[str, str]:
    """What comments say of each field: those right above it."""
    notes: dict[str, str] = {}
    said: list[str] = []
    for line in inspect.getsource(found).splitlines():
        text = line.strip()
        if text.startswith("#"):
            said.append(text.lstrip("#: "))
            continue
        if named := re.match(r"(\w+): ", text):
            notes[named[1]] = " ".join(said)
        said = []
    return notes


# ---------------------------------------------------------------- Python


def python_page() -> str:
    """What scripts import, with signatures and docstrings."""
    import msprobe
    import msprobe.pytorch
    import msprobe.results

    head = f"""\
{_MADE}# Python

What scripts and notebooks import; examples: [From Python and in notebooks](../python.md). All errors are subclasses of
`msprobe.errors.MsprobeError`; their text says what to do.
"""
    tools = {name: getattr(msprobe.results, "open_run" if name == "open" else name) for name in msprobe.__all__[:]
             if not name.startswith("_")}  # fmt: skip
    return (
        head
        + _module("msprobe", tools)
        + _module("msprobe.pytorch", {name: getattr(msprobe.pytorch, name) for name in msprobe.pytorch.__all__})
    )


def _module(name: str, found: dict[str, Any]) -> str:
    return f"\n## {name}\n" + "".join(_described(f"{name}.{one}", thing) for one, thing in found.items())


def _described(name: str, thing: Any) -> str:
    if isinstance(thing, ModuleType):  # a sub-package that can be called
        thing = type(thing).__call__
    if inspect.isclass(thing):
        init = thing.__dict__.get("__init__")
        text = f"\n### {name}\n\n{_text(thing)}\n"
        if init is not None and not dataclasses.is_dataclass(thing):
            text += f"\n```python\n{name.rpartition('.')[2]}{_signature(init)}\n```\n{_text(init)}\n"
        return text + "".join(_member(key, value) for key, value in vars(thing).items() if not key.startswith("_"))
    return f"\n### {name}\n\n```python\n{name.rpartition('.')[2]}{_signature(thing)}\n```\n\n{_text(thing)}\n"


def _member(name: str, value: Any) -> str:
    value = getattr(value, "__func__", value)
    if isinstance(value, property):
        return f"\n**`{name}`**  {_text(value)}\n" if value.__doc__ else ""
    if not inspect.isfunction(value) or not value.__doc__:
        return ""
    return f"\n**`{name}{_signature(value)}`**  {_text(value)}\n"


def _signature(function: Any) -> str:
    """As it stands in the source, without ``self``, whatever this Python's way to print annotations is."""
    function = inspect.unwrap(getattr(function, "__func__", function))
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    except (OSError, TypeError, SyntaxError):
        return "(...)"
    assert isinstance(tree, ast.FunctionDef)
    if tree.args.args and tree.args.args[0].arg in ("self", "cls"):
        del tree.args.args[0]
    return f"({ast.unparse(tree.args)})"


def _text(thing: Any) -> str:
    """A docstring as Markdown: names of roles go, double back-quotes become single ones."""
    found = inspect.cleandoc(getattr(thing, "__doc__", None) or "")
    found = re.sub(r":\w+:`~?([^`]*)`", r"`\1`", found).replace("``", "`")
    return re.sub(r"(?m)^\s*>>> .*(\n(?!\s*$).*)*", lambda one: f"```python\n{textwrap.dedent(one[0])}\n```", found)


# ---------------------------------------------------------------- messages

_ROOMS = {
    "A1": ("Errors: comparisons and checks", "错误：比对与检查"),
    "A2": ("Sheets of comparisons", "比对结果表"),
    "A3": ("Graphs", "图"),
    "A5": ("Results in Python, and the demo", "Python 接口的结果与演示"),
    "B1": ("Task free_benchmark", "task free_benchmark（无标杆比对）"),
    "C1": ("msprobe check: values and dtypes", "msprobe check：数值与类型"),
    "C2": ("msprobe check: data and labels", "msprobe check：数据与标签"),
    "C3": ("msprobe check: modes and settings of layers", "msprobe check：模式与各层设置"),
    "C4": ("msprobe check: gradients and the optimizer", "msprobe check：梯度与优化器"),
    "C5": ("msprobe check: ranks", "msprobe check：各 rank"),
    "D1": ("Two runs: data and weights", "两次运行：数据与权重"),
    "D2": ("Two runs: calls and their arguments", "两次运行：调用与参数"),
    "D3": ("Two runs: results", "两次运行：结果"),
    "D4": ("Two runs: gradients", "两次运行：梯度"),
    "D5": ("Two runs: the optimizer", "两次运行：优化器"),
    "D6": ("Two runs in different layouts", "并行布局不同的两次运行"),
    "D7": ("Two runs: steps and ranks", "两次运行：step 与 rank"),
    "E1": ("Checkpoints: files of one process", "检查点：单进程文件"),
    "E2": ("Checkpoints: distributed", "检查点：分布式"),
    "E3": ("Configurations and scripts", "配置与脚本"),
    "F1": ("Errors: files and folders", "错误：文件与文件夹"),
    "F2": ("Errors: files of other programs", "错误：其他程序的文件"),
    "G1": ("The configuration", "配置"),
    "K1": ("Errors: lockstep and confirm", "错误：lockstep 与 confirm"),
    "L1": ("Notes of lockstep", "lockstep 的说明"),
    "M1": ("The monitor", "监控"),
    "M3": ("What the monitor finds", "监控的发现"),
    "M4": ("Monitor: settings, alerts and what was read", "监控：设置、告警与已读取的内容"),
    "M2": ("Gradients (grad_probe)", "梯度（grad_probe）"),
    "N1": ("Notes on a comparison", "比对的说明"),
    "N2": ("Notes on a check", "检查的说明"),
    "N6": ("Notes on layouts", "并行布局的说明"),
    "N8": ("Notes on train against rollout", "训练与推理比对的说明"),
    "P1": ("Pre-check of calls", "精度预检"),
    "P2": ("Pre-check: workers and online", "精度预检：工作进程与在线"),
    "P3": ("Pre-check: verdicts on results", "精度预检：结果的判定"),
    "P4": ("Pre-check: scripts that reproduce a call", "精度预检：复现调用的脚本"),
    "P5": ("Pre-check: reports", "精度预检：报告"),
    "P6": ("Pre-check: settings and connections", "精度预检：设置与连接"),
    "R1": ("Errors: recording", "错误：采集"),
    "R2": ("Recording: while a program runs", "采集：程序运行期间"),
    "R3": ("Recording of MindSpore", "MindSpore 的采集"),
    "S1": ("Errors: dumps", "错误：dump"),
    "S2": ("Dumps: writing and reading", "dump 的读写"),
    "T1": ("Train against rollout: what log-probs mean", "训练与推理：log-prob 的含义"),
    "T2": ("Train against rollout: inputs, weights and operators", "训练与推理：输入、权重与算子"),
    "U1": ("Errors: command lines", "错误：命令行"),
    "U3": ("Errors: options of the command line", "错误：命令行选项"),
    "U4": ("Notes of commands", "命令的说明"),
    "A4": ("Notes of comparisons and sheets", "比对与结果表的说明"),
    "V2": ("Errors: questions of the page", "错误：页面的请求"),
    "U2": ("Weights of adapters and Megatron-core", "adapter 与 Megatron-core 的权重"),
    "U5": ("Errors: train against rollout", "错误：训练与推理"),
    "V1": ("Errors: the page", "错误：页面"),
}
_HEADS = (
    """\
# Messages and their codes

[中文](codes.zh.md)

Each finding, note, warning and error has a code that never changes. `verdict.json`, `check.json` and `--json` carry it
as `code`, with the values of the sentence as `arguments`; `msprobe explain D204` says what stands here. In the texts,
the names in braces are those of the arguments.
""",
    """\
# 消息与代码

[English](codes.md)

每个问题项、说明、警告和错误都有一个不变的代码。`verdict.json`、`check.json` 和 `--json`
以 `code` 给出代码，以 `arguments` 给出句中的各个值；
`msprobe explain D204` 会显示这里的内容（中文：`MSPROBE_LANG=zh`，
或中文 locale）。花括号中是各个值的名称。
""",
)
_LABELS = (("Means", "Usual cause", "To do"), ("含义", "常见原因", "处理"))


def codes_page(place: int = 0) -> str:
    """All messages with codes, in English (0) or in Chinese (1)."""
    from msprobe.messages import MESSAGES, TOPICS

    lines = [_HEADS[place], _MADE]
    for room in dict.fromkeys(code[:2] for code in MESSAGES):
        lines += [f"## {_ROOMS[room][place]}\n"]
        by_topic: dict[str, list[Any]] = {}
        for message in MESSAGES.values():
            if message.code[:2] == room:
                by_topic.setdefault(message.topic, []).append(message)
        for topic, messages in by_topic.items():
            for message in messages:
                text = message.text("zh" if place else "en").replace("<", "&lt;")
                lines += [f'<a id="{message.code.lower()}"></a>**{message.code}** `{message.name}`  \n{text}\n']
            found = TOPICS[topic]
            for label, both in zip(_LABELS[place], (found.meaning, found.cause, found.advice), strict=True):
                lines += [f"- {label}{'：' if place else ': '}{both[place]}"]
            lines += [""]
    return "\n".join(lines)


PAGES = {
    "commands.md": commands_page,
    "commands.zh.md": lambda: commands_page(1),
    "settings.md": settings_page,
    "python-api.md": python_page,
    "codes.md": codes_page,
    "codes.zh.md": lambda: codes_page(1),
}

if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for file, page in PAGES.items():
        (FOLDER / file).write_text(page(), encoding="utf-8")
