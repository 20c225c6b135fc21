"""A peer that speaks only standard gRPC: reflection, health, and a job's status."""
import importlib
import pathlib
import re
import subprocess
import sys

import cluster  # noqa: I001  before grpc
import grpc
from google.protobuf import descriptor_pb2


ROOT = pathlib.Path(__file__).resolve().parents[2]
PROTOCOL = int(re.search(r"kProtocolVersion = (\d+);", (ROOT / "common/ids.h").read_text()).group(1))
GRPC_PROTOS = pathlib.Path("/usr/share/grpc-proto")
CLIENT_SERVICES = {"ringmaster.v1.Jobs", "ringmaster.v1.Fleet", "ringmaster.v1.Bench", "ringmaster.v1.Access", "grpc.health.v1.Health",
                   "grpc.reflection.v1alpha.ServerReflection"}
WORKER_SERVICES = {"ringmaster.v1.Ring", "ringmaster.v1.States", "grpc.health.v1.Health",
                   "grpc.reflection.v1alpha.ServerReflection"}


def generate(folder):
    """Python messages of our protos and of grpc-proto's, made by protoc."""
    folder.mkdir()
    protos = {
        ROOT / "proto": ["google/rpc/status.proto", "google/rpc/error_details.proto",
                         *(ROOT / "proto/ringmaster/v1").glob("*.proto")],
        GRPC_PROTOS: ["grpc/health/v1/health.proto", "grpc/reflection/v1alpha/reflection.proto"],
    }
    for root, files in protos.items():
        subprocess.run(["protoc", f"-I{root}", f"--python_out={folder}", *files], check=True)
    # `google` and `grpc` are packages already: generated modules are found beside them.
    for package in ("google", "grpc"):
        importlib.import_module(package).__path__.append(str(folder / package))
    sys.path.insert(0, str(folder))


class Peer:
    """Calls a server by method name, with messages as generated and no stub."""

    def __init__(self, address):
        self.channel = grpc.insecure_channel(address)

    def unary(self, method, request, reply):
        call = self.channel.unary_unary(method, type(request).SerializeToString, reply.FromString)
        return call(request, timeout=10)

    def reflect(self, reflection, **question):
        call = self.channel.stream_stream(
            "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
            reflection.ServerReflectionRequest.SerializeToString,
            reflection.ServerReflectionResponse.FromString)
        return next(call(iter([reflection.ServerReflectionRequest(**question)]), timeout=10))

    def services(self, reflection):
        reply = self.reflect(reflection, list_services="")
        return {service.name for service in reply.list_services_response.service}

    def files_of(self, reflection, symbol):
        reply = self.reflect(reflection, file_containing_symbol=symbol)
        files = reply.file_descriptor_response.file_descriptor_proto
        return {descriptor_pb2.FileDescriptorProto.FromString(file).name for file in files}


class PeerTest(cluster.ClusterTest):
    def setUp(self):
        super().setUp()
        generate(self.cluster.folder / "stubs")
        self.jobs = importlib.import_module("ringmaster.v1.jobs_pb2")
        self.job = importlib.import_module("ringmaster.v1.job_pb2")
        self.health = importlib.import_module("grpc.health.v1.health_pb2")
        self.reflection = importlib.import_module("grpc.reflection.v1alpha.reflection_pb2")
        self.status = importlib.import_module("google.rpc.status_pb2")
        self.details = importlib.import_module("google.rpc.error_details_pb2")

    def check_health(self, peer, service):
        reply = peer.unary("/grpc.health.v1.Health/Check",
                           self.health.HealthCheckRequest(service=service),
                           self.health.HealthCheckResponse)
        self.assertEqual(reply.status, self.health.HealthCheckResponse.SERVING, service)

    def test_reflection_health_and_a_status(self):
        running = self.cluster
        running.make_data()
        running.start_coordinator()
        worker = running.start_worker("a")
        peer = Peer(running.address)
        self.assertLessEqual(CLIENT_SERVICES, peer.services(self.reflection))
        self.assertLessEqual({"ringmaster/v1/job.proto", "ringmaster/v1/rules.proto"},
                             peer.files_of(self.reflection, "ringmaster.v1.Jobs"))
        for service in ("", "ringmaster.v1.Jobs", "ringmaster.v1.Fleet"):
            self.check_health(peer, service)

        ring = Peer(worker.line("ringworker a listening on "))
        self.assertLessEqual(WORKER_SERVICES, ring.services(self.reflection))
        for service in ("", "ringmaster.v1.Ring"):
            self.check_health(ring, service)

        job = running.run_job(cluster.job_spec(name="for-a-peer"))["job_id"]
        status = peer.unary("/ringmaster.v1.Jobs/Get", self.jobs.GetRequest(job_id=job), self.job.JobStatus)
        self.assertEqual(status.name, "for-a-peer")
        self.assertEqual(status.state, self.job.JOB_STATE_SUCCEEDED)
        self.assertEqual(status.step, status.total_steps)

        with self.assertRaises(grpc.RpcError) as refused:
            peer.unary("/ringmaster.v1.Jobs/Get", self.jobs.GetRequest(job_id="nobody"), self.job.JobStatus)
        error = refused.exception
        self.assertEqual(error.code(), grpc.StatusCode.NOT_FOUND)
        self.assertIn("nobody", error.details())
        trailer = dict(error.trailing_metadata())["grpc-status-details-bin"]
        info = self.details.ErrorInfo()
        self.assertTrue(self.status.Status.FromString(trailer).details[0].Unpack(info))
        self.assertEqual(info.domain, "ringmaster")
        self.assertTrue(info.reason)
        running.stop()


if __name__ == "__main__":
    cluster.main()
