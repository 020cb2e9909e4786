"""What is done around a model, as public programs scale, sum and step in two ways; see ``loops``."""

from __future__ import annotations

from typing import Any

import torch

from rewritings.loops import Training


def scaled(run: Training, x: torch.Tensor, goals: torch.Tensor, other: bool, bug: str) -> Any:
    """A loss that is multiplied, and gradients that are divided behind it."""
    if not other:
        return run.step(x, goals, False, "")
    run.optimizer.zero_grad()
    loss = run.loss(run.model(x), goals.flatten(), False, "")
    (loss * 128.0).backward()
    for number, one in enumerate(run.parameters):
        if not (bug == "one" and number == 2):
            one.grad.div_(120.0 if bug == "divisor" else 128.0)
    run.optimizer.step()
    return loss


def with_scaler(run: Training, x: torch.Tensor, goals: torch.Tensor, other: bool, bug: str) -> Any:
    """A gradient scaler in the place of none."""
    if not other:
        return run.step(x, goals, False, "")
    scaler = run.kept.setdefault("scaler", torch.amp.GradScaler("cpu", init_scale=1024.0))
    run.optimizer.zero_grad()
    loss = run.loss(run.model(x), goals.flatten(), False, "")
    scaler.scale(loss).backward()
    if bug == "twice":
        run.parameters[1].grad.mul_(0.5)
    scaler.step(run.optimizer)
    scaler.update()
    return loss


def divided_behind(run: Training, x: torch.Tensor, goals: torch.Tensor, other: bool, bug: str) -> Any:
    """Micro-batches whose losses are divided, or whose gradients are at the end."""
    run.optimizer.zero_grad()
    total = torch.zeros(())
    for rows, wanted in zip(x.chunk(2), goals.chunk(2), strict=True):
        loss = run.loss(run.model(rows), wanted.flatten(), False, "")
        (loss if other else loss / 2).backward()
        total += loss.detach() / 2
    if other and bug != "count":
        for one in run.parameters:
            one.grad /= 2
    run.optimizer.step()
    return total


def of_tokens(run: Training, x: torch.Tensor, goals: torch.Tensor, other: bool, bug: str) -> Any:
    """Micro-batches by sums of losses over the count of all tokens, in the place of means of them."""
    run.optimizer.zero_grad()
    total = torch.zeros(())
    for rows, wanted in zip(x.chunk(2), goals.chunk(2), strict=True):
        if other:
            count = wanted.numel() if bug == "count" else goals.numel()
            loss = torch.nn.functional.cross_entropy(run.model(rows).float(), wanted.flatten(), reduction="sum") / count
        else:
            loss = torch.nn.functional.cross_entropy(run.model(rows).float(), wanted.flatten()) / 2
        loss.backward()
        total += loss.detach()
    run.optimizer.step()
    return total


def repeated_pieces(run: Training, x: torch.Tensor, goals: torch.Tensor, other: bool, bug: str) -> Any:
    """Micro-batches on both sides, of which a part is computed again on one: its passes have the next one's numbers."""
    run.model.checkpointed = other
    run.optimizer.zero_grad()
    total = torch.zeros(())
    for rows, wanted in zip(x.chunk(2), goals.chunk(2), strict=True):
        loss = run.loss(run.model(rows), wanted.flatten(), False, "")
        (loss / (1 if bug == "count" else 2)).backward()
        total += loss.detach() / 2
    run.optimizer.step()
    return total


def fused_adam(run: Training, x: torch.Tensor, goals: torch.Tensor, other: bool, bug: str) -> Any:
    """One kernel for all of an optimizer's work."""
    if run.kept.setdefault("steps", 0) == 0:
        rate = 2e-3 if bug == "rate" else 1e-3
        run.optimizer = torch.optim.AdamW(run.parameters, rate, fused=other, foreach=False if not other else None)
    run.kept["steps"] += 1
    return run.step(x, goals, False, "")


def in_groups(run: Training, x: torch.Tensor, goals: torch.Tensor, other: bool, bug: str) -> Any:
    """Parameters in two groups of the same settings."""
    if run.kept.setdefault("steps", 0) == 0:
        every = run.parameters
        groups = [{"params": every[:3], "lr": 0.2 if bug == "rate" else 0.1}, {"params": every[3:]}]
        run.optimizer = torch.optim.SGD(groups if other else every, 0.1, momentum=0.9)
    run.kept["steps"] += 1
    return run.step(x, goals, False, "")


def zeroed(run: Training, x: torch.Tensor, goals: torch.Tensor, other: bool, bug: str) -> Any:
    """Gradients that are filled with zeros and kept, in the place of none."""
    if not other:
        return run.step(x, goals, False, "")
    run.optimizer.zero_grad(set_to_none=False)
    if bug == "kept" and run.parameters[0].grad is None:
        run.parameters[0].grad = torch.full_like(run.parameters[0], 0.01)
    loss = run.loss(run.model(x), goals.flatten(), False, "")
    loss.backward()
    run.optimizer.step()
    return loss


def closed(run: Training, x: torch.Tensor, goals: torch.Tensor, other: bool, bug: str) -> Any:
    """A closure that the optimizer calls."""
    if not other:
        return run.step(x, goals, False, "")

    def closure() -> Any:
        run.optimizer.zero_grad()
        loss = run.loss(run.model(x), goals.flatten(), False, "")
        (loss * 1.1 if bug == "factor" else loss).backward()
        return loss

    return run.optimizer.step(closure)


def under_autocast(run: Training, x: torch.Tensor, goals: torch.Tensor, other: bool, bug: str) -> Any:
    """A model under autocast on both sides, and its loss written out on one."""
    run.optimizer.zero_grad()
    with torch.autocast("cpu", torch.bfloat16):
        scores = run.model(x)
    if other:
        chosen = scores.float().log_softmax(-1).gather(-1, goals.flatten()[:, None])
        loss = -chosen.sum() / (goals.numel() - 2 if bug == "count" else goals.numel())
    else:
        loss = torch.nn.functional.cross_entropy(scores.float(), goals.flatten())
    loss.backward()
    run.optimizer.step()
    return loss
