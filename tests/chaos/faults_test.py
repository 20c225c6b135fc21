"""Every kind of fault once, each on a job of its own: the checkpoint is that of an undisturbed run."""
import random
import unittest

import training  # noqa: I001  first: it finds tests/integration
import cluster
import faults
import ledger
import storm

STEPS = 30

PROCESSES = (faults.Kill, faults.KillTwo, faults.PauseShort, faults.Pause2, faults.Pause30)
MEMBERSHIP = (faults.Terminate, faults.Drain, faults.Add, faults.KillAll)
COORDINATOR = (faults.KillCoordinator, faults.PauseCoordinator)
LINKS = (faults.Delay, faults.Reset, faults.Corrupt, faults.Silent, faults.OneWay, faults.SessionReset,
         faults.SessionSilent)
assert {*PROCESSES, *MEMBERSHIP, *COORDINATOR, *LINKS} == set(faults.ALL)


class FaultsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.spec = training.alexnet(STEPS)
        cls.expected = training.References().sha256(cls.spec)

    def setUp(self):
        self.train = training.Training(proxied=training.WORKERS)
        self.addCleanup(lambda: self.train.destroy(self._failed()))

    def _failed(self):
        result = self._outcome.result
        return any(test is self for test, _ in [*result.failures, *result.errors])

    def check(self, kinds):
        """One job for each kind, one after the other on the same processes."""
        for kind in kinds:
            with self.subTest(fault=kind.kind):
                self.train.wait_free()
                self.train.submit(self.spec)
                self.train.wait_step(11)  # a checkpoint was due
                one = storm.Storm(self.train, random.Random(kind.kind))
                self.addCleanup(one.close)
                cluster.wait_until(lambda one=one: self._inject(one, kind), f"{kind.kind} can be done")
                one.heal(limit=kind.longest + 60)
                self.train.finish(self.expected, timeout=120)
                self.assertEqual(one.complaints, [])
                self.check_regroups(kind, one)
                self.train.next_job()
        self.train.stop()

    def _inject(self, one, kind):
        self.assertFalse(one.ended(), "the job was over before the fault: it needs more steps")
        if one.inject(kind()):
            return True
        one.tick()
        return False

    def check_regroups(self, kind, one):
        """The worker that was hit was lost in a regroup where it must be, and nobody else ever."""
        regroups = self.train.observer.regroups()
        ledger.attribute(one.records, regroups, {kind.kind} if kind.loses else ())
        if kind.loses:
            self.assertIsNotNone(one.records[0]["detect_ms"], f"no regroup for {one.records}: {regroups}")
        if kind.breaks:
            self.assertTrue(regroups, "the ring did not even notice")
        if kind is faults.PauseShort:
            self.assertEqual([list(regroup.lost) for regroup in regroups if regroup.lost], [])
        if kind in (faults.KillCoordinator, faults.PauseCoordinator):
            self.assertEqual(regroups, [], "a ring needs no new generation without its coordinator")
        if kind is faults.KillAll:
            self.assertTrue(any(regroup.rewound for regroup in regroups))
        else:
            self.assertFalse(any(regroup.rewound for regroup in regroups), regroups)

    def test_processes(self):
        self.check(PROCESSES)

    def test_workers_that_come_and_go(self):
        self.check(MEMBERSHIP)

    def test_the_coordinator(self):
        self.check(COORDINATOR)

    def test_links(self):
        self.check(LINKS)


if __name__ == "__main__":
    cluster.main()
