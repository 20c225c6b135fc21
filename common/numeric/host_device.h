// Marks functions that kernels and host code share, so that a compiler that knows no CUDA can use
// and test them.
#pragma once

#if defined(__CUDACC__)
#define RING_HOST_DEVICE __host__ __device__
#else
#define RING_HOST_DEVICE
#endif

#if defined(__CUDA_ARCH__)
#define RING_UNROLL _Pragma("unroll")
#else
#define RING_UNROLL
#endif
