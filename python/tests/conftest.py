"""What the tests have in common."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

# Where a shell runs the tests in the background it has Ctrl-C ignored, and those that stop by it would never end.
signal.signal(signal.SIGINT, signal.default_int_handler)

TEXT = """name = "small"
time_limit = "20s"
[hosts.a]
[hosts.b]
[links.l]
ends = ["a", "b"]
rate = "1Mbit/s"
delay = "10ms"
[[flows]]
name = "f"
from = "a"
to = "b"
segments = 50
"""

SWEEP = """
[[sweep]]
name = "rate"
key = "links.l.rate"
values = ["1Mbit/s", "2Mbit/s"]
[[sweep]]
name = "per"
key = "links.l.packet_error_rate"
values = [0, "1%"]
[[sweep]]
name = "seed"
key = "seed"
values = "1..3"
[[tables]]
name = "1"
title = "Segments"
measure = "segments"
rows = "rate"
columns = "per"
"""


@pytest.fixture
def text() -> str:
    return TEXT


@pytest.fixture
def study_file(tmp_path: Path) -> Path:
    file = tmp_path / "small.toml"
    file.write_text(TEXT + SWEEP)
    return file
