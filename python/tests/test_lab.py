"""Figures of the papers' studies of the lab, which the command runs here, shortened: real programs over real links, as root."""

from __future__ import annotations

import html
import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
from test_plot import COMMAND, PAPERS, show_what_the_folder_holds

import bentpipe
from bentpipe import plot

PROGRAMS = ("vsftpd", "lftp", "ssh", "wget", "nginx")
MISSING = [program for program in PROGRAMS if shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin") is None]
pytestmark = [
    pytest.mark.skipif(COMMAND is None, reason="no command `bentpipe` is built or installed"),
    pytest.mark.skipif(os.geteuid() != 0, reason="the lab needs root"),
    pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}"),
]


def run(file: Path, out: Path) -> None:
    """What is drawn is tested, not what the programs reach: on a busy machine a late packet is no fault."""
    assert COMMAND is not None
    call = [COMMAND, "study", "run", str(file), "--quick", "--threads", "8", "--lateness-limit", "1s", "--out", str(out)]
    said = subprocess.run(call, capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stderr


def shortened(paper: str, to: Path, *replaced: tuple[str, str]) -> Path:
    text = (PAPERS / paper).read_text()
    for old, new in replaced:
        assert old in text, f"{paper} says it otherwise now: {old}"
        text = text.replace(old, new)
    to.write_text(text)
    return to


def test_time_sequences_are_those_of_the_report(tmp_path: Path) -> None:
    sooner = [("60s", "15s"), ('begin = "20s"', 'begin = "6s"'), ('begin = "15s"', 'begin = "4s"')]
    file, out = shortened("finch-2012/figures.toml", tmp_path / "figures.toml", *sooner), tmp_path / "out"
    run(file, out)
    result = bentpipe.Study.load(file).results(out, quick=True)
    canvases = plot.figures(result)
    assert list(canvases) == [str(number) for number in range(2, 10)]
    for one in result.time_sequences:
        svg = (out / "report" / f"figure-{one.name}.svg").read_text()
        texts = [html.unescape(text) for text in re.findall(r"<text[^>]*>([^<]*)</text>", svg)]
        assert f"Time-sequence graph of {one.sender} to {one.receiver}" in texts
        paths = re.findall(r'<path d="([^"]*)" stroke="([^"]*)" fill="none"', svg)
        assert texts[-len(one.layers) :] == [layer.name for layer in one.layers]
        assert [colour for _, colour in paths] == [layer.colour for layer in one.layers]
        (axes,) = canvases[one.name].axes
        assert axes.get_xlim() == one.seconds
        # The panel of the report is 800 wide, and strokes in it stand at quarters.
        first, last = one.seconds
        for layer, (path, _) in zip(one.layers, paths, strict=True):
            if layer.form == "strokes":
                places = [float(x) for x in re.findall(r"M([\d.]+)", path)]
                ours = [82 + 800 * (at - first) / (last - first) for at in layer.columns[0]]
                assert all(min(abs(x - our) for our in ours) < 0.2 for x in places), (one.name, layer.name)
                assert all(min(abs(x - our) for x in places) < 0.2 for our in ours), (one.name, layer.name)
    assert any(layer.name == "retransmissions" and layer.columns[0] for one in result.time_sequences for layer in one.layers)


def test_charts_of_the_testbed_show_what_the_folder_holds(tmp_path: Path) -> None:
    pair = '{ carrier = "scps", rate = "8Mbit/s" }'
    fetched = 'quick = [{ label = "wget", set = { "flows.file.app" = "wget", "flows.file.opened_by" = "terminal" } }]'
    # TOML 1.0, which tomllib reads, has inline tables on one line.
    both = ", ".join(
        [f'"gateways.{one}.enabled" = true' for one in ("first", "last")]
        + [f'"gateways.{one}.split.sat" = {pair}' for one in ("first", "last")]
    )
    ways = f"""quick = [
      {{ label = "none", set = {{ "gateways.first.enabled" = false }} }},
      {{ label = "scps", set = {{ {both} }} }},
    ]"""
    less = [
        ('"flows.file.bytes" = "10MB"', '"flows.file.bytes" = "200kB"'),
        ('"time_limit" = "140s"', '"time_limit" = "8s"'),
        ('name = "by"\n', f'name = "by"\n{fetched}\n'),
        ('name = "pep"\n', f'name = "pep"\n{ways}\n'),
    ]
    file, out = shortened("finch-2012/testbed.toml", tmp_path / "testbed.toml", *less), tmp_path / "out"
    run(file, out)
    result = bentpipe.Study.load(file).results(out, quick=True)
    assert len(result.points()) == 12 * 2
    show_what_the_folder_holds(tomllib.loads(file.read_text()), result)
    assert [len(figure.lines) for figure in result.figures] == [2, 2, 2]
