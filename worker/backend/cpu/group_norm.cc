// group_norm, layer_norm and their gradients. A set of elements that are normalized together is one
// thread's, its sums in double, row by row in LaneSum's order. Gradients of gamma and beta are sums
// over all rows of x in their order, in double, one thread a block of channels.
#include "common/graph/ops/group_norm.h"

#include <cmath>

#include "worker/backend/cpu/kernel.h"
#include "worker/backend/cpu/parallel.h"
#include "worker/backend/cpu/strips.h"

namespace ringmaster::cpu {
namespace {

using graph::NormSets;

constexpr int64_t kBlockChannels = 128;  // sums that are open at a time

// Where gamma and beta are among the operands; 0 where they are not.
struct NormOperands {
  size_t gamma, beta;

  static const float* At(const Operands& operands, size_t i) {
    return i == 0 ? nullptr : operands.input<float>(i);
  }
};

// The mean of f(i, position's offset) over a set.
template <typename F>
double SetMean(const NormSets& sets, const F& add) {
  LaneSum sum;
  for (int64_t position = 0; position < sets.positions; ++position) add(position, &sum);
  return sum.Total() / static_cast<double>(sets.elements());
}

template <typename T>
double MeanOf(const NormSets& sets, int64_t set, const T* x) {
  return SetMean(sets, [&](int64_t position, LaneSum* sum) {
    InStrips(
        sets.channels,
        [=](int64_t, int64_t length, const auto* x) {
          sum->Add(length, [=](int64_t i) { return static_cast<float>(x[i]); });
        },
        x + sets.At(set, position));
  });
}

template <typename T>
double VarianceOf(const NormSets& sets, int64_t set, const T* x, float mean) {
  return SetMean(sets, [&](int64_t position, LaneSum* sum) {
    InStrips(
        sets.channels,
        [=](int64_t, int64_t length, const auto* x) {
          sum->Add(length, [=](int64_t i) {
            const auto deviation = static_cast<double>(static_cast<float>(x[i]) - mean);
            return deviation * deviation;
          });
        },
        x + sets.At(set, position));
  });
}

// y of a set; gamma and beta of its channels, nullptr: 1 and 0.
template <typename T>
void NormalizeSet(const NormSets& sets, int64_t set, const T* x, T* y, float mean, float inverse,
                  const float* gamma, const float* beta) {
  for (int64_t position = 0; position < sets.positions; ++position) {
    const int64_t at = sets.At(set, position);
    InStrips(
        sets.channels,
        [=]<typename U>(int64_t at, int64_t length, const U* x, U* y) {
          for (int64_t i = 0; i < length; ++i) {
            const float normalized = (static_cast<float>(x[i]) - mean) * inverse;
            const float scaled = gamma == nullptr ? normalized : normalized * gamma[at + i];
            y[i] = U(beta == nullptr ? scaled : scaled + beta[at + i]);
          }
        },
        x + at, y + at);
  }
}

// dy, times gamma where there is one.
template <typename U>
float ScaledGradient(const U* dy, const float* gamma, int64_t i) {
  const auto gradient = static_cast<float>(dy[i]);
  return gamma == nullptr ? gradient : gradient * gamma[i];
}

// dx of a set: r (g - mean(g) - n mean(g n)), g = gamma dy, n the normalized x.
template <typename T>
void SetGradient(const NormSets& sets, int64_t set, const T* x, const T* dy, T* dx, float mean,
                 float inverse, const float* gamma) {
  const float* const all = gamma;
  const auto mean_of = [&](auto&& term) {
    return static_cast<float>(SetMean(sets, [&](int64_t position, LaneSum* sum) {
      const int64_t row = sets.At(set, position);
      InStrips(
          sets.channels,
          [=]<typename U>(int64_t at, int64_t length, const U* x, const U* dy) {
            const float* gamma = all == nullptr ? nullptr : all + at;
            sum->Add(length, [=](int64_t i) {
              const float normalized = (static_cast<float>(x[i]) - mean) * inverse;
              return term(ScaledGradient(dy, gamma, i), normalized);
            });
          },
          x + row, dy + row);
    }));
  };
  const float offset = mean_of([](float g, float) { return g; });
  const float slope = mean_of([](float g, float n) { return g * n; });
  for (int64_t position = 0; position < sets.positions; ++position) {
    const int64_t row = sets.At(set, position);
    InStrips(
        sets.channels,
        [=]<typename U>(int64_t at, int64_t length, const U* x, const U* dy, U* dx) {
          const float* gamma = all == nullptr ? nullptr : all + at;
          for (int64_t i = 0; i < length; ++i) {
            const float normalized = (static_cast<float>(x[i]) - mean) * inverse;
            dx[i] = U(inverse * (ScaledGradient(dy, gamma, i) - offset - normalized * slope));
          }
        },
        x + row, dy + row, dx + row);
  }
}

// dgamma and dbeta of `count` channels from `first` on, each where it is wanted.
template <typename T>
void ChannelGradients(const NormSets& sets, int64_t first, int64_t count, const T* x, const T* dy,
                      const float* mean, const float* inverse, float* dgamma, float* dbeta) {
  double products[kBlockChannels] = {}, sums[kBlockChannels] = {};
  for (int64_t row = 0; row < sets.samples * sets.positions; ++row) {
    const int64_t statistics = row / sets.positions * sets.groups;
    const int64_t place = row * sets.all_channels() + first;
    InStrips(
        count,
        [&](int64_t at, int64_t length, const auto* x, const auto* dy) {
          for (int64_t i = 0; i < length; ++i) {
            const int64_t set = statistics + (first + at + i) / sets.channels;
            const auto gradient = static_cast<float>(dy[i]);
            const float normalized = (static_cast<float>(x[i]) - mean[set]) * inverse[set];
            products[at + i] += static_cast<double>(gradient * normalized);
            sums[at + i] += static_cast<double>(gradient);
          }
        },
        x + place, dy + place);
  }
  for (int64_t i = 0; i < count; ++i) {
    if (dgamma != nullptr) dgamma[first + i] = static_cast<float>(products[i]);
    if (dbeta != nullptr) dbeta[first + i] = static_cast<float>(sums[i]);
  }
}

template <typename T>
std::unique_ptr<Kernel> MakeNorm(const NormSets& sets, const NormOperands& at, double epsilon,
                                 int threads) {
  return MakeLoop([=](const Operands& operands, const RunKeys&) {
    ParallelFor(threads, sets.sets(), [&](int64_t set) {
      const T* x = operands.input<T>(0);
      const int64_t channel = set % sets.groups * sets.channels;
      const float* gamma = NormOperands::At(operands, at.gamma);
      const float* beta = NormOperands::At(operands, at.beta);
      const auto mean = static_cast<float>(MeanOf(sets, set, x));
      const auto inverse =
          static_cast<float>(1 / std::sqrt(VarianceOf(sets, set, x, mean) + epsilon));
      NormalizeSet(sets, set, x, operands.output<T>(0), mean, inverse,
                   gamma == nullptr ? nullptr : gamma + channel,
                   beta == nullptr ? nullptr : beta + channel);
      operands.output<float>(1)[set] = mean;
      operands.output<float>(2)[set] = inverse;
    });
  });
}

// `at`: gamma among the inputs, dbeta among the outputs; dgamma is output 1.
template <typename T>
std::unique_ptr<Kernel> MakeNormGradient(const NormSets& sets, const NormOperands& at,
                                         int threads) {
  return MakeLoop([=](const Operands& operands, const RunKeys&) {
    const T* x = operands.input<T>(0);
    const T* dy = operands.input<T>(1);
    const float* mean = operands.input<float>(2);
    const float* inverse = operands.input<float>(3);
    ParallelFor(threads, sets.sets(), [&](int64_t set) {
      const float* gamma = NormOperands::At(operands, at.gamma);
      SetGradient(sets, set, x, dy, operands.output<T>(0), mean[set], inverse[set],
                  gamma == nullptr ? nullptr : gamma + set % sets.groups * sets.channels);
    });
    if (at.gamma == 0 && at.beta == 0) return;
    ParallelPieces(threads, sets.all_channels(), kBlockChannels, [&](int64_t first, int64_t last) {
      ChannelGradients(sets, first, last - first, x, dy, mean, inverse,
                       at.gamma == 0 ? nullptr : operands.output<float>(1),
                       at.beta == 0 ? nullptr : operands.output<float>(at.beta));
    });
  });
}

}  // namespace

StatusOr<std::unique_ptr<Kernel>> BindNorm(BindContext& context) {
  const NormSets sets = graph::NormSetsOf(context.node, context.input(0).shape);
  const auto& attributes = context.attributes<graph::NormAttributes>();
  const NormOperands at = {attributes.scale ? size_t{1} : 0, !attributes.center ? size_t{0}
                                                             : attributes.scale ? 2
                                                                                : 1};
  return WithStorage(context.input(0).dtype, [&]<typename T>(T) {
    return MakeNorm<T>(sets, at, attributes.epsilon, context.threads);
  });
}

StatusOr<std::unique_ptr<Kernel>> BindNormGradient(BindContext& context) {
  const NormSets sets = graph::NormSetsOf(context.node, context.input(0).shape);
  const auto& attributes = context.attributes<graph::NormAttributes>();
  const NormOperands at = {attributes.scale ? size_t{4} : 0, !attributes.center ? size_t{0}
                                                             : attributes.scale ? 2
                                                                                : 1};
  return WithStorage(context.input(0).dtype,
                     [&]<typename T>(T) { return MakeNormGradient<T>(sets, at, context.threads); });
}

}  // namespace ringmaster::cpu
