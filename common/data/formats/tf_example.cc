#include "common/data/formats/tf_example.h"

#include <algorithm>

namespace ringmaster::data {
namespace {

// Wire types of protobuf's encoding.
enum class Wire : uint8_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

// The fields of a message, one after the other.
class Fields {
 public:
  explicit Fields(std::span<const uint8_t> message) : rest_(message) {}

  // False at the end, and where it is no message: failed() then.
  bool Next() {
    uint64_t tag = 0;
    if (rest_.empty() || failed_ || !TakeVarint(&tag)) return false;
    number_ = tag >> 3;
    wire_ = static_cast<Wire>(tag & 7);
    switch (wire_) {
      case Wire::kVarint:
        return TakeVarint(&varint_);
      case Wire::kFixed64:
        return Take(8);
      case Wire::kFixed32:
        return Take(4);
      case Wire::kBytes: {
        uint64_t bytes = 0;
        return TakeVarint(&bytes) && Take(bytes);
      }
    }
    return Fail();  // groups, which nobody writes
  }

  [[nodiscard]] bool Is(uint64_t number, Wire wire) const {
    return number_ == number && wire_ == wire;
  }
  [[nodiscard]] uint64_t varint() const { return varint_; }
  [[nodiscard]] std::span<const uint8_t> bytes() const { return bytes_; }
  [[nodiscard]] bool failed() const { return failed_; }

  bool TakeVarint(uint64_t* value) {
    *value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (rest_.empty()) return Fail();
      const uint8_t byte = rest_.front();
      rest_ = rest_.subspan(1);
      *value |= uint64_t{static_cast<uint8_t>(byte & 127)} << shift;
      if (byte < 128) return true;
    }
    return Fail();
  }
  [[nodiscard]] bool empty() const { return rest_.empty(); }

 private:
  bool Fail() {
    failed_ = true;
    return false;
  }
  bool Take(uint64_t bytes) {
    if (bytes > rest_.size()) return Fail();
    bytes_ = rest_.first(bytes);
    rest_ = rest_.subspan(bytes);
    return true;
  }

  std::span<const uint8_t> rest_, bytes_;
  uint64_t number_ = 0, varint_ = 0;
  Wire wire_ = Wire::kVarint;
  bool failed_ = false;
};

bool ReadNumbers(std::span<const uint8_t> list, std::vector<int64_t>* numbers) {
  Fields fields(list);
  while (fields.Next()) {
    if (fields.Is(1, Wire::kVarint)) {
      numbers->push_back(static_cast<int64_t>(fields.varint()));
    } else if (fields.Is(1, Wire::kBytes)) {
      Fields packed(fields.bytes());
      uint64_t value = 0;
      while (!packed.empty() && packed.TakeVarint(&value)) {
        numbers->push_back(static_cast<int64_t>(value));
      }
      if (packed.failed()) return false;
    }
  }
  return !fields.failed();
}

bool ReadFloats(std::span<const uint8_t> list, size_t* floats) {
  Fields fields(list);
  while (fields.Next()) {
    if (fields.Is(1, Wire::kFixed32)) ++*floats;
    if (fields.Is(1, Wire::kBytes)) *floats += fields.bytes().size() / sizeof(float);
  }
  return !fields.failed();
}

// Of the kinds of list the last one that is there counts.
bool ReadFeature(std::span<const uint8_t> message, TfFeature* feature) {
  Fields kinds(message);
  while (kinds.Next()) {
    feature->bytes.clear();
    feature->numbers.clear();
    feature->floats = 0;
    if (kinds.Is(1, Wire::kBytes)) {
      Fields list(kinds.bytes());
      while (list.Next()) {
        if (list.Is(1, Wire::kBytes)) feature->bytes.push_back(list.bytes());
      }
      if (list.failed()) return false;
    } else if (kinds.Is(2, Wire::kBytes)) {
      if (!ReadFloats(kinds.bytes(), &feature->floats)) return false;
    } else if (kinds.Is(3, Wire::kBytes)) {
      if (!ReadNumbers(kinds.bytes(), &feature->numbers)) return false;
    }
  }
  return !kinds.failed();
}

// Of one example: one of two bytes takes a hundred in memory.
constexpr size_t kMostFeatures = 10'000;

bool ReadEntry(std::span<const uint8_t> message, TfFeature* feature) {
  Fields entry(message);
  while (entry.Next()) {
    if (entry.Is(1, Wire::kBytes)) {
      feature->key.assign(entry.bytes().begin(), entry.bytes().end());
    } else if (entry.Is(2, Wire::kBytes) && !ReadFeature(entry.bytes(), feature)) {
      return false;
    }
  }
  return !entry.failed();
}

bool ReadFeatures(std::span<const uint8_t> message, std::vector<TfFeature>* features) {
  Fields entries(message);
  while (entries.Next()) {
    if (features->size() == kMostFeatures) return false;
    if (entries.Is(1, Wire::kBytes) && !ReadEntry(entries.bytes(), &features->emplace_back())) {
      return false;
    }
  }
  return !entries.failed();
}

// ---- writing ----------------------------------------------------------------------------------

std::string Varint(uint64_t value) {
  std::string text;
  for (; value >= 128; value >>= 7) text += static_cast<char>(value | 128);
  return text + static_cast<char>(value);
}

std::string Field(uint64_t number, const std::string& bytes) {
  return Varint(number << 3 | static_cast<uint64_t>(Wire::kBytes)) + Varint(bytes.size()) + bytes;
}

std::string Entry(const std::string& key, const std::string& feature) {
  return Field(1, Field(1, key) + Field(2, feature));
}

}  // namespace

StatusOr<std::vector<TfFeature>> ParseTfExample(std::span<const uint8_t> example) {
  std::vector<TfFeature> features;
  Fields fields(example);
  bool whole = true;
  while (whole && fields.Next()) {
    if (fields.Is(1, Wire::kBytes)) whole = ReadFeatures(fields.bytes(), &features);
  }
  if (whole && !fields.failed()) return features;
  return FailedPrecondition(
      "it is no tf.Example: a field of it ends outside of it, or it has more than {} features",
      kMostFeatures);
}

const TfFeature* FindFeature(const std::vector<TfFeature>& features, const std::string& key) {
  const auto found = std::ranges::find(features.rbegin(), features.rend(), key, &TfFeature::key);
  return found == features.rend() ? nullptr : &*found;
}

std::string WriteTfExample(const std::string& image_key, const std::string& image,
                           const std::string& label_key, int64_t label,
                           const std::vector<std::pair<std::string, std::string>>& texts) {
  const auto bytes = [](const std::string& value) { return Field(1, Field(1, value)); };
  const std::string number = Field(3, Field(1, Varint(static_cast<uint64_t>(label))));
  std::string entries = Entry(image_key, bytes(image)) + Entry(label_key, number);
  for (const auto& [key, text] : texts) entries += Entry(key, bytes(text));
  return Field(1, entries);
}

}  // namespace ringmaster::data
