#include "worker/backend/pjrt/compile_options.h"

#include <utility>

namespace ringmaster::pjrt {
namespace {

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

}  // namespace ringmaster::pjrt
