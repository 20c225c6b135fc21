"""Follows one job over gRPC while its coordinator may come and go: its steps, and each regroup."""
import importlib
import pathlib
import subprocess
import sys
import tempfile
import threading
import time

import cluster  # noqa: F401, I001  before grpc
import grpc

ROOT = pathlib.Path(__file__).resolve().parents[2]


UNREACHABLE = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)


def _messages():
    """Python messages of our protos, made by protoc."""
    folder = tempfile.TemporaryDirectory(prefix="ringmaster-stubs-")
    subprocess.run(["protoc", f"-I{ROOT / 'proto'}", f"--python_out={folder.name}",
                    *(ROOT / "proto/ringmaster/v1").glob("*.proto")], check=True)
    sys.path.insert(0, folder.name)
    modules = [importlib.import_module(f"ringmaster.v1.{name}_pb2") for name in ("job", "jobs")]
    sys.path.remove(folder.name)
    folder.cleanup()
    return modules


job_pb2, jobs_pb2 = _messages()

STATES = {value: name.removeprefix("JOB_STATE_") for name, value in job_pb2.JobState.items()}


class Client:
    """Calls Jobs by method name. A call fails at its deadline; nothing is tried again here. One thread."""

    def __init__(self, address):
        self._address = address
        self._channel = None

    def call(self, method, request, reply, timeout=2.0):
        if self._channel is None:
            # With connections of its own, so that the next one does not wait for an old one's backoff.
            self._channel = grpc.insecure_channel(self._address, options=[("grpc.use_local_subchannel_pool", 1)])
        call = self._channel.unary_unary(f"/ringmaster.v1.Jobs/{method}",
                                         type(request).SerializeToString, reply.FromString)
        try:
            return call(request, timeout=timeout)
        except grpc.RpcError as error:
            if error.code() in UNREACHABLE:
                self.close()
            raise

    def get(self, job):
        return self.call("Get", jobs_pb2.GetRequest(job_id=job), job_pb2.JobStatus)

    def drain(self, worker, resume=False):
        return self.call("DrainWorker", jobs_pb2.DrainWorkerRequest(worker=worker, resume=resume),
                         jobs_pb2.DrainWorkerResponse)

    def close(self):
        if self._channel is not None:
            self._channel.close()
            self._channel = None


def generation(message):
    return f"{message.term}.{message.counter}"


class Observer:
    """A thread that asks for the job's status ten times a second. The rest is thread-safe."""

    def __init__(self, address, job):
        self._client = Client(address)
        self._job = job
        self._mutex = threading.Lock()
        self._status = None
        self._regroups = {}   # generation -> the newest that was seen of it
        self._steps = []      # (unix seconds, step), where it changed
        self._since = {}      # of who is in the ring: the step at which it was first seen there
        self._answered = []   # unix seconds at which the coordinator answered after it did not
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="observer", daemon=True)
        self._thread.start()

    def _run(self):
        answered = True
        while not self._stopping.wait(0.1):
            try:
                status = self._client.get(self._job)
            except grpc.RpcError:
                answered = False
                continue
            with self._mutex:
                if not answered:
                    self._answered.append(time.time())
                answered = True
                self._status = status
                for regroup in status.regroups:
                    if generation(regroup.generation) not in self._regroups:
                        for name in regroup.joined:
                            self._since.pop(name, None)
                    self._regroups[generation(regroup.generation)] = regroup
                names = {worker.name for worker in status.workers if worker.shards}
                self._since = {name: self._since.get(name, status.step) for name in names}
                if not self._steps or self._steps[-1][1] != status.step:
                    self._steps.append((time.time(), status.step))

    def stop(self):
        self._stopping.set()
        self._thread.join(10)
        self._client.close()

    @property
    def status(self):
        """The newest that was seen; None before the first."""
        with self._mutex:
            return self._status

    @property
    def state(self):
        status = self.status
        return STATES[status.state] if status else ""

    @property
    def step(self):
        status = self.status
        return status.step if status else 0

    def ring(self):
        """The names of the members. One that is on its way in is listed in a status, without shards."""
        status = self.status
        return [worker.name for worker in status.workers if worker.shards] if status else []

    def holds(self, name):
        """Whether it is in the ring and has the newest state: a step was applied since it is there."""
        with self._mutex:
            return self._status is not None and self._since.get(name, self._status.step) < self._status.step

    def regroups(self):
        """Every one that was seen, oldest first."""
        with self._mutex:
            return sorted(self._regroups.values(), key=lambda one: (one.generation.term, one.generation.counter))

    def steps(self):
        with self._mutex:
            return list(self._steps)

    def answered_after(self, moment):
        """When the coordinator first answered again after `moment`; None: not yet."""
        with self._mutex:
            return next((at for at in self._answered if at > moment), None)

    def standing_still(self):
        """Seconds since the step changed."""
        with self._mutex:
            return time.time() - self._steps[-1][0] if self._steps else 0.0
