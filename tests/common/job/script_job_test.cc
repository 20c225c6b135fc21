// Jobs of scripts: what their files may say, and what they resolve to.
#include <catch2/catch.hpp>

#include <algorithm>
#include <string>
#include <vector>

#include "common/graph/message/message.h"
#include "common/job/job_file.h"
#include "common/job/keys.h"
#include "common/job/resolve.h"
#include "tests/common/job/small_job.h"
#include "tests/support/temporary_folder.h"

namespace ringmaster::job {
namespace {

constexpr char kOwn[] = "name: own\nscript: {file: train.py}\n";

v1::JobSpec OwnSpec(const std::string& text, const std::vector<std::string>& overrides = {}) {
  const StatusOr<v1::JobSpec> spec = ParseJobFile("job.yaml", text, overrides);
  INFO(spec.status());
  REQUIRE(spec.ok());
  return *spec;
}

std::string OwnError(const std::vector<std::string>& overrides) {
  const Status status = Validate(OwnSpec(kOwn, overrides));
  return status.ok() ? "valid" : Message(status);
}

void AddOwnTensor(const std::string& name, v1::ScriptRole role, v1::ScriptFacts* facts) {
  v1::ScriptTensor& tensor = *facts->add_tensors();
  tensor.set_name(name);
  tensor.add_shape(3);
  tensor.set_role(role);
}

v1::ScriptFacts OwnFacts(uint32_t batch, uint32_t shards, uint64_t steps) {
  v1::ScriptFacts facts;
  AddOwnTensor("fc.weight", v1::PARAMETER, &facts);
  AddOwnTensor("bn.running_mean", v1::BUFFER, &facts);
  facts.add_groups()->set_weight_decay(0.01);
  facts.mutable_optimizer()->mutable_torch_sgd();
  facts.set_initial_sha256(std::string(64, 'a'));
  facts.set_batch(batch);
  facts.set_shards(shards);
  facts.set_steps(steps);
  facts.set_seed(7);
  return facts;
}

StatusOr<v1::ResolvedJob> OwnResolved(const v1::JobSpec& spec, const v1::ScriptFacts& facts) {
  return ResolveScript(spec, facts, std::string(64, 'c'), small::Numerics());
}

TEST_CASE("Script job: its file alone is enough, and all of it is read and printed") {
  CHECK(OwnSpec("name: own\nscript: train.py\n").SerializeAsString() ==
        OwnSpec(kOwn).SerializeAsString());
  CHECK(OwnError({}) == "valid");
  const v1::JobSpec spec = OwnSpec(
      "name: own\nscript: {file: train.py, include: [model.py, configs/], args: [\"--layers=6\"], "
      "env: {OMP_PROC_BIND: close, LEVEL: 3}, python: conda}\nbatch: 64\nsteps: 5\n");
  CHECK(spec.script().include_size() == 2);
  CHECK(spec.script().args(0) == "--layers=6");
  CHECK(spec.script().env(1).value() == "3");
  CHECK(OwnSpec(PrintJobFile(spec)).SerializeAsString() == spec.SerializeAsString());
}

TEST_CASE("Script job: files are no key, neither read nor printed nor listed") {
  const auto spec = ParseJobFile("job.yaml", "script: {file: a.py, files: []}", {});
  CHECK_THAT(Message(spec.status()),
             Catch::StartsWith("job.yaml:1:22: unknown key \"files\"; did you mean \"file\""));
  v1::JobSpec with = OwnSpec(kOwn);
  with.mutable_script()->add_files()->set_path("train.py");
  CHECK(PrintJobFile(with) == PrintJobFile(OwnSpec(kOwn)));
  const std::vector<Key> keys = Keys();
  CHECK(std::ranges::count(keys, "script.file", &Key::path) == 1);
  CHECK(std::ranges::count(keys, "script.env.NAME", &Key::path) == 1);
  CHECK(std::ranges::none_of(keys,
                             [](const Key& key) { return key.path.starts_with("script.files"); }));
}

TEST_CASE("Script job: its files are read beside the job file") {
  const TemporaryFolder folder;
  WriteWhole(folder / "train.py", "import torch");
  const auto parse = [&](const std::string& text) {
    const std::string name = folder / "job.yaml";
    return ParseJobFile(name, text, {}, FilesBeside(name), ScriptBeside(name));
  };
  const auto spec = parse(kOwn);
  REQUIRE(spec.ok());
  REQUIRE(spec->script().files_size() == 1);
  CHECK(spec->script().files(0).content() == "import torch");
  CHECK(Validate(*spec).ok());
  CHECK(Message(parse("name: own\nscript: tarin.py").status()) ==
        folder / "job.yaml: script.file: tarin.py does not exist");
}

TEST_CASE("Script job: it has no model, no data, and nothing that its script says") {
  CHECK_THAT(OwnError({"model.name=mlp"}), Catch::StartsWith("model: a job of a script has none"));
  CHECK_THAT(OwnError({"data.path=x"}), Catch::StartsWith("data: a job of a script has none"));
  CHECK_THAT(OwnError({"freeze=[a]"}), Catch::StartsWith("freeze: a job of a script has none"));
  CHECK(OwnError({"optimizer.adam={}"}) ==
        "optimizer: the script says it, and its rates; leave it out");
  CHECK_THAT(OwnError({"kind=evaluate"}), Catch::StartsWith("script: only a job that trains"));
  CHECK_THAT(OwnError({"checkpoint.best=test/loss"}), Catch::StartsWith("checkpoint.best: "));
}

TEST_CASE("Script job: it begins with the weights that init names, by its module's names") {
  CHECK(OwnError({"init.job=j0001"}) == "valid");
  CHECK(OwnError({"init.file=x", "init.step=3"}) == "init.step: only a job has one; leave it out");
  CHECK_THAT(OwnError({"init.file=x", "init.layout=pytorch"}),
             Catch::StartsWith("init.layout: the tensors of a script have the names"));
  v1::InitSourceFacts source;
  source.set_sha256(std::string(64, 'd'));
  for (const char* name : {"backbone.weight", "bn.running_mean", "bn.num_batches_tracked"}) {
    v1::SourceTensor& tensor = *source.add_tensors();
    tensor.set_name(name);
    tensor.set_type("F32");
    tensor.add_shape(3);
  }
  const auto resolved = [&](const std::vector<std::string>& overrides) {
    return ResolveScript(OwnSpec(kOwn, overrides), OwnFacts(8, 2, 9), std::string(64, 'c'),
                         small::Numerics(), &source);
  };
  CHECK_THAT(Message(resolved({"init.file=x"}).status()), Catch::Contains("fc.weight"));
  const auto job = resolved({"init.file=x", "init.rename=[{match: backbone.*, to: fc.*}]"});
  INFO(job.status());
  REQUIRE(job.ok());
  REQUIRE(job->result().init().tensors_size() == 2);
  CHECK(job->result().init().tensors(0).name() == "fc.weight");
  CHECK(job->result().init().tensors(0).source() == "backbone.weight");
  CHECK(job->init_report().unused() == 1);
}

TEST_CASE("Script job: variables, arguments and the interpreter's name are checked") {
  CHECK(OwnError({"script.env={A_1: x}"}) == "valid");
  CHECK_THAT(OwnError({"script.env={1A: x}"}), Catch::StartsWith("script.env: \"1A\" is no name"));
  CHECK_THAT(OwnError({"script.env={RINGMASTER_CORE: x}"}), Catch::Contains("are the worker's"));
  CHECK_THAT(OwnError({"script.python=a b"}),
             Catch::StartsWith("script.python: \"a b\" is no name"));
  v1::JobSpec spec = OwnSpec(kOwn);
  spec.mutable_script()->add_args(std::string("a\0b", 3));
  CHECK_THAT(Message(Validate(spec)), Catch::StartsWith("script.args: there is a zero byte"));
  spec = OwnSpec(kOwn, {"script.env={A: x}"});
  *spec.mutable_script()->add_env() = spec.script().env(0);
  CHECK(Message(Validate(spec)) == "script.env: A stands there twice");
  spec = OwnSpec(kOwn);
  spec.mutable_script()->add_files()->set_path("other.py");
  CHECK_THAT(Message(Validate(spec)), Catch::StartsWith("script.files: train.py is not among"));
}

TEST_CASE("Script job: what its attach may say stays open until then") {
  const v1::JobSpec open = WithDefaults(OwnSpec(kOwn));
  CHECK_FALSE(open.has_batch());
  CHECK_FALSE(open.has_shards());
  CHECK_FALSE(open.has_seed());
  CHECK_FALSE(open.workers().has_max());
  CHECK(open.workers().min() == 1);
  CHECK(Validate(OwnSpec(PrintJobFile(open))).ok());
  CHECK(ShardsOf(OwnSpec(kOwn)) == 8);
  CHECK(ShardsOf(OwnSpec(kOwn, {"batch=4"})) == 4);
  CHECK(ShardsOf(OwnSpec(kOwn, {"workers.min=12"})) == 12);
  CHECK(OwnError({"workers.min=12"}) == "valid");
  CHECK_THAT(OwnError({"workers.min=12", "shards=8"}),
             Catch::StartsWith("workers.min 12 is larger"));
  v1::JobSpec said = OwnSpec(kOwn, {"batch=16"});
  TakeSaid(OwnFacts(64, 4, 100), &said);
  CHECK(PrintJobFile(said) ==
        "name: own\nbatch: 16\nshards: 4\nsteps: 100\nseed: 7\nscript: {file: train.py}\n");
}

TEST_CASE("Script job: the job file wins over attach, and what neither says is named") {
  const auto of_attach = OwnResolved(OwnSpec(kOwn), OwnFacts(64, 4, 100));
  REQUIRE(of_attach.ok());
  const v1::ResultSpec& result = of_attach->result();
  CHECK(result.batch() == 64);
  CHECK(result.shards() == 4);
  CHECK(result.total_steps() == 100);
  CHECK(result.steps_per_epoch() == 100);
  CHECK(result.seed() == 7);
  CHECK(result.optimizer().has_torch_sgd());
  CHECK(result.updates_size() == 2);
  CHECK(result.updates(0).weight_decay() == 0.01);
  CHECK(result.updates(1).adds());
  CHECK(of_attach->workers().max() == 4);
  CHECK(of_attach->memory().has_rematerialize());
  CHECK(graph::IsScript(result.graph()));
  const auto of_file = OwnResolved(OwnSpec(kOwn, {"batch=8", "shards=2", "steps=5", "seed=1"}),
                                   OwnFacts(64, 4, 100));
  REQUIRE(of_file.ok());
  CHECK(of_file->result().batch() == 8);
  CHECK(of_file->result().shards() == 2);
  CHECK(of_file->result().total_steps() == 5);
  CHECK(of_file->result().seed() == 1);
  const auto error = [](const v1::ScriptFacts& facts, const std::vector<std::string>& overrides) {
    return Message(OwnResolved(OwnSpec(kOwn, overrides), facts).status());
  };
  CHECK_THAT(error(OwnFacts(0, 0, 100), {}), Catch::StartsWith("batch: neither the job nor the"));
  CHECK_THAT(error(OwnFacts(64, 0, 0), {}), Catch::StartsWith("steps: neither the job nor the"));
  CHECK_THAT(error(OwnFacts(64, 0, 0), {"epochs=2"}),
             Catch::StartsWith("epochs: the script has no"));
  CHECK_THAT(error(OwnFacts(2, 4, 9), {}), Catch::StartsWith("batch 2 is smaller than shards 4"));
  CHECK_THAT(error(OwnFacts(8, 4, 9), {"workers.min=5"}),
             Catch::StartsWith("workers.min 5 is larg"));
  CHECK_THAT(error(OwnFacts(131'072, 8, 9), {}), Catch::Contains("say shards: 9 or more"));
  CHECK_THAT(error(OwnFacts(UINT32_MAX, 8, 9), {}),
             Catch::StartsWith("batch 4294967295 in 8 shards are 536870912 samples a shard"));
  v1::ScriptFacts wide = OwnFacts(64, 4, 9);
  wide.set_batch(5'000'000'000);
  CHECK(error(wide, {}) ==
        "batch: the script's attach says 5000000000; expected at most 4294967295");
  CHECK(error(wide, {"batch=8"}).empty());
  CHECK_THAT(error(OwnFacts(8, 4, UINT64_MAX), {}), Catch::Contains("do not fit into 64 bits"));
}

TEST_CASE("Script job: where the job file and attach differ, it is told") {
  const auto overruled = [](const std::vector<std::string>& overrides) {
    return Overruled(OwnFacts(64, 4, 100), OwnSpec(kOwn, overrides));
  };
  CHECK(overruled({}).empty());
  CHECK(overruled({"batch=64", "seed=7", "steps=100"}).empty());
  CHECK(overruled({"batch=32", "shards=8", "steps=5", "seed=1"}) ==
        "batch 32, not 64; shards 8, not 4; steps 5, not 100; seed 1, not 7");
  CHECK(overruled({"epochs=3"}) == "epochs 3, not 100 steps");
}

TEST_CASE("Script job: facts that cannot be are refused") {
  v1::ScriptFacts twice = OwnFacts(8, 2, 9);
  AddOwnTensor("fc.weight", v1::PARAMETER, &twice);
  CHECK_THAT(Message(OwnResolved(OwnSpec(kOwn), twice).status()), Catch::Contains("fc.weight"));
  v1::ScriptFacts group = OwnFacts(8, 2, 9);
  group.mutable_tensors(0)->set_group(1);
  CHECK_FALSE(OwnResolved(OwnSpec(kOwn), group).ok());
  group = OwnFacts(8, 2, 9);
  group.mutable_tensors(1)->set_group(4'000'000'000);
  CHECK(Message(OwnResolved(OwnSpec(kOwn), group).status()) ==
        "the script says group 4000000000 of bn.running_mean, which is no parameter: expected 0");
  v1::ScriptFacts rate = OwnFacts(8, 2, 9);
  rate.mutable_optimizer()->mutable_torch_sgd()->set_momentum(2);
  CHECK_THAT(Message(OwnResolved(OwnSpec(kOwn), rate).status()),
             Catch::StartsWith("the script's optimizer: torch_sgd.momentum: expected"));
}

TEST_CASE("Script job: another content, other first values or frozen ones are another result") {
  const v1::JobSpec spec = OwnSpec(kOwn);
  const auto digest = [&](const v1::ScriptFacts& facts, const std::string& content) {
    const auto job = ResolveScript(spec, facts, content, small::Numerics());
    REQUIRE(job.ok());
    return ResultDigest(job->result());
  };
  const v1::ScriptFacts facts = OwnFacts(8, 2, 9);
  const Sha256Digest first = digest(facts, "aa");
  CHECK(digest(facts, "aa") == first);
  CHECK(digest(facts, "bb") != first);
  v1::ScriptFacts other = facts;
  other.set_initial_sha256(std::string(64, 'b'));
  CHECK(digest(other, "aa") != first);
  other = facts;
  other.set_frozen_sha256(std::string(64, 'b'));
  CHECK(digest(other, "aa") != first);
}

}  // namespace
}  // namespace ringmaster::job
