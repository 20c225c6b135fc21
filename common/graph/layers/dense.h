// dense and dropout. Values; thread-safe.
#pragma once

#include "common/graph/layers/layer.h"

namespace ringmaster::graph::layers {

// x(N,I): NAME/kernel (I,O), NAME/bias; nodes NAME, activation.
struct Dense {
  int64_t units = 0;
  bool bias = true;
  Activation activation = {};
  Initial kernel_init = kGlorotUniform, bias_init = kZeros;

  static constexpr const char* kName = "dense";
  static constexpr const char* kRoles[] = {"kernel", "bias"};
  static constexpr const char* kHelp = "product with a matrix of weights";
  static constexpr auto Fields() {
    return std::tuple(Field{"units", &Dense::units, "features that it makes", kCount},
                      Field{"bias", &Dense::bias, "there is one"},
                      Field{"activation", &Dense::activation, "an elementwise op behind it"},
                      Field{"kernel_init", &Dense::kernel_init, "how the kernel starts"},
                      Field{"bias_init", &Dense::bias_init, "how the bias starts"});
  }
  ValueId Build(GraphBuilder& builder, const std::string& name, ValueId x) const;
};

// x itself when the rate is 0.
struct Dropout {
  double rate = 0;
  bool per_sample = false;

  static constexpr const char* kName = "dropout";
  static constexpr const char* kHelp =
      "elements set to 0 at random in training; the others grow as much";
  static constexpr auto Fields() {
    return std::tuple(Field{"rate", &Dropout::rate, "of what is set to 0", kRate},
                      Field{"per_sample", &Dropout::per_sample, "all of a sample, or nothing"});
  }
  ValueId Build(GraphBuilder& builder, const std::string& name, ValueId x) const;
};

}  // namespace ringmaster::graph::layers
