// What a node wants of a library, as a value that knows none: a product of matrices; or a
// convolution, which of the three passes, sizes, types, what is fused to it, and what a library may
// be asked for instead: a variant, parts of the samples, products. Pure; thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/graph/graph.h"
#include "common/graph/ops/window.h"
#include "worker/backend/cuda/kernels/products.h"

namespace ringmaster::cuda {

// c(m,n) = op(a) op(b) on row-major matrices: op(a) is m x k, op(b) k x n; a transposed matrix lies
// in memory as k x m, or n x k. Sums in float32.
struct MatmulShape {
  int64_t m = 0, n = 0, k = 0;
  bool transpose_a = false, transpose_b = false;
  graph::DType type = graph::DType::kFloat32;    // of a and b
  graph::DType result = graph::DType::kFloat32;  // of c
  bool of_patches = false;                       // of PatchProductOf: computed part after part
};

// `m 10 n 64 k 256 at b bfloat16 to float32`, then `patches` where it is one of them: the key of a
// kernel table's row; t: transposed.
[[nodiscard]] std::string Key(const MatmulShape& shape);

// What a node asks cuBLASLt for: of dense, of one of its gradients, of a convolution by its patches
// (PatchProductOf), or of the gradient of the weights of a conv2d whose window is one pixel;
// nullopt when the node is no product. Where a bias or an activation follows, the product is wanted
// in float32, so that y is rounded once.
//
// Those windows of one pixel: dw has few elements, each a sum over all pixels of the shard.
// cuBLASLt cuts such sums into parts that fill a GPU, and writes float32; cuDNN's engines that do
// so are few and take up to ten times as long. Channels that tensor cores cannot read as they lie
// are left to cuDNN, which gets a copy.
[[nodiscard]] std::optional<MatmulShape> MatmulOf(const graph::Graph& graph,
                                                  const graph::Node& node);

// Convolutions.

enum class ConvolutionPass : uint8_t { kForward, kInputGradient, kWeightGradient };
[[nodiscard]] const char* Name(ConvolutionPass pass);  // the op: conv2d, conv2d_input_gradient ...

// As a library names dimensions, N,C,H,W or K,C,R,S, and how far apart elements lie.
struct TensorLayout {
  std::array<int64_t, 4> dimensions;
  std::array<int64_t, 4> strides;

  bool operator==(const TensorLayout&) const = default;
};

// Sizes are those of the forward pass, whichever pass it is. Strides, pads, dilations, groups and
// the activation are in `attributes`; bias and activation belong to the forward pass alone.
struct ConvolutionShape {
  ConvolutionPass pass = ConvolutionPass::kForward;
  int64_t samples = 0, height = 0, width = 0, channels = 0;  // of x
  int64_t filters = 0, window_height = 0, window_width = 0;
  graph::Conv2dAttributes attributes;
  graph::DType type = graph::DType::kFloat32;    // of what is read
  graph::DType result = graph::DType::kFloat32;  // of what is written
  bool bias = false;

  // x(N,H,W,C) and w(O,h,w,C/groups) as they stand in the graph; `result` becomes `type`.
  [[nodiscard]] static ConvolutionShape Of(ConvolutionPass pass,
                                           const graph::Conv2dAttributes& attributes,
                                           const graph::Shape& x, const graph::Shape& w,
                                           graph::DType type);

  [[nodiscard]] graph::WindowAxis rows() const;
  [[nodiscard]] graph::WindowAxis columns() const;
  [[nodiscard]] int64_t output_height() const { return rows().output(); }
  [[nodiscard]] int64_t output_width() const { return columns().output(); }
  // Of x, that a filter reads.
  [[nodiscard]] int64_t group_channels() const { return channels / attributes.groups; }
  // Every filter reads one channel, and there are several channels.
  [[nodiscard]] bool is_depthwise() const { return channels > 1 && group_channels() == 1; }
  [[nodiscard]] bool fuses_anything() const {
    return bias || attributes.activation != graph::Activation::kNone;
  }
  // N,H,W,C in memory; O,h,w,C/groups for w.
  [[nodiscard]] TensorLayout x() const;
  [[nodiscard]] TensorLayout w() const;
  [[nodiscard]] TensorLayout y() const;
  [[nodiscard]] TensorLayout bias_layout() const;
};

// What a node computes; nullopt when its op is none of the three.
[[nodiscard]] std::optional<ConvolutionShape> ConvolutionOf(const graph::Graph& graph,
                                                            const graph::Node& node);

// `x 64,32,32,96 w 256,3,3,96 stride 1,1 pad 1,1,1,1 bfloat16 to bfloat16 bias relu`, pads as top,
// bottom, left, right, then `groups 2` and `dilation 2,2` where there are some: the key of a kernel
// table's row.
[[nodiscard]] std::string Key(const ConvolutionShape& shape);

// In how many equal parts of its samples a convolution is computed. Engines count elements in 32
// bits, and of what is written by sample those of float32 that are quick want more scratch than
// they may have, when a tensor is too large. And a gradient of weights in 16 bits has few tiles for
// a large GPU where kernels are small, each a sum over all positions, which cuDNN's one engine for
// them does not cut: its parts are computed side by side. A number that divides the samples, 1
// where none near does. A rule of the shape alone, so that every GPU has the same bits.
[[nodiscard]] int64_t PartsOf(const ConvolutionShape& shape);
// Bytes to which every tensor that cuDNN is given is aligned, a part's, too; and cuBLASLt's, whose
// default we keep.
inline constexpr int64_t kTensorAlignment = 16, kProductAlignment = 256;
[[nodiscard]] ConvolutionShape PartOf(const ConvolutionShape& shape, int64_t parts);

// A convolution of an image's few channels as products of its patches (kernels/products.h), a part
// of the samples after the other, so that the patches of one fit into `kPatchBytes`. Engines that
// are made for many channels read such images padded to eight and take several times as long.
inline constexpr int64_t kPatchBytes = int64_t{64} << 20;
struct PatchProduct {
  PatchShape patches;  // of a part
  int64_t parts = 1;   // which divide the samples

  [[nodiscard]] int64_t rows() const {
    return patches.samples * patches.output_height * patches.output_width;
  }
};
// nullopt where that is not the way: another pass than forward and weight gradient, more than four
// channels, float32, a bias or an activation, which cuDNN fuses. A rule of the shape alone; tests
// have other `patch_bytes`.
[[nodiscard]] std::optional<PatchProduct> PatchProductOf(const ConvolutionShape& shape,
                                                         int64_t patch_bytes = kPatchBytes);
// Of a part: y = patches w^T, or dw = dy^T patches, with rows of w as long as those of the patches.
[[nodiscard]] MatmulShape MatmulOf(const ConvolutionShape& shape, const PatchProduct& product);

// What the library is asked for in place of the shape itself; the rest is done by own kernels, with
// copies in the workspace.
struct ConvolutionVariant {
  bool fused = false;   // bias and activation inside the convolution
  bool padded = false;  // channels and filters rounded up with zeros; not with groups
  bool narrow = false;  // a gradient of weights written in 16 bits

  bool operator==(const ConvolutionVariant&) const = default;
};
[[nodiscard]] std::string Describe(const ConvolutionVariant& variant);  // fused+padded, or plain

// The variants that make sense for a shape, in the order in which they are tried.
[[nodiscard]] std::vector<ConvolutionVariant> Variants(const ConvolutionShape& shape);
[[nodiscard]] ConvolutionShape Apply(const ConvolutionShape& shape,
                                     const ConvolutionVariant& variant);

}  // namespace ringmaster::cuda
