#include "cli/check.h"

#include <google/protobuf/util/time_util.h>

#include <catch2/catch.hpp>

#include "common/build_id.h"

namespace ringmaster::cli {
namespace {

using std::chrono::milliseconds;

constexpr int64_t kNow = 1'790'000'000'000;

v1::WorkerStatus& AddWorker(const std::string& name, v1::ListWorkersResponse* workers) {
  v1::WorkerStatus& worker = *workers->add_workers();
  worker.set_name(name);
  worker.set_host("north");
  worker.set_state("FREE");
  worker.set_cores(2);
  worker.set_ring_address("10.0.0.1:4000");
  worker.mutable_numerics_class()->set_backend("cpu");
  worker.mutable_host_figures()->set_state_free(uint64_t{100} << 30);
  worker.mutable_host_figures()->set_interface("eth0");
  worker.set_clock_ahead_ms(-3);
  return worker;
}

v1::ListWorkersResponse Cluster() {
  v1::ListWorkersResponse workers;
  workers.mutable_coordinator()->set_version(VersionLine("ringmaster"));
  workers.mutable_coordinator()->set_unix_ms(kNow);
  workers.mutable_coordinator()->set_data_free(uint64_t{100} << 30);
  return workers;
}

// Those of one kind about one thing.
Finding Only(const Findings& findings, const std::string& check, const std::string& about) {
  Findings found;
  for (const Finding& finding : findings) {
    if (finding.check == check && finding.about == about) found.push_back(finding);
  }
  REQUIRE(found.size() == 1);
  return found[0];
}

v1::BenchLink& AddLink(const std::string& from, const std::string& to, double rate,
                       v1::AllReduceReport* report) {
  v1::BenchLink& link = *report->add_links();
  link.set_from(from);
  link.set_to(to);
  link.set_address("10.0.0.2:4000");
  link.set_bytes_per_second(rate);
  link.set_round_trip_seconds(1e-4);
  return link;
}

}  // namespace

TEST_CASE("Check: a worker in order is ok in all that it says") {
  v1::ListWorkersResponse workers = Cluster();
  AddWorker("a", &workers);
  AddWorker("b", &workers);
  const Findings findings = CheckWorkers(workers, std::nullopt);
  for (const Finding& finding : findings) {
    CHECK(finding.verdict == Verdict::kOk);
    CHECK(finding.remedy.empty());
  }
  CHECK(Only(findings, "worker", "a").found ==
        "FREE on north, 2 cores, ring at 10.0.0.1:4000 on eth0");
  CHECK(Only(findings, "clock", "b").found == "3 ms behind the coordinator's");
}

TEST_CASE("Check: without a worker nothing can be trained") {
  const Findings findings = CheckWorkers(Cluster(), std::nullopt);
  CHECK(Only(findings, "worker", "").verdict == Verdict::kFailed);
  CHECK(Only(findings, "worker", "").remedy.find("--join") != std::string::npos);
}

TEST_CASE("Check: clocks apart are a warning, and far apart a failure that says whose") {
  v1::ListWorkersResponse workers = Cluster();
  AddWorker("a", &workers).set_clock_ahead_ms(2'000);
  AddWorker("b", &workers).set_clock_ahead_ms(-60'000);
  AddWorker("c", &workers).set_clock_ahead_ms(1'999);
  const Findings findings = CheckWorkers(workers, std::nullopt);
  CHECK(Only(findings, "clock", "a").verdict == Verdict::kWarning);
  CHECK(Only(findings, "clock", "b").verdict == Verdict::kFailed);
  CHECK(Only(findings, "clock", "b").found == "1m00s behind the coordinator's");
  CHECK(Only(findings, "clock", "b").remedy.find("worker b") != std::string::npos);
  CHECK(Only(findings, "clock", "c").verdict == Verdict::kOk);
}

TEST_CASE("Check: this host's clock is compared with that of the middle of the round trip") {
  v1::CoordinatorFigures coordinator = Cluster().coordinator();
  const Findings level = CheckCoordinator("x:1", coordinator, kNow + 2'500, milliseconds(5'000));
  CHECK(Only(level, "clock", "this host").found == "0 ms ahead of the coordinator's");
  coordinator.set_version("ringmaster 9.9.9 (build 0)");
  const Findings other = CheckCoordinator("x:1", coordinator, kNow - 90'000, milliseconds(0));
  CHECK(Only(other, "clock", "this host").verdict == Verdict::kFailed);
  CHECK(Only(other, "coordinator", "").verdict == Verdict::kWarning);
}

TEST_CASE("Check: workers of two classes cannot be of one job") {
  v1::ListWorkersResponse workers = Cluster();
  AddWorker("a", &workers);
  AddWorker("b", &workers).mutable_numerics_class()->set_threads_per_core(2);
  const Finding finding = Only(CheckWorkers(workers, std::nullopt), "numerics", "");
  CHECK(finding.verdict == Verdict::kWarning);
  CHECK(finding.found.find("2 classes") == 0);
}

TEST_CASE("Check: certificates that ended") {
  v1::ListWorkersResponse workers = Cluster();
  for (const char* name : {"a", "b", "c"}) AddWorker(name, &workers);
  v1::ListIdentitiesResponse identities;
  const auto add = [&](const std::string& name, int64_t until) {
    v1::Identity& identity = *identities.add_identities();
    identity.set_name(name);
    identity.set_role(v1::ROLE_WORKER);
    *identity.mutable_certificate_expires() =
        google::protobuf::util::TimeUtil::MillisecondsToTimestamp(until);
  };
  add("a", kNow + 1);
  add("b", kNow);
  const Findings findings = CheckWorkers(workers, identities);
  CHECK(Only(findings, "certificate", "a").verdict == Verdict::kOk);
  CHECK(Only(findings, "certificate", "b").verdict == Verdict::kFailed);
  CHECK(Only(findings, "certificate", "c").verdict == Verdict::kSkipped);
  v1::WhoAmIResponse who;
  CHECK(CheckOwnCertificate(who, kNow).verdict == Verdict::kOk);  // over a socket of this host
  who.set_identity("spiffe://c/user/eva");
  CHECK(CheckOwnCertificate(who, kNow).verdict == Verdict::kFailed);
}

TEST_CASE("Check: disks, beside what the checkpoints of a job need") {
  v1::ListWorkersResponse workers = Cluster();
  AddWorker("a", &workers).mutable_host_figures()->set_state_free(uint64_t{1} << 20);
  AddWorker("b", &workers).mutable_host_figures()->set_cache_free(uint64_t{1} << 29);
  const Findings findings = CheckDisks(workers, uint64_t{34} << 30);
  CHECK(Only(findings, "disk", "coordinator").verdict == Verdict::kFailed);
  CHECK(Only(findings, "disk", "coordinator").found ==
        "100.0 GiB free where --data-dir is, the job needs 102.0 GiB");
  CHECK(Only(findings, "disk", "a").verdict == Verdict::kFailed);
  CHECK(findings[3].about == "b");
  CHECK(findings[3].verdict == Verdict::kWarning);
  CHECK(findings[3].remedy.find("--data-cache") != std::string::npos);
  CHECK(CheckDisks(workers, uint64_t{33} << 30)[0].verdict == Verdict::kOk);
}

TEST_CASE("Check: a link that cannot be made names both ends, address and port") {
  v1::AllReduceReport report;
  v1::BenchLink& link = AddLink("a", "b", 0, &report);
  link.set_unreached(true);
  link.set_error("no connection to 10.0.0.2:4000 within 5 s: timeout");
  AddLink("b", "a", 0, &report).set_error("not measured: the way back cannot be made");
  const Findings findings = CheckLinks(report);
  AddLink("a", "c", 0, &report).set_error("c: the frame that came is not what was sent");
  const Finding torn = Only(CheckLinks(report), "link", "a to c");
  CHECK(torn.verdict == Verdict::kFailed);
  CHECK(torn.remedy == "look at the logs of a and c");
  const Finding port = Only(findings, "port", "a to b");
  CHECK(port.verdict == Verdict::kFailed);
  CHECK(port.found == link.error());
  CHECK(port.remedy.find("let a in at TCP port 4000 on the host of b") == 0);
  CHECK(Only(findings, "link", "b to a").verdict == Verdict::kSkipped);
}

TEST_CASE("Check: a link that is much slower than the others is named") {
  v1::AllReduceReport report;
  AddLink("a", "b", 1e9, &report);
  AddLink("b", "a", 9e8, &report);
  AddLink("a", "c", 2.2e8, &report);
  AddLink("c", "a", 2.3e8, &report);
  AddLink("b", "c", 1e9, &report);
  const Findings findings = CheckLinks(report);
  CHECK(Only(findings, "link", "a to c").verdict == Verdict::kWarning);
  CHECK(Only(findings, "link", "c to a").verdict == Verdict::kOk);
}

TEST_CASE("Check: who serves a job is left alone, and that is said") {
  v1::ListWorkersResponse workers = Cluster();
  v1::WorkerStatus& busy = AddWorker("a", &workers);
  busy.set_state("BUSY");
  busy.set_job_id("j0004");
  AddWorker("b", &workers);
  Findings findings;
  CHECK(ChooseForLinks(workers, &findings).empty());
  CHECK(Only(findings, "link", "a").found == "BUSY, serves j0004: a measurement would disturb it");
  CHECK(Only(findings, "link", "").verdict == Verdict::kSkipped);
  AddWorker("c", &workers);
  CHECK(ChooseForLinks(workers, &findings) == std::vector<std::string>{"b", "c"});
}

TEST_CASE("Check: a plan that does not fit fails, and says what one checkpoint takes") {
  const Json plan = Json::parse(R"({"fits": false, "classes": [
      {"profile": {"name": "cpu x"}, "error": null, "plan": {"fits": false, "largest_batch": 12,
       "memory_per_core_bytes": 1048576, "checkpoint_copy_bytes": 77}},
      {"profile": {"name": "cuda y"}, "plan": null, "error": "no GPU here"}]})");
  const Findings findings = CheckJobPlan(plan);
  REQUIRE(findings.size() == 2);
  CHECK(findings[0].verdict == Verdict::kFailed);
  CHECK(findings[0].found == "does not fit into 1.0 MiB a core; largest batch 12");
  CHECK(findings[1].verdict == Verdict::kWarning);
  CHECK(StateBytes(plan) == 77);
}

}  // namespace ringmaster::cli
