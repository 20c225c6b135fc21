// The C interface of PJRT plugins, as far as it is used here: structs of calls with their places in
// the plugin's table, and numbers that stand for types, errors and semantics. Layout facts are
// those of the PJRT C API of OpenXLA, version 0.104, of which the first 97 entries are as they were
// at 0.40; abi_layout.cc checks every offset. Plain data, nothing owned. Both the program that
// loads a plugin and the plugin of the tests include it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ringmaster::pjrt::abi {

// The library's one symbol: const Api* GetPjrtApi().
inline constexpr const char* kGetApi = "GetPjrtApi";

struct Version {
  size_t struct_size;
  void* extension_start;
  int32_t major;  // 0 all along
  int32_t minor;  // grows with every addition
};

// The head of the table; behind it stand the functions.
struct Api {
  size_t struct_size;  // with the functions
  void* extension_start;
  Version version;
};

inline constexpr size_t kEntriesOffset = 40;
inline constexpr size_t EntryOffset(size_t entry) { return kEntriesOffset + 8 * entry; }
inline constexpr size_t kEntriesAt104 = 135;  // of version 0.104

// What only the plugin can see into.
struct Error;
struct Event;
struct Client;
struct Device;
struct DeviceDescription;
struct Memory;
struct Executable;
struct LoadedExecutable;
struct SerializedExecutable;
struct Buffer;

// An entry of the table that takes these arguments. Of errors whoever gets one is the owner.
template <typename Args>
using Function = Error* (*)(Args*);
// Two have no error.
template <typename Args>
using VoidFunction = void (*)(Args*);

// Of errors: the numbers of absl::StatusCode.
enum class ErrorCode : int32_t {
  kCancelled = 1,
  kUnknown = 2,
  kInvalidArgument = 3,
  kDeadlineExceeded = 4,
  kNotFound = 5,
  kAlreadyExists = 6,
  kPermissionDenied = 7,
  kResourceExhausted = 8,
  kFailedPrecondition = 9,
  kAborted = 10,
  kOutOfRange = 11,
  kUnimplemented = 12,
  kInternal = 13,
  kUnavailable = 14,
  kDataLoss = 15,
  kUnauthenticated = 16,
};

enum class BufferType : int32_t {
  kInvalid = 0,
  kPred = 1,
  kS8 = 2,
  kS16 = 3,
  kS32 = 4,
  kS64 = 5,
  kU8 = 6,
  kU16 = 7,
  kU32 = 8,
  kU64 = 9,
  kF16 = 10,
  kF32 = 11,
  kF64 = 12,
  kBf16 = 13,
};

// How long the host's memory must stay as it is.
enum class HostSemantics : int32_t {
  kDuringCall = 0,
  kUntilTransferCompletes = 1,
  kZeroCopy = 2,
  kMutableZeroCopy = 3,
};

enum class NamedValueKind : int32_t {
  kString = 0,
  kInt64 = 1,
  kInt64List = 2,
  kFloat = 3,
  kBool = 4,
};

enum class LayoutKind : int32_t { kTiled = 0, kStrides = 1 };

// Stands in arrays: its size is exact.
struct NamedValue {
  size_t struct_size;
  void* extension_start;
  const char* name;  // without a NUL
  size_t name_size;
  NamedValueKind kind;
  union {
    const char* string;
    int64_t int64;
    const int64_t* int64_list;
    float float32;
    bool boolean;
  } value;
  size_t value_size;  // elements; 1 of a scalar
};

struct Program {
  size_t struct_size;
  void* extension_start;
  const char* code;
  size_t code_size;
  const char* format;  // mlir
  size_t format_size;
};

// Of a dense array: its dimensions from the fastest to the slowest, and no tiles.
struct TiledLayout {
  size_t struct_size;
  void* extension_start;
  const int64_t* minor_to_major;
  size_t minor_to_major_size;
  const int64_t* tile_dims;
  const size_t* tile_dim_sizes;
  size_t num_tiles;
};

struct StridesLayout {
  size_t struct_size;
  void* extension_start;
  const int64_t* byte_strides;
  size_t num_byte_strides;
};

struct MemoryLayout {
  size_t struct_size;
  void* extension_start;
  union {
    TiledLayout tiled;
    StridesLayout strides;
  };
  LayoutKind kind;
};

struct ExecuteOptions {
  size_t struct_size;
  void* extension_start;
  void* send_callbacks;
  void* recv_callbacks;
  size_t num_send_ops;
  size_t num_recv_ops;
  int32_t launch_id;
  const int64_t* non_donatable_input_indices;
  size_t num_non_donatable_input_indices;
  void* context;
  const char* call_location;
  size_t num_tasks;
  int32_t* task_ids;
  int64_t* incarnation_ids;
  void* multi_slice_config;
};

// Begins the struct of a call: its place in the table, the name that people know it by, the size
// that version 0.104 expects at least, and the two fields that all of them have.
#define RING_PJRT_CALL(entry, name, size)            \
  static constexpr size_t kEntry = entry;            \
  static constexpr const char* kName = "PJRT_" name; \
  static constexpr size_t kStructSize = size;        \
  size_t struct_size;                                \
  void* extension_start

// Returns nothing.
struct ErrorDestroyArgs {
  RING_PJRT_CALL(0, "Error_Destroy", 24);
  Error* error;
};

// Returns nothing.
struct ErrorMessageArgs {
  RING_PJRT_CALL(1, "Error_Message", 40);
  const Error* error;
  const char* message;  // out; lives as long as the error
  size_t message_size;  // out
};

struct ErrorGetCodeArgs {
  RING_PJRT_CALL(2, "Error_GetCode", 28);
  const Error* error;
  ErrorCode code;  // out
};

// Before everything else, once.
struct PluginInitializeArgs {
  RING_PJRT_CALL(3, "Plugin_Initialize", 16);
};

struct PluginAttributesArgs {
  RING_PJRT_CALL(4, "Plugin_Attributes", 32);
  const NamedValue* attributes;  // out; the plugin's
  size_t num_attributes;         // out
};

struct EventDestroyArgs {
  RING_PJRT_CALL(5, "Event_Destroy", 24);
  Event* event;
};

// Returns the event's error.
struct EventAwaitArgs {
  RING_PJRT_CALL(8, "Event_Await", 24);
  Event* event;
};

struct ClientCreateArgs {
  RING_PJRT_CALL(10, "Client_Create", 88);
  const NamedValue* create_options;
  size_t num_options;
  void* kv_get_callback;
  void* kv_get_user_arg;
  void* kv_put_callback;
  void* kv_put_user_arg;
  Client* client;  // out
  void* kv_try_get_callback;
  void* kv_try_get_user_arg;
};

struct ClientDestroyArgs {
  RING_PJRT_CALL(11, "Client_Destroy", 24);
  Client* client;
};

struct ClientPlatformNameArgs {
  RING_PJRT_CALL(12, "Client_PlatformName", 40);
  Client* client;
  const char* platform_name;  // out; the client's
  size_t platform_name_size;  // out
};

struct ClientPlatformVersionArgs {
  RING_PJRT_CALL(14, "Client_PlatformVersion", 40);
  Client* client;
  const char* platform_version;  // out; the client's
  size_t platform_version_size;  // out
};

struct ClientAddressableDevicesArgs {
  RING_PJRT_CALL(16, "Client_AddressableDevices", 40);
  Client* client;
  Device* const* devices;  // out; the client's
  size_t num_devices;      // out
};

struct ClientCompileArgs {
  RING_PJRT_CALL(20, "Client_Compile", 56);
  Client* client;
  const Program* program;
  const char* compile_options;  // a serialized CompileOptionsProto
  size_t compile_options_size;
  LoadedExecutable* executable;  // out
};

struct ClientBufferFromHostBufferArgs {
  RING_PJRT_CALL(22, "Client_BufferFromHostBuffer", 120);
  Client* client;
  const void* data;
  BufferType type;
  const int64_t* dims;
  size_t num_dims;
  const int64_t* byte_strides;  // null: dense, row-major
  size_t num_byte_strides;
  HostSemantics host_buffer_semantics;
  Device* device;
  Memory* memory;                // null: the device's default
  MemoryLayout* device_layout;   // null: the plugin chooses
  Event* done_with_host_buffer;  // out
  Buffer* buffer;                // out
};

struct DeviceDescriptionIdArgs {
  RING_PJRT_CALL(23, "DeviceDescription_Id", 28);
  DeviceDescription* description;
  int32_t id;  // out
};

struct DeviceDescriptionKindArgs {
  RING_PJRT_CALL(26, "DeviceDescription_Kind", 40);
  DeviceDescription* description;
  const char* kind;  // out; the description's
  size_t kind_size;  // out
};

struct DeviceDescriptionToStringArgs {
  RING_PJRT_CALL(28, "DeviceDescription_ToString", 40);
  DeviceDescription* description;
  const char* text;  // out; the description's
  size_t text_size;  // out
};

struct DeviceGetDescriptionArgs {
  RING_PJRT_CALL(29, "Device_GetDescription", 32);
  Device* device;
  DeviceDescription* description;  // out; the device's
};

struct DeviceMemoryStatsArgs {
  RING_PJRT_CALL(34, "Device_MemoryStats", 185);
  Device* device;
  int64_t bytes_in_use;  // out, like all that follows; of the others only those whose flag is set
  int64_t peak_bytes_in_use;
  bool peak_bytes_in_use_is_set;
  int64_t num_allocs;
  bool num_allocs_is_set;
  int64_t largest_alloc_size;
  bool largest_alloc_size_is_set;
  int64_t bytes_limit;
  bool bytes_limit_is_set;
  int64_t bytes_reserved;
  bool bytes_reserved_is_set;
  int64_t peak_bytes_reserved;
  bool peak_bytes_reserved_is_set;
  int64_t bytes_reservable_limit;
  bool bytes_reservable_limit_is_set;
  int64_t largest_free_block_bytes;
  bool largest_free_block_bytes_is_set;
  int64_t pool_bytes;
  bool pool_bytes_is_set;
  int64_t peak_pool_bytes;
  bool peak_pool_bytes_is_set;
};

struct ExecutableDestroyArgs {
  RING_PJRT_CALL(40, "Executable_Destroy", 24);
  Executable* executable;
};

struct ExecutableNumOutputsArgs {
  RING_PJRT_CALL(44, "Executable_NumOutputs", 32);
  Executable* executable;
  size_t num_outputs;  // out
};

struct ExecutableSerializeArgs {
  RING_PJRT_CALL(49, "Executable_Serialize", 56);
  const Executable* executable;
  const char* bytes;                               // out; live as long as what follows
  size_t num_bytes;                                // out
  SerializedExecutable* storage;                   // out; ended by `destroy`
  void (*destroy)(SerializedExecutable* storage);  // out
};

struct LoadedExecutableDestroyArgs {
  RING_PJRT_CALL(50, "LoadedExecutable_Destroy", 24);
  LoadedExecutable* executable;
};

struct LoadedExecutableGetExecutableArgs {
  RING_PJRT_CALL(51, "LoadedExecutable_GetExecutable", 32);
  LoadedExecutable* loaded_executable;
  Executable* executable;  // out; to be destroyed for itself
};

struct LoadedExecutableAddressableDevicesArgs {
  RING_PJRT_CALL(52, "LoadedExecutable_AddressableDevices", 40);
  LoadedExecutable* executable;
  Device* const* devices;  // out; the executable's
  size_t num_devices;      // out
};

struct LoadedExecutableExecuteArgs {
  RING_PJRT_CALL(55, "LoadedExecutable_Execute", 80);
  LoadedExecutable* executable;
  ExecuteOptions* options;
  Buffer* const* const* argument_lists;  // [num_devices][num_args]
  size_t num_devices;
  size_t num_args;
  Buffer** const* output_lists;    // [num_devices][outputs]: lists are the caller's, filled here
  Event** device_complete_events;  // [num_devices], filled here; null: none wanted
  Device* execute_device;          // null: the devices that it was compiled for
};

struct ExecutableDeserializeAndLoadArgs {
  RING_PJRT_CALL(56, "Executable_DeserializeAndLoad", 64);
  Client* client;
  const char* bytes;
  size_t num_bytes;
  LoadedExecutable* executable;  // out
  const char*
      compile_options;  // instead of those it was compiled with; null, and before 0.71: those
  size_t compile_options_size;
};

struct BufferDestroyArgs {
  RING_PJRT_CALL(58, "Buffer_Destroy", 24);
  Buffer* buffer;
};

struct BufferElementTypeArgs {
  RING_PJRT_CALL(59, "Buffer_ElementType", 28);
  Buffer* buffer;
  BufferType type;  // out
};

struct BufferDimensionsArgs {
  RING_PJRT_CALL(60, "Buffer_Dimensions", 40);
  Buffer* buffer;
  const int64_t* dims;  // out; the buffer's
  size_t num_dims;      // out
};

struct BufferToHostBufferArgs {
  RING_PJRT_CALL(70, "Buffer_ToHostBuffer", 56);
  Buffer* source;
  MemoryLayout* host_layout;  // null: as it lies on the device
  void* destination;          // null: says destination_size alone
  size_t destination_size;
  Event* event;  // out
};

struct BufferReadyEventArgs {
  RING_PJRT_CALL(72, "Buffer_ReadyEvent", 32);
  Buffer* buffer;
  Event* event;  // out
};

struct ExecutableOutputElementTypesArgs {
  RING_PJRT_CALL(90, "Executable_OutputElementTypes", 40);
  Executable* executable;
  BufferType* output_types;  // out; the executable's
  size_t num_output_types;   // out
};

struct ExecutableOutputDimensionsArgs {
  RING_PJRT_CALL(91, "Executable_OutputDimensions", 48);
  Executable* executable;
  size_t num_outputs;       // out
  const int64_t* dims;      // out; of all of them, one after the other
  const size_t* dim_sizes;  // out; how many dimensions each of them has
};

struct ExecutableGetCompiledMemoryStatsArgs {
  RING_PJRT_CALL(96, "Executable_GetCompiledMemoryStats", 144);
  Executable* executable;
  int64_t generated_code_bytes;  // out, like all that follows
  int64_t argument_bytes;
  int64_t output_bytes;
  int64_t alias_bytes;  // of outputs that lie where arguments do
  int64_t temp_bytes;
  int64_t host_generated_code_bytes;
  int64_t host_argument_bytes;
  int64_t host_output_bytes;
  int64_t host_alias_bytes;
  int64_t host_temp_bytes;
  int64_t peak_memory_bytes;
  int64_t total_bytes;
  int64_t total_allocation_bytes;
  int64_t indefinite_allocation_bytes;
  int64_t peak_unpadded_heap_bytes;
};

#undef RING_PJRT_CALL

}  // namespace ringmaster::pjrt::abi
