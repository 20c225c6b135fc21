"""A cluster in which everything between its processes has TLS, on one machine: they have an address that is not
loopback. Tests' cluster.Cluster with certificates, for programs that run in a network namespace of their own."""
import os
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "tests/integration"))

import cluster  # noqa: E402

HOST = "198.18.77.1"  # reserved for tests of networks (RFC 2544)
_INSIDE = "RINGMASTER_BENCH_INSIDE"


def enter_namespace():
    """Runs this program again in a namespace with that address; returns there. Needs root."""
    if _INSIDE in os.environ:
        return
    os.environ[_INSIDE] = "1"
    setup = f"ip link set lo up && ip addr add {HOST}/32 dev lo && exec \"$@\""
    os.execvp("unshare", ["unshare", "-n", "sh", "-c", setup, "sh", sys.executable, *sys.argv])


class Cluster(cluster.Cluster):
    """Its ringctl is an administrator, over the coordinator's own socket. Hosts that are asked for are not taken."""

    def __init__(self, silence_ms=2500):
        super().__init__(silence_ms)
        self.network = f"{HOST}:{cluster.free_port()}"
        self._joined = set()

    def start_coordinator(self, listen=None, wait=True, prefix=(), extra=()):
        super().start_coordinator(self.network, True, prefix, [*extra, "--advertise", HOST])
        self.address = f"unix:{self.folder}/coordinator/ringmaster.sock"
        return self.coordinator

    def start_worker(self, name, cores=1, threads=1, wait=True, listen="", memory="4GiB", prefix=(), **_others):
        port = listen.rsplit(":", 1)[-1] or 0
        where = ["--coordinator", self.network]
        if name not in self._joined:
            token = self.ringctl("token", "create", "--role", "worker", "--name", name).stdout.strip()
            where = ["--join", token]
            self._joined.add(name)
        worker = self.spawn(name, [
            cluster.BIN / "ringworker", *where, "--listen", f"{HOST}:{port}", "--cores", cores, "--threads-per-core", threads,
            "--memory-per-core", memory, "--data-root", self.data_root, "--state-dir", self.folder / f"state-{name}"], prefix)
        self.workers[name] = worker
        if wait:
            cluster.wait_until(lambda: name in self.attached(), f"worker {name} attaches")
        return worker
