"""Recording SGLang: its model inside the process of a scheduler, or wherever a ``ModelRunner`` is at hand.

::

    from msprobe.integrations.sglang import recording

    with recording(runner.model, dump_path="./rollout", task="tensor", level="L0", record_root=True):
        ...                                 # forward passes with a ForwardBatch

One block is a step. Whose rows a pass has is read from the ``ForwardBatch`` that the model is given (``rids``, or the
places of the requests in its pool; ``extend_seq_lens``, or one row for each request). Written for the public interface
of SGLang 0.5 and tried with a stand-in of it only: SGLang needs a GPU. Nothing of it is imported here.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from msprobe.rollout.engine_file import write_engine

__all__ = ["recording", "rows_of"]


@contextmanager
def recording(model: Any, config_path: str | None = None, **settings: Any) -> Iterator[None]:
    """Record the forward passes of ``model`` inside the block, as one step. Raises the errors of PrecisionDebugger."""
    from msprobe.capture.torch.debugger import PrecisionDebugger
    from msprobe.integrations.engine_steps import EngineStep

    debugger = PrecisionDebugger.existing() or PrecisionDebugger(config_path=config_path, **settings)

    def note(module: Any, given: tuple[Any, ...], named: dict[str, Any], answer: Any) -> None:
        batch = next((batch for batch in (*given, *named.values()) if hasattr(batch, "forward_mode")), None)
        step.note(*rows_of(batch))

    step = EngineStep(debugger, model)
    handle = model.register_forward_hook(note, with_kwargs=True)
    try:
        yield
    finally:
        handle.remove()
        ended = step.end()
        write_engine(ended["folder"], {key: ended[key] for key in ("steps", "modules")})


def rows_of(batch: Any) -> tuple[list[str], dict[str, int]]:
    """The requests of a ``ForwardBatch`` in the order of its rows, and how many rows each has."""
    if batch is None:
        return [], {}
    names = getattr(batch, "rids", None) or batch.req_pool_indices.tolist()
    lengths = getattr(batch, "extend_seq_lens", None)
    counts = [1] * len(names) if lengths is None else lengths.tolist()
    return [str(name) for name in names], {str(name): int(count) for name, count in zip(names, counts, strict=True)}
