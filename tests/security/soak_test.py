"""A cluster that trains one job after the other for RINGMASTER_SOAK_SECONDS (120), over TLS with certificates of
half a minute, while a worker is revoked and joins again, and somebody who has no certificate and somebody who has one
do what they like: each job ends with the bytes of an undisturbed run, no worker but the revoked one
is ever away, and nobody grows."""
import os
import pathlib
import random
import socket
import ssl
import statistics
import threading
import time

import cluster  # noqa: I001  before grpc
import grpc

import roles_test
import two_hosts
from two_hosts import INSIDE, OUTSIDE

setUpModule = two_hosts.set_up

SECONDS = float(os.environ.get("RINGMASTER_SOAK_SECONDS", "120"))
LIFE = 30            # seconds of a certificate
REVOKE_EVERY = 15.0  # seconds
GROWTH_KB = 8 * 1024  # of resident memory, from the second quarter of the time to the last
JOB_KB = 50           # of a job that has ended, which the coordinator remembers, with its events
# Each evaluation is an event: three a job.
EPOCHS = max(20, round(SECONDS / 6))
JOB = cluster.job_spec(name="soak", epochs=EPOCHS, evaluate={"every_steps": EPOCHS}, workers={"min": 2, "max": 3})


class Attacker(threading.Thread):
    """Whatever an address of the network can send, one connection after the other."""

    def __init__(self, address, certified, seed):
        super().__init__(daemon=True)
        host, port = address.rsplit(":", 1)
        self._place = (host, int(port))
        self._address, self._certified = address, certified
        self._random = random.Random(seed)
        self._ended = threading.Event()
        self.done = 0

    def run(self):
        ways = (self.garbage, self.plaintext, self.greeting, self.half_a_handshake, self.no_certificate,
                self.what_is_not_theirs, self.streams)
        while not self._ended.is_set():
            try:
                self._random.choice(ways)()
            except (OSError, grpc.RpcError):
                pass  # refused, as it should be; what they must not reach the cluster itself shows
            self.done += 1
            self._ended.wait(0.05)

    def end(self):
        self._ended.set()
        self.join(60)

    def _send(self, data):
        with socket.create_connection(self._place, 5) as stream:
            stream.sendall(data)
            stream.recv(1024)

    def garbage(self):
        self._send(self._random.randbytes(self._random.randrange(1, 5_000)))

    def plaintext(self):
        self._send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + self._random.randbytes(100))

    def greeting(self):
        self._send(b"RMJOIN1\n" + self._random.randbytes(200))

    def half_a_handshake(self):
        self._send(b"\x16\x03\x01" + self._random.randbytes(60))

    def no_certificate(self):
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        with socket.create_connection(self._place, 5) as plain, context.wrap_socket(plain) as stream:
            stream.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
            stream.recv(1024)

    def what_is_not_theirs(self):
        with self._certified.channel(self._address) as channel:
            for method in ("Jobs/Submit", "Access/CreateToken", "Fleet/Session", "Fleet/UploadCheckpoint", "No/Thing"):
                two_hosts.outcome(channel, f"/ringmaster.v1.{method}", self._random.randbytes(50), timeout=5)

    def streams(self):
        with self._certified.channel(self._address) as channel:
            method = channel.stream_stream("/ringmaster.v1.Jobs/Watch")
            calls = [method(iter([self._random.randbytes(9)]), timeout=5) for _ in range(20)]
            for call in calls:
                call.cancel()


class Growth:
    """Resident memory, threads and files of processes, second by second."""

    def __init__(self, processes):
        self._processes = processes
        self._seen = []

    def look(self):
        self._seen.append({name: self._of(process.popen.pid) for name, process in self._processes.items()})

    @staticmethod
    def _of(pid):
        lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
        fields = dict(line.split(":", 1) for line in lines)
        return {"KB": int(fields["VmRSS"].split()[0]), "threads": int(fields["Threads"]),
                "files": len(os.listdir(f"/proc/{pid}/fd"))}

    def of(self, name, what):
        """Medians of the second and of the last quarter."""
        values = [seen[name][what] for seen in self._seen]
        quarter = max(1, len(values) // 4)
        return statistics.median(values[quarter:2 * quarter]), statistics.median(values[-quarter:])


class SoakTest(two_hosts.HostsTest):
    load, join = roles_test.RolesTest.load, roles_test.RolesTest.join

    def revoke_and_join(self):
        running = self.cluster
        running.ringctl("identity", "revoke", "c", "--worker")
        running.workers["c"].kill()
        running.start_certified("c", OUTSIDE, running.token("--name", "c"))

    def test_for_long(self):
        running = self.cluster
        running.start_coordinator(extra=["--certificate-life", f"{LIFE}s"])
        for host, name in ((INSIDE, "a"), (OUTSIDE, "b"), (OUTSIDE, "c")):
            running.start_certified(name, host, running.token("--name", name))
        self.load()
        expected = self.expected(JOB)
        viewer = self.join("viewer", "eva")
        attackers = [Attacker(running.network, viewer, seed) for seed in (1, 2)]
        attackers.append(Attacker(running.ring_port("a"), viewer, 3))
        for attacker in attackers:
            attacker.start()
        growth = Growth({"coordinator": running.coordinator, "a": running.workers["a"], "b": running.workers["b"]})
        begin, jobs, revoked, joined = time.monotonic(), [], 0, time.monotonic()

        def seen(status):
            """Each status of a job that trains: how large everybody is, and whether it is time for c to go."""
            nonlocal revoked, joined
            growth.look()
            if time.monotonic() > joined + REVOKE_EVERY:
                self.revoke_and_join()
                revoked, joined = revoked + 1, time.monotonic()
            return status["state"] in cluster.FINAL
        while time.monotonic() < begin + SECONDS:
            jobs.append(running.watch_until(running.submit(JOB), seen, "the job ends", 300))
        for attacker in attackers:
            attacker.end()
        print(f"soak: {len(jobs)} jobs, c revoked {revoked} times, {sum(a.done for a in attackers)} attacks; " + ", ".join(
            f"{name} {what} {growth.of(name, what)[0]:.0f} -> {growth.of(name, what)[1]:.0f}"
            for name in ("coordinator", "a", "b") for what in ("KB", "threads", "files")))

        for status in jobs:
            self.assertEqual(status["state"], "SUCCEEDED", status["reason"])
            self.assertEqual(status["checkpoint"]["sha256"], expected)
        self.assertGreater(revoked, 0)
        # Their certificates ended several times, and nobody noticed.
        for name in "ab":
            self.assertNotIn("session lost", running.workers[name].log())
            self.assertIn("renewed the certificate", running.workers[name].log())
        for name in ("coordinator", "a", "b"):
            before, after = growth.of(name, "KB")
            remembered = JOB_KB * len(jobs) / 2 if name == "coordinator" else 0
            self.assertLess(after, before + GROWTH_KB + remembered, f"{name} grows")
            for what in ("threads", "files"):
                before, after = growth.of(name, what)
                self.assertLess(after, before + 16, f"{name}: {what}")
        running.stop()


if __name__ == "__main__":
    cluster.main()
