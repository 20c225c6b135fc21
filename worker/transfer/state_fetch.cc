#include "worker/transfer/state_fetch.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "common/address.h"
#include "common/rpc/read_stream.h"
#include "common/rpc/rpc_status.h"
#include "common/signals.h"
#include "common/text.h"
#include "ringmaster/v1/states.grpc.pb.h"
#include "worker/transfer/state_pieces.h"
#include "worker/transfer/state_receiver.h"
#include "worker/transfer/state_service.h"

namespace ringmaster::worker {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kPause{20};

constexpr std::pair<const char*, int> kChannelOptions[] = {
    // A source that stands still does not answer pings; a stream alone would never tell.
    {GRPC_ARG_KEEPALIVE_TIME_MS, 500},
    {GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 500},
    {GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0},
    // A piece in one frame, and a fixed window of some pieces instead of one that is probed for.
    {GRPC_ARG_HTTP2_BDP_PROBE, 0},
    {GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 8 * static_cast<int>(kStatePieceBytes)},
    {GRPC_ARG_HTTP2_MAX_FRAME_SIZE, static_cast<int>(kStatePieceBytes)},
    // Not on a connection of the ring, whose frames must not wait behind a state.
    {GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1},
    {GRPC_ARG_ENABLE_RETRIES, 0},
    {GRPC_ARG_ENABLE_HTTP_PROXY, 0},
    {GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1},
    {GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 50},
    {GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 1'000},
    {GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1'000},
    // A piece and its fields; a header with all its files.
    {GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, 2 * static_cast<int>(kStatePieceBytes)},
};

// One call: a state, or why there is none and whether to ask again.
struct Attempt {
  StatusOr<StateCopy> state = absl::UnknownError("");
  enum class Then : uint8_t { kGiveUp, kAskAgain } then = Then::kGiveUp;
  bool heard = false;  // it is the source that answered
};

class StateFetch {
 public:
  StateFetch(const FetchOptions& options, const Address& address, const std::stop_token& stop);
  [[nodiscard]] StatusOr<StateCopy> Run();

 private:
  using Stream = ReadStream<v1::StatePiece>;

  [[nodiscard]] Attempt Try();
  // Why the stream ended before a header came; in the middle.
  [[nodiscard]] Attempt Refusal(const grpc::Status& status) const;
  [[nodiscard]] Status Broken(const StateReceiver& receiver, Stream* stream) const;

  const FetchOptions& options_;
  const std::stop_token& stop_;
  const std::unique_ptr<v1::States::Stub> stub_;
};

std::shared_ptr<grpc::Channel> ChannelTo(const Address& address) {
  grpc::ChannelArguments arguments;
  for (const auto& [name, value] : kChannelOptions) arguments.SetInt(name, value);
  return grpc::CreateCustomChannel(address.Target(), grpc::InsecureChannelCredentials(), arguments);
}

StateFetch::StateFetch(const FetchOptions& options, const Address& address,
                       const std::stop_token& stop)
    : options_(options), stop_(stop), stub_(v1::States::NewStub(ChannelTo(address))) {}

StatusOr<StateCopy> StateFetch::Run() {
  Clock::time_point heard = Clock::now();
  while (true) {
    Attempt attempt = Try();
    const Status& status = attempt.state.status();
    if (status.ok()) return attempt.state;
    if (stop_.stop_requested()) return absl::CancelledError("the fetch was stopped");
    if (attempt.then == Attempt::Then::kGiveUp) return status;
    const Clock::time_point now = Clock::now();
    if (attempt.heard) heard = now;
    if (now - heard >= options_.silence) {
      return Error(absl::StatusCode::kUnavailable, "nobody has answered for {} ms: {}",
                   options_.silence.count(), Message(status));
    }
    if (now + kPause >= options_.deadline) {
      return Error(absl::StatusCode::kDeadlineExceeded, "not there in time: {}", Message(status));
    }
    WaitForStop(stop_, kPause);
  }
}

Attempt StateFetch::Try() {
  v1::FetchRequest request;
  request.set_protocol(kProtocolVersion);
  request.set_job_id(options_.job.value());
  request.set_step(options_.step);
  request.set_worker(options_.worker);
  request.mutable_generation()->set_term(options_.generation.term);
  request.mutable_generation()->set_counter(options_.generation.counter);
  request.set_ticket(options_.ticket);
  const auto prepare = [&](grpc::ClientContext* context, grpc::CompletionQueue* queue) {
    return stub_->PrepareAsyncFetch(context, request, queue);
  };
  Stream stream(prepare, stop_);
  StateReceiver receiver(options_.step, options_.max_bytes);
  v1::StatePiece piece;
  bool open = stream.Begin(options_.deadline) && stream.Read(&piece, options_.deadline);
  if (!open && stream.late()) return {absl::DeadlineExceededError("the source does not answer")};
  if (!open) return Refusal(stream.End());
  while (open) {
    if (Status status = receiver.Take(piece); !status.ok()) return {std::move(status)};
    open = stream.Read(&piece, std::min(Clock::now() + options_.silence, options_.deadline));
  }
  if (!receiver.complete()) return {Broken(receiver, &stream)};
  return {std::move(receiver).Release()};
}

Attempt StateFetch::Refusal(const grpc::Status& status) const {
  if (status.ok()) return {absl::DataLossError("the stream ended without a header")};
  const std::string reason = ErrorReason(status);
  const bool passes =
      status.error_code() == grpc::UNAVAILABLE || status.error_code() == grpc::CANCELLED;
  Attempt attempt{FromGrpc(status)};
  attempt.heard = !reason.empty();
  if (passes || reason == kReasonCrowded) attempt.then = Attempt::Then::kAskAgain;
  return attempt;
}

Status StateFetch::Broken(const StateReceiver& receiver, Stream* stream) const {
  const std::string where =
      fmt::format("after {} of {} bytes", receiver.received(), receiver.expected());
  if (stream->late()) {
    if (Clock::now() >= options_.deadline) {
      return Error(absl::StatusCode::kDeadlineExceeded, "not complete in time, {}", where);
    }
    return Error(absl::StatusCode::kUnavailable, "the source has been silent for {} ms, {}",
                 options_.silence.count(), where);
  }
  const grpc::Status status = stream->End();
  if (status.ok()) {
    return Error(absl::StatusCode::kDataLoss, "the stream ended {}, without an end", where);
  }
  return Error(absl::StatusCode::kUnavailable, "the stream broke {}: {}", where,
               status.error_message());
}

}  // namespace

StatusOr<StateCopy> FetchState(const FetchOptions& options, const std::stop_token& stop) {
  const StatusOr<Address> address = ParsePeerAddress(options.address, "ring_address");
  StatusOr<StateCopy> state =
      address.ok() ? StateFetch(options, *address, stop).Run() : address.status();
  if (state.ok()) return state;
  const std::string source = options.source.empty()
                                 ? OneLine(options.address, kMaxNameText)
                                 : fmt::format("{} ({})", OneLine(options.source, kMaxNameText),
                                               OneLine(options.address, kMaxNameText));
  return Annotate(state.status(), fmt::format("state of job {} at step {} from {}",
                                              options.job.value(), options.step, source));
}

}  // namespace ringmaster::worker
