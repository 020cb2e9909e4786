"""``check_api``: one call of a program or a notebook, checked as ``run_ut`` checks those of a dump."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from msprobe.errors import InvalidInputError
from msprobe.messages import Wording, joined, said, translated
from msprobe.precheck.columns import DETAILS_HEADER
from msprobe.precheck.executors import executor_of
from msprobe.precheck.generate import generator_for
from msprobe.precheck.job import Task
from msprobe.precheck.standards import PROFILES
from msprobe.precheck.torch.inputs import Inputs
from msprobe.precheck.torch.machine import run_call
from msprobe.precheck.torch.runner import TorchRunner


@dataclass(frozen=True, repr=False)
class ApiReport:
    """What was found of one call: ``forward`` and ``backward`` (``pass``, ``Warning``, ``error``, ``SKIP`` or blank),
    and a row for each result and gradient, by the columns of the details file. True where nothing is an error; printed,
    it says what is wrong.
    """

    forward: str
    backward: str
    rows: tuple[dict[str, str], ...]

    def __bool__(self) -> bool:
        return "error" not in (self.forward, self.backward)

    def __str__(self) -> str:
        """The statuses, and why of each row that has not passed."""
        statuses = [said("direction-counts", said("direction-forward"), self.forward)]
        statuses += (
            [said("direction-counts", said("direction-backward"), self.backward)] if self.backward.strip() else []
        )
        bad = [row for row in self.rows if row["Status"] not in ("pass", " ", "")]
        lines = [joined(", ", statuses), *(Wording("  {}: {}", row["API Name"], row["Message"].strip()) for row in bad)]
        return "\n".join(map(translated, lines))

    def __repr__(self) -> str:
        return f"<{self}>"  # all rows of a call would fill a notebook


def check_api(
    function: Callable[..., Any],
    *args: Any,
    candidate: str = "auto",
    standard: str = "strict",
    seed: int = 1234,
    **kwargs: Any,
) -> ApiReport:
    """Run ``function(*args, **kwargs)`` on the candidate and in double precision on the CPU, and compare.

    Tensors may be on any device and are not changed; gradients of those that require one are compared as well, for
    random gradients of the results. A module is called with copies of its parameters and buffers, the first argument of
    the rows. ``candidate`` is an executor as of ``msprobe run_ut --candidate``, but for ``recorded`` and ``python:``.
    The random numbers of the program stay what they are. Raises InvalidInputError for what is no function, and for a
    candidate or standard that there is not, and what the function itself raises.
    """
    with torch.random.fork_rng(devices=[]):
        return _report(function, args, kwargs, candidate, standard, seed)


def _report(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    candidate: str,
    standard: str,
    seed: int,
) -> ApiReport:
    if not callable(function):
        raise InvalidInputError(said("check-api-wants-function", function))
    if executor_of(candidate, "candidate").python is not None:
        raise InvalidInputError(said("check-api-runs-here", candidate))
    alone = [name for name, profile in PROFILES.items() if not profile.by_control]
    if standard not in alone:
        raise InvalidInputError(said("check-api-standard", standard, ", ".join(alone)))
    name = getattr(function, "__name__", type(function).__name__).strip("<>")
    key = f"Call.{name}.0"
    if isinstance(function, torch.nn.Module):
        args = ({**dict(function.named_parameters()), **dict(function.named_buffers())}, *args)
        function = _with_parameters(function)

    inputs = Inputs(list(args), dict(kwargs))

    def see(tensor: torch.Tensor, path: str) -> torch.Tensor:
        if tensor.requires_grad:
            inputs.wanted.append(path)
        return tensor.detach().cpu()

    inputs.args, inputs.kwargs = inputs.map(see)
    if inputs.wanted:
        inputs.gradients = _gradients(function, inputs, key, seed)
    runner = TorchRunner(Task("", standard=standard, candidate=candidate, seed=seed), None)
    answer = runner.check(key, name.lower(), function, inputs, bool(inputs.wanted), [])
    rows = tuple(dict(zip(DETAILS_HEADER, row, strict=True)) for row in answer.details)
    return ApiReport(answer.result[1], answer.result[2], rows)


def _with_parameters(module: torch.nn.Module) -> Callable[..., Any]:
    """The module as a function whose first argument are its parameters and buffers by name."""

    def call(parameters: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        return torch.func.functional_call(module, parameters, args, kwargs)

    return call


def _gradients(function: Callable[..., Any], inputs: Inputs, key: str, seed: int) -> list[Any]:
    random = torch.Generator().manual_seed(int(generator_for(key, "gradients", seed).integers(1 << 62)))
    return [
        torch.randn(value.shape, generator=random, dtype=torch.float64).to(value.dtype)
        if isinstance(value, torch.Tensor) and (value.is_floating_point() or value.is_complex())
        else None
        for value in run_call(function, inputs, False).outputs
    ]
