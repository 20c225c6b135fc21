// batch_norm over all axes but the last, its gradient, and inference. Own loops rather than
// oneDNN's: its fused relu needs a mask kept from forward to backward, which is computed once more
// here, and here statistics and input are read once.
//
// Sums have one fixed order whatever the thread count: rows in pieces of kPieceRows are summed in
// float32, row by row, and the pieces' sums are combined in double in their order. Variances are
// combined by Chan, Golub and LeVeque ("Updating formulae and a pairwise algorithm for computing
// sample variances", 1979), which does not cancel.
#include <cmath>

#include "worker/backend/cpu/kernel.h"
#include "worker/backend/cpu/parallel.h"
#include "worker/backend/cpu/strips.h"

namespace ringmaster::cpu {
namespace {

// A piece of 128 rows of 384 floats fits into an L2 cache of 256 KB.
constexpr int64_t kPieceRows = 128;

struct Extent {
  int64_t rows, channels;
  int threads;
  float epsilon;
  bool relu, residual;
  bool has_gamma, has_beta;

  int64_t pieces() const { return (rows + kPieceRows - 1) / kPieceRows; }
  int64_t piece_rows(int64_t piece) const {
    return std::min(kPieceRows, rows - piece * kPieceRows);
  }
  // Two vectors of channels for each piece, then four for the whole.
  size_t workspace_bytes() const {
    return sizeof(float) * static_cast<size_t>(2 * (pieces() + 2) * channels);
  }
  float* first_of(const Operands& operands, int64_t piece) const {
    return reinterpret_cast<float*>(operands.workspace) + 2 * piece * channels;
  }
  float* second_of(const Operands& operands, int64_t piece) const {
    return first_of(operands, piece) + channels;
  }
  // The operand, or zeros in workspace where there is no beta.
  const float* BetaOf(const Operands& operands, int beta) const {
    if (has_beta) return operands.input<float>(beta);
    float* zeros = second_of(operands, pieces() + 1);
    std::fill_n(zeros, channels, 0.0F);
    return zeros;
  }
};

Extent MakeExtent(const BindContext& context) {
  const auto& attributes = context.attributes<graph::BatchNormAttributes>();
  const graph::Shape& shape = context.input(0).shape;
  return {graph::Elements(shape) / shape.back(),
          shape.back(),
          context.threads,
          static_cast<float>(attributes.epsilon),
          attributes.activation == graph::Activation::kRelu,
          attributes.residual,
          attributes.scale,
          attributes.center};
}

// Mean and sum of squared deviations of one piece, by channel.
template <typename T>
void PieceMoments(const T* __restrict x, int64_t rows, int64_t channels, float* __restrict mean,
                  float* __restrict squares) {
  for (int64_t c = 0; c < channels; ++c) mean[c] = squares[c] = 0;
  for (int64_t r = 0; r < rows; ++r) {
    InStrips(
        channels,
        [mean](int64_t at, int64_t length, const auto* __restrict row) {
          for (int64_t c = 0; c < length; ++c) mean[at + c] += static_cast<float>(row[c]);
        },
        x + r * channels);
  }
  for (int64_t c = 0; c < channels; ++c) mean[c] /= static_cast<float>(rows);
  for (int64_t r = 0; r < rows; ++r) {
    InStrips(
        channels,
        [mean, squares](int64_t at, int64_t length, const auto* __restrict row) {
          for (int64_t c = 0; c < length; ++c) {
            const float deviation = static_cast<float>(row[c]) - mean[at + c];
            squares[at + c] += deviation * deviation;
          }
        },
        x + r * channels);
  }
}

template <typename T>
void Moments(const Extent& e, const Operands& operands, float* mean, float* variance) {
  const T* x = operands.input<T>(0);
  ParallelFor(e.threads, e.pieces(), [&](int64_t piece) {
    PieceMoments(x + piece * kPieceRows * e.channels, e.piece_rows(piece), e.channels,
                 e.first_of(operands, piece), e.second_of(operands, piece));
  });
  ParallelFor(e.threads, e.channels, [&](int64_t c) {
    double count = 0, whole = 0, squares = 0;
    for (int64_t piece = 0; piece < e.pieces(); ++piece) {
      const auto rows = static_cast<double>(e.piece_rows(piece));
      const double difference = static_cast<double>(e.first_of(operands, piece)[c]) - whole;
      squares += static_cast<double>(e.second_of(operands, piece)[c]) +
                 difference * difference * count * rows / (count + rows);
      whole += difference * rows / (count + rows);
      count += rows;
    }
    mean[c] = static_cast<float>(whole);
    variance[c] = static_cast<float>(squares / count);
  });
}

// scale = gamma / sqrt(variance + epsilon); a gamma that is not there is 1.
void Scales(const Extent& e, const float* gamma, const float* variance, float* scale) {
  for (int64_t c = 0; c < e.channels; ++c) {
    scale[c] = (gamma == nullptr ? 1.0F : gamma[c]) / std::sqrt(variance[c] + e.epsilon);
  }
}

// What x, of that deviation from its mean, becomes before the activation: the same operations
// wherever it is asked for, so the same bits.
inline float Scaled(float deviation, float scale, float beta) { return deviation * scale + beta; }

// y = (x - mean) scale + beta, plus the residual where there is one, clamped at 0 where there is an
// activation.
template <typename T, bool kRelu, bool kResidual>
void Normalize(const Extent& e, const T* x, const T* residual, T* y, const float* mean,
               const float* scale, const float* beta) {
  const auto normalize = [=]<typename U>(int64_t at, int64_t length, const U* __restrict from,
                                         U* __restrict to, const U* __restrict other = nullptr) {
    for (int64_t c = 0; c < length; ++c) {
      float value = Scaled(static_cast<float>(from[c]) - mean[at + c], scale[at + c], beta[at + c]);
      if constexpr (kResidual) value += static_cast<float>(other[c]);
      to[c] = U(kRelu && value <= 0 ? 0.0F : value);
    }
  };
  ParallelPieces(e.threads, e.rows, kPieceRows, [=](int64_t first, int64_t last) {
    for (int64_t r = first; r < last; ++r) {
      const int64_t at = r * e.channels;
      if constexpr (kResidual) {
        InStrips(e.channels, normalize, x + at, y + at, residual + at);
      } else {
        InStrips(e.channels, normalize, x + at, y + at);
      }
    }
  });
}

// The residual is the last operand.
template <typename T>
void NormalizeInto(const Extent& e, const Operands& operands, const float* mean,
                   const float* variance) {
  float* scale = e.first_of(operands, e.pieces());
  Scales(e, e.has_gamma ? operands.input<float>(1) : nullptr, variance, scale);
  const float* beta = e.BetaOf(operands, e.has_gamma ? 2 : 1);
  const auto normalize = e.residual
                             ? (e.relu ? Normalize<T, true, true> : Normalize<T, false, true>)
                         : e.relu ? Normalize<T, true, false>
                                  : Normalize<T, false, false>;
  normalize(e, operands.input<T>(0), operands.input<T>(operands.inputs.size() - 1),
            operands.output<T>(0), mean, scale, beta);
}

// By channel, what decides whether relu let an element pass.
struct MaskOf {
  const float *mean, *scale, *beta;
};

// What the gradient reads: dy, 0 where y, as it was stored in T, is not above 0.
template <typename T, bool kRelu>
float Masked(float dy, float deviation, const MaskOf& of, int64_t c) {
  if constexpr (!kRelu) return dy;
  const float value = Scaled(deviation, of.scale[c], of.beta[c]);
  return value <= kRoundsToZero<T> ? 0.0F : dy;
}

// Sums of dy and of dy (x - mean) over one piece, by channel.
template <typename T, bool kRelu>
void PieceGradient(const T* __restrict x, const T* __restrict dy, int64_t rows, int64_t channels,
                   const MaskOf& mask, float* __restrict sum, float* __restrict product) {
  for (int64_t c = 0; c < channels; ++c) sum[c] = product[c] = 0;
  for (int64_t r = 0; r < rows; ++r, x += channels, dy += channels) {
    InStrips(
        channels,
        [=]<typename U>(int64_t at, int64_t length, const U* __restrict x, const U* __restrict dy) {
          for (int64_t c = 0; c < length; ++c) {
            const float deviation = static_cast<float>(x[c]) - mask.mean[at + c];
            const float gradient =
                Masked<T, kRelu>(static_cast<float>(dy[c]), deviation, mask, at + c);
            sum[at + c] += gradient;
            product[at + c] += gradient * deviation;
          }
        },
        x, dy);
  }
}

// dx of one row, which may lie where dy lies.
template <typename T, bool kRelu>
void RowGradient(const T* x, const T* dy, T* dx, int64_t channels, const MaskOf& mask,
                 const float* offset, const float* slope) {
  InStrips(
      channels,
      [=]<typename U>(int64_t at, int64_t length, const U* x, const U* dy, U* dx) {
#pragma GCC ivdep
        for (int64_t c = 0; c < length; ++c) {
          const float deviation = static_cast<float>(x[c]) - mask.mean[at + c];
          const float gradient =
              Masked<T, kRelu>(static_cast<float>(dy[c]), deviation, mask, at + c);
          dx[c] = U(mask.scale[at + c] * gradient - offset[at + c] - slope[at + c] * deviation);
        }
      },
      x, dy, dx);
}

// What of dy, and of its other addend where there is one, passes the relu before whose y the
// residual was added: the residual's gradient.
template <typename T>
void PassRelu(const Operands& operands, int64_t at, int64_t count) {
  const auto pass = []<typename U>(int64_t, int64_t length, const U* __restrict dy,
                                   const U* __restrict y, U* __restrict to,
                                   const U* __restrict more = nullptr) {
    for (int64_t i = 0; i < length; ++i) {
      auto gradient = static_cast<float>(dy[i]);
      if (more != nullptr) gradient += static_cast<float>(more[i]);
      to[i] = U(static_cast<float>(y[i]) <= 0 ? 0.0F : gradient);
    }
  };
  const T* dy = operands.input<T>(1) + at;
  const T* y = operands.input<T>(6) + at;
  T* passed = operands.output<T>(3) + at;
  if (operands.inputs.size() == 7) return InStrips(count, pass, dy, y, passed);
  InStrips(count, pass, dy, y, passed, operands.input<T>(7) + at);
}

struct GradientOperands {
  const float *mean, *variance;
  const float* gamma;     // nullptr where there is none
  float *dgamma, *dbeta;  // likewise
  float *offset, *slope;  // dx = scale dy - offset - slope (x - mean)
};

// dgamma = sum(dy (x - mean)) / sqrt(variance + epsilon), dbeta = sum(dy), and the coefficients of
//   dx = scale (dy - dbeta / n - (x - mean) dgamma / (n sqrt(variance + epsilon))).
void CombineGradient(const Extent& e, const Operands& operands, const GradientOperands& g) {
  ParallelFor(e.threads, e.channels, [&](int64_t c) {
    double sum = 0, product = 0;
    for (int64_t piece = 0; piece < e.pieces(); ++piece) {
      sum += static_cast<double>(e.first_of(operands, piece)[c]);
      product += static_cast<double>(e.second_of(operands, piece)[c]);
    }
    const double inverse =
        1 / std::sqrt(static_cast<double>(g.variance[c]) + static_cast<double>(e.epsilon));
    const double gamma = e.has_gamma ? static_cast<double>(g.gamma[c]) : 1;
    const double scale = gamma * inverse / static_cast<double>(e.rows);
    if (e.has_gamma) g.dgamma[c] = static_cast<float>(product * inverse);
    if (e.has_beta) g.dbeta[c] = static_cast<float>(sum);
    g.offset[c] = static_cast<float>(scale * sum);
    g.slope[c] = static_cast<float>(scale * product * inverse * inverse);
  });
}

template <typename T, bool kRelu>
void Gradient(const Extent& e, const Operands& operands) {
  const T* x = operands.input<T>(0);
  const T* dy = e.residual ? operands.output<T>(3) : operands.input<T>(1);
  T* dx = operands.output<T>(0);
  float* offset = e.first_of(operands, e.pieces());
  float* slope = e.second_of(operands, e.pieces());
  const GradientOperands g = {
      .mean = operands.input<float>(2),
      .variance = operands.input<float>(3),
      .gamma = e.has_gamma ? operands.input<float>(4) : nullptr,
      .dgamma = e.has_gamma ? operands.output<float>(1) : nullptr,
      .dbeta = e.has_beta ? operands.output<float>(e.has_gamma ? 2 : 1) : nullptr,
      .offset = offset,
      .slope = slope};
  float* scale = e.first_of(operands, e.pieces() + 1);
  Scales(e, g.gamma, g.variance, scale);
  const float* beta = kRelu ? e.BetaOf(operands, e.has_gamma ? 5 : 4) : nullptr;
  const MaskOf mask = {g.mean, scale, beta};
  ParallelFor(e.threads, e.pieces(), [&](int64_t piece) {
    const int64_t at = piece * kPieceRows * e.channels;
    if (e.residual) PassRelu<T>(operands, at, e.piece_rows(piece) * e.channels);
    PieceGradient<T, kRelu>(x + at, dy + at, e.piece_rows(piece), e.channels, mask,
                            e.first_of(operands, piece), e.second_of(operands, piece));
  });
  CombineGradient(e, operands, g);
  ParallelPieces(e.threads, e.rows, kPieceRows, [=](int64_t first, int64_t last) {
    for (int64_t r = first; r < last; ++r) {
      const int64_t at = r * e.channels;
      RowGradient<T, kRelu>(x + at, dy + at, dx + at, e.channels, mask, offset, slope);
    }
  });
}

}  // namespace

StatusOr<std::unique_ptr<Kernel>> BindBatchNorm(BindContext& context) {
  const Extent e = MakeExtent(context);
  return WithStorage(context.input(0).dtype, [&]<typename T>(T) {
    return MakeLoop(
        [e](const Operands& operands, const RunKeys&) {
          float* mean = operands.output<float>(1);
          float* variance = operands.output<float>(2);
          Moments<T>(e, operands, mean, variance);
          NormalizeInto<T>(e, operands, mean, variance);
        },
        e.workspace_bytes());
  });
}

StatusOr<std::unique_ptr<Kernel>> BindBatchNormInference(BindContext& context) {
  const Extent e = MakeExtent(context);
  return WithStorage(context.input(0).dtype, [&]<typename T>(T) {
    return MakeLoop(
        [e](const Operands& operands, const RunKeys&) {
          const int mean = 1 + (e.has_gamma ? 1 : 0) + (e.has_beta ? 1 : 0);
          NormalizeInto<T>(e, operands, operands.input<float>(mean),
                           operands.input<float>(mean + 1));
        },
        e.workspace_bytes());
  });
}

StatusOr<std::unique_ptr<Kernel>> BindBatchNormInferenceGradient(BindContext& context) {
  const Extent e = MakeExtent(context);
  return WithStorage(context.input(0).dtype, [&]<typename T>(T) {
    return MakeLoop(
        [e](const Operands& operands, const RunKeys&) {
          float* scale = e.first_of(operands, e.pieces());
          float* zeros = e.second_of(operands, e.pieces());
          Scales(e, e.has_gamma ? operands.input<float>(1) : nullptr,
                 operands.input<float>(e.has_gamma ? 2 : 1), scale);
          std::fill_n(zeros, e.channels, 0.0F);
          Normalize<T, false, false>(e, operands.input<T>(0), nullptr, operands.output<T>(0), zeros,
                                     scale, zeros);
        },
        e.workspace_bytes());
  });
}

StatusOr<std::unique_ptr<Kernel>> BindBatchNormGradient(BindContext& context) {
  const Extent e = MakeExtent(context);
  return WithStorage(context.input(0).dtype, [&]<typename T>(T) {
    return MakeLoop(
        [e](const Operands& operands, const RunKeys&) {
          // A residual's gradient has passed the relu once for all.
          e.relu && !e.residual ? Gradient<T, true>(e, operands) : Gradient<T, false>(e, operands);
        },
        e.workspace_bytes());
  });
}

}  // namespace ringmaster::cpu
