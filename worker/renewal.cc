#include "worker/renewal.h"

#include <pthread.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>

#include "common/pki/authority.h"
#include "common/pki/credential_folder.h"
#include "common/pki/join.h"
#include "common/rpc/rpc_status.h"
#include "ringmaster/v1/access.grpc.pb.h"

namespace ringmaster::worker {
namespace {

using std::chrono::milliseconds;

constexpr std::chrono::seconds kCallLimit{5};
// Between two tries; and two looks, because somebody may have set the clock.
constexpr milliseconds kShortest{1'000};
constexpr milliseconds kLongest{60'000};

}  // namespace

void Renewal::Start() {
  if (folder_.empty()) return;
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
  const auto own = pki::LoadCredentials(folder_);
  const pki::Time now = pki::SystemTime();
  Status status = own.status();
  if (own.ok()) {
    const pki::Time due = pki::RenewalOf(own->certificate);
    if (due > now) return std::clamp(milliseconds(due - now), kShortest, kLongest);
    status = Renew(own->identity);
  }
  if (status.ok()) {
    said_.clear();
    return kShortest;
  }
  if (Message(status) != said_) {
    said_ = Message(status);
    spdlog::warn("this worker's certificate cannot be renewed: {}{}", said_,
                 own.ok() ? "; it is good until " + pki::Shown(own->not_after()) : "");
  }
  // The nearer its end, the oftener.
  const auto left = own.ok() ? milliseconds(own->not_after() - now) : kLongest;
  return std::clamp(left / 20, kShortest, kLongest);
}

StatusOr<v1::IssuedCertificate> Renewal::Ask(const v1::RenewRequest& request) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kCallLimit);
  {
    MutexLock lock(mu_);
    if (stopping_) return absl::CancelledError("the worker stops");
    call_ = &context;
  }
  v1::IssuedCertificate reply;
  const grpc::Status answer = v1::Access::NewStub(coordinator_)->Renew(&context, request, &reply);
  MutexLock lock(mu_);
  call_ = nullptr;
  if (!answer.ok()) return FromGrpc(answer);
  return reply;
}

Status Renewal::Renew(const pki::Identity& own) {
  RING_ASSIGN_OR_RETURN(const pki::Key key, pki::Key::Generate());
  v1::RenewRequest request;
  RING_ASSIGN_OR_RETURN(*request.mutable_signing_request(), key.SigningRequest());
  RING_ASSIGN_OR_RETURN(const v1::IssuedCertificate reply, Ask(request));
  RING_ASSIGN_OR_RETURN(const pki::Issued issued, pki::CheckIssued(reply, key, pki::SystemTime()));
  if (issued.identity != own) {
    return FailedPrecondition("the coordinator sent a certificate for {}",
                              pki::ToUri(issued.identity));
  }
  RING_RETURN_IF_ERROR(pki::WriteCredentials(folder_, key, issued.certificate, issued.authorities));
  spdlog::info("renewed the certificate of {}: it is good until {}", pki::ToUri(issued.identity),
               pki::Shown(issued.certificate.not_after()));
  return absl::OkStatus();
}

}  // namespace ringmaster::worker
