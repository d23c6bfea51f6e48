"""Studies: a scenario swept over its axes, on threads here or on whatever has `submit`."""

from __future__ import annotations

import os
import pickle
import queue
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor
from contextlib import contextmanager
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from . import _native
from .errors import BentpipeError, ScenarioError, StudyError, VersionError, same_version
from .figure import Figure, TimeSequence
from .result import Table
from .scenario import Scenario

if TYPE_CHECKING:
    import pandas
    import polars

Progress = Callable[[int, int, int], object]
"""Told how many points are done, how many failed, and how many there are."""

TRIES = 3
"""How often the points of a task are sent out again whose worker was lost."""


class Executor(Protocol):
    """Anything that runs a function elsewhere, as `concurrent.futures.Executor` does."""

    def submit(self, fn: Callable[..., Any], /, *args: Any) -> Any:
        """Start `fn(*args)`; returns a future with `add_done_callback`, `result` and `cancel`."""


class Study:
    """A scenario, the axes along which it is varied, and the tables that are made of its points (docs/studies.md).

    Studies may be pickled; the papers' values beside the file do not travel with them.
    """

    __slots__ = ("_own",)
    _own: _native.Study

    def __init__(self, native: _native.Study) -> None:
        self._own = native

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Study:
        """Read the study at a path: a TOML file, or a folder with a `scenario.toml`.

        Raises `ScenarioError`, with file, line and suggestion of every problem.
        """
        return cls(_native.Study.load(os.fspath(path)))

    @property
    def name(self) -> str:
        """Folder and file, as in the default path of its results: `sing-soh-2005/scenario`."""
        return self._own.name

    @property
    def axes(self) -> dict[str, int]:
        """How many values each axis has; the last varies fastest."""
        return dict(self._own.axes)

    def __len__(self) -> int:
        """How many points it has."""
        return len(self._own)

    def with_values(self, *, seeds: int | None = None, quick: bool = False) -> Study:
        """The same study with the seeds 1 to `seeds`, or with the few values that it names for `--quick`.

        Raises `ValueError` where it has no axis `seed`.
        """
        return Study(self._own.with_values(seeds, quick))

    def scenarios(self) -> Iterator[tuple[dict[str, str], Scenario]]:
        """Every point in the study's order: its label on each axis, and the scenario that is run; for what `Study.run` does not do,
        such as a congestion control in Python, or a trace. Made one at a time; each may be pickled.

        Raises `ScenarioError` at a point whose values contradict each other.
        """
        axes = list(self.axes)
        for number in range(len(self)):
            labels, scenario = self._own.scenario(number)
            yield dict(zip(axes, labels, strict=True)), Scenario(scenario)

    def run(
        self,
        executor: Executor | None = None,
        *,
        out: str | os.PathLike[str] | None = None,
        seeds: int | None = None,
        quick: bool = False,
        threads: int | None = None,
        workers: int | None = None,
        shard: str | None = None,
        fresh: bool = False,
        many: bool = False,
        progress: bool | Progress | None = None,
        task_seconds: float = 2.0,
    ) -> StudyResult:
        """Measure every point that is not finished yet, and keep the results in `out`, by default `results/NAME`.

        The folder is that of `bentpipe study run`, byte for byte (its report apart): either goes on with what the other began.
        What is finished is there at once; Ctrl-C, or an error, loses the points under way alone.

        `executor`: None for `threads` threads in this process (by default as many as processors). Otherwise anything with
        `submit`: a `ThreadPoolExecutor`, a `ProcessPoolExecutor`, a `distributed.Client`. Points are sent in tasks of some
        `task_seconds`, to `workers` at a time (by default as many as the executor says that it has). A task whose worker is lost is
        sent again, at most three times in all.
        `seeds`, `quick`: as `with_values`. `shard`: run part `"K/N"` alone, in a folder of its own (docs/clusters.md), on threads.
        `fresh`: replace results that are there. `many`: run more than a million points.
        `progress`: False for none, or a function that is told; by default tqdm's bar, where there is one and someone to see it.

        Raises `StudyError` for points that failed (after all others are finished), a folder with other results, or a full disk;
        `VersionError` for a worker with another version of this package.
        """
        study = self._own if seeds is None and not quick else self._own.with_values(seeds, quick)
        points = len(study)
        if points > study.most_points and not many:
            raise StudyError(f"the study has {points} points, more than a million: give fewer values or seeds, or many=True")
        folder = _folder(study, out)
        if shard is not None:
            if executor is not None:
                raise ValueError("a shard runs on threads: leave out the executor, or the shard")
            folder = Path(f"{folder}-shards") / shard.replace("/", "-of-")
        with _shown(progress, self.name) as tell:
            if executor is None:
                found = study.run(folder, threads or os.cpu_count() or 1, fresh, shard, tell)
            else:
                found = _spread(study, executor, folder, fresh, workers, task_seconds, tell)
        return StudyResult(study, folder, found)

    def results(self, out: str | os.PathLike[str] | None = None, *, seeds: int | None = None, quick: bool = False) -> StudyResult:
        """The results of an earlier run in `out`, by default where `bentpipe study run` keeps them: also of a study of the lab,
        which only the command runs. `seeds`, `quick`: those of that run.

        Raises `StudyError` where there are none, points are missing, or they are of another study or version.
        """
        study = self._own if seeds is None and not quick else self._own.with_values(seeds, quick)
        folder = _folder(study, out)
        return StudyResult(study, folder, study.read(folder))

    def __repr__(self) -> str:
        axes = ", ".join(f"{axis} of {values}" for axis, values in self.axes.items())
        return f"<Study {self.name!r}: {len(self)} points ({axes})>"

    def __reduce__(self) -> tuple[Any, ...]:
        return (_restored, (_native.__version__, *self._own.state()))


class StudyResult:
    """What a study found."""

    def __init__(self, study: _native.Study, folder: Path, found: _native.Found) -> None:
        self._study = study
        self._found = found
        self.folder = folder
        """The results folder: `manifest.json`, `points.jsonl`."""
        self.resumed = found.resumed
        """How many points an earlier run had finished."""

    @cached_property
    def cells(self) -> Table:
        """The cells of the study's tables, a row each: `table`, `row`, `column`; `mean` over the seeds, `half` the width of its 95%
        confidence interval, `min`, `max`, `n` runs with the measure of `runs`; the `paper`'s value, the `reference`'s, and whether
        ours `agrees` with it."""
        return Table(self._study.cells(self._found))

    @cached_property
    def figures(self) -> list[Figure]:
        """The study's figures, as its report has them; `bentpipe.plot` draws them. Those of single runs run these again, now."""
        return [Figure.of(figure) for figure in self._study.figures(self._found)]

    @cached_property
    def time_sequences(self) -> list[TimeSequence]:
        """The time-sequence graphs of the study's captures, as its report has them.

        Raises `StudyError` where a capture is not there.
        """
        return [TimeSequence.of(graph) for graph in self._study.graphs(self.folder)]

    def points(self) -> Table:
        """A row a point, in the study's order: its label on each axis, then each measure that any of them has."""
        return Table(self._study.points(self.folder))

    def to_pandas(self) -> pandas.DataFrame:
        """The points as a pandas frame."""
        return self.points().to_pandas()

    def to_polars(self) -> polars.DataFrame:
        """The points as a polars frame."""
        return self.points().to_polars()

    def __repr__(self) -> str:
        return f"<StudyResult of {self._study.name!r}: {len(self._study)} points in {self.folder}>"


def _folder(study: _native.Study, out: str | os.PathLike[str] | None) -> Path:
    """Where the command keeps the results too."""
    return Path(out) if out is not None else Path("results") / f"{study.name}{'-lab' if study.engine == 'lab' else ''}"


def _restored(
    version: str, file: str, text: str, profiles: list[tuple[str, str]], seeds: int | None, quick: bool, name: str
) -> Study:
    same_version(version, f"the pickled study `{name}`")
    return Study(_native.Study.restore(file, text, profiles, seeds, quick, name))


@lru_cache(maxsize=4)
def _unpacked(payload: bytes) -> _native.Study:
    """A study as a worker has it: read once for all tasks."""
    return _native.Study.restore(*pickle.loads(payload))


def _measure(version: str, payload: bytes, numbers: list[int]) -> tuple[bytes, float]:
    """What a worker does: measures some points. Returns their lines, and how many seconds they took."""
    if version != _native.__version__:
        raise VersionError(version, _native.__version__)
    study = _unpacked(payload)
    began = time.perf_counter()
    return study.measure(numbers), time.perf_counter() - began


def _spread(
    study: _native.Study,
    executor: Any,
    folder: Path,
    fresh: bool,
    workers: int | None,
    task_seconds: float,
    tell: Progress,
) -> _native.Found:
    """Have `executor` measure the points in tasks, and take what comes into the folder as it comes."""
    executor, known = _opened(executor)
    workers = workers or known
    payload = pickle.dumps(study.state())
    session = study.open(folder, fresh)
    returned: queue.SimpleQueue[Any] = queue.SimpleQueue()
    running: dict[Any, tuple[list[int], int]] = {}
    waiting = deque(session.unfinished())
    again: list[tuple[list[int], int]] = []
    each = 0.0
    try:
        tell(*session.progress())
        while waiting or again or running:
            while (waiting or again) and len(running) < 2 * workers:
                numbers, tries = again.pop() if again else (_cut(waiting, each, task_seconds, workers), 1)
                future = executor.submit(_measure, _native.__version__, payload, numbers)
                running[future] = (numbers, tries)
                future.add_done_callback(returned.put)
            future = _next(returned)
            numbers, tries = running.pop(future)
            try:
                lines, took = future.result()
            except (VersionError, ScenarioError):
                raise
            except BrokenExecutor as error:
                raise StudyError(f"the executor broke ({error}): what is finished is kept, run again with a new one") from error
            except Exception as error:
                if tries == TRIES:
                    why = f"{len(numbers)} points came to nothing {TRIES} times ({type(error).__name__}: {error})"
                    raise StudyError(f"{why}: what is finished is kept, run again") from error
                again.append((numbers, tries + 1))
                continue
            each = took / len(numbers) if each == 0.0 else 0.7 * each + 0.3 * took / len(numbers)
            session.add(lines)
            tell(*session.progress())
        return session.finish()
    finally:
        for future in running:
            future.cancel()
        session.close()


def _next(returned: queue.SimpleQueue[Any]) -> Any:
    """The next future that is done; every half second the interpreter may act on a signal."""
    while True:
        try:
            return returned.get(timeout=0.5)
        except queue.Empty:
            continue


def _cut(waiting: deque[int], each: float, task_seconds: float, workers: int) -> list[int]:
    """The points of the next task: some seconds' worth, few at first and at the end, so that no worker waits for another."""
    most = 4 if each == 0.0 else int(task_seconds / each)
    fair = -(-len(waiting) // (2 * workers))
    size = max(1, min(most, fair, 20_000))
    return [waiting.popleft() for _ in range(min(size, len(waiting)))]


def _opened(executor: Any) -> tuple[Any, int]:
    """The executor, that of a `distributed.Client` where one was given, and how many workers it has."""
    if hasattr(executor, "get_executor"):
        threads = sum(executor.nthreads().values())
        return executor.get_executor(pure=False, retries=TRIES), threads or 1
    if not hasattr(executor, "submit"):
        raise TypeError(f"{type(executor).__name__} is no executor: give one with `submit`, or a distributed.Client")
    return executor, getattr(executor, "_max_workers", None) or os.cpu_count() or 1


@contextmanager
def _shown(progress: bool | Progress | None, name: str) -> Iterator[Progress]:
    """How far it has come, as the caller wants to see it."""
    if callable(progress):
        yield progress
        return
    bar: Any = None
    if progress or (progress is None and (sys.stderr.isatty() or "ipykernel" in sys.modules)):
        try:
            from tqdm.auto import tqdm
        except ImportError:
            if progress:
                raise BentpipeError("progress=True needs tqdm: install it, or give a function") from None
        else:
            bar = tqdm(desc=name, unit=" points")

    def show(done: int, failed: int, total: int) -> None:
        if bar is not None:
            bar.total = total
            bar.set_postfix(failed=failed, refresh=False) if failed else None
            bar.update(done + failed - bar.n)

    try:
        yield show
    finally:
        if bar is not None:
            bar.close()
