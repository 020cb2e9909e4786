"""What `msprobe completion` prints completes command lines, in a real shell where there is one."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from command_line import call

from msprobe.cli.commands import COMMANDS, known_names


def completed(*words: str) -> set[str]:
    """What bash offers for the last of these words."""
    line = " ".join(f"'{word}'" for word in words)
    script = f"{call('completion', 'bash').stdout}\nCOMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; _msprobe\n"
    done = subprocess.run(
        ["bash", "--norc", "-c", f'{script}printf "%s\\n" "${{COMPREPLY[@]}}"'],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    return set(done.stdout.split())


@pytest.mark.process
@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_bash_completes_commands_their_second_words_options_and_values() -> None:
    assert {"compare", "config_check"} <= completed("msprobe", "co")
    assert completed("msprobe", "monitor", "to") == {"to-db", "to-tensorboard"}
    assert completed("msprobe", "compare", "--cand") == {"--candidate"}
    assert completed("msprobe", "-f", "py") == {"pytorch"}
    assert completed("msprobe", "acc_check", "--fail-on", "") == {"error", "warning", "never"}
    assert completed("msprobe", "monitor", "diff", "run_") == set()  # then bash offers files


@pytest.mark.process
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_every_command_and_what_it_says_is_right(shell: str) -> None:
    printed = call("completion", shell).stdout
    assert all(name in printed for name in (*known_names(), *COMMANDS) if " " not in name)
    if (found := shutil.which(shell)) is not None:
        assert subprocess.run([found, "-n"], input=printed, text=True, timeout=60, check=False).returncode == 0
