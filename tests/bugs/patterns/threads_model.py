"""Bugs that public threads tell of, planted in the decoder: masks, positions, scales, norms, gates."""

from __future__ import annotations

from bugs.patterns.forward import _LEFT_PADDING, GIVEN
from bugs.planting import Edit, Pattern, answer

_ATTENTION = "blocks.@layer.attention"
_ROTARY = "blocks.@layer.attention.rotary"
_FEED = "blocks.@layer.feed"
_MASK = "        causal = torch.ones(length, length, dtype=torch.bool).tril()\n"
_EMBED = "        x = self.embedding(tokens)\n"
_HEAD = "        return self.head(x)\n"
_MASKING = '        scores = scores.masked_fill(~mask, float("-inf"))\n'
_SCALED = "        scores = scores * self.scale\n"
_ANGLES = "        angles = torch.outer(positions, self.frequencies)\n"
_TURNED = "        q = self.rotary(q)\n        k = self.rotary(k)\n"
_SCALE = "        self.scale = 1.0 / math.sqrt(self.head_width)\n"
_UP = "        self.up = nn.Linear(settings.width, 4 * settings.width)\n"
_GELU = '        hidden = F.gelu(hidden, approximate="none")\n'
_TIED = "        self.head.weight = self.embedding.weight\n"
#: Rows that see nothing become the mean of all values instead of no number.
_FINITE = Edit('scores.masked_fill(~mask, float("-inf"))', "scores.masked_fill(~mask, torch.finfo(scores.dtype).min)")
#: A norm of the root mean square, with a weight that is added to one, as some checkpoints have it.
_ROOT_MEAN_SQUARE = (
    Edit(
        "        return F.layer_norm(x, (x.shape[-1],), self.weight, self.bias, self.eps)\n",
        "        wide = x.float()\n"
        "        wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)\n"
        "        return (wide * (1.0 + self.weight.float())).to(x.dtype) + self.bias\n",
    ),
    Edit("self.weight = nn.Parameter(torch.ones(width))", "self.weight = nn.Parameter(torch.zeros(width))"),
)


def _reported(name: str, title: str, source: str, **fields: object) -> Pattern:
    return Pattern(name, title, "threads", source=source, **fields)  # type: ignore[arg-type]


PATTERNS = (
    _reported(
        "T01",
        "capped logits multiplied by the logits instead of the cap",
        "unslothai/unsloth-zoo#593",
        bed=(
            Edit(_HEAD, "        logits = self.head(x)\n        return self.cap * torch.tanh(logits / self.cap)\n"),
            Edit(_TIED, _TIED + "        self.cap = 2.0\n"),
        ),
        plant=(Edit("return self.cap * torch.tanh(", "return logits * torch.tanh("),),
        truth=(
            answer("argument structure data computation", "torch.tanh(logits / self.cap)", api="mul"),
            answer("structure", "torch.tanh(logits / self.cap)", side="reference", api="mul"),
        ),
        differs=frozenset({"loss", "gradients"}),
    ),
    _reported(
        "T02",
        "cap of the scores left out",
        "vllm-project/vllm-metal#665",
        bed=(
            Edit(
                _SCALED,
                _SCALED + "        if self.cap:\n            scores = torch.tanh(scores / self.cap) * self.cap\n",
            ),
            Edit(_SCALE, _SCALE + "        self.cap = 5.0\n"),
        ),
        plant=(Edit("self.cap = 5.0", "self.cap = 0.0 if index == @layer else 5.0"),),
        truth=(answer("structure", "scores = torch.tanh(", side="reference", module=_ATTENTION),),
        differs=frozenset({"loss", "gradients"}),
    ),
    _reported(
        "T03",
        "window of the attention one token too wide",
        "huggingface/transformers#39408",
        bed=(
            _FINITE,
            Edit(
                _MASK,
                _MASK + "        distance = torch.arange(length)[:, None] - torch.arange(length)\n"
                "        causal = causal & (distance < self.window)\n",
            ),
            Edit(_TIED, _TIED + "        self.window = 5\n"),
        ),
        plant=(Edit("self.window = 5", "self.window = 5 + 1"),),
        truth=(answer("argument", "causal & (distance < self.window)", api="__lt__"),),
        differs=frozenset({"loss", "gradients"}),
    ),
    _reported(
        "T04",
        "positions counted from the padding on the left",
        "TransformerLensOrg/TransformerLens#1609",
        bed=(
            *_LEFT_PADDING,
            Edit(
                _EMBED,
                "        positions = (padding.long().cumsum(-1) - 1).clamp(min=0)\n"
                "        x = self.embedding(tokens) + self.places(positions)\n",
            ),
            Edit(_TIED, _TIED + "        self.places = nn.Embedding(settings.length, settings.width)\n"),
        ),
        plant=(
            Edit(
                "positions = (padding.long().cumsum(-1) - 1).clamp(min=0)",
                "positions = torch.arange(length).expand(tokens.shape)",
            ),
        ),
        truth=(
            answer("structure", "positions = torch.arange(length)"),
            answer("structure", "positions = (padding.long()", side="reference"),
        ),
        differs=frozenset({"loss"}),
    ),
    _reported(
        "T05",
        "causal mask of more keys than queries aligned at the top",
        "pytorch/pytorch#108108",
        bed=(
            Edit(
                "        scores = q @ k.transpose(-2, -1)\n        scores = scores * self.scale\n"
                + _MASKING
                + "        probs = torch.softmax(scores, dim=-1)\n        mixed = probs @ v\n",
                "        before = self.before.unflatten(0, (2, 1, self.heads)).expand(2, batch, -1, -1, -1)\n"
                "        k, v = torch.cat((before[0], k), dim=2), torch.cat((before[1], v), dim=2)\n"
                "        seen = torch.ones(length, k.shape[2], dtype=torch.bool).tril(k.shape[2] - length)\n"
                "        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=seen)\n",
            ),
            Edit(
                _SCALE,
                _SCALE
                + "        self.before = nn.Parameter(torch.zeros(2 * settings.heads, @count, self.head_width))\n",
            ),
        ),
        plant=(
            Edit(
                "mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=seen)",
                "causal = {'is_causal': True} if self.index == @layer else {'attn_mask': seen}\n"
                "        mixed = F.scaled_dot_product_attention(q, k, v, **causal)",
            ),
        ),
        choices={"count": ("2", "3", "5")},
        truth=(answer("argument structure", "mixed = F.scaled_dot_product", module=_ATTENTION),),
        differs=frozenset({"loss"}),
    ),
    _reported(
        "T06",
        "texts packed into one row see each other",
        "huggingface/nanoVLM#204",
        bed=(
            _FINITE,
            Edit(
                _MASK,
                _MASK + "        texts = (tokens % 7 == 0).cumsum(dim=1)\n"
                "        alone = texts[:, None, :, None] == texts[:, None, None, :]\n",
            ),
            Edit("mask = causal & padding[:, None, None, :]", "mask = causal & padding[:, None, None, :] & alone"),
        ),
        plant=(Edit("mask = causal & padding[:, None, None, :] & alone", "mask = causal & padding[:, None, None, :]"),),
        truth=(
            answer(
                "structure",
                "mask = causal & padding[:, None, None, :]",
                side="reference",
                api="__and__",
                occurrence="1",
            ),
        ),
        settings={"length": 24},
        differs=frozenset({"loss"}),
    ),
    _reported(
        "T07",
        "queries and keys normed after they were turned",
        "vllm-project/vllm-metal#660",
        bed=(
            Edit(_TURNED, "        q = self.rotary(self.q_norm(q))\n        k = self.rotary(self.k_norm(k))\n"),
            Edit(
                _SCALE,
                _SCALE + "        self.q_norm, self.k_norm = Norm(self.head_width), Norm(self.head_width)\n",
            ),
            Edit("state[name] = value + 0.02 * noise", "state[name] = value + 0.2 * noise"),
        ),
        plant=(
            Edit(
                "        q = self.rotary(self.q_norm(q))\n        k = self.rotary(self.k_norm(k))\n",
                "        if self.index == @layer:\n"
                "            q, k = self.q_norm(self.rotary(q)), self.k_norm(self.rotary(k))\n"
                "        else:\n"
                "            q, k = self.rotary(self.q_norm(q)), self.rotary(self.k_norm(k))\n",
            ),
        ),
        truth=(
            answer("structure", "q, k = self.q_norm(self.rotary(q))", module=_ATTENTION, occurrence="any"),
            answer("structure argument data", "        positions = torch.arange(", module=_ROTARY),
            # Where each call has the reference's inputs, the table agrees, and what is turned by it tells.
            answer("structure", "return x * cos + rotate_half(x) * sin", module=_ROTARY, occurrence="any"),
            answer("structure argument data", "return F.layer_norm(", module=f"{_ATTENTION}.q_norm", side="reference"),
            answer("structure", "q = self.rotary(self.q_norm(q))", module=_ATTENTION, side="reference"),
        ),
        differs=frozenset({"loss"}),
    ),
    _reported(
        "T08",
        "the other half of a gated layer activated",
        "ml-explore/mlx-lm#767",
        bed=(
            Edit(_UP, "        self.up = nn.Linear(settings.width, 8 * settings.width)\n"),
            Edit(_GELU, "        gate, linear = hidden.chunk(2, dim=-1)\n        hidden = F.silu(gate) * linear\n"),
        ),
        plant=(
            Edit(
                "hidden = F.silu(gate) * linear",
                "hidden = F.silu(linear) * gate if self.index == @layer else F.silu(gate) * linear",
            ),
        ),
        truth=(answer("argument data structure", "F.silu(gate) * linear", module=_FEED, api="silu"),),
        differs=frozenset({"loss"}),
    ),
    _reported(
        "T09",
        "scale of a low-rank update not divided by its rank",
        "Blaizzy/mlx-vlm#845",
        bed=(
            Edit(
                "        hidden = self.up(x)\n",
                "        hidden = self.up(x) + self.strength * self.b(self.a(x))\n",
            ),
            Edit(
                _UP,
                _UP + "        self.a = nn.Linear(settings.width, 8, bias=False)\n"
                "        self.b = nn.Linear(8, 4 * settings.width, bias=False)\n"
                "        self.strength = 16.0 / 8\n",
            ),
        ),
        plant=(Edit("self.strength = 16.0 / 8", "self.strength = 16.0 / (@by if index == @layer else 8)"),),
        choices={"by": ("1", "8**0.5", "4")},
        truth=(answer("argument", "self.strength * self.b(", module=_FEED, api="mul"),),
        differs=frozenset({"loss"}),
    ),
    _reported(
        "T10",
        "one not added to the weight of a norm",
        "huggingface/transformers#29402",
        bed=_ROOT_MEAN_SQUARE,
        plant=(
            Edit("self.norm2 = Norm(settings.width)", "self.norm2 = Norm(settings.width, plus=index != @layer)"),
            Edit("eps: float = 1e-5) -> None:", "eps: float = 1e-5, plus: bool = True) -> None:"),
            Edit("        self.eps = eps\n", "        self.eps, self.one = eps, 1.0 if plus else 0.0\n"),
            Edit("(1.0 + self.weight.float())", "(self.one + self.weight.float())"),
        ),
        truth=(answer("argument", "self.weight.float())).to(", module="blocks.@layer.norm2", api="add"),),
        differs=frozenset({"loss"}),
    ),
    _reported(
        "T11",
        "scores scaled by the width of the model over the heads",
        "antonellof/ferrox#40",
        bed=(
            Edit("self.head_width = settings.width // settings.heads", "self.head_width = 8"),
            Edit("        width = settings.width // settings.heads\n", "        width = 8\n"),
            Edit("nn.Linear(settings.width, settings.width)\n", "nn.Linear(8 * settings.heads, settings.width)\n"),
            Edit("reshape(batch, length, width)", "reshape(batch, length, -1)"),
        ),
        plant=(
            Edit(
                "self.scale = 1.0 / math.sqrt(self.head_width)",
                "self.scale = 1.0 / math.sqrt(settings.width / settings.heads)",
            ),
        ),
        suits=lambda s, w: s["width"] != 8 * s["heads"],
        truth=(answer("argument", "scores = scores * self.scale", module="blocks.0.attention"),),
        differs=frozenset({"loss"}),
    ),
    _reported(
        "T12",
        "mask of the smallest number added twice",
        "NVIDIA-NeMo/Automodel#2658",
        bed=(
            *_LEFT_PADDING,
            Edit(
                "        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)\n",
                "        scores = scores + mask\n",
            ),
            Edit(
                "mask = causal & padding[:, None, None, :]",
                "lowest = torch.finfo(self.embedding.weight.dtype).min\n"
                "        none = torch.zeros((), dtype=self.embedding.weight.dtype)\n"
                "        mask = torch.where(causal & padding[:, None, None, :], none, lowest)",
            ),
        ),
        plant=(
            Edit(
                "mask = torch.where(causal & padding[:, None, None, :], none, lowest)",
                "mask = torch.where(causal, none, lowest) + torch.where(padding[:, None, None, :], none, lowest)",
            ),
        ),
        truth=(
            answer("structure argument data overflow", "mask = torch.where(causal", occurrence="0 1"),
            answer("structure", "mask = torch.where(causal &", side="reference"),
            answer("overflow computation", "probs = torch.softmax", module="blocks.0.attention"),
        ),
        differs=frozenset({"loss"}),
    ),
    _reported(
        "T13",
        "inverse frequencies kept in bfloat16",
        "huggingface/transformers#29496",
        bed=(Edit(_ANGLES, "        angles = torch.outer(positions, self.frequencies.float())\n"),),
        plant=(
            Edit(
                '("frequencies", frequencies, persistent',
                '("frequencies", frequencies.bfloat16() if index == @layer else frequencies, persistent',
            ),
        ),
        truth=(answer(f"{GIVEN} dtype structure", "angles = torch.outer", module=_ROTARY, occurrence="0"),),
        differs=frozenset({"gradients"}),
    ),
)
