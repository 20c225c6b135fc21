#include <string>

#include "common/zoo/models.h"

namespace ringmaster::zoo {

graph::ValueId BuildMlp(graph::GraphBuilder& builder, const v1::Model& model, graph::ValueId images,
                        int64_t classes) {
  graph::ValueId x = builder.Flatten("flatten", images);
  int number = 0;
  for (uint32_t units : model.hidden().values()) {
    const std::string suffix = std::to_string(++number);
    x = builder.Dense("dense" + suffix, x, units);
    x = builder.Relu("relu" + suffix, x);
    x = builder.Dropout("dropout" + suffix, x, model.dropout());
  }
  return builder.Dense("fc", x, classes);
}

}  // namespace ringmaster::zoo
