// What the plugin double must be strict about, because no program of ours does it on purpose; and
// that it reads options and compile options as they are documented.
#include <dlfcn.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "tests/worker/backend/pjrt/double/options.h"
#include "tests/worker/backend/pjrt/double/options_bytes.h"
#include "worker/backend/pjrt/abi.h"

namespace ringmaster::pjrt::plugin_double {
namespace {

using Catch::Matchers::Contains;

template <typename Args>
struct Call : Args {
  Call() {
    std::memset(static_cast<void*>(this), 0, sizeof(*this));
    this->struct_size = sizeof(Args);
  }
};

// The double with two devices, column-major and with shuffled ids.
class Double {
 public:
  Double() {
    setenv("PJRT_DOUBLE", "devices=2,ids=shuffled,layout=column,memory=4KiB", 1);
    void* const library = dlopen(PJRT_DOUBLE_FILE, RTLD_NOW | RTLD_LOCAL);
    REQUIRE(library != nullptr);
    api_ = reinterpret_cast<const pjrt::abi::Api* (*)()>(dlsym(library, pjrt::abi::kGetApi))();
    Call<pjrt::abi::ClientCreateArgs> create;
    REQUIRE(Run(&create) == "");
    client_ = create.client;
    Call<pjrt::abi::ClientAddressableDevicesArgs> devices;
    devices.client = client_;
    REQUIRE(Run(&devices) == "");
    devices_.assign(devices.devices, devices.devices + devices.num_devices);
  }
  ~Double() {
    Call<pjrt::abi::ClientDestroyArgs> destroy;
    destroy.client = client_;
    (void)Run(&destroy);
  }

  // The error's message; empty: none.
  template <typename Args>
  std::string Run(Args* args) const {
    return TextOf(
        reinterpret_cast<pjrt::abi::Error* (*)(Args*)>(Entry<std::decay_t<Args>>())(args));
  }

  std::string Await(pjrt::abi::Event* event) const {
    Call<pjrt::abi::EventAwaitArgs> await;
    await.event = event;
    const std::string error = Run(&await);
    Call<pjrt::abi::EventDestroyArgs> destroy;
    destroy.event = event;
    return error + Run(&destroy);
  }

  std::string Upload(size_t device, const std::vector<float>& values, std::vector<int64_t> dims,
                     pjrt::abi::Buffer** buffer) const {
    Call<pjrt::abi::ClientBufferFromHostBufferArgs> args;
    args.client = client_;
    args.data = values.data();
    args.type = pjrt::abi::BufferType::kF32;
    args.dims = dims.data();
    args.num_dims = dims.size();
    args.host_buffer_semantics = pjrt::abi::HostSemantics::kUntilTransferCompletes;
    args.device = devices_[device];
    const std::string error = Run(&args);
    if (!error.empty()) return error;
    *buffer = args.buffer;
    return Await(args.done_with_host_buffer);
  }

  std::string Download(pjrt::abi::Buffer* buffer, pjrt::abi::MemoryLayout* layout,
                       std::vector<float>* values) const {
    Call<pjrt::abi::BufferToHostBufferArgs> args;
    args.source = buffer;
    args.host_layout = layout;
    args.destination = values->data();
    args.destination_size = values->size() * sizeof(float);
    const std::string error = Run(&args);
    return error.empty() ? Await(args.event) : error;
  }

  void Destroy(pjrt::abi::Buffer* buffer) const {
    Call<pjrt::abi::BufferDestroyArgs> args;
    args.buffer = buffer;
    CHECK(Run(&args) == "");
  }

  std::string Compile(const std::string& text, const std::string& options,
                      pjrt::abi::LoadedExecutable** executable) const {
    Call<pjrt::abi::Program> program;
    program.code = text.data();
    program.code_size = text.size();
    program.format = "mlir";
    program.format_size = 4;
    Call<pjrt::abi::ClientCompileArgs> args;
    args.client = client_;
    args.program = &program;
    args.compile_options = options.data();
    args.compile_options_size = options.size();
    const std::string error = Run(&args);
    *executable = args.executable;
    return error;
  }

  // From the bytes of a program; without options where it was compiled for.
  std::string Load(const std::string& bytes, const std::string& options,
                   pjrt::abi::LoadedExecutable** executable) const {
    Call<pjrt::abi::ExecutableDeserializeAndLoadArgs> args;
    args.client = client_;
    args.bytes = bytes.data();
    args.num_bytes = bytes.size();
    args.compile_options = options.empty() ? nullptr : options.data();
    args.compile_options_size = options.size();
    const std::string error = Run(&args);
    *executable = args.executable;
    return error;
  }

  std::string BytesOf(pjrt::abi::LoadedExecutable* executable) const {
    Call<pjrt::abi::LoadedExecutableGetExecutableArgs> get;
    get.loaded_executable = executable;
    REQUIRE(Run(&get) == "");
    Call<pjrt::abi::ExecutableSerializeArgs> args;
    args.executable = get.executable;
    REQUIRE(Run(&args) == "");
    std::string bytes(args.bytes, args.num_bytes);
    args.destroy(args.storage);
    Call<pjrt::abi::ExecutableDestroyArgs> destroy;
    destroy.executable = get.executable;
    REQUIRE(Run(&destroy) == "");
    return bytes;
  }

  // The place of the one device that it is loaded on.
  size_t DeviceOf(pjrt::abi::LoadedExecutable* executable) const {
    Call<pjrt::abi::LoadedExecutableAddressableDevicesArgs> args;
    args.executable = executable;
    REQUIRE(Run(&args) == "");
    REQUIRE(args.num_devices == 1);
    return static_cast<size_t>(std::find(devices_.begin(), devices_.end(), args.devices[0]) -
                               devices_.begin());
  }

  void Destroy(pjrt::abi::LoadedExecutable* executable) const {
    Call<pjrt::abi::LoadedExecutableDestroyArgs> args;
    args.executable = executable;
    CHECK(Run(&args) == "");
  }

  std::string Execute(pjrt::abi::LoadedExecutable* executable,
                      const std::vector<pjrt::abi::Buffer*>& arguments,
                      pjrt::abi::Buffer** result) const {
    Call<pjrt::abi::ExecuteOptions> options;
    Call<pjrt::abi::LoadedExecutableExecuteArgs> args;
    pjrt::abi::Buffer* const* const lists[] = {arguments.data()};
    pjrt::abi::Buffer** const outputs[] = {result};
    pjrt::abi::Event* done = nullptr;
    args.executable = executable;
    args.options = &options;
    args.argument_lists = lists;
    args.num_devices = 1;
    args.num_args = arguments.size();
    args.output_lists = outputs;
    args.device_complete_events = &done;
    const std::string error = Run(&args);
    return error.empty() ? Await(done) : error;
  }

 private:
  template <typename Args>
  void* Entry() const {
    void* function = nullptr;
    std::memcpy(&function,
                reinterpret_cast<const std::byte*>(api_) + pjrt::abi::EntryOffset(Args::kEntry),
                sizeof(function));
    return function;
  }

  std::string TextOf(pjrt::abi::Error* error) const {
    if (error == nullptr) return "";
    Call<pjrt::abi::ErrorMessageArgs> message;
    message.error = error;
    reinterpret_cast<void (*)(pjrt::abi::ErrorMessageArgs*)>(Entry<pjrt::abi::ErrorMessageArgs>())(
        &message);
    std::string text(message.message, message.message_size);
    Call<pjrt::abi::ErrorDestroyArgs> destroy;
    destroy.error = error;
    reinterpret_cast<void (*)(pjrt::abi::ErrorDestroyArgs*)>(Entry<pjrt::abi::ErrorDestroyArgs>())(
        &destroy);
    return text;
  }

  const pjrt::abi::Api* api_ = nullptr;
  pjrt::abi::Client* client_ = nullptr;
  std::vector<pjrt::abi::Device*> devices_;
};

std::string Bytes(std::initializer_list<int> bytes) {
  std::string text;
  for (const int byte : bytes) text += static_cast<char>(byte);
  return text;
}

// One replica on the device with this id, as protoc encodes it.
std::string OneReplica(int id) {
  return Bytes({0x1a, 0x1a, 0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01, 0x20,
                0x01, 0x28, 0x01, 0x4a, 0x09, 0x08, 0x01, 0x10, 0x01, 0x1a, 0x03, 0x0a, 0x01, id});
}

}  // namespace

TEST_CASE("Plugin double: without a host layout bytes come as they lie on the device") {
  const Double plugin;
  pjrt::abi::Buffer* buffer = nullptr;
  REQUIRE(plugin.Upload(0, {1, 2, 3, 4, 5, 6}, {2, 3}, &buffer) == "");
  std::vector<float> values(6);
  CHECK(plugin.Download(buffer, nullptr, &values) == "");
  CHECK(values == std::vector<float>{1, 4, 2, 5, 3, 6});
  const int64_t row_major[] = {1, 0};
  pjrt::abi::MemoryLayout layout = {};
  layout.struct_size = sizeof(layout);
  layout.tiled = {sizeof(layout.tiled), nullptr, row_major, 2, nullptr, nullptr, 0};
  CHECK(plugin.Download(buffer, &layout, &values) == "");
  CHECK(values == std::vector<float>{1, 2, 3, 4, 5, 6});
  plugin.Destroy(buffer);
}

TEST_CASE("Plugin double: a donated buffer is gone, and takes no memory") {
  const Double plugin;
  const std::string text =
      "module @d { func.func @main(%p: tensor<512xf32> {tf.aliasing_output = 0 : i32}) -> "
      "(tensor<512xf32>) {\n%q = \"stablehlo.negate\"(%p) : (tensor<512xf32>) -> "
      "tensor<512xf32>\n\"func.return\"(%q) : (tensor<512xf32>) -> () } }";
  pjrt::abi::LoadedExecutable* executable = nullptr;
  REQUIRE(plugin.Compile(text, OneReplica(3), &executable) == "");
  pjrt::abi::Buffer* first = nullptr;
  REQUIRE(plugin.Upload(0, std::vector<float>(512, 2), {512}, &first) == "");
  pjrt::abi::Buffer* other = nullptr;
  REQUIRE(plugin.Upload(1, std::vector<float>(512, 2), {512}, &other) == "");
  pjrt::abi::Buffer* result = nullptr;
  CHECK_THAT(plugin.Execute(executable, {other}, &result), Contains("is on device"));
  CHECK_THAT(plugin.Execute(executable, {}, &result), Contains("supplied 0 buffers"));
  // Two of them would not fit.
  REQUIRE(plugin.Execute(executable, {first}, &result) == "");
  std::vector<float> values(512);
  CHECK(plugin.Download(result, nullptr, &values) == "");
  CHECK(values[511] == -2);
  CHECK_THAT(plugin.Download(first, nullptr, &values), Contains("deleted or donated"));
  CHECK_THAT(plugin.Execute(executable, {first}, &result), Contains("deleted or donated"));
  pjrt::abi::Buffer* third = nullptr;
  CHECK_THAT(plugin.Upload(0, std::vector<float>(512, 2), {512}, &third),
             Contains("Exceeded hbm capacity"));
  for (pjrt::abi::Buffer* buffer : {first, other, result}) plugin.Destroy(buffer);
  REQUIRE(plugin.Upload(0, std::vector<float>(512, 2), {512}, &third) == "");
  plugin.Destroy(third);
  plugin.Destroy(executable);
}

TEST_CASE("Plugin double: the bytes of a program are loaded where the options say") {
  const Double plugin;
  const std::string text =
      "module @d { func.func @main(%p: tensor<2xf32>) -> (tensor<2xf32>) {\n%q = "
      "\"stablehlo.negate\"(%p) : (tensor<2xf32>) -> tensor<2xf32>\n\"func.return\"(%q) : "
      "(tensor<2xf32>) -> () } }";
  pjrt::abi::LoadedExecutable* compiled = nullptr;
  REQUIRE(plugin.Compile(text, OneReplica(3), &compiled) == "");
  const std::string bytes = plugin.BytesOf(compiled);
  pjrt::abi::LoadedExecutable* same = nullptr;
  REQUIRE(plugin.Load(bytes, "", &same) == "");
  CHECK(plugin.DeviceOf(same) == 0);
  pjrt::abi::LoadedExecutable* other = nullptr;
  REQUIRE(plugin.Load(bytes, OneReplica(1), &other) == "");
  CHECK(plugin.DeviceOf(other) == 1);
  pjrt::abi::Buffer* buffer = nullptr;
  REQUIRE(plugin.Upload(1, {1, 2}, {2}, &buffer) == "");
  pjrt::abi::Buffer* result = nullptr;
  REQUIRE(plugin.Execute(other, {buffer}, &result) == "");
  std::vector<float> values(2);
  CHECK(plugin.Download(result, nullptr, &values) == "");
  CHECK(values == std::vector<float>{-1, -2});
  for (pjrt::abi::Buffer* each : {buffer, result}) plugin.Destroy(each);
  for (pjrt::abi::LoadedExecutable* each : {compiled, same, other}) plugin.Destroy(each);
  pjrt::abi::LoadedExecutable* none = nullptr;
  for (const std::string& wrong : {std::string(), std::string("x"), bytes.substr(0, 10),
                                   "999999\n" + bytes, std::string("12")}) {
    CHECK(plugin.Load(wrong, "", &none) != "");
  }
  CHECK_THAT(plugin.Load(bytes, "garbage", &none), Contains("Failed to parse CompileOptionsProto"));
  CHECK_THAT(plugin.Load(bytes, OneReplica(0), &none), Contains("a device that this host"));
}

TEST_CASE("Plugin double: small structs and unknown fields are refused") {
  const Double plugin;
  Call<pjrt::abi::ClientPlatformNameArgs> name;
  name.struct_size = 32;
  CHECK_THAT(plugin.Run(&name),
             Contains("Unexpected PJRT_Client_PlatformName_Args size: expected 40, got 32"));
  pjrt::abi::LoadedExecutable* executable = nullptr;
  CHECK_THAT(plugin.Compile("module @x {", OneReplica(1), &executable),
             Contains("Failed to parse using StableHLO"));
  CHECK_THAT(plugin.Compile("", OneReplica(0), &executable), Contains("a device that this host"));
}

TEST_CASE("Plugin double: compile options") {
  const auto settings = ReadCompileOptions(OneReplica(7));
  REQUIRE(settings.ok());
  CHECK(settings->replicas == 1);
  CHECK(settings->devices == std::vector<int64_t>{7});
  const std::string portable = Bytes({0x1a, 0x0f, 0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
                                      0xff, 0xff, 0x01, 0x20, 0x01, 0x28, 0x01, 0x20, 0x01});
  REQUIRE(ReadCompileOptions(portable).ok());
  CHECK(ReadCompileOptions(portable)->portable);
  // xla_a = false, and a name that no option has.
  const std::string off =
      Bytes({0x3a, 0x0b, 0x0a, 0x05, 'x', 'l', 'a', '_', 'a', 0x12, 0x02, 0x10, 0x00});
  REQUIRE(ReadCompileOptions(portable + off).ok());
  CHECK(ReadCompileOptions(portable + off)->overrides == std::vector<std::string>{"xla_a"});
  const std::string odd = Bytes({0x3a, 0x07, 0x0a, 0x01, 'a', 0x12, 0x02, 0x10, 0x00});
  CHECK_THAT(Message(ReadCompileOptions(portable + odd).status()),
             Contains("No such compile option"));
  CHECK(!ReadCompileOptions("").ok());
  CHECK(!ReadCompileOptions("garbage").ok());
  CHECK(!ReadCompileOptions(OneReplica(7).substr(0, 20)).ok());
  // num_replicas left at proto3's 0.
  CHECK_THAT(Message(ReadCompileOptions(Bytes({0x1a, 0x0d, 0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
                                               0xff, 0xff, 0xff, 0x01, 0x28, 0x01}))
                         .status()),
             Contains("num_replicas 0"));
}

TEST_CASE("Plugin double: its own options") {
  const auto options = ParseOptions("devices=8,memory=2MiB,execute=segv,execute_at=3,strict=off");
  REQUIRE(options.ok());
  CHECK(options->devices == 8);
  CHECK(options->memory == size_t{2} << 20);
  CHECK(options->execute == Trouble::kSegmentation);
  CHECK(options->execute_at == 3);
  CHECK(!options->strict);
  for (const char* wrong : {"devices", "devices=x", "devices=0", "speed=1", "tiles=off",
                            "serialize=elsewhere", "load=there"}) {
    CHECK(!ParseOptions(wrong).ok());
  }
}

}  // namespace ringmaster::pjrt::plugin_double
