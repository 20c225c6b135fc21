#include "common/safetensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <optional>
#include <utility>

#include "common/json.h"

namespace ringmaster {
namespace {

using Json = nlohmann::json;  // objects are sorted by key

static_assert(std::endian::native == std::endian::little, "tensors are written as they lie");

constexpr size_t kLengthBytes = 8;
// The format itself allows 100 MB. A tensor needs some 100 bytes: this is room for 100,000.
constexpr JsonLimits kHeader = {.bytes = 16 << 20, .depth = 3};

struct TypeName {
  ElementType type;
  const char* name;
  size_t bytes;
};
constexpr std::array<TypeName, 5> kTypes = {{{ElementType::kU8, "U8", 1},
                                             {ElementType::kI16, "I16", 2},
                                             {ElementType::kF32, "F32", 4},
                                             {ElementType::kI64, "I64", 8},
                                             {ElementType::kF64, "F64", 8}}};

const TypeName& Entry(ElementType type) { return kTypes[static_cast<size_t>(type)]; }

// Nothing for a shape that is negative or larger than anything.
std::optional<uint64_t> ExpectedBytes(const TensorView& view) {
  uint64_t bytes = ByteSize(view.type);
  bool fits = true;
  for (const int64_t extent : view.shape) {
    fits = fits && extent >= 0 && !__builtin_mul_overflow(bytes, extent, &bytes);
  }
  return fits ? std::optional(bytes) : std::nullopt;
}

// Tensors as they lie in a file: large elements first, so that each is aligned to its own size.
std::vector<TensorViews::const_iterator> FileOrder(const TensorViews& tensors) {
  std::vector<TensorViews::const_iterator> order;
  for (auto it = tensors.begin(); it != tensors.end(); ++it) order.push_back(it);
  std::ranges::stable_sort(order, [](const auto& a, const auto& b) {
    return ByteSize(a->second.type) > ByteSize(b->second.type);
  });
  return order;
}

StatusOr<TensorView> ParseTensor(const std::string& name, const Json& entry,
                                 std::span<const uint8_t> data, uint64_t* begin) {
  const auto type_name = entry.at("dtype").get<std::string>();
  const auto* const type = std::ranges::find(kTypes, type_name, &TypeName::name);
  if (type == kTypes.end()) {
    return Error(absl::StatusCode::kDataLoss, "tensor {} has the unknown type {}", name, type_name);
  }
  TensorView view;
  view.type = type->type;
  for (const Json& length : entry.at("shape").get_ref<const Json::array_t&>()) {
    view.shape.push_back(static_cast<int64_t>(WholeNumber(length)));
  }
  const Json& offsets = entry.at("data_offsets");
  const std::array<uint64_t, 2> range = {WholeNumber(offsets.at(0)), WholeNumber(offsets.at(1))};
  const bool inside = range[0] <= range[1] && range[1] <= data.size();
  if (!inside || range[1] - range[0] != ExpectedBytes(view)) {
    return Error(absl::StatusCode::kDataLoss,
                 "tensor {}: shape [{}] and bytes {} to {} of {} do not fit", name,
                 fmt::join(view.shape, ", "), range[0], range[1], data.size());
  }
  view.bytes = data.subspan(range[0], range[1] - range[0]);
  *begin = range[0];
  return view;
}

// Each byte of `data` belongs to exactly one tensor.
Status CheckCovered(std::vector<std::pair<uint64_t, uint64_t>> ranges, uint64_t size) {
  std::ranges::sort(ranges);
  uint64_t at = 0;
  for (const auto& [begin, bytes] : ranges) {
    if (begin != at) {
      return Error(absl::StatusCode::kDataLoss, "tensors overlap or leave a hole at byte {}", at);
    }
    at += bytes;
  }
  if (at == size) return absl::OkStatus();
  return Error(absl::StatusCode::kDataLoss, "{} bytes belong to no tensor", size - at);
}

StatusOr<TensorViews> ParseHeader(const std::string& header, std::span<const uint8_t> data) {
  const StatusOr<Json> parsed = ParseJson(header, kHeader);
  if (!parsed.ok()) {
    return Error(absl::StatusCode::kDataLoss, "the header is not safetensors' JSON: {}",
                 Message(parsed.status()));
  }
  try {
    const Json& json = *parsed;
    TensorViews tensors;
    std::vector<std::pair<uint64_t, uint64_t>> ranges;
    for (const auto& [name, entry] : json.items()) {
      if (name == "__metadata__") continue;
      uint64_t begin = 0;
      RING_ASSIGN_OR_RETURN(TensorView view, ParseTensor(name, entry, data, &begin));
      ranges.emplace_back(begin, view.bytes.size());
      tensors.emplace(name, std::move(view));
    }
    RING_RETURN_IF_ERROR(CheckCovered(std::move(ranges), data.size()));
    return tensors;
  } catch (const Json::exception& error) {
    return Error(absl::StatusCode::kDataLoss, "the header is not safetensors' JSON: {}",
                 error.what());
  }
}

}  // namespace

const char* Name(ElementType type) { return Entry(type).name; }
size_t ByteSize(ElementType type) { return Entry(type).bytes; }

StatusOr<std::string> WriteSafetensors(const TensorViews& tensors) {
  const auto order = FileOrder(tensors);
  Json header = Json::object();
  uint64_t at = 0;
  for (const auto& tensor : order) {
    const auto& [name, view] = *tensor;
    if (view.bytes.size() != ExpectedBytes(view)) {
      return Internal("tensor {} has {} bytes, its shape says {}", name, view.bytes.size(),
                      ExpectedBytes(view).value_or(0));
    }
    const uint64_t end = at + view.bytes.size();
    header[name] = {{"dtype", Name(view.type)}, {"shape", view.shape}, {"data_offsets", {at, end}}};
    at = end;
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  const uint64_t length = text.size();
  std::string file(kLengthBytes, '\0');
  std::memcpy(file.data(), &length, kLengthBytes);
  file.reserve(kLengthBytes + text.size() + at);
  file += text;
  for (const auto& tensor : order) {
    const std::span<const uint8_t> bytes = tensor->second.bytes;
    file.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  return file;
}

StatusOr<TensorViews> ReadSafetensors(const std::string& file) {
  uint64_t length = 0;
  if (file.size() < kLengthBytes) {
    return Error(absl::StatusCode::kDataLoss, "{} bytes are too few for a header", file.size());
  }
  std::memcpy(&length, file.data(), kLengthBytes);
  if (length > kHeader.bytes || length > file.size() - kLengthBytes) {
    return Error(absl::StatusCode::kDataLoss,
                 "a header of {} bytes in a file of {}; expected at most {}", length, file.size(),
                 kHeader.bytes);
  }
  const auto* const bytes = reinterpret_cast<const uint8_t*>(file.data());
  const std::span<const uint8_t> data(bytes + kLengthBytes + length,
                                      file.size() - kLengthBytes - length);
  return ParseHeader(file.substr(kLengthBytes, length), data);
}

}  // namespace ringmaster
