"""Scenarios: read, changed, refused, pickled."""

from __future__ import annotations

import pickle
import tomllib
from pathlib import Path

import pytest

import bentpipe


def test_a_dict_is_the_scenario_that_its_file_is(text: str, tmp_path: Path) -> None:
    file = tmp_path / "small.toml"
    file.write_text(text)
    loaded = bentpipe.Scenario.load(file)
    made = bentpipe.Scenario.from_dict(tomllib.loads(text))
    assert (loaded.name, loaded.flows, loaded.seed) == ("small", ["f"], 1)
    assert made.to_toml() == loaded.to_toml()
    assert bentpipe.Scenario.parse(loaded.to_toml()).to_toml() == loaded.to_toml()


def test_a_key_is_set_to_another_value(text: str) -> None:
    scenario = bentpipe.Scenario.parse(text)
    slow = scenario.set("links.l.delay", "300ms").set("flows.f.segments", 7).set("links.l.delay", "400ms")
    assert 'delay = "400ms"' in slow.to_toml() and "segments = 7" in slow.to_toml()
    assert scenario == bentpipe.Scenario.parse(text), "the first is as it was"
    long = scenario.update({"time_limit": "2h", "flows.f.start": "1h"})
    assert 'start = "3600s"' in long.to_toml() or 'start = "1h"' in long.to_toml()
    with pytest.raises(bentpipe.ScenarioError, match="time_limit"):
        scenario.set("flows.f.start", "1h")
    queue = scenario.set("links.l.queue", {"kind": "drop-tail", "packets": 5})
    assert "packets = 5" in queue.to_toml()


def test_what_is_wrong_is_said_with_file_line_and_suggestion(text: str, tmp_path: Path) -> None:
    file = tmp_path / "typo.toml"
    file.write_text(text.replace("rate", "raet").replace("segments", "segmants"))
    with pytest.raises(bentpipe.ScenarioError) as caught:
        bentpipe.Scenario.load(file)
    error = caught.value
    assert (error.file, error.line, error.suggestion) == (str(file), 7, "rate")
    assert "unknown key `raet`" in str(error) and "did you mean `rate`?" in str(error)
    assert [problem.line for problem in error.problems] == [7, 9, 13], "every problem, with its line"
    again = pickle.loads(pickle.dumps(error))
    assert again.problems == error.problems and str(again) == str(error)
    with pytest.raises(bentpipe.ScenarioError, match=r"none\.toml: cannot be read"):
        bentpipe.Scenario.load(tmp_path / "none.toml")


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("links.l.raet", 1, r"set links\.l\.raet:1:1: unknown key `raet`.*did you mean `rate`"),
        ("links.m.rate", 1, r"`links\.m\.rate` leads nowhere.*did you mean `l`"),
        ("flows.g.segments", 1, r"no \[\[flows\]\] is named `g`"),
        ("links.l.rate", "1MB", r"set links\.l\.rate"),
        ("links.l.rate", "1Mbit/s\nseed = 2", "line break"),
        ("name", "x" * 10_000, "name"),
    ],
)
def test_a_setting_that_is_wrong_is_named(text: str, key: str, value: object, said: str) -> None:
    with pytest.raises(bentpipe.ScenarioError, match=said):
        bentpipe.Scenario.parse(text).set(key, value)


def test_wrong_types_are_refused_with_their_place(text: str) -> None:
    scenario = bentpipe.Scenario.parse(text)
    with pytest.raises(TypeError, match=r"`links\.l\.delay` is a object"):
        scenario.set("links.l.delay", object())
    with pytest.raises(TypeError, match=r"`links\.l\.delay\[1\]` is a NoneType"):
        scenario.set("links.l.delay", ["1ms", None])
    with pytest.raises(TypeError, match="a key of `hosts` is a int"):
        bentpipe.Scenario.from_dict({"hosts": {1: {}}})
    with pytest.raises(ValueError, match="no number of 64 bits"):
        scenario.set("seed", 2**70)
    endless: list[object] = []
    endless.append(endless)
    with pytest.raises(ValueError, match="nested more than"):
        scenario.set("seed", endless)
    with pytest.raises(TypeError):
        scenario.set(7, "300ms")  # type: ignore[arg-type]


def test_scenarios_cross_processes(text: str) -> None:
    scenario = bentpipe.Scenario.parse(text).set("links.l.delay", "300ms")
    again = pickle.loads(pickle.dumps(scenario))
    assert again == scenario and again.to_toml() == scenario.to_toml() and hash(again) == hash(scenario)


def test_a_profile_of_traffic_travels_with_its_scenario(text: str, tmp_path: Path) -> None:
    file, profile = tmp_path / "busy.toml", tmp_path / "p.csv"
    file.write_text(text + '[traffic]\nprofile = "p.csv"\nbetween = ["a", "b"]\n')
    with pytest.raises(bentpipe.ScenarioError, match=r"p\.csv: the profile of traffic cannot be read"):
        bentpipe.Scenario.load(file)
    profile.write_text("# idle = 1\nflow,direction,start,bytes\n0,forward,0,20000\n1,reverse,0.5,1000\n")
    scenario = bentpipe.Scenario.load(file).set("seed", 3)
    pickled = pickle.dumps(scenario)
    here = bentpipe.run(scenario).to_json()
    profile.unlink()
    assert bentpipe.run(pickle.loads(pickled)).to_json() == here
    assert bentpipe.run(bentpipe.Scenario.parse(text).set("seed", 3)).to_json() != here
    profile.write_text("flow,direction\n0,upward\n")
    with pytest.raises(bentpipe.ScenarioError, match=r"p\.csv"):
        bentpipe.Scenario.load(file)
