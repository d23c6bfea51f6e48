"""TCP over satellite links: bentpipe's simulator, its scenarios and studies, with results as data frames.

>>> import bentpipe
>>> geo = bentpipe.Scenario.load("scenarios/sim-geo.toml")  # doctest: +SKIP
>>> bentpipe.run(geo, seed=7).flows.to_pandas()  # doctest: +SKIP

Begin with `Scenario`, `run` and `Study`.
"""

from ._native import __version__
from .control import Ack, CongestionControl, Window
from .errors import BentpipeError, Problem, RunError, ScenarioError, StudyError, VersionError
from .figure import Figure, Layer, Line, TimeSequence
from .result import Measure, Result, Table, measures, run
from .scenario import Scenario
from .study import Study, StudyResult

__all__ = [
    "Ack",
    "BentpipeError",
    "CongestionControl",
    "Figure",
    "Layer",
    "Line",
    "Measure",
    "Problem",
    "Result",
    "RunError",
    "Scenario",
    "ScenarioError",
    "Study",
    "StudyError",
    "StudyResult",
    "Table",
    "TimeSequence",
    "VersionError",
    "Window",
    "__version__",
    "measures",
    "run",
]
