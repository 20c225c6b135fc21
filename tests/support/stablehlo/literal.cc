#include "tests/support/stablehlo/literal.h"

#include <cctype>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "tests/support/stablehlo/number.h"

namespace ringmaster::testing::stablehlo {
namespace {

struct Scalar {
  Position at;
  std::string text;
};

// A number or a nested list of them; every list at one depth has the same length.
struct List {
  Shape shape;
  std::vector<Scalar> scalars;
};

Status ParseElements(Cursor& cursor, size_t depth, List* list) {
  if (!cursor.Sees("[")) {
    if (depth != list->shape.size()) return cursor.Unexpected("a list as deep as the ones before");
    Scalar scalar{cursor.position(), ""};
    if (cursor.Accept("true")) {
      scalar.text = "true";
    } else if (cursor.Accept("false")) {
      scalar.text = "false";
    } else {
      RING_ASSIGN_OR_RETURN(scalar.text, cursor.Number());
    }
    list->scalars.push_back(std::move(scalar));
    return absl::OkStatus();
  }
  const Position at = cursor.position();
  RING_RETURN_IF_ERROR(cursor.Expect("["));
  const bool first = depth == list->shape.size();
  if (first && (!list->scalars.empty() || depth > 12)) {
    return ErrorAt(at, "a list that is deeper than the ones before");
  }
  if (first) list->shape.push_back(0);
  int64_t length = 0;
  while (!cursor.Accept("]")) {
    if (length > 0) RING_RETURN_IF_ERROR(cursor.Expect(","));
    RING_RETURN_IF_ERROR(ParseElements(cursor, depth + 1, list));
    ++length;
  }
  if (first) list->shape[depth] = length;
  if (list->shape[depth] != length) {
    return ErrorAt(at, "a list of {} where the one before has {}", length, list->shape[depth]);
  }
  return absl::OkStatus();
}

Status Bad(const Scalar& scalar, Type type) {
  return ErrorAt(scalar.at, "'{}' is no {}", scalar.text, Name(type));
}

template <typename T>
StatusOr<T> ReadFloat(const Scalar& scalar, Type type) {
  const std::string& text = scalar.text;
  if (text.starts_with("0x")) {  // the bits of the number: as many digits as it has
    uint32_t bits = 0;
    const auto [end, error] = std::from_chars(text.data() + 2, text.data() + text.size(), bits, 16);
    if (error != std::errc() || end != text.data() + text.size() ||
        text.size() != 2 + 2 * sizeof(T)) {
      return Bad(scalar, type);
    }
    if constexpr (std::is_same_v<T, float>) {
      return std::bit_cast<float>(bits);
    } else {
      T value;
      value.bits = static_cast<uint16_t>(bits);
      return value;
    }
  }
  if (text.find('.') == std::string::npos) {
    return ErrorAt(scalar.at, "'{}' is an integer, expected a float with a point", text);
  }
  return T(std::strtof(text.c_str(), nullptr));
}

template <typename T>
StatusOr<T> ReadInteger(const Scalar& scalar, Type type) {
  const bool negative = scalar.text.starts_with("-");
  std::string_view digits = std::string_view(scalar.text).substr(negative ? 1 : 0);
  const int base = digits.starts_with("0x") ? 16 : 10;
  if (base == 16) digits.remove_prefix(2);
  uint64_t magnitude = 0;
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), magnitude, base);
  using Bits = std::make_unsigned_t<T>;
  const uint64_t most = negative ? uint64_t{1} << (8 * sizeof(T) - 1) : Bits(-1);
  if (error != std::errc() || end != digits.data() + digits.size() || magnitude > most ||
      (negative && std::is_unsigned_v<T>)) {
    return Bad(scalar, type);
  }
  return static_cast<T>(static_cast<Bits>(negative ? uint64_t{0} - magnitude : magnitude));
}

template <typename T>
StatusOr<T> ReadScalar(const Scalar& scalar, Type type) {
  if constexpr (std::is_same_v<T, bool>) {
    if (scalar.text == "true" || scalar.text == "1") return true;
    if (scalar.text == "false" || scalar.text == "0") return false;
    return Bad(scalar, type);
  } else if constexpr (kIsFloat<T>) {
    return ReadFloat<T>(scalar, type);
  } else {
    return ReadInteger<T>(scalar, type);
  }
}

StatusOr<Tensor> FromScalars(Position at, const List& list, const TensorType& type) {
  const bool splat = list.shape.empty();
  if (!splat && list.shape != type.shape) {
    return ErrorAt(at, "a literal of shape [{}] for {}", fmt::join(list.shape, ", "), Text(type));
  }
  Tensor tensor(type);
  RING_RETURN_IF_ERROR(Dispatch(type.type, [&](auto zero) -> Status {
    using T = decltype(zero);
    const auto elements = static_cast<size_t>(Elements(type.shape));
    for (size_t i = 0; i < list.scalars.size(); ++i) {
      RING_ASSIGN_OR_RETURN(const T value, ReadScalar<T>(list.scalars[i], type.type));
      if (splat) {
        std::fill_n(tensor.data<T>(), elements, value);
      } else {
        tensor.data<T>()[i] = value;
      }
    }
    return absl::OkStatus();
  }));
  return tensor;
}

StatusOr<Tensor> FromBytes(Position at, const std::string& text, const TensorType& type) {
  Tensor tensor(type);
  if (!text.starts_with("0x") || text.size() != 2 + 2 * tensor.bytes.size()) {
    return ErrorAt(at, "a literal of {} characters for {}: expected 0x and {} hex digits",
                   text.size(), Text(type), 2 * tensor.bytes.size());
  }
  for (size_t i = 0; i < tensor.bytes.size(); ++i) {
    uint8_t byte = 0;
    const char* digits = text.data() + 2 + 2 * i;
    if (std::from_chars(digits, digits + 2, byte, 16).ptr != digits + 2) {
      return ErrorAt(at, "a literal with what is no hex digit");
    }
    tensor.bytes[i] = std::byte{byte};
  }
  return tensor;
}

}  // namespace

StatusOr<Tensor> ParseDense(Cursor& cursor) {
  RING_RETURN_IF_ERROR(cursor.Expect("<"));
  const Position at = cursor.position();
  std::string raw;
  List list;
  if (cursor.Sees("\"")) {
    RING_ASSIGN_OR_RETURN(raw, cursor.Quoted());
  } else if (!cursor.Sees(">")) {  // dense<> has no elements
    RING_RETURN_IF_ERROR(ParseElements(cursor, 0, &list));
  } else {
    list.shape = {0};
  }
  RING_RETURN_IF_ERROR(cursor.Expect(">"));
  RING_RETURN_IF_ERROR(cursor.Expect(":"));
  RING_ASSIGN_OR_RETURN(const TensorType type, cursor.Tensor());
  constexpr size_t kMostBytes = size_t{1} << 32;
  if (type.bytes() > kMostBytes) return ErrorAt(at, "a literal of {}", Text(type));
  return raw.empty() ? FromScalars(at, list, type) : FromBytes(at, raw, type);
}

}  // namespace ringmaster::testing::stablehlo
