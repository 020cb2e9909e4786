"""Bugs that public threads tell of, planted in the diffusion model: convolutions, norms, noise, timesteps, averages."""

from __future__ import annotations

from bugs.patterns.forward import GIVEN
from bugs.planting import Edit, Pattern, answer

_DOWN, _UP = "down.@layer", "up.@layer"
_LOSS = '        loss = F.mse_loss(predicted.float(), noise.float(), reduction="mean")\n'
_LOSSES = "        self.losses: list[float] = []\n"
_CLIP = "        nn.utils.clip_grad_norm_(self.model.parameters(), self.settings.clip)\n"
#: Everything that a loss is computed from, in the types of mixed precision.
_AUTOCAST = (
    Edit(
        "            loss = self.loss(images, sketches, words)\n",
        '            with torch.autocast("cpu", torch.bfloat16):\n'
        "                loss = self.loss(images, sketches, words)\n",
    ),
)
#: The velocity as the target, weighted by the ratio of signal and noise.
_VELOCITY = (
    Edit(
        _LOSS,
        "        kept = self.noise.kept[timesteps][:, None, None, None]\n"
        "        target = kept.sqrt() * noise - (1.0 - kept).sqrt() * images\n"
        "        ratio = (kept / (1.0 - kept)).flatten()\n"
        "        weight = ratio.clamp(max=5.0) / (ratio + 1.0)\n"
        "        error = (predicted.float() - target).square().mean(dim=(1, 2, 3))\n"
        "        loss = (error * weight).mean()\n",
    ),
)


def _reported(name: str, title: str, source: str, **fields: object) -> Pattern:
    fields = {"settings": {"dropout": 0.0}, **fields}
    return Pattern(name, title, "threads", source=source, program="images", **fields)  # type: ignore[arg-type]


PATTERNS = (
    _reported(
        "V01",
        "epsilon of the group norm before the attention",
        "ml-explore/mlx-examples#1434",
        plant=(
            Edit(
                "self.norm = nn.GroupNorm(settings.groups, width, eps=1e-6)",
                "self.norm = nn.GroupNorm(settings.groups, width, eps=1e-5 if index == @layer else 1e-6)",
            ),
        ),
        truth=(
            answer("argument", "x = self.norm(image)", module=f"{_DOWN}.transformer.norm", api="group_norm|Module"),
            answer("argument", "x = self.norm(image)", module=f"{_UP}.transformer.norm", api="group_norm|Module"),
        ),
        differs=frozenset({"gradients"}),
        harmless=None,
    ),
    _reported(
        "V02",
        "as many heads as a head should be wide",
        "huggingface/diffusers#2011",
        plant=(
            Edit("self.heads = settings.heads\n", "self.heads = width // settings.heads\n"),
            Edit(
                "self.scale = 1.0 / math.sqrt(width // settings.heads)", "self.scale = 1.0 / math.sqrt(settings.heads)"
            ),
        ),
        suits=lambda s, w: s["width"] != s["heads"] ** 2,
        truth=(answer("argument computation structure data", "q = self.q(x).unflatten", api="unflatten"),),
        differs=frozenset({"loss"}),
    ),
    _reported(
        "V03",
        "frequencies of the timestep divided by one less",
        "kohya-ss/sd-scripts#1187",
        plant=(Edit("dtype=torch.float32) / half\n", "dtype=torch.float32) / (half - 1)\n"),),
        suits=lambda s, w: s["width"] > 4,
        truth=(answer("argument", "exponents = -math.log(10000.0)", module="timesteps", api="div"),),
        differs=frozenset({"loss"}),
    ),
    _reported(
        "V04",
        "halves of the timestep's sines and cosines swapped",
        "flashinfer-ai/flashinfer#3819",
        plant=(
            Edit("torch.cat((angles.cos(), angles.sin()), dim=-1)", "torch.cat((angles.sin(), angles.cos()), dim=-1)"),
        ),
        truth=(
            answer("structure", "table = torch.cat((angles.", api="sin|cos"),
            answer("structure", "table = torch.cat((angles.", api="sin|cos", side="reference"),
        ),
        differs=frozenset({"loss"}),
    ),
    _reported(
        "V05",
        "timesteps in bfloat16",
        "modelscope/DiffSynth-Studio#1025",
        bed=(
            Edit("timesteps[:, None].float()", "timesteps[:, None].to(self.kind).float()"),
            Edit(
                "        self.width = settings.width\n",
                "        self.width, self.kind = settings.width, torch.float32\n",
            ),
        ),
        plant=(Edit("settings.width, torch.float32", "settings.width, torch.bfloat16"),),
        truth=(answer("argument dtype data computation", "angles = timesteps[:, None].to", api="to"),),
        differs=frozenset({"loss"}),
    ),
    _reported(
        "V06",
        "one added to the ratio above the bar too",
        "huggingface/diffusers#5654",
        bed=_VELOCITY,
        plant=(
            Edit(
                "weight = ratio.clamp(max=5.0) / (ratio + 1.0)", "weight = (ratio + 1.0).clamp(max=5.0) / (ratio + 1.0)"
            ),
        ),
        truth=(
            answer("structure", "weight = (ratio + 1.0)", api="add"),
            answer("structure argument data", "weight = (ratio + 1.0)", api="clamp"),
            answer("structure argument data", "weight = ratio.clamp", api="clamp", side="reference"),
        ),
        differs=frozenset({"loss"}),
    ),
    _reported(
        "V07",
        "a schedule of the noise with the roots left out",
        "Comfy-Org/ComfyUI#1998",
        plant=(
            Edit(
                "torch.linspace(0.00085**0.5, 0.012**0.5, settings.timesteps, dtype=torch.float32) ** 2",
                "torch.linspace(0.00085, 0.012, settings.timesteps, dtype=torch.float32)",
            ),
        ),
        truth=(answer(GIVEN, "kept = self.kept[timesteps]", api="__getitem__"),),
        differs=frozenset({"loss"}),
    ),
    _reported(
        "V08",
        "schedule of the noise kept in half precision",
        "AUTOMATIC1111/stable-diffusion-webui#14071",
        plant=(Edit("torch.cumprod(1.0 - betas, dim=0)", "torch.cumprod(1.0 - betas, dim=0).half().float()"),),
        truth=(answer(GIVEN, "kept = self.kept[timesteps]", api="__getitem__"),),
        differs=frozenset({"loss"}),
    ),
    _reported(
        "V09",
        "padding on both sides of a convolution that halves, instead of behind",
        "MegEngine/MegDiffusion#7",
        bed=(
            Edit(
                "self.halve = nn.Conv2d(outer, outer, 3, stride=2, padding=1)",
                "self.halve = nn.Conv2d(outer, outer, 3, stride=2)",
            ),
            Edit("return self.halve(x), x", "return self.halve(F.pad(x, (0, 1, 0, 1))), x"),
        ),
        plant=(
            Edit(
                "self.halve(F.pad(x, (0, 1, 0, 1)))",
                "self.halve(F.pad(x, (1, 0, 1, 0) if self.index == @layer else (0, 1, 0, 1)))",
            ),
        ),
        truth=(answer("argument", "self.halve(F.pad(x,", module=_DOWN, api="pad"),),
        differs=frozenset({"loss"}),
    ),
    _reported(
        "V10",
        "gradients clipped before the scale of the loss is undone",
        "milesial/Pytorch-UNet#468",
        bed=(
            Edit("            loss.backward()\n", "            (loss * 1024.0).backward()\n"),
            Edit(
                _CLIP,
                "        for parameter in self.model.parameters():\n            parameter.grad.div_(1024.0)\n" + _CLIP,
            ),
        ),
        plant=(
            Edit(
                "        for parameter in self.model.parameters():\n            parameter.grad.div_(1024.0)\n" + _CLIP,
                _CLIP + "        for parameter in self.model.parameters():\n            parameter.grad.div_(1024.0)\n",
            ),
        ),
        truth=(
            answer("structure argument optimizer parameter_gradient", "nn.utils.clip_grad_norm_(", occurrence="any"),
            answer("structure argument", "parameter.grad.div_(1024.0)", side="reference"),
        ),
        same=frozenset({"loss"}),
        differs=frozenset({"weights"}),
    ),
    _reported(
        "V11",
        "average of the weights kept in bfloat16",
        "d8ahazard/sd_dreambooth_extension#1417",
        plant=(
            Edit(
                "self.average = [p.detach().clone() for p in self.model.parameters()]",
                "self.average = [p.detach().bfloat16().clone() for p in self.model.parameters()]",
            ),
        ),
        truth=(answer("argument dtype data structure initial_weights", "kept.lerp_(parameter.to(kept.dtype)"),),
        same=frozenset({"loss", "gradients", "weights"}),
        harmless=None,
    ),
    _reported(
        "V12",
        "average of the weights pushed away from them",
        "ostris/ai-toolkit#1034",
        bed=(
            Edit(
                "                kept.lerp_(parameter.to(kept.dtype), 1.0 - self.settings.ema)",
                "                gap = kept - parameter.to(kept.dtype)\n"
                "                kept.sub_(gap * (1.0 - self.settings.ema))",
            ),
        ),
        plant=(Edit("kept.sub_(gap *", "kept.add_(gap *"),),
        truth=(
            answer("structure", "kept.add_(gap", api="add_"),
            answer("structure", "kept.sub_(gap", api="sub_", side="reference"),
        ),
        same=frozenset({"loss", "gradients", "weights"}),
        harmless=None,
    ),
    _reported(
        "V13",
        "momentum of a batch norm of zero, so that its averages stay",
        "Cadene/pretrained-models.pytorch#5",
        plant=(
            Edit(
                "self.norm1 = BatchNorm(width, eps=1e-5, momentum=0.1)",
                "self.norm1 = BatchNorm(width, eps=1e-5, momentum=0.0)",
            ),
        ),
        truth=(answer("argument", "wide = F.batch_norm(", module="sketch.norm1", api="batch_norm"),),
        same=frozenset({"loss", "gradients", "weights"}),
        harmless=None,
    ),
    _reported(
        "V14",
        "corners of an enlarged image not aligned",
        "tenstorrent/tt-forge-onnx#2829",
        bed=(
            Edit(
                'F.interpolate(x, scale_factor=2.0, mode="nearest")',
                'F.interpolate(x, scale_factor=2.0, mode="bilinear", align_corners=self.aligned)',
            ),
            Edit("        self.grow = nn.Conv2d(", "        self.aligned = True\n        self.grow = nn.Conv2d("),
        ),
        plant=(Edit("self.aligned = True", "self.aligned = index != @layer"),),
        suits=lambda s, w: s["size"] == 8,
        truth=(answer("argument", "x = F.interpolate(", module=_UP, api="interpolate"),),
        differs=frozenset({"loss"}),
    ),
    _reported(
        "V15",
        "conditions that should be dropped at random are not",
        "lucidrains/DALLE2-pytorch#235",
        plant=(Edit("        words = words.masked_fill(silent[:, None], 0)\n", ""),),
        settings={"dropout": 0.0, "without_words": 0.7, "batch": 4},
        truth=(answer("structure", "words = words.masked_fill(silent", side="reference", occurrence="0"),),
        differs=frozenset({"loss"}),
    ),
    _reported(
        "V16",
        "what is left of dropped residuals not scaled up",
        "huggingface/pytorch-image-models#887",
        bed=(
            Edit(
                "        return self.shortcut(x) + hidden\n",
                "        kept = (torch.rand(len(x), 1, 1, 1) < 0.8).to(hidden.dtype)\n"
                "        return self.shortcut(x) + hidden * kept / self.share\n",
            ),
            Edit(
                "        self.index = index\n        self.rate = settings.dropout\n",
                "        self.index, self.share = index, 0.8\n        self.rate = settings.dropout\n",
            ),
        ),
        plant=(
            Edit("self.index, self.share = index, 0.8", "self.index, self.share = index, 1.0 if index < 0 else 0.8"),
        ),
        truth=(answer("argument", "hidden * kept / self.share", module="middle", api="div"),),
        differs=frozenset({"loss"}),
    ),
    _reported(
        "V17",
        "noise and prediction compared in bfloat16",
        "deepspeedai/DeepSpeedExamples#754",
        bed=_AUTOCAST,
        plant=(
            Edit("F.mse_loss(predicted.float(), noise.float(),", "F.mse_loss(predicted, noise.to(predicted.dtype),"),
        ),
        truth=(
            answer("structure dtype argument", "loss = F.mse_loss(", occurrence="0"),
            answer("structure dtype argument", "loss = F.mse_loss(", occurrence="0", side="reference"),
        ),
        differs=frozenset({"gradients"}),
    ),
    _reported(
        "V18",
        "scores and softmax of the attention in bfloat16",
        "AUTOMATIC1111/stable-diffusion-webui#6510",
        bed=(
            *_AUTOCAST,
            Edit(
                "        scores = q @ k.transpose(-2, -1)\n        scores = scores * self.scale\n",
                "        wide = torch.float32 if self.upcast else q.dtype\n"
                '        with torch.autocast("cpu", enabled=False):\n'
                "            scores = q.to(wide) @ k.to(wide).transpose(-2, -1)\n"
                "        scores = scores * self.scale\n",
            ),
            Edit("        self.heads = settings.heads\n", "        self.heads, self.upcast = settings.heads, True\n"),
            Edit("        mixed = probs @ v\n", "        mixed = probs.to(v.dtype) @ v\n"),
        ),
        plant=(Edit("settings.heads, True\n", "settings.heads, index != @layer\n"),),
        truth=(
            answer("structure dtype argument", "scores = q.to(wide) @", module=f"{_DOWN}.transformer"),
            answer(
                "structure dtype argument", "scores = q.to(wide) @", module=f"{_DOWN}.transformer", side="reference"
            ),
        ),
        differs=frozenset({"gradients"}),
    ),
)
