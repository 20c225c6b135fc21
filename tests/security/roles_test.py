"""Who may call what: every method of the coordinator's port, called by every role and by somebody who was
revoked, does as its option `may_call` says (proto/); and a worker is revoked in the middle of a job, a person
in the middle of what it watches. How much one may have open at a time."""
import importlib
import queue
import unittest

import cluster  # noqa: I001  before grpc
import grpc

import forger
import join_wire
import peer_test
import two_hosts
from join_wire import Token
from two_hosts import OUTSIDE, outcome

setUpModule = two_hosts.set_up

PERSONS = ("viewer", "submitter", "admin")
HEALTH = "/grpc.health.v1.Health/Check"
REFLECTION = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
NOT_PERMITTED = "may not call"
# Files of the services on the coordinator's port.
SERVED = ("jobs", "fleet", "bench", "access", "data")
# Behind its gate until that is open, and quick without.
LONG, HELD = cluster.job_spec(name="long", epochs=200, workers={"min": 2, "max": 2}), "500-599"


class RolesTest(two_hosts.HostsTest):
    def load(self):
        peer_test.generate(self.cluster.folder / "stubs")
        self.access = importlib.import_module("ringmaster.v1.access_pb2")
        self.rules = importlib.import_module("ringmaster.v1.rules_pb2")
        self.forger = forger.Forger(self.cluster.folder / "forged", self.cluster.pki / "ca.pem")

    def join(self, role, name):
        """Credentials of somebody who joins by hand."""
        key = self.forger.key()
        token = Token(self.cluster.token("--name", name, role=role))
        request = self.forger.der(self.forger.request(key))
        reply = join_wire.ask(self.access, token, request, self.cluster.pki / "ca.pem")
        self.assertEqual(reply.code, 0, reply.message)
        return two_hosts.Credentials(key, self.forger.pem(reply.issued.certificate), self.cluster.pki / "ca.pem")

    def methods(self):
        """Path -> roles that may call it, as the protos say."""
        found = {}
        for name in SERVED:
            file = importlib.import_module(f"ringmaster.v1.{name}_pb2").DESCRIPTOR
            for service in file.services_by_name.values():
                for method in service.methods:
                    may_call = method.GetOptions().Extensions[self.rules.may_call]
                    found[f"/{service.full_name}/{method.name}"] = {
                        role for role in (*PERSONS, "worker") if getattr(may_call, role) != self.rules.SCOPE_NONE}
        found[HEALTH] = {*PERSONS, "worker"}
        found[REFLECTION] = {"admin"}
        found["/ringmaster.v1.Jobs/Nothing"] = found["/nobody.Knows/It"] = set()
        return found

    def test_every_method_for_every_role(self):
        running = self.cluster
        running.start_pair()
        self.load()
        job = running.submit(two_hosts.JOB)
        callers = {role: self.join(role, role) for role in PERSONS}
        callers["worker"] = running.credentials_of("b")
        revoked = self.join("admin", "gone")
        with revoked.channel(running.network) as channel:
            self.assertEqual(outcome(channel, "/ringmaster.v1.Access/ListTokens")[0], grpc.StatusCode.OK)
        running.ringctl("identity", "revoke", "gone")
        methods = self.methods()
        self.assertGreater(len(methods), 25)
        for role, credentials in callers.items():
            with credentials.channel(running.network) as channel:
                for method, roles in methods.items():
                    with self.subTest(method, role=role):
                        code, words = outcome(channel, method, timeout=3)
                        self.assertNotEqual(code, grpc.StatusCode.UNAUTHENTICATED, words)
                        refused = code == grpc.StatusCode.PERMISSION_DENIED and NOT_PERMITTED in words
                        self.assertEqual(refused, role not in roles, f"{code} {words}")
        with revoked.channel(running.network) as channel:
            for method in methods:
                with self.subTest(method, role="revoked"):
                    code, words = outcome(channel, method)
                    self.assertEqual(code, grpc.StatusCode.UNAUTHENTICATED)
                    self.assertIn("user/gone was revoked", words)
        self.assertIn(("worker/b", "/ringmaster.v1.Jobs/Submit", "NOT_PERMITTED"),
                      {(entry["who"], entry["subject"], entry["result"]) for entry in running.audit()})
        self.check_end(job)
        running.stop()

    def submission(self):
        """Requests for jobs that wait for more workers than there are."""
        jobs, job = (importlib.import_module(f"ringmaster.v1.{name}_pb2") for name in ("jobs", "job"))
        spec = job.JobSpec(name="own", batch=8, shards=8, epochs=1)
        spec.model.name, spec.data.path, spec.optimizer.sgd.learning_rate, spec.workers.min = "mlp", "cifar10", 0.1, 8
        return jobs, lambda key: jobs.SubmitRequest(spec=spec, idempotency_key=key)

    def test_what_is_anothers(self):
        running = self.cluster
        running.start_pair()
        self.load()
        fleet = importlib.import_module("ringmaster.v1.fleet_pb2")
        done = self.check_job()["job_id"]  # the administrator's
        beside = running.submit(two_hosts.JOB)
        jobs, submission = self.submission()
        eva, max_, ann = self.join("submitter", "eva"), self.join("submitter", "max"), self.join("admin", "ann")
        with eva.channel(running.network) as channel:
            def submit(key):
                call = channel.unary_unary("/ringmaster.v1.Jobs/Submit", jobs.SubmitRequest.SerializeToString,
                                           jobs.SubmitResponse.FromString)
                return jobs.CancelRequest(job_id=call(submission(key), timeout=20).job_id).SerializeToString()
            first, second = submit("1"), submit("2")

        def take_weights(who, of):
            with who.channel(running.network) as channel:
                return outcome(channel, "/ringmaster.v1.Jobs/Submit", of.SerializeToString())
        begins, continues = submission("3"), submission("4")
        begins.spec.init.job = getattr(continues.spec, "continue").job = done
        resumes = jobs.SubmitRequest(idempotency_key="5", resume_job=done)
        for of, otherwise in ((begins, "OK"), (continues, "INVALID_ARGUMENT"), (resumes, "FAILED_PRECONDITION")):
            code, words = take_weights(eva, of)
            self.assertEqual(code, grpc.StatusCode.PERMISSION_DENIED, words)
            self.assertIn(f"job {done} is not user/eva's, and this one would have its weights", words)
            self.assertEqual(take_weights(ann, of)[0].name, otherwise)

        def ask(method, who, job):
            with who.channel(running.network) as channel:
                return outcome(channel, f"/ringmaster.v1.Jobs/{method}", job)[0]
        for method in ("Cancel", "Remove"):  # what ended is removed
            self.assertEqual(ask(method, max_, first), grpc.StatusCode.PERMISSION_DENIED)
            self.assertEqual(ask(method, eva, first), grpc.StatusCode.OK)
            self.assertEqual(ask(method, ann, second), grpc.StatusCode.OK)

        attach = fleet.Attach(protocol=peer_test.PROTOCOL, name="a", incarnation="0" * 31 + "1", cores=1, ring_address="198.18.77.2:9")
        attach.numerics_class.backend = "none"
        for name in ("a", "c"):
            attach.name = name
            with running.credentials_of("b").channel(running.network) as channel:
                code, words = outcome(channel, "/ringmaster.v1.Fleet/Session",
                                      fleet.WorkerMessage(attach=attach).SerializeToString())
            self.assertEqual(code, grpc.StatusCode.PERMISSION_DENIED, words)
            self.assertIn(f"certificate says that it is b, and it attaches as {name}", words)
        # Its job has ended, and it serves none.
        self.check_end(beside)
        get = jobs.GetCheckpointRequest(job_id=beside).SerializeToString()
        for who, expected in ((running.credentials_of("b"), grpc.StatusCode.PERMISSION_DENIED),
                              (max_, grpc.StatusCode.PERMISSION_DENIED), (ann, grpc.StatusCode.OK)):
            with who.channel(running.network) as channel:
                code, words = outcome(channel, "/ringmaster.v1.Jobs/GetCheckpoint", get)
                self.assertEqual(code, expected, words)
        # A job that begins with that one has it, once nobody is in front of it.
        for queued in running.json("ps")["jobs"]:
            if queued["state"] == "QUEUED":
                running.ringctl("cancel", queued["job_id"])
        running.run_job(cluster.job_spec(name="tuned", init={"job": beside}, workers={"min": 2, "max": 2}))
        running.stop()

    def streams(self, channel, method, request, count):
        """So many calls of a method that does not end, each behind its first answer; how the next one ends."""
        calls = [channel.unary_stream(method)(request, timeout=100) for _ in range(count)]
        for call in calls:
            next(call)
        return calls, outcome(channel, method, request)

    def begin_a_long_one(self):
        """A job that trains until the gate is open, and a call that watches it."""
        running = self.cluster
        [gate] = running.gates("", milliseconds=80, hold=HELD)  # at every step
        running.start_pair()
        self.load()
        jobs = importlib.import_module("ringmaster.v1.jobs_pb2")
        job = running.submit(LONG)
        running.wait_ring(job, "a", "b")
        watch = ("/ringmaster.v1.Jobs/Watch", jobs.WatchRequest(job_id=job).SerializeToString())
        return gate, job, jobs, watch

    def test_a_person_is_revoked_who_watches(self):
        running = self.cluster
        gate, job, jobs, watch = self.begin_a_long_one()
        logs = ("/ringmaster.v1.Jobs/Logs", jobs.LogsRequest(job_id=job, follow=True).SerializeToString())
        eva, max_ = self.join("admin", "eva"), self.join("viewer", "max")
        with eva.channel(running.network) as evas, max_.channel(running.network) as others:
            [[watched], _], [[followed], _] = (self.streams(evas, *call, 1) for call in (watch, logs))
            [[other], _] = self.streams(others, *watch, 1)
            running.ringctl("identity", "revoke", "eva")
            for call in (watched, followed):
                with self.assertRaises(grpc.RpcError) as ended:
                    list(call)
                self.assertEqual(ended.exception.code(), grpc.StatusCode.CANCELLED)
            self.assertEqual(running.status(job)["state"], "RUNNING")  # no end of the job has ended them
            code, words = outcome(evas, *watch)
            self.assertEqual((code, "user/eva was revoked" in words), (grpc.StatusCode.UNAUTHENTICATED, True), words)
            gate.open()
            list(other)  # to its end
        self.check_end(job, LONG)
        running.stop()

    def submit_too_often(self, channel):
        """Eva submits as many at a time as she may, on and on, until some are refused: not before a hundred were not."""
        submit = channel.unary_unary("/ringmaster.v1.Jobs/Submit")
        let_in = []

        def refused():
            calls = [submit.future(b"", timeout=20 * cluster.SLOW) for _ in range(32)]
            ends = [(call.code(), call.details()) for call in calls]
            let_in.extend(end for end in ends if end[0] == grpc.StatusCode.INVALID_ARGUMENT)
            return [end for end in ends if end[0] != grpc.StatusCode.INVALID_ARGUMENT]
        for code, words in cluster.wait_until(refused, "some are refused"):
            self.assertEqual((code, "user/eva made 100 submissions within 10 s" in words),
                             (grpc.StatusCode.RESOURCE_EXHAUSTED, True), words)
        self.assertGreaterEqual(len(let_in), 100)

    def test_one_identity_has_so_much_open_and_not_more(self):
        running = self.cluster
        gate, job, _, watch = self.begin_a_long_one()
        eva, max_ = self.join("submitter", "eva"), self.join("submitter", "max")
        with eva.channel(running.network) as channel, max_.channel(running.network) as others:
            calls, (code, words) = self.streams(channel, *watch, 64)
            self.assertEqual((code, "user/eva has 64 calls that last" in words),
                             (grpc.StatusCode.RESOURCE_EXHAUSTED, True), words)
            self.assertEqual(outcome(others, *watch)[0], grpc.StatusCode.OK)
            # Also over another connection: it is counted by who, not by where.
            with eva.channel(running.network) as second:
                self.assertEqual(outcome(second, *watch)[0], grpc.StatusCode.RESOURCE_EXHAUSTED)
            self.submit_too_often(channel)
            for call in calls:
                call.cancel()
        self.assertIn(("user/eva", "/ringmaster.v1.Jobs/Watch", "TOO_MANY"),
                      {(entry["who"], entry["subject"], entry["result"]) for entry in running.audit()})
        # Beside a worker's own session there is room for three that end, and no Attach came on them.
        silence = queue.SimpleQueue()
        with running.credentials_of("b").channel(running.network) as channel:
            sessions = [channel.stream_stream("/ringmaster.v1.Fleet/Session")(iter(silence.get, None), timeout=100)
                        for _ in range(8)]
            cluster.wait_until(lambda: sum(session.done() for session in sessions) >= 5, "five are refused")
            refused = [session.code() for session in sessions if session.done()]
            self.assertEqual(refused, [grpc.StatusCode.RESOURCE_EXHAUSTED] * 5)
            for session in sessions:
                session.cancel()
                silence.put(None)
        self.assertEqual(set(running.attached()), {"a", "b"})
        gate.open()
        self.check_end(job, LONG)
        running.stop()

    def test_a_workers_port_is_for_those_of_its_job(self):
        running = self.cluster
        running.start_pair()
        self.load()
        states = importlib.import_module("ringmaster.v1.states_pb2")
        ring = importlib.import_module("ringmaster.v1.ring_pb2")
        status = self.check_job()
        job = status["job_id"]
        term, counter = (int(part) for part in status["generation"].split("."))
        fetch = states.FetchRequest(protocol=peer_test.PROTOCOL, job_id=job, step=6, worker="b").SerializeToString()
        other, admin = self.join("worker", "c"), self.join("admin", "ann")
        for method, request in (("/ringmaster.v1.States/Fetch", fetch), ("/ringmaster.v1.Ring/Link", b""),
                                ("/ringmaster.v1.Ring/Pulse", b""), (REFLECTION, b"")):
            with self.subTest(method), admin.channel(running.ring_port("a"), "worker") as channel:
                code, words = outcome(channel, method, request)
                self.assertEqual(code, grpc.StatusCode.PERMISSION_DENIED, words)
                self.assertIn("user/ann is no worker", words)
        with other.channel(running.ring_port("a"), "worker") as channel:
            code, words = outcome(channel, "/ringmaster.v1.States/Fetch", fetch)
            self.assertEqual(code, grpc.StatusCode.PERMISSION_DENIED, words)
            self.assertEqual(outcome(channel, HEALTH)[0], grpc.StatusCode.OK)
            # b is whom a awaits; c knows all that b would say.
            for sender, words in (("b", "/worker/c, and says that it is b"), ("c", "")):
                hello = ring.LinkHello(protocol=peer_test.PROTOCOL, job_id=job, term=term, counter=counter, sender=sender,
                                       incarnation="0" * 32)
                code, said = outcome(channel, "/ringmaster.v1.Ring/Pulse", timeout=3,
                                     metadata=[("ringmaster-link-bin", hello.SerializeToString())])
                denied = code == grpc.StatusCode.PERMISSION_DENIED
                self.assertEqual((denied, words in said), (sender == "b", True), said)
                self.assertNotEqual(code, grpc.StatusCode.OK)
        running.stop()

    def renewal(self, credentials):
        request = self.access.RenewRequest(signing_request=self.forger.der(self.forger.request(self.forger.key())))
        with credentials.channel(self.cluster.network) as channel:
            return outcome(channel, "/ringmaster.v1.Access/Renew", request.SerializeToString())

    def test_a_worker_is_revoked_in_the_middle_of_a_job(self):
        running = self.cluster
        [gate] = running.gates("", milliseconds=80, hold="100-119")  # at every step
        running.start_pair()
        self.load()
        spec = cluster.job_spec(name="goes-on", epochs=40)
        job = running.submit(spec)
        running.wait_ring(job, "a", "b")
        old = running.credentials_of("b")
        self.assertEqual(self.renewal(old)[0], grpc.StatusCode.OK)

        running.ringctl("identity", "revoke", "b", "--worker")
        status = running.wait_ring(job, "a")
        self.assertLess(status["step"], status["total_steps"])
        self.assertEqual(set(running.attached()), {"a"})
        code, words = self.renewal(old)
        self.assertEqual((code, "worker/b was revoked" in words), (grpc.StatusCode.UNAUTHENTICATED, True), words)
        gate.open()
        self.check_end(job, spec)

        # It is remembered: by a coordinator that starts again, against a worker that does.
        running.workers["b"].kill()
        self.assertEqual(running.coordinator.stop(), 0)
        running.start_coordinator()
        running.wait_free("a")
        again = running.start_certified("b", OUTSIDE, wait=False)
        cluster.wait_until(lambda: "worker/b was revoked" in again.log(), "it is told so")
        self.assertEqual(set(running.attached()), {"a"})
        self.assertEqual(self.renewal(old)[0], grpc.StatusCode.UNAUTHENTICATED)
        audit = [(entry["what"], entry["subject"], entry["who"], entry["result"]) for entry in running.audit()]
        [who] = [who for what, subject, who, result in audit
                 if (what, subject, result) == ("identity revoke", "worker/b", "ok")]
        self.assertTrue(who.startswith("local"), who)
        self.assertIn(("call", "/ringmaster.v1.Fleet/Session", "worker/b", "REVOKED"), audit)
        again.kill()

        # A new token lets the name in, and not what it had before.
        running.start_certified("b", OUTSIDE, running.token("--name", "b"), state="new")
        self.assertEqual(self.renewal(old)[0], grpc.StatusCode.UNAUTHENTICATED)
        self.check_job()
        running.stop()


if __name__ == "__main__":
    unittest.main(verbosity=2)
