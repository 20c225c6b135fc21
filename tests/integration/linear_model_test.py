"""The generated data mean something: a linear model stays under 60% on them, one hidden layer gets
over it (and the demo's convolutional network to 90%)."""
import cluster


class LinearModelTest(cluster.ClusterTest):
    def accuracy(self, running, hidden):
        """Of the demo's data, batches and augmentations with another model."""
        return running.run_job(cluster.job_spec(
            model={"name": "mlp", "hidden": hidden}, batch=64, epochs=3, workers={"min": 2},
            augment=[{"random_crop": {"padding": 4}}, {"random_flip": {}},
                     {"per_image_standardization": {}}]))["metrics"]["test"]["accuracy"]

    def test_a_linear_model_stays_under_60_percent_and_a_hidden_layer_gets_over_it(self):
        with self.running(workers=(("a", 1), ("b", 1)), train=6_000, test=1_000) as running:
            self.assertLess(self.accuracy(running, []), 0.60)
            self.assertGreater(self.accuracy(running, [256]), 0.60)


if __name__ == "__main__":
    cluster.main()
