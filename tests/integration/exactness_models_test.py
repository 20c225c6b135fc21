"""The promise for other policies, models, data and optimizers, and with a worker that is killed in the middle."""
import cluster
import exactness

DISTORT = [{"random_crop": {"padding": 4}}, {"random_flip": {}}, {"random_brightness": {"max_delta": 63}},
           {"random_contrast": {"lower": 0.2, "upper": 1.8}}, {"per_image_standardization": {}}]

PICTURES = [{"random_resized_crop": {"size": 32}}, {"random_flip": {}},
            {"color_jitter": {"brightness": 0.4, "contrast": 0.4, "saturation": 0.4}}, {"normalize": "torch"},
            {"mixup": {"alpha": 0.4}}]


def spec(workers, **changes):
    return cluster.job_spec(checkpoint={"every_steps": 4, "keep": 2},
                            workers={"min": workers, "max": workers}, **changes)


class ExactnessModelsTest(exactness.ExactnessCase):
    def test_mixed_float16_with_skipped_steps(self):
        # A scale that no gradient survives at first: it halves, step by step, until one does. Two
        # good steps double it again, so that growth is in the run as well.
        precision = {"policy": "mixed_float16", "initial_loss_scale": 2 ** 24, "growth_steps": 2}
        results = self.run_everywhere(lambda workers: {"mixed_float16": spec(
            workers, model={"name": "alexnet", "batch_norm": True, "dropout": 0.2}, augment=DISTORT,
            precision=precision, epochs=6)})
        for name, statuses in results.items():
            status = statuses["mixed_float16"]
            self.assertGreaterEqual(status["skipped_steps"], 1, name)
            self.assertGreaterEqual(status["updates"], 4, name)
            self.assertEqual(status["updates"] + status["skipped_steps"], status["step"])
            self.assertLess(status["loss_scale"], 2 ** 24)
        scales = {statuses["mixed_float16"]["loss_scale"] for statuses in results.values()}
        self.assertEqual(len(scales), 1, scales)

    def test_vgg(self):
        self.run_everywhere(lambda workers: {"vgg": spec(
            workers, model={"name": "vgg", "depth": 11}, augment=DISTORT, epochs=1,
            precision={"policy": "mixed_bfloat16"})})

    def test_mlp_on_mnist(self):
        def make_data(running):
            running.ringctl("dataset", "make", "mnist", running.data_root / "mnist", "--train", 56,
                            "--test", 20, "--gzip")

        results = self.run_everywhere(lambda workers: {"mnist": spec(
            workers, data={"format": "mnist", "path": "mnist", "take": 50}, validation={"split": 0.2},
            model={"name": "mlp", "hidden": [32], "dropout": 0.1})}, make_data)
        accuracies = {statuses["mnist"]["metrics"]["validation"]["accuracy"] for statuses in results.values()}
        self.assertEqual(len(accuracies), 1, accuracies)
        self.assertIsNotNone(accuracies.pop())

    def run_with_a_kill(self, label, job, make_data=None):
        """Three workers, one of which is killed after the second step: its status, as run_on has it."""
        with self.running([("a", 1), ("b", 1), ("c", 1)]) as running:
            if make_data:
                make_data(running)
            job_id = running.submit(job)
            running.watch_until(job_id, lambda status: status["step"] >= 2, "two steps")
            running.workers["b"].kill()
            status = running.wait(job_id)
            self.assertEqual(status["state"], "SUCCEEDED", status)
            self.assertEqual([regroup["lost"] for regroup in cluster.regroups_of_members(status)], [["b"]], status)
            status["files"] = self.verify_checkpoint(running, status, running.folder / f"fetched-{label}")
        return status

    def check_pictures(self, model, data):
        """Cut, changed and mixed: four clusters, and one that loses a worker."""
        def make_data(running):
            running.ringctl("dataset", "make", data, running.data_root / data, "--train", 40, "--test", 16)

        def job(least, most):
            return cluster.job_spec(
                name=model, model={"name": model}, data={"path": data}, batch=8, epochs=2, validation={"split": 0.2},
                augment=PICTURES, optimizer={"sgd": {"learning_rate": 0.01, "momentum": 0.9}},
                checkpoint={"every_steps": 2, "keep": 2, "best": "validation/loss"}, workers={"min": least, "max": most})

        results = self.run_everywhere(lambda workers: {model: job(workers, workers)}, make_data)
        killed = self.run_with_a_kill(model, job(1, 3), make_data)
        self.check_equal(model, [next(iter(results.values()))[model], killed])

    def test_resnet18_on_jpegs(self):
        self.check_pictures("resnet18", "image_folder")

    def test_efficientnet_on_tfrecords(self):
        self.check_pictures("efficientnetb0", "tfrecord")

    def test_values_that_are_computed_again_change_no_bit(self):
        def job(least, most, **changes):
            return spec(least, model={"name": "alexnet", "batch_norm": True, "dropout": 0.2}, augment=DISTORT,
                        precision={"policy": "mixed_bfloat16"}, **changes) | {"workers": {"min": least, "max": most}}

        again = {"memory": {"rematerialize": True}}
        workers = [("a", 1), ("b", 1)]
        kept = self.run_on(workers, {"kept": job(2, 2), "again": job(2, 2, **again)})
        killed = self.run_with_a_kill("again", job(1, 3, **again))
        self.check_equal("again", [kept["kept"], kept["again"], killed])

    def check_convnet(self, name):
        def job(least, most):
            return cluster.job_spec(
                name=name, model={"name": name}, batch=8, epochs=None, steps=8,
                data={"format": "cifar10", "path": "cifar10", "take": 32, "take_test": 8},
                checkpoint={"every_steps": 4, "keep": 2}, workers={"min": least, "max": most}, optimizer={
                    "adam": {"learning_rate": 0.001}, "clip": {"global_norm": 1}, "ema": {"decay": 0.9},
                    "schedule": {"warmup": {"over": {"updates": 3}}, "cosine": {}},
                    "weight_decay": {"rate": 1e-4, "kind": "decoupled"}})

        results = self.run_everywhere(lambda workers: {name: job(workers, workers)})
        files = results["1x4"][name]["files"]
        self.assertIn("ema.safetensors", files)
        self.check_equal(name, [results["1x4"][name], self.run_with_a_kill(name, job(1, 3))])

    def test_two_inputs_and_two_losses_on_arrays(self):
        layers = [
            {"dense": {"name": "from_x", "inputs": ["x"], "units": 16, "activation": "relu"}},
            {"dense": {"name": "from_z", "inputs": ["z"], "units": 8, "activation": "relu"}},
            {"concat": {"name": "both", "inputs": ["from_x", "from_z"]}},
            {"dense": {"name": "kind", "inputs": ["both"], "units": 3}},
            {"dense": {"name": "price", "inputs": ["both"], "units": 1}}]

        def make_data(running):
            for form in ("npz", "npy"):
                running.ringctl("dataset", "make", form, running.data_root / form, "--train", 200, "--test", 40)

        def job(form, least, most):
            return cluster.job_spec(
                name=form, model={"layers": layers}, epochs=None, steps=1500,
                data={"format": form, "path": form, "inputs": ["x", "z"], "targets": ["y", "y_price"]},
                loss=[{"softmax_cross_entropy": {"name": "kind_loss", "inputs": ["kind", "y"], "label_smoothing": 0.1}},
                      {"huber": {"name": "price_loss", "inputs": ["price", "y_price"], "weight": 0.5}}],
                metrics=[{"accuracy": {"inputs": ["kind", "y"]}},
                         {"rmse": {"name": "price_rmse", "inputs": ["price", "y_price"]}}],
                checkpoint={"every_steps": 500, "best": "test/price_rmse"}, workers={"min": least, "max": most})

        results = self.run_everywhere(lambda workers: {form: job(form, workers, workers)
                                                       for form in ("npz", "npy")}, make_data)
        alone = results["1x4"]["npz"]
        self.assertEqual(set(alone["metrics"]["test"]), {"loss", "kind_loss", "price_loss", "accuracy", "price_rmse"})
        self.assertLess(alone["metrics"]["test"]["price_rmse"], 1)
        self.assertEqual(alone["files"]["model.safetensors"], results["1x4"]["npy"]["files"]["model.safetensors"])
        self.check_equal("npz", [alone, self.run_with_a_kill("npz", job("npz", 1, 3), make_data)])

    def test_resnet50(self):
        self.check_convnet("resnet50")

    def test_efficientnet_with_drop_connect(self):
        self.check_convnet("efficientnetb0")

    def test_nasnet(self):
        self.check_convnet("nasnetmobile")


if __name__ == "__main__":
    cluster.main(at_once=2)
