"""Faults that the switch injects on request."""

from __future__ import annotations

from dataclasses import dataclass

from .core_library import PORT_COUNT


@dataclass(frozen=True)
class Fault:
    """Seeded faults of one port and direction, or of all.

    Whether a frame is dropped, duplicated or held back depends on the seed, the port, the direction
    and the frame's number since the port was plugged in, on nothing else.
    """

    drop: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0
    seed: int = 0
    port: int | None = None
    """None: every port."""
    direction: str | None = None
    """``"in"``, ``"out"``, or None for both."""
    depth: int = 8
    """A held frame is overtaken by 1 to ``depth`` later ones …"""
    hold_ms: float = 5.0
    """… or leaves after this many milliseconds, whichever comes first."""

    def __post_init__(self) -> None:
        for name in ("drop", "duplicate", "reorder"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise ValueError(f"{name}={getattr(self, name)}: a probability is between 0 and 1")
        if not 0 <= self.seed < 1 << 64:
            raise ValueError(f"seed={self.seed}: a seed is between 0 and 2^64 - 1")
        if self.port is not None and not 0 <= self.port < PORT_COUNT:
            raise ValueError(f"port={self.port}: ports are 0 to {PORT_COUNT - 1}")
        if self.direction not in (None, "in", "out"):
            raise ValueError(f"direction={self.direction}: it is in or out")
        if not 1 <= self.depth <= 64:
            raise ValueError(f"depth={self.depth}: it is between 1 and 64 frames")
        if not 0.0 < self.hold_ms <= 60_000.0:
            raise ValueError(f"hold_ms={self.hold_ms}: it is between 0 and 60000 milliseconds")

    @classmethod
    def parse(cls, text: str) -> Fault:
        """From ``drop=0.01,duplicate=0.01,reorder=0.05,seed=7[,port=3][,direction=in|out][,depth=8]
        [,hold_ms=5]``; raises ValueError with a sentence."""
        kinds = {
            "drop": float,
            "duplicate": float,
            "reorder": float,
            "hold_ms": float,
            "seed": int,
            "port": int,
            "depth": int,
            "direction": str,
        }
        values: dict = {}
        for part in text.split(","):
            name, equals, value = part.strip().partition("=")
            if not equals or name not in kinds or name in values:
                raise ValueError(f"'{part}': expected each of {', '.join(kinds)} at most once, as name=value")
            try:
                values[name] = kinds[name](value)
            except ValueError:
                raise ValueError(f"'{part}': {value!r} is not a number") from None
        return cls(**values)
