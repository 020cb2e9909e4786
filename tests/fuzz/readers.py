"""All readers of input that a stranger may have made: a row each.

A reader gets the bytes of one input and an empty folder, reads them by the command or function that users call, and
returns. It may raise nothing but what says that the input cannot be used: commands turn that into their status.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from hostile import made
from support.command_line import call

from fuzz import changes, words
from fuzz.changes import Change
from msprobe.errors import MsprobeError

CORPUS = Path(__file__).parent / "corpus"
#: What commands end with: done, found something, wrong input.
STATUSES = (0, 1, 2)


@dataclass(frozen=True)
class Reader:
    """A row. ``read`` takes an input and a folder to work in; ``change`` makes a new input of one that is there.

    ``words`` are put into inputs. ``seconds`` of the processor, and ``mebibytes`` beyond what the process has before,
    are what one input may take.
    """

    name: str
    read: Callable[[bytes, Path], None]
    change: Change
    words: tuple[bytes, ...] = ()
    seconds: float = 4.0
    mebibytes: int = 1024

    def seeds(self) -> list[Path]:
        """The inputs that are there."""
        return sorted(path for path in (CORPUS / self.name).iterdir() if path.is_file())


def command(*words: object, cwd: Path) -> None:
    """Run one command, which must end with a status of its own."""
    ended = call(*words, cwd=cwd)
    assert ended.returncode in STATUSES, f"status {ended.returncode}: {ended.stderr[-300:]}"
    assert "Traceback" not in ended.stdout + ended.stderr, ended.stderr[-300:]


def at(folder: Path, name: str, data: bytes) -> Path:
    """A file with these bytes."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


# ---------------------------------------------------------------- dumps


def dump_json(data: bytes, folder: Path) -> None:
    at(folder, "dump/step0/rank/dump.json", data)
    command("summary", folder / "dump", cwd=folder)


def dump_packed(data: bytes, folder: Path) -> None:
    at(folder, "dump/step0/rank/dump.json.zst", data)
    command("summary", folder / "dump", cwd=folder)


def dump_checked(data: bytes, folder: Path) -> None:
    at(folder, "dump/step0/rank0/dump.json", data)
    command("check", folder / "dump", cwd=folder)


def dumps_compared(data: bytes, folder: Path) -> None:
    made.dump(folder / "A", {"Functional.relu.0.forward": made.record()})
    at(folder, "B/step0/rank/dump.json", data)
    command("compare", folder / "A", folder / "B", "-o", folder / "out", "--csv", "--jobs", 1, cwd=folder)


def _beside_dump(name: str) -> Callable[[bytes, Path], None]:
    def read(data: bytes, folder: Path) -> None:
        path = made.dump(
            folder / "dump", {"Functional.relu.0.forward": made.record(), "Module.a.A.forward.0": made.record()}
        )
        at(path.parent, name, data)
        command("check", folder / "dump", cwd=folder)

    return read


def tensor_pt(data: bytes, folder: Path) -> None:
    asked = made.two_dumps(folder)
    at(folder, "B/step0/rank/dump_tensor_data/relu.pt", data)
    command(*asked, "--jobs", 1, cwd=folder)


def overflow(data: bytes, folder: Path) -> None:
    at(folder, "dump/step0/rank0/dump.json", data)
    command("nan_analyze", "-i", folder / "dump", "-o", folder / "out", cwd=folder)


def verdict(data: bytes, folder: Path) -> None:
    made.dump(folder / "A", {"Functional.relu.0.forward": made.record()})
    path = at(folder, "verdict.json", data)
    command("reproduce", path, "--dump", folder / "A", "-o", folder / "out", cwd=folder)


def graph_vis(data: bytes, folder: Path) -> None:
    command("view", at(folder, "a.vis", data), "--html", folder / "a.html", cwd=folder)


def graph_database(data: bytes, folder: Path) -> None:
    command("view", at(folder, "a.vis.db", data), "--html", folder / "a.html", cwd=folder)


# ---------------------------------------------------------------- checkpoints and kernels


def _checkpoint(name: str) -> Callable[[bytes, Path], None]:
    def read(data: bytes, folder: Path) -> None:
        path = at(folder, name, data)
        command("config_check", "-c", path, path, "-o", folder / "out.json", "--jobs", 1, cwd=folder)

    return read


def distributed_metadata(data: bytes, folder: Path) -> None:
    at(folder, "a/.metadata", data)
    at(folder, "a/__0_0.distcp", made.pt(folder / "x.pt").read_bytes())
    command("config_check", "-c", folder / "a", folder / "a", "-o", folder / "out.json", "--jobs", 1, cwd=folder)


def kernel_file(data: bytes, folder: Path) -> None:
    path = at(folder, "in/Add.trans_Add_1.12.3.1700000000000000", data)
    command("parse", "-d", path, "-t", "npy", "-o", folder / "out", cwd=folder)


# ---------------------------------------------------------------- settings


def _packed(name: str) -> Callable[[bytes, Path], None]:
    def read(data: bytes, folder: Path) -> None:
        # To ask for the versions of all packages takes longer than to read the settings.
        with mock.patch("importlib.metadata.distributions", return_value=[]):
            command("config_check", "-d", at(folder, name, data), "-o", folder / "pack.zip", cwd=folder)

    return read


def pack(data: bytes, folder: Path) -> None:
    path, other = at(folder, "a.zip", data), CORPUS / "pack" / "seed.zip"
    command("config_check", "-c", other, path, "-o", folder / "out", cwd=folder)


def verl_log(data: bytes, folder: Path) -> None:
    path = at(folder, "a.log", data)
    command("config_check", "-vc", path, path, "-o", folder / "out", cwd=folder)


def slime_log(data: bytes, folder: Path) -> None:
    path = at(folder, "a.log", data)
    command("config_check", "-sc", path, path, "-o", folder / "out", cwd=folder)


def recorder_settings(data: bytes, folder: Path) -> None:
    from msprobe.config.load import load_settings

    with contextlib.suppress(MsprobeError):
        load_settings(at(folder, "config.json", data))


def _mapped(flag: str) -> Callable[[bytes, Path], None]:
    def read(data: bytes, folder: Path) -> None:
        for side in "AB":
            made.dump(folder / side, {"Functional.relu.0.forward": made.record()})
        path = at(folder, "m.yaml", data)
        flags = ("-o", folder / "out", "--csv", "--jobs", 1, flag, path)
        command("compare", folder / "A", folder / "B", *flags, cwd=folder)

    return read


# ---------------------------------------------------------------- tables


def _monitored(name: str) -> Callable[[bytes, Path], None]:
    def read(data: bytes, folder: Path) -> None:
        for side in "AB":
            made.monitored(folder / side)
        at(next((folder / "B").iterdir()), name, data)
        command("monitor", "diff", folder / "A", folder / "B", cwd=folder)

    return read


def details_csv(data: bytes, folder: Path) -> None:
    path = at(folder, "accuracy_checking_details_1.csv", data)
    command("api_precision_compare", "-npu", path, "-gpu", path, "-o", folder, cwd=folder)


def gradient_csv(data: bytes, folder: Path) -> None:
    for side in "AB":
        at(folder, f"{side}/rank0/grad_summary_0.csv", data)
    command("grad_compare", folder / "A", folder / "B", "-o", folder / "out", "--plot", "none", cwd=folder)


# ---------------------------------------------------------------- connections


def wire_frames(data: bytes, folder: Path) -> None:
    from msprobe.precheck.online import frames
    from msprobe.precheck.online.spool import Spool

    stream = io.BytesIO(data)

    def read(length: int) -> bytes:
        found = stream.read(min(length, len(data)))
        if len(found) < length:
            raise EOFError
        return found

    def coming() -> Any:
        while True:
            try:
                yield frames.unpack(read)[0]
            except EOFError:
                return
            except frames.FrameError as error:
                if not error.is_whole:
                    return

    for step in Spool(folder / "spool").steps(coming()):
        assert step.folder.parent == folder / "spool"
    assert {path.name for path in folder.iterdir()} <= {"spool"}


def shared_folder(data: bytes, folder: Path) -> None:
    from msprobe.precheck.online.shared_folder import FolderReceiver

    (folder / "shared").mkdir()
    kind, _, content = data.partition(b"\n")
    names = {b"frame": "rank0_10.frame", b"end": "end_1_5"}
    at(folder, f"shared/{names.get(kind, 'start_1_5')}", content)
    list(FolderReceiver(str(folder / "shared"), idle=0.01).frames())


class _Shown:
    """What the page asks of, without a dump behind it."""

    def __getattr__(self, name: str) -> Any:
        return lambda *words: {"asked": [str(word) for word in words]}

    def version(self, index: int) -> int:
        return 0


def page_requests(data: bytes, folder: Path) -> None:
    from msprobe.view.page_files import Page
    from msprobe.view.server import application

    lines, _, body = data.partition(b"\n\n")
    first, *rest = lines.split(b"\n")
    method, _, target = first.partition(b" ")
    path, _, query = target.partition(b"?")
    headers = [(name.strip().lower(), value.strip()) for name, _, value in (line.partition(b":") for line in rest)]
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": method.decode("latin-1"),
        "scheme": "http",
        "path": path.decode("utf-8", "replace"),
        "raw_path": path,
        "query_string": query,
        "headers": headers,
        "server": ("127.0.0.1", 80),
        "client": ("127.0.0.1", 1),
    }
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    shown: Any = _Shown()
    asyncio.run(application(shown, "token", Page())(scope, receive, send))  # type: ignore[arg-type]
    status = sent[0]["status"]
    assert status in (200, 303, 400, 403, 404, 405, 408, 409, 413), status
    text = b"".join(message.get("body", b"") for message in sent)
    is_known = any(name == b"x-msprobe-token" and value == b"token" for name, value in headers)
    if status == 200 and path.startswith(b"/api/"):
        assert is_known, "an answer without the token"
    assert b"Traceback" not in text


# ---------------------------------------------------------------- the table

READERS = {
    row.name: row
    for row in (
        Reader("dump_json", dump_json, changes.of_json, words.DUMP),
        Reader("dump_packed", dump_packed, changes.of_bytes),
        Reader("dump_checked", dump_checked, changes.of_json, words.DUMP),
        Reader("dumps_compared", dumps_compared, changes.of_json, words.DUMP),
        Reader("stack_json", _beside_dump("stack.json"), changes.of_json),
        Reader("construct_json", _beside_dump("construct.json"), changes.of_json),
        Reader("tensor_pt", tensor_pt, changes.of_archive(changes.of_pickle)),
        Reader("overflow", overflow, changes.of_json, words.DUMP),
        Reader("verdict", verdict, changes.of_json),
        Reader("graph_vis", graph_vis, changes.of_json),
        Reader("graph_database", graph_database, changes.of_database),
        Reader("checkpoint_pt", _checkpoint("a.pt"), changes.of_archive(changes.of_pickle)),
        Reader("checkpoint_old", _checkpoint("a.pth"), changes.of_pickle),
        Reader("checkpoint_npy", _checkpoint("a.npy"), changes.of_numbers),
        Reader("checkpoint_npz", _checkpoint("a.npz"), changes.of_archive(changes.of_numbers)),
        Reader("checkpoint_safetensors", _checkpoint("a.safetensors"), changes.of_safetensors),
        Reader("checkpoint_distributed", distributed_metadata, changes.of_pickle),
        Reader("kernel_file", kernel_file, changes.of_message),
        Reader("pack", pack, changes.of_archive(changes.of_json)),
        Reader("settings_yaml", _packed("a.yaml"), changes.of_lines, words.YAML),
        Reader("settings_json", _packed("a.json"), changes.of_json),
        Reader("settings_toml", _packed("a.toml"), changes.of_lines, words.TOML),
        Reader("settings_shell", _packed("a.sh"), changes.of_lines, words.SHELL),
        Reader("settings_python", _packed("a.py"), changes.of_lines, words.PYTHON),
        Reader("verl_log", verl_log, changes.of_lines, (b"{'a': 1}", b"{" * 99, b"=cmd()")),
        Reader("slime_log", slime_log, changes.of_lines, (b"  a ..... 1", b"=cmd()", b"\x1b[2J")),
        Reader("recorder_settings", recorder_settings, changes.of_json, words.RECORDER),
        Reader("mapping_data", _mapped("-dm"), changes.of_lines, words.YAML),
        Reader("mapping_cells", _mapped("-cm"), changes.of_lines, words.YAML),
        Reader("mapping_calls", _mapped("-am"), changes.of_lines, words.YAML),
        Reader("mapping_layers", _mapped("-lm"), changes.of_lines, words.YAML),
        Reader("monitor_csv", _monitored("grad_reduced_0-1.csv"), changes.of_cells, (b"nan", b"vpp_stage", b"norm")),
        Reader("monitor_run", _monitored("run.json"), changes.of_json),
        Reader("details_csv", details_csv, changes.of_cells, (b"pass", b"error", b"SKIP", b"torch.float16")),
        Reader("gradient_csv", gradient_csv, changes.of_cells, (b"norm", b"param_name")),
        Reader("wire_frames", wire_frames, changes.of_frames),
        Reader("shared_folder", shared_folder, changes.of_lines, words.LIFE),
        Reader("page_requests", page_requests, changes.of_lines, words.REQUESTS),
    )
}  # fmt: skip


def as_json(value: Any) -> bytes:
    """For seeds."""
    return json.dumps(value).encode()
