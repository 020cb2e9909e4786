"""One check of a dump, from its file to the csv files: who is checked, who does it, and what is written."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from msprobe import log
from msprobe.engine import Engine, Workers
from msprobe.errors import InvalidInputError, MsprobeError
from msprobe.messages import joined, said
from msprobe.precheck import cluster, mindspore_rows
from msprobe.precheck.columns import BLANK, CANDIDATE, CONTROL, DETAILS_HEADER, RESULT_HEADER, SCALED, STATUS
from msprobe.precheck.control_verdict import Control
from msprobe.precheck.executors import RECORDED, is_details_file
from msprobe.precheck.job import Answer, Task, skipped
from msprobe.precheck.page import write_summary
from msprobe.precheck.pool import Pool, tasks_for
from msprobe.precheck.ranking import Ranking, reproduction_command
from msprobe.precheck.requests import Requests, open_requests
from msprobe.precheck.selection import without_repeated
from msprobe.precheck.settings import Settings
from msprobe.precheck.writer import CheckFiles, CheckWriter, call_of


@dataclass(frozen=True)
class CheckRequest:
    """What is asked for. ``task`` says how each call is judged; ``candidates`` are taken in turn by ``workers``, which
    are processes of this machine or, with ``engine`` "ray", of the nodes of a cluster.
    """

    dump: str
    output: str
    task: Task
    candidates: tuple[str, ...] = ("auto",)
    workers: int = 1
    engine: Engine = "local"
    settings: Settings = field(default_factory=Settings)
    resume: str = ""
    filtered: bool = False
    save_errors: bool = False
    timeout: float = 600.0
    top: int = 10


@dataclass(frozen=True)
class CheckReport:
    """What a check wrote and found; with a control, ``ranking`` is of the verdict of three parties."""

    files: CheckFiles
    ranking: Ranking
    #: The same as text and as a page.
    summaries: tuple[Path, ...]
    #: The verdict of three parties; empty without a control.
    compared: tuple[Path, ...]


def run_check(request: CheckRequest, progress: Callable[[str], None] = lambda text: None) -> CheckReport:
    """Check the calls of a dump and write the files. Raises MsprobeError."""
    requests = open_requests(request.dump, request.task.modules)
    if RECORDED in request.candidates and not requests.has_values:
        raise InvalidInputError(said("recorded-results-missing", RECORDED, request.dump))
    if requests.framework == "mindspore":
        mindspore_rows.demand_known(request.candidates, request.task, request.save_errors)
    control = Control(request.task, made=not requests.has_values)
    control.demand_calls(requests.keys, requests.arguments_of)
    files = CheckFiles.existing(request.resume) if request.resume else CheckFiles.fresh(Path(request.output))
    task = replace(
        request.task, dump=str(Path(request.dump).absolute()), decimals=request.settings.decimals, error_folder=""
    )
    if request.save_errors:
        folder = Path(request.settings.error_data_path or "./", f"ut_error_data{files.stamp}")
        task = replace(task, error_folder=str(folder.absolute()))
    keys = without_repeated(requests, requests.keys) if request.filtered else requests.keys
    if requests.framework == "mindspore":
        task = replace(task, kind="mindspore")
        others = sorted({key.rpartition(".")[0] for key in keys if not mindspore_rows.is_checked(key)})
        if others:
            more = said("and-more-calls", len(others) - 8) if len(others) > 8 else ""
            log.info(said("not-checked-with-mindspore", ", ".join(others[:8]), more))
        keys = [key for key in keys if mindspore_rows.is_checked(key)]
        writer = CheckWriter(files, mindspore_rows.RESULT_HEADER, mindspore_rows.DETAILS_HEADER)
    else:
        writer = CheckWriter(files, with_control=control.runs)
    if writer.done:
        _demand_same_control(control, task, writer)
    ranking = Ranking(
        _stacks(requests),
        reproduction_command(str(requests.part.path), request.candidates[0], task),
        control=control.name,
        standard=task.standard,
        interrupted=not requests.part.complete,
    )
    for answer in _done_before(writer):
        ranking.add(control.judge(answer))
    todo = [key for key in keys if key not in writer.done]
    earlier = _choices(writer.kept)
    for number, answer in enumerate(_answers(request, task, requests, todo)):
        progress(said("job-of-jobs", said("calls-checked-so-far"), number + 1, len(todo)))
        answer = control.settled(answer)
        writer.add(answer.result, answer.details, answer.control)
        ranking.add(control.judge(answer))
        later = _choices(answer.details)
        if earlier and later:
            _warn_of_other_choices(earlier, later)
            earlier = {}
    writer.begin()
    compared = control.compare(files, files.result.parent)
    summaries = write_summary(files, ranking, said("precheck-title", requests.part.path))
    return CheckReport(files, ranking, summaries, compared)


def _answers(request: CheckRequest, task: Task, requests: Requests, keys: Sequence[str]) -> Iterator[Answer]:
    """The answers in the order of the dump; calls that are not selected take no worker."""
    refused = {key: why for key in keys if (why := request.settings.selection.refuse(key))}
    todo = [(key, requests.has_backward(key)) for key in keys if key not in refused]
    tasks = tasks_for(task, request.candidates, max(1, request.workers))
    warned = False
    with Pool(tasks, request.timeout) as pool:
        if request.engine == "ray":
            done = cluster.answers(tasks, todo, request.timeout, Workers(len(tasks), "ray"))
        else:
            done = pool.answers(todo) if todo else iter(())
        for key in keys:
            if key in refused:
                further = (task.seed, request.candidates[0], task.control_name, task.judged_by)
                if task.kind == "mindspore":
                    yield mindspore_rows.skipped(key, refused[key], requests.has_backward(key))
                    continue
                yield skipped(key, refused[key], requests.has_backward(key), task.decimals, further)
                continue
            answer = next(done)
            if not warned and request.candidates[0].startswith(("auto", "inject")):
                warned = True
                if task.kind == "torch" and answer.details and answer.details[0][CANDIDATE].startswith("cpu"):
                    log.warning(said("no-accelerator"))
            yield answer


def _stacks(requests: Requests) -> Callable[[str], Sequence[str]]:
    def stack_of(name: str) -> Sequence[str]:
        try:
            return requests.part.stack(requests.entry(name))
        except MsprobeError:
            return ()

    return stack_of


def _demand_same_control(control: Control, task: Task, writer: CheckWriter) -> None:
    """Raises InvalidInputError where a check is continued with another kind of control than it had: its verdict is
    that of three parties for all calls or for none.
    """
    had = sorted({row[CONTROL].strip() for row in writer.kept if len(row) > CONTROL} - {""})
    kinds = {is_details_file(header) for header in had}
    if kinds != ({is_details_file(task.control)} if control else set()):
        was = said("check-had-control", ", ".join(had)) if had else said("check-had-no-control")
        raise InvalidInputError(said("check-continued-differently", was))
    if control.runs and not writer.kept_control:
        raise InvalidInputError(said("control-file-missing", writer.files.control))


def _done_before(writer: CheckWriter) -> Iterator[Answer]:
    """The calls that a check which is continued had done: they count in its summary and its exit status."""
    details, controls = _by_call(writer.kept), _by_call(writer.kept_control)
    for key, result in writer.done.items():
        details_of_call = details.get(key, [])
        sizes = [_number(row[SCALED]) for row in details_of_call if len(row) > SCALED]
        cells = [*result, *[BLANK] * (len(RESULT_HEADER) - len(result))]
        yield Answer(key, cells, details_of_call, controls.get(key, []), worst=max(sizes, default=0.0))


def _by_call(rows: Sequence[list[str]]) -> dict[str, list[list[str]]]:
    by_call: dict[str, list[list[str]]] = {}
    for row in rows:
        by_call.setdefault(call_of(row[0]), []).append(row)
    return by_call


def _choices(details: Sequence[Sequence[str]]) -> dict[str, set[str]]:
    """Seed, candidate, control and standard of rows that were judged; none where no row has them (files of 8.1.1)."""
    judged = [row for row in details if len(row) > STATUS and row[STATUS] != "SKIP"]
    places = {name: DETAILS_HEADER.index(name) for name in ("Seed", "Candidate", "Control", "Standard")}
    choices = {name: {row[place] for row in judged if len(row) > place} - {BLANK} for name, place in places.items()}
    return {name: values for name, values in choices.items() if values}


def _warn_of_other_choices(earlier: dict[str, set[str]], later: dict[str, set[str]]) -> None:
    """A check that is continued with another seed or standard, or of another candidate, has rows of both."""
    others = [
        said("choice-differs", name.lower(), ", ".join(sorted(values)), ", ".join(sorted(earlier[name])))
        for name, values in later.items()
        if name in earlier and not values <= earlier[name]
    ]
    if others:
        log.warning(said("appended-with-other-choices", joined(", ", others)))


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0
