#include "tests/worker/backend/pjrt/double/objects.h"

#include <pthread.h>

#include <algorithm>

#include "tests/worker/backend/pjrt/double/options.h"

namespace ringmaster::pjrt::plugin_double {

void Completion::Complete(const Status& status) {
  const std::lock_guard lock(mu_);
  done_ = true;
  status_ = status;
  done_changed_.notify_all();
}

Status Completion::Await() {
  std::unique_lock lock(mu_);
  done_changed_.wait(lock, [&] { return done_; });
  return status_;
}

Status DeviceMemory::Take(const std::string& what, size_t bytes, size_t beside) {
  const std::lock_guard lock(mu_);
  const size_t needed = in_use_ + bytes + beside;
  if (needed > limit_) return OutOfMemory(what, needed, limit_);
  in_use_ += bytes;
  peak_ = std::max(peak_, needed);
  return absl::OkStatus();
}

void DeviceMemory::Give(size_t bytes) {
  const std::lock_guard lock(mu_);
  in_use_ -= bytes;
}

DeviceMemory::Figures DeviceMemory::figures() {
  const std::lock_guard lock(mu_);
  return {in_use_, peak_, limit_};
}

StatusOr<std::unique_ptr<Reservation>> Reservation::Make(std::shared_ptr<DeviceMemory> memory,
                                                         const std::string& what, size_t bytes,
                                                         size_t beside) {
  RING_RETURN_IF_ERROR(memory->Take(what, bytes, beside));
  return std::unique_ptr<Reservation>(new Reservation(std::move(memory), bytes));
}

size_t StoredBytes(const stablehlo::TensorType& type) {
  return ProcessOptions().tiles ? type.tiled_bytes() : type.bytes();
}

namespace {

constexpr std::pair<stablehlo::Type, abi::BufferType> kTypes[] = {
    {stablehlo::Type::kPred, abi::BufferType::kPred},
    {stablehlo::Type::kInt32, abi::BufferType::kS32},
    {stablehlo::Type::kInt64, abi::BufferType::kS64},
    {stablehlo::Type::kUInt32, abi::BufferType::kU32},
    {stablehlo::Type::kUInt64, abi::BufferType::kU64},
    {stablehlo::Type::kFloat32, abi::BufferType::kF32},
    {stablehlo::Type::kBFloat16, abi::BufferType::kBf16},
    {stablehlo::Type::kFloat16, abi::BufferType::kF16},
};

}  // namespace

abi::BufferType ToAbi(stablehlo::Type type) {
  return std::ranges::find(kTypes, type, [](const auto& pair) { return pair.first; })->second;
}

std::optional<stablehlo::Type> FromAbi(abi::BufferType type) {
  for (const auto& [own, theirs] : kTypes) {
    if (theirs == type) return own;
  }
  return std::nullopt;
}

}  // namespace ringmaster::pjrt::plugin_double

namespace ringmaster::pjrt::abi {

// Shuffled ids: odd numbers, the last device first.
Device::Device(size_t place, size_t devices) {
  const plugin_double::Options& options = plugin_double::ProcessOptions();
  const size_t id = options.shuffled_ids ? 2 * (devices - 1 - place) + 1 : place;
  description.id = static_cast<int32_t>(id);
  description.kind = options.kind;
  description.text = fmt::format("{} device {} (place {})", options.platform, id, place);
  memory = std::make_shared<plugin_double::DeviceMemory>(options.memory);
  thread_ = std::jthread([this, place] {
    pthread_setname_np(pthread_self(), fmt::format("pjrt_double{}", place).c_str());
    Work();
  });
}

Device::~Device() {
  {
    const std::lock_guard lock(mu_);
    stopping_ = true;
  }
  tasks_changed_.notify_all();
  thread_.join();
}

void Device::Post(std::function<void()> task) {
  {
    const std::lock_guard lock(mu_);
    tasks_.push_back(std::move(task));
  }
  tasks_changed_.notify_all();
}

void Device::Work() {
  while (true) {
    std::function<void()> task;
    {
      std::unique_lock lock(mu_);
      tasks_changed_.wait(lock, [&] { return stopping_ || !tasks_.empty(); });
      if (tasks_.empty()) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    task();
  }
}

}  // namespace ringmaster::pjrt::abi
