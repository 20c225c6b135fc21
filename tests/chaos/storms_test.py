"""Storms: a short one, three of a minute each, one over a PyTorch script, and two over workers of two numerics classes."""
import importlib.util
import pathlib
import tempfile
import unittest

import training  # noqa: F401, I001  first: it finds tests/integration
import cluster
import ledger
import storm

SEED = 1


class StormsTest(unittest.TestCase):
    switch = None  # as of training.Training

    def run_storms(self, count, least_faults, **how):
        """Returns the lines of the storms."""
        book = ledger.Ledger()
        with tempfile.TemporaryDirectory(prefix="ringmaster-storms-") as keep:
            runner = storm.Runner(book, SEED, pathlib.Path(keep), self.switch)
            for number in range(count):
                with self.subTest(storm=number):
                    line = runner.run(number, **how)
                    logs = sorted(pathlib.Path(keep).glob(f"*-{number}/*.log"))
                    self.assertEqual(line["result"], "ok", line.get("error", "") + "".join(
                        f"---- {log.name}\n{log.read_text()[-4000:]}\n" for log in logs))
                    self.assertGreater(line["faults"], least_faults, "that was no storm")
        print(ledger.summary(book.lines))
        return [line for line in book.lines if "result" in line]

    def test_a_short_storm(self):
        self.run_storms(1, 3, seconds=8.0, steps=40)

    def test_three_storms(self):
        self.run_storms(3, 10)

    def test_a_storm_over_a_script(self):
        if importlib.util.find_spec("torch") is None:
            raise unittest.SkipTest("SKIP: scripts need python3-torch")
        self.run_storms(1, 10, script=True)

    def test_a_storm_over_two_classes(self):
        [line] = self.run_storms(1, storm.MIXED_FAULTS - 1, mix="fixed")
        self.assertGreater(line["skipped_steps"], 0)
        self.assertEqual(line["maps"], 1)
        other = training.References().sha256(training.mixed(storm.MIXED_STEPS, "fixed", shares=(4, 4)))
        self.assertNotEqual(other, line["sha256"], "another map is another result")

    def test_a_storm_in_which_a_class_is_lost(self):
        [line] = self.run_storms(1, storm.MIXED_FAULTS - 1, mix="fallback")
        self.assertGreater(line["skipped_steps"], 0)
        self.assertGreater(line["maps"], 1)


if __name__ == "__main__":
    cluster.main(at_once=2)
