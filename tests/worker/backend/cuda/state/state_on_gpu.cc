#include "tests/worker/backend/cuda/gpu.h"
#include "tests/worker/backend/cuda/state/state_under_test.h"

namespace ringmaster::testing {

bool CanTestState() {
  static const bool can = CudaBackendOrSkip() != nullptr;
  return can;
}
int LastGpu() {
  int count = 1;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count - 1 : 0;
}
void MakeOtherCurrent() { (void)cudaSetDevice(0); }
bool IsCurrent(int device) {
  int current = -1;
  return cudaGetDevice(&current) == cudaSuccess && current == device;
}
int GpusOfGroup() {
  const int count = LastGpu() + 1;
  if (count == 1) fmt::print("skipped for several GPUs: there is one\n");
  return count;
}
StatusOr<cuda::Nccl> GroupNccl() { return cuda::Nccl::Open(); }
size_t Leaks() { return 0; }

}  // namespace ringmaster::testing
