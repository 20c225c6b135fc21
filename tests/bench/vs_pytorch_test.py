#!/usr/bin/python3
"""The parts of bench/vs_pytorch.py that need no PyTorch: arguments, suites, contenders, ratios, the tables."""

import contextlib
import datetime
import io
import pathlib
import sys
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent.parent / "bench"))

import contenders  # noqa: E402
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
        self.assertEqual((options.cores, options.shards), (4, [4]))
        options = vs_pytorch.arguments(["--cpus", "0-3", "--device", "cuda", "--shards", "8"])
        self.assertEqual((options.cores, options.shards), (1, [8]))

    def test_a_cpu_for_each_worker(self):
        options = vs_pytorch.arguments(["--workers", "2", "--cpus", "1,3", "--batch", "32"])
        self.assertEqual((options.cpus, options.shards), ([1, 3], [2, 8]))
        self.assertEqual(vs_pytorch.arguments(["--workers", "1", "--cpus", "0"]).shards, [1])

    def test_image_size(self):
        self.assertEqual(vs_pytorch.arguments([]).image, (32, 32))
        self.assertEqual(vs_pytorch.arguments(["--image", "64x96"]).image, (64, 96))
        self.assertEqual(vs_pytorch.arguments(["--image", "64"]).image, (64, 64))
        self.assertEqual(vs_pytorch.arguments(["--model", "inceptionv3"]).image, (75, 75))
        self.assertEqual(vs_pytorch.arguments(["--model", "inceptionv3", "--image", "32"]).image, (32, 32))

    def test_what_cannot_work(self):
        self.assertIn("less than 1", refused("--rounds", "0"))
        self.assertIn("not a CPU", refused("--cpus", "x"))
        self.assertIn("option of the model", refused("--set", "depth"))
        self.assertIn("float16", refused("--policies", "mixed_float16"))
        self.assertIn("only on one CPU", refused("--cpu-time", "--cpus", "0-1"))
        self.assertIn("only on one CPU", refused("--cpu-time", "--cpus", "0", "--device", "cuda"))
        self.assertIn("invalid choice", refused("--model", "resnet"))
        self.assertIn("not a size", refused("--image", "64x"))
        self.assertIn("only with --workers", refused("--shards", "2", "8"))
        self.assertIn("must divide them", refused("--workers", "2", "--cpus", "0-1", "--shards", "3"))
        self.assertIn("as many CPUs", refused("--workers", "2", "--cpus", "0"))
        self.assertIn("that they divide", refused("--workers", "2", "--cpus", "0-1", "--batch", "7"))


class Suites(unittest.TestCase):
    def test_a_net_is_what_its_line_says_and_then_the_command_line(self):
        nets = vs_pytorch.nets_of(["--suite", "one-core", "--rounds", "2", "--cpus", "1"])
        self.assertEqual(len(nets), len(vs_pytorch.ONE_CORE))
        resnet50 = next(net for net in nets if net.model == "resnet50")
        self.assertEqual((resnet50.image, resnet50.batch, resnet50.rounds), ((64, 64), 16, 2))
        self.assertEqual((resnet50.cpus, resnet50.cores, resnet50.shards), ([1], 1, [1]))

    def test_some_of_it(self):
        nets = vs_pytorch.nets_of(["--suite", "two-workers", "--only", "mlp", "resnet20", "--cpus", "0-1"])
        self.assertEqual([net.model for net in nets], ["mlp", "resnet20"])
        self.assertEqual([net.workers for net in nets], [2, 2])
        with self.assertRaises(vs_pytorch.Failure):
            vs_pytorch.nets_of(["--suite", "one-core", "--only", "linear"])

    def test_without_one_it_is_the_command_line(self):
        self.assertEqual([net.model for net in vs_pytorch.nets_of(["--model", "mlp"])], ["mlp"])


class Contenders(unittest.TestCase):
    @staticmethod
    def found(*words):
        options = vs_pytorch.arguments(["--cpus", "0-1", *words])
        return [(policy, name, spec["layout"], spec["precision"], spec["compile"])
                for policy in options.policies for name, spec in vs_pytorch.specs_of(options, policy).items()]

    def test_on_a_cpu_both_layouts_in_each_precision(self):
        self.assertEqual(self.found("--policies", "float32", "mixed_bfloat16"), [
            ("float32", "nchw", "nchw", "float32", False),
            ("float32", "channels_last", "channels_last", "float32", False),
            ("mixed_bfloat16", "nchw", "nchw", "bfloat16", False),
            ("mixed_bfloat16", "channels_last", "channels_last", "bfloat16", False)])
        self.assertEqual(len(self.found("--model", "mlp", "--policies", "float32")), 1)  # flat images have no layout

    def test_on_a_gpu_eager_and_compiled(self):
        self.assertEqual(self.found("--device", "cuda", "--policies", "mixed_float16"), [
            ("mixed_float16", "eager", "channels_last", "float16", False),
            ("mixed_float16", "compile", "channels_last", "float16", True)])

    def test_on_one_host_ours_and_on_a_cpu_the_bound(self):
        def names(*words):
            return [team.name for team in vs_pytorch.on_one_host(vs_pytorch.arguments(["--model", "mlp", *words]), "")]
        self.assertEqual(names("--policies", "float32"), ["ours", "oneDNN layers", "nchw"])
        self.assertEqual(names("--policies", "float32", "--device", "cuda"), ["ours", "eager", "compile"])

    def test_ours_and_the_bound_get_the_same_images_and_model(self):
        options = vs_pytorch.arguments(["--model", "resnet50", "--image", "64x96", "--set", "head=\"gap\"", "--batch",
                                        "33", "--shards", "2", "--cpus", "0-1", "--policies", "float32"])
        ours, bound = vs_pytorch.on_one_host(options, "")[:2]
        for team in (ours, bound):
            words = [team.command[i + 1] for i, word in enumerate(team.command) if word == "--set"]
            self.assertEqual(words, ['model.head="gap"', "data.resize=[64, 96]"])
        self.assertEqual(bound.command[bound.command.index("--batch") + 1], 17)  # of the larger shard

    def test_when_a_worker_applied_a_step(self):
        line = "2026-11-24T15:00:01.250 ringworker debug step applied: job=j0001 generation=1.2 applied=7\n"
        moment = datetime.datetime(2026, 11, 24, 15, 0, 1, 250_000).timestamp()
        self.assertEqual(contenders.applied(f"something else\n{line}"), [(moment, "j0001", 7)])

    def test_on_workers_each_together_and_alone_with_its_part(self):
        options = vs_pytorch.arguments(["--model", "mlp", "--workers", "2", "--cpus", "0-1", "--batch", "512",
                                        "--shards", "2", "8", "--policies", "float32"])
        found = vs_pytorch.on_workers(options, None)
        ours = [(team.name, team.spec["batch"], team.spec["shards"], team.spec["workers"]["max"]) for team in found[:4]]
        self.assertEqual(ours, [("ours, 2 shards", 512, 2, 2), ("ours, 2 shards, alone", 256, 1, 1),
                                ("ours, 8 shards", 512, 8, 2), ("ours, 8 shards, alone", 256, 4, 1)])
        theirs = [(team.name, team.spec["batch"], team.cpus) for team in found[4:]]
        self.assertEqual(theirs, [("DDP nchw", 256, [[0], [1]]), ("DDP nchw, alone", 256, [[0]])])


SPEEDS = {
    ("float32", "ours"): [100, 300, 200],
    ("float32", "nchw"): [50, 60, 70],
    ("float32", "channels_last"): [80, 90, 160],
    ("float32", "oneDNN layers"): [200, 260, 250],
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
        self.assertAlmostEqual(rows[0]["of_bound"], 200 / 250)
        self.assertIsNone(rows[1]["of_bound"])
        self.assertAlmostEqual(rows[1]["ratio"], 4)
        self.assertEqual(rows[2]["theirs"], {"nchw": 100, "channels_last": 90})
        self.assertAlmostEqual(rows[2]["ratio"], 4)

    def test_the_table_has_a_cell_for_each_contender(self):
        lines = vs_pytorch.table(vs_pytorch.rows_of(SPEEDS, ["float32", "mixed_bfloat16"]), SPEEDS).splitlines()
        self.assertEqual(len(lines), 5)
        self.assertEqual(len({line.count("|") for line in lines}), 1)
        self.assertIn("| float32 | 200.0 (100.0 to 300.0) | 60.0 (50.0 to 70.0) | 90.0 (80.0 to 160.0) | "
                      "250.0 (200.0 to 260.0) | 2.22 | 0.80 |", lines[2])
        self.assertTrue(lines[3].endswith("| 100.0 (100.0 to 100.0) |  |  | 4.00 |  |"), lines[3])

    def test_without_a_bound_it_has_no_column(self):
        speeds = {key: rounds for key, rounds in SPEEDS.items() if key[1] != "oneDNN layers"}
        lines = vs_pytorch.table(vs_pytorch.rows_of(speeds, ["float32"]), speeds)
        self.assertIn("| 90.0 (80.0 to 160.0) | 2.22 |", lines)

    def test_communication_is_a_step_less_the_part_alone(self):
        speeds = {("float32", "ours, 2 shards"): [400], ("float32", "ours, 2 shards, alone"): [250],
                  ("float32", "DDP nchw"): [200], ("float32", "DDP nchw, alone"): [200]}
        ours, theirs = vs_pytorch.worker_rows(speeds, ["float32"], 100, 2)
        self.assertAlmostEqual(ours["step"], 0.25)
        self.assertAlmostEqual(ours["alone"], 0.2)
        self.assertAlmostEqual(ours["visible"], 0.05)
        self.assertAlmostEqual(ours["ratio"], 2)
        self.assertAlmostEqual(theirs["visible"], 0.25)
        self.assertIsNone(theirs["ratio"])
        self.assertIn("| 250.0 | 200.0 | 50.0 | 2.00 |", vs_pytorch.worker_table([ours, theirs], speeds))

    def test_other_models_are_no_comparison(self):
        vs_pytorch.check_same_model({"a": {"parameters": 7}, "b": {"parameters": 7}, "bound": {}})
        with self.assertRaises(vs_pytorch.Failure):
            vs_pytorch.check_same_model({"a": {"parameters": 7}, "b": {"parameters": 8}})


if __name__ == "__main__":
    unittest.main()
