"""README and the pages of situations: what they tell users to run is run, what they show is what is printed."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from documents import ROOT, Block, blocks_of, copied, differences, folder_of, normal, run
from support import forked
from support.torch_dumps import Dump

from msprobe.config.jsonc import parse

DOCS = ROOT / "docs"
SITUATIONS = DOCS / "situations"
PAGES = sorted(page for page in SITUATIONS.glob("*.md") if page.stem != "index" and ".zh" not in page.name)
CHINESE = sorted(DOCS.rglob("*.zh.md"))
README = ROOT / "README.md"

# What the loop of the README finds in a script of the user.
_PRELUDE = """
import torch
from torch import nn

model = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 1))
optimizer = torch.optim.AdamW(model.parameters())
loader = [torch.randn(2, 4) for _ in range(3)]
"""


@pytest.mark.usefixtures("forked_workers")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_each_command_of_a_situation_prints_what_its_page_shows(page: Path) -> None:
    assert folder_of(page.read_text(encoding="utf-8")) is not None
    with copied(page) as folder:
        found = list(differences(page, folder))
    assert not found, "\n".join(found)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_chinese_page_has_the_same_commands_and_output(page: Path) -> None:
    english, chinese = (path.read_text(encoding="utf-8") for path in (page, page.with_suffix(".zh.md")))

    def consoles(text: str) -> list[str]:
        return [block.text for block in blocks_of(text) if block.kind == "console"]

    assert consoles(chinese) == consoles(english)
    assert folder_of(chinese) == folder_of(english)
    headings = [re.findall(r"^#+ (?:\d+\. )?", text, re.MULTILINE) for text in (english, chinese)]
    assert headings[0] == headings[1]


@pytest.mark.parametrize("page", sorted(SITUATIONS.glob("*.md")), ids=lambda page: page.name)
def test_a_file_that_the_commands_of_a_page_take_is_shown_there_as_it_is(page: Path) -> None:
    """Who has installed the package has no examples."""
    text = page.read_text(encoding="utf-8")
    shown = dict(re.findall(r"<!-- the file (\S+) -->\n```json\n(.*?)^```$", text, re.MULTILINE | re.DOTALL))
    assert set(re.findall(r"--config (\S+\.json)", text)) == set(shown)
    for name, block in shown.items():
        folder = folder_of(text)
        assert folder is not None
        assert parse(block).value == parse((folder / name).read_text(encoding="utf-8")).value


def test_fences_name_their_kind_alone() -> None:
    """With more words behind it the site shows no block, but text."""
    pages = [README, *(ROOT / "docs").rglob("*.md")]
    wrong = [
        f"{page.relative_to(ROOT)}: {line}"
        for page in pages
        for line in page.read_text(encoding="utf-8").splitlines()
        if line.startswith("```") and not re.fullmatch(r"```\w*", line)
    ]
    assert not wrong


def test_both_lists_of_situations_and_the_readme_name_every_page() -> None:
    names = {page.name for page in PAGES}
    for place, folder in ((SITUATIONS / "index.md", ""), (README, "docs/situations/")):
        assert names <= set(re.findall(rf"\]\({folder}([\w-]+\.md)\)", place.read_text(encoding="utf-8"))), place
    text = (SITUATIONS / "index.zh.md").read_text(encoding="utf-8")
    assert {page.with_suffix(".zh.md").name for page in PAGES} <= set(re.findall(r"\]\(([\w-]+\.zh\.md)\)", text))


def test_each_page_leads_to_itself_in_the_other_language() -> None:
    """In the repository; on the site a switch does."""
    for chinese in CHINESE:
        english = chinese.with_name(chinese.name.replace(".zh.md", ".md"))
        for page, line in ((chinese, f"[English]({english.name})"), (english, f"[中文]({chinese.name})")):
            assert page.read_text(encoding="utf-8").splitlines()[2] == line, page


def test_chinese_pages_lead_to_chinese_pages_unless_they_say_otherwise() -> None:
    wrong = []
    for page in CHINESE:
        for text, link in re.findall(r"\[([^\]]+)\]\(([^)\s#]+\.md)\)", page.read_text(encoding="utf-8")):
            chinese = page.parent / link.replace(".md", ".zh.md")
            if not link.endswith(".zh.md") and chinese.exists() and not re.search("英文|English", text):
                wrong.append(f"{page.name}: [{text}]({link})")
    assert wrong == []


def test_the_chinese_summary_has_the_figures_of_the_english_page() -> None:
    """Of each table that both have, row by row; columns behind the first are results."""

    def figures(name: str) -> list[list[str]]:
        text = (DOCS / name).read_text(encoding="utf-8").partition("\n## ")[2].split("\n## ")
        rows = [line for part in text[:2] for line in part.splitlines() if line.startswith("|")]
        return [re.findall(r"\d+(?:[.,]\d+)*", row.partition(" | ")[2]) for row in rows]

    # What stands behind a number of programs in one language may stand before it in the other.
    assert [sorted(row) for row in figures("figures.zh.md")] == [sorted(row) for row in figures("figures.md")]


# The glossary is where both stand. Of each: what a page must not call it.
OTHER_WORDS = {
    "采集": "录制",
    "标杆侧": "参考侧|基准侧|标准侧|金标",
    "待比对侧": "待查|目标侧|被测侧",
    "规约": "归约",
    "首个差异": "首个分叉点|首差异点",
    "问题项": "条发现",
}


def test_chinese_pages_and_answers_call_one_thing_by_one_word() -> None:
    glossary = (DOCS / "glossary.md").read_text(encoding="utf-8")
    answers = [*(ROOT / "src" / "msprobe" / "messages").glob("*.py"), ROOT / "web/source/texts/zh.ts"]
    for word, others in OTHER_WORDS.items():
        assert word in glossary
        assert not [file.name for file in (*CHINESE, *answers) if re.search(others, file.read_text("utf-8"))], others


def readme_blocks(kind: str) -> list[Block]:
    return [block for block in blocks_of(README.read_text(encoding="utf-8")) if block.kind == kind]


def test_every_command_of_the_readme_works_as_it_stands(tmp_path: Path) -> None:
    """In an empty folder with the user's own train.py; what the README shows of a verdict is what the demo prints."""
    for name in ("train.py",):
        shutil.copy(ROOT / "examples" / "06_situations" / name, tmp_path)
    ran, printed = [], ""
    for block in readme_blocks("bash"):
        for command in block.text.splitlines():
            if command.startswith("pip install "):
                check_extras(command)
                continue
            status, text = run(command, tmp_path)
            # Other packages that the tests need may be missing or share our name on the machine at hand.
            assert status == 0, (command, text)
            ran.append(command)
            printed += f"{text}\n"
    assert {command.split()[1] for command in ran} == {"demo", "doctor", "run", "compare", "view"}
    assert (tmp_path / "pair.html").stat().st_size > 10_000
    assert (tmp_path / "comparison" / "verdict.html").is_file()
    check_demo(tmp_path / "msprobe-demo")
    (shown,) = [text for text in fences_without_kind(README) if "DIVERGED" in text]
    said = normal(printed.replace("msprobe-demo/", ""))
    assert [line for line in shown.splitlines() if normal(line) not in said] == []


def check_demo(folder: Path) -> None:
    """The line that the demo has changed is named, and its page and dumps are there."""
    first = json.loads((folder / "comparison" / "verdict.json").read_text())["findings"][0]
    assert (first["kind"], first["module"]) == ("argument", "blocks.1.attention")
    assert "* self.scale" in first["stack"][0]
    assert (folder / "comparison" / "verdict.html").stat().st_size > 10_000
    for name in ("good", "bad"):
        assert Dump(folder / name).steps() == ["step0", "step10", "step20"]


def fences_without_kind(page: Path) -> list[str]:
    return re.findall(r"^```\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def check_extras(command: str) -> None:
    """An install line names our distribution, and extras that it has."""
    found = re.fullmatch(r"pip install '(?:msprobe-debugger|\.)\[([\w,-]+)\]'", command)
    assert found is not None, command
    known = (ROOT / "pyproject.toml").read_text().split("[project.optional-dependencies]")[1].split("\n[")[0]
    assert all(re.search(rf"^{name} = ", known, re.MULTILINE) for name in found[1].split(",")), command


def test_the_loop_of_the_readme_records(tmp_path: Path) -> None:
    (block,) = readme_blocks("python")
    script = tmp_path / "loop.py"
    script.write_text(_PRELUDE + block.text)
    done = forked.run(str(script), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert [(tmp_path / "dump" / f"step{step}" / "rank" / "dump.json").is_file() for step in (0, 1, 2)] == [
        True,
        True,
        False,
    ]


def test_the_readme_is_short() -> None:
    assert len(README.read_text(encoding="utf-8").splitlines()) <= 120


def anchors(page: Path) -> set[str]:
    """The names of a page's headings, as links have them."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    named = set(re.findall(r'<a id="([\w-]+)"></a>', text))
    return named | {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def test_every_link_between_pages_leads_to_a_file_and_a_heading() -> None:
    pages = [README, ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *(ROOT / "docs").rglob("*.md")]
    pages += [*(ROOT / "examples").rglob("*.md"), ROOT / "bench" / "README.md"]
    dead = []
    for page in pages:
        text = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        for link in re.findall(r"\]\(([^)\s]+)\)", text):
            if link.startswith(("http://", "https://", "mailto:")):
                continue
            file, _, anchor = link.partition("#")
            target = (page.parent / file).resolve() if file else page
            if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
                dead.append(f"{page.relative_to(ROOT)}: {link}")
    assert dead == []


@pytest.mark.parametrize("page", ["configuration.md", "configuration.zh.md"])
def test_each_variable_that_is_read_has_its_meaning_in_the_page_of_settings(page: str) -> None:
    texts = [path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py")]
    read = {name for text in texts for name in re.findall(r"\bMSPROBE_[A-Z_]+\b", text)}
    text = (DOCS / page).read_text(encoding="utf-8")
    assert {name for name in read if f"`{name}" not in text} == {"MSPROBE_MONITOR_DEFER"}, "which is for tests"


def test_the_list_of_pages_names_them_all() -> None:
    for name, ending in (("index.md", ".md"), ("index.zh.md", ".zh.md")):
        linked = set(re.findall(r"\]\(([\w./-]+\.md)\)", (DOCS / name).read_text(encoding="utf-8")))
        pages = {str(page.relative_to(DOCS)) for page in DOCS.rglob(f"*{ending}")}
        pages = {page for page in pages if ending == ".zh.md" or not page.endswith(".zh.md")}
        assert pages - linked - {"index.md", "index.zh.md"} == {f"situations/{page.stem}{ending}" for page in PAGES}
