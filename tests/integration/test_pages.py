"""All pages but those of situations: their blocks are run in order, and what they show is what is printed."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
from document_inputs import PAGES, make, put
from documents import REASONS, ROOT, SHOWN, Block, agree, blocks_of, copied, differences

DOCS = ROOT / "docs"
#: All but what is made from the code.
WRITTEN = sorted(page for page in DOCS.rglob("*.md") if page.parent.name != "reference")
ENGLISH = [page for page in WRITTEN if ".zh" not in page.name]
CHINESE = [page for page in WRITTEN if ".zh" in page.name]


def _blocks(page: Path) -> list[Block]:
    return blocks_of(page.read_text(encoding="utf-8"))


#: Those of situations have folders of examples, and are run by test_documents.
RUN = [page for page in ENGLISH if page.parent == DOCS and any(block.is_run for block in _blocks(page))]
#: How many blocks of all English pages are not run, and why.
NOT_RUN = {
    "needs MindSpore": 7,
    "needs a C++ compiler": 1,
    "needs a device": 4,
    "needs an engine": 4,
    "generates with a model that is not here": 1,
    "needs many processes": 1,
    "needs packages of others": 5,
    "needs the network": 5,
    "needs the shell": 1,
    "needs two programs": 1,
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return make(tmp_path_factory.mktemp("made"))


@pytest.mark.usefixtures("forked_workers")
@pytest.mark.parametrize("page", RUN, ids=lambda page: page.stem)
def test_each_block_of_a_page_works_and_prints_what_is_shown(page: Path, made: dict[str, Path]) -> None:
    with copied(page) as folder:
        own = PAGES[page.stem]
        put(own, made, folder)
        found = list(differences(page, folder, (own.prelude, own.ending), made["recorded"].parent))
    assert not found, "\n".join(found)


def test_a_block_that_is_not_run_says_why() -> None:
    found = [block.options["not run"] for page in ENGLISH for block in _blocks(page) if "not run" in block.options]
    assert Counter(found) == NOT_RUN
    assert NOT_RUN.keys() == REASONS.keys()


def test_a_fence_without_a_kind_says_what_it_shows() -> None:
    """So that no output hides in it, which nobody compares."""
    found = [(page.name, block.options.get("shown")) for page in WRITTEN for block in _blocks(page) if not block.kind]
    assert [place for place in found if place[1] not in SHOWN] == []
    assert {what for _, what in found} == SHOWN.keys()


def test_no_command_stands_in_a_fence_that_is_not_run() -> None:
    command = re.compile(r"^(\$ )?([A-Z_]+=\S+ +)*(msprobe|python|pip|torchrun|export) ", re.MULTILINE)
    for page in (*ENGLISH, *CHINESE):
        for block in _blocks(page):
            assert block.kind or not command.search(block.text), (page.name, block.text)


def test_a_chinese_page_has_no_command_and_no_output_that_no_english_one_has() -> None:
    """Comments are in its own language."""
    english, chinese = (
        {(page.name, _without_comments(block.text)): block for page in pages for block in _blocks(page) if block.kind}
        for pages in (ENGLISH, CHINESE)
    )
    known = {text: block.options for (_, text), block in english.items()}
    assert [place for place in chinese if place[1] not in known] == []
    for (_, text), block in chinese.items():
        assert block.options == known[text], text


#: Words that say nothing in the field, or something else; `architecture.md` still has some.
UNWANTED = re.compile(
    r"\b(told|tells?|they part|part ways|accus\w+|guilty|victim\w*|astray|goes in|went in)\b", re.IGNORECASE
)


@pytest.mark.parametrize("page", [page for page in ENGLISH if page.stem != "architecture"], ids=lambda page: page.stem)
def test_a_page_has_words_of_the_field(page: Path) -> None:
    assert UNWANTED.findall(page.read_text(encoding="utf-8")) == []


def _without_comments(text: str) -> str:
    lines = (re.sub(r"\s*(#|//) .*", "", line).rstrip() for line in text.splitlines())
    return "\n".join(line for line in lines if line)


@pytest.mark.parametrize(
    ("shown", "wanted"),
    [
        ("a 0.25\n  b\nc", True),
        ("a 0.5\n...\nc", True),
        ("...\nb\n  ...", True),
        ("a 0.25\nc", False),
        ("a 0.25\n...\nb", False),
        ("...\nc\n...\nb\n...", False),
    ],
)
def test_what_is_left_out_of_an_output_is_said(shown: str, wanted: bool) -> None:
    """Digits behind a point are those of one processor."""
    assert agree("a 0.25\nb\nc", shown) is wanted


def test_a_program_fails_where_a_value_is_another_or_a_command_answers_otherwise(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    blocks = (
        "```python\n1 + 1  # 3\n```",
        "```python\n1 + 1  # 2\n```",
        "<!-- status=1 -->\n```console\n$ msprobe explain D204\n...\n```",
        "```bash\nmsprobe summary nowhere\n```",
        "<!-- not run: needs a device -->\n```bash\nmsprobe no\n```",
    )
    page.write_text("\n\n".join(blocks), encoding="utf-8")
    found = [one.split(":")[0].splitlines()[0] for one in differences(page, tmp_path)]
    assert found == ["1 + 1  # 3", "msprobe explain D204", "msprobe summary nowhere"]
