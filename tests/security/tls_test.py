"""Between hosts nothing goes without a certificate of the cluster: the whole way from a token to a checkpoint,
and connections in plaintext, without a certificate, with a wrong one, and of another TLS."""
import contextlib
import socket
import subprocess
import threading
import unittest

import cluster  # noqa: I001  before grpc
import grpc

import forger
import two_hosts
from two_hosts import ADDRESSES, INSIDE, OUTSIDE, outcome

setUpModule = two_hosts.set_up

WHO_AM_I = "/ringmaster.v1.Access/WhoAmI"
HEALTH = "/grpc.health.v1.Health/Check"
REFLECTION = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
OF_COORDINATOR = ("/ringmaster.v1.Jobs/List", "/ringmaster.v1.Fleet/Session", WHO_AM_I,
                  "/ringmaster.v1.Access/CreateToken", HEALTH, REFLECTION)
OF_WORKER = ("/ringmaster.v1.Ring/Link", "/ringmaster.v1.Ring/Pulse", "/ringmaster.v1.States/Fetch",
             "/ringmaster.v1.DataFiles/List", HEALTH, REFLECTION)
_SO_RCVBUFFORCE = 33  # asm-generic/socket.h
HTTP2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


class Capture(threading.Thread):
    """Every packet between the hosts, one behind the other, until it is ended."""

    def __init__(self):
        super().__init__(daemon=True)
        self._packets = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))  # every protocol
        self._packets.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, 64 << 20)
        self._packets.bind(("to-inside", 3))
        self._packets.settimeout(0.1)
        self._ended = threading.Event()
        self._seen = []
        self.start()

    def run(self):
        while not self._ended.is_set():
            with contextlib.suppress(socket.timeout):
                self._seen.append(self._packets.recv(65_536))
        self._packets.setblocking(False)
        with contextlib.suppress(BlockingIOError):  # until nothing is left of what was sent before the end
            while True:
                self._seen.append(self._packets.recv(65_536))

    def end(self):
        self._ended.set()
        self.join()
        self._packets.close()
        return b"".join(self._seen)


def said_to(address, *words):
    """What a port answers to each of `words`; behind the last it has to close the connection."""
    host, port = address.rsplit(":", 1)
    with socket.create_connection((host, int(port)), 20) as connection:
        connection.settimeout(20 * cluster.SLOW)
        for word in words[:-1]:
            connection.sendall(word)
            yield connection.recv(4096)
        connection.sendall(words[-1])
        answer = b""
        with contextlib.suppress(ConnectionResetError):  # it does not read what it does not want
            while chunk := connection.recv(4096):
                answer += chunk
        yield answer


class TlsTest(two_hosts.HostsTest):
    def refused_in_handshake(self, result):
        code, words = result
        self.assertEqual(code, grpc.StatusCode.UNAVAILABLE, words)
        self.assertNotIn("refused", words)  # the port is there

    def test_from_a_token_to_a_checkpoint(self):
        running = self.cluster
        running.start_pair()
        self.assertEqual({entry["ring_address"].rsplit(":", 1)[0] for entry in running.attached().values()},
                         set(ADDRESSES))
        status = self.check_job()
        self.assertTrue(all(worker["ring_bytes"] > 0 for worker in status["workers"]))
        identities = running.json("identity", "ls")["identities"]
        self.assertEqual({(each["name"], each["role"]) for each in identities}, {("a", "worker"), ("b", "worker")})
        joins = {entry["subject"].split()[0]: entry["who"] for entry in running.audit() if entry["what"] == "join"}
        self.assertEqual(joins, {f"worker/{name}": f"address {address}" for name, address in zip("ab", ADDRESSES)})
        # Both start again with what they have, a over the coordinator's socket.
        running.stop()
        running.start_coordinator()
        running.start_certified("a", INSIDE, join=["--coordinator", running.address,
                                                   "--listen", f"{ADDRESSES[INSIDE]}:0"])
        running.start_certified("b", OUTSIDE)
        self.check_job()
        running.stop()

    def test_plaintext_from_another_host(self):
        running = self.cluster
        running.start_pair(everywhere=True)
        job = running.submit(two_hosts.JOB)
        # On loopback that is how everybody talks to it.
        port = running.network.rsplit(":", 1)[1]
        inside = subprocess.run(
            [*two_hosts.on(INSIDE), cluster.BIN / "ringctl", "ps", "--coordinator", f"127.0.0.1:{port}"],
            capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(inside.returncode, cluster.OK, inside.stderr)
        forbidden = b"HTTP/1.1 403 Forbidden\r\n"
        for address in (running.network, running.ring_port("a")):
            with self.subTest(address):
                for words in (HTTP2, b"GET / HTTP/1.1\r\n\r\n"):
                    [answer] = said_to(address, words)
                    self.assertTrue(answer.startswith(forbidden), answer)
                    self.assertIn(b"without TLS this port takes connections of its own host alone", answer)
                with grpc.insecure_channel(address) as channel:
                    self.refused_in_handshake(outcome(channel, HEALTH))
        # The door that gradients take leads nowhere else.
        opened, answer = said_to(running.ring_port("a"), b"CONNECT link HTTP/1.1\r\n\r\n", HTTP2)
        self.assertTrue(opened.startswith(b"HTTP/1.1 200"), opened)
        self.assertTrue(answer.startswith(forbidden), answer)
        said = subprocess.run([cluster.BIN / "ringctl", "ps", "--coordinator", running.network],
                              capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual((said.returncode != cluster.OK, said.stdout), (True, ""))
        self.check_end(job)
        running.stop()

    def test_what_the_network_shows(self):
        running = self.cluster
        running.start_coordinator()
        capture = Capture()
        for host, name in ((INSIDE, "a"), (OUTSIDE, "b")):
            running.start_certified(name, host, running.token("--name", name))
        status = self.check_job({**two_hosts.JOB, "name": "job-of-canaries"})
        list(said_to(running.network, HTTP2))
        seen = capture.end()
        self.assertGreater(len(seen), sum(worker["ring_bytes"] for worker in status["workers"]) // 2)
        self.assertEqual(seen.count(HTTP2[:16]), 1, "what was sent in plaintext")
        for marker in (b"ringmaster.v1", b"job-of-canaries", b"RING\x01\x00", b"ringmaster-link", b"spiffe://"):
            with self.subTest(marker):
                self.assertNotIn(marker, seen)
        running.stop()

    def test_no_certificate(self):
        running = self.cluster
        running.start_pair()
        job = running.submit(two_hosts.JOB)
        nobody = two_hosts.Credentials(authorities=running.pki / "ca.pem")
        for address, kind, methods in ((running.network, "coordinator", OF_COORDINATOR),
                                       (running.ring_port("a"), "worker", OF_WORKER)):
            for method in methods:
                with self.subTest(method, of=kind):
                    with nobody.channel(address, kind) as channel:
                        self.refused_in_handshake(outcome(channel, method))
                    with running.credentials_of("b").channel(address, kind) as channel:
                        self.assertNotEqual(outcome(channel, method)[0], grpc.StatusCode.UNAVAILABLE)
        self.check_end(job)
        running.stop()

    def test_wrong_certificates(self):
        running = self.cluster
        running.start_pair()
        job = running.submit(two_hosts.JOB)
        made = forger.Forger(running.folder / "forged", running.pki / "ca.pem")
        stolen = forger.Authority(running.pki / "ca.key", running.pki / "ca.pem")
        cluster_id = (running.pki / "cluster-id").read_text().strip()
        uri = f"spiffe://{cluster_id}/worker/a"
        cases = {
            "another authority": made.leaf(made.authority(), uri),
            "signed by itself": made.leaf(None, uri),
            "the authority itself": two_hosts.Credentials(stolen.key, stolen.certificate, stolen.certificate),
            "ended": made.leaf(stolen, uri, hours=(-48, -1)),
            "not yet valid": made.leaf(stolen, uri, hours=(1, 2)),
            "for servers alone": made.leaf(stolen, uri, usages="serverAuth"),
            "no URI": made.leaf(stolen, names=["worker.ringmaster"]),
            "two URIs": made.leaf(stolen, uri, f"spiffe://{cluster_id}/user/admin"),
            "another cluster": made.leaf(stolen, "spiffe://another/worker/a"),
            "no such kind": made.leaf(stolen, f"spiffe://{cluster_id}/root/a"),
            "no identity": made.leaf(stolen, "https://ringmaster/worker/a"),
            "a long URI": made.leaf(stolen, uri + "a" * (2049 - len(uri))),
        }
        for what, credentials in cases.items():
            with self.subTest(what):
                with credentials.channel(running.network) as channel:
                    self.refused_in_handshake(outcome(channel, WHO_AM_I))
                with credentials.channel(running.ring_port("a"), "worker") as channel:
                    self.refused_in_handshake(outcome(channel, HEALTH))
        # Whoever has the authority's key can be anybody whom the coordinator knows, and nobody else.
        with made.leaf(stolen, uri).channel(running.network) as channel:
            self.assertEqual(outcome(channel, WHO_AM_I), (grpc.StatusCode.OK, ""))
        for what, uri, hours in (("nobody knows", f"spiffe://{cluster_id}/worker/nobody", (0, 1)),
                                 ("from before a joined", uri, (-1, 1)),
                                 ("a coordinator", f"spiffe://{cluster_id}/coordinator/coordinator", (0, 1))):
            with self.subTest(what), made.leaf(stolen, uri, hours=hours).channel(running.network) as channel:
                self.assertEqual(outcome(channel, WHO_AM_I)[0], grpc.StatusCode.UNAUTHENTICATED)
        self.check_end(job)
        running.stop()

    def handshake(self, address, *arguments):
        """What openssl's client says of a handshake, and of what the server sends behind it."""
        pki = self.cluster.state("b") / "pki"
        return subprocess.run(
            ["openssl", "s_client", "-connect", address, "-cert", pki / "certificate.pem", "-key", pki / "key.pem",
             "-CAfile", pki / "authorities.pem", *arguments],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=60, check=False)

    def test_other_versions_of_tls(self):
        running = self.cluster
        running.start_pair()
        for address in (running.network, running.ring_port("a")):
            with self.subTest(address):
                good = self.handshake(address, "-tls1_3", "-alpn", "h2")
                self.assertIn("TLSv1.3, Cipher is TLS_AES_128_GCM_SHA256", good.stdout)
                self.assertIn("Verify return code: 0 (ok)", good.stdout)
                self.assertIn("ALPN protocol: h2", good.stdout)
                for refused in (["-tls1_2"], ["-tls1_2", "-cipher", "ALL:@SECLEVEL=0"], ["-tls1_1"],
                                ["-tls1_3", "-ciphersuites", "TLS_AES_256_GCM_SHA384"]):
                    said = self.handshake(address, *refused)
                    self.assertIn("Cipher is (NONE)", said.stdout, refused)
        self.check_job()
        running.stop()


if __name__ == "__main__":
    unittest.main(verbosity=2)
