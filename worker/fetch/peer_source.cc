#include "worker/fetch/peer_source.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/crc32c.h"
#include "common/data_files/data_files_service.h"
#include "common/ids.h"
#include "common/rpc/channel.h"
#include "common/rpc/read_stream.h"
#include "common/rpc/rpc_status.h"
#include "common/text.h"

namespace ringmaster::worker {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kFrame = static_cast<int>(data_files::kFrameBytes);
// Of a list in memory: 2^24 pieces are 128 TiB.
constexpr size_t kMostPieces = size_t{1} << 24;

constexpr std::chrono::milliseconds kReconnect{200};

constexpr std::pair<const char*, int> kChannelOptions[] = {
    {GRPC_ARG_KEEPALIVE_TIME_MS, 5'000},        {GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10'000},
    {GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0}, {GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 4 * kFrame},
    {GRPC_ARG_HTTP2_MAX_FRAME_SIZE, kFrame},    {GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, 2 * kFrame},
};

std::shared_ptr<grpc::Channel> ChannelTo(const PeerOptions& options) {
  grpc::ChannelArguments arguments = ChannelOptions(std::chrono::seconds(2));
  for (const auto& [name, value] : kChannelOptions) arguments.SetInt(name, value);
  return options.dialer.Dial(options.address, options.expected, arguments);
}

// A list on its way in.
class ListReceiver {
 public:
  Status Take(const v1::ListedFiles& message) {
    if (complete_) return DataLoss("files came after the end of the list");
    for (const v1::FileEntry& entry : message.files()) RING_RETURN_IF_ERROR(TakeEntry(entry));
    complete_ = message.complete();
    return absl::OkStatus();
  }
  [[nodiscard]] bool complete() const { return complete_; }
  std::vector<SourceFile> Release() { return std::move(files_); }

 private:
  Status TakeEntry(const v1::FileEntry& entry) {
    const size_t count = entry.sha256().size() / sizeof(Sha256Digest);
    pieces_ += count;
    if (entry.first_piece() == 0) {
      RING_RETURN_IF_ERROR(data_files::CheckName(entry.name()));
      files_.push_back({entry.name(), entry.bytes(), {}, {}});
    }
    if (files_.empty() || files_.size() > data_files::kMostFiles || pieces_ > kMostPieces) {
      return DataLoss("a list of {} files and {} pieces", files_.size(), pieces_);
    }
    SourceFile& file = files_.back();
    if (entry.name() != file.name || entry.bytes() != file.bytes ||
        entry.first_piece() != file.pieces.size() ||
        entry.sha256().size() != count * sizeof(Sha256Digest)) {
      return DataLoss("the list is not in order at {}", OneLine(entry.name(), kMaxNameText));
    }
    for (size_t i = 0; i < count; ++i) {
      std::memcpy(file.pieces.emplace_back().data(),
                  entry.sha256().data() + i * sizeof(Sha256Digest), sizeof(Sha256Digest));
    }
    return absl::OkStatus();
  }

  std::vector<SourceFile> files_;
  size_t pieces_ = 0;
  bool complete_ = false;
};

}  // namespace

PeerSource::PeerSource(PeerOptions options)
    : options_(std::move(options)),
      channel_(ChannelTo(options_)),
      stub_(v1::DataFiles::NewStub(channel_)) {}

std::string PeerSource::name() const {
  return fmt::format("{} at {}", options_.called, options_.address.ToString());
}

v1::DataAsker PeerSource::Asker() const {
  v1::DataAsker asker = options_.asker;
  asker.set_protocol(kProtocolVersion);
  asker.set_ticket(options_.ticket());
  return asker;
}

Status PeerSource::Ended(const grpc::Status& status, bool late) const {
  if (late) {
    return Error(absl::StatusCode::kUnavailable, "it has been silent for {} s",
                 std::chrono::duration_cast<std::chrono::seconds>(options_.silence).count());
  }
  if (status.ok()) return Error(absl::StatusCode::kUnavailable, "it broke off");
  const Status error = FromGrpc(status);
  const std::string reason = ErrorReason(status);
  // What no service of ours said is the connection's.
  const bool ours = !reason.empty() || error.code() == absl::StatusCode::kUnimplemented;
  const bool again = !ours || reason == data_files::kReasonCrowded ||
                     (reason == data_files::kReasonTicket && options_.ticket_changes);
  if (!again) return error;
  return Error(absl::StatusCode::kUnavailable, "{}", Message(error));
}

// A call fails at once while a connection that failed is not there again.
void PeerSource::Connect(const std::stop_token& stop) const {
  if (channel_->GetState(true) == GRPC_CHANNEL_IDLE) return;  // the first call connects
  (void)AwaitConnection(*channel_, Clock::now() + kReconnect,
                        [&stop] { return stop.stop_requested(); });
}

StatusOr<std::vector<SourceFile>> PeerSource::List(const FetchLimits& limits) {
  v1::ListFilesRequest request;
  *request.mutable_asker() = Asker();
  const auto prepare = [&](grpc::ClientContext* context, grpc::CompletionQueue* queue) {
    return stub_->PrepareAsyncList(context, request, queue);
  };
  const auto limit = [&]() { return Clock::now() + options_.silence; };
  Connect(limits.stop);
  ReadStream<v1::ListedFiles> stream(prepare, limits.stop);
  ListReceiver receiver;
  v1::ListedFiles message;
  bool open = stream.Begin(limit());
  while (open && stream.Read(&message, limit())) RING_RETURN_IF_ERROR(receiver.Take(message));
  if (receiver.complete()) return receiver.Release();
  if (limits.stop.stop_requested()) return absl::CancelledError("the fetch was stopped");
  return Ended(stream.late() ? grpc::Status() : stream.End(), stream.late());
}

Status PeerSource::Read(const SourceFile& file, uint64_t offset, std::span<uint8_t> out,
                        const FetchLimits& limits) {
  v1::ReadPieceRequest request;
  *request.mutable_asker() = Asker();
  request.set_name(file.name);
  request.set_file_bytes(file.bytes);
  request.set_offset(offset);
  request.set_bytes(out.size());
  const auto prepare = [&](grpc::ClientContext* context, grpc::CompletionQueue* queue) {
    return stub_->PrepareAsyncRead(context, request, queue);
  };
  const auto limit = [&]() { return std::min(Clock::now() + options_.silence, limits.deadline); };
  Connect(limits.stop);
  ReadStream<v1::PieceFrame> stream(prepare, limits.stop);
  v1::PieceFrame frame;
  size_t done = 0;
  bool open = stream.Begin(limit());
  while (open && done < out.size() && (open = stream.Read(&frame, limit()))) {
    const std::string& data = frame.data();
    const std::span<const uint8_t> bytes(reinterpret_cast<const uint8_t*>(data.data()),
                                         data.size());
    if (data.empty() || data.size() > out.size() - done) {
      return DataLoss("a frame of {} bytes arrived where {} were to come", data.size(),
                      out.size() - done);
    }
    if (frame.crc32c() != ExtendCrc32c(0, bytes)) {
      return Error(absl::StatusCode::kUnavailable, "a frame at byte {} of {} came damaged",
                   offset + done, file.name);
    }
    std::memcpy(out.data() + done, data.data(), data.size());
    done += data.size();
  }
  if (done == out.size()) return absl::OkStatus();
  if (limits.stop.stop_requested()) return absl::CancelledError("the fetch was stopped");
  return Ended(stream.late() ? grpc::Status() : stream.End(), stream.late());
}

}  // namespace ringmaster::worker
