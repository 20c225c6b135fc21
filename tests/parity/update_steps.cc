// What PyTorch's optimizers are held against: updates of one tensor, `a/kernel`.
//
//     update_steps OPTIMIZER STEPS < NUMBERS > WEIGHTS
//
// OPTIMIZER is the job file's key. NUMBERS are float32: the first weights, then the gradients of
// each step; WEIGHTS the last weights, and their average where there is one.
#include <algorithm>
#include <cstdio>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

#include "common/graph/update/optimizer.h"
#include "common/job/job_file.h"
#include "common/job/rules.h"
#include "common/job/update_rules.h"
#include "common/numeric/arithmetic.h"

namespace ringmaster {
namespace {

StatusOr<graph::UpdateOptions> OptionsOf(const std::string& text, uint64_t steps) {
  v1::Optimizer optimizer;
  RING_RETURN_IF_ERROR(job::ReadYaml("optimizer", text, &optimizer));
  job::FillDefaults(&optimizer);
  v1::Graph graph;
  v1::Parameter& kernel = *graph.add_parameters();
  kernel.set_name("a/kernel");
  kernel.set_trainable(true);
  RING_ASSIGN_OR_RETURN(const auto updates, job::ResolveUpdates(optimizer, graph));
  RING_ASSIGN_OR_RETURN(optimizer, job::ResolveOptimizer(optimizer, 1, steps));
  return graph::UpdateOptions{optimizer, steps, {updates.begin(), updates.end()}};
}

Status Run(const std::string& text, uint64_t steps) {
  RING_ASSIGN_OR_RETURN(const graph::UpdateOptions options, OptionsOf(text, steps));
  RING_ASSIGN_OR_RETURN(const auto optimizer, graph::MakeOptimizer(options));
  const std::string bytes{std::istreambuf_iterator<char>(std::cin), {}};
  const size_t n = bytes.size() / sizeof(float) / (steps + 1);
  std::vector<float> numbers(n * (steps + 1));
  std::copy_n(bytes.data(), numbers.size() * sizeof(float),
              reinterpret_cast<char*>(numbers.data()));
  const std::span<float> weights(numbers.data(), n);
  std::vector<std::vector<float>> slots(optimizer->slot_names().size(), std::vector<float>(n));
  if (optimizer->averages()) std::ranges::copy(weights, slots.back().begin());
  for (uint64_t update = 1; update <= steps; ++update) {
    const std::span<const float> gradients(&numbers[update * n], n);
    const auto square = [&](size_t i) { return double{gradients[i]} * double{gradients[i]}; };
    const std::vector<graph::TensorSquares> squares = {{.gradient = LaneSum(n, square)}};
    const std::vector<std::span<float>> ranges(slots.begin(), slots.end());
    graph::UpdateRange(optimizer->step(update, 0, optimizer->FactorsOf(squares)[0]), weights,
                       gradients, ranges);
  }
  std::fwrite(weights.data(), sizeof(float), n, stdout);
  if (optimizer->averages()) std::fwrite(slots.back().data(), sizeof(float), n, stdout);
  return absl::OkStatus();
}

}  // namespace
}  // namespace ringmaster

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const ringmaster::Status status = ringmaster::Run(argv[1], std::stoull(argv[2]));
  if (!status.ok()) std::cerr << ringmaster::Message(status) << "\n";
  return status.ok() ? 0 : 1;
}
