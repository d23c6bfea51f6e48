"""Congestion controls of one's own, in Python.

They run in the simulator, in place of a built-in one, and see what those see: this class has the methods of the trait
`Congestion` in crates/cc, by the same names. docs/python.md says how much slower they are, and how one becomes a file in
crates/cc, which the simulator, the lab's gateway and the kernel can have.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Literal, TypeAlias

from ._native import Ack, Window

__all__ = ["Ack", "CongestionControl", "Controls", "Phase", "Signal", "Window"]

Phase: TypeAlias = Literal["open", "disorder", "cwr", "recovery", "loss"]
"""States of loss recovery: nothing is missing; too few duplicates to call it loss; a reduction for another reason than loss;
fast recovery; after a timeout."""

Signal: TypeAlias = Literal["start", "restart", "reduced", "timeout"]
"""What happens besides acknowledgements: data is sent and none was in flight; the window starts anew after idleness; a reduction
is complete; the retransmission timer expired, and cwnd is one segment."""


class CongestionControl(ABC):
    """A congestion control of one connection: a subclass edits the window at every acknowledgement.

    The sender owns the window; which segments are lost and sent again is loss recovery's, not the control's. Only methods that a
    subclass defines are called, so leave out those that it does not need.

    Two runs are the same only if the control does the same both times: no clock, and of chance `random.Random(seed)`. An exception
    ends the run, and is what `run` raises.

    >>> class Steady(CongestionControl):
    ...     "A window that nothing changes."
    ...     governs_recovery = True
    ...     def on_ack(self, window, ack):
    ...         window.cwnd = 4
    """

    governs_recovery: bool = False
    """Whether it sets the window in CWR and recovery too; otherwise the sender's loss recovery does."""

    samples_deliveries: bool = False
    """Whether it models the path: then `ack.delivered`, `ack.delivery_rate` and `ack.app_limited` are known, `on_ack` is called at
    every acknowledgement, duplicate ones too, and `on_lost` for each lost segment."""

    @abstractmethod
    def on_ack(self, window: Window, ack: Ack) -> None:
        """An acknowledgement arrived; edits the window."""

    def ssthresh(self, window: Window) -> int:
        """The slow-start threshold, in segments, that the sender takes when it enters `cwr`, `recovery` or `loss`; called once for
        each. By default half the window, and at least 2. What it sets of the window does not count."""
        return max(window.cwnd // 2, 2)

    def init(self, window: Window, now_s: float, rtt_s: float | None) -> None:  # noqa: B027
        """The connection starts; its handshake took `rtt_s` seconds, if known."""

    def on_phase(self, window: Window, phase: Phase) -> None:  # noqa: B027
        """The state of loss recovery changes to `phase`."""

    def on_signal(self, window: Window, signal: Signal, now_s: float) -> None:  # noqa: B027
        """Something else happened to the sender."""

    def on_lost(self, window: Window, now_s: float, lost: int) -> None:  # noqa: B027
        """A segment was found lost, and `lost` of those since it was sent, itself included; comes before `on_ack` of the same
        acknowledgement, to a control that `samples_deliveries`. What it sets of the window does not count."""

    def undo(self, window: Window, prior: int) -> int:
        """The last reduction was for nothing; `prior` was the window before it, in segments. Returns the window to go on with, by
        default the greater of the two."""
        return max(window.cwnd, prior)

    def holds_back(self) -> bool:
        """Whether it sends less than the path would carry, on purpose: what is sent now gives no sample of the path's rate."""
        return False


Controls: TypeAlias = Callable[[], CongestionControl] | Mapping[str, Callable[[], CongestionControl]]
"""What makes a control for each connection, a class say: for all flows, or for each by its name."""
