"""A peer: somebody else's GEMM, timed in our process on our matrices."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

from tilewright.backend import LiveDevice
from tilewright.problem import Problem
from tilewright.tuning.measure import Workload

__all__ = ["Peer", "UnavailableError"]


class UnavailableError(RuntimeError):
    """A peer is not installed or does not serve a device."""


class Peer(ABC):
    """Somebody else's GEMM.

    Attributes
    ----------
    name : str
        How people call it.
    version : str
        What it says of itself.
    on_host : bool
        Whether it computes on the host's cores and memory, whatever the device.

    Raises
    ------
    UnavailableError
        From the constructor: it is not installed, or does not serve `live`.
    """

    name: str
    version: str
    on_host: bool = False

    @abstractmethod
    def __init__(self, live: LiveDevice) -> None:
        raise NotImplementedError

    def check(self, problem: Problem) -> None:
        """Refuse a problem that the peer does not compute.

        Raises
        ------
        UnavailableError
            Saying why; by default in double-double.
        """
        if problem.precision.parts == 2:
            raise UnavailableError(f"{self.name} does not compute in double-double")

    @abstractmethod
    def prepare(self, workload: Workload) -> Callable[[], int]:
        """Return a function that computes the workload's product once.

        The function waits and returns nanoseconds, by the device's clock where the peer
        runs on a GPU, else by the host's.
        """
