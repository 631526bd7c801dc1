"""Translates P4 programs, as BMv2 JSON, to C that implements ``softswitch/csrc/pipeline.h``.

``load_program`` reads and checks the JSON, ``translate`` writes the C, and
:mod:`netreduce.softswitch.compiler` builds and caches the shared object.
"""

from .errors import MalformedProgram, TranslationError, UnsupportedConstruct
from .loader import load_program
from .program import Program
from .translate import translate

__all__ = [
    "MalformedProgram",
    "Program",
    "TranslationError",
    "UnsupportedConstruct",
    "load_program",
    "translate",
]
