#include "worker/backend/pjrt/lane.h"

#include <array>
#include <utility>

#include "common/amount.h"

namespace ringmaster::pjrt {
namespace {

using std::chrono::steady_clock;

constexpr std::chrono::milliseconds kSmallLimit{30'000};  // for what the plugin is not asked

}  // namespace

Status Lane::Reserve(size_t bytes) {
  if (bytes <= memory_.bytes()) return absl::OkStatus();
  RING_ASSIGN_OR_RETURN(memory_,
                        SharedMemory::Create("pjrt-lane", bytes, SharedMemory::Access::kWrite));
  shown_ = false;
  return absl::OkStatus();
}

Status Lane::ShowMemory() {
  const std::array<int, 1> files = {memory_.file()};
  RING_RETURN_IF_ERROR(Ask(MessageKind::kMemory, Encode(MemoryRequest{.bytes = memory_.bytes()}),
                           files, MessageKind::kDone, kSmallLimit, "take memory")
                           .status());
  shown_ = true;
  return absl::OkStatus();
}

Status Lane::Connect() {
  if (stop_.stop_requested()) return JobEnds();
  if (process_ == nullptr) {
    RING_ASSIGN_OR_RETURN(PluginHost::Connection connection, host_.Connect(stop_));
    process_ = std::move(connection.process);
    socket_ = std::move(connection.socket);
    lost_ = false;
    shown_ = false;
    ++connections_;
  }
  return shown_ || memory_.bytes() == 0 ? absl::OkStatus() : ShowMemory();
}

Status Lane::Bury(const std::string& what) {
  const std::shared_ptr<Subprocess> process = std::exchange(process_, nullptr);
  socket_.Close();
  return host_.Bury(process, what);
}

StatusOr<BindReply> Lane::Bind(const BindRequest& request, int text, int weights) {
  const std::array<int, 2> files = {text, weights};
  RING_ASSIGN_OR_RETURN(const HostMessage reply,
                        Ask(MessageKind::kBind, Encode(request), files, MessageKind::kBound,
                            host_.options().compile_limit, "compile"));
  return Decode<BindReply>(reply);
}

Status Lane::Run(const RunRequest& request) {
  return Ask(MessageKind::kRun, Encode(request), {}, MessageKind::kDone, host_.options().run_limit,
             "run a step")
      .status();
}

void Lane::Release(uint32_t program) {
  if (process_ == nullptr || lost_) return;
  // Whoever needs the lane next finds out that it is lost.
  (void)Ask(MessageKind::kRelease, Encode(ReleaseRequest{.program = program}), {},
            MessageKind::kDone, kSmallLimit, "let a program go");
}

StatusOr<HostMessage> Lane::Ask(MessageKind kind, const std::string& body,
                                std::span<const int> files, MessageKind expected,
                                std::chrono::milliseconds limit, const char* doing) {
  if (stop_.stop_requested()) return JobEnds();
  const std::stop_callback end(stop_, [this] { process_->Kill(JobEnds()); });
  const Status sent = Send(socket_.get(), kind, body, files, steady_clock::now() + limit);
  if (absl::IsInvalidArgument(sent)) return sent;  // nothing went out
  if (!sent.ok()) return Lose(sent, limit, doing);
  auto reply = Receive(socket_.get(), host_.options().late(limit));
  if (!reply.ok()) return Lose(reply.status(), limit, doing);
  if (reply->kind == MessageKind::kError) return FromReply(*reply);
  if (reply->kind == expected) return reply;
  return Lose(DataLoss("expected message {}, got {}", static_cast<int>(expected),
                       static_cast<int>(reply->kind)),
              limit, doing);
}

Status Lane::Lose(const Status& why, std::chrono::milliseconds limit, const char* doing) {
  lost_ = true;
  if (absl::IsDeadlineExceeded(why)) {
    process_->Kill(Error(absl::StatusCode::kDeadlineExceeded, "the plugin did not {} within {}",
                         doing, ExactDuration(limit)));
  } else if (!absl::IsUnavailable(why)) {
    process_->Kill(Annotate(why, "the plugin's process makes no sense"));
  }
  return process_->Fate();
}

}  // namespace ringmaster::pjrt
