// What a plugin is told about a compilation, in the bytes of XLA's CompileOptionsProto: one replica
// on one device, and the settings that make its bits repeatable. Written by hand, because the
// program that loads a plugin must not bring a protobuf library of its own. A function of its
// arguments; thread-safe.
#pragma once

#include <cstdint>
#include <string>

namespace ringmaster::pjrt {

// `device`: its id by the plugin, not its place in a list. `platform`: as the plugin names it, cuda
// or tpu; settings of others it would refuse.
[[nodiscard]] std::string CompileOptions(int64_t device, const std::string& platform);

}  // namespace ringmaster::pjrt
