// What a group of GPUs does when NCCL is missing, fails, hangs or adds up wrongly; on the late
// runtime.
#include <catch2/catch.hpp>

#include "tests/support/log_lines.h"
#include "tests/support/optimizers.h"
#include "tests/worker/backend/cuda/late_runtime.h"
#include "tests/worker/backend/cuda/state/gpu_states.h"
#include "tests/worker/backend/cuda/state/late_nccl.h"
#include "worker/backend/cuda/device/gpu_group.h"
#include "worker/backend/cuda/device/runtime.h"

namespace ringmaster::cuda {
namespace {

using Catch::Contains;
using testing::CountCommunicators;
using testing::GpuStates;
using testing::HostState;
using testing::LateNccl;
using testing::NcclFault;

// Until it goes.
class Fault {
 public:
  explicit Fault(const NcclFault& fault) { testing::SetNcclFault(fault); }
  ~Fault() { testing::SetNcclFault({}); }
};

// An array on each GPU with its number and `more` in each element.
struct GpuArrays {
  GpuArrays(const std::vector<int>& gpus, int64_t more) : arrays(gpus.size()) {
    for (size_t i = 0; i < gpus.size(); ++i) {
      CHECK(cudaSetDevice(gpus[i]) == cudaSuccess);
      CHECK(arrays[i].Make(kCount).ok());
      std::ranges::fill(std::span(arrays[i].data(), kCount), gpus[i] + more);
      pointers.push_back(arrays[i].data());
    }
  }
  [[nodiscard]] std::vector<int64_t> On(size_t index) const {
    return {pointers[index], pointers[index] + kCount};
  }

  static constexpr size_t kCount = 5;
  std::vector<DeviceArray<int64_t>> arrays;
  GpuGroup::Arrays pointers;
};

std::vector<int64_t> AllEqual(int64_t value) {
  return std::vector<int64_t>(GpuArrays::kCount, value);
}

// One that waits for nothing, on an NCCL that is done at once.
std::unique_ptr<GpuGroup> ImpatientGroup() {
  const Fault none({.prompt = true});
  testing::SetEventsReady(testing::Ready::kAtOnce);
  auto group = GpuGroup::Create(LateNccl(), {0, 3}, std::chrono::milliseconds(0));
  REQUIRE(Message(group.status()) == "");
  return *std::move(group);
}

StatusOr<std::unique_ptr<DeviceState>> MakeState(CudaWeights& weights,
                                                 const exact::BlockLayout& layout) {
  return weights.MakeState({.layout = &layout,
                            .update = {testing::Adam()},
                            .shards = testing::kShards,
                            .precision_bits = testing::kPrecisionBits});
}

}  // namespace

TEST_CASE("GPU group: sums move to the first, totals go to all, and whole sums are everywhere") {
  const std::vector<int> gpus = {1, 4, 9};
  const size_t made = CountCommunicators().made;
  const size_t destroyed = CountCommunicators().destroyed;
  {
    const auto group = GpuGroup::Create(LateNccl(), gpus);
    REQUIRE(Message(group.status()) == "");
    const GpuArrays sums(gpus, int64_t{1} << 40);
    const GpuArrays totals(gpus, 0);
    REQUIRE(Message((*group)->AddUp(sums.pointers, totals.pointers, GpuArrays::kCount)) == "");
    for (size_t i = 0; i < gpus.size(); ++i) {
      CHECK(totals.On(i) == AllEqual((int64_t{3} << 40) + 14));
      CHECK(sums.On(i) == AllEqual((int64_t{1} << 40) + gpus[i]));
    }
    REQUIRE((*group)->MoveToFirst(sums.pointers, GpuArrays::kCount - 1).ok());
    CHECK(sums.On(0)[3] == (int64_t{3} << 40) + 14);
    CHECK(sums.On(0)[4] == (int64_t{1} << 40) + 1);
    CHECK(sums.On(2)[3] == 0);
    CHECK(sums.On(2)[4] == (int64_t{1} << 40) + 9);
    REQUIRE((*group)->CopyFromFirst(sums.pointers, GpuArrays::kCount).ok());
    for (size_t i = 1; i < gpus.size(); ++i) CHECK(sums.On(i) == sums.On(0));
    CHECK(cudaGetLastError() == cudaSuccess);  // nothing that a launch would report
  }
  CHECK(CountCommunicators().made == made + 3);
  CHECK(CountCommunicators().destroyed == destroyed + 3);
  CHECK(testing::LiveObjects() == 0);
}

TEST_CASE("GPU group: an array of another GPU is an error of NCCL") {
  const auto group = GpuGroup::Create(LateNccl(), {0, 1});
  REQUIRE(group.ok());
  const GpuArrays swapped({1, 0}, 0);
  const Status status = (*group)->CopyFromFirst(swapped.pointers, GpuArrays::kCount);
  CHECK_THAT(Message(status), Contains("GPUs 0, 1: totals of a bucket: NCCL: a wrong call"));
}

TEST_CASE("GPU group: what NCCL says names the GPUs, and every later call says it, too") {
  const std::vector<int> gpus = {0, 3};
  const GpuArrays sums(gpus, 1);
  const GpuArrays totals(gpus, 1);
  const auto call = [&](GpuGroup& group, const std::string& name) {
    if (name == "ncclReduce") return group.MoveToFirst(sums.pointers, GpuArrays::kCount);
    if (name == "ncclBroadcast") return group.CopyFromFirst(sums.pointers, GpuArrays::kCount);
    return group.AddUp(sums.pointers, totals.pointers, GpuArrays::kCount);
  };
  for (const std::string name :
       {"ncclReduce", "ncclBroadcast", "ncclAllReduce", "ncclGroupStart", "ncclGroupEnd"}) {
    for (const bool later : {false, true}) {
      if (later && name.starts_with("ncclGroup")) continue;
      INFO(name << (later ? " later" : ""));
      const auto group = GpuGroup::Create(LateNccl(), gpus);
      REQUIRE(group.ok());
      const size_t aborted = CountCommunicators().aborted;
      Status failed;
      {
        const Fault fault({.call = name, .later = later});
        failed = call(**group, name);
      }
      CHECK(failed.code() == absl::StatusCode::kInternal);
      CHECK_THAT(Message(failed),
                 Contains("GPUs 0, 3: ") && Contains("NCCL: a system error: as the test wants it"));
      CHECK(call(**group, "ncclReduce") == failed);
      CHECK(call(**group, "ncclBroadcast") == failed);
      CHECK(call(**group, "ncclAllReduce") == failed);
      CHECK(CountCommunicators().aborted == aborted + 2);
    }
  }
}

TEST_CASE("GPU group: where NCCL does not start nothing is left behind") {
  const size_t objects = testing::LiveObjects();
  for (const std::string name : {"ncclGetUniqueId", "ncclCommInitRankConfig", "ncclGroupEnd"}) {
    for (const bool later : {false, true}) {
      if (later && name != "ncclCommInitRankConfig") continue;
      INFO(name << (later ? " later" : ""));
      const auto before = CountCommunicators();
      const Fault fault({.call = name, .later = later});
      const Status status = GpuGroup::Create(LateNccl(), {2, 5}).status();
      CHECK_THAT(Message(status), Contains("GPUs 2, 5: start of NCCL: NCCL: a system error"));
      const auto after = CountCommunicators();
      CHECK(after.made - before.made == after.aborted - before.aborted);
      CHECK(testing::LiveObjects() == objects);
    }
  }
  const Status twice = GpuGroup::Create(LateNccl(), {2, 2}).status();
  CHECK_THAT(Message(twice), Contains("GPUs 2, 2: start of NCCL: NCCL: a wrong call"));
}

TEST_CASE("GPU group: a call that does not end is given up, and says how to find out more") {
  const std::vector<int> gpus = {0, 3};
  const GpuArrays sums(gpus, 1);
  for (const bool on_gpu : {false, true}) {
    INFO((on_gpu ? "the GPU" : "the host") << " hangs");
    const auto group = ImpatientGroup();
    const size_t aborted = CountCommunicators().aborted;
    const Fault fault({.call = on_gpu ? "" : "ncclReduce", .never = !on_gpu, .prompt = true});
    if (on_gpu) testing::SetEventsReady(testing::Ready::kNever);
    const Status hung = group->MoveToFirst(sums.pointers, GpuArrays::kCount);
    testing::SetEventsReady(testing::Ready::kSecondTime);
    CHECK(absl::IsDeadlineExceeded(hung));
    CHECK_THAT(Message(hung), Contains("GPUs 0, 3: sum of a bucket: NCCL did not end within 0 ms"));
    CHECK_THAT(Message(hung), Contains("NCCL_DEBUG=INFO") && Contains("NCCL_P2P_DISABLE=1"));
    CHECK(group->CopyFromFirst(sums.pointers, GpuArrays::kCount) == hung);
    CHECK(CountCommunicators().aborted == aborted + 2);
  }
  const Fault fault({.call = "ncclCommInitRankConfig", .never = true});
  const auto begun = GpuGroup::Create(LateNccl(), gpus, std::chrono::milliseconds(0));
  CHECK_THAT(Message(begun.status()), Contains("GPUs 0, 3: start of NCCL: NCCL did not end"));
}

TEST_CASE("GPU group: one that cannot end in peace is aborted") {
  const auto before = CountCommunicators();
  auto group = GpuGroup::Create(LateNccl(), {0, 1});
  REQUIRE(group.ok());
  const Fault fault({.call = "ncclCommFinalize", .later = true});
  group->reset();
  CHECK(CountCommunicators().aborted == before.aborted + 2);
  CHECK(CountCommunicators().destroyed == before.destroyed);
}

TEST_CASE(
    "CUDA weights: GPUs of several cores are in a group once, in the order of their numbers") {
  const graph::Program program = testing::Mlp();
  const exact::BlockLayout layout = testing::LayoutOf(program);
  const testing::LogLines lines;
  const size_t made = CountCommunicators().made;
  GpuStates group(program, layout, testing::Adam(), {2, 0, 2, 1, 0}, [] { return LateNccl(); });
  CHECK(CountCommunicators().made == made + 3);
  CHECK_THAT(lines.text(), Contains("GPUs 0, 1, 2 add up their gradients with NCCL"));
}

TEST_CASE("CUDA weights: several GPUs have no state without NCCL, and one line says why") {
  const graph::Program program = testing::Mlp();
  const exact::BlockLayout layout = testing::LayoutOf(program);
  const size_t objects = testing::LiveObjects();
  // The collectives: what they need is connected when they first run.
  for (const std::string call :
       {"", "ncclCommInitRankConfig", "ncclAllReduce", "ncclReduce", "ncclBroadcast"}) {
    INFO(call);
    const bool missing = call.empty();
    const testing::LogLines lines;
    const Fault fault({.call = call});
    CudaWeights weights(program, [missing]() -> StatusOr<Nccl> {
      if (!missing) return LateNccl();
      return Nccl::Open("/nowhere/libnccl.so.2");
    });
    REQUIRE(weights.On(0).ok());
    REQUIRE(weights.On(1).ok());
    const auto state = MakeState(weights, layout);
    REQUIRE(Message(state.status()) == "");
    CHECK(*state == nullptr);
    CHECK((*weights.On(0))->sums() == nullptr);
    CHECK(lines.count() == 1);
    CHECK_THAT(lines.text(),
               Contains("warning") &&
                   Contains("GPUs 0, 1 add up their gradients on the host, which is slower") &&
                   Contains(missing ? "/nowhere/libnccl.so.2 cannot be loaded" : "a system error"));
  }
  CHECK(testing::LiveObjects() == objects);
}

TEST_CASE("CUDA weights: options that a state refuses are refused for several GPUs, too") {
  const graph::Program program = testing::Mlp();
  const exact::BlockLayout layout = testing::LayoutOf(program);
  CudaWeights weights(program, [] { return LateNccl(); });
  REQUIRE(weights.On(0).ok());
  REQUIRE(weights.On(1).ok());
  const auto state = weights.MakeState(
      {.layout = &layout, .update = {testing::Adam()}, .shards = 1, .precision_bits = 7});
  CHECK(absl::IsInvalidArgument(state.status()));
}

TEST_CASE("Group state: GPUs whose totals differ stop the job, with their numbers") {
  const graph::Program program = testing::Mlp();
  const exact::BlockLayout layout = testing::LayoutOf(program);
  for (const SumSource source : {SumSource::kOwn, SumSource::kRing}) {
    HostState host(layout, testing::Adam());
    GpuStates group(program, layout, testing::Adam(), {0, 1, 2}, [] { return LateNccl(); });
    REQUIRE(group.Load(host).ok());
    AddShards(host, group, 1);
    const Fault fault({.wrong_device = 2});
    if (source == SumSource::kRing) group.WriteTotals(host.sums);
    const Status status = group.Called().Apply(source, 1).status();
    CHECK(status.code() == absl::StatusCode::kInternal);
    CHECK_THAT(Message(status), Contains("GPUs 0 and 2 hold different totals"));
  }
}

TEST_CASE("Group state: GPUs whose states differ stop the job, with their numbers") {
  const graph::Program program = testing::Mlp();
  const exact::BlockLayout layout = testing::LayoutOf(program);
  HostState host(layout, testing::Adam());
  GpuStates group(program, layout, testing::Adam(), {0, 1, 2}, [] { return LateNccl(); });
  REQUIRE(group.Load(host).ok());
  AddShards(host, group, 1);
  static_cast<float*>(group.device(2).arena(graph::DType::kFloat32))[1] += 1;
  for (const Status& status : {group.Called().Skip(SumSource::kOwn).status(),
                               group.Called().Apply(SumSource::kOwn, 1).status()}) {
    CHECK(status.code() == absl::StatusCode::kInternal);
    CHECK_THAT(Message(status), Contains("GPUs 0 and 2 hold different states"));
  }
}

TEST_CASE("Group state: an error of NCCL reaches whoever reads, writes or updates") {
  const graph::Program program = testing::Mlp();
  const exact::BlockLayout layout = testing::LayoutOf(program);
  HostState host(layout, testing::Adam());
  GpuStates group(program, layout, testing::Adam(), {0, 1}, [] { return LateNccl(); });
  REQUIRE(group.Load(host).ok());
  AddShards(host, group, 1);
  const Fault fault({.call = "ncclReduce", .later = true});
  std::vector<int64_t> sums(exact::kBlockElements);
  const Status failed = group.Called().ReadSums({0, 1}, sums);
  CHECK_THAT(Message(failed), Contains("GPUs 0, 1: sum of a bucket: NCCL: a system error"));
  CHECK(group.Called().WriteTotals({0, 1}, sums) == failed);
  CHECK(group.Called().Apply(SumSource::kOwn, 1).status() == failed);
  CHECK(group.Called().Skip(SumSource::kOwn).status() == failed);
}

}  // namespace ringmaster::cuda
