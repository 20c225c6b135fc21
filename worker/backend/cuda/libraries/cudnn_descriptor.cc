#include "worker/backend/cuda/libraries/cudnn_descriptor.h"

#include <dlfcn.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>

#include "worker/backend/failure.h"

namespace ringmaster::cuda {
namespace {

std::string LastMessage() {
  std::array<char, 512> message = {};
  cudnnGetLastErrorString(message.data(), message.size());
  return message.data();
}

bool LacksMemory(cudnnStatus_t status) {
  return status == CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED ||
         status == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED;
}

}  // namespace

std::string LoadCudnnCompiler(const std::string& library) {
  void* const loaded = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (loaded == nullptr) {
    spdlog::warn(
        "cuDNN has fewer engines for convolutions here, and this host is of another numerics class "
        "than those that can compile them: {}; `scripts/gpu-check --libraries` finds it, or pip "
        "install nvidia-cuda-nvrtc",
        dlerror());
    return "none";
  }
  const auto ask = reinterpret_cast<int (*)(int*, int*)>(dlsym(loaded, "nvrtcVersion"));
  int major = 0;
  int minor = 0;
  const bool known = ask != nullptr && ask(&major, &minor) == 0;
  return known ? fmt::format("{}.{}", major, minor) : std::string("unknown");
}

const std::string& CudnnCompiler() {
  // By the name that cuDNN has for it.
  static const std::string version =
      LoadCudnnCompiler(fmt::format("libnvrtc.so.{}", CUDART_VERSION / 1000));
  return version;
}

Status FromCudnn(cudnnStatus_t status, const std::string& what) {
  if (status == CUDNN_STATUS_SUCCESS) return absl::OkStatus();
  const std::string text =
      fmt::format("{}: {}: {}", what, cudnnGetErrorString(status), LastMessage());
  if (LacksMemory(status)) return OutOfMemory("{}", text);
  return Error(CUDNN_STATUS_CATEGORY(status) == CUDNN_STATUS_NOT_SUPPORTED
                   ? absl::StatusCode::kUnimplemented
                   : absl::StatusCode::kInternal,
               "{}", text);
}

void CudnnDescriptor::Reset() {
  if (raw_ != nullptr) (void)cudnnBackendDestroyDescriptor(raw_);
  raw_ = nullptr;
}

StatusOr<CudnnDescriptor> CudnnDescriptor::Create(cudnnBackendDescriptorType_t type) {
  CudnnDescriptor made;
  RING_RETURN_IF_ERROR(FromCudnn(cudnnBackendCreateDescriptor(type, &made.raw_),
                                 fmt::format("cuDNN descriptor of type {}", int{type})));
  return made;
}

Status CudnnDescriptor::Get(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                            int64_t room, int64_t* count, void* values) const {
  return FromCudnn(cudnnBackendGetAttribute(raw_, name, type, room, count, values),
                   fmt::format("reading cuDNN attribute {}", int{name}));
}

StatusOr<int64_t> CudnnDescriptor::CountDescriptors(cudnnBackendAttributeName_t name) const {
  int64_t count = 0;
  RING_RETURN_IF_ERROR(Get(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &count, nullptr));
  return count;
}

StatusOr<std::vector<CudnnDescriptor>> CudnnDescriptor::GetDescriptors(
    cudnnBackendAttributeName_t name, cudnnBackendDescriptorType_t type, int64_t most) const {
  std::vector<CudnnDescriptor> made;
  std::vector<cudnnBackendDescriptor_t> raw;
  for (int64_t i = 0; i < most; ++i) {
    RING_ASSIGN_OR_RETURN(CudnnDescriptor one, Create(type));
    raw.push_back(one.raw());
    made.push_back(std::move(one));
  }
  int64_t count = 0;
  if (most > 0) {
    RING_RETURN_IF_ERROR(Get(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, most, &count, raw.data()));
  }
  made.resize(static_cast<size_t>(std::min(count, most)));
  return made;
}

CudnnBuilder::CudnnBuilder(cudnnBackendDescriptorType_t type) {
  auto made = CudnnDescriptor::Create(type);
  status_ = made.status();
  if (made.ok()) descriptor_ = *std::move(made);
}

CudnnBuilder& CudnnBuilder::SetRaw(cudnnBackendAttributeName_t name,
                                   cudnnBackendAttributeType_t type, int64_t count,
                                   const void* values) {
  if (!status_.ok()) return *this;
  status_ = FromCudnn(cudnnBackendSetAttribute(descriptor_.raw(), name, type, count, values),
                      fmt::format("cuDNN attribute {}", int{name}));
  return *this;
}

CudnnBuilder& CudnnBuilder::Set(cudnnBackendAttributeName_t name,
                                const CudnnDescriptor& descriptor) {
  const cudnnBackendDescriptor_t raw = descriptor.raw();
  return SetRaw(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &raw);
}

CudnnBuilder& CudnnBuilder::SetAll(cudnnBackendAttributeName_t name,
                                   const std::vector<CudnnDescriptor>& descriptors) {
  std::vector<cudnnBackendDescriptor_t> raw;
  for (const CudnnDescriptor& descriptor : descriptors) raw.push_back(descriptor.raw());
  return SetRaw(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, static_cast<int64_t>(raw.size()), raw.data());
}

StatusOr<CudnnDescriptor> CudnnBuilder::Finalize(const std::string& what) {
  if (!status_.ok()) return Annotate(status_, what);
  RING_RETURN_IF_ERROR(FromCudnn(cudnnBackendFinalize(descriptor_.raw()), what));
  return std::move(descriptor_);
}

}  // namespace ringmaster::cuda
