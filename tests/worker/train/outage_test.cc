// Devices that go down in the middle of a shard and are brought up again: what a worker shows
// meanwhile, and what a stop leaves of the step.
#include <atomic>
#include <string>
#include <vector>

#include "tests/worker/train/regroup_case.h"

namespace ringmaster::worker {
namespace {

Assignment AllShards(uint64_t counter, uint64_t start_step) {
  return {.generation = {1, counter}, .shards = kAllShards, .start_step = start_step};
}

// Calls `during` within an outage, once, when `shards` more shards of training have begun.
class OutageAt {
 public:
  OutageAt(int shards, std::function<void()> during) : left_(shards), during_(std::move(during)) {}
  FakeHooks Hooks() {
    FakeHooks hooks;
    hooks.outage = [this](const ShardInput&, const GradientSink& sink) -> Status {
      if (!sink.outage || left_.fetch_sub(1) != 1) return absl::OkStatus();  // the known shard
      before_ = phase();
      during_();
      const bool wanted = sink.outage(Outage::kBegins);
      within_ = phase();
      sink.outage(Outage::kEnds);
      after_ = phase();
      return wanted ? absl::OkStatus() : absl::CancelledError("nobody waits");
    };
    return hooks;
  }
  void Watch(const Trainer* trainer) { trainer_ = trainer; }
  // Before it, in it, behind it.
  [[nodiscard]] std::vector<std::string> phases() const { return {before_, within_, after_}; }

 private:
  [[nodiscard]] std::string phase() const { return trainer_->pulse().phase; }

  std::atomic<int> left_;
  const std::function<void()> during_;
  const Trainer* trainer_ = nullptr;
  std::string before_, within_, after_;
};

TEST_CASE("Outage: while a device is brought up again the worker says so, and goes on") {
  OutageAt outage(6, [] {});
  FakeCase job(outage.Hooks());
  const auto trainer = job.Prepare();
  REQUIRE(trainer.ok());
  outage.Watch(trainer->get());
  const RunResult result = (*trainer)->Run(AllShards(1, 0), {}, {});
  INFO(result.reason);
  REQUIRE(result.end == RunEnd::kFinished);
  CHECK(outage.phases() == std::vector<std::string>{"compute", "restart", "compute"});
}

TEST_CASE("Outage: a stop ends it, and keeps what was folded of the step") {
  const std::string reference = LastManifest(FakeCase().Run(kAlone));
  std::stop_source stop;
  OutageAt outage(7, [&] { stop.request_stop(); });  // the third shard of the second step
  FakeCase job(outage.Hooks());
  const auto trainer = job.Prepare();
  REQUIRE(trainer.ok());
  outage.Watch(trainer->get());
  const auto sink = std::make_shared<MemorySink>();
  const RunResult first =
      (*trainer)->Run(AllShards(1, 0), {nullptr, sink, nullptr}, stop.get_token());
  INFO(first.reason);
  REQUIRE(first.end == RunEnd::kStopped);
  CHECK(first.applied == 1);
  CHECK(first.folded == std::vector<uint32_t>{0, 1});
  CHECK(outage.phases()[1] == "restart");
  const RunResult second = (*trainer)->Run(AllShards(2, 1), {nullptr, sink, nullptr}, {});
  INFO(second.reason);
  REQUIRE(second.end == RunEnd::kFinished);
  CHECK(second.manifest_sha256 == reference);
}

}  // namespace
}  // namespace ringmaster::worker
