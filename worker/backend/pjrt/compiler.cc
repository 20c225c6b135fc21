#include "worker/backend/pjrt/compiler.h"

#include <algorithm>
#include <utility>

namespace ringmaster::pjrt {
namespace {

constexpr int32_t kMinorOfOverrides = 71;  // before it a program's bytes alone say its device

uint64_t Unsigned(int64_t bytes) { return static_cast<uint64_t>(std::max<int64_t>(bytes, 0)); }

Status Tolerate(const Status& asked) {
  return absl::IsUnimplemented(asked) ? absl::OkStatus() : asked;
}

// Field numbers of xla/pjrt/proto/compile_options.proto and xla/xla_data.proto.
namespace field {
// CompileOptionsProto
constexpr uint32_t kBuildOptions = 3;
constexpr uint32_t kOptionOverrides = 7;  // map of an option's name to an OptionOverrideProto
// ExecutableBuildOptionsProto
constexpr uint32_t kDeviceOrdinal = 1;
constexpr uint32_t kReplicas = 4;
constexpr uint32_t kPartitions = 5;
constexpr uint32_t kDeviceAssignment = 9;
// DeviceAssignmentProto
constexpr uint32_t kReplicaCount = 1;
constexpr uint32_t kComputationCount = 2;
constexpr uint32_t kComputationDevices = 3;
// DeviceAssignmentProto.ComputationDevice
constexpr uint32_t kReplicaDeviceIds = 1;
// Entries of maps
constexpr uint32_t kKey = 1;
constexpr uint32_t kValue = 2;
// OptionOverrideProto
constexpr uint32_t kBool = 2;
constexpr uint32_t kInt64 = 3;
}  // namespace field

// Serialized fields of one message, in the order in which they are added.
class ProtoWriter {
 public:
  void Varint(uint32_t field, int64_t value) {
    Raw(field << 3);
    Raw(static_cast<uint64_t>(value));
  }
  void Bytes(uint32_t field, const std::string& bytes) {
    Raw(field << 3 | 2);
    Raw(bytes.size());
    bytes_ += bytes;
  }
  void Raw(uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>(value | 0x80);
    bytes_ += static_cast<char>(value);
  }
  std::string Take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

std::string DeviceAssignment(int64_t device) {
  ProtoWriter ids;  // packed
  ids.Raw(static_cast<uint64_t>(device));
  ProtoWriter computation;
  computation.Bytes(field::kReplicaDeviceIds, ids.Take());
  ProtoWriter assignment;
  assignment.Varint(field::kReplicaCount, 1);
  assignment.Varint(field::kComputationCount, 1);
  assignment.Bytes(field::kComputationDevices, computation.Take());
  return assignment.Take();
}

std::string BuildOptions(int64_t device) {
  ProtoWriter build;
  build.Varint(field::kDeviceOrdinal, -1);  // 0 would be device 0; the assignment says which one
  build.Varint(field::kReplicas, 1);
  build.Varint(field::kPartitions, 1);
  build.Bytes(field::kDeviceAssignment, DeviceAssignment(device));
  return build.Take();
}

std::string Override(const std::string& option, uint32_t type, int64_t value) {
  ProtoWriter chosen;
  chosen.Varint(type, value);
  ProtoWriter entry;
  entry.Bytes(field::kKey, option);
  entry.Bytes(field::kValue, chosen.Take());
  return entry.Take();
}

}  // namespace

std::string CompileOptions(int64_t device, const std::string& platform) {
  ProtoWriter options;
  options.Bytes(field::kBuildOptions, BuildOptions(device));
  // Else a round trip through bfloat16 may be left out.
  options.Bytes(field::kOptionOverrides, Override("xla_allow_excess_precision", field::kBool, 0));
  if (platform == "cuda") {
    options.Bytes(field::kOptionOverrides, Override("xla_gpu_deterministic_ops", field::kBool, 1));
    // What is fastest today may be another kernel tomorrow.
    options.Bytes(field::kOptionOverrides, Override("xla_gpu_autotune_level", field::kInt64, 0));
  }
  return options.Take();
}

std::string Compiler::OptionsFor(size_t device) const {
  return CompileOptions(facts_.devices[device].id, facts_.platform);
}

StatusOr<Compiled> Compiler::Compile(size_t device, const std::string& text,
                                     std::span<const TensorType> results) const {
  constexpr char kFormat[] = "mlir";
  Roomy<abi::Program> program;
  program->code = text.data();
  program->code_size = text.size();
  program->format = kFormat;
  program->format_size = sizeof(kFormat) - 1;
  const std::string options = OptionsFor(device);
  Roomy<abi::ClientCompileArgs> call;
  call->client = client_;
  call->program = program.get();
  call->compile_options = options.data();
  call->compile_options_size = options.size();
  RING_RETURN_IF_ERROR(api_.Call(&call));
  LoadedProgram loaded(call->executable, DestroyObject{&api_});
  RING_ASSIGN_OR_RETURN(const Executable executable, ExecutableOf(loaded));
  RING_RETURN_IF_ERROR(CheckOutputs(executable.get(), results));
  RING_ASSIGN_OR_RETURN(const CompiledBytes bytes, AskBytes(executable.get()));
  return Compiled{std::move(loaded), bytes};
}

StatusOr<Compiler::Executable> Compiler::ExecutableOf(const LoadedProgram& program) const {
  Roomy<abi::LoadedExecutableGetExecutableArgs> call;
  call->loaded_executable = program.get();
  RING_RETURN_IF_ERROR(api_.Call(&call));
  return Executable(call->executable, DestroyObject{&api_});
}

// What the plugin does not say now is checked when the results are there.
Status Compiler::CheckOutputs(abi::Executable* executable,
                              std::span<const TensorType> results) const {
  Roomy<abi::ExecutableNumOutputsArgs> count;
  count->executable = executable;
  RING_RETURN_IF_ERROR(api_.Call(&count));
  if (count->num_outputs != results.size()) {
    return Internal("wrong output shapes: the compiled program has {} results, expected {}",
                    count->num_outputs, results.size());
  }
  Roomy<abi::ExecutableOutputElementTypesArgs> types;
  types->executable = executable;
  if (const Status asked = api_.Call(&types); !asked.ok()) return Tolerate(asked);
  Roomy<abi::ExecutableOutputDimensionsArgs> shapes;
  shapes->executable = executable;
  if (const Status asked = api_.Call(&shapes); !asked.ok()) return Tolerate(asked);
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

StatusOr<CompiledBytes> Compiler::AskBytes(abi::Executable* executable) const {
  Roomy<abi::ExecutableGetCompiledMemoryStatsArgs> call;
  call->executable = executable;
  if (const Status asked = api_.Call(&call); !asked.ok()) {
    RING_RETURN_IF_ERROR(Tolerate(asked));
    return CompiledBytes{};
  }
  return CompiledBytes{.known = true,
                       .code = Unsigned(call->generated_code_bytes),
                       .arguments = Unsigned(call->argument_bytes),
                       .outputs = Unsigned(call->output_bytes),
                       .aliased = Unsigned(call->alias_bytes),
                       .temporary = Unsigned(call->temp_bytes)};
}

StatusOr<Compiled> Compiler::CopyTo(size_t device, const Compiled& compiled) const {
  if (api_.version().minor < kMinorOfOverrides) {
    return Error(absl::StatusCode::kUnimplemented,
                 "the plugin is of version {}.{} of the PJRT C API; from 0.{} on a program can be "
                 "loaded for another device",
                 api_.version().major, api_.version().minor, kMinorOfOverrides);
  }
  RING_ASSIGN_OR_RETURN(const Executable executable, ExecutableOf(compiled.program));
  Roomy<abi::ExecutableSerializeArgs> serialized;
  serialized->executable = executable.get();
  RING_RETURN_IF_ERROR(api_.Call(&serialized));
  auto loaded = Load(device, {serialized->bytes, serialized->num_bytes});
  if (serialized->destroy != nullptr) serialized->destroy(serialized->storage);
  RING_RETURN_IF_ERROR(loaded.status());
  RING_RETURN_IF_ERROR(CheckDevice(*loaded, device));
  return Compiled{*std::move(loaded), compiled.bytes};
}

StatusOr<LoadedProgram> Compiler::Load(size_t device, std::span<const char> bytes) const {
  const std::string options = OptionsFor(device);
  Roomy<abi::ExecutableDeserializeAndLoadArgs> call;
  call->client = client_;
  call->bytes = bytes.data();
  call->num_bytes = bytes.size();
  call->compile_options = options.data();
  call->compile_options_size = options.size();
  RING_RETURN_IF_ERROR(api_.Call(&call));
  return LoadedProgram(call->executable, DestroyObject{&api_});
}

// One that overlooks the options loads it where it was compiled for.
Status Compiler::CheckDevice(const LoadedProgram& program, size_t device) const {
  Roomy<abi::LoadedExecutableAddressableDevicesArgs> call;
  call->executable = program.get();
  RING_RETURN_IF_ERROR(api_.Call(&call));
  if (call->num_devices == 1 && call->devices[0] == devices_[device]) {
    return absl::OkStatus();
  }
  return Internal(
      "the plugin loads a program for another device than it is told, or for {} at once",
      call->num_devices);
}

}  // namespace ringmaster::pjrt
