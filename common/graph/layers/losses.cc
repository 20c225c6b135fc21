#include "common/graph/layers/losses.h"

#include <algorithm>
#include <utility>

namespace ringmaster::graph::layers {
namespace {

// The node over what the model says and the column.
ValueId AddPairs(GraphBuilder& builder, const std::string& name, const OutputKind& kind, Kind op,
                 ValueId said, const std::string& column) {
  const ValueId target = builder.Column(column);
  if (!builder.Expect(name, target)) return kNoValue;
  if (kind.of_classes) {
    builder.SetLimit(column, builder.shape(said).back());
  } else {
    Shape longer = builder.shape(target);
    longer.push_back(1);
    if (builder.shape(said) == longer) {
      const Shape& shape = builder.shape(target);
      said = builder.Add(name + "/reshape", Reshape{{shape.begin() + 1, shape.end()}}, said);
    }
  }
  return builder.Add(name, std::move(op), std::vector{said, target});
}

using Role = Output::Role;
using View = Output::View;

struct LossWeight {
  double weight = 1;
  static constexpr auto Fields() {
    return std::tuple(
        Field{"weight", &LossWeight::weight, "what the loss counts beside others", Above(0)});
  }
};

template <typename Op>
StatusOr<Kind> OpOf(const Attributes& options) {
  Op op;
  RING_RETURN_IF_ERROR(ReadOptions(options, &op));
  return op;
}

template <int64_t k>
StatusOr<Kind> HitsOf(const Attributes& options) {
  if (options.empty()) return TopK{k};
  return UnknownOption(options[0].name(), {});
}

template <typename Op>
OutputKind LossOf(const char* help, const char* measure) {
  std::vector<FieldDescription> options = DescribeFields<Op>();
  options.push_back(DescribeFields<LossWeight>()[0]);
  const auto own_form = [](const v1::Attribute& given) {
    return given.name() == "weight" ? OwnForm<LossWeight>(given) : OwnForm<Op>(given);
  };
  return {.name = Op::kTraits.name,
          .help = help,
          .role = Role::kLoss,
          .options = std::move(options),
          .own_form = own_form,
          .op = OpOf<Op>,
          .measure = measure,
          .of_classes = std::is_same_v<Op, SoftmaxCrossEntropy>};
}

template <typename Op>
OutputKind MeasureOf(const char* name, const char* help, View view, bool lower_is_better) {
  return {.name = name,
          .help = help,
          .role = Role::kMeasure,
          .options = DescribeFields<Op>(),
          .own_form = OwnForm<Op>,
          .op = OpOf<Op>,
          .view = view,
          .lower_is_better = lower_is_better,
          .of_classes = std::is_same_v<Op, TopK>};
}

template <int64_t k>
OutputKind HitMeasure(const char* name, const char* help) {
  OutputKind kind = MeasureOf<TopK>(name, help, View::kMean, false);
  kind.options.clear();
  kind.op = HitsOf<k>;
  return kind;
}

}  // namespace

const std::vector<OutputKind>& OutputTable() {
  using MeanSquare = MeanSquaredError;
  static const auto* const kTable = new std::vector<OutputKind>{
      LossOf<Huber>("squared near the target, straight further out", "mae"),
      LossOf<MeanAbsoluteError>("the distance to the target", "rmse"),
      LossOf<MeanSquare>("the squared distance to the target", "mae"),
      LossOf<SigmoidCrossEntropy>("of logits of yes and no, targets 0 to 1", "binary_accuracy"),
      LossOf<SoftmaxCrossEntropy>("of logits of classes", "accuracy"),
      HitMeasure<1>("accuracy", "how often the class is the largest logit"),
      MeasureOf<BinaryAccuracy>("binary_accuracy", "how often yes and no are told apart",
                                View::kMean, false),
      MeasureOf<MeanAbsoluteError>("mae", "mean absolute error", View::kMean, true),
      MeasureOf<MeanSquare>("mse", "mean squared error", View::kMean, true),
      MeasureOf<MeanSquare>("rmse", "root of the mean squared error", View::kRootMean, true),
      HitMeasure<5>("top_5", "how often the class is among the five largest logits"),
      MeasureOf<TopK>("top_k", "how often the class is among the k largest logits", View::kMean,
                      false),
  };
  return *kTable;
}

const OutputKind* FindOutput(Output::Role role, const std::string& name) {
  const auto at = std::ranges::find_if(OutputTable(), [&](const OutputKind& kind) {
    return kind.role == role && kind.name == name;
  });
  return at == OutputTable().end() ? nullptr : &*at;
}

std::vector<std::string> OutputNames(Output::Role role) {
  std::vector<std::string> names;
  for (const OutputKind& kind : OutputTable()) {
    if (kind.role == role) names.push_back(kind.name);
  }
  return names;
}

Status AddOutput(GraphBuilder& builder, const std::string& name, const OutputKind& kind,
                 Attributes options, ValueId said, const std::string& column) {
  LossWeight loss;
  const auto weight = std::ranges::find(options, "weight", &v1::Attribute::name);
  if (kind.role == Role::kLoss && weight != options.end()) {
    Attributes own;
    *own.Add() = *weight;
    options.erase(weight);
    RING_RETURN_IF_ERROR(ReadOptions(own, &loss));
  }
  RING_ASSIGN_OR_RETURN(Kind op, kind.op(options));
  const ValueId sum = AddPairs(builder, name, kind, std::move(op), said, column);
  Output output = {.name = name, .role = kind.role};
  if (kind.role == Role::kLoss) {
    output.weight = loss.weight;
  } else {
    output.view = kind.view;
    output.lower_is_better = kind.lower_is_better;
  }
  builder.Output(output, sum);
  return builder.status();
}

}  // namespace ringmaster::graph::layers
