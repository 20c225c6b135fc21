// Marks functions that GPU kernels and host code share, so that a compiler that knows no CUDA can
// test them.
#pragma once

#if defined(__CUDACC__)
#define RING_HOST_DEVICE __host__ __device__
#else
#define RING_HOST_DEVICE
#endif
