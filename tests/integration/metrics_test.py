"""The history of a job's metrics: what workers said, once, whoever was away; and where ringctl puts it."""
import csv
import importlib.util
import io
import re
import struct
import unittest

import cluster
from tfrecord_writer import masked

STEPS_PER_EPOCH = 3  # of cluster.job_spec
EVALUATED = re.compile(r"evaluated: job=(\S+) step=(\d+) set=(\w+) samples=\d+ loss=([\d.]+) accuracy=([\d.]+)")


def records_of(data):
    """The records of a TFRecord file."""
    at = 0
    while at < len(data):
        length, = struct.unpack_from("<Q", data, at)
        if data[at + 8:at + 12] != masked(data[at:at + 8]):
            raise AssertionError(f"the length at byte {at} has another checksum")
        record = data[at + 12:at + 12 + length]
        if data[at + 12 + length:at + 16 + length] != masked(record):
            raise AssertionError(f"the record at byte {at} has another checksum")
        yield record
        at += 16 + length


def fields_of(message):
    """(number, value) of each field of a protobuf message; of fixed ones the bytes."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            value |= (message[at] & 0x7F) << shift
            shift += 7
            at += 1
            if message[at - 1] < 0x80:
                return value
    while at < len(message):
        key = varint()
        if key & 7 == 0:
            yield key >> 3, varint()
            continue
        size = {1: 8, 5: 4}.get(key & 7) or varint()
        at += size
        yield key >> 3, message[at - size:at]


class EventFile:
    """What a reader of TensorBoard's event files makes of one: tag -> [(step, value, wall time)]."""

    def __init__(self, path):
        self.scalars = {}
        self.starts = 0
        for number, record in enumerate(records_of(path.read_bytes())):
            event = dict(fields_of(record))
            wall_time, = struct.unpack("<d", event[1])
            if number == 0 and event[3] != b"brain.Event:2":
                raise AssertionError(f"it begins with {event}")
            if 7 in event:  # a SessionLog with status START: earlier steps of later ones are no more
                self.starts += dict(fields_of(event[7]))[1] == 1
                for tag, points in self.scalars.items():
                    self.scalars[tag] = [point for point in points if point[0] < event.get(2, 0)]
            for field, value in fields_of(event.get(5, b"")):
                scalar = dict(fields_of(value))
                if field == 1:
                    points = self.scalars.setdefault(scalar[1].decode(), [])
                    points.append((event[2], struct.unpack("<f", scalar[2])[0], wall_time))


def float32(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


class MetricsTest(cluster.ClusterTest):
    def start(self, *workers):
        running = self.cluster
        running.make_data()
        running.start_coordinator()
        for name in workers:
            running.start_worker(name)
        return running

    def evaluations(self, job):
        """(step, set) -> loss and accuracy, as workers logged them."""
        found = {}
        for worker in self.cluster.workers.values():
            for line in EVALUATED.finditer(worker.log()):
                if line[1] == job:
                    found[int(line[2]), line[3]] = (float(line[4]), float(line[5]))
        return found

    def check_epochs(self, job, epochs):
        history = self.cluster.json("metrics", job)
        points = history["points"]
        self.assertEqual([point["step"] for point in points],
                         [STEPS_PER_EPOCH * (epoch + 1) for epoch in range(epochs)])
        self.assertEqual([point["epoch"] for point in points], list(range(1, epochs + 1)))
        logged = self.evaluations(job)
        for point in points:
            values = point["values"]
            self.assertEqual(set(values), {"train/loss", "train/accuracy", "test/loss", "test/accuracy"})
            said = logged[point["step"], "test"]
            self.assertEqual((round(values["test/loss"], 4), round(values["test/accuracy"], 4)), said)
        metrics = self.cluster.status(job)["metrics"]
        last = {f"{split}/{name}": value for split in metrics for name, value in metrics[split].items()}
        self.assertEqual(points[-1]["values"], last)
        return points

    def check_steps(self, job):
        points = self.cluster.json("metrics", job, "--steps")["points"]
        steps = [point["step"] for point in points]
        self.assertEqual(steps, sorted(set(steps)))
        self.assertGreater(len(steps), 1)
        for point in points:
            self.assertLessEqual({"train/loss", "learning_rate", "samples_per_second", "step/compute",
                                  "step/total"}, set(point["values"]))
        return points

    def test_every_epoch_once_though_the_coordinator_was_killed(self):
        [nobody, back] = self.cluster.gates(600, 900)
        running = self.start("a", "b")
        job = running.submit(cluster.job_spec(epochs=400, workers={"min": 2}))
        running.watch_until(job, lambda status: status["epoch"] >= 5, "five epochs")
        running.coordinator.kill()
        nobody.open()
        cluster.wait_until(lambda: "step=897 " in running.workers["a"].log(), "epochs that nobody hears of")
        running.start_coordinator()
        running.watch_until(job, lambda status: status["step"] >= 900, "they are told")
        back.open()
        self.assertEqual(running.wait(job)["state"], "SUCCEEDED")
        points = self.check_epochs(job, 400)
        self.check_steps(job)
        # A start with what is stored: nothing of it was in memory alone.
        running.coordinator.kill()
        running.start_coordinator()
        self.assertEqual(self.check_epochs(job, 400), points)
        running.stop()

    def test_a_job_that_went_back_tells_its_new_past(self):
        # Slow steps: what was told goes beyond the checkpoint, and there is no newer one when the worker dies.
        self.cluster.environment = {"RINGMASTER_FAILPOINTS": "boundary=delay:20"}
        running = self.start("a")
        job = running.submit(cluster.job_spec(epochs=100_000, checkpoint={"every_steps": 180}))
        folder = running.folder / "runs"
        running.watch_until(job, lambda status: status["checkpoint"] and
                            30 <= status["step"] - status["checkpoint"]["step"] < 60, "steps after a checkpoint")
        running.ringctl("metrics", job, "--tensorboard-dir", folder)
        running.workers["a"].kill()
        running.start_worker("b")
        running.watch_until(job, lambda status: status["resumed_from"], "the job goes back", timeout=90)
        running.ringctl("cancel", job)
        self.assertEqual(running.wait(job)["state"], "CANCELLED")
        points = running.json("metrics", job)["points"]
        self.assertEqual([point["step"] for point in points],
                         list(range(STEPS_PER_EPOCH, points[-1]["step"] + 1, STEPS_PER_EPOCH)))
        running.ringctl("metrics", job, "--tensorboard-dir", folder)
        events = EventFile(self.event_file(folder, job))
        self.assertEqual(events.starts, 2)
        self.assertEqual([(step, value) for step, value, _ in events.scalars["test/loss"]],
                         [(point["step"], float32(point["values"]["test/loss"])) for point in points
                          if point is not points[-1] or "test/loss" in point["values"]])  # cancelled before that
        running.stop()

    def event_file(self, folder, job):
        found = list((folder / f"{job}-test").iterdir())
        self.assertEqual(len(found), 1, found)
        self.assertIn("tfevents", found[0].name)
        return found[0]

    def check_events(self, path, job):
        """Every scalar of the history, by step, and nothing else."""
        history = self.cluster.json("metrics", job)["points"] + self.cluster.json("metrics", job, "--steps")["points"]
        expected = {}
        for point in history:
            for tag, value in point["values"].items():
                expected.setdefault(tag, {})[point["step"]] = float32(value)
        events = EventFile(path)
        self.assertEqual(events.starts, 1)
        for tag, points in events.scalars.items():
            steps = [step for step, _, _ in points]
            self.assertEqual(steps, sorted(set(steps)), tag)
            if tag != "epoch":
                self.assertEqual({step: value for step, value, _ in points}, expected[tag], tag)
        self.assertEqual(set(events.scalars), {*expected, "epoch"})
        return events

    def test_event_files_of_tensorboard_grow_with_the_job(self):
        running = self.start("a")
        job = running.submit(cluster.job_spec(epochs=200, precision={"policy": "mixed_bfloat16"}))
        folder = running.folder / "runs"
        running.watch_until(job, lambda status: status["epoch"] >= 3, "three epochs")
        running.ringctl("metrics", job, "--tensorboard-dir", folder)
        path = self.event_file(folder, job)
        before = path.read_bytes()
        path.write_bytes(before + before[:9])  # a writer that died
        running.ringctl("metrics", job, "--tensorboard-dir", folder, "-f", timeout=120)
        self.assertEqual(running.status(job)["state"], "SUCCEEDED")
        after = path.read_bytes()
        self.assertTrue(after.startswith(before))
        events = self.check_events(path, job)
        self.assertLess(abs(events.scalars["test/loss"][-1][2] - running.status(job)["finished_unix_ms"] / 1e3), 60)
        # Nothing is new: nothing is written.
        running.ringctl("metrics", job, "--tensorboard-dir", folder)
        self.assertEqual(path.read_bytes(), after)
        path.write_bytes(b"x" * 100)
        refused = running.ringctl("metrics", job, "--tensorboard-dir", folder, expect=cluster.OTHER)
        self.assertIn(path.name, refused.stderr)
        running.stop()

    def test_event_files_have_evaluations_that_take_long(self):
        # The store has the means of training long before what the evaluation of the same step says.
        self.cluster.environment = {"RINGMASTER_FAILPOINTS": "evaluate=delay:2500"}
        running = self.start("a")
        job = running.submit(cluster.job_spec(epochs=3))
        folder = running.folder / "runs"
        running.ringctl("metrics", job, "--tensorboard-dir", folder, "-f", timeout=120)
        self.assertEqual(running.status(job)["state"], "SUCCEEDED")
        self.check_events(self.event_file(folder, job), job)
        running.stop()

    @unittest.skipIf(importlib.util.find_spec("tensorboard") is None, "SKIP: tensorboard is not installed")
    def test_tensorboard_reads_them(self):
        from tensorboard.backend.event_processing import event_accumulator
        running = self.start("a")
        job = running.submit(cluster.job_spec(epochs=20))
        self.assertEqual(running.wait(job)["state"], "SUCCEEDED")
        folder = running.folder / "runs"
        running.ringctl("metrics", job, "--tensorboard-dir", folder)
        path = self.event_file(folder, job)
        ours = EventFile(path).scalars
        accumulator = event_accumulator.EventAccumulator(str(path.parent), size_guidance={"scalars": 0})
        accumulator.Reload()
        self.assertEqual(set(accumulator.Tags()["scalars"]), set(ours))
        for tag, points in ours.items():
            self.assertEqual([(each.step, each.value) for each in accumulator.Scalars(tag)],
                             [(step, value) for step, value, _ in points])
        running.stop()

    def test_csv_has_every_bit(self):
        running = self.start("a")
        jobs = [running.run_job(cluster.job_spec(epochs=3, seed=seed))["job_id"] for seed in (1, 2)]
        rows = list(csv.DictReader(io.StringIO(running.ringctl("metrics", *jobs, "-o", "csv").stdout)))
        read = {(row["job"], int(row["step"]), f"{row['split']}/{row['name']}"): float(row["value"]) for row in rows}
        expected = {(job, point["step"], name): value for job in jobs
                    for point in running.json("metrics", job)["points"] for name, value in point["values"].items()}
        self.assertEqual(read, expected)
        self.assertEqual(len(rows), len(expected))
        plot = running.ringctl("metrics", *jobs, "--plot", "test/loss").stdout
        self.assertTrue(any("⠁" <= letter <= "⣿" for letter in plot), plot)
        unknown = running.ringctl("metrics", jobs[0], "--plot", "test/los", expect=cluster.USAGE)
        self.assertIn("did you mean test/loss", unknown.stderr)
        running.ringctl("metrics", "j4711", expect=cluster.OTHER)
        running.stop()


if __name__ == "__main__":
    cluster.main()
