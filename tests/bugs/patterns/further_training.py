"""More ways to be wrong, in the training of one process: data, loss, optimizer, hooks, resuming."""

from __future__ import annotations

from bugs.patterns.optimizer import BY_HAND
from bugs.planting import Edit, Pattern, answer

_IMPORT_NN = "from torch import nn\n"
_RETURN = "        return loss / total\n"
_STEP = "        self.optimizer.step()"
_LOSSES = "        self.losses: list[float] = []\n"
_STATE = "        self.model.load_state_dict(state)\n"
_CHECKPOINTED = (
    Edit(
        "            x = block(x, mask)\n",
        "            before = x\n            x = checkpoint(block, x, mask, use_reentrant=False)\n",
    ),
    Edit(_IMPORT_NN, _IMPORT_NN + "from torch.utils.checkpoint import checkpoint\n"),
)
#: An average of the weights, kept beside the model.
_AVERAGE = (
    Edit(_LOSSES, _LOSSES + "        self.average = [p.detach().clone() for p in self.model.parameters()]\n"),
    Edit(
        _STEP,
        _STEP + "\n"
        "        with torch.no_grad():\n"
        "            for kept, parameter in zip(self.average, self.model.parameters()):\n"
        "                kept.lerp_(parameter.to(kept.dtype), 0.01)\n",
    ),
)
#: The machine that runs the operations, which can leave out what it should write.
_MACHINE = (
    Edit(
        "class AdamW:",
        '''class Machine(TorchDispatchMode):
    """The machine that operations run on."""

    WRITES_STRIDED = True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.overloadpacket.__name__ == "addcmul_" and not args[0].is_contiguous() and not self.WRITES_STRIDED:
            return args[0]
        return func(*args, **(kwargs or {}))


class AdamW:''',
    ),
    Edit(
        "        second.mul_(self.betas[1]).addcmul_(",
        "        with Machine():\n            second.mul_(self.betas[1]).addcmul_(",
    ),
    Edit(
        "(torch.zeros_like(parameter), torch.zeros_like(parameter))",
        "(torch.zeros_like(parameter), torch.zeros_like(parameter.mT if parameter.dim() > 1 else parameter))\n"
        "            if parameter.dim() > 1:\n"
        "                first, second = self.moments[id(parameter)]\n"
        "                self.moments[id(parameter)] = (first, second.contiguous().mT)",
    ),
    Edit(_IMPORT_NN, _IMPORT_NN + "from torch.utils._python_dispatch import TorchDispatchMode\n"),
)


def _more(name: str, title: str, **fields: object) -> Pattern:
    return Pattern(name, title, "further", **fields)  # type: ignore[arg-type]


PATTERNS = (
    _more(
        "X09",
        "gradients added to themselves after the first micro-batch",
        bed=(
            Edit(
                "            loss.backward()\n",
                "            loss.backward()\n"
                "            for name, parameter in self.model.named_parameters():\n"
                "                self.sums[name].add_(parameter.grad)\n"
                "                parameter.grad = None\n",
            ),
            Edit(
                "        self.optimizer.zero_grad()\n",
                "        self.optimizer.zero_grad()\n"
                "        self.sums = {name: torch.zeros_like(value) for name, value in "
                "self.model.named_parameters()}\n",
            ),
            Edit(
                "        nn.utils.clip_grad_norm_(",
                "        for name, parameter in self.model.named_parameters():\n"
                "            parameter.grad = self.sums[name]\n"
                "        nn.utils.clip_grad_norm_(",
            ),
        ),
        plant=(Edit("                parameter.grad = None\n", "                parameter.grad = self.sums[name]\n"),),
        truth=(
            answer(
                "mutation parameter_gradient gradient data argument computation",
                "self.sums[name].add_(parameter.grad)",
                api="add_",
                occurrence="@total",
            ),
        ),
        same=frozenset({"loss"}),
        differs=frozenset({"weights"}),
    ),
    _more(
        "X12",
        "workers of the data loader share a seed",
        bed=(
            Edit(
                "        self.order = torch.randperm(",
                "        self.tokens = torch.cat(list(DataLoader(Noisy(self.tokens), settings.batch, num_workers=2, "
                "worker_init_fn=Noisy.begin, generator=torch.Generator().manual_seed(0))))\n"
                "        self.order = torch.randperm(",
            ),
            Edit(
                "        self.order = torch.randperm(len(self.tokens), "
                "generator=torch.Generator().manual_seed(settings.seed + 2))\n",
                "        self.order = torch.arange(len(self.tokens))\n",
            ),
            Edit(
                "class Training:",
                '''class Noisy(Dataset):
    """Some tokens are replaced at random."""

    def __init__(self, tokens: torch.Tensor) -> None:
        self.tokens = tokens

    @staticmethod
    def begin(worker: int) -> None:
        np.random.seed(1000 + worker)

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, row: int) -> torch.Tensor:
        mask = torch.from_numpy(np.random.rand(self.tokens.shape[1]) < 0.2)
        return self.tokens[row].masked_fill(mask & (self.tokens[row] > 0), 1 + row % 7)


class Training:''',
            ),
            Edit("import torch\n", "import numpy as np\nimport torch\n"),
            Edit(_IMPORT_NN, _IMPORT_NN + "from torch.utils.data import DataLoader, Dataset\n"),
        ),
        plant=(Edit("np.random.seed(1000 + worker)", "np.random.seed(1000)"),),
        truth=(answer("data argument", "return [(self.tokens[rows]"),),
        differs=frozenset({"loss"}),
    ),
    _more(
        "X14",
        "a parameter that was frozen is not updated any more",
        bed=(
            *BY_HAND,
            Edit(
                "        batches = self.batch(number)\n",
                "        batches = self.batch(number)\n"
                "        self.model.blocks[@layer].attention.q.weight.requires_grad_(number != 0)\n",
            ),
            Edit("        self.number = 0\n", "        self.number = 0\n        self.idle: set[int] = set()\n"),
        ),
        plant=(
            Edit(
                "        if parameter.grad is None:\n            return\n",
                "        if parameter.grad is None or id(parameter) in self.idle:\n"
                "            self.idle.add(id(parameter))\n            return\n",
            ),
        ),
        truth=(
            answer("structure", "self.moments[id(parameter)] = (", side="reference", step=1, occurrence="0 1"),
            answer("structure", "parameter.mul_(1.0 - rate * decay)", side="reference", step=1, occurrence="@query"),
        ),
        same=frozenset({"loss", "gradients", "weights"}),
        steps=3,
    ),
    _more(
        "X15",
        "an operation that does not write to strided memory",
        bed=(*BY_HAND, *_MACHINE),
        plant=(Edit("WRITES_STRIDED = True", "WRITES_STRIDED = False"),),
        truth=(answer("computation", "second.mul_(self.betas[1]).addcmul_(", api="addcmul_"),),
        same=frozenset({"loss", "gradients"}),
        differs=frozenset({"weights"}),
    ),
    _more(
        "X17",
        "average of the weights moved the wrong way",
        bed=_AVERAGE,
        plant=(Edit("kept.lerp_(parameter.to(kept.dtype), 0.01)", "kept.lerp_(parameter.to(kept.dtype), @by)"),),
        choices={"by": ("-0.01", "0.99")},
        truth=(answer("argument", "kept.lerp_("),),
        same=frozenset({"loss", "gradients", "weights"}),
        harmless=None,
    ),
    _more(
        "X17N",
        "average of the weights never updated",
        bed=_AVERAGE,
        plant=(Edit("                kept.lerp_(parameter.to(kept.dtype), 0.01)\n", "                pass\n"),),
        truth=(answer("structure", "kept.lerp_(", side="reference"),),
        same=frozenset({"loss", "gradients", "weights"}),
        harmless=None,
    ),
    _more(
        "X23",
        "label smoothing averaged over the micro-batch alone",
        bed=(
            Edit(
                _RETURN,
                "        known = (labels != IGNORED).flatten()\n"
                "        smooth = -F.log_softmax(logits.flatten(0, 1), dim=-1).mean(-1)[known]\n"
                "        return 0.9 * loss / total + 0.1 * smooth.sum() / total\n",
            ),
        ),
        plant=(Edit("0.1 * smooth.sum() / total", "0.1 * smooth.mean()"),),
        truth=(
            answer("structure", "0.1 * smooth.mean()", api="mean"),
            answer("structure", "0.1 * smooth.sum() / total", side="reference", api="sum|div", occurrence="0 1"),
        ),
        differs=frozenset({"loss"}),
    ),
    _more(
        "X24",
        "the hook of one parameter registered twice",
        bed=(
            Edit(
                _LOSSES,
                _LOSSES + "        for name, parameter in self.model.named_parameters():\n"
                "            parameter.register_hook(self.scaled)\n",
            ),
            Edit(
                "    def step(self, number: int) -> None:\n",
                "    @staticmethod\n"
                "    def scaled(gradient: torch.Tensor) -> torch.Tensor:\n"
                "        return gradient * 0.5\n\n"
                "    def step(self, number: int) -> None:\n",
            ),
        ),
        plant=(
            Edit(
                "            parameter.register_hook(self.scaled)\n",
                "            parameter.register_hook(self.scaled)\n"
                '            if name == "blocks.@layer.@which.weight":\n'
                "                parameter.register_hook(self.scaled)\n",
            ),
        ),
        choices={"which": ("attention.q", "feed.up", "norm1", "feed.down")},
        truth=(
            answer("parameter_gradient", parameter="blocks.@layer.@which.weight"),
            answer("structure", "        return gradient * 0.5", occurrence="chained"),
        ),
        same=frozenset({"loss"}),
        differs=frozenset({"weights"}),
    ),
    _more(
        "X27",
        "a hook that draws random numbers",
        plant=(
            Edit(
                _LOSSES,
                _LOSSES
                + "        self.model.blocks[@layer].register_forward_pre_hook(lambda module, given: self.look())\n",
            ),
            Edit(
                "    def step(self, number: int) -> None:\n",
                "    def look(self) -> None:\n        torch.rand(1)\n\n    def step(self, number: int) -> None:\n",
            ),
        ),
        truth=(answer("structure", "        torch.rand(1)", api="rand"),),
        differs=frozenset({"loss"}),
    ),
    _more(
        "X28",
        "resumed without the state of the optimizer",
        bed=(
            Edit(
                "        batches = self.batch(number)\n",
                "        batches = self.batch(number)\n        if number == 1:\n            self.resume()\n",
            ),
            Edit(
                "    def step(self, number: int) -> None:\n",
                "    def resume(self) -> None:\n"
                '        kept = {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}\n'
                "        kept = copy.deepcopy(kept)\n"
                '        self.model.load_state_dict(kept["model"])\n'
                "        self.optimizer = torch.optim.AdamW(self.groups(), lr=1e-3, betas=(0.9, 0.95), eps=1e-8)\n"
                '        self.optimizer.load_state_dict(kept["optimizer"])\n\n'
                "    def step(self, number: int) -> None:\n",
            ),
            Edit("import math\n", "import copy\nimport math\n"),
        ),
        plant=(Edit('        self.optimizer.load_state_dict(kept["optimizer"])\n', ""),),
        truth=(
            answer("optimizer weights data missing_gradient", _STEP, api="Optimizer", step=1),
            answer("structure", 'self.optimizer.load_state_dict(kept["optimizer"])', side="reference", step=1),
        ),
        same=frozenset({"loss", "gradients", "weights"}),
    ),
    _more(
        "X29",
        "resumed with the schedule of the learning rate at its beginning",
        plant=(
            Edit(
                '            group["lr"] = self.rate(number)\n',
                '            group["lr"] = self.rate(number if number < 1 else number - 1)\n',
            ),
        ),
        truth=(answer("optimizer argument", _STEP, api="Optimizer", step=1),),
        same=frozenset({"loss", "gradients", "weights"}),
    ),
    _more(
        "X30",
        "initialisation left out for one module",
        plant=(
            Edit(
                _STATE,
                '        state["blocks.@layer.@which"] = self.model.state_dict()["blocks.@layer.@which"].clone()\n'
                + _STATE,
            ),
        ),
        choices={"which": ("norm1.weight", "feed.up.weight", "norm2.bias", "attention.k.weight")},
        truth=(answer("initial_weights", parameter="blocks.@layer.@which"),),
        differs=frozenset({"gradients"}),
    ),
    _more(
        "X35",
        "mean over padded positions too",
        bed=(
            Edit(
                _RETURN,
                "        kept = logits * padding[..., None]\n"
                "        pooled = kept.sum(dim=1) / padding.sum(dim=1, keepdim=True)\n"
                "        return loss / total + 0.01 * pooled.square().mean()\n",
            ),
        ),
        plant=(Edit("padding.sum(dim=1, keepdim=True)", "padding.shape[1]"),),
        truth=(
            answer("structure", "pooled = kept.sum(dim=1)", side="reference", api="sum", occurrence="1"),
            answer("argument structure", "pooled = kept.sum(dim=1)", api="div"),
        ),
        differs=frozenset({"loss"}),
    ),
    _more(
        "X36",
        "the input of a recomputed block written to",
        bed=_CHECKPOINTED,
        plant=(
            Edit(
                "            x = checkpoint(block, x, mask, use_reentrant=False)\n",
                "            x = checkpoint(block, x, mask, use_reentrant=False)\n"
                "            if block.index == @layer:\n"
                "                before.data.mul_(1.01)\n",
            ),
        ),
        truth=(
            answer("structure mutation", "before.data.mul_(1.01)"),
            answer("recompute mutation", module="blocks.@layer", recompute=True),
        ),
        same=frozenset({"loss"}),
        differs=frozenset({"gradients"}),
    ),
    _more(
        "X38",
        "a loss of (batch, 1) against (batch,)",
        bed=(
            Edit(
                _RETURN,
                "        value = logits.mean(dim=1)[:, :1].squeeze(-1)\n"
                "        wanted = real.sum(dim=1) / 10.0\n"
                "        return loss / total + 0.1 * F.mse_loss(value, wanted)\n",
            ),
        ),
        plant=(Edit("[:, :1].squeeze(-1)", "[:, :1]"),),
        truth=(
            answer("structure", "value = logits.mean(dim=1)", side="reference", api="squeeze"),
            answer("argument data computation", "0.1 * F.mse_loss", api="mse_loss"),
        ),
        differs=frozenset({"loss"}),
    ),
)
