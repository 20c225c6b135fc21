// What workers say of their devices: kept and shown, and nothing else.
#include <catch2/catch.hpp>
#include <limits>
#include <string>
#include <utility>
#include <variant>

#include "coordinator/logic/logic.h"
#include "tests/support/action_queue.h"
#include "tests/support/cluster_messages.h"

namespace ringmaster::coordinator {
namespace {

using std::chrono::milliseconds;

v1::DeviceFigures Device(uint64_t memory_used) {
  v1::DeviceFigures device;
  device.set_kind("cuda");
  device.set_name("NVIDIA Abacus");
  device.set_memory_used(memory_used);
  return device;
}

// A coordinator with two free workers, at a time when everything about them was shown.
class Cluster {
 public:
  Cluster() {
    (void)logic_.Restore({.term = 1}, now_);
    Attach(kA, "a");
    Attach(kB, "b");
    now_.steady += milliseconds(10'000);
    Hear(kA);
    Hear(kB);
    (void)Tick();
  }

  void Attach(SessionId session, const std::string& name) {
    (void)Step(SessionOpened{session});
    v1::WorkerMessage message;
    *message.mutable_attach() = testing::MakeAttach(name);
    (void)Step(WorkerSaid{session, message});
  }
  Actions Report(SessionId session, const v1::DeviceReport& report) {
    v1::WorkerMessage message;
    *message.mutable_device_report() = report;
    return Step(WorkerSaid{session, message});
  }
  Actions Report(SessionId session, uint64_t memory_used) {
    v1::DeviceReport report;
    *report.add_devices() = Device(memory_used);
    return Report(session, report);
  }
  // As the control loop carries it out: the store writes, and says so at once.
  void Submit() {
    SubmitAsked asked;
    *asked.submit.mutable_spec() = testing::MakeSpec();
    asked.submit.set_idempotency_key("key");
    CarryOut(logic_.Step(asked, now_));
  }
  Actions Break(SessionId session) { return Step(SessionClosed{session, "gone"}); }
  Actions Tick() { return Step(coordinator::Tick{}); }
  void Pass(int64_t ms) { now_.steady += milliseconds(ms); }

  // Of the newest list that was shown.
  [[nodiscard]] const v1::WorkerStatus& Shown(int worker) const { return shown_.workers(worker); }

  static constexpr SessionId kA{1}, kB{2}, kAgain{3};

 private:
  void Hear(SessionId session) {
    v1::WorkerMessage message;
    message.mutable_heartbeat();
    (void)Step(WorkerSaid{session, message});
  }
  Actions Step(const Event& event) {
    Actions actions = logic_.Step(event, now_);
    CarryOut(actions);
    return actions;
  }
  void CarryOut(Actions actions) {
    queue_.CarryOut(std::move(actions), [this](const Action& action) {
      if (const auto* publish = std::get_if<PublishWorkers>(&action)) shown_ = publish->workers;
      if (const auto* insert = std::get_if<InsertJob>(&action)) {
        CarryOut(logic_.Step(JobInserted{insert->record, absl::OkStatus()}, now_));
      }
    });
  }

  Logic logic_{Options{}};
  testing::ActionQueue queue_;
  Now now_;
  v1::ListWorkersResponse shown_;
};

}  // namespace

TEST_CASE("Devices: the newest report of each worker is shown, and nothing else happens") {
  Cluster cluster;
  cluster.Pass(1'000);
  const Actions first = cluster.Report(Cluster::kA, 100);
  REQUIRE(first.size() == 1);
  CHECK(std::holds_alternative<PublishWorkers>(first[0]));
  REQUIRE(cluster.Shown(0).devices_size() == 1);
  CHECK(cluster.Shown(0).devices(0).ShortDebugString() == Device(100).ShortDebugString());
  CHECK(cluster.Shown(1).devices().empty());

  cluster.Pass(1'000);
  (void)cluster.Report(Cluster::kA, 200);
  REQUIRE(cluster.Shown(0).devices_size() == 1);
  CHECK(cluster.Shown(0).devices(0).memory_used() == 200);
}

TEST_CASE("Devices: reports of many workers are shown together, once a second") {
  Cluster cluster;
  cluster.Pass(1'000);
  (void)cluster.Report(Cluster::kA, 100);
  cluster.Pass(500);
  CHECK(cluster.Report(Cluster::kA, 200).empty());
  CHECK(cluster.Report(Cluster::kB, 300).empty());
  cluster.Pass(499);
  CHECK(cluster.Tick().empty());
  cluster.Pass(1);
  CHECK(cluster.Tick().size() == 1);
  CHECK(cluster.Shown(0).devices(0).memory_used() == 200);
  CHECK(cluster.Shown(1).devices(0).memory_used() == 300);
  cluster.Pass(1'000);
  CHECK(cluster.Tick().empty());
}

TEST_CASE("Devices: a list that was decided before a job started does not hide who is busy now") {
  Cluster cluster;
  REQUIRE(cluster.Report(Cluster::kA, 100).size() == 1);
  cluster.Pass(500);
  REQUIRE(cluster.Report(Cluster::kA, 200).empty());
  cluster.Pass(500);
  // Those figures are due in the step that takes the job in, before the one that starts it.
  cluster.Submit();
  CHECK(cluster.Shown(0).state() == "BUSY");
  CHECK(cluster.Shown(1).state() == "BUSY");
}

TEST_CASE("Devices: they go with their session, and do not come back with the worker") {
  Cluster cluster;
  cluster.Pass(1'000);
  (void)cluster.Report(Cluster::kA, 100);
  (void)cluster.Break(Cluster::kA);
  CHECK(cluster.Shown(0).name() == "b");
  cluster.Attach(Cluster::kAgain, "a");
  REQUIRE(cluster.Shown(0).name() == "a");
  CHECK(cluster.Shown(0).devices().empty());
  CHECK(cluster.Report(Cluster::kA, 100).empty());  // of the session that is over
  cluster.Pass(1'000);
  (void)cluster.Tick();
  CHECK(cluster.Shown(0).devices().empty());
}

TEST_CASE("Devices: of an absurd report the first ones are kept, with names cut short") {
  Cluster cluster;
  cluster.Pass(1'000);
  v1::DeviceReport report;
  for (uint64_t i = 0; i < 65; ++i) *report.add_devices() = Device(i);
  report.mutable_devices(0)->set_name(std::string(100'000, 'x'));
  (void)cluster.Report(Cluster::kA, report);
  REQUIRE(cluster.Shown(0).devices_size() == 64);
  CHECK(cluster.Shown(0).devices(63).memory_used() == 63);
  CHECK(cluster.Shown(0).devices(0).name().size() < 200);
}

TEST_CASE("Devices: a host's clock is compared with the coordinator's, whatever it says") {
  Cluster cluster;
  v1::DeviceReport report;
  const auto ahead = [&](int64_t unix_ms) {
    cluster.Pass(1'000);
    report.mutable_host()->set_unix_ms(unix_ms);
    (void)cluster.Report(Cluster::kA, report);
    return cluster.Shown(0).clock_ahead_ms();
  };
  report.mutable_host()->set_interface(std::string(100'000, 'x'));
  report.mutable_host()->set_state_free(7);
  CHECK(ahead(90'000) == 90'000);  // the coordinator's is at 0 here
  CHECK(cluster.Shown(0).host_figures().state_free() == 7);
  CHECK(cluster.Shown(0).host_figures().interface().size() < 200);
  CHECK_FALSE(cluster.Shown(1).has_clock_ahead_ms());
  CHECK(ahead(std::numeric_limits<int64_t>::min()) == 0);
  CHECK(ahead(std::numeric_limits<int64_t>::max()) == int64_t{1} << 53);
}

}  // namespace ringmaster::coordinator
