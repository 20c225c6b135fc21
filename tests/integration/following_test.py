"""A worker that joins a job of a large state follows the ring until it has it; others die, leave and come meanwhile."""
import contextlib

import cluster

# 130 MiB of parameters and slots: 12 bytes a parameter, of which Adam has two slots.
COLUMNS, HIDDEN = 32 * 32 * 3, 3700
STEPS = 30
HELD = 20  # from then on the job waits for the gate
MEMORY = "64GiB"  # a plan of the worst case


def spec():
    return cluster.job_spec(model={"name": "mlp", "hidden": [HIDDEN]}, batch=8, shards=4, epochs=None, steps=STEPS,
                            checkpoint={"every_steps": 5, "keep": 3}, workers={"min": 1, "max": 4})


class FollowingTest(cluster.ClusterTest):
    expected = None

    @classmethod
    def setUpClass(cls):
        cls.expected = cluster.checkpoint_alone(spec(), memory=MEMORY)

    @contextlib.contextmanager
    def slow(self, names, milliseconds):
        """A cluster that runs the job, slow while a gate is closed, and late in it held; yields (cluster, job id) some
        steps on."""
        [self.gate] = self.cluster.gates("", milliseconds=milliseconds, hold=f"{HELD}-{STEPS - 1}")
        with self.running(workers=[]) as running:
            for name in names:
                running.start_worker(name, memory=MEMORY)
            job = running.submit(spec())
            running.watch_until(job, lambda status: status["step"] > 3 and len(status["workers"]) == len(names),
                                "the job runs")
            yield running, job

    def join(self, name):
        """Starts a worker and waits until it follows."""
        worker = self.cluster.start_worker(name, memory=MEMORY, wait=False)
        cluster.wait_until(lambda: f"shards=0 step={self.start_of(worker)} follows" in worker.log(),
                           f"worker {name} follows", 120)
        return worker

    @staticmethod
    def start_of(worker):
        """The step at which its newest run began; -1: it has none."""
        begun = [line for line in worker.log().splitlines() if "run begins: " in line]
        return begun[-1].split(" step=")[1].split()[0] if begun else -1

    def check_end(self, job):
        self.gate.open()
        return self.check_undisturbed(job, self.expected)

    def wait_for_shards(self, running, job, *names):
        running.watch_until(job, lambda status: {worker["name"] for worker in status["workers"] if worker["shards"]} ==
                            set(names), f"{names} have shards")

    def test_who_joins_has_shards_as_soon_as_it_has_the_state(self):
        with self.slow("ab", milliseconds=300) as (running, job):
            worker = self.join("c")
            self.wait_for_shards(running, job, "a", "b", "c")
            self.assertIn("beside the ring", worker.log())
            regroups = [each for each in cluster.regroups_of_members(self.check_end(job))]
            self.assertEqual([each["joined"] for each in regroups[:2]], [["c"], []])
            self.assertEqual(regroups[1]["reason"], "c has the state, and gets shards")
            self.assertEqual([each["lost"] for each in regroups], [[] for _ in regroups])
            self.assertFalse(any(each["rewound"] for each in regroups))

    def test_a_lone_worker_is_followed_and_may_leave(self):
        with self.slow("a", milliseconds=300) as (running, job):
            self.join("b")
            running.ringctl("drain", "a")
            self.wait_for_shards(running, job, "b")
            self.assertEqual([each["rewound"] for each in self.check_end(job)["regroups"] if each["rewound"]], [])

    def test_who_is_followed_dies(self):
        with self.slow("ab", milliseconds=300) as (running, job):
            self.join("c")
            running.workers["a"].kill()  # whom it asked first
            self.wait_for_shards(running, job, "b", "c")
            self.check_end(job)

    def test_who_follows_dies_and_comes_again(self):
        with self.slow("ab", milliseconds=300) as (running, job):
            self.join("c").kill()
            self.wait_for_shards(running, job, "a", "b")
            self.join("c")
            self.wait_for_shards(running, job, "a", "b", "c")
            self.check_end(job)


if __name__ == "__main__":
    cluster.main()
