"""Two hosts, as network namespaces, for tests of what goes between them: the coordinator is on INSIDE, workers
are where a test puts them, and the test itself, with whatever attack it runs, is on OUTSIDE."""
import os
import unittest

import cluster  # noqa: I001  before grpc
import grpc

import private

INSIDE, OUTSIDE = range(2)
ADDRESSES = ["198.18.77.1", private.Switch.ADDRESS]
JOB = cluster.job_spec(name="beside", workers={"min": 2, "max": 2})


def set_up():
    """For setUpModule: the script begins anew on OUTSIDE, and INSIDE is there."""
    if os.geteuid() != 0:
        raise unittest.SkipTest("SKIP: namespaces in which attacks have all that they need are root's alone")
    private.enter()
    private.Switch(["inside"])


def on(host):
    """In front of a program."""
    return ("ip", "netns", "exec", "inside") if host == INSIDE else ()


class Credentials:
    """Key, certificate and authorities in files, as gRPC takes them."""

    def __init__(self, key=None, certificate=None, authorities=None):
        self.key, self.certificate, self.authorities = (
            path and path.read_bytes() for path in (key, certificate, authorities))

    def channel(self, address, kind="coordinator"):
        credentials = grpc.ssl_channel_credentials(self.authorities, self.key, self.certificate)
        name = ("grpc.ssl_target_name_override", f"{kind}.ringmaster")
        return grpc.secure_channel(address, credentials, options=[name])


def outcome(channel, method, request=b"", timeout=20, metadata=()):
    """Code and words that a call of any kind, with one message, ends or begins with."""
    call = channel.stream_stream(method)(iter([request]), timeout=timeout * cluster.SLOW, metadata=metadata)
    try:
        next(call, None)
        return grpc.StatusCode.OK, ""
    except grpc.RpcError as error:
        return error.code(), error.details()
    finally:
        call.cancel()


class Hosts(cluster.Cluster):
    """A cluster with certificates, whose coordinator is on INSIDE."""

    def __init__(self):
        super().__init__(host=ADDRESSES[INSIDE])
        self.pki = self.folder / "coordinator" / "pki"

    def start_coordinator(self, everywhere=False, extra=()):
        """`everywhere`: also on loopback."""
        own = ADDRESSES[INSIDE]
        network = self.network or f"{own}:{cluster.free_port()}"
        listen = network.replace(own, "0.0.0.0") if everywhere else network
        super().start_coordinator(listen=listen, prefix=on(INSIDE), extra=["--advertise", own, *extra])
        self.network = network
        return self.coordinator

    def start_certified(self, name, host, token=None, state=None, wait=True, prefix=(), join=None):
        """A worker with a certificate; it joins with `token`, where it has not joined before. `join`: other
        flags than --join."""
        joins = join or (["--join", token] if token else ["--coordinator", self.network])
        worker = self.spawn(name, [
            cluster.BIN / "ringworker", *joins, "--cores", 1, "--threads-per-core", 1, "--memory-per-core", "4GiB",
            "--device", "cpu", "--data-root", self.data_root, "--state-dir", self.state(state or name)],
            [*prefix, *on(host)])
        self.workers[name] = worker
        if wait:
            cluster.wait_until(lambda: name in self.attached(), f"worker {name} attaches")
        return worker

    def state(self, name):
        return self.folder / f"state-{name}"

    def start_pair(self, everywhere=False):
        """Coordinator and worker a on one host, worker b on the other."""
        self.start_coordinator(everywhere)
        for host, name in ((INSIDE, "a"), (OUTSIDE, "b")):
            self.start_certified(name, host, self.token("--name", name))

    def ring_port(self, name):
        return self.workers[name].line(f"ringworker {name} listening on ")

    def credentials_of(self, name):
        folder = self.state(name) / "pki"
        return Credentials(folder / "key.pem", folder / "certificate.pem", folder / "authorities.pem")

    def audit(self):
        return self.json("audit")["entries"]


class HostsTest(cluster.ClusterTest):
    """Gives every test such a cluster without daemons, and sample data."""
    _expected = {}

    def setUp(self):
        self.cluster = Hosts()
        self.addCleanup(lambda: self.cluster.destroy(self._failed()))
        self.cluster.make_data()

    @classmethod
    def expected(cls, job=None, timeout=120.0):
        """SHA-256 of the job's checkpoint as one worker on loopback makes it, without TLS."""
        job = {**(job or JOB), "workers": {"min": 1, "max": 1}}
        key = repr(job)
        if key not in cls._expected:
            alone = cluster.Cluster()
            try:
                alone.make_data()
                alone.start_coordinator()
                alone.start_worker("alone")
                cls._expected[key] = alone.run_job(job, timeout)["checkpoint"]["sha256"]
                alone.stop()
            finally:
                alone.destroy(False)
        return cls._expected[key]

    def check_job(self, job=None):
        """A job trains, and its checkpoint is the one of an undisturbed run."""
        status = self.cluster.run_job(job or JOB)
        self.assertEqual(status["checkpoint"]["sha256"], self.expected(job))
        return status

    def check_end(self, identifier, job=None, timeout=120.0):
        """The same of one that was submitted before."""
        status = self.cluster.wait(identifier, timeout)
        self.assertEqual(status["state"], "SUCCEEDED", status["reason"])
        self.assertEqual(status["checkpoint"]["sha256"], self.expected(job, timeout))
        return status
