"""Bugs of several ranks."""

from __future__ import annotations

from bugs.planting import Edit, Pattern, answer

_DATA = Edit('layout: str = "one"', 'layout: str = "data"')
_TENSOR = Edit('layout: str = "one"', 'layout: str = "tensor"')
_SEQUENCE = Edit('layout: str = "one"', 'layout: str = "sequence"')
_REDUCED = "                dist.all_reduce(parameter.grad)"
_STEP = "        self.optimizer.step()"
#: Each collective runs on a link; a link can lose what it carries, and no call shows it.
_LINK = (
    Edit(
        _REDUCED,
        "                with Link(self.ranks.rank, name):\n                    dist.all_reduce(parameter.grad)",
    ),
    Edit(
        "class Norm(nn.Module):",
        "class Link(TorchDispatchMode):\n"
        '    """What carries the data between ranks."""\n\n'
        '    FAULT = (-1, "", 0)\n\n'
        "    def __init__(self, rank: int, name: str) -> None:\n"
        "        super().__init__()\n"
        "        self.rank, self.name = rank, name\n\n"
        "    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:\n"
        "        result = func(*args, **(kwargs or {}))\n"
        '        if "allreduce" in str(func) and self.FAULT[:2] == (self.rank, self.name):\n'
        "            torch.distributed.distributed_c10d.Work.unbox(result[1]).wait()\n"
        "            received = args[0][0]\n"
        "            count = min(self.FAULT[2], received.numel())\n"
        "            ctypes.memset(received.data_ptr(), 0, 4 * count)\n"
        "        return result\n\n\n"
        "class Norm(nn.Module):",
    ),
    Edit("import math\n", "import ctypes\nimport math\n"),
    Edit(
        "from torch import nn\n", "from torch import nn\nfrom torch.utils._python_dispatch import TorchDispatchMode\n"
    ),
)


def _ranks(name: str, title: str, layout: Edit, **more: object) -> Pattern:
    bed = (layout, *more.pop("bed", ()))  # type: ignore[misc]
    return Pattern(name, title, "distributed", bed=bed, program="ranks", world=2, **more)  # type: ignore[arg-type]


PATTERNS = (
    _ranks(
        "D01",
        "gradients of norms not summed in sequence parallel",
        _SEQUENCE,
        plant=(Edit("divided_along(name) is None)\n", 'divided_along(name) is None and "norm" not in name)\n'),),
        truth=(
            answer("structure", _REDUCED, side="reference"),
            answer("replica parameter_gradient", parameter=r"(blocks\.\d+\.)?norm\.(weight|bias)"),
        ),
        same=frozenset({"loss"}),
        differs=frozenset({"gradients", "weights"}),
    ),
    _ranks(
        "D02",
        "gradients not summed when a tensor enters the parallel region",
        _TENSOR,
        plant=(
            Edit(
                "        gradient = gradient.contiguous()\n        dist.all_reduce(gradient)\n        return "
                "gradient\n",
                "        return gradient.contiguous()\n",
            ),
        ),
        truth=(
            answer("structure", "        dist.all_reduce(gradient)", side="reference"),
            answer("gradient collective replica", api="CopyToRanks", direction="backward"),
        ),
        same=frozenset({"loss"}),
        differs=frozenset({"gradients", "weights"}),
    ),
    _ranks(
        "D03",
        "mean of the ranks' means with unequal numbers of tokens",
        _DATA,
        plant=(Edit("        loss = loss / count\n", "        loss = loss / (real.sum() * self.ranks.world)\n"),),
        truth=(answer("structure argument data computation", "loss = loss / (real.sum()"),),
        differs=frozenset({"loss", "gradients", "weights"}),
    ),
    _ranks(
        "D03L",
        "number of tokens not summed over ranks",
        _DATA,
        plant=(
            Edit(
                "            dist.all_reduce(count)\n        self.optimizer",
                "            count = count * self.ranks.world\n        self.optimizer",
            ),
        ),
        truth=(
            answer("structure", "            count = count * self.ranks.world"),
            answer("structure", "            dist.all_reduce(count)", side="reference"),
        ),
        differs=frozenset({"loss", "gradients", "weights"}),
    ),
    _ranks(
        "D04",
        "gradients not reduced in data parallel",
        _DATA,
        plant=(Edit("        self.reduce_gradients()\n", ""),),
        truth=(
            answer("structure", _REDUCED, side="reference"),
            answer("replica parameter_gradient", parameter=r"[\w.]+\.(weight|bias)"),
        ),
        same=frozenset({"loss"}),
        differs=frozenset({"gradients", "weights"}),
    ),
    _ranks(
        "D04W",
        "the wrapper that reduces gradients bypassed",
        _DATA,
        bed=(
            Edit("        logits = self.model(tokens[:, :-1])\n", "        logits = self.parallel(tokens[:, :-1])\n"),
            Edit("        loss = loss / count\n", "        loss = loss * self.ranks.world / count\n"),
            Edit("        self.reduce_gradients()\n", ""),
            Edit(
                "        self.losses: list[float] = []\n",
                "        self.losses: list[float] = []\n        self.parallel = DistributedDataParallel(self.model)\n",
            ),
            Edit(
                "from torch import nn\n",
                "from torch import nn\nfrom torch.nn.parallel import DistributedDataParallel\n",
            ),
        ),
        plant=(
            Edit(
                "        logits = self.parallel(tokens[:, :-1])\n",
                "        logits = self.parallel.module(tokens[:, :-1])\n",
            ),
        ),
        truth=(
            answer("structure collective parameter_gradient replica", "squares = squares + parameter.grad.square()"),
            answer("parameter_gradient replica optimizer collective", _STEP, api="Optimizer"),
        ),
        same=frozenset({"loss"}),
        differs=frozenset({"gradients", "weights"}),
        # In bfloat16 the model is cast after it was wrapped: neither side averages its gradients.
        precisions=("float32", "autocast"),
    ),
    _ranks(
        "D05",
        "one parameter left out of the reduction",
        _DATA,
        plant=(
            Edit(
                "            partial = self.ranks.data or",
                '            partial = (self.ranks.data and name != "@which") or',
            ),
        ),
        choices={"which": ("blocks.0.down.bias", "norm.weight", "head.weight", "blocks.0.up.weight")},
        truth=(
            answer("structure", _REDUCED, side="reference", occurrence="@place"),
            answer("replica parameter_gradient", parameter="@which"),
        ),
        same=frozenset({"loss"}),
        differs=frozenset({"gradients", "weights"}),
    ),
    _ranks(
        "D06",
        "data lost by a collective on one rank",
        _DATA,
        bed=_LINK,
        plant=(Edit('FAULT = (-1, "", 0)', 'FAULT = (@rank, "@which", @count)'),),
        choices={
            "which": ("blocks.0.down.weight", "norm.weight", "head.weight", "blocks.0.up.weight"),
            "count": ("100", "8", "3"),
        },
        truth=(
            answer("collective replica", "    dist.all_reduce(parameter.grad)", occurrence="@place", ranks="@rank"),
        ),
        same=frozenset({"loss"}),
        differs=frozenset({"gradients", "weights"}),
        precisions=("float32", "autocast"),
    ),
    _ranks(
        "D07",
        "initial weights not broadcast",
        _DATA,
        plant=(
            Edit(
                "            full = torch.randn(shape, generator=generator)\n",
                "            full = torch.randn(shape, generator=generator)\n"
                '            if ranks.rank == 1 and name == "@which":\n'
                "                full = torch.randn(shape, generator=torch.Generator().manual_seed(seed + 5))\n",
            ),
        ),
        choices={"which": ("head.weight", "blocks.0.up.weight", "blocks.0.down.weight", "embedding.weight")},
        truth=(
            answer("initial_weights replica", parameter="@which"),
            answer("initial_weights replica", module="@owner", api=r"linear|embedding|Module\.@owner", ranks="1"),
        ),
        differs=frozenset({"loss", "gradients", "weights"}),
    ),
    _ranks(
        "D08",
        "tokens of other ranks not masked in the divided embedding",
        _TENSOR,
        plant=(Edit("        x = x.masked_fill(foreign[..., None], 0.0)\n", ""),),
        truth=(answer("structure", "        x = x.masked_fill(foreign[..., None], 0.0)", side="reference"),),
        differs=frozenset({"loss", "gradients", "weights"}),
    ),
    _ranks(
        "D09",
        "bias added before the sum over ranks",
        _TENSOR,
        plant=(
            Edit(
                "        x = F.linear(x, self.weight)\n        x = out_of_region(x, self.ranks)\n        "
                "return x + self.bias\n",
                "        x = F.linear(x, self.weight, self.bias)\n        return out_of_region(x, self.ranks)\n",
            ),
        ),
        truth=(
            answer("argument structure computation", "x = F.linear(x, self.weight, self.bias)", module="blocks.0.down"),
            answer("structure", "return x + self.bias", module="blocks.0.down", side="reference"),
        ),
        differs=frozenset({"loss", "gradients", "weights"}),
    ),
    _ranks(
        "D10",
        "another dropout seed on each rank of a replicated tensor",
        _TENSOR,
        settings={"dropout": 0.1},
        plant=(Edit("100 * self.ranks.data * self.ranks.rank", "100 * self.ranks.rank"),),
        truth=(answer("computation replica", "return x + F.dropout", module="blocks.0", api="dropout", ranks="1"),),
        differs=frozenset({"loss", "gradients", "weights"}),
    ),
    _ranks(
        "D11",
        "gradients clipped by the norm of one rank",
        _TENSOR,
        plant=(Edit("        if self.ranks.model_parallel:\n            dist.all_reduce(squares)\n", ""),),
        truth=(answer("structure", "            dist.all_reduce(squares)", side="reference"),),
        same=frozenset({"loss"}),
        differs=frozenset({"weights"}),
    ),
    _ranks(
        "D12",
        "replicated parameters counted by each rank in the norm",
        _TENSOR,
        plant=(
            Edit(
                "copies = self.ranks.world if self.ranks.model_parallel and divided_along(name) is None else 1",
                "copies = 1",
            ),
        ),
        truth=(answer("argument", "parameter.grad.square().sum() / copies", api="div", occurrence="1"),),
        same=frozenset({"loss"}),
        differs=frozenset({"weights"}),
    ),
    _ranks(
        "D13",
        "parts of the sequence gathered in reverse order",
        _SEQUENCE,
        plant=(Edit("    return torch.cat(parts, dim=1)\n", "    return torch.cat(parts[::-1], dim=1)\n"),),
        truth=(answer("argument computation", "    return torch.cat(parts", api="cat"),),
        differs=frozenset({"loss", "gradients", "weights"}),
    ),
)
