#include "common/job/job_file.h"

#include <google/protobuf/util/message_differencer.h>
#include <catch2/catch.hpp>

#include <random>

#include "common/yaml/yaml_tree.h"

namespace ringmaster::job {
namespace {

using google::protobuf::util::MessageDifferencer;

constexpr char kAlexnet[] = R"(name: alexnet-cifar10
model: {name: alexnet, batch_norm: true, dropout: 0.2}
data: {format: cifar10, path: cifar10}  # relative to the worker's --data-root
batch: 256
shards: 8                               # default: min(8, batch)
epochs: 3                               # or steps: N
seed: 1
precision: {policy: mixed_bfloat16}
optimizer: {adam: {learning_rate: 0.001}}
augment: [{random_crop: {padding: 4}}, {random_flip: {}}, {per_image_standardization: {}}]
workers: {min: 1, max: 8}
checkpoint: {every_steps: 100, keep: 3}
reduction: exact                        # default; float32 for comparison
precision_bits: 21                      # default; of the exact reduction
)";

v1::JobSpec Parsed(const std::string& text, const std::vector<std::string>& overrides = {}) {
  const StatusOr<v1::JobSpec> spec = ParseJobFile("job.yaml", text, overrides);
  INFO(spec.status());
  REQUIRE(spec.ok());
  return *spec;
}

std::string ParseError(const std::string& text, const std::vector<std::string>& overrides = {}) {
  const StatusOr<v1::JobSpec> spec = ParseJobFile("job.yaml", text, overrides);
  if (spec.ok()) return "accepted";
  CHECK(spec.status().code() == absl::StatusCode::kInvalidArgument);
  return Message(spec.status());
}

TEST_CASE("Job file: every key of the documented example is read") {
  const v1::JobSpec spec = Parsed(kAlexnet);
  CHECK(spec.name() == "alexnet-cifar10");
  CHECK(spec.model().name() == "alexnet");
  REQUIRE(spec.model().options_size() == 2);
  CHECK(spec.model().options(0).name() == "batch_norm");
  CHECK(spec.model().options(0).b());
  CHECK(spec.model().options(1).f() == 0.2);
  CHECK(spec.data().format() == "cifar10");
  CHECK(spec.data().path() == "cifar10");
  CHECK(spec.batch() == 256);
  CHECK(spec.shards() == 8);
  CHECK(spec.epochs() == 3);
  CHECK_FALSE(spec.has_steps());
  CHECK(spec.seed() == 1);
  CHECK(spec.precision().policy() == v1::POLICY_MIXED_BFLOAT16);
  CHECK(spec.optimizer().adam().learning_rate() == 0.001);
  CHECK_FALSE(spec.optimizer().adam().has_beta_1());
  REQUIRE(spec.augment_size() == 3);
  CHECK(spec.augment(0).random_crop().padding() == 4);
  CHECK(spec.augment(1).has_random_flip());
  CHECK(spec.augment(2).has_per_image_standardization());
  CHECK(spec.workers().min() == 1);
  CHECK(spec.workers().max() == 8);
  CHECK(spec.checkpoint().every_steps() == 100);
  CHECK(spec.checkpoint().keep() == 3);
  CHECK(spec.reduction() == v1::REDUCTION_EXACT);
  CHECK(spec.precision_bits() == 21);
}

TEST_CASE("Job file: a plain list fills a list message, and empty differs from absent") {
  CHECK_FALSE(Parsed("data: {path: p}").data().has_resize());
  const v1::JobSpec empty = Parsed("data: {resize: []}");
  CHECK(empty.data().has_resize());
  CHECK(empty.data().resize().values_size() == 0);
  const v1::JobSpec two = Parsed("data:\n  resize:\n    - 2048\n    - 10\n");
  REQUIRE(two.data().resize().values_size() == 2);
  CHECK(two.data().resize().values(1) == 10);
}

TEST_CASE("Job file: an option of a model is read as what it is of that model") {
  CHECK(Parsed("model: {name: mlp}").model().options_size() == 0);
  const v1::Attribute empty = Parsed("model: {name: mlp, hidden: []}").model().options(0);
  CHECK(empty.has_ints());
  CHECK(empty.ints().values_size() == 0);
  CHECK(Parsed("model: {name: mlp, hidden: 3}").model().options(0).ints().values(0) == 3);
  CHECK(Parsed("model: {name: mlp, dropout: 0}").model().options(0).has_f());
  CHECK(Parsed("model: {name: vgg}", {"model.depth=19"}).model().options(0).i() == 19);
  CHECK(ParseError("model: {name: vgg, depht: 19}") ==
        "job.yaml:1:20: model vgg: unknown option \"depht\"; did you mean \"depth\"?");
  CHECK(ParseError("model: {name: vgg, depth: 12}") ==
        "job.yaml:1:27: depth: expected whole number, 11, 13, 16, 19, got \"12\"");
  CHECK(ParseError("model: {name: mlp, dropout: 1}") ==
        "job.yaml:1:29: dropout: expected number, at least 0, under 1, got \"1\"");
}

TEST_CASE("Job file: unknown keys name the place and the nearest known key") {
  CHECK(ParseError("name: a\nbtach: 4\n") ==
        "job.yaml:2:1: unknown key \"btach\"; did you mean \"batch\"?");
  CHECK(ParseError("name: a\noptimizer:\n  adam:\n    learning_rat: 1\n") ==
        "job.yaml:4:5: unknown key \"learning_rat\"; did you mean \"learning_rate\"?");
  CHECK(ParseError("augment: [{random_flip: {p: 1}}]") ==
        "job.yaml:1:26: unknown key \"p\"; there are no keys here: write {}");
  CHECK(ParseError("optimizer: {ftrl: {}}") ==
        "job.yaml:1:13: unknown key \"ftrl\"; the keys here are sgd, adam, rmsprop, lars, lamb, "
        "torch_sgd, torch_adam, torch_rmsprop, "
        "schedule, weight_decay, clip, ema, groups");
  CHECK_THAT(ParseError("<<: {name: a}"),
             Catch::StartsWith("job.yaml:1:1: unknown key \"<<\"; the keys here are name, model"));
}

TEST_CASE("Job file: duplicate keys are refused at any depth") {
  CHECK(ParseError("batch: 4\nname: a\nbatch: 8\n") ==
        "job.yaml:3:1: duplicate key \"batch\"; first at job.yaml:1:1");
  CHECK(ParseError("model: {name: mlp, name: alexnet}") ==
        "job.yaml:1:20: duplicate key \"name\"; first at job.yaml:1:9");
}

TEST_CASE("Job file: a oneof is given once") {
  CHECK(ParseError("optimizer: {adam: {}, sgd: {}}") ==
        "job.yaml:1:23: both \"adam\" and \"sgd\" are given; only one is allowed");
  CHECK(ParseError("epochs: 1\nsteps: 2") ==
        "job.yaml:2:1: both \"epochs\" and \"steps\" are given; only one is allowed");
  CHECK(ParseError("augment: [{random_flip: {}, random_crop: {}}]") ==
        "job.yaml:1:29: both \"random_flip\" and \"random_crop\" are given; only one is allowed");
}

TEST_CASE("Job file: a value has the type of its field") {
  CHECK(ParseError("batch: many") == "job.yaml:1:8: batch: expected a whole number, got \"many\"");
  CHECK(ParseError("batch: \"256\"") ==
        "job.yaml:1:8: batch: expected a whole number, got \"256\"");
  CHECK(ParseError("batch: 2.5") == "job.yaml:1:8: batch: expected a whole number, got \"2.5\"");
  CHECK(ParseError("batch: 1e3") == "job.yaml:1:8: batch: expected a whole number, got \"1e3\"");
  CHECK(ParseError("batch: 010") == "job.yaml:1:8: batch: expected a whole number, got \"010\"");
  CHECK(ParseError("batch: 0x10") == "job.yaml:1:8: batch: expected a whole number, got \"0x10\"");
  CHECK(ParseError("batch:\n") == "job.yaml:1:1: batch: expected a whole number, got nothing");
  CHECK(ParseError("batch: [4]") == "job.yaml:1:8: batch: expected a whole number, got a list");
  CHECK(ParseError("name: {a: b}") == "job.yaml:1:7: name: expected a string, got a mapping");
  CHECK(ParseError("model: alexnet") == "job.yaml:1:8: model: expected a mapping, got \"alexnet\"");
  CHECK(ParseError("model:\n") ==
        "job.yaml:1:1: model: expected a mapping (an empty one is {}), got nothing");
  CHECK(ParseError("model: {name: vgg, batch_norm: yes}") ==
        "job.yaml:1:32: batch_norm: expected true or false, got \"yes\"");
  CHECK(ParseError("model: {name: vgg, dropout: .nan}") ==
        "job.yaml:1:29: dropout: expected number, at least 0, under 1, got \".nan\"");
  CHECK(ParseError("model: {name: vgg, dropout: inf}") ==
        "job.yaml:1:29: dropout: expected number, at least 0, under 1, got \"inf\"");
  CHECK(ParseError("model: {name: mlp, hidden: {}}") ==
        "job.yaml:1:28: hidden: expected list of whole numbers, 1 to 65536, got a mapping");
  CHECK(ParseError("model: {name: mlp, hidden: [3, x]}") ==
        "job.yaml:1:32: hidden: expected a whole number, got \"x\"");
  CHECK(ParseError("augment: {random_flip: {}}") ==
        "job.yaml:1:10: augment: expected a list, got a mapping");
  CHECK(ParseError("augment: [random_flip]") ==
        "job.yaml:1:11: augment: expected a mapping, got \"random_flip\"");
  CHECK(ParseError("- a") == "job.yaml:1:1: job: expected a mapping, got a list");
  CHECK(ParseError("job") == "job.yaml:1:1: job: expected a mapping, got \"job\"");
}

TEST_CASE("Job file: numbers out of the field's range are refused") {
  CHECK(ParseError("batch: -1") == "job.yaml:1:8: batch: -1 is not in 0 to 4294967295");
  CHECK(ParseError("batch: 4294967296") ==
        "job.yaml:1:8: batch: 4294967296 is not in 0 to 4294967295");
  CHECK(Parsed("batch: 4294967295").batch() == 4294967295U);
  CHECK(Parsed("seed: 18446744073709551615").seed() == 18446744073709551615U);
  CHECK(ParseError("seed: 18446744073709551616") ==
        "job.yaml:1:7: seed: 18446744073709551616 is not in 0 to 18446744073709551615");
  CHECK(ParseError("validation: {split: 1e999}") ==
        "job.yaml:1:21: split: 1e999 does not fit into a double");
}

TEST_CASE("Job file: enum values are the short lower-case names") {
  CHECK(Parsed("reduction: float32").reduction() == v1::REDUCTION_FLOAT32);
  CHECK(ParseError("reduction: exat") ==
        "job.yaml:1:12: reduction: unknown value \"exat\"; expected one of exact, float32; did you "
        "mean \"exact\"?");
  CHECK(ParseError("precision: {policy: POLICY_FLOAT32}") ==
        "job.yaml:1:21: policy: unknown value \"POLICY_FLOAT32\"; expected one of float32, "
        "mixed_bfloat16, mixed_float16");
  CHECK(ParseError("precision: {policy: unspecified}").find("unknown value") != std::string::npos);
}

TEST_CASE("Job file: --set replaces, adds, appends and removes") {
  const v1::JobSpec spec = Parsed(
      kAlexnet, {"batch=64", "optimizer.adam.learning_rate=1e-2", "optimizer.adam.epsilon=1e-8",
                 "augment.0.random_crop.padding=2", "augment.3={random_flip: {}}", "epochs=null",
                 "steps=10", "augment.1=null", "name=other"});
  CHECK(spec.batch() == 64);
  CHECK(spec.optimizer().adam().learning_rate() == 0.01);
  CHECK(spec.optimizer().adam().epsilon() == 1e-8);
  REQUIRE(spec.augment_size() == 3);
  CHECK(spec.augment(0).random_crop().padding() == 2);
  CHECK(spec.augment(1).has_per_image_standardization());
  CHECK(spec.augment(2).has_random_flip());
  CHECK_FALSE(spec.has_epochs());
  CHECK(spec.steps() == 10);
  CHECK(spec.name() == "other");
  CHECK(Parsed("name: a", {"data.resize=[1, 2]"}).data().resize().values_size() == 2);
}

TEST_CASE("Job file: --set that removes what is not there leaves the job as it is") {
  const std::string before = Parsed(kAlexnet).SerializeAsString();
  for (const std::string key :
       {"stop.min_delta", "optimizer.schedule.warmup", "stop", "augment.3.random_flip", "augment.3",
        "data.csv.header", "data.resize.0", "model.depth", "loss.0.anything"}) {
    INFO(key);
    CHECK(Parsed(kAlexnet, {key + "=null"}).SerializeAsString() == before);
  }
}

TEST_CASE("Job file: --set that removes what no job has says what is near it") {
  const auto error = [](const std::string& key) { return ParseError(kAlexnet, {key + "=null"}); };
  CHECK(error("btach") == "--set btach=null: unknown key \"btach\"; did you mean \"batch\"?");
  CHECK(error("optimizer.adam.learning_rat") ==
        "--set optimizer.adam.learning_rat=null: unknown key \"learning_rat\"; did you mean "
        "\"learning_rate\"?");
  CHECK(error("stpo.patience") ==  // of a mapping that is not there
        "--set stpo.patience=null: unknown key \"stpo\"; did you mean \"stop\"?");
  CHECK(error("stop.patienec") ==
        "--set stop.patienec=null: unknown key \"patienec\"; did you mean \"patience\"?");
  CHECK(error("augment.3.random_flop") ==
        "--set augment.3.random_flop=null: unknown key \"random_flop\"; did you mean "
        "\"random_flip\"?");
  CHECK(error("augment.0.random_crop.pading") ==
        "--set augment.0.random_crop.pading=null: unknown key \"pading\"; did you mean "
        "\"padding\"?");
  CHECK(error("model.depht") ==
        "--set model.depht=null: unknown key \"depht\"; did you mean \"depth\"?");
  CHECK(error("steps.x") ==
        "--set steps.x=null: \"x\" is under \"steps\", which is neither a mapping nor a list");
  CHECK(error("data.resize.x") == "--set data.resize.x=null: \"x\" is not a position of a list");
}

TEST_CASE("Job file: --set removes an unknown key that the file has, which is then a job") {
  CHECK(Parsed("name: a\nbtach: 4\n", {"btach=null"}).name() == "a");
}

TEST_CASE("Job file: an error of --set names the override") {
  CHECK(ParseError(kAlexnet, {"btach=4"}) ==
        "--set btach=4: unknown key \"btach\"; did you mean \"batch\"?");
  CHECK(ParseError(kAlexnet, {"batch=x"}) ==
        "--set batch=x: batch: expected a whole number, got \"x\"");
  CHECK(ParseError(kAlexnet, {"batch"}) ==
        "--set batch: expected KEY=VALUE, for example --set batch=64");
  CHECK(ParseError(kAlexnet, {"batch.x=1"}) ==
        "--set batch.x=1: \"x\" is under \"256\", which is neither a mapping nor a list");
  CHECK(ParseError(kAlexnet, {"augment.9={}"}) ==
        "--set augment.9={}: \"9\" is not a position of this list, 0 to 3");
  CHECK(ParseError(kAlexnet, {"optimizer.sgd.momentum=0.9"}) ==
        "--set optimizer.sgd.momentum=0.9: both \"adam\" and \"sgd\" are given; only one is "
        "allowed");
  CHECK(ParseError(kAlexnet, {"a..b=1"}) == "--set a..b=1: a key is empty");
}

TEST_CASE("Job file: what YAML allows and a job file does not") {
  CHECK(ParseError("") == "job.yaml: empty");
  CHECK(ParseError("# nothing\n") == "job.yaml: empty");
  CHECK(ParseError("name: &a x\n") == "job.yaml:1:7: anchors (&name) are not allowed");
  CHECK(ParseError("name: !!str x\n").find("tags (") != std::string::npos);
  CHECK(ParseError("name: a\n---\nname: b\n").find("a second document") != std::string::npos);
  CHECK(ParseError("? [a]\n: b\n") == "job.yaml:1:3: a key must be a plain word");
  CHECK(ParseError(std::string("name: a\0b", 9)) ==
        "job.yaml:1:8: byte 0x00 is not part of UTF-8 text");
  CHECK(ParseError(std::string(300'000, ' ')) ==
        "job.yaml: 300000 bytes; a file has at most 262144");
  CHECK(ParseError(std::string(40, '[') + std::string(40, ']'))
            .find("nested deeper than 32 levels") != std::string::npos);
  CHECK(ParseError("name: [a").find("job.yaml:") == 0);
  CHECK(ParseError("a: b: c\n").find("job.yaml:1:") == 0);
}

TEST_CASE("Job file: text is UTF-8, and columns count characters") {
  CHECK(Parsed("data: {path: \xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80}").data().path() ==
        "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80");
  CHECK(ParseError("name: \xc3\xa9 # \xff") ==
        "job.yaml:1:11: byte 0xff is not part of UTF-8 text");
  for (const char* bad : {"\x80", "\xc3", "\xc0\x80", "\xed\xa0\x80", "\xf5\x80\x80\x80",
                          "\xe2\x82", "\xf4\x90\x80\x80", "\xe0\x80\x80", "\x7f"}) {
    CHECK(ParseError(std::string("name: ") + bad).find("is not part of UTF-8 text") !=
          std::string::npos);
  }
}

TEST_CASE("Job file: garbage gives an error or a spec, never a crash") {
  std::mt19937 random(7);
  const std::string text = kAlexnet;
  const std::string alphabet = "{}[]:,-?&*!|>'\"%@`#\n\t ax0.~\\\xc3\xa9";
  size_t refused = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string garbage = round % 3 == 0 ? "" : text;
    for (int edit = 0; edit < 40; ++edit) {
      const size_t at = garbage.empty() ? 0 : random() % garbage.size();
      const char c = alphabet[random() % alphabet.size()];
      if (random() % 4 == 0 && !garbage.empty()) {
        garbage.erase(at, 1);
      } else {
        garbage.insert(at, 1, c);
      }
    }
    const auto spec = ParseJobFile("job.yaml", garbage, {});
    refused += spec.ok() ? 0 : 1;
    if (spec.ok()) CHECK(v1::JobSpec().ParseFromString(spec->SerializeAsString()));
  }
  CHECK(refused > 2900);
}

TEST_CASE("Job file: deep and wide input ends quickly with an error") {
  for (const std::string unit : {"{", "[", "- ", "? ", "a: {", "\"", "|\n", "&a "}) {
    std::string text;
    while (text.size() < 200'000) text += unit;
    CHECK_FALSE(ParseJobFile("job.yaml", text, {}).ok());
  }
}

TEST_CASE("Job file: what is printed parses to the same spec") {
  v1::JobSpec spec = Parsed(kAlexnet);
  const auto roundtrip = [](const v1::JobSpec& before) {
    INFO(PrintJobFile(before));
    CHECK(MessageDifferencer::Equals(before, Parsed(PrintJobFile(before))));
  };
  roundtrip(spec);
  roundtrip({});
  roundtrip(Parsed("model: {name: mlp, hidden: []}\noptimizer: {sgd: {nesterov: true}}"));
  // A model that is not known yet may have any option.
  roundtrip(Parsed("model: {name: other, ? \"\" : 1, \"a: b\": 2}"));
  spec.set_name("true");
  spec.mutable_data()->set_path("odd \"path\": #1 \xc3\xa9 \\ {\t}\n");
  spec.mutable_optimizer()->mutable_adam()->set_epsilon(0.1 + 0.2);
  roundtrip(spec);
  spec.set_name("123");
  spec.mutable_data()->set_path("");
  roundtrip(spec);
}

}  // namespace
}  // namespace ringmaster::job
