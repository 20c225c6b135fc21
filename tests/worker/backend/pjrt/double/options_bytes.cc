#include "tests/worker/backend/pjrt/double/options_bytes.h"

namespace ringmaster::pjrt::plugin_double {
namespace {

struct Field {
  uint32_t number = 0;
  bool is_bytes = false;
  uint64_t value = 0;
  std::string_view bytes;
};

class WireReader {
 public:
  explicit WireReader(std::string_view bytes) : bytes_(bytes) {}

  [[nodiscard]] bool done() const { return bytes_.empty(); }

  StatusOr<uint64_t> Varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64 && !bytes_.empty(); shift += 7) {
      const auto byte = static_cast<uint8_t>(bytes_[0]);
      bytes_.remove_prefix(1);
      value |= uint64_t{byte & 0x7fu} << shift;
      if (byte < 0x80) return value;
    }
    return InvalidArgument("Failed to parse CompileOptionsProto: a number without an end");
  }

  StatusOr<Field> Next() {
    RING_ASSIGN_OR_RETURN(const uint64_t tag, Varint());
    Field field;
    field.number = static_cast<uint32_t>(tag >> 3);
    field.is_bytes = (tag & 7) == 2;
    RING_ASSIGN_OR_RETURN(field.value, Varint());
    if (!field.is_bytes && (tag & 7) != 0) {
      return InvalidArgument("Failed to parse CompileOptionsProto: wire type {}", tag & 7);
    }
    if (!field.is_bytes) return field;
    if (field.value > bytes_.size()) {
      return InvalidArgument("Failed to parse CompileOptionsProto: a field of {} bytes, {} left",
                             field.value, bytes_.size());
    }
    field.bytes = bytes_.substr(0, field.value);
    bytes_.remove_prefix(field.value);
    return field;
  }

 private:
  std::string_view bytes_;
};

Status Unknown(const char* message, const Field& field) {
  return InvalidArgument("Failed to parse CompileOptionsProto: {} has no field {} of this kind",
                         message, field.number);
}

// take(field) for each field of a message; false where there is none of that number and kind.
template <typename Take>
Status ForFields(const char* message, std::string_view bytes, const Take& take) {
  WireReader reader(bytes);
  while (!reader.done()) {
    RING_ASSIGN_OR_RETURN(const Field field, reader.Next());
    RING_ASSIGN_OR_RETURN(const bool known, take(field));
    if (!known) return Unknown(message, field);
  }
  return absl::OkStatus();
}

Status ReadAssignment(std::string_view bytes, CompileSettings* settings) {
  uint64_t replicas = 0;
  uint64_t computations = 0;
  RING_RETURN_IF_ERROR(
      ForFields("DeviceAssignmentProto", bytes, [&](const Field& field) -> StatusOr<bool> {
        if (field.number == 1 && !field.is_bytes) {
          replicas = field.value;
        } else if (field.number == 2 && !field.is_bytes) {
          computations = field.value;
        } else if (field.number == 3 && field.is_bytes) {
          RING_RETURN_IF_ERROR(
              ForFields("ComputationDevice", field.bytes, [&](const Field& ids) -> StatusOr<bool> {
                if (ids.number != 1 || !ids.is_bytes) return false;
                WireReader packed(ids.bytes);
                while (!packed.done()) {
                  RING_ASSIGN_OR_RETURN(const uint64_t id, packed.Varint());
                  settings->devices.push_back(static_cast<int64_t>(id));
                }
                return true;
              }));
        } else {
          return false;
        }
        return true;
      }));
  if (computations == 1 && replicas == settings->devices.size()) return absl::OkStatus();
  return InvalidArgument("a device assignment of {} replicas and {} computations with {} ids",
                         replicas, computations, settings->devices.size());
}

Status ReadBuildOptions(std::string_view bytes, CompileSettings* settings) {
  int64_t ordinal = 0;
  uint64_t partitions = 0;
  RING_RETURN_IF_ERROR(
      ForFields("ExecutableBuildOptionsProto", bytes, [&](const Field& field) -> StatusOr<bool> {
        if (field.number == 9 && field.is_bytes) {
          RING_RETURN_IF_ERROR(ReadAssignment(field.bytes, settings));
          return true;
        }
        if (field.is_bytes) return false;
        if (field.number == 1) ordinal = static_cast<int64_t>(field.value);
        if (field.number == 4) settings->replicas = static_cast<int64_t>(field.value);
        if (field.number == 5) partitions = field.value;
        return field.number == 1 || field.number == 4 || field.number == 5 || field.number == 6 ||
               field.number == 19;
      }));
  if (ordinal != -1) return InvalidArgument("device_ordinal {}, expected -1", ordinal);
  if (settings->replicas < 1 || partitions != 1) {
    return InvalidArgument("num_replicas {} and num_partitions {}, expected 1 of both at least",
                           settings->replicas, partitions);
  }
  return absl::OkStatus();
}

Status ReadOverride(std::string_view bytes, CompileSettings* settings) {
  bool has_value = false;
  RING_RETURN_IF_ERROR(
      ForFields("env_option_overrides", bytes, [&](const Field& field) -> StatusOr<bool> {
        if (!field.is_bytes || field.number > 2) return false;
        if (field.number == 1) {
          settings->overrides.emplace_back(field.bytes);
        } else {
          has_value = !field.bytes.empty();
        }
        return true;
      }));
  if (settings->overrides.empty() || !settings->overrides.back().starts_with("xla_")) {
    return InvalidArgument("No such compile option: '{}'",
                           settings->overrides.empty() ? "" : settings->overrides.back());
  }
  if (!has_value) return InvalidArgument("{} has no value", settings->overrides.back());
  return absl::OkStatus();
}

}  // namespace

StatusOr<CompileSettings> ReadCompileOptions(std::string_view bytes) {
  CompileSettings settings;
  bool built = false;
  RING_RETURN_IF_ERROR(
      ForFields("CompileOptionsProto", bytes, [&](const Field& field) -> StatusOr<bool> {
        if (field.number == 3 && field.is_bytes) {
          built = true;
          RING_RETURN_IF_ERROR(ReadBuildOptions(field.bytes, &settings));
        } else if (field.number == 4 && !field.is_bytes) {
          settings.portable = field.value != 0;
        } else if (field.number == 7 && field.is_bytes) {
          RING_RETURN_IF_ERROR(ReadOverride(field.bytes, &settings));
        } else {
          return false;
        }
        return true;
      }));
  if (!built) return InvalidArgument("CompileOptionsProto without executable_build_options");
  const auto assigned = static_cast<int64_t>(settings.devices.size());
  if (assigned != 0 && assigned != settings.replicas) {
    return InvalidArgument("{} devices assigned to {} replicas", assigned, settings.replicas);
  }
  return settings;
}

}  // namespace ringmaster::pjrt::plugin_double
