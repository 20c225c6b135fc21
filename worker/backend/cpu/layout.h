// The graph's logical shapes as oneDNN memory descriptors. oneDNN always names dimensions N,C,H,W
// and O,I,H,W; the format tag says how they lie. Thread-safe (free functions).
#pragma once

#include <dnnl.hpp>

#include "common/graph/graph.h"

namespace ringmaster::cpu {

using DnnlType = dnnl::memory::data_type;
using DnnlTag = dnnl::memory::format_tag;
using DnnlDesc = dnnl::memory::desc;

// N,H,W,C or N,C as it lies in the arena.
inline DnnlDesc ActivationDesc(const graph::Shape& shape, DnnlType type) {
  if (shape.size() == 4) {
    return DnnlDesc({shape[0], shape[3], shape[1], shape[2]}, type, DnnlTag::nhwc);
  }
  return DnnlDesc({shape[0], shape[1]}, type, DnnlTag::nc);
}

// A convolution kernel (canonical O,H,W,I), which oneDNN wants by group where there are several, a
// dense kernel (canonical I,O) or a vector.
inline dnnl::memory::dims WeightDims(const graph::Shape& shape, int64_t groups = 1) {
  if (groups > 1) return {groups, shape[0] / groups, shape[3], shape[1], shape[2]};
  if (shape.size() == 4) return {shape[0], shape[3], shape[1], shape[2]};
  if (shape.size() == 2) return {shape[1], shape[0]};
  return {graph::Elements(shape)};
}

inline DnnlDesc CanonicalWeightDesc(const graph::Shape& shape, DnnlType type, int64_t groups = 1) {
  const DnnlTag tag = groups > 1          ? DnnlTag::gohwi
                      : shape.size() == 4 ? DnnlTag::ohwi
                      : shape.size() == 2 ? DnnlTag::io
                                          : DnnlTag::a;
  return DnnlDesc(WeightDims(shape, groups), type, tag);
}

// A bias or its gradient, which are float32 beside tensors of any type.
inline DnnlDesc BiasDesc(const graph::Value& bias) {
  return CanonicalWeightDesc(bias.shape, DnnlType::f32);
}

// The layout is left to the primitive.
inline DnnlDesc AnyWeightDesc(const graph::Shape& shape, DnnlType type, int64_t groups = 1) {
  return DnnlDesc(WeightDims(shape, groups), type, DnnlTag::any);
}

// Of how many groups the kernel is that a primitive wants in this layout.
inline int64_t GroupsOf(const DnnlDesc& weights) {
  return weights.dims().size() == 5 ? weights.dims()[0] : 1;
}

}  // namespace ringmaster::cpu
