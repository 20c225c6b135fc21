// A PJRT plugin for tests: a shared library with the one symbol of a plugin, in which StableHLO
// text is interpreted on the host. It is as strict as the strictest plugin that was seen, and as
// bad as PJRT_DOUBLE says (options.h has the list).
#include <cstring>

#include "tests/worker/backend/pjrt/double/calls.h"
#include "tests/worker/backend/pjrt/double/options.h"

namespace ringmaster::pjrt::plugin_double {

namespace {

constexpr size_t kGrowth = 32;        // bytes of fields that come after 0.104
constexpr size_t kShortEntries = 97;  // those of 2023

abi::Error* ToError(const Status& status) {
  return status.ok() ? nullptr : new abi::Error{status, Message(status)};
}

size_t OwnSize(size_t size) { return ProcessOptions().grown_structs ? size + kGrowth : size; }

// One entry: the struct's size first, as XLA's wrapper does.
template <typename Args, Status (*kCall)(Args*)>
abi::Error* Entry(Args* args) {
  const size_t own = OwnSize(Args::kStructSize);
  if (ProcessOptions().strict) {
    const Status checked = CheckStruct(Args::kName, args, args->struct_size, own);
    if (!checked.ok()) return ToError(checked);
  }
  if (ProcessOptions().grown_structs && args->struct_size >= own) {
    // New fields that are results are written unasked.
    auto* const end = reinterpret_cast<std::byte*>(args) + own;
    const abi::Error* const error = nullptr;
    std::memcpy(end - sizeof(error), &error, sizeof(error));
  }
  return ToError(kCall(args));
}

void ErrorDestroy(abi::ErrorDestroyArgs* args) { delete args->error; }

void ErrorMessage(abi::ErrorMessageArgs* args) {
  args->message = args->error->message.data();
  args->message_size = args->error->message.size();
}

struct Table {
  abi::Api head;
  void* entries[abi::kEntriesAt104];
};
static_assert(offsetof(Table, entries) == abi::kEntriesOffset);

// An entry whose arguments are not known here.
abi::Error* Unimplemented(void*) {
  return ToError(Error(absl::StatusCode::kUnimplemented, "not implemented by the plugin double"));
}

template <typename Args, Status (*kCall)(Args*)>
void Set(Table* table) {
  abi::Error* (*const entry)(Args*) = Entry<Args, kCall>;
  std::memcpy(&table->entries[Args::kEntry], &entry, sizeof(entry));
}

template <typename Function>
void SetPlain(Table* table, size_t entry, Function function) {
  std::memcpy(&table->entries[entry], &function, sizeof(function));
}

Table MakeTable() {
  const Options& options = ProcessOptions();
  Table table = {};
  const size_t entries = options.short_table ? kShortEntries : abi::kEntriesAt104;
  table.head.struct_size = abi::EntryOffset(entries);
  table.head.version.struct_size = sizeof(abi::Version);
  table.head.version.minor = options.minor;
  for (size_t entry = 0; entry < entries; ++entry) SetPlain(&table, entry, &Unimplemented);
  SetPlain(&table, abi::ErrorDestroyArgs::kEntry, &ErrorDestroy);
  SetPlain(&table, abi::ErrorMessageArgs::kEntry, &ErrorMessage);
  Set<abi::ErrorGetCodeArgs, ErrorGetCode>(&table);
  Set<abi::PluginInitializeArgs, PluginInitialize>(&table);
  Set<abi::PluginAttributesArgs, PluginAttributes>(&table);
  Set<abi::EventDestroyArgs, EventDestroy>(&table);
  Set<abi::EventAwaitArgs, EventAwait>(&table);
  Set<abi::ClientCreateArgs, ClientCreate>(&table);
  Set<abi::ClientDestroyArgs, ClientDestroy>(&table);
  Set<abi::ClientPlatformNameArgs, ClientPlatformName>(&table);
  Set<abi::ClientPlatformVersionArgs, ClientPlatformVersion>(&table);
  Set<abi::ClientAddressableDevicesArgs, ClientAddressableDevices>(&table);
  Set<abi::DeviceGetDescriptionArgs, DeviceGetDescription>(&table);
  Set<abi::DeviceDescriptionIdArgs, DeviceDescriptionId>(&table);
  Set<abi::DeviceDescriptionKindArgs, DeviceDescriptionKind>(&table);
  Set<abi::DeviceDescriptionToStringArgs, DeviceDescriptionToString>(&table);
  Set<abi::DeviceMemoryStatsArgs, DeviceMemoryStats>(&table);
  Set<abi::ClientBufferFromHostBufferArgs, ClientBufferFromHostBuffer>(&table);
  Set<abi::BufferDestroyArgs, BufferDestroy>(&table);
  Set<abi::BufferElementTypeArgs, BufferElementType>(&table);
  Set<abi::BufferDimensionsArgs, BufferDimensions>(&table);
  Set<abi::BufferToHostBufferArgs, BufferToHostBuffer>(&table);
  Set<abi::BufferReadyEventArgs, BufferReadyEvent>(&table);
  Set<abi::ClientCompileArgs, ClientCompile>(&table);
  Set<abi::ExecutableDestroyArgs, ExecutableDestroy>(&table);
  Set<abi::ExecutableNumOutputsArgs, ExecutableNumOutputs>(&table);
  Set<abi::ExecutableOutputElementTypesArgs, ExecutableOutputElementTypes>(&table);
  Set<abi::ExecutableOutputDimensionsArgs, ExecutableOutputDimensions>(&table);
  Set<abi::ExecutableGetCompiledMemoryStatsArgs, ExecutableGetCompiledMemoryStats>(&table);
  Set<abi::ExecutableSerializeArgs, ExecutableSerialize>(&table);
  Set<abi::ExecutableDeserializeAndLoadArgs, ExecutableDeserializeAndLoad>(&table);
  Set<abi::LoadedExecutableAddressableDevicesArgs, LoadedExecutableAddressableDevices>(&table);
  Set<abi::LoadedExecutableDestroyArgs, LoadedExecutableDestroy>(&table);
  Set<abi::LoadedExecutableGetExecutableArgs, LoadedExecutableGetExecutable>(&table);
  Set<abi::LoadedExecutableExecuteArgs, LoadedExecutableExecute>(&table);
  if (options.serialize == Ability::kMissing) {
    table.entries[abi::ExecutableSerializeArgs::kEntry] = nullptr;
  }
  if (options.load == Ability::kMissing) {
    table.entries[abi::ExecutableDeserializeAndLoadArgs::kEntry] = nullptr;
  }
  return table;
}

}  // namespace

Status CheckStruct(const char* name, const void* args, size_t size, size_t expected) {
  if (size < expected) {
    return InvalidArgument(
        "Unexpected {}_Args size: expected {}, got {}. The plugin is likely built with a later "
        "version than the framework.",
        name, expected, size);
  }
  // What a caller of a later version says there would not be heard.
  const auto* const bytes = static_cast<const std::byte*>(args);
  for (size_t i = (expected + 7) / 8 * 8; i < size; ++i) {
    if (bytes[i] != std::byte{0}) {
      return InvalidArgument("{}_Args says something in byte {} of {}", name, i, expected);
    }
  }
  return absl::OkStatus();
}

extern "C" __attribute__((visibility("default"))) const abi::Api* GetPjrtApi() {
  static const Table kTable = MakeTable();
  return &kTable.head;
}

}  // namespace ringmaster::pjrt::plugin_double
