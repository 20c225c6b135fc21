// What a plugin compiles: a text to a program on one device, and the same code for the others.
// Owned by Plugin, which must outlive what it gives. Immutable; thread-safe; calls block until the
// plugin is done. Who shares a program, and how long it is kept, is CompileCache's.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/status.h"
#include "worker/backend/pjrt/abi.h"
#include "worker/backend/pjrt/plugin_api.h"
#include "worker/backend/pjrt/plugin_facts.h"
#include "worker/backend/pjrt/tensor_type.h"

namespace ringmaster::pjrt {

using LoadedProgram = std::unique_ptr<abi::LoadedExecutable, DestroyObject>;

// A program on one device. Immutable; runs side by side.
struct Compiled {
  LoadedProgram program;
  CompiledBytes bytes;
};

// What a plugin is told about a compilation, in the bytes of XLA's CompileOptionsProto: one replica
// on one device, and the settings that make its bits repeatable. Written by hand, because the
// program that loads a plugin must not bring a protobuf library of its own. `device`: its id by the
// plugin, not its place in a list. `platform`: as the plugin names it, cuda or tpu; settings of
// others it would refuse.
[[nodiscard]] std::string CompileOptions(int64_t device, const std::string& platform);

class Compiler {
 public:
  // All of them must outlive it, and the client what it gives. `devices`: those of `facts`.
  Compiler(const PluginApi& api, abi::Client* client, const std::vector<abi::Device*>& devices,
           const PluginFacts& facts)
      : api_(api), client_(client), devices_(devices), facts_(facts) {}

  // `device`: a place in the facts. INTERNAL says how the program's results differ from those
  // expected.
  [[nodiscard]] StatusOr<Compiled> Compile(size_t device, const std::string& text,
                                           std::span<const TensorType> results) const;
  // The code of a program for another device, by way of its bytes; nothing is compiled.
  // UNIMPLEMENTED: this plugin cannot do that; else the plugin's own error.
  [[nodiscard]] StatusOr<Compiled> CopyTo(size_t device, const Compiled& compiled) const;

 private:
  using Executable = std::unique_ptr<abi::Executable, DestroyObject>;

  [[nodiscard]] StatusOr<Executable> ExecutableOf(const LoadedProgram& program) const;
  [[nodiscard]] Status CheckOutputs(abi::Executable* executable,
                                    std::span<const TensorType> results) const;
  [[nodiscard]] StatusOr<CompiledBytes> AskBytes(abi::Executable* executable) const;
  [[nodiscard]] StatusOr<LoadedProgram> Load(size_t device, std::span<const char> bytes) const;
  [[nodiscard]] Status CheckDevice(const LoadedProgram& program, size_t device) const;

  [[nodiscard]] std::string OptionsFor(size_t device) const;

  const PluginApi& api_;
  abi::Client* const client_;
  const std::vector<abi::Device*>& devices_;
  const PluginFacts& facts_;
};

}  // namespace ringmaster::pjrt
