// ringctl model ls, model layers, model summary and model show: what models there are, and what
// they are made of, of the zoo and in files. Asks no coordinator, but for a job's.
#include <algorithm>
#include <charconv>
#include <optional>

#include "cli/client.h"
#include "cli/commands/commands.h"
#include "cli/show/render_model.h"
#include "common/files.h"
#include "common/graph/layers/layer_table.h"
#include "common/graph/message/message.h"
#include "common/graph/printer.h"
#include "common/job/job_file.h"
#include "common/job/offline_job.h"
#include "common/job/overrides.h"
#include "common/job/resolve.h"
#include "common/model/build.h"
#include "common/model/fine_tuning.h"
#include "common/model/print_model.h"
#include "common/text.h"
#include "common/zoo/model_table.h"

namespace ringmaster::cli {
namespace {

struct ModelOptions {
  std::string name;  // of the zoo, of a file, or of a job
  std::vector<std::string> options;
  std::optional<std::string> input;
  std::optional<int64_t> classes;
  std::string data_root;  // of a job file: where its data are; empty: they are not looked at
};

// A model, and the data that it is looked at for.
struct Subject {
  v1::Model model;
  model::AroundModel around;  // of a job file
  zoo::DataShape data;
  std::optional<v1::Graph> graph;  // where the data were looked at
};

// Numbers with an x between them; nothing when a part is no number.
std::optional<std::vector<uint32_t>> Numbers(const std::string& text) {
  std::vector<uint32_t> numbers;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at != end) {
    if (!numbers.empty() && *at++ != 'x') return std::nullopt;
    const auto [next, error] = std::from_chars(at, end, numbers.emplace_back());
    if (error != std::errc()) return std::nullopt;
    at = next;
  }
  return numbers;
}

// What the model usually gets, but for what was said.
StatusOr<zoo::DataShape> DataOf(const ModelOptions& options, zoo::DataShape data) {
  data.classes = options.classes.value_or(data.classes);
  if (!options.input) return data;
  constexpr uint32_t kMostSide = 1024;
  const auto numbers = Numbers(*options.input);
  if (!numbers || numbers->size() != 3 || std::ranges::count(*numbers, 0U) > 0 ||
      std::ranges::max(*numbers) > kMostSide) {
    return InvalidArgument(
        "--input: expected HEIGHTxWIDTHxCHANNELS, each 1 to {}, such as 32x32x3; got \"{}\"",
        kMostSide, *options.input);
  }
  return zoo::DataShape{(*numbers)[0], (*numbers)[1], (*numbers)[2], data.classes};
}

// A job file with its data: what a job of it would carry.
StatusOr<Subject> SubjectOfData(const ModelOptions& options) {
  if (options.input || options.classes) {
    return InvalidArgument("--data-root: the data say what --input and --classes say");
  }
  if (!model::IsFileName(options.name)) {
    return InvalidArgument("--data-root: {} is no job file, which says what data there are",
                           options.name);
  }
  std::vector<std::string> overrides;
  for (const std::string& option : options.options) overrides.push_back("model." + option);
  RING_ASSIGN_OR_RETURN(const v1::JobSpec spec, job::ReadJob(options.name, overrides));
  RING_ASSIGN_OR_RETURN(const v1::ResultSpec result,
                        job::ResultWithoutCluster(spec, options.data_root));
  Subject subject = {spec.model(), {}, zoo::kCifar, result.graph()};
  for (const v1::Column& column : result.graph().columns()) {
    if (column.shape_size() == 3) {
      subject.data.height = column.shape(0);
      subject.data.width = column.shape(1);
      subject.data.channels = column.shape(2);
    } else if (column.limit() > 0) {
      subject.data.classes = column.limit();
    }
  }
  return subject;
}

// null takes back what stands on the command line: what a file gives its model stays.
Status NotGiven(const std::vector<std::string>& path, const std::string& where) {
  return InvalidArgument(
      "{}: no --option before it gave {} that null could take back; leave it out", where, path[0]);
}

StatusOr<Subject> SubjectOf(const ModelOptions& options) {
  if (!options.data_root.empty()) return SubjectOfData(options);
  YamlNode given = {.kind = YamlNode::Kind::kMap};
  const bool is_file = model::IsFileName(options.name);
  if (!is_file) {
    given.members.push_back({"name", "", {.kind = YamlNode::Kind::kScalar, .text = options.name}});
  }
  for (const std::string& option : options.options) {
    RING_RETURN_IF_ERROR(job::ApplyOverride(option, &given, "--option", NotGiven));
  }
  Subject subject = {};
  zoo::DataShape usual = zoo::kCifar;
  if (is_file) {
    RING_ASSIGN_OR_RETURN(const std::string text, ReadNamedFile("model file", options.name));
    RING_ASSIGN_OR_RETURN(subject.model,
                          model::ReadModelFile(options.name, text, given.members,
                                               job::FilesBeside(options.name), &subject.around));
  } else {
    RING_ASSIGN_OR_RETURN(const zoo::Entry* entry, zoo::FindModel(options.name));
    RING_ASSIGN_OR_RETURN(subject.model, model::ReadModel(given, nullptr));
    usual = entry->usual;
  }
  if (is_file && !subject.model.name().empty()) {  // of a job
    RING_ASSIGN_OR_RETURN(const zoo::Entry* entry, zoo::FindModel(subject.model.name()));
    usual = entry->usual;
  }
  RING_ASSIGN_OR_RETURN(subject.data, DataOf(options, usual));
  return subject;
}

StatusOr<ExitCode> ListModels(const Common& common) {
  const std::vector<zoo::ModelDescription> models = zoo::ListModels();
  Print(common.json() ? ToJson(models).dump(2) + "\n" : RenderModels(models, Terminal::Of(stdout)));
  return ExitCode::kOk;
}

StatusOr<ExitCode> ListLayers(const Common& common, const std::vector<std::string>& names) {
  using namespace graph::layers;
  ModelWords words;
  if (names.empty()) words = {LayerTable(), OutputTable()};
  for (const std::string& name : names) {
    const LayerKind* const layer = FindLayer(name);
    if (layer != nullptr) words.layers.push_back(*layer);
    bool found = layer != nullptr;
    for (const OutputKind& kind : OutputTable()) {
      if (kind.name != name) continue;
      words.outputs.push_back(kind);
      found = true;
    }
    if (found) continue;
    std::vector<std::string> known = LayerNames();
    for (const OutputKind& kind : OutputTable()) known.push_back(kind.name);
    const std::string guess = Nearest(name, known);
    return InvalidArgument("there is no layer \"{}\"{}", name,
                           guess.empty() ? "; `ringctl model layers` lists them"
                                         : fmt::format("; did you mean {}?", guess));
  }
  Print(common.json() ? ToJson(words).dump(2) + "\n" : RenderLayers(words, Terminal::Of(stdout)));
  return ExitCode::kOk;
}

// j0012, or `last`: no model has such a name.
bool IsJob(const std::string& name) {
  const bool number = name.size() > 1 && name[0] == 'j' &&
                      name.find_first_not_of("0123456789", 1) == std::string::npos;
  return number || name == "last";
}

StatusOr<v1::Graph> GraphOfJob(const Common& common, const ModelOptions& options) {
  if (common.output == Output::kYaml || !options.options.empty() || options.input ||
      options.classes || !options.data_root.empty()) {
    return InvalidArgument(
        "the graph of job {} is what it is: --option, --input, --classes, --data-root and -o yaml "
        "are for models",
        options.name);
  }
  RING_ASSIGN_OR_RETURN(Client client, Client::Create(common.coordinator));
  RING_ASSIGN_OR_RETURN(const std::string job_id, client.IdOf(options.name));
  return client.GetGraph(job_id);
}

StatusOr<v1::Graph> GraphOf(const Subject& subject) {
  if (subject.graph) return *subject.graph;
  RING_ASSIGN_OR_RETURN(v1::Graph graph,
                        model::BuildGraph(subject.model, model::ImagesAndLabels(subject.data),
                                          subject.around.outputs));
  RING_RETURN_IF_ERROR(model::Freeze(subject.around.freeze, &graph));
  return graph;
}

// Of a job's graph, of one sample; that of a script has tensors alone.
StatusOr<graph::Program> ProgramOf(const v1::Graph& graph) {
  return graph::IsScript(graph) ? graph::ScriptProgram(graph, graph::Mode::kTraining, 1)
                                : graph::FromMessage(graph, graph::Mode::kTraining, 1);
}

// A model of layers has no name of its own: it is called `name`.
zoo::Summary SummaryOf(const std::string& name, const v1::Model& model,
                       const graph::Program& program) {
  zoo::Summary summary = zoo::Summarize(model, program);
  if (summary.name.empty()) summary.name = name;
  return summary;
}

StatusOr<zoo::Summary> SummaryOfJob(const Common& common, const ModelOptions& options) {
  RING_ASSIGN_OR_RETURN(const v1::Graph graph, GraphOfJob(common, options));
  RING_ASSIGN_OR_RETURN(Client client, Client::Create(common.coordinator));
  RING_ASSIGN_OR_RETURN(const std::string job_id, client.IdOf(options.name));
  RING_ASSIGN_OR_RETURN(const v1::JobStatus job, client.Get(job_id));
  RING_ASSIGN_OR_RETURN(const graph::Program program, ProgramOf(graph));
  zoo::Summary summary = SummaryOf(job_id, job.spec().model(), program);
  if (!job.spec().has_script()) return summary;
  summary.name = job.spec().script().file();
  for (const graph::Parameter& tensor : program.parameters) {
    summary.layers.push_back({tensor.name, "Tensor", tensor.shape, graph::Elements(tensor.shape)});
  }
  return summary;
}

StatusOr<zoo::Summary> SummaryOfModel(const ModelOptions& options) {
  RING_ASSIGN_OR_RETURN(const Subject subject, SubjectOf(options));
  // What is frozen is known of a graph alone, which features have none of.
  if (subject.graph || !subject.around.freeze.empty()) {
    RING_ASSIGN_OR_RETURN(const v1::Graph graph, GraphOf(subject));
    RING_ASSIGN_OR_RETURN(const graph::Program program,
                          graph::FromMessage(graph, graph::Mode::kTraining, 1));
    return SummaryOf(options.name, subject.model, program);
  }
  RING_ASSIGN_OR_RETURN(const graph::Program program,
                        model::BuildForward(subject.model, model::ImagesAndLabels(subject.data),
                                            subject.around.outputs));
  return SummaryOf(options.name, subject.model, program);
}

StatusOr<ExitCode> Summarize(const Common& common, const ModelOptions& options) {
  RING_ASSIGN_OR_RETURN(const zoo::Summary summary, IsJob(options.name)
                                                        ? SummaryOfJob(common, options)
                                                        : SummaryOfModel(options));
  Print(common.json() ? ToJson(summary).dump(2) + "\n"
                      : RenderSummary(summary, Terminal::Of(stdout)));
  return ExitCode::kOk;
}

// The canonical graph: as JSON what a job carries, byte for byte; for people its nodes. Or a file
// of layers that makes it.
StatusOr<ExitCode> Show(const Common& common, const ModelOptions& options) {
  const bool is_job = IsJob(options.name);
  if (common.output == Output::kYaml && !is_job) {
    RING_ASSIGN_OR_RETURN(const Subject subject, SubjectOf(options));
    RING_ASSIGN_OR_RETURN(const std::string file,
                          model::PrintModelFile(subject.model, subject.data));
    Print(file);
    return ExitCode::kOk;
  }
  v1::Graph graph;
  if (is_job) {
    RING_ASSIGN_OR_RETURN(graph, GraphOfJob(common, options));
  } else {
    RING_ASSIGN_OR_RETURN(const Subject subject, SubjectOf(options));
    RING_ASSIGN_OR_RETURN(graph, GraphOf(subject));
  }
  if (common.json()) {
    Print(job::CanonicalJson(graph) + "\n");
    return ExitCode::kOk;
  }
  RING_ASSIGN_OR_RETURN(const graph::Program program, ProgramOf(graph));
  Print(graph::Print(program.graph));
  for (const graph::Parameter& tensor : program.parameters) {
    if (!graph::IsScript(graph)) break;
    Print(fmt::format("{} ({})\n", tensor.name, fmt::join(tensor.shape, ", ")));
  }
  Print(fmt::format("model_sha256 {}\n", Hex(job::ModelDigest(graph))));
  return ExitCode::kOk;
}

using Action = StatusOr<ExitCode> (*)(const Common&, const ModelOptions&);

CLI::App* AddOfOneModel(CommandLine& line, CLI::App* group, const std::string& name,
                        const std::string& help, const Examples& examples, Action action) {
  const auto options = std::make_shared<ModelOptions>();
  CLI::App* const command = line.Add(group, name, help, examples, [&line, options, action] {
    return action(line.common(), *options);
  });
  command
      ->add_option("NAME", options->name,
                   "one of `model ls`, or a file: NAME.yaml, or a path; - is stdin; or a job's id")
      ->required();
  command
      ->add_option(
          "--option", options->options,
          "an option of the model or of the file, e.g. depth=19; `model ls` lists those of "
          "models; repeatable")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false)
      ->take_all();
  command->add_option("--input", options->input, "size of the images; default: the model's usual")
      ->type_name("HxWxC");
  command->add_option("--classes", options->classes, "classes to tell apart; likewise")
      ->check(CLI::Range(1, 65536).description(""))
      ->type_name("N");
  command
      ->add_option("--data-root", options->data_root,
                   "folder that holds the data of a job file: with it any columns, and what the "
                   "job would carry")
      ->type_name("DIR");
  command->add_flag_callback(
      "--no-top", [options = options.get()] { options->options.emplace_back("head=none"); },
      "without the layers behind the features: --option head=none");
  return command;
}

}  // namespace

void AddModel(CommandLine& line) {
  CLI::App* const group = line.AddGroup("model", "list models and show what they are made of");
  line.Add(group, "ls", "list the models with their options", Examples("ringctl model ls"),
           [&line] { return ListModels(line.common()); });
  AddOfOneModel(line, group, "summary", "show the layers and parameters of a model, or of a job's",
                Examples("ringctl model summary vgg", "ringctl model summary resnet50 --no-top",
                         "ringctl model summary mlp --option hidden=[512,256] --input 28x28x1"),
                Summarize);
  line.AllowYaml(AddOfOneModel(
      line, group, "show",
      "show the graph that a job with this model carries, or its layers as a model file",
      Examples("ringctl model show vgg -o yaml > net.yaml", "ringctl model show net.yaml -o json",
               "ringctl model show j0001"),
      Show));
  const auto kinds = std::make_shared<std::vector<std::string>>();
  line.Add(group, "layers",
           "list the layers that a model file may have, losses and metrics, with their options",
           Examples("ringctl model layers", "ringctl model layers conv2d huber"),
           [&line, kinds] { return ListLayers(line.common(), *kinds); })
      ->add_option("LAYER", *kinds, "only these; default: all");
}

}  // namespace ringmaster::cli
