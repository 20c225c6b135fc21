#include "worker/backend/pjrt/tpus.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <utility>

#include "common/graph/memory_plan.h"
#include "worker/backend/pjrt/emit/emit.h"
#include "worker/backend/pjrt/pjrt_weights.h"

namespace ringmaster::pjrt {
namespace {

constexpr uint64_t kGiB = uint64_t{1} << 30;

// Cores and memory: Google's pages on system architecture. Of v2 and v3 a chip has two devices; a
// host of v2 to v5p has four chips, one of v5e and v6e eight.
constexpr TpuWorker kWorkers[] = {
    {"tpu-v2-8", "TPU v2", 8, 8 * kGiB},    {"tpu-v3-8", "TPU v3", 8, 16 * kGiB},
    {"tpu-v4-8", "TPU v4", 4, 32 * kGiB},   {"tpu-v5e-8", "TPU v5e", 8, 16 * kGiB},
    {"tpu-v5p-8", "TPU v5p", 4, 95 * kGiB}, {"tpu-v6e-8", "TPU v6e", 8, 32 * kGiB},
};

// What libtpu calls a device, where that is not its model.
constexpr std::pair<const char*, const char*> kKinds[] = {
    {"TPU v5 lite", "TPU v5e"}, {"TPU v5", "TPU v5p"}, {"TPU v6 lite", "TPU v6e"}};

// PCI numbers of Google, and of v2 and v3, v4, v5p, v5e, v6e and 7x.
constexpr uint32_t kVendor = 0x1ae0;
constexpr std::array<uint32_t, 6> kDevices = {0x0027, 0x005e, 0x0062, 0x0063, 0x006f, 0x0076};

// 0 where there is no such number: 0x1ae0
uint32_t HexIn(const std::filesystem::path& file) {
  std::ifstream stream(file);
  std::string text;
  uint32_t number = 0;
  if (!(stream >> text) || !text.starts_with("0x")) return 0;
  std::from_chars(text.data() + 2, text.data() + text.size(), number, 16);
  return number;
}

constexpr int64_t kLanes = 128, kSublanes = 8;
constexpr int64_t kVector = kLanes * kSublanes;
constexpr size_t kHbmAlignment = 512;

int64_t Up(int64_t n, int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

class PlanningCore final : public Core {
 public:
  StatusOr<std::unique_ptr<Executable>> Bind(const graph::Program&, Weights&,
                                             const graph::Augmenter*) override {
    return Internal("a plan of TPUs computes nothing");
  }
  StatusOr<CoreLayout> Plan(const graph::Program& program, Weights& /*weights*/) override {
    return PlanOnTpu(program);
  }
  [[nodiscard]] uint64_t memory_bytes() const override { return 0; }
};

class TpuPlanner final : public Backend {
 public:
  explicit TpuPlanner(std::string model) : model_(std::move(model)) {}

  [[nodiscard]] v1::NumericsClass numerics_class(uint32_t /*threads_per_core*/) const override {
    v1::NumericsClass numerics;
    numerics.set_backend("tpu");
    numerics.set_device_model(model_);
    numerics.set_threads_per_core(1);
    return numerics;
  }
  [[nodiscard]] v1::DeviceProfile device_profile() const override {
    v1::DeviceProfile profile;
    profile.set_kind("tpu");
    if (const TpuWorker* const worker = FindTpuWorker(model_)) {
      profile.set_memory_per_core(worker->hbm);
    }
    profile.set_alignment(kHbmAlignment);
    return profile;
  }
  [[nodiscard]] bool pads() const override { return true; }
  // Nobody writes them, so that they take no memory.
  StatusOr<std::unique_ptr<Weights>> MakeWeights(const graph::Program& training) override {
    RING_ASSIGN_OR_RETURN(std::unique_ptr<Weights> weights, PjrtWeights::Create(training, 0));
    return weights;
  }
  StatusOr<std::unique_ptr<Core>> MakeCore(const CoreOptions&) override {
    return std::make_unique<PlanningCore>();
  }

 private:
  const std::string model_;
};

}  // namespace

size_t CountTpus(const std::string& folder) {
  std::error_code ignored;
  size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
    if (HexIn(entry.path() / "vendor") != kVendor) continue;
    count += std::ranges::count(kDevices, HexIn(entry.path() / "device"));
  }
  return count;
}

std::string TpuLibrary() {
  const char* const path = std::getenv("TPU_LIBRARY_PATH");
  return path != nullptr && *path != '\0' ? path : "libtpu.so";
}

std::span<const TpuWorker> TpuWorkers() { return kWorkers; }

const TpuWorker* FindTpuWorker(const std::string& kind) {
  const auto called = std::ranges::find(kKinds, kind, &std::pair<const char*, const char*>::first);
  const std::string model = called == std::end(kKinds) ? kind : called->second;
  const auto found = std::ranges::find(kWorkers, model, &TpuWorker::model);
  return found == std::end(kWorkers) ? nullptr : found;
}

size_t TiledBytes(const graph::Value& value) {
  const auto size = static_cast<int64_t>(graph::ByteSize(value.dtype));
  const graph::Shape& shape = value.shape;
  if (shape.size() < 2) return static_cast<size_t>(size * Up(graph::Elements(shape), kVector));
  const int64_t rows = kSublanes * 4 / size;
  const int64_t first = shape.front(), last = shape.back();
  const int64_t between = graph::Elements(shape) / std::max<int64_t>(first * last, 1);
  const int64_t tiled =
      std::min(Up(first, kLanes) * Up(last, rows), Up(first, rows) * Up(last, kLanes));
  return static_cast<size_t>(size * between * tiled);
}

StatusOr<CoreLayout> PlanOnTpu(const graph::Program& program) {
  RING_ASSIGN_OR_RETURN(const Module module, Emit(program, Rows::kSome));
  CoreLayout layout;
  layout.host_bytes = LaneBytes(module);
  layout.plan = graph::PlanMemory(program, {.alignment = kHbmAlignment, .bytes_of = &TiledBytes});
  layout.bytes = layout.plan.arena_bytes;
  layout.element_bytes = graph::PlanMemory(program, {.alignment = kHbmAlignment}).arena_bytes;
  const auto add = [&](graph::ValueId id) {
    const graph::Value& value = program.graph.value(id);
    layout.bytes += AlignUp(TiledBytes(value), kHbmAlignment);
    layout.element_bytes +=
        static_cast<size_t>(graph::Elements(value.shape)) * graph::ByteSize(value.dtype);
  };
  for (const graph::Parameter& parameter : program.parameters) {
    layout.gradients.push_back(layout.bytes);
    add(parameter.value);
    if (parameter.gradient != graph::kNoValue) add(parameter.gradient);
  }
  for (const graph::Parameter& parameter : program.frozen) add(parameter.value);
  return layout;
}

std::unique_ptr<Backend> MakeTpuPlanner(const std::string& model) {
  return std::make_unique<TpuPlanner>(model);
}

}  // namespace ringmaster::pjrt
