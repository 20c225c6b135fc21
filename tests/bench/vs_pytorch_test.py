#!/usr/bin/python3
"""The parts of bench/vs_pytorch.py that need no PyTorch: arguments, contenders, ratios, the table."""

import contextlib
import io
import pathlib
import sys
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent.parent / "bench"))

import vs_pytorch  # noqa: E402


def refused(*words):
    """What is said about a command line that cannot work."""
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        try:
            vs_pytorch.arguments(list(words))
        except SystemExit as end:
            assert end.code == 2, end.code
            return said.getvalue()
    raise AssertionError(f"{words} were accepted")


class Arguments(unittest.TestCase):
    def test_cpus(self):
        self.assertEqual(vs_pytorch.parse_cpus("0,2-4"), [0, 2, 3, 4])
        self.assertEqual(vs_pytorch.parse_cpus("3"), [3])
        for bad in ("", "a", "1-", "3-1", "1,,2", "-1"):
            with self.assertRaises(ValueError, msg=bad):
                vs_pytorch.parse_cpus(bad)

    def test_model_options(self):
        self.assertEqual(vs_pytorch.model_options(["batch_norm=true", "hidden=[512, 8]", "dropout=0.2"]),
                         {"batch_norm": True, "hidden": [512, 8], "dropout": 0.2})
        for bad in ("batch_norm", "batch_norm=yes", "=1", "model.depth=11"):
            with self.assertRaises(ValueError, msg=bad):
                vs_pytorch.model_options([bad])

    def test_a_core_for_each_cpu_but_one_for_a_gpu(self):
        options = vs_pytorch.arguments(["--cpus", "0-3"])
        self.assertEqual((options.cores, options.shards), (4, 4))
        options = vs_pytorch.arguments(["--cpus", "0-3", "--device", "cuda", "--shards", "8"])
        self.assertEqual((options.cores, options.shards), (1, 8))

    def test_what_cannot_work(self):
        self.assertIn("less than 1", refused("--rounds", "0"))
        self.assertIn("not a CPU", refused("--cpus", "x"))
        self.assertIn("option of the model", refused("--set", "depth"))
        self.assertIn("float16", refused("--policies", "mixed_float16"))
        self.assertIn("only on one CPU", refused("--cpu-time", "--cpus", "0-1"))
        self.assertIn("only on one CPU", refused("--cpu-time", "--cpus", "0", "--device", "cuda"))
        self.assertIn("invalid choice", refused("--model", "resnet"))


class Contenders(unittest.TestCase):
    @staticmethod
    def found(*words):
        specs = vs_pytorch.contenders(vs_pytorch.arguments(["--cpus", "0-1", *words]))
        return [(spec["policy"], spec["name"], spec["layout"], spec["precision"], spec["compile"]) for spec in specs]

    def test_on_a_cpu_both_layouts_in_each_precision(self):
        self.assertEqual(self.found(), [
            ("float32", "nchw", "nchw", "float32", False),
            ("float32", "channels_last", "channels_last", "float32", False),
            ("mixed_bfloat16", "nchw", "nchw", "bfloat16", False),
            ("mixed_bfloat16", "channels_last", "channels_last", "bfloat16", False)])
        self.assertEqual(len(self.found("--model", "mlp")), 2)  # flat images have no layout

    def test_on_a_gpu_eager_and_compiled(self):
        self.assertEqual(self.found("--device", "cuda", "--policies", "mixed_float16"), [
            ("mixed_float16", "eager", "channels_last", "float16", False),
            ("mixed_float16", "compile", "channels_last", "float16", True)])


SPEEDS = {
    ("float32", "ours"): [100, 300, 200],
    ("float32", "nchw"): [50, 60, 70],
    ("float32", "channels_last"): [80, 90, 160],
    ("mixed_bfloat16", "ours"): [400, 400, 500],
    ("mixed_bfloat16", "nchw"): [100, 100, 100],
}


class Ratios(unittest.TestCase):
    def test_medians_against_the_fastest_of_theirs(self):
        rows = vs_pytorch.rows_of(SPEEDS, ["float32", "mixed_bfloat16"])
        self.assertEqual([row["policy"] for row in rows], ["float32", "mixed_bfloat16", "best"])
        self.assertEqual(rows[0]["ours"], 200)
        self.assertEqual(rows[0]["theirs"], {"nchw": 60, "channels_last": 90})
        self.assertAlmostEqual(rows[0]["ratio"], 200 / 90)
        self.assertAlmostEqual(rows[1]["ratio"], 4)
        self.assertEqual(rows[2]["theirs"], {"nchw": 100, "channels_last": 90})
        self.assertAlmostEqual(rows[2]["ratio"], 4)

    def test_the_table_has_a_cell_for_each_contender(self):
        lines = vs_pytorch.table(vs_pytorch.rows_of(SPEEDS, ["float32", "mixed_bfloat16"]), SPEEDS).splitlines()
        self.assertEqual(len(lines), 5)
        self.assertEqual(len({line.count("|") for line in lines}), 1)
        self.assertIn("| float32 | 200.0 (100.0 to 300.0) | 60.0 (50.0 to 70.0) | 90.0 (80.0 to 160.0) | 2.22 |", lines[2])
        self.assertIn("|  | 4.00 |", lines[3])

    def test_other_models_are_no_comparison(self):
        vs_pytorch.check_same_model({"a": {"parameters": 7}, "b": {"parameters": 7}})
        with self.assertRaises(vs_pytorch.Failure):
            vs_pytorch.check_same_model({"a": {"parameters": 7}, "b": {"parameters": 8}})


if __name__ == "__main__":
    unittest.main()
