"""Tokens and those who want more of them: used twice, by many at once, too late, by somebody between, for
another name; and where their secrets are to be found afterwards."""
import importlib
import pathlib
import subprocess
import unittest

import cluster  # noqa: I001  before grpc
import grpc

import forger
import join_wire
import peer_test
import two_hosts
from join_wire import Relay, Token
from two_hosts import ADDRESSES, INSIDE, OUTSIDE


def setUpModule():
    two_hosts.set_up()


class JoiningTest(two_hosts.HostsTest):
    def load(self):
        """The messages of a join, and what makes keys and requests for it."""
        peer_test.generate(self.cluster.folder / "stubs")
        self.access = importlib.import_module("ringmaster.v1.access_pb2")
        self.forger = forger.Forger(self.cluster.folder / "forged", self.cluster.pki / "ca.pem")

    def ask(self, token, request=None, name=""):
        """Reason of a refusal, or the identity that was given."""
        request = request or self.forger.request(self.forger.key())
        reply = join_wire.ask(self.access, token, self.forger.der(request), self.cluster.pki / "ca.pem", name)
        return reply.reason or reply.issued.identity.split("/", 3)[3]

    def refused(self, worker, *words):
        self.assertNotEqual(worker.wait(), 0)
        for word in words:
            self.assertIn(word, worker.log())

    def test_a_token_is_used_once(self):
        running = self.cluster
        running.start_coordinator()
        token = running.token("--name", "a")
        first = running.start_certified("a", INSIDE, token)
        job = running.submit(cluster.job_spec(name="beside"))
        self.refused(running.start_certified("a", OUTSIDE, token, state="second", wait=False), "TOKEN_USED")
        self.assertFalse((running.state("second") / "pki").exists())
        self.check_end(job)
        # Whoever has a certificate needs no token, and says that it does not use it.
        self.assertEqual(first.stop(), 0)
        again = running.start_certified("a", INSIDE, token)
        self.assertIn("the token is not used: this worker is spiffe://", again.log())
        refusals = [entry for entry in running.audit() if entry["result"] == "TOKEN_USED"]
        self.assertEqual([(entry["who"], entry["what"]) for entry in refusals],
                         [(f"address {ADDRESSES[OUTSIDE]}", "join")])
        running.stop()

    def test_a_new_token_lets_a_revoked_worker_in_again(self):
        running = self.cluster
        running.start_coordinator()
        token = running.token("--name", "a")
        worker = running.start_certified("a", INSIDE, token)
        running.ringctl("identity", "revoke", "a", "--worker")
        cluster.wait_until(lambda: not running.attached(), "its session ends")
        self.assertEqual(worker.stop(), 0)
        # The old token stays in its settings, and helps nobody.
        worker = running.start_certified("a", INSIDE, token, wait=False)
        cluster.wait_until(lambda: "REVOKED" in worker.log() or "revoked" in worker.log(), "it is told")
        self.assertEqual((worker.stop(), running.attached()), (0, {}))
        running.start_certified("a", INSIDE, running.token("--name", "a"))
        self.check_job(cluster.job_spec(name="beside"))
        running.stop()

    def test_one_use_and_eight_who_want_it(self):
        running = self.cluster
        running.start_coordinator()
        token = running.token()
        workers = [running.start_certified(f"w{i}", i % 2, token, wait=False, join=["--join", token, "--name", f"w{i}"])
                   for i in range(8)]
        cluster.wait_until(lambda: sum(not worker.running() for worker in workers) == 7, "seven are refused", 60)
        [joined] = [worker for worker in workers if worker.running()]
        for worker in workers:
            if worker is not joined:
                self.refused(worker, "--join: the coordinator refused: this token was used up")
        [name] = [name for name, worker in running.workers.items() if worker is joined]
        cluster.wait_until(lambda: set(running.attached()) == {name}, "the one that joined attaches")
        self.assertEqual([each["name"] for each in running.json("identity", "ls")["identities"]], [name])
        joins = [entry for entry in running.audit() if entry["what"] == "join" and entry["result"] == "ok"]
        self.assertEqual(len(joins), 1)
        self.check_job(cluster.job_spec(name="beside"))

    def test_tokens_that_are_worth_nothing(self):
        running = self.cluster
        running.start_coordinator()
        self.load()
        late, back, used = (Token(running.token(*more)) for more in (("--ttl", "1s"), (), ()))
        running.ringctl("token", "revoke", back.id)
        request = self.forger.request(self.forger.key())
        self.assertEqual(self.ask(used, request, "x"), "worker/x")
        # The answer may be lost: the same key gets it again.
        self.assertEqual(self.ask(used, request, "y"), "worker/x")
        wrong = Token(running.token())
        wrong.secret = wrong.secret[:-1] + ("a" if wrong.secret[-1] != "a" else "b")

        def listed():
            return {token["id"] for token in running.json("token", "ls")["tokens"]}
        self.assertIn(wrong.id, listed())
        cluster.wait_until(lambda: late.id not in listed(), "a token ends")
        for token, reason in ((late, "TOKEN_EXPIRED"), (back, "TOKEN_NOT_VALID"), (used, "TOKEN_USED"),
                              (wrong, "TOKEN_NOT_VALID")):
            self.assertEqual(self.ask(token, name="y"), reason)
        good = Token(running.token())
        self.assertEqual(self.ask(good, name="x"), "NAME_TAKEN")
        # Five a minute: who tries more is not listened to, and others are.
        self.assertEqual(self.ask(good, name="y"), "TOO_MANY")
        running.start_certified("y", INSIDE, join=["--join", good.line(), "--name", "y"])
        self.assertEqual({(each["name"]) for each in running.json("identity", "ls")["identities"]}, {"x", "y"})
        self.check_job(cluster.job_spec(name="beside"))
        running.stop()

    def test_a_request_that_wants_to_be_somebody_else(self):
        running = self.cluster
        running.start_coordinator()
        self.load()
        admin = f"URI:spiffe://{(running.pki / 'cluster-id').read_text().strip()}/user/admin"
        token = Token(running.token("--name", "c"))
        request = self.forger.request(self.forger.key(), "/CN=user admin", admin)
        reply = join_wire.ask(self.access, token, self.forger.der(request), running.pki / "ca.pem", "admin")
        self.assertEqual(reply.issued.identity.split("/", 3)[3], "worker/c")
        names = subprocess.run(["openssl", "x509", "-inform", "DER", "-noout", "-subject", "-ext", "subjectAltName"],
                               input=reply.issued.certificate, capture_output=True, check=True).stdout.decode()
        self.assertIn("/worker/c, DNS:worker.ringmaster\n", names)
        self.assertNotIn("admin", names)

    def test_somebody_between_who_answers(self):
        running = self.cluster
        running.start_coordinator()
        running.start_certified("a", INSIDE, running.token("--name", "a"))
        job = running.submit(cluster.job_spec(name="beside"))
        made = forger.Forger(running.folder / "forged", None)
        own = made.authority()
        uri = f"spiffe://{(running.pki / 'cluster-id').read_text().strip()}/coordinator/coordinator"
        fake = made.leaf(own, uri, names=["coordinator.ringmaster"])
        chains = {"its own authority": (own.certificate.read_bytes(), "is not the cluster of this token"),
                  "the cluster's, which did not sign it": ((running.pki / "ca.pem").read_bytes(),
                                                           "is not signed by an authority"),
                  "none": (b"", "is not the cluster of this token")}
        for what, (chain, words) in chains.items():
            with self.subTest(what):
                pem, key = running.new_path("chain"), running.new_path("key")
                pem.write_bytes(fake.certificate + chain)
                key.write_bytes(fake.key)
                with Relay(ADDRESSES[OUTSIDE], running.network, (pem, key)) as relay:
                    token = Token(running.token())
                    worker = running.start_certified("m", OUTSIDE, token.at(relay.address).line(),
                                                     state=f"of-{pem.name}", wait=False)
                    self.refused(worker, words, "the secret was not sent")
                    self.assertTrue(relay.heard)
                    for heard in relay.heard:
                        self.assertEqual(bytes(heard), join_wire.GREETING)
        # With the coordinator's own key it would hear the secret: it is the check of the chain that keeps it.
        server = running.pki / "server"
        pem = running.new_path("chain")
        pem.write_bytes((server / "certificate.pem").read_bytes() + (server / "authorities.pem").read_bytes())
        with Relay(ADDRESSES[OUTSIDE], running.network, (pem, server / "key.pem")) as relay:
            token = Token(running.token())
            worker = running.start_certified("m", OUTSIDE, token.at(relay.address).line(), wait=False)
            secret = token.secret.encode()
            cluster.wait_until(lambda: any(secret in heard for heard in relay.heard), "the secret is heard")
            worker.kill()
        self.check_end(job)

    def test_somebody_between_who_listens(self):
        running = self.cluster
        running.start_coordinator()
        running.start_certified("a", INSIDE, running.token("--name", "a"))
        with Relay(ADDRESSES[OUTSIDE], running.network) as relay:
            token = Token(running.token("--name", "b"))
            running.start_certified("b", OUTSIDE, token.at(relay.address).line())
            self.check_job()
            heard = [bytes(each) for each in relay.heard]
            answered = b"".join(relay.answered)
            with grpc.insecure_channel(relay.address) as channel:  # that it does hear
                two_hosts.outcome(channel, "/ringmaster.v1.Jobs/List")
            self.assertTrue(any(b"PRI * HTTP/2.0" in each for each in relay.heard))
            running.workers["b"].stop()
        joins = [each for each in heard if each.startswith(join_wire.GREETING)]
        others = [each for each in heard if not each.startswith(join_wire.GREETING)]
        self.assertEqual(len(joins), 1)
        self.assertTrue(others)
        for begins in (joins[0][len(join_wire.GREETING):], *others):
            self.assertEqual(begins[:2], b"\x16\x03")  # a handshake of TLS
        everything = b"".join(heard) + answered
        self.assertGreater(len(everything), 5_000)
        for word in (token.secret, token.id, "beside", "ringmaster.v1", "PRI * HTTP/2.0", "spiffe://", "cifar10",
                     running.state("b").name):
            self.assertFalse(word.encode() in everything, word)
        running.stop()

    def commands(self):
        """Every command line of this machine that can be read."""
        lines = b""
        for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
            try:
                lines += path.read_bytes()
            except OSError:  # it ended
                continue
        return lines

    def test_secrets_are_nowhere(self):
        running = self.cluster
        running.start_coordinator()
        tokens = [Token(running.token("--name", name)) for name in "ab"]
        file = running.new_path("token")
        file.write_text(tokens[1].line() + "\n")
        unused = Token(running.token())
        a = running.start_certified("a", INSIDE, tokens[0].line())
        running.start_certified("b", OUTSIDE, join=["--join-file", file])
        second = running.start_certified("a", OUTSIDE, tokens[0].line(), state="second", wait=False)
        self.refused(second, "TOKEN_USED")
        running.workers["a"] = a
        job = self.check_job()["job_id"]
        keys = [path.read_text().splitlines()[1] for path in
                (running.pki / "ca.key", running.pki / "server" / "key.pem",
                 *(running.state(name) / "pki" / "key.pem" for name in "ab"))]
        secrets = [token.secret.encode() for token in (*tokens, unused)] + [key.encode() for key in keys]
        said = "".join(running.ringctl(*words).stdout for words in (
            ["audit"], ["audit", "-o", "json"], ["token", "ls"], ["token", "ls", "-o", "json"], ["identity", "ls"],
            ["workers", "-o", "json"], ["why", job], ["events", job], ["logs", job], ["status", job, "-o", "json"]))
        ps = subprocess.run(["ps", "-ewwo", "args"], capture_output=True, check=True).stdout
        logs = b"".join(process.log().encode() for process in running.processes)
        private = {"pki"}  # whose keys these are
        stored = b"".join(path.read_bytes() for path in running.folder.rglob("*")
                          if path.is_file() and not path.is_symlink() and path != file
                          and not any(part.split(".")[0] in private for part in path.parts))
        places = {"answers": said.encode(), "ps": ps, "command lines": self.commands(), "logs": logs, "files": stored}
        for place, text in places.items():
            for secret in secrets:
                with self.subTest(place):
                    self.assertFalse(secret in text, "it is there")  # and is not shown by the test
        # What may be seen is seen there.
        self.assertIn(unused.id, said)
        for place, seen in (("ps", bytes(running.state("a"))), ("command lines", bytes(running.state("a"))),
                            ("logs", b"joined as spiffe://"), ("files", tokens[0].id.encode())):
            self.assertTrue(seen in places[place], place)
        running.stop()


if __name__ == "__main__":
    unittest.main(verbosity=2)
