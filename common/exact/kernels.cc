#include "common/exact/kernels.h"

namespace ringmaster::exact {

const Kernels& BestKernels() {
  static const Kernels& best = Avx512Kernels() != nullptr ? *Avx512Kernels() : Avx2Kernels();
  return best;
}

}  // namespace ringmaster::exact
