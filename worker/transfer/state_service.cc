#include "worker/transfer/state_service.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "common/rpc/rpc_status.h"
#include "common/ticket.h"
#include "worker/transfer/state_pieces.h"
#include "worker/transfer/state_stream.h"

namespace ringmaster::worker {
namespace {

// How long a call into the job may take before that is told.
constexpr std::chrono::seconds kPatience{10};

class Refused : public grpc::ServerWriteReactor<grpc::ByteBuffer> {
 public:
  explicit Refused(const grpc::Status& status) { Finish(status); }
  void OnDone() override { delete this; }
};

}  // namespace

StateService::StateService(Options options)
    : options_(options),
      loop_({"states", 2 * options.max_streams + 2, std::chrono::seconds(1),
             [this]() { CancelStalled(); }}) {}

StateService::~StateService() {
  Stop();
  Withdraw();
}

void StateService::Start() {
  loop_.Start();
  MutexLock lock(mu_);
  started_ = true;
}

void StateService::Stop() {
  std::vector<std::shared_ptr<StateStream>> streams;
  {
    MutexLock lock(mu_);
    stopping_ = true;
    streams.assign(streams_.begin(), streams_.end());
  }
  for (const auto& stream : streams) stream->Cancel();
  loop_.Stop();
}

void StateService::Offer(const JobId& job, OpenState open) {
  Withdraw();
  MutexLock lock(mu_);
  offered_ = std::make_shared<Offered>(Offered{job, std::move(open), ++offers_});
}

void StateService::Admit(const JobId& job, const GenerationId& generation,
                         const std::string& ticket) {
  MutexLock lock(mu_);
  admitted_ = {job, generation, ticket};
}

void StateService::Withdraw() {
  const auto no_calls = [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return calls_ == 0; };
  std::shared_ptr<Offered> withdrawn;  // ends after the lock: who knows what it holds
  MutexLock lock(mu_);
  withdrawn = std::move(offered_);
  admitted_ = Admitted();
  while (!changed_.WaitUntil(mu_, std::chrono::steady_clock::now() + kPatience, no_calls)) {
    spdlog::warn("a state has been opened or read for more than {} s", kPatience.count());
  }
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* StateService::Fetch(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* bytes) {
  v1::FetchRequest request;
  grpc::ByteBuffer message = *bytes;
  grpc::Status refusal =
      grpc::SerializationTraits<v1::FetchRequest>::Deserialize(&message, &request);
  if (!refusal.ok()) return new Refused({grpc::INVALID_ARGUMENT, "not a FetchRequest"});
  std::shared_ptr<StateStream> stream;
  {
    MutexLock lock(mu_);
    refusal = Check(request);
    if (refusal.ok()) {
      stream = std::make_shared<StateStream>(this, context, request);
      streams_.insert(stream);
    }
  }
  if (!stream) return new Refused(refusal);
  stream->Begin();
  return stream.get();
}

grpc::Status StateService::CheckTicket(const v1::FetchRequest& request) const {
  const GenerationId its{request.generation().term(), request.generation().counter()};
  const bool is_ticket = request.ticket().size() == kTicketBytes;
  // Its Start came there before ours came here.
  const bool may_come = admitted_.job.empty() ||
                        (admitted_.job.value() == request.job_id() && its > admitted_.generation);
  if (is_ticket && may_come) {
    return ToGrpc(Error(absl::StatusCode::kUnavailable, "generation {} has not begun here yet",
                        its.ToString()),
                  kReasonNoStateYet);
  }
  const bool same = admitted_.job.value() == request.job_id() && its == admitted_.generation;
  if (same && SameTicket(request.ticket(), admitted_.ticket)) return grpc::Status::OK;
  return ToGrpc(
      Error(absl::StatusCode::kPermissionDenied,
            "a state is given to members of the generation that begins here alone: the ticket that "
            "came with the request is not that of its Start"),
      kReasonStateTicket);
}

grpc::Status StateService::Check(const v1::FetchRequest& request) const {
  if (request.protocol() != kProtocolVersion) {
    return ToGrpc(FailedPrecondition("worker {} speaks protocol version {}, this one {}: update "
                                     "the older one",
                                     request.worker(), request.protocol(), kProtocolVersion),
                  kReasonStateProtocol);
  }
  if (stopping_ || !started_) {
    return ToGrpc(Error(absl::StatusCode::kUnavailable, "the worker {}",
                        stopping_ ? "stops" : "is not ready yet"),
                  stopping_ ? kReasonStateStopping : kReasonNoStateYet);
  }
  if (grpc::Status status = CheckTicket(request); !status.ok()) return status;
  if (streams_.size() >= options_.max_streams) {
    return ToGrpc(
        Error(absl::StatusCode::kResourceExhausted,
              "{} workers fetch a state here already, which is the limit", streams_.size()),
        kReasonCrowded);
  }
  return grpc::Status::OK;
}

StatusOr<StateService::Opened> StateService::Open(const JobId& job, uint64_t step,
                                                  Follows follows) {
  std::shared_ptr<Offered> offered = BeginCall();
  if (!offered) {
    return Error(absl::StatusCode::kUnavailable, "the worker offers no state of {} now",
                 job.value());
  }
  StatusOr<std::unique_ptr<StateSource>> state =
      FailedPrecondition("the worker serves job {}, not {}", offered->job.value(), job.value());
  if (offered->job == job) state = offered->open(step, follows);
  const uint64_t number = offered->number;
  offered.reset();  // Withdraw may be waiting, and then this one is the last
  EndCall();
  RING_RETURN_IF_ERROR(state.status());
  return Opened{*std::move(state), number};
}

StatusOr<grpc::ByteBuffer> StateService::Read(const Opened& opened, uint64_t offset) {
  std::shared_ptr<Offered> offered = BeginCall();
  if (!offered) return FailedPrecondition("the worker serves another job now, or none");
  StatusOr<grpc::ByteBuffer> message =
      FailedPrecondition("the worker serves another job now, or prepared this one anew");
  if (offered->number == opened.offer) {
    message = PieceMessage(opened.state.get(), offset);
  }
  offered.reset();
  EndCall();
  return message;
}

std::shared_ptr<StateService::Offered> StateService::BeginCall() {
  MutexLock lock(mu_);
  if (offered_) ++calls_;
  return offered_;
}

void StateService::EndCall() {
  MutexLock lock(mu_);
  --calls_;
  changed_.NotifyAll();
}

void StateService::Done(const std::shared_ptr<StateStream>& stream) {
  MutexLock lock(mu_);
  streams_.erase(stream);
}

void StateService::CancelStalled() {
  const auto limit = std::chrono::steady_clock::now() - options_.write_limit;
  std::vector<std::shared_ptr<StateStream>> stalled;
  {
    MutexLock lock(mu_);
    for (const auto& stream : streams_) {
      if (stream->StalledSince(limit)) stalled.push_back(stream);
    }
  }
  for (const auto& stream : stalled) stream->Cancel();
}

}  // namespace ringmaster::worker
