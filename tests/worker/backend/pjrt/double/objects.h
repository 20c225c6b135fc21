// What the handles of the C interface stand for in the plugin double. Devices and their threads
// belong to the client, buffers and executables to whoever got them. Each device has one thread, on
// which copies and executions are done one after the other and events complete: never on the thread
// of the call. Thread-safe, as the interface must be.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "common/status.h"
#include "tests/support/stablehlo/interpreter.h"
#include "worker/backend/pjrt/abi.h"

namespace ringmaster::pjrt::plugin_double {

namespace stablehlo = ringmaster::testing::stablehlo;

// Something that will be done, on a device's thread.
class Completion {
 public:
  void Complete(const Status& status);
  [[nodiscard]] Status Await();

 private:
  std::mutex mu_;
  std::condition_variable done_changed_;
  bool done_ = false;
  Status status_;
};

// Bytes of a device. A reservation gives them back when it goes.
class DeviceMemory {
 public:
  explicit DeviceMemory(size_t limit) : limit_(limit) {}

  // RESOURCE_EXHAUSTED where they, and `beside` for a moment, do not fit.
  [[nodiscard]] Status Take(const std::string& what, size_t bytes, size_t beside = 0);
  void Give(size_t bytes);

  struct Figures {
    size_t in_use, peak, limit;
  };
  [[nodiscard]] Figures figures();

 private:
  const size_t limit_;
  std::mutex mu_;
  size_t in_use_ = 0;
  size_t peak_ = 0;
};

class Reservation {
 public:
  [[nodiscard]] static StatusOr<std::unique_ptr<Reservation>> Make(
      std::shared_ptr<DeviceMemory> memory, const std::string& what, size_t bytes,
      size_t beside = 0);
  ~Reservation() { memory_->Give(bytes_); }

 private:
  Reservation(std::shared_ptr<DeviceMemory> memory, size_t bytes)
      : memory_(std::move(memory)), bytes_(bytes) {}

  const std::shared_ptr<DeviceMemory> memory_;
  const size_t bytes_;
};

// The bytes behind a buffer. The tensor is whole once `ready` is complete, and belongs to the
// device's thread until then; a task lets go of it before it says that it is done, so that memory
// is free as soon as the caller may think so.
struct Storage {
  std::unique_ptr<Reservation> reservation;
  stablehlo::Tensor tensor;
  const std::shared_ptr<Completion> ready = std::make_shared<Completion>();
};

// A program as it was compiled; executables share it.
struct CompiledProgram {
  std::string text;
  std::string options;  // with which it was compiled
  std::unique_ptr<stablehlo::Module> module;
  std::vector<stablehlo::TensorType> results;  // as the plugin says that they are
  stablehlo::Memory memory;
  size_t alias_bytes = 0;
  // As the interface wants them.
  std::vector<abi::BufferType> result_types;
  std::vector<int64_t> result_dims;
  std::vector<size_t> result_ranks;
};

[[nodiscard]] size_t StoredBytes(const stablehlo::TensorType& type);
[[nodiscard]] abi::BufferType ToAbi(stablehlo::Type type);
[[nodiscard]] std::optional<stablehlo::Type> FromAbi(abi::BufferType type);

}  // namespace ringmaster::pjrt::plugin_double

namespace ringmaster::pjrt::abi {

struct Error {
  Status status;
  std::string message;
};

struct Event {
  std::shared_ptr<plugin_double::Completion> completion;
};

struct DeviceDescription {
  int32_t id = 0;
  std::string kind;
  std::string text;
};

struct Device {
  Device(size_t place, size_t devices);
  ~Device();

  // Done in the order of the calls, on the device's thread.
  void Post(std::function<void()> task);

  DeviceDescription description;
  std::shared_ptr<plugin_double::DeviceMemory> memory;

 private:
  void Work();

  std::mutex mu_;
  std::condition_variable tasks_changed_;
  std::deque<std::function<void()>> tasks_;
  bool stopping_ = false;
  std::jthread thread_;
};

struct Client {
  std::vector<std::unique_ptr<Device>> devices;
  std::vector<Device*> device_list;
  std::string platform_version;
};

struct Buffer {
  Device* device = nullptr;
  plugin_double::stablehlo::TensorType type;
  std::shared_ptr<plugin_double::Storage> storage;  // nullptr: donated
};

struct Executable {
  std::shared_ptr<const plugin_double::CompiledProgram> program;
};

struct SerializedExecutable {
  std::string bytes;
};

struct LoadedExecutable {
  std::shared_ptr<const plugin_double::CompiledProgram> program;
  std::vector<Device*> devices;  // of its replicas; empty: portable
  std::vector<std::unique_ptr<plugin_double::Reservation>> code;
};

}  // namespace ringmaster::pjrt::abi
