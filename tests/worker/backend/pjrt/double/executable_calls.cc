// Programs: how they are compiled, copied from device to device, and run.
#include <algorithm>
#include <atomic>
#include <charconv>
#include <set>

#include "tests/worker/backend/pjrt/double/calls.h"
#include "tests/worker/backend/pjrt/double/options.h"
#include "tests/worker/backend/pjrt/double/options_bytes.h"

namespace ringmaster::pjrt::plugin_double {
namespace {

StatusOr<std::shared_ptr<const CompiledProgram>> CompileText(std::string text,
                                                             std::string options_bytes) {
  auto module = stablehlo::Module::Parse(text);
  if (!module.ok()) {
    return InvalidArgument("Failed to parse using StableHLO v1.20.0: {}", Message(module.status()));
  }
  auto program = std::make_shared<CompiledProgram>();
  program->module = *std::move(module);
  const stablehlo::Module& compiled = *program->module;
  const Options& options = ProcessOptions();
  program->memory = compiled.memory(options.tiles ? stablehlo::Module::Padding::kTiles
                                                  : stablehlo::Module::Padding::kNone);
  program->memory.generated_code = text.size();
  program->text = std::move(text);
  program->options = std::move(options_bytes);
  program->results = compiled.results();
  if (options.wrong_results && !program->results.empty()) {
    stablehlo::Shape& shape = program->results[0].shape;
    if (shape.empty()) shape.push_back(1);
    ++shape[0];
  }
  for (const auto& alias : compiled.aliases()) {
    if (alias) program->alias_bytes += StoredBytes(program->results[*alias]);
  }
  for (const stablehlo::TensorType& type : program->results) {
    program->result_types.push_back(ToAbi(type.type));
    program->result_dims.insert(program->result_dims.end(), type.shape.begin(), type.shape.end());
    program->result_ranks.push_back(type.shape.size());
  }
  return program;
}

StatusOr<std::vector<abi::Device*>> AssignedDevices(const abi::Client& client,
                                                    const CompileSettings& settings) {
  std::vector<abi::Device*> devices;
  if (settings.portable) return devices;
  for (int64_t replica = 0; replica < settings.replicas; ++replica) {
    const auto place = static_cast<size_t>(replica);
    const auto found = std::ranges::find_if(client.device_list, [&](const abi::Device* device) {
      return settings.devices.empty() ? device == client.device_list[place]
                                      : device->description.id == settings.devices[place];
    });
    if (place >= client.device_list.size() || found == client.device_list.end()) {
      return InvalidArgument("replica {} is on a device that this host has not", replica);
    }
    devices.push_back(*found);
  }
  return devices;
}

// A program on the devices of a compilation, which must have room for it.
StatusOr<std::unique_ptr<abi::LoadedExecutable>> Place(
    std::vector<abi::Device*> devices, std::shared_ptr<const CompiledProgram> program) {
  auto executable = std::make_unique<abi::LoadedExecutable>();
  executable->devices = std::move(devices);
  executable->program = std::move(program);
  const stablehlo::Memory& memory = executable->program->memory;
  const size_t needed = memory.arguments + memory.outputs + memory.temporary -
                        std::min(executable->program->alias_bytes, memory.outputs);
  if (needed + memory.generated_code > ProcessOptions().memory) {
    return OutOfMemory("a program", needed + memory.generated_code, ProcessOptions().memory);
  }
  for (const abi::Device* device : executable->devices) {
    RING_ASSIGN_OR_RETURN(std::unique_ptr<Reservation> code,
                          Reservation::Make(device->memory, "a program", memory.generated_code));
    executable->code.push_back(std::move(code));
  }
  return executable;
}

void LogDevices(std::string line, const std::vector<abi::Device*>& devices) {
  for (const abi::Device* device : devices) line += fmt::format(" {}", device->description.id);
  Log(line);
}

// The options' size on a line of its own, the options, the text.
std::string BytesOf(const CompiledProgram& program) {
  return fmt::format("{}\n", program.options.size()) + program.options + program.text;
}

struct ProgramBytes {
  std::string options, text;
};
StatusOr<ProgramBytes> FromBytes(std::string_view bytes) {
  size_t size = 0;
  const char* const end = bytes.data() + bytes.size();
  const auto [line_end, error] = std::from_chars(bytes.data(), end, size);
  if (error != std::errc() || line_end == end || *line_end != '\n' ||
      size >= static_cast<size_t>(end - line_end)) {
    return InvalidArgument("Failed to deserialize an executable of {} bytes", bytes.size());
  }
  const std::string_view rest = bytes.substr(static_cast<size_t>(line_end + 1 - bytes.data()));
  return ProgramBytes{std::string(rest.substr(0, size)), std::string(rest.substr(size))};
}

// One run on one device.
struct OneRun {
  abi::Device* device = nullptr;
  uint64_t number = 0;
  std::shared_ptr<const CompiledProgram> program;
  std::vector<std::shared_ptr<Storage>> inputs;
  std::vector<std::shared_ptr<Storage>> outputs;

  Status Compute();
  void Finish(const Status& status, Completion* done);
};

Status OneRun::Compute() {
  RING_RETURN_IF_ERROR(ExecuteTrouble(number));
  std::vector<const stablehlo::Tensor*> arguments;
  for (const auto& input : inputs) {
    RING_RETURN_IF_ERROR(input->ready->Await());
    arguments.push_back(&input->tensor);
  }
  RING_ASSIGN_OR_RETURN(std::vector<stablehlo::Tensor> results,
                        program->module->Run(std::span<const stablehlo::Tensor* const>(arguments)));
  for (size_t i = 0; i < results.size(); ++i) {
    results[i].shape = program->results[i].shape;
    results[i].bytes.resize(program->results[i].bytes());
    outputs[i]->tensor = std::move(results[i]);
  }
  return absl::OkStatus();
}

void OneRun::Finish(const Status& status, Completion* done) {
  std::vector<std::shared_ptr<Completion>> ready;
  for (const auto& output : outputs) ready.push_back(output->ready);
  inputs.clear();
  outputs.clear();
  for (const auto& output : ready) output->Complete(status);
  done->Complete(status);
}

Status CheckArgument(const CompiledProgram& program, size_t i, const abi::Buffer* buffer,
                     const abi::Device* device) {
  if (buffer == nullptr || buffer->storage == nullptr) {
    return InvalidArgument("Buffer passed to Execute() as argument {} has been deleted or donated.",
                           i);
  }
  if (buffer->device != device) {
    return InvalidArgument(
        "Buffer passed to Execute() as argument {} is on device {}, but the replica is assigned to "
        "device {}.",
        i, buffer->device->description.text, device->description.text);
  }
  const stablehlo::TensorType& expected = program.module->arguments()[i];
  if (buffer->type == expected) return absl::OkStatus();
  return InvalidArgument("Executable expected parameter {} of {} but got buffer of {}", i,
                         stablehlo::Text(expected), stablehlo::Text(buffer->type));
}

// The arguments whose memory becomes a result's.
StatusOr<std::vector<size_t>> Donations(const CompiledProgram& program,
                                        const abi::ExecuteOptions& options,
                                        std::span<abi::Buffer* const> arguments) {
  const std::set<int64_t> vetoed(
      options.non_donatable_input_indices,
      options.non_donatable_input_indices + options.num_non_donatable_input_indices);
  std::vector<size_t> donated;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (!program.module->aliases()[i] || vetoed.contains(static_cast<int64_t>(i))) continue;
    if (std::ranges::count(arguments, arguments[i]) > 1) {
      return InvalidArgument("Attempt to donate the same buffer twice in Execute() (argument {})",
                             i);
    }
    donated.push_back(i);
  }
  return donated;
}

StatusOr<std::shared_ptr<OneRun>> PrepareRun(std::shared_ptr<const CompiledProgram> program,
                                             const abi::ExecuteOptions& options,
                                             abi::Device* device,
                                             std::span<abi::Buffer* const> arguments) {
  static std::atomic<uint64_t> executions = 0;
  auto run = std::make_shared<OneRun>();
  run->device = device;
  run->number = ++executions;
  for (size_t i = 0; i < arguments.size(); ++i) {
    RING_RETURN_IF_ERROR(CheckArgument(*program, i, arguments[i], device));
    run->inputs.push_back(arguments[i]->storage);
  }
  RING_ASSIGN_OR_RETURN(const std::vector<size_t> donated, Donations(*program, options, arguments));
  std::set<size_t> in_place;
  for (const size_t i : donated) in_place.insert(*program->module->aliases()[i]);
  for (size_t i = 0; i < program->results.size(); ++i) {
    auto output = std::make_shared<Storage>();
    if (!in_place.contains(i)) {
      RING_ASSIGN_OR_RETURN(output->reservation, Reservation::Make(device->memory, "a program",
                                                                   StoredBytes(program->results[i]),
                                                                   program->memory.temporary));
    }
    run->outputs.push_back(std::move(output));
  }
  for (const size_t i : donated) {  // from here on nothing can fail
    const size_t result = *program->module->aliases()[i];
    run->outputs[result]->reservation = std::move(arguments[i]->storage->reservation);
    arguments[i]->storage = nullptr;
  }
  run->program = std::move(program);
  return run;
}

Status CheckExecute(const abi::LoadedExecutableExecuteArgs& args) {
  const abi::LoadedExecutable& executable = *args.executable;
  if (args.options == nullptr || args.options->struct_size < sizeof(abi::ExecuteOptions)) {
    return InvalidArgument("Unexpected PJRT_ExecuteOptions size");
  }
  const bool named = args.execute_device != nullptr;
  const size_t devices = named ? 1 : executable.devices.size();
  if (args.num_devices != devices || named != executable.devices.empty()) {
    return InvalidArgument("{} devices of an executable for {}{}", args.num_devices,
                           executable.devices.size(), named ? ", and one of them named" : "");
  }
  const size_t expected = executable.program->module->arguments().size();
  if (args.num_args == expected) return absl::OkStatus();
  return InvalidArgument("Execution supplied {} buffers but compiled program expected {} buffers",
                         args.num_args, expected);
}

}  // namespace

Status ClientCompile(abi::ClientCompileArgs* args) {
  const abi::Program& source = *args->program;
  if (std::string_view(source.format, source.format_size) != "mlir") {
    return InvalidArgument("Unknown program format '{}'.",
                           std::string_view(source.format, source.format_size));
  }
  const std::string options(args->compile_options, args->compile_options_size);
  RING_ASSIGN_OR_RETURN(const CompileSettings settings, ReadCompileOptions(options));
  RING_RETURN_IF_ERROR(CompileTrouble());
  RING_ASSIGN_OR_RETURN(std::vector<abi::Device*> devices,
                        AssignedDevices(*args->client, settings));
  LogDevices("compile", devices);
  RING_ASSIGN_OR_RETURN(auto program, CompileText({source.code, source.code_size}, options));
  RING_ASSIGN_OR_RETURN(auto executable, Place(std::move(devices), std::move(program)));
  args->executable = executable.release();
  return absl::OkStatus();
}

Status ExecutableSerialize(abi::ExecutableSerializeArgs* args) {
  RING_RETURN_IF_ERROR(AbilityTrouble(ProcessOptions().serialize, "to serialize"));
  args->storage = new abi::SerializedExecutable{BytesOf(*args->executable->program)};
  args->bytes = args->storage->bytes.data();
  args->num_bytes = args->storage->bytes.size();
  args->destroy = [](abi::SerializedExecutable* storage) {
    Log("free");
    delete storage;
  };
  Log("serialize");
  return absl::OkStatus();
}

Status ExecutableDeserializeAndLoad(abi::ExecutableDeserializeAndLoadArgs* args) {
  constexpr int32_t kMinorOfOverrides = 71;
  const Options& told = ProcessOptions();
  RING_RETURN_IF_ERROR(AbilityTrouble(told.load, "to load"));
  RING_ASSIGN_OR_RETURN(ProgramBytes bytes, FromBytes({args->bytes, args->num_bytes}));
  const bool overridden = args->compile_options != nullptr && told.load != Ability::kElsewhere &&
                          told.minor >= kMinorOfOverrides;
  if (overridden) bytes.options.assign(args->compile_options, args->compile_options_size);
  RING_ASSIGN_OR_RETURN(const CompileSettings settings, ReadCompileOptions(bytes.options));
  RING_ASSIGN_OR_RETURN(std::vector<abi::Device*> devices,
                        AssignedDevices(*args->client, settings));
  LogDevices("load", devices);
  RING_ASSIGN_OR_RETURN(auto program, CompileText(std::move(bytes.text), std::move(bytes.options)));
  RING_ASSIGN_OR_RETURN(auto executable, Place(std::move(devices), std::move(program)));
  args->executable = executable.release();
  return absl::OkStatus();
}

Status ExecutableDestroy(abi::ExecutableDestroyArgs* args) {
  delete args->executable;
  return absl::OkStatus();
}

Status ExecutableNumOutputs(abi::ExecutableNumOutputsArgs* args) {
  args->num_outputs = args->executable->program->results.size();
  return absl::OkStatus();
}

Status ExecutableOutputElementTypes(abi::ExecutableOutputElementTypesArgs* args) {
  const auto& types = args->executable->program->result_types;
  args->output_types = const_cast<abi::BufferType*>(types.data());
  args->num_output_types = types.size();
  return absl::OkStatus();
}

Status ExecutableOutputDimensions(abi::ExecutableOutputDimensionsArgs* args) {
  const CompiledProgram& program = *args->executable->program;
  args->num_outputs = program.results.size();
  args->dims = program.result_dims.data();
  args->dim_sizes = program.result_ranks.data();
  return absl::OkStatus();
}

Status ExecutableGetCompiledMemoryStats(abi::ExecutableGetCompiledMemoryStatsArgs* args) {
  if (ProcessOptions().no_stats) {
    return Error(absl::StatusCode::kUnimplemented, "no memory statistics of programs");
  }
  const CompiledProgram& program = *args->executable->program;
  const stablehlo::Memory& memory = program.memory;
  args->generated_code_bytes = static_cast<int64_t>(memory.generated_code);
  args->argument_bytes = static_cast<int64_t>(memory.arguments);
  args->output_bytes = static_cast<int64_t>(memory.outputs);
  args->alias_bytes = static_cast<int64_t>(program.alias_bytes);
  args->temp_bytes = static_cast<int64_t>(memory.temporary);
  args->peak_memory_bytes =
      args->argument_bytes + args->output_bytes - args->alias_bytes + args->temp_bytes;
  args->total_bytes = args->peak_memory_bytes + args->generated_code_bytes;
  return absl::OkStatus();
}

Status LoadedExecutableDestroy(abi::LoadedExecutableDestroyArgs* args) {
  delete args->executable;
  return absl::OkStatus();
}

Status LoadedExecutableGetExecutable(abi::LoadedExecutableGetExecutableArgs* args) {
  args->executable = new abi::Executable{args->loaded_executable->program};
  return absl::OkStatus();
}

Status LoadedExecutableAddressableDevices(abi::LoadedExecutableAddressableDevicesArgs* args) {
  args->devices = args->executable->devices.data();
  args->num_devices = args->executable->devices.size();
  return absl::OkStatus();
}

Status LoadedExecutableExecute(abi::LoadedExecutableExecuteArgs* args) {
  RING_RETURN_IF_ERROR(CheckExecute(*args));
  std::vector<std::shared_ptr<OneRun>> runs;
  for (size_t i = 0; i < args->num_devices; ++i) {
    abi::Device* const device =
        args->execute_device != nullptr ? args->execute_device : args->executable->devices[i];
    const std::span arguments(args->argument_lists[i], args->num_args);
    // The handles are the caller's; a donation takes what they stand for.
    RING_ASSIGN_OR_RETURN(std::shared_ptr<OneRun> run,
                          PrepareRun(args->executable->program, *args->options, device, arguments));
    runs.push_back(std::move(run));
  }
  for (size_t i = 0; i < runs.size(); ++i) {
    const std::shared_ptr<OneRun>& run = runs[i];
    for (size_t result = 0; result < run->outputs.size(); ++result) {
      args->output_lists[i][result] =
          new abi::Buffer{run->device, run->program->results[result], run->outputs[result]};
    }
    auto done = std::make_shared<Completion>();
    if (args->device_complete_events != nullptr) {
      args->device_complete_events[i] = new abi::Event{done};
    }
    run->device->Post([run, done] { run->Finish(run->Compute(), done.get()); });
  }
  return absl::OkStatus();
}

}  // namespace ringmaster::pjrt::plugin_double
