"""What ``import torch`` runs: entry point ``netreduce`` of the group ``torch.backends``.

Starts no thread, opens no socket, and imports neither gRPC nor the native backend; those load when
the first process group is made.
"""

import os
import warnings


def autoload() -> None:
    """Make the name "netreduce" known to torch.distributed and, where asked for, stand in for "gloo".

    Never raises, since that would break ``import torch``: a failure becomes one warning.
    """
    try:
        from netreduce.host_agent import registration

        registration.register()
        if os.environ.get("NETREDUCE_CONTROLLER"):
            registration.stand_in_for_gloo()
    except Exception as error:
        warnings.warn(
            f"netreduce: torch.distributed stays as it is, because registering failed: {error!r}",
            stacklevel=2,
        )
