"""Workers come, go and die, the coordinator restarts: training goes on, and the checkpoint is the same."""
import contextlib
import pathlib
import shutil

import cluster

STEPS = 120


def spec(**changes):
    """Long enough to be disturbed: the daemons wait a moment at every step while a gate is closed."""
    return cluster.job_spec(**{"model": {"name": "mlp", "hidden": [32], "dropout": 0.2}, "epochs": None,
                               "steps": STEPS, "checkpoint": {"every_steps": 10, "keep": 3}, **changes})


class ElasticityTest(cluster.ClusterTest):
    expected = None

    @classmethod
    def setUpClass(cls):
        cls.expected = cluster.checkpoint_alone(spec())

    @contextlib.contextmanager
    def slow(self, names, held=100, **changes):
        """A cluster that runs the job slowly, and from step `held` on not at all, until the gate is open; yields
        (cluster, job id) once it is some steps on. Of the steps before `held` at least every third is told."""
        [self.gate] = self.cluster.gates("", milliseconds=80, hold=f"{held}-{STEPS - 1}")
        with self.running(workers=[(name, 1) for name in names]) as running:
            job = running.submit(spec(**changes))
            running.watch_until(job, lambda status: status["step"] > 3 and
                                len(status["workers"]) == len(names), "the job runs")
            yield running, job

    def check_end(self, job):
        """Lets the job go, and looks at its end; its status."""
        self.gate.open()
        return self.check_undisturbed(job, self.expected)

    def kill_all(self):
        for name in list(self.cluster.workers):
            self.cluster.workers[name].kill()

    # ---- who comes ------------------------------------------------------------------------------

    def test_a_worker_that_is_added_takes_part(self):
        with self.slow("ab") as (running, job):
            running.start_worker("c", wait=False)
            status = self.cluster.wait_ring(job, "a", "b", "c")
            shards = {worker["name"]: worker["shards"] for worker in status["workers"]}
            self.assertTrue(all(shards.values()), shards)
            self.assertEqual(sorted(sum(shards.values(), [])), list(range(8)))
            newest = cluster.regroups_of_members(self.check_end(job))[-1]
            self.assertEqual((newest["lost"], newest["joined"]), ([], ["c"]))
            self.assertLess(newest["start_step"], STEPS)  # it computed
            # 0 where the fence meets both in one step; one that is in the next step already loses its own part of it.
            self.assertLessEqual(newest["shards_recomputed"], 4)

    def test_no_more_than_max_take_part(self):
        with self.slow("ab", workers={"min": 1, "max": 2}) as (running, job):
            running.start_worker("c")
            running.wait_free("c")
            status = self.check_end(job)
            self.assertEqual(cluster.regroups_of_members(status), [])
            self.assertEqual({worker["name"] for worker in status["workers"]}, {"a", "b"})

    def test_one_with_another_copy_of_the_data_is_not_let_in_and_the_job_goes_on(self):
        with self.slow("ab") as (running, job):
            other = running.folder / "other"
            running.make_data(seed=1, root=other)
            running.start_worker("c", data_root=other)
            running.wait_free("c")
            events = self.wait_event(job, "c")
            self.assertIn(".bin", events)
            self.assertEqual(cluster.regroups_of_members(self.check_end(job)), [])

    def wait_event(self, job, subject):
        """The messages of events about `subject`, as soon as there is one."""
        def said():
            events = self.cluster.json("events", job)["events"]
            return " ".join(event["message"] for event in events if event["subject"] == subject)
        return cluster.wait_until(said, f"an event about {subject}")

    # ---- who goes -------------------------------------------------------------------------------

    def test_a_killed_worker_is_left_out_and_comes_back(self):
        with self.slow("abc") as (running, job):
            running.workers["b"].kill()
            self.cluster.wait_ring(job, "a", "c")
            running.start_worker("b", wait=False)
            self.cluster.wait_ring(job, "a", "b", "c")
            first, second = cluster.regroups_of_members(self.check_end(job))
            self.assertEqual((first["lost"], first["joined"]), (["b"], []))
            self.assertEqual((second["lost"], second["joined"]), ([], ["b"]))
            self.assertLessEqual(first["shards_recomputed"], 8)
            self.assertFalse(first["rewound"] or second["rewound"])

    def test_drain_lets_a_worker_leave_and_resume_lets_it_come_back(self):
        with self.slow("ab") as (running, job):
            running.ringctl("drain", "b")
            self.assertEqual(running.attached()["b"]["state"], "DRAINED")
            self.cluster.wait_ring(job, "a")
            running.ringctl("drain", "b", "--resume")
            self.cluster.wait_ring(job, "a", "b")
            gone, back = cluster.regroups_of_members(self.check_end(job))
            self.assertEqual((gone["lost"], gone["shards_recomputed"]), (["b"], 0))
            self.assertEqual(back["joined"], ["b"])

    def test_sigterm_ends_a_worker_and_loses_nothing(self):
        with self.slow("ab") as (running, job):
            self.assertEqual(running.workers.pop("b").stop(), cluster.OK)
            self.cluster.wait_ring(job, "a")
            (gone,) = cluster.regroups_of_members(self.check_end(job))
            self.assertEqual((gone["lost"], gone["shards_recomputed"]), (["b"], 0))

    def test_sigterm_of_the_only_worker_keeps_its_last_step(self):
        with self.slow("a") as (running, job):
            self.assertEqual(running.workers["a"].stop(), cluster.OK)
            status = running.watch_until(job, lambda status: status["state"] == "WAITING", "the job waits")
            self.assertEqual(status["checkpoint"]["step"], status["step"])
            running.start_worker("b")
            status = self.check_end(job)
            self.assertEqual(status["resumed_from"]["step"], status["regroups"][-1]["start_step"])

    def test_below_min_the_job_waits_with_a_reason_and_goes_on_by_itself(self):
        with self.slow("ab", workers={"min": 2, "max": 4}) as (running, job):
            running.workers["b"].kill()
            status = running.watch_until(job, lambda status: status["state"] == "WAITING", "the job waits")
            self.assertIn("2", status["reason"])
            self.assertIn("b", running.json("why", job)["reason"] + " ".join(running.json("why", job)["history"]))
            running.start_worker("c", wait=False)
            self.cluster.wait_ring(job, "a", "c")
            self.assertFalse(any(one["rewound"] for one in cluster.regroups_of_members(self.check_end(job))))

    # ---- everybody goes -------------------------------------------------------------------------

    def checkpoints(self, job):
        return self.cluster.json("checkpoint", "ls", job)["checkpoints"]

    def kill_all_behind(self, job, checkpoint):
        """Kills the workers, who are held behind the step of this checkpoint: there is no newer one. The status before."""
        status = self.cluster.watch_until(job, lambda status: status["checkpoint"] and status["checkpoint"]["step"] ==
                                          checkpoint < status["step"], f"checkpoint {checkpoint} and a step behind it")
        self.kill_all()
        return status

    def test_when_all_are_killed_the_newest_checkpoint_is_where_it_goes_on(self):
        with self.slow("ab", held=25) as (running, job):
            before = self.kill_all_behind(job, 20)
            for name in "ab":
                running.start_worker(name, wait=False)
            status = self.check_end(job)
            (back,) = [one for one in status["regroups"] if one["rewound"]]
            self.assertEqual(back["start_step"], 20)
            self.assertGreaterEqual(back["rewound_from"], before["step"])
            self.assertEqual(status["resumed_from"]["step"], 20)

    def test_a_damaged_checkpoint_is_named_and_the_one_before_it_taken(self):
        with self.slow("ab", held=35) as (running, job):
            self.kill_all_behind(job, 30)
            before, newest = self.checkpoints(job)[-2:]
            file = max(pathlib.Path(newest["path"]).glob("*.safetensors"), key=lambda path: path.stat().st_size)
            content = bytearray(file.read_bytes())
            content[len(content) // 2] ^= 1
            file.chmod(0o644)
            file.write_bytes(content)
            damaged = running.ringctl("checkpoint", "verify", job, expect=cluster.OTHER)
            self.assertIn(file.name, damaged.stdout)
            for name in "ab":
                running.start_worker(name, wait=False)
            status = running.watch_until(job, lambda status: status["resumed_from"], "it is restored")
            self.assertEqual(status["resumed_from"]["step"], before["step"])
            events = " ".join(event["message"] for event in running.json("events", job)["events"])
            self.assertIn(file.name, events)
            self.check_end(job)

    def test_without_any_checkpoint_it_begins_again(self):
        with self.slow("ab", checkpoint=None) as (running, job):
            self.kill_all()
            for name in "ab":
                running.start_worker(name, wait=False)
            status = self.check_end(job)
            (back,) = [one for one in status["regroups"] if one["rewound"]]
            self.assertEqual(back["start_step"], 0)

    # ---- the coordinator ------------------------------------------------------------------------

    def test_a_killed_coordinator_adopts_the_ring_that_went_on(self):
        with self.slow("ab") as (running, job):
            before = running.status(job)
            running.coordinator.kill()
            running.start_coordinator()
            running.watch_until(job, lambda status: status["step"] > before["step"] + 3, "the ring goes on")
            status = self.check_end(job)
            self.assertEqual(status["generation"], before["generation"])
            self.assertEqual(cluster.regroups_of_members(status), [])

    def test_a_coordinator_and_a_worker_that_are_killed_together(self):
        with self.slow("abc") as (running, job):
            running.coordinator.kill()
            running.workers["b"].kill()
            running.start_coordinator()
            self.cluster.wait_ring(job, "a", "c")
            running.start_worker("b", wait=False)
            self.cluster.wait_ring(job, "a", "b", "c")
            self.assertFalse(any(one["rewound"] for one in cluster.regroups_of_members(self.check_end(job))))

    def test_a_job_that_ends_while_nobody_coordinates_is_not_lost(self):
        with self.slow("ab", held=7) as (running, job):  # before the first checkpoint is due
            running.coordinator.kill()
            self.gate.open()
            cluster.wait_until(lambda: f"step={STEPS} " in "".join(running.workers[name].log() for name in "ab"),
                               "the job ends")
            running.start_coordinator()
            self.check_end(job)
            # Training waited for no checkpoint: of those that came due meanwhile the newest two are there.
            dropped = [event["message"] for event in running.json("events", job)["events"]
                       if event["type"] == "CheckpointDropped"]
            self.assertRegex(" ".join(dropped), r"(step 10|of the steps 10 to \d+): due, and not delivered")
            steps = [one["step"] for one in running.json("checkpoint", "ls", job)["checkpoints"]]
            self.assertEqual(steps[-1], STEPS)

    def test_a_store_from_an_older_backup_takes_a_term_above_all_that_were_seen(self):
        with self.slow("ab") as (running, job):
            store, backup = running.folder / "coordinator", running.folder / "backup"
            running.coordinator.kill()
            shutil.copytree(store, backup, ignore=shutil.ignore_patterns("*.sock"))
            term = lambda: int(running.status(job)["generation"].split(".")[0])
            for _ in range(3):
                running.start_coordinator()
                running.coordinator.kill()
            running.start_coordinator()
            running.workers["b"].kill()  # so that a generation of the newest term is made
            self.cluster.wait_ring(job, "a")
            seen = term()
            running.coordinator.kill()
            shutil.rmtree(store)
            shutil.copytree(backup, store)
            running.start_coordinator()
            running.start_worker("b", wait=False)
            running.watch_until(job, lambda status: int(status["generation"].split(".")[0]) > seen, "a higher term")
            self.check_end(job)

    # ---- jobs that follow others ----------------------------------------------------------------

    def test_a_cancelled_job_is_resumed_and_an_ended_one_repeated(self):
        with self.slow("ab", held=15) as (running, job):
            running.watch_until(job, lambda status: status["checkpoint"], "the one checkpoint")
            running.ringctl("cancel", job)
            running.ringctl("wait", job, expect=cluster.JOB_CANCELLED)
            [newest] = self.checkpoints(job)
            resumed = running.json("submit", "--resume", job)["job_id"]
            status = self.check_end(resumed)
            self.assertEqual(status["resumes_job"], job)
            self.assertEqual(status["resumed_from"]["step"], newest["step"])
            status = self.check_end(running.json("submit", "--like", resumed)["job_id"])
            self.assertEqual(status["like_job"], resumed)
            self.assertIsNone(status["resumed_from"])


if __name__ == "__main__":
    cluster.main()
