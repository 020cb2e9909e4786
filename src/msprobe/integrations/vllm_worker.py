"""What ``vllm_plugin`` puts into the processes of vLLM: engines run uncompiled, and their workers record.

A step begins with the first request that an idle engine is given and ends when all of its requests have ended, which a
worker learns with the next batch. Requests, tokens and log-probs are taken from what the worker itself is given and
gives, so it matters nothing who asks: ``LLM.generate``, a server, the workers of verl.
"""

from __future__ import annotations

import atexit
import json
import os
import re
from typing import Any

from msprobe import log
from msprobe.guard import attempt
from msprobe.integrations.engine_steps import EngineStep
from msprobe.integrations.vllm import RESPONSES, sampling_settings
from msprobe.messages import said
from msprobe.paths import make_folder, write_atomically
from msprobe.rollout.engine_file import write_engine

_MARK = "_msprobe_records"
_SUFFIX = re.compile(r"-[0-9a-f]{8}$")
#: Requests with which vLLM warms up its kernels.
_WARMUP = "_warmup_"


def record_all_engines(target: str) -> None:
    """Engines that are made from now on in this process record into ``target``: a folder, or as a .json file says."""
    from vllm.engine.arg_utils import EngineArgs
    from vllm.v1.worker.worker_base import WorkerWrapperBase

    if vars(WorkerWrapperBase).get(_MARK):
        return
    setattr(WorkerWrapperBase, _MARK, True)
    configure, init_device, shutdown = (
        EngineArgs.create_engine_config,
        WorkerWrapperBase.init_device,
        WorkerWrapperBase.shutdown,
    )

    def configured(self: Any, *arguments: Any, **options: Any) -> Any:
        if not self.enforce_eager:
            self.enforce_eager = True
            log.warning(said("engine-made-eager"))
        return configure(self, *arguments, **options)

    def with_device(self: Any, *arguments: Any, **options: Any) -> Any:
        answer = init_device(self, *arguments, **options)
        attempt(WorkerRecording, self.worker, target)
        return answer

    def shut_down(self: Any, *arguments: Any, **options: Any) -> Any:
        recording = getattr(getattr(self, "worker", None), _MARK, None)
        if isinstance(recording, WorkerRecording):
            attempt(recording.end)
        return shutdown(self, *arguments, **options)

    EngineArgs.create_engine_config = configured
    WorkerWrapperBase.init_device = with_device
    WorkerWrapperBase.shutdown = shut_down


class WorkerRecording:
    """Stands around ``execute_model`` and ``sample_tokens`` of the model runner of one worker."""

    def __init__(self, worker: Any, target: str) -> None:
        self._runner = worker.model_runner
        # All ranks compute the same answers.
        self._writes = int(getattr(worker, "rank", 0)) == 0
        config = getattr(worker, "vllm_config", None)
        self._target, self._instance = target, str(getattr(config, "instance_id", "") or "engine")
        self._debugger: Any = None
        self._step: EngineStep | None = None
        self._active: set[str] = set()
        self._answers: dict[str, dict[str, Any]] = {}
        self._execute, self._sample = self._runner.execute_model, getattr(self._runner, "sample_tokens", None)
        self._runner.execute_model = self._executing
        if self._sample is not None:
            self._runner.sample_tokens = self._sampling
        setattr(worker, _MARK, self)
        atexit.register(self.end)

    def _executing(self, scheduled: Any, *arguments: Any, **options: Any) -> Any:
        attempt(self._before, scheduled)
        answer = self._execute(scheduled, *arguments, **options)
        attempt(self._after, scheduled, answer)
        return answer

    def _sampling(self, *arguments: Any, **options: Any) -> Any:
        assert self._sample is not None
        answer = self._sample(*arguments, **options)
        attempt(self._take, answer)
        return answer

    def _before(self, scheduled: Any) -> None:
        self._active -= set(getattr(scheduled, "finished_req_ids", ()))
        if self._step is not None and not self._active:
            self.end()
        new = [request for request in scheduled.scheduled_new_reqs if not str(request.req_id).startswith(_WARMUP)]
        if new and self._step is None:
            self._step = EngineStep(self._the_debugger(), self._runner.model)
        for request in new:
            name = str(request.req_id)
            self._active.add(name)
            self._answers[name] = {
                "request_id": _SUFFIX.sub("", name),
                "prompt_token_ids": [int(token) for token in request.prompt_token_ids or ()],
                "token_ids": [],
                "cached_tokens": int(request.num_computed_tokens),
                "sampling_params": sampling_settings(request.sampling_params),
            }

    def _the_debugger(self) -> Any:
        from msprobe.capture.torch.debugger import PrecisionDebugger

        if self._debugger is None:
            PrecisionDebugger.make_way("msprobe.integrations.vllm_plugin")
            if self._target.endswith(".json"):
                self._debugger = PrecisionDebugger(config_path=self._target)
            else:
                folder = os.path.join(self._target, self._instance)
                self._debugger = PrecisionDebugger(dump_path=folder, task="tensor", level="L0", record_root=True)
        return self._debugger

    def _after(self, scheduled: Any, answer: Any) -> None:
        counts, batch = scheduled.num_scheduled_tokens, getattr(self._runner, "input_batch", None)
        if self._step is not None and counts and batch is not None:
            self._step.note(batch.req_ids, counts)
        self._take(answer)

    def _take(self, answer: Any) -> None:
        """Tokens and log-probs of a model runner's output, now or when it is there."""
        later = getattr(answer, "get_output", None)
        if later is not None:

            def getting() -> Any:
                late_answer = later()
                attempt(self._take, late_answer)
                return late_answer

            answer.get_output = getting
            return
        tokens = getattr(answer, "sampled_token_ids", None)
        if self._step is None or not tokens:
            return
        for name, place in answer.req_id_to_index.items():
            row = self._answers.get(str(name))
            new_tokens = [int(token) for token in tokens[place]] if place < len(tokens) else []
            if row is None or not new_tokens:
                continue
            row["token_ids"] += new_tokens
            if answer.logprobs is not None:
                values = answer.logprobs.slice_request(place, len(new_tokens)).logprobs[:, 0]
                row.setdefault("log_probs", []).extend(float(number) for number in values)

    def end(self) -> None:
        """End the step that is being recorded, if there is one."""
        step, self._step = self._step, None
        answers, self._answers = self._answers, {}
        self._active.clear()
        if step is None:
            return
        ended = step.end()
        if self._writes:
            make_folder(ended["folder"])
            text = "".join(json.dumps(row) + "\n" for row in answers.values())
            write_atomically(os.path.join(ended["folder"], RESPONSES), text.encode(), fsync=False)
            write_engine(ended["folder"], {key: ended[key] for key in ("steps", "modules")})
