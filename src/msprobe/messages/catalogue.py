"""All messages and pieces of this room, by name and by code."""

from __future__ import annotations

from importlib import import_module

from msprobe.messages.entry import Entry, Message, Piece, Topic

#: The files of this room that have MESSAGES, PIECES or TOPICS.
_FILES = """
    benchmark checks configuring errors_of_checkpoints errors_of_commands errors_of_configurations
    errors_of_distributed_checkpoints errors_of_dumps errors_of_files errors_of_gradients errors_of_graphs
    errors_of_monitor errors_of_options errors_of_precheck errors_of_precheck_runs errors_of_questions
    errors_of_recording errors_of_results errors_of_rollout errors_of_second_look errors_of_sheets errors_of_usage
    errors_of_weights findings_of_monitor findings_of_precheck gradients layouts messages_of_scripts
    mistakes_of_fields notes_of_commands notes_of_gradients notes_of_monitor notes_of_precheck notes_of_reports
    notes_of_sheets pages pieces pieces_of_answers pieces_of_checkpoints pieces_of_configuring pieces_of_doctor
    pieces_of_dumps pieces_of_graphs pieces_of_outcome pieces_of_packs pieces_of_precheck pieces_of_progress
    pieces_of_recording pieces_of_settings reading_archives reading_foreign_files recording recording_of_mindspore
    reports_of_precheck rollout runs topics_of_checks topics_of_errors topics_of_recording topics_of_rollout
    topics_of_runs values writing
""".split()
_MODULES = tuple(import_module(f"msprobe.messages.{file}") for file in _FILES)
_ALL: tuple[Message, ...] = tuple(each for module in _MODULES for each in getattr(module, "MESSAGES", ()))
#: Code -> message, in the order of the codes.
MESSAGES: dict[str, Message] = {each.code: each for each in sorted(_ALL, key=lambda message: message.code)}
#: What there is to say about a sort of messages: ``kind:argument``, ``cause:clipping``, ``check:softmax``, ``note``.
TOPICS: dict[str, Topic] = {name: topic for module in _MODULES for name, topic in getattr(module, "TOPICS", {}).items()}
_PIECES: tuple[Piece, ...] = tuple(each for module in _MODULES for each in getattr(module, "PIECES", ()))
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
