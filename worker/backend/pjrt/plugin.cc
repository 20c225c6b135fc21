#include "worker/backend/pjrt/plugin.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <tuple>

#include "worker/backend/pjrt/compile_options.h"

namespace ringmaster::pjrt {
namespace {

constexpr int32_t kMajor = 0;
constexpr int32_t kLeastMinor = 57;  // before it entries that are used here stood elsewhere

// A struct on its way to the plugin, zero but for its size. A newer plugin may know more fields: it
// refuses a struct that ends before them, or writes to them unasked, so that all have room to
// spare; and a zero in any of them means unset.
template <typename Struct>
struct Roomy {
  using Inner = Struct;
  static constexpr size_t kRoom = 128;

  Roomy() {
    std::memset(static_cast<void*>(this), 0, sizeof(*this));
    inner.struct_size = sizeof(*this);
  }
  Struct* operator->() { return &inner; }
  Struct* get() { return &inner; }

  Struct inner;
  std::byte room[kRoom];
};

std::string LoaderError() {
  const char* const text = dlerror();
  return text == nullptr ? "the loader says nothing" : text;
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

std::optional<Element> FromAbi(abi::BufferType type) {
  for (const Element element : {Element::kInt32, Element::kUInt32, Element::kFloat32}) {
    if (ToAbi(element) == type) return element;
  }
  return std::nullopt;
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

uint64_t Unsigned(int64_t bytes) { return static_cast<uint64_t>(std::max<int64_t>(bytes, 0)); }

}  // namespace

void DestroyObject::operator()(abi::Buffer* buffer) const {
  Roomy<abi::BufferDestroyArgs> call;
  call->buffer = buffer;
  (void)plugin->Call(&call);
}

void DestroyObject::operator()(abi::LoadedExecutable* executable) const {
  Roomy<abi::LoadedExecutableDestroyArgs> call;
  call->executable = executable;
  (void)plugin->Call(&call);
}

template <typename Args>
void* Plugin::Find() const {
  const size_t offset = abi::EntryOffset(Args::kEntry);
  if (offset + sizeof(void*) > api_->struct_size) return nullptr;
  void* function = nullptr;
  std::memcpy(&function, reinterpret_cast<const std::byte*>(api_) + offset, sizeof(function));
  return function;
}

template <typename Frame>
Status Plugin::Call(Frame* frame) const {
  using Args = typename Frame::Inner;
  void* const function = Find<Args>();
  if (function == nullptr) {
    return Error(absl::StatusCode::kUnimplemented, "the plugin lacks {}", Args::kName);
  }
  return ToStatus(reinterpret_cast<abi::Function<Args>>(function)(frame->get()), Args::kName);
}

Status Plugin::ToStatus(abi::Error* error, const char* call) const {
  if (error == nullptr) return absl::OkStatus();
  Roomy<abi::ErrorGetCodeArgs> code;
  code->error = error;
  const auto get =
      reinterpret_cast<abi::Function<abi::ErrorGetCodeArgs>>(Find<abi::ErrorGetCodeArgs>());
  // An error about an error: neither says anything.
  if (abi::Error* const other = get(code.get()); other != nullptr) {
    code->code = abi::ErrorCode::kUnknown;
  }
  Roomy<abi::ErrorMessageArgs> message;
  message->error = error;
  reinterpret_cast<abi::VoidFunction<abi::ErrorMessageArgs>>(Find<abi::ErrorMessageArgs>())(
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
  reinterpret_cast<abi::VoidFunction<abi::ErrorDestroyArgs>>(Find<abi::ErrorDestroyArgs>())(
      destroy.get());
  return status;
}

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
  RING_RETURN_IF_ERROR(Annotate(plugin->CheckTable(), path));
  Roomy<abi::PluginInitializeArgs> initialize;
  RING_RETURN_IF_ERROR(plugin->Call(&initialize));
  RING_RETURN_IF_ERROR(plugin->CreateClient(options));
  RING_RETURN_IF_ERROR(plugin->AskFacts());
  return plugin;
}

Plugin::~Plugin() {
  if (client_ == nullptr) return;
  Roomy<abi::ClientDestroyArgs> call;
  call->client = client_;
  (void)Call(&call);
}

Status Plugin::CheckTable() const {
  const abi::Version& version = api_->version;
  if (api_->struct_size < abi::kEntriesOffset || version.major != kMajor ||
      version.minor < kLeastMinor) {
    return FailedPrecondition(
        "the plugin speaks version {}.{} of the PJRT C API, expected {}.{} or a newer minor one: "
        "install a plugin of a newer release",
        version.major, version.minor, kMajor, kLeastMinor);
  }
  const char* missing = nullptr;
  const auto need = [&]<typename Args>(const Args*) {
    if (missing == nullptr && Find<Args>() == nullptr) missing = Args::kName;
  };
  const auto need_all = [&]<typename... Args>(const std::tuple<Args...>*) {
    (need(static_cast<const Args*>(nullptr)), ...);
  };
  need_all(
      static_cast<const std::tuple<
          abi::ErrorDestroyArgs, abi::ErrorMessageArgs, abi::ErrorGetCodeArgs,
          abi::PluginInitializeArgs, abi::EventDestroyArgs, abi::EventAwaitArgs,
          abi::ClientCreateArgs, abi::ClientDestroyArgs, abi::ClientPlatformNameArgs,
          abi::ClientPlatformVersionArgs, abi::ClientAddressableDevicesArgs, abi::ClientCompileArgs,
          abi::ClientBufferFromHostBufferArgs, abi::DeviceDescriptionIdArgs,
          abi::DeviceDescriptionKindArgs, abi::DeviceDescriptionToStringArgs,
          abi::DeviceGetDescriptionArgs, abi::ExecutableDestroyArgs,
          abi::LoadedExecutableDestroyArgs, abi::LoadedExecutableGetExecutableArgs,
          abi::LoadedExecutableExecuteArgs, abi::BufferDestroyArgs, abi::BufferElementTypeArgs,
          abi::BufferDimensionsArgs, abi::BufferToHostBufferArgs>*>(nullptr));
  if (missing == nullptr) return absl::OkStatus();
  return FailedPrecondition("the plugin lacks {}; its table is of version {}.{} and has {} bytes",
                            missing, version.major, version.minor, api_->struct_size);
}

Status Plugin::CreateClient(const ClientOptions& options) {
  std::vector<abi::NamedValue> values;
  if (options.memory_fraction > 0) {
    constexpr char kName[] = "memory_fraction";
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
  RING_RETURN_IF_ERROR(Call(&call));
  client_ = call->client;
  return absl::OkStatus();
}

Status Plugin::AskFacts() {
  facts_.major = api_->version.major;
  facts_.minor = api_->version.minor;
  Roomy<abi::ClientPlatformNameArgs> name;
  name->client = client_;
  RING_RETURN_IF_ERROR(Call(&name));
  facts_.platform.assign(name->platform_name, name->platform_name_size);
  Roomy<abi::ClientPlatformVersionArgs> version;
  version->client = client_;
  RING_RETURN_IF_ERROR(Call(&version));
  facts_.platform_version.assign(version->platform_version, version->platform_version_size);
  Roomy<abi::PluginAttributesArgs> attributes;
  if (const Status asked = Call(&attributes); asked.ok()) {
    for (size_t i = 0; i < attributes->num_attributes; ++i) {
      const abi::NamedValue& value = attributes->attributes[i];
      facts_.attributes.push_back({{value.name, value.name_size}, TextOf(value)});
    }
  } else if (!absl::IsUnimplemented(asked)) {
    return asked;
  }
  Roomy<abi::ClientAddressableDevicesArgs> devices;
  devices->client = client_;
  RING_RETURN_IF_ERROR(Call(&devices));
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
  RING_RETURN_IF_ERROR(Call(&description));
  Roomy<abi::DeviceDescriptionIdArgs> id;
  id->description = description->description;
  RING_RETURN_IF_ERROR(Call(&id));
  Roomy<abi::DeviceDescriptionKindArgs> kind;
  kind->description = description->description;
  RING_RETURN_IF_ERROR(Call(&kind));
  Roomy<abi::DeviceDescriptionToStringArgs> text;
  text->description = description->description;
  RING_RETURN_IF_ERROR(Call(&text));
  DeviceFacts facts = {.id = id->id,
                       .kind = {kind->kind, kind->kind_size},
                       .description = {text->text, text->text_size}};
  Roomy<abi::DeviceMemoryStatsArgs> memory;
  memory->device = device;
  if (const Status asked = Call(&memory); !asked.ok()) {
    if (absl::IsUnimplemented(asked)) return facts;
    return asked;
  }
  if (memory->bytes_limit_is_set) facts.memory_limit = Unsigned(memory->bytes_limit);
  return facts;
}

StatusOr<Compiled> Plugin::Compile(size_t device, const std::string& text,
                                   std::span<const TensorType> results) const {
  constexpr char kFormat[] = "mlir";
  Roomy<abi::Program> program;
  program->code = text.data();
  program->code_size = text.size();
  program->format = kFormat;
  program->format_size = sizeof(kFormat) - 1;
  const std::string options = CompileOptions(facts_.devices[device].id, facts_.platform);
  Roomy<abi::ClientCompileArgs> call;
  call->client = client_;
  call->program = program.get();
  call->compile_options = options.data();
  call->compile_options_size = options.size();
  RING_RETURN_IF_ERROR(Call(&call));
  Compiled compiled = {.program = LoadedProgram(call->executable, DestroyObject{this}),
                       .bytes = {}};
  Roomy<abi::LoadedExecutableGetExecutableArgs> get;
  get->loaded_executable = call->executable;
  RING_RETURN_IF_ERROR(Call(&get));
  Status checked = CheckOutputs(get->executable, results);
  if (checked.ok()) {
    auto bytes = AskBytes(get->executable);
    checked = bytes.status();
    if (bytes.ok()) compiled.bytes = *bytes;
  }
  Roomy<abi::ExecutableDestroyArgs> destroy;
  destroy->executable = get->executable;
  RING_RETURN_IF_ERROR(Call(&destroy));
  RING_RETURN_IF_ERROR(checked);
  return compiled;
}

// What the plugin does not say now is checked when the results are there.
Status Plugin::CheckOutputs(abi::Executable* executable,
                            std::span<const TensorType> results) const {
  const auto tolerate = [](const Status& status) {
    return absl::IsUnimplemented(status) ? absl::OkStatus() : status;
  };
  Roomy<abi::ExecutableNumOutputsArgs> count;
  count->executable = executable;
  RING_RETURN_IF_ERROR(Call(&count));
  if (count->num_outputs != results.size()) {
    return Internal("wrong output shapes: the compiled program has {} results, expected {}",
                    count->num_outputs, results.size());
  }
  Roomy<abi::ExecutableOutputElementTypesArgs> types;
  types->executable = executable;
  if (const Status asked = Call(&types); !asked.ok()) return tolerate(asked);
  Roomy<abi::ExecutableOutputDimensionsArgs> shapes;
  shapes->executable = executable;
  if (const Status asked = Call(&shapes); !asked.ok()) return tolerate(asked);
  if (types->num_output_types != results.size() || shapes->num_outputs != results.size()) {
    return Internal("wrong output shapes: {} types and {} shapes of {} results",
                    types->num_output_types, shapes->num_outputs, results.size());
  }
  const int64_t* dims = shapes->dims;
  for (size_t i = 0; i < results.size(); ++i) {
    RING_ASSIGN_OR_RETURN(const TensorType got,
                          TypeFrom(types->output_types[i], {dims, shapes->dim_sizes[i]}));
    RING_RETURN_IF_ERROR(CheckResult(i, got, results[i]));
    dims += shapes->dim_sizes[i];
  }
  return absl::OkStatus();
}

StatusOr<CompiledBytes> Plugin::AskBytes(abi::Executable* executable) const {
  Roomy<abi::ExecutableGetCompiledMemoryStatsArgs> call;
  call->executable = executable;
  if (const Status asked = Call(&call); !asked.ok()) {
    if (absl::IsUnimplemented(asked)) return CompiledBytes{};
    return asked;
  }
  return CompiledBytes{.known = true,
                       .code = Unsigned(call->generated_code_bytes),
                       .arguments = Unsigned(call->argument_bytes),
                       .outputs = Unsigned(call->output_bytes),
                       .aliased = Unsigned(call->alias_bytes),
                       .temporary = Unsigned(call->temp_bytes)};
}

Status Plugin::Await(std::span<abi::Event* const> events) const {
  Status first;
  for (abi::Event* const event : events) {
    if (event == nullptr) continue;
    Roomy<abi::EventAwaitArgs> await;
    await->event = event;
    const Status status = Call(&await);
    if (first.ok()) first = status;
    Roomy<abi::EventDestroyArgs> destroy;
    destroy->event = event;
    (void)Call(&destroy);
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
  RING_RETURN_IF_ERROR(Call(&call));
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
    buffers.emplace_back(*buffer, DestroyObject{this});
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
  RING_RETURN_IF_ERROR(Call(&call));
  std::vector<DeviceBuffer> buffers;
  for (abi::Buffer* const output : outputs) buffers.emplace_back(output, DestroyObject{this});
  RING_RETURN_IF_ERROR(Annotate(Await({&done, 1}), "running the program"));
  return buffers;
}

StatusOr<TensorType> Plugin::TypeOf(abi::Buffer* buffer) const {
  Roomy<abi::BufferElementTypeArgs> type;
  type->buffer = buffer;
  RING_RETURN_IF_ERROR(Call(&type));
  Roomy<abi::BufferDimensionsArgs> dims;
  dims->buffer = buffer;
  RING_RETURN_IF_ERROR(Call(&dims));
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
  RING_RETURN_IF_ERROR(Call(&call));
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
