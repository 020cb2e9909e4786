"""Each block of each page, in both languages: its command lines are understood, its code and its settings are right.

Here nothing is run, and every page of the repository is read. What a command prints is compared where the page says in
which folder it runs (tests/integration/test_documents.py); examples are run from beginning to end.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from documents import ROOT

from msprobe.cli import commands, main
from msprobe.config.jsonc import parse
from msprobe.config.load import load_settings
from msprobe.monitor import config as monitor_config

PAGES = [
    page
    for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md"))
    if "output" not in page.parts
]
_FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
#: A whole command line: a shorter one names the command, or an option of it.
_IN_A_SENTENCE = re.compile(r"`(msprobe(?:\s+[^`\s]+){3,})`")
#: What a page writes for what the reader puts in: `[-o DIR]`, `...`.
_SYNOPSIS = re.compile(r"[\[|{]|\.\.\.|…")
#: Modules that only MindSpore can import; their names are looked for in the source.
_OF_MINDSPORE = "msprobe.mindspore"


def blocks(kinds: set[str]) -> Iterator[tuple[Path, str]]:
    for page in PAGES:
        for _, kind, text in _FENCE.findall(page.read_text(encoding="utf-8")):
            if kind in kinds:
                yield page, text


def command_lines() -> Iterator[tuple[str, list[str]]]:
    """Every line of a block or of code within a sentence that calls msprobe: where it stands, and its words."""
    texts = [*blocks({"", "bash", "console"})]
    for page in PAGES:
        prose = _FENCE.sub("", page.read_text(encoding="utf-8"))
        texts += [(page, " ".join(span.split())) for span in _IN_A_SENTENCE.findall(prose)]
    for page, text in texts:
        for line in text.replace("\\\n", " ").splitlines():
            found = re.match(r"(?:\$ )?(?:[A-Z_]+=\S+ )*(?:torchrun [^#]*-m |python -m )?msprobe (.*)", line.strip())
            words = found and found[1].split(" #")[0]
            if words and not _SYNOPSIS.search(words) and re.match(r"[a-z-]", words):
                yield f"{page.relative_to(ROOT)}: msprobe {words}", shlex.split(words)


def test_every_command_line_of_every_page_is_understood(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for one in commands.COMMANDS.values():
        monkeypatch.setattr(one.load(), "execute", lambda args: 0)
    wrong, called = [], set()
    for place, words in command_lines():
        try:
            status = main(words)
        except SystemExit as end:
            status = int(end.code or 0)
        if status != 0:
            wrong.append(f"{place}\n    {capsys.readouterr().err}")
        called |= set(words)
    assert not wrong, "\n".join(wrong)
    assert {name.split()[0] for name in commands.COMMANDS} - called == {"help", "completion"}


def test_every_block_of_python_is_python_and_what_it_imports_of_us_exists() -> None:
    wrong = []
    for page, text in blocks({"python"}):
        if page.parent.name == "reference":  # signatures, made from the code
            continue
        for node in ast.walk(ast.parse(text, str(page))):
            if isinstance(node, ast.Import):
                wrong += [f"{page}: {one.name}" for one in node.names if is_ours(one.name) and not exists(one.name, [])]
            elif isinstance(node, ast.ImportFrom) and is_ours(node.module or ""):
                names = [one.name for one in node.names]
                if not exists(str(node.module), names):
                    wrong.append(f"{page}: from {node.module} import {', '.join(names)}")
    assert not wrong


def is_ours(module: str) -> bool:
    return module.split(".")[0] == "msprobe"


def exists(module: str, names: list[str]) -> bool:
    if module.startswith(_OF_MINDSPORE):
        text = (ROOT / "src" / "msprobe" / "mindspore" / "__init__.py").read_text(encoding="utf-8")
        return module != _OF_MINDSPORE or all(re.search(rf"\b{name}\b", text) for name in names)
    if importlib.util.find_spec(module) is None:
        return False
    return all(hasattr(importlib.import_module(module), name) for name in names)


def test_every_block_of_json_can_be_read_and_settings_are_right(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An unknown field is a warning; here it is a mistake of the page."""
    monkeypatch.chdir(tmp_path)
    seen = {"settings": 0, "monitor": 0}
    (tmp_path / "keys").mkdir()
    for name in ("client.key", "client.crt", "ca.crt"):
        (tmp_path / "keys" / name).touch()
    for number, (page, text) in enumerate(blocks({"json"})):
        whole = text if text.lstrip().startswith("{") else f"{{{text}}}"
        value = parse(whole, page.name).value
        if "task" in value and "dump_path" in value:
            (tmp_path / f"{number}.json").write_text(whole, encoding="utf-8")
            load_settings(tmp_path / f"{number}.json", dump_path=str(tmp_path / "dump"))
            seen["settings"] += 1
        elif "targets" in value or "alert" in value:
            monitor_config.from_object(value if "targets" in value else {"targets": {}, **value}, str(page))
            seen["monitor"] += 1
        printed = capsys.readouterr()
        assert "unknown" not in printed.out + printed.err, (page, printed)
        json.dumps(value)
    assert min(seen.values()) >= 4


def test_every_block_of_yaml_can_be_read() -> None:
    for page, text in blocks({"yaml"}):
        assert yaml.safe_load(text) is not None, page
