"""Recording an inference engine: what vLLM computes while it generates, and what it answers.

::

    from msprobe.integrations.vllm import WORKER, recording

    llm = LLM(model, enforce_eager=True, worker_extension_cls=WORKER)
    with recording(llm, dump_path="./rollout", task="tensor", level="L0"):
        llm.generate(prompts, SamplingParams(logprobs=0))

One folder for each ``generate``: the dump of ``PrecisionDebugger`` that each worker writes; ``responses.jsonl``, with
tokens, log-probs and sampling settings of each request; ``engine.json``: whose rows each forward pass had, settings of
the modules, and digests of their weights. ``msprobe rollout`` reads all three. What vLLM runs to measure memory before
it generates is not recorded. Nothing of vLLM is imported here.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from msprobe import log
from msprobe.errors import InvalidInputError
from msprobe.messages import said
from msprobe.paths import make_folder, write_atomically
from msprobe.rollout.engine_file import write_engine

if TYPE_CHECKING:
    from msprobe.rollout.torch.weight_check import WeightCheck

__all__ = ["RESPONSES", "WORKER", "Probe", "recording", "weight_check"]

#: What ``worker_extension_cls`` of vLLM takes.
WORKER = "msprobe.integrations.vllm.Probe"
#: The file of requests and answers in the folder of a step.
RESPONSES = "responses.jsonl"
_SETTINGS = ("temperature", "top_p", "top_k", "min_p", "seed", "repetition_penalty", "max_tokens")


class Probe:
    """Methods that vLLM adds to its workers: each process of the engine records its own part of the model."""

    def msprobe_begin(self, config_path: str | None, settings: Mapping[str, Any]) -> bool:
        """Begin a step; whether the model runs as it is written (not compiled, not captured in a graph)."""
        from msprobe.capture.torch.debugger import PrecisionDebugger
        from msprobe.integrations.engine_steps import EngineStep

        runner: Any = self.model_runner  # type: ignore[attr-defined]
        if getattr(self, "_msprobe", None) is None:
            PrecisionDebugger.make_way("msprobe.integrations.vllm")
            self._msprobe: Any = PrecisionDebugger(config_path=config_path, **settings)
        self._msprobe_step = EngineStep(self._msprobe, runner.model)
        execute = getattr(runner, "execute_model", None)
        if execute is not None:
            runner.execute_model = self._noting(execute)
        config = getattr(runner, "model_config", None)
        return bool(getattr(config, "enforce_eager", True))

    def msprobe_forget(self) -> None:
        """The next step is recorded with the settings that it is given."""
        self._msprobe = None

    def _noting(self, execute: Any) -> Any:
        """``execute_model`` that notes whose tokens a forward pass has, in the order of its rows."""

        def noting(scheduled: Any, *arguments: Any, **options: Any) -> Any:
            answer = execute(scheduled, *arguments, **options)
            counts = getattr(scheduled, "num_scheduled_tokens", None)
            batch = getattr(self.model_runner, "input_batch", None)  # type: ignore[attr-defined]
            if counts and batch is not None:
                self._msprobe_step.note(batch.req_ids, counts)
            return answer

        return noting

    def msprobe_weights(self) -> dict[str, Any]:
        """What the modules of this worker hold: digests of rows, in the layout of its rank."""
        from msprobe.rollout.torch.engine_weights import held

        runner: Any = self.model_runner  # type: ignore[attr-defined]
        return held(runner.model)

    def msprobe_end(self) -> dict[str, Any]:
        """End the step: the folder of all its ranks, whose rows each pass had, and what the modules hold."""
        vars(self.model_runner).pop("execute_model", None)  # type: ignore[attr-defined]
        return self._msprobe_step.end()


def weight_check(llm: Any) -> WeightCheck:
    """What to call with the trainer after each synchronisation: does ``llm`` hold its weights?

    ::

        check = weight_check(llm)
        ...                          # the trainer's weights are sent
        arrived = check(policy)      # a module, a state dict (also of FSDP2), TrainerWeights.of_megatron(...)
        if not arrived:
            print(arrived)
    """
    from msprobe.rollout.torch.weight_check import WeightCheck

    return WeightCheck(lambda: _asked(llm, "msprobe_weights"))


@contextmanager
def recording(llm: Any, config_path: str | None = None, *, trainer: Any = None, **settings: Any) -> Iterator[None]:
    """Record each ``generate`` of ``llm`` (vLLM's ``LLM``) inside the block, as a step of its own.

    With a ``trainer``, what ``weight_check`` takes, its weights are compared before each ``generate``: a line says what
    did not arrive, and ``engine.json`` keeps it. The rest is what PrecisionDebugger takes. Raises InvalidInputError
    where the workers were made without ``worker_extension_cls=WORKER``, and the errors of PrecisionDebugger.
    """
    generate = llm.generate
    check = weight_check(llm) if trainer is not None else None

    def recorded(*arguments: Any, **options: Any) -> Any:
        arrived = None if check is None else check(trainer)
        if arrived is not None and not arrived:
            for line in str(arrived).splitlines():
                log.warning(line)
        is_eager = _asked(llm, "msprobe_begin", config_path, settings)
        if not all(is_eager):
            log.warning(said("engine-not-whole"))
        try:
            outputs = generate(*arguments, **options)
        finally:
            ended = _asked(llm, "msprobe_end")
        _write(ended[0]["folder"], outputs, _sampling(arguments, options))
        content = {key: ended[0][key] for key in ("steps", "modules")}
        if arrived is not None:
            content["synchronisation"] = arrived.as_json()
        write_engine(ended[0]["folder"], content)
        return outputs

    llm.generate = recorded
    try:
        yield
    finally:
        del llm.generate


def _asked(llm: Any, method: str, *arguments: Any) -> list[Any]:
    try:
        answers: list[Any] = llm.collective_rpc(method, args=arguments)
    except (AttributeError, NotImplementedError) as problem:
        raise InvalidInputError(said("workers-without-probe", method, WORKER)) from problem
    return answers


def _sampling(arguments: tuple[Any, ...], options: Mapping[str, Any]) -> list[Any]:
    given = options.get("sampling_params", arguments[1] if len(arguments) > 1 else None)
    return list(given) if isinstance(given, (list, tuple)) else [given]


def _write(folder: str, outputs: Iterable[Any], sampling: list[Any]) -> None:
    rows = [
        row
        for place, output in enumerate(outputs)
        for row in _rows(output, sampling[place] if len(sampling) > 1 else sampling[0])
    ]
    make_folder(folder)
    text = "".join(json.dumps(row) + "\n" for row in rows)
    write_atomically(os.path.join(folder, RESPONSES), text.encode(), fsync=False)


def _rows(request: Any, sampling: Any) -> Iterator[dict[str, Any]]:
    """A row for each answer to a request, in the fields that ``msprobe rollout`` reads."""
    for answer in request.outputs:
        tokens = [int(token) for token in answer.token_ids]
        row: dict[str, Any] = {
            "request_id": f"{request.request_id}" + (f".{answer.index}" if len(request.outputs) > 1 else ""),
            "prompt_token_ids": list(request.prompt_token_ids or ()),
            "token_ids": tokens,
            "finish_reason": answer.finish_reason,
        }
        if answer.logprobs is not None:
            entries = zip(tokens, answer.logprobs, strict=False)
            row["log_probs"] = [
                float(candidates[token].logprob) if token in candidates else None for token, candidates in entries
            ]
        if getattr(request, "num_cached_tokens", None) is not None:
            row["cached_tokens"] = int(request.num_cached_tokens)
        row["sampling_params"] = sampling_settings(sampling)
        yield row


def sampling_settings(sampling: Any) -> dict[str, Any]:
    """What of vLLM's ``SamplingParams`` bears on log-probs."""
    return {name: getattr(sampling, name) for name in _SETTINGS if getattr(sampling, name, None) is not None}
