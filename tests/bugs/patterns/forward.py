"""Bugs that show first in the forward pass."""

from __future__ import annotations

from bugs.planting import Edit, Pattern, answer

#: What a tensor argument is called whose maker was not recorded (a buffer made before the recording, say).
GIVEN = "argument data initial_weights"

_MASK = "causal = torch.ones(length, length, dtype=torch.bool).tril()"
_JOINED = "mask = causal & padding[:, None, None, :]"
_BUFFERED_MASK = (
    Edit(
        "        self.head.weight = self.embedding.weight\n",
        "        self.head.weight = self.embedding.weight\n"
        "        full = torch.ones(settings.length, settings.length, dtype=torch.bool)\n"
        '        self.register_buffer("causal", full.tril(), persistent=False)\n',
    ),
    Edit(_MASK, "causal = self.causal[:length, :length]"),
)
_LEFT_PADDING = (
    Edit(
        "real = torch.arange(settings.length + 1) < lengths[:, None]",
        "real = torch.arange(settings.length + 1) >= settings.length + 1 - lengths[:, None]",
    ),
    Edit('scores.masked_fill(~mask, float("-inf"))', "scores.masked_fill(~mask, torch.finfo(scores.dtype).min)"),
)
_ATTENTION = "blocks.@layer.attention"
_ROTARY = "blocks.@layer.attention.rotary"
_FEED = "blocks.@layer.feed"

PATTERNS = (
    Pattern(
        "F01",
        "no causal mask",
        "forward",
        plant=(Edit(_MASK, "causal = torch.ones(length, length, dtype=torch.bool)"),),
        truth=(
            answer("structure", _MASK, api="tril", side="reference"),
            answer("argument data computation", _JOINED, api="__and__"),
        ),
    ),
    Pattern(
        "F01B",
        "no causal mask, in a buffer made before",
        "forward",
        bed=_BUFFERED_MASK,
        plant=(Edit("full.tril()", "full"),),
        truth=(answer(GIVEN, "causal = self.causal", api="__getitem__"), answer(GIVEN, _JOINED, api="__and__")),
    ),
    Pattern(
        "F02",
        "causal mask off by one",
        "forward",
        plant=(Edit(".tril()", ".tril(@offset)"),),
        choices={"offset": ("1", "2", "3")},
        truth=(answer("argument structure computation", ".tril(", api="tril"),),
    ),
    Pattern(
        "F02B",
        "causal mask off by one, in a buffer made before",
        "forward",
        bed=_BUFFERED_MASK,
        plant=(Edit("full.tril()", "full.tril(1)"),),
        truth=(answer(GIVEN, "causal = self.causal", api="__getitem__"), answer(GIVEN, _JOINED, api="__and__")),
    ),
    Pattern(
        "F03",
        "padding mask dropped, padding on the right",
        "forward",
        plant=(Edit(_JOINED, "mask = causal.expand(len(tokens), 1, length, length)"),),
        truth=(
            answer("structure", _JOINED, side="reference"),
            answer("structure", "mask = causal.expand"),
        ),
        same=frozenset({"loss", "gradients", "weights"}),
        harmless=True,
    ),
    Pattern(
        "F03L",
        "padding mask dropped, padding on the left",
        "forward",
        bed=_LEFT_PADDING,
        plant=(Edit(_JOINED, "mask = causal.expand(len(tokens), 1, length, length)"),),
        truth=(answer("structure", _JOINED, side="reference"), answer("structure", "mask = causal.expand")),
        differs=frozenset({"loss"}),
    ),
    Pattern(
        "F04",
        "rows that are masked wholly",
        "forward",
        plant=(Edit(_JOINED, _JOINED + " & padding[:, None, :, None]"),),
        truth=(
            answer("structure", _JOINED, occurrence="0 1"),
            answer("overflow computation", "probs = torch.softmax", api="softmax", module="blocks.0.attention"),
        ),
    ),
    Pattern(
        "F05",
        "wrong scale of the scores",
        "forward",
        plant=(
            Edit(
                "self.scale = 1.0 / math.sqrt(self.head_width)",
                "self.scale = 1.0 / math.sqrt(@by if index == @layer else self.head_width)",
            ),
        ),
        choices={"by": ("self.width", "self.heads", "2 * self.head_width", "self.head_width + 1")},
        suits=lambda s, w: w["@by"] != "self.heads" or s["width"] != s["heads"] ** 2,
        truth=(answer("argument", "scores = scores * self.scale", module=_ATTENTION),),
    ),
    Pattern(
        "F06",
        "base of the rotary frequencies",
        "forward",
        plant=(
            Edit("frequencies = settings.base **", "frequencies = (@base if index == @layer else settings.base) **"),
        ),
        choices={"base": ("500000.0", "50000.0", "1000000.0")},
        truth=(answer(GIVEN, "angles = torch.outer", module=_ROTARY),),
    ),
    Pattern(
        "F06C",
        "base of the rotary frequencies, computed in each call",
        "forward",
        bed=(
            Edit(
                "        frequencies = settings.base ** (-torch.arange(0, width, 2).float() / width)\n"
                '        self.register_buffer("frequencies", frequencies, persistent=False)\n',
                "        self.base, self.width = settings.base, width\n",
            ),
            Edit(
                "angles = torch.outer(positions, self.frequencies)",
                "powers = -torch.arange(0, self.width, 2).float() / self.width\n"
                "        angles = torch.outer(positions, self.base**powers)",
            ),
        ),
        plant=(
            Edit(
                "self.base, self.width = settings.base,",
                "self.base, self.width = 10.0 ** (@power if index == @layer else 4.0),",
            ),
        ),
        choices={"power": ("5.7", "5.0", "6.0")},
        truth=(answer("argument", "angles = torch.outer", module=_ROTARY, api="pow"),),
    ),
    Pattern(
        "F07",
        "rotary positions shifted after a point",
        "forward",
        plant=(
            Edit(
                "positions = torch.arange(x.shape[-2]).float()\n",
                "positions = torch.arange(x.shape[-2]).float()\n"
                "        if self.index == @layer:\n"
                "            positions = positions + @shift * (positions >= x.shape[-2] // 2)\n",
            ),
        ),
        choices={"shift": ("1", "2", "5")},
        truth=(answer("structure", "positions = positions +", module=_ROTARY),),
    ),
    Pattern(
        "F07B",
        "rotary positions shifted after a point, in a buffer made before",
        "forward",
        bed=(
            Edit(
                "        width = settings.width // settings.heads\n        frequencies",
                "        width = settings.width // settings.heads\n"
                "        positions = torch.arange(settings.length).float()\n"
                '        self.register_buffer("positions", positions, persistent=False)\n'
                "        frequencies",
            ),
            Edit("positions = torch.arange(x.shape[-2]).float()", "positions = self.positions"),
        ),
        plant=(
            Edit(
                "positions = torch.arange(settings.length).float()\n",
                "positions = torch.arange(settings.length).float()\n"
                "        positions[settings.length // 2 :] += @shift if index == @layer else 0\n",
            ),
        ),
        choices={"shift": ("1", "2", "5")},
        truth=(answer(GIVEN, "angles = torch.outer", module=_ROTARY),),
    ),
    Pattern(
        "F08",
        "rotary pairs interleaved instead of halves",
        "forward",
        plant=(
            Edit(
                "table = torch.cat((angles, angles), dim=-1)",
                "interleaved = self.index == @layer\n"
                "        table = angles.repeat_interleave(2, dim=-1) if interleaved else torch.cat((angles, "
                "angles), dim=-1)",
            ),
            Edit(
                "return x * cos + rotate_half(x) * sin",
                "return x * cos + (rotate_pairs(x) if interleaved else rotate_half(x)) * sin",
            ),
            Edit(
                "class Rotary(nn.Module):",
                "def rotate_pairs(x: torch.Tensor) -> torch.Tensor:\n"
                "    return torch.stack((-x[..., 1::2], x[..., ::2]), dim=-1).flatten(-2)\n\n\n"
                "class Rotary(nn.Module):",
            ),
        ),
        truth=(
            answer("structure", "table = angles.repeat_interleave", module=_ROTARY),
            answer("structure", "table = torch.cat((angles, angles)", module=_ROTARY, side="reference"),
        ),
    ),
    Pattern(
        "F09",
        "rotary angles in bfloat16",
        "forward",
        plant=(
            Edit(
                "angles = torch.outer(positions, self.frequencies)",
                "angles = torch.outer(positions, self.frequencies) if self.index != @layer else "
                "torch.outer(positions.bfloat16(), self.frequencies.bfloat16()).float()",
            ),
        ),
        truth=(answer("structure dtype argument", "angles = torch.outer", module=_ROTARY),),
    ),
    Pattern(
        "F10",
        "mapping of key and value heads to query heads",
        "forward",
        plant=(
            Edit(
                "k = k.repeat_interleave(groups, dim=1)",
                "k = k.repeat(1, groups, 1, 1) if self.index == @layer else k.repeat_interleave(groups, dim=1)",
            ),
            Edit(
                "v = v.repeat_interleave(groups, dim=1)",
                "v = v.repeat(1, groups, 1, 1) if self.index == @layer else v.repeat_interleave(groups, dim=1)",
            ),
        ),
        suits=lambda s, w: 1 < s["kv_heads"] < s["heads"],
        truth=(
            answer("structure computation", "k = k.repeat", module=_ATTENTION),
            answer("structure computation", "k = k.repeat", module=_ATTENTION, side="reference"),
        ),
    ),
    Pattern(
        "F10T",
        "order of heads and groups when keys are expanded",
        "forward",
        bed=(
            Edit(
                "k = k.repeat_interleave(groups, dim=1)",
                "k = k[:, self.gather]",
            ),
            Edit(
                "v = v.repeat_interleave(groups, dim=1)",
                "v = v[:, self.gather]",
            ),
            Edit(
                "        self.scale = ",
                "        self.gather = [head * self.kv_heads // self.heads for head in range(self.heads)]\n"
                "        self.scale = ",
            ),
        ),
        plant=(
            Edit(
                "self.gather = [head * self.kv_heads // self.heads for head in range(self.heads)]",
                "self.gather = [(head % self.kv_heads) if index == @layer else head * self.kv_heads // "
                "self.heads for head in range(self.heads)]",
            ),
        ),
        suits=lambda s, w: 1 < s["kv_heads"] < s["heads"],
        truth=(answer("argument computation", "k = k[:, self.gather]", module=_ATTENTION),),
        blind=False,
    ),
    Pattern(
        "F11",
        "epsilon of one norm",
        "forward",
        plant=(
            Edit(
                "self.norm@which = Norm(settings.width)",
                "self.norm@which = Norm(settings.width, @eps if index == @layer else 1e-5)",
            ),
        ),
        choices={"which": ("1", "2"), "eps": ("1e-3", "1e-4", "1e-6", "1e-2")},
        truth=(answer("argument", "return F.layer_norm", module="blocks.@layer.norm@which", api="layer_norm"),),
    ),
    Pattern(
        "F12",
        "tanh form of gelu",
        "forward",
        plant=(Edit('approximate="none"', 'approximate="tanh" if self.index == @layer else "none"'),),
        truth=(answer("argument", "F.gelu(", module=_FEED),),
    ),
    Pattern(
        "F13",
        "softmax in bfloat16",
        "forward",
        bed=(
            Edit("probs = torch.softmax(scores, dim=-1)", "probs = torch.softmax(scores.float(), dim=-1).to(v.dtype)"),
        ),
        plant=(
            Edit(
                "probs = torch.softmax(scores.float(), dim=-1).to(v.dtype)",
                "probs = torch.softmax(scores.bfloat16() if self.index == @layer else scores.float(), dim=-1)"
                ".to(v.dtype)",
            ),
        ),
        truth=(answer("structure dtype argument", "probs = torch.softmax", module=_ATTENTION),),
    ),
    Pattern(
        "F14",
        "rows of a query weight permuted on load",
        "forward",
        plant=(
            Edit(
                "self.model.load_state_dict(state)",
                'permuted = state["blocks.@layer.attention.q.weight"]\n'
                "        permuted = permuted.view(settings.heads, -1, settings.width).transpose(0, "
                "1).reshape(permuted.shape)\n"
                '        state["blocks.@layer.attention.q.weight"] = permuted\n'
                "        self.model.load_state_dict(state)",
            ),
        ),
        truth=(
            answer("initial_weights", parameter="blocks.@layer.attention.q.weight"),
            answer("initial_weights", "q = self.q(x)", module="blocks.@layer.attention.q"),
        ),
        blind=True,
    ),
    Pattern(
        "F15",
        "square weight transposed on load",
        "forward",
        plant=(
            Edit(
                "self.model.load_state_dict(state)",
                'state["blocks.@layer.attention.out.weight"] = '
                'state["blocks.@layer.attention.out.weight"].T.contiguous()\n'
                "        self.model.load_state_dict(state)",
            ),
        ),
        truth=(
            answer("initial_weights", parameter="blocks.@layer.attention.out.weight"),
            answer("initial_weights", "mixed = self.out(mixed)", module="blocks.@layer.attention.out"),
        ),
        blind=True,
    ),
    Pattern(
        "F16",
        "dropout inactive in one layer",
        "forward",
        plant=(
            Edit(
                "return F.dropout(mixed, self.rate, self.training)",
                "return F.dropout(mixed, self.rate, self.training and self.index != @layer)",
            ),
        ),
        truth=(answer("argument", "return F.dropout(mixed", module=_ATTENTION),),
    ),
    Pattern(
        "F16M",
        "a module left in eval mode",
        "forward",
        plant=(
            Edit(
                "        self.tokens, self.real = initial_tokens(settings)",
                "        self.model.blocks[@layer].feed.eval()\n        self.tokens, self.real = "
                "initial_tokens(settings)",
            ),
        ),
        truth=(
            answer("argument", "return F.dropout(hidden", module=_FEED),
            answer("argument", "fed = self.feed", module=_FEED, api="Module"),
        ),
    ),
    Pattern(
        "F17",
        "labels not shifted",
        "forward",
        plant=(Edit("labels = tokens[:, 1:].masked_fill(", "labels = tokens[:, :-1].masked_fill("),),
        truth=(answer("argument", "labels = tokens[", api="__getitem__"),),
    ),
    Pattern(
        "F18",
        "padding counted in the loss",
        "forward",
        plant=(
            Edit(
                "labels = tokens[:, 1:].masked_fill(~real[:, 1:], IGNORED)",
                "labels = tokens[:, 1:].masked_fill(~real[:, 1:], 0)",
            ),
        ),
        truth=(answer("argument", "labels = tokens[", api="masked_fill"),),
    ),
    Pattern(
        "F18C",
        "padding counted in the loss, labels clamped",
        "forward",
        plant=(
            Edit(
                "        logits = self.model(inputs, padding)\n",
                "        logits = self.model(inputs, padding)\n        labels = labels.clamp(min=0)\n",
            ),
        ),
        truth=(answer("structure", "labels = labels.clamp", api="clamp"),),
    ),
    Pattern(
        "F19",
        "mean of means over micro-batches",
        "forward",
        plant=(
            Edit('reduction="sum")', 'reduction="mean")'),
            Edit("return loss / total", "return loss / self.settings.micro_batches"),
        ),
        truth=(answer("argument", "loss = F.cross_entropy("),),
    ),
    Pattern(
        "F19D",
        "divided by the tokens of one micro-batch",
        "forward",
        plant=(Edit("return loss / total", "return loss / (int(real[:, 1:].sum()) * self.settings.micro_batches)"),),
        truth=(
            answer("argument structure", "return loss / (int("),
            answer("argument", "return loss / total", side="reference"),
        ),
    ),
    Pattern(
        "F20",
        "logarithm of a softmax",
        "forward",
        bed=(
            Edit(
                'loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORED, reduction="sum")',
                "chances = F.log_softmax(logits.flatten(0, 1) * 200.0, dim=-1)\n"
                '        loss = F.nll_loss(chances, labels.flatten(), ignore_index=IGNORED, reduction="sum")',
            ),
        ),
        plant=(
            Edit(
                "chances = F.log_softmax(logits.flatten(0, 1) * 200.0, dim=-1)",
                "chances = torch.log(F.softmax(logits.flatten(0, 1) * 200.0, dim=-1))",
            ),
        ),
        truth=(
            answer("structure", "chances =", api="softmax|log"),
            answer("structure", "chances =", api="log_softmax", side="reference"),
            answer("overflow", "chances =", api=r"\.log\."),
        ),
    ),
    Pattern(
        "F21",
        "one bit of one result flipped by the hardware",
        "forward",
        bed=(
            Edit(
                "        x = x + attended\n",
                "        with Machine(self.index, self.steps) as machine:\n"
                "            x = x + attended\n"
                "        self.steps = machine.steps\n",
            ),
            Edit(
                "        self.norm1 = Norm(settings.width)\n",
                "        self.steps = 0\n        self.norm1 = Norm(settings.width)\n",
            ),
            Edit(
                "class Norm(nn.Module):",
                "class Machine(TorchDispatchMode):\n"
                '    """The machine that additions run on."""\n\n'
                "    FAULT = (-1, -1, -1, -1)\n\n"
                "    def __init__(self, index: int, steps: int) -> None:\n"
                "        super().__init__()\n"
                "        self.index, self.steps = index, steps\n\n"
                "    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) "
                "-> Any:\n"
                "        result = func(*args, **(kwargs or {}))\n"
                '        if func.overloadpacket.__name__ == "add":\n'
                "            layer, when, place, bit = self.FAULT\n"
                "            if (layer, when) == (self.index, self.steps):\n"
                "                word = ctypes.c_uint32.from_address(result.data_ptr() + 4 * (place % "
                "result.numel()))\n"
                "                word.value ^= 1 << bit\n"
                "            self.steps += 1\n"
                "        return result\n\n\n"
                "class Norm(nn.Module):",
            ),
            Edit("import math\n", "import ctypes\nimport math\n"),
            Edit(
                "from torch import nn\n",
                "from torch import nn\nfrom torch.utils._python_dispatch import TorchDispatchMode\n",
            ),
        ),
        plant=(Edit("FAULT = (-1, -1, -1, -1)", "FAULT = (@layer, @when, @place, @bit)"),),
        choices={"when": ("0", "1"), "place": ("7", "100", "1001"), "bit": ("29", "28", "22", "31")},
        truth=(answer("computation", "x = x + attended", module="blocks.@layer", api="__add__", occurrence="@when"),),
    ),
    Pattern(
        "F22",
        "another order of the data",
        "forward",
        plant=(Edit("manual_seed(settings.seed + 2)", "manual_seed(settings.seed + 3)"),),
        truth=(
            answer("data argument", "chosen = [self.order[begin"),
            answer("data argument", "return [(self.tokens[rows]"),
        ),
    ),
    Pattern(
        "F22T",
        "other tokens in the file",
        "forward",
        plant=(Edit("manual_seed(settings.seed + 1)", "manual_seed(settings.seed + 4)"),),
        truth=(answer("data argument", "return [(self.tokens[rows]"),),
    ),
    Pattern(
        "F23",
        "the same product in another memory layout",
        "forward",
        plant=(
            Edit(
                "mixed = self.out(mixed)",
                "weight, bias = self.out.weight, self.out.bias\n"
                "        mixed = (weight.t().contiguous().t() @ mixed.transpose(-1, -2)).transpose(-1, -2) + "
                "bias if self.index == @layer else self.out(mixed)",
            ),
        ),
        truth=(
            answer("structure layout", "mixed = (weight.t()", module=_ATTENTION),
            answer("structure layout", "mixed = self.out(mixed)", module=_ATTENTION, side="reference"),
            answer("layout", "return F.dropout(mixed", module=_ATTENTION),
        ),
        harmless=None,
    ),
)
