#include "common/graph/layers/dense.h"

namespace ringmaster::graph::layers {

ValueId Dense::Build(GraphBuilder& builder, const std::string& name, ValueId x) const {
  if (!builder.Expect(name, x, 2)) return kNoValue;
  const int64_t features = builder.shape(x)[1];
  std::vector<ValueId> inputs = {x, builder.Parameter(name + "/kernel", {features, units},
                                                      kernel_init.Resolve(features, units))};
  if (bias) {
    inputs.push_back(builder.Parameter(name + "/bias", {units}, bias_init.Resolve(1, units)));
  }
  const ValueId y = builder.Add(name, graph::Dense{}, std::move(inputs));
  return Activate(builder, name, y, activation);
}

ValueId Dropout::Build(GraphBuilder& builder, const std::string& name, ValueId x) const {
  if (rate == 0 || !builder.Expect(name, x)) return x;
  return builder.Add(name, graph::Dropout{{rate, name, per_sample}}, x);
}

}  // namespace ringmaster::graph::layers
