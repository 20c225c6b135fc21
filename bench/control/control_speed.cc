// What a coordinator costs under a fleet of simulated workers (docs/performance.md): as one ring or
// as rings of eight, while they run and nothing else happens, and under one load at a time: jobs in
// the queue, status reads, and a restart after which everybody attaches again.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <fstream>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "bench/control/client_load.h"
#include "bench/control/coordinator_process.h"
#include "bench/control/simulated_worker.h"

namespace ringmaster::bench {
namespace {

using Clock = SimulatedWorker::Clock;
using Seconds = std::chrono::duration<double>;

struct Settings {
  std::string program;  // ringmaster
  int workers = 64;
  bool rings_of_8 = false;
  double seconds = 10;
  int queued = 1'000;
  double patience = 120;  // until all of them run
  std::string json;
  std::vector<std::string> loads;
};

// Beats of all workers, spread over 100 ms, from a few threads of its own.
class SimulatedFleet {
 public:
  SimulatedFleet(int workers, const std::string& address) {
    for (int i = 0; i < workers; ++i) {
      workers_.push_back(
          std::make_shared<SimulatedWorker>(fmt::format("w{:04}", i), address, counts_));
    }
    for (int t = 0; t < kThreads; ++t) {
      threads_.emplace_back([this, t](const std::stop_token& stop) { Run(stop, t); });
    }
  }
  ~SimulatedFleet() {
    for (std::jthread& thread : threads_) thread.request_stop();
    threads_.clear();
    for (const auto& worker : workers_) worker->Stop();
  }

  FleetCounts& counts() { return *counts_; }
  // Whether all run within so long.
  bool AwaitRunning(double seconds) {
    const Clock::time_point end =
        Clock::now() + std::chrono::duration_cast<Clock::duration>(Seconds(seconds));
    while (counts_->running < static_cast<int>(workers_.size())) {
      if (Clock::now() > end) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return true;
  }

 private:
  static constexpr int kThreads = 2;
  static constexpr std::chrono::milliseconds kBeat{100};

  void Run(const std::stop_token& stop, int thread) {
    Clock::time_point next = Clock::now();
    const size_t mine = (workers_.size() + kThreads - 1) / kThreads;
    while (!stop.stop_requested()) {
      for (size_t i = 0; i < mine && !stop.stop_requested(); ++i) {
        std::this_thread::sleep_until(next + i * kBeat / mine);
        const size_t index = i * kThreads + static_cast<size_t>(thread);
        if (index < workers_.size()) workers_[index]->Beat(Clock::now());
      }
      next = std::max(next + kBeat, Clock::now() - kBeat);  // who is late loses beats
    }
  }

  // Sessions that end behind it count, too.
  const std::shared_ptr<FleetCounts> counts_ = std::make_shared<FleetCounts>();
  std::vector<std::shared_ptr<SimulatedWorker>> workers_;
  std::vector<std::jthread> threads_;
};

v1::JobSpec MakeSpec(int workers) {
  v1::JobSpec spec;
  spec.set_name("control");
  spec.mutable_model()->set_name("mlp");
  v1::Attribute& hidden = *spec.mutable_model()->add_options();
  hidden.set_name("hidden");
  hidden.mutable_ints()->add_values(8);
  spec.mutable_data()->set_format("cifar10");
  spec.mutable_data()->set_path("data");
  const auto size = static_cast<uint32_t>(workers);
  spec.set_batch(size);
  spec.set_shards(size);
  spec.set_steps(10'000'000);
  spec.mutable_workers()->set_min(size);
  spec.mutable_workers()->set_max(size);
  spec.mutable_checkpoint()->set_every_seconds(86'400);
  spec.mutable_optimizer()->mutable_sgd()->set_learning_rate(0.1);
  return spec;
}

class Bench {
 public:
  explicit Bench(const Settings& settings) : settings_(settings), coordinator_(settings.program) {}

  Status Run() {
    RING_RETURN_IF_ERROR(coordinator_.Start());
    fleet_ = std::make_unique<SimulatedFleet>(settings_.workers, coordinator_.address());
    RING_RETURN_IF_ERROR(Measure("start", [this] { return Begin(); }));
    for (const std::string& load : settings_.loads) {
      RING_RETURN_IF_ERROR(Measure(load, [&] { return Do(load); }));
    }
    Print();
    return absl::OkStatus();
  }

 private:
  // What a load says of itself; empty: it lasts.
  using Load = std::function<StatusOr<nlohmann::json>()>;

  Status Measure(const std::string& name, const Load& load) {
    FleetCounts& counts = fleet_->counts();
    const uint64_t starts = counts.starts, ended = counts.ended, skipped = counts.skipped;
    const bool restarts = name == "restart";
    CoordinatorFigures from;
    if (!restarts) {
      RING_ASSIGN_OR_RETURN(from, coordinator_.Read());
    }
    std::atomic<bool> over = false;
    LoadResult asked;
    std::jthread asks([&] {
      if (restarts) return;
      LoadOptions options;
      options.lasts = std::chrono::hours(1);
      options.over = &over;
      options.pause = std::chrono::milliseconds(20);
      asked = AskLoop(coordinator_, options);
    });
    StatusOr<nlohmann::json> loaded = load();
    over = true;
    asks.join();
    RING_RETURN_IF_ERROR(loaded.status());
    nlohmann::json row = *std::move(loaded);
    if (restarts) from = restarted_;
    row["ask_p50_ms"] = asked.call_p50_ms;
    row["ask_p99_ms"] = asked.call_p99_ms;
    RING_ASSIGN_OR_RETURN(const CoordinatorFigures to, coordinator_.Read());
    const CoordinatorCost cost = CostBetween(from, to);
    row["load"] = name;
    row["workers"] = settings_.workers;
    row["rings"] = settings_.rings_of_8 ? settings_.workers / 8 : 1;
    row["cores"] = cost.cores;
    row["events_per_second"] = cost.events_per_second;
    row["loop_p50_ms"] = cost.wait_p50_ms;
    row["loop_p99_ms"] = cost.wait_p99_ms;
    row["loop_most_ms"] = cost.wait_most_ms;
    row["resident_mib"] = static_cast<double>(to.resident) / (1 << 20);
    row["beats_skipped"] = counts.skipped - skipped;
    // A session that ended, or a ring formed anew, though nobody died.
    const uint64_t expected_starts =
        name == "start" ? static_cast<uint64_t>(settings_.workers) : uint64_t{0};
    const uint64_t expected_ends = restarts ? static_cast<uint64_t>(settings_.workers) : 0;
    row["false_losses"] = counts.ended - ended - std::min(counts.ended - ended, expected_ends);
    row["starts_again"] =
        counts.starts - starts - std::min(counts.starts - starts, expected_starts);
    std::cout << row.dump() << std::endl;
    rows_.push_back(std::move(row));
    return absl::OkStatus();
  }

  StatusOr<nlohmann::json> Begin() {
    const int size = settings_.rings_of_8 ? 8 : settings_.workers;
    const Clock::time_point began = Clock::now();
    LoadOptions once;
    once.most = static_cast<uint64_t>(settings_.workers / size);
    once.under_way = 8;
    once.lasts = std::chrono::minutes(2);
    const LoadResult submitted = Submit(coordinator_, MakeSpec(size), once);
    if (submitted.failed > 0) return Internal("Submit: {}", submitted.error);
    const bool all = fleet_->AwaitRunning(settings_.patience);
    nlohmann::json row;
    row["seconds"] = Seconds(Clock::now() - began).count();
    row["running"] = fleet_->counts().running.load();
    if (!all) row["error"] = "not all run";
    return row;
  }

  StatusOr<nlohmann::json> Do(const std::string& load) {
    nlohmann::json row;
    if (load == "idle") {
      std::this_thread::sleep_for(Seconds(settings_.seconds));
      row["seconds"] = settings_.seconds;
    } else if (load == "submit" || load == "status") {
      LoadOptions options;
      options.lasts = std::chrono::milliseconds(static_cast<int64_t>(1e3 * settings_.seconds));
      if (load == "submit") options.most = static_cast<uint64_t>(settings_.queued);
      const LoadResult result = load == "submit"
                                    ? Submit(coordinator_, MakeSpec(settings_.workers), options)
                                    : ReadStatus(coordinator_, "j0001", options);
      row["seconds"] = result.seconds;
      row["calls_per_second"] = static_cast<double>(result.done) / result.seconds;
      row["calls"] = result.done;
      row["failed"] = result.failed;
      row["call_p50_ms"] = result.call_p50_ms;
      row["call_p99_ms"] = result.call_p99_ms;
      if (!result.error.empty()) row["error"] = result.error;
    } else if (load == "restart") {
      coordinator_.Kill();
      const Clock::time_point killed = Clock::now();
      while (fleet_->counts().running > 0 && Clock::now() - killed < Seconds(settings_.patience)) {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
      const Clock::time_point began = Clock::now();
      RING_RETURN_IF_ERROR(coordinator_.Start());
      RING_ASSIGN_OR_RETURN(restarted_, coordinator_.Read());
      const bool all = fleet_->AwaitRunning(settings_.patience);
      row["seconds"] = Seconds(Clock::now() - began).count();
      row["running"] = fleet_->counts().running.load();
      if (!all) row["error"] = "not all run";
    } else {
      return InvalidArgument("no load: {}", load);
    }
    return row;
  }

  void Print() const {
    std::cout << fmt::format(
        "\n{:8} {:>7} {:>5} {:>8} {:>9} {:>9} {:>9} {:>6} {:>6} {:>8} {:>7} {:>9}\n", "load",
        "workers", "rings", "seconds", "p50 ms", "p99 ms", "ask p99", "cores", "MiB", "events/s",
        "losses", "calls/s");
    for (const nlohmann::json& row : rows_) {
      std::cout << fmt::format(
          "{:8} {:7} {:5} {:8.2f} {:9.2f} {:9.2f} {:9.2f} {:6.2f} {:6.0f} {:8.0f} {:7} {:>9}\n",
          row["load"].get<std::string>(), row["workers"].get<int>(), row["rings"].get<int>(),
          row["seconds"].get<double>(), row["loop_p50_ms"].get<double>(),
          row["loop_p99_ms"].get<double>(), row["ask_p99_ms"].get<double>(),
          row["cores"].get<double>(), row["resident_mib"].get<double>(),
          row["events_per_second"].get<double>(),
          row["false_losses"].get<uint64_t>() + row["starts_again"].get<uint64_t>(),
          row.contains("calls_per_second")
              ? fmt::format("{:.0f}", row["calls_per_second"].get<double>())
              : "");
    }
    if (!settings_.json.empty()) std::ofstream(settings_.json) << rows_.dump(1) << "\n";
  }

  const Settings settings_;
  CoordinatorProcess coordinator_;
  CoordinatorFigures restarted_;
  std::unique_ptr<SimulatedFleet> fleet_;
  nlohmann::json rows_ = nlohmann::json::array();
};

}  // namespace
}  // namespace ringmaster::bench

int main(int argc, char** argv) {
  using namespace ringmaster::bench;
  Settings settings;
  CLI::App app("control_speed: what a coordinator costs under simulated workers");
  app.add_option("--ringmaster", settings.program, "the program")->required();
  app.add_option("--workers", settings.workers, "simulated")->check(CLI::Range(1, 4'096));
  app.add_flag("--rings-of-8", settings.rings_of_8,
               "a job for each eight workers, not one for all");
  app.add_option("--seconds", settings.seconds, "of each load");
  app.add_option("--queued", settings.queued, "jobs that load `submit` adds to the queue");
  app.add_option("--patience", settings.patience, "seconds until all run");
  app.add_option("--json", settings.json, "a file for the rows");
  app.add_option("loads", settings.loads, "idle, submit, status, restart, one after another");
  CLI11_PARSE(app, argc, argv);
  if (settings.loads.empty()) settings.loads = {"idle", "status", "restart", "submit"};
  const ringmaster::Status status = Bench(settings).Run();
  if (status.ok()) return 0;
  std::cerr << "control_speed: " << ringmaster::Message(status) << "\n";
  return 1;
}
