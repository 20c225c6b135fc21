// numpy's .npy files (numpy/lib/_format_impl.py): a magic word, a version, a header that is a
// Python literal, and the numbers. Header and numbers as they are found within a file or an
// archive; the format npy, a folder with one such file a column, is in npy.cc. Thread-safe (free
// functions).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/data/format.h"

namespace ringmaster::data {

struct NpyHeader {
  Number number = Number::kUint8;
  bool big_endian = false;
  std::vector<int64_t> shape;  // the first extent counts samples
  uint64_t bytes = 0;          // of the header: where the numbers begin
  uint64_t data_bytes = 0;
};

// The header's own length, with the magic word, from the first bytes of a file; at most
// kMaxNpyHeader. FAILED_PRECONDITION: it is none, or of a version that nobody writes.
inline constexpr size_t kNpyPreamble = 12, kMaxNpyHeader = size_t{64} << 10;
[[nodiscard]] StatusOr<uint64_t> NpyHeaderBytes(std::span<const uint8_t> preamble);

// `header`: NpyHeaderBytes of them. FAILED_PRECONDITION says what is wrong with it, and what to
// write instead where numbers are of a type or in an order that is not read.
[[nodiscard]] StatusOr<NpyHeader> ParseNpyHeader(std::span<const uint8_t> header);

// The array of a .npy file of `bytes` whose `name` is that of its file and member, at `begin` of
// what `read` reads from. Its column and split are the caller's.
using ReadBytes = std::function<Status(uint64_t offset, std::span<uint8_t> bytes)>;
[[nodiscard]] StatusOr<Array> FindNpyArray(const std::string& name, uint64_t begin, uint64_t bytes,
                                           const ReadBytes& read);

// A name as a column's: in lower case. FAILED_PRECONDITION when it is none.
[[nodiscard]] StatusOr<std::string> ColumnNamed(const std::string& name);

// The bytes of a .npy file before its numbers: version 1.0, little-endian.
[[nodiscard]] std::vector<uint8_t> WriteNpyHeader(Number number, std::span<const uint64_t> shape);

// A row of an array as float32, or as int32: true numbers become 1; whole ones of a wider type must
// fit, which FindRange has checked.
void ToFloat32(const Array& array, std::span<const uint8_t> row, std::span<float> out);
void ToInt32(const Array& array, std::span<const uint8_t> row, std::span<int32_t> out);

// One less than the largest int32, so that a limit behind it fits.
inline constexpr int64_t kLargestWhole = (int64_t{1} << 31) - 2;

// The largest of the whole numbers in so many bytes of rows, and the first place of one that is
// negative or too large for int32, if there is any.
struct Range {
  int64_t largest = 0;
  std::optional<size_t> first_bad = {};  // element
  std::string bad = {};                  // as text
};
void FindRange(const Array& array, std::span<const uint8_t> rows, Range* range);

// A column of the sample data of npy and npz: two inputs and two targets that depend on both.
struct SampleColumn {
  const char* name;
  Number number;
  uint64_t elements;  // of a row; 0: a number
  void (*draw)(uint64_t seed, Split split, uint64_t sample, std::span<uint8_t> record);
};
[[nodiscard]] std::span<const SampleColumn> SampleColumns();

}  // namespace ringmaster::data
