"""What keeps a verdict cheap."""

from __future__ import annotations

import gc
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
