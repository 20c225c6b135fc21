#include "worker/backend/cuda/tune.h"

#include <limits>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "worker/backend/cuda/kernel.h"
#include "worker/backend/cuda/libraries/choose_convolution.h"
#include "worker/backend/cuda/libraries/cublas_matmul.h"
#include "worker/backend/cuda/node_run.h"

namespace ringmaster::cuda {
namespace {

constexpr int kMostAlgorithms = 16;  // asked of cuBLASLt for a product

// A node that the table could have a row for, and what that row could say.
struct Question {
  PlanKey key;
  std::vector<PlanChoice> choices;
};

StatusOr<Question> ConvolutionQuestion(const Device& device, const ConvolutionShape& shape) {
  Question question = {ConvolutionKey(device.facts().name, shape), {}};
  for (const ConvolutionVariant& variant : Variants(shape)) {
    const auto graph = ConvolutionGraph::Create({.handle = device.cudnn()}, Apply(shape, variant));
    if (absl::IsUnimplemented(graph.status())) continue;
    if (!graph.ok()) return graph.status();
    RING_ASSIGN_OR_RETURN(const auto candidates, graph->Candidates());
    for (const auto& candidate : candidates) {
      question.choices.push_back(ConvolutionChoice{variant, candidate.choice});
    }
  }
  return question;
}

StatusOr<Question> MatmulQuestion(const Device& device, const MatmulShape& shape) {
  Question question = {MatmulKey(device.facts().name, shape), {}};
  RING_ASSIGN_OR_RETURN(const auto choices,
                        Matmul::Candidates(device.cublas_lt(), shape, kMostAlgorithms));
  question.choices.assign(choices.begin(), choices.end());
  return question;
}

// nullopt: the node is neither a library's convolution nor a product.
StatusOr<std::optional<Question>> QuestionOf(const BindContext& context) {
  const graph::Graph& graph = context.program.graph;
  if (const auto shape = MatmulOf(graph, context.node)) {
    RING_ASSIGN_OR_RETURN(auto question, MatmulQuestion(context.device, *shape));
    return std::optional<Question>(std::move(question));
  }
  if (const auto shape = ConvolutionOf(graph, context.node);
      shape && !shape->is_depthwise() && !PatchProductOf(*shape)) {
    RING_ASSIGN_OR_RETURN(auto question,
                          ConvolutionQuestion(context.device, PartOf(*shape, PartsOf(*shape))));
    return std::optional<Question>(std::move(question));
  }
  return std::optional<Question>();
}

StatusOr<std::unique_ptr<NodeRun>> BindWith(const BindContext& context, const PlanTable& plans) {
  const BindContext with = {context.program, context.node, context.device, &plans};
  RING_ASSIGN_OR_RETURN(auto run, NodeRun::Create(with));
  if (run->workspace_bytes() > kConvolutionWorkspaceCap) return Internal("too much scratch");
  return run;
}

// The same bits whatever outputs and workspace held before.
StatusOr<bool> Repeats(NodeRun* run) {
  RING_RETURN_IF_ERROR(run->Scribble(0));
  RING_RETURN_IF_ERROR(run->Run());
  RING_ASSIGN_OR_RETURN(const auto first, run->Outputs());
  RING_RETURN_IF_ERROR(run->Scribble(0x5a));
  RING_RETURN_IF_ERROR(run->Run());
  RING_ASSIGN_OR_RETURN(const auto second, run->Outputs());
  return first == second;
}

// The time of the choice where it beats `limit`, else nullopt; so also when it cannot be used.
std::optional<double> Beats(const BindContext& context, const PlanKey& key,
                            const PlanChoice& choice, double limit) {
  PlanTable plans;
  plans.Put(key, choice);
  const auto run = BindWith(context, plans);
  if (!run.ok()) return std::nullopt;
  const auto microseconds = (*run)->Microseconds();
  if (!microseconds.ok() || *microseconds >= limit) return std::nullopt;
  const auto repeats = Repeats(run->get());
  if (!repeats.ok() || !*repeats) return std::nullopt;
  return *microseconds;
}

bool IsNarrow(const PlanChoice& choice) {
  const auto* convolution = std::get_if<ConvolutionChoice>(&choice);
  return convolution != nullptr && convolution->variant.narrow;
}

// What the table should say, into `choice`.
StatusOr<TunedKernel> Answer(const BindContext& context, const Question& question,
                             GradientBits gradient_bits, PlanChoice* choice) {
  TunedKernel tuned = {.op = question.key.op, .shape = question.key.shape};
  RING_ASSIGN_OR_RETURN(const auto untuned, NodeRun::Create(context));
  RING_ASSIGN_OR_RETURN(tuned.untuned, untuned->Microseconds());
  tuned.candidates = static_cast<int>(question.choices.size());
  bool found = false;
  for (const PlanChoice& candidate : question.choices) {
    // Bits are not traded for time unasked; choices that lose some come last.
    if (found && IsNarrow(candidate) && gradient_bits == GradientBits::kKept) break;
    const double limit = found ? tuned.microseconds : std::numeric_limits<double>::infinity();
    const auto microseconds = Beats(context, question.key, candidate, limit);
    if (!microseconds) continue;
    found = true;
    tuned.microseconds = *microseconds;
    *choice = candidate;
  }
  if (found) return tuned;
  return Internal("{}: none of {} candidates runs", context.node.name, tuned.candidates);
}

bool Has(const PlanTable& table, const PlanKey& key) {
  return table.Find<ConvolutionChoice>(key) != nullptr || table.Find<MatmulChoice>(key) != nullptr;
}

}  // namespace

Status Tune(const graph::Program& program, const Device& device, GradientBits gradient_bits,
            PlanTable* table, const TuneReport& report) {
  for (const graph::Node& node : program.graph.nodes()) {
    const PlanTable none;
    const BindContext context = {program, node, device, &none};
    RING_ASSIGN_OR_RETURN(const auto question, QuestionOf(context));
    if (!question || Has(*table, question->key)) continue;
    PlanChoice choice;
    RING_ASSIGN_OR_RETURN(const TunedKernel tuned,
                          Answer(context, *question, gradient_bits, &choice));
    table->Put(question->key, choice);
    report(tuned);
  }
  return absl::OkStatus();
}

}  // namespace ringmaster::cuda
