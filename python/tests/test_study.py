"""Studies: the same folder whoever measures the points."""

from __future__ import annotations

import os
import pickle
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

import bentpipe
import bentpipe.study

COMMAND = os.environ.get("BENTPIPE_COMMAND") or shutil.which("bentpipe")


def content(folder: Path) -> dict[str, bytes]:
    """What is in a results folder, without the command's report."""
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file()}


@pytest.fixture
def whole(study_file: Path, tmp_path: Path) -> dict[str, bytes]:
    bentpipe.Study.load(study_file).run(out=tmp_path / "whole", threads=1)
    return content(tmp_path / "whole")


def test_points_and_cells_are_tables(study_file: Path, tmp_path: Path) -> None:
    study = bentpipe.Study.load(study_file)
    assert (len(study), study.axes) == (12, {"rate": 2, "per": 2, "seed": 3})
    told: list[tuple[int, int, int]] = []
    result = study.run(out=tmp_path / "out", progress=lambda *now: told.append(now))
    assert told[-1] == (12, 0, 12)
    points = result.to_pandas()
    assert list(points.columns[:3]) == ["rate", "per", "seed"] and len(points) == 12
    assert list(points.seed[:4]) == ["1", "2", "3", "1"]
    assert result.cells["mean"] == [50.0] * 4 and result.cells["n"] == [3] * 4
    more = study.run(out=tmp_path / "out", seeds=4)
    assert (more.resumed, len(more.points())) == (12, 16)


@pytest.mark.skipif(COMMAND is None, reason="no command `bentpipe` is built or installed")
def test_the_folder_is_that_of_the_command(study_file: Path, tmp_path: Path, whole: dict[str, bytes]) -> None:
    assert COMMAND is not None
    run = [COMMAND, "study", "run", str(study_file), "--out"]
    subprocess.run([*run, str(tmp_path / "command")], check=True, capture_output=True)
    assert content(tmp_path / "command") == whole
    # Either goes on with what the other began.
    half = tmp_path / "half"
    half.mkdir()
    shutil.copy(tmp_path / "whole" / "manifest.json", half)
    lines = whole["points.jsonl"].splitlines(keepends=True)
    (half / "points.jsonl").write_bytes(b"".join(lines[3:8]))
    with ThreadPoolExecutor(2) as executor:
        assert bentpipe.Study.load(study_file).run(executor, out=half).resumed == 5
    assert content(half) == whole


@pytest.mark.parametrize("size", [1, 3])
def test_threads_and_processes_measure_the_same(study_file: Path, tmp_path: Path, whole: dict[str, bytes], size: int) -> None:
    study = bentpipe.Study.load(study_file)
    with ThreadPoolExecutor(size) as executor:
        study.run(executor, out=tmp_path / "threads")
    assert content(tmp_path / "threads") == whole
    for method in ("fork", "spawn"):
        with ProcessPoolExecutor(size, mp_context=get_context(method)) as executor:
            result = study.run(executor, out=tmp_path / method, task_seconds=0.01)
        assert content(tmp_path / method) == whole
        assert result.cells["mean"] == [50.0] * 4


class Lossy:
    """An executor that loses every task of some points once, or always."""

    def __init__(self, losses: int) -> None:
        self.losses = losses
        self.seen: dict[tuple[int, ...], int] = {}

    def submit(self, fn: Callable[..., Any], /, *args: Any) -> Future[Any]:
        future: Future[Any] = Future()
        key = tuple(args[-1])
        self.seen[key] = self.seen.get(key, 0) + 1
        if self.seen[key] <= self.losses:
            future.set_exception(ConnectionError("the worker is gone"))
        else:
            future.set_result(fn(*args))
        return future


def test_a_lost_task_is_sent_again(study_file: Path, tmp_path: Path, whole: dict[str, bytes]) -> None:
    study = bentpipe.Study.load(study_file)
    study.run(Lossy(2), out=tmp_path / "lossy", workers=2)
    assert content(tmp_path / "lossy") == whole
    with pytest.raises(bentpipe.StudyError, match=r"came to nothing 3 times \(ConnectionError: the worker is gone\)"):
        study.run(Lossy(3), out=tmp_path / "lost", workers=2)


def be_of_another_version() -> None:
    """What a worker that has another version installed says of itself."""
    bentpipe._native.__version__ = "0.0.1"


def test_a_worker_with_another_version_is_refused(study_file: Path, tmp_path: Path, whole: dict[str, bytes]) -> None:
    study, out = bentpipe.Study.load(study_file), tmp_path / "out"
    with ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=be_of_another_version) as executor:
        with pytest.raises(bentpipe.VersionError) as caught:
            study.run(executor, out=out)
    assert (caught.value.here, caught.value.there) == (bentpipe.__version__, "0.0.1")
    assert str(caught.value).startswith(f"a worker is of bentpipe 0.0.1, and here is {bentpipe.__version__}: install the same")
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    assert (out / "points.jsonl").read_bytes() == b"", "nothing of it is taken"
    study.run(out=out)
    assert content(out) == whole


def test_what_another_version_pickled_is_refused(study_file: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    things = (bentpipe.Study.load(study_file), bentpipe.Scenario.parse(text))
    with monkeypatch.context() as other:
        other.setattr(bentpipe._native, "__version__", "0.0.1")
        pickled = [pickle.dumps(thing) for thing in things]
    for one, what in zip(pickled, ("the pickled study `", "the pickled scenario `<text>` is of bentpipe 0.0.1"), strict=True):
        with pytest.raises(bentpipe.VersionError, match=f"{what}.*and here is {bentpipe.__version__}"):
            pickle.loads(one)


def test_a_folder_of_another_version_is_left_alone(study_file: Path, tmp_path: Path, whole: dict[str, bytes]) -> None:
    folder = tmp_path / "whole"
    manifest = folder / "manifest.json"
    there = manifest.read_text().replace(f'"bentpipe": "{bentpipe.__version__}"', '"bentpipe": "0.0.1"')
    manifest.write_text(there)
    study = bentpipe.Study.load(study_file)
    for executor in (None, Lossy(0)):
        with pytest.raises(bentpipe.StudyError, match=f"12 points of bentpipe 0.0.1, this is {bentpipe.__version__}"):
            study.run(executor, out=folder)
    with pytest.raises(bentpipe.StudyError, match=r"bentpipe 0\.0\.1"):
        study.results(folder)
    assert manifest.read_text() == there and (folder / "points.jsonl").read_bytes() == whole["points.jsonl"]
    study.run(out=folder, fresh=True)
    assert content(folder) == whole


FULL = """
import sys, bentpipe
from concurrent.futures import ThreadPoolExecutor
study, out = bentpipe.Study.load(sys.argv[1]), sys.argv[2]
for executor in (None, ThreadPoolExecutor(2)):
    try:
        study.run(executor, out=out, seeds=2000)
    except bentpipe.StudyError as error:
        print(error)
print(len(open(out + "/points.jsonl").read().splitlines()))
"""


def test_a_full_disk_keeps_what_is_finished(study_file: Path, tmp_path: Path) -> None:
    """The disk is a file system in memory of 64 KiB, in a namespace of the test's own."""
    disk = tmp_path / "disk"
    disk.mkdir()
    unshare = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--user", "--map-root-user"])]
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)]
    if subprocess.run([*unshare, *mount], capture_output=True, check=False).returncode != 0:
        pytest.skip("neither root nor a user namespace that mounts: run it as root")
    program = shlex.join([sys.executable, "-c", FULL, str(study_file), str(disk / "out")])
    keep = shlex.join(["cp", "-r", str(disk / "out"), str(tmp_path / "kept")])
    shell = [*unshare, "sh", "-c", f"{shlex.join(mount)} && {program} && {keep}"]
    said = subprocess.run(shell, capture_output=True, text=True, check=False, timeout=300)
    assert said.returncode == 0, said.stderr
    first, again, kept = said.stdout.splitlines()
    for error in (first, again):
        assert "cannot write" in error and "No space left on device" in error and "points are kept; make room" in error
    # Whole lines alone; with room the same call goes on from there.
    assert int(kept) > 20
    result = bentpipe.Study.load(study_file).run(out=tmp_path / "kept", seeds=20)
    assert len(result.points()) == 80
    whole = bentpipe.Study.load(study_file).run(out=tmp_path / "twenty", seeds=20)
    assert result.cells.to_dict() == whole.cells.to_dict()


def test_a_fork_while_a_study_runs_is_on_its_own(study_file: Path, tmp_path: Path, whole: dict[str, bytes]) -> None:
    """Threads of the parent measure points as it forks: the child has none of them, and runs all the same."""
    study = bentpipe.Study.load(study_file)
    codes: list[int | None] = []

    def fork(done: int, failed: int, total: int) -> None:
        if done > 10 and not codes:
            child = get_context("fork").Process(target=study.run, kwargs={"out": tmp_path / "child"})
            child.start()
            child.join(60)
            codes.append(child.exitcode)

    study.run(out=tmp_path / "parent", seeds=300, threads=2, progress=fork)
    assert codes == [0] and content(tmp_path / "child") == whole


def test_a_point_that_fails_names_itself_and_the_rest_is_done(tmp_path: Path, study_file: Path) -> None:
    # A program of the kernel, which the simulator does not have, as one value of an axis.
    text = study_file.read_text().replace('values = [0, "1%"]', "values = [0]")
    text += '[[sweep]]\nname = "app"\nvalues = [{ label = "tcp", set = {} }, '
    text += '{ label = "scp", set = { "flows.f.app" = "scp", "flows.f.bytes" = "1kB" } }]\n'
    text = text.replace('columns = "per"', 'columns = "app"').replace("segments = 50", 'bytes = "50kB"')
    study_file.write_text(text)
    study = bentpipe.Study.load(study_file)
    for executor, name in ((None, "threads"), (Lossy(0), "executor")):
        out = tmp_path / name
        with pytest.raises(bentpipe.StudyError, match=r"6 of 12 points failed, the first is .*scp.* has only saratoga"):
            study.run(executor, out=out)
        assert len((out / "points.jsonl").read_text().splitlines()) == 6
        assert len((out / "failed.jsonl").read_text().splitlines()) == 6


def test_what_cannot_be_meant_is_refused(study_file: Path, tmp_path: Path, whole: dict[str, bytes]) -> None:
    study = bentpipe.Study.load(study_file)
    other = tmp_path / "other.toml"
    other.write_text(study_file.read_text().replace("10ms", "11ms"))
    with pytest.raises(bentpipe.StudyError, match="holds 12 points of another scenario"):
        bentpipe.Study.load(other).run(out=tmp_path / "whole")
    with pytest.raises(bentpipe.StudyError, match="more than a million"):
        study.run(seeds=10_000_000, out=tmp_path / "many")
    with pytest.raises(TypeError, match="`submit`"):
        study.run("cluster", out=tmp_path / "out")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="such as `3/16`"):
        study.run(shard="4/3", out=tmp_path / "out")
    with pytest.raises(ValueError, match="at least 1"):
        study.run(seeds=0, out=tmp_path / "out")
    with pytest.raises(bentpipe.ScenarioError, match="cannot be read"):
        bentpipe.Study.load(tmp_path / "none")
    assert content(tmp_path / "whole") == whole
    full = tmp_path / "file"
    full.write_text("")
    with pytest.raises(bentpipe.StudyError, match="cannot write"):
        study.run(out=full / "below")


def test_scenarios_are_the_points(study_file: Path, whole: dict[str, bytes], tmp_path: Path) -> None:
    study = bentpipe.Study.load(study_file)
    points = study.results(tmp_path / "whole").points().rows()
    scenarios = list(study.scenarios())
    assert len(scenarios) == len(points) == 12
    for (labels, scenario), point in zip(scenarios, points, strict=True):
        assert labels == {axis: point[axis] for axis in ("rate", "per", "seed")}
        run = bentpipe.run(pickle.loads(pickle.dumps(scenario)))
        measures = dict(zip(run.measures["measure"], run.measures["value"], strict=True))
        assert measures["goodput"] == point["goodput"] and measures["segments"] == 50
    with pytest.raises(bentpipe.ScenarioError, match=r"set links\.l\.dealy"):
        scenarios[0][1].set("links.l.dealy", "1ms")


def test_studies_cross_processes(study_file: Path) -> None:
    study = bentpipe.Study.load(study_file).with_values(seeds=5)
    again = pickle.loads(pickle.dumps(study))
    assert (len(again), again.axes, again.name) == (len(study), study.axes, study.name)


def test_an_interrupted_run_keeps_what_is_finished(study_file: Path, tmp_path: Path, whole: dict[str, bytes]) -> None:
    class Impatient(Lossy):
        def submit(self, fn: Callable[..., Any], /, *args: Any) -> Future[Any]:
            if len(self.seen) == 2:
                raise KeyboardInterrupt
            return super().submit(fn, *args)

    study = bentpipe.Study.load(study_file)
    with pytest.raises(KeyboardInterrupt):
        study.run(Impatient(0), out=tmp_path / "out", workers=1)
    result = study.run(out=tmp_path / "out")
    assert 0 < result.resumed < 12 and content(tmp_path / "out") == whole
