"""Names of network interfaces that belong to this test run: others may run on the same machine."""

import itertools
import os

PREFIX = f"nr{os.getpid():06x}"
_links = itertools.count()


def new_tag() -> str:
    """A prefix that nobody else uses; four more characters fit into an interface's name."""
    return f"{PREFIX}{next(_links):02x}"
