#include "common/graph/update/optimizer.h"

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "common/graph/update/schedule.h"
#include "common/numeric/arithmetic.h"

namespace ringmaster::graph {
namespace {

// Calls use(std::type_identity<Rule>) for the rule that the job has; false where there is none.
template <typename... Rule>
bool UseRule(RuleList<Rule...>, const v1::Optimizer& optimizer, const auto& use) {
  const auto try_rule = [&]<typename R>(std::type_identity<R> rule) {
    const bool selected = R::Selects(optimizer);
    if (selected) use(rule);
    return selected;
  };
  return (try_rule(std::type_identity<Rule>()) || ...);
}

// The keys of all rules, each once.
template <typename... Rule>
std::string NamesOf(RuleList<Rule...>) {
  std::string names;
  std::string_view last;
  for (const std::string_view name : {std::string_view(Rule::kName)...}) {
    if (!name.empty() && name != last) names += (names.empty() ? "" : ", ") + std::string(name);
    last = name;
  }
  return names;
}

// Calls body(i, slots of element i...).
template <typename Rule>
void ForElements(const Rule& /*rule*/, size_t n, std::span<const std::span<float>> slots,
                 const auto& body) {
  const auto loop = [&](auto*... slot) {
    for (size_t i = 0; i < n; ++i) body(i, slot[i]...);
  };
  [&]<size_t... s>(std::index_sequence<s...>) { loop(slots[s].data()...); }
  (std::make_index_sequence<Rule::kSlots>());
}

// The loop over a range, with a rule's scalars in registers.
template <typename Rule>
void ApplyRule(const Rule& rule, size_t n, const float* gradients, float* parameters,
               std::span<const std::span<float>> slots, size_t offset) {
  const auto loop = [&, rule](auto*... slot) {
    for (size_t i = 0; i < n; ++i) rule(gradients[i], parameters[i], slot[i]...);
  };
  [&]<size_t... s>(std::index_sequence<s...>) { loop(slots[s].data() + offset...); }
  (std::make_index_sequence<Rule::kSlots>());
}

// Likewise, with what is around the rule, block by block, so that each of its loops stays in cache.
// `around` is a copy, which no store to an element can change: else these loops stay scalar.
template <typename Rule>
void ApplyAround(const Rule& rule, const Around around, std::span<float> parameters,
                 std::span<const float> gradients, std::span<const std::span<float>> slots) {
  float gradient[kLaneSumBlock];
  for (size_t at = 0; at < parameters.size(); at += kLaneSumBlock) {
    const size_t n = std::min(kLaneSumBlock, parameters.size() - at);
    float* const weights = parameters.data() + at;
    for (size_t i = 0; i < n; ++i) gradient[i] = around.Gradient(gradients[at + i], weights[i]);
    if (around.decay != 0) {
      for (size_t i = 0; i < n; ++i) weights[i] = around.Decayed(weights[i]);
    }
    ApplyRule(rule, n, gradient, weights, slots, at);
    if (around.average == Around::Average::kNone) continue;
    float* const averages = slots.back().data() + at;
    for (size_t i = 0; i < n; ++i) averages[i] = around.Averaged(weights[i], averages[i]);
  }
}

}  // namespace

UpdateOptions UpdateOptionsOf(const v1::ResultSpec& spec) {
  return {.optimizer = spec.optimizer(),
          .total_updates = spec.total_steps(),
          .tensors = {spec.updates().begin(), spec.updates().end()}};
}

Optimizer::Optimizer(UpdateOptions options) : options_(std::move(options)) {
  UseRule(Rules(), options_.optimizer, [&]<typename Rule>(std::type_identity<Rule>) {
    base_rate_ = Rule::Options(options_.optimizer).learning_rate();
    slot_names_.assign(Rule::kSlotNames.begin(), Rule::kSlotNames.end());
    if constexpr (Rule::kAdapts != Adapts::kNot) {
      norms_.adapts = Rule::kAdapts;
      norms_.trust = Rule::TrustOf(Rule::Options(options_.optimizer));
    }
  });
  const v1::Clip& clip = options_.optimizer.clip();
  norms_.limit = static_cast<float>(clip.value());
  norms_.global_norm = clip.global_norm();
  norms_.tensor_norm = clip.tensor_norm();
  if (averages()) slot_names_.emplace_back(kAverageSlot);
}

double Optimizer::learning_rate(uint64_t update) const {
  if (!options_.optimizer.has_schedule()) return base_rate_;
  return base_rate_ * FactorOf(options_.optimizer.schedule(), update, options_.total_updates);
}

v1::TensorUpdate Optimizer::tensor(uint32_t number) const {
  if (!options_.tensors.empty()) return options_.tensors[number];
  v1::TensorUpdate as_written;
  as_written.set_learning_rate(1);
  return as_written;
}

bool Optimizer::SameStep(uint32_t a, uint32_t b) const {
  const v1::TensorUpdate first = tensor(a);
  const v1::TensorUpdate second = tensor(b);
  return first.learning_rate() == second.learning_rate() &&
         first.weight_decay() == second.weight_decay() && first.adapts() == second.adapts() &&
         first.adds() == second.adds() && first.group() == second.group();
}

TensorNorms Optimizer::NormsOf(uint32_t number) const {
  const v1::TensorUpdate own = tensor(number);
  return {.decay = own.weight_decay(), .adapts = own.adapts(), .adds = own.adds()};
}

std::vector<NormFactors> Optimizer::FactorsOf(std::span<const TensorSquares> squares) const {
  std::vector<TensorNorms> tensors;
  for (uint32_t i = 0; i < squares.size(); ++i) tensors.push_back(NormsOf(i));
  double all = 0;
  if (norms_.global_norm != 0 && !squares.empty()) {
    all = PairwiseSum(0, squares.size(),
                      [&](size_t i) { return tensors[i].adds ? 0 : squares[i].gradient; });
  }
  std::vector<NormFactors> factors;
  for (size_t i = 0; i < squares.size(); ++i) {
    factors.push_back(norms_.FactorsOf(squares[i], tensors[i], all));
  }
  return factors;
}

TensorStep Optimizer::step(uint64_t update, uint32_t number, const NormFactors& factors,
                           std::span<const double> rates) const {
  RING_CHECK(update >= 1, "updates count from 1");
  const v1::Optimizer& options = options_.optimizer;
  const v1::TensorUpdate own = tensor(number);
  const double rate =
      (rates.empty() ? learning_rate(update) : rates[own.group()]) * own.learning_rate();
  TensorStep step{.rate = rate};
  Around& around = step.around;
  const auto set = [&](auto rule) {
    ScaleByNorms(factors, rate, rule, around);
    step.formula = rule;
  };
  if (own.adds()) {
    set(AddSum());
  } else {
    around.limit = norms_.limit;
    UseRule(Rules(), options, [&]<typename Rule>(std::type_identity<Rule>) {
      set(Rule::At(Rule::Options(options),
                   {.rate = rate, .update = update, .decay = own.weight_decay()}));
    });
  }
  if (norms_.adapts == Adapts::kNot && !own.adds()) {
    const bool l2 = options.weight_decay().kind() == v1::DECAY_KIND_L2;
    around.l2 = static_cast<float>(l2 ? own.weight_decay() : 0);
    around.decay = static_cast<float>(l2 ? 0 : rate * own.weight_decay());
  }
  if (averages()) {
    const bool copies = update <= options.ema().start_update();
    around.average = copies ? Around::Average::kCopy : Around::Average::kFollow;
    around.added = static_cast<float>(1 - options.ema().decay());
  }
  return step;
}

StatusOr<std::unique_ptr<Optimizer>> MakeOptimizer(const UpdateOptions& options) {
  const bool found = UseRule(Rules(), options.optimizer, [](auto) {});
  if (found) return std::make_unique<Optimizer>(options);
  return InvalidArgument("optimizer: no rule given that this release knows; it knows {}",
                         NamesOf(Rules()));
}

void PrepareRange(const TensorStep& step, std::span<const float> gradients,
                  std::span<const std::span<float>> slots) {
  std::visit(
      [&]<typename Rule>(const Rule& rule) {
        if constexpr (Rule::kAdapts == Adapts::kByStep) {
          ForElements(rule, gradients.size(), slots, [&](size_t i, auto&... slot) {
            rule.Prepare(step.around.Gradient(gradients[i], 0), slot...);
          });
        }
      },
      step.formula);
}

double StepSquaresOf(const TensorStep& step, std::span<const float> parameters,
                     std::span<const std::span<float>> slots) {
  return std::visit(
      [&]<typename Rule>(const Rule& rule) -> double {
        if constexpr (Rule::kAdapts == Adapts::kByStep) {
          float steps[kLaneSumBlock];
          ForElements(rule, parameters.size(), slots, [&](size_t i, const auto&... slot) {
            steps[i] = rule.Step(parameters[i], slot...);
          });
          return SquaresOf({steps, parameters.size()});
        }
        return 0;
      },
      step.formula);
}

void UpdateRange(const TensorStep& step, std::span<float> parameters,
                 std::span<const float> gradients, std::span<const std::span<float>> slots) {
  const size_t n = parameters.size();
  RING_CHECK(gradients.size() == n, "gradients of a range");
  for (const std::span<float> slot : slots) RING_CHECK(slot.size() == n, "slots of a range");
  const size_t averages = step.around.average == Around::Average::kNone ? 0 : 1;
  std::visit(
      [&]<typename Rule>(const Rule& rule) {
        // A tensor that adds its sum has the slots of the others, and leaves them as they are.
        const auto own = std::is_same_v<Rule, AddSum> ? slots.last(averages) : slots;
        RING_CHECK(own.size() == size_t{Rule::kSlots} + averages, "as many slots as the rule has");
        if (step.around.plain()) {
          ApplyRule(rule, n, gradients.data(), parameters.data(), own, 0);
        } else {
          ApplyAround(rule, step.around, parameters, gradients, own);
        }
      },
      step.formula);
}

double SquaresOf(std::span<const float> values, const Around& around) {
  float limited[kLaneSumBlock];
  const float* from = values.data();
  if (around.limit != 0) {
    RING_CHECK(values.size() <= kLaneSumBlock, "squares of a block");
    const Around own = around;
    for (size_t i = 0; i < values.size(); ++i) limited[i] = own.Limited(from[i]);
    from = limited;
  }
  return LaneSumOfBlock(0, values.size(), [from](size_t i) {
    const double value{from[i]};
    return value * value;
  });
}

void UpdateMovingStatistic(double momentum, std::span<const float> batch, std::span<float> moving) {
  RING_CHECK(batch.size() == moving.size(), "moving statistic ranges");
  const auto kept = static_cast<float>(momentum);
  const auto added = static_cast<float>(1 - momentum);
  for (size_t i = 0; i < moving.size(); ++i) moving[i] = moving[i] * kept + batch[i] * added;
}

}  // namespace ringmaster::graph
