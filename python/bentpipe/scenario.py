"""Scenarios: who talks to whom, over which links."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from . import _native
from .errors import same_version


class Scenario:
    """One experiment: hosts, links, gateways, flows. It does not change; `set` makes another.

    What a scenario may say is in docs/scenario.md. Quantities are texts with their unit (`"10Mbit/s"`, `"300ms"`, `"2MB"`).
    Scenarios may be pickled, also to other machines: a profile of cross traffic travels with them. Another version of this package
    refuses them by `VersionError`.
    """

    __slots__ = ("_own",)
    _own: _native.Scenario

    def __init__(self, native: _native.Scenario) -> None:
        self._own = native

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Scenario:
        """Read the scenario in a TOML file.

        Raises `ScenarioError`, with file, line and suggestion of every problem.
        """
        return cls(_native.Scenario.load(os.fspath(path)))

    @classmethod
    def parse(cls, text: str, *, file: str = "<text>") -> Scenario:
        """Read a scenario from TOML; `file` is its name in errors, and a profile of traffic is read from beside it."""
        return cls(_native.Scenario.parse(file, text))

    @classmethod
    def from_dict(cls, content: Mapping[str, Any], *, file: str = "<dict>") -> Scenario:
        """Make a scenario of a dict with the keys of a TOML file; tables are dicts, arrays of tables lists of dicts.

        Raises `TypeError` where a value is of no type that a scenario has, `ScenarioError` as `load`; its lines are those of the
        dict written as TOML.
        """
        return cls(_native.Scenario.of_dict(file, dict(content)))

    def set(self, key: str, value: Any) -> Scenario:
        """This scenario with one key set to another value.

        The key is dotted from the top of the file, as an axis of a study has it: `"links.space.delay"`, a flow by its name
        (`"flows.download.bytes"`) or all of them (`"flows.*.congestion_control"`).

        Raises `ScenarioError` for a key that leads nowhere or a value that does not fit; `TypeError` as `from_dict`.
        """
        return self.update({key: value})

    def update(self, settings: Mapping[str, Any]) -> Scenario:
        """This scenario with several keys set at once, as `set` does: where each by itself would not fit the others."""
        return Scenario(self._own.set(list(settings.items())))

    @property
    def name(self) -> str:
        """Its name."""
        return self._own.name

    @property
    def seed(self) -> int:
        """The seed of every draw of chance."""
        return self._own.seed

    @property
    def flows(self) -> list[str]:
        """The names of its flows."""
        return self._own.flows

    def warnings(self) -> list[str]:
        """Settings that are allowed and yet likely not what was meant, a sentence each.

        Raises `RunError` for what the simulator cannot run.
        """
        return self._own.warnings()

    def to_toml(self) -> str:
        """All of it as TOML, defaults included. Two scenarios with the same text and seed have the same results."""
        return self._own.to_toml()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Scenario):
            return NotImplemented
        return self._own.state() == other._own.state()

    def __hash__(self) -> int:
        return hash(self.to_toml())

    def __repr__(self) -> str:
        return f"<Scenario {self.name!r}, flows {', '.join(self.flows)}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return (_restored, (_native.__version__, *self._own.state()))


def _restored(version: str, file: str, text: str, settings: list[tuple[str, str]], profile: str | None) -> Scenario:
    same_version(version, f"the pickled scenario `{file}`")
    return Scenario(_native.Scenario.restore(file, text, settings, profile))
