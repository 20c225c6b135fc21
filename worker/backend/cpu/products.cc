#include "worker/backend/cpu/products.h"

#include <algorithm>
#include <dnnl.hpp>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "common/exact/block.h"
#include "worker/backend/cpu/device.h"
#include "worker/backend/cpu/kernel.h"
#include "worker/backend/cpu/layout.h"
#include "worker/backend/cpu/parallel.h"
#include "worker/backend/cpu/primitive_kernel.h"
#include "worker/backend/cpu/strips.h"

namespace ringmaster::cpu {

namespace {

using Side = PrimitiveOperand::Side;

// A matrix as it lies, row after row, or its transpose.
DnnlDesc Matrix(int64_t rows, int64_t columns, DnnlType type) {
  return DnnlDesc({rows, columns}, type, DnnlTag::ab);
}
DnnlDesc Transposed(const DnnlDesc& matrix) { return matrix.permute_axes({1, 0}); }

// x, y or a gradient of one, in the type in which the device computes on it.
PrimitiveOperand RowsOperand(const BindContext& context, const Product& p, int argument, Side side,
                             size_t index) {
  const graph::Value& value = side == Side::kInput ? context.input(index) : context.output(index);
  const DnnlType stored = value.dtype == graph::DType::kBFloat16  ? DnnlType::bf16
                          : value.dtype == graph::DType::kFloat16 ? DnnlType::f16
                                                                  : DnnlType::f32;
  const int64_t columns = graph::Elements(value.shape) / p.rows;
  return {argument, side, index, Matrix(p.rows, columns, context.device.compute_type(value.dtype)),
          Matrix(p.rows, columns, stored)};
}

PrimitiveOperand Transposed(PrimitiveOperand operand) {
  operand.compute = Transposed(operand.compute);
  operand.stored = Transposed(operand.stored);
  return operand;
}

// Input 1 as a matrix of I rows, or of O.
StatusOr<PrimitiveOperand> KernelOperand(BindContext& context, const Product& p, bool by_inputs) {
  const graph::Value& kernel = context.input(1);
  if (kernel.dtype != graph::DType::kFloat32) {
    RING_RETURN_IF_ERROR(context.UseLayout(1, CanonicalWeightDesc(kernel.shape, DnnlType::f32)));
  }
  const DnnlDesc lies = p.outputs_first ? Matrix(p.outputs, p.inputs, DnnlType::f32)
                                        : Matrix(p.inputs, p.outputs, DnnlType::f32);
  return WeightOperand(DNNL_ARG_WEIGHTS, 1, by_inputs == p.outputs_first ? Transposed(lies) : lies);
}

// operands[2] = operands[0] operands[1] + operands[3], if there is one.
StatusOr<std::unique_ptr<Kernel>> MakeMatmul(const BindContext& context,
                                             std::vector<PrimitiveOperand> operands,
                                             graph::Activation activation) {
  RING_ASSIGN_OR_RETURN(const auto choice, GuardDnnl(context.node.name, [&] {
                          const DnnlDesc bias =
                              operands.size() > 3 ? operands[3].compute : DnnlDesc();
                          return dnnl::matmul::primitive_desc(
                              {operands[0].compute, operands[1].compute, bias, operands[2].compute},
                              PrimitiveAttributes(activation), context.device.engine);
                        }));
  return MakePrimitiveKernel(context, choice, std::move(operands));
}

// y = x kernel + bias in float32, of few rows: oneDNN's matmul brings the kernel into another
// layout as it goes, which its sgemm does not, and takes a fifth longer for 64 rows.
class FewRows final : public Kernel {
 public:
  static constexpr int64_t kMost = 128;

  FewRows(const BindContext& context, const Product& p, graph::Activation activation)
      : name_(context.node.name),
        p_(p),
        has_bias_(context.node.inputs.size() > 2),
        relu_(activation == graph::Activation::kRelu),
        threads_(context.threads) {}

  [[nodiscard]] size_t workspace_bytes() const override { return 0; }
  Status Attach(const Operands& operands) override {
    operands_ = operands;
    return absl::OkStatus();
  }
  Status Run(const RunKeys& /*keys*/, const TakePiece& /*take*/) override {
    auto* const y = operands_.output<float>(0);
    RING_RETURN_IF_ERROR(DnnlStatus(
        dnnl_sgemm('N', 'N', p_.rows, p_.outputs, p_.inputs, 1, operands_.input<float>(0),
                   p_.inputs, operands_.input<float>(1), p_.outputs, 0, y, p_.outputs),
        name_));
    if (has_bias_ || relu_) {
      ParallelFor(threads_, p_.rows, [&](int64_t row) { Finish(y + row * p_.outputs); });
    }
    return absl::OkStatus();
  }

 private:
  void Finish(float* y) const {
    if (has_bias_) {
      const auto* const bias = operands_.input<float>(2);
      for (int64_t i = 0; i < p_.outputs; ++i) y[i] += bias[i];
    }
    if (!relu_) return;
    for (int64_t i = 0; i < p_.outputs; ++i) y[i] = y[i] <= 0 ? 0 : y[i];  // NaN passes
  }

  const std::string name_;
  const Product p_;
  const bool has_bias_, relu_;
  const int threads_;
  Operands operands_;
};

// A kernel's gradient is made by strips of so many of its rows: about as much as a core's own cache
// has, so that who takes a strip reads it there, and no fewer rows than products are quick with.
// Whole blocks and lines of the cache; the same on every machine, as bits may depend on it.
int64_t RowsOfStrip(int64_t rows, int64_t columns) {
  constexpr int64_t kElements = 1 << 18, kLeast = 64, kLine = 16, kBlock = exact::kBlockElements;
  const int64_t unit = std::lcm(kLine, kBlock / std::gcd(kBlock, columns));
  const int64_t wanted = std::max(kElements / columns, kLeast);
  return std::min(rows, (wanted + unit - 1) / unit * unit);
}

// left^T right: strips of its rows are products with strips of left's columns.
class StripedProduct final : public Kernel {
 public:
  struct Strip {
    std::unique_ptr<Kernel> product;
    int64_t first, rows;
  };

  // Operand `left` has `left_bytes` bytes an element.
  StripedProduct(std::vector<Strip> strips, int64_t columns, size_t left, size_t left_bytes)
      : strips_(std::move(strips)), columns_(columns), left_(left), left_bytes_(left_bytes) {
    for (const Strip& strip : strips_) {
      scratch_bytes_ = std::max(scratch_bytes_, AlignUp(strip.product->workspace_bytes()));
    }
  }

  [[nodiscard]] bool MakePieces() override { return in_pieces_ = true; }
  [[nodiscard]] size_t workspace_bytes() const override {
    return scratch_bytes_ + (in_pieces_ ? ElementsOf(strips_.front()) * sizeof(float) : 0);
  }
  Status Attach(const Operands& operands) override {
    product_ = in_pieces_ ? reinterpret_cast<float*>(operands.workspace + scratch_bytes_)
                          : operands.output<float>(0);
    for (const Strip& strip : strips_) {
      Operands part = operands;
      part.inputs[left_] =
          operands.input<std::byte>(left_) + static_cast<size_t>(strip.first) * left_bytes_;
      part.outputs[0] = in_pieces_ ? product_ : product_ + strip.first * columns_;
      RING_RETURN_IF_ERROR(strip.product->Attach(part));
    }
    return absl::OkStatus();
  }
  Status Run(const RunKeys& keys, const TakePiece& take) override {
    for (const Strip& strip : strips_) {
      RING_RETURN_IF_ERROR(strip.product->Run(keys, {}));
      if (!in_pieces_) continue;
      take(static_cast<size_t>(strip.first * columns_), {product_, ElementsOf(strip)});
    }
    return absl::OkStatus();
  }

 private:
  [[nodiscard]] size_t ElementsOf(const Strip& strip) const {
    return static_cast<size_t>(strip.rows * columns_);
  }

  const std::vector<Strip> strips_;
  const int64_t columns_;
  const size_t left_, left_bytes_;
  size_t scratch_bytes_ = 0;
  bool in_pieces_ = false;
  float* product_ = nullptr;  // or the strip in hand
};

// Output 1 of a weight gradient beside a kernel that makes output 0: the sums of dy by column, each
// in double, row by row.
class WithBiasGradient final : public Kernel {
 public:
  WithBiasGradient(std::unique_ptr<Kernel> product, const Product& p, graph::DType dtype,
                   int threads)
      : product_(std::move(product)),
        rows_(p.rows),
        columns_(p.outputs),
        dtype_(dtype),
        threads_(threads) {}

  [[nodiscard]] bool MakePieces() override { return product_->MakePieces(); }
  [[nodiscard]] size_t workspace_bytes() const override { return product_->workspace_bytes(); }
  Status Attach(const Operands& operands) override {
    operands_ = operands;
    return product_->Attach(operands);
  }
  Status Run(const RunKeys& keys, const TakePiece& take) override {
    WithStorage(dtype_, [&]<typename T>(T) {
      ParallelFor(threads_, (columns_ + kBlock - 1) / kBlock,
                  [&](int64_t block) { SumColumns<T>(block * kBlock); });
    });
    return product_->Run(keys, take);
  }

 private:
  static constexpr int64_t kBlock = 256;  // sums that are open at a time: 2 KB

  template <typename T>
  void SumColumns(int64_t first) const {
    double sums[kBlock] = {};
    const int64_t count = std::min(kBlock, columns_ - first);
    for (int64_t row = 0; row < rows_; ++row) {
      InStrips(
          count,
          [&](int64_t at, int64_t length, const auto* dy) {
            for (int64_t i = 0; i < length; ++i) {
              sums[at + i] += static_cast<double>(static_cast<float>(dy[i]));
            }
          },
          operands_.input<T>(1) + row * columns_ + first);
    }
    for (int64_t i = 0; i < count; ++i) {
      operands_.output<float>(1)[first + i] = static_cast<float>(sums[i]);
    }
  }

  const std::unique_ptr<Kernel> product_;
  const int64_t rows_, columns_;
  const graph::DType dtype_;
  const int threads_;
  Operands operands_;
};

}  // namespace

bool Product::IsFor(const Device& device, graph::DType dtype) {
  return device.compute_type(dtype) == DnnlType::f32;
}

StatusOr<std::unique_ptr<Kernel>> BindProduct(BindContext& context, const Product& p,
                                              graph::Activation activation) {
  RING_ASSIGN_OR_RETURN(PrimitiveOperand kernel, KernelOperand(context, p, true));
  const bool float32 = context.input(0).dtype == graph::DType::kFloat32 &&
                       context.output(0).dtype == graph::DType::kFloat32;
  if (float32 && !p.outputs_first && p.rows <= FewRows::kMost) {
    return std::make_unique<FewRows>(context, p, activation);
  }
  std::vector<PrimitiveOperand> operands = {
      RowsOperand(context, p, DNNL_ARG_SRC, Side::kInput, 0), std::move(kernel),
      RowsOperand(context, p, DNNL_ARG_DST, Side::kOutput, 0)};
  if (context.node.inputs.size() > 2) {
    operands.push_back(WeightOperand(DNNL_ARG_BIAS, 2, Matrix(1, p.outputs, DnnlType::f32)));
  }
  return MakeMatmul(context, std::move(operands), activation);
}

StatusOr<std::unique_ptr<Kernel>> BindProductInputGradient(BindContext& context, const Product& p) {
  RING_ASSIGN_OR_RETURN(PrimitiveOperand kernel, KernelOperand(context, p, false));
  return MakeMatmul(context,
                    {RowsOperand(context, p, DNNL_ARG_SRC, Side::kInput, 0), std::move(kernel),
                     RowsOperand(context, p, DNNL_ARG_DST, Side::kOutput, 0)},
                    graph::Activation::kNone);
}

StatusOr<std::unique_ptr<Kernel>> BindProductWeightGradient(BindContext& context,
                                                            const Product& p) {
  // dw = xT dy, or its transpose.
  const size_t left = p.outputs_first ? 1 : 0;
  const int64_t rows = p.outputs_first ? p.outputs : p.inputs;
  const int64_t columns = p.outputs_first ? p.inputs : p.outputs;
  const PrimitiveOperand a = Transposed(RowsOperand(context, p, DNNL_ARG_SRC, Side::kInput, left));
  const PrimitiveOperand b = RowsOperand(context, p, DNNL_ARG_WEIGHTS, Side::kInput, 1 - left);
  // What each strip would convert anew is converted once.
  const bool converts = a.compute != a.stored || b.compute != b.stored;
  const int64_t most = converts ? rows : RowsOfStrip(rows, columns);
  std::vector<StripedProduct::Strip> strips;
  for (int64_t first = 0; first < rows; first += most) {
    const int64_t count = std::min(most, rows - first);
    PrimitiveOperand part = a;
    if (count < rows)
      part.compute = part.stored = a.compute.submemory_desc({count, p.rows}, {0, 0});
    const DnnlDesc dw = Matrix(count, columns, DnnlType::f32);
    RING_ASSIGN_OR_RETURN(
        auto strip,
        MakeMatmul(context, {std::move(part), b, {DNNL_ARG_DST, Side::kOutput, 0, dw, dw}},
                   graph::Activation::kNone));
    strips.push_back({std::move(strip), first, count});
  }
  auto product = std::make_unique<StripedProduct>(std::move(strips), columns, left,
                                                  graph::ByteSize(context.input(left).dtype));
  if (context.node.outputs.size() == 1) return product;
  return std::make_unique<WithBiasGradient>(std::move(product), p, context.input(1).dtype,
                                            context.threads);
}

// dense and its gradients: in float32 products with the canonical kernel; in bfloat16
// oneDNN's inner product, which chooses the layout of kernels, and for the kernel's gradient a
// product that leaves it canonical I,O, as each element of it is written once and read once.

namespace {

// The product that a node computes or differentiates, as the descriptors of its forward pass.
struct InnerProduct {
  DnnlDesc x, w, y;
};

InnerProduct DescribeProduct(const BindContext& context, const graph::Value& x,
                             const graph::Value& w, const graph::Value& y) {
  const auto type = [&](const graph::Value& value) {
    return context.device.compute_type(value.dtype);
  };
  return {ActivationDesc(x.shape, type(x)), AnyWeightDesc(w.shape, type(w)),
          ActivationDesc(y.shape, type(y))};
}

dnnl::inner_product_forward::primitive_desc ProductHint(const BindContext& context,
                                                        const InnerProduct& p,
                                                        const DnnlDesc& weights) {
  return {{dnnl::prop_kind::forward_training, p.x, weights, p.y},
          PrimitiveAttributes(graph::Activation::kNone),
          context.device.engine};
}

// `w`: the kernel or one of its shape.
Product ProductOf(const graph::Value& x, const graph::Value& w) {
  return {x.shape[0], w.shape[0], w.shape[1], false};
}

}  // namespace

StatusOr<std::unique_ptr<Kernel>> BindDense(BindContext& context) {
  if (Product::IsFor(context.device, context.input(0).dtype)) {
    return BindProduct(context, ProductOf(context.input(0), context.input(1)),
                       context.attributes<graph::DenseAttributes>().activation);
  }
  const InnerProduct p =
      DescribeProduct(context, context.input(0), context.input(1), context.output(0));
  const bool has_bias = context.node.inputs.size() > 2;
  RING_ASSIGN_OR_RETURN(const auto choice, GuardDnnl(context.node.name, [&] {
                          const auto attributes = PrimitiveAttributes(
                              context.attributes<graph::DenseAttributes>().activation);
                          const DnnlDesc bias = has_bias ? BiasDesc(context.input(2)) : DnnlDesc();
                          return dnnl::inner_product_forward::primitive_desc(
                              {dnnl::prop_kind::forward_training, p.x, p.w, bias, p.y}, attributes,
                              context.device.engine);
                        }));
  return MakeForwardKernel(context, choice);
}

StatusOr<std::unique_ptr<Kernel>> BindDenseInputGradient(BindContext& context) {
  if (Product::IsFor(context.device, context.input(0).dtype)) {
    return BindProductInputGradient(context, ProductOf(context.output(0), context.input(1)));
  }
  const InnerProduct p =
      DescribeProduct(context, context.output(0), context.input(1), context.input(0));
  RING_ASSIGN_OR_RETURN(const auto choice, GuardDnnl(context.node.name, [&] {
                          return dnnl::inner_product_backward_data::primitive_desc(
                              {p.x, p.w, p.y}, PrimitiveAttributes(graph::Activation::kNone),
                              context.device.engine, ProductHint(context, p, p.w));
                        }));
  return MakeInputGradientKernel(context, choice);
}

StatusOr<std::unique_ptr<Kernel>> BindDenseWeightGradient(BindContext& context) {
  return BindProductWeightGradient(context, ProductOf(context.input(0), context.output(0)));
}

}  // namespace ringmaster::cpu
