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

}  // namespace
}  // namespace ringmaster::coordinator
