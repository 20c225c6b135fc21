"""Peers that mean harm, against real daemons: addresses that are none of a worker's, text that forges
log lines or moves cursors, connections without end. Daemons go on, and say on one line what they saw."""
import importlib
import re
import socket
import time

import cluster  # noqa: I001  before grpc
import grpc

import peer_test

# What text in a field of a message must not do to a log or a terminal.
TEXTS = ["a\n2026-01-01T00:00:00.000 ringmaster info forged", "a\r\nforged", "\x1b[2J\x1b[31mred",
         "\u009b31mred", "\u202egnp.exe", "a\u2028b", "\u2066x", "nul\0bell\a", "\ufeff", "x" * 100_000]
ADDRESSES = ["", "unix:/run/x", "unix:///run/x:80", "dns://192.0.2.1/host:80", "dns:///host:80",
             "ipv4:192.0.2.1:80", "http://192.0.2.1:80", "169.254.169.254:80", "2852039166:80",
             "[::ffff:169.254.169.254]:80", "0.0.0.0:80", "192.0.2.1:0", "x" * 4096 + ":80",
             *(f"{text}:80" for text in TEXTS)]
HARMFUL = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]")
LOG_LINE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3} ringmaster (info|warning|error) ")
CONNECTIONS = 400


def flood(address, count=CONNECTIONS):
    """As many connections as succeed, to host:port."""
    host, port = address.rsplit(":", 1)
    sockets = []
    for _ in range(count):
        try:
            sockets.append(socket.create_connection((host, int(port)), timeout=5))
        except OSError:
            break  # the backlog is full
    return sockets


def ended(connection, deadline):
    """Whether the other side ends it in time."""
    try:
        while (left := deadline - time.monotonic()) > 0:
            connection.settimeout(left)
            if not connection.recv(4096):
                return True
    except TimeoutError:
        return False
    except OSError:
        return True
    return False


class HostilePeersTest(cluster.ClusterTest):
    def setUp(self):
        super().setUp()
        if not hasattr(HostilePeersTest, "fleet"):
            HostilePeersTest.stubs = cluster.tempfile.TemporaryDirectory(prefix="ringmaster-")
            peer_test.generate(cluster.pathlib.Path(self.stubs.name) / "stubs")
            HostilePeersTest.fleet = importlib.import_module("ringmaster.v1.fleet_pb2")
            HostilePeersTest.jobs = importlib.import_module("ringmaster.v1.jobs_pb2")
            HostilePeersTest.job = importlib.import_module("ringmaster.v1.job_pb2")

    def attach(self, **fields):
        fields = {"protocol": peer_test.PROTOCOL, "name": "mallory", "incarnation": "0" * 32, "cores": 1,
                  "ring_address": "127.0.0.1:9", "numerics_class": self.job.NumericsClass(), **fields}
        return self.fleet.WorkerMessage(attach=self.fleet.Attach(**fields))

    def session(self, channel, messages):
        """Code and text of what a session ends with that sends these, and then no more."""
        call = channel.stream_stream(
            "/ringmaster.v1.Fleet/Session", self.fleet.WorkerMessage.SerializeToString,
            self.fleet.CoordinatorMessage.FromString)
        try:
            for _ in call(iter(messages), timeout=30 * cluster.SLOW):
                pass
        except grpc.RpcError as error:
            return error.code(), error.details()
        return grpc.StatusCode.OK, ""

    def check_log(self):
        log = self.cluster.coordinator.err.read_bytes().decode("utf-8", errors="strict")
        self.assertIsNone(HARMFUL.search(log), repr(HARMFUL.search(log)))
        for line in log.splitlines():
            self.assertRegex(line, LOG_LINE)
            self.assertLess(len(line), 9000)

    def check_output(self, *arguments):
        for output in ((), ("-o", "json")):
            done = self.cluster.ringctl(*arguments, *output, expect=None)
            for text in (done.stdout, done.stderr):
                self.assertIsNone(HARMFUL.search(text.replace("\n", "")), text[:2000])
                self.assertNotIn("\nforged", text)
        return done

    def test_addresses_that_are_none_of_a_workers(self):
        self.cluster.start_coordinator()
        with grpc.insecure_channel(self.cluster.address) as channel:
            for address in ADDRESSES:
                with self.subTest(address=address[:40]):
                    code, text = self.session(channel, [self.attach(ring_address=address)])
                    self.assertEqual(code, grpc.StatusCode.INVALID_ARGUMENT)
                    self.assertIn("worker mallory: ring_address", text)
                    self.assertLess(len(text), 400)
        self.assertEqual(self.cluster.attached(), {})
        self.check_log()
        self.cluster.stop()

    def test_text_in_every_field(self):
        self.cluster.start_coordinator()
        fleet, job = self.fleet, self.job
        with grpc.insecure_channel(self.cluster.address) as channel:
            for text in TEXTS:
                for fields in ({"name": text}, {"name": text, "protocol": 99}, {"incarnation": text},
                               {"host": text}, {"ring_address": text}, {"job_id": text}):
                    self.session(channel, [self.attach(**fields)])
                # One that is let in and stays, until it was looked at.
                numerics = job.NumericsClass(backend=text, device_model=text, instruction_set=text,
                                             compute_id=text, libraries={text: text})
                messages = [
                    self.attach(numerics_class=numerics, known_shard_sha256=[text],
                                device_profile=fleet.DeviceProfile(kind=text)),
                    fleet.WorkerMessage(device_report=fleet.DeviceReport(
                        devices=[self.jobs.DeviceFigures(kind=text, name=text)])),
                    fleet.WorkerMessage(heartbeat=fleet.Heartbeat(phase=text)),
                    fleet.WorkerMessage(job_failed=fleet.JobFailed(job_id=text, reason=text)),
                ]
                looked = []

                def stay(messages=messages, looked=looked):
                    yield from messages
                    cluster.wait_until(lambda: "mallory" in self.cluster.attached(), "it is attached")
                    looked.append(self.check_output("workers"))
                    yield fleet.WorkerMessage(leaving=fleet.Leaving(reason=text))
                self.session(channel, stay())
                self.assertTrue(looked)
        for command in (["why", "a\x1b[2J"], ["status", "a\nforged"], ["drain", "\u202e"]):
            self.check_output(*command)
        self.check_log()
        self.cluster.stop()

    def test_connections_without_end(self):
        few = ("prlimit", "--nofile=128:128")
        self.cluster.start_coordinator(prefix=few)
        worker = self.cluster.start_worker("a", prefix=few)
        for address in (self.cluster.address, worker.line("ringworker a listening on ")):
            with self.subTest(address=address):
                sockets = flood(address)
                # None of them says a word: all are ended, and meanwhile the daemon lives.
                deadline = time.monotonic() + 30 * cluster.SLOW
                self.assertTrue(all(ended(connection, deadline) for connection in sockets))
                for connection in sockets:
                    connection.close()
                with grpc.insecure_channel(address) as channel:
                    health = channel.unary_unary("/grpc.health.v1.Health/Check")
                    self.assertEqual(health(b"", timeout=30 * cluster.SLOW, wait_for_ready=True), b"\x08\x01")
        cluster.wait_until(lambda: "a" in self.cluster.attached(), "the worker is attached")
        self.cluster.stop()


if __name__ == "__main__":
    cluster.main()
