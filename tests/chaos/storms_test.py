"""Three storms of a minute each."""
import pathlib
import tempfile
import unittest

import training  # noqa: F401, I001  first: it finds tests/integration
import cluster
import ledger
import storm

SEED = 1


class StormsTest(unittest.TestCase):
    def test_three_storms(self):
        book = ledger.Ledger()
        with tempfile.TemporaryDirectory(prefix="ringmaster-storms-") as keep:
            runner = storm.Runner(book, SEED, pathlib.Path(keep))
            for number in range(3):
                with self.subTest(storm=number):
                    line = runner.run(number)
                    logs = sorted(pathlib.Path(keep).glob(f"*-{number}/*.log"))
                    self.assertEqual(line["result"], "ok", line.get("error", "") + "".join(
                        f"---- {log.name}\n{log.read_text()[-4000:]}\n" for log in logs))
                    self.assertGreater(line["faults"], 10, "that was no storm")
        print(ledger.summary(book.lines))


if __name__ == "__main__":
    cluster.main()
