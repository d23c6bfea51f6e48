"""What can go wrong. Each exception says where, and what to do; all of them cross processes (pickle)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from . import _native


class Problem(NamedTuple):
    """One thing that is wrong with a scenario."""

    file: str
    """The file; `set KEY` where a key was set, `<dict>` where a dict was given."""
    line: int
    """Line, from 1 on; 0 where it is about the file as a whole."""
    column: int
    """Column in characters, from 1 on."""
    what: str
    """What was found."""
    expected: str
    """What would have been right."""
    suggestion: str | None
    """The nearest valid name, if one is near."""

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}:{self.column}" if self.line else self.file
        mend = f"; did you mean `{self.suggestion}`?" if self.suggestion else ""
        return f"{place}: {self.what}: expected {self.expected}{mend}"


class BentpipeError(Exception):
    """Any error of this package."""


class ScenarioError(BentpipeError, ValueError):
    """A scenario or study that cannot be read, with all that is wrong in it."""

    problems: tuple[Problem, ...]
    """Every problem, in the order of the text; never empty."""

    def __init__(self, problems: Sequence[tuple[str, int, int, str, str, str | None]]) -> None:
        super().__init__(problems)
        self.problems = tuple(Problem(*problem) for problem in problems)

    def __str__(self) -> str:
        return "\n".join(str(problem) for problem in self.problems)

    @property
    def file(self) -> str:
        """The file of the first problem."""
        return self.problems[0].file

    @property
    def line(self) -> int:
        """The line of the first problem."""
        return self.problems[0].line

    @property
    def suggestion(self) -> str | None:
        """The nearest valid name to what is wrong first."""
        return self.problems[0].suggestion


class RunError(BentpipeError):
    """What the simulator cannot run."""


class StudyError(BentpipeError):
    """A study that could not be run to its end. What is finished is kept in its results folder."""


class VersionError(StudyError):
    """A worker, or whoever pickled something, has another version of this package: what it measures or means would not be ours."""

    def __init__(self, here: str, there: str, what: str = "a worker") -> None:
        super().__init__(here, there, what)
        self.here = here
        self.there = there
        self.what = what

    def __str__(self) -> str:
        return (
            f"{self.what} is of bentpipe {self.there}, and here is {self.here}: install the same version on both, "
            "then run again (what is finished is kept)"
        )


def same_version(there: str, what: str) -> None:
    """Raises `VersionError` where `what` comes from another version of this package."""
    if there != _native.__version__:
        raise VersionError(_native.__version__, there, what)
