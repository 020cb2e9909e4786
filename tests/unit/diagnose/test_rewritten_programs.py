"""A training written in a second form, which computes the same, and mistakes as users make them around a step.

Each pair is one small decoder, in float32 and wholly in bfloat16: three steps recorded on each side.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from unit.diagnose.real_pairs import Training, compare_trainings

from msprobe.diagnose.findings import Verdict

VOCABULARY, WIDTH, LENGTH, BATCH = 24, 16, 6, 4
PRECISIONS = (torch.float32, torch.bfloat16)


class Decoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)
        self.attention = nn.Linear(WIDTH, 3 * WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        query, key, value = self.attention(self.norm(x)).chunk(3, -1)
        x = x + F.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.head(x + self.down(F.gelu(self.up(self.norm(x)))))  # type: ignore[no-any-return]


def batch(number: int) -> Tensor:
    return torch.randint(0, VOCABULARY, (BATCH, LENGTH + 1), generator=torch.Generator().manual_seed(100 + number))


def usual_loss(scores: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(scores.flatten(0, 1).float(), labels.flatten())


class Trained:
    """A training as most are. Those below change one of its parts."""

    model: nn.Module

    def __init__(self, dtype: torch.dtype) -> None:
        self.model = Decoder().to(dtype)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), 1e-3)

    def backward(self, number: int) -> None:
        tokens = batch(number)
        self.optimizer.zero_grad()
        self.loss(self.model(tokens[:, :-1]), tokens[:, 1:]).backward()

    def step(self, number: int) -> None:
        self.backward(number)
        self.optimizer.step()

    def loss(self, scores: Tensor, labels: Tensor) -> Tensor:
        return usual_loss(scores, labels)


def with_loss(loss: Callable[[Tensor, Tensor], Tensor]) -> type[Trained]:
    return type("WithLoss", (Trained,), {"loss": staticmethod(loss)})


def kept(labels: Tensor) -> Tensor:
    """The labels that count where some do not."""
    return labels % 3 != 0


class Sorted(Trained):
    """The sequences of a batch stand in another order."""

    def backward(self, number: int) -> None:
        tokens = batch(number)[[2, 0, 3, 1]]
        self.optimizer.zero_grad()
        self.loss(self.model(tokens[:, :-1]), tokens[:, 1:]).backward()


def in_micro_batches(count: int) -> type[Trained]:
    class InMicroBatches(Trained):
        def backward(self, number: int) -> None:
            self.optimizer.zero_grad()
            for tokens in batch(number).chunk(count):
                (self.loss(self.model(tokens[:, :-1]), tokens[:, 1:]) / count).backward()

    return InMicroBatches


class Heads(nn.Linear):
    """In the place of the attention's linear layer: what it gives is moved into two heads and back."""

    back = True

    def forward(self, x: Tensor) -> Tensor:
        y = super().forward(x)
        heads = y.view(*y.shape[:2], 2, -1).transpose(1, 2) * 2
        return (heads.transpose(1, 2) if self.back else heads).reshape(y.shape)


class MixedHeads(Heads):
    back = False


def with_heads(kind: type[Heads]) -> type[Trained]:
    class WithHeads(Trained):
        def __init__(self, dtype: torch.dtype) -> None:
            super().__init__(dtype)
            self.model.attention.__class__ = kind  # type: ignore[assignment]

    return WithHeads


class Adversaries(Trained):
    """A network whose results a second one tells from data. ``cut``: no gradient of that reaches the first."""

    cut, clears = True, True

    def __init__(self, dtype: torch.dtype) -> None:
        self.model = nn.ModuleDict({"makes": nn.Linear(4, 8), "judges": nn.Linear(8, 1)}).to(dtype)
        self.dtype = dtype
        self.optimizers = [torch.optim.Adam(part.parameters(), 1e-3) for part in self.model.values()]

    def step(self, number: int) -> None:
        generator = torch.Generator().manual_seed(number)
        noise, data = (torch.randn(16, size, generator=generator).to(self.dtype) for size in (4, 8))
        makes, judges = self.model["makes"], self.model["judges"]  # type: ignore[index]
        made = makes(noise)
        self.optimizers[1].zero_grad()
        (F.softplus(-judges(data)) + F.softplus(judges(made.detach() if self.cut else made))).mean().backward()
        self.optimizers[1].step()
        if self.clears:
            self.optimizers[0].zero_grad()
        F.softplus(-judges(makes(noise))).mean().backward()
        self.optimizers[0].step()
        self.optimizers[0].zero_grad()


class Uncut(Adversaries):
    cut = False


class UncutAndKept(Uncut):
    clears = False


class Following(Trained):
    """With a second network whose weights are averages of those that are trained."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__(dtype)
        self.average = copy.deepcopy(self.model).requires_grad_(False)

    def step(self, number: int) -> None:
        super().step(number)
        self.follow()

    @torch.no_grad()
    def follow(self) -> None:
        for average, weight in zip(self.average.parameters(), self.model.parameters(), strict=True):
            average.mul_(0.9).add_(weight, alpha=0.1)


class FollowingByLerp(Following):
    @torch.no_grad()
    def follow(self) -> None:
        for average, weight in zip(self.average.parameters(), self.model.parameters(), strict=True):
            average.lerp_(weight, 0.1)


class FollowingTooEarly(Following):
    def step(self, number: int) -> None:
        self.backward(number)
        self.follow()
        self.optimizer.step()


class Clipped(Trained):
    def step(self, number: int) -> None:
        self.backward(number)
        nn.utils.clip_grad_norm_(self.model.parameters(), 0.1)
        self.optimizer.step()


class ClippedTooLate(Trained):
    def step(self, number: int) -> None:
        super().step(number)
        nn.utils.clip_grad_norm_(self.model.parameters(), 0.1)


class Renewed(Trained):
    """One parameter is written by a copy after each step."""

    @torch.no_grad()
    def step(self, number: int) -> None:
        with torch.enable_grad():
            super().step(number)
        weight = self.model.embedding.weight  # type: ignore[union-attr]
        weight.copy_(F.normalize(weight, dim=-1) * 3)  # type: ignore[arg-type,operator]


class Restored(Trained):
    """One parameter is what it was at the beginning after each step, by a copy of what is kept."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__(dtype)
        self.kept = self.model.embedding.weight.detach().clone()  # type: ignore[union-attr,operator]

    @torch.no_grad()
    def step(self, number: int) -> None:
        with torch.enable_grad():
            super().step(number)
        self.model.embedding.weight.copy_(self.kept)  # type: ignore[union-attr,operator]


class OneHot(Trained):
    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__(dtype)
        embedding: Any = self.model.embedding
        embedding.forward = lambda tokens: F.one_hot(tokens, VOCABULARY).to(dtype) @ embedding.weight


def by_sequence(scores: Tensor, labels: Tensor) -> Tensor:
    return sum(F.cross_entropy(scores[i].float(), labels[i]) for i in range(BATCH)) / BATCH  # type: ignore[return-value]


def by_token(scores: Tensor, labels: Tensor) -> Tensor:
    return torch.stack([F.cross_entropy(scores[:, i].float(), labels[:, i]) for i in range(LENGTH)]).mean()


def picked(scores: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(scores.flatten(0, 1).float()[kept(labels).flatten()], labels[kept(labels)])


def ignored(scores: Tensor, labels: Tensor) -> Tensor:
    return usual_loss(scores, labels.masked_fill(~kept(labels), -100))


def chosen(scores: Tensor, labels: Tensor) -> Tensor:
    return usual_loss(scores, torch.where(kept(labels), labels, torch.full_like(labels, -100)))


def selected(scores: Tensor, labels: Tensor) -> Tensor:
    every = F.cross_entropy(scores.flatten(0, 1).float(), labels.flatten(), reduction="none")
    return every.masked_select(kept(labels).flatten()).mean()


def weighted(scores: Tensor, labels: Tensor) -> Tensor:
    every = F.cross_entropy(scores.flatten(0, 1).float(), labels.flatten(), reduction="none")
    return (every * kept(labels).flatten()).sum() / kept(labels).sum()


def gathered(scores: Tensor, labels: Tensor) -> Tensor:
    scores = scores.float()
    return (scores.logsumexp(-1) - scores.gather(-1, labels[..., None])[..., 0]).mean()


def summed(scores: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(scores.flatten(0, 1).float(), labels.flatten(), reduction="sum") / labels.numel()


class Scaled(Trained):
    """The loss is multiplied, and gradients are divided by as much before they are clipped and used."""

    factor, divides, largest = 1024.0, True, math.inf

    def loss(self, scores: Tensor, labels: Tensor) -> Tensor:
        return usual_loss(scores, labels) * self.factor

    def step(self, number: int) -> None:
        self.backward(number)
        parameters = list(self.model.parameters())
        for parameter in parameters if self.divides else ():
            assert parameter.grad is not None
            parameter.grad.div_(self.factor)
        nn.utils.clip_grad_norm_(parameters, self.largest)
        self.optimizer.step()


def scaled(factor: float, divides: bool = True, largest: float = math.inf) -> type[Trained]:
    return type("Scaled", (Scaled,), {"factor": factor, "divides": divides, "largest": largest})


def verdict_of(
    folder: Path, candidate: type[Trained], reference: type[Trained], dtype: torch.dtype, level: str = "mix"
) -> Verdict:
    def building(kind: type[Trained]) -> Callable[[], Training]:
        def build() -> Training:
            training = kind(dtype)
            return training.model, training.step

        return build

    return compare_trainings(folder, building(candidate), building(reference), steps=3, level=level)


USUAL = with_loss(usual_loss)
#: Of these pairs both sides compute the same.
SAME = {
    "loss by sequence": (with_loss(by_sequence), USUAL),
    "loss by token": (with_loss(by_token), USUAL),
    "loss by its sum": (with_loss(summed), USUAL),
    "loss by hand": (with_loss(gathered), USUAL),
    "labels ignored or left out": (with_loss(ignored), with_loss(picked)),
    "labels chosen or their losses": (with_loss(chosen), with_loss(selected)),
    "losses weighted or left out": (with_loss(weighted), with_loss(selected)),
    "an average by lerp": (FollowingByLerp, Following),
    "an embedding by a product": (OneHot, Trained),
    "sequences in another order": (Sorted, Trained),
    "more micro-batches": (in_micro_batches(4), in_micro_batches(2)),
    "gradients that are thrown away": (Uncut, Adversaries),
}
#: What is wrong in the first, the names of the finding in the order of the two, and of the two exchanged.
WRONG = {
    "an average of the weights before the step": (
        (FollowingTooEarly, Following),
        ("before-the-step", "after-the-step"),
    ),
    "clipped after the step": ((ClippedTooLate, Clipped), ("written-after-the-step", "written-before-the-step")),
    "a weight written over": ((Renewed, Trained), ("extra-calls", "missing-calls")),
    "a weight put back": ((Restored, Trained), ("extra-calls", "missing-calls")),
    "heads that are not moved back": (
        (with_heads(MixedHeads), with_heads(Heads)),
        ("missing-calls", "extra-calls"),
    ),
    "gradients that are kept": ((UncutAndKept, Adversaries), ("extra-call-without-gradient",) * 2),
}


@pytest.mark.parametrize("dtype", PRECISIONS, ids=str)
@pytest.mark.parametrize("name", SAME)
def test_nothing_is_wrong_with_a_second_form(name: str, dtype: torch.dtype, tmp_path: Path) -> None:
    for number, pair in enumerate((SAME[name], SAME[name][::-1])):
        verdict = verdict_of(tmp_path / str(number), *pair, dtype)
        assert verdict.status in ("agree", "harmless"), [str(finding)[:300] for finding in verdict.findings]
        # Nobody changed a weight.
        assert {finding.kind for finding in verdict.findings}.isdisjoint(("weights", "initial_weights", "optimizer"))


@pytest.mark.parametrize("dtype", PRECISIONS, ids=str)
@pytest.mark.parametrize("name", WRONG)
def test_what_is_done_at_the_wrong_moment_comes_first(name: str, dtype: torch.dtype, tmp_path: Path) -> None:
    pair, names = WRONG[name]
    for number, (sides, wanted) in enumerate(zip((pair, pair[::-1]), names, strict=True)):
        verdict = verdict_of(tmp_path / str(number), *sides, dtype)
        assert verdict.status == "diverged"
        first = verdict.findings[0]
        assert (first.step, first.name) == (0, wanted)


@pytest.mark.parametrize("dtype", PRECISIONS, ids=str)
@pytest.mark.parametrize(
    ("factors", "largest", "status"),
    [((1024.0, 1.0), math.inf, "harmless"), ((1024.0, 65536.0), math.inf, "harmless"), ((16.0, 1.0), 0.02, "diverged")],
    ids=["by one", "by both", "hidden by clipping"],
)
def test_where_no_calls_were_recorded_a_factor_of_the_loss_is_undone_or_hidden(
    factors: tuple[float, float], largest: float, status: str, dtype: torch.dtype, tmp_path: Path
) -> None:
    is_clipped = math.isfinite(largest)
    sides = [scaled(factor, divides=not is_clipped, largest=largest) for factor in factors]
    for number, pair in enumerate((sides, sides[::-1])):
        verdict = verdict_of(tmp_path / str(number), *pair, dtype, level="L0")
        assert (verdict.status, verdict.findings[0].kind) == (status, "loss_scale")


class Normed(nn.Module):
    """A norm over channels, in front of the permutation that puts them last, or behind it; a convolution that sees the
    past alone, by what stands in front of it or by what is cut off.
    """

    def __init__(self, otherwise: bool) -> None:
        super().__init__()
        self.otherwise = otherwise
        self.into, self.past = nn.Conv2d(3, WIDTH, 3, padding=1), nn.Conv1d(WIDTH, WIDTH, 2, dilation=2)
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 10)

    def forward(self, x: Tensor) -> Tensor:
        y = self.into(x)
        if self.otherwise:
            mean = y.mean(1, keepdim=True)
            variance = (y - mean).pow(2).mean(1, keepdim=True)
            y = (y - mean) / torch.sqrt(variance + self.norm.eps)
            y = y.permute(0, 2, 3, 1) * self.norm.weight + self.norm.bias
        else:
            y = self.norm(y.permute(0, 2, 3, 1))
        z = y.flatten(1, 2).transpose(1, 2)
        if self.otherwise:
            z = F.conv1d(z, self.past.weight, self.past.bias, padding=2, dilation=2)[:, :, :-2]
        else:
            z = self.past(F.pad(z, (2, 0)))
        return self.head(z.amax(2))  # type: ignore[no-any-return]


@pytest.mark.parametrize("dtype", PRECISIONS, ids=str)
def test_what_one_side_computes_in_front_of_a_move_and_the_other_behind_it_is_the_same(
    dtype: torch.dtype, tmp_path: Path
) -> None:
    class Pictured(Trained):
        otherwise = True

        def __init__(self, dtype: torch.dtype) -> None:
            self.model = Normed(self.otherwise).to(dtype)
            self.optimizer = torch.optim.AdamW(self.model.parameters(), 1e-3)

        def backward(self, number: int) -> None:
            generator = torch.Generator().manual_seed(number)
            self.optimizer.zero_grad()
            x = torch.randn(6, 3, 8, 8, generator=generator).to(dtype)
            F.cross_entropy(self.model(x).float(), torch.arange(6)).backward()

    usual = type("Usual", (Pictured,), {"otherwise": False})
    for number, pair in enumerate(((Pictured, usual), (usual, Pictured))):
        verdict = verdict_of(tmp_path / str(number), *pair, dtype)
        assert verdict.status in ("agree", "harmless"), [str(finding)[:300] for finding in verdict.findings]


class Attending(nn.Module):
    """Four heads that share two of keys; ``wrong``: what is done otherwise inside."""

    wrong = ""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.rest, self.out = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(3))
        self.query_norm, self.key_norm = nn.RMSNorm(4), nn.RMSNorm(4)

    def turned(self, x: Tensor) -> Tensor:
        angles = torch.outer(torch.arange(x.shape[2]).float(), torch.tensor([1.0, 0.1]))
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        if self.wrong == "halves turned as pairs":
            even, odd = x[..., ::2], x[..., 1::2]
            return torch.stack((even * cos - odd * sin, odd * cos + even * sin), -1).flatten(-2)
        first, second = x.chunk(2, -1)
        return torch.cat((first * cos - second * sin, second * cos + first * sin), -1)

    def forward(self, x: Tensor) -> Tensor:
        query = self.turned(self.query_norm(self.query(x).unflatten(-1, (4, 4)).transpose(1, 2)))
        key, value = self.rest(x).unflatten(-1, (4, 4)).transpose(1, 2).chunk(2, 1)
        shared = self.turned(self.key_norm(key)), value
        if self.wrong == "heads repeated in another order":
            key, value = (part.repeat(1, 2, 1, 1) for part in shared)
        else:
            key, value = (part.repeat_interleave(2, 1) for part in shared)
        seen = torch.ones(LENGTH, LENGTH).tril().bool()
        if self.wrong == "a window":
            seen = seen & torch.ones(LENGTH, LENGTH).triu(-2).bool()
        scores = (query @ key.transpose(-1, -2) / 2).masked_fill(~seen, -math.inf)
        return self.out((scores.softmax(-1) @ value).transpose(1, 2).flatten(-2))  # type: ignore[no-any-return]


class Beside(nn.Module):
    """What a module gives is added to what it takes, and is little of it."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return x + 0.02 * self.inner(x)  # type: ignore[no-any-return]


@pytest.mark.parametrize("dtype", PRECISIONS, ids=str)
@pytest.mark.parametrize("wrong", ["halves turned as pairs", "heads repeated in another order", "a window"])
def test_what_a_module_makes_of_its_elements_counts_in_half_types_too(
    wrong: str, dtype: torch.dtype, tmp_path: Path
) -> None:
    """Loss and gradients of two steps are apart by less than rounding makes of them there; what a module gives is not,
    by the place of each element.
    """

    class Right(Trained):
        kind: type[Attending] = Attending

        def __init__(self, dtype: torch.dtype) -> None:
            self.model = nn.Sequential(
                nn.Embedding(VOCABULARY, WIDTH), Beside(self.kind()), nn.RMSNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY)
            ).to(dtype)
            self.optimizer = torch.optim.AdamW(self.model.parameters(), 1e-3)

        def backward(self, number: int) -> None:
            # Statistics of many elements hardly see which of them they are.
            drawn = torch.Generator().manual_seed(number)
            tokens = torch.randint(0, VOCABULARY, (64, LENGTH + 1), generator=drawn)
            self.optimizer.zero_grad()
            self.loss(self.model(tokens[:, :-1]), tokens[:, 1:]).backward()

    kind = type("Wrong", (Attending,), {"wrong": wrong})
    other = type("Other", (Right,), {"kind": kind})
    for number, pair in enumerate(((other, Right), (Right, other))):
        verdict = verdict_of(tmp_path / str(number), *pair, dtype)
        assert verdict.status == "diverged"
        assert (verdict.findings[0].step, verdict.findings[0].kind) == (0, "structure")


class Summed(Trained):
    """Gradients of two micro-batches are added up, and clipped; ``shares``: each counts for its half."""

    shares = True

    def backward(self, number: int) -> None:
        self.optimizer.zero_grad()
        for tokens in batch(number).chunk(2):
            loss = self.loss(self.model(tokens[:, :-1]), tokens[:, 1:])
            (loss / 2 if self.shares else loss).backward()

    def step(self, number: int) -> None:
        self.backward(number)
        nn.utils.clip_grad_norm_(self.model.parameters(), 0.05)
        self.optimizer.step()


@pytest.mark.parametrize("dtype", PRECISIONS, ids=str)
@pytest.mark.parametrize(("shares", "statuses"), [(True, ("agree", "harmless")), (False, ("diverged",))])
def test_gradients_of_micro_batches_that_count_twice_are_not_hidden_by_clipping(
    shares: bool, statuses: tuple[str, ...], dtype: torch.dtype, tmp_path: Path
) -> None:
    class Whole(Summed):
        def backward(self, number: int) -> None:
            Trained.backward(self, number)

    sides = (type("Parts", (Summed,), {"shares": shares}), Whole)
    for number, pair in enumerate((sides, sides[::-1])):
        assert verdict_of(tmp_path / str(number), *pair, dtype).status in statuses
