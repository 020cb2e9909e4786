"""Record a small training without private names of torch, as if this torch did not have them.

``python THIS FOLDER [each]``: without one name of each ability in turn, and without all that no ability needs; with
"each" without each name in turn. Prints a line of JSON for each training: what was hidden, what the log said, whether
the training was the same to the last bit, and what was recorded. Each is a fork of a process that has imported torch
and not msprobe.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import io
import json
import os
import re
import sys
import traceback
import types
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
import torch._dynamo
import torch.distributed._functional_collectives
import torch.nn.functional as functional
from torch import nn
from torch.utils.data import DataLoader

PRIVATE = "msprobe.capture.torch.private"


Choice = tuple[str, tuple[str, ...]]


def choices(each: bool) -> list[Choice]:
    """The ability that is lost ("" for none), and what has to be hidden for that."""
    private = importlib.import_module(PRIVATE)
    found: list[Choice] = [("", ())]
    harmless: list[tuple[str, ...]] = []
    known: set[str] = set()
    for ability, row in private.ABILITIES.items():
        losses = [tuple(need.split(" or ")) for need in row.needs]
        known.update(name for names in losses for name in names)
        harmless += [(name,) for names in losses if len(names) > 1 for name in names]
        if ability == "operators by mode":  # it stands in for the other way
            losses = [(*names, private.ABILITIES["operators by key"].needs[0]) for names in losses]
        found += [(ability, names) for names in (losses if each else losses[:1])]
    place = Path(str(private.__file__))
    source = place.read_text() + place.with_name("private_compiler.py").read_text()
    others = [(name,) for name in re.findall(r'find\("(torch[^"]+)"\)', source) if name not in known]
    others = [names for names in others if not any(name.startswith(names[0] + ".") for name in known)]
    if not each:
        return [*found, ("", tuple(name for (name,) in others))]
    return [*found, *(("", names) for names in (*harmless, *others))]


def resolved(path: str) -> Any:
    found: Any = torch
    for name in path.split(".")[1:]:
        found = getattr(found, name)
    return found


@contextlib.contextmanager
def hidden(names: Sequence[str]) -> Iterator[None]:
    """Take these names away, for as long as msprobe looks for them; torch itself goes on needing some."""
    undo: list[Callable[[], None]] = []
    for path in names:
        place, _, name = path.rpartition(".")
        holder: Any = resolved(place)
        if isinstance(holder, types.ModuleType):
            value = vars(holder).get(name)
            if value is not None:
                delattr(holder, name)
                undo.append(lambda h=holder, n=name, v=value: setattr(h, n, v))  # type: ignore[misc]
        elif name in getattr(holder, "__annotations__", {}):
            kind = holder.__annotations__.pop(name)
            undo.append(lambda h=holder, n=name, v=kind: h.__annotations__.update({n: v}))  # type: ignore[misc]
        else:
            # A class that was made in C: another one in its place.
            above, _, word = place.rpartition(".")
            outer: Any = resolved(above)
            others = {n: getattr(holder, n) for n in dir(holder) if n.startswith("_") and not n.startswith("__")}
            others.pop(name)
            setattr(outer, word, type(word, (), others))
            undo.append(lambda o=outer, w=word, h=holder: setattr(o, w, h))  # type: ignore[misc]
    try:
        yield
    finally:
        for step in reversed(undo):
            step()


class Small(nn.Module):
    """Modules, functions, in-place writes on views, a pooling that returns indices, a transform."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 8)
        self.second = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = functional.dropout(self.first(x), 0.25)
        h[:, 0].mul_(2)
        h, _ = functional.max_pool1d(h, 2, return_indices=True)
        h = torch.func.vmap(torch.sin)(h) + 1  # type: ignore[no-untyped-call]
        group = torch.distributed.group.WORLD
        waited = torch.distributed._functional_collectives.all_reduce(h.detach(), "sum", group)
        result: torch.Tensor = self.second(h + torch.distributed._functional_collectives.wait_tensor(waited))
        return result


def train(start: Callable[[nn.Module], None], end: Callable[[], None]) -> str:
    """Two iterations; a digest of all numbers of the training."""
    torch.manual_seed(0)
    model = Small()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    digest = hashlib.sha256()
    for x in DataLoader(torch.randn(4, 6), batch_size=2):  # type: ignore[arg-type]
        optimizer.zero_grad()
        start(model)
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        end()
        for tensor in (loss, *model.parameters(), *(p.grad for p in model.parameters())):
            digest.update(tensor.detach().numpy().tobytes())
    return digest.hexdigest()


def child(ability: str, names: tuple[str, ...], folder: Path) -> dict[str, Any]:
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        with hidden(names):
            private = importlib.import_module(PRIVATE)
            for other in private.ABILITIES:
                private._missing[other] = private.missing(other)
        from msprobe.pytorch import PrecisionDebugger

        expected = train(lambda model: None, lambda: None)
        level = "L2" if ability.startswith("operators") else "mix"
        loader = ability == "data loaders"
        debugger = PrecisionDebugger(
            dump_path=str(folder), level=level, task="statistics", enable_dataloader=loader, step=[]
        )

        def end() -> None:
            if not loader:
                debugger.stop()
                debugger.step()

        found = train(debugger.start, end)
        PrecisionDebugger.reset()
    files = sorted(folder.glob("step0/rank*/dump.json"))
    recorded = {name: tree for file in files for name, tree in json.loads(file.read_text())["data"].items()}
    return {
        "ability": ability,
        "hidden": names,
        "same": found == expected,
        "said": said.getvalue().splitlines(),
        "records": recorded,
        "faults": [file.read_text() for file in folder.rglob("dump_error_info.log")],
    }


def in_a_fork(work: Callable[[], object], folder: Path) -> None:
    """Print what ``work`` returns."""
    pid = os.fork()
    if not pid:
        status = 1
        try:
            print(json.dumps(work()), flush=True)
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)
    if os.waitpid(pid, 0)[1]:
        sys.exit(f"failed in {folder}")


def main(folder: Path, each: bool) -> None:
    torch.set_num_threads(1)
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        os.write(writing, json.dumps(choices(each)).encode())
        os._exit(0)
    os.waitpid(pid, 0)
    os.close(writing)
    with os.fdopen(reading) as answer:
        todo = json.load(answer)
    for number, (ability, names) in enumerate(todo):
        place = folder / str(number)

        def work(ability: str = ability, names: Any = names, place: Path = place) -> object:
            torch.distributed.init_process_group("gloo", f"file://{place}.store", rank=0, world_size=1)
            return child(ability, tuple(names), place)

        in_a_fork(work, place)


if __name__ == "__main__":
    main(Path(sys.argv[1]), "each" in sys.argv[2:])
