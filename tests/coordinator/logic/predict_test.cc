// What a job's steps would take without some of its workers, or with more.
#include "coordinator/logic/explain.h"

#include <catch2/catch.hpp>
#include <limits>
#include <string>
#include <vector>

namespace ringmaster::coordinator {
namespace {

struct Runner {
  const char* name;
  uint32_t shards, cores;
  double shard_seconds;
  double ring = 0;  // seconds of a step that it waits for the ring or transfers
  const char* class_name = "cpu";
};

// A step takes what the longest member takes for its shards, its ring's part and 0.1 s.
v1::JobStatus RunOf(const std::vector<Runner>& members, uint32_t least = 1) {
  v1::JobStatus status;
  status.mutable_spec()->mutable_workers()->set_min(least);
  uint32_t next = 0;
  for (const Runner& member : members) {
    v1::JobWorker& worker = *status.add_workers();
    worker.set_name(member.name);
    worker.set_class_(member.class_name);
    worker.set_cores(member.cores);
    worker.set_shard_seconds(member.shard_seconds);
    for (uint32_t i = 0; i < member.shards; ++i) worker.add_shards(next++);
    const uint32_t rounds = (member.shards + member.cores - 1) / member.cores;
    v1::StepTimes& step = *worker.mutable_step_times();
    step.set_compute(rounds * member.shard_seconds);
    step.set_ring_transfer(member.ring);
    step.set_total(step.compute() + member.ring + 0.1);
  }
  status.mutable_spec()->set_shards(next);
  return status;
}

// `b 361, c 361`
std::string Slow(v1::JobStatus status) {
  PredictWithout(status);
  std::string text;
  for (const v1::JobWorker& worker : status.workers()) {
    if (!(worker.faster_without() > 0)) continue;
    text += (text.empty() ? "" : ", ") + worker.name() + " " +
            std::to_string(static_cast<int>(worker.faster_without()));
  }
  return text;
}

std::string Without(v1::JobStatus status) {
  PredictWithout(status);
  return DescribeWithout(status);
}

}  // namespace

TEST_CASE("Predict: without a worker whose single shard is waited for") {
  // With it 3.1 s, without it 8 shards at 0.1 s and 0.1 s.
  CHECK(Slow(RunOf({{"a", 7, 1, 0.1}, {"b", 1, 1, 3.0}})) == "b 244");
  CHECK(Slow(RunOf({{"a", 4, 1, 0.1}, {"b", 4, 1, 0.1}})).empty());
  // Twice as slow, and still of use.
  CHECK(Slow(RunOf({{"a", 5, 1, 0.1}, {"b", 3, 1, 0.2}})).empty());
}

TEST_CASE("Predict: what dealing by speed would do counts as done") {
  // Dealt by speed a takes 7 shards: 3.1 s, as above; not 12.1 s.
  CHECK(Slow(RunOf({{"a", 4, 1, 0.1}, {"b", 4, 1, 3.0}})) == "b 244");
  CHECK(Slow(RunOf({{"a", 1, 1, 0.1}, {"b", 7, 1, 0.2}})).empty());
}

TEST_CASE("Predict: of several slow ones none is of use alone") {
  CHECK(Slow(RunOf({{"a", 6, 1, 0.1}, {"b", 1, 1, 3.0}, {"c", 1, 1, 3.0}})) == "b 244, c 244");
  CHECK(Slow(RunOf({{"a", 5, 1, 0.1}, {"b", 1, 1, 3.0}, {"c", 2, 1, 0.2}})) == "b 342");
}

TEST_CASE("Predict: the network makes the fastest one alone faster than all") {
  const v1::JobStatus status =
      RunOf({{"a", 4, 1, 0.1, 2.0}, {"b", 4, 1, 0.1, 2.0}, {"c", 4, 1, 0.11, 2.0}}, 2);
  // 0.44 and 2 and 0.1 s together, alone 1.2 s and 0.1 s.
  CHECK(Slow(status) == "b 95, c 95");
  CHECK(Without(status) ==
        "without b and c this job would be 95% faster, but workers.min needs 1 of them");
}

TEST_CASE("Predict: a class keeps a member, and another class that is waited for counts") {
  const Runner slow = {"x", 1, 1, 3.0, 0, "old"};
  CHECK(Slow(RunOf({{"a", 7, 1, 0.1}, slow})).empty());
  // Of two of that class one is enough to take long.
  const Runner slower = {"y", 1, 1, 1.0, 0, "old"};
  CHECK(Slow(RunOf({{"a", 7, 1, 0.1}, {"x", 1, 1, 3.0, 0, "old"}, slower})) == "x 47");
  CHECK(Slow(RunOf({{"a", 1, 1, 9.0}, {"x", 1, 1, 3.0, 0, "old"}, slower})).empty());
}

TEST_CASE("Predict: nothing while a member was not measured, or says nonsense") {
  for (const double bad : {0.0, -1.0, std::numeric_limits<double>::quiet_NaN(),
                           std::numeric_limits<double>::infinity()}) {
    v1::JobStatus status = RunOf({{"a", 7, 1, 0.1}, {"b", 1, 1, 3.0}});
    status.mutable_workers(0)->set_shard_seconds(bad);
    CHECK(Slow(status).empty());
    status = RunOf({{"a", 7, 1, 0.1}, {"b", 1, 1, 3.0}});
    status.mutable_workers(0)->mutable_step_times()->set_total(bad);
    CHECK(Slow(status).empty());
  }
  CHECK(Slow({}).empty());
  // Who has no place in the ring does not count.
  CHECK(Slow(RunOf({{"a", 7, 1, 0.1}, {"b", 1, 1, 3.0}, {"c", 0, 1, 0}})) == "b 244");
}

TEST_CASE("Predict: what was said before is forgotten") {
  v1::JobStatus status = RunOf({{"a", 7, 1, 0.1}, {"b", 1, 1, 3.0}});
  PredictWithout(status);
  status.mutable_workers(1)->set_shard_seconds(0.1);
  PredictWithout(status);
  CHECK(DescribeWithout(status).empty());
}

TEST_CASE("Predict: the sentence names whom, and what needs them") {
  CHECK(Without(RunOf({{"a", 7, 1, 0.1}, {"b", 1, 1, 3.0}})) ==
        "without b this job would be 244% faster");
  CHECK(Without(RunOf({{"a", 7, 1, 0.1}, {"b", 1, 1, 3.0}}, 2)) ==
        "without b this job would be 244% faster, but workers.min needs it");
  std::vector<Runner> many = {{"a", 3, 1, 0.1}};
  for (const char* name : {"b", "c", "d", "e", "f"}) many.push_back({name, 1, 1, 3.0});
  CHECK(Without(RunOf(many)) == "without b, c, d and 2 more this job would be 244% faster");
}

TEST_CASE("Predict: what must be done before a worker may leave") {
  v1::JobStatus status = RunOf({{"a", 7, 1, 0.1}, {"b", 1, 1, 3.0}});
  CHECK(NeededToLeave(status, status.workers(1)).empty());
  status = RunOf({{"a", 7, 1, 0.1}, {"b", 1, 1, 3.0}}, 2);
  CHECK(NeededToLeave(status, status.workers(1)) ==
        "workers.min 2 needs it: start another worker, then `ringctl drain b`");
  status = RunOf({{"a", 7, 1, 0.1}, {"b", 1, 1, 3.0, 0, "old"}});
  status.add_class_maps()->add_classes();
  status.mutable_class_maps(0)->add_classes();
  CHECK(NeededToLeave(status, status.workers(1)) ==
        "it alone computes the shards of old: start another worker of that class");
}

TEST_CASE("Predict: the fewest more workers that help, or what lets them join") {
  v1::JobStatus status = RunOf({{"a", 4, 1, 0.1}, {"b", 4, 1, 0.2}});
  CHECK(AdviseMore(status) ==
        "start one more worker like a: the shards of a step would take 400 ms instead of 600 ms");
  // A third one with four cores leaves somebody two rounds; a fourth does not.
  status = RunOf({{"a", 8, 4, 0.1}, {"b", 8, 4, 0.1}});
  CHECK(AdviseMore(status) ==
        "start 2 more workers like a: the shards of a step would take 100 ms instead of 200 ms");
  status.mutable_spec()->mutable_workers()->set_max(2);
  CHECK(AdviseMore(status) == "workers.max 2 lets no more workers join: submit it again with 3");
  status = RunOf({{"a", 1, 1, 0.1}, {"b", 1, 1, 0.1}});
  CHECK(AdviseMore(status) ==
        "each worker has a single shard of it, so more of them change nothing: faster hosts do, or "
        "another job with more shards");
  status = RunOf({{"a", 2, 4, 0.1}});
  CHECK(AdviseMore(status) ==
        "more workers change nothing, as each core has a single shard: faster hosts do, or another "
        "job with more shards");
  status.mutable_workers(0)->clear_shard_seconds();
  CHECK(AdviseMore(status) == "with more workers it gets fewer shards");
}

}  // namespace ringmaster::coordinator
