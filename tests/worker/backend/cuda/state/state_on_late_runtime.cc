#include "tests/worker/backend/cuda/late_runtime.h"
#include "tests/worker/backend/cuda/state/late_nccl.h"
#include "tests/worker/backend/cuda/state/state_under_test.h"

namespace ringmaster::testing {

bool CanTestState() { return true; }
int LastGpu() { return 1; }
void MakeOtherCurrent() { (void)cudaSetDevice(99); }
bool IsCurrent(int device) { return CurrentDevice() == device; }
int GpusOfGroup() { return 3; }
StatusOr<cuda::Nccl> GroupNccl() { return LateNccl(); }
size_t Leaks() { return LiveObjects(); }

}  // namespace ringmaster::testing
