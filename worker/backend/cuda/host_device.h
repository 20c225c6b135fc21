// What functions that kernels and host code share are written with.
#pragma once

#include "common/host_device.h"

#if defined(__CUDA_ARCH__)
#define RING_UNROLL _Pragma("unroll")
#else
#define RING_UNROLL
#endif
