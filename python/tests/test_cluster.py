"""A Dask cluster on this machine, one of whose workers is killed in the middle."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

import bentpipe

distributed = pytest.importorskip("distributed", reason="distributed is not installed")


def test_a_killed_worker_changes_no_byte(study_file: Path, tmp_path: Path) -> None:
    study = bentpipe.Study.load(study_file)
    study.run(out=tmp_path / "whole", seeds=200)
    killed: list[int] = []

    def kill(done: int, failed: int, total: int) -> None:
        if done > 20 and not killed:
            killed.append(workers[0])
            os.kill(killed[0], signal.SIGKILL)

    cluster = distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, host="127.0.0.1")
    with cluster, distributed.Client(cluster) as client:
        workers = list(client.run(os.getpid).values())
        assert len(workers) == 2
        study.run(client, out=tmp_path / "cluster", seeds=200, task_seconds=0.02, progress=kill)
    assert killed
    for name in ("manifest.json", "points.jsonl"):
        assert (tmp_path / "cluster" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
