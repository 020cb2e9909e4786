"""The trainer's own operators on what the engine recorded: each result of the engine against theirs, row by row.

Nothing of two runs is paired, so nothing drifts: an operator is judged on the very inputs that the engine gave it. The
truth is the trainer's operator in float64.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from inspect import signature
from typing import Any

import torch

from msprobe.messages import said
from msprobe.rollout.torch import experts
from msprobe.rollout.torch.attention import Attention, cast
from msprobe.rollout.torch.measuring import Container, JudgedModule, JudgedRows, NotKnown, measured
from msprobe.rollout.torch.routing import ExpertChoices
from msprobe.rollout.torch.trainer import Trainer
from msprobe.rollout.torch.widened import InFloat64

#: Modules of more weights are not kept in float64.
_MOST_KEPT = 1 << 20
_ACTIVATIONS = ("act_fn", "act", "activation_fn", "activation")


class Operators:
    """Judges calls in the order of execution: attention needs the keys of earlier ones."""

    def __init__(self, trainer: Trainer, tokens: Mapping[str, Sequence[int]] | None = None) -> None:
        self.trainer = trainer
        self._attention = Attention(trainer, tokens or {})
        self.choices = ExpertChoices(trainer)
        self._wide: dict[int, Any] = {}

    def judge(
        self,
        path: str,
        call: int,
        given: Sequence[Any],
        results: Sequence[Any],
        requests: Sequence[str],
        positions: Any,
    ) -> JudgedModule:
        """Judge one call. ``given`` and ``results``: tensors or None. Raises NotKnown."""
        try:
            return self._judge(path, call, given, results, requests, positions)
        except (TypeError, ValueError, RuntimeError, AttributeError, IndexError) as problem:
            # A module of the trainer that takes other arguments than its counterpart.
            why = (str(problem).splitlines() or [type(problem).__name__])[0][:80]
            raise NotKnown(said("trainer-takes-other-inputs", why)) from problem

    def _judge(
        self,
        path: str,
        call: int,
        given: Sequence[Any],
        results: Sequence[Any],
        requests: Sequence[str],
        positions: Any,
    ) -> JudgedModule:
        name = path.rpartition(".")[2]
        parts = self.trainer.parts(path)
        if name != "experts" and len(parts) == 1 and any(True for _ in parts[0].module.children()):
            raise Container
        tensors = [tensor for tensor in given if tensor is not None]
        self.choices.note(path, results, requests, positions)
        outputs = [result for result in results if result is not None]
        if not tensors or not outputs or not outputs[0].is_floating_point():
            # A module of the engine alone that gives no tensor has nothing that could differ.
            raise NotKnown(said("no-tensors-recorded")) if parts or name == "experts" else Container
        rows = JudgedRows()
        if name == "rotary_emb":
            truth, own = (self._rotary(path, tensors, wide) for wide in (True, False))
        elif name in ("attn", "attention") and len(tensors) in (3, 5):
            tensors = self._turned(path, tensors) if len(tensors) == 5 else tensors
            rows = self._attention.remember(path, tensors, requests, positions)
            keep = rows.keep
            truth, own = (self._attention.of(path, tensors, requests, positions, keep, wide) for wide in (True, False))
        elif name == "experts":
            inputs = [tensors[0], self.choices.logits(path, tensors)]
            rows = experts.judged_rows(experts.router_of(self.trainer, path), inputs[1])
            truth, own = (experts.of(self.trainer, path, inputs, wide) for wide in (self._in_float64, None))
            if experts.adds_shared(outputs[0], truth[0], truth[1]):
                truth, own = truth[1:], own[1:]
        elif name == "logits_processor":
            width = self.trainer.head().weight.shape[1]
            hidden = next(tensor for tensor in reversed(tensors) if tensor.dim() == 2 and tensor.shape[1] == width)
            truth, own = ([self._logits(hidden, wide)] for wide in (True, False))
        else:
            truth, own = (self._plain(path, tensors, outputs, wide) for wide in (True, False))
        kind_of = "norm" if "norm" in name else "activation" if name in _ACTIVATIONS else ""
        return measured(path, call, outputs, truth, own, rows, kind_of)

    # ---- operators

    def _plain(self, path: str, tensors: Sequence[Any], outputs: Sequence[Any], wide: bool) -> list[Any]:
        parts = self.trainer.parts(path)
        if not parts:
            raise NotKnown(said("trainer-lacks-module"))
        first, width = tensors[0], outputs[0].shape[-1]
        if isinstance(parts[0].module, torch.nn.Embedding) and not first.is_floating_point():
            # Some trainers scale inside of the table, engines behind it.
            table = cast(parts[0].module.weight, wide)
            return [torch.nn.functional.embedding(first.long(), table)]
        if len(parts) > 1:
            done = torch.cat([self._ran(part.module, [first], wide) for part in parts], -1)
        elif len(tensors) == 2 and len(outputs) == 2:
            if torch.equal(outputs[1], tensors[1]) and "RMS" not in type(parts[0].module).__name__:
                # A norm that hands a residual on, and leaves it as it is (Cohere).
                return [self._ran(parts[0].module, [first], wide), cast(tensors[1], wide)]
            # A norm that adds the residual first, and hands the sum on.
            total = cast(tensors[0], wide) + cast(tensors[1], wide)
            return [self._ran(parts[0].module, [total], wide), total]
        elif len(tensors) == 1 and 2 * width == first.shape[-1] and _keeps_width(parts[0].module):
            # An activation that is multiplied with the other half.
            done = self._ran(parts[0].module, [first[..., :width]], wide) * cast(first[..., width:], wide)
        else:
            done = self._ran(parts[0].module, [first], wide)
        if done.shape != outputs[0].shape:
            raise NotKnown(said("trainer-result-shape", list(done.shape)))
        return [done]

    def _logits(self, hidden: Any, wide: bool) -> Any:
        """The trainer's logits, with the cap and the scale of its configuration."""
        done = self._ran(self.trainer.head(), [hidden], wide)
        config = self.trainer.model.config
        scaling, scale = getattr(config, "logits_scaling", None), getattr(config, "logit_scale", None)
        done = done / scaling if scaling else done * scale if scale else done
        cap = getattr(config, "final_logit_softcapping", None)
        return torch.tanh(done / cap) * cap if cap else done

    def _ran(self, module: Any, given: Sequence[Any], wide: bool) -> Any:
        if module is None:
            raise NotKnown(said("trainer-lacks-module"))
        if wide:
            module = self._in_float64(module)
        with InFloat64() if wide else nullcontext():
            answer = module(*[cast(tensor, wide) if tensor.is_floating_point() else tensor.long() for tensor in given])
        return answer[0] if isinstance(answer, tuple) else answer

    def _in_float64(self, module: Any) -> Any:
        if id(module) in self._wide:
            return self._wide[id(module)]
        wide = copy.deepcopy(module).double()
        # Kernels that group experts have no float64.
        if getattr(getattr(wide, "config", None), "_experts_implementation", None) is not None:
            wide.config._experts_implementation = "eager"
        # Eight bytes for each weight of a whole model are more than a machine may have.
        if sum(parameter.numel() for parameter in module.parameters()) <= _MOST_KEPT:
            self._wide[id(module)] = wide
        return wide

    def _rotary(self, path: str, tensors: Sequence[Any], wide: bool) -> list[Any]:
        own = self.trainer.module(path)
        if own is not None and len(tensors) == 2:
            # A model's own table of angles, once for all layers.
            angles = own(tensors[0].float() if wide else tensors[0], tensors[1].long()[None])
            return [cast(angle[0], wide) for angle in angles]
        named = next(iter(self.trainer.named("rotary_emb")), None)
        attention = self.trainer.parent_of(path)
        apply = getattr(sys.modules.get(type(attention).__module__), "apply_rotary_pos_emb", None)
        if named is None or apply is None or len(tensors) != 3:
            raise NotKnown(said("rotary-unknown"))
        positions, queries, keys = tensors
        size = attention.head_dim
        # Angles in the trainer's own precision: in float32 as it computes them, applied in float64.
        kind = _layer_type(attention)
        where = {} if kind is None or "layer_type" not in signature(named.module.forward).parameters else kind
        cos, sin = named.module(torch.zeros(1, dtype=torch.float32), positions.long()[None], **where)
        done = []
        for tensor in (queries, keys):
            heads = cast(tensor, wide).reshape(1, tensor.shape[0], -1, size).transpose(1, 2)
            kind = heads.dtype
            turned = _applied(apply, heads, cos.to(kind), sin.to(kind))
            done.append(turned.transpose(1, 2).reshape(tensor.shape))
        return done

    def _turned(self, path: str, tensors: Sequence[Any]) -> list[Any]:
        """(queries, keys, values, cos, sin) of rows -> (queries, keys, values) at their positions."""
        attention = self.trainer.parent_of(path)
        apply = getattr(sys.modules.get(type(attention).__module__), "apply_rotary_pos_emb", None)
        if apply is None:
            raise NotKnown(said("rotary-unknown"))
        heads = [tensor.reshape(1, len(tensor), -1, attention.head_dim).transpose(1, 2) for tensor in tensors[:2]]
        turned = [_applied(apply, head, tensors[3][None], tensors[4][None]) for head in heads]
        return [*(head.transpose(1, 2).reshape(len(tensors[0]), -1) for head in turned), tensors[2]]


def _applied(apply: Any, heads: Any, cos: Any, sin: Any) -> Any:
    """Heads [1, heads, rows, size] turned; of some models only as much of each head as there are angles."""
    size = cos.shape[-1]
    turned, _ = apply(heads[..., :size], heads[..., :size], cos, sin)
    return turned if size == heads.shape[-1] else torch.cat([turned, heads[..., size:]], -1)


def _layer_type(attention: Any) -> dict[str, Any] | None:
    """Which of several rotary embeddings a layer takes, by the configuration of the model."""
    types = getattr(getattr(attention, "config", None), "layer_types", None)
    number = getattr(attention, "layer_idx", None)
    if not isinstance(types, (list, tuple)) or not isinstance(number, int) or number >= len(types):
        return None
    return {"layer_type": types[number]}


def _keeps_width(module: Any) -> bool:
    probe = torch.zeros(1, 4)
    try:
        return bool(module(probe).shape == probe.shape)
    except Exception:
        return False


def settings_that_differ(numbers: Mapping[str, float], module: Any) -> dict[str, tuple[float, float]]:
    """Numbers that a module of the engine and one of the trainer have by one name (or by one meaning), and differ."""
    meanings = (("variance_epsilon", "eps"), ("scaling", "scale"), ("base", "rope_theta"))
    mine = {name: float(value) for name, value in vars(module).items() if type(value) in (int, float)}
    differ = {}
    for names in (*meanings, *((name,) for name in numbers)):
        engine_number = next((numbers[name] for name in names if name in numbers), None)
        other = next((mine[name] for name in names if name in mine), None)
        if engine_number is not None and other is not None and engine_number != other:
            differ[names[0]] = (engine_number, other)
    return differ
