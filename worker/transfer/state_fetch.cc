#include "worker/transfer/state_fetch.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "common/net/address.h"
#include "common/rpc/channel.h"
#include "common/rpc/read_stream.h"
#include "common/rpc/rpc_status.h"
#include "common/signals.h"
#include "common/text.h"
#include "ringmaster/v1/states.pb.h"
#include "worker/transfer/state_pieces.h"
#include "worker/transfer/state_service.h"

namespace ringmaster::worker {
namespace {

using Clock = std::chrono::steady_clock;

constexpr char kFetchMethod[] = "/ringmaster.v1.States/Fetch";
constexpr std::chrono::milliseconds kPause{20};

constexpr std::pair<const char*, int> kChannelOptions[] = {
    // A source that stands still does not answer pings; a stream alone would never tell.
    {GRPC_ARG_KEEPALIVE_TIME_MS, 500},
    {GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 500},
    {GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0},
    // A piece in one frame, and a fixed window of some pieces instead of one that is probed for.
    {GRPC_ARG_HTTP2_BDP_PROBE, 0},
    {GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 8 * static_cast<int>(kStatePieceBytes)},
    {GRPC_ARG_HTTP2_MAX_FRAME_SIZE, 2 * static_cast<int>(kStatePieceBytes)},
    // A piece and what is before it.
    {GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, 2 * static_cast<int>(kStatePieceBytes)},
};

// One call: OK, or why there is no state and whether to ask again.
struct Attempt {
  Status status;
  enum class Then : uint8_t { kGiveUp, kAskAgain } then = Then::kGiveUp;
  bool heard = false;  // it is the source that answered
};

class StateFetch {
 public:
  StateFetch(const FetchOptions& options, const Address& address, StateSink* sink,
             const std::stop_token& stop);
  [[nodiscard]] Status Run();

 private:
  using Stream = ReadStream<grpc::ByteBuffer>;

  [[nodiscard]] Attempt Try();
  // Why the stream ended before a header came; what there is at its end.
  [[nodiscard]] Attempt Refusal(const grpc::Status& status) const;
  [[nodiscard]] Status AtEnd(const StateReceiver& receiver, Stream* stream) const;

  const FetchOptions& options_;
  StateSink* const sink_;
  const std::stop_token& stop_;
  const std::shared_ptr<grpc::Channel> channel_;
  const grpc::internal::RpcMethod method_;
};

std::shared_ptr<grpc::Channel> ChannelTo(const Address& address, const FetchOptions& options) {
  if (options.channel != nullptr) return options.channel;
  return options.dialer.Dial(address, {pki::Kind::kWorker, options.source},
                             FetchChannelArguments());
}

StateFetch::StateFetch(const FetchOptions& options, const Address& address, StateSink* sink,
                       const std::stop_token& stop)
    : options_(options),
      sink_(sink),
      stop_(stop),
      channel_(ChannelTo(address, options)),
      method_(kFetchMethod, grpc::internal::RpcMethod::SERVER_STREAMING, channel_) {}

Status StateFetch::Run() {
  Clock::time_point heard = Clock::now();
  while (true) {
    Attempt attempt = Try();
    const Status& status = attempt.status;
    if (status.ok()) return status;
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
    if (channel_->GetState(false) == GRPC_CHANNEL_READY) {
      WaitForStop(stop_, kPause);
    } else {
      (void)AwaitConnection(*channel_, now + kPause, [this] { return stop_.stop_requested(); });
    }
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
  request.set_follows(options_.follows == Follows::kYes);
  const auto prepare = [&](grpc::ClientContext* context, grpc::CompletionQueue* queue) {
    // As a generated stub does, but for the type of what comes.
    return std::unique_ptr<grpc::ClientAsyncReaderInterface<grpc::ByteBuffer>>(
        grpc::internal::ClientAsyncReaderFactory<grpc::ByteBuffer>::Create(
            channel_.get(), queue, method_, context, request, false, nullptr));
  };
  Stream stream(prepare, stop_);
  StateReceiver receiver(options_.step, sink_);
  grpc::ByteBuffer piece;
  bool open = stream.Begin(options_.deadline) && stream.Read(&piece, options_.deadline);
  if (!open && stream.late()) return {absl::DeadlineExceededError("the source does not answer")};
  if (!open) return Refusal(stream.End());
  while (open) {
    if (Status status = receiver.Take(piece); !status.ok()) return {std::move(status)};
    open = stream.Read(&piece, std::min(Clock::now() + options_.silence, options_.deadline));
  }
  return {AtEnd(receiver, &stream)};
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

Status StateFetch::AtEnd(const StateReceiver& receiver, Stream* stream) const {
  const std::string where =
      fmt::format("after {} of {} bytes", receiver.received(), receiver.facts().bytes);
  if (stream->late()) {
    if (Clock::now() >= options_.deadline) {
      return Error(absl::StatusCode::kDeadlineExceeded, "not complete in time, {}", where);
    }
    return Error(absl::StatusCode::kUnavailable, "the source has been silent for {} ms, {}",
                 options_.silence.count(), where);
  }
  const grpc::Status status = stream->End();
  if (status.ok()) {
    return receiver.complete() ? absl::OkStatus() : DataLoss("the stream ended {}", where);
  }
  return Error(absl::StatusCode::kUnavailable, "the stream broke {}: {}", where,
               status.error_message());
}

}  // namespace

grpc::ChannelArguments FetchChannelArguments() {
  grpc::ChannelArguments arguments = ChannelOptions();
  for (const auto& [name, value] : kChannelOptions) arguments.SetInt(name, value);
  return arguments;
}

Status FetchState(const FetchOptions& options, StateSink* sink, const std::stop_token& stop) {
  const StatusOr<Address> address = ParsePeerAddress(options.address, "ring_address");
  const Status status =
      address.ok() ? StateFetch(options, *address, sink, stop).Run() : address.status();
  if (status.ok()) return status;
  const std::string source = options.source.empty()
                                 ? OneLine(options.address, kMaxNameText)
                                 : fmt::format("{} ({})", OneLine(options.source, kMaxNameText),
                                               OneLine(options.address, kMaxNameText));
  return Annotate(status, fmt::format("state of job {} at step {} from {}", options.job.value(),
                                      options.step, source));
}

}  // namespace ringmaster::worker
