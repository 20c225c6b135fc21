#include "common/job/continuation.h"

#include <catch2/catch.hpp>

#include "common/job/class_map.h"
#include "common/job/job_file.h"
#include "common/job/resolve.h"
#include "tests/support/cluster_messages.h"

namespace ringmaster::job {
namespace {

constexpr char kSource[] = R"(name: source
model: {name: mlp, hidden: [8]}
data: {format: cifar10, path: data}
batch: 8
steps: 20
optimizer: {adam: {learning_rate: 0.01}}
)";

v1::JobSpec Written(const std::vector<std::string>& changes) {
  const StatusOr<v1::JobSpec> spec = ParseJobFile("job.yaml", kSource, changes);
  INFO(spec.status());
  REQUIRE(spec.ok());
  return *spec;
}

v1::CheckpointSource CheckpointOf(uint64_t step) {
  v1::CheckpointSource checkpoint;
  checkpoint.set_job_id("j0001");
  checkpoint.set_step(step);
  checkpoint.set_manifest_sha256("abcd");
  return checkpoint;
}

v1::ResolvedJob ResolvedSource(const v1::JobSpec& spec) {
  const auto resolved =
      Resolve(spec, testing::MakeFacts(), testing::MakeAttach("a").numerics_class());
  REQUIRE(resolved.ok());
  return *resolved;
}

StatusOr<v1::ResolvedJob> Go(std::vector<std::string> changes,
                             const v1::CheckpointSource& checkpoint = CheckpointOf(20),
                             const std::vector<std::string>& of_source = {}) {
  const v1::JobSpec source = Written(of_source);
  changes.insert(changes.begin(), {"continue=j0001", "steps=40"});
  return ResolveContinued(Written(changes), {source, ResolvedSource(source), checkpoint});
}

std::string RefusalOf(const std::vector<std::string>& changes,
                      const std::vector<std::string>& of_source = {}) {
  const StatusOr<v1::ResolvedJob> resolved = Go(changes, CheckpointOf(20), of_source);
  if (resolved.ok()) return "";
  CHECK(resolved.status().code() == absl::StatusCode::kInvalidArgument);
  return Message(resolved.status());
}

TEST_CASE("Continue: a job id alone is the newest checkpoint, a mapping may say which") {
  CHECK(Written({"continue=j0007"}).continue_().job() == "j0007");
  CHECK_FALSE(Written({"continue=j0007"}).continue_().has_step());
  CHECK(Written({"continue={job: j0007, step: 5}"}).continue_().step() == 5);
  CHECK_FALSE(ParseJobFile("job.yaml", kSource, {"continue=[j0007]"}).ok());
  CHECK(Message(Validate(Written({"continue={step: 5}"}))).starts_with("continue.job: missing"));
  CHECK(Message(Validate(Written({"continue=j0001", "init={job: j0001}"})))
            .starts_with("init, continue: "));
}

TEST_CASE("Continue: the job is that one's, with more steps, and says which state it begins with") {
  const StatusOr<v1::ResolvedJob> resolved = Go({});
  INFO(resolved.status());
  REQUIRE(resolved.ok());
  CHECK(resolved->result().total_steps() == 40);
  CHECK(resolved->result().continues().step() == 20);
  CHECK(resolved->result().continues().manifest_sha256() == "abcd");
  CHECK(resolved->continues().job_id() == "j0001");
  CHECK(resolved->known_shards().empty());
  v1::ResultSpec longer = ResolvedSource(Written({"steps=40"})).result();
  *longer.mutable_continues() = resolved->result().continues();
  CHECK(CanonicalJson(longer) == CanonicalJson(resolved->result()));
}

TEST_CASE("Continue: the result depends on the state that it begins with, not on whose it is") {
  const Sha256Digest digest = ResultDigest(Go({})->result());
  v1::CheckpointSource other = CheckpointOf(20);
  other.set_job_id("j0009");
  CHECK(ResultDigest(Go({"continue=j0009", "name=x"}, other)->result()) == digest);
  other.set_manifest_sha256("ef");
  CHECK(ResultDigest(Go({}, other)->result()) != digest);
  CHECK(ResultDigest(Go({}, CheckpointOf(10))->result()) != digest);
}

TEST_CASE("Continue: states do not depend on the number of steps unless the learning rate does") {
  const auto digest = [](const std::vector<std::string>& changes) {
    return StatesDigest(ResolvedSource(Written(changes)).result());
  };
  CHECK(digest({}) == digest({"steps=40"}));
  CHECK(digest({}) != digest({"seed=2"}));
  const std::string cosine = "optimizer.schedule.cosine={}";
  CHECK(digest({cosine}) != digest({cosine, "steps=40"}));
  const std::string line = "optimizer.schedule.polynomial={}";
  CHECK(digest({line}) != digest({line, "steps=40"}));
  const std::string steps = "optimizer.schedule.steps={every: {updates: 5}}";
  CHECK(digest({steps}) == digest({steps, "steps=40"}));
}

TEST_CASE("Continue: what is no part of the state may be chosen anew") {
  CHECK(RefusalOf({"name=other", "data.path=elsewhere", "data.format=null", "workers.min=2",
                   "checkpoint.every_steps=5"})
            .empty());
  CHECK(RefusalOf({"optimizer.adam.learning_rate=0.5"}).empty());
  CHECK(RefusalOf({"optimizer.schedule.cosine={}"}).empty());
  CHECK(RefusalOf({"steps=null", "epochs=5"}).empty());
  CHECK(RefusalOf({"shards=8", "precision.policy=float32"}).empty());  // the defaults
  CHECK(RefusalOf({"model={layers: [flatten, {dense: {units: 8, activation: relu}}, "
                   "{dense: {units: 10}}]}"})
            .starts_with("model: "));  // parameters have other names
}

TEST_CASE("Continue: what the state depends on is refused with key and both values") {
  CHECK(RefusalOf({"batch=16"}) ==
        "batch: 16 here, 8 in j0001, whose state is continued and depends on it; take that value, "
        "or begin with the weights alone: init: {job: j0001}");
  CHECK(RefusalOf({"seed=3"}).starts_with("seed: 3 here, 0 in j0001, "));
  CHECK(RefusalOf({"shards=4"}).starts_with("shards: 4 here, 8 in j0001, "));
  CHECK(RefusalOf({"precision_bits=20"}).starts_with("precision_bits: 20 here, 21 in j0001, "));
  CHECK(RefusalOf({"reduction=float32"}).starts_with("reduction: float32 here, exact in j0001, "));
  CHECK(RefusalOf({"precision.policy=mixed_bfloat16"})
            .starts_with("precision.policy: mixed_bfloat16 here, float32 in j0001, "));
  CHECK(RefusalOf({"optimizer={sgd: {}}"}).starts_with("optimizer: sgd here, adam in j0001, "));
  CHECK(RefusalOf({"optimizer.adam.beta_1=0.8"})
            .starts_with("optimizer.adam.beta_1: 0.8 here, 0.9 in j0001, "));
  CHECK(RefusalOf({"optimizer.ema={}"}).starts_with("optimizer.ema: {decay: 0.99"));
  CHECK(RefusalOf({}, {"optimizer.ema={}"}).starts_with("optimizer.ema: none here, {decay: "));
  CHECK(RefusalOf({"augment=[{random_flip: {}}]"})
            .starts_with("augment: [{random_flip: {}}] here, none in j0001, "));
  CHECK(RefusalOf({"data.take=8"}).starts_with("data.take: 8 here, none in j0001, "));
  CHECK(RefusalOf({"data.inputs=[image]"}).starts_with("data.inputs: [image] here, none in "));
  CHECK(RefusalOf({"model.hidden=[9]"}).starts_with("model: "));
  CHECK(RefusalOf({"freeze=[\"dense1/*\"]"}) != "");
  CHECK(RefusalOf({"metrics=[accuracy, top_5]"}).starts_with("metrics: "));
  CHECK(RefusalOf({"validation={split: 0.1}"}).starts_with("validation: {split: 0.1} here, none"));
  CHECK(RefusalOf({"data.format=mnist", "data.path=x"}).find("cifar10, the job wants mnist") !=
        std::string::npos);
}

TEST_CASE("Continue: there are steps left") {
  CHECK(RefusalOf({"steps=20"}) ==
        "steps: expected more than the 20 steps that the checkpoint of j0001 has, as they count "
        "from that job's first, got 20");
  CHECK(RefusalOf({"steps=21"}).empty());
  CHECK(
      RefusalOf({"steps=null", "epochs=2"}).starts_with("epochs: expected more than the 20 steps"));
}

TEST_CASE(
    "Continue: the newest class map of the job is the first one of this, whatever led to it") {
  const v1::NumericsClass plain = testing::MakeAttach("a").numerics_class();
  v1::NumericsClass fast = plain;
  fast.set_instruction_set("avx512");
  const v1::ClassMap both =
      MakeClassMap(8, {{.numerics = plain, .cores = 3}, {.numerics = fast, .cores = 5}}, nullptr);
  v1::ClassMap later = OneClass(8, fast);
  later.set_step(10);
  later.set_before_evaluation(false);
  const v1::JobSpec source = Written({});
  const v1::JobSpec longer = Written({"continue=j0001", "steps=40"});
  v1::ResolvedJob resolved = ResolvedSource(source);
  const auto first_map = [&] {
    const auto continued = ResolveContinued(longer, {source, resolved, CheckpointOf(20)});
    INFO(continued.status());
    REQUIRE(continued.ok());
    CHECK(continued->result().class_maps_size() == 1);
    return TextOf(continued->result().class_maps(0));
  };
  *resolved.mutable_result()->mutable_class_maps(0) = both;
  CHECK(first_map() == TextOf(both));
  *resolved.mutable_result()->add_class_maps() = later;
  CHECK(first_map() == TextOf(OneClass(8, fast)));
}

}  // namespace
}  // namespace ringmaster::job
