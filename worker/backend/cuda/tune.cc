#include "worker/backend/cuda/tune.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "worker/backend/cuda/kernel.h"
#include "worker/backend/cuda/libraries/cublas_matmul.h"
#include "worker/backend/cuda/libraries/cudnn_convolution.h"
#include "worker/backend/cuda/libraries/plan_cache.h"
#include "worker/backend/cuda/node_run.h"

namespace ringmaster::cuda {
namespace {

// The time of candidate i where it beats `best`.
std::optional<double> Beats(size_t i, double best, double untuned, const Trials& trials) {
  const auto glance = trials.glance(i);
  if (!glance.ok() || *glance > kWorthTiming * std::min(best, untuned)) return std::nullopt;
  const auto microseconds = trials.time(best);
  if (!microseconds.ok() || *microseconds >= best) return std::nullopt;
  const auto repeats = trials.repeats();
  if (!repeats.ok() || !*repeats) return std::nullopt;
  return *microseconds;
}

}  // namespace

SearchResult Search(const SearchOptions& options, const Trials& trials) {
  SearchResult result;
  double best = std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < options.candidates; ++i) {
    if (i >= options.preferred && result.winner) break;
    if (options.time_is_up()) break;
    ++result.tried;
    const auto microseconds = Beats(i, best, options.untuned, trials);
    if (!microseconds) continue;
    best = *microseconds;
    result.winner = {i, best};
  }
  return result;
}

double SecondsFor(double cost, double cost_left, double seconds_left) {
  constexpr double kLeast = 1;
  const double part = cost_left > 0 ? cost / cost_left : 1;
  return std::min(seconds_left, std::max(kLeast, 2 * part * seconds_left));
}

namespace {

constexpr int kMostAlgorithms = 16;  // asked of cuBLASLt for a product

// What the table could have a row for.
struct Question {
  PlanKey key;
  const graph::Node* node = nullptr;  // the first of its nodes
  std::optional<PlanRequest> plan;    // of a convolution, without a table
  int nodes = 0;
  double untuned = 0;  // microseconds of one
  size_t most_workspace = 0;

  [[nodiscard]] double cost() const { return untuned * nodes; }
};

// What its row could say, in the order of the library.
StatusOr<std::vector<PlanChoice>> ConvolutionChoices(const Device& device,
                                                     const ConvolutionShape& shape) {
  std::vector<PlanChoice> choices;
  for (const ConvolutionVariant& variant : Variants(shape)) {
    const auto graph = ConvolutionGraph::Create({.handle = device.cudnn()}, Apply(shape, variant));
    if (absl::IsUnimplemented(graph.status())) continue;
    if (!graph.ok()) return graph.status();
    RING_ASSIGN_OR_RETURN(const auto candidates, graph->Candidates());
    for (const auto& candidate : candidates) {
      choices.emplace_back(ConvolutionChoice{variant, candidate.choice});
    }
  }
  return choices;
}

StatusOr<std::vector<PlanChoice>> MatmulChoices(const Device& device, const MatmulShape& shape) {
  RING_ASSIGN_OR_RETURN(const auto choices,
                        MatmulCandidates(device.cublas_lt(), shape, kMostAlgorithms));
  return std::vector<PlanChoice>(choices.begin(), choices.end());
}

// nullopt: the node is neither a library's convolution nor a product.
std::optional<PlanKey> KeyOf(const BindContext& context) {
  const graph::Graph& graph = context.program.graph;
  const std::string& device = context.device.facts().name;
  if (const auto plan = PlanRequestOf(graph, context.node, device, *context.plans)) {
    return ConvolutionKey(device, plan->shape);
  }
  if (const auto shape = MatmulOf(graph, context.node)) return MatmulKey(device, *shape);
  return std::nullopt;
}

StatusOr<std::vector<PlanChoice>> ChoicesOf(const BindContext& context,
                                            const std::optional<PlanRequest>& plan) {
  if (plan) return ConvolutionChoices(context.device, plan->shape);
  return MatmulChoices(context.device, *MatmulOf(context.program.graph, context.node));
}

bool Has(const PlanTable& table, const PlanKey& key) {
  return table.Find<ConvolutionChoice>(key) != nullptr || table.Find<MatmulChoice>(key) != nullptr;
}

// The same bits whatever outputs and workspace held before.
StatusOr<bool> Repeats(NodeRun* run) {
  RING_RETURN_IF_ERROR(run->Scribble(0));
  RING_RETURN_IF_ERROR(run->Run());
  RING_ASSIGN_OR_RETURN(const auto first, run->Digest());
  RING_RETURN_IF_ERROR(run->Scribble(0x5a));
  RING_RETURN_IF_ERROR(run->Run());
  RING_ASSIGN_OR_RETURN(const auto second, run->Digest());
  return first == second;
}

// The tuning of one program.
class Tuning {
 public:
  Tuning(const graph::Program& program, const Device& device, const TuneOptions& options)
      : program_(program),
        device_(device),
        options_(options),
        end_(options.seconds > 0 ? Clock::now() + Seconds(options.seconds)
                                 : Clock::time_point::max()) {}

  Status Run(PlanTable* table, const TuneReport& report) {
    RING_ASSIGN_OR_RETURN(run_, NodeRun::Create());
    RING_ASSIGN_OR_RETURN(const std::vector<Question> questions, Questions(*table));
    double cost_left = 0;
    for (const Question& question : questions) cost_left += question.cost();
    for (const Question& question : questions) {
      const Clock::time_point until = ShareOf(question, cost_left);
      cost_left -= question.cost();
      RING_ASSIGN_OR_RETURN(const TunedKernel tuned, Answer(question, until, table));
      report(tuned);
    }
    return absl::OkStatus();
  }

 private:
  using Clock = std::chrono::steady_clock;
  static Clock::duration Seconds(double seconds) {
    return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  }

  [[nodiscard]] BindContext ContextOf(const graph::Node& node, const PlanTable& plans) const {
    return {program_, node, device_, &plans};
  }

  // Each key that `table` lacks once, by what the program spends on it. What there is no time left
  // to look at comes last, as if it cost nothing.
  StatusOr<std::vector<Question>> Questions(const PlanTable& table) {
    const PlanTable none;
    std::map<PlanKey, Question> questions;
    std::vector<PlanRequest> plans;
    for (const graph::Node& node : program_.graph.nodes()) {
      const auto key = KeyOf(ContextOf(node, none));
      if (!key || Has(table, *key)) continue;
      Question& question = questions[*key];
      if (question.nodes++ > 0) continue;
      question.key = *key;
      question.node = &node;
      question.plan = PlanRequestOf(program_.graph, node, device_.facts().name, none);
      if (question.plan) plans.push_back(*question.plan);
    }
    PlansFor(device_.facts()).Prepare(plans);
    std::vector<Question> sorted;
    for (auto& [key, question] : questions) {
      if (Clock::now() < end_) {
        RING_RETURN_IF_ERROR(LookAt(ContextOf(*question.node, none), &question));
      }
      sorted.push_back(std::move(question));
    }
    std::stable_sort(sorted.begin(), sorted.end(),
                     [](const Question& a, const Question& b) { return a.cost() > b.cost(); });
    return sorted;
  }

  // What is chosen without a table may have more scratch than candidates have otherwise.
  Status LookAt(const BindContext& context, Question* question) {
    RING_RETURN_IF_ERROR(run_->Hold(context));
    RING_RETURN_IF_ERROR(run_->Bind(context, std::numeric_limits<size_t>::max()));
    question->most_workspace = std::max(kConvolutionWorkspaceCap, run_->workspace_bytes());
    RING_RETURN_IF_ERROR(run_->Run());
    RING_ASSIGN_OR_RETURN(question->untuned,
                          run_->Microseconds(std::numeric_limits<double>::infinity()));
    return absl::OkStatus();
  }

  [[nodiscard]] Clock::time_point ShareOf(const Question& question, double cost_left) const {
    if (end_ == Clock::time_point::max()) return end_;
    const double left = std::chrono::duration<double>(end_ - Clock::now()).count();
    if (left <= 0) return end_;
    return Clock::now() + Seconds(SecondsFor(question.cost(), cost_left, left));
  }

  // Puts the row of the quickest candidate into the table.
  StatusOr<TunedKernel> Answer(const Question& question, Clock::time_point until,
                               PlanTable* table) {
    TunedKernel tuned = {.op = question.key.op, .shape = question.key.shape};
    tuned.untuned = question.untuned;
    if (question.untuned == 0 || Clock::now() >= until) return tuned;
    const PlanTable none;
    const BindContext context = ContextOf(*question.node, none);
    RING_ASSIGN_OR_RETURN(const std::vector<PlanChoice> choices, ChoicesOf(context, question.plan));
    tuned.candidates = static_cast<int>(choices.size());
    RING_RETURN_IF_ERROR(run_->Hold(context));
    // Bits are not traded for time unasked; choices that lose some come last.
    const bool keep = options_.gradient_bits == GradientBits::kKept;
    const auto narrow = std::find_if(choices.begin(), choices.end(), IsNarrow);
    const SearchResult found =
        Search({.candidates = choices.size(),
                .preferred = keep ? static_cast<size_t>(narrow - choices.begin()) : choices.size(),
                .untuned = question.untuned,
                .time_is_up = [until] { return Clock::now() >= until; }},
               TrialsOf(question, choices));
    // After an error that stays nothing can be run any more: it is not the candidates' fault.
    RING_RETURN_IF_ERROR(FromCuda(cudaDeviceSynchronize(), "GPU after " + question.key.shape));
    tuned.tried = static_cast<int>(found.tried);
    if (!found.winner) return tuned;
    tuned.row = true;
    tuned.microseconds = found.winner->microseconds;
    table->Put(question.key, choices[found.winner->candidate]);
    return tuned;
  }

  Trials TrialsOf(const Question& question, const std::vector<PlanChoice>& choices) {
    planned_ = 0;
    Trials trials;
    trials.glance = [this, &question, &choices](size_t i) -> StatusOr<double> {
      if (question.plan && i >= planned_) PlanSome(*question.plan, choices);
      (void)cudaGetLastError();  // of a launch of the candidate before it
      PlanTable plans;
      plans.Put(question.key, choices[i]);
      BindContext context = ContextOf(*question.node, plans);
      context.cache = candidates_.get();
      RING_RETURN_IF_ERROR(run_->Bind(context, question.most_workspace));
      return run_->Glance();
    };
    trials.time = [this](double limit) { return run_->Microseconds(limit); };
    trials.repeats = [this] { return Repeats(run_.get()); };
    return trials;
  }

  // Makes the plans of the next candidates side by side, in place of those before them.
  void PlanSome(const PlanRequest& plan, const std::vector<PlanChoice>& choices) {
    const size_t threads = PlanningThreads();
    const DeviceFacts facts = device_.facts();
    candidates_ = std::make_unique<PlanCache>(PlanCache::Options{
        .make = [facts](const PlanRequest& request) { return MakePlan(facts, request); },
        .threads = threads,
        .progress = nullptr});
    const size_t end = std::min(choices.size(), planned_ + 2 * threads);
    std::vector<PlanRequest> requests;
    for (; planned_ < end; ++planned_) {
      requests.push_back({plan.shape, std::get<ConvolutionChoice>(choices[planned_])});
    }
    candidates_->Prepare(requests);
  }

  const graph::Program& program_;
  const Device& device_;
  const TuneOptions options_;
  const Clock::time_point end_;
  std::unique_ptr<NodeRun> run_;
  std::unique_ptr<PlanCache> candidates_;  // plans of the candidates that are tried now
  size_t planned_ = 0;                     // up to which one
};

}  // namespace

Status Tune(const graph::Program& program, const Device& device, const TuneOptions& options,
            PlanTable* table, const TuneReport& report) {
  return Tuning(program, device, options).Run(table, report);
}

}  // namespace ringmaster::cuda
