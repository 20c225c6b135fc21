#include "worker/devices.h"

#include <catch2/catch.hpp>
#include <future>
#include <utility>

#include "common/mutex.h"
#include "tests/support/fake_backend.h"
#include "tests/support/served.h"
#include "tests/support/tally.h"
#include "worker/session.h"

namespace ringmaster::worker {
namespace {

using std::chrono::milliseconds;
using testing::Tally;

constexpr milliseconds kNever = std::chrono::hours(1);

std::vector<v1::DeviceFigures> Devices(uint32_t count) {
  std::vector<v1::DeviceFigures> devices(count);
  for (uint32_t i = 0; i < count; ++i) {
    devices[i].set_index(i);
    devices[i].set_temperature(60 + i);
  }
  return devices;
}

// Reads sessions to their ends, attaches everybody, and keeps the reports of devices.
class ReportedFleet : public v1::Fleet::Service {
 public:
  // The first report; none after 20 s.
  v1::DeviceReport Await() {
    reports_.Await(1);
    MutexLock lock(mu_);
    return first_;
  }
  const std::shared_ptr<grpc::Channel>& channel() const { return served_.channel(); }

 private:
  grpc::Status Session(
      grpc::ServerContext*,
      grpc::ServerReaderWriter<v1::CoordinatorMessage, v1::WorkerMessage>* stream) override {
    for (v1::WorkerMessage message; stream->Read(&message);) {
      if (message.has_attach()) {
        v1::CoordinatorMessage answer;
        answer.mutable_attached()->set_term(1);
        stream->Write(answer);
      }
      if (!message.has_device_report()) continue;
      {
        MutexLock lock(mu_);
        if (reports_.count() == 0) first_ = message.device_report();
      }
      reports_.Add();
    }
    return grpc::Status::OK;
  }

  Mutex mu_;
  v1::DeviceReport first_ ABSL_GUARDED_BY(mu_);
  Tally reports_;
  testing::Served served_{this};  // last: its calls use everything above
};

}  // namespace

TEST_CASE("DeviceReporter: a report at each beginning of a session") {
  Tally sent;
  DeviceReporter reporter([] { return Devices(1); }, [&](const v1::WorkerMessage&) { sent.Add(); },
                          {.interval = kNever});
  reporter.Start();
  reporter.Enable(true);
  CHECK(sent.Await(1));
  reporter.Enable(true);  // the same session
  reporter.Enable(false);
  reporter.Enable(true);
  CHECK(sent.Await(2));
  reporter.Stop();
  CHECK(sent.count() == 2);
}

TEST_CASE("DeviceReporter: a report every interval, and nothing outside of a session") {
  Tally read, sent;
  const auto count = [&] {
    read.Add();
    return Devices(1);
  };
  const auto send = [&](const v1::WorkerMessage&) { sent.Add(); };
  {
    DeviceReporter off(count, send, {.interval = milliseconds(1)});
    off.Start();
  }
  CHECK(read.count() == 0);
  DeviceReporter on(count, send, {.interval = milliseconds(1)});
  on.Start();
  on.Enable(true);
  CHECK(sent.Await(5));
}

TEST_CASE("DeviceReporter: without figures nothing is sent") {
  Tally read, sent;
  DeviceReporter reporter(
      [&] {
        read.Add();
        return Devices(0);
      },
      [&](const v1::WorkerMessage&) { sent.Add(); }, {.interval = milliseconds(1)});
  reporter.Start();
  reporter.Enable(true);
  CHECK(read.Await(3));
  reporter.Stop();
  CHECK(sent.count() == 0);
}

TEST_CASE("DeviceReporter: nobody waits for a reading that hangs, and it keeps what it reads") {
  Tally read, sent, gone;
  std::promise<void> driver;
  {
    const std::shared_ptr<int> device(new int(0), [&](const int* number) {
      delete number;
      gone.Add();
    });
    DeviceReporter reporter(
        [&read, device, hang = driver.get_future().share()] {
          read.Add();
          hang.wait();
          return Devices(1);
        },
        [&](const v1::WorkerMessage&) { sent.Add(); },
        {.interval = kNever, .patience = milliseconds(1)});
    reporter.Start();
    reporter.Enable(true);
    REQUIRE(read.Await(1));
    reporter.Enable(false);
    reporter.Enable(true);
    reporter.Stop();
  }
  CHECK(gone.count() == 0);
  driver.set_value();
  CHECK(gone.Await(1));
  CHECK(sent.count() == 0);
}

TEST_CASE("DeviceReporter: only devices that cores are on are reported") {
  FakeHooks hooks;
  hooks.figures = [] { return Devices(4); };
  const auto backend = std::make_shared<FakeBackend>(hooks);
  const auto devices = FiguresOf(backend, {1, 3, 7})();
  REQUIRE(devices.size() == 2);
  CHECK(devices[0].index() == 1);
  CHECK(devices[1].index() == 3);
  CHECK(FiguresOf(std::make_shared<FakeBackend>(), {0})().empty());
}

TEST_CASE("DeviceReporter: the coordinator hears in a session what the backend reads") {
  ReportedFleet fleet;
  FakeHooks hooks;
  hooks.figures = [] { return Devices(2); };
  DeviceReporter* reporter = nullptr;
  Session* open = nullptr;
  Session session(fleet.channel(), [&](const Event& event) {
    if (std::holds_alternative<Connected>(event)) {
      v1::WorkerMessage attach;
      attach.mutable_attach()->set_name("w");
      open->Send(std::move(attach));
    }
    if (std::holds_alternative<FromCoordinator>(event)) reporter->Enable(true);
  });
  open = &session;
  DeviceReporter devices(FiguresOf(std::make_shared<FakeBackend>(hooks), {0, 1}),
                         [&](v1::WorkerMessage message) { session.Send(std::move(message)); },
                         {.interval = kNever});
  reporter = &devices;
  devices.Start();
  session.Start();
  const v1::DeviceReport report = fleet.Await();
  session.Stop();
  REQUIRE(report.devices_size() == 2);
  CHECK(report.devices(1).temperature() == 61);
}

}  // namespace ringmaster::worker
