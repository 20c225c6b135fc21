// The safetensors format (huggingface.co/docs/safetensors): 8 bytes little-endian length of a JSON
// header, the header, then the tensors' bytes without holes. Our files are canonical: keys sorted,
// the header padded with spaces to a multiple of 8, tensors in order of falling element size and
// then name, so equal content is equal bytes. Thread-safe (free functions on values).
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "common/status.h"

namespace ringmaster {

enum class ElementType : uint8_t { kU8, kI16, kF32, kI64, kF64 };
[[nodiscard]] const char* Name(ElementType type);  // as the header says it: F32
[[nodiscard]] size_t ByteSize(ElementType type);

// Bytes of one named tensor, dense and little-endian; `bytes` must outlive the call it is given to.
struct TensorView {
  ElementType type = ElementType::kF32;
  std::vector<int64_t> shape;
  std::span<const uint8_t> bytes;
};
using TensorViews = std::map<std::string, TensorView>;

// The whole file. INTERNAL when bytes and shape of a tensor do not agree.
[[nodiscard]] StatusOr<std::string> WriteSafetensors(const TensorViews& tensors);

// Views into `file`, which must outlive them. A header has at most 16 MiB and nests 3 deep.
// DATA_LOSS says what is wrong: a short file, a header that is not JSON of the format, a range
// outside the file, holes, overlaps.
[[nodiscard]] StatusOr<TensorViews> ReadSafetensors(const std::string& file);

}  // namespace ringmaster
