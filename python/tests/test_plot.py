"""Figures: every one of the papers from a small run, beside what its folder holds; the course of a run; captures."""

from __future__ import annotations

import html
import os
import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

import matplotlib.axes
import matplotlib.figure
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

import bentpipe
from bentpipe import plot

PAPERS = Path(__file__).parents[2] / "papers"
COMMAND = os.environ.get("BENTPIPE_COMMAND") or shutil.which("bentpipe")


def with_figures() -> Iterator[Any]:
    """The studies of the papers that have figures and run in the simulator; those of the lab need namespaces."""
    for file in sorted(PAPERS.glob("*/*.toml")):
        content = tomllib.loads(file.read_text())
        if content.get("figures") and content.get("engine", "simulator") == "simulator":
            yield pytest.param(file, id=f"{file.parent.name}/{file.stem}")


def admits(wanted: str | list[str], label: str) -> bool:
    """What `where` says of a label (docs/studies.md)."""
    for one in [wanted] if isinstance(wanted, str) else wanted:
        low, dots, high = one.partition("..")
        try:
            number = float(label)
            if dots and (not low or float(low) <= number) and (not high or number <= float(high)):
                return True
        except ValueError:
            pass
        if one == label:
            return True
    return False


def expected(content: dict[str, Any], spec: dict[str, Any], points: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Means by line and label on the x axis, from the points of the folder: ours, not the package's."""
    listed = {"series": spec["series"], "measure": spec["measure"]}
    series, measures = ([one] if isinstance(one, str) else one for one in listed.values())
    where = spec.get("where", {})
    axes = [axis["name"] for axis in content["sweep"]]
    counted = [point for point in points if all(admits(wanted, point[axis]) for axis, wanted in where.items())]

    def of(axis: str) -> list[str]:
        return list(dict.fromkeys(point[axis] for point in counted))

    lines: dict[str, dict[str, float]] = {}
    for chosen, measure in product(product(*map(of, series)), measures):
        label = ", ".join([*map(spoken, series, chosen), *([measure] if len(measures) > 1 else [])])
        line = lines.setdefault(label, {})
        for x in of(spec["x"]):
            fixed = {**dict(zip(series, chosen, strict=True)), spec["x"]: x}
            own = [point for point in counted if all(point[axis] == value for axis, value in fixed.items())]
            if "show" not in spec:
                values = [point[measure] for point in own if point[measure] is not None]
                if values:
                    line[x] = fmean(values)
                continue
            sides = []
            for side in (spec["from"], spec["to"]):
                rest = [axis for axis in axes if axis != spec["over"]]
                at = {tuple(point[a] for a in rest): point[measure] for point in own if point[spec["over"]] == side}
                sides.append({key: value for key, value in at.items() if value is not None})
            both = sides[0].keys() & sides[1].keys()
            if both:
                before, after = (fmean(side[key] for key in both) for side in sides)
                line[x] = 100 * (after - before) / before if spec["show"] == "percent" else after - before
    return lines


def spoken(axis: str, label: str) -> str:
    """A number is said with its axis."""
    if label == "1":
        return f"1 {axis.removesuffix('s')}"
    return f"{label} {axis}" if label.isdigit() else label


def drawn(axes: matplotlib.axes.Axes) -> dict[str, tuple[list[float], list[float]]]:
    lines = [line for line in axes.get_lines() if not line.get_label().startswith("_")]
    return {line.get_label(): (list(line.get_xdata()), list(line.get_ydata())) for line in lines}


@pytest.mark.parametrize("file", list(with_figures()))
def test_every_figure_of_the_papers_shows_what_the_folder_holds(file: Path, tmp_path: Path) -> None:
    content = tomllib.loads(file.read_text())
    seeds = 2 if any(spec.get("band", "none") != "none" for spec in content["figures"]) else 1
    result = bentpipe.Study.load(file).run(out=tmp_path / "out", seeds=seeds, quick=True)
    show_what_the_folder_holds(content, result)


def show_what_the_folder_holds(content: dict[str, Any], result: bentpipe.StudyResult) -> None:
    """Every figure of a study, as it is drawn, beside what its points say."""
    points = result.points().rows()
    canvases = plot.figures(result)
    assert list(canvases) == [spec["name"] for spec in content["figures"]]
    for canvas in canvases.values():
        is_within_its_edges(canvas)
    for spec, figure in zip(content["figures"], result.figures, strict=True):
        canvas = canvases[spec["name"]]
        title = canvas.get_suptitle().replace("\n", " ")
        assert title.endswith(spec["title"]) and title == figure.heading
        main = canvas.axes[0]
        assert len(canvas.axes) == (2 if "zoom" in spec else 1)
        lines = drawn(main)
        said = main.get_title(loc="left").replace("\n", " ")
        assert " ".join(figure.y.split()) in " ".join(said.split())
        if spec["kind"] == "sizes":
            ((_, (xs, ys)),) = lines.items()
            assert main.get_xscale() == "log" and xs == sorted(xs) and ys == sorted(ys) and ys[-1] == 100.0
            continue
        if spec["kind"] == "time-sequence":
            assert main.get_xlabel() == "time (s)" and len(lines) == len(of_axis(content, spec["series"]))
            for xs, ys in lines.values():
                assert xs == sorted(xs) and ys == sorted(ys) and ys[-1] > 1
            continue
        wanted = expected(content, spec, points)
        # An axis of labels has them all; a line without a point is drawn too, empty.
        assert list(lines) == list(wanted), spec["name"]
        assert main.get_xlabel() == spec["x"]
        scale = spec.get("scale", "category")
        assert main.get_xscale() == ("log" if scale == "log" else "linear")
        for label, line in wanted.items():
            xs, ys = lines[label]
            if scale == "category":
                names = [figure.ticks[int(x)] for x in xs]
                assert names == [x for x in figure.ticks if x in line]
                values = [line[name] for name in names]
            else:
                places = {float(x): value for x, value in line.items() if number(x) and (scale != "log" or float(x) > 0)}
                assert xs == list(places)
                values = list(places.values())
            assert ys == pytest.approx(values, rel=1e-9, abs=1e-9), (spec["name"], label)
        if "band" in spec and spec["band"] != "none":
            bands = [one for one in main.collections if len(one.get_paths())]
            assert len(bands) == sum(1 for line in figure.lines if line.low)
            assert all(low <= y <= high for line in figure.lines for low, y, high in zip(line.low, line.y, line.high, strict=True))


def is_within_its_edges(canvas: matplotlib.figure.Figure) -> None:
    """What stands around the panels is drawn whole."""
    agg = FigureCanvasAgg(canvas)
    agg.draw()
    box = canvas.get_tightbbox(agg.get_renderer())
    width, height = canvas.get_size_inches()
    assert box.x0 >= 0 and box.y0 >= 0 and box.x1 <= width and box.y1 <= height, (box.extents, width, height)


def number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def of_axis(content: dict[str, Any], name: str) -> list[Any]:
    (axis,) = (axis for axis in content["sweep"] if axis["name"] == name)
    return list(axis.get("quick", axis["values"]))


@pytest.mark.skipif(COMMAND is None, reason="no command `bentpipe` is built or installed")
def test_figures_say_what_the_commands_report_says(tmp_path: Path) -> None:
    assert COMMAND is not None
    out = tmp_path / "out"
    study = bentpipe.Study.load(PAPERS / "sing-soh-2005")
    result = study.run(out=out, seeds=1, quick=True)
    run = [COMMAND, "study", "run", str(PAPERS / "sing-soh-2005"), "--seeds", "1", "--quick", "--out", str(out)]
    said = subprocess.run(run, check=True, capture_output=True, text=True).stdout
    assert ", 0 of them run now" in said
    again = study.results(out, seeds=1, quick=True)
    assert (again.resumed, again.cells.to_dict()) == (len(study.with_values(seeds=1, quick=True)), result.cells.to_dict())
    for figure in again.figures:
        svg = (out / "report" / f"figure-{figure.name}.svg").read_text()
        texts = [html.unescape(text) for text in re.findall(r"<text[^>]*>([^<]*)</text>", svg)]
        assert figure.heading in texts and figure.x in texts
        assert [line.label for line in figure.lines] == texts[-len(figure.lines) :]
        (count,) = {len(re.findall("<polyline", svg))}
        assert count == len(figure.lines)


CAPTURED = """
[[sweep]]
name = "loss"
key = "links.l.packet_error_rate"
values = [0, "10%"]
[[time_sequences]]
name = "all"
title = "Fifty segments"
link = "l"
node = "a"
where = { loss = "0" }
[[time_sequences]]
name = "part"
title = "The first half second"
link = "l"
node = "a"
begin = "0s"
length = "500ms"
where = { loss = "10%" }
"""


def test_time_sequences_of_captures(text: str, tmp_path: Path) -> None:
    file = tmp_path / "captured.toml"
    file.write_text("capture = true\n" + text + CAPTURED)
    study = bentpipe.Study.load(file)
    result = study.run(out=tmp_path / "out")
    whole, part = result.time_sequences
    layers = {layer.name: layer for layer in whole.layers}
    assert list(layers) == ["window", "acknowledged", "segments", "SACK blocks", "out of order", "retransmissions", "SYN, FIN, RST"]
    times, starts, ends = layers["segments"].columns
    flow = bentpipe.run(bentpipe.Scenario.parse(text), trace=True)
    sent = [row for row in flow.sequence.rows() if row["event"] == "sent"]
    # The capture is of bytes on the wire: the handshake takes number 0, and its data is what the run's source sent.
    assert len(times) == len(sent) == 50
    assert [end - start for start, end in zip(starts, ends, strict=True)] == [1448.0] * 50
    assert ends[-1] - starts[0] == sent[-1]["end_bytes"] == flow.flows["received_bytes"][0]
    assert whole.bytes[1] >= ends[-1] and times == sorted(times)
    assert {layer.name: layer for layer in part.layers}["retransmissions"].form == "strokes"
    assert part.seconds == (0.0, 0.5) and all(t <= 0.5 for layer in part.layers[2:] for t in layer.columns[0])
    canvases = plot.figures(result)
    assert list(canvases) == ["all", "part"]
    for canvas in canvases.values():
        is_within_its_edges(canvas)
    (axes,) = canvases["all"].axes
    assert axes.get_xlabel() == "time since the first packet (s)" and canvases["part"].axes[0].get_xlim() == (0.0, 0.5)
    (strokes,) = (one for one in axes.collections if one.get_label() == "segments")
    assert len(strokes.get_segments()) == 50
    for capture in (tmp_path / "out" / "captures").rglob("*.pcapng"):
        capture.unlink()
    with pytest.raises(bentpipe.StudyError, match=r"time sequence `all` cannot be drawn of .*No such file"):
        _ = study.results(tmp_path / "out").time_sequences
    with pytest.raises(bentpipe.RunError, match="captures stay where they are made"):
        study.run(Never(), out=tmp_path / "far")


class Never:
    def submit(self, fn: Any, /, *args: Any) -> Any:
        raise AssertionError("nothing is to be sent")


def test_the_course_of_a_run(text: str, tmp_path: Path) -> None:
    scenario = bentpipe.Scenario.parse(text).update({"flows.f.segments": 400, "links.l.queue": {"packets": 20}})
    result = bentpipe.run(scenario, trace=True)
    samples = result.samples.rows()
    sender = [row for row in samples if row["point"] == "sender"]
    (window,) = plot.window(result).axes
    lines = drawn(window)
    assert list(lines) == ["f"] and lines["f"][1] == [row["cwnd_segments"] for row in sender]
    assert window.get_ylabel() == "congestion window (segments)" and len(window.get_lines()) == 2
    (throughput,) = plot.throughput(result, interval_s=0.5).axes
    xs, ys = drawn(throughput)["f"]
    assert xs[:2] == [0.5, 1.0]
    assert sum(ys) * 0.5 / 8e-6 == pytest.approx(result.flows["received_bytes"][0])
    (queue,) = plot.queue(result).axes
    _, delays = drawn(queue)["f"]
    # 20 packets of 1500 bytes at 1 Mbit/s wait 240 ms; a packet itself takes 12.
    assert 200 < max(delays) < 255 and queue.get_ylabel() == "queueing (ms)"
    (sequence,) = plot.time_sequence(result).axes
    counts = {label: len(ys) for label, (_, ys) in drawn(sequence).items()}
    events = result.sequence["event"]
    assert counts == {
        name: events.count(event)
        for name, event in [("received in order", "received"), ("sent", "sent"), ("sent again", "sent again")]
    }
    assert counts["sent"] == 400 and counts["sent again"] > 0
    with pytest.raises(ValueError, match="no flow is named 'g': there are f"):
        plot.time_sequence(result, "g")
    with pytest.raises(ValueError, match="above 0"):
        plot.throughput(result, interval_s=0)
    with pytest.raises(bentpipe.RunError, match="trace=True"):
        plot.window(bentpipe.run(scenario))
    plot.queue(result).savefig(tmp_path / "queue.png")
    assert (tmp_path / "queue.png").read_bytes().startswith(b"\x89PNG")


def test_a_study_of_the_lab_is_read_and_not_run(tmp_path: Path) -> None:
    study = bentpipe.Study.load(PAPERS / "finch-2012/testbed.toml")
    with pytest.raises(bentpipe.RunError, match=r"runs in the lab.*Study\.results"):
        study.run(out=tmp_path)
    with pytest.raises(bentpipe.StudyError, match="there are no results of a study in"):
        study.results(tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_a_figure_without_points_says_so() -> None:
    empty = bentpipe.Figure("1", "Figure 1. Nothing", "x", [], False, "y", "", None, [bentpipe.Line("a", [], [], [], [])])
    (axes,) = plot.figure(empty).axes
    assert [text.get_text() for text in axes.texts] == ["No point of this figure was run."]
