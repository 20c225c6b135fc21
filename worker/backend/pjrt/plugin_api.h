// A plugin's table of functions in the project's own terms: calls that return a Status, structs
// that plugins of every version take, and types of tensors. Owned by Plugin and used by what it
// gives out. Immutable; thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>

#include "common/status.h"
#include "worker/backend/pjrt/abi.h"
#include "worker/backend/pjrt/tensor_type.h"

namespace ringmaster::pjrt {

// A struct on its way to the plugin, zero but for its size. A newer plugin may know more fields: it
// refuses a struct that ends before them, or writes to them unasked, so that all have room to
// spare; and a zero in any of them means unset.
template <typename Struct>
struct Roomy {
  static constexpr size_t kRoom = 128;

  Roomy() {
    std::memset(static_cast<void*>(this), 0, sizeof(*this));
    inner.struct_size = sizeof(*this);
  }
  Struct* operator->() { return &inner; }
  Struct* get() { return &inner; }

  Struct inner;
  std::byte room[kRoom];
};

class PluginApi {
 public:
  explicit PluginApi(const abi::Api* api) : api_(api) {}

  // FAILED_PRECONDITION: a version that is not supported, or a function that all need is not there.
  // Before anything is called.
  [[nodiscard]] Status Check() const;
  [[nodiscard]] const abi::Version& version() const { return api_->version; }

  // UNIMPLEMENTED where the plugin has no such function; else its own error.
  template <typename Args>
  [[nodiscard]] Status Call(Roomy<Args>* frame) const {
    void* const function = Find(Args::kEntry);
    if (function == nullptr) {
      return Error(absl::StatusCode::kUnimplemented, "the plugin lacks {}", Args::kName);
    }
    return ToStatus(reinterpret_cast<abi::Function<Args>>(function)(frame->get()), Args::kName);
  }

 private:
  // nullptr where the table has none.
  [[nodiscard]] void* Find(size_t entry) const;
  // What an error says; it is ended.
  [[nodiscard]] Status ToStatus(abi::Error* error, const char* call) const;

  const abi::Api* const api_;
};

// Ends an object of the plugin's.
struct DestroyObject {
  const PluginApi* api = nullptr;
  void operator()(abi::Buffer* buffer) const;
  void operator()(abi::Executable* executable) const;
  void operator()(abi::LoadedExecutable* executable) const;
};

[[nodiscard]] abi::BufferType ToAbi(Element element);
// INTERNAL: its elements are none that a result of ours has.
[[nodiscard]] StatusOr<TensorType> TypeFrom(abi::BufferType type, std::span<const int64_t> dims);
// INTERNAL where the result at `place` is of another type.
[[nodiscard]] Status CheckResult(size_t place, const TensorType& got, const TensorType& expected);

}  // namespace ringmaster::pjrt
