#include <string>
#include <vector>

#include "common/graph/layers/layer_list.h"
#include "common/zoo/head.h"

namespace ringmaster::zoo {
namespace {

using graph::GraphBuilder;
using graph::ValueId;
namespace layers = graph::layers;

constexpr int64_t kMostUnits = 65536;  // of a hidden layer
constexpr size_t kMostLayers = 64;     // hidden ones

struct MlpOptions {
  double dropout = 0;
  std::vector<int64_t> hidden = {2048, 2048};

  static constexpr auto Fields() {
    return std::tuple(
        Field{"dropout", &MlpOptions::dropout, "rate of the dropout layers", kRate},
        Field{"hidden", &MlpOptions::hidden, "units of each hidden layer; at most 64 layers",
              Between(1, kMostUnits)});
  }
  [[nodiscard]] Status Check() const {
    if (hidden.size() > kMostLayers) {
      return InvalidArgument("hidden has {} layers; at most {} are allowed", hidden.size(),
                             kMostLayers);
    }
    return absl::OkStatus();
  }
};

struct NoOptions {
  static constexpr auto Fields() { return std::tuple(); }
};

ValueId BuildMlp(const MlpOptions& options, const DataShape& data, GraphBuilder& builder,
                 ValueId images) {
  ValueId x = builder.Add("flatten", layers::Flatten{}, images);
  int number = 0;
  for (const int64_t units : options.hidden) {
    const std::string suffix = std::to_string(++number);
    x = builder.Add("dense" + suffix, layers::Dense{.units = units}, x);
    x = builder.Add("relu" + suffix, graph::Relu{}, x);
    x = builder.Add("dropout" + suffix, layers::Dropout{options.dropout}, x);
  }
  return builder.Add("fc", layers::Dense{.units = data.classes}, x);
}

ValueId BuildLinear(const NoOptions&, const DataShape& data, GraphBuilder& builder,
                    ValueId images) {
  return BuildMlp({.dropout = 0, .hidden = {}}, data, builder, images);
}

}  // namespace

Family Mlps() {
  return {
      MakeEntry<NoOptions>("linear", "one dense layer", kCifar, BuildLinear),
      MakeEntry<MlpOptions>("mlp",
                            "hidden dense layers with relu; a linear model when there are none",
                            kCifar, BuildMlp),
  };
}

}  // namespace ringmaster::zoo
