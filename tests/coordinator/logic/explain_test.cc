#include "coordinator/logic/explain.h"

#include <catch2/catch.hpp>
#include <limits>
#include <string>
#include <vector>

namespace ringmaster::coordinator {
namespace {

struct Times {
  const char* name;
  double input, compute, ring_wait, ring_transfer;  // ms
};

// Every member's step takes 100 ms.
v1::JobStatus StatusOf(const std::vector<Times>& members) {
  v1::JobStatus status;
  for (const Times& times : members) {
    v1::JobWorker& worker = *status.add_workers();
    worker.set_name(times.name);
    worker.set_host(std::string("host-") + times.name);
    worker.add_shards(static_cast<uint32_t>(status.workers_size() - 1));
    v1::StepTimes& step = *worker.mutable_step_times();
    step.set_input(times.input / 1e3);
    step.set_compute(times.compute / 1e3);
    step.set_ring_wait(times.ring_wait / 1e3);
    step.set_ring_transfer(times.ring_transfer / 1e3);
    step.set_total(0.1);
  }
  return status;
}

// `worker cause`; empty when nobody stands out.
std::string Found(const std::vector<Times>& members) {
  const auto straggler = FindStraggler(StatusOf(members));
  return straggler ? straggler->worker() + " " + straggler->cause() : "";
}

TEST_CASE("Straggler: the one that does not wait while the others do, with its cause") {
  CHECK(Found({{"a", 0, 50, 40, 10}, {"b", 0, 88, 2, 10}, {"c", 0, 52, 38, 10}}) == "b compute");
  CHECK(Found({{"a", 0, 50, 40, 10}, {"b", 38, 50, 2, 10}, {"c", 0, 52, 38, 10}}) == "b input");
  CHECK(Found({{"a", 0, 50, 40, 10}, {"b", 0, 52, 38, 10}, {"c", 0, 50, 2, 48}}) == "c link");
  CHECK(Found({{"a", 20, 60, 2, 10}, {"b", 0, 48, 42, 10}}) == "a input");
}

TEST_CASE("Straggler: wall times accuse nobody") {
  // All computed equally long in the mean; who waits changes from step to step.
  CHECK(Found({{"a", 0, 60, 30, 10}, {"b", 0, 62, 28, 10}}).empty());
  // Much compute of a large machine, but nobody waits for it.
  CHECK(Found({{"a", 0, 80, 10, 10}, {"b", 0, 60, 12, 10}, {"c", 0, 60, 14, 10}}).empty());
}

TEST_CASE("Straggler: more than a tenth of a step and more than 5 ms") {
  CHECK(Found({{"a", 0, 60, 20, 0}, {"b", 0, 70, 10, 0}}).empty());
  CHECK(Found({{"a", 0, 60, 20, 0}, {"b", 0, 70, 9.9, 0}}) == "b compute");
  v1::JobStatus quick = StatusOf({{"a", 0, 0, 4, 0}, {"b", 0, 4, 0, 0}});
  for (v1::JobWorker& worker : *quick.mutable_workers()) {
    worker.mutable_step_times()->set_total(0.005);
  }
  CHECK_FALSE(FindStraggler(quick));
}

TEST_CASE("Straggler: two that are measured, at least, and something that explains it") {
  CHECK(Found({}).empty());
  CHECK(Found({{"a", 0, 90, 0, 0}}).empty());
  CHECK(Found({{"a", 0, 50, 40, 10}, {"b", 0, 50, 2, 10}}).empty());
  v1::JobStatus status = StatusOf({{"a", 0, 50, 40, 10}, {"b", 0, 88, 2, 10}});
  status.add_workers()->set_name("new");  // without step times
  CHECK(FindStraggler(status)->worker() == "b");
  status.mutable_workers(0)->clear_step_times();
  CHECK_FALSE(FindStraggler(status));
}

TEST_CASE("Straggler: its sentence has the figures, the host and what to do") {
  const auto straggler =
      FindStraggler(StatusOf({{"a", 0, 50, 40, 10}, {"b", 0, 88, 2, 10}, {"c", 0, 52, 38, 10}}));
  REQUIRE(straggler);
  CHECK(straggler->seconds() == Approx(0.037));
  CHECK(straggler->text() ==
        "the others wait 37 ms of each 100 ms step for worker b on host host-b, which computes for "
        "88 ms where they take 51 ms: see what else runs on its CPUs and whether they are slower, "
        "or `ringctl drain b`");
}

TEST_CASE("Straggler: who may not be drained is not to be") {
  v1::JobStatus status = StatusOf({{"a", 0, 50, 40, 10}, {"b", 0, 88, 2, 10}});
  status.mutable_spec()->mutable_workers()->set_min(2);
  CHECK_THAT(FindStraggler(status)->text(),
             Catch::EndsWith("slower; workers.min 2 needs it: start another worker, then "
                             "`ringctl drain b`"));
}

// One worker whose step of 100 ms waits so long for samples.
v1::JobStatus Waiting(double input, double work, uint32_t threads) {
  v1::JobStatus status = StatusOf({{"a", input, 80, 0, 10}});
  v1::StepTimes& times = *status.mutable_workers(0)->mutable_step_times();
  times.set_input_work(work / 1e3);
  times.set_input_threads(threads);
  return status;
}

TEST_CASE("Input wait: more than a tenth of a step, of the worker that waits longest") {
  CHECK_FALSE(FindInputWait(StatusOf({})));
  CHECK_FALSE(FindInputWait(Waiting(10, 90, 1)));
  CHECK(FindInputWait(Waiting(10.1, 90, 1))->share() == Approx(0.101));
  const auto wait =
      FindInputWait(StatusOf({{"a", 20, 60, 2, 10}, {"b", 30, 48, 2, 10}, {"c", 0, 60, 2, 10}}));
  CHECK(wait->worker() == "b");
  CHECK(wait->share() == Approx(0.3));
  v1::JobStatus status = Waiting(50, 90, 1);
  status.mutable_workers(0)->clear_step_times();
  CHECK_FALSE(FindInputWait(status));
}

TEST_CASE("Input wait: how many threads would do, and what helps when there are as many") {
  const std::string head = "worker a on host host-a waits for samples in 40% of a step (40 ms of ";
  CHECK(FindInputWait(Waiting(40, 130, 1))->text() ==
        head +
            "100 ms): reading and decoding takes 130 ms of thread time a step; it needs 3 input "
            "threads and has 1: start it with --input-threads 3 if it has CPUs to spare; smaller "
            "stored images take less (`ringctl dataset pack`)");
  CHECK(FindInputWait(Waiting(40, 130, 3))->text() ==
        head +
            "100 ms): reading and decoding takes 130 ms of thread time a step; its 3 input threads "
            "are enough: more --input-memory lets them work further ahead; a faster disk or more "
            "free CPUs help");
  CHECK(FindInputWait(Waiting(40, 0, 0))->text() ==
        head +
            "100 ms): start it with more --input-threads if it has CPUs to spare; smaller stored "
            "images take less (`ringctl dataset pack`)");
}

TEST_CASE("Input wait: what a worker says may be nonsense") {
  const double no = std::numeric_limits<double>::quiet_NaN();
  const double endless = std::numeric_limits<double>::infinity();
  CHECK_FALSE(FindInputWait(Waiting(no, 1, 1)));
  CHECK(FindInputWait(Waiting(endless, endless, 1))->worker() == "a");
  CHECK(FindInputWait(Waiting(100, 1e9, 1))->text().find("--input-threads 1024 if") !=
        std::string::npos);
  CHECK(FindInputWait(Waiting(40, no, 1))->worker() == "a");
}

// ---- what the steps would take ------------------------------------------------------------------

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
