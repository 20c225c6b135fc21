// A PJRT plugin, loaded into this process: its one client, its compiler, and what a device of it is
// asked to do. Owned by the plugin host's program and never part of the daemon, because a plugin
// that finds something wrong aborts the process it is in. Thread-safe; calls block until the plugin
// is done, and whoever started this process limits how long that may take.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/status.h"
#include "worker/backend/pjrt/abi.h"
#include "worker/backend/pjrt/compiler.h"
#include "worker/backend/pjrt/plugin_api.h"
#include "worker/backend/pjrt/plugin_facts.h"
#include "worker/backend/pjrt/tensor_type.h"

namespace ringmaster::pjrt {

using DeviceBuffer = std::unique_ptr<abi::Buffer, DestroyObject>;

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
  [[nodiscard]] const Compiler& compiler() const { return *compiler_; }

  // Copies tensors to the device at that place in facts().devices; the host's memory may change
  // when this returns.
  [[nodiscard]] StatusOr<std::vector<DeviceBuffer>> Upload(
      size_t device, std::span<const HostTensor> tensors) const;
  [[nodiscard]] StatusOr<std::vector<DeviceBuffer>> Execute(const Compiled& compiled,
                                                            std::span<abi::Buffer* const> arguments,
                                                            size_t results) const;
  // INTERNAL where a buffer is not of the tensor's type.
  [[nodiscard]] Status Download(std::span<const DeviceBuffer> buffers,
                                std::span<const HostTensor> tensors) const;

 private:
  explicit Plugin(const abi::Api* api) : api_(api) {}

  [[nodiscard]] Status CreateClient(const ClientOptions& options);
  [[nodiscard]] Status AskFacts();
  [[nodiscard]] StatusOr<DeviceFacts> AskDevice(abi::Device* device) const;
  [[nodiscard]] StatusOr<abi::Buffer*> StartUpload(abi::Device* device, const HostTensor& tensor,
                                                   std::vector<abi::Event*>* events) const;
  [[nodiscard]] Status StartDownload(abi::Buffer* buffer, const HostTensor& tensor,
                                     std::vector<abi::Event*>* events) const;
  [[nodiscard]] StatusOr<TensorType> TypeOf(abi::Buffer* buffer) const;
  // Waits for all of them and ends them; the first error.
  [[nodiscard]] Status Await(std::span<abi::Event* const> events) const;

  // Constant once it is loaded.
  const PluginApi api_;
  abi::Client* client_ = nullptr;
  std::vector<abi::Device*> devices_;
  PluginFacts facts_;
  std::optional<Compiler> compiler_;
};

}  // namespace ringmaster::pjrt
