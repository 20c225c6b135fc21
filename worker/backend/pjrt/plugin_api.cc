#include "worker/backend/pjrt/plugin_api.h"

#include <optional>
#include <tuple>

namespace ringmaster::pjrt {
namespace {

constexpr int32_t kMajor = 0;
constexpr int32_t kLeastMinor = 57;  // before it entries that are used here stood elsewhere

// The calls without which nothing can be trained.
using Needed = std::tuple<
    abi::ErrorDestroyArgs, abi::ErrorMessageArgs, abi::ErrorGetCodeArgs, abi::PluginInitializeArgs,
    abi::EventDestroyArgs, abi::EventAwaitArgs, abi::ClientCreateArgs, abi::ClientDestroyArgs,
    abi::ClientPlatformNameArgs, abi::ClientPlatformVersionArgs, abi::ClientAddressableDevicesArgs,
    abi::ClientCompileArgs, abi::ClientBufferFromHostBufferArgs, abi::DeviceDescriptionIdArgs,
    abi::DeviceDescriptionKindArgs, abi::DeviceDescriptionToStringArgs,
    abi::DeviceGetDescriptionArgs, abi::ExecutableDestroyArgs, abi::LoadedExecutableDestroyArgs,
    abi::LoadedExecutableGetExecutableArgs, abi::LoadedExecutableExecuteArgs,
    abi::BufferDestroyArgs, abi::BufferElementTypeArgs, abi::BufferDimensionsArgs,
    abi::BufferToHostBufferArgs>;

std::optional<Element> FromAbi(abi::BufferType type) {
  for (const Element element : {Element::kInt32, Element::kUInt32, Element::kFloat32}) {
    if (ToAbi(element) == type) return element;
  }
  return std::nullopt;
}

}  // namespace

void* PluginApi::Find(size_t entry) const {
  const size_t offset = abi::EntryOffset(entry);
  if (offset + sizeof(void*) > api_->struct_size) return nullptr;
  void* function = nullptr;
  std::memcpy(&function, reinterpret_cast<const std::byte*>(api_) + offset, sizeof(function));
  return function;
}

Status PluginApi::Check() const {
  const abi::Version& version = api_->version;
  if (api_->struct_size < abi::kEntriesOffset || version.major != kMajor ||
      version.minor < kLeastMinor) {
    return FailedPrecondition(
        "the plugin speaks version {}.{} of the PJRT C API, expected {}.{} or a newer minor one: "
        "install a plugin of a newer release",
        version.major, version.minor, kMajor, kLeastMinor);
  }
  const char* missing = nullptr;
  const auto need = [&](size_t entry, const char* name) {
    if (missing == nullptr && Find(entry) == nullptr) missing = name;
  };
  [&]<typename... Args>(const std::tuple<Args...>*) {
    (need(Args::kEntry, Args::kName), ...);
  }(static_cast<const Needed*>(nullptr));
  if (missing == nullptr) return absl::OkStatus();
  return FailedPrecondition("the plugin lacks {}; its table is of version {}.{} and has {} bytes",
                            missing, version.major, version.minor, api_->struct_size);
}

Status PluginApi::ToStatus(abi::Error* error, const char* call) const {
  if (error == nullptr) return absl::OkStatus();
  Roomy<abi::ErrorGetCodeArgs> code;
  code->error = error;
  const auto get =
      reinterpret_cast<abi::Function<abi::ErrorGetCodeArgs>>(Find(abi::ErrorGetCodeArgs::kEntry));
  // An error about an error: neither says anything.
  if (abi::Error* const other = get(code.get()); other != nullptr) {
    code->code = abi::ErrorCode::kUnknown;
  }
  Roomy<abi::ErrorMessageArgs> message;
  message->error = error;
  reinterpret_cast<abi::VoidFunction<abi::ErrorMessageArgs>>(Find(abi::ErrorMessageArgs::kEntry))(
      message.get());
  const auto number = static_cast<int>(code->code);
  const auto known = number >= static_cast<int>(abi::ErrorCode::kCancelled) &&
                     number <= static_cast<int>(abi::ErrorCode::kUnauthenticated);
  Status status = Error(
      known ? static_cast<absl::StatusCode>(number) : absl::StatusCode::kUnknown, "{}: {}", call,
      message->message == nullptr ? "no message"
                                  : std::string(message->message, message->message_size));
  Roomy<abi::ErrorDestroyArgs> destroy;
  destroy->error = error;
  reinterpret_cast<abi::VoidFunction<abi::ErrorDestroyArgs>>(Find(abi::ErrorDestroyArgs::kEntry))(
      destroy.get());
  return status;
}

void DestroyObject::operator()(abi::Buffer* buffer) const {
  Roomy<abi::BufferDestroyArgs> call;
  call->buffer = buffer;
  (void)api->Call(&call);
}

void DestroyObject::operator()(abi::Executable* executable) const {
  Roomy<abi::ExecutableDestroyArgs> call;
  call->executable = executable;
  (void)api->Call(&call);
}

void DestroyObject::operator()(abi::LoadedExecutable* executable) const {
  Roomy<abi::LoadedExecutableDestroyArgs> call;
  call->executable = executable;
  (void)api->Call(&call);
}

abi::BufferType ToAbi(Element element) {
  switch (element) {
    case Element::kInt32:
      return abi::BufferType::kS32;
    case Element::kUInt32:
      return abi::BufferType::kU32;
    case Element::kFloat32:
      break;
  }
  return abi::BufferType::kF32;
}

StatusOr<TensorType> TypeFrom(abi::BufferType type, std::span<const int64_t> dims) {
  const auto element = FromAbi(type);
  if (!element) {
    return Internal("wrong output shapes: a result has elements of type {}, expected s32 or f32",
                    static_cast<int>(type));
  }
  return TensorType{*element, {dims.begin(), dims.end()}};
}

Status CheckResult(size_t place, const TensorType& got, const TensorType& expected) {
  if (got == expected) return absl::OkStatus();
  return Internal("wrong output shapes: result {} is {}, expected {}", place, got.Text(),
                  expected.Text());
}

}  // namespace ringmaster::pjrt
