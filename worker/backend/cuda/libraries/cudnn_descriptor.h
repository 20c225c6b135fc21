// Descriptors of cuDNN's graph API as owned values, made by a builder that keeps the first error.
// Thread-compatible. It knows how attributes are typed, not what they mean.
#pragma once

#include <cudnn.h>

#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "common/status.h"

namespace ringmaster::cuda {

// OK, or what was being done with cuDNN's name of the error and its last message: UNIMPLEMENTED
// when cuDNN does not support it, RESOURCE_EXHAUSTED when memory is used up, else INTERNAL.
[[nodiscard]] Status FromCudnn(cudnnStatus_t status, const std::string& what);

// The version of the compiler in the library of that name, NVRTC, which stays loaded; "none" where
// it is not to be had, of which a warning in the log says what that costs.
[[nodiscard]] std::string LoadCudnnCompiler(const std::string& library);

// That of the library by which cuDNN compiles its runtime engines. It is loaded by the first call:
// cuDNN by itself loads it for every engine that it looks at and unloads it again, 2,600 times for
// the convolutions of ResNet-50, which takes 14 s of the 14.4 that planning them takes.
[[nodiscard]] const std::string& CudnnCompiler();

// How cuDNN calls the type of an attribute's elements.
template <typename T>
constexpr cudnnBackendAttributeType_t CudnnAttributeType() {
  if constexpr (std::is_same_v<T, int64_t>) return CUDNN_TYPE_INT64;
  if constexpr (std::is_same_v<T, bool>) return CUDNN_TYPE_BOOLEAN;
  if constexpr (std::is_same_v<T, float>) return CUDNN_TYPE_FLOAT;
  if constexpr (std::is_same_v<T, char>) return CUDNN_TYPE_CHAR;
  if constexpr (std::is_same_v<T, void*>) return CUDNN_TYPE_VOID_PTR;
  if constexpr (std::is_same_v<T, cudnnHandle_t>) return CUDNN_TYPE_HANDLE;
  if constexpr (std::is_same_v<T, cudnnDataType_t>) return CUDNN_TYPE_DATA_TYPE;
  if constexpr (std::is_same_v<T, cudnnConvolutionMode_t>) return CUDNN_TYPE_CONVOLUTION_MODE;
  if constexpr (std::is_same_v<T, cudnnPointwiseMode_t>) return CUDNN_TYPE_POINTWISE_MODE;
  if constexpr (std::is_same_v<T, cudnnNanPropagation_t>) return CUDNN_TYPE_NAN_PROPOGATION;
  if constexpr (std::is_same_v<T, cudnnBackendHeurMode_t>) return CUDNN_TYPE_HEUR_MODE;
  if constexpr (std::is_same_v<T, cudnnBackendKnobType_t>) return CUDNN_TYPE_KNOB_TYPE;
  if constexpr (std::is_same_v<T, cudnnBackendNumericalNote_t>) return CUDNN_TYPE_NUMERICAL_NOTE;
}

class CudnnDescriptor {
 public:
  CudnnDescriptor() = default;
  ~CudnnDescriptor() { Reset(); }
  CudnnDescriptor(CudnnDescriptor&& other) noexcept { *this = std::move(other); }
  CudnnDescriptor& operator=(CudnnDescriptor&& other) noexcept {
    std::swap(raw_, other.raw_);
    return *this;
  }

  [[nodiscard]] cudnnBackendDescriptor_t raw() const { return raw_; }

  template <typename T>
  [[nodiscard]] StatusOr<std::vector<T>> GetAll(cudnnBackendAttributeName_t name) const {
    int64_t count = 0;
    RING_RETURN_IF_ERROR(Get(name, CudnnAttributeType<T>(), 0, &count, nullptr));
    std::vector<T> values(static_cast<size_t>(count));
    if (count == 0) return values;
    RING_RETURN_IF_ERROR(Get(name, CudnnAttributeType<T>(), count, &count, values.data()));
    values.resize(static_cast<size_t>(count));
    return values;
  }
  template <typename T>
  [[nodiscard]] StatusOr<T> Get(cudnnBackendAttributeName_t name) const {
    T value = {};
    int64_t count = 0;
    RING_RETURN_IF_ERROR(Get(name, CudnnAttributeType<T>(), 1, &count, &value));
    if (count != 1)
      return Internal("cuDNN attribute {}: expected 1 value, got {}", int{name}, count);
    return value;
  }
  // Those of the attribute, each of `type`; at most `most`.
  [[nodiscard]] StatusOr<std::vector<CudnnDescriptor>> GetDescriptors(
      cudnnBackendAttributeName_t name, cudnnBackendDescriptorType_t type, int64_t most) const;
  // How many there are. Not every attribute says it before it is read: knob choices say 0.
  [[nodiscard]] StatusOr<int64_t> CountDescriptors(cudnnBackendAttributeName_t name) const;

 private:
  friend class CudnnBuilder;
  [[nodiscard]] static StatusOr<CudnnDescriptor> Create(cudnnBackendDescriptorType_t type);
  [[nodiscard]] Status Get(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                           int64_t room, int64_t* count, void* values) const;
  void Reset();

  cudnnBackendDescriptor_t raw_ = nullptr;
};

// Sets attributes one after the other; after an error the rest does nothing, and Finalize returns
// that error.
class CudnnBuilder {
 public:
  explicit CudnnBuilder(cudnnBackendDescriptorType_t type);

  template <typename T>
  CudnnBuilder& Set(cudnnBackendAttributeName_t name, const T& value) {
    return SetRaw(name, CudnnAttributeType<T>(), 1, &value);
  }
  template <typename T>
  CudnnBuilder& SetAll(cudnnBackendAttributeName_t name, std::span<const T> values) {
    return SetRaw(name, CudnnAttributeType<T>(), static_cast<int64_t>(values.size()),
                  values.data());
  }
  CudnnBuilder& Set(cudnnBackendAttributeName_t name, const CudnnDescriptor& descriptor);
  CudnnBuilder& SetAll(cudnnBackendAttributeName_t name,
                       const std::vector<CudnnDescriptor>& descriptors);

  // `what`: named in an error.
  [[nodiscard]] StatusOr<CudnnDescriptor> Finalize(const std::string& what);

 private:
  CudnnBuilder& SetRaw(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                       int64_t count, const void* values);

  CudnnDescriptor descriptor_;
  Status status_;
};

}  // namespace ringmaster::cuda
