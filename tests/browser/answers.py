"""Answers of the page's protocol (msprobe.view.protocol) for a made-up pair of runs, of any size.

A transformer of blocks with attention and MLP, its calls, backward, gradients of parameters and an optimizer step. One
block multiplies by 1.5 in one run only: an extra call there, an unexplained difference after it, and all that follows
explained by its inputs.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

MODULE, CALL, COLLECTION, GRADIENT, OPTIMIZER = range(5)
NO_NUMBERS, IDENTICAL, ROUNDING, EXPLAINED, UNEXPLAINED, CANDIDATE_ONLY, REFERENCE_ONLY = range(7)
FORWARD, BACKWARD, STEP = range(3)
ROWS_A_BLOCK = 38
FINDING = "an extra call multiplies its input by 1.5"


@dataclass
class Columns:
    """One place, row by row."""

    names: list[str] = field(default_factory=list)
    twins: dict[str, str] = field(default_factory=dict)
    parents: list[int] = field(default_factory=list)
    kinds: list[int] = field(default_factory=list)
    sides: list[int] = field(default_factory=list)
    orders: list[int] = field(default_factory=list)
    phases: list[int] = field(default_factory=list)
    micro: list[int] = field(default_factory=list)
    status: list[int] = field(default_factory=list)
    input_difference: list[float | None] = field(default_factory=list)
    output_difference: list[float | None] = field(default_factory=list)
    allowed: list[float | None] = field(default_factory=list)
    largest: list[float | None] = field(default_factory=list)
    norm: list[float | None] = field(default_factory=list)
    flags: list[int] = field(default_factory=list)


class Place:
    """Builds the columns of one rank of one step."""

    def __init__(self, blocks: int, wrong_block: int, single: bool, micro_steps: int) -> None:
        self.columns = Columns()
        self.single = single
        self.wrong_block = wrong_block
        self.micro_steps = micro_steps
        self.order = 0
        self.phase = FORWARD
        self.step = 0
        self.is_wrong = False
        self.counts: dict[str, int] = {}
        self.first = -1
        self.random = random.Random(blocks)
        for step in range(micro_steps):
            self.step = step
            self.phase = FORWARD
            top = self.module("model", "GPT")
            self.call("embedding", top)
            for block in range(blocks):
                self.block(block, top)
            self.call("linear", top)
            self.call("cross_entropy", -1)
            self.phase = BACKWARD
            top = self.module("model", "GPT")
            for block in reversed(range(blocks)):
                self.block(block, top)
        self.phase = STEP
        for block in range(blocks):
            self.add(f"Module.model.layers.{block}.mlp.fc1.Linear.parameters_grad", -1, GRADIENT)
        self.add("Optimizer.AdamW.step.0", -1, OPTIMIZER)

    @property
    def way(self) -> str:
        return "backward" if self.phase == BACKWARD else "forward"

    def add(self, name: str, parent: int, kind: int, side: int = 0, status: int | None = None) -> int:
        columns = self.columns
        columns.names.append(name)
        columns.parents.append(parent)
        columns.kinds.append(kind)
        columns.sides.append(side)
        columns.orders.append(self.order)
        columns.phases.append(self.phase)
        columns.micro.append(self.step)
        if status is None:
            status = EXPLAINED if self.is_wrong else self.random.choice([IDENTICAL, IDENTICAL, ROUNDING])
        columns.status.append(NO_NUMBERS if self.single else status)
        noise = 10 ** self.random.uniform(-7.5, -6.5)
        size = 10 ** self.random.uniform(-2.2, -0.8) if self.is_wrong else noise
        difference = 0.0 if status == IDENTICAL else round(size, 9)
        columns.output_difference.append(None if self.single or side else difference)
        columns.input_difference.append(None if self.single or side else round(size / 1.3, 9) if self.is_wrong else 0.0)
        columns.allowed.append(None if self.single or side else round(max(size * 1.4, 4e-7), 9))
        columns.norm.append(round(10 ** self.random.uniform(-1, 3), 4))
        columns.largest.append(round(10 ** self.random.uniform(-1, 1), 4))
        columns.flags.append(1 if self.single and self.is_wrong else 0)
        if columns.flags[-1]:
            columns.norm[-1] = columns.largest[-1] = None
        return len(columns.names) - 1

    def module(self, path: str, kind: str, parent: int = -1) -> int:
        return self.add(f"Module.{path}.{kind}.{self.way}.{self.step}", parent, MODULE)

    def call(self, name: str, parent: int, prefix: str = "Functional", side: int = 0, status: int | None = None) -> int:
        key = f"{prefix}.{name}.{self.way}"
        number = self.counts[key] = self.counts.get(key, -1) + 1
        row = self.add(f"{prefix}.{name}.{number}.{self.way}", parent, CALL, side, status)
        self.order += 1
        return row

    def block(self, number: int, parent: int) -> None:
        path = f"model.layers.{number}"
        top = self.module(path, "Block", parent)
        for norm in ("ln_1", "ln_2"):
            self.call("layer_norm", self.module(f"{path}.{norm}", "LayerNorm", top))
        attention = self.module(f"{path}.attn", "Attention", top)
        for part in ("q", "k", "v"):
            self.call("linear", self.module(f"{path}.attn.{part}", "Linear", attention))
        for name in ("view", "transpose", "scaled_dot_product_attention", "reshape"):
            self.call(name, attention, "Tensor" if name != "scaled_dot_product_attention" else "Functional")
        self.call("linear", self.module(f"{path}.attn.proj", "Linear", attention))
        self.call("__add__", top, "Tensor")
        mlp = self.module(f"{path}.mlp", "MLP", top)
        self.call("linear", self.module(f"{path}.mlp.fc1", "Linear", mlp))
        self.call("gelu", mlp)
        if number == self.wrong_block and self.phase == FORWARD and not self.single:
            row = self.call("__mul__", mlp, "Tensor", side=1, status=CANDIDATE_ONLY)
            self.first = self.first if self.first >= 0 else row
            self.is_wrong = True
            self.call("linear", self.module(f"{path}.mlp.fc2", "Linear", mlp), status=UNEXPLAINED)
            self.columns.status[mlp] = UNEXPLAINED
            self.call("dropout", mlp, side=2, status=REFERENCE_ONLY)
        else:
            row = self.call("linear", self.module(f"{path}.mlp.fc2", "Linear", mlp))
            if number == self.wrong_block and self.single:
                if not self.is_wrong:
                    self.columns.flags[row] |= 2
                    self.first = row
                self.is_wrong = True
        self.call("all_reduce", top, "Distributed")
        self.columns.flags[-1] |= 32
        for name in (
            "__add__",
            "contiguous",
            "to",
            "detach",
            "float",
            "mean",
            "sqrt",
            "mul",
            "sub",
            "split",
            "cat",
            "exp",
        ):
            self.call(name, top, "Tensor")

    def answer(self) -> dict[str, Any]:
        columns = self.columns
        return {
            **vars(columns),
            "micro_steps": self.micro_steps,
            "first": self.first,
            "culprits": [{"row": self.first, "finding": 0}] if self.first >= 0 and not self.single else [],
            "named": [],
            "notes": [],
        }


def place(rows: int, *, single: bool = False, micro_steps: int = 1) -> dict[str, Any]:
    """About *rows* rows, the fault in the third block."""
    blocks = max(3, rows // (2 * micro_steps * ROWS_A_BLOCK))
    return Place(blocks, 2 if blocks < 8 else blocks // 5, single, micro_steps).answer()


def overview(place: dict[str, Any], *, single: bool = False, places: int = 1, can_match: bool = True) -> dict[str, Any]:
    first = place["first"]
    name = place["names"][first] if first >= 0 else None
    finding = {
        "title": FINDING,
        "blocks": [
            {"type": "text", "text": {"en": "It is made by the candidate only.", "zh": "仅待比对侧有这个调用。"}},
            {"type": "field", "name": {"en": "to do", "zh": "建议"}, "text": "x = 1.5 * x", "code": "x *= 1.5"},
        ],
        "kind": "extra_call",
        "harmless": False,
        "name": name,
        "twin": None,
        "step": 0,
        "rank": 0,
        "place": 0,
        "reason": "extra_call",
        "source": ['File "train.py", line 42, in forward', "    x = self.act(self.fc1(x)) * self.scale"],
    }
    side = {"framework": "pytorch", "level": "mix", "task": "tensor", "interrupted": False}
    sides = [{"label": "candidate", "path": "/runs/candidate/dump", **side}]
    if not single:
        sides.append({"label": "reference", "path": "/runs/reference/dump", **side})
    steps = list(range(20))
    return {
        "format": 1,
        "product": "msprobe 0.1.0",
        "kind": "single" if single else "pair",
        "title": "candidate and reference" if not single else "candidate",
        "sides": sides,
        "places": [
            {"step": index // 2, "rank": index % 2, "sides": 0, "status": "diverged" if index < 2 else "agree"}
            for index in range(places)
        ],
        "verdict": None
        if single
        else {
            "status": "diverged",
            "headline": f"diverged at step 0, rank 0: {FINDING} ({name})",
            "exit_code": 1,
            "coverage": {"complete": True, "read": {}, "not_read": []},
            "compared": [],
            "notes": ["weights of both runs are equal at the start"],
            "findings": [
                finding,
                {**finding, "title": "a result is further off than it should be", "blocks": [], "source": []},
            ],
        },
        "curve": []
        if single
        else [
            {
                "name": "loss",
                "steps": steps,
                "candidate": [4 - 0.1 * s + 0.01 * s * s for s in steps],
                "reference": [4 - 0.1 * s for s in steps],
                "difference": [None if s == 0 else 0.0001 * 2**s for s in steps],
                "allowed": [0.001 for _ in steps],
            },
            {
                "name": "gradient norm",
                "steps": steps,
                "candidate": [1 + 0.2 * (s % 3) for s in steps],
                "reference": [1 + 0.19 * (s % 3) for s in steps],
                "difference": [0.01 * (s % 3) for s in steps],
                "allowed": [0.002 for _ in steps],
            },
        ],
        "curve_complete": True,
        "can": {"picture": not single, "match": can_match and not single},
        "notes": [],
    }


def tensor(scale: float, shape: list[int]) -> dict[str, Any]:
    return {
        "type": "torch.Tensor",
        "dtype": "torch.float32",
        "shape": shape,
        "strides": [shape[-1], 1],
        "max": 2.771343 * scale,
        "min": -2.416103 * scale,
        "mean": -4.967054e-09,
        "norm": 13.856324 * scale,
        "nan": None,
        "inf": None,
        "digest": None,
        "requires_grad": True,
        "value": None,
        "file": True,
        "unset": False,
    }


def value(text: str) -> dict[str, Any]:
    nothing = dict.fromkeys(("shape", "strides", "max", "min", "mean", "norm", "nan", "inf", "digest", "requires_grad"))
    return {"type": "float", "dtype": None, **nothing, "value": text, "file": False, "unset": False}


def node(place: dict[str, Any], row: int, *, single: bool = False) -> dict[str, Any]:
    """The details of a row; its neighbours are those next to it."""
    status, side = place["status"][row], place["sides"][row]

    def pair(slot: str, group: str, scale: float) -> dict[str, Any]:
        mine, other = tensor(scale, [8, 64]), tensor(1.0, [8, 64])
        differences = {
            name: [abs(mine[name] - other[name]), abs(mine[name] - other[name]) / abs(other[name])]
            for name in ("max", "min", "mean", "norm")
        }
        return {
            "slot": slot,
            "group": group,
            "candidate": None if side == 2 else mine,
            "reference": None if side == 1 or single else other,
            "status": status if group == "output" else IDENTICAL,
            "relative": abs(scale - 1),
            "allowed": 6e-8,
            "units": None,
            "at_least": False,
            "differences": differences if not side and not single else {},
            "words": "",
        }

    scale = {EXPLAINED: 1.02, UNEXPLAINED: 1.5, ROUNDING: 1.0000001}.get(status, 1.0)
    eps = {
        "slot": "input.eps",
        "group": "input",
        "candidate": value("1e-05"),
        "reference": None if single else value("1e-05"),
        "status": IDENTICAL,
        "relative": None,
        "allowed": None,
        "units": None,
        "at_least": False,
        "differences": {},
        "words": "",
    }
    near = [other for other in (row - 1, row + 1) if 0 <= other < len(place["names"])]
    frames = [
        'File "train.py", line 42, in forward',
        'File "model.py", line 17, in forward',
        'File "model.py", line 88, in forward',
        'File "train.py", line 120, in main',
    ]
    return {
        "name": place["names"][row],
        "twin": place["twins"].get(str(row)),
        "kind": place["kinds"][row],
        "side": side,
        "status": status,
        "order": place["orders"][row],
        "module": "model.layers.2.mlp",
        "why_unmatched": "the reference makes no such call here" if side == 1 else None,
        "tensors": [
            pair("input.0", "input", 1.0),
            eps,
            pair("parameters.weight", "parameter", 1.0),
            pair("output.0", "output", scale),
        ],
        "source": {"candidate": frames, "reference": [] if single else frames},
        "producers": [{"slot": "input.0", "row": near[0], "name": place["names"][near[0]]}],
        "consumers": [{"slot": "output.0", "row": near[-1], "name": place["names"][near[-1]]}],
        "partners": [],
        "findings": [0] if row == place["first"] else [],
        "notes": [],
    }


def picture(shape: tuple[int, int] = (8, 64)) -> dict[str, Any]:
    cells = [[abs((x - 20) * (y - 3)) * 1e-4 for x in range(shape[1])] for y in range(shape[0])]
    edges = [-2 + 0.1 * edge for edge in range(41)]
    bell = [int(1000 * 2.7 ** -((edge + 0.05) ** 2)) for edge in edges[:-1]]
    return {
        "shape": list(shape),
        "slice": "",
        "cell": [1, 1],
        "cells": cells,
        "largest": max(map(max, cells)),
        "histogram": {
            "edges": edges,
            "candidate": bell[1:] + bell[:1],
            "reference": bell,
            "difference_edges": edges,
            "difference": bell,
            "every": 1,
        },
    }


def ranks(count: int = 2) -> dict[str, Any]:
    layers = [f"model.layers.{layer}" for layer in range(12)]
    worst = [
        [EXPLAINED if layer > 2 else UNEXPLAINED if layer == 2 and rank == 0 else ROUNDING for layer in range(12)]
        for rank in range(count)
    ]
    return {"layers": layers, "ranks": list(range(count)), "places": list(range(count)), "worst": worst}
