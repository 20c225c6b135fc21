// The part of Logic that measures workers without a job: whom, and when that is over.

#include <fmt/ranges.h>

#include <set>
#include <utility>

#include "coordinator/logic/logic.h"

namespace ringmaster::coordinator {
namespace {

constexpr int kMostSizes = 16;
constexpr uint64_t kMostBytes = uint64_t{1} << 30;
constexpr uint32_t kMostRounds = 100;

Refusal BadBench(const std::string& message) {
  return {InvalidArgument("{}", message), "INVALID_REQUEST"};
}

Refusal CheckNames(const v1::AllReduceRequest& request) {
  std::set<std::string> names;
  for (const std::string& name : request.workers()) {
    if (!names.insert(name).second)
      return BadBench(fmt::format("workers: {} is named twice", name));
  }
  return {};
}

Refusal CheckBench(const v1::AllReduceRequest& request) {
  if (request.links_alone()) return CheckNames(request);
  if (request.bytes_size() < 1 || request.bytes_size() > kMostSizes) {
    return BadBench(
        fmt::format("bytes: expected 1 to {} sizes, got {}", kMostSizes, request.bytes_size()));
  }
  for (const uint64_t bytes : request.bytes()) {
    if (bytes >= 4 && bytes % 4 == 0 && bytes <= kMostBytes) continue;
    return BadBench(
        fmt::format("bytes: expected multiples of 4 (float32) from 4 to {} (1 GiB), got {}",
                    kMostBytes, bytes));
  }
  if (request.rounds() < 1 || request.rounds() > kMostRounds) {
    return BadBench(fmt::format("rounds: expected 1 to {}, got {}", kMostRounds, request.rounds()));
  }
  std::set<int> sums;
  for (const int each : request.sums()) {
    const bool known = each == v1::BENCH_SUMS_EXACT || each == v1::BENCH_SUMS_FLOAT32;
    if (known && sums.insert(each).second) continue;
    return BadBench(fmt::format(
        "sums: expected BENCH_SUMS_EXACT and BENCH_SUMS_FLOAT32 once each, got {}", each));
  }
  return CheckNames(request);
}

// Why it cannot be measured; empty when it can.
std::string Occupation(const Worker& worker) {
  if (!worker.job.empty()) return fmt::format("serves job {}", worker.job.value());
  if (worker.releasing) return "still ends a job that is over";
  return worker.leaving ? "is leaving" : "";
}

}  // namespace

Refusal Logic::ChooseBenched(const v1::AllReduceRequest& request,
                             std::vector<Bench::Member>* members) {
  std::vector<std::string> names{request.workers().begin(), request.workers().end()};
  if (names.empty()) {
    for (const auto& [name, worker] : fleet_.workers()) {
      if (!worker.draining) names.push_back(name);
    }
  }
  std::vector<std::string> free, busy;
  for (const std::string& name : names) {
    const Worker* const worker = fleet_.Find(name);
    if (worker == nullptr) {
      return {Error(absl::StatusCode::kNotFound,
                    "no worker {} is attached; `ringctl workers` shows those that are",
                    name.substr(0, 100)),
              "WORKER_NOT_FOUND"};
    }
    const std::string occupation = Occupation(*worker);
    if (!occupation.empty()) {
      busy.push_back(fmt::format("worker {} {}", name, occupation));
      continue;
    }
    free.push_back(name);
    Bench::Member& member = members->emplace_back();
    member.session = worker->session;
    member.self.set_name(name);
    member.self.set_incarnation(worker->attach.incarnation());
    member.self.set_ring_address(worker->attach.ring_address());
  }
  if (!busy.empty()) {
    const size_t more = busy.size() > 5 ? busy.size() - 5 : 0;
    busy.resize(busy.size() - more);
    return {FailedPrecondition(
                "{}{}: a measurement beside a job would be of both; wait until it ended{}",
                fmt::join(busy, ", "), more > 0 ? fmt::format(" and {} more", more) : "",
                free.size() < 2
                    ? ""
                    : fmt::format(", or measure the others: --workers {}", fmt::join(free, ","))),
            "WORKER_BUSY"};
  }
  if (members->size() < 2) {
    return {FailedPrecondition("a ring to measure has at least two workers, got {}: start more "
                               "workers; `ringctl workers` shows those that are attached",
                               members->size()),
            "TOO_FEW_WORKERS"};
  }
  return {};
}

void Logic::On(const BenchAsked& event) {
  v1::AllReduceRequest request = event.request;
  if (request.sums().empty()) {
    request.add_sums(v1::BENCH_SUMS_EXACT);
    request.add_sums(v1::BENCH_SUMS_FLOAT32);
  }
  Refusal refusal = CheckBench(request);
  std::vector<Bench::Member> members;
  if (refusal.status.ok() && bench_) {
    refusal = {Error(absl::StatusCode::kResourceExhausted,
                     "another measurement of {} workers is on; try again when it ended",
                     bench_->members().size()),
               "BENCH_RUNNING"};
  }
  if (refusal.status.ok()) refusal = ChooseBenched(request, &members);
  if (!refusal.status.ok()) {
    actions_.push_back(EndBench{event.bench, std::move(refusal), {}});
    return;
  }
  for (const Bench::Member& member : members) fleet_.Find(member.name())->measuring = true;
  workers_unshown_ = queue_changed_ = true;
  ShowWorkers();  // before they hear of it
  actions_.push_back(Note{"bench", fmt::format("measures the ring of {} workers", members.size())});
  bench_ = std::make_unique<Bench>(event.bench, std::move(request), std::move(members), options_,
                                   generations_);
  bench_->Begin(now_, actions_);
}

void Logic::On(const BenchDropped& event) {
  if (!bench_ || bench_->id() != event.bench) return;
  bench_->Stop({absl::CancelledError("who asked for the measurement went away"), "CANCELLED"}, now_,
               actions_);
}

void Logic::TickBench() {
  if (!bench_) return;
  bench_->OnTick(now_, actions_);
  for (const SessionId session : bench_->FindOverdue(now_)) {
    const std::string why = fmt::format("it did not end its measurement within {} ms",
                                        options_.bench_end_limit.count());
    Refuse(session, {Error(absl::StatusCode::kDeadlineExceeded, "{}", why), "BENCH_TIMEOUT"});
    Lose(session, why);
  }
}

std::optional<EndBench> Logic::SettleBench() {
  if (!bench_ || bench_->phase() != Bench::Phase::kOver) return std::nullopt;
  const std::unique_ptr<Bench> over = std::move(bench_);
  for (const Bench::Member& member : over->members()) {
    Worker* const worker = fleet_.Find(member.session);
    if (worker == nullptr) continue;
    worker->measuring = false;
    fleet_changed_ = true;
    if (worker->leaving) EndLeaving(*worker);
  }
  actions_.push_back(Note{"bench", over->refusal().status.ok()
                                       ? "measured"
                                       : "ended: " + Message(over->refusal().status)});
  return EndBench{over->id(), over->refusal(), over->TakeReport()};
}

}  // namespace ringmaster::coordinator
