"""Pairs whose sides have different parallel layouts: with a bug planted in the candidate's, and healthy ones.

Calls of one layout do not answer to those of another, so a right answer names a module, a parameter, or what goes into
a module, and the rank where one rank alone is wrong.
"""

from __future__ import annotations

from bugs.clean import QUIET
from bugs.patterns.distributed import PATTERNS
from bugs.planting import Answer, Edit, Pattern, answer

#: Bugs of several ranks, by the names they have in one layout.
_KNOWN = {pattern.id: pattern for pattern in PATTERNS}
_ONE = 'layout: str = "one"'
_ANY = r"[\w.]+\.(weight|bias)"
_NORMS = r"(blocks\.\d+\.)?norm\.(weight|bias)"


def _against_one(name: str, known: str, *truth: Answer, **more: object) -> Pattern:
    """A bug of several ranks, compared with one process."""
    pattern = _KNOWN[known]
    return Pattern(
        name, f"{pattern.title}, against one process", "layouts", plant=(*pattern.bed, *pattern.plant), truth=truth,
        program="ranks", world=2, reference_world=1, choices=pattern.choices, settings=pattern.settings, **more,
    )  # type: ignore[arg-type]  # fmt: skip


def _planted(name: str, title: str, layout: str, *edits: Edit, truth: tuple[Answer, ...], **more: object) -> Pattern:
    """A bug that only another layout can have."""
    plant = (Edit(_ONE, f'layout: str = "{layout}"'), *edits)
    return Pattern(
        name, title, "layouts", plant=plant, truth=truth, program="ranks", world=2, reference_world=1, **more
    )  # type: ignore[arg-type]


def _healthy(name: str, candidate: tuple[str, int], reference: tuple[str, int]) -> Pattern:
    """The same training in two layouts: (layout, number of ranks)."""
    edit = Edit(f'layout: str = "{reference[0]}"', f'layout: str = "{candidate[0]}"')
    return Pattern(
        name, f"{candidate[0]} on {candidate[1]} against {reference[0]} on {reference[1]}", "clean",
        plant=(edit,) if candidate[0] != reference[0] else (), truth=(),
        bed=() if reference[0] == "one" else (Edit(_ONE, f'layout: str = "{reference[0]}"'),), expected=QUIET,
        program="ranks", world=candidate[1], reference_world=reference[1], settings={"layers": 2, "batch": 4},
    )  # fmt: skip


#: In the layer that was drawn.
_IN_LAYER = Edit(
    "        self.down = RowLinear(4 * settings.width, settings.width, ranks)\n",
    "        self.down = RowLinear(4 * settings.width, settings.width, ranks)\n"
    "        self.down.chosen = index == @layer\n",
)
_SUM = "        x = F.linear(x, self.weight)\n        x = out_of_region(x, self.ranks)\n"
_SHARD = "            parameter.copy_(full if dim is None else ranks.shard(full, dim))"

LAYOUTS: dict[str, Pattern] = {
    pattern.id: pattern
    for pattern in (
        _against_one("L01", "D01", answer("replica parameter_gradient", parameter=_NORMS)),
        _against_one("L02", "D02", answer("collective gradient", module="head", direction="backward", api="Module")),
        _against_one(
            "L03",
            "D03",
            answer("gradient loss_scale", module="head", direction="backward"),
            answer("parameter_gradient replica", parameter=_ANY),
        ),
        _against_one(
            "L03L",
            "D03L",
            answer("gradient loss_scale", module="head", direction="backward"),
            answer("parameter_gradient replica", parameter=_ANY),
        ),
        _against_one("L04", "D04", answer("replica parameter_gradient", parameter=_ANY)),
        _against_one("L05", "D05", answer("replica parameter_gradient", parameter="@which")),
        _against_one("L06", "D06", answer("replica parameter_gradient", parameter="@which")),
        _against_one("L07", "D07", answer("initial_weights replica", parameter="@which")),
        _against_one("L08", "D08", answer("computation collective", module="embedding", api="Embedding")),
        _against_one("L09", "D09", answer("computation collective", module="blocks.0.down", api=r"Module.*RowLinear")),
        _against_one(
            "L10", "D10", answer("replica computation collective", module="blocks.0", api=r"Module\.", ranks="1")
        ),
        _against_one("L11", "D11", answer("replica parameter_gradient", parameter=_ANY)),
        _against_one("L12", "D12", answer("parameter_gradient replica", parameter=_ANY)),
        _against_one(
            "L13",
            "D13",
            answer("computation collective", module="blocks.0.up", api=r"Module.*ColumnLinear"),
            blind=True,
        ),
        _planted(
            "L14",
            "shares of one layer not summed",
            "tensor",
            _IN_LAYER,
            Edit(
                _SUM,
                "        x = F.linear(x, self.weight)\n"
                "        x = x if self.chosen else out_of_region(x, self.ranks)\n",
            ),
            truth=(answer("collective computation replica", module="blocks.@layer.down", api=r"Module.*RowLinear"),),
        ),
        _planted(
            "L15",
            "the sum of one layer not used on one rank",
            "tensor",
            _IN_LAYER,
            Edit(
                _SUM,
                "        x = F.linear(x, self.weight)\n        summed = out_of_region(x.clone(), self.ranks)\n"
                "        x = x if self.chosen and self.ranks.rank == @rank else summed\n",
            ),
            truth=(
                answer(
                    "collective computation replica",
                    module="blocks.@layer.down",
                    api=r"Module.*RowLinear",
                    ranks="@rank",
                ),
            ),
        ),
        _planted(
            "L16",
            "the part of the other rank loaded",
            "tensor",
            Edit(
                _SHARD,
                '            chosen = name == "@which" and ranks.rank == @rank\n'
                "            own = full.roll(full.shape[dim or 0] // 2, dim or 0) if chosen else full\n"
                "            parameter.copy_(full if dim is None else ranks.shard(own, dim))",
            ),
            truth=(answer("initial_weights", parameter="@which"),),
            choices={"which": ("blocks.0.up.weight", "blocks.0.down.weight", "head.weight", "embedding.weight")},
        ),
        _planted(
            "L17",
            "every rank takes the same part of the batch",
            "data",
            Edit("part.chunk(self.ranks.world)[self.ranks.rank]", "part.chunk(self.ranks.world)[0]"),
            truth=(answer("data", module="embedding", api="Embedding", ranks="1"),),
        ),
        _planted(
            "L18",
            "another rate of learning",
            "data",
            Edit("lr=settings.learning_rate", "lr=2 * settings.learning_rate"),
            truth=(answer("optimizer", api="Optimizer"),),
        ),
        _planted(
            "L19",
            "activation of another form",
            "sequence",
            Edit("F.gelu(self.up", 'F.gelu(approximate="tanh", input=self.up'),
            truth=(answer("computation", module="blocks.0.down", api=r"Module.*RowLinear"),),
        ),
        _healthy("LC1", ("tensor", 2), ("data", 2)),
        _healthy("LC2", ("sequence", 2), ("data", 2)),
        _healthy("LC3", ("data", 4), ("one", 1)),
        _healthy("LC4", ("tensor", 4), ("one", 1)),
        _healthy("LC5", ("sequence", 4), ("one", 1)),
        _healthy("LC6", ("tensor", 4), ("data", 2)),
        _healthy("LC7", ("data", 4), ("data", 2)),
        _healthy("LC8", ("one", 1), ("sequence", 2)),
        _healthy("LC9", ("data", 2), ("tensor", 4)),
    )
}
