"""More ways to be wrong, on several ranks: experts, sequences, stages, sharded optimizers."""

from __future__ import annotations

from bugs.planting import Edit, Pattern, answer

_REDUCED = "                dist.all_reduce(parameter.grad)"
#: Each rank updates its share of the parameters, and the others get them from it.
_SHARDED = (
    Edit('layout: str = "one"', 'layout: str = "data"'),
    Edit(
        "        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=settings.learning_rate)\n",
        "        shares = list(self.model.parameters())[ranks.rank :: ranks.world]\n"
        "        self.optimizer = torch.optim.SGD(shares, lr=settings.learning_rate)\n",
    ),
    Edit(
        "        self.optimizer.step()",
        "        self.optimizer.step()\n"
        "        for place, parameter in enumerate(self.model.parameters()):\n"
        "            dist.broadcast(parameter.data, place % self.ranks.world)",
    ),
    Edit("        self.optimizer.zero_grad()\n", "        self.model.zero_grad()\n"),
)
#: A replicated vector that is used in the parallel region.
_SHARED = (
    Edit('layout: str = "one"', 'layout: str = "tensor"'),
    Edit(
        "        self.up = ColumnLinear(",
        "        self.gain = nn.Parameter(torch.ones(1))\n        self.up = ColumnLinear(",
    ),
    Edit(
        "        hidden = F.gelu(self.up(self.norm(x)))\n",
        "        gain = CopyToRanks.apply(self.gain)\n        hidden = F.gelu(self.up(self.norm(x)) * gain)\n",
    ),
)


def _ranks(name: str, title: str, program: str, **fields: object) -> Pattern:
    return Pattern(name, title, "further", program=program, world=2, **fields)  # type: ignore[arg-type]


PATTERNS = (
    _ranks(
        "X01",
        "gradients of experts divided by another number of ranks",
        "experts",
        plant=(Edit("        return self.world\n", '        return 1 if "expert." in name else self.world\n'),),
        truth=(answer("argument", "parameter.grad.div_(self.copies(name))", occurrence="4"),),
        same=frozenset({"loss"}),
        differs=frozenset({"weights"}),
    ),
    _ranks(
        "X02",
        "loss multiplied by the number of ranks",
        "context",
        plant=(
            Edit(
                "        loss = loss / tokens[:, 1:].numel()\n",
                "        loss = loss * self.world / tokens[:, 1:].numel()\n",
            ),
        ),
        truth=(answer("structure loss_scale", "        loss = loss * self.world", api="mul"),),
        differs=frozenset({"loss", "weights"}),
    ),
    _ranks(
        "X02D",
        "loss divided by the tokens of one rank",
        "context",
        plant=(Edit("tokens[:, 1:].numel()", "tokens[:, self.mine].numel()"),),
        truth=(
            answer("structure argument loss_scale", "        loss = loss / tokens[:, self.mine]"),
            answer("argument", "        loss = loss / tokens", side="reference"),
        ),
        differs=frozenset({"loss", "weights"}),
    ),
    _ranks(
        "X03",
        "parts of the sequence in wrong order after gathering",
        "context",
        plant=(Edit("self.order = held.argsort()", "self.order = torch.arange(settings.length)"),),
        truth=(
            answer("data argument", "        whole = whole[:, order]", module="blocks.0.attention"),
            answer("data argument", "            x = block(x, mask, order)", module="blocks.0", api="Module"),
            answer("data argument", "        x = x + self.attention(", module="blocks.0.attention", api="Module"),
        ),
        differs=frozenset({"loss", "weights"}),
    ),
    _ranks(
        "X04",
        "gradients of an embedding that two stages share not summed",
        "pipeline",
        plant=(Edit("        dist.all_reduce(self.model.embedding.weight.grad)\n", ""),),
        truth=(
            answer("structure", "dist.all_reduce(self.model.embedding.weight.grad)", side="reference"),
            answer("replica parameter_gradient", parameter="embedding.weight"),
        ),
        same=frozenset({"loss"}),
        differs=frozenset({"weights"}),
    ),
    _ranks(
        "X05",
        "the gradient of the last micro-batch dropped",
        "pipeline",
        plant=(
            Edit(
                "            for micro in range(len(batches)):\n                self.backward_first",
                "            for micro in range(len(batches) - 1):\n                self.backward_first",
            ),
            Edit(
                "            for micro in range(len(batches)):\n                self.backward_last",
                "            for micro in range(len(batches) - 1):\n                self.backward_last",
            ),
        ),
        truth=(
            answer(
                "structure missing_gradient step_count",
                "        loss.backward()",
                side="reference",
                direction="any",
                occurrence="2",
            ),
            answer(
                "structure missing_gradient step_count",
                "        gradient = torch.zeros(result.shape, dtype=result.dtype)",
                side="reference",
                occurrence="2",
            ),
            answer(
                "missing_gradient",
                "        return x + self.down(",
                module="blocks.@last",
                side="reference",
                direction="any",
                occurrence="2",
            ),
            answer("structure missing_gradient", "        dist.send(given.grad, 0)", side="reference", occurrence="2"),
            answer("structure missing_gradient", "        dist.recv(gradient, 1)", side="reference", occurrence="2"),
            answer(
                "missing_gradient",
                "        loss = F.cross_entropy(",
                side="reference",
                direction="any",
                occurrence="2",
            ),
            answer(
                "missing_gradient",
                "        return given, loss / self",
                side="reference",
                direction="any",
                occurrence="2",
            ),
        ),
        same=frozenset({"loss"}),
        differs=frozenset({"weights"}),
    ),
    _ranks(
        "X06",
        "updated weights not sent to the other ranks in odd steps",
        "ranks",
        bed=_SHARDED,
        plant=(
            Edit(
                "        for place, parameter in enumerate(self.model.parameters()):\n",
                "        for place, parameter in enumerate(self.model.parameters() if number % 2 == 0 else ()):\n",
            ),
        ),
        truth=(
            answer(
                "structure", "            dist.broadcast(parameter.data", side="reference", step=1, occurrence="0 1"
            ),
        ),
        same=frozenset({"loss", "weights"}),
        steps=3,
    ),
    _ranks(
        "X07",
        "gradient of a replicated part not summed over ranks",
        "ranks",
        bed=_SHARED,
        plant=(Edit("        gain = CopyToRanks.apply(self.gain)\n", "        gain = self.gain\n"),),
        truth=(
            answer("structure", "        gain = CopyToRanks.apply(self.gain)", side="reference", module="blocks.0"),
            answer("structure", "        dist.all_reduce(gradient)", side="reference", occurrence="any"),
            answer("parameter_gradient replica", parameter=r"blocks\.\d+\.gain"),
        ),
        same=frozenset({"loss"}),
        differs=frozenset({"weights"}),
    ),
)
