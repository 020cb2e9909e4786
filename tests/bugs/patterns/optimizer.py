"""Bugs that leave losses and gradients of the first step alone and show in what the optimizer makes of them."""

from __future__ import annotations

from bugs.planting import Edit, Pattern, answer

_TORCH_STEP = "        self.optimizer.step()"
_CLIP = "nn.utils.clip_grad_norm_(self.model.parameters(), self.settings.clip)"
_SAME = frozenset({"loss", "gradients"})
_CHANGED = frozenset({"weights"})
#: An optimizer that is no torch.optim.Optimizer.
BY_HAND = (
    Edit("torch.optim.AdamW(self.groups()", "AdamW(self.groups()"),
    Edit(
        "class Training:",
        '''class AdamW:
    """Adam with decoupled weight decay."""

    def __init__(self, groups: list[dict[str, Any]], lr: float, betas: tuple[float, float], eps: float) -> None:
        self.param_groups = [{**group, "lr": lr} for group in groups]
        self.betas, self.eps = betas, eps
        self.moments: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self.number = 0

    def zero_grad(self) -> None:
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.grad = None

    @torch.no_grad()
    def step(self) -> None:
        self.number += 1
        for group in self.param_groups:
            for parameter in group["params"]:
                self.update(parameter, group["lr"], group["weight_decay"])

    def update(self, parameter: torch.Tensor, rate: float, decay: float) -> None:
        if parameter.grad is None:
            return
        if id(parameter) not in self.moments:
            self.moments[id(parameter)] = (torch.zeros_like(parameter), torch.zeros_like(parameter))
        first, second = self.moments[id(parameter)]
        grad = parameter.grad
        parameter.mul_(1.0 - rate * decay)
        first.mul_(self.betas[0]).add_(grad, alpha=1.0 - self.betas[0])
        second.mul_(self.betas[1]).addcmul_(grad, grad, value=1.0 - self.betas[1])
        mean = first / (1.0 - self.betas[0] ** self.number)
        spread = (second / (1.0 - self.betas[1] ** self.number)).sqrt()
        update = mean / (spread + self.eps)
        parameter.sub_(update * rate)


class Training:''',
    ),
)

PATTERNS = (
    Pattern(
        "O01",
        "clipped parameter by parameter",
        "optimizer",
        plant=(
            Edit(
                f"        {_CLIP}",
                "        for parameter in self.model.parameters():\n"
                "            nn.utils.clip_grad_norm_([parameter], self.settings.clip)",
            ),
        ),
        settings={"clip": 0.2},
        truth=(
            answer("structure argument optimizer", "nn.utils.clip_grad_norm_([parameter]", occurrence="any"),
            answer("structure argument optimizer", _CLIP, side="reference", occurrence="any"),
        ),
        same=frozenset({"loss"}),
        differs=_CHANGED,
    ),
    Pattern(
        "O01V",
        "clipped to another norm",
        "optimizer",
        plant=(Edit(_CLIP, "nn.utils.clip_grad_norm_(self.model.parameters(), @factor * self.settings.clip)"),),
        choices={"factor": ("2", "0.5", "1.01")},
        settings={"clip": 0.2},
        truth=(answer("argument structure", "nn.utils.clip_grad_norm_(", occurrence="any"),),
        same=frozenset({"loss"}),
        differs=_CHANGED,
    ),
    Pattern(
        "O02",
        "learning rate of another step",
        "optimizer",
        plant=(Edit("min(1.0, (number + 1)", "min(1.0, (number + @more)"),),
        choices={"more": ("2", "1.5", "1.01")},
        truth=(answer("optimizer argument", _TORCH_STEP, api="Optimizer"),),
        same=_SAME,
        differs=_CHANGED,
    ),
    Pattern(
        "O02H",
        "learning rate of another step, optimizer by hand",
        "optimizer",
        bed=BY_HAND,
        plant=(Edit("min(1.0, (number + 1)", "min(1.0, (number + @more)"),),
        choices={"more": ("2", "1.5", "1.01")},
        truth=(answer("argument optimizer", "parameter.mul_(1.0 - rate * decay)"),),
        same=_SAME,
        differs=_CHANGED,
    ),
    Pattern(
        "O03",
        "epsilon of Adam",
        "optimizer",
        plant=(Edit("eps=1e-8)", "eps=@eps)"),),
        choices={"eps": ("1e-5", "1e-6", "1e-4")},
        truth=(answer("optimizer argument", _TORCH_STEP, api="Optimizer"),),
        same=_SAME,
        differs=_CHANGED,
    ),
    Pattern(
        "O03H",
        "epsilon of Adam, optimizer by hand",
        "optimizer",
        bed=BY_HAND,
        plant=(Edit("eps=1e-8)", "eps=@eps)"),),
        choices={"eps": ("1e-5", "1e-6", "1e-4")},
        truth=(answer("argument optimizer", "update = mean / (spread + self.eps)", api="add"),),
        same=_SAME,
        differs=_CHANGED,
    ),
    Pattern(
        "O03B",
        "decay of the second moment",
        "optimizer",
        plant=(Edit("betas=(0.9, 0.95)", "betas=(@betas)"),),
        choices={"betas": ("0.9, 0.999", "0.95, 0.95", "0.9, 0.951")},
        truth=(answer("optimizer argument", _TORCH_STEP, api="Optimizer"),),
        same=_SAME,
    ),
    Pattern(
        "O04",
        "no correction of the bias",
        "optimizer",
        bed=BY_HAND,
        plant=(
            Edit("mean = first / (1.0 - self.betas[0] ** self.number)", "mean = first / 1.0"),
            Edit("(second / (1.0 - self.betas[1] ** self.number))", "(second / 1.0)"),
        ),
        truth=(answer("argument optimizer", "mean = first / "),),
        same=_SAME,
        differs=_CHANGED,
    ),
    Pattern(
        "O04C",
        "counter of the steps advanced with each parameter",
        "optimizer",
        bed=BY_HAND,
        plant=(
            Edit("        self.number += 1\n", ""),
            Edit(
                '            for parameter in group["params"]:\n                self.update(',
                '            for parameter in group["params"]:\n                self.number += 1\n           '
                "     self.update(",
            ),
        ),
        truth=(answer("argument optimizer", "mean = first / ", occurrence="1"),),
        same=_SAME,
        differs=_CHANGED,
    ),
    Pattern(
        "O05",
        "weight decay on norms and biases",
        "optimizer",
        plant=(Edit('{"params": vectors, "weight_decay": 0.0}', '{"params": vectors, "weight_decay": decay}'),),
        truth=(answer("optimizer argument", _TORCH_STEP, api="Optimizer"),),
        same=_SAME,
        differs=_CHANGED,
    ),
    Pattern(
        "O05H",
        "weight decay on norms and biases, optimizer by hand",
        "optimizer",
        bed=BY_HAND,
        plant=(Edit('{"params": vectors, "weight_decay": 0.0}', '{"params": vectors, "weight_decay": decay}'),),
        truth=(answer("argument optimizer", "parameter.mul_(1.0 - rate * decay)", occurrence="@matrices"),),
        same=_SAME,
        differs=_CHANGED,
    ),
    Pattern(
        "O06",
        "coupled decay instead of decoupled",
        "optimizer",
        plant=(Edit("torch.optim.AdamW(self.groups()", "torch.optim.Adam(self.groups()"),),
        truth=(
            answer("optimizer structure argument", _TORCH_STEP, api="Optimizer"),
            answer("optimizer structure argument", _TORCH_STEP, api="Optimizer", side="reference"),
        ),
        same=_SAME,
        differs=_CHANGED,
    ),
    Pattern(
        "O06H",
        "coupled decay instead of decoupled, optimizer by hand",
        "optimizer",
        bed=BY_HAND,
        plant=(Edit("        parameter.mul_(1.0 - rate * decay)\n", "        grad = grad + decay * parameter\n"),),
        truth=(
            answer("structure", "grad = grad + decay * parameter"),
            answer("structure", "parameter.mul_(1.0 - rate * decay)", side="reference"),
        ),
        same=_SAME,
        differs=_CHANGED,
    ),
    Pattern(
        "O07",
        "weights updated in bfloat16",
        "optimizer",
        bed=BY_HAND,
        plant=(
            Edit(
                "parameter.sub_(update * rate)",
                "parameter.copy_(parameter.bfloat16() - (update * rate).bfloat16())",
            ),
        ),
        truth=(
            answer("structure dtype", "parameter.copy_(parameter.bfloat16()"),
            answer("structure dtype", "parameter.sub_(update * rate)", side="reference"),
        ),
        same=_SAME,
        differs=_CHANGED,
        precisions=("float32", "autocast"),
    ),
    Pattern(
        "O08",
        "the optimizer holds a stale copy of a parameter",
        "optimizer",
        plant=(
            Edit(
                "        self.losses: list[float] = []\n",
                "        self.losses: list[float] = []\n"
                "        feed = self.model.blocks[@layer].feed\n"
                "        feed.@which.weight = nn.Parameter(feed.@which.weight.detach().clone())\n",
            ),
        ),
        choices={"which": ("up", "down")},
        truth=(
            answer(
                "optimizer missing_gradient weights structure",
                _TORCH_STEP,
                api="Optimizer",
                parameter="blocks.@layer.feed.@which.weight",
            ),
        ),
        same=_SAME,
        differs=_CHANGED,
    ),
    Pattern(
        "O08F",
        "a parameter left out of the optimizer",
        "optimizer",
        plant=(
            Edit(
                "vectors = [p for p in self.model.parameters() if p.dim() == 1]",
                "vectors = [p for n, p in self.model.named_parameters() if p.dim() == 1 and n != "
                '"blocks.@layer.norm@which.weight"]',
            ),
        ),
        choices={"which": ("1", "2")},
        truth=(
            answer(
                "optimizer missing_gradient weights structure",
                _TORCH_STEP,
                api="Optimizer",
                parameter="blocks.@layer.norm@which.weight",
            ),
        ),
        same=_SAME,
        differs=_CHANGED,
    ),
)
