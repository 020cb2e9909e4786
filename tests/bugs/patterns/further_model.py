"""More ways to be wrong, in the model of one process."""

from __future__ import annotations

from bugs.patterns.forward import GIVEN
from bugs.planting import Edit, Pattern, answer

_ATTENTION = "blocks.@layer.attention"
_FEED = "blocks.@layer.feed"
_GELU = '        hidden = F.gelu(hidden, approximate="none")\n'
_SCALED = "        scores = scores * self.scale\n"
_RETURN = "        return loss / total\n"
_UP = "        self.up = nn.Linear(settings.width, 4 * settings.width)\n"
_EMBED = "        x = self.embedding(tokens)\n"
_LOSS = (
    '        loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORED, reduction="sum")\n'
)
_LOSSES = "        self.losses: list[float] = []\n"
#: A mixture of experts in the place of the feed-forward layer, with a loss that balances them.
_EXPERTS = (
    Edit(
        "class Block(nn.Module):",
        '''class Experts(nn.Module):
    """Each token goes to the better one of several experts."""

    def __init__(self, settings: Settings, index: int) -> None:
        super().__init__()
        self.index = index
        self.router = nn.Linear(settings.width, 4, bias=False)
        self.experts = nn.ModuleList([Feed(settings, index) for _ in range(4)])
        self.balance: torch.Tensor | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        chances = torch.softmax(self.router(x), dim=-1)
        best, chosen = chances.max(dim=-1)
        self.balance = chances.mean(dim=(0, 1)).square().sum()
        result = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            result = result + expert(x) * (chosen == number)[..., None]
        return (result * best[..., None]).type_as(x)


class Block(nn.Module):''',
    ),
    Edit("self.feed = Feed(settings, index)", "self.feed = Experts(settings, index)"),
    Edit(
        _RETURN,
        "        balance = sum(block.feed.balance for block in self.model.blocks)\n"
        "        return loss / total + 0.01 * balance / self.settings.micro_batches\n",
    ),
)
#: Keys and values are taken from a cache that they are written to, of one position more than there are tokens.
CACHED = (
    Edit(
        "        v = v.repeat_interleave(groups, dim=1)\n",
        "        v = v.repeat_interleave(groups, dim=1)\n"
        "        begin, end = 0, length\n"
        "        keys = torch.zeros(batch, self.heads, length + 1, self.head_width, dtype=k.dtype)\n"
        "        values = torch.zeros(batch, self.heads, length + 1, self.head_width, dtype=v.dtype)\n"
        "        keys[:, :, begin:end] = k\n"
        "        values[:, :, begin:end] = v\n"
        "        k, v = keys[:, :, :length], values[:, :, :length]\n",
    ),
)
#: A small image in front of the tokens: convolution and batch normalisation.
_PICTURE = (
    Edit(
        "class Decoder(nn.Module):",
        '''class Picture(nn.Module):
    """A picture becomes a vector that is added to all tokens."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(3, settings.width, 3)
        self.norm = nn.BatchNorm2d(settings.width, momentum=0.1)

    def forward(self, picture: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.norm(self.convolution(picture)))
        return x.mean(dim=(2, 3))


class Decoder(nn.Module):''',
    ),
    Edit(
        "        self.norm = Norm(settings.width)\n        self.head",
        "        self.picture = Picture(settings)\n        self.norm = Norm(settings.width)\n        self.head",
    ),
    Edit(_EMBED, _EMBED + "        x = x + self.picture(self.pictures[: len(tokens)].to(x.dtype))[:, None]\n"),
    Edit(_LOSSES, _LOSSES + "        self.model.pictures = torch.randn(settings.batch, 3, 8, 8)\n"),
    Edit(
        'state[name] = 0.02 * noise if "embedding" in name else noise',
        'state[name] = value if "running" in name else 0.02 * noise if "embedding" in name else noise',
    ),
    Edit(
        "            state[name] = value + 0.02 * noise",
        '            state[name] = value if "running" in name or "num" in name else value + 0.02 * noise',
    ),
)


def _more(name: str, title: str, **fields: object) -> Pattern:
    return Pattern(name, title, "further", **fields)  # type: ignore[arg-type]


PATTERNS = (
    _more(
        "X08",
        "a log_softmax whose gradient is the identity",
        bed=(
            Edit(_LOSS, _LOSS + "        loss = loss + 0.1 * Chances.apply(logits).square().mean()\n"),
            Edit(
                "class Training:",
                '''class Chances(torch.autograd.Function):
    """log_softmax with its own gradient."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        result = x.log_softmax(-1)
        ctx.save_for_backward(result)
        return result

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        (result,) = ctx.saved_tensors
        return gradient - result.exp() * gradient.sum(-1, keepdim=True)


class Training:''',
            ),
        ),
        plant=(
            Edit(
                "        return gradient - result.exp() * gradient.sum(-1, keepdim=True)\n", "        return gradient\n"
            ),
        ),
        truth=(
            answer("gradient structure computation", api="Function.Chances", direction="backward"),
            answer("structure", "        return gradient - result.exp()", side="reference"),
        ),
        same=frozenset({"loss"}),
        differs=frozenset({"gradients"}),
    ),
    _more(
        "X10",
        "loss of the balance not divided by the number of micro-batches",
        bed=_EXPERTS,
        plant=(Edit("0.01 * balance / self.settings.micro_batches", "0.01 * balance"),),
        truth=(
            answer(
                "structure", "0.01 * balance / self.settings.micro_batches", side="reference", api="div", occurrence="1"
            ),
        ),
        differs=frozenset({"loss", "gradients"}),
    ),
    _more(
        "X11",
        "router in bfloat16",
        bed=(*_EXPERTS, Edit("torch.softmax(self.router(x), dim=-1)", "torch.softmax(self.router(x).float(), dim=-1)")),
        plant=(
            Edit(
                "torch.softmax(self.router(x).float(), dim=-1)",
                "torch.softmax(self.router(x).float(), dim=-1) if self.index != @layer else "
                "torch.softmax(self.router(x).bfloat16(), dim=-1).float()",
            ),
        ),
        truth=(
            answer(
                "dtype argument structure", "chances = torch.softmax", module="blocks.@layer.feed", api="softmax|float"
            ),
        ),
        differs=frozenset({"gradients"}),
    ),
    _more(
        "X13",
        "spectral norm first used in eval",
        bed=(
            Edit(
                _UP,
                "        self.up = nn.utils.parametrizations.spectral_norm(nn.Linear(settings.width, 4 * "
                "settings.width))\n",
            ),
            Edit("            state[name] = value + 0.02 * noise", "            state[name] = value"),
            Edit(
                _LOSSES,
                _LOSSES + "        with torch.no_grad():\n            self.loss(*self.batch(0)[0], 1)\n",
            ),
        ),
        plant=(
            Edit(
                "        with torch.no_grad():\n            self.loss(",
                "        self.model.blocks[@layer].feed.up.eval()\n        with torch.no_grad():\n           "
                " self.loss(",
            ),
            Edit(
                "            self.loss(*self.batch(0)[0], 1)\n",
                "            self.loss(*self.batch(0)[0], 1)\n        self.model.train()\n",
            ),
        ),
        truth=(answer(GIVEN, "        hidden = self.up(x)", module="blocks.@layer.feed.up", occurrence="any"),),
        differs=frozenset({"loss"}),
        precisions=("float32", "autocast"),
    ),
    _more(
        "X16",
        "momentum of a batch norm",
        bed=_PICTURE,
        plant=(Edit("momentum=0.1", "momentum=0.9"),),
        truth=(answer("argument", "x = F.relu(self.norm(", module="picture.norm", api="batch_norm"),),
        same=frozenset({"loss", "gradients", "weights"}),
        harmless=None,
        precisions=("float32", "autocast"),
    ),
    _more(
        "X16E",
        "a batch norm in eval mode while training",
        bed=_PICTURE,
        plant=(
            Edit(
                "        batches = self.batch(number)\n",
                "        self.model.picture.eval()\n        batches = self.batch(number)\n",
            ),
        ),
        truth=(
            answer("argument structure", "x = F.relu(self.norm(", module="picture.norm"),
            answer("argument", api=r"Module\.picture"),
        ),
        differs=frozenset({"loss"}),
        precisions=("float32", "autocast"),
    ),
    _more(
        "X18",
        "a linear left out of autocast",
        bed=(
            Edit(
                "            loss = self.loss(tokens, real, total)\n",
                '            with torch.autocast("cpu", torch.bfloat16):\n'
                "                loss = self.loss(tokens, real, total)\n",
            ),
            Edit(
                "        hidden = self.up(x)\n",
                '        with torch.autocast("cpu", torch.bfloat16, enabled=self.low):\n            hidden = '
                "self.up(x)\n",
            ),
            Edit(_UP, _UP + "        self.low = True\n"),
        ),
        plant=(Edit("self.low = True", "self.low = index != @layer"),),
        truth=(answer("dtype", "            hidden = self.up(x)", module=_FEED),),
        precisions=("float32", "autocast"),
        differs=frozenset({"gradients"}),
    ),
    _more(
        "X19",
        "denominator of a softmax summed step by step in float16",
        bed=(
            Edit(
                _LOSS,
                "        powers = (logits - logits.amax(-1, keepdim=True)).exp().half()\n"
                "        denominator = powers.sum(-1).float()\n"
                "        chances = powers.float() / denominator[..., None]\n"
                "        loss = F.nll_loss(chances.flatten(0, 1).clamp(min=1e-7).log(), labels.flatten(), "
                'ignore_index=IGNORED, reduction="sum")\n',
            ),
        ),
        plant=(
            Edit(
                "        denominator = powers.sum(-1).float()\n",
                "        denominator = torch.zeros(logits.shape[:-1]).half()\n"
                "        for column in powers.unbind(-1):\n"
                "            denominator = denominator + column\n"
                "        denominator = denominator.float()\n",
            ),
        ),
        truth=(
            answer("structure", "denominator = torch.zeros(logits"),
            answer("structure", "denominator = denominator + column"),
            answer("structure", "denominator = powers.sum(-1)", side="reference"),
        ),
    ),
    _more(
        "X20",
        "an index computed in 32 bits",
        bed=(
            Edit(
                _EMBED,
                "        slots = tokens.to(torch.int64) * self.stride\n"
                "        x = self.embedding((slots // self.stride) % self.settings.vocabulary)\n",
            ),
            Edit(
                "        self.norm = Norm(settings.width)\n        self.head",
                "        self.stride = 2**@power + 1\n        self.norm = Norm(settings.width)\n        self.head",
            ),
        ),
        plant=(Edit("tokens.to(torch.int64) * self.stride", "tokens.to(torch.int32) * self.stride"),),
        choices={"power": ("26", "27", "28")},
        suits=lambda s, w: s["vocabulary"] > 64,
        truth=(answer("argument dtype", "slots = tokens.to(torch.int", api="to"),),
        differs=frozenset({"loss"}),
    ),
    _more(
        "X21",
        "positions beyond a table wrap around",
        bed=(
            Edit(_EMBED, _EMBED + "        x = x + self.table(torch.arange(length) % self.limit)\n"),
            Edit(
                "        self.norm = Norm(settings.width)\n        self.head",
                "        self.table = nn.Embedding(settings.length, settings.width)\n"
                "        self.limit = settings.length\n"
                "        self.norm = Norm(settings.width)\n        self.head",
            ),
        ),
        plant=(Edit("self.limit = settings.length", "self.limit = settings.length // 2"),),
        truth=(answer("argument", "torch.arange(length) % self.limit", api="mod|remainder"),),
        differs=frozenset({"loss"}),
    ),
    _more(
        "X22",
        "double precision by accident",
        bed=(
            Edit(_SCALED, "        scores = (scores * self.factor).type_as(q)\n"),
            Edit(
                "        self.scale = 1.0 / math.sqrt(self.head_width)\n",
                "        self.factor = torch.tensor([1.0 / math.sqrt(self.head_width)])\n",
            ),
        ),
        plant=(
            Edit(
                "self.factor = torch.tensor([1.0 / math.sqrt(self.head_width)])",
                "self.factor = torch.tensor([1.0 / math.sqrt(self.head_width)], dtype=torch.float64 if index "
                "== @layer else None)",
            ),
        ),
        suits=lambda s, w: (s["width"] // s["heads"]) not in (4, 16, 64),
        truth=(answer("dtype argument data", "scores = (scores * self.factor)", module=_ATTENTION, api="mul"),),
        harmless=None,
        precisions=("float32",),
    ),
    _more(
        "X25",
        "a write to a view of the residual",
        bed=(
            Edit(
                "        fed = self.feed(self.norm2(x))\n",
                "        branch = x.clone()\n        branch += 0.1 * branch.roll(1, -1)\n        fed = "
                "self.feed(self.norm2(branch))\n",
            ),
        ),
        plant=(Edit("branch = x.clone()", "branch = x.contiguous() if self.index == @layer else x.clone()"),),
        truth=(
            answer("structure", "branch = x.contiguous()", module="blocks.@layer"),
            answer("structure", "branch = x.clone()", module="blocks.@layer", side="reference"),
            answer("mutation", "        branch += 0.1 *", module="blocks.@layer"),
        ),
        differs=frozenset({"loss"}),
    ),
    _more(
        "X26",
        "a cached table not refreshed after a step",
        bed=(
            Edit(_GELU, "        hidden = hidden / self.lengths()\n" + _GELU),
            Edit(
                "    def forward(self, x: torch.Tensor) -> torch.Tensor:\n        hidden = self.up(x)\n",
                "    def lengths(self) -> torch.Tensor:\n"
                "        with torch.no_grad():\n"
                "            self.kept = self.up.weight.square().sum(dim=1).sqrt()\n"
                "        return self.kept\n\n"
                "    def forward(self, x: torch.Tensor) -> torch.Tensor:\n        hidden = self.up(x)\n",
            ),
            Edit(_UP, _UP + "        self.kept: torch.Tensor | None = None\n"),
        ),
        plant=(
            Edit(
                "        with torch.no_grad():\n            self.kept = ",
                "        if self.index == @layer and self.kept is not None:\n            return self.kept\n"
                "        with torch.no_grad():\n            self.kept = ",
            ),
        ),
        truth=(
            answer("structure", "self.kept = self.up.weight", side="reference", module=_FEED, occurrence="1"),
            answer("structure", "self.kept = self.up.weight", side="reference", module=_FEED, step=1),
            answer("structure data mutation", "hidden = hidden / self.lengths()", module=_FEED, step=1),
        ),
        same=frozenset({"loss", "gradients", "weights"}),
    ),
    _more(
        "X31",
        "scale of a quantisation for the whole tensor instead of each row",
        bed=(
            Edit(
                "        hidden = self.down(hidden)\n",
                "        scale = hidden.detach().abs().amax(dim=self.scaled, keepdim=True) / 127.0\n"
                "        hidden = hidden + ((hidden / scale).round() * scale - hidden).detach()\n"
                "        hidden = self.down(hidden)\n",
            ),
            Edit(_UP, _UP + "        self.scaled = (-1,)\n"),
        ),
        plant=(Edit("self.scaled = (-1,)", "self.scaled = (-3, -2, -1) if index == @layer else (-1,)"),),
        truth=(answer("argument", "scale = hidden.detach().abs().amax", module=_FEED, api="amax"),),
        differs=frozenset({"loss"}),
    ),
    _more(
        "X32",
        "scale of a quantisation one call late",
        bed=(
            Edit(
                "        hidden = self.down(hidden)\n",
                "        largest = hidden.detach().abs().amax()\n"
                "        hidden = hidden + ((hidden / self.scale(largest)).round() * self.scale(largest) - "
                "hidden).detach()\n"
                "        self.largest = largest\n"
                "        hidden = self.down(hidden)\n",
            ),
            Edit(
                "    def forward(self, x: torch.Tensor) -> torch.Tensor:\n        hidden = self.up(x)\n",
                "    def scale(self, largest: torch.Tensor) -> torch.Tensor:\n"
                "        return largest / 127.0\n\n"
                "    def forward(self, x: torch.Tensor) -> torch.Tensor:\n        hidden = self.up(x)\n",
            ),
            Edit(_UP, _UP + "        self.largest = torch.ones(())\n"),
        ),
        plant=(Edit("return largest / 127.0", "return (self.largest if self.index == @layer else largest) / 127.0"),),
        truth=(answer("data argument", "return (self.largest", module=_FEED, api="div"),),
        differs=frozenset({"loss"}),
    ),
    _more(
        "X33",
        "slopes of the attention bias in reverse order",
        bed=(
            Edit(
                _SCALED,
                _SCALED + "        distance = torch.arange(length)[None, :] - torch.arange(length)[:, None]\n"
                "        scores = scores + (self.slopes[:, None, None] * distance).to(scores.dtype)\n",
            ),
            Edit(
                "        self.scale = 1.0 / math.sqrt(self.head_width)\n",
                "        self.scale = 1.0 / math.sqrt(self.head_width)\n"
                '        self.register_buffer("slopes", 0.5 ** torch.arange(1, self.heads + 1).float(), '
                "persistent=False)\n",
            ),
        ),
        plant=(
            Edit(
                'self.register_buffer("slopes", 0.5 ** torch.arange(1, self.heads + 1).float(), persistent=False)',
                "slopes = 0.5 ** torch.arange(1, self.heads + 1).float()\n"
                '        self.register_buffer("slopes", slopes.flip(0) if index == @layer else slopes, '
                "persistent=False)",
            ),
        ),
        truth=(answer(GIVEN, "self.slopes[:, None, None] * distance", module=_ATTENTION, api="getitem"),),
        differs=frozenset({"loss"}),
        blind=True,
    ),
    _more(
        "X34",
        "gradient of the padding row not masked",
        bed=(
            Edit(
                "self.embedding = nn.Embedding(settings.vocabulary, settings.width)",
                "self.embedding = nn.Embedding(settings.vocabulary, settings.width, padding_idx=0)",
            ),
        ),
        plant=(Edit(", padding_idx=0)", ")"),),
        truth=(answer("argument", "x = self.embedding(tokens)", api="embedding"),),
        same=frozenset({"loss"}),
    ),
    _more(
        "X39",
        "keys and values one position later in their cache",
        bed=CACHED,
        plant=(
            Edit(
                "        begin, end = 0, length\n",
                "        begin = 1 if self.index == @layer else 0\n        end = begin + length\n",
            ),
        ),
        truth=(answer("argument", "keys[:, :, begin:end] = k", until="values[:, :, begin:end] = v", api="setitem"),),
        differs=frozenset({"loss"}),
    ),
    _more(
        "X37",
        "softmax along the wrong dimension",
        plant=(Edit("torch.softmax(scores, dim=-1)", "torch.softmax(scores, dim=-2 if self.index == @layer else -1)"),),
        truth=(answer("argument", "probs = torch.softmax", module=_ATTENTION, api="softmax"),),
        differs=frozenset({"loss"}),
    ),
)
