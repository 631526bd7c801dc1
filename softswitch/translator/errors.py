"""Why a P4 program cannot be loaded."""

from dataclasses import dataclass


@dataclass(frozen=True)
class SourceInfo:
    """Where in the P4 source a construct comes from, as recorded by the compiler."""

    filename: str
    line: int
    fragment: str = ""

    def __str__(self) -> str:
        return f"{self.filename}:{self.line}"


class TranslationError(Exception):
    """The program cannot be run by the embedded switch."""


class MalformedProgram(TranslationError):
    """The file is not valid BMv2 JSON; the compiler's output was truncated, edited or is another format."""


class UnsupportedConstruct(TranslationError):
    """The program uses something that the embedded switch does not implement.

    Attributes:
        construct: what it is, in the terms of P4 or of the BMv2 JSON format.
        source: where the P4 program uses it; None when the compiler recorded no place.
    """

    def __init__(self, construct: str, source: SourceInfo | None = None, where: str = ""):
        self.construct = construct
        self.source = source
        place = f"{source}: " if source else ""
        within = f" (in {where})" if where else ""
        fragment = f": {source.fragment}" if source and source.fragment else ""
        super().__init__(f"{place}the embedded switch does not implement {construct}{within}{fragment}")
