"""What ``compare`` and ``check`` write: one row for each format.

A new format is a row here and the renderer that it names: the flag, its help, the refusal where its package is
missing and the file on disk follow. Renderers are named as texts, so that the command line starts without them.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from msprobe.distribution import install
from msprobe.errors import NotAvailableError
from msprobe.messages import Wording, both, said

if TYPE_CHECKING:
    from pathlib import Path

# The forms of `msprobe compare`: two dumps, compare.json, -tp and -gp.
Form = Literal["two dumps", "-i", "-tp"]
# What is shown, and with that what a renderer is and what it is given:
#   verdict, check   (result) -> the content of the file, as text or bytes
#   page             (the source of the answers that a page asks for) -> the content of the file
#   rows             (path, sheets) writes the first of the sheets, or all of them; raises PathError
#   advice           (comparison) -> the content of the file
# and of what is printed: (result, what was written, width) -> lines.
Shown = Literal["verdict", "page", "check", "rows", "advice"]


class Format(NamedTuple):
    """One format.

    ``word`` is the flag without its dashes and the value in ``Request.file_format``. ``file`` is the name of the file,
    ``{part}`` in it step, rank or time; empty for what is printed. ``renderer`` is ``module:function`` (see
    :data:`Shown`). ``forms`` have the flag; without any it is written always. ``default_of``: the form whose sheet it
    is if no flag is given. ``package`` is what it needs beyond msprobe, and comes with ``extra``. ``between`` separates
    several names in one cell.
    """

    word: str
    shows: Shown
    file: str
    renderer: str
    text: str
    forms: tuple[Form, ...] = ()
    default_of: Form | None = None
    package: str = ""
    extra: str = ""
    between: str = ";\n"

    @property
    def flag(self) -> str:
        """The option of the command line."""
        return f"--{self.word}"

    @property
    def help(self) -> str:
        """The line of the command's help."""
        default, needs = "", ""
        if self.default_of:
            default = both(" (the default of the form with {})", "（使用 {} 时的默认格式）", self.default_of)
        if self.package:
            needs = both(" (needs {})", "（需要 {}）", self.package)
        return Wording("{}{}{}", self.text, default, needs)

    def render(self) -> Callable[..., Any]:
        """The renderer, imported now."""
        module, _, function = self.renderer.partition(":")
        renderer: Callable[..., Any] = getattr(importlib.import_module(module), function)
        return renderer

    def content(self, *results: object) -> bytes:
        """The content of the file that shows these. Texts become UTF-8."""
        rendered = self.render()(*results)
        return rendered if isinstance(rendered, bytes) else str(rendered).encode("utf-8", "backslashreplace")

    def check_available(self) -> None:
        """Raises NotAvailableError if its package is not installed."""
        if self.package and importlib.util.find_spec(self.package) is None:
            raise NotAvailableError(said("package-missing-for-option", self.flag, self.package, install(self.extra)))


_ROWS = "compare_result{part}"
_ALL_FORMS: tuple[Form, ...] = ("two dumps", "-i", "-tp")

# In the order in which flags are listed and files named: what a person opens first stands first.
FORMATS: tuple[Format, ...] = (
    Format(
        "html",
        "page",
        "verdict.html",
        "msprobe.view.single_file:single_file",
        both(
            "write verdict.html, the page of msprobe view in one file",
            "写出 verdict.html，即 msprobe view 的单文件页面",
        ),
        forms=("two dumps",),
    ),
    Format(
        "json",
        "verdict",
        "verdict.json",
        "msprobe.report.verdict_file:verdict_bytes",
        both("what programs read", "供程序读取"),
    ),
    Format("text", "verdict", "", "msprobe.report.console:verdict_lines", both("what is printed", "打印的内容")),
    Format(
        "xlsx",
        "rows",
        f"{_ROWS}.xlsx",
        "msprobe.report.workbook:write_workbook",
        both("write a workbook", "写出工作簿"),
        forms=_ALL_FORMS,
        default_of="-i",
    ),
    Format(
        "csv",
        "rows",
        f"{_ROWS}.csv",
        "msprobe.report.csv_table:write_csv_sheet",
        both("write CSV", "写出 CSV"),
        forms=_ALL_FORMS,
        default_of="-tp",
        between=";  ",
    ),
    Format(
        "parquet",
        "rows",
        f"{_ROWS}.parquet",
        "msprobe.report.parquet_table:write_parquet_sheet",
        both("write the rows as Parquet", "以 Parquet 写出各行"),
        forms=("two dumps",),
        package="polars",
        extra="compare",
    ),
    Format(
        "advice",
        "advice",
        "advisor{part}.txt",
        "msprobe.report.advisor:advice_text",
        both("beside the sheets of the form -i", "写在 -i 形式的结果表旁"),
    ),
    Format(
        "json",
        "check",
        "check.json",
        "msprobe.report.verdict_file:verdict_bytes",
        both("what programs read", "供程序读取"),
    ),
    Format("text", "check", "", "msprobe.report.check_text:check_lines", both("what is printed", "打印的内容")),
)


def with_flag(*forms: Form) -> list[Format]:
    """The formats that any of these forms of the command has a flag for; without forms: all that have one."""
    return [row for row in FORMATS if row.forms and (not forms or set(forms) & set(row.forms))]


def always(shows: Shown) -> list[Format]:
    """The files that are written without a flag."""
    return [row for row in FORMATS if row.shows == shows and row.file and not row.forms]


def printed(shows: Shown) -> Format:
    """What shows this on a console."""
    return next(row for row in FORMATS if row.shows == shows and not row.file)


def default_sheet(form: Form) -> Format:
    """The format of a sheet for which no flag is given."""
    return next(row for row in FORMATS if row.default_of == form)


def sheet_format(word: str) -> Format:
    """The format of sheets with this word. Raises KeyError for any other word."""
    by_word = {row.word: row for row in FORMATS if row.shows == "rows"}
    return by_word[word]


def flags(formats: Sequence[Format]) -> str:
    """The flags as a sentence lists them."""
    return ", ".join(row.flag for row in formats)


def write_files(result: object, formats: Sequence[Format], folder: Path) -> Iterator[Path]:
    """Write a result in these formats; gives each path when the file is whole. Raises PathError."""
    from msprobe.paths import make_folder, write_atomically

    contents = [(folder / row.file, row.content(result)) for row in formats]
    make_folder(folder)
    for path, content in contents:
        write_atomically(path, content, fsync=False)
        yield path
