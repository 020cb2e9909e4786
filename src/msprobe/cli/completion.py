"""``msprobe completion SHELL``: what completes command lines, as text for the shell's own settings."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Iterator

from msprobe.foreign.console import say
from msprobe.messages import both, translated

FRAMEWORKS = ("pytorch", "mindspore")
SHELLS = ("bash", "zsh", "fish")
_EPILOG = both(
    'bash: eval "$(msprobe completion bash)" in ~/.bashrc\n'
    'zsh:  eval "$(msprobe completion zsh)" in ~/.zshrc, behind compinit\n'
    "fish: msprobe completion fish > ~/.config/fish/completions/msprobe.fish",
    'bash：在 ~/.bashrc 中写 eval "$(msprobe completion bash)"\n'
    'zsh： 在 ~/.zshrc 的 compinit 之后写 eval "$(msprobe completion zsh)"\n'
    "fish：msprobe completion fish > ~/.config/fish/completions/msprobe.fish",
)
# The words behind `msprobe` decide: options that no command stands behind yet, a command, its second word, its options.
_BASH = """\
_msprobe() {{
  local word current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD-1]}} command= words=
  for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
    case $word in -*|pytorch|mindspore) continue;; esac
    if [ -z "$command" ]; then command=$word
    elif [ "$command" = monitor ]; then command="monitor $word"; fi
  done
  case "$command $previous" in
{values}
  esac
  if [ -z "$words" ]; then
    case $command in
    "") words="{first}";;
{options}
    esac
  fi
  COMPREPLY=( $(compgen -W "$words" -- "$current") )
}}
complete -o default -F _msprobe msprobe
"""
_ZSH = """\
_msprobe() {{
  local word previous=${{words[CURRENT-1]}} command= found= files=
  for word in ${{words[2,CURRENT-1]}}; do
    case $word in -*|pytorch|mindspore) continue;; esac
    if [[ -z $command ]]; then command=$word
    elif [[ $command = monitor ]]; then command="monitor $word"; fi
  done
  case "$command $previous" in
{values}
  esac
  if [[ -z $found ]]; then
    case $command in
    "") found="{first}";;
{options}
    esac
    files=$command
  fi
  compadd -- ${{=found}}
  if [[ -n $files ]]; then _files; fi
}}
compdef _msprobe msprobe
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.epilog = _EPILOG
    parser.add_argument(
        "shell",
        choices=SHELLS,
        help=both("for which shell", "用于哪种 shell"),
    )


def execute(args: argparse.Namespace) -> int:
    """Print it."""
    say(completion_of(args.shell), end="")
    return 0


def completion_of(shell: str) -> str:
    """The text for a shell, made from the parsers of all commands."""
    if shell == "fish":
        return "\n".join(_fish()) + "\n"
    form, variable = (_BASH, "words") if shell == "bash" else (_ZSH, "found")
    options, values = [], []
    for name, actions in _all():
        typed = [option for action in actions for option in _typed(action)]
        options.append(_case([name], variable, typed))
        for action in actions:
            if action.choices is not None:
                behind = action.option_strings or [name.split()[-1]]
                values.append(_case([f"{name} {word}" for word in behind], variable, map(str, action.choices)))
    options.append(_case(["monitor"], variable, _family("monitor")))
    values.append(_case([" -f", " --framework"], variable, FRAMEWORKS))
    return form.format(first=" ".join(_first()), options="\n".join(options), values="\n".join(values))


def _case(patterns: Iterable[str], variable: str, words: Iterable[str]) -> str:
    """A line of a shell's ``case``: for any of these texts the variable becomes these words."""
    quoted = "|".join(f'"{pattern}"' for pattern in patterns)
    return f'    {quoted}) {variable}="{" ".join(words)}";;'


def _first() -> list[str]:
    from msprobe.cli import commands, top_parser

    words = list(dict.fromkeys(name.split()[0] for name in commands.COMMANDS))
    return [*words, *(option for action in top_parser()._actions for option in _typed(action))]


def _family(word: str) -> list[str]:
    from msprobe.cli import commands

    return [*commands.family(word)]


def _all() -> Iterator[tuple[str, list[argparse.Action]]]:
    """Every command under all of its names, with what its parser takes."""
    from msprobe.cli import commands

    for command in commands.COMMANDS.values():
        actions = commands.parser_of(command)._actions
        for name in (command.name, *command.aliases):
            yield name, actions


def _typed(action: argparse.Action) -> list[str]:
    from msprobe.cli.spellings import shown

    return shown(action.option_strings) if action.help != argparse.SUPPRESS else []


def _fish() -> Iterator[str]:
    from msprobe.cli import commands, top_parser

    first = "not __fish_seen_subcommand_from " + " ".join(commands.known_names())
    yield "complete -c msprobe -f"
    for word in dict.fromkeys(name.split()[0] for name in commands.COMMANDS):
        about = (
            commands.COMMANDS[word].purpose
            if word in commands.COMMANDS
            else both("watch, report and convert", "监控、报告与转换")
        )
        yield f"complete -c msprobe -n '{first}' -a {word} -d {_quoted(translated(about))}"
    within = " ".join(_family("monitor"))
    for part, command in commands.family("monitor").items():
        when = f"__fish_seen_subcommand_from monitor; and not __fish_seen_subcommand_from {within}"
        yield f"complete -c msprobe -n '{when}' -a {part} -d {_quoted(translated(command.purpose))}"
    for action in top_parser()._actions:
        yield from _fish_option(first, action)
    for name, actions in _all():
        when = "; and ".join(f"__fish_seen_subcommand_from {word}" for word in name.split())
        values = [action.choices for action in actions if action.choices is not None and not action.option_strings]
        for choices in values:
            yield f"complete -c msprobe -n '{when}' -a {_quoted(' '.join(map(str, choices)))}"
        if not values:
            yield f"complete -c msprobe -n '{when}' -F"
        for action in actions:
            yield from _fish_option(when, action)


def _fish_option(when: str, action: argparse.Action) -> Iterator[str]:
    names = [f"-l {spelling[2:]}" if spelling.startswith("--") else f"-s {spelling[1:]}" for spelling in _typed(action)]
    if names:
        takes = "" if action.nargs == 0 else " -r"
        if action.choices is not None:
            takes = f" -x -a {_quoted(' '.join(map(str, action.choices)))}"
        about = re.split(r"[;；（]| \(", translated(action.help or ""))[0]
        yield f"complete -c msprobe -n '{when}' {' '.join(names)}{takes} -d {_quoted(about)}"


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
