// ringctl model ls, model summary NAME: what the zoo has. Asks no coordinator.
#include <algorithm>
#include <charconv>
#include <optional>

#include "cli/commands/commands.h"
#include "cli/render_model.h"

namespace ringmaster::cli {
namespace {

struct SummaryOptions {
  v1::Model model;
  std::string image = "32x32x3";
  int64_t classes = 10;
  std::optional<std::string> hidden;
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

StatusOr<zoo::ImageShape> ParseImage(const std::string& text) {
  constexpr uint32_t kMostSide = 1024;
  const auto numbers = Numbers(text, 'x');
  if (!numbers || numbers->size() != 3 || std::ranges::count(*numbers, 0U) > 0 ||
      std::ranges::max(*numbers) > kMostSide) {
    return InvalidArgument(
        "--image: expected HEIGHTxWIDTHxCHANNELS, each 1 to {}, such as 32x32x3; got \"{}\"",
        kMostSide, text);
  }
  return zoo::ImageShape{(*numbers)[0], (*numbers)[1], (*numbers)[2]};
}

StatusOr<ExitCode> ListModels(const Common& common) {
  const std::vector<zoo::ModelDescription> models = zoo::ListModels();
  Print(common.json() ? ToJson(models).dump(2) + "\n" : RenderModels(models, Terminal::Of(stdout)));
  return ExitCode::kOk;
}

StatusOr<ExitCode> Summarize(const Common& common, const SummaryOptions& options) {
  RING_ASSIGN_OR_RETURN(const zoo::ImageShape images, ParseImage(options.image));
  v1::Model model = options.model;
  if (options.hidden) {
    const auto units = Numbers(*options.hidden == "none" ? "" : *options.hidden, ',');
    if (!units) {
      return InvalidArgument("--hidden: expected units such as 2048,2048, or none, got \"{}\"",
                             *options.hidden);
    }
    model.mutable_hidden()->mutable_values()->Add(units->begin(), units->end());
  }
  RING_ASSIGN_OR_RETURN(const zoo::Summary summary, zoo::Summarize(model, images, options.classes));
  Print(common.json() ? ToJson(summary).dump(2) + "\n"
                      : RenderSummary(summary, Terminal::Of(stdout)));
  return ExitCode::kOk;
}

void AddSummary(CommandLine& line, CLI::App* group) {
  const auto options = std::make_shared<SummaryOptions>();
  v1::Model& model = options->model;
  CLI::App* const command =
      line.Add(group, "summary", "show a model's layers and parameters",
               Examples("ringctl model summary vgg",
                        "ringctl model summary mlp --hidden 512,256 --image 28x28x1"),
               [&line, options] { return Summarize(line.common(), *options); });
  command
      ->add_option_function<std::string>(
          "NAME", [&](const auto& name) { model.set_name(name); }, "one of `model ls`")
      ->required();
  command->add_option("--image", options->image, "size of the images")
      ->type_name("HxWxC")
      ->capture_default_str();
  command->add_option("--classes", options->classes, "classes to tell apart")
      ->check(CLI::Range(1, 65536).description(""))
      ->type_name("N")
      ->capture_default_str();
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
  AddSummary(line, group);
}

}  // namespace ringmaster::cli
