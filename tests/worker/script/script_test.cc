// Jobs of scripts, from a child's packets to the state, with children that are threads.
#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/data/dataset.h"
#include "common/job/resolve.h"
#include "common/mutex.h"
#include "common/safetensors.h"
#include "tests/worker/script/fake_child.h"
#include "worker/backend/failure.h"
#include "worker/script/script_backend.h"
#include "worker/train/shard_work.h"
#include "worker/train/trainer.h"

namespace ringmaster::script {
namespace {

using worker::Assignment;
using worker::BatchId;
using worker::RunEnd;
using worker::RunPeers;
using worker::RunResult;
using worker::Trainer;

v1::JobSpec Spec() {
  v1::JobSpec spec;
  spec.set_name("fake");
  spec.mutable_script()->set_file("train.py");
  return spec;
}

OwnedFile Zeros() {
  OwnedFile file(memfd_create("zeros", MFD_CLOEXEC));
  REQUIRE(ftruncate(file.get(), (kWeights + 1) * sizeof(float)) == 0);
  return file;
}

struct ScriptCase {
  explicit ScriptCase(FakeChildHooks hooks = {}, uint32_t ahead = 0) : children(std::move(hooks)) {
    v1::ScriptFacts facts = FakeFacts();
    facts.set_ahead(ahead);
    auto made = ScriptBackend::Create({.facts = facts}, Zeros(), &children);
    if (!made.ok()) FAIL(Message(made.status()));
    backend = *std::move(made);
  }

  StatusOr<std::unique_ptr<Trainer>> Prepare(size_t cores) {
    auto made = job::ResolveScript(Spec(), FakeFacts(), "00", backend->numerics_class(1));
    if (!made.ok()) return made.status();
    resolved = *made;
    std::vector<CoreOptions> options(cores);
    for (size_t i = 0; i < cores; ++i) options[i].name = "core" + std::to_string(i);
    return Trainer::Prepare(JobId("j"), resolved, data::Dataset::OfFacts(resolved.result().data()),
                            backend.get(), options);
  }

  RunResult Run(size_t cores) {
    auto trainer = Prepare(cores);
    if (!trainer.ok()) FAIL(Message(trainer.status()));
    Assignment assignment{.generation = {1, 1}, .position = {0, 1}, .shards = {0, 1, 2, 3}};
    RunResult result = (*trainer)->Run(assignment, RunPeers{}, {});
    const auto checkpoint = (*trainer)->MakeCheckpoint();
    if (checkpoint.ok()) files = checkpoint->files;
    return result;
  }

  FakeChildren children;
  std::unique_ptr<ScriptBackend> backend;
  v1::ResolvedJob resolved;
  std::vector<worker::CheckpointFile> files;
};

std::vector<float> Tensor(const ScriptCase& job, const std::string& file, const std::string& name) {
  for (const worker::CheckpointFile& each : job.files) {
    if (each.name != file) continue;
    const auto views = ReadSafetensors(each.bytes);
    REQUIRE(views.ok());
    if (!views->contains(name)) continue;
    const auto bytes = views->at(name).bytes;
    std::vector<float> values(bytes.size() / sizeof(float));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }
  return {};
}

TEST_CASE("Script: the state follows what children say, on any number of cores") {
  ScriptCase one, three;
  const RunResult alone = one.Run(1);
  REQUIRE(alone.end == RunEnd::kFinished);
  REQUIRE(alone.applied == 5);
  CHECK(three.Run(3).digest == alone.digest);
  CHECK(three.children.started == 3);

  // The same in float64: g is the mean over the batch of w - target of each sample's shard.
  const auto weights = Tensor(one, "model.safetensors", "net.weight");
  REQUIRE(weights.size() == kWeights);
  for (const float w : weights) CHECK(w == weights[0]);
  CHECK(weights[0] > 0.5F);
  // A buffer gets the mean over samples of what shards made of it: 2 rows a shard, five steps.
  CHECK(Tensor(one, "model.safetensors", "net.seen") == std::vector<float>{10});
  CHECK(Tensor(one, "optimizer.safetensors", "net.weight/momentum_buffer").size() == kWeights);
  // By the module's names: what counts updates, and a tensor that is there twice.
  for (const worker::CheckpointFile& each : one.files) {
    if (each.name != "model.safetensors") continue;
    const auto views = ReadSafetensors(each.bytes);
    REQUIRE(views.ok());
    int64_t tracked = 0;
    CHECK(views->at("net.tracked").type == ElementType::kI64);
    std::memcpy(&tracked, views->at("net.tracked").bytes.data(), sizeof(tracked));
    CHECK(tracked == 3 + 5);
  }
  CHECK(Tensor(one, "model.safetensors", "head.weight") == weights);
  CHECK(Tensor(one, "optimizer.safetensors", "head.weight/momentum_buffer").empty());
}

TEST_CASE("Script: the rate is the last shard's, and momentum PyTorch's") {
  FakeChildHooks hooks;
  hooks.on_shard = [](FakeShard* shard) {
    shard->target = -1.0F * static_cast<float>(shard->rows);
  };
  ScriptCase job(std::move(hooks));
  REQUIRE(job.Run(2).end == RunEnd::kFinished);
  double w = 0, v = 0;
  for (int step = 0; step < 5; ++step) {
    v = 0.5 * v + (w + 1);
    w -= 0.125 * v;
  }
  CHECK(Tensor(job, "model.safetensors", "net.weight")[7] == Approx(w).epsilon(1e-5));
}

TEST_CASE("Script: a child that dies costs its shard, and changes no byte") {
  ScriptCase calm;
  const auto expected = calm.Run(2).digest;
  std::atomic<int> left = 4;
  FakeChildHooks hooks;
  hooks.instead = [&](int, const FakeShard& shard) { return shard.step > 0 && left-- > 0; };
  ScriptCase job(std::move(hooks));
  const RunResult result = job.Run(2);
  CHECK(result.end == RunEnd::kFinished);
  CHECK(result.digest == expected);
  CHECK(job.children.started == 6);
}

TEST_CASE("Script: a tensor of a child that died is taken once, and checked") {
  ScriptCase calm;
  const auto expected = calm.Run(2).digest;
  for (const bool same : {true, false}) {
    std::atomic<bool> died = false;
    FakeChildHooks hooks;
    hooks.between = [&](const FakeShard& shard) {
      return shard.step == 2 && shard.shard == 1 && !died.exchange(true);
    };
    hooks.on_shard = [&](FakeShard* shard) {
      if (shard->step == 2 && shard->shard == 1 && died && !same) shard->target += 1;
    };
    ScriptCase job(std::move(hooks));
    const RunResult result = job.Run(2);
    CHECK(died);
    CHECK(job.children.started == 3);
    if (same) {
      CHECK(result.end == RunEnd::kFinished);
      CHECK(result.digest == expected);
      continue;
    }
    CHECK(result.end == RunEnd::kFailed);
    CHECK(result.applied == 2);
    CHECK_THAT(result.reason, Catch::Contains("shard 1: a child died in the middle of it, and the "
                                              "gradient of net.weight is another one"));
  }
}

TEST_CASE("Script: a shard of which every child dies ends the run") {
  FakeChildHooks hooks;
  hooks.instead = [](int, const FakeShard& shard) { return shard.step == 2 && shard.shard == 1; };
  ScriptCase job(std::move(hooks));
  const RunResult result = job.Run(1);
  CHECK(result.end == RunEnd::kFailed);
  CHECK_THAT(result.reason, Catch::Contains("shard 1: 5 children died of one shard: child"));
  CHECK(result.applied == 2);
}

TEST_CASE("Script: what it raises ends the job, with its traceback") {
  FakeChildHooks hooks;
  hooks.instead = [](int socket, const FakeShard& shard) {
    if (shard.step < 3) return false;
    v1::ScriptRaised raised;
    raised.set_type("ValueError");
    raised.set_message("no such word");
    raised.set_traceback("train.py:41");
    (void)SendJson(socket, PacketKind::kRaised, raised, {},
                   std::chrono::steady_clock::now() + std::chrono::seconds(20));
    return true;
  };
  ScriptCase job(std::move(hooks));
  const RunResult result = job.Run(1);
  CHECK(result.end == RunEnd::kFailed);
  CHECK(result.code == v1::FAILURE_CODE_SCRIPT);
  CHECK_THAT(result.reason, Catch::Contains("the script raised ValueError: no such word") &&
                                Catch::Contains("train.py:41"));
}

TEST_CASE("Script: one that is not pure is refused before the first step") {
  FakeChildHooks hooks;
  std::atomic<uint32_t> before = 3;
  std::atomic<int> count = 0;
  std::string words;
  SECTION("it keeps something from shard to shard") {
    hooks.on_shard = [&](FakeShard* shard) {
      shard->target = static_cast<float>(before.exchange(shard->shard));
    };
    words = "is not pure: shard 3 gave other gradients after another shard";
  }
  SECTION("it is another one each time") {
    hooks.on_shard = [&](FakeShard* shard) { shard->target = static_cast<float>(count++); };
    words = "is not deterministic: shard 3 gave other gradients each time";
  }
  ScriptCase job(std::move(hooks));
  const auto trainer = job.Prepare(1);
  REQUIRE(!trainer.ok());
  CHECK(FailureOf(trainer.status()) == v1::FAILURE_CODE_SCRIPT);
  CHECK_THAT(Message(trainer.status()), Catch::Contains(words) && Catch::Contains("net.weight"));
}

TEST_CASE("Script: children that differ are refused, and say what does") {
  for (const auto& [change, what] :
       {std::pair<void (*)(v1::ScriptFacts*), std::string>{
            [](v1::ScriptFacts* facts) { facts->set_initial_sha256("ab"); }, "its initial values"},
        {[](v1::ScriptFacts* facts) { facts->mutable_tensors(0)->set_shape(0, 4); }, "its tensors"},
        {[](v1::ScriptFacts* facts) { facts->set_frozen_sha256("ab"); }, "its frozen values"}}) {
    FakeChildHooks hooks;
    hooks.on_facts = [change = change](v1::ScriptFacts* facts, int number) {
      if (number == 1) change(facts);
    };
    ScriptCase job(std::move(hooks));
    const auto trainer = job.Prepare(2);
    REQUIRE(!trainer.ok());
    CHECK_THAT(Message(trainer.status()),
               Catch::Contains("not the same in every process: " + what));
  }
}

TEST_CASE("Script: a core is told of what comes, each shard once to each child") {
  using Place = std::pair<uint64_t, uint32_t>;
  Mutex mu;
  std::map<Place, std::vector<uint64_t>> told;  // to the first child, and not yet asked for
  std::vector<Place> surprises;
  std::set<int> children;
  int most = 0;
  bool twice = false, others = false;
  std::atomic<bool> killed = false;
  FakeChildHooks hooks;
  hooks.on_ahead = [&](int number, const FakeShard& shard) {
    MutexLock lock(mu);
    if (children.insert(number).second) told.clear();  // another one starts anew
    twice |= !told.emplace(Place(shard.step, shard.shard), shard.samples).second;
    most = std::max(most, static_cast<int>(told.size()));
  };
  hooks.on_shard = [&](FakeShard* shard) {
    MutexLock lock(mu);
    const auto found = told.find({shard->step, shard->shard});
    if (found == told.end()) {
      surprises.emplace_back(shard->step, shard->shard);
    } else {
      others |= found->second != shard->samples;
      told.erase(found);
    }
  };
  hooks.instead = [&](int, const FakeShard& shard) {
    return shard.step == 3 && shard.shard == 1 && !killed.exchange(true);
  };
  ScriptCase job(std::move(hooks), 6);
  const RunResult result = job.Run(1);
  REQUIRE(result.end == RunEnd::kFinished);
  CHECK_FALSE(twice);
  CHECK_FALSE(others);
  CHECK(told.empty());
  CHECK(most == 7);  // six, and the one that is asked for behind them
  CHECK(children.size() == 2);
  // The known shard and the one behind which it comes again, told; then, told once, it comes a
  // third time, behind the first one; and what was computed again.
  CHECK(surprises == std::vector<Place>{{0, 3}, {0, 0}, {0, 0}, {0, 3}, {3, 1}});
}

TEST_CASE("Script: work is dealt to the cores in turn") {
  const auto coming = [](const BatchId& id, size_t core, size_t cores, size_t most) {
    v1::ResultSpec spec;
    spec.set_kind(v1::JOB_KIND_TRAIN);
    spec.set_batch(8);
    spec.set_shards(8);
    spec.set_total_steps(3);
    spec.mutable_data_use()->set_train_samples(1000);
    std::vector<std::pair<uint64_t, uint32_t>> places;
    const std::vector<uint32_t> shards = {1, 3, 4, 6, 7};
    for (const BatchId& each : worker::ComingWork(spec, shards, id, core, cores, most)) {
      places.emplace_back(each.step, each.shard);
    }
    return places;
  };
  using Places = std::vector<std::pair<uint64_t, uint32_t>>;
  CHECK(coming(BatchId::Training(0, 1), 0, 2, 4) == Places{{0, 4}, {0, 7}, {1, 1}, {1, 4}});
  CHECK(coming(BatchId::Training(0, 6), 1, 2, 4) == Places{{1, 3}, {1, 6}, {2, 3}, {2, 6}});
  CHECK(coming(BatchId::Training(2, 1), 0, 1, 9) == Places{{2, 3}, {2, 4}, {2, 6}, {2, 7}});
  CHECK(coming(BatchId::Training(2, 7), 0, 1, 9).empty());
  CHECK(coming(BatchId::Training(0, 1), 6, 7, 9).empty());
}

TEST_CASE("Script: packets that are none are errors that say so") {
  const auto said = [](const std::function<void(int)>& say) {
    FakeChildHooks hooks;
    hooks.instead = [&say](int socket, const FakeShard&) {
      say(socket);
      return true;
    };
    ScriptCase job(std::move(hooks));
    const auto trainer = job.Prepare(1);
    return trainer.ok() ? "" : Message(trainer.status());
  };
  const auto send = [](PacketKind kind, const std::string& body) {
    return [=](int socket) {
      (void)Send(socket, kind, body, {},
                 std::chrono::steady_clock::now() + std::chrono::seconds(20));
    };
  };
  CHECK_THAT(said([](int socket) { (void)!write(socket, "\x08\0\x02\0\0\0\0\0", 8); }),
             Catch::Contains("this worker speaks version 1, the script's package version 2"));
  CHECK_THAT(said([](int socket) { (void)!write(socket, "abc", 3); }),
             Catch::Contains("a packet of 3 bytes that is none"));
  CHECK_THAT(said(send(PacketKind::kReady, "")), Catch::Contains("READY in the middle of a shard"));
  CHECK_THAT(said(send(PacketKind::kBucket, std::string("\2\0\0\0", 4))),
             Catch::Contains("a BUCKET of tensor 2, of which there are 2"));
  CHECK_THAT(said(send(PacketKind::kBucket, std::string("\0\0\0\0\0\0\0\0", 8))),
             Catch::Contains("for the second time"));
  CHECK_THAT(said(send(PacketKind::kDone, std::string(20, '\0'))),
             Catch::Contains("DONE with 0 metrics and 0 rates, expected 1 and 1"));
  CHECK_THAT(said(send(PacketKind::kRaised, "")), Catch::Contains("RAISED has no JSON"));
}

TEST_CASE("Script: what is sent by one who leaves something unread arrives") {
  std::array<int, 2> ends = {};
  REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) == 0);
  const OwnedFile ours(ends[0]);
  OwnedFile theirs(ends[1]);
  REQUIRE(SendJson(ours.get(), PacketKind::kHello, v1::ScriptHello(), {}, Soon()).ok());
  v1::ScriptRaised told;
  told.set_message("no such file");
  REQUIRE(SendJson(theirs.get(), PacketKind::kRaised, told, {}, Soon()).ok());
  theirs = OwnedFile();
  auto packet = Receive(ours.get(), Soon());
  REQUIRE(packet.ok());
  v1::ScriptRaised raised;
  REQUIRE(TakeJson(&*packet, &raised).ok());
  CHECK(raised.message() == "no such file");
  CHECK(absl::IsUnavailable(Receive(ours.get(), Soon()).status()));
}

TEST_CASE("Script: what neither the job nor its attach says is named") {
  const auto error = [](v1::JobSpec spec, const v1::ScriptFacts& facts) {
    return Message(job::ResolveScript(spec, facts, "00", {}).status());
  };
  v1::ScriptFacts facts = FakeFacts();
  facts.clear_batch();
  CHECK_THAT(error(Spec(), facts),
             Catch::StartsWith("batch: neither the job nor the script's attach"));
  facts = FakeFacts();
  facts.clear_steps();
  CHECK_THAT(error(Spec(), facts), Catch::StartsWith("steps: neither the job nor the script's"));
  facts.set_epochs(2);
  CHECK_THAT(error(Spec(), facts), Catch::StartsWith("epochs: the script has no dataset"));
  v1::JobSpec spec = Spec();
  spec.mutable_optimizer()->mutable_sgd();
  CHECK_THAT(error(spec, FakeFacts()), Catch::StartsWith("optimizer: the script says it"));
  spec = Spec();
  spec.mutable_model()->set_name("mlp");
  CHECK_THAT(error(spec, FakeFacts()), Catch::StartsWith("model: a job of a script has none"));
  spec = Spec();
  spec.set_batch(4);
  spec.set_steps(9);
  const auto resolved = job::ResolveScript(spec, FakeFacts(), "00", {});
  REQUIRE(resolved.ok());
  CHECK(resolved->result().batch() == 4);
  CHECK(resolved->result().total_steps() == 9);
  CHECK(resolved->result().shards() == 4);
}

}  // namespace
}  // namespace ringmaster::script
