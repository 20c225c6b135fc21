#include <cstdlib>
#include <filesystem>
#include <initializer_list>
#include <sstream>

#include <sys/stat.h>
#include <catch2/catch.hpp>

#include "common/data/sample_data.h"
#include "common/job/job_file.h"
#include "tests/support/temporary_folder.h"
#include "worker/backend/plugin.h"
#include "worker/tune.h"

namespace ringmaster::worker {
namespace {

ParsedTuneFlags ParseTune(const std::vector<const char*>& arguments) {
  std::vector<const char*> words = {"tune"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  return ParseTuneFlags(static_cast<int>(words.size()), words.data());
}

TEST_CASE("TuneFlags: a job file is enough") {
  unsetenv("RINGMASTER_DEVICE");
  unsetenv("RINGMASTER_KERNEL_TABLE");
  const ParsedTuneFlags parsed = ParseTune({"job.yaml"});
  REQUIRE_FALSE(parsed.exit);
  CHECK(parsed.flags.job_file == "job.yaml");
  CHECK(parsed.flags.device.kind == "cuda");
  CHECK_FALSE(parsed.flags.device.index);
  CHECK(parsed.flags.samples.empty());
  CHECK(parsed.flags.table == "kernel_table.txt");
  CHECK(parsed.flags.gradient_bits == GradientBits::kKept);
  CHECK(parsed.flags.seconds == 540);
}

TEST_CASE("TuneFlags: all of them are understood") {
  const ParsedTuneFlags parsed = ParseTune(
      {"--device", "cuda:1", "--samples", "32,64", "job.yaml", "--set", "batch=4", "--set",
       "shards=2", "--table", "t.txt", "--data-root", "/data", "--seconds", "7.5", "--narrow"});
  REQUIRE_FALSE(parsed.exit);
  CHECK(parsed.flags.job_file == "job.yaml");
  CHECK(parsed.flags.device.index == 1U);
  CHECK(parsed.flags.samples == std::vector<uint32_t>{32, 64});
  CHECK(parsed.flags.overrides == std::vector<std::string>{"batch=4", "shards=2"});
  CHECK(parsed.flags.table == "t.txt");
  CHECK(parsed.flags.data_root == "/data");
  CHECK(parsed.flags.gradient_bits == GradientBits::kMayBeRounded);
  CHECK(parsed.flags.seconds == 7.5);
}

TEST_CASE("TuneFlags: the table that workers read is the one that is written") {
  setenv("RINGMASTER_KERNEL_TABLE", "/etc/table.txt", 1);
  CHECK(ParseTune({"job.yaml"}).flags.table == "/etc/table.txt");
  CHECK(ParseTune({"job.yaml", "--table", "t.txt"}).flags.table == "t.txt");
  unsetenv("RINGMASTER_KERNEL_TABLE");
}

TEST_CASE("TuneFlags: what is wrong ends with exit code 2") {
  const std::vector<std::vector<const char*>> cases = {
      {},
      {"job.yaml", "--samples", "0"},
      {"job.yaml", "--samples", "-1"},
      {"job.yaml", "--samples", "4,many"},
      {"job.yaml", "--seconds", "-1"},
      {"job.yaml", "--device", "abacus"},
      {"job.yaml", "--cores", "2"},
      {"job.yaml", "other.yaml"},
  };
  for (const auto& words : cases) {
    const ParsedTuneFlags parsed = ParseTune(words);
    CHECK(parsed.exit);
    CHECK(parsed.exit_code == 2);
  }
}

using Catch::Matchers::Contains;

// batch 16 in 3 shards: 5 or 6 samples each.
constexpr char kSmallJob[] =
    "name: small\nmodel: {name: mlp, hidden: [4]}\ndata: {format: mnist, path: digits}\n"
    "batch: 16\nshards: 3\nepochs: 1\noptimizer: {sgd: {}}\n";

TuneSubject SubjectWith(const std::vector<std::string>& overrides,
                        const TuneSubjectOptions& options = {}) {
  const auto spec = job::ParseJobFile("job.yaml", kSmallJob, overrides);
  REQUIRE(Message(spec.status()) == "");
  auto subject = TuneSubjectOf(*spec, options);
  REQUIRE(Message(subject.status()) == "");
  return *std::move(subject);
}

// training 5 6, evaluation 5: as T5 T6 E5.
std::string Shapes(const TuneSubject& subject) {
  std::string text;
  for (const ProgramSet& set : subject.programs) {
    for (const auto& [shape, program] : set.programs()) {
      CHECK(program.samples == static_cast<int64_t>(shape.samples));
      const char* const mode = shape.mode == graph::Mode::kTraining ? "T" : "E";
      text += fmt::format("{}{}{}", text.empty() ? "" : " ", mode, shape.samples);
    }
  }
  return text;
}

TEST_CASE("TuneSubject: without a dataset full batches, and a note that says what is left out") {
  const TuneSubject subject = SubjectWith({});
  CHECK(Shapes(subject) == "T5 T6 E5 E6");
  CHECK(subject.title == "small: mlp in float32, of image 28x28x1, label below 10");
  CHECK_THAT(subject.note, Contains("--data-root") && Contains("data.take_test"));
}

TEST_CASE("TuneSubject: numbers of samples in the job file tell the last batches too") {
  // 16 + 8 training samples, 7 test samples.
  const TuneSubject subject = SubjectWith({"data.take=24", "data.take_test=7"});
  CHECK(Shapes(subject) == "T2 T3 T5 T6 E2 E3");
  CHECK(subject.note.empty());
  CHECK_FALSE(SubjectWith({"data.take=24"}).note.empty());
}

TEST_CASE("TuneSubject: a validation set has its shards, also when its size is not known") {
  // 24 - 4 = 16 + 4 training samples; validation 4; test 16.
  CHECK(Shapes(SubjectWith({"data.take=24", "data.take_test=16", "validation.fold=1/6"})) ==
        "T1 T2 T5 T6 E1 E2 E5 E6");
  const TuneSubject unknown =
      SubjectWith({"data.take_test=1", "validation.split=0.1", "checkpoint.best=validation/loss"});
  CHECK(Shapes(unknown) == "T5 T6 E1 E5 E6");
}

TEST_CASE("TuneSubject: the dataset tells all shapes where there is one") {
  const TemporaryFolder root;
  REQUIRE(data::MakeSampleData(root / "digits", {.format = "mnist", .train = 24, .test = 7}).ok());
  const TuneSubject subject = SubjectWith({}, {.samples = {}, .data_root = root.path()});
  CHECK(Shapes(subject) == "T2 T3 T5 T6 E2 E3");
  CHECK(subject.note.empty());
}

TEST_CASE("TuneSubject: a dataset that is named and not there is an error") {
  const TemporaryFolder root;
  const auto spec = job::ParseJobFile("job.yaml", kSmallJob, {});
  REQUIRE(spec.ok());
  const auto subject = TuneSubjectOf(*spec, {.samples = {}, .data_root = root.path()});
  CHECK_THAT(Message(subject.status()), Contains("digits"));
}

TEST_CASE("TuneSubject: given samples are those of a shard, each once") {
  const TuneSubject subject =
      SubjectWith({"validation.split=0.5"}, {.samples = {9, 4, 9}, .data_root = ""});
  CHECK(Shapes(subject) == "T4 E4 T9 E9");
  CHECK(subject.note.empty());
}

TEST_CASE("TuneSubject: model, policy and images are those of the job") {
  const TuneSubject subject = SubjectWith(
      {"model={name: vgg, depth: 11}", "data={format: cifar100, path: c, resize: [64, 32]}",
       "precision.policy=mixed_bfloat16"},
      {.samples = {1}, .data_root = ""});
  CHECK(subject.title == "small: vgg in mixed_bfloat16, of image 64x32x3, label below 100");
  CHECK(Shapes(subject) == "T1 E1");
}

using Catch::Matchers::Contains;

constexpr char kJob[] =
    "name: small\nmodel: {name: mlp, hidden: [4]}\ndata: {format: mnist, path: digits}\n"
    "batch: 16\nepochs: 1\noptimizer: {sgd: {}}\n";

// The library that was built beside this test as libtest_plugin_NAME.so.
std::unique_ptr<Backend> Plugin(const std::string& name) {
  const auto folder = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  auto backend = LoadBackend({(folder / ("libtest_plugin_" + name + ".so")).string()});
  REQUIRE(Message(backend.status()) == "");
  return *std::move(backend);
}

TuneSubject Subject(const std::vector<uint32_t>& samples) {
  const auto spec = job::ParseJobFile("job.yaml", kJob, {});
  REQUIRE(spec.ok());
  auto subject = TuneSubjectOf(*spec, {.samples = samples, .data_root = ""});
  REQUIRE(subject.ok());
  return *std::move(subject);
}

std::vector<std::string> Names(const TemporaryFolder& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    names.push_back(entry.path().filename().string());
  }
  return names;
}

// Remembers what the file held when each row was reported.
class TableWatch : public std::stringbuf {
 public:
  explicit TableWatch(std::string path) : path_(std::move(path)) {}
  std::vector<std::string> contents;

 protected:
  int sync() override {
    contents.push_back(ReadWhole(path_));
    return std::stringbuf::sync();
  }

 private:
  const std::string path_;
};

TEST_CASE("Tune: the table is written, readable for everybody, and a line says each row") {
  const TemporaryFolder folder;
  const std::string path = folder / "table.txt";
  std::ostringstream out;
  REQUIRE(TunePrograms(Subject({4}), {}, path, Plugin("tunes").get(), out).ok());
  CHECK(ReadWhole(path) == "training 4\nevaluation 4\n");
  CHECK(Names(folder) == std::vector<std::string>{"table.txt"});
  struct stat facts = {};
  REQUIRE(stat(path.c_str(), &facts) == 0);
  CHECK((facts.st_mode & 0777) == 0644);
  CHECK(out.str() ==
        "small: mlp in float32, of image 28x28x1, label below 10, on an abacus\n"
        "training, 4 samples a shard:\n"
        "        1.5 us,       4.0 us untuned,   2 candidates: add training 4\n"
        "evaluation, 4 samples a shard:\n"
        "        1.5 us,       4.0 us untuned,   2 candidates: add evaluation 4\n" +
            path + ": 2 new rows\n");
}

TEST_CASE("Tune: rows that are there are kept, and only missing ones are timed") {
  const TemporaryFolder folder;
  const std::string path = folder / "table.txt";
  WriteWhole(path, "by hand\ntraining 4\n");
  std::ostringstream out;
  const auto backend = Plugin("tunes");
  REQUIRE(TunePrograms(Subject({4}), {}, path, backend.get(), out).ok());
  CHECK(ReadWhole(path) == "by hand\ntraining 4\nevaluation 4\n");
  CHECK_THAT(out.str(), Contains("training, 4 samples a shard:\n  no row was missing\n") &&
                            Contains("table.txt: 1 new rows\n"));
}

TEST_CASE("Tune: a table that lacks nothing stays the same file") {
  const TemporaryFolder folder;
  const std::string path = folder / "table.txt";
  WriteWhole(path, "training 4\nevaluation 4\n");
  struct stat before = {}, after = {};
  REQUIRE(stat(path.c_str(), &before) == 0);
  std::ostringstream out;
  REQUIRE(TunePrograms(Subject({4}), {}, path, Plugin("tunes").get(), out).ok());
  REQUIRE(stat(path.c_str(), &after) == 0);
  CHECK(before.st_ino == after.st_ino);
  CHECK_THAT(out.str(), Contains("table.txt: 0 new rows\n"));
}

TEST_CASE("Tune: the file is replaced after every row, never written into") {
  const TemporaryFolder folder;
  const std::string path = folder / "table.txt";
  WriteWhole(path, "by hand\n");
  const std::string reader = folder / "reader";  // as a worker that has the first one open
  std::filesystem::create_hard_link(path, reader);
  TableWatch watch(path);
  std::ostream out(&watch);
  REQUIRE(TunePrograms(Subject({4}), {}, path, Plugin("tunes").get(), out).ok());
  CHECK(ReadWhole(reader) == "by hand\n");
  // Title, then a line and a row for each program, then the last line.
  REQUIRE(watch.contents.size() == 6);
  CHECK(watch.contents[1] == "by hand\n");
  CHECK(watch.contents[2] == "by hand\ntraining 4\n");
  CHECK(watch.contents[3] == "by hand\ntraining 4\n");
  CHECK(watch.contents[4] == "by hand\ntraining 4\nevaluation 4\n");
  CHECK(watch.contents[5] == "by hand\ntraining 4\nevaluation 4\n");
}

TEST_CASE("Tune: what was found before an error is kept") {
  const TemporaryFolder folder;
  const std::string path = folder / "table.txt";
  std::ostringstream out;
  const TuneOptions options = {.device = 1};
  const Status status = TunePrograms(Subject({4, 8}), options, path, Plugin("tunes").get(), out);
  CHECK(Message(status) == path + ": a bead is missing for evaluation 4");
  CHECK(ReadWhole(path) == "training 4\nevaluation 4\n");
}

TEST_CASE("Tune: what is not reached in time has no row, and is said") {
  const TemporaryFolder folder;
  std::ostringstream out;
  const TuneOptions options = {.seconds = 1e-6};
  REQUIRE(TunePrograms(Subject({4}), options, folder / "t", Plugin("tunes").get(), out).ok());
  CHECK(ReadWhole(folder / "t") == "training 4\n");
  CHECK_THAT(out.str(), Contains("  time is up: add evaluation 4\n") &&
                            Contains("/t: 1 new rows; 1 kernels have none yet\n"));
}

TEST_CASE("Tune: programs that evaluate may be left out") {
  const TemporaryFolder folder;
  std::ostringstream out;
  TuneSubject subject = Subject({4});
  subject.evaluation = false;
  REQUIRE(TunePrograms(subject, {}, folder / "t", Plugin("tunes").get(), out).ok());
  CHECK(ReadWhole(folder / "t") == "training 4\n");
}

TEST_CASE("Tune: what may be rounded is the backend's to know") {
  const TemporaryFolder folder;
  std::ostringstream out;
  const TuneOptions options = {.gradient_bits = GradientBits::kMayBeRounded};
  REQUIRE(TunePrograms(Subject({4}), options, folder / "t", Plugin("tunes").get(), out).ok());
  CHECK(ReadWhole(folder / "t") == "training 4 narrow\nevaluation 4 narrow\n");
}

TEST_CASE("Tune: a table that cannot be written is an error before anything is timed") {
  const TemporaryFolder folder;
  std::ostringstream out;
  const auto backend = Plugin("tunes");
  const auto tune = [&](const std::string& path) {
    return Message(TunePrograms(Subject({4}), {}, path, backend.get(), out));
  };
  CHECK(tune(folder / "none/t") == "kernel table " + folder / "none/t" +
                                       " cannot be written: folder " + folder / "none" +
                                       ": No such file or directory");
  CHECK(tune(folder.path()) == "cannot read kernel table " + folder.path() + ": it is a folder");
  CHECK(out.str().empty());
}

TEST_CASE("Tune: a backend without a table says so, loaded or not") {
  const TemporaryFolder folder;
  const auto cpu = MakeBackend("cpu");
  REQUIRE(cpu.ok());
  std::ostringstream out;
  const auto tune = [&](Backend* backend) {
    return TunePrograms(Subject({4}), {}, folder / "t", backend, out);
  };
  CHECK(absl::IsUnimplemented(tune(cpu->get())));
  CHECK(Message(tune(cpu->get())) == "the cpu backend has no kernel table: nothing to tune");
  CHECK(Message(tune(Plugin("two_devices").get())) ==
        "the abacus backend has no kernel table: nothing to tune");
  CHECK(Names(folder).empty());
}

int Main(std::vector<const char*> words) {
  words.insert(words.begin(), "tune");
  return TuneMain(static_cast<int>(words.size()), words.data());
}

TEST_CASE("Tune: exit codes tell a wrong job file from a host that cannot") {
  const TemporaryFolder folder;
  const std::string good = folder / "good.yaml", bad = folder / "bad.yaml";
  const std::string table = folder / "table.txt";
  WriteWhole(good, kJob);
  WriteWhole(bad, std::string(kJob) + "btach: 3\n");
  CHECK(Main({bad.c_str(), "--table", table.c_str()}) == 2);
  CHECK(Main({good.c_str(), "--set", "batch=0", "--table", table.c_str()}) == 2);
  CHECK(Main({(folder / "none.yaml").c_str(), "--table", table.c_str()}) == 2);
  CHECK(Main({good.c_str(), "--device", "cpu", "--table", table.c_str()}) == 1);
  setenv("RINGMASTER_CUDA_LIBRARY", "/nowhere/libringmaster_cuda.so", 1);
  CHECK(Main({good.c_str(), "--device", "cuda", "--table", table.c_str()}) == 1);
  unsetenv("RINGMASTER_CUDA_LIBRARY");
  CHECK_FALSE(std::filesystem::exists(table));
}

}  // namespace

}  // namespace ringmaster::worker
