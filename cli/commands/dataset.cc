// ringctl dataset make cifar10 DIR: sample data in CIFAR-10's binary format.
#include "cli/commands/commands.h"
#include "cli/json.h"
#include "common/data/sample_data.h"

namespace ringmaster::cli {
namespace {

struct MakeOptions {
  std::string format;
  std::string folder;
  data::SampleDataOptions samples;
};

StatusOr<ExitCode> Make(const Common& common, const MakeOptions& options) {
  if (options.format != "cifar10") {
    return InvalidArgument("dataset make: unknown format {}; there is cifar10", options.format);
  }
  RING_RETURN_IF_ERROR(data::MakeCifar10(options.folder, options.samples));
  if (common.json()) {
    Print(Json{{"path", options.folder},
               {"format", options.format},
               {"train", options.samples.train},
               {"test", options.samples.test},
               {"seed", options.samples.seed}}
              .dump(2) +
          "\n");
  } else {
    Say(fmt::format("wrote {} training and {} test images to {}", options.samples.train,
                    options.samples.test, options.folder));
  }
  return ExitCode::kOk;
}

}  // namespace

void AddDataset(CommandLine& line) {
  const auto options = std::make_shared<MakeOptions>();
  CLI::App* const group = line.AddGroup("dataset", "make sample data");
  CLI::App* const make =
      line.Add(group, "make", "write learnable sample data in a dataset's own format",
               Examples("ringctl dataset make cifar10 data/cifar10 --train 6000 --test 1000"),
               [&line, options] { return Make(line.common(), *options); });
  make->add_option("FORMAT", options->format, "cifar10")->required();
  make->add_option("DIR", options->folder, "folder to create")->required();
  make->add_option("--train", options->samples.train, "training images")->capture_default_str();
  make->add_option("--test", options->samples.test, "test images")->capture_default_str();
  make->add_option("--seed", options->samples.seed, "another seed, other images")
      ->capture_default_str();
}

}  // namespace ringmaster::cli
