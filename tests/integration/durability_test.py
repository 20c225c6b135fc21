"""Acknowledged means durable; what cannot go on says so; names are taken over, never shared."""
import json
import os
import signal

import cluster


class DurabilityTest(cluster.ClusterTest):
    def test_kill_of_the_coordinator_loses_no_queued_job(self):
        running = self.cluster
        running.start_coordinator()
        job = running.write_job(cluster.job_spec(workers={"min": 3}))
        submitted = [running.json("submit", job, "--idempotency-key", f"key-{i}")["job_id"]
                     for i in range(10)]
        self.assertEqual(len(set(submitted)), 10)
        running.coordinator.kill()

        running.start_coordinator()
        listed = running.json("ps")["jobs"]
        self.assertEqual([status["job_id"] for status in listed], submitted[::-1])
        self.assertEqual({status["state"] for status in listed}, {"QUEUED"})
        again = running.json("submit", job, "--idempotency-key", "key-3")["job_id"]
        self.assertEqual(again, submitted[3])
        other = running.write_job(cluster.job_spec(workers={"min": 3}, seed=7))
        refused = running.ringctl("submit", other, "--idempotency-key", "key-3", expect=cluster.OTHER)
        self.assertIn(submitted[3], refused.stderr)
        self.assertEqual(len(running.json("ps")["jobs"]), 10)

    def test_kill_of_the_coordinator_brings_no_removed_job_back(self):
        running = self.cluster
        running.make_data()
        running.start_coordinator()
        running.start_worker("a")
        file = running.write_job(cluster.job_spec())
        job = running.json("submit", file, "--idempotency-key", "key")["job_id"]
        self.assertEqual(running.wait(job)["state"], "SUCCEEDED")
        running.ringctl("remove", job)
        running.coordinator.kill()

        running.start_coordinator()
        self.assertEqual(running.json("ps")["jobs"], [])
        for kept in ("checkpoints", "logs"):
            self.assertFalse((running.folder / "coordinator" / kept / job).exists(), kept)
        refused = running.ringctl("submit", file, "--idempotency-key", "key", expect=cluster.OTHER)
        self.assertIn(f"job {job}, which this idempotency key was used for, was removed", refused.stderr)
        other = running.submit(cluster.job_spec(workers={"min": 3}))
        self.assertNotEqual(other, job)
        running.stop()

    def test_a_worker_waits_for_its_coordinator(self):
        running = self.cluster
        running.make_data()
        address = f"127.0.0.1:{cluster.free_port()}"
        running.start_worker("early", coordinator=address, wait=False).line("ringworker early listening on ")
        running.start_coordinator(listen=address)
        cluster.wait_until(lambda: "early" in running.attached(), "the early worker attaches")
        running.run_job(cluster.job_spec())
        running.stop()

    def test_a_job_that_needs_more_workers_says_how_many_are_missing(self):
        running = self.cluster
        running.make_data()
        running.start_coordinator()
        running.start_worker("a")
        job = running.submit(cluster.job_spec(workers={"min": 3}))
        cluster.wait_until(lambda: "2 missing" in running.json("why", job)["reason"],
                           "why says that 2 workers are missing")
        self.assertEqual(running.status(job)["state"], "QUEUED")
        running.ringctl("wait", job, "--timeout", "200ms", expect=cluster.TIMED_OUT)
        running.start_worker("b")
        running.start_worker("c")
        self.assertEqual(running.wait(job)["state"], "SUCCEEDED")
        running.stop()

    def test_a_living_name_is_refused_and_taken_over_when_it_is_gone(self):
        running = self.cluster
        running.start_coordinator()
        first = running.start_worker("twin", cores=1)
        second = running.start_worker("twin", cores=2, state="second", wait=False)
        cluster.wait_until(lambda: "twin" in second.log() and "living" in second.log(),
                           "the second twin is told that its name is taken")
        self.assertEqual(running.attached()["twin"]["cores"], 1)
        self.assertTrue(second.running(), "it waits for its turn")
        first.kill()
        cluster.wait_until(lambda: running.attached().get("twin", {}).get("cores") == 2,
                           "the second twin takes the name over")
        running.stop()

    def test_cancel_stops_at_a_step_boundary_and_keeps_checkpoints(self):
        running = self.cluster
        running.make_data()
        running.start_coordinator()
        running.start_worker("a")
        job = running.submit(cluster.job_spec(epochs=None, steps=1_000_000,
                                              checkpoint={"every_steps": 5, "keep": 2}))
        running.watch_until(job, lambda status: status["checkpoint"], "a first checkpoint")
        running.ringctl("cancel", job)
        status = json.loads(running.ringctl("wait", job, "--timeout", "60s", "-o", "json",
                                            expect=cluster.JOB_CANCELLED).stdout)
        self.assertEqual(status["state"], "CANCELLED")
        kept = running.json("checkpoint", "ls", job)["checkpoints"]
        self.assertTrue(1 <= len(kept) <= 2, kept)
        running.ringctl("checkpoint", "get", job, running.folder / "fetched", "--step", kept[0]["step"])
        running.ringctl("cancel", job, expect=cluster.OTHER)
        running.wait_free("a")
        running.stop()

    def start_up(self):
        """`ringctl up` with two workers; the process, and its daemons by name (pids)."""
        running = self.cluster
        up = running.spawn("up", [
            cluster.BIN / "ringctl", "up", "--workers", 2, "--cores", 1, "--listen", "127.0.0.1:0",
            "--data-root", running.data_root, "--data-dir", running.folder / "up"])
        running.address = up.line("ringctl up: coordinator ", timeout=60)
        daemons = {}
        for pid in cluster.children_of(up.popen.pid):
            arguments = cluster.arguments_of(pid)
            name = arguments[arguments.index("--name") + 1] if "--name" in arguments else "ringmaster"
            daemons[name] = pid
        self.assertEqual(set(daemons), {"ringmaster", "worker-1", "worker-2"})
        return up, daemons

    def check_gone(self, daemons):
        for name, pid in daemons.items():
            cluster.wait_until(lambda: not cluster.arguments_of(pid), f"{name} is gone")

    def test_up_starts_everything_and_stops_everything(self):
        running = self.cluster
        running.make_data()
        up, daemons = self.start_up()
        self.assertEqual(set(running.attached()), {"worker-1", "worker-2"})
        running.run_job(cluster.job_spec(workers={"min": 2}))
        up.signal(signal.SIGINT)
        self.assertEqual(up.wait(), cluster.OK, up.log())
        self.check_gone(daemons)
        running.ringctl("ps", expect=cluster.UNREACHABLE)

    def test_up_ends_when_a_daemon_dies_and_names_it(self):
        for victim in ("worker-2", "ringmaster"):
            with self.subTest(victim=victim):
                up, daemons = self.start_up()
                os.kill(daemons[victim], signal.SIGKILL)
                self.assertEqual(up.wait(), cluster.OTHER, up.log())
                self.assertIn(f"ringctl: {victim} was ended by signal 9", up.log())
                self.check_gone(daemons)

    def test_a_killed_up_leaves_no_daemons(self):
        up, daemons = self.start_up()
        up.kill()
        self.check_gone(daemons)


if __name__ == "__main__":
    cluster.main()
