"""A script whose gradients are no function of state, step and shard is refused before the first step, with the cause."""
import cluster
import scripts

EARLY_BATCH = {"behind": "x_next = torch.randn(3, 16)",
               "early": "x = x_next\ny = x[:, :4].argmax(1)",
               "late": "x_next = torch.randn(shard.rows, 16)"}
GENERATOR = {"behind": "generator = torch.Generator().manual_seed(4)",
             "early": "x = torch.randn(shard.rows, 16, generator=generator)\ny = x[:, :4].argmax(1)"}
COUNTER = {"behind": "count = 0",
           "early": "count += 1",
           "trouble": "loss = loss * (1 + count / 1000)"}
# Stands for an op whose backward adds in any order, which shows only where its threads do run side by side.
UNREPEATABLE = {"trouble": "out.register_hook(lambda gradient: gradient * (1 + int.from_bytes(os.urandom(4), 'little') / 2 ** 40))"}
# One that torch has in an order of its own, too: gradients of rows that come more than once.
ORDERED = {"trouble": "loss = loss + (model[4].weight[torch.randint(64, (20000,))] * torch.randn(20000, 64)).square().mean()"}
FLAG_OFF = {"behind": "torch.use_deterministic_algorithms(False)"}
# Where objects lie in memory differs from process to process, but for forks of one.
THINGS = {"before": '''
class Thing:
    def __init__(self, number):
        self.number = number
things = {Thing(number) for number in range(5000)}
numbers = torch.tensor([float(thing.number) for thing in things]) / 5000
'''}
ORDERED_BY_ID = {"before": THINGS["before"], "trouble": "loss = loss * (1 + numbers[shard.shard])"}
BEGINS_BY_ID = {"before": THINGS["before"] + '''
plain = make_model
def make_model():
    model = plain()
    model[0].weight.data[0] = numbers[:16]
    return model
'''}
UNSEEDED = {"before": "torch.manual_seed = lambda seed: torch.seed()"}


class ScriptPurityTest(scripts.ScriptCase):
    def refused(self, parts, *texts, words=("SCRIPT",), **options):
        """Runs the script: its job fails before the first step, with these texts in the reason, and its workers are free.
        What `ringctl why` says."""
        job = self.submit(scripts.script(**parts), **options)
        status = self.cluster.wait(job)
        self.assertEqual((status["state"], status["step"]), ("FAILED", 0), status["reason"])
        why = self.cluster.json("why", job)
        for text in texts:
            self.assertIn(text, why["reason"])
        self.assertIn(why["failure"]["word"], words, why)
        self.cluster.wait_free(*self.cluster.workers)
        return why

    def check_next(self):
        """The same workers take a script that is pure."""
        status = self.check_succeeded(self.submit(scripts.script()))
        self.assertEqual(status["checkpoint"]["sha256"], self.expected())

    def test_what_is_kept_from_shard_to_shard(self):
        with self.started("north"):
            for parts in (EARLY_BATCH, GENERATOR, COUNTER):
                why = self.refused(parts, "the script is not pure: shard 7 gave other gradients",
                                   "keeps something from shard to shard", "a batch drawn before the loop or one iteration early",
                                   "a generator", "a counter", "inside `for shard in job.shards()`", "loss ", ", then ")
                self.assertEqual(why["failure"]["worker"], "north")
            self.check_next()

    def test_ops_that_do_not_repeat(self):
        with self.started("north", threads=2):
            self.refused(UNREPEATABLE, "the script is not deterministic: shard 7 gave other gradients each time",
                         "first tensor in the order of backward: ", "torch.use_deterministic_algorithms(True)")
            self.refused(FLAG_OFF, "torch.use_deterministic_algorithms() was called after attach: leave it out")
            self.check_succeeded(self.submit(scripts.script(**ORDERED)))

    def test_what_differs_between_workers(self):
        with self.started("north", "south"):
            both = {"workers": {"min": 2}}
            self.refused(BEGINS_BY_ID, "the script differs: the first values have SHA-256 ", " on worker north, ", " on worker south; ",
                         "seed before the model is made", **both)
            self.refused(ORDERED_BY_ID, "shard", "north", "south", words=("SCRIPT", "KNOWN_SHARD_DIFFERS"), **both)
            self.check_next()

    def test_what_differs_between_the_cores_of_one_worker(self):
        with self.started("north", cores=2):
            self.refused(UNSEEDED, "the script is not the same in every process: its initial values differ",
                         "seed what draws them before attach")
            self.check_next()

    def test_other_threads_are_another_class(self):
        """Never mixed silently: a worker of two threads a core does not join a job of one."""
        [gate] = self.cluster.gates("10")
        with self.started("north", "south") as running:
            running.start_worker("wide", threads=2)
            job = self.submit(scripts.script(), workers={"min": 2})
            status = running.watch_until(job, lambda status: status["step"] > 0, "the job runs")
            self.assertEqual({worker["name"] for worker in status["workers"]}, {"north", "south"})
            self.assertEqual(running.attached()["wide"]["state"], "FREE")
            gate.open()
            self.assertEqual(self.check_succeeded(job)["checkpoint"]["sha256"], self.expected())


if __name__ == "__main__":
    cluster.main()
