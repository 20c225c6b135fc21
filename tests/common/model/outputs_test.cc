// The losses and metrics of a job: as they are written, printed, and as outputs of its graph.
#include <catch2/catch.hpp>

#include <string>
#include <vector>

#include <fmt/format.h>

#include "common/graph/message/message.h"
#include "common/job/job_file.h"
#include "common/job/resolve.h"
#include "common/model/predictions.h"
#include "tests/common/model/model_files.h"

namespace ringmaster::model {
namespace {

constexpr char kTwoHeads[] =
    "model:\n"
    "  layers:\n"
    "    - {flatten: {name: flat}}\n"
    "    - {dense: {name: aux, inputs: [flat], units: classes}}\n"
    "    - {dense: {name: main, inputs: [flat], units: 12}}\n";

StatusOr<v1::JobSpec> Spec(const std::string& outputs) {
  return job::ParseJobFile("job.yaml", kTwoHeads + outputs, {}, nullptr);
}

// `loss(0.5)=aux accuracy=main`: names, weights that are not 1, and what is looked at.
std::string OutputsOf(const std::string& text) {
  const auto spec = Spec(text);
  if (!spec.ok()) return Message(spec.status());
  const auto graph =
      BuildGraph(spec->model(), ImagesAndLabels(zoo::kCifar), {spec->loss(), spec->metrics()});
  if (!graph.ok()) return Message(graph.status());
  std::string outputs;
  for (const v1::Output& output : graph->outputs()) {
    const auto node = std::ranges::find(graph->nodes(), output.value(), &v1::Node::name);
    REQUIRE(node != graph->nodes().end());
    outputs += (outputs.empty() ? "" : " ") + output.name();
    if (output.has_loss() && output.loss().weight() != 1) {
      outputs += fmt::format("({})", output.loss().weight());
    }
    outputs += "=" + node->op() + ":" + node->inputs(0);
  }
  return outputs;
}

TEST_CASE("Outputs: what is not written is what such data call for") {
  const std::string both =
      "loss:\n  - softmax_cross_entropy\n  - softmax_cross_entropy: {name: side, inputs: [aux]}\n";
  CHECK(OutputsOf(both) ==
        "softmax_cross_entropy=softmax_cross_entropy:main side=softmax_cross_entropy:aux "
        "accuracy=top_k:main");
  CHECK(OutputsOf("loss: softmax_cross_entropy") == "job.yaml:4:8: aux (dense): nothing reads it");
  CHECK(OutputsOf("metrics: [{accuracy: {inputs: [aux]}}]") ==
        "loss=softmax_cross_entropy:main accuracy=top_k:aux");
  CHECK(OutputsOf("loss: {softmax_cross_entropy: {inputs: [aux], weight: 0.5}}\n"
                  "metrics: [{top_k: {k: 3, inputs: [main, label]}}, {top_5: {inputs: aux}}]") ==
        "loss(0.5)=softmax_cross_entropy:aux top_k=top_k:main top_5=top_k:aux");
}

TEST_CASE("Outputs: options reach the ops") {
  const auto spec = Spec(
      "loss: {softmax_cross_entropy: 0.1}\nmetrics: [{top_k: {k: 7, inputs: [aux], name: seven}}]");
  REQUIRE(spec.ok());
  const auto graph =
      BuildGraph(spec->model(), ImagesAndLabels(zoo::kCifar), {spec->loss(), spec->metrics()});
  INFO(graph.status());
  REQUIRE(graph.ok());
  CHECK(graph->nodes(3).attributes(0).name() == "label_smoothing");
  CHECK(graph->nodes(3).attributes(0).f() == 0.1);
  CHECK(graph->nodes(4).attributes(0).i() == 7);
  CHECK(graph->outputs(1).name() == "seven");
  CHECK_FALSE(graph->outputs(1).measure().lower_is_better());
}

TEST_CASE("Outputs: a job file that is printed says the same") {
  const auto spec = Spec(
      "loss: [{softmax_cross_entropy: {name: all, inputs: [aux, label], weight: 2}}]\n"
      "metrics: [accuracy, {top_k: 4}]\n");
  REQUIRE(spec.ok());
  const std::string text = job::PrintJobFile(*spec);
  CHECK(text.find("loss: [{softmax_cross_entropy: {name: all, inputs: [aux, label], weight: 2}}]\n"
                  "metrics: [{accuracy: {}}, {top_k: {k: 4}}]\n") != std::string::npos);
  const auto again = job::ParseJobFile("job.yaml", text, {}, nullptr);
  INFO(again.status());
  REQUIRE(again.ok());
  CHECK(job::PrintJobFile(*again) == text);
}

TEST_CASE("Outputs: what is wrong is said where it stands") {
  CHECK(OutputsOf("loss: hubert") ==
        "job.yaml:6:7: there is no loss \"hubert\"; did you mean \"huber\"?");
  CHECK(
      OutputsOf("metrics: [loss]") ==
      "job.yaml:6:11: there is no metric \"loss\"; there are accuracy, binary_accuracy, mae, mse, "
      "rmse, top_5, top_k");
  CHECK(OutputsOf("loss: {softmax_cross_entropy: {weight: 0}}") ==
        "job.yaml:6:40: weight: expected number, above 0, got \"0\"");
  CHECK(OutputsOf("loss: {softmax_cross_entropy: {delta: 1}}") ==
        "job.yaml:6:32: softmax_cross_entropy: unknown option \"delta\"; its options are "
        "label_smoothing, weight");
  CHECK(OutputsOf("loss: {softmax_cross_entropy: 1.5}").find("label_smoothing") !=
        std::string::npos);
  CHECK(OutputsOf("metrics: [{accuracy: 3}]") == "job.yaml:6:12: accuracy: it has no options");
  CHECK(OutputsOf("metrics: [{accuracy: {repeat: 2}}]") ==
        "job.yaml:6:12: accuracy: when, repeat and float32 are for layers");
  CHECK(OutputsOf("loss: {softmax_cross_entropy: {inputs: [nobody]}}") ==
        "job.yaml:6:8: loss (softmax_cross_entropy): it reads \"nobody\", which is neither "
        "something that stands before it nor an input column; input columns are image");
  CHECK(OutputsOf("loss: {softmax_cross_entropy: {inputs: [aux, labels]}}") ==
        "job.yaml:6:8: loss (softmax_cross_entropy): there is no column \"labels\"; the data have "
        "image "
        "(32, 32, 3) float32, label int32");
  CHECK(OutputsOf("loss: {softmax_cross_entropy: {inputs: [flat, label, aux]}}") ==
        "job.yaml:6:8: loss (softmax_cross_entropy): it reads 3 inputs; expected [LAYER, COLUMN]");
  CHECK(OutputsOf("metrics: [{accuracy: {inputs: [aux]}}, {accuracy: {inputs: [main]}}]") ==
        "model: accuracy (top_k): two things are called accuracy");
  CHECK(OutputsOf("loss: {huber: {inputs: [aux]}}") ==
        "job.yaml:6:8: loss (huber): column label is int32; it compares with numbers, which are "
        "float32");
}

TEST_CASE("Outputs: losses of a message are checked as if nobody had") {
  const v1::Model model = Read("layers: [flatten, {dense: classes}]");
  Outputs outputs;
  outputs.losses.Add();
  const auto error = [&] {
    return Message(BuildGraph(model, ImagesAndLabels(zoo::kCifar), outputs).status());
  };
  CHECK(error() ==
        "loss (): there is no such loss; there are huber, mean_absolute_error, mean_squared_error, "
        "sigmoid_cross_entropy, softmax_cross_entropy");
  outputs.losses[0].set_kind("softmax_cross_entropy");
  outputs.losses[0].add_attributes()->set_name("weight");
  CHECK(error() == "loss (softmax_cross_entropy): weight: expected number, above 0, got nothing");
  for (int i = 0; i < 33; ++i) outputs.losses.Add()->set_kind("softmax_cross_entropy");
  CHECK(error() == "loss: 34 of them; at most 32 are allowed");
}

// `probabilities=softmax:head`: names, and what makes them of what; then what the graph has.
std::string RowsOfJob(const std::string& job, const Columns& columns, const Wanted& wanted = {}) {
  const auto spec = job::ParseJobFile("job.yaml", job, {}, nullptr);
  if (!spec.ok()) return Message(spec.status());
  const auto graph =
      BuildPredictions(spec->model(), columns, {spec->loss(), spec->metrics()}, wanted);
  if (!graph.ok()) return Message(graph.status());
  std::string rows;
  for (const v1::Output& output : graph->outputs()) {
    CHECK(output.has_rows());
    const auto node = std::ranges::find(graph->nodes(), output.value(), &v1::Node::name);
    REQUIRE(node != graph->nodes().end());
    rows += output.name() + "=" + node->op() + ":" + node->inputs(0) + " ";
  }
  for (const v1::Column& column : graph->columns()) rows += column.name() + " ";
  for (const v1::Parameter& parameter : graph->parameters()) {
    CHECK_FALSE(parameter.trainable());
    rows += parameter.name() + " ";
  }
  return rows;
}

std::string RowsOf(const std::string& text, const Columns& columns, const Wanted& wanted = {}) {
  return RowsOfJob(kTwoHeads + text, columns, wanted);
}

Wanted WantedLayers(const std::vector<std::string>& names, uint32_t classes = 0) {
  return {.layers = {names.begin(), names.end()}, .classes = classes};
}

constexpr char kBothLosses[] =
    "loss:\n  - softmax_cross_entropy\n  - softmax_cross_entropy: {name: side, inputs: [aux]}\n";

TEST_CASE("Predictions: what losses read, without labels and without what nothing wanted needs") {
  const Columns columns = ImagesAndLabels(zoo::kCifar);
  CHECK(RowsOf(kBothLosses, columns) ==
        "softmax_cross_entropy_probabilities=softmax:main side_probabilities=softmax:aux image "
        "aux/kernel aux/bias main/kernel main/bias ");
  CHECK(RowsOf(kBothLosses, columns, WantedLayers({"main"})) ==
        "main=dense:flat image main/kernel main/bias ");
  CHECK(RowsOf(kBothLosses, columns, WantedLayers({"aux", "flat"})) ==
        "aux=dense:flat flat=reshape:image image aux/kernel aux/bias ");
  CHECK(RowsOf(kBothLosses, columns, WantedLayers({"axu"})) ==
        "predict.outputs: the model has no layer \"axu\"; did you mean \"aux\"?");
}

TEST_CASE("Predictions: data without targets have as many classes as the job says") {
  const Columns images = {ImagesAndLabels(zoo::kCifar)[0]};
  CHECK(RowsOf(kBothLosses, images, WantedLayers({}, 10)) ==
        "softmax_cross_entropy_probabilities=softmax:main side_probabilities=softmax:aux image "
        "aux/kernel aux/bias main/kernel main/bias ");
  CHECK_THAT(RowsOf(kBothLosses, images), Catch::Contains("has no classes"));
  const v1::Model model = Read(
      "layers:\n  - {flatten: {name: flat}}\n  - {dense: {name: side, inputs: [flat], units: 2}}\n"
      "  - {dense: {name: price, inputs: [flat], units: 1}}\n");
  const auto graph = BuildPredictions(model, images, {}, {});
  INFO(graph.status());
  REQUIRE(graph.ok());
  CHECK(graph->outputs(0).name() == "values");
  CHECK(graph->parameters_size() == 2);
  CHECK(graph->parameters(0).name() == "price/kernel");
}

// A number, and two of yes and no.
constexpr char kPrices[] =
    "model:\n"
    "  layers:\n"
    "    - {flatten: {name: flat}}\n"
    "    - {dense: {name: price, inputs: [flat], units: 1}}\n"
    "    - {dense: {name: both, inputs: [flat], units: 2}}\n";

TEST_CASE("Predictions: data without targets have the rows of the losses that are written") {
  const Columns images = {ImagesAndLabels(zoo::kCifar)[0]};
  CHECK(RowsOfJob(std::string(kPrices) + "loss: sigmoid_cross_entropy\n", images) ==
        "probabilities=sigmoid:both image both/kernel both/bias ");
  CHECK(RowsOfJob(std::string(kPrices) +
                      "loss:\n  - mean_squared_error: {name: cost, inputs: [price, y]}\n"
                      "  - huber: {name: pair, inputs: [both, z]}\n",
                  images) ==
        "cost_values=reshape:price pair_values=dense:flat image price/kernel price/bias "
        "both/kernel both/bias ");
  // Classes are those of the first target; what other losses compare with need not be known.
  CHECK(RowsOf("loss:\n  - softmax_cross_entropy: {name: class, inputs: [aux, label]}\n"
               "  - mean_squared_error: {name: rest, inputs: [main, price]}\n",
               images, WantedLayers({}, 10)) ==
        "class_probabilities=softmax:aux rest_values=dense:flat image aux/kernel aux/bias "
        "main/kernel main/bias ");
  CHECK(RowsOf("loss: {softmax_cross_entropy: {inputs: [axu]}}", images, WantedLayers({}, 10))
            .find("did you mean \"aux\"?") != std::string::npos);
}

TEST_CASE("Predictions: a layer may be called as a row is") {
  const std::string job =
      "model: {layers: [flatten, {dense: {name: probabilities, units: classes}}]}\n";
  for (const Columns& columns :
       {ImagesAndLabels(zoo::kCifar), Columns{ImagesAndLabels(zoo::kCifar)[0]}}) {
    CHECK(RowsOfJob(job, columns, WantedLayers({}, 10)) ==
          "probabilities=softmax:probabilities image probabilities/kernel probabilities/bias ");
  }
}

TEST_CASE("Predictions: frozen normalizations read their moving statistics") {
  const v1::Model model = Read(
      "layers:\n  - conv2d: {name: conv, filters: 4, bias: false}\n  - batch_norm: {name: bn}\n"
      "  - dropout: 0.5\n  - flatten\n  - dense: {name: fc, units: classes}\n");
  const auto graph = BuildPredictions(model, ImagesAndLabels(zoo::kCifar), {}, {});
  INFO(graph.status());
  REQUIRE(graph.ok());
  CHECK(graph->statistics_size() == 2);
  const auto program = graph::BuildProgram(
      *graph, {.mode = graph::Mode::kInference, .samples = 3, .policy = v1::POLICY_MIXED_BFLOAT16});
  INFO(program.status());
  REQUIRE(program.ok());
  CHECK(program->parameters.empty());
  CHECK(program->normalizations.empty());
  CHECK(program->frozen.size() == 7);
  REQUIRE(program->rows.size() == 1);
  const graph::Value& rows = program->graph.value(program->rows[0].value);
  CHECK(rows.shape == graph::Shape{3, 10});
  CHECK(rows.dtype == graph::DType::kFloat32);
  CHECK(program->columns.size() == 1);
}

}  // namespace
}  // namespace ringmaster::model
