"""What the package costs beside the command: the figures of docs/python.md.

    bench.py COMMAND [PART ...]        COMMAND: the program `bentpipe`, built with the same profile; PART: some of the parts alone

Command and Python run in turn, so that a machine that is busy is busy for both; ratios are of medians.
"""

from __future__ import annotations

import hashlib
import os
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import bentpipe

SCENARIO = """name = "bench"
time_limit = "1h"
[hosts.a]
[hosts.b]
[links.l]
ends = ["a", "b"]
rate = "10Mbit/s"
delay = "100ms"
packet_error_rate = "0.1%"
queue = {{ packets = 100 }}
[[flows]]
name = "f"
from = "a"
to = "b"
segments = {segments}
"""
SWEEP = """[[sweep]]
name = "segments"
key = "flows.f.segments"
values = [{segments}]
[[sweep]]
name = "delay"
key = "links.l.delay"
values = ["100ms"]
[[sweep]]
name = "seed"
key = "seed"
values = "1..{points}"
[[tables]]
name = "1"
title = "Goodput"
measure = "goodput"
rows = "segments"
columns = "delay"
"""
STUDY = "import sys, bentpipe; bentpipe.Study.load(sys.argv[1]).run(out=sys.argv[2], threads=2, progress=False)"


def study(folder: Path, points: int, segments: int) -> Path:
    """A study of that many points, whose table has one cell."""
    file = folder / f"bench-{points}-{segments}.toml"
    file.write_text((SCENARIO + SWEEP).format(points=points, segments=segments))
    return file


def segments_of(seconds: float) -> int:
    """How many segments a flow has whose run takes that long here, alone."""
    many = 200_000
    scenario = bentpipe.Scenario.parse(SCENARIO.format(segments=many))
    return max(10, round(many * seconds / min(timed(lambda: bentpipe.run(scenario)) for _ in range(5))))


def timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def ran(*arguments: str | Path) -> float:
    return timed(lambda: subprocess.run(arguments, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))


def digest(folder: Path) -> str:
    names = ("manifest.json", "points.jsonl")
    return hashlib.sha256(b"".join((folder / name).read_bytes() for name in names)).hexdigest()


def overhead(command: str, folder: Path) -> None:
    """Processes from start to end: tables and report are the command's, interpreter and imports Python's, which a third process
    with nothing to do tells."""
    segments = segments_of(0.010)
    file = study(folder, 1000, segments)
    took: dict[str, list[float]] = {"command": [], "python": [], "import": []}
    spent: dict[str, list[float]] = {"command": [], "python": [], "import": []}
    for turn in range(5):
        outs = [folder / f"{name}-{turn}" for name in ("command", "python")]
        calls = [
            [command, "study", "run", file, "--threads", "2", "--out", outs[0]],
            [sys.executable, "-c", STUDY, file, outs[1]],
            [sys.executable, "-c", "import bentpipe"],
        ]
        for name, call in zip(took, calls, strict=True):
            before = processor()
            took[name].append(ran(*call))
            spent[name].append(processor() - before)
        assert digest(outs[0]) == digest(outs[1]), "the two have other bytes"
    print(f"1000 points of 10 ms ({segments} segments each), two threads")
    for what, values in (("from start to end", took), ("of processors", spent)):
        theirs, ours, start = (statistics.median(values[name]) for name in values)
        more = 100 * (ours / theirs - 1)
        print(f"  {what}: command {theirs:.2f} s, Python {ours:.2f} s: {more:+.1f}%; {start:.2f} s of it start the interpreter")


def processor() -> float:
    """Seconds that the processors gave to children that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def samples(command: str, folder: Path) -> None:
    """From a run that has ended to a frame."""
    import polars

    result = bentpipe.run(bentpipe.Scenario.parse(SCENARIO.format(segments=1_100_000)), trace=True)
    took, spent = [], []
    for _ in range(15):
        before = time.process_time()
        took.append(1e3 * timed(lambda: polars.DataFrame(bentpipe.Table(result._own.samples()))))
        spent.append(1e3 * (time.process_time() - before))
    print(f"{len(result.samples)} samples of {len(result.samples.columns)} columns into polars, {len(took)} times")
    for what, values in (("from start to end", took), ("of processors", spent)):
        print(f"  {what}: median {statistics.median(values):.1f} ms, least {min(values):.1f} ms")


def cluster(command: str, folder: Path) -> None:
    """A local Dask cluster of two workers, which are there already; the command has two threads."""
    import distributed

    points, segments = 20_000, segments_of(0.002)
    file = study(folder, points, segments)
    own = bentpipe.Study.load(file)
    took: dict[str, list[float]] = {"command": [], "cluster": []}
    local = distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, host="127.0.0.1")
    with local, distributed.Client(local) as client:
        for turn in range(3):
            outs = [folder / f"{name}-{turn}" for name in took]
            took["command"].append(ran(command, "study", "run", file, "--threads", "2", "--out", outs[0]))
            took["cluster"].append(timed(lambda out=outs[1]: own.run(client, out=out, progress=False)))
            assert digest(outs[0]) == digest(outs[1]), "the two have other bytes"
        workers = list(client.run(os.getpid).values())

        def kill(done: int, failed: int, total: int) -> None:
            if done > total / 2 and workers:
                os.kill(workers.pop(), signal.SIGKILL)
                workers.clear()

        own.run(client, out=folder / "killed", progress=kill)
        same = digest(folder / "killed") == digest(folder / "command-0")
    theirs, ours = (points / statistics.median(took[name]) for name in took)
    print(f"{points} points of 2 ms ({segments} segments each), two threads or workers")
    print(f"  command {theirs:.0f} a second, cluster {ours:.0f}: {ours / theirs:.2f}")
    print(f"  one of the workers killed at half: {'the same bytes' if same else 'OTHER BYTES'}")


def shards(command: str, folder: Path) -> None:
    """Through two shards and a merge. BENCH_POINTS: how many points, by default a million."""
    points, segments = int(os.environ.get("BENCH_POINTS", "1000000")), segments_of(0.001)
    file, out = study(folder, points, segments), folder / "sharded"
    print(f"{points} points of 1 ms ({segments} segments each), two threads")
    for verb, *options in [["run", "--shard", "1/2"], ["run", "--shard", "2/2"], ["merge"]]:
        took = ran(command, "study", verb, file, *options, "--threads", "2", "--yes", "--out", out)
        # Of the largest child so far.
        most = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
        print(f"  study {' '.join([verb, *options])}: {took:.0f} s, at most {most:.0f} MiB so far")


def control(command: str, folder: Path) -> None:
    """Reno as a Python class and as the built-in."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    from test_control import Reno

    scenario = bentpipe.Scenario.parse(SCENARIO.format(segments=100_000)).set("flows.f.congestion_control", "reno")
    took: dict[str, list[float]] = {"built in": [], "Python": []}
    for _ in range(7):
        took["built in"].append(timed(lambda: bentpipe.run(scenario)))
        took["Python"].append(timed(lambda: bentpipe.run(scenario, control=Reno)))
    theirs, ours = (1e3 * statistics.median(took[name]) for name in took)
    print("100,000 segments by Reno")
    print(f"  built in {theirs:.0f} ms, in Python {ours:.0f} ms: {ours / theirs:.1f} times as long")


PARTS = {part.__name__: part for part in (overhead, samples, cluster, shards, control)}
LONG = {"shards"}


def main(command: str, *names: str) -> None:
    for name in names or PARTS.keys() - LONG:
        with tempfile.TemporaryDirectory() as folder:
            PARTS[name](command, Path(folder))
            sys.stdout.flush()


if __name__ == "__main__":
    if len(sys.argv) < 2 or not set(sys.argv[2:]) <= set(PARTS):
        sys.exit(f"usage: bench.py COMMAND [{' | '.join(PARTS)}]...")
    main(*sys.argv[1:])
