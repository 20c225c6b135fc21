"""Links that are down, cut between two hosts, or lossy in one direction, in namespaces of our own."""
import unittest

import training  # noqa: I001  finds tests/integration
import cluster
import private

STEPS = 40
ALL = list(training.WORKERS)


class NetworkTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.switch = private.Switch(training.WORKERS)
        cls.spec = training.alexnet(STEPS)
        cls.expected = training.References().sha256(cls.spec)

    def setUp(self):
        self.train = training.Training(switch=self.switch)
        self.addCleanup(lambda: self.train.destroy(self._failed()))
        self.train.submit(self.spec)
        self.train.wait_step(5)
        self.train.wait_ring(ALL)

    def _failed(self):
        result = self._outcome.result
        return any(test is self for test, _ in [*result.failures, *result.errors])

    def check_end(self):
        self.train.finish(self.expected, timeout=180)
        self.train.stop()

    def wait_lost(self, *names):
        """Until a regroup lost these, whoever else came or went."""
        cluster.wait_until(lambda: set(names) <= {lost for one in self.train.observer.regroups() for lost in one.lost},
                           f"{names} are lost", timeout=10)

    def test_a_host_whose_link_is_down_is_left_out_and_comes_back(self):
        self.switch.cut("b")
        self.addCleanup(self.switch.join, "b")
        self.wait_lost("b")
        self.switch.join("b")
        cluster.wait_until(lambda: self.train.observer.state in cluster.FINAL or "b" in self.train.observer.ring(),
                           "b is back", timeout=30)
        self.assertNotIn(self.train.observer.state, cluster.FINAL, "the job was over before b was back")
        self.check_end()

    def test_the_half_without_the_coordinator_waits_and_the_other_goes_on(self):
        self.switch.cut("a", "b")
        self.addCleanup(self.switch.join, "a", "b")
        self.wait_lost("a", "b")
        step = self.train.observer.step
        self.train.wait_step(step + 3)
        self.switch.join("a", "b")
        self.check_end()

    def test_two_that_do_not_reach_each_other_are_not_neighbours(self):
        ring = self.train.observer.ring()
        first, second = ring[0], ring[1]
        self.switch.separate(first, second)
        self.addCleanup(self.switch.separate, first, second, False)
        cluster.wait_until(lambda: self.train.observer.regroups(), "the ring is fenced", timeout=10)
        self.train.wait_step(self.train.observer.step + 3)
        ring = self.train.observer.ring()
        if {first, second} <= set(ring):
            distance = (ring.index(first) - ring.index(second)) % len(ring)
            self.assertNotIn(distance, (1, len(ring) - 1), ring)
        self.assertFalse(any(one.rewound for one in self.train.observer.regroups()))
        self.check_end()

    def test_a_link_that_loses_one_direction(self):
        ring = self.train.observer.ring()
        first, second = ring[0], ring[1]
        self.switch.drop(first, second)
        self.addCleanup(self.switch.deliver, first, second)
        cluster.wait_until(lambda: self.train.observer.regroups(), "the ring is fenced", timeout=10)
        self.train.wait_step(self.train.observer.step + 3)
        self.assertFalse(any(one.rewound for one in self.train.observer.regroups()))
        self.check_end()


if __name__ == "__main__":
    private.enter()
    cluster.main()
