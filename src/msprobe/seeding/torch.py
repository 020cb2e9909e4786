"""``seed_all``: the same random numbers in every run, and on request no randomness at all."""

from __future__ import annotations

import functools
import os
import random
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from msprobe.seeding import check, report, seed_python

# function -> the position of its probability, and its name as a keyword
_FUNCTIONAL_DROPOUTS = {
    "dropout": (1, "p"),
    "dropout1d": (1, "p"),
    "dropout2d": (1, "p"),
    "dropout3d": (1, "p"),
    "alpha_dropout": (1, "p"),
    "feature_alpha_dropout": (1, "p"),
    "scaled_dot_product_attention": (4, "dropout_p"),
}
_TORCH_DROPOUTS = {
    name: (1, "p")
    for stem in ("dropout", "alpha_dropout", "feature_dropout", "feature_alpha_dropout")
    for name in (stem, f"{stem}_")
}


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split())


_RANDOM_FUNCTIONS = _names(
    """
    bernoulli binomial multinomial normal poisson rand rand_like randint randint_like randn
    randn_like randperm
    """
)
_RANDOM_METHODS = _names(
    """
    bernoulli bernoulli_ cauchy_ exponential_ geometric_ log_normal_ multinomial normal_ random_
    uniform_
    """
)
_PYTHON_FUNCTIONS = _names(
    """
    betavariate choice choices expovariate gammavariate gauss getrandbits lognormvariate
    normalvariate paretovariate randbytes randint random randrange sample shuffle triangular uniform
    vonmisesvariate weibullvariate
    """
)
_NUMPY_FUNCTIONS = _names(
    """
    beta binomial bytes chisquare choice dirichlet exponential f gamma geometric gumbel
    hypergeometric laplace logistic lognormal logseries multinomial multivariate_normal
    negative_binomial noncentral_chisquare noncentral_f normal pareto permutation poisson power rand
    randint randn random random_integers random_sample ranf rayleigh sample shuffle standard_cauchy
    standard_exponential standard_gamma standard_normal standard_t triangular uniform vonmises wald
    weibull zipf
    """
)

_MISSING = object()


def seed_all(seed: int = 1234, mode: bool = False, rm_dropout: bool = True, is_enhanced: bool = False) -> None:
    """Seed every generator, so that two runs can be compared.

    Seeds ``random``, numpy's global generator and torch on all devices, and sets ``PYTHONHASHSEED`` (for
    processes started from here on).

    ``mode``: deterministic algorithms (``torch.use_deterministic_algorithms``, ``HCCL_DETERMINISTIC``; on
    CUDA also the cuBLAS workspace and cuDNN switches).

    ``rm_dropout``: dropout becomes the identity everywhere: the functions of ``torch.nn.functional`` and of
    ``torch``, the modules that call them, and the dropout inside ``scaled_dot_product_attention``. **This
    changes the training, on purpose.** It is the default, as in mindstudio-probe 8.1.1; in 26.2 the default is
    False: say which one you mean where both are in use. Names that were imported from those modules earlier, and
    the dropout between the layers of ``nn.LSTM`` and its kin, are not reached.

    ``is_enhanced``: each call for random numbers seeds its generator first, so that it gives the same
    numbers whatever was drawn before. This changes the training even more. Generators that the caller
    passes or owns stay as they are.

    The last call counts: with ``rm_dropout=False`` or ``is_enhanced=False`` an earlier change is undone.

    Raises InvalidInputError if ``seed`` is not an int from 0 to 2**32 - 1 or one of the others is not a
    bool.
    """
    check(seed, mode=mode, rm_dropout=rm_dropout, is_enhanced=is_enhanced)
    _enhanced.restore()
    seed_python(seed, mode)
    torch.manual_seed(seed)
    if torch.cuda.is_available():
        torch.cuda.manual_seed_all(seed)
        torch.backends.cudnn.deterministic = True
        torch.backends.cudnn.benchmark = False
        os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    npu = getattr(torch, "npu", None) if "torch_npu" in sys.modules else None
    if npu is not None and npu.is_available():
        npu.manual_seed_all(seed)
    torch.use_deterministic_algorithms(mode)
    _dropouts.restore()
    if rm_dropout:
        _remove_dropouts()
    if is_enhanced:
        _enhance(seed)
    report("seeded", seed, mode, rm_dropout)


class _Replacements:
    """Attributes that stay replaced until they are restored."""

    def __init__(self) -> None:
        self._replaced: list[tuple[Any, str, Any]] = []

    def put(self, holder: Any, name: str, make: Callable[[Any], Any]) -> None:
        """Replace ``holder.name`` by ``make(original)``, if there is such a name."""
        original = getattr(holder, name, None)
        if original is None:
            return
        own = vars(holder).get(name, _MISSING)
        try:
            setattr(holder, name, make(original))
        except (AttributeError, TypeError):
            return
        self._replaced.append((holder, name, own))

    def restore(self) -> None:
        """Put everything back."""
        while self._replaced:
            holder, name, own = self._replaced.pop()
            if own is _MISSING:
                delattr(holder, name)
            else:
                setattr(holder, name, own)


_dropouts = _Replacements()
_enhanced = _Replacements()


def _remove_dropouts() -> None:
    for holder, names in ((functional, _FUNCTIONAL_DROPOUTS), (torch, _TORCH_DROPOUTS)):
        for name, (position, keyword) in names.items():
            _dropouts.put(holder, name, functools.partial(_without_dropout, position=position, keyword=keyword))


def _without_dropout(original: Callable[..., Any], position: int, keyword: str) -> Callable[..., Any]:
    """``original`` with probability zero, whatever the caller asks for."""

    @functools.wraps(original)
    def replacement(*args: Any, **kwargs: Any) -> Any:
        if len(args) > position:
            return original(*args[:position], 0.0, *args[position + 1 :], **kwargs)
        return original(*args, **{**kwargs, keyword: 0.0})

    return replacement


def _enhance(seed: int) -> None:
    def seeded(start_again: Callable[[], Any]) -> Callable[[Any], Any]:
        def make(original: Callable[..., Any]) -> Callable[..., Any]:
            @functools.wraps(original)
            def replacement(*args: Any, **kwargs: Any) -> Any:
                if kwargs.get("generator") is None:
                    start_again()
                return original(*args, **kwargs)

            return replacement

        return make

    torch_seed = seeded(functools.partial(torch.manual_seed, seed))
    for name in _RANDOM_FUNCTIONS:
        _enhanced.put(torch, name, torch_seed)
    for name in _RANDOM_METHODS:
        _enhanced.put(torch.Tensor, name, torch_seed)
    for holder, names in ((functional, _FUNCTIONAL_DROPOUTS), (torch, _TORCH_DROPOUTS)):
        for name in names:
            _enhanced.put(holder, name, torch_seed)
    for name in _PYTHON_FUNCTIONS:
        _enhanced.put(random, name, seeded(functools.partial(random.seed, seed)))
    for name in _NUMPY_FUNCTIONS:
        _enhanced.put(np.random, name, seeded(functools.partial(np.random.seed, seed)))
