// The kernel tables that this processor can run, for tests that compare them.
#pragma once

#include <vector>

#include "common/exact/kernels.h"

namespace ringmaster::exact {

inline std::vector<const Kernels*> RunnableKernels() {
  std::vector<const Kernels*> tables = {&PortableKernels(), &Avx2Kernels()};
  if (Avx512Kernels() != nullptr) tables.push_back(Avx512Kernels());
  return tables;
}

}  // namespace ringmaster::exact
