"""Bugs that leave the forward pass of the first step alone and show in gradients."""

from __future__ import annotations

from bugs.planting import Edit, Pattern, answer

_CHECKPOINTED = Edit(
    "            x = block(x, mask)\n",
    "            x = checkpoint(block, x, mask, use_reentrant=False, preserve_rng_state=True)\n",
)
_IMPORT_CHECKPOINT = Edit(
    "from torch import nn\n", "from torch import nn\nfrom torch.utils.checkpoint import checkpoint\n"
)
_SCALED = (
    Edit("            loss.backward()\n", "            (loss * @scale).backward()\n"),
    Edit(
        "        nn.utils.clip_grad_norm_(",
        "        for parameter in self.model.parameters():\n"
        "            parameter.grad.mul_(1.0 / @scale)\n"
        "        nn.utils.clip_grad_norm_(",
    ),
)
_ATTENTION = "blocks.@layer.attention"
_SAME = frozenset({"loss"})
_CHANGED = frozenset({"gradients", "weights"})
_CLIP = "nn.utils.clip_grad_norm_"
_STEP = "        self.optimizer.step()"

PATTERNS = (
    Pattern(
        "B01",
        "a branch detached",
        "backward",
        plant=(Edit("x = x + attended\n", "x = x + (attended.detach() if self.index == @layer else attended)\n"),),
        truth=(
            answer("structure", "x = x + (attended.detach()", module="blocks.@layer", api="detach"),
            answer("missing_gradient", module=_ATTENTION, side="reference", direction="any", occurrence="any"),
        ),
        same=_SAME,
        differs=_CHANGED,
    ),
    Pattern(
        "B01N",
        "a branch computed without gradients",
        "backward",
        bed=(
            Edit(
                "        attended = self.attention(self.norm1(x), mask)\n",
                "        with torch.set_grad_enabled(self.learns):\n"
                "            attended = self.attention(self.norm1(x), mask)\n",
            ),
            Edit(
                "        self.norm1 = Norm(settings.width)\n",
                "        self.learns = True\n        self.norm1 = Norm(settings.width)\n",
            ),
        ),
        plant=(Edit("self.learns = True", "self.learns = index != @layer"),),
        truth=(
            answer(
                "missing_gradient argument", "attended = self.attention(self.norm1(x)", module="blocks.@layer.norm1"
            ),
            answer(
                "missing_gradient", module="blocks.@layer.norm1", side="reference", direction="any", occurrence="any"
            ),
            answer("missing_gradient", module=_ATTENTION, side="reference", direction="any", occurrence="any"),
        ),
        same=_SAME,
        differs=_CHANGED,
    ),
    Pattern(
        "B02",
        "a saved tensor modified behind autograd's back",
        "backward",
        plant=(
            Edit(
                "        mixed = probs @ v\n",
                "        mixed = probs @ v\n        if self.index == @layer:\n            probs.data.mul_(@by)\n",
            ),
        ),
        choices={"by": ("0.9", "0.99", "1.5")},
        truth=(
            answer("structure mutation", "probs.data.mul_", module=_ATTENTION),
            answer("mutation", "probs = torch.softmax", module=_ATTENTION, direction="any"),
            answer("mutation", "mixed = probs @ v", module=_ATTENTION, direction="any"),
        ),
        same=_SAME,
        differs=_CHANGED,
    ),
    Pattern(
        "B02C",
        "a copy left out, so that a saved tensor is modified",
        "backward",
        bed=(
            Edit(
                "        mixed = probs @ v\n",
                "        mixed = probs @ v\n        sparse = probs.data.clone()\n        sparse.mul_(sparse > 0.1)\n",
            ),
        ),
        plant=(Edit("probs.data.clone()", "probs.data if self.index == @layer else probs.data.clone()"),),
        truth=(
            answer("structure", "sparse = probs.data.clone()", module=_ATTENTION, api="clone", side="reference"),
            answer("mutation", "sparse.mul_", module=_ATTENTION),
            answer("mutation", "probs = torch.softmax", module=_ATTENTION, direction="any"),
            answer("mutation", "mixed = probs @ v", module=_ATTENTION, direction="any"),
        ),
        same=_SAME,
        differs=_CHANGED,
    ),
    Pattern(
        "B03",
        "recomputation with other random numbers",
        "backward",
        bed=(_CHECKPOINTED, _IMPORT_CHECKPOINT),
        plant=(Edit("preserve_rng_state=True", "preserve_rng_state=block.index != @layer"),),
        truth=(answer("recompute computation", "return F.dropout(mixed", module=_ATTENTION, recompute=True),),
        differs=_CHANGED,
    ),
    Pattern(
        "B03R",
        "a dropout rate changed before the recomputation",
        "backward",
        bed=(_CHECKPOINTED, _IMPORT_CHECKPOINT),
        plant=(
            Edit(
                "            loss.backward()\n",
                "            self.model.blocks[@layer].attention.rate = 0.2\n"
                "            loss.backward()\n"
                "            self.model.blocks[@layer].attention.rate = self.settings.dropout\n",
            ),
        ),
        truth=(answer("recompute argument", "return F.dropout(mixed", module=_ATTENTION, recompute=True),),
        same=_SAME,
        differs=_CHANGED,
    ),
    Pattern(
        "B04",
        "root of zero behind a where",
        "backward",
        bed=(
            Edit(
                '        hidden = F.gelu(hidden, approximate="none")\n',
                '        hidden = F.gelu(hidden, approximate="none")\n'
                "        kept = hidden * (hidden > 0)\n"
                "        root = torch.sqrt(kept + self.floor)\n"
                "        hidden = hidden + 0.0 * torch.where(kept > 0, root, 0.0)\n",
            ),
            Edit("        self.up = ", "        self.floor = 1e-6\n        self.up = "),
        ),
        plant=(Edit("self.floor = 1e-6", "self.floor = 0.0 if index == @layer else 1e-6"),),
        truth=(
            answer("argument", "root = torch.sqrt", module="blocks.@layer.feed", api="add"),
            answer(
                "overflow gradient",
                "root = torch.sqrt",
                module="blocks.@layer.feed",
                api="sqrt",
                direction="backward",
            ),
        ),
        differs=_CHANGED,
    ),
    Pattern(
        "B05",
        "scale of the loss not undone",
        "backward",
        plant=(Edit("            loss.backward()\n", "            (loss * @scale).backward()\n"),),
        choices={"scale": ("1024.0", "128.0", "65536.0")},
        truth=(
            answer("structure loss_scale", "(loss * @scale).backward()"),
            answer("loss_scale", "return loss / total", direction="any"),
        ),
        same=_SAME,
        harmless=None,
    ),
    Pattern(
        "B05U",
        "gradients not unscaled",
        "backward",
        bed=_SCALED,
        plant=(Edit("parameter.grad.mul_(1.0 / @scale)", "pass"),),
        choices={"scale": ("1024.0", "128.0", "65536.0")},
        truth=(
            answer("structure loss_scale", "parameter.grad.mul_", side="reference"),
            answer("loss_scale parameter_gradient", _CLIP),
            answer("loss_scale parameter_gradient", _STEP, api="Optimizer"),
        ),
        same=_SAME,
        harmless=None,
    ),
    Pattern(
        "B05O",
        "gradients unscaled by another factor, clipping off",
        "backward",
        bed=_SCALED,
        plant=(Edit("parameter.grad.mul_(1.0 / @scale)", "parameter.grad.mul_(@factor / @scale)"),),
        choices={"scale": ("1024.0", "128.0"), "factor": ("2.0", "0.5", "4.0")},
        settings={"clip": 1e9},
        truth=(answer("argument loss_scale", "parameter.grad.mul_"),),
        same=_SAME,
        differs=_CHANGED,
    ),
    Pattern(
        "B06",
        "tied weights untied on load",
        "backward",
        plant=(Edit("        self.head.weight = self.embedding.weight\n", ""),),
        truth=(
            answer("parameter_gradient structure missing_gradient optimizer", parameter="head.weight"),
            answer("parameter_gradient", parameter="embedding.weight"),
        ),
        same=_SAME,
        differs=_CHANGED,
    ),
    Pattern(
        "B07",
        "gradients not zeroed",
        "backward",
        plant=(
            Edit(
                "        self.optimizer.zero_grad()\n",
                "        if number == 0:\n            self.optimizer.zero_grad()\n",
            ),
        ),
        truth=(
            answer("parameter_gradient gradient data mutation", _CLIP, step=1),
            answer("parameter_gradient gradient optimizer mutation", _STEP, api="Optimizer", step=1),
        ),
        same=frozenset({"loss", "gradients", "weights"}),
    ),
    Pattern(
        "B07M",
        "gradients zeroed between micro-batches",
        "backward",
        plant=(
            Edit(
                "            loss = self.loss(tokens, real, total)\n",
                "            loss = self.loss(tokens, real, total)\n            self.optimizer.zero_grad()\n",
            ),
        ),
        truth=(
            answer("parameter_gradient gradient data mutation", _CLIP),
            answer("parameter_gradient gradient optimizer mutation", _STEP, api="Optimizer"),
        ),
        same=_SAME,
        differs=_CHANGED,
    ),
)
