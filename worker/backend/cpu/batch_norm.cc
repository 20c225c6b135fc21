// batch_norm over all axes but the last, its gradient, and inference. Own loops rather than
// oneDNN's: its fused relu needs a mask kept from forward to backward, which is computed once more
// here, and here statistics and input are read once.
//
// Rows of few channels are taken several at a time, as one *wide row*, so that loops have something
// to fill vectors with; what there is by channel stands there once for each row of them, by *lane*.
// Sums have one fixed order whatever the thread count: wide rows in pieces of kPieceRows are summed
// in float32, row by row, and the pieces' lanes are combined in double in their order. Variances
// are combined by Chan, Golub and LeVeque ("Updating formulae and a pairwise algorithm for
// computing sample variances", 1979), which does not cancel.
#include <bit>
#include <cmath>
#include <tuple>

#include "common/graph/ops/unary.h"
#include "worker/backend/cpu/kernel.h"
#include "worker/backend/cpu/packet.h"
#include "worker/backend/cpu/parallel.h"
#include "worker/backend/cpu/strips.h"

namespace ringmaster::cpu {
namespace {

using graph::Activation;

// body.operator()<kActivation>()
template <typename Body>
decltype(auto) WithActivation(Activation activation, Body&& body) {
  switch (activation) {
    case Activation::kRelu:
      return body.template operator()<Activation::kRelu>();
    case Activation::kRelu6:
      return body.template operator()<Activation::kRelu6>();
    case Activation::kSwish:
      return body.template operator()<Activation::kSwish>();
    case Activation::kNone:
      break;
  }
  return body.template operator()<Activation::kNone>();
}

// A piece of 128 wide rows of 384 floats fits into an L2 cache of 256 KB.
constexpr int64_t kPieceRows = 128;
constexpr int64_t kWideRow = 64;   // lanes, at least
constexpr int64_t kSumBlock = 64;  // whose sums are combined at a time

struct Extent {
  int64_t rows, channels;
  int64_t group;  // rows of a wide row
  int threads;
  float epsilon;
  Activation activation;
  bool residual;
  bool has_gamma, has_beta;

  int64_t lanes() const { return group * channels; }
  int64_t piece_rows() const { return kPieceRows * group; }
  int64_t pieces() const { return (rows + piece_rows() - 1) / piece_rows(); }
  int64_t rows_of(int64_t piece) const {
    return std::min(piece_rows(), rows - piece * piece_rows());
  }
  // Two vectors of lanes for each piece, then five for the whole.
  size_t workspace_bytes() const {
    return sizeof(float) * static_cast<size_t>((2 * pieces() + 5) * lanes());
  }
  float* first_of(const Operands& operands, int64_t piece) const {
    return reinterpret_cast<float*>(operands.workspace) + 2 * piece * lanes();
  }
  float* second_of(const Operands& operands, int64_t piece) const {
    return first_of(operands, piece) + lanes();
  }
  // Vector `i` of five.
  float* whole(const Operands& operands, int i) const {
    return first_of(operands, pieces()) + i * lanes();
  }
};

Extent MakeExtent(const BindContext& context) {
  const auto& attributes = context.attributes<graph::BatchNormAttributes>();
  const graph::Shape& shape = context.input(0).shape;
  const auto few = static_cast<uint64_t>((kWideRow + shape.back() - 1) / shape.back());
  return {graph::Elements(shape) / shape.back(),
          shape.back(),
          static_cast<int64_t>(std::bit_ceil(few)),
          context.threads,
          static_cast<float>(attributes.epsilon),
          attributes.activation,
          attributes.residual,
          attributes.scale,
          attributes.center};
}

// A value by channel (nullptr: 0) for each lane.
const float* ToLanes(const Extent& e, const float* values, float* lanes) {
  for (int64_t at = 0; at < e.lanes(); at += e.channels) {
    values == nullptr ? std::fill_n(lanes + at, e.channels, 0.0F)
                      : std::copy_n(values, e.channels, lanes + at);
  }
  return lanes;
}

// body(at, length, row...) for the wide rows of `rows` rows of each of `arrays`, four vectors of
// them at a time where there are as many, so that a sum is read and written once for all: row 0 of
// each array, then row 1 of each. The last wide row may be shorter.
template <typename Body, typename... T>
void ForWideRows(const Extent& e, int64_t rows, const Body& body, const T*... arrays) {
  const int64_t lanes = e.lanes();
  int64_t at = 0;
  const auto take = [&]<size_t... kRow>(std::index_sequence<kRow...>) {
    const auto row = [&](size_t i) {
      return std::tuple((arrays + at + static_cast<int64_t>(i) * lanes)...);
    };
    std::apply([&](const auto*... parts) { InStrips(lanes, body, parts...); },
               std::tuple_cat(row(kRow)...));
    at += static_cast<int64_t>(sizeof...(kRow)) * lanes;
    rows -= static_cast<int64_t>(sizeof...(kRow)) * e.group;
  };
  constexpr int64_t kAtATime = 4 / sizeof...(T);
  while (rows >= kAtATime * e.group) take(std::make_index_sequence<kAtATime>());
  while (rows >= e.group) take(std::make_index_sequence<1>());
  if (rows > 0) InStrips(rows * e.channels, body, (arrays + at)...);
}

// Of a piece of `rows` rows, how many went into the lanes of row `row` of a wide row.
int64_t RowsOfLane(const Extent& e, int64_t rows, int64_t row) {
  return rows / e.group + (row < rows % e.group ? 1 : 0);
}

// Mean and sum of squared deviations of one piece, by lane; zeros where no row went into a lane.
template <typename T>
void PieceMoments(const Extent& e, const T* x, int64_t rows, float* mean, float* squares) {
  std::fill_n(mean, e.lanes(), 0.0F);
  std::fill_n(squares, e.lanes(), 0.0F);
  const auto sum_up = [mean](int64_t at, int64_t length, const auto* __restrict... row) {
#pragma GCC ivdep
    for (int64_t i = 0; i < length; ++i) {
      float sum = mean[at + i];
      ((sum += static_cast<float>(row[i])), ...);
      mean[at + i] = sum;
    }
  };
  ForWideRows(e, rows, sum_up, x);
  for (int64_t row = 0; row < e.group; ++row) {
    const auto count = static_cast<float>(std::max<int64_t>(1, RowsOfLane(e, rows, row)));
    for (int64_t c = row * e.channels; c < (row + 1) * e.channels; ++c) mean[c] /= count;
  }
  const auto sum_squares = [=](int64_t at, int64_t length, const auto* __restrict... row) {
    const auto square = [](float deviation) { return deviation * deviation; };
#pragma GCC ivdep
    for (int64_t i = 0; i < length; ++i) {
      const float center = mean[at + i];
      float sum = squares[at + i];
      ((sum += square(static_cast<float>(row[i]) - center)), ...);
      squares[at + i] = sum;
    }
  };
  ForWideRows(e, rows, sum_squares, x);
}

// Mean and variance of up to kSumBlock channels from `first` on, of those of the pieces.
void CombineMoments(const Extent& e, const Operands& operands, int64_t first, int64_t channels,
                    float* mean, float* variance) {
  double whole[kSumBlock] = {}, squares[kSumBlock] = {}, count = 0;
  for (int64_t piece = 0; piece < e.pieces(); ++piece) {
    for (int64_t row = 0; row < e.group; ++row) {
      const auto more = static_cast<double>(RowsOfLane(e, e.rows_of(piece), row));
      if (more == 0) break;
      const double spread = count * more / (count + more), share = more / (count + more);
      const float* means = e.first_of(operands, piece) + row * e.channels + first;
      const float* sums = e.second_of(operands, piece) + row * e.channels + first;
      for (int64_t c = 0; c < channels; ++c) {
        const double difference = static_cast<double>(means[c]) - whole[c];
        squares[c] += static_cast<double>(sums[c]) + difference * difference * spread;
        whole[c] += difference * share;
      }
      count += more;
    }
  }
  for (int64_t c = 0; c < channels; ++c) {
    mean[first + c] = static_cast<float>(whole[c]);
    variance[first + c] = static_cast<float>(squares[c] / count);
  }
}

template <typename T>
void Moments(const Extent& e, const Operands& operands, float* mean, float* variance) {
  const T* x = operands.input<T>(0);
  ParallelFor(e.threads, e.pieces(), [&](int64_t piece) {
    PieceMoments(e, x + piece * e.piece_rows() * e.channels, e.rows_of(piece),
                 e.first_of(operands, piece), e.second_of(operands, piece));
  });
  ParallelPieces(e.threads, e.channels, kSumBlock, [&](int64_t first, int64_t last) {
    CombineMoments(e, operands, first, last - first, mean, variance);
  });
}

// scale = gamma / sqrt(variance + epsilon), by lane; a gamma that is not there is 1.
const float* Scales(const Extent& e, const float* gamma, const float* variance, float* scale) {
  for (int64_t c = 0; c < e.channels; ++c) {
    scale[c] = (gamma == nullptr ? 1.0F : gamma[c]) / std::sqrt(variance[c] + e.epsilon);
  }
  for (int64_t at = e.channels; at < e.lanes(); at += e.channels) {
    std::copy_n(scale, e.channels, scale + at);
  }
  return scale;
}

// What x, of that deviation from its mean, becomes before the activation: the same operations
// wherever it is asked for, so the same bits.
inline auto Scaled(auto deviation, auto scale, auto beta) { return deviation * scale + beta; }

// By lane, what makes y of x.
struct LinesOf {
  const float *mean, *scale, *beta;
};

// NaN passes.
template <Activation kActivation>
float Clamped(float value) {
  if constexpr (kActivation == Activation::kNone) return value;
  const float upper = kActivation == Activation::kRelu6 && value >= 6 ? 6.0F : value;
  return value <= 0 ? 0.0F : upper;
}

// y = (x - mean) scale + beta, plus the residual where there is one, behind the activation.
template <typename T, Activation kActivation, bool kResidual>
void Normalize(const Extent& e, const T* x, const T* residual, T* y, const LinesOf& lines) {
  const auto normalize = [=]<typename U>(int64_t at, int64_t length, const U* __restrict from,
                                         U* __restrict to, const U* __restrict other = nullptr) {
    for (int64_t i = 0; i < length; ++i) {
      float value = Scaled(static_cast<float>(from[i]) - lines.mean[at + i], lines.scale[at + i],
                           lines.beta[at + i]);
      if constexpr (kResidual) value += static_cast<float>(other[i]);
      to[i] = U(Clamped<kActivation>(value));
    }
  };
  ParallelPieces(e.threads, e.rows, e.piece_rows(), [=](int64_t first, int64_t last) {
    for (int64_t r = first; r < last; r += e.group) {
      const int64_t at = r * e.channels;
      const int64_t length = std::min(e.group, last - r) * e.channels;
      if constexpr (kActivation == Activation::kSwish) {
        const auto swish = [](Packet x, Packet mean, Packet scale, Packet beta) {
          return graph::Swish{}.Forward(Scaled(x - mean, scale, beta));
        };
        MapPackets(length, swish, y + at, x + at, lines.mean, lines.scale, lines.beta);
      } else if constexpr (kResidual) {
        InStrips(length, normalize, x + at, y + at, residual + at);
      } else {
        InStrips(length, normalize, x + at, y + at);
      }
    }
  });
}

LinesOf MakeLines(const Extent& e, const Operands& operands, const float* mean,
                  const float* variance, const float* gamma, const float* beta) {
  return {ToLanes(e, mean, e.whole(operands, 0)), Scales(e, gamma, variance, e.whole(operands, 1)),
          ToLanes(e, beta, e.whole(operands, 2))};
}

// The residual is the last operand.
template <typename T>
void NormalizeInto(const Extent& e, const Operands& operands, const float* mean,
                   const float* variance) {
  const float* gamma = e.has_gamma ? operands.input<float>(1) : nullptr;
  const float* beta = e.has_beta ? operands.input<float>(e.has_gamma ? 2 : 1) : nullptr;
  const auto normalize = WithActivation(e.activation, [&]<Activation kActivation>() {
    return e.residual ? Normalize<T, kActivation, true> : Normalize<T, kActivation, false>;
  });
  normalize(e, operands.input<T>(0), operands.input<T>(operands.inputs.size() - 1),
            operands.output<T>(0), MakeLines(e, operands, mean, variance, gamma, beta));
}

// What the gradient reads: dy, 0 where y, as it was stored in T, is at a bound of the activation.
template <typename T, Activation kActivation>
float Masked(float dy, float deviation, const LinesOf& lines, int64_t lane) {
  if constexpr (kActivation == Activation::kNone) return dy;
  const float value = Scaled(deviation, lines.scale[lane], lines.beta[lane]);
  const float passed = kActivation == Activation::kRelu6 && value >= kRoundsToSix<T> ? 0.0F : dy;
  return value <= kRoundsToZero<T> ? 0.0F : passed;
}

// add(x, dy) of one row after the other.
template <typename Add, typename U, typename... Rest>
void ForPairs(const Add& add, const U* x, const U* dy, const Rest*... rest) {
  add(x, dy);
  if constexpr (sizeof...(rest) > 0) ForPairs(add, rest...);
}

// Sums of dy and of dy (x - mean) over one piece, by lane.
template <typename T, Activation kActivation>
void PieceGradient(const Extent& e, const T* x, const T* dy, int64_t rows, const LinesOf& lines,
                   float* sums, float* products) {
  std::fill_n(sums, e.lanes(), 0.0F);
  std::fill_n(products, e.lanes(), 0.0F);
  const auto add = [=](int64_t at, int64_t length, const auto* __restrict... row) {
#pragma GCC ivdep
    for (int64_t i = 0; i < length; ++i) {
      float sum = sums[at + i], product = products[at + i];
      ForPairs(
          [&](const auto* x, const auto* dy) {
            const float deviation = static_cast<float>(x[i]) - lines.mean[at + i];
            const float gradient =
                Masked<T, kActivation>(static_cast<float>(dy[i]), deviation, lines, at + i);
            sum += gradient;
            product += gradient * deviation;
          },
          row...);
      sums[at + i] = sum;
      products[at + i] = product;
    }
  };
  ForWideRows(e, rows, add, x, dy);
}

// dx of a wide row, or the beginning of one, which may lie where dy lies.
template <typename T, Activation kActivation>
void RowGradient(const T* x, const T* dy, T* dx, int64_t length, const LinesOf& lines,
                 const float* offset, const float* slope) {
  InStrips(
      length,
      [=]<typename U>(int64_t at, int64_t length, const U* x, const U* dy, U* dx) {
#pragma GCC ivdep
        for (int64_t i = 0; i < length; ++i) {
          const float deviation = static_cast<float>(x[i]) - lines.mean[at + i];
          const float gradient =
              Masked<T, kActivation>(static_cast<float>(dy[i]), deviation, lines, at + i);
          dx[i] = U(lines.scale[at + i] * gradient - offset[at + i] - slope[at + i] * deviation);
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

// What of dy passes a swish, whose input is computed once more; it may lie where dy lies.
template <typename T>
void PassSwish(const Extent& e, const T* x, const T* dy, T* passed, int64_t count,
               const LinesOf& lines) {
  const auto pass = [](Packet x, Packet dy, Packet mean, Packet scale, Packet beta) {
    return graph::Swish{}.Backward(Scaled(x - mean, scale, beta), dy);
  };
  for (int64_t at = 0; at < count; at += e.lanes()) {
    const int64_t length = std::min(e.lanes(), count - at);
    MapPackets(length, pass, passed + at, x + at, dy + at, lines.mean, lines.scale, lines.beta);
  }
}

struct GradientOperands {
  const float* variance;
  const float* gamma;     // nullptr where there is none
  float *dgamma, *dbeta;  // likewise
  float *offset, *slope;  // by lane: dx = scale dy - offset - slope (x - mean)
};

// Of up to kSumBlock channels from `first` on: dgamma = sum(dy (x - mean)) / sqrt(variance +
// epsilon), dbeta = sum(dy), and the coefficients of
//   dx = scale (dy - dbeta / n - (x - mean) dgamma / (n sqrt(variance + epsilon))).
void CombineGradient(const Extent& e, const Operands& operands, const GradientOperands& g,
                     int64_t first, int64_t channels) {
  double sums[kSumBlock] = {}, products[kSumBlock] = {};
  for (int64_t piece = 0; piece < e.pieces(); ++piece) {
    for (int64_t at = first; at < e.lanes(); at += e.channels) {
      const float* sum = e.first_of(operands, piece) + at;
      const float* product = e.second_of(operands, piece) + at;
      for (int64_t c = 0; c < channels; ++c) sums[c] += static_cast<double>(sum[c]);
      for (int64_t c = 0; c < channels; ++c) products[c] += static_cast<double>(product[c]);
    }
  }
  for (int64_t c = 0; c < channels; ++c) {
    const int64_t channel = first + c;
    const double inverse =
        1 / std::sqrt(static_cast<double>(g.variance[channel]) + static_cast<double>(e.epsilon));
    const double gamma = e.has_gamma ? static_cast<double>(g.gamma[channel]) : 1;
    const double scale = gamma * inverse / static_cast<double>(e.rows);
    if (e.has_gamma) g.dgamma[channel] = static_cast<float>(products[c] * inverse);
    if (e.has_beta) g.dbeta[channel] = static_cast<float>(sums[c]);
    for (int64_t at = channel; at < e.lanes(); at += e.channels) {
      g.offset[at] = static_cast<float>(scale * sums[c]);
      g.slope[at] = static_cast<float>(scale * products[c] * inverse * inverse);
    }
  }
}

// What passes a swish is written where dx will lie, rounded as that is, and read there: one more
// write instead of another exponential and division for each element.
template <typename T, Activation kActivation>
void Gradient(const Extent& e, const Operands& operands) {
  constexpr bool kIsSwish = kActivation == Activation::kSwish;
  constexpr Activation kLeft = kIsSwish ? Activation::kNone : kActivation;
  const T* x = operands.input<T>(0);
  T* dx = operands.output<T>(0);
  const T* dy = kIsSwish ? dx : e.residual ? operands.output<T>(3) : operands.input<T>(1);
  const GradientOperands g = {
      .variance = operands.input<float>(3),
      .gamma = e.has_gamma ? operands.input<float>(4) : nullptr,
      .dgamma = e.has_gamma ? operands.output<float>(1) : nullptr,
      .dbeta = e.has_beta ? operands.output<float>(e.has_gamma ? 2 : 1) : nullptr,
      .offset = e.whole(operands, 3),
      .slope = e.whole(operands, 4)};
  const float* beta = kActivation != Activation::kNone && e.has_beta
                          ? operands.input<float>(e.has_gamma ? 5 : 4)
                          : nullptr;
  const LinesOf lines = MakeLines(e, operands, operands.input<float>(2), g.variance, g.gamma, beta);
  ParallelFor(e.threads, e.pieces(), [&](int64_t piece) {
    const int64_t at = piece * e.piece_rows() * e.channels;
    const int64_t count = e.rows_of(piece) * e.channels;
    if (e.residual) PassRelu<T>(operands, at, count);
    if constexpr (kIsSwish) {
      PassSwish(e, x + at, operands.input<T>(1) + at, dx + at, count, lines);
    }
    PieceGradient<T, kLeft>(e, x + at, dy + at, e.rows_of(piece), lines,
                            e.first_of(operands, piece), e.second_of(operands, piece));
  });
  ParallelPieces(e.threads, e.channels, kSumBlock, [&](int64_t first, int64_t last) {
    CombineGradient(e, operands, g, first, last - first);
  });
  ParallelPieces(e.threads, e.rows, e.piece_rows(), [=](int64_t first, int64_t last) {
    for (int64_t r = first; r < last; r += e.group) {
      const int64_t at = r * e.channels;
      RowGradient<T, kLeft>(x + at, dy + at, dx + at, std::min(e.group, last - r) * e.channels,
                            lines, g.offset, g.slope);
    }
  });
}

// run.operator()<T>(extent, operands)
template <typename Run>
StatusOr<std::unique_ptr<Kernel>> BindByRows(const BindContext& context, const Run& run) {
  const Extent e = MakeExtent(context);
  return WithStorage(context.input(0).dtype, [&]<typename T>(T) {
    const auto body = [=](const Operands& operands, const RunKeys&) {
      run.template operator()<T>(e, operands);
    };
    return MakeLoop(body, e.workspace_bytes());
  });
}

}  // namespace

StatusOr<std::unique_ptr<Kernel>> BindBatchNorm(BindContext& context) {
  return BindByRows(context, []<typename T>(const Extent& e, const Operands& operands) {
    float* mean = operands.output<float>(1);
    float* variance = operands.output<float>(2);
    Moments<T>(e, operands, mean, variance);
    NormalizeInto<T>(e, operands, mean, variance);
  });
}

StatusOr<std::unique_ptr<Kernel>> BindBatchNormInference(BindContext& context) {
  return BindByRows(context, []<typename T>(const Extent& e, const Operands& operands) {
    const int mean = 1 + (e.has_gamma ? 1 : 0) + (e.has_beta ? 1 : 0);
    NormalizeInto<T>(e, operands, operands.input<float>(mean), operands.input<float>(mean + 1));
  });
}

StatusOr<std::unique_ptr<Kernel>> BindBatchNormInferenceGradient(BindContext& context) {
  return BindByRows(context, []<typename T>(const Extent& e, const Operands& operands) {
    const float* variance = operands.input<float>(e.has_gamma ? 2 : 1);
    const float* zeros = ToLanes(e, nullptr, e.whole(operands, 0));
    const float* gamma = e.has_gamma ? operands.input<float>(1) : nullptr;
    Normalize<T, Activation::kNone, false>(
        e, operands.input<T>(0), nullptr, operands.output<T>(0),
        {zeros, Scales(e, gamma, variance, e.whole(operands, 1)), zeros});
  });
}

StatusOr<std::unique_ptr<Kernel>> BindBatchNormGradient(BindContext& context) {
  return BindByRows(context, []<typename T>(const Extent& e, const Operands& operands) {
    // A residual's gradient has passed the relu once for all.
    WithActivation(e.residual ? Activation::kNone : e.activation,
                   [&]<Activation kActivation>() { Gradient<T, kActivation>(e, operands); });
  });
}

}  // namespace ringmaster::cpu
