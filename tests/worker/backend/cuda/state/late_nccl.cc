#include "tests/worker/backend/cuda/state/late_nccl.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "tests/worker/backend/cuda/late_runtime.h"

namespace ringmaster::testing {
namespace {

using cuda::Nccl;
using Result = Nccl::Result;

constexpr Result kSystemError = 2;
constexpr Result kInvalidArgument = 4;
constexpr Result kInvalidUsage = 5;

struct Communicator {
  char clique = 0;  // the first byte of the id that it was made with
  int ranks = 0;
  int rank = 0;
  int device = 0;
  bool ready = false, finalized = false;
  Result state = Nccl::kSuccess;
};

enum class Kind : uint8_t { kInit, kReduce, kBroadcast, kAllReduce, kFinalize, kDestroy };

struct Call {
  Kind kind;
  std::string name;
  Communicator* communicator;
  const int64_t* from = nullptr;
  int64_t* to = nullptr;
  size_t count = 0;
  cudaStream_t stream = nullptr;
};

// The calls between the outermost group_start and group_end, once they were handed over.
struct Group {
  std::vector<Call> calls;
  int looks = 0;
};

struct Library {
  int depth = 0;
  Result failed = Nccl::kSuccess;  // in the group that is open
  std::vector<Call> open;
  Group running;
  NcclFault fault;
  NcclCounts counts;
};
Library library;

Result Fails(const std::string& name) {
  const NcclFault& fault = library.fault;
  return fault.call == name && !fault.later && !fault.never ? kSystemError : Nccl::kSuccess;
}

// Not while an earlier call is under way.
Result Submit(Call call, bool wants_ready) {
  if (library.depth == 0) return kInvalidUsage;
  const Communicator& communicator = *call.communicator;
  const bool right = communicator.state == Nccl::kSuccess && communicator.ready == wants_ready;
  const Result result = right ? Fails(call.name) : kInvalidArgument;
  if (result != Nccl::kSuccess) return library.failed = result;
  library.open.push_back(std::move(call));
  return Nccl::kInProgress;
}

bool OnItsDevice(const Call& call) {
  const int device = call.communicator->device;
  return DeviceOfStream(call.stream) == device && DeviceOfMemory(call.from) == device &&
         DeviceOfMemory(call.to) == device;
}

// Every rank of one clique once, on as many GPUs, with the same call.
Result CheckTogether(const std::vector<Call>& calls) {
  const Call& first = calls.front();
  if (calls.size() != static_cast<size_t>(first.communicator->ranks)) return kInvalidUsage;
  for (size_t a = 0; a < calls.size(); ++a) {
    const Call& call = calls[a];
    if (call.communicator->clique != first.communicator->clique || call.kind != first.kind ||
        call.count != first.count) {
      return kInvalidUsage;
    }
    for (size_t b = 0; b < a; ++b) {
      const Communicator& other = *calls[b].communicator;
      if (other.device == call.communicator->device) return kInvalidUsage;
      if (other.rank == call.communicator->rank) return kInvalidUsage;
    }
    if (call.stream != nullptr && !OnItsDevice(call)) return kInvalidArgument;
  }
  return Nccl::kSuccess;
}

void On(const Call& call, std::function<void()> work) {
  (void)cudaSetDevice(call.communicator->device);
  (void)LaunchOnHost(call.stream, std::move(work));
}

// Senders put their part aside; receivers wait for all of them.
void Exchange(const std::vector<Call>& calls) {
  const int before = CurrentDevice();
  const Kind kind = calls.front().kind;
  const auto sent = std::make_shared<std::vector<std::vector<int64_t>>>();
  std::vector<cudaEvent_t> events;
  for (const Call& call : calls) {
    if (kind == Kind::kBroadcast && call.communicator->rank != 0) continue;
    On(call, [=] { sent->emplace_back(call.from, call.from + call.count); });
    (void)cudaEventCreateWithFlags(&events.emplace_back(), 0);
    (void)cudaEventRecord(events.back(), call.stream);
  }
  for (const Call& call : calls) {
    if (kind == Kind::kReduce && call.communicator->rank != 0) continue;
    for (const cudaEvent_t event : events) (void)cudaStreamWaitEvent(call.stream, event, 0);
    const bool wrong = call.communicator->device == library.fault.wrong_device;
    On(call, [=] {
      for (size_t i = 0; i < call.count; ++i) {
        uint64_t sum = wrong ? 1 : 0;
        for (const std::vector<int64_t>& part : *sent) sum += static_cast<uint64_t>(part[i]);
        call.to[i] = static_cast<int64_t>(sum);
      }
    });
  }
  for (const cudaEvent_t event : events) (void)cudaEventDestroy(event);
  (void)cudaSetDevice(before);
}

void Settle(const Call& call, Result result) {
  call.communicator->state = result;
  if (result != Nccl::kSuccess) return;
  if (call.kind == Kind::kInit) call.communicator->ready = true;
  if (call.kind == Kind::kFinalize) call.communicator->finalized = true;
}

void RunGroup() {
  const std::vector<Call> calls = std::exchange(library.running, {}).calls;
  Result result = CheckTogether(calls);
  if (library.fault.call == calls.front().name) result = kSystemError;
  if (result == Nccl::kSuccess && calls.front().stream != nullptr) Exchange(calls);
  for (const Call& call : calls) Settle(call, result);
}

Result GetUniqueId(Nccl::UniqueId* id) {
  static char last = 0;
  id->bytes[0] = ++last;
  return Fails("ncclGetUniqueId");
}

Result InitRank(Nccl::Communicator* communicator, int ranks, Nccl::UniqueId id, int rank,
                Nccl::Config* config) {
  if (config->magic != 0xcafebeef || config->blocking != 0) return kInvalidArgument;
  auto* const made = new Communicator{
      .clique = id.bytes[0], .ranks = ranks, .rank = rank, .device = CurrentDevice()};
  ++library.counts.made;
  *communicator = made;
  return Submit({Kind::kInit, "ncclCommInitRankConfig", made}, false);
}

Result GetAsyncError(Nccl::Communicator communicator, Result* state) {
  const auto* const asked = static_cast<Communicator*>(communicator);
  if (asked->state == Nccl::kInProgress) {
    const bool held =
        library.fault.never && library.running.calls.front().name == library.fault.call;
    if (!held && ++library.running.looks > (library.fault.prompt ? 0 : 1)) RunGroup();
  }
  *state = asked->state;
  return Nccl::kSuccess;
}

Result Finalize(Nccl::Communicator communicator) {
  return Submit({Kind::kFinalize, "ncclCommFinalize", static_cast<Communicator*>(communicator)},
                true);
}

Result Destroy(Nccl::Communicator communicator) {
  auto* const destroyed = static_cast<Communicator*>(communicator);
  if (!destroyed->finalized || destroyed->state != Nccl::kSuccess) return kInvalidUsage;
  ++library.counts.destroyed;
  delete destroyed;
  return Nccl::kSuccess;
}

Result Abort(Nccl::Communicator communicator) {
  library.running = {};
  ++library.counts.aborted;
  delete static_cast<Communicator*>(communicator);
  return Nccl::kSuccess;
}

Result GroupStart() {
  if (const Result result = Fails("ncclGroupStart"); result != Nccl::kSuccess) return result;
  ++library.depth;
  return Nccl::kSuccess;
}

Result GroupEnd() {
  if (library.depth == 0) return kInvalidUsage;
  if (--library.depth > 0) return Nccl::kSuccess;
  std::vector<Call> calls = std::exchange(library.open, {});
  const Result failed = std::exchange(library.failed, Nccl::kSuccess);
  if (failed != Nccl::kSuccess || calls.empty()) return failed;
  if (const Result result = Fails("ncclGroupEnd"); result != Nccl::kSuccess) return result;
  for (const Call& call : calls) call.communicator->state = Nccl::kInProgress;
  library.running = {std::move(calls), 0};
  return Nccl::kInProgress;
}

Result Collective(Call call, int type) {
  return type == Nccl::kInt64 ? Submit(std::move(call), true) : kInvalidArgument;
}

Result Reduce(const void* from, void* to, size_t count, int type, int operation, int root,
              Nccl::Communicator communicator, cudaStream_t stream) {
  if (operation != Nccl::kSum || root != 0) return kInvalidArgument;
  return Collective({Kind::kReduce, "ncclReduce", static_cast<Communicator*>(communicator),
                     static_cast<const int64_t*>(from), static_cast<int64_t*>(to), count, stream},
                    type);
}

Result Broadcast(const void* from, void* to, size_t count, int type, int root,
                 Nccl::Communicator communicator, cudaStream_t stream) {
  if (root != 0) return kInvalidArgument;
  return Collective({Kind::kBroadcast, "ncclBroadcast", static_cast<Communicator*>(communicator),
                     static_cast<const int64_t*>(from), static_cast<int64_t*>(to), count, stream},
                    type);
}

Result AllReduce(const void* from, void* to, size_t count, int type, int operation,
                 Nccl::Communicator communicator, cudaStream_t stream) {
  if (operation != Nccl::kSum) return kInvalidArgument;
  return Collective({Kind::kAllReduce, "ncclAllReduce", static_cast<Communicator*>(communicator),
                     static_cast<const int64_t*>(from), static_cast<int64_t*>(to), count, stream},
                    type);
}

const char* ErrorString(Result result) {
  return result == kSystemError ? "a system error" : "a wrong call";
}
const char* LastError(Nccl::Communicator) { return "as the test wants it"; }

}  // namespace

Nccl LateNccl() {
  Nccl nccl;
  nccl.unique_id = GetUniqueId;
  nccl.init_rank = InitRank;
  nccl.async_error = GetAsyncError;
  nccl.finalize = Finalize;
  nccl.destroy = Destroy;
  nccl.abort = Abort;
  nccl.group_start = GroupStart;
  nccl.group_end = GroupEnd;
  nccl.reduce = Reduce;
  nccl.broadcast = Broadcast;
  nccl.all_reduce = AllReduce;
  nccl.error_string = ErrorString;
  nccl.last_error = LastError;
  return nccl;
}

void SetNcclFault(const NcclFault& fault) { library.fault = fault; }
NcclCounts CountCommunicators() { return library.counts; }

}  // namespace ringmaster::testing
