"""The weights of a trainer that FSDP2 shards over two real ranks, against an engine that has them whole."""

from __future__ import annotations

import json
from pathlib import Path

from support import forked

RANKS = Path(__file__).resolve().parent / "weights_ranks.py"


def test_ranks_of_fsdp2_compare_their_weights_without_gathering_them(tmp_path: Path) -> None:
    env = {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    ranks = [forked.start(str(RANKS), str(rank), str(tmp_path), cwd=tmp_path, env=env) for rank in range(2)]
    forked.end_of_all(ranks, 120)
    for rank, one in enumerate(ranks):
        ended = one.wait()
        assert ended.returncode == 0, ended.stderr[-4000:]
        answers = json.loads((tmp_path / f"answer{rank}.json").read_text())
        assert answers == [[5, []], [0, ["weights-stale"]], [5, []]]
