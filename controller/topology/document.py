"""Reads the YAML of a topology file: bounded in size, and without keys that silently replace others."""

from pathlib import Path
from typing import Any

import yaml

MAX_BYTES = 1 << 20
"""Far beyond 511 ports on each of many switches; the parser needs minutes for what is much longer."""


class DocumentError(Exception):
    """The text is not a document that can be used; the message says where and why."""


class _Loader(yaml.SafeLoader):
    """YAML forbids a key twice in one mapping; PyYAML would keep the last one."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict:
        seen: dict[tuple[str, str], yaml.Node] = {}
        for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
            if not isinstance(key, yaml.ScalarNode):
                continue
            first = seen.setdefault((key.tag, key.value), key)
            if first is not key:
                line = first.start_mark.line + 1
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key.value!r} is there twice (first in line {line})", key.start_mark
                )
        return super().construct_mapping(node, deep)


def read_text(path: Path | str) -> str:
    """The text of a file.  Raises DocumentError."""
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        raise DocumentError(f"cannot be read: {getattr(error, 'strerror', None) or error}") from error
    if len(data) > MAX_BYTES:
        raise DocumentError(f"is longer than {MAX_BYTES} bytes")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DocumentError("is not UTF-8 text") from error


def parse(text: str) -> Any:
    """The value that the text describes.  Raises DocumentError."""
    try:
        return yaml.load(text, _Loader)  # a SafeLoader
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        problem = " ".join(str(getattr(error, "problem", None) or error).split())
        raise DocumentError(f"{where}not YAML: {problem}") from error
    except RecursionError:
        raise DocumentError("is nested too deeply") from None
    except (ValueError, OverflowError) as error:  # a date of month 13, a number of a million digits
        raise DocumentError(f"has a value that does not exist: {error}") from error
