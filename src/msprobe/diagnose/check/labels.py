"""Labels of a language model that are not shifted against its inputs, or twice: by the data and by the model."""

from __future__ import annotations

from collections.abc import Iterable

from msprobe.diagnose.check.language import TokenText, is_causal, texts
from msprobe.diagnose.check.moment import CheckedStep
from msprobe.diagnose.check.values import measured, tensors
from msprobe.diagnose.findings import Finding
from msprobe.messages import said


def check(moment: CheckedStep) -> Iterable[Finding]:
    """The call that makes the labels, where they are the tokens of the same positions."""
    every = texts(moment)
    for text in every:
        if text.ahead is not None and text.ahead > 1 and not _has_next(every, text):
            yield _shifted_twice(moment, text)
        if text.same_as_tokens is None or not is_causal(moment):
            continue
        # The last call before the loss that changes where elements stand.
        made = text.chain[-1] if len(text.chain) > 1 else text.loss
        value = tensors(text.loss.outputs())
        yield moment.finding(
            made,
            "data",
            said("labels-not-shifted", text.loss.name, text.embedding.name),
            evidence={
                "loss": text.loss.name,
                "tokens": measured(tensors(text.embedding.inputs())[0]),
                "value": measured(value[0]) if value else None,
            },
            alternatives=(text.loss.name,),
        )


def _has_next(every: list[TokenText], text: TokenText) -> bool:
    """True if another loss of the same tokens asks for the next ones: heads may look further ahead beside it."""
    return any(text_read.embedding is text.embedding and text_read.ahead == 1 for text_read in every)


def _shifted_twice(moment: CheckedStep, text: TokenText) -> Finding:
    return moment.finding(
        text.chain[-1],
        "data",
        said("labels-shifted-twice", text.loss.name, text.ahead, text.embedding.name),
        evidence={"loss": text.loss.name, "ahead": text.ahead, "tokens": measured(tensors(text.embedding.inputs())[0])},
        alternatives=(text.loss.name,),
    )
