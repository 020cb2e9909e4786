"""The details file of one check, ours or of mindstudio-probe 8.1.1 and 26.2, as rows by the name of each output."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Container
from pathlib import Path

from msprobe.errors import InvalidInputError, PathError
from msprobe.foreign.csv_cells import plain_text
from msprobe.foreign.opening import file_bytes
from msprobe.messages import said
from msprobe.paths import StrPath, check_readable_file
from msprobe.precheck.columns import DETAILS_HEADER
from msprobe.precheck.standards import Profile
from msprobe.precheck.writer import BOM

REQUIRED = (
    *("API Name", "DEVICE Dtype", "小值域错误占比", "均方根误差", "相对误差最大值", "相对误差平均值", "误差均衡性"),
    *("二进制一致错误率", "inf/nan错误率", "相对误差错误率", "绝对误差错误率", "ULP误差平均值", "ULP误差大于阈值占比"),
    "双千指标",
)
_STANDARD = DETAILS_HEADER[DETAILS_HEADER.index("Standard")]


class DetailsTable:
    """The rows of one details file by ``API Name``. Raises PathError or InvalidInputError."""

    def __init__(self, path: StrPath, option: str) -> None:
        self.path = Path(path)
        check_readable_file(path, ".csv", 1 << 33)
        try:
            text = file_bytes(self.path).removeprefix(BOM).decode("utf-8")
            rows = [[plain_text(cell) for cell in row] for row in csv.reader(io.StringIO(text, newline=""))]
        except (OSError, UnicodeDecodeError, csv.Error) as problem:
            raise PathError(said("details-unreadable", option, path, problem)) from None
        header = rows[0] if rows else []
        missing = [name for name in REQUIRED if name not in header]
        if missing:
            raise InvalidInputError(said("details-lack-columns", option, path, ", ".join(missing)))
        short = next((number for number, row in enumerate(rows[1:], 2) if row and len(row) < len(header)), None)
        if short is not None:
            raise InvalidInputError(said("details-row-short", option, path, short, len(rows[short - 1]), len(header)))
        self.rows = [dict(zip(header, row, strict=False)) for row in rows[1:] if row]
        self.option = option
        self.counts = Counter(row["API Name"] for row in self.rows)
        self.by_name = {row["API Name"]: row for row in self.rows}

    def demand_single(self, names: Container[str]) -> None:
        """Raises InvalidInputError where one of the outputs is in the file several times."""
        twice = [name for name, count in self.counts.items() if count > 1 and name in names]
        if twice:
            raise InvalidInputError(
                said(
                    "details-rows-twice",
                    self.option,
                    self.path,
                    ", ".join(twice[:5]),
                    said("details-and-others") if len(twice) > 5 else "",
                )
            )

    def demand_standard(self, profile: Profile) -> None:
        """Raises InvalidInputError where the file has another root mean square error than the standard judges by."""
        made = {row.get(_STANDARD, "").partition(",")[0].strip() or said("of-mindstudio-probe") for row in self.rows}
        others = {name for name in made if (name == "compiler") != profile.by_control}
        if others:
            words = f"--standard {profile.name}{' --control cpu' if profile.by_control else ''}"
            raise InvalidInputError(
                said(
                    "details-of-different-standard",
                    self.option,
                    self.path,
                    ", ".join(sorted(others)),
                    profile.name,
                    words,
                )
            )
