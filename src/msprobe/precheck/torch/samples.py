"""PyTorch's own samples of each operator (OpInfo), as calls to be checked: no dump is needed.

They are in a private module of torch, ``torch.testing._internal.common_methods_invocations``, tried with torch 2.13.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import sys
import types
import unittest
import warnings
from collections.abc import Iterator
from typing import Any

import torch

from msprobe.capture.torch import private
from msprobe.errors import NotAvailableError
from msprobe.foreign.nearest import near_words
from msprobe.messages import said
from msprobe.precheck.generate import generator_for
from msprobe.precheck.job import Answer, Task, skipped
from msprobe.precheck.overflow import raised_text
from msprobe.precheck.sample_check import LIST
from msprobe.precheck.side.types import dtype_of
from msprobe.precheck.side.words import DTYPES
from msprobe.precheck.torch.inputs import Inputs
from msprobe.precheck.torch.machine import run_call
from msprobe.precheck.torch.runner import TorchRunner
from msprobe.precheck.torch.simple_samples import simple_operators

# Give memory that nobody has written, or have nothing to compare.
_LEFT_OUT = frozenset(
    """empty empty_like empty_permuted empty_strided new_empty new_empty_strided to_sparse item
    nn.functional.rrelu""".split()
)


def runner(task: Task) -> SampleRunner:
    """What a worker asks for. ``task.dump``: names of operators, types and the most samples of each, with colons."""
    torch.set_num_threads(1)  # workers share the machine
    names, types_, most = task.dump.split(":")
    return SampleRunner(task, names.split(",") if names else [], types_.split(","), int(most))


class SampleRunner:
    """Runs samples of operators. A name is ``Sample.OPERATOR_TYPE.NUMBER``."""

    def __init__(self, task: Task, names: list[str], dtypes: list[str], most: int) -> None:
        self._runner = TorchRunner(task, None)
        self._task = task
        self._most = most
        self._dtypes = [dtype_of(DTYPES[name]) for name in dtypes]
        known, self._warning = _operators_here()
        self._operators = _chosen(known, names)
        self._are_named = bool(names)
        self._held: tuple[str, list[Any]] = ("", [])

    def run(self, key: str) -> Answer:
        """Check one sample, or list the names of all, with a warning as the only cell of the result."""
        if key == LIST:
            names = list(self._names())
            return Answer("", [self._warning, *self._without_samples(names)], notes=names)
        group, _, number = key.removeprefix("Sample.").rpartition(".")
        operator, dtype = self._operators_by_group()[group]
        try:
            if self._held[0] != group:
                self._held = (group, self._samples(operator, dtype, group))
            sample = self._held[1][int(number)]
            inputs = _inputs_of(sample)
            backward = self._add_gradients(operator, inputs, key)
            return self._runner.check(key, operator.name, operator.op, inputs, backward, [])
        except Exception as problem:
            return skipped(key, raised_text(problem), False, self._task.decimals, self._runner.further)

    def _operators_by_group(self) -> dict[str, tuple[Any, torch.dtype]]:
        return {
            _group(operator, dtype): (operator, dtype)
            for operator in self._operators
            for dtype in self._dtypes
            if dtype in operator.supported_dtypes("cpu")
        }

    def _names(self) -> Iterator[str]:
        for group, (operator, dtype) in self._operators_by_group().items():
            try:
                count = len(self._samples(operator, dtype, group))
            except Exception:  # an operator that this build of torch lacks
                count = 0
            for number in range(count):
                yield f"Sample.{group}.{number}"

    def _without_samples(self, names: list[str]) -> list[str]:
        """The operators that were asked for by name, with a type of which there is no sample of theirs."""
        if not self._are_named:
            return []
        there = {name.removeprefix("Sample.").rpartition(".")[0] for name in names}
        every = (_group(operator, dtype) for operator in self._operators for dtype in self._dtypes)
        return [group for group in every if group not in there]

    def _samples(self, operator: Any, dtype: torch.dtype, group: str) -> list[Any]:
        torch.manual_seed(int(generator_for(group, "samples", self._task.seed).integers(1 << 31)))
        grad = bool(operator.supports_autograd and dtype in operator.supported_backward_dtypes("cpu"))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            samples = []
            for sample in operator.sample_inputs("cpu", dtype, requires_grad=grad):
                samples.append(sample)
                if len(samples) >= self._most:
                    break
        return samples

    def _add_gradients(self, operator: Any, inputs: Inputs, key: str) -> bool:
        """Gradients for the results; False where there is no backward."""
        if not inputs.wanted:
            return False
        try:
            outputs = run_call(operator.op, inputs, False).outputs
        except RuntimeError:
            return False
        random = torch.Generator().manual_seed(int(generator_for(key, "gradients", self._task.seed).integers(1 << 62)))
        inputs.gradients = [
            torch.randn(output.shape, generator=random, dtype=torch.float64).to(output.dtype)
            if isinstance(output, torch.Tensor) and (output.is_floating_point() or output.is_complex())
            else None
            for output in outputs
        ]
        return any(gradient is not None for gradient in inputs.gradients)


def _operators_here() -> tuple[list[Any], str]:
    """The operators that have samples, and a warning where these are not those of torch; else an empty one."""
    try:
        return operators(), ""
    except NotAvailableError as problem:
        return simple_operators(), said("simple-samples-instead", problem.message)


def operators() -> list[Any]:
    """All operators that have samples of torch's own. Raises NotAvailableError."""
    with _stand_in_for_expecttest(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            module: Any = importlib.import_module(private.SAMPLES_MODULE)
            known: list[Any] = [operator for operator in module.op_db if operator.name not in _LEFT_OUT]
        except (ImportError, AttributeError) as problem:  # a private module: it may be missing, or have changed
            raise NotAvailableError(said("samples-missing", torch.__version__, problem)) from None
    return known


@contextlib.contextmanager
def _stand_in_for_expecttest() -> Iterator[None]:
    """torch's samples import a base class of tests from a package that torch does not bring; nothing uses it."""
    if importlib.util.find_spec("expecttest") is not None:
        yield
        return
    module: Any = types.ModuleType("expecttest")
    module.TestCase = unittest.TestCase
    module.assert_expected_inline = None
    sys.modules["expecttest"] = module
    try:
        yield
    finally:
        del sys.modules["expecttest"]


def _chosen(operators_known: list[Any], names: list[str]) -> list[Any]:
    if not names:
        return operators_known
    chosen = [operator for operator in operators_known if any(_is_called(operator, name) for name in names)]
    missing = [name for name in names if not any(_is_called(operator, name) for operator in operators_known)]
    if missing:
        known = sorted({operator.name.rpartition(".")[2] for operator in operators_known})
        near = [close for name in missing for close in near_words(name, known, 3)]
        hint = said("near-samples", ", ".join(dict.fromkeys(near))) if near else ""
        raise NotAvailableError(said("samples-of-operator-missing", torch.__version__, ", ".join(missing), hint))
    return chosen


def _is_called(operator: Any, name: str) -> bool:
    own = (operator.name, operator.name.rpartition(".")[2], operator.formatted_name)
    return name in (*own, *(alias.name for alias in operator.aliases))


def _group(operator: Any, dtype: torch.dtype) -> str:
    return f"{operator.formatted_name}_{str(dtype).removeprefix('torch.')}"


def _inputs_of(sample: Any) -> Inputs:
    inputs = Inputs([sample.input, *sample.args], dict(sample.kwargs))

    def see(tensor: torch.Tensor, path: str) -> torch.Tensor:
        if tensor.requires_grad:
            inputs.wanted.append(path)
        return tensor.detach()

    inputs.args, inputs.kwargs = inputs.map(see)
    return inputs
