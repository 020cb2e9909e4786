"""What keeps a verdict cheap."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref
from pathlib import Path

import pytest
from unit.diagnose.training import Plan, train

from msprobe.diagnose.steps.collector import no_collection
from msprobe.diagnose.steps.timeline import Timeline
from msprobe.store.reader import open_dump


def test_no_search_inside_and_as_before_behind() -> None:
    assert gc.isenabled()
    with pytest.raises(ZeroDivisionError), no_collection():
        assert not gc.isenabled()
        with no_collection():
            assert not gc.isenabled()
        assert not gc.isenabled()
        1 / 0
    assert gc.isenabled()


def test_a_closed_timeline_is_gone_without_a_search(tmp_path: Path) -> None:
    class Watched(dict[str, object]):
        pass

    with no_collection():
        timeline = Timeline(open_dump(train(tmp_path, Plan())).part())
        record = Watched(timeline.events[5].record)
        timeline.events[5].record = record
        assert any(event.parent is not None for event in timeline)
        watch = weakref.ref(record)
        del record
        timeline.close()
        assert watch() is None


@pytest.mark.process
def test_statistics_are_compared_without_numpy(tmp_path: Path) -> None:
    one, other = train(tmp_path / "one", Plan()), train(tmp_path / "other", Plan(noise=1e-3))
    code = (
        "import sys\nfrom msprobe.cli import main\n"
        f"main(['compare', {str(one)!r}, {str(other)!r}])\nassert 'numpy' not in sys.modules"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout
