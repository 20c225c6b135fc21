"""Too much of everything, at both ports of two hosts: connections that say nothing or little, more of them than
there are files, bytes that nobody meant, streams, headers and resets without end, messages over every limit.
Whoever has no certificate is heard by nobody; whoever has one harms no other call and no job."""
import contextlib
import pathlib
import random
import resource
import selectors
import socket
import ssl
import subprocess
import time
import unittest

import cluster  # noqa: I001  before grpc
import grpc

import h2
import join_wire
import private
import two_hosts
from two_hosts import outcome

# Attackers' own: what one address may have is for that one.
SOURCES = [private.Switch.alias(number) for number in range(8)]
JOB = cluster.job_spec(name="beside", epochs=300, workers={"min": 2, "max": 2})
WHO_AM_I = "/ringmaster.v1.Access/WhoAmI"
SESSION = "/ringmaster.v1.Fleet/Session"
HEALTH = "/grpc.health.v1.Health/Check"
RESOURCE_EXHAUSTED = grpc.StatusCode.RESOURCE_EXHAUSTED
MIB = 1 << 20


def setUpModule():
    two_hosts.set_up()
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def resident(process):
    """Bytes of memory that it has."""
    status = pathlib.Path(f"/proc/{process.popen.pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) << 10


def files(process):
    return len(list(pathlib.Path(f"/proc/{process.popen.pid}/fd").iterdir()))


def highest_file(process):
    return max(int(path.name) for path in pathlib.Path(f"/proc/{process.popen.pid}/fd").iterdir())


def client_hello():
    """The first bytes of a handshake."""
    out = ssl.MemoryBIO()
    stream = h2.tls_settings().wrap_bio(ssl.MemoryBIO(), out)
    with contextlib.suppress(ssl.SSLWantReadError):
        stream.do_handshake()
    return out.read()


def unknown_field(size):
    """A message of protobuf of so many bytes, from 16 KiB to 256 MiB, all in one field that nobody knows."""
    inside = size - 2 - 4
    length = [inside >> 7 * i & 127 for i in range(4)]
    return b"\xc2\x3e" + bytes([length[0] | 128, length[1] | 128, length[2] | 128, length[3]]) + b"x" * inside


def still_open(sockets, seconds, every_second=lambda: None):
    """Those of them that the other side has not ended after so many seconds."""
    waiting = selectors.DefaultSelector()
    for each in sockets:
        each.setblocking(False)
        waiting.register(each, selectors.EVENT_READ)
    end, tick = time.monotonic() + seconds * cluster.SLOW, time.monotonic()
    with waiting:
        while waiting.get_map() and time.monotonic() < end:
            for key, _ in waiting.select(0.1):
                with contextlib.suppress(BlockingIOError, ssl.SSLWantReadError):
                    try:
                        ended = not key.fileobj.recv(4096)
                    except OSError as error:
                        if isinstance(error, (BlockingIOError, ssl.SSLWantReadError)):
                            raise
                        ended = True
                    if ended:
                        waiting.unregister(key.fileobj)
            if time.monotonic() >= tick:
                tick += 1
                every_second()
        return [key.fileobj for key in waiting.get_map().values()]


class Floods(two_hosts.HostsTest):
    def setUp(self):
        super().setUp()
        self.open = contextlib.ExitStack()
        self.addCleanup(self.open.close)
        self.cluster.start_pair()

    def connect(self, address, source, settings=None):
        """A connection for the rest of the test; None where nobody takes one more."""
        try:
            made = h2.connect(address, source)
            made = settings.wrap_socket(made, server_hostname="coordinator.ringmaster") if settings else made
        except OSError:
            return None
        return self.open.enter_context(made)

    def b(self):
        """TLS with the certificate of worker b."""
        return h2.tls_settings(self.cluster.state("b") / "pki")

    def ports(self):
        return (self.cluster.network, self.cluster.coordinator), (self.cluster.ring_port("a"), self.cluster.workers["a"])

    @contextlib.contextmanager
    def beside(self):
        """A job that trains meanwhile; then it, another one, and the daemons are as if nothing had been."""
        running = self.cluster
        before = {process.name: process.popen.pid for process in (running.coordinator, *running.workers.values())}
        job = running.submit(JOB)
        running.watch_until(job, lambda status: status["step"] > 0, "it trains")
        yield
        self.others_are_served()
        self.check_end(job, JOB)
        self.open.close()
        self.check_job()
        self.assertEqual(before, {process.name: process.popen.pid for process in
                                  (running.coordinator, *running.workers.values()) if process.running()})
        running.stop()

    def answers_again(self, address, kind):
        credentials = self.cluster.credentials_of("b")

        def answers():
            with credentials.channel(address, kind) as channel:
                return outcome(channel, HEALTH)[0] == grpc.StatusCode.OK
        cluster.wait_until(answers, f"{address} answers again")

    def others_are_served(self):
        self.cluster.ringctl("ps", timeout=20)


class StrangersTest(Floods):
    def test_a_thousand_that_say_little(self):
        hello = client_hello()
        with self.beside():
            for address, _ in self.ports():
                silent, begun, slow, known = ([] for _ in range(4))
                for sockets, source in zip((silent, begun, slow, known), SOURCES):
                    settings = self.b() if sockets is known else None
                    sockets += filter(None, (self.connect(address, source, settings) for _ in range(250)))
                for each in begun:
                    each.sendall(hello[:1])
                said = iter(hello)

                def a_byte_each(slow=slow, said=said):
                    byte = bytes([next(said)])
                    for each in slow:
                        with contextlib.suppress(OSError):
                            each.send(byte)
                    self.others_are_served()
                for what, sockets in (("nothing", silent), ("one byte", begun), ("a byte a second", slow),
                                      ("a handshake, and nothing", known)):
                    self.assertGreater(len(sockets), 200, what)
                self.assertEqual(still_open([*silent, *begun, *slow, *known], 20, a_byte_each), [])

    def test_more_connections_than_files(self):
        running = self.cluster
        with self.beside():
            for address, process in self.ports():
                for few in (False, True):
                    # Of numbers, the kernel's limit: some of before may be high.
                    room = 9 + highest_file(process) if few else 256
                    subprocess.run(["prlimit", f"--pid={process.popen.pid}", f"--nofile={room}:4096"], check=True)
                    most = 0
                    for _ in range(2):
                        sockets = [self.connect(address, SOURCES[i % len(SOURCES)]) for i in range(1000)]
                        most = max(most, files(process))
                        if not few:
                            self.others_are_served()  # who comes over the coordinator's socket
                        for each in filter(None, sockets):
                            each.close()
                    self.assertLessEqual(most, room)
                    subprocess.run(["prlimit", f"--pid={process.popen.pid}", "--nofile=1024:4096"], check=True)
                    self.answers_again(address, "coordinator" if process is running.coordinator else "worker")

    def test_bytes_that_nobody_meant(self):
        chance = random.Random(7)
        begins = (b"", b"\x16\x03\x01", client_hello(), b"CONNECT link HTTP/1.1\r\n", join_wire.GREETING, h2.PREFACE)
        spoken = h2.PREFACE + h2.frame(h2.SETTINGS) + h2.call(1, WHO_AM_I) + h2.message(1, b"", flags=h2.END_STREAM)
        with self.beside():
            for address, process in self.ports():
                for i in range(1500):
                    with contextlib.suppress(OSError), h2.connect(address, SOURCES[i % len(SOURCES)]) as stranger:
                        begin = bytearray(chance.choice(begins))
                        if begin and chance.random() < 0.5:
                            begin[chance.randrange(len(begin))] ^= 1 << chance.randrange(8)
                        stranger.sendall(bytes(begin) + chance.randbytes(chance.randrange(400)))
                self.answers_again(address, "coordinator" if process is self.cluster.coordinator else "worker")
                # The same behind the handshake, from somebody with a certificate.
                settings = self.b()
                for _ in range(150):
                    said = bytearray(spoken)
                    for _ in range(chance.randrange(1, 4)):
                        said[chance.randrange(len(said))] ^= 1 << chance.randrange(8)
                    with h2.Connection(address, settings, begin=False) as known:
                        known.send(bytes(said))
                        with contextlib.suppress(OSError):
                            known.socket.shutdown(socket.SHUT_WR)
                        self.assertIsInstance(list(known.frames()), list)  # it ends

    def test_what_costs_gets_nowhere_without_a_certificate(self):
        """The attacks of CertifiedTest, from somebody without one."""
        bomb = b"".join(h2.split(1, h2.field("x", b"y" * (16 * MIB))))
        with self.beside():
            for address, process in self.ports():
                before = resident(process)
                for settings in (None, h2.tls_settings()):
                    for attack in (bomb, b"".join(h2.call(1 + 2 * i, SESSION) for i in range(10_000)),
                                   b"".join(h2.call(1 + 2 * i, SESSION) + h2.frame(h2.RST_STREAM, 0, 1 + 2 * i, b"\0\0\0\x08")
                                            for i in range(10_000))):
                        with h2.Connection(address, settings, begin=False) as stranger:
                            stranger.send(h2.PREFACE + h2.frame(h2.SETTINGS), attack)
                            answers = []
                            with contextlib.suppress(OSError, ssl.SSLError):
                                while chunk := stranger.socket.recv(4096):
                                    answers.append(chunk)
                            answer = b"".join(answers)
                            self.assertTrue(not answer or answer.startswith(b"HTTP/1.1 403"), answer[:100])
                self.assertLess(resident(process) - before, 32 * MIB)


class CertifiedTest(Floods):
    """Somebody with a certificate of the cluster. gRPC 1.51 is to blame for what this costs (docs/security.md)."""

    def test_streams_that_never_end(self):
        """Ten thousand, of a client that never acknowledges the settings which say that it may have 1,024."""
        with self.beside():
            for (address, process), method in zip(self.ports(), (SESSION, "/ringmaster.v1.States/Fetch")):
                before, opened = resident(process), files(process)
                with h2.Connection(address, self.b()) as known:
                    for first in range(0, 10_000, 500):
                        if not known.send(*(h2.call(1 + 2 * i, method) for i in range(first, first + 500))):
                            break
                    self.others_are_served()
                    self.assertLess(resident(process) - before, 512 * MIB)
                cluster.wait_until(lambda process=process, opened=opened: files(process) <= opened + 4,
                                   "its connection is gone")

    def attack(self, *frames, address=None):
        """Others are served while the coordinator, or who is at `address`, hears them, and ends them or answers."""
        with h2.Connection(address or self.cluster.network, self.b()) as known:
            known.send(h2.PREFACE + h2.frame(h2.SETTINGS), *frames)
            self.others_are_served()
            known.send(h2.frame(h2.PING, payload=b"whatever"))
            for kind, _, _, _ in known.frames():
                if kind in (h2.PING, h2.GOAWAY):  # it was heard to its end
                    return

    def test_headers_and_resets_without_end(self):
        with self.beside():
            self.attack(*h2.split(1, h2.request(WHO_AM_I) + h2.field("x", b"y" * (4 * MIB))))
            # A number that goes on for ever (RFC 7541, 5.1).
            self.attack(*h2.split(1, h2.request(WHO_AM_I) + b"\0" + b"\x7f" + b"\x80" * MIB))
            self.attack(*(h2.call(1 + 2 * i, WHO_AM_I) + h2.frame(h2.RST_STREAM, 0, 1 + 2 * i, b"\0\0\0\x08")
                          for i in range(20_000)))
            # What is known as CVE-2023-1428.
            for name, value in (("te", "x" * 9000), (":scheme", "x" * 9000), ("te", "trailers" + "\0" * 9000)):
                self.attack(*h2.split(1, h2.field(name, value) + h2.request(WHO_AM_I)))

    def replied(self, address, block):
        """What a call with these headers and an empty message ends with: a number in gRPC's words."""
        with h2.Connection(address, self.b()) as known:
            for kind, flags, stream, payload in known.frames():
                if kind == h2.SETTINGS and flags != h2.ACK:  # limits are those that were acknowledged
                    known.send(h2.frame(h2.SETTINGS, h2.ACK), *h2.split(1, block),
                               h2.message(1, b"", flags=h2.END_STREAM))
                if kind == h2.HEADERS and stream == 1 and b"grpc-status" in payload:
                    said = payload.split(b"grpc-status", 1)[1]
                    return int(said[1:1 + said[0]])
                if kind in (h2.RST_STREAM, h2.GOAWAY):
                    return None
        return None

    def joins(self, size, sent=None):
        """Whether a request to join of so many bytes, or of which so many are sent, is answered."""
        with h2.connect(self.cluster.network) as plain:
            plain.sendall(join_wire.GREETING)
            with h2.tls_settings().wrap_socket(plain) as stream:
                stream.sendall(size.to_bytes(4, "big") + unknown_field(sent or size))
                try:
                    return bool(stream.recv(4096))
                except OSError:
                    return False

    def opens(self, size):
        """Whether a request for a door, of so many bytes, is heard to its end."""
        rest = b" HTTP/1.1\r\n\r\n"
        with h2.connect(self.cluster.ring_port("a")) as visitor:
            visitor.sendall(b"CONNECT ".ljust(size - len(rest), b"x") + rest)
            try:
                return visitor.recv(4096).startswith(b"HTTP/1.1 404")
            except OSError:
                return False

    def test_sizes(self):
        """Of every limit, what is just in it, and one byte more."""
        running = self.cluster
        with self.beside():
            for (address, process), kind, method, most in zip(
                    self.ports(), ("coordinator", "worker"), (WHO_AM_I, HEALTH), (4 * MIB + (64 << 10), 4 * MIB)):
                with running.credentials_of("b").channel(address, kind) as channel:
                    self.assertEqual(outcome(channel, method, unknown_field(most))[0], grpc.StatusCode.OK)
                    code, words = outcome(channel, method, unknown_field(most + 1))
                    self.assertEqual(code, RESOURCE_EXHAUSTED, words)
                # Headers of 8 KiB in all, as gRPC counts them.
                for size, status in ((7 << 10, 0), (8 << 10, RESOURCE_EXHAUSTED.value[0])):
                    block = h2.request(method, ("x", "y" * size))
                    self.assertEqual(self.replied(address, block), status)
                # Lengths of 2 and 4 GiB on a KiB: nothing is kept for the rest.
                before = resident(process)
                for length in (0x7FFFFFFF, 0xFFFFFFFF):
                    self.attack(h2.call(1, method), h2.message(1, b"x" * 1024, length), address=address)
                self.assertLess(resident(process) - before, 16 * MIB)
            # What is said before there is gRPC: of who joins 16 KiB, of who asks for a door 1 KiB.
            self.assertTrue(self.joins(16 << 10))
            self.assertFalse(self.joins((16 << 10) + 1))
            self.assertFalse(self.joins(0xFFFFFFFF, sent=16 << 10))
            self.assertTrue(self.opens(1024))
            self.assertFalse(self.opens(1025))


if __name__ == "__main__":
    unittest.main(verbosity=2)
