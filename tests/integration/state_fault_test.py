"""One bit of a worker's state flips: it is named, no checkpoint has it, and the job ends as if nothing had been."""
import cluster

# A failpoint of one worker flips a bit of what it holds when it reaches the boundary of this step.
FLIP_STEP = 7
NOTICED_WITHIN = 16  # steps
SLOWLY = "boundary=delay:40"  # else checkpoints that are due take the place of others
PARTS = {"parameter": "bn/ stem/ fc/", "slot": "/momentum", "moving_mean": "/moving_mean"}
LAYERS = [{"conv2d": {"name": "stem", "filters": 4, "bias": False}}, {"batch_norm": {"name": "bn"}}, "relu",
          "flatten", {"dense": {"name": "fc", "units": 10}}]


def spec(workers):
    """24 steps, a checkpoint of every fourth, all of them kept."""
    return cluster.job_spec(
        model={"layers": LAYERS}, epochs=8, optimizer={"sgd": {"learning_rate": 0.01, "momentum": 0.9}},
        checkpoint={"every_steps": 4, "keep": 20}, workers={"min": workers, "max": workers})


class StateFaultTest(cluster.ClusterTest):
    def checkpoints(self, running, job):
        """Step -> SHA-256 of the manifest."""
        return {each["step"]: each["sha256"] for each in running.json("checkpoint", "ls", job)["checkpoints"]}

    def undisturbed(self):
        running = cluster.Cluster()
        try:
            running.make_data()
            running.environment = {"RINGMASTER_FAILPOINTS": SLOWLY}
            running.start_coordinator()
            running.start_worker("a")
            checkpoints = self.checkpoints(running, running.run_job(spec(1))["job_id"])
            running.stop()
        finally:
            running.destroy(False)
        self.assertIn(24, checkpoints)
        self.assertGreater(len(checkpoints), 2)
        return checkpoints

    def faults(self, running, job):
        return [event for event in running.json("events", job)["events"] if event["type"] == "StateFault"]

    def start(self, running, workers, victim, failpoint):
        running.make_data()
        running.start_coordinator()
        for name in workers:
            flips = f";{failpoint}" if name == victim else ""
            running.environment = {"RINGMASTER_FAILPOINTS": SLOWLY + flips}
            running.start_worker(name)

    def one_flip(self, workers, victim, part, expected):
        running = cluster.Cluster()
        failed = True
        try:
            token = running.folder / "flipped"
            self.start(running, workers, victim, f"state@{FLIP_STEP}=flip:{part}!{token}")
            status = running.run_job(spec(len(workers)))
            self.assertTrue(token.exists())
            faults = self.faults(running, status["job_id"])
            self.assertEqual(len(faults), 1, faults)
            self.assertEqual(status["state_faults"], 1)
            self.assertEqual(faults[0]["subject"], victim)
            self.assertIn("is not what was written", faults[0]["message"])
            step = int(faults[0]["message"].split("the state of step ")[1].split()[0])
            self.assertLessEqual(FLIP_STEP, step)
            self.assertLessEqual(step, FLIP_STEP + NOTICED_WITHIN)
            named = PARTS[part].split()
            self.assertTrue(any(name in faults[0]["message"] for name in named), faults[0]["message"])
            self.assertIn(faults[0]["message"], running.ringctl("why", status["job_id"]).stdout)
            kept = self.checkpoints(running, status["job_id"])
            for kept_step in kept.keys() & expected.keys():
                self.assertEqual(kept[kept_step], expected[kept_step], kept_step)
            self.assertEqual(status["checkpoint"]["sha256"], expected[24])
            running.stop()
            failed = False
        finally:
            running.destroy(failed)

    def flips(self, *workers):
        expected = self.undisturbed()
        for part in PARTS:
            with self.subTest(part=part):
                self.one_flip(workers, workers[-1], part, expected)

    def test_in_a_ring_of_one(self):
        self.flips("a")

    def test_in_a_ring_of_two(self):
        self.flips("a", "b")

    def test_in_a_ring_of_three(self):
        self.flips("a", "b", "c")

    def test_the_first_member_which_writes_checkpoints(self):
        self.one_flip(("a", "b"), "a", "parameter", self.undisturbed())

    def test_at_a_step_of_a_checkpoint(self):
        """The state is looked at before it is copied."""
        global FLIP_STEP
        FLIP_STEP = 8
        try:
            self.one_flip(("a", "b"), "a", "slot", self.undisturbed())
        finally:
            FLIP_STEP = 7

    def test_the_second_time_the_job_fails(self):
        self.start(self.cluster, ("a", "b"), "b", f"state@{FLIP_STEP}=flip:parameter")
        status = self.cluster.wait(self.cluster.submit(spec(2)))
        self.assertEqual(status["state"], "FAILED", status)
        self.assertIn("the second time", status["reason"])
        self.assertEqual(status["failure"]["word"], "STATE_DIFFERS")
        self.assertEqual(status["failure"]["worker"], "b")
        self.assertEqual(len(self.faults(self.cluster, status["job_id"])), 2)
        self.cluster.stop()


if __name__ == "__main__":
    cluster.main(at_once=2)
