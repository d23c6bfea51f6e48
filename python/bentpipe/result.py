"""Runs of one scenario, and their tables."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from . import _native
from .control import Controls
from .errors import RunError
from .scenario import Scenario

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow


class Table:
    """Columns of equal length, in Arrow's memory.

    It has Arrow's PyCapsule interface (`__arrow_c_stream__`), by which polars, pyarrow, pandas and others read it without a
    copy: `polars.DataFrame(table)`, `pyarrow.table(table)`. None of them is required. A value that is not known is null.
    """

    __slots__ = ("_own",)
    _own: _native.Table

    def __init__(self, native: _native.Table) -> None:
        self._own = native

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """One batch with all rows, as an Arrow C stream."""
        return self._own.__arrow_c_stream__(requested_schema)

    def __arrow_c_schema__(self) -> object:
        """The columns' types, as an Arrow C schema; a field's metadata has its `unit`."""
        return self._own.__arrow_c_schema__()

    def __len__(self) -> int:
        return len(self._own)

    @property
    def columns(self) -> list[str]:
        """The names of the columns, in order. A name ends with its unit, where it has one (`connect_s`)."""
        return self._own.columns

    @property
    def units(self) -> dict[str, str]:
        """The units of the columns that have one: s, ms, Mbit/s (10^6 bit/s), bytes, segments, packets."""
        return self._own.units

    def __getitem__(self, column: str) -> list[Any]:
        """The values of one column as a list of `len(self)`."""
        values = self._own.column(column)
        if values is None:
            raise KeyError(f"no column `{column}`; there are {', '.join(self.columns)}")
        return values

    def to_dict(self) -> dict[str, list[Any]]:
        """All columns as lists, by name. It needs no other package, and crosses processes."""
        return {column: self[column] for column in self.columns}

    def rows(self) -> list[dict[str, Any]]:
        """The rows as dicts."""
        content = self.to_dict()
        return [dict(zip(content, values, strict=True)) for values in zip(*content.values(), strict=True)]

    def to_pandas(self) -> pandas.DataFrame:
        """As a pandas frame of shape (rows, columns); needs pandas, and pyarrow to take it without a detour by lists."""
        import pandas

        try:
            import pyarrow
        except ImportError:
            return pandas.DataFrame(self.to_dict())
        return pyarrow.table(self).to_pandas()

    def to_polars(self) -> polars.DataFrame:
        """As a polars frame of shape (rows, columns); needs polars alone."""
        import polars

        return polars.DataFrame(self)

    def to_pyarrow(self) -> pyarrow.Table:
        """As a pyarrow table of shape (rows, columns)."""
        import pyarrow

        return pyarrow.table(self)

    def __repr__(self) -> str:
        return f"<Table of {len(self)} rows: {', '.join(self.columns)}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Table does not cross processes: send table.to_dict()")


class Measure(NamedTuple):
    """A figure of a whole run."""

    name: str
    unit: str
    """Empty for a plain number."""
    summary: str


def measures() -> list[Measure]:
    """All measures: name, unit, definition (docs/studies.md)."""
    return [Measure(*measure) for measure in _native.measures()]


class Result:
    """What a run found. Tables are made when they are asked for; their columns are the keys of docs/results.md.

    Times of a flow are from its start. Null is what the simulator does not see, or what there is none of.
    """

    def __init__(self, native: _native.Outcome) -> None:
        self._own = native

    @property
    def scenario(self) -> str:
        """The scenario's name."""
        return self._own.scenario

    @property
    def seed(self) -> int:
        """The seed that it ran with."""
        return self._own.seed

    @property
    def elapsed_s(self) -> float:
        """Simulated seconds from the run's start to its end."""
        return self._own.elapsed_s

    @cached_property
    def flows(self) -> Table:
        """A row a flow, in the order of the scenario: `name`, `outcome`, `goodput_mbps`, `completion_s` and so on."""
        return Table(self._own.flows())

    @cached_property
    def gateways(self) -> Table:
        """A row for each flow and gateway that splits it: what the gateway's TCP sent, and sent again."""
        return Table(self._own.gateways())

    @cached_property
    def responses(self) -> Table:
        """A row an answer of a request-response flow: how long it took, in ms."""
        return Table(self._own.responses())

    @cached_property
    def links(self) -> Table:
        """Two rows a link, one a direction: packets, and what became of them."""
        return Table(self._own.links())

    @cached_property
    def proxies(self) -> Table:
        """A row a counter of a proxy: `name`, `counter`, `count`."""
        return Table(self._own.proxies())

    @cached_property
    def measures(self) -> Table:
        """A row a measure of the whole run: `measure`, `value`, `unit`."""
        return Table(self._own.measures())

    @cached_property
    def samples(self) -> Table:
        """The course of the flows, of a run with `trace=True`: a row each time a receiver got bytes in order, or a sender's
        window changed.

        Columns: `flow`, `point` (`receiver` or `sender`), `at_s` (from the flow's start), `bytes` (received in order or
        acknowledged so far), and of senders `cwnd_segments`, `ssthresh_segments`, `in_flight_segments`, `srtt_ms`,
        `retransmitted_segments`, `pacing_rate_mbps`.
        """
        return _traced(self._own.samples())

    @cached_property
    def sequence(self) -> Table:
        """The time-sequence series, of a run with `trace=True`: a row a segment that a source sent (`event` is `sent` or
        `sent again`), and each time its receiver got more in order (`received`).

        Columns: `flow`, `event`, `at_s` (from the run's start), `end_bytes` (number in the stream of the byte behind its last).
        """
        return _traced(self._own.sequence())

    def to_pandas(self) -> pandas.DataFrame:
        """The flows as a pandas frame, a row each."""
        return self.flows.to_pandas()

    def to_polars(self) -> polars.DataFrame:
        """The flows as a polars frame, a row each."""
        return self.flows.to_polars()

    def to_json(self) -> str:
        """The document that `bentpipe sim run --json` writes (docs/results.md)."""
        return self._own.to_json()

    def to_dict(self) -> dict[str, Any]:
        """The same document as a dict."""
        document: dict[str, Any] = json.loads(self.to_json())
        return document

    def __repr__(self) -> str:
        return f"<Result of {self.scenario!r}, seed {self.seed}: {len(self.flows)} flows, {self.elapsed_s:.3f} s>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Result does not cross processes: send result.to_dict(), or a table's to_dict()")


def _traced(table: _native.Table | None) -> Table:
    if table is None:
        raise RunError("this run kept no course of its flows: run it with trace=True")
    return Table(table)


def run(scenario: Scenario, *, seed: int | None = None, trace: bool = False, control: Controls | None = None) -> Result:
    """Run a scenario in the simulator, in virtual time: the same scenario and seed give the same result, bit for bit.

    `seed`: in place of the scenario's, from 0 on. `trace`: keep samples and time-sequence, which takes longer.
    `control`: a congestion control of one's own in place of the scenario's, a class derived from `CongestionControl`, or anything
    that makes one: for the sources of all flows, or `{name: class}` for those of some.
    The interpreter is free meanwhile, so threads run side by side; Ctrl-C stops the run.

    Raises `RunError` for what the simulator cannot run; what a control raises, as it is.
    """
    if not isinstance(scenario, Scenario):
        raise TypeError(f"run takes a Scenario, not a {type(scenario).__name__}: Scenario.load(path) reads one")
    return Result(_native.run(scenario._own, seed, trace, _makers(scenario, control)))


def _makers(scenario: Scenario, control: Controls | None) -> dict[str, Callable[[], object]]:
    """What makes the control of each flow that has one."""
    if control is None:
        return {}
    makers: dict[str, Callable[[], object]] = (
        dict(control) if isinstance(control, Mapping) else dict.fromkeys(scenario.flows, control)
    )
    for flow, maker in makers.items():
        if not callable(maker):
            raise TypeError(f"the control of {flow!r} is a {type(maker).__name__}: give a class, or what makes an object of one")
    return makers
