"""Congestion controls in Python, beside the built-in ones."""

from __future__ import annotations

import os
import random
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import bentpipe
from bentpipe import Ack, CongestionControl, Window

SATELLITE = """name = "satellite"
time_limit = "120s"
[hosts.a]
[hosts.b]
[links.l]
ends = ["a", "b"]
rate = "10Mbit/s"
delay = "100ms"
packet_error_rate = "0.1%"
queue = { packets = 100 }
[[flows]]
name = "own"
from = "a"
to = "b"
bytes = "10MB"
congestion_control = "cubic"
[[flows]]
name = "other"
from = "a"
to = "b"
bytes = "5MB"
start = "2s"
congestion_control = "cubic"
"""


class Reno(CongestionControl):
    """crates/cc/src/reno.rs, line by line."""

    def __init__(self) -> None:
        self.count = 0

    def on_ack(self, window: Window, ack: Ack) -> None:
        if not ack.cwnd_limited or ack.phase in ("cwr", "recovery"):
            return
        ssthresh = window.ssthresh if window.ssthresh is not None else 1 << 32
        grown = min(ack.acked, max(ssthresh - window.cwnd, 0))
        window.cwnd += grown
        if window.cwnd >= ssthresh:
            more, self.count = divmod(self.count + ack.acked - grown, window.cwnd)
            window.cwnd += more

    def ssthresh(self, window: Window) -> int:
        self.count = 0
        return max(window.cwnd // 2, 2)


@pytest.fixture
def scenario() -> bentpipe.Scenario:
    return bentpipe.Scenario.parse(SATELLITE)


def named(result: bentpipe.Result, name: str) -> dict[str, Any]:
    """The document of a result, with a name in place of Reno's."""
    document = result.to_dict()
    for flow in document["flows"]:
        if flow["congestion_control"].lower() == "reno":
            flow["congestion_control"] = name
    return document


def test_reno_in_python_is_reno_bit_for_bit(scenario: bentpipe.Scenario) -> None:
    built_in = scenario.set("flows.*.congestion_control", "reno")
    for seed in (1, 2, 3):
        wanted = bentpipe.run(built_in, seed=seed, trace=True)
        got = bentpipe.run(scenario, seed=seed, trace=True, control=Reno)
        assert got.flows["congestion_control"] == ["Reno", "Reno"]
        assert named(got, "reno") == named(wanted, "reno")
        assert got.samples.to_dict() == wanted.samples.to_dict()
        assert got.flows["segments_again"][0] > 0, "there were losses to answer"
    assert named(bentpipe.run(scenario), "reno") != named(wanted, "reno"), "CUBIC differs here"


def test_a_control_may_be_of_one_flow(scenario: bentpipe.Scenario) -> None:
    got = bentpipe.run(scenario, control={"own": Reno})
    assert got.flows["congestion_control"] == ["Reno", "cubic"]
    wanted = bentpipe.run(scenario.set("flows.own.congestion_control", "reno"))
    assert named(got, "reno") == named(wanted, "reno")


def test_a_control_is_swept_over_the_points_of_a_study(tmp_path: Path) -> None:
    file = tmp_path / "swept.toml"
    losses = '[[sweep]]\nname = "per"\nkey = "links.l.packet_error_rate"\nvalues = ["0", "0.1%", "1%"]\n'
    file.write_text(SATELLITE.replace("cubic", "reno") + losses + '[[sweep]]\nname = "seed"\nkey = "seed"\nvalues = "1..2"\n')
    study = bentpipe.Study.load(file)
    wanted = study.run(out=tmp_path / "out").points()["goodput"]
    runs = [bentpipe.run(scenario, control=Reno) for _, scenario in study.scenarios()]
    got = [dict(zip(run.measures["measure"], run.measures["value"], strict=True))["goodput"] for run in runs]
    assert got == wanted and len(set(got)) > 3


class Paced(CongestionControl):
    """Sends at a rate, whatever happens, and tells what it was told."""

    governs_recovery = True
    samples_deliveries = True

    def __init__(self, mbps: float) -> None:
        self.mbps = mbps
        self.told: list[Any] = []

    def init(self, window: Window, now_s: float, rtt_s: float | None) -> None:
        self.told.append(("init", now_s, rtt_s))
        window.cwnd = 1000
        window.pacing_mbps = self.mbps

    def on_ack(self, window: Window, ack: Ack) -> None:
        self.told.append(("ack", ack.now_s, ack.delivered, ack.delivery_rate, window.in_flight, window.cwnd))
        assert window.pacing_mbps == pytest.approx(self.mbps)
        window.cwnd = 1000  # After a timeout it is 1.

    def ssthresh(self, window: Window) -> int:
        return window.ssthresh or 1000

    def on_phase(self, window: Window, phase: str) -> None:
        self.told.append(("phase", phase))

    def on_signal(self, window: Window, signal: str, now_s: float) -> None:
        self.told.append(("signal", signal))

    def on_lost(self, window: Window, now_s: float, lost: int) -> None:
        self.told.append(("lost", lost))


def test_a_control_hears_what_a_model_of_the_path_needs(scenario: bentpipe.Scenario) -> None:
    made: list[Paced] = []

    def make() -> Paced:
        made.append(Paced(4.0))
        return made[-1]

    result = bentpipe.run(scenario, control={"own": make})
    (control,) = made
    assert result.flows["goodput_mbps"][0] == pytest.approx(4.0, rel=0.05)
    kinds = [told[0] for told in control.told]
    assert kinds.index("init") < kinds.index("ack") and {"phase", "lost", "signal"} <= set(kinds)
    (_, now, rtt), *_ = (told for told in control.told if told[0] == "init")
    assert rtt == pytest.approx(0.2, rel=0.02) and now == pytest.approx(0.2, rel=0.02)
    acks = [told for told in control.told if told[0] == "ack"]
    times, totals, rates = ([ack[column] for ack in acks] for column in (1, 2, 3))
    assert times == sorted(times) and totals == sorted(totals) and acks[-1][5] == 1000
    known = sorted(rate for rate in rates if rate is not None)
    # Of segments of 1448 bytes.
    assert known[len(known) // 2] * 1448 * 8e-6 == pytest.approx(4.0, rel=0.1)


def test_the_same_run_twice_is_the_same(scenario: bentpipe.Scenario) -> None:
    class Whim(Reno):
        def __init__(self) -> None:
            super().__init__()
            self.chance = random.Random(7)

        def on_ack(self, window: Window, ack: Ack) -> None:
            super().on_ack(window, ack)
            window.cwnd = max(2, window.cwnd - (self.chance.random() < 0.1))

    first, again = (bentpipe.run(scenario, control=Whim).to_json() for _ in range(2))
    assert first == again != bentpipe.run(scenario, control=Reno).to_json()


def raises(where: str, what: Callable[[], Any]) -> type[CongestionControl]:
    """A control whose method `where` does `what`."""

    def method(self: CongestionControl, *arguments: Any) -> Any:
        return what()

    methods = {"on_ack": lambda self, window, ack: None, where: method}
    return type("Broken", (CongestionControl,), {"samples_deliveries": True, **methods})


class Spoiled(Exception):
    pass


@pytest.mark.parametrize("where", ["__init__", "init", "on_ack", "ssthresh", "on_phase", "on_signal", "on_lost", "holds_back"])
def test_an_exception_ends_the_run_and_arrives_as_itself(scenario: bentpipe.Scenario, where: str) -> None:
    raised = Spoiled("as it is")
    calls: list[None] = []

    def what() -> None:
        calls.append(None)
        raise raised

    with pytest.raises(Spoiled) as caught:
        bentpipe.run(scenario, control={"own": raises(where, what)})
    assert caught.value is raised and len(calls) == 1, "and nothing was called after it"
    assert where == "__init__" or caught.traceback[-1].name == "what", "with the place in the control"


@pytest.mark.parametrize(
    ("where", "what", "error", "said"),
    [
        ("ssthresh", lambda: 2.5, TypeError, r"ssthresh returned 2\.5: a whole number of segments"),
        ("ssthresh", lambda: None, TypeError, "ssthresh returned None"),
        ("ssthresh", lambda: -1, TypeError, "ssthresh returned -1"),
        ("ssthresh", lambda: 0, ValueError, "ssthresh returned 0: at least 1"),
    ],
)
def test_an_answer_that_is_no_window_is_refused(
    scenario: bentpipe.Scenario, where: str, what: Callable[[], Any], error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        bentpipe.run(scenario, control=raises(where, what))


@pytest.mark.parametrize(
    ("field", "value", "error"),
    [
        ("cwnd", 0, ValueError),
        ("cwnd", -1, OverflowError),
        ("cwnd", 1 << 40, OverflowError),
        ("cwnd", 2.5, TypeError),
        ("cwnd", None, TypeError),
        ("ssthresh", "many", TypeError),
        ("pacing_mbps", float("nan"), ValueError),
        ("pacing_mbps", -4.0, ValueError),
        ("pacing_mbps", 0.0, ValueError),
        ("in_flight", 3, AttributeError),
        ("cwnd_segments", 3, AttributeError),
    ],
)
def test_what_no_window_can_be_is_refused_where_it_is_set(
    scenario: bentpipe.Scenario, field: str, value: Any, error: type[Exception]
) -> None:
    class Wrong(CongestionControl):
        def on_ack(self, window: Window, ack: Ack) -> None:
            setattr(window, field, value)

    with pytest.raises(error) as caught:
        bentpipe.run(scenario, control=Wrong)
    assert caught.traceback[-1].name == "on_ack"


def test_what_is_no_control_is_refused(scenario: bentpipe.Scenario) -> None:
    with pytest.raises(TypeError, match="a object is no congestion control: derive it from CongestionControl"):
        bentpipe.run(scenario, control=object)
    with pytest.raises(TypeError, match="the control of 'own' is a str"):
        bentpipe.run(scenario, control={"own": "reno"})  # type: ignore[dict-item]
    with pytest.raises(TypeError, match="abstract"):
        bentpipe.run(scenario, control=CongestionControl)  # type: ignore[type-abstract]
    with pytest.raises(ValueError, match="no flow is named `mine`: there are own, other"):
        bentpipe.run(scenario, control={"mine": Reno})
    file = bentpipe.Scenario.parse(SATELLITE.replace('congestion_control = "cubic"', 'app = "saratoga"', 1))
    with pytest.raises(bentpipe.RunError, match="flow `own` is a file by saratoga"):
        bentpipe.run(file, control={"own": Reno})
    assert bentpipe.run(file, control={"other": Reno}).flows["congestion_control"][1] == "Reno"


def test_ctrl_c_stops_a_run_with_a_control(scenario: bentpipe.Scenario) -> None:
    endless = scenario.update({"time_limit": "24h", "flows.*.bytes": "1000GB", "links.l.rate": "1Gbit/s"})
    timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        bentpipe.run(endless, control=Reno)
    timer.join()


def test_runs_with_controls_run_side_by_side(scenario: bentpipe.Scenario) -> None:
    wanted = bentpipe.run(scenario, control=Reno).to_json()
    got: list[str] = []
    threads = [threading.Thread(target=lambda: got.append(bentpipe.run(scenario, control=Reno).to_json())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got == [wanted] * 4
