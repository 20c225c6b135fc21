// A worker without a logic and without a session: a job runner with its own ring port, states
// service and backend, whose events a test waits for. Thread-safe, but for what it hands out.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/check.h"
#include "common/mutex.h"
#include "tests/support/fake_backend.h"
#include "worker/job/job_runner.h"

namespace ringmaster::worker {

class RunnerNode {
 public:
  RunnerNode(const std::string& name, const std::string& data_root,
             const std::shared_ptr<grpc::Channel>& coordinator, FakeHooks hooks = {})
      : name_(name), backend_(std::move(hooks)), data_(DataOptions(name, data_root)) {
    ring::PortOptions options;
    options.services = {&states_};
    auto port = ring::RingPort::Create({"127.0.0.1", 0}, options);
    RING_CHECK(port.ok(), Message(port.status()).c_str());
    port_ = *std::move(port);
    states_.Start();
    JobRunnerOptions runner;
    runner.name = WorkerId(name);
    runner.incarnation = name;
    runner.ticket = [] { return std::string("the ticket of it"); };
    runner.data_root = data_root;
    runner.cores.resize(1);
    runner.cores[0].name = "core0";
    runner.lost = [this](const Status& why) { Keep(StopRequested{Message(why)}); };
    runner_.emplace(runner, &backend_, port_.get(), &states_, &data_, coordinator,
                    [this](Event event) { Keep(std::move(event)); });
    runner_->Start();
  }
  ~RunnerNode() {
    runner_->Stop();
    states_.Stop();
    port_->Stop();
  }

  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] const FakeBackend& backend() const { return backend_; }
  [[nodiscard]] JobRunner& runner() { return *runner_; }
  [[nodiscard]] std::string address() const { return "127.0.0.1:" + std::to_string(port_->port()); }
  // Nobody reaches it any more.
  void CutOff() {
    states_.Stop();
    port_->Stop();
  }

  // The next event of this kind, in the order in which they came; nothing after 30 s.
  template <typename T>
  std::optional<T> Await() {
    MutexLock lock(mu_);
    std::optional<T> found;
    changed_.WaitUntil(mu_, std::chrono::steady_clock::now() + std::chrono::seconds(30),
                       [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
                         for (auto at = events_.begin(); at != events_.end(); ++at) {
                           if (!std::holds_alternative<T>(*at)) continue;
                           found = std::get<T>(std::move(*at));
                           events_.erase(at);
                           return true;
                         }
                         return false;
                       });
    return found;
  }

 private:
  static JobDataOptions DataOptions(const std::string& name, const std::string& data_root) {
    JobDataOptions options;
    options.name = WorkerId(name);
    options.folders = {data_root, ""};
    options.cache.folder = data_root + "/cache of " + name;
    return options;
  }
  void Keep(Event event) {
    MutexLock lock(mu_);
    events_.push_back(std::move(event));
    changed_.NotifyAll();
  }

  const std::string name_;
  FakeBackend backend_;
  StateService states_;
  JobData data_;
  std::unique_ptr<ring::RingPort> port_;

  Mutex mu_;
  Condition changed_;
  std::vector<Event> events_ ABSL_GUARDED_BY(mu_);
  std::optional<JobRunner> runner_;  // last: it posts events until it is gone
};

}  // namespace ringmaster::worker
