"""Forked programs see the folders of their own PYTHONPATH, whoever started the process they are forked from."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support import forked


def test_a_folder_that_is_also_that_of_the_forking_process_is_found(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("import forked; print(forked.__name__)")
    bare = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    # What Python reads when it starts: so this test has a forking process of its own, without that folder.
    bare["PYTHONHASHSEED"] = "20261122"
    place = str(Path(forked.__file__).parent)
    assert forked.run("program.py", cwd=tmp_path, env=bare).returncode == 1
    assert forked.run("program.py", cwd=tmp_path, env={**bare, "PYTHONPATH": place}).stdout == "forked\n"


@pytest.mark.parametrize(("variables", "printed"), [({}, ""), ({"PYTHONUNBUFFERED": "1"}, "begun")])
def test_what_is_printed_before_a_sudden_end_is_there_where_nothing_is_buffered(
    tmp_path: Path, variables: dict[str, str], printed: str
) -> None:
    (tmp_path / "program.py").write_text("import os\nprint('begun')\nos._exit(3)\n")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    ended = forked.run("program.py", cwd=tmp_path, env={**environment, **variables})
    assert (ended.returncode, ended.stdout.strip()) == (3, printed)
