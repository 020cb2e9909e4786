"""MindSpore's answers. A compiled graph (GRAPH_MODE) calls no hooks: there the program says when a step begins."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import mindspore
import numpy as np
import xxhash
from mindspore import nn

from msprobe.capture.mindspore.graphs.execution import in_graph_mode
from msprobe.capture.mindspore.ranks import RANKS
from msprobe.config_check.framework import Remove, TensorFacts, WatchedFunction
from msprobe.config_check.random_calls import digest
from msprobe.errors import InvalidInputError
from msprobe.messages import said

_FUNCTIONS = (
    "rand randn randint randperm uniform normal standard_normal bernoulli multinomial rand_like randn_like".split()
)


class _MindSpore:
    functions = (
        *(WatchedFunction("mindspore.ops", name, f"mindspore.ops.{name}") for name in _FUNCTIONS),
        WatchedFunction("mindspore", "set_seed", "mindspore.set_seed", seeds=True),
        WatchedFunction("mindspore", "manual_seed", "mindspore.manual_seed", seeds=True),
        WatchedFunction("mindspore", "jit", "mindspore.jit", compiles=True, compiles_later=True),
    )

    compilers = ()

    def is_compiling(self) -> bool:
        return False

    def models_of(self, model: Any) -> list[Any]:
        models = list(model) if isinstance(model, (list, tuple)) else [model]
        if not models or not all(isinstance(one_model, nn.Cell) for one_model in models):
            raise InvalidInputError(said("config-check-of-wrong-cell", type(model).__name__))
        return models

    def rank(self) -> int:
        return RANKS.current() or 0

    def watch(
        self, model: Any, before: Callable[[tuple[Any, ...], dict[str, Any]], None], after: Callable[[], None]
    ) -> Remove | None:
        if in_graph_mode():
            return None  # and nothing may be replaced in what is compiled

        def before_pass(_: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            before(args, kwargs)

        def after_pass(_: Any, __: Any, ___: Any) -> None:
            after()

        handles = [
            model.register_forward_pre_hook(before_pass, with_kwargs=True),
            model.register_forward_hook(after_pass),
        ]

        def remove() -> None:
            for handle in handles:
                handle.remove()

        return remove

    def may_compile(self, models: Sequence[Any]) -> bool:
        return False

    def parameters(self, models: Sequence[Any]) -> dict[str, Any]:
        return {
            (f"{number}.{name}" if number else name): parameter
            for number, model in enumerate(models)
            for name, parameter in model.parameters_and_names()
        }

    def is_tensor(self, value: Any) -> bool:
        return isinstance(value, mindspore.Tensor)

    def measure(self, tensors: Sequence[Any]) -> list[TensorFacts | None]:
        return [_measured(tensor) for tensor in tensors]

    def generator_states(self) -> dict[str, str]:
        states = {"mindspore.seed": str(mindspore.get_seed())}
        state = getattr(mindspore, "get_rng_state", None)
        if state is not None and not in_graph_mode():
            states["mindspore"] = digest(state().asnumpy().tobytes())
        return states

    def dropout(self, models: Sequence[Any]) -> dict[str, dict[str, Any]]:
        dropouts = {}
        for name, cell in _cells(models):
            p = vars(cell).get("p", 1 - vars(cell)["keep_prob"] if "keep_prob" in vars(cell) else None)
            if "dropout" in type(cell).__name__.lower() and isinstance(p, (int, float)):
                dropouts[name] = {"p": float(p), "training": bool(cell.training)}
        return dropouts


def _cells(models: Sequence[Any]) -> Iterable[tuple[str, Any]]:
    for number, model in enumerate(models):
        for name, cell in model.cells_and_names():
            yield (f"{number}.{name}" if number else name), cell


def _measured(tensor: Any) -> TensorFacts | None:
    try:
        # numpy has no bfloat16; as float32 its elements are the same.
        is_known = tensor.dtype not in (getattr(mindspore, "bfloat16", None),)
        values = (tensor if is_known else tensor.astype(mindspore.float32)).asnumpy()
        raw = np.ascontiguousarray(values)
    except (RuntimeError, TypeError, ValueError):
        return None
    wide = (raw.view(raw.real.dtype) if np.iscomplexobj(raw) else raw).astype(np.float32).reshape(-1)
    digest = f"xxh3:{xxhash.xxh3_64_hexdigest(raw.tobytes())}"
    if not wide.size:
        return TensorFacts(dict.fromkeys(("max", "min", "mean", "norm")), digest)
    with np.errstate(all="ignore"):
        numbers = (wide.max(), wide.min(), wide.mean(), np.linalg.norm(wide))
    return TensorFacts(dict(zip(("max", "min", "mean", "norm"), map(float, numbers), strict=True)), digest)


FRAMEWORK = _MindSpore()
