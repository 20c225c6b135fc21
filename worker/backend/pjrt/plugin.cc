#include "worker/backend/pjrt/plugin.h"

#include <dlfcn.h>

#include <algorithm>

namespace ringmaster::pjrt {
namespace {

std::string LoaderError() {
  const char* const text = dlerror();
  return text == nullptr ? "the loader says nothing" : text;
}

std::string TextOf(const abi::NamedValue& attribute) {
  switch (attribute.kind) {
    case abi::NamedValueKind::kString:
      return {attribute.value.string, attribute.value_size};
    case abi::NamedValueKind::kInt64:
      return std::to_string(attribute.value.int64);
    case abi::NamedValueKind::kInt64List: {
      const std::span<const int64_t> list(attribute.value.int64_list, attribute.value_size);
      return fmt::format("{}", fmt::join(list, "."));
    }
    case abi::NamedValueKind::kFloat:
      return fmt::format("{}", attribute.value.float32);
    case abi::NamedValueKind::kBool:
      return attribute.value.boolean ? "true" : "false";
  }
  return "";
}

}  // namespace

StatusOr<std::unique_ptr<Plugin>> Plugin::Load(const std::string& path,
                                               const ClientOptions& options) {
  // It stays loaded: libraries of device vendors do not survive being unloaded.
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library == nullptr) {
    return FailedPrecondition("the plugin {} cannot be loaded: {}", path, LoaderError());
  }
  const auto get = reinterpret_cast<const abi::Api* (*)()>(dlsym(library, abi::kGetApi));
  if (get == nullptr) {
    return FailedPrecondition("{} is no PJRT plugin: it has no function {}", path, abi::kGetApi);
  }
  const abi::Api* const api = get();
  if (api == nullptr) return FailedPrecondition("{}: {} gives no table", path, abi::kGetApi);
  std::unique_ptr<Plugin> plugin(new Plugin(api));
  RING_RETURN_IF_ERROR(Annotate(plugin->api_.Check(), path));
  Roomy<abi::PluginInitializeArgs> initialize;
  RING_RETURN_IF_ERROR(plugin->api_.Call(&initialize));
  RING_RETURN_IF_ERROR(plugin->CreateClient(options));
  RING_RETURN_IF_ERROR(plugin->AskFacts());
  plugin->compiler_.emplace(plugin->api_, plugin->client_, plugin->devices_, plugin->facts_);
  return plugin;
}

Plugin::~Plugin() {
  if (client_ == nullptr) return;
  Roomy<abi::ClientDestroyArgs> call;
  call->client = client_;
  (void)api_.Call(&call);
}

Status Plugin::CreateClient(const ClientOptions& options) {
  std::vector<abi::NamedValue> values;
  if (options.memory_fraction > 0) {
    static constexpr char kName[] = "memory_fraction";  // read by the call below
    abi::NamedValue value = {};
    value.struct_size = sizeof(value);
    value.name = kName;
    value.name_size = sizeof(kName) - 1;
    value.kind = abi::NamedValueKind::kFloat;
    value.value.float32 = options.memory_fraction;
    value.value_size = 1;
    values.push_back(value);
  }
  Roomy<abi::ClientCreateArgs> call;
  call->create_options = values.data();
  call->num_options = values.size();
  RING_RETURN_IF_ERROR(api_.Call(&call));
  client_ = call->client;
  return absl::OkStatus();
}

Status Plugin::AskFacts() {
  facts_.major = api_.version().major;
  facts_.minor = api_.version().minor;
  Roomy<abi::ClientPlatformNameArgs> name;
  name->client = client_;
  RING_RETURN_IF_ERROR(api_.Call(&name));
  facts_.platform.assign(name->platform_name, name->platform_name_size);
  Roomy<abi::ClientPlatformVersionArgs> version;
  version->client = client_;
  RING_RETURN_IF_ERROR(api_.Call(&version));
  facts_.platform_version.assign(version->platform_version, version->platform_version_size);
  Roomy<abi::PluginAttributesArgs> attributes;
  if (const Status asked = api_.Call(&attributes); asked.ok()) {
    for (size_t i = 0; i < attributes->num_attributes; ++i) {
      const abi::NamedValue& value = attributes->attributes[i];
      facts_.attributes.push_back({{value.name, value.name_size}, TextOf(value)});
    }
  } else if (!absl::IsUnimplemented(asked)) {
    return asked;
  }
  Roomy<abi::ClientAddressableDevicesArgs> devices;
  devices->client = client_;
  RING_RETURN_IF_ERROR(api_.Call(&devices));
  if (devices->num_devices == 0) {
    return Error(absl::StatusCode::kUnavailable, "the plugin for {} finds no device on this host",
                 facts_.platform);
  }
  for (size_t i = 0; i < devices->num_devices; ++i) {
    devices_.push_back(devices->devices[i]);
    RING_ASSIGN_OR_RETURN(DeviceFacts facts, AskDevice(devices->devices[i]));
    facts_.devices.push_back(std::move(facts));
  }
  return absl::OkStatus();
}

StatusOr<DeviceFacts> Plugin::AskDevice(abi::Device* device) const {
  Roomy<abi::DeviceGetDescriptionArgs> description;
  description->device = device;
  RING_RETURN_IF_ERROR(api_.Call(&description));
  Roomy<abi::DeviceDescriptionIdArgs> id;
  id->description = description->description;
  RING_RETURN_IF_ERROR(api_.Call(&id));
  Roomy<abi::DeviceDescriptionKindArgs> kind;
  kind->description = description->description;
  RING_RETURN_IF_ERROR(api_.Call(&kind));
  Roomy<abi::DeviceDescriptionToStringArgs> text;
  text->description = description->description;
  RING_RETURN_IF_ERROR(api_.Call(&text));
  DeviceFacts facts = {.id = id->id,
                       .kind = {kind->kind, kind->kind_size},
                       .description = {text->text, text->text_size}};
  Roomy<abi::DeviceMemoryStatsArgs> memory;
  memory->device = device;
  if (const Status asked = api_.Call(&memory); !asked.ok()) {
    if (absl::IsUnimplemented(asked)) return facts;
    return asked;
  }
  if (memory->bytes_limit_is_set)
    facts.memory_limit = static_cast<uint64_t>(std::max<int64_t>(memory->bytes_limit, 0));
  return facts;
}

Status Plugin::Await(std::span<abi::Event* const> events) const {
  Status first;
  for (abi::Event* const event : events) {
    if (event == nullptr) continue;
    Roomy<abi::EventAwaitArgs> await;
    await->event = event;
    const Status status = api_.Call(&await);
    if (first.ok()) first = status;
    Roomy<abi::EventDestroyArgs> destroy;
    destroy->event = event;
    (void)api_.Call(&destroy);
  }
  return first;
}

StatusOr<abi::Buffer*> Plugin::StartUpload(abi::Device* device, const HostTensor& tensor,
                                           std::vector<abi::Event*>* events) const {
  Roomy<abi::ClientBufferFromHostBufferArgs> call;
  call->client = client_;
  call->data = tensor.data;
  call->type = ToAbi(tensor.type->element);
  call->dims = tensor.type->dims.data();
  call->num_dims = tensor.type->dims.size();
  call->host_buffer_semantics = abi::HostSemantics::kUntilTransferCompletes;
  call->device = device;
  RING_RETURN_IF_ERROR(api_.Call(&call));
  events->push_back(call->done_with_host_buffer);
  return call->buffer;
}

StatusOr<std::vector<DeviceBuffer>> Plugin::Upload(size_t device,
                                                   std::span<const HostTensor> tensors) const {
  std::vector<DeviceBuffer> buffers;
  std::vector<abi::Event*> events;
  Status started;
  for (const HostTensor& tensor : tensors) {
    const auto buffer = StartUpload(devices_[device], tensor, &events);
    started = buffer.status();
    if (!started.ok()) break;
    buffers.emplace_back(*buffer, DestroyObject{&api_});
  }
  const Status done = Await(events);  // also after an error: the memory is still being read
  RING_RETURN_IF_ERROR(started);
  RING_RETURN_IF_ERROR(done);
  return buffers;
}

StatusOr<std::vector<DeviceBuffer>> Plugin::Execute(const Compiled& compiled,
                                                    std::span<abi::Buffer* const> arguments,
                                                    size_t results) const {
  std::vector<abi::Buffer*> outputs(results, nullptr);
  abi::Buffer* const* const argument_list = arguments.data();
  abi::Buffer** const output_list = outputs.data();
  abi::Event* done = nullptr;
  Roomy<abi::ExecuteOptions> options;
  Roomy<abi::LoadedExecutableExecuteArgs> call;
  call->executable = compiled.program.get();
  call->options = options.get();
  call->argument_lists = &argument_list;
  call->num_devices = 1;
  call->num_args = arguments.size();
  call->output_lists = &output_list;
  call->device_complete_events = &done;
  RING_RETURN_IF_ERROR(api_.Call(&call));
  std::vector<DeviceBuffer> buffers;
  for (abi::Buffer* const output : outputs) buffers.emplace_back(output, DestroyObject{&api_});
  RING_RETURN_IF_ERROR(Annotate(Await({&done, 1}), "running the program"));
  return buffers;
}

StatusOr<TensorType> Plugin::TypeOf(abi::Buffer* buffer) const {
  Roomy<abi::BufferElementTypeArgs> type;
  type->buffer = buffer;
  RING_RETURN_IF_ERROR(api_.Call(&type));
  Roomy<abi::BufferDimensionsArgs> dims;
  dims->buffer = buffer;
  RING_RETURN_IF_ERROR(api_.Call(&dims));
  return TypeFrom(type->type, {dims->dims, dims->num_dims});
}

Status Plugin::StartDownload(abi::Buffer* buffer, const HostTensor& tensor,
                             std::vector<abi::Event*>* events) const {
  // Without a layout the bytes would come as they lie on the device.
  const size_t rank = tensor.type->dims.size();
  std::vector<int64_t> minor_to_major(rank);
  for (size_t i = 0; i < rank; ++i) minor_to_major[i] = static_cast<int64_t>(rank - 1 - i);
  Roomy<abi::MemoryLayout> layout;
  layout->kind = abi::LayoutKind::kTiled;
  layout->tiled.struct_size = sizeof(abi::TiledLayout);
  layout->tiled.minor_to_major = minor_to_major.data();
  layout->tiled.minor_to_major_size = rank;
  Roomy<abi::BufferToHostBufferArgs> call;
  call->source = buffer;
  call->host_layout = layout.get();
  call->destination = tensor.data;
  call->destination_size = tensor.type->bytes();
  RING_RETURN_IF_ERROR(api_.Call(&call));
  events->push_back(call->event);
  return absl::OkStatus();
}

Status Plugin::Download(std::span<const DeviceBuffer> buffers,
                        std::span<const HostTensor> tensors) const {
  std::vector<abi::Event*> events;
  Status started;
  for (size_t i = 0; i < buffers.size() && started.ok(); ++i) {
    const auto type = TypeOf(buffers[i].get());
    started = type.ok() ? CheckResult(i, *type, *tensors[i].type) : type.status();
    if (started.ok()) started = StartDownload(buffers[i].get(), tensors[i], &events);
  }
  const Status done = Await(events);  // also after an error: the memory is still being written
  RING_RETURN_IF_ERROR(started);
  return done;
}

}  // namespace ringmaster::pjrt
