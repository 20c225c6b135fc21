"""The promise: the same job gives the same checkpoint, byte for byte, on every cluster."""
import cluster
import exactness


def spec(workers, **changes):
    """Augmentation, dropout, batch normalization, and a last batch of 8 after two of 24."""
    return cluster.job_spec(
        model={"name": "alexnet", "batch_norm": True, "dropout": 0.2},
        augment=[{"random_crop": {"padding": 4}}, {"random_flip": {}},
                 {"per_image_standardization": {}}],
        checkpoint={"every_steps": 4, "keep": 2},
        workers={"min": workers, "max": workers}, **changes)


class ExactnessTest(exactness.ExactnessCase):
    def run_everywhere(self, **policies):
        """Cluster -> label -> status; the job of one seed more where all cores are one worker's."""
        results = {}
        for name, workers in exactness.CLUSTERS.items():
            count = len(workers)
            jobs = {label: spec(count, **changes) for label, changes in policies.items()}
            if name == "1x4":
                jobs["other seed"] = spec(count, seed=2)
            results[name] = self.run_on(workers, jobs)
        return results

    def test_one_job_has_one_checkpoint_on_every_cluster(self):
        results = self.run_everywhere(float32={"precision": {"policy": "float32"}},
                                      mixed_bfloat16={"precision": {"policy": "mixed_bfloat16"}})
        for label in ("float32", "mixed_bfloat16"):
            self.check_equal(label, [statuses[label] for statuses in results.values()])
        one = results["1x4"]
        self.assertNotEqual(one["other seed"]["checkpoint"]["sha256"],
                            one["float32"]["checkpoint"]["sha256"])
        self.assertNotEqual(one["mixed_bfloat16"]["checkpoint"]["sha256"],
                            one["float32"]["checkpoint"]["sha256"])

    def test_a_plain_float32_ring_does_depend_on_the_cluster(self):
        """The negative control."""
        results = self.run_everywhere(plain={"reduction": "float32"})
        shas = {statuses["plain"]["checkpoint"]["sha256"] for statuses in results.values()}
        self.assertGreater(len(shas), 1, "the plain ring did not differ")


if __name__ == "__main__":
    cluster.main()
