"""kill -9 at every (step 1 to 20) x (compute, reduce_scatter, all_gather, apply, checkpoint), and of those
that are just regrouping.

One job runs through many of the points: all workers have the same list of failpoints, and who comes
first to one of them dies there, once. The harness starts a worker again as soon as it is dead;
`boundary=delay` gives it the time to come back, so that the ring has members when the next one dies.
"""
import time
import unittest

import training  # noqa: I001  first: it finds tests/integration
import cluster

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
    switch = None  # as of training.Training

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

    def fired(self):
        return {path.name for path in self.tokens.iterdir()}

    def run_through(self, points):
        """One job that is killed at these (name, first step, last step), with everyone who died coming back."""
        self.train = training.Training(
            environment=lambda folder: self.environment(folder, points), silence_ms=2500, switch=self.switch)
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

    def environment(self, folder, points):
        """Of every process: each point once over all of them."""
        self.tokens = folder / "tokens"
        self.tokens.mkdir()
        entries = [f"{name}@{first}-{last}=kill!{self.tokens / f'{name}-{first}'}" for name, first, last in points]
        return {"RINGMASTER_FAILPOINTS": ";".join([*entries, f"boundary=delay:{BOUNDARY_MS}"])}

    def stop(self):
        self.train.stop()
        self.train.destroy(False)
        self.train = None

    def check_recomputed(self):
        """A regroup computes again what was lost with a worker, and no shard that somebody still has."""
        regroups = self.train.observer.regroups()
        self.assertGreaterEqual(len(regroups), self.restarts // 2, "most kills are a regroup of their own")
        print(f"{len(regroups)} regroups, {sum(one.shards_kept for one in regroups)} shards kept, "
              f"{sum(one.shards_recomputed for one in regroups)} computed again")
        size = len(self.train.observer.ring())  # after the last one; then backwards
        for regroup in reversed(regroups):
            self.assertFalse(regroup.rewound, regroup)
            self.assertLessEqual(regroup.shards_kept + regroup.shards_recomputed, SHARDS, regroup)
            before = size - len(regroup.joined) + len(regroup.lost)
            if not regroup.joined:
                share = -(-SHARDS // before)
                self.assertLessEqual(regroup.shards_recomputed, share * len(regroup.lost), regroup)
            size = before

    def kill_at(self, points):
        """Somebody dies at each of these (phase, step), and nothing more is lost than what they had."""
        self.restarts = 0
        self.run_through([(phase, step, step) for phase, step in points])
        self.assertEqual(self.fired(), {f"{phase}-{step}" for phase, step in points})
        self.assertEqual(self.restarts, len(points))
        self.check_recomputed()
        self.stop()

    def test_one_phase_at_every_step(self):
        for phase in PHASES:
            with self.subTest(phase=phase):
                self.kill_at([(phase, step) for step in STEPS])

    def test_every_phase_at_some_steps(self):
        """A sample of the matrix: one point a step, each phase twice."""
        self.kill_at([(PHASES[step % len(PHASES)], step) for step in STEPS[::2]])

    def test_those_that_regroup_are_killed_too(self):
        """A member computes, another one acknowledges the fence that this causes, a third joins what
        comes of it, and a fourth fetches the state: each of them dies."""
        points = [point for step in range(2, 20, 4) for point in (
            ("compute", step, step), ("fence_ack", step, step + 1), ("joined", step, step + 3),
            ("fetch", step, step + 3))]
        self.run_through(points)
        self.assertEqual(self.fired(), {f"{name}-{first}" for name, first, _ in points})
        self.stop()


if __name__ == "__main__":
    cluster.main(at_once=2)
