// ringctl model ls, model summary NAME, model show NAME: what the zoo has. Asks no coordinator.
#include <algorithm>
#include <charconv>
#include <optional>

#include "cli/commands/commands.h"
#include "cli/render_model.h"
#include "common/graph/message/message.h"
#include "common/graph/printer.h"
#include "common/job/resolve.h"
#include "common/zoo/zoo.h"

namespace ringmaster::cli {
namespace {

struct ModelOptions {
  v1::Model model;
  std::optional<std::string> input;
  std::optional<int64_t> classes;
  std::optional<std::string> hidden;
  std::string head;
};

// Numbers with `separator` between them; none in an empty text. Nothing when a part is no number.
std::optional<std::vector<uint32_t>> Numbers(const std::string& text, char separator) {
  std::vector<uint32_t> numbers;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at != end) {
    if (!numbers.empty() && *at++ != separator) return std::nullopt;
    const auto [next, error] = std::from_chars(at, end, numbers.emplace_back());
    if (error != std::errc()) return std::nullopt;
    at = next;
  }
  return numbers;
}

// The data that the model usually gets, but for what was said.
StatusOr<zoo::DataShape> DataOf(const ModelOptions& options) {
  RING_ASSIGN_OR_RETURN(const zoo::Entry* entry, zoo::FindModel(options.model.name()));
  zoo::DataShape data = entry->usual;
  data.classes = options.classes.value_or(data.classes);
  if (!options.input) return data;
  constexpr uint32_t kMostSide = 1024;
  const auto numbers = Numbers(*options.input, 'x');
  if (!numbers || numbers->size() != 3 || std::ranges::count(*numbers, 0U) > 0 ||
      std::ranges::max(*numbers) > kMostSide) {
    return InvalidArgument(
        "--input: expected HEIGHTxWIDTHxCHANNELS, each 1 to {}, such as 32x32x3; got \"{}\"",
        kMostSide, *options.input);
  }
  return zoo::DataShape{(*numbers)[0], (*numbers)[1], (*numbers)[2], data.classes};
}

// What v1::Model has no fields for.
zoo::Attributes MoreOf(const ModelOptions& options) {
  zoo::Attributes more;
  if (options.head.empty()) return more;
  v1::Attribute* const head = more.Add();
  head->set_name("head");
  head->set_s(options.head);
  return more;
}

StatusOr<ExitCode> ListModels(const Common& common) {
  const std::vector<zoo::ModelDescription> models = zoo::ListModels();
  Print(common.json() ? ToJson(models).dump(2) + "\n" : RenderModels(models, Terminal::Of(stdout)));
  return ExitCode::kOk;
}

StatusOr<v1::Model> ModelOf(const ModelOptions& options) {
  v1::Model model = options.model;
  if (!options.hidden) return model;
  const auto units = Numbers(*options.hidden == "none" ? "" : *options.hidden, ',');
  if (!units) {
    return InvalidArgument("--hidden: expected units such as 2048,2048, or none, got \"{}\"",
                           *options.hidden);
  }
  model.mutable_hidden()->mutable_values()->Add(units->begin(), units->end());
  return model;
}

StatusOr<ExitCode> Summarize(const Common& common, const ModelOptions& options) {
  RING_ASSIGN_OR_RETURN(const zoo::DataShape data, DataOf(options));
  RING_ASSIGN_OR_RETURN(const v1::Model model, ModelOf(options));
  RING_ASSIGN_OR_RETURN(const zoo::Summary summary, zoo::Summarize(model, data, MoreOf(options)));
  Print(common.json() ? ToJson(summary).dump(2) + "\n"
                      : RenderSummary(summary, Terminal::Of(stdout)));
  return ExitCode::kOk;
}

// The canonical graph: as JSON what a job carries, byte for byte; for people its nodes.
StatusOr<ExitCode> Show(const Common& common, const ModelOptions& options) {
  RING_ASSIGN_OR_RETURN(const zoo::DataShape data, DataOf(options));
  RING_ASSIGN_OR_RETURN(const v1::Model model, ModelOf(options));
  RING_ASSIGN_OR_RETURN(const v1::Graph graph, zoo::BuildGraph(model, {.height = data.height,
                                                                       .width = data.width,
                                                                       .channels = data.channels,
                                                                       .classes = data.classes,
                                                                       .more = MoreOf(options)}));
  if (common.json()) {
    Print(job::CanonicalJson(graph) + "\n");
    return ExitCode::kOk;
  }
  RING_ASSIGN_OR_RETURN(const graph::Program program,
                        graph::FromMessage(graph, graph::Mode::kTraining, 1));
  Print(graph::Print(program.graph));
  Print(fmt::format("model_sha256 {}\n", Hex(job::ModelDigest(graph))));
  return ExitCode::kOk;
}

using Action = StatusOr<ExitCode> (*)(const Common&, const ModelOptions&);

void AddOfOneModel(CommandLine& line, CLI::App* group, const std::string& name,
                   const std::string& help, const Examples& examples, Action action) {
  const auto options = std::make_shared<ModelOptions>();
  v1::Model& model = options->model;
  CLI::App* const command = line.Add(group, name, help, examples, [&line, options, action] {
    return action(line.common(), *options);
  });
  command
      ->add_option_function<std::string>(
          "NAME", [&](const auto& name) { model.set_name(name); }, "one of `model ls`")
      ->required();
  command->add_option("--input", options->input, "size of the images; default: the model's usual")
      ->type_name("HxWxC");
  command->add_option("--classes", options->classes, "classes to tell apart; likewise")
      ->check(CLI::Range(1, 65536).description(""))
      ->type_name("N");
  command->add_flag_callback(
      "--no-top", [options = options.get()] { options->head = "none"; },
      "without the layers behind the features");
  CLI::Option* const with = command->add_flag_callback(
      "--batch-norm", [&] { model.set_batch_norm(true); }, "with batch normalization");
  command
      ->add_flag_callback(
          "--no-batch-norm", [&] { model.set_batch_norm(false); }, "without it")
      ->excludes(with);
  command
      ->add_option_function<double>(
          "--dropout", [&](double rate) { model.set_dropout(rate); }, "rate of its dropout layers")
      ->type_name("X");
  command->add_option("--hidden", options->hidden, "units of its hidden layers")
      ->type_name("N,N,...|none");
  command
      ->add_option_function<uint32_t>(
          "--depth", [&](uint32_t depth) { model.set_depth(depth); }, "its weight layers")
      ->type_name("N");
}

}  // namespace

void AddModel(CommandLine& line) {
  CLI::App* const group = line.AddGroup("model", "list models and show what they are made of");
  line.Add(group, "ls", "list the models with their options", Examples("ringctl model ls"),
           [&line] { return ListModels(line.common()); });
  AddOfOneModel(line, group, "summary", "show a model's layers and parameters",
                Examples("ringctl model summary vgg", "ringctl model summary resnet50 --no-top",
                         "ringctl model summary mlp --hidden 512,256 --input 28x28x1"),
                Summarize);
  AddOfOneModel(line, group, "show", "show the graph that a job with this model carries",
                Examples("ringctl model show alexnet", "ringctl model show vgg -o json"), Show);
}

}  // namespace ringmaster::cli
