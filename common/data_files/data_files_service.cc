#include "common/data_files/data_files_service.h"

#include <sys/stat.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "common/crc32c.h"
#include "common/ids.h"
#include "common/rpc/rpc_status.h"
#include "common/text.h"

namespace ringmaster::data_files {
namespace {

using Clock = std::chrono::steady_clock;

// A message of a list is sent when it is so large, or when so long nothing was.
constexpr size_t kListedBytes = 256 << 10;
constexpr std::chrono::milliseconds kListedPause{500};
// Of one file in one entry.
constexpr size_t kPiecesInEntry = 4096;

// What one turn of a call on the service's thread led to.
enum class Turn : uint8_t { kAgain, kSend, kEnd };

grpc::Status Refusal(const Status& status) {
  if (status.code() == absl::StatusCode::kPermissionDenied) return ToGrpc(status, kReasonTicket);
  if (status.code() == absl::StatusCode::kResourceExhausted) return ToGrpc(status, kReasonCrowded);
  return ToGrpc(status);
}

template <typename Message>
class Refused : public grpc::ServerWriteReactor<Message> {
 public:
  explicit Refused(const grpc::Status& status) { this->Finish(status); }
  void OnDone() override { delete this; }
};

// One call on the source's side: from the service's thread, which prepares a message, to gRPC,
// which writes it, and back, one at a time. Lives until gRPC is done with it. Thread-safe.
template <typename Message>
class ServedStream : public grpc::ServerWriteReactor<Message>,
                     public ServedCall,
                     public std::enable_shared_from_this<ServedStream<Message>> {
 public:
  // Makes the next message, on the service's thread.
  using Next = std::function<StatusOr<Turn>(Message*)>;

  ServedStream(DataFilesService* service, grpc::CallbackServerContext* context, Next next)
      : service_(service), next_(std::move(next)), context_(context) {}

  void Begin() override { PrepareSoon(); }
  void Cancel() override {
    MutexLock lock(mu_);
    if (context_ != nullptr) context_->TryCancel();
  }
  bool Ended() const override {
    MutexLock lock(mu_);
    return ended_;
  }
  bool StalledSince(Clock::time_point then) const override {
    MutexLock lock(mu_);
    return writing_since_ && *writing_since_ < then;
  }

 private:
  void PrepareSoon() {
    if (service_->Post([self = this->shared_from_this()]() { self->Prepare(); })) return;
    End(ToGrpc(Error(absl::StatusCode::kUnavailable, "the source stops, or is overloaded")));
  }
  void Prepare() {
    {
      MutexLock lock(mu_);
      if (ended_ || context_ == nullptr) return;
      if (context_->IsCancelled()) return EndLocked(grpc::Status::CANCELLED);
    }
    const StatusOr<Turn> turn = next_(&message_);
    if (!turn.ok()) return End(Refusal(turn.status()));
    if (*turn == Turn::kAgain) return PrepareSoon();
    if (*turn == Turn::kEnd) return End(grpc::Status::OK);
    MutexLock lock(mu_);
    if (ended_) return;
    writing_since_ = Clock::now();
    this->StartWrite(&message_);
  }
  void OnWriteDone(bool ok) override {
    {
      MutexLock lock(mu_);
      writing_since_.reset();
      if (!ok) return EndLocked(grpc::Status::CANCELLED);
    }
    PrepareSoon();
  }
  void OnCancel() override {}  // the write under way fails, or the next turn sees it
  void OnDone() override {
    {
      MutexLock lock(mu_);
      context_ = nullptr;
    }
    service_->Done(this->shared_from_this());  // may destroy this, with the caller's reference
  }
  void End(const grpc::Status& status) {
    MutexLock lock(mu_);
    EndLocked(status);
  }
  void EndLocked(const grpc::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (!std::exchange(ended_, true)) this->Finish(status);
  }

  DataFilesService* const service_;
  const Next next_;
  Message message_;  // of the service's thread, or gRPC's while it writes

  mutable Mutex mu_;
  grpc::CallbackServerContext* context_ ABSL_GUARDED_BY(mu_);  // null once gRPC is done
  bool ended_ ABSL_GUARDED_BY(mu_) = false;                    // Finish was called
  std::optional<Clock::time_point> writing_since_ ABSL_GUARDED_BY(mu_);
};

// The turns of a List call. Service's thread only.
class ListTurns {
 public:
  ListTurns(DataFilesService* service, Place place)
      : service_(service), place_(std::move(place)), sent_(Clock::now()) {}

  StatusOr<Turn> operator()(v1::ListedFiles* message) {
    if (done_) return Turn::kEnd;
    if (fresh_) message->Clear();
    fresh_ = false;
    if (!list_) {
      RING_ASSIGN_OR_RETURN(list_, service_->ListOf(place_));
    }
    RING_RETURN_IF_ERROR(list_->Step());
    while (bytes_ < kListedBytes && file_ < list_->known()) Append(message);
    const bool all = list_->complete() && file_ == list_->files().size();
    if (!all && bytes_ < kListedBytes && Clock::now() - sent_ < kListedPause) return Turn::kAgain;
    message->set_total_bytes(list_->total_bytes());
    message->set_listed_bytes(list_->known_bytes());
    message->set_complete(all);
    done_ = all;
    fresh_ = true;
    bytes_ = 0;
    sent_ = Clock::now();
    return Turn::kSend;
  }

 private:
  void Append(v1::ListedFiles* message) {
    const ListedFile& file = list_->files()[file_];
    v1::FileEntry& entry = *message->add_files();
    entry.set_name(file.name);
    entry.set_bytes(file.bytes);
    entry.set_first_piece(piece_);
    const size_t count = std::min(kPiecesInEntry, file.pieces.size() - piece_);
    if (count > 0) {
      entry.set_sha256(file.pieces[piece_].data(), count * sizeof(Sha256Digest));
    }
    bytes_ += file.name.size() + count * sizeof(Sha256Digest) + 16;
    piece_ += count;
    if (piece_ < file.pieces.size()) return;
    piece_ = 0;
    ++file_;
  }

  DataFilesService* service_;
  Place place_;
  std::shared_ptr<FileList> list_;
  Clock::time_point sent_;
  size_t file_ = 0, piece_ = 0;  // that come next
  size_t bytes_ = 0;             // of the message that is being made
  bool fresh_ = true, done_ = false;
};

// The turns of a Read call. Service's thread only.
class ReadTurns {
 public:
  ReadTurns(Place place, v1::ReadPieceRequest request)
      : place_(std::move(place)), request_(std::move(request)) {}

  StatusOr<Turn> operator()(v1::PieceFrame* message) {
    if (!file_) RING_RETURN_IF_ERROR(Open());
    if (done_ == request_.bytes()) return Turn::kEnd;
    const uint64_t count = std::min(kFrameBytes, request_.bytes() - done_);
    std::string& data = *message->mutable_data();
    data.resize(count);
    const std::span<uint8_t> bytes(reinterpret_cast<uint8_t*>(data.data()), count);
    RING_RETURN_IF_ERROR(
        Annotate(ReadExactly(file_->get(), request_.offset() + done_, bytes), request_.name()));
    message->set_crc32c(ExtendCrc32c(0, bytes));
    done_ += count;
    return Turn::kSend;
  }

 private:
  Status Open() {
    RING_RETURN_IF_ERROR(CheckName(request_.name()));
    RING_ASSIGN_OR_RETURN(const OwnedFile root, data::OpenFolder(place_.root));
    RING_ASSIGN_OR_RETURN(const OwnedFile folder,
                          data::OpenBeneath(root, place_.path, data::Wanted::kFolder));
    RING_ASSIGN_OR_RETURN(OwnedFile file,
                          data::OpenBeneath(folder, request_.name(), data::Wanted::kFile));
    struct stat status = {};
    const bool told = fstat(file.get(), &status) == 0;
    const uint64_t bytes = told ? static_cast<uint64_t>(status.st_size) : 0;
    if (!told || bytes != request_.file_bytes()) {
      return FailedPrecondition("{} has {} bytes here, not the {} that were listed",
                                request_.name(), bytes, request_.file_bytes());
    }
    if (request_.bytes() > kPieceBytes || request_.offset() > bytes ||
        request_.bytes() > bytes - request_.offset()) {
      return InvalidArgument("{} bytes at byte {} of {}, which has {}: expected at most {} in it",
                             request_.bytes(), request_.offset(), request_.name(), bytes,
                             kPieceBytes);
    }
    file_ = std::make_shared<OwnedFile>(std::move(file));
    return absl::OkStatus();
  }

  Place place_;
  v1::ReadPieceRequest request_;
  std::shared_ptr<OwnedFile> file_;
  uint64_t done_ = 0;
};

}  // namespace

DataFilesService::DataFilesService(Options options)
    : options_(std::move(options)),
      loop_({"data_files", 4 * (options_.max_lists + options_.max_reads) + 16,
             std::chrono::seconds(1), [this]() { CancelStalled(); }}) {}

DataFilesService::~DataFilesService() { Stop(); }

void DataFilesService::Start() {
  loop_.Start();
  MutexLock lock(mu_);
  started_ = true;
}

void DataFilesService::Stop() {
  {
    MutexLock lock(mu_);
    stopping_ = true;
  }
  for (const auto& call : All()) call->Cancel();
  loop_.Stop();
}

std::set<std::shared_ptr<ServedCall>> DataFilesService::All() {
  MutexLock lock(mu_);
  Calls all = lists_;
  all.insert(reads_.begin(), reads_.end());
  return all;
}

StatusOr<Place> DataFilesService::Admit(const grpc::AuthContext& connection,
                                        const v1::DataAsker& asker) const {
  if (asker.protocol() == kProtocolVersion) return options_.admit(connection, asker);
  return FailedPrecondition("worker {} speaks protocol version {}, the source {}: update the older",
                            OneLine(asker.worker(), kMaxNameText), asker.protocol(),
                            kProtocolVersion);
}

Status DataFilesService::Add(const std::shared_ptr<ServedCall>& call, Calls* calls, size_t most) {
  MutexLock lock(mu_);
  if (stopping_ || !started_) {
    return Error(absl::StatusCode::kUnavailable, "the source {}",
                 stopping_ ? "stops" : "is not ready yet");
  }
  // What has ended, and gRPC is not done with yet, takes nobody's place.
  const auto open = std::ranges::count_if(*calls, [](const auto& one) { return !one->Ended(); });
  if (static_cast<size_t>(open) >= most) {
    return Error(absl::StatusCode::kResourceExhausted,
                 "{} workers fetch data here already, which is the limit", open);
  }
  calls->insert(call);
  return absl::OkStatus();
}

template <typename Message, typename Next>
grpc::ServerWriteReactor<Message>* DataFilesService::Open(grpc::CallbackServerContext* context,
                                                          const v1::DataAsker& asker, Calls* calls,
                                                          size_t most, Next next) {
  StatusOr<Place> place = Admit(*context->auth_context(), asker);
  if (!place.ok()) return new Refused<Message>(Refusal(place.status()));
  const auto stream =
      std::make_shared<ServedStream<Message>>(this, context, next(*std::move(place)));
  if (const Status added = Add(stream, calls, most); !added.ok()) {
    return new Refused<Message>(Refusal(added));
  }
  stream->Begin();
  return stream.get();
}

grpc::ServerWriteReactor<v1::ListedFiles>* DataFilesService::List(
    grpc::CallbackServerContext* context,
    const v1::ListFilesRequest* request) ABSL_NO_THREAD_SAFETY_ANALYSIS {
  return Open<v1::ListedFiles>(context, request->asker(), &lists_, options_.max_lists,
                               [this](Place place) { return ListTurns(this, std::move(place)); });
}

grpc::ServerWriteReactor<v1::PieceFrame>* DataFilesService::Read(
    grpc::CallbackServerContext* context,
    const v1::ReadPieceRequest* request) ABSL_NO_THREAD_SAFETY_ANALYSIS {
  return Open<v1::PieceFrame>(
      context, request->asker(), &reads_, options_.max_reads,
      [request](Place place) { return ReadTurns(std::move(place), *request); });
}

void DataFilesService::Done(const std::shared_ptr<ServedCall>& call) {
  MutexLock lock(mu_);
  lists_.erase(call);
  reads_.erase(call);
}

StatusOr<std::shared_ptr<FileList>> DataFilesService::ListOf(const Place& place) {
  std::erase_if(shared_, [](const auto& entry) { return entry.second.expired(); });
  std::weak_ptr<FileList>& shared = shared_[place.root + '\n' + place.path];
  if (std::shared_ptr<FileList> list = shared.lock()) return list;
  RING_ASSIGN_OR_RETURN(std::shared_ptr<FileList> list,
                        FileList::Begin(place.root, place.path, options_.state_dir));
  shared = list;
  return list;
}

void DataFilesService::CancelStalled() {
  const auto limit = Clock::now() - options_.write_limit;
  for (const auto& call : All()) {
    if (call->StalledSince(limit)) call->Cancel();
  }
}

}  // namespace ringmaster::data_files
