#include "common/graph/program.h"

namespace ringmaster::graph {

std::vector<ValueId> Results(const Program& program) {
  std::vector<ValueId> results = {program.loss_sum, program.correct};
  for (const Parameter& parameter : program.parameters) results.push_back(parameter.gradient);
  for (const Normalization& normalization : program.normalizations) {
    results.push_back(normalization.batch_mean);
    results.push_back(normalization.batch_variance);
  }
  std::erase(results, kNoValue);
  return results;
}

}  // namespace ringmaster::graph
