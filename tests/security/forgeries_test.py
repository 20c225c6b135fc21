"""Checkpoints of a job that trains, of a later step and with other weights, from whoever might want to bring
one in: nobody, people, another worker, one with a member's stolen certificate, and a member itself."""
import unittest

import cluster  # noqa: I001  before grpc
import grpc

import strangers_test
import two_hosts
from two_hosts import INSIDE, OUTSIDE

setUpModule = two_hosts.set_up

PERMISSION_DENIED, UNAVAILABLE = grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAVAILABLE
LATER = 446  # none that the job keeps: every third


class ForgeriesTest(two_hosts.HostsTest, strangers_test.StrangersTestCase):
    def setUp(self):
        super().setUp()
        self.sessions = []

    def test_from_whoever_is_not_its_writer(self):
        running = self.cluster
        running.start_pair()
        running.start_certified("c", OUTSIDE, running.token("--name", "c"))
        running.workers["c"].stop()
        self.load_stubs()
        spec = cluster.job_spec(name="beside", epochs=150, checkpoint={"every_steps": 3}, workers={"min": 2, "max": 2})
        job = running.submit(spec)
        status = running.watch_until(job, lambda status: status["checkpoint"], "a checkpoint is listed")
        files = self.altered(job, LATER)
        term, counter = (int(part) for part in str(status["generation"]).split("."))

        def forge(channel, ticket=b"a" * 16):
            begin = self.fleet.CheckpointBegin(job_id=job, step=LATER, ticket=ticket)
            begin.generation.term, begin.generation.counter = term, counter
            return super(ForgeriesTest, self).forge(channel, begin, files)
        with two_hosts.Credentials(authorities=running.pki / "ca.pem").channel(running.network) as nobody:
            self.assertEqual(forge(nobody), UNAVAILABLE)
        with grpc.insecure_channel(running.network) as nobody:
            self.assertEqual(forge(nobody), UNAVAILABLE)
        for name in ("a", "b"):  # a member's certificate is not its session
            with running.credentials_of(name).channel(running.network) as stolen:
                self.assertEqual(forge(stolen), PERMISSION_DENIED)
        with running.credentials_of("c").channel(running.network) as other:
            ticket, session = self.attach(other, "c")
            for wrong in (b"a" * 16, b""):
                self.assertEqual(forge(other, wrong), PERMISSION_DENIED)
            self.assertIn(forge(other, ticket), (PERMISSION_DENIED, grpc.StatusCode.FAILED_PRECONDITION))
            session.put(None)
        self.check_end(job, spec)
        self.assertNotIn(LATER, [each["step"] for each in running.json("checkpoint", "ls", job)["checkpoints"]])
        running.workers.pop("c")
        running.stop()

    def test_from_its_writer_with_another_bit(self):
        """The first worker of the ring, which delivers checkpoints, holds another parameter than the second."""
        running = self.cluster
        spec = cluster.job_spec(name="beside", epochs=10, checkpoint={"every_steps": 4}, workers={"min": 2, "max": 2})
        running.start_coordinator()
        flipped = running.folder / "flipped"
        for host, name, failpoint in ((INSIDE, "a", f"state@7=flip:parameter!{flipped}"), (OUTSIDE, "b", "")):
            running.environment = {"RINGMASTER_FAILPOINTS": f"boundary=delay:40;{failpoint}".rstrip(";")}
            running.start_certified(name, host, running.token("--name", name))
        status = self.check_job(spec)
        self.assertEqual((flipped.exists(), status["state_faults"]), (True, 1))
        running.stop()


if __name__ == "__main__":
    unittest.main(verbosity=2)
