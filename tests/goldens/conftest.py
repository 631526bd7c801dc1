"""The targets on which the traces are replayed."""

from packets.fixtures import target

__all__ = ["target"]
