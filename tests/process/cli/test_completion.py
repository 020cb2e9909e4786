"""What `msprobe completion` prints completes command lines, in a real shell where there is one."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from support.command_line import call

from msprobe.cli.commands import COMMANDS, known_names

ROOT = Path(__file__).parents[3]


#: What stands on the line, the last word being typed -> what is offered; more may be, where the value is a beginning.
OFFERED: dict[tuple[str, ...], set[str]] = {
    ("co",): {"compare", "config_check"},
    ("monitor", "to"): {"to-db", "to-tensorboard"},
    ("compare", "--cand"): {"--candidate"},
    ("-f", "py"): {"pytorch"},
    ("acc_check", "--fail-on", ""): {"error", "warning", "never"},
    ("completion", ""): {"bash", "zsh", "fish"},
}
BEGINNING = ("co",)
# Of zsh the two functions of its editor that say what is offered stand for those of the editor.
_ZSH = """\
compdef() {{ }}
compadd() {{ shift; print -rl -- "$@" }}
_files() {{ ls }}
{text}
words=(msprobe {words}); CURRENT={current}; _msprobe
"""


def offered(shell: str, *words: str) -> set[str]:
    """What a shell offers for the last of these words."""
    text = call("completion", shell).stdout
    quoted = " ".join(f"'{word}'" for word in words)
    if shell == "bash":
        text += (
            f"COMP_WORDS=(msprobe {quoted}); COMP_CWORD={len(words)}; _msprobe; printf '%s\\n' \"${{COMPREPLY[@]}}\"\n"
        )
        line = ["bash", "--norc", "-c", text]
    elif shell == "zsh":
        line = ["zsh", "-f", "-c", _ZSH.format(text=text, words=quoted, current=len(words) + 1)]
    else:
        line = ["fish", "--no-config", "-c", f"{text}\ncomplete -C 'msprobe {' '.join(words)}'"]
    done = subprocess.run(line, capture_output=True, text=True, timeout=60, check=True, cwd=ROOT / "changes")
    return {one.partition("\t")[0] for one in done.stdout.splitlines() if one.startswith(words[-1])}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_completes_commands_their_second_words_options_and_values(shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"needs {shell}")
    for words, wanted in OFFERED.items():
        found = offered(shell, *words)
        assert wanted <= found if words == BEGINNING else found == wanted, words
    # A file where no word is wanted: bash offers files itself where we offer nothing.
    assert offered(shell, "monitor", "diff", "READ") == (set() if shell == "bash" else {"README.md"})


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_every_command_and_what_it_says_is_right(shell: str) -> None:
    printed = call("completion", shell).stdout
    assert all(name in printed for name in (*known_names(), *COMMANDS) if " " not in name)
    if (found := shutil.which(shell)) is not None:
        assert subprocess.run([found, "-n"], input=printed, text=True, timeout=60, check=False).returncode == 0
