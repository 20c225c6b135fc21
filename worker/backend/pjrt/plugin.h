// A PJRT plugin, loaded into this process: its one client, and what a device of it is asked to do.
// Owned by the plugin host's program and never part of the daemon, because a plugin that finds
// something wrong aborts the process it is in. Thread-safe; calls block until the plugin is done,
// and whoever started this process limits how long that may take.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/status.h"
#include "worker/backend/pjrt/abi.h"
#include "worker/backend/pjrt/plugin_facts.h"
#include "worker/backend/pjrt/tensor_type.h"

namespace ringmaster::pjrt {

class Plugin;

// Ends an object of the plugin's.
struct DestroyObject {
  const Plugin* plugin = nullptr;
  void operator()(abi::Buffer* buffer) const;
  void operator()(abi::LoadedExecutable* executable) const;
};
using DeviceBuffer = std::unique_ptr<abi::Buffer, DestroyObject>;
using LoadedProgram = std::unique_ptr<abi::LoadedExecutable, DestroyObject>;

// A program on one device. Immutable; runs side by side.
struct Compiled {
  LoadedProgram program;
  CompiledBytes bytes;
};

// A tensor in the host's memory, of its type's bytes.
struct HostTensor {
  const TensorType* type = nullptr;
  std::byte* data = nullptr;
};

class Plugin {
 public:
  // FAILED_PRECONDITION: it cannot be loaded, is no plugin, or one of a version that is not
  // supported; what is missing is named. Else the plugin's own error, ABORTED where another process
  // has its devices.
  [[nodiscard]] static StatusOr<std::unique_ptr<Plugin>> Load(const std::string& path,
                                                              const ClientOptions& options);
  ~Plugin();
  Plugin(const Plugin&) = delete;
  Plugin& operator=(const Plugin&) = delete;

  [[nodiscard]] const PluginFacts& facts() const { return facts_; }

  // `device`: a place in facts().devices, as everywhere below. INTERNAL says how the program's
  // results differ from those expected.
  [[nodiscard]] StatusOr<Compiled> Compile(size_t device, const std::string& text,
                                           std::span<const TensorType> results) const;
  // Copies tensors to the device; the host's memory may change when this returns.
  [[nodiscard]] StatusOr<std::vector<DeviceBuffer>> Upload(
      size_t device, std::span<const HostTensor> tensors) const;
  [[nodiscard]] StatusOr<std::vector<DeviceBuffer>> Execute(const Compiled& compiled,
                                                            std::span<abi::Buffer* const> arguments,
                                                            size_t results) const;
  // INTERNAL where a buffer is not of the tensor's type.
  [[nodiscard]] Status Download(std::span<const DeviceBuffer> buffers,
                                std::span<const HostTensor> tensors) const;

 private:
  friend struct DestroyObject;
  explicit Plugin(const abi::Api* api) : api_(api) {}

  [[nodiscard]] Status CheckTable() const;
  [[nodiscard]] Status CreateClient(const ClientOptions& options);
  [[nodiscard]] Status AskFacts();
  [[nodiscard]] StatusOr<DeviceFacts> AskDevice(abi::Device* device) const;
  [[nodiscard]] Status CheckOutputs(abi::Executable* executable,
                                    std::span<const TensorType> results) const;
  [[nodiscard]] StatusOr<CompiledBytes> AskBytes(abi::Executable* executable) const;
  [[nodiscard]] StatusOr<abi::Buffer*> StartUpload(abi::Device* device, const HostTensor& tensor,
                                                   std::vector<abi::Event*>* events) const;
  [[nodiscard]] Status StartDownload(abi::Buffer* buffer, const HostTensor& tensor,
                                     std::vector<abi::Event*>* events) const;
  [[nodiscard]] StatusOr<TensorType> TypeOf(abi::Buffer* buffer) const;
  // Waits for all of them and ends them; the first error.
  [[nodiscard]] Status Await(std::span<abi::Event* const> events) const;

  // The function of these arguments, nullptr where the plugin has none.
  template <typename Args>
  [[nodiscard]] void* Find() const;
  // Calls it.
  template <typename Frame>
  [[nodiscard]] Status Call(Frame* frame) const;
  [[nodiscard]] Status ToStatus(abi::Error* error, const char* call) const;

  const abi::Api* const api_;
  abi::Client* client_ = nullptr;
  std::vector<abi::Device*> devices_;
  PluginFacts facts_;
};

}  // namespace ringmaster::pjrt
