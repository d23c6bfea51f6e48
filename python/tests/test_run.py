"""Runs and their tables."""

from __future__ import annotations

import json
import multiprocessing
import os
import pickle
import signal
import threading
import time
from pathlib import Path

import pandas
import polars
import pyarrow
import pytest

import bentpipe

ROOT = Path(__file__).parents[2]


@pytest.fixture
def scenario(text: str) -> bentpipe.Scenario:
    return bentpipe.Scenario.parse(text)


def test_the_tables_have_the_keys_of_the_document() -> None:
    result = bentpipe.run(bentpipe.Scenario.load(ROOT / "scenarios/split.toml"), seed=3)
    document = result.to_dict()
    flow = document["flows"][0]
    assert set(flow) - {"gateways", "responses_ms"} | {"why"} == set(result.flows.columns)
    for column in result.flows.columns:
        expected = [flow.get(column) for flow in document["flows"]]
        assert result.flows[column] == expected, column
    assert set(document["links"][0]) == set(result.links.columns)
    for column in result.links.columns:
        assert result.links[column] == [link[column] for link in document["links"]], column
    assert {row["measure"]: row["value"] for row in result.measures.rows()} == {
        name: measure["value"] for name, measure in document["measures"].items()
    }
    counters = {(row["name"], row["counter"]): row["count"] for row in result.proxies.rows()}
    assert counters == {
        (proxy["name"], counter): count for proxy in document["proxies"] for counter, count in proxy["counters"].items()
    }
    legs = [leg for flow in document["flows"] for leg in flow["gateways"]]
    assert [row["sent_bytes"] for row in result.gateways.rows()] == [leg["sent_bytes"] for leg in legs] != []


def test_frames_take_the_tables_as_they_are(scenario: bentpipe.Scenario) -> None:
    result = bentpipe.run(scenario, trace=True)
    samples = result.samples
    assert samples.units["cwnd_segments"] == "segments" and samples.units["at_s"] == "s"
    arrow = samples.to_pyarrow()
    assert arrow.num_rows == len(samples) > 50
    assert arrow.schema.field("srtt_ms").metadata == {b"unit": b"ms"}
    assert pyarrow.schema(samples).names == samples.columns
    frames = [samples.to_pandas(), samples.to_polars().to_pandas(), arrow.to_pandas()]
    for column in samples.columns:
        expected = samples[column]
        for frame in frames:
            got = [None if pandas.isna(value) else value for value in frame[column]]
            assert got == expected, column
    # Twice: a stream is used up by whoever reads it, the table is not.
    assert polars.DataFrame(samples).equals(samples.to_polars())
    assert result.to_pandas().shape == result.to_polars().shape == (1, len(result.flows.columns))


def test_a_traced_run_has_its_course(scenario: bentpipe.Scenario) -> None:
    result = bentpipe.run(scenario, trace=True)
    sequence = result.sequence.to_pandas()
    sent = sequence[sequence.event == "sent"]
    assert len(sent) == 50 and sequence.groupby("flow", observed=True).at_s.apply(lambda s: s.is_monotonic_increasing).all()
    received = result.samples.to_pandas().query("point == 'receiver'")
    assert received.bytes.max() == result.flows["received_bytes"][0] == sent.end_bytes.max()
    bare = bentpipe.run(scenario)
    assert bare.to_json() == result.to_json(), "watching changes nothing"
    with pytest.raises(bentpipe.RunError, match="trace=True"):
        _ = bare.samples


def test_the_same_seed_is_the_same_result(scenario: bentpipe.Scenario) -> None:
    lossy = scenario.set("links.l.packet_error_rate", "5%")
    first, again, other = (bentpipe.run(lossy, seed=seed).to_json() for seed in (1, 1, 2))
    assert first == again != other
    assert json.loads(other)["seed"] == 2


def test_what_cannot_be_run_says_why(text: str) -> None:
    kernel = bentpipe.Scenario.parse(text.replace("segments = 50", 'bytes = "1MB"\napp = "scp"'))
    with pytest.raises(bentpipe.RunError, match="of programs the simulator has only saratoga"):
        bentpipe.run(kernel)
    with pytest.raises(TypeError, match=r"Scenario\.load"):
        bentpipe.run("geo.toml")  # type: ignore[arg-type]
    with pytest.raises(OverflowError):
        bentpipe.run(bentpipe.Scenario.parse(text), seed=-1)


def test_results_do_not_cross_processes_but_what_they_hold_does(scenario: bentpipe.Scenario) -> None:
    result = bentpipe.run(scenario)
    for thing in (result, result.flows):
        with pytest.raises(TypeError, match=r"to_dict\(\)"):
            pickle.dumps(thing)
    assert pickle.loads(pickle.dumps(result.flows.to_dict())) == result.flows.to_dict()


ENDLESS = """name = "endless"
time_limit = "24h"
[hosts.a]
[hosts.b]
[links.l]
ends = ["a", "b"]
rate = "1Gbit/s"
delay = "1ms"
[[flows]]
from = "a"
to = "b"
duration = "24h"
"""


def test_ctrl_c_stops_a_run() -> None:
    scenario = bentpipe.Scenario.parse(ENDLESS)
    bentpipe.run(scenario.update({"time_limit": "1s", "flows.*.duration": "1s"}))
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        bentpipe.run(scenario)
    timer.join()


def test_other_threads_go_on_meanwhile() -> None:
    scenario = bentpipe.Scenario.parse(ENDLESS).update({"time_limit": "5s", "flows.*.duration": "5s"})
    thread = threading.Thread(target=bentpipe.run, args=(scenario,))
    thread.start()
    turns = 0
    while thread.is_alive():
        turns += 1
        time.sleep(0.001)
    assert turns > 1


def _forked(text: str, pipe: multiprocessing.connection.Connection) -> None:
    pipe.send(bentpipe.run(bentpipe.Scenario.parse(text)).to_json())


def test_forks_run_too(scenario: bentpipe.Scenario, text: str) -> None:
    own = bentpipe.run(scenario).to_json()
    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context("fork").Process(target=_forked, args=(text, there))
    process.start()
    assert here.poll(60), "the fork said nothing"
    assert here.recv() == own
    process.join(60)
    assert process.exitcode == 0
