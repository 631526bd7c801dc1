"""Generate the gRPC code of ``job_service.proto``: ``python -m netreduce.controller.api.generate``.

The generated modules are committed, so that only those who change the interface need grpcio-tools.
``protoc`` derives the imports inside the generated code from a file's path below its include root; the
folder ``controller/api`` is therefore presented to it under its import name, ``netreduce/controller/api``.
"""

import tempfile
from pathlib import Path

API = Path(__file__).resolve().parent
IMPORT_PATH = "netreduce/controller/api"
PROTO = "job_service.proto"
GENERATED = ("job_service_pb2.py", "job_service_pb2.pyi", "job_service_pb2_grpc.py")


def generate() -> dict[str, str]:
    """The text of every generated file, by name.

    Raises RuntimeError when grpcio-tools is not installed or protoc refuses the file (protoc itself
    writes line and column to standard error).
    """
    try:
        from grpc_tools import protoc
    except ImportError as error:
        raise RuntimeError("grpcio-tools is not installed; pip install 'netreduce[test]'") from error
    with tempfile.TemporaryDirectory() as folder:
        arguments = ["protoc", f"-I{IMPORT_PATH}={API}"]
        arguments += [f"--{kind}_out={folder}" for kind in ("python", "pyi", "grpc_python")]
        if protoc.main([*arguments, f"{IMPORT_PATH}/{PROTO}"]) != 0:
            raise RuntimeError(f"protoc refused {API / PROTO}")
        return {name: (Path(folder) / IMPORT_PATH / name).read_text() for name in GENERATED}


def main() -> None:
    """Write the generated files beside the .proto file."""
    for name, text in generate().items():
        (API / name).write_text(text)
        print(API / name)


if __name__ == "__main__":
    try:
        main()
    except RuntimeError as error:
        raise SystemExit(f"netreduce: {error}") from error
