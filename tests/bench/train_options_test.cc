#include "bench/training/train_options.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <initializer_list>

#include "common/job/job_file.h"
#include "common/job/resolve.h"

namespace ringmaster::bench {
namespace {

ParsedTrainOptions Parse(std::initializer_list<const char*> arguments) {
  std::vector<const char*> argv = {"train_speed"};
  argv.insert(argv.end(), arguments.begin(), arguments.end());
  return ParseTrainOptions(static_cast<int>(argv.size()), argv.data());
}

TEST_CASE("TrainOptions: one case, with a shard for each core unless it says otherwise") {
  const ParsedTrainOptions plain = Parse({});
  REQUIRE_FALSE(plain.exit);
  CHECK(plain.options.cases == std::vector<TrainCase>{{256, 1, "float32"}});
  CHECK(plain.options.seconds == 0);
  const ParsedTrainOptions parsed = Parse({"--model",       "vgg",
                                           "--batch",       "64",
                                           "--policy",      "mixed_bfloat16",
                                           "--cores",       "2",
                                           "--threads",     "3",
                                           "--device",      "cuda",
                                           "--steps",       "7",
                                           "--warm-up",     "2",
                                           "--set",         "model.depth=11",
                                           "--set",         "model.dropout=0",
                                           "--peak-tflops", "2.5",
                                           "--json"});
  REQUIRE_FALSE(parsed.exit);
  const TrainOptions& options = parsed.options;
  CHECK(options.cases == std::vector<TrainCase>{{64, 2, "mixed_bfloat16"}});
  CHECK(options.model == "vgg");
  CHECK(options.device == "cuda");
  CHECK(options.threads == 3);
  CHECK(options.steps == 7);
  CHECK(options.warm_up == 2);
  CHECK(options.sets == std::vector<std::string>{"model.depth=11", "model.dropout=0"});
  CHECK(options.peak_tflops == 2.5);
  CHECK(options.json);
  CHECK(Parse({"--cores", "2", "--shards", "8"}).options.cases[0].shards == 8);
}

TEST_CASE("TrainOptions: a kernel table is read, or first tuned") {
  CHECK(Parse({}).options.kernel_table.empty());
  const TrainOptions read = Parse({"--kernel-table", "t.txt"}).options;
  CHECK(read.kernel_table == "t.txt");
  CHECK_FALSE(read.tune);
  const TrainOptions tuned = Parse({"--tune", "t.txt"}).options;
  CHECK(tuned.kernel_table == "t.txt");
  CHECK(tuned.tune);
  CHECK(tuned.tune_seconds == 480);
  CHECK(Parse({"--keep", "here"}).options.keep == "here");
  CHECK(Parse({"--tune", "t.txt", "--tune-seconds", "60"}).options.tune_seconds == 60);
  CHECK(Parse({"--tune", "t.txt", "--kernel-table", "u.txt"}).exit_code == 2);
  CHECK(Parse({"--tune-seconds", "60"}).exit_code == 2);
}

TEST_CASE("TrainOptions: a sweep has every batch in both policies, and one in 8 shards") {
  const ParsedTrainOptions parsed = Parse({"--sweep", "--device", "cuda"});
  REQUIRE_FALSE(parsed.exit);
  const std::vector<TrainCase>& cases = parsed.options.cases;
  CHECK(cases == SweepCases());
  CHECK(cases.size() == 14);
  CHECK(std::ranges::count_if(cases, [](const TrainCase& one) { return one.shards == 8; }) == 2);
  CHECK(std::ranges::count(cases, TrainCase{50000, 1, "float32"}) == 1);
  CHECK(std::ranges::count(cases, TrainCase{256, 1, "mixed_bfloat16"}) == 1);
  CHECK(parsed.options.seconds == 15);
  CHECK(Parse({"--sweep", "--seconds", "3"}).options.seconds == 3);
  CHECK(Parse({"--sweep", "--seconds", "0"}).options.seconds == 0);
}

TEST_CASE("TrainOptions: what cannot work is a usage error before anything starts") {
  CHECK(Parse({"--nonsense"}).exit_code == 2);
  CHECK(Parse({"--batch", "0"}).exit_code == 2);
  CHECK(Parse({"--cores", "0"}).exit_code == 2);
  CHECK(Parse({"--steps", "0"}).exit_code == 2);
  CHECK(Parse({"--warm-up", "0"}).exit_code == 2);
  CHECK(Parse({"--policy", "bfloat16"}).exit_code == 2);
  CHECK(Parse({"--peak-tflops", "0"}).exit_code == 2);
  CHECK(Parse({"--sweep", "--batch", "64"}).exit_code == 2);
  CHECK(Parse({"--sweep", "--policy", "float32"}).exit_code == 2);
  const ParsedTrainOptions help = Parse({"--help"});
  CHECK(help.exit);
  CHECK(help.exit_code == 0);
}

TEST_CASE("TrainOptions: the job file is a valid one, also after --set") {
  TrainOptions options = Parse({"--batch", "64", "--steps", "30", "--warm-up", "3"}).options;
  options.sets = {"model.batch_norm=true"};
  const std::string text = JobFile(options, options.cases[0], 2048);
  const auto spec = job::ParseJobFile("train_speed", text, options.sets);
  REQUIRE(Message(spec.status()) == "");
  REQUIRE(Message(job::Validate(*spec)) == "");
  CHECK(spec->model().options(0).b());
  CHECK(spec->batch() == 64);
  CHECK(spec->shards() == 1);
  CHECK(spec->steps() == 33);
  CHECK(spec->data().take() == 2048);
  CHECK(spec->precision().policy() == v1::POLICY_FLOAT32);
}

}  // namespace
}  // namespace ringmaster::bench
