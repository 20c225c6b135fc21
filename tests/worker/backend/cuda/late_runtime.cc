#include "tests/worker/backend/cuda/late_runtime.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

namespace {

// Something on a stream. Done once, after everything before it.
struct Work {
  std::function<void()> run;
  std::vector<std::shared_ptr<Work>> before;
};
using WorkList = std::vector<std::shared_ptr<Work>>;

enum class Kind : uint8_t { kLaunch, kCopy, kSet, kTold };

// The same in a graph.
struct Node {
  Kind kind;
  std::function<void()> run;
  std::vector<size_t> before;
  cudaEvent_t records = nullptr;
};

// Without recursion: a chain is as long as a step has kernels.
void Finish(const WorkList& list) {
  WorkList stack = list;
  while (!stack.empty()) {
    const std::shared_ptr<Work> work = stack.back();
    if (!work->before.empty()) {
      const WorkList before = std::exchange(work->before, {});
      stack.insert(stack.end(), before.begin(), before.end());
      continue;
    }
    stack.pop_back();
    if (work->run) std::exchange(work->run, nullptr)();
  }
}

}  // namespace

struct CUgraph_st {
  std::vector<Node> nodes;
  std::vector<size_t> end;
  bool invalid = false;
};

struct CUgraphExec_st {
  CUgraph_st graph;
};

struct CUstream_st {
  int device;
  WorkList last;
  CUgraph_st* capture = nullptr;
  std::vector<size_t> captured_last;
};

struct CUevent_st {
  int device;
  WorkList work;
  bool asked = false;
  CUgraph_st* capture = nullptr;  // recorded inside it
  std::vector<size_t> nodes;
};

namespace {

using ringmaster::testing::Ready;

struct Memory {
  size_t bytes;
  int device;  // or kPinned
};
constexpr int kPinned = -2;
constexpr int kUnknown = -1;

struct Runtime {
  std::set<CUstream_st*> streams;
  std::map<std::byte*, Memory> memory;
  size_t live = 0;
  size_t graph_launches = 0;
  ringmaster::testing::GraphParts newest_graph;
  ringmaster::testing::HostCalls calls;
  CUgraph_st* capturing = nullptr;
  cudaError_t last_error = cudaSuccess;
  cudaError_t launch_error = cudaSuccess;
  cudaError_t wait_error = cudaSuccess;
  bool launches_idle = false;
  int device = 0;
  Ready events_ready = Ready::kSecondTime;
};
Runtime runtime;

cudaError_t Report(cudaError_t error) {
  if (error != cudaSuccess) runtime.last_error = error;
  return error;
}

// For calls that wait or allocate.
cudaError_t OutsideCapture() {
  if (runtime.capturing == nullptr) return cudaSuccess;
  runtime.capturing->invalid = true;
  return cudaErrorStreamCaptureUnsupported;
}

void Count(Kind kind) {
  ringmaster::testing::HostCalls& calls = runtime.calls;
  if (kind == Kind::kLaunch) ++calls.launches;
  if (kind == Kind::kCopy) ++calls.copies;
  if (kind == Kind::kSet) ++calls.sets;
}

cudaError_t Enqueue(Kind kind, CUstream_st* stream, std::function<void()> run,
                    cudaEvent_t records = nullptr) {
  if (stream == nullptr) {
    if (!runtime.streams.empty()) return cudaErrorInvalidResourceHandle;
    if (run) run();
    return cudaSuccess;
  }
  if (stream->capture == nullptr) {
    Count(kind);
    const auto work = std::make_shared<Work>(Work{std::move(run), stream->last});
    stream->last = {work};
    return cudaSuccess;
  }
  if (stream->capture->invalid) return cudaErrorStreamCaptureInvalidated;
  stream->capture->nodes.push_back({kind, std::move(run), stream->captured_last, records});
  stream->captured_last = {stream->capture->nodes.size() - 1};
  return cudaSuccess;
}

cudaError_t WaitForAll(const WorkList& work) {
  if (runtime.wait_error != cudaSuccess) return Report(runtime.wait_error);
  ++runtime.calls.waits;
  Finish(work);
  return cudaSuccess;
}

// Of the block in which all these bytes lie.
int PlaceOf(const void* data, size_t bytes) {
  const auto* const at = static_cast<const std::byte*>(data);
  for (const auto& [begin, memory] : runtime.memory) {
    if (at >= begin && at + bytes <= begin + memory.bytes) return memory.device;
  }
  return kUnknown;
}

int DeviceOf(const CUstream_st* stream) {
  return stream == nullptr ? runtime.device : stream->device;
}

// A test may have memory of its own, which is anywhere.
bool IsOn(const void* data, size_t bytes, const CUstream_st* stream) {
  const int place = PlaceOf(data, bytes);
  return place == DeviceOf(stream) || place == kUnknown;
}

// Whether everything that the graph's streams did comes before its end.
bool Joined(const CUgraph_st& graph) {
  std::set<size_t> seen;
  std::vector<size_t> left = graph.end;
  while (!left.empty()) {
    const size_t node = left.back();
    left.pop_back();
    if (!seen.insert(node).second) continue;
    left.insert(left.end(), graph.nodes[node].before.begin(), graph.nodes[node].before.end());
  }
  return seen.size() == graph.nodes.size();
}

cudaError_t Allocate(void** data, size_t bytes, int device) {
  if (const cudaError_t error = OutsideCapture(); error != cudaSuccess) return Report(error);
  if (bytes > (size_t{1} << 40)) return Report(cudaErrorMemoryAllocation);
  const size_t rounded = (bytes + 255) / 256 * 256;
  *data = std::aligned_alloc(256, rounded);
  std::memset(*data, 0xab, rounded);  // nobody may count on zeros
  runtime.memory[static_cast<std::byte*>(*data)] = {bytes, device};
  ++runtime.live;
  return cudaSuccess;
}

cudaError_t Free(void* data) {
  if (const cudaError_t error = OutsideCapture(); error != cudaSuccess) return Report(error);
  for (CUstream_st* stream : runtime.streams) Finish(stream->last);
  runtime.memory.erase(static_cast<std::byte*>(data));
  std::free(data);
  --runtime.live;
  return cudaSuccess;
}

template <typename T>
cudaError_t Destroy(T* object) {
  delete object;
  --runtime.live;
  return cudaSuccess;
}

template <typename T>
T* Make(T object = {}) {
  ++runtime.live;
  return new T(std::move(object));
}

}  // namespace

namespace ringmaster::testing {

cudaError_t LaunchOnHost(cudaStream_t stream, std::function<void()> work) {
  if (runtime.launch_error != cudaSuccess) return Report(runtime.launch_error);
  if (DeviceOf(stream) != runtime.device) return Report(cudaErrorInvalidResourceHandle);
  if (runtime.launches_idle) work = nullptr;
  return Report(Enqueue(Kind::kLaunch, stream, std::move(work)));
}
void SetLaunchesIdle(bool idle) { runtime.launches_idle = idle; }
void SetLaunchError(cudaError_t error) { runtime.launch_error = error; }
void SetWaitError(cudaError_t error) { runtime.wait_error = error; }

int CurrentDevice() { return runtime.device; }
int DeviceOfStream(cudaStream_t stream) { return stream->device; }
int DeviceOfMemory(const void* data) { return std::max(PlaceOf(data, 1), kUnknown); }
void SetEventsReady(Ready ready) { runtime.events_ready = ready; }
void ForbiddenInCapture() { (void)Report(OutsideCapture()); }
size_t LiveObjects() { return runtime.live; }
size_t DeviceBytes() {
  size_t bytes = 0;
  for (const auto& [data, memory] : runtime.memory) {
    if (memory.device != kPinned) bytes += memory.bytes;
  }
  return bytes;
}
size_t GraphLaunches() { return runtime.graph_launches; }
GraphParts NewestGraph() { return runtime.newest_graph; }
HostCalls CallsSoFar() { return runtime.calls; }
std::ostream& operator<<(std::ostream& stream, const HostCalls& calls) {
  return stream << calls.launches << " launches, " << calls.copies << " copies, " << calls.sets
                << " sets, " << calls.waits << " waits";
}
HostCalls HostCalls::operator-(const HostCalls& before) const {
  return {launches - before.launches, copies - before.copies, sets - before.sets,
          waits - before.waits};
}

}  // namespace ringmaster::testing

extern "C" {

cudaError_t cudaGetDevice(int* device) {
  *device = runtime.device;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  runtime.device = device;
  return cudaSuccess;
}
cudaError_t cudaGetLastError() { return std::exchange(runtime.last_error, cudaSuccess); }
const char* cudaGetErrorName(cudaError_t) { return "error"; }
const char* cudaGetErrorString(cudaError_t) { return "of the late runtime"; }

cudaError_t cudaMalloc(void** data, size_t bytes) { return Allocate(data, bytes, runtime.device); }
cudaError_t cudaFree(void* data) { return Free(data); }
cudaError_t cudaMallocHost(void** data, size_t bytes) { return Allocate(data, bytes, kPinned); }
cudaError_t cudaFreeHost(void* data) { return Free(data); }

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  const auto lies = [&](const void* data, bool on_host) {
    return on_host ? PlaceOf(data, bytes) == kPinned : IsOn(data, bytes, stream);
  };
  if (!lies(from, kind == cudaMemcpyHostToDevice) || !lies(to, kind == cudaMemcpyDeviceToHost)) {
    return Report(cudaErrorInvalidValue);
  }
  return Report(Enqueue(Kind::kCopy, stream, [=] { std::memcpy(to, from, bytes); }));
}

cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  if (DeviceOf(stream) != runtime.device) return Report(cudaErrorInvalidResourceHandle);
  if (!IsOn(to, bytes, stream)) return Report(cudaErrorInvalidValue);
  return Report(Enqueue(Kind::kSet, stream, [=] { std::memset(to, value, bytes); }));
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  runtime.streams.insert(*stream = Make(CUstream_st{.device = runtime.device}));
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  Finish(stream->last);
  runtime.streams.erase(stream);
  return Destroy(stream);
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (const cudaError_t error = OutsideCapture(); error != cudaSuccess) return Report(error);
  return WaitForAll(stream->last);
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  if (event->capture == nullptr) {
    if (stream->capture != nullptr) return Report(cudaErrorStreamCaptureIsolation);
    stream->last.insert(stream->last.end(), event->work.begin(), event->work.end());
    return cudaSuccess;
  }
  if (event->capture != runtime.capturing) return Report(cudaErrorInvalidValue);
  stream->capture = event->capture;
  stream->captured_last.insert(stream->captured_last.end(), event->nodes.begin(),
                               event->nodes.end());
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = Make(CUevent_st{.device = runtime.device});
  return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, 0); }
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t, cudaEvent_t) {
  *milliseconds = 1;
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) { return Destroy(event); }
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags) {
  if (event->device != stream->device) return Report(cudaErrorInvalidResourceHandle);
  const bool external = flags == cudaEventRecordExternal;
  if (stream->capture != nullptr) {
    if (external) return Report(Enqueue(Kind::kTold, stream, nullptr, event));
    event->capture = stream->capture;
    event->nodes = stream->captured_last;
    return cudaSuccess;
  }
  if (external) return Report(cudaErrorInvalidValue);
  event->capture = nullptr;
  event->work = stream->last;
  event->asked = false;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return cudaEventRecordWithFlags(event, stream, cudaEventRecordDefault);
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  if (const cudaError_t error = OutsideCapture(); error != cudaSuccess) return Report(error);
  if (event->capture != nullptr) return Report(cudaErrorCapturedEvent);
  const bool first = !std::exchange(event->asked, true);
  if (runtime.events_ready == Ready::kNever || (first && runtime.events_ready != Ready::kAtOnce)) {
    return Report(cudaErrorNotReady);
  }
  return WaitForAll(event->work);
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  if (const cudaError_t error = OutsideCapture(); error != cudaSuccess) return Report(error);
  if (event->capture != nullptr) return Report(cudaErrorCapturedEvent);
  return WaitForAll(event->work);
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  if (runtime.capturing != nullptr) return Report(cudaErrorIllegalState);
  stream->capture = runtime.capturing = Make<CUgraph_st>();
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  *graph = nullptr;
  if (stream->capture == nullptr) return Report(cudaErrorIllegalState);
  CUgraph_st* const captured = std::exchange(runtime.capturing, nullptr);
  captured->end = stream->captured_last;
  for (CUstream_st* each : runtime.streams) {
    each->capture = nullptr;
    each->captured_last.clear();
  }
  const cudaError_t error = captured->invalid   ? cudaErrorStreamCaptureInvalidated
                            : Joined(*captured) ? cudaSuccess
                                                : cudaErrorStreamCaptureUnjoined;
  if (error != cudaSuccess) {
    (void)Destroy(captured);
    return Report(error);
  }
  *graph = captured;
  return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) { return Destroy(graph); }
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
  *exec = Make(CUgraphExec_st{*graph});
  ringmaster::testing::GraphParts& parts = runtime.newest_graph = {};
  for (const Node& node : graph->nodes) {
    if (node.kind == Kind::kLaunch) ++parts.launches;
    if (node.kind == Kind::kCopy) ++parts.copies;
    if (node.kind == Kind::kSet) ++parts.sets;
    if (node.kind == Kind::kTold) ++parts.told;
    if (node.before.size() > 1) ++parts.joins;
  }
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) { return Destroy(exec); }
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  if (stream->capture != nullptr) return Report(cudaErrorStreamCaptureUnsupported);
  ++runtime.graph_launches;
  WorkList works;
  for (const Node& node : exec->graph.nodes) {
    const auto& work = works.emplace_back(std::make_shared<Work>(Work{node.run, {}}));
    if (node.before.empty()) work->before = stream->last;
    for (const size_t before : node.before) work->before.push_back(works[before]);
    if (node.records == nullptr) continue;
    node.records->capture = nullptr;
    node.records->work = {work};
  }
  stream->last.clear();
  for (const size_t end : exec->graph.end) stream->last.push_back(works[end]);
  return cudaSuccess;
}

}  // extern "C"
