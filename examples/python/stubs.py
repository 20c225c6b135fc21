"""Python messages and stubs of Ringmaster's protos, made by protoc when the program starts."""
import atexit
import importlib
import pathlib
import shutil
import subprocess
import sys
import tempfile

# Beside `examples` in the source tree and in an installation (share/ringmaster).
PROTO_ROOT = pathlib.Path(__file__).resolve().parents[2] / "proto"
PROTOS = tuple(f"ringmaster/v1/{path.name}" for path in (PROTO_ROOT / "ringmaster/v1").glob("*.proto"))
NEEDED = "sudo apt install python3-grpcio python3-protobuf python3-yaml protobuf-compiler-grpc"


def _generate(folder):
    plugin = shutil.which("grpc_python_plugin")
    if shutil.which("protoc") is None or plugin is None:
        sys.exit(f"protoc or its gRPC plugin is missing: {NEEDED}")
    subprocess.run(["protoc", f"-I{PROTO_ROOT}", f"--plugin=protoc-gen-grpc={plugin}",
                    f"--python_out={folder}", f"--grpc_out={folder}", *PROTOS],
                   check=True, timeout=60)


def load():
    """The modules job_pb2, jobs_pb2 and jobs_pb2_grpc."""
    folder = tempfile.mkdtemp(prefix="ringmaster-stubs-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    _generate(folder)
    sys.path.insert(0, folder)
    return tuple(importlib.import_module(f"ringmaster.v1.{name}")
                 for name in ("job_pb2", "jobs_pb2", "jobs_pb2_grpc"))
