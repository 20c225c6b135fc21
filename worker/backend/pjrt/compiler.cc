#include "worker/backend/pjrt/compiler.h"

#include <algorithm>
#include <utility>

#include "worker/backend/pjrt/compile_options.h"

namespace ringmaster::pjrt {
namespace {

constexpr int32_t kMinorOfOverrides = 71;  // before it a program's bytes alone say its device

uint64_t Unsigned(int64_t bytes) { return static_cast<uint64_t>(std::max<int64_t>(bytes, 0)); }

Status Tolerate(const Status& asked) {
  return absl::IsUnimplemented(asked) ? absl::OkStatus() : asked;
}

}  // namespace

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
