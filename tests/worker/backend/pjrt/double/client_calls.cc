// Plugin, client, devices.
#include <cstring>

#include "tests/worker/backend/pjrt/double/calls.h"
#include "tests/worker/backend/pjrt/double/options.h"

namespace ringmaster::pjrt::plugin_double {
namespace {

std::vector<abi::NamedValue> MakeAttributes() {
  static constexpr int64_t kXlaVersion = 2;
  static const int64_t kStablehloVersion[] = {1, ProcessOptions().stablehlo_minor, 0};
  const auto named = [](const char* name) {
    abi::NamedValue value = {};
    value.struct_size = sizeof(value);
    value.name = name;
    value.name_size = std::strlen(name);
    return value;
  };
  abi::NamedValue xla = named("xla_version");
  xla.kind = abi::NamedValueKind::kInt64;
  xla.value.int64 = kXlaVersion;
  xla.value_size = 1;
  abi::NamedValue stablehlo = named("stablehlo_current_version");
  stablehlo.kind = abi::NamedValueKind::kInt64List;
  stablehlo.value.int64_list = kStablehloVersion;
  stablehlo.value_size = std::size(kStablehloVersion);
  return {xla, stablehlo};
}

// Names of the CUDA plugin, which refuses others; a TPU's takes none of ours.
Status CheckClientOptions(const abi::ClientCreateArgs& args) {
  for (size_t i = 0; i < args.num_options; ++i) {
    const abi::NamedValue& option = args.create_options[i];
    const std::string_view name(option.name, option.name_size);
    const bool fraction = name == "memory_fraction" && option.kind == abi::NamedValueKind::kFloat;
    const bool preallocate = name == "preallocate" && option.kind == abi::NamedValueKind::kBool;
    if (option.struct_size != sizeof(option) || (!fraction && !preallocate)) {
      return InvalidArgument("Unexpected option name passed to PJRT_Client_Create: {}", name);
    }
  }
  return absl::OkStatus();
}

}  // namespace

Status PluginInitialize(abi::PluginInitializeArgs*) { return ProcessOptionsStatus(); }

Status PluginAttributes(abi::PluginAttributesArgs* args) {
  static const std::vector<abi::NamedValue> kAttributes = MakeAttributes();
  args->attributes = kAttributes.data();
  args->num_attributes = kAttributes.size();
  return absl::OkStatus();
}

Status ErrorGetCode(abi::ErrorGetCodeArgs* args) {
  args->code = static_cast<abi::ErrorCode>(args->error->status.code());
  return absl::OkStatus();
}

Status EventDestroy(abi::EventDestroyArgs* args) {
  delete args->event;
  return absl::OkStatus();
}

Status EventAwait(abi::EventAwaitArgs* args) { return args->event->completion->Await(); }

Status ClientCreate(abi::ClientCreateArgs* args) {
  RING_RETURN_IF_ERROR(CheckClientOptions(*args));
  const Options& options = ProcessOptions();
  if (options.busy) {
    return Error(
        absl::StatusCode::kAborted,
        "The TPU is already in use by process with pid 1. Not attempting to load libtpu.so "
        "in this process.");
  }
  auto client = std::make_unique<abi::Client>();
  client->platform_version = options.version;
  for (size_t place = 0; place < options.devices; ++place) {
    client->devices.push_back(std::make_unique<abi::Device>(place, options.devices));
    client->device_list.push_back(client->devices.back().get());
  }
  args->client = client.release();
  return absl::OkStatus();
}

Status ClientDestroy(abi::ClientDestroyArgs* args) {
  delete args->client;
  return absl::OkStatus();
}

Status ClientPlatformName(abi::ClientPlatformNameArgs* args) {
  args->platform_name = ProcessOptions().platform.data();
  args->platform_name_size = ProcessOptions().platform.size();
  return absl::OkStatus();
}

Status ClientPlatformVersion(abi::ClientPlatformVersionArgs* args) {
  args->platform_version = args->client->platform_version.data();
  args->platform_version_size = args->client->platform_version.size();
  return absl::OkStatus();
}

Status ClientAddressableDevices(abi::ClientAddressableDevicesArgs* args) {
  args->devices = args->client->device_list.data();
  args->num_devices = args->client->device_list.size();
  return absl::OkStatus();
}

Status DeviceGetDescription(abi::DeviceGetDescriptionArgs* args) {
  args->description = &args->device->description;
  return absl::OkStatus();
}

Status DeviceDescriptionId(abi::DeviceDescriptionIdArgs* args) {
  args->id = args->description->id;
  return absl::OkStatus();
}

Status DeviceDescriptionKind(abi::DeviceDescriptionKindArgs* args) {
  args->kind = args->description->kind.data();
  args->kind_size = args->description->kind.size();
  return absl::OkStatus();
}

Status DeviceDescriptionToString(abi::DeviceDescriptionToStringArgs* args) {
  args->text = args->description->text.data();
  args->text_size = args->description->text.size();
  return absl::OkStatus();
}

Status DeviceMemoryStats(abi::DeviceMemoryStatsArgs* args) {
  if (ProcessOptions().no_stats) {
    return Error(absl::StatusCode::kUnimplemented, "MemoryStats is not known of this device");
  }
  const DeviceMemory::Figures figures = args->device->memory->figures();
  args->bytes_in_use = static_cast<int64_t>(figures.in_use);
  args->peak_bytes_in_use = static_cast<int64_t>(figures.peak);
  args->peak_bytes_in_use_is_set = true;
  args->bytes_limit = static_cast<int64_t>(figures.limit);
  args->bytes_limit_is_set = true;
  return absl::OkStatus();
}

}  // namespace ringmaster::pjrt::plugin_double
