"""Pairs in which nothing is wrong: the same mathematics in another form, another precision, another order of sums.

``agree``: the difference is rounding, or none. ``harmless``: something is done differently and nothing that counts
changes. Everything else is a false alarm.
"""

from __future__ import annotations

from bugs.clean_further import AGREE, FURTHER, QUIET
from bugs.clean_further import clean_pair as _clean
from bugs.clean_ten_bits import TEN_BITS
from bugs.patterns.optimizer import BY_HAND
from bugs.planting import Edit, Pattern

_GELU = '        hidden = F.gelu(hidden, approximate="none")\n'
_SOFTMAX = "probs = torch.softmax(scores, dim=-1)"
_PRODUCT = "scores = q @ k.transpose(-2, -1)\n        scores = scores * self.scale\n"
_MASKING = 'scores = scores.masked_fill(~mask, float("-inf"))'
_ATTEND = f"{_PRODUCT}        {_MASKING}\n        {_SOFTMAX}\n        mixed = probs @ v\n"
_LOSS = 'loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORED, reduction="sum")'
_NORM = "return F.layer_norm(x, (x.shape[-1],), self.weight, self.bias, self.eps)"
_OPTIMIZER = "betas=(0.9, 0.95), eps=1e-8)"
_BACKWARD = "            loss.backward()\n"
_TORCH_NN = "from torch import nn\n"
_LARGER = {"width": 128, "heads": 4, "kv_heads": 2, "batch": 4, "length": 40, "layers": 2}


def _threads(count: int) -> Edit:
    return Edit(
        "        self.settings = settings\n        torch.manual_seed(settings.seed)\n",
        "        self.settings = settings\n"
        f"        torch.set_num_threads({count})\n"
        "        torch.manual_seed(settings.seed)\n",
    )


_SINGLE = (
    _clean("C05", "two identical runs", expected=AGREE),
    _clean(
        "C04",
        "recomputation against none",
        (_TORCH_NN, _TORCH_NN + "from torch.utils.checkpoint import checkpoint\n"),
        ("            x = block(x, mask)\n", "            x = checkpoint(block, x, mask, use_reentrant=False)\n"),
    ),
    _clean(
        "C04R",
        "reentrant recomputation against none",
        (_TORCH_NN, _TORCH_NN + "from torch.utils.checkpoint import checkpoint\n"),
        ("            x = block(x, mask)\n", "            x = checkpoint(block, x, mask, use_reentrant=True)\n"),
    ),
    _clean(
        "C06",
        "two threads against one",
        ("torch.set_num_threads(1)", "torch.set_num_threads(2)"),
        bed=(_threads(1),),
        settings=_LARGER,
        expected=AGREE,
    ),
    _clean(
        "C06L",
        "no linear algebra library",
        (
            "            loss = self.loss(tokens, real, total)\n",
            (
                "            with torch.backends.mkldnn.flags(enabled=False):\n"
                "                loss = self.loss(tokens, real, total)\n"
            ),
        ),
    ),
    # -- other forms of attention
    _clean(
        "K01",
        "fused attention",
        (
            _ATTEND,
            "mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=self.scale)\n",
        ),
    ),
    _clean(
        "K02",
        "queries scaled before the product",
        (
            _PRODUCT,
            "scores = (q * self.scale) @ k.transpose(-2, -1)\n",
        ),
    ),
    _clean(
        "K03",
        "einsum for the scores",
        (
            "scores = q @ k.transpose(-2, -1)\n",
            'scores = torch.einsum("bhqd,bhkd->bhqk", q, k)\n',
        ),
    ),
    _clean("K04", "softmax as a method", (_SOFTMAX, "probs = scores.softmax(-1)")),
    _clean(
        "K05",
        "softmax written out",
        (
            _SOFTMAX,
            (
                "powers = (scores - scores.amax(dim=-1, keepdim=True).detach()).exp()\n"
                "        probs = powers / powers.sum(dim=-1, keepdim=True)"
            ),
        ),
    ),
    _clean(
        "K06",
        "smallest number for minus infinity where no row is masked wholly",
        (
            'masked_fill(~mask, float("-inf"))',
            "masked_fill(~mask, torch.finfo(scores.dtype).min)",
        ),
    ),
    _clean(
        "K07",
        "mask added instead of filled",
        (
            _MASKING,
            'scores = scores + scores.new_zeros(mask.shape).masked_fill(~mask, float("-inf"))',
        ),
    ),
    _clean(
        "K08",
        "one product for query, key and value",
        (
            (
                "        q = self.q(x).view(batch, length, self.heads, self.head_width).transpose(1, 2)\n"
                "        k = self.k(x).view(batch, length, self.kv_heads, self.head_width).transpose(1, 2)\n"
                "        v = self.v(x).view(batch, length, self.kv_heads, self.head_width).transpose(1, 2)\n"
            ),
            (
                "        parts = (self.q, self.k, self.v)\n"
                "        weight, bias = torch.cat([p.weight for p in parts]), torch.cat([p.bias for p in parts])\n"
                "        heads = F.linear(x, weight, bias).view(batch, length, -1, self.head_width).transpose(1, 2)\n"
                "        q, k, v = heads.split([self.heads, self.kv_heads, self.kv_heads], dim=1)\n"
            ),
        ),
    ),
    _clean(
        "K09",
        "heads expanded by a view instead of repeat_interleave",
        (
            "        k = k.repeat_interleave(groups, dim=1)\n        v = v.repeat_interleave(groups, dim=1)\n",
            (
                "        k = k[:, :, None].expand(-1, -1, groups, -1, -1).flatten(1, 2)\n"
                "        v = v[:, :, None].expand(-1, -1, groups, -1, -1).flatten(1, 2)\n"
            ),
        ),
    ),
    # -- other forms of the same sums
    _clean(
        "K10",
        "product and sum instead of linear",
        (
            "        hidden = self.up(x)\n",
            "        hidden = x @ self.up.weight.t() + self.up.bias\n",
        ),
    ),
    _clean(
        "K11",
        "addmm instead of linear",
        (
            "        hidden = self.down(hidden)\n",
            (
                "        flat = torch.addmm(self.down.bias, hidden.flatten(0, 1), self.down.weight.t())\n"
                "        hidden = flat.view(x.shape)\n"
            ),
        ),
    ),
    _clean(
        "K12",
        "gelu written out",
        (_GELU, "        hidden = 0.5 * hidden * (1.0 + torch.erf(hidden / math.sqrt(2.0)))\n"),
    ),
    _clean(
        "K13",
        "norm written out",
        (
            _NORM,
            (
                "centred = x - x.mean(-1, keepdim=True)\n"
                "        spread = torch.sqrt(centred.square().mean(-1, keepdim=True) + self.eps)\n"
                "        return centred / spread * self.weight + self.bias"
            ),
        ),
    ),
    _clean(
        "K14",
        "norm from sums of squares",
        (
            _NORM,
            (
                "mean = x.mean(-1, keepdim=True)\n"
                "        spread = torch.rsqrt(x.square().mean(-1, keepdim=True) - mean.square() + self.eps)\n"
                "        return (x - mean) * spread * self.weight + self.bias"
            ),
        ),
    ),
    _clean(
        "K15",
        "log_softmax and nll_loss instead of cross_entropy",
        (
            _LOSS,
            (
                "chances = F.log_softmax(logits.flatten(0, 1), dim=-1)\n"
                '        loss = F.nll_loss(chances, labels.flatten(), ignore_index=IGNORED, reduction="sum")'
            ),
        ),
    ),
    _clean(
        "K16",
        "loss summed in two halves",
        (
            _LOSS,
            (
                "half = len(logits) // 2\n"
                "        loss = sum(\n"
                "            F.cross_entropy(part.flatten(0, 1), its.flatten(), ignore_index=IGNORED, "
                'reduction="sum")\n'
                "            for part, its in zip(logits.split(half), labels.split(half))\n"
                "        )"
            ),
        ),
        settings={"batch": 4},
    ),
    _clean(
        "K17",
        "permuted order of an accumulation",
        (
            "order = torch.arange(len(tokens.flatten()))",
            "order = torch.arange(len(tokens.flatten())).flip(0)",
        ),
        bed=(
            Edit(
                "        x = self.embedding(tokens)\n",
                "        x = self.embedding(tokens)\n"
                "        order = torch.arange(len(tokens.flatten()))\n"
                "        means = x.new_zeros(self.settings.vocabulary, x.shape[-1])\n"
                "        means = means.index_add(0, tokens.flatten()[order], x.flatten(0, 1)[order]) / "
                "tokens.numel()\n"
                "        x = x + means[tokens]\n",
            ),
        ),
    ),
    _clean(
        "K18",
        "cumulative sum from the other end",
        (
            "steps = torch.cumsum(widths, 0)",
            "steps = widths.sum() - torch.cumsum(widths.flip(0), 0).flip(0) + widths",
        ),
        bed=(
            Edit(
                "        x = self.embedding(tokens)\n",
                "        x = self.embedding(tokens)\n"
                "        widths = torch.arange(length).add(1).reciprocal()\n"
                "        steps = torch.cumsum(widths, 0)\n"
                "        x = x + 0.01 * steps[None, :, None].to(x.dtype)\n",
            ),
        ),
    ),
    _clean(
        "K19",
        "rotary positions as complex numbers",
        (
            "return x * cos + rotate_half(x) * sin",
            (
                "first, second = x.chunk(2, dim=-1)\n"
                "        turned = torch.complex(first, second) * torch.polar(torch.ones_like(angles), angles)\n"
                "        return torch.cat((turned.real, turned.imag), dim=-1)"
            ),
        ),
        precisions=("float32",),
    ),
    _clean(
        "K20",
        "micro-batches of half the size",
        ("micro_batches: int = 2", "micro_batches: int = 4"),
        (
            "size, count = self.settings.batch, self.settings.micro_batches",
            "size, count = self.settings.batch // 2, self.settings.micro_batches",
        ),
        settings={"batch": 4, "dropout": 0.0},
    ),
    # -- other precisions of the healthy program
    _clean(
        "P01",
        "autocast to bfloat16",
        (
            "            loss = self.loss(tokens, real, total)\n",
            (
                '            with torch.autocast("cpu", torch.bfloat16):\n'
                "                loss = self.loss(tokens, real, total)\n"
            ),
        ),
        settings={"dropout": 0.0},
        precisions=("float32",),
    ),
    _clean(
        "P02",
        "autocast to float16",
        (
            "            loss = self.loss(tokens, real, total)\n",
            (
                '            with torch.autocast("cpu", torch.float16):\n'
                "                loss = self.loss(tokens, real, total)\n"
            ),
        ),
        settings={"dropout": 0.0},
        precisions=("float32",),
    ),
    _clean(
        "P03",
        "double precision",
        (
            "        self.model.load_state_dict(state)\n",
            "        self.model.load_state_dict(state)\n        self.model.double()\n",
        ),
        settings={"dropout": 0.0},
        precisions=("float32",),
    ),
    _clean(
        "P04",
        "weights in bfloat16",
        (
            "        self.model.load_state_dict(state)\n",
            (
                "        self.model.load_state_dict(state)\n"
                "        for parameter in self.model.parameters():\n"
                "            parameter.data = parameter.data.bfloat16()\n"
            ),
        ),
        bed=(Edit("return x * cos + rotate_half(x) * sin", "return (x * cos + rotate_half(x) * sin).type_as(x)"),),
        settings={"dropout": 0.0},
        precisions=("float32",),
    ),
    _clean(
        "P05",
        "tokens as int32",
        (
            "        inputs, padding = tokens[:, :-1], real[:, :-1]\n",
            "        inputs, padding = tokens[:, :-1].int(), real[:, :-1]\n",
        ),
    ),
    # -- the optimizer
    _clean("U01", "foreach form of the optimizer", (_OPTIMIZER, "betas=(0.9, 0.95), eps=1e-8, foreach=True)")),
    _clean("U02", "fused form of the optimizer", (_OPTIMIZER, "betas=(0.9, 0.95), eps=1e-8, fused=True)")),
    _clean("U03", "optimizer written out", *((edit.old, edit.new) for edit in BY_HAND)),
    _clean(
        "U04",
        "gradients set to zero instead of none",
        ("self.optimizer.zero_grad()", "self.optimizer.zero_grad(set_to_none=False)"),
    ),
    _clean("U05", "clipping tensor by tensor", ("self.settings.clip)", "self.settings.clip, foreach=False)")),
    _clean(
        "U06",
        "clipping written out",
        (
            "        nn.utils.clip_grad_norm_(self.model.parameters(), self.settings.clip)\n",
            (
                "        gradients = [parameter.grad for parameter in self.model.parameters()]\n"
                "        norm = torch.sqrt(sum(gradient.square().sum() for gradient in gradients))\n"
                "        for gradient in gradients:\n"
                "            gradient.mul_((self.settings.clip / (norm + 1e-6)).clamp(max=1.0))\n"
            ),
        ),
    ),
    # -- calls that change nothing
    _clean(
        "N01",
        "contiguous copies",
        ("        q = self.rotary(q)\n", "        q = self.rotary(q.contiguous()).contiguous()\n"),
    ),
    _clean("N02", "a clone before the residual", ("x = x + attended\n", "x = x + attended.clone()\n")),
    _clean(
        "N03",
        "statistics logged without gradients",
        (
            "        x = x + attended\n",
            (
                "        x = x + attended\n"
                "        with torch.no_grad():\n"
                "            self.logged = (attended.std().item(), attended.abs().max().item())\n"
            ),
        ),
    ),
    _clean(
        "N04",
        "the loss printed to nowhere",
        (_BACKWARD, _BACKWARD + '            _ = f"{loss.detach().clone():.3f}"\n'),
    ),
    _clean(
        "N05",
        "evaluation between the iterations",
        (
            "        self.optimizer.step()\n",
            (
                "        self.optimizer.step()\n"
                "        self.model.eval()\n"
                "        with torch.no_grad():\n"
                "            self.loss(*batches[0], total)\n"
                "        self.model.train()\n"
            ),
        ),
    ),
    _clean(
        "N06",
        "other names of variables and another order of lines",
        (
            "        attended = self.attention(self.norm1(x), mask)\n        x = x + attended\n",
            (
                "        residual = x\n        y = self.attention(self.norm1(residual), mask)\n        x = "
                "residual + y\n"
            ),
        ),
    ),
    _clean(
        "N07",
        "reshape and permute instead of view and transpose",
        (
            "mixed.transpose(1, 2).reshape(batch, length, width)",
            "mixed.permute(0, 2, 1, 3).contiguous().view(batch, length, width)",
        ),
    ),
    _clean("N08", "torch.add instead of the operator", ("return x + fed\n", "return torch.add(x, fed)\n")),
    _clean(
        "N09", "sum in place where no one looks back", ("x = x + attended\n", "attended += x\n        x = attended\n")
    ),
    _clean(
        "N10",
        "no dropout instead of dropout with rate zero",
        (
            "return F.dropout(mixed, self.rate, self.training)",
            "return mixed",
        ),
        settings={"dropout": 0.0},
    ),
    _clean(
        "N11",
        "dropout as a module",
        ("return F.dropout(mixed, self.rate, self.training)", "return self.drop(mixed)"),
        (
            "        self.rotary = Rotary(settings, index)\n",
            "        self.rotary = Rotary(settings, index)\n        self.drop = nn.Dropout(settings.dropout)\n",
        ),
    ),
    _clean(
        "N12",
        "hooks that look",
        (
            "        self.tokens, self.real = initial_tokens(settings)\n",
            (
                "        self.tokens, self.real = initial_tokens(settings)\n"
                "        for parameter in self.model.parameters():\n"
                "            parameter.register_hook(lambda gradient: None)\n"
            ),
        ),
    ),
    _clean(
        "N13",
        "random numbers of another generator",
        (
            "        batches = self.batch(number)\n",
            (
                "        torch.rand(3, generator=torch.Generator().manual_seed(1))\n        batches = "
                "self.batch(number)\n"
            ),
        ),
    ),
    _clean(
        "N14",
        "batch copied",
        ("return [(self.tokens[rows], self.real[rows])", "return [(self.tokens[rows].clone(), self.real[rows])"),
    ),
    _clean(
        "N15",
        "head as a product with the embedding",
        (
            "        return self.head(x)\n",
            "        return F.linear(x, self.embedding.weight)\n",
        ),
    ),
    _clean(
        "N16",
        "anomaly detection on",
        (
            _BACKWARD,
            "            with torch.autograd.set_detect_anomaly(True):\n                loss.backward()\n",
        ),
    ),
    _clean(
        "N17",
        "rotary tables computed once per model call",
        ("            x = block(x, mask)\n", "            x = block(x, mask, tables)\n"),
        (
            "        for block in self.blocks:\n",
            "        tables = self.blocks[0].attention.rotary.tables(length)\n        for block in self.blocks:\n",
        ),
        (
            (
                "    def forward(self, x: torch.Tensor) -> torch.Tensor:\n        positions = "
                "torch.arange(x.shape[-2]).float()\n"
            ),
            (
                "    def tables(self, length: int) -> tuple[torch.Tensor, torch.Tensor]:\n        positions = "
                "torch.arange(length).float()\n"
            ),
        ),
        (
            "        cos, sin = table.cos().to(x.dtype), table.sin().to(x.dtype)\n        return x * cos",
            (
                "        return table.cos(), table.sin()\n\n"
                "    def forward(self, x: torch.Tensor, tables: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:\n"
                "        cos, sin = tables[0].to(x.dtype), tables[1].to(x.dtype)\n        return x * cos"
            ),
        ),
        (
            "        q = self.rotary(q)\n        k = self.rotary(k)\n",
            "        q = self.rotary(q, tables)\n        k = self.rotary(k, tables)\n",
        ),
        (
            "    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:\n        batch, length",
            (
                "    def forward(self, x: torch.Tensor, mask: torch.Tensor, tables: Any) -> torch.Tensor:\n      "
                "  batch, length"
            ),
        ),
        (
            (
                "    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:\n        attended = "
                "self.attention(self.norm1(x), mask)\n"
            ),
            (
                "    def forward(self, x: torch.Tensor, mask: torch.Tensor, tables: Any) -> torch.Tensor:\n      "
                "  attended = self.attention(self.norm1(x), mask, tables)\n"
            ),
        ),
    ),
)

_SETTINGS_RANKS = {"layers": 2, "batch": 4}


def _layout(name: str, title: str, layout: str, reference: str = "one", world: int = 1) -> Pattern:
    bed = (Edit('layout: str = "one"', f'layout: str = "{reference}"'),)
    plant = () if layout == reference else (Edit(f'layout: str = "{reference}"', f'layout: str = "{layout}"'),)
    return Pattern(
        name, title, "clean", plant=plant, truth=(), bed=bed, expected=QUIET, program="ranks", world=2,
        reference_world=world, settings=_SETTINGS_RANKS,
    )  # fmt: skip


_RANKS = (
    _layout("C01", "data parallel against one process", "data"),
    _layout("C02", "tensor parallel against one process", "tensor"),
    _layout("C03", "tensor and sequence parallel against one process", "sequence"),
    _layout("C07", "sequence parallel against tensor parallel", "sequence", "tensor", 2),
    _layout("C08", "two identical runs of two ranks, data parallel", "data", "data", 2),
    _layout("C09", "two identical runs of two ranks, sequence parallel", "sequence", "sequence", 2),
)

CLEAN: dict[str, Pattern] = {pattern.id: pattern for pattern in (*_SINGLE, *_RANKS, *FURTHER, *TEN_BITS)}
