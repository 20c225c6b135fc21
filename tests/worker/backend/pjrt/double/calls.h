// The functions of the table, by the object that they are about. Each gets a struct of at least its
// own size.
#pragma once

#include "tests/worker/backend/pjrt/double/objects.h"

namespace ringmaster::pjrt::plugin_double {

Status PluginInitialize(abi::PluginInitializeArgs* args);
Status PluginAttributes(abi::PluginAttributesArgs* args);
Status ErrorGetCode(abi::ErrorGetCodeArgs* args);
Status EventDestroy(abi::EventDestroyArgs* args);
Status EventAwait(abi::EventAwaitArgs* args);

Status ClientCreate(abi::ClientCreateArgs* args);
Status ClientDestroy(abi::ClientDestroyArgs* args);
Status ClientPlatformName(abi::ClientPlatformNameArgs* args);
Status ClientPlatformVersion(abi::ClientPlatformVersionArgs* args);
Status ClientAddressableDevices(abi::ClientAddressableDevicesArgs* args);
Status DeviceGetDescription(abi::DeviceGetDescriptionArgs* args);
Status DeviceDescriptionId(abi::DeviceDescriptionIdArgs* args);
Status DeviceDescriptionKind(abi::DeviceDescriptionKindArgs* args);
Status DeviceDescriptionToString(abi::DeviceDescriptionToStringArgs* args);
Status DeviceMemoryStats(abi::DeviceMemoryStatsArgs* args);

Status ClientBufferFromHostBuffer(abi::ClientBufferFromHostBufferArgs* args);
Status BufferDestroy(abi::BufferDestroyArgs* args);
Status BufferElementType(abi::BufferElementTypeArgs* args);
Status BufferDimensions(abi::BufferDimensionsArgs* args);
Status BufferToHostBuffer(abi::BufferToHostBufferArgs* args);
Status BufferReadyEvent(abi::BufferReadyEventArgs* args);

Status ClientCompile(abi::ClientCompileArgs* args);
Status ExecutableDestroy(abi::ExecutableDestroyArgs* args);
Status ExecutableNumOutputs(abi::ExecutableNumOutputsArgs* args);
Status ExecutableOutputElementTypes(abi::ExecutableOutputElementTypesArgs* args);
Status ExecutableOutputDimensions(abi::ExecutableOutputDimensionsArgs* args);
Status ExecutableGetCompiledMemoryStats(abi::ExecutableGetCompiledMemoryStatsArgs* args);
Status ExecutableSerialize(abi::ExecutableSerializeArgs* args);
Status ExecutableDeserializeAndLoad(abi::ExecutableDeserializeAndLoadArgs* args);
Status LoadedExecutableDestroy(abi::LoadedExecutableDestroyArgs* args);
Status LoadedExecutableGetExecutable(abi::LoadedExecutableGetExecutableArgs* args);
Status LoadedExecutableAddressableDevices(abi::LoadedExecutableAddressableDevicesArgs* args);
Status LoadedExecutableExecute(abi::LoadedExecutableExecuteArgs* args);

// What XLA's plugins say to a struct that is too small, or of the wrong kind.
[[nodiscard]] Status CheckStruct(const char* name, const void* args, size_t size, size_t expected);

}  // namespace ringmaster::pjrt::plugin_double
