"""The corpus of bad inputs: job files, command lines, and ways to break a file of a dataset."""
import random

GOOD_FILE = """\
name: test
model: {name: mlp, hidden: [32]}
data: {format: cifar10, path: cifar10}
batch: 24
shards: 8
epochs: 2
optimizer: {adam: {learning_rate: 0.001}}
"""

# What is replaced in the good file by what, and what the error must say.
BAD_FILES = [
    ("batch: 24", "btach: 24", ["4:1", "btach", "batch"]),
    ("batch: 24", "batch: 24\nbatch: 24", ["5:1", "batch"]),
    ("batch: 24", "batch: many", ["4:8", "batch", "many"]),
    ("batch: 24", "batch: -1", ["batch", "-1"]),
    ("batch: 24", "batch: 0", ["batch"]),
    ("batch: 24", "batch: 2.5", ["batch", "2.5"]),
    ("batch: 24", "batch: 99999999999", ["batch", "99999999999"]),
    ("batch: 24", "batch: '24'", ["batch"]),
    ("batch: 24", "batch: 7", ["batch", "7", "shards", "8"]),
    ("batch: 24\n", "", ["batch"]),
    ("shards: 8", "shards: 5000", ["shards"]),
    ("epochs: 2", "epochs: 2\nsteps: 3", ["epochs", "steps"]),
    ("epochs: 2\n", "", ["epochs", "steps"]),
    ("name: mlp", "name: resnet", ["resnet", "resnet18"]),
    ("hidden: [32]", "batch_norm: true", ["batch_norm", "mlp"]),
    ("hidden: [32]", "hidden: {}", ["hidden", "list"]),
    ("hidden: [32]", "dropout: 1.0", ["dropout"]),
    ("name: test", "name: 'no spaces, please'", ["name"]),
    ("name: test", "name: test\nprecision: {policy: float8}", ["float8", "float32"]),
    ("name: test", "name: test\nprecision_bits: 3", ["precision_bits"]),
    ("name: test", "name: test\nworkers: {min: 4, max: 2}", ["workers"]),
    ("name: test", "name: test\nreduction: sum", ["sum", "exact"]),
    ("format: cifar10", "format: imagenet", ["imagenet", "cifar10"]),
    ("path: cifar10", "path: ../secrets", ["path", "../secrets"]),
    ("path: cifar10", "path: /etc", ["path", "/etc"]),
    ("learning_rate: 0.001", "learning_rate: -1", ["learning_rate"]),
    ("learning_rate: 0.001", "learning_rate: .nan", ["learning_rate"]),
    ("{adam: {learning_rate: 0.001}}", "{adam: {}, sgd: {}}", ["adam", "sgd"]),
    ("{adam: {learning_rate: 0.001}}", "{}", ["optimizer"]),
    ("{adam: {learning_rate: 0.001}}", "{adam: {}, clip: {global_norm: 0}}", ["clip.global_norm", "0"]),
    ("{adam: {learning_rate: 0.001}}", "{adam: {}, ema: {decay: 1}}", ["ema.decay", "1"]),
    ("{adam: {learning_rate: 0.001}}", "{lars: {}, weight_decay: {rate: 0.1, kind: l2}}", ["weight_decay.kind", "lars"]),
    ("{adam: {learning_rate: 0.001}}", "{adam: {}, schedule: {warmup: {over: {epochs: 2}}}}", ["warmup.over", "2 epochs"]),
    ("{adam: {learning_rate: 0.001}}", "{adam: {}, schedule: {steps: {at: [{epochs: 1.5}, {epochs: 1}]}}}", ["steps.at.1", "1.5 epochs"]),
    ("epochs: 2", "epochs: 2\nprecision: {policy: mixed_float16, initial_loss_scale: 1000}", ["1000", "power of two"]),
    ("epochs: 2", "epochs: 2\nprecision: {policy: mixed_float16, growth_steps: 0}", ["growth_steps"]),
    ("epochs: 2", "epochs: 2\nprecision: {policy: float32, initial_loss_scale: 8}", ["mixed_float16"]),
    ("epochs: 2", "epochs: 2\nvalidation: {split: 1.5}", ["validation.split", "1.5"]),
    ("epochs: 2", "epochs: 2\nvalidation: {fold: 6/5}", ["validation.fold", "6/5"]),
    ("epochs: 2", "epochs: 2\nvalidation: {split: 0.1, fold: 1/5}", ["split", "fold"]),
    ("epochs: 2", "epochs: 2\ncheckpoint: {best: accuracy}", ["accuracy", "SPLIT/METRIC", "test/accuracy"]),
    ("epochs: 2", "epochs: 2\ncheckpoint: {best: validation/loss}", ["validation"]),
    ("epochs: 2", "epochs: 2\ncheckpoint: {keep: 0}", ["keep"]),
    ("epochs: 2", "epochs: 2\naugment: [{random_brightness: {max_delta: 300}}]", ["max_delta", "300"]),
    ("epochs: 2", "epochs: 2\naugment: [{random_contrast: {lower: 2, upper: 1}}]", ["lower", "upper"]),
    ("epochs: 2", "epochs: 2\naugment: [{random_rotate: {}}]", ["random_rotate"]),
    ("path: cifar10", "path: cifar10, take: 0", ["take"]),
    ("path: cifar10", "path: cifar10, resize: [1, 2, 3]", ["resize"]),
    ("path: cifar10", "path: cifar10, resize: 100000", ["resize", "1024"]),
    ("path: cifar10", "path: cifar10, repeat_channels: 4", ["repeat_channels"]),
    ("format: cifar10", "format: mnits", ["mnits", "mnist"]),
    ("{name: mlp, hidden: [32]}", "{name: vgg, depth: 12}", ["12", "depth"]),
    ("{name: mlp, hidden: [32]}", "{name: vgg, hidden: [2]}", ["vgg", "hidden"]),
    ("name: test", "name: &a test\nx: *a", [":"]),
    ("name: test", "name: \x00test", [":"]),
    ("name: test", "name: [", [":"]),
    (GOOD_FILE, "", ["job-"]),
    (GOOD_FILE, "just a text", ["job-"]),
]

# Command lines of ringctl, their exit code, and what the message must say. {good} is a job file that is
# right, {data} a dataset, {new} a path that does not exist, {job} a job that succeeded.
BAD_COMMANDS = [
    ([], 2, ["--help"]),
    (["sumbit"], 2, ["sumbit", "submit"]),
    (["--wokers"], 2, ["--wokers"]),
    (["status"], 2, ["JOB"]),
    (["status", "{job}", "extra"], 1, ["there is no job extra"]),
    (["watch", "{job}", "extra"], 2, ["extra"]),
    (["status", "j999999"], 1, ["j999999"]),
    (["status", "../../etc"], 1, ["../../etc"]),
    (["ps", "-o", "xml"], 2, ["xml", "json"]),
    (["ps", "--coordinator", "nonsense"], 2, ["nonsense"]),
    (["ps", "--coordinator", "127.0.0.1:99999"], 2, ["99999"]),
    (["submit"], 2, ["FILE"]),
    (["submit", "{new}"], 2, ["{new}"]),
    (["submit", "{data}"], 2, ["{data}"]),
    (["submit", "{good}", "--set", "batch"], 2, ["batch"]),
    (["submit", "{good}", "--set", "model.name=resnet"], 2, ["resnet"]),
    (["submit", "{good}", "--idempotency-key", "x" * 200], 2, ["128"]),
    (["wait", "{job}", "--timeout", "soon"], 2, ["soon"]),
    (["wait", "{job}", "--timeout", "-5s"], 2, ["-5s"]),
    (["watch", "nope"], 1, ["nope"]),
    (["why", "nope"], 1, ["nope"]),
    (["events", "nope"], 1, ["nope"]),
    (["logs", "nope"], 1, ["nope"]),
    (["logs", "{job}", "--worker", "nobody"], 1, ["nobody"]),
    (["cancel", "{job}"], 1, ["{job}"]),
    (["remove", "nope"], 1, ["nope"]),
    (["checkpoint"], 2, ["checkpoint"]),
    (["checkpoint", "lss", "{job}"], 2, ["lss"]),
    (["checkpoint", "get", "{job}", "{new}", "--step", "77"], 1, ["77"]),
    (["checkpoint", "get", "{job}", "{good}"], 1, ["{good}"]),
    (["dataset", "make", "png", "{new}"], 2, ["png", "cifar10"]),
    (["dataset", "make", "cifar10", "{new}", "--train", "0"], 2, ["0"]),
    (["dataset", "make", "cifar10", "{new}", "--train", "-1"], 2, ["-1"]),
    (["dataset", "make", "cifar10", "{data}"], 1, ["{data}"]),
    (["dataset", "stat", "{new}"], 1, ["{new}"]),
    (["dataset", "verify", "{new}"], 1, ["{new}"]),
    (["dataset", "verify", "{data}", "--format", "tiff"], 2, ["tiff"]),
    (["dataset", "verify", "{data}", "--sha256", "{data}"], 2, ["folder"]),
    (["model", "summary", "resnet"], 2, ["resnet"]),
    (["model", "summary", "vgg", "--option", "depth=12"], 2, ["12"]),
    (["model", "summary", "vgg", "--input", "8x8x3"], 2, ["32"]),
    (["model", "summary", "mlp", "--input", "big"], 2, ["big"]),
    (["run", "mlp", "--data", "cifar:digits", "--batch", "8"], 2, ["cifar", "cifar10, cifar100, mnist, npy, npz, image_folder, tfrecord, webdataset, tokens, csv"]),
    (["run", "mpl", "--data", "cifar10:cifar10", "--batch", "8"], 2, ["mpl", "mlp"]),
    (["run", "mlp", "--data", "cifar10:cifar10", "--batch", "0"], 2, ["batch"]),
    (["init", "{good}"], 1, ["{good}"]),
    (["plan", "{new}"], 2, ["{new}"]),
    (["plan", "{data}"], 2, ["{data}", "folder"]),
    (["plan", "{good}", "--memory-per-core", "much"], 2, ["--memory-per-core", "much"]),
    (["plan", "{good}", "--set", "batch=0"], 2, ["batch: expected at least 1, got 0"]),
    (["plan", "{good}", "--device", "abacus"], 2, ["abacus", "cuda:INDEX"]),
    (["plan", "{good}", "--cores", "1", "--memory-per-core", "1MiB"], 1, ["does not fit"]),
    (["plan", "{good}", "--profile", "{new}"], 2, ["profile", "{new}"]),
    (["plan", "{good}", "--profile", "{good}"], 2, ["{good}"]),
    (["plan", "{good}", "--profile", "{new}", "--cores", "1"], 2, ["--profile {new}", "--cores"]),
    (["plan", "{good}", "--cluster", "--cores", "1"], 2, ["--cluster", "--cores"]),
    (["tune", "{new}"], 2, ["{new}"]),
    (["tune", "{data}"], 2, ["{data}", "folder"]),
    (["tune", "{good}", "--samples", "many"], 2, ["many"]),
    (["tune", "{good}", "--device", "abacus"], 2, ["abacus", "cuda:INDEX"]),
    (["tune", "{good}", "--device", "cpu", "--table", "{new}"], 1, ["nothing to tune"]),
    (["completion", "fish"], 2, ["fish", "bash"]),
]

# Flags of the daemons, program first, added to the ones that it must have; all end with exit code 2.
MUST = {
    "ringmaster": ["--listen", "127.0.0.1:0", "--data-dir", "{new}"],
    "ringworker": ["--coordinator", "127.0.0.1:1", "--data-root", "{data}", "--state-dir", "{new}"],
}
BAD_FLAGS = [
    (["ringmaster", "--listen", "nonsense"], ["nonsense"]),
    (["ringmaster", "--socket-group", "nobody"], ["--socket-group nobody", "--socket"]),
    (["ringmaster", "--certificate-life", "5s"], ["--certificate-life 5s", "30s"]),
    (["ringmaster", "--authority-overlap", "300h"], ["--authority-overlap 300h", "14 days"]),
    (["ringmaster", "--worker-lease", "0"], ["--worker-lease 0", "300ms"]),
    (["ringmaster", "--worker-lease-sm", "5"], ["--worker-lease-sm"]),
    (["ringworker", "--cores", "0"], ["cores"]),
    (["ringworker", "--device", "abacus"], ["abacus", "cuda:INDEX"]),
    (["ringworker", "--memory-per-core", "8XB"], ["8XB"]),
    (["ringworker", "--cpus", "3-1"], ["3-1"]),
    (["ringworker", "--listen", "0.0.0.0:0"], ["--advertise"]),
    (["ringworker", "--join", "rm1/nonsense"], ["--join"]),
    (["ringworker", "--name", "no spaces, please"], ["name"]),
    (["ringworker", "--log-spool", "many"], ["many"]),
    (["ringworker", "--coordinator", "nowhere"], ["nowhere"]),
]


def cuts(content, count, seed):
    """(what was done, the file cut at a random place): `count` of them."""
    places = random.Random(seed)
    for _ in range(count):
        size = places.randrange(len(content))
        yield f"cut to {size} bytes", content[:size]


def flips(content, first, last, count, seed):
    """(what was done, the file with one bit flipped at a random place of [first, last))."""
    places = random.Random(seed)
    for _ in range(count):
        at, bit = places.randrange(first, last), places.randrange(8)
        broken = bytearray(content)
        broken[at] ^= 1 << bit
        yield f"bit {bit} of byte {at} flipped", bytes(broken)
