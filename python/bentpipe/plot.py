"""Plots, by matplotlib (`pip install bentpipe[plot]`): the figures of studies as the reports draw them, and the course of a run.

Every function returns a `matplotlib.figure.Figure`, which a notebook shows and `savefig` writes. Nothing of pyplot is touched: no
window opens, and no figure stays in memory.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Literal

from . import _native
from .figure import Figure, Line, TimeSequence
from .result import Result, Table
from .study import StudyResult

if TYPE_CHECKING:
    import matplotlib.axes
    import matplotlib.figure

DOTS = 60
"""Points of a line up to which each has a dot."""
DASHES = ["-", "--", ":"]


def figures(result: StudyResult) -> dict[str, matplotlib.figure.Figure]:
    """All figures of a study, time-sequence graphs of captures included, by their names."""
    drawn: dict[str, matplotlib.figure.Figure] = {one.name: figure(one) for one in result.figures}
    drawn.update((one.name, time_sequence_graph(one)) for one in result.time_sequences)
    return drawn


def figure(one: Figure) -> matplotlib.figure.Figure:
    """A figure of a study: its lines with their bands, and a second panel where a part is enlarged."""
    panels = [None] if one.zoom is None else [None, one.zoom]
    rows = math.ceil(len(one.lines) / 2)
    canvas, axes = _canvas(len(panels), one.heading, legend=rows)
    if not any(line.x for line in one.lines):
        axes[0].set_axis_off()
        axes[0].text(0.5, 0.5, "No point of this figure was run.", ha="center", transform=axes[0].transAxes)
        return canvas
    for panel, limit in zip(axes, panels, strict=True):
        _panel(panel, one, limit)
    axes[0].set_title("\n".join(filter(None, [_wrapped(one.y, 110), one.band])), loc="left", fontsize=8, color="#55616e")
    canvas.legend(*axes[0].get_legend_handles_labels(), loc="outside lower left", ncols=2, frameon=False, fontsize=8)
    return canvas


def time_sequence_graph(one: TimeSequence) -> matplotlib.figure.Figure:
    """The time-sequence graph of a capture: segments, acknowledgements and the window by the bytes of the stream."""
    canvas, (axes,) = _canvas(1, one.heading, legend=2)
    for layer in one.layers:
        style: dict[str, Any] = {"color": layer.colour, "label": layer.name}
        width = 2.4 if layer.name == "retransmissions" else 1.2
        if layer.form == "steps":
            axes.step(*layer.columns, where="post", linewidth=width, **style)
        elif layer.form == "strokes":
            times, first, behind = layer.columns
            axes.vlines(times, first, behind, linewidth=width, **style)
        else:
            axes.plot(*layer.columns, "D", markersize=4, **style)
    low, high = one.bytes
    axes.set_xlim(*one.seconds)
    axes.set_ylim(low, high + 0.06 * (high - low))
    axes.set_xlabel("time since the first packet (s)")
    axes.set_ylabel("place in the stream (bytes)")
    axes.set_title(f"{one.sender} to {one.receiver}", loc="left", fontsize=8, color="#55616e")
    canvas.legend(loc="outside lower left", ncols=4, frameon=False, fontsize=8)
    return canvas


def throughput(result: Result, *, interval_s: float = 1.0) -> matplotlib.figure.Figure:
    """Throughput of each flow, in Mbit/s: what its receiver got in order, over intervals of `interval_s` from the flow's start. Of
    a run with `trace=True`.

    Raises `ValueError` where `interval_s` is not above 0.
    """
    if not interval_s > 0:
        raise ValueError(f"interval_s is {interval_s}: give seconds, above 0")

    def rates(rows: list[dict[str, Any]]) -> tuple[list[float], list[float]]:
        last = rows[-1]["at_s"]
        ends = [interval_s * number for number in range(1, math.ceil(last / interval_s) + 1)]
        # Bytes received up to the end of each interval.
        reached: list[float] = []
        at = iter([*rows, None])
        row, so_far = next(at), 0
        for end in ends:
            while row is not None and row["at_s"] <= end:
                so_far, row = row["bytes"], next(at)
            reached.append(so_far)
        steps = zip(reached, [0, *reached], strict=False)
        return ends, [8e-6 * (now - before) / interval_s for now, before in steps]

    return _course(result, "receiver", rates, "throughput", "Mbit/s", where="pre")


def window(result: Result) -> matplotlib.figure.Figure:
    """Congestion window of each flow's sender, in segments, and its slow-start threshold, dotted. Of a run with `trace=True`."""
    canvas = _course(result, "sender", _of("cwnd_segments"), "congestion window", "segments")
    (axes,) = canvas.axes
    for number, (_, rows) in enumerate(_flows(result.samples, "sender")):
        times, values = _of("ssthresh_segments")(rows)
        axes.step(times, values, where="post", linestyle=":", linewidth=1.0, color=_colour(number))
    return canvas


def queue(result: Result) -> matplotlib.figure.Figure:
    """Queueing of each flow, in ms: by how much its sender's smoothed round-trip time exceeds propagation. Of a run with
    `trace=True`."""
    trips = dict(zip(result.flows["name"], result.flows["round_trip_s"], strict=True))

    def beyond(rows: list[dict[str, Any]]) -> tuple[list[float], list[float]]:
        known = [row for row in rows if row["srtt_ms"] is not None]
        return [row["at_s"] for row in known], [row["srtt_ms"] - 1e3 * trips[row["flow"]] for row in known]

    return _course(result, "sender", beyond, "queueing", "ms")


def time_sequence(result: Result, flow: str | None = None) -> matplotlib.figure.Figure:
    """Time-sequence graph of one flow, by default the first: segments as its source sent them, and what its receiver had in order.
    Of a run with `trace=True`.

    Raises `ValueError` for a flow that there is not.
    """
    names = result.flows["name"]
    flow = names[0] if flow is None else flow
    if flow not in names:
        raise ValueError(f"no flow is named {flow!r}: there are {', '.join(names)}")
    rows = [row for row in result.sequence.rows() if row["flow"] == flow]
    canvas, (axes,) = _canvas(1, f"Time sequence of {flow}", legend=1)
    styles: list[tuple[str, str, dict[str, Any], str]] = [
        ("received", "received in order", {"drawstyle": "steps-post", "linewidth": 1.2, "zorder": 3}, _colour(2)),
        ("sent", "sent", {"linestyle": "", "marker": ".", "markersize": 3}, _colour(7)),
        ("sent again", "sent again", {"linestyle": "", "marker": "x", "markersize": 5}, _colour(1)),
    ]
    for event, label, style, colour in styles:
        own = [row for row in rows if row["event"] == event]
        axes.plot([row["at_s"] for row in own], [1e-6 * row["end_bytes"] for row in own], color=colour, label=label, **style)
    axes.set_xlabel("time since the run's start (s)")
    axes.set_ylabel("end of the segment in the stream (MB)")
    axes.set_ylim(bottom=0)
    canvas.legend(loc="outside lower left", ncols=3, frameon=False, fontsize=8)
    return canvas


def _canvas(panels: int, heading: str, *, legend: int) -> tuple[matplotlib.figure.Figure, list[matplotlib.axes.Axes]]:
    """A canvas with that many panels one above the other, and room for a legend of that many lines."""
    try:
        import matplotlib.figure
    except ImportError as error:
        raise ImportError("bentpipe.plot needs matplotlib: pip install bentpipe[plot]", name=error.name) from error
    canvas = matplotlib.figure.Figure(figsize=(7.6, 0.9 + 3.4 * panels + 0.2 * legend), layout="constrained")
    canvas.suptitle(_wrapped(heading, 80), x=0.01, ha="left", fontsize=11, fontweight="bold")
    axes = [canvas.add_subplot(panels, 1, number + 1) for number in range(panels)]
    for panel in axes:
        panel.grid(axis="y", color="#dde2e8")
        panel.set_axisbelow(True)
        panel.spines[["top", "right"]].set_visible(False)
    return canvas, axes


def _panel(axes: matplotlib.axes.Axes, one: Figure, limit: float | None) -> None:
    """The lines of a figure, up to `limit` where there is one."""
    shown = [line if limit is None else _cut(line, limit) for line in one.lines]
    for number, line in enumerate(shown):
        colour, dash = _colour(number), DASHES[min(number // len(_native.COLOURS), 2)]
        marker = "o" if len(line.x) <= DOTS else ""
        axes.plot(line.x, line.y, dash, color=colour, linewidth=1.8, marker=marker, markersize=3.5, label=line.label or one.y)
        if line.low:
            axes.fill_between(line.x, line.low, line.high, color=colour, alpha=0.14, linewidth=0)
    axes.set_xlabel(one.x if limit is None else f"{one.x}, enlarged up to {limit:g}")
    values = [value for line in shown for edge in (line.y, line.low, line.high) for value in edge]
    low, high = min([0.0, *values]), max([0.0, *values])
    margin = 0.04 * (high - low) or 0.04
    axes.set_ylim(low - margin if low < 0 else 0.0, high + margin)
    if low < 0:
        axes.axhline(0, color="#55616e", linewidth=0.8)
    places = [place for line in shown for place in line.x]
    if one.ticks:
        # At most 16 labels, in lines as wide as their slots.
        step = -(-len(one.ticks) // 16)
        labels = one.ticks[::step]
        most = max(4, 110 // len(labels))
        axes.set_xlim(-0.5, len(one.ticks) - 0.5)
        axes.set_xticks(range(0, len(one.ticks), step), [_tick(label, most) for label in labels], fontsize=8)
    elif one.log and limit is None:
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter("{x:g}")
    elif places:
        axes.set_xlim(left=min([0.0, *places]), right=limit)


def _cut(line: Line, limit: float) -> Line:
    """The part of a line up to `limit`."""
    inside = [at for at, x in enumerate(line.x) if x <= limit]
    x, y, low, high = ([column[at] for at in inside] if column else [] for column in line[1:])
    return Line(line.label, x, y, low, high)


def _course(
    result: Result,
    point: str,
    of: Callable[[list[dict[str, Any]]], tuple[list[float], list[float]]],
    heading: str,
    unit: str,
    *,
    where: Literal["pre", "post"] = "post",
) -> matplotlib.figure.Figure:
    """A line a flow, of its samples at `point`, against the time since the flow's start."""
    flows = list(_flows(result.samples, point))
    canvas, (axes,) = _canvas(1, f"{result.scenario}: {heading}", legend=math.ceil(len(flows) / 3))
    for number, (name, rows) in enumerate(flows):
        dash = DASHES[min(number // len(_native.COLOURS), 2)]
        axes.step(*of(rows), where=where, label=name, color=_colour(number), linestyle=dash, linewidth=1.4)
    axes.set_xlabel("time since the flow's start (s)")
    axes.set_ylabel(f"{heading} ({unit})")
    axes.set_ylim(bottom=0)
    canvas.legend(loc="outside lower left", ncols=3, frameon=False, fontsize=8)
    return canvas


def _of(column: str) -> Callable[[list[dict[str, Any]]], tuple[list[float], list[float]]]:
    """Times and values of a column, where it is known."""

    def taken(rows: list[dict[str, Any]]) -> tuple[list[float], list[float]]:
        known = [row for row in rows if row[column] is not None]
        return [row["at_s"] for row in known], [row[column] for row in known]

    return taken


def _flows(samples: Table, point: str) -> Iterable[tuple[str, list[dict[str, Any]]]]:
    """The flows that have samples at `point`, with these in the order of time."""
    flows: dict[str, list[dict[str, Any]]] = {}
    for row in samples.rows():
        if row["point"] == point:
            flows.setdefault(row["flow"], []).append(row)
    return flows.items()


def _colour(number: int) -> str:
    return _native.COLOURS[number % len(_native.COLOURS)]


def _tick(label: str, most: int) -> str:
    """A label in lines of `most` characters: broken at commas first, as in reports."""
    lines = label.replace(", ", ",\n").split("\n") if len(label) > most else [label]
    return "\n".join(_wrapped(line, most) for line in lines)


def _wrapped(text: str, most: int) -> str:
    return "\n".join(textwrap.wrap(text, most, break_long_words=False, break_on_hyphens=False))
