"""What figures show: the data that reports are drawn from. `bentpipe.plot` draws them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple


class Line(NamedTuple):
    """A line of a figure. All its lists are as long as `x`; `low` and `high` are empty where nothing is drawn around it."""

    label: str
    x: list[float]
    """Time in seconds, the number that a label is, or the number of a label among the figure's `ticks`, from 0."""
    y: list[float]
    """Segments, or the mean of the measure over the seeds."""
    low: list[float]
    """The lower edge of the band."""
    high: list[float]
    """Its upper edge."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure of a study, as `[[figures]]` describes it (docs/studies.md)."""

    name: str
    """Its name in the study: `6`, `2a`."""
    heading: str
    """Number and title."""
    x: str
    """What the x axis is."""
    ticks: list[str]
    """Labels along the x axis, one beside the other; none where it is of numbers."""
    log: bool
    """Whether the x axis is logarithmic."""
    y: str
    """What the y axis is, with its unit."""
    band: str
    """What is drawn around the lines; empty where nothing is."""
    zoom: float | None
    """Up to which x a second panel enlarges."""
    lines: list[Line]

    @classmethod
    def of(cls, native: dict[str, Any]) -> Figure:
        """Of what the native part gives."""
        return cls(**{**native, "lines": [Line(*line) for line in native["lines"]]})


class Layer(NamedTuple):
    """Marks of one kind in a time-sequence graph."""

    name: str
    """What the legend calls them."""
    colour: str
    """`#rrggbb`."""
    form: Literal["steps", "strokes", "points"]
    """`steps`: a line that keeps its place until the next mark, of columns time and place. `strokes`: an upright stroke each, of
    columns time, first place, and the place behind the last. `points`: single places."""
    columns: list[list[float]]
    """Equally long: seconds since the connection's first packet, then bytes of the stream."""


@dataclass(frozen=True, slots=True)
class TimeSequence:
    """The time-sequence graph of a capture, as `[[time_sequences]]` describes it."""

    name: str
    """Its name in the study."""
    heading: str
    """Its title."""
    sender: str
    """Who sent the stream, address and port."""
    receiver: str
    """Who received it."""
    seconds: tuple[float, float]
    """The part that is shown, from the first packet of the connection on."""
    bytes: tuple[float, float]
    """The bytes of the stream that are shown. Windows may reach beyond."""
    layers: list[Layer]
    """From the back to the front."""

    @classmethod
    def of(cls, native: dict[str, Any]) -> TimeSequence:
        """Of what the native part gives."""
        return cls(**{**native, "layers": [Layer(*layer) for layer in native["layers"]]})
