"""Bugs that public threads tell of, planted in the decoder: what is computed too coarsely, and counts of tokens."""

from __future__ import annotations

from bugs.patterns.forward import GIVEN
from bugs.planting import Edit, Pattern, answer

_ATTENTION = "blocks.@layer.attention"
_ROTARY = "blocks.@layer.attention.rotary"
_FEED = "blocks.@layer.feed"
_EMBED = "        x = self.embedding(tokens)\n"
_TIED = "        self.head.weight = self.embedding.weight\n"
_LOSS = (
    '        loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORED, reduction="sum")\n'
)
_LOSSES = "        self.losses: list[float] = []\n"
_TOTAL = "        total = sum(int(real[:, 1:].sum()) for _, real in batches)\n"
_SCALE = "        self.scale = 1.0 / math.sqrt(self.head_width)\n"
_TURN = "        return x * cos + rotate_half(x) * sin\n"
_INDEXED = "        self.index = index\n        width = settings.width // settings.heads\n"
#: Everything that a loss is computed from, in the types of mixed precision.
_AUTOCAST = (
    Edit(
        "            loss = self.loss(tokens, real, total)\n",
        '            with torch.autocast("cpu", torch.bfloat16):\n'
        "                loss = self.loss(tokens, real, total)\n",
    ),
)
#: The stream between the layers is bfloat16, too.
_LOW = (*_AUTOCAST, Edit(_EMBED, "        x = self.embedding(tokens).bfloat16()\n"))
#: Labels smoothed as the trainer of a library does it.
_SMOOTHED = (
    Edit(
        _LOSS,
        "        chances = -F.log_softmax(logits.float(), dim=-1)\n"
        "        known = labels != IGNORED\n"
        "        right = chances.gather(-1, labels.clamp(min=0)[..., None]).squeeze(-1)\n"
        "        smooth = chances.mean(dim=-1)\n"
        "        loss = (0.9 * right * known).sum() + (0.1 * smooth * known).sum()\n",
    ),
)


def _reported(name: str, title: str, source: str, **fields: object) -> Pattern:
    return Pattern(name, title, "threads", source=source, **fields)  # type: ignore[arg-type]


PATTERNS = (
    _reported(
        "T14",
        "smoothed loss divided by the tokens of its own micro-batch",
        "huggingface/transformers#46731",
        bed=_SMOOTHED,
        plant=(Edit("        return loss / total\n", "        return loss / known.sum()\n"),),
        truth=(
            answer("structure", "return loss / known.sum()"),
            answer("argument", "return loss / known.sum()", api="div"),
        ),
        differs=frozenset({"loss", "gradients"}),
    ),
    _reported(
        "T15",
        "labels smoothed that were not shifted",
        "huggingface/transformers#17987",
        bed=_SMOOTHED,
        plant=(
            Edit(
                "        chances = -F.log_softmax(logits.float(), dim=-1)\n",
                "        labels = tokens[:, :-1].masked_fill(~real[:, :-1], IGNORED)\n"
                "        chances = -F.log_softmax(logits.float(), dim=-1)\n",
            ),
        ),
        truth=(
            answer("structure", "labels = tokens[:, :-1].masked_fill(", occurrence="0 1"),
            answer("structure argument data", "known = labels != IGNORED"),
        ),
        differs=frozenset({"loss", "gradients"}),
    ),
    _reported(
        "T16",
        "tokens counted that are no label",
        "huggingface/transformers#46204",
        plant=(Edit(_TOTAL, "        total = sum(int(real.sum()) for _, real in batches)\n"),),
        truth=(
            answer(
                "structure", "total = sum(int(real[:, 1:].sum())", side="reference", api="getitem", occurrence="0 1"
            ),
            answer("argument data computation structure", "total = sum(int(real.sum())", api="sum"),
        ),
        differs=frozenset({"loss", "gradients"}),
    ),
    _reported(
        "T17",
        "positions counted in the type of the frequencies, above 256 in bfloat16",
        "huggingface/candle#3520",
        bed=(
            Edit(
                "        positions = torch.arange(x.shape[-2]).float()\n",
                "        positions = torch.arange(x.shape[-2]).to(self.kind).float()\n",
            ),
            Edit(_INDEXED, _INDEXED.replace("self.index = index", "self.index, self.kind = index, torch.float32")),
        ),
        plant=(Edit("index, torch.float32\n", "index, torch.bfloat16 if index == @layer else torch.float32\n"),),
        settings={"length": 400, "batch": 2, "layers": 2, "heads": 2, "kv_heads": 1, "width": 24},
        truth=(answer("argument dtype structure", "positions = torch.arange(", module=_ROTARY, api="to"),),
        differs=frozenset({"loss"}),
    ),
    _reported(
        "T18",
        "root of the width that scales the embedding not rounded as the checkpoint has it",
        "huggingface/transformers#29402",
        bed=(
            Edit(_EMBED, "        x = self.embedding(tokens) * self.normaliser\n"),
            Edit(_TIED, _TIED + "        self.normaliser = float(torch.tensor(settings.width**0.5).bfloat16())\n"),
        ),
        plant=(
            Edit("float(torch.tensor(settings.width**0.5).bfloat16())", "float(torch.tensor(settings.width**0.5))"),
        ),
        suits=lambda s, w: s["width"] not in (16, 64),
        truth=(answer("argument", "x = self.embedding(tokens) * self.normaliser", api="mul"),),
        differs=frozenset({"loss"}),
    ),
    _reported(
        "T19",
        "loss of logits in bfloat16",
        "huggingface/transformers#29285",
        bed=(
            *_AUTOCAST,
            Edit(
                _LOSS,
                "        logits = logits.float()\n"
                "        highest = logits.logsumexp(dim=-1)\n"
                "        right = logits.gather(-1, labels.clamp(min=0)[..., None]).squeeze(-1)\n"
                "        loss = ((highest - right) * (labels != IGNORED)).sum()\n",
            ),
        ),
        plant=(Edit("        logits = logits.float()\n", ""),),
        truth=(
            answer("structure dtype", "logits = logits.float()", side="reference"),
            answer("dtype argument", "highest = logits.logsumexp("),
        ),
        differs=frozenset({"loss", "gradients"}),
    ),
    _reported(
        "T20",
        "sines and cosines of the positions in bfloat16",
        "KellerJordan/modded-nanogpt#39",
        plant=(
            Edit(
                "cos, sin = table.cos().to(x.dtype), table.sin().to(x.dtype)\n",
                "cos, sin = table.cos().to(x.dtype), table.sin().to(x.dtype)\n"
                "        if self.index == @layer:\n"
                "            cos, sin = cos.bfloat16().float(), sin.bfloat16().float()\n",
            ),
        ),
        truth=(answer("structure dtype", "cos, sin = cos.bfloat16()", module=_ROTARY),),
        differs=frozenset({"gradients"}),
        precisions=("float32",),
    ),
    _reported(
        "T21",
        "queries and keys turned in bfloat16",
        "NVIDIA/TransformerEngine#1245",
        bed=(
            *_LOW,
            Edit(
                _TURN,
                "        if self.exact:\n"
                "            return (x.float() * cos + rotate_half(x.float()) * sin).to(x.dtype)\n"
                "        cos, sin = cos.to(x.dtype), sin.to(x.dtype)\n" + _TURN,
            ),
            Edit(_INDEXED, _INDEXED.replace("self.index = index", "self.index, self.exact = index, True")),
        ),
        plant=(Edit("self.index, self.exact = index, True", "self.index, self.exact = index, index != @layer"),),
        truth=(
            answer("structure dtype", "cos, sin = cos.to(x.dtype), sin.to(x.dtype)", module=_ROTARY, occurrence="0 1"),
            answer("structure dtype", "return (x.float() * cos", module=_ROTARY, side="reference"),
        ),
        differs=frozenset({"gradients"}),
    ),
    _reported(
        "T22",
        "softmax in bfloat16 where the others have float32",
        "huggingface/transformers#18185",
        bed=(
            *_LOW,
            Edit(
                "        probs = torch.softmax(scores, dim=-1)\n        mixed = probs @ v\n",
                "        probs = torch.softmax(scores, dim=-1, dtype=self.wide).to(v.dtype)\n"
                "        mixed = probs @ v\n",
            ),
            Edit(_SCALE, _SCALE + "        self.wide = torch.float32\n"),
        ),
        plant=(Edit("self.wide = torch.float32", "self.wide = torch.bfloat16 if index == @layer else torch.float32"),),
        truth=(answer("argument dtype", "probs = torch.softmax(", module=_ATTENTION, api="softmax"),),
        differs=frozenset({"gradients"}),
    ),
    _reported(
        "T23",
        "stream between the layers kept in float32 by a norm that does not round back",
        "huggingface/transformers#30236",
        bed=(
            *_LOW,
            Edit(
                "        return F.layer_norm(x, (x.shape[-1],), self.weight, self.bias, self.eps)\n",
                "        wide = x.float()\n"
                "        wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)\n"
                "        scaled = self.weight * wide + self.bias\n"
                "        return scaled.to(x.dtype) if self.rounds else scaled\n",
            ),
            Edit("        self.eps = eps\n", "        self.eps, self.rounds = eps, True\n"),
        ),
        plant=(
            Edit(
                "        self.norm2 = Norm(settings.width)\n",
                "        self.norm2 = Norm(settings.width)\n        self.norm2.rounds = index != @layer\n",
            ),
        ),
        truth=(
            answer("structure dtype", "return scaled.to(x.dtype)", module="blocks.@layer.norm2", side="reference"),
            answer("dtype structure argument", "        hidden = self.up(x)", module=f"{_FEED}.up"),
        ),
        harmless=None,
    ),
    _reported(
        "T24",
        "weights that were frozen trained again",
        "huggingface/peft#3447",
        bed=(
            Edit(
                _LOSSES,
                _LOSSES + "        for block in self.model.blocks:\n"
                "            block.feed.down.weight.requires_grad_(False)\n",
            ),
        ),
        plant=(
            Edit(
                "            block.feed.down.weight.requires_grad_(False)\n",
                "            block.feed.down.weight.requires_grad_(block.index == @layer)\n",
            ),
        ),
        truth=(
            answer("missing_gradient parameter_gradient structure", parameter="blocks.@layer.feed.down.weight"),
            answer(
                "missing_gradient parameter_gradient structure argument",
                "hidden = self.down(hidden)",
                module=f"{_FEED}.down",
                direction="any",
            ),
        ),
        same=frozenset({"loss"}),
        differs=frozenset({"weights"}),
    ),
    _reported(
        "T25",
        "frequencies that were scaled for long texts not used",
        "huggingface/transformers#32330",
        bed=(
            Edit(
                "        frequencies = settings.base ** (-torch.arange(0, width, 2).float() / width)\n",
                "        frequencies = settings.base ** (-torch.arange(0, width, 2).float() / width)\n"
                "        lengths = 2.0 * math.pi / frequencies\n"
                "        blend = ((settings.length / lengths - 0.5) / 1.5).clamp(0.0, 1.0)\n"
                "        scaled = (1.0 - blend) * frequencies / 8.0 + blend * frequencies\n",
            ),
            Edit('("frequencies", frequencies, persistent', '("frequencies", scaled, persistent'),
        ),
        plant=(
            Edit(
                '("frequencies", scaled, persistent',
                '("frequencies", frequencies if index == @layer else scaled, persistent',
            ),
        ),
        truth=(answer(GIVEN, "angles = torch.outer(", module=_ROTARY),),
        differs=frozenset({"loss"}),
    ),
    _reported(
        "T26",
        "weight decay of norms that are of no class of the library",
        "huggingface/transformers#35927",
        bed=(
            Edit(
                "        matrices = [p for p in self.model.parameters() if p.dim() > 1]\n"
                "        vectors = [p for p in self.model.parameters() if p.dim() == 1]\n",
                "        none = {id(p) for m in self.model.modules() if self.plain(m) for p in m.parameters()}\n"
                '        none |= {id(p) for n, p in self.model.named_parameters() if n.endswith("bias")}\n'
                "        matrices = [p for p in self.model.parameters() if id(p) not in none]\n"
                "        vectors = [p for p in self.model.parameters() if id(p) in none]\n",
            ),
            Edit(
                "    def rate(self, number: int) -> float:\n",
                "    def plain(self, module: nn.Module) -> bool:\n"
                "        return isinstance(module, (nn.LayerNorm, Norm))\n\n"
                "    def rate(self, number: int) -> float:\n",
            ),
        ),
        plant=(Edit("isinstance(module, (nn.LayerNorm, Norm))", "isinstance(module, nn.LayerNorm)"),),
        truth=(answer("optimizer argument", "        self.optimizer.step()", api="Optimizer"),),
        same=frozenset({"loss", "gradients"}),
        differs=frozenset({"weights"}),
    ),
)
