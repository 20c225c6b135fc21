#include "worker/heartbeat.h"

#include <catch2/catch.hpp>

namespace ringmaster::worker {
namespace {

using std::chrono::milliseconds;

constexpr std::chrono::hours kAnHour{1};

// Counts what is sent.
class Beats {
 public:
  [[nodiscard]] std::function<void(v1::WorkerMessage)> Sink() {
    return [this](const v1::WorkerMessage& message) {
      MutexLock lock(mu_);
      if (message.heartbeat().job_id() == "j1") ++count_;
      changed_.NotifyAll();
    };
  }
  [[nodiscard]] bool Reaches(int count) {
    MutexLock lock(mu_);
    return changed_.WaitUntil(mu_, std::chrono::steady_clock::now() + std::chrono::seconds(20),
                              [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return count_ >= count; });
  }
  [[nodiscard]] int count() {
    MutexLock lock(mu_);
    return count_;
  }

 private:
  Mutex mu_;
  Condition changed_;
  int count_ ABSL_GUARDED_BY(mu_) = 0;
};

v1::Heartbeat OfJob() {
  v1::Heartbeat heartbeat;
  heartbeat.set_job_id("j1");
  return heartbeat;
}

}  // namespace

TEST_CASE("Heartbeat: the first of a session comes at once, and a new interval counts at once") {
  Beats beats;
  Heartbeat heartbeat(OfJob, beats.Sink());
  heartbeat.Start();
  heartbeat.SetInterval(kAnHour);
  REQUIRE(beats.Reaches(1));
  heartbeat.SetInterval(milliseconds(1));
  REQUIRE(beats.Reaches(5));
  heartbeat.SetInterval(std::nullopt);
  const int ended = beats.count();
  heartbeat.SetInterval(kAnHour);
  REQUIRE(beats.Reaches(ended + 1));
}

TEST_CASE("Heartbeat: outside a session there are none") {
  Beats beats;
  Heartbeat heartbeat(OfJob, beats.Sink());
  heartbeat.Start();
  heartbeat.SetInterval(std::nullopt);
  heartbeat.Stop();
  CHECK(beats.count() == 0);
}

}  // namespace ringmaster::worker
