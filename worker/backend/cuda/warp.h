// A warp: how many lanes it has, and the mask that names all of them. For kernels.
#pragma once

namespace ringmaster::cuda {

inline constexpr int kWarpLanes = 32;
inline constexpr unsigned kAllLanes = 0xffffffffU;

}  // namespace ringmaster::cuda
