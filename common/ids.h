// Types for ids, so that a job id is never passed where a worker id belongs. Values, thread-safe.
#pragma once

#include <algorithm>
#include <cctype>
#include <compare>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>

namespace ringmaster {

// Version of the session and ring protocols; workers of another version are refused at attach.
inline constexpr uint32_t kProtocolVersion = 4;

template <typename Tag>
class Id {
 public:
  Id() = default;
  explicit Id(std::string value) : value_(std::move(value)) {}
  const std::string& value() const { return value_; }
  bool empty() const { return value_.empty(); }
  auto operator<=>(const Id&) const = default;

 private:
  std::string value_;
};

using JobId = Id<struct JobIdTag>;
using WorkerId = Id<struct WorkerIdTag>;  // the --name of a ringworker

// Of a worker, a person or a cluster: 1 to 100 letters, digits, '.', '_', '-'.
inline constexpr size_t kMaxNameLength = 100;
[[nodiscard]] inline bool IsName(const std::string& text) {
  const auto allowed = [](unsigned char c) {
    return (std::isalnum(c) != 0 && c < 0x80) || c == '.' || c == '_' || c == '-';
  };
  return !text.empty() && text.size() <= kMaxNameLength &&
         std::all_of(text.begin(), text.end(), allowed);
}

// Number of one membership of a job's ring: grows, and stands on every frame of the data path.
struct GenerationId {
  uint64_t term = 0;
  uint64_t counter = 0;
  auto operator<=>(const GenerationId&) const = default;
  std::string ToString() const { return std::to_string(term) + "." + std::to_string(counter); }
};

}  // namespace ringmaster

template <typename Tag>
struct std::hash<ringmaster::Id<Tag>> {
  size_t operator()(const ringmaster::Id<Tag>& id) const {
    return std::hash<std::string>()(id.value());
  }
};
