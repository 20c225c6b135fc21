#include "common/data/format.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "common/text.h"

namespace ringmaster::data {

// The rows: each in a file of its own name, but for CIFAR's two in cifar.cc.
const Format& Cifar10();
const Format& Cifar100();
const Format& Mnist();
const Format& Npy();
const Format& Npz();
const Format& ImageFolder();
const Format& TfRecord();
const Format& Tokens();
const Format& Csv();
const Format& WebDataset();

const std::vector<const Format*>& Formats() {
  static const std::vector<const Format*> formats = {
      &Cifar10(),     &Cifar100(), &Mnist(),      &Npy(),    &Npz(),
      &ImageFolder(), &TfRecord(), &WebDataset(), &Tokens(), &Csv()};
  return formats;
}

std::vector<std::string> FormatNames() {
  std::vector<std::string> names;
  for (const Format* format : Formats()) names.push_back(format->name);
  return names;
}

StatusOr<const Format*> FindFormat(const std::string& name) {
  for (const Format* format : Formats()) {
    if (format->name == name) return format;
  }
  return InvalidArgument("format \"{}\" is not known; known: {}", name,
                         fmt::join(FormatNames(), ", "));
}

bool Matches(const FileKind& kind, const std::string& name) {
  return name.size() >= kind.name.size() && ringmaster::Matches(kind.name, name);
}

const char* NameOf(Split split) { return split == Split::kTrain ? "train" : "test"; }

namespace {

struct NumberRow {
  const char* name;
  size_t bytes;
};
constexpr NumberRow kNumbers[] = {{"bool", 1},  {"uint8", 1},   {"int8", 1},    {"uint16", 2},
                                  {"int16", 2}, {"uint32", 4},  {"int32", 4},   {"uint64", 8},
                                  {"int64", 8}, {"float16", 2}, {"float32", 4}, {"float64", 8}};
static_assert(std::size(kNumbers) == static_cast<size_t>(Number::kFloat64) + 1);

}  // namespace

size_t BytesOf(Number number) { return kNumbers[static_cast<size_t>(number)].bytes; }
const char* NameOf(Number number) { return kNumbers[static_cast<size_t>(number)].name; }

size_t Array::elements() const {
  size_t elements = 1;
  for (const int64_t extent : shape) elements *= static_cast<size_t>(extent);
  return elements;
}

std::string ShapeText(std::span<const int64_t> shape) {
  return shape.empty() ? "a number" : fmt::format("{}", fmt::join(shape, " x "));
}

uint64_t FileLayout::samples(Split split) const {
  const auto found = std::ranges::find(arrays, split, &Array::split);
  return found == arrays.end() ? 0 : found->samples;
}

bool Content::Wants(const std::string& column) const {
  return columns.empty() || std::ranges::find(columns, column) != columns.end();
}

}  // namespace ringmaster::data
