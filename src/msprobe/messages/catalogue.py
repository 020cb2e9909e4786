"""All messages and pieces of this room, by name and by code."""

from __future__ import annotations

from msprobe.messages import (
    benchmark,
    checks,
    configuring,
    errors_of_checkpoints,
    errors_of_commands,
    errors_of_configurations,
    errors_of_distributed_checkpoints,
    errors_of_dumps,
    errors_of_files,
    errors_of_gradients,
    errors_of_graphs,
    errors_of_monitor,
    errors_of_options,
    errors_of_precheck,
    errors_of_precheck_runs,
    errors_of_questions,
    errors_of_recording,
    errors_of_results,
    errors_of_rollout,
    errors_of_second_look,
    errors_of_sheets,
    errors_of_usage,
    errors_of_weights,
    findings_of_monitor,
    findings_of_precheck,
    gradients,
    layouts,
    messages_of_scripts,
    mistakes_of_fields,
    notes_of_commands,
    notes_of_gradients,
    notes_of_monitor,
    notes_of_precheck,
    notes_of_reports,
    pages,
    pieces,
    pieces_of_configuring,
    pieces_of_doctor,
    pieces_of_dumps,
    pieces_of_outcome,
    pieces_of_precheck,
    pieces_of_recording,
    pieces_of_settings,
    reading_archives,
    reading_foreign_files,
    recording,
    recording_of_mindspore,
    reports_of_precheck,
    rollout,
    runs,
    topics_of_checks,
    topics_of_errors,
    topics_of_recording,
    topics_of_rollout,
    topics_of_runs,
    values,
    writing,
)
from msprobe.messages.entry import Entry, Message, Piece, Topic

_ALL: tuple[Message, ...] = (
    *values.MESSAGES,
    *gradients.MESSAGES,
    *layouts.MESSAGES,
    *runs.MESSAGES,
    *checks.MESSAGES,
    *errors_of_files.MESSAGES,
    *errors_of_dumps.MESSAGES,
    *errors_of_recording.MESSAGES,
    *recording.MESSAGES,
    *configuring.MESSAGES,
    *benchmark.MESSAGES,
    *errors_of_results.MESSAGES,
    *writing.MESSAGES,
    *reading_archives.MESSAGES,
    *reading_foreign_files.MESSAGES,
    *recording_of_mindspore.MESSAGES,
    *errors_of_commands.MESSAGES,
    *errors_of_usage.MESSAGES,
    *errors_of_weights.MESSAGES,
    *errors_of_second_look.MESSAGES,
    *errors_of_sheets.MESSAGES,
    *errors_of_graphs.MESSAGES,
    *errors_of_monitor.MESSAGES,
    *errors_of_gradients.MESSAGES,
    *errors_of_checkpoints.MESSAGES,
    *errors_of_distributed_checkpoints.MESSAGES,
    *errors_of_configurations.MESSAGES,
    *errors_of_precheck.MESSAGES,
    *errors_of_precheck_runs.MESSAGES,
    *findings_of_monitor.MESSAGES,
    *notes_of_reports.MESSAGES,
    *notes_of_commands.MESSAGES,
    *errors_of_questions.MESSAGES,
    *errors_of_options.MESSAGES,
    *errors_of_rollout.MESSAGES,
    *rollout.MESSAGES,
    *notes_of_gradients.MESSAGES,
    *notes_of_monitor.MESSAGES,
    *pieces_of_precheck.MESSAGES,
    *reports_of_precheck.MESSAGES,
    *messages_of_scripts.MESSAGES,
    *notes_of_precheck.MESSAGES,
    *findings_of_precheck.MESSAGES,
)
#: Code -> message, in the order of the codes.
MESSAGES: dict[str, Message] = {each.code: each for each in sorted(_ALL, key=lambda message: message.code)}
#: What there is to say about a sort of messages: ``kind:argument``, ``cause:clipping``, ``check:softmax``, ``note``.
TOPICS: dict[str, Topic] = {
    **topics_of_runs.TOPICS,
    **topics_of_checks.TOPICS,
    **topics_of_errors.TOPICS,
    **topics_of_recording.TOPICS,
    **topics_of_rollout.TOPICS,
}
_PIECES: tuple[Piece, ...] = (
    *pieces.PIECES,
    *pieces_of_recording.PIECES,
    *pieces_of_doctor.PIECES,
    *pieces_of_configuring.PIECES,
    *pieces_of_settings.PIECES,
    *errors_of_gradients.PIECES,
    *pieces_of_dumps.PIECES,
    *benchmark.PIECES,
    *writing.PIECES,
    *reading_archives.PIECES,
    *reading_foreign_files.PIECES,
    *pieces_of_outcome.PIECES,
    *recording_of_mindspore.PIECES,
    *errors_of_dumps.PIECES,
    *errors_of_sheets.PIECES,
    *errors_of_graphs.PIECES,
    *errors_of_checkpoints.PIECES,
    *errors_of_configurations.PIECES,
    *errors_of_precheck.PIECES,
    *errors_of_precheck_runs.PIECES,
    *pages.PIECES,
    *findings_of_monitor.PIECES,
    *notes_of_reports.PIECES,
    *notes_of_commands.PIECES,
    *mistakes_of_fields.PIECES,
    *errors_of_questions.PIECES,
    *errors_of_options.PIECES,
    *rollout.PIECES,
    *notes_of_gradients.PIECES,
    *notes_of_monitor.PIECES,
    *pieces_of_precheck.PIECES,
    *reports_of_precheck.PIECES,
    *messages_of_scripts.PIECES,
    *findings_of_precheck.PIECES,
)
#: What is said about a topic, as pieces: ``advice kind:argument``.
_OF_TOPICS: tuple[Piece, ...] = tuple(
    Piece(f"{what} {name}", "", *getattr(topic, what))
    for name, topic in TOPICS.items()
    for what in ("meaning", "cause", "advice")
)
#: Name -> message or piece.
ENTRIES: dict[str, Entry] = {
    **{each.name: each for each in _ALL},
    **{each.name: each for each in (*_PIECES, *_OF_TOPICS)},
}


def find(code_or_name: str) -> Message | None:
    """The message of a code (``D204``, ``d204``) or of a name (``argument-differs``)."""
    entry = MESSAGES.get(code_or_name.upper()) or ENTRIES.get(code_or_name.lower().replace("_", "-"))
    return entry if isinstance(entry, Message) else None


def topic_of(message: Message) -> Topic:
    """What there is to say about a message."""
    return TOPICS[message.topic]
