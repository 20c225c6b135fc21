#include "worker/ring/grpc/stream_table.h"

#include <algorithm>
#include <utility>

#include "common/rpc/rpc_status.h"
#include "common/ticket.h"
#include "worker/ring/grpc/message.h"

namespace ringmaster::ring {
namespace {

constexpr int kMostOfOneSender = 2;

std::string Named(const v1::LinkHello& hello) {
  return fmt::format("job {} generation {}", hello.job_id(), GenerationOf(hello).ToString());
}

grpc::Status Refusal(absl::StatusCode code, const char* reason, const v1::LinkHello& hello,
                     const std::string& message) {
  return ToGrpc(Status(code, message), reason,
                {{"job_id", hello.job_id()},
                 {"generation", GenerationOf(hello).ToString()},
                 {"sender", hello.sender()}});
}

bool SameRing(const std::string& ticket, const std::string& shown) {
  return ticket.empty() ? shown.empty() : SameTicket(ticket, shown);
}

}  // namespace

template <typename Stream>
typename StreamTable<Stream>::Verdict StreamTable<Stream>::Judge(const v1::LinkHello& hello,
                                                                 grpc::Status* refusal) const {
  if (!current_ || current_->of.job_id != hello.job_id() ||
      current_->of.generation < GenerationOf(hello)) {
    return Verdict::kWait;
  }
  if (GenerationOf(hello) < current_->of.generation || current_->lease.expired()) {
    *refusal = Refusal(absl::StatusCode::kFailedPrecondition, kReasonNotCurrent, hello,
                       fmt::format("{} is over: this worker is, or was last, at generation {}",
                                   Named(hello), current_->of.generation.ToString()));
    return Verdict::kRefuse;
  }
  if (!SameRing(current_->of.ticket, hello.ticket())) {
    *refusal = Refusal(absl::StatusCode::kFailedPrecondition, kReasonNotCurrent, hello,
                       fmt::format("{} of this worker is another coordinator's", Named(hello)));
    return Verdict::kRefuse;
  }
  if (hello.sender() != current_->of.predecessor_name ||
      hello.incarnation() != current_->of.predecessor_incarnation) {
    *refusal = Refusal(
        absl::StatusCode::kPermissionDenied, kReasonStranger, hello,
        fmt::format("{}: the predecessor of this worker is {}, not {}", Named(hello),
                    current_->of.predecessor_name,
                    hello.sender() == current_->of.predecessor_name ? "another process of that name"
                                                                    : hello.sender()));
    return Verdict::kRefuse;
  }
  if (!current_->open && current_->accepted == nullptr) {
    *refusal = Refusal(absl::StatusCode::kFailedPrecondition, kReasonNotCurrent, hello,
                       fmt::format("{} is over: this worker gave it up before {} came",
                                   Named(hello), hello.sender()));
    return Verdict::kRefuse;
  }
  if (!current_->open) {
    *refusal = Refusal(absl::StatusCode::kAlreadyExists, kReasonNotCurrent, hello,
                       fmt::format("{}: {} has a stream already", Named(hello), hello.sender()));
    return Verdict::kRefuse;
  }
  return Verdict::kAccept;
}

template <typename Stream>
bool StreamTable<Stream>::Settle(const std::shared_ptr<Stream>& stream) {
  if (stream->closed()) return true;
  grpc::Status refusal;
  switch (Judge(stream->hello(), &refusal)) {
    case Verdict::kAccept: {
      const std::shared_ptr<State> state = current_->state.lock();
      if (state != nullptr && stream->Accept(state)) {
        current_->accepted = stream;
        current_->open = false;
      }
      return true;
    }
    case Verdict::kRefuse:
      stream->End(refusal);
      return true;
    case Verdict::kWait:
      break;
  }
  return false;
}

template <typename Stream>
void StreamTable<Stream>::Add(const std::shared_ptr<Stream>& stream) {
  Settled settled;  // outlives the lock
  settled.streams.push_back(stream);
  MutexLock lock(mu_);
  Take(stream, &settled);
}

template <typename Stream>
void StreamTable<Stream>::Take(const std::shared_ptr<Stream>& stream, Settled* settled) {
  if (!stopped_.ok()) {
    stream->End(ToGrpc(stopped_, kReasonLeft));
    return;
  }
  if (Settle(stream)) return;
  std::erase_if(waiting_, [](const Waiting& waiting) { return waiting.stream->closed(); });
  EndOldestOf(stream->hello(), settled);
  if (waiting_.size() >= waiting_streams_) {
    stream->End(Refusal(absl::StatusCode::kResourceExhausted, kReasonCrowded, stream->hello(),
                        fmt::format("{}: {} streams wait here already for their generations",
                                    Named(stream->hello()), waiting_.size())));
    return;
  }
  waiting_.push_back({stream, std::chrono::steady_clock::now() + waiting_limit_});
}

// Whoever goes on to a newer generation waits for no older one, and nobody takes all the places.
template <typename Stream>
void StreamTable<Stream>::EndOldestOf(const v1::LinkHello& hello, Settled* settled) {
  const auto of_sender = [&](const Waiting& waiting) {
    return waiting.stream->hello().sender() == hello.sender();
  };
  if (std::ranges::count_if(waiting_, of_sender) < kMostOfOneSender) return;
  const auto oldest = std::ranges::find_if(waiting_, of_sender);
  oldest->stream->End(
      Refusal(absl::StatusCode::kResourceExhausted, kReasonCrowded, oldest->stream->hello(),
              fmt::format("{}: {} newer streams of {} wait here", Named(oldest->stream->hello()),
                          kMostOfOneSender, hello.sender())));
  settled->streams.push_back(oldest->stream);
  waiting_.erase(oldest);
}

template <typename Stream>
Status StreamTable<Stream>::Begin(const RingPlace& place, const std::shared_ptr<State>& state,
                                  std::shared_ptr<const void>* lease) {
  Settled settled;  // outlives the lock
  MutexLock lock(mu_);
  RING_RETURN_IF_ERROR(stopped_);
  if (current_ && !current_->lease.expired()) {
    return FailedPrecondition(
        "cannot join generation {} of job {}: the {} of generation {} of job {} still exists",
        place.generation.ToString(), place.job_id, Stream::kOwner,
        current_->of.generation.ToString(), current_->of.job_id);
  }
  *lease = std::make_shared<const char>();
  current_ = Current{.of = place, .state = state, .lease = *lease};
  std::erase_if(waiting_, [&](const Waiting& waiting) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    const bool is_settled = Settle(waiting.stream);
    if (is_settled) settled.streams.push_back(waiting.stream);
    return is_settled;
  });
  return absl::OkStatus();
}

template <typename Stream>
std::shared_ptr<Stream> StreamTable<Stream>::EndAccepting() {
  MutexLock lock(mu_);
  if (!current_) return nullptr;
  current_->open = false;
  return current_->accepted;
}

template <typename Stream>
std::optional<TimePoint> StreamTable<Stream>::Expire(TimePoint now) {
  Settled settled;  // outlives the lock
  MutexLock lock(mu_);
  std::optional<TimePoint> next;
  std::erase_if(waiting_, [&](const Waiting& waiting) {
    if (waiting.until <= now) {
      const v1::LinkHello& hello = waiting.stream->hello();
      waiting.stream->End(Refusal(absl::StatusCode::kFailedPrecondition, kReasonNotCurrent, hello,
                                  fmt::format("{}: this worker did not join it within {} ms",
                                              Named(hello), waiting_limit_.count())));
      settled.streams.push_back(waiting.stream);
      return true;
    }
    if (!next || waiting.until < *next) next = waiting.until;
    return false;
  });
  return next;
}

template <typename Stream>
void StreamTable<Stream>::Stop(const Status& reason) {
  Settled settled;               // outlives the lock
  std::shared_ptr<State> state;  // as well
  {
    MutexLock lock(mu_);
    if (!stopped_.ok()) return;
    stopped_ = reason;
    const grpc::Status left = ToGrpc(reason, kReasonLeft);
    for (const Waiting& waiting : waiting_) settled.streams.push_back(waiting.stream);
    waiting_.clear();
    if (current_) state = current_->state.lock();
    if (current_ && current_->accepted != nullptr) settled.streams.push_back(current_->accepted);
    for (const std::shared_ptr<Stream>& stream : settled.streams) stream->End(left);
  }
  if (state != nullptr) state->Fail(reason);
}

template class StreamTable<IncomingStream>;
template class StreamTable<IncomingPulse>;

}  // namespace ringmaster::ring
