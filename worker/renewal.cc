#include "worker/renewal.h"

#include <pthread.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>

#include "common/pki/authority.h"

namespace ringmaster::worker {
namespace {

using std::chrono::milliseconds;

constexpr std::chrono::seconds kCallLimit{5};
// Between two tries; and two looks, because somebody may have set the clock.
constexpr milliseconds kShortest{1'000};
constexpr milliseconds kLongest{60'000};
constexpr milliseconds kPatience{100'000};  // 5 s between two tries of one that ended

}  // namespace

void Renewal::Start() {
  if (place_.folder.empty()) return;
  thread_ = std::jthread([this]() { Run(); });
  pthread_setname_np(thread_.native_handle(), "renew");
}

void Renewal::Stop() {
  {
    MutexLock lock(mu_);
    stopping_ = true;
    if (call_ != nullptr) call_->TryCancel();
    changed_.NotifyAll();
  }
  if (thread_.joinable()) thread_.join();
}

void Renewal::Run() {
  while (true) {
    const milliseconds pause = Look();
    MutexLock lock(mu_);
    changed_.WaitUntil(mu_, std::chrono::steady_clock::now() + pause,
                       [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return stopping_; });
    if (stopping_) return;
  }
}

milliseconds Renewal::Look() {
  const auto own = pki::LoadCredentials(place_.folder);
  const pki::Time now = pki::SystemTime();
  Status status = own.status();
  if (own.ok()) {
    const pki::Time due = pki::RenewalOf(own->certificate);
    if (due > now) return std::clamp(milliseconds(due - now), kShortest, kLongest);
    status = Renew(*own, now);
  }
  if (status.ok()) {
    said_.clear();
    return kShortest;
  }
  if (Message(status) != said_) {
    said_ = Message(status);
    spdlog::warn(
        "this worker's certificate cannot be renewed: {}{}", said_,
        own.ok() ? fmt::format("; it {} {}", now > own->not_after() ? "ended at" : "is good until",
                               pki::Shown(own->not_after()))
                 : "");
  }
  // The nearer its end, the oftener; and behind it as somebody whom nobody waits for.
  const auto left =
      own.ok() && now <= own->not_after() ? milliseconds(own->not_after() - now) : kPatience;
  return std::clamp(left / 20, kShortest, kLongest);
}

Status Renewal::Renew(const pki::Credentials& own, pki::Time now) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kCallLimit);
  {
    MutexLock lock(mu_);
    if (stopping_) return absl::CancelledError("the worker stops");
    call_ = &context;
  }
  const StatusOr<pki::Issued> issued = RenewCredentials(place_, own, now, &context);
  {
    MutexLock lock(mu_);
    call_ = nullptr;
  }
  if (!issued.ok()) return issued.status();
  spdlog::info("renewed the certificate of {}: it is good until {}", pki::ToUri(issued->identity),
               pki::Shown(issued->certificate.not_after()));
  if (!issued->clocks.empty()) spdlog::warn("{}", issued->clocks);
  return absl::OkStatus();
}

}  // namespace ringmaster::worker
