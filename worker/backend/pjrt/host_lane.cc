#include "worker/backend/pjrt/host_lane.h"

#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <utility>

#include "common/net/socket.h"

namespace ringmaster::pjrt {
namespace {

using std::chrono::steady_clock;

constexpr int kExitMalformed = 3;
constexpr std::chrono::seconds kMessageTime{60};  // for the rest of one that has begun

Status CheckPlace(const Place& place, uint64_t memory) {
  uint64_t bytes = kElementBytes;
  bool fits = place.type.element <= Element::kFloat32 && place.offset % kElementBytes == 0;
  for (const int64_t dim : place.type.dims) {
    fits = fits && dim >= 0 && (dim == 0 || bytes <= memory / static_cast<uint64_t>(dim));
    if (!fits) break;
    bytes *= static_cast<uint64_t>(dim);
  }
  if (fits && bytes <= memory && place.offset <= memory - bytes) return absl::OkStatus();
  return DataLoss("a tensor at byte {} is not within {} bytes of memory", place.offset, memory);
}

Status CheckBind(const BindRequest& request, size_t devices) {
  if (request.device >= devices) {
    return DataLoss("there is no device {} of {}", request.device, devices);
  }
  for (const WeightPlace& tensor : request.weights.tensors) {
    if (tensor.group > WeightGroup::kStatistics) return DataLoss("weights of an unknown group");
    RING_RETURN_IF_ERROR(CheckPlace(tensor.place, request.weights.bytes));
  }
  for (const BoundArgument& argument : request.arguments) {
    if (argument.resident && argument.index >= request.weights.tensors.size()) {
      return DataLoss("there is no tensor {} of weights", argument.index);
    }
  }
  return absl::OkStatus();
}

uint64_t VersionOf(const RunRequest& request, WeightGroup group) {
  switch (group) {
    case WeightGroup::kParameters:
      return request.parameters;
    case WeightGroup::kFrozen:
      return request.frozen;
    case WeightGroup::kStatistics:
      break;
  }
  return request.statistics;
}

}  // namespace

void EndMalformed(const Status& status) {
  std::fprintf(stderr, "ringmaster_pjrt_host: %s\n", Message(status).c_str());
  std::fflush(stderr);
  _exit(kExitMalformed);
}

ErrorReply ToReply(const Status& error) {
  constexpr size_t kMaxText = 64 << 10;
  return {.code = static_cast<int32_t>(error.code()),
          .message = Message(error).substr(0, kMaxText)};
}

std::unique_ptr<HostMessage> NextRequest(int socket) {
  for (;;) {
    const Status ready =
        AwaitSocket(socket, POLLIN, steady_clock::now() + kMessageTime, "a request");
    if (ready.ok()) break;
    if (!absl::IsDeadlineExceeded(ready)) return nullptr;
  }
  auto message = Receive(socket, steady_clock::now() + kMessageTime);
  if (message.ok()) return std::make_unique<HostMessage>(*std::move(message));
  if (!absl::IsUnavailable(message.status())) EndMalformed(message.status());
  return nullptr;
}

ResidentWeights::Copy& ResidentWeights::Find(size_t device, WeightGroup group) {
  MutexLock lock(mu_);
  return copies_[{device, group}];
}

StatusOr<std::shared_ptr<const ResidentWeights::Buffers>> ResidentWeights::On(size_t device,
                                                                              WeightGroup group,
                                                                              uint64_t version) {
  Copy& copy = Find(device, group);
  MutexLock lock(copy.mu);
  if (copy.buffers != nullptr && copy.version == version) return copy.buffers;
  copy.buffers = nullptr;  // the device may have no room for both
  RING_ASSIGN_OR_RETURN(copy.buffers, Upload(device, group));
  copy.version = version;
  return copy.buffers;
}

StatusOr<std::shared_ptr<const ResidentWeights::Buffers>> ResidentWeights::Upload(
    size_t device, WeightGroup group) {
  std::vector<HostTensor> tensors;
  std::vector<size_t> places;
  for (size_t i = 0; i < table_.tensors.size(); ++i) {
    const WeightPlace& tensor = table_.tensors[i];
    if (tensor.group != group) continue;
    tensors.push_back({&tensor.place.type, memory_.data() + tensor.place.offset});
    places.push_back(i);
  }
  RING_ASSIGN_OR_RETURN(std::vector<DeviceBuffer> uploaded, plugin_.Upload(device, tensors));
  auto buffers = std::make_shared<Buffers>(table_.tensors.size());
  for (size_t i = 0; i < places.size(); ++i) (*buffers)[places[i]] = std::move(uploaded[i]);
  return buffers;
}

std::shared_ptr<ResidentWeights> WeightsRegistry::FindOrMake(WeightsTable table,
                                                             SharedMemory memory) {
  MutexLock lock(mu_);
  std::erase_if(weights_, [](const auto& item) { return item.second.expired(); });
  std::weak_ptr<ResidentWeights>& known = weights_[table.id];
  std::shared_ptr<ResidentWeights> weights = known.lock();
  if (weights == nullptr) {
    weights = std::make_shared<ResidentWeights>(plugin_, std::move(table), std::move(memory));
    known = weights;
  }
  return weights;
}

HostLane::HostLane(Shared shared, OwnedFile socket)
    : shared_(shared), socket_(std::move(socket)), thread_([this] { Serve(); }) {
  pthread_setname_np(thread_.native_handle(), "pjrt-lane");
}

void HostLane::Close() { shutdown(socket_.get(), SHUT_RDWR); }

void HostLane::Serve() {
  while (const auto request = NextRequest(socket_.get())) {
    const Status answered = Answer(request.get());
    if (absl::IsDataLoss(answered)) EndMalformed(answered);
    if (!answered.ok()) break;  // nobody takes replies any more
  }
  programs_.clear();
  memory_ = {};
  MutexLock lock(mu_);
  done_ = true;
  changed_.NotifyAll();
}

bool HostLane::done() const {
  MutexLock lock(mu_);
  return done_;
}

bool HostLane::WaitUntilDone(steady_clock::time_point deadline) const {
  MutexLock lock(mu_);
  return changed_.WaitUntil(mu_, deadline,
                            [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return done_; });
}

Status HostLane::Reply(MessageKind kind, const std::string& body) {
  const Status sent = Send(socket_.get(), kind, body, {}, steady_clock::now() + kMessageTime);
  // Whatever the socket says: only what the daemon sends can be malformed.
  return sent.ok() ? sent : Error(absl::StatusCode::kUnavailable, "no reply: {}", Message(sent));
}

Status HostLane::ReplyError(const Status& error) {
  return Reply(MessageKind::kError, Encode(ToReply(error)));
}

Status HostLane::Answer(HostMessage* request) {
  switch (request->kind) {
    case MessageKind::kMemory:
      return TakeMemory(request);
    case MessageKind::kBind:
      return Bind(request);
    case MessageKind::kRun:
      return Run(*request);
    case MessageKind::kRelease:
      return Release(*request);
    default:
      return DataLoss("message {} is no request of a lane", static_cast<int>(request->kind));
  }
}

Status HostLane::TakeMemory(HostMessage* request) {
  RING_ASSIGN_OR_RETURN(const auto memory, Decode<MemoryRequest>(*request));
  if (request->files.size() != 1) return DataLoss("memory: expected one file");
  auto mapped =
      SharedMemory::Map(std::move(request->files[0]), memory.bytes, SharedMemory::Access::kWrite);
  if (absl::IsInvalidArgument(mapped.status())) {
    return DataLoss("{}", Message(mapped.status()));
  }
  if (!mapped.ok()) return ReplyError(mapped.status());
  memory_ = *std::move(mapped);
  return Reply(MessageKind::kDone, "");
}

Status HostLane::Bind(HostMessage* message) {
  RING_ASSIGN_OR_RETURN(auto request, Decode<BindRequest>(*message));
  if (message->files.size() != 2) return DataLoss("a program: expected its text and its weights");
  RING_RETURN_IF_ERROR(CheckBind(request, shared_.plugin->facts().devices.size()));
  // The daemon's: whatever a plugin does to this process, the next one reads the same.
  constexpr auto kRead = SharedMemory::Access::kRead;
  auto text_memory = SharedMemory::Map(std::move(message->files[0]), request.text_bytes, kRead);
  auto weights_memory =
      SharedMemory::Map(std::move(message->files[1]), request.weights.bytes, kRead);
  for (const Status& mapped : {text_memory.status(), weights_memory.status()}) {
    if (absl::IsInvalidArgument(mapped)) return DataLoss("{}", Message(mapped));
    if (!mapped.ok()) return ReplyError(mapped);
  }
  const std::string text(reinterpret_cast<const char*>(text_memory->data()), text_memory->bytes());
  std::vector<TensorType> results;
  for (const Place& result : request.results) results.push_back(result.type);
  auto compiled = shared_.cache->Get(request.device, text, results);
  if (!compiled.ok()) return ReplyError(compiled.status());
  const size_t tensors = request.weights.tensors.size();
  auto weights =
      shared_.weights->FindOrMake(std::move(request.weights), *std::move(weights_memory));
  if (weights->table().tensors.size() != tensors) {
    return DataLoss("weights {} have {} tensors, now {}", weights->table().id,
                    weights->table().tensors.size(), tensors);
  }
  const BindReply reply = {.program = next_program_++, .bytes = (*compiled)->bytes};
  programs_[reply.program] = {.device = request.device,
                              .compiled = *std::move(compiled),
                              .weights = std::move(weights),
                              .arguments = std::move(request.arguments),
                              .results = std::move(request.results)};
  return Reply(MessageKind::kBound, Encode(reply));
}

Status HostLane::CheckRoom(const Bound& bound) const {
  for (const BoundArgument& argument : bound.arguments) {
    if (!argument.resident) RING_RETURN_IF_ERROR(CheckPlace(argument.place, memory_.bytes()));
  }
  for (const Place& result : bound.results) {
    RING_RETURN_IF_ERROR(CheckPlace(result, memory_.bytes()));
  }
  return absl::OkStatus();
}

Status HostLane::Run(const HostMessage& message) {
  RING_ASSIGN_OR_RETURN(const auto request, Decode<RunRequest>(message));
  const auto bound = programs_.find(request.program);
  if (bound == programs_.end()) return DataLoss("there is no program {}", request.program);
  RING_RETURN_IF_ERROR(CheckRoom(bound->second));
  Status ran = RunProgram(bound->second, request);
  if (absl::IsResourceExhausted(ran) && shared_.cache->LetGo(bound->second.device) > 0) {
    ran = RunProgram(bound->second, request);
  }
  return ran.ok() ? Reply(MessageKind::kDone, "") : ReplyError(ran);
}

Status HostLane::RunProgram(const Bound& bound, const RunRequest& request) {
  std::array<std::shared_ptr<const ResidentWeights::Buffers>, kWeightGroups> groups;
  std::vector<HostTensor> uploads;
  for (const BoundArgument& argument : bound.arguments) {
    if (!argument.resident) {
      uploads.push_back({&argument.place.type, memory_.data() + argument.place.offset});
      continue;
    }
    const WeightGroup group = bound.weights->table().tensors[argument.index].group;
    auto& buffers = groups[static_cast<size_t>(group)];
    if (buffers != nullptr) continue;
    RING_ASSIGN_OR_RETURN(buffers,
                          bound.weights->On(bound.device, group, VersionOf(request, group)));
  }
  RING_ASSIGN_OR_RETURN(const auto uploaded, shared_.plugin->Upload(bound.device, uploads));
  std::vector<abi::Buffer*> arguments;
  auto next = uploaded.begin();
  for (const BoundArgument& argument : bound.arguments) {
    if (!argument.resident) {
      arguments.push_back((next++)->get());
      continue;
    }
    const WeightGroup group = bound.weights->table().tensors[argument.index].group;
    arguments.push_back((*groups[static_cast<size_t>(group)])[argument.index].get());
  }
  RING_ASSIGN_OR_RETURN(const auto results,
                        shared_.plugin->Execute(*bound.compiled, arguments, bound.results.size()));
  std::vector<HostTensor> tensors;
  for (const Place& result : bound.results) {
    tensors.push_back({&result.type, memory_.data() + result.offset});
  }
  return shared_.plugin->Download(results, tensors);
}

Status HostLane::Release(const HostMessage& message) {
  RING_ASSIGN_OR_RETURN(const auto request, Decode<ReleaseRequest>(message));
  if (programs_.erase(request.program) == 0) {
    return DataLoss("there is no program {}", request.program);
  }
  return Reply(MessageKind::kDone, "");
}

}  // namespace ringmaster::pjrt
