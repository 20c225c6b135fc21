// Engines of plain loops, in place of a library where there is no GPU: sums in float64, each in one
// fixed order, rounded once to what is written. Products compute in the call that would enqueue,
// convolutions when the late runtime comes to them. Thread-compatible.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "common/status.h"
#include "tests/worker/backend/cuda/late_runtime.h"
#include "worker/backend/cuda/device/runtime.h"
#include "worker/backend/cuda/kernel.h"
#include "worker/backend/cuda/libraries/convolution_kernel.h"
#include "worker/backend/cuda/libraries/convolution_shape.h"

namespace ringmaster::testing {

// Element i of what lies at `data`.
inline float ElementAt(graph::DType type, const void* data, int64_t i) {
  return cuda::WithStorage(
      type, [&]<typename T>(T) { return static_cast<float>(static_cast<const T*>(data)[i]); });
}
inline void SetElement(graph::DType type, void* data, int64_t i, float value) {
  cuda::WithStorage(type, [&]<typename T>(T) { static_cast<T*>(data)[i] = T(value); });
}

// Refuses what cuBLASLt is not asked for: matrices that begin elsewhere than it expects them, and
// a sum added to in 16 bits.
class LoopMatmul final : public cuda::MatmulEngine {
 public:
  explicit LoopMatmul(const cuda::MatmulShape& shape) : shape_(shape) {}

  [[nodiscard]] size_t workspace_bytes() const override { return 5; }
  [[nodiscard]] Status Launch(const cuda::MatmulOperands& operands, cuda::MatmulResult result,
                              cudaStream_t) override {
    const bool adds = result == cuda::MatmulResult::kAdd;
    if (adds && shape_.result != graph::DType::kFloat32) {
      return InvalidArgument("{} is added to", cuda::Key(shape_));
    }
    for (const void* matrix : {operands.a, operands.b, static_cast<const void*>(operands.c)}) {
      if (reinterpret_cast<uintptr_t>(matrix) % cuda::kProductAlignment == 0) continue;
      return InvalidArgument("{} at {}", cuda::Key(shape_), matrix);
    }
    std::memset(operands.workspace, 0xff, workspace_bytes());
    for (int64_t i = 0; i < shape_.m; ++i) {
      for (int64_t j = 0; j < shape_.n; ++j) {
        const int64_t at = i * shape_.n + j;
        double sum = adds ? ElementAt(shape_.result, operands.c, at) : 0;
        for (int64_t p = 0; p < shape_.k; ++p) {
          sum += double{A(operands.a, i, p)} * double{B(operands.b, p, j)};
        }
        SetElement(shape_.result, operands.c, at, static_cast<float>(sum));
      }
    }
    return absl::OkStatus();
  }

 private:
  [[nodiscard]] float A(const void* a, int64_t i, int64_t p) const {
    return ElementAt(shape_.type, a, shape_.transpose_a ? p * shape_.m + i : i * shape_.k + p);
  }
  [[nodiscard]] float B(const void* b, int64_t p, int64_t j) const {
    return ElementAt(shape_.type, b, shape_.transpose_b ? j * shape_.k + p : p * shape_.n + j);
  }

  const cuda::MatmulShape shape_;
};

// A tensor through a layout, as cuDNN would be told of it, in any type.
class LoopTensor {
 public:
  LoopTensor(const cuda::TensorLayout& layout, graph::DType type, void* data)
      : layout_(layout), type_(type), data_(data) {}

  [[nodiscard]] float Get(int64_t a, int64_t b, int64_t c, int64_t d) const {
    return ElementAt(type_, data_, At(a, b, c, d));
  }
  void Set(int64_t a, int64_t b, int64_t c, int64_t d, float value) const {
    SetElement(type_, data_, At(a, b, c, d), value);
  }
  template <typename Body>
  void ForEach(const Body& body) const {
    const auto& n = layout_.dimensions;
    for (int64_t a = 0; a < n[0]; ++a) {
      for (int64_t b = 0; b < n[1]; ++b) {
        for (int64_t c = 0; c < n[2]; ++c) {
          for (int64_t d = 0; d < n[3]; ++d) body(a, b, c, d);
        }
      }
    }
  }

 private:
  [[nodiscard]] int64_t At(int64_t a, int64_t b, int64_t c, int64_t d) const {
    const auto& s = layout_.strides;
    return a * s[0] + b * s[1] + c * s[2] + d * s[3];
  }
  cuda::TensorLayout layout_;
  graph::DType type_;
  void* data_;
};

class LoopConvolution final : public cuda::ConvolutionEngine {
 public:
  explicit LoopConvolution(const cuda::ConvolutionShape& shape, size_t scratch = 5)
      : shape_(shape), scratch_(scratch) {}

  [[nodiscard]] size_t workspace_bytes() const override { return scratch_; }
  Status Attach(std::span<const cuda::ConvolutionOperands> parts) override {
    parts_.assign(parts.begin(), parts.end());
    return absl::OkStatus();
  }
  Status Launch(size_t part, cudaStream_t stream) override {
    const cudaError_t error =
        LaunchOnHost(stream, [this, operands = parts_[part]] { Compute(operands); });
    return cuda::FromCuda(error, "convolution");
  }

 private:
  void Compute(const cuda::ConvolutionOperands& operands) const {
    std::memset(operands.workspace, 0xff, workspace_bytes());
    const auto type = [&](cuda::ConvolutionPass writer) {
      return shape_.pass == writer ? shape_.result : shape_.type;
    };
    const LoopTensor x(shape_.x(), type(cuda::ConvolutionPass::kInputGradient), operands.x);
    const LoopTensor w(shape_.w(), type(cuda::ConvolutionPass::kWeightGradient), operands.w);
    const LoopTensor y(shape_.y(), type(cuda::ConvolutionPass::kForward), operands.y);
    switch (shape_.pass) {
      case cuda::ConvolutionPass::kForward:
        y.ForEach([&](int64_t n, int64_t k, int64_t p, int64_t q) {
          double sum = 0;
          for (int64_t c = 0; c < shape_.group_channels(); ++c) {
            for (int64_t r = 0; r < shape_.window_height; ++r) {
              for (int64_t s = 0; s < shape_.window_width; ++s) {
                sum += At(x, n, First(k) + c, p, r, q, s) * w.Get(k, c, r, s);
              }
            }
          }
          if (shape_.bias) sum += static_cast<const float*>(operands.bias)[k];
          if (shape_.attributes.activation == graph::Activation::kRelu) sum = std::max(sum, 0.0);
          y.Set(n, k, p, q, static_cast<float>(sum));
        });
        break;
      case cuda::ConvolutionPass::kInputGradient:
        x.ForEach([&](int64_t n, int64_t c, int64_t h, int64_t v) {
          double sum = 0;
          for (int64_t k = 0; k < shape_.filters; ++k) {
            const bool reads = c >= First(k) && c < First(k) + shape_.group_channels();
            if (reads) sum += Spread(y, w, n, c, h, v, k);
          }
          x.Set(n, c, h, v, static_cast<float>(sum));
        });
        break;
      case cuda::ConvolutionPass::kWeightGradient:
        w.ForEach([&](int64_t k, int64_t c, int64_t r, int64_t s) {
          double sum = 0;
          for (int64_t n = 0; n < shape_.samples; ++n) {
            for (int64_t p = 0; p < shape_.output_height(); ++p) {
              for (int64_t q = 0; q < shape_.output_width(); ++q) {
                sum += At(x, n, First(k) + c, p, r, q, s) * y.Get(n, k, p, q);
              }
            }
          }
          w.Set(k, c, r, s, static_cast<float>(sum));
        });
        break;
    }
  }

  // The first channel that filter k reads.
  [[nodiscard]] int64_t First(int64_t k) const {
    return k / (shape_.filters / shape_.attributes.groups) * shape_.group_channels();
  }
  // x under output (p, q) and window offset (r, s), 0 in the padding.
  [[nodiscard]] double At(const LoopTensor& x, int64_t n, int64_t c, int64_t p, int64_t r,
                          int64_t q, int64_t s) const {
    const auto rows = shape_.rows();
    const auto columns = shape_.columns();
    if (!rows.inside(rows.at(p, r)) || !columns.inside(columns.at(q, s))) return 0;
    return x.Get(n, c, rows.at(p, r), columns.at(q, s));
  }
  // What filter k sends to dx(n, c, h, v).
  [[nodiscard]] double Spread(const LoopTensor& y, const LoopTensor& w, int64_t n, int64_t c,
                              int64_t h, int64_t v, int64_t k) const {
    const auto rows = shape_.rows();
    const auto columns = shape_.columns();
    double sum = 0;
    for (int64_t p = 0; p < shape_.output_height(); ++p) {
      for (int64_t r = 0; r < shape_.window_height; ++r) {
        if (rows.at(p, r) != h) continue;
        for (int64_t q = 0; q < shape_.output_width(); ++q) {
          for (int64_t s = 0; s < shape_.window_width; ++s) {
            if (columns.at(q, s) == v) sum += y.Get(n, k, p, q) * w.Get(k, c - First(k), r, s);
          }
        }
      }
    }
    return sum;
  }

  const cuda::ConvolutionShape shape_;
  const size_t scratch_;
  std::vector<cuda::ConvolutionOperands> parts_;
};

}  // namespace ringmaster::testing
