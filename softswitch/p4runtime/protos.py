"""The protobuf messages in use, under the short names of the specification.

They come with finsy: the ``p4runtime`` distribution's own stubs do not import under current protobuf.
"""

from finsy.proto import p4d, p4i, p4r, p4r_grpc, rpc_code, rpc_status

__all__ = ["p4d", "p4i", "p4r", "p4r_grpc", "rpc_code", "rpc_status"]
