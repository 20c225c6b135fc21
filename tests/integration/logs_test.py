"""Log lines reach the coordinator whole, whatever dies: compared with the stderr of the workers."""
import collections
import json

import cluster


def logged(running, job, worker):
    """The lines of one worker as `ringctl logs` shows them."""
    out = running.ringctl("logs", job, "--worker", worker, "-o", "json").stdout
    return [json.loads(line) for line in out.splitlines()]


def texts_on_stderr(process):
    """TIME PROGRAM LEVEL TEXT on every line."""
    return [line.split(" ", 3)[3] for line in process.err.read_text().splitlines() if line.count(" ") >= 3]


def of_job(texts, first, last=None):
    """From the first line of the job to `last`, or to the end."""
    begin = texts.index(first)
    end = texts.index(last, begin) + 1 if last else len(texts)
    return texts[begin:end]


class LogsTest(cluster.ClusterTest):
    def check_complete(self, job, worker, process, last=None):
        """Every line that the process wrote for the job is there, and none counts as lost."""
        running = self.cluster
        lines = cluster.wait_until(lambda: logged(running, job, worker), f"lines of {worker} came")
        wanted = collections.Counter(of_job(texts_on_stderr(process), lines[0]["text"], last))
        self.assertGreater(wanted.total(), 3)

        def missing():
            return wanted - collections.Counter(line["text"] for line in logged(running, job, worker))
        cluster.wait_until(lambda: not missing(), f"all lines of {worker} came")
        lines = logged(running, job, worker)
        self.assertEqual([line["lost"] for line in lines], [0] * len(lines))
        self.assertEqual({line["worker"] for line in lines}, {worker})
        return lines

    def test_a_job_that_ran_has_the_lines_of_all_its_workers(self):
        with self.running(workers=(("a", 1), ("b", 1))) as running:
            job = running.run_job(cluster.job_spec(workers={"min": 2}))["job_id"]
            running.wait_free("a", "b")
            for name in ("a", "b"):
                self.check_complete(job, name, running.workers[name], f"job dropped: job={job}")
            everybody = [json.loads(line) for line in
                         running.ringctl("logs", job, "-o", "json").stdout.splitlines()]
            self.assertEqual({line["worker"] for line in everybody}, {"a", "b"})
            # Merged by time, and each worker's in its own order: two of its threads may write theirs the other way round.
            newest, times = collections.Counter(), []
            for line in everybody:
                newest[line["worker"]] = max(newest[line["worker"]], line["unix_ms"])
                times.append(newest[line["worker"]])
            self.assertEqual(times, sorted(times))
            running.ringctl("logs", job, "--worker", "c", expect=cluster.OTHER)

    def test_the_last_lines_of_a_killed_worker_come_when_it_is_back(self):
        running = self.cluster
        running.make_data()
        running.start_coordinator()
        for name in ("a", "b"):
            running.start_worker(name)
        job = running.submit(cluster.job_spec(workers={"min": 2}, epochs=None, steps=1_000_000))
        running.watch_until(job, lambda status: status["step"] > 0, "the job runs")
        killed = running.workers["b"]
        killed.kill()
        running.watch_until(job, lambda status: status["state"] == "WAITING", "the job waits")
        running.ringctl("cancel", job)
        self.assertEqual(running.wait(job)["state"], "CANCELLED")
        running.start_worker("b")
        self.check_complete(job, "b", killed)
        running.wait_free("a")
        self.check_complete(job, "a", running.workers["a"], f"job dropped: job={job}")
        running.stop()

    def test_lines_that_were_logged_while_the_coordinator_was_gone_come_later(self):
        running = self.cluster
        running.make_data()
        running.start_coordinator()
        running.start_worker("a")
        job = running.submit(cluster.job_spec(epochs=None, steps=1_000_000))
        running.watch_until(job, lambda status: status["step"] > 0, "the job runs")
        running.coordinator.kill()
        worker = running.workers["a"]
        worker.kill()  # nobody is there to ship to
        running.start_coordinator()
        running.start_worker("a")
        self.check_complete(job, "a", worker)
        running.stop()


if __name__ == "__main__":
    cluster.main()
