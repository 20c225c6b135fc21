"""kill -9 at every (step 1 to 20) x (compute, reduce_scatter, all_gather, apply, checkpoint).

One job runs through many of the points: all workers have the same list of failpoints, and who comes
first to one of them dies there, once. The harness starts a worker again as soon as it is dead;
`boundary=delay` gives it the time to come back, so that the ring has members when the next one dies.
"""
import os
import pathlib
import threading
import time
import unittest

import training  # noqa: I001  first: it finds tests/integration
import cluster
import observer

STEPS = range(1, 21)
PHASES = ("compute", "reduce_scatter", "all_gather", "apply", "checkpoint")
BOUNDARY_MS = 250
SHARDS = 8


def spec():
    """A small convolution-free net that has a state: momentum, dropout, evaluations."""
    return cluster.job_spec(
        name="kill-matrix", model={"name": "mlp", "hidden": [64, 32], "dropout": 0.2}, batch=24, shards=SHARDS,
        epochs=None, steps=24, optimizer={"sgd": {"learning_rate": 0.01, "momentum": 0.9}},
        checkpoint={"every_steps": 1, "keep": 2}, workers={"min": 2, "max": 4})


class KillMatrixTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.expected = training.References().sha256(spec())

    def setUp(self):
        self.tokens = None
        self.train = None
        self.restarts = 0
        self.addCleanup(lambda: self.train and self.train.destroy(self._failed()))

    def _failed(self):
        result = self._outcome.result
        return any(test is self for test, _ in [*result.failures, *result.errors])

    def points(self, phases):
        """The environment of every worker: each point once over all of them."""
        entries = [f"{phase}@{step}=kill!{self.tokens / f'{phase}-{step}'}" for phase in phases for step in STEPS]
        return ";".join([*entries, f"boundary=delay:{BOUNDARY_MS}"])

    def fired(self):
        return {path.name for path in self.tokens.iterdir()}

    def run_through(self, phases):
        """One job that is killed at these phases of every step, with everyone who died coming back."""
        self.train = training.Training(environment=lambda folder: self.environment(folder, phases))
        self.train.submit(spec())
        while self.train.observer.state not in cluster.FINAL:
            for slot in self.train.slots.values():
                if not slot.alive():
                    self.train.start_worker(slot.name)
                    self.restarts += 1
            if self.train.observer.standing_still() > 60 * cluster.SLOW:
                raise training.Hang(f"no step for a minute, at step {self.train.observer.step}; fired: {self.fired()}")
            time.sleep(0.02)
        self.train.finish(self.expected, timeout=60)

    def environment(self, folder, phases):
        self.tokens = folder / "tokens"
        self.tokens.mkdir()
        return {"RINGMASTER_FAILPOINTS": self.points(phases)}

    def check_recomputed(self):
        """A regroup computes again what was lost with a worker, and no shard that somebody still has."""
        regroups = self.train.observer.regroups()
        self.assertGreaterEqual(len(regroups), self.restarts // 2, "most kills are a regroup of their own")
        for regroup in regroups:
            self.assertFalse(regroup.rewound, regroup)
            self.assertLessEqual(regroup.shards_kept + regroup.shards_recomputed, SHARDS, regroup)

    def test_one_phase_at_every_step(self):
        for phase in PHASES:
            with self.subTest(phase=phase):
                self.restarts = 0
                self.run_through([phase])
                self.assertEqual(self.fired(), {f"{phase}-{step}" for step in STEPS})
                self.assertEqual(self.restarts, len(STEPS))
                self.check_recomputed()
                self.train.stop()
                self.train.destroy(False)
                self.train = None


if __name__ == "__main__":
    cluster.main()
