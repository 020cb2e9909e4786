"""The built page: a few files in the package (their source is in ``web/``)."""

from __future__ import annotations

from pathlib import Path

from msprobe.errors import NotAvailableError
from msprobe.messages import said

#: The files that the page needs; others beside them are served, too, if they are of these types.
NEEDED = ("index.html", "app.js", "app.css")
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}


class Page:
    """The files of the page, read once. Raises NotAvailableError if they are not there."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or Path(__file__).parent / "page"
        self._contents: dict[str, bytes] = {}
        try:
            entries = sorted(self.folder.iterdir())
        except OSError:
            entries = []
        for path in entries:
            if path.suffix in TYPES and path.is_file():
                self._contents[path.name] = path.read_bytes()
        missing = [name for name in NEEDED if name not in self._contents]
        if missing:
            raise NotAvailableError(said("page-not-built", self.folder, ", ".join(missing)))

    @property
    def names(self) -> list[str]:
        """The files that there are."""
        return list(self._contents)

    def read(self, name: str) -> bytes:
        """The content of one file. KeyError if there is none."""
        return self._contents[name]

    def type_of(self, name: str) -> str:
        """The media type of one file."""
        return TYPES[Path(name).suffix]
