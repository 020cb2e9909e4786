"""Labels of a language model that are its inputs: the model is asked for the token that it is given."""

from __future__ import annotations

from collections.abc import Iterable

from msprobe.diagnose.check.language import is_causal, texts
from msprobe.diagnose.check.moment import Moment
from msprobe.diagnose.check.values import measured, tensors
from msprobe.diagnose.findings import Finding


def check(moment: Moment) -> Iterable[Finding]:
    """The call that makes the labels, where they are the tokens of the same positions."""
    for timeline in moment.timelines.values():
        for text in texts(moment, timeline):
            if text.same_as_tokens is None or not is_causal(timeline):
                continue
            # The last call before the loss that changes where elements stand.
            made = text.chain[-1] if len(text.chain) > 1 else text.loss
            value = tensors(text.loss.outputs())
            yield moment.finding(
                timeline,
                made,
                "data",
                f"the labels of {text.loss.name} are the tokens that the model is given ({text.embedding.name}), not "
                "the next ones: the loss rewards copying the input",
                evidence={
                    "loss": text.loss.name,
                    "tokens": measured(tensors(text.embedding.inputs())[0]),
                    "value": measured(value[0]) if value else None,
                },
                alternatives=(text.loss.name,),
            )
