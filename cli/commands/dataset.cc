// ringctl dataset make FORMAT DIR, dataset stat, head, verify and manifest DIR, dataset pack SRC
// DIR: without a cluster.
#include <fmt/ranges.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "cli/commands/commands.h"
#include "cli/show/dataset_report.h"
#include "cli/show/json.h"
#include "common/data/dataset.h"
#include "common/data/manifest.h"
#include "common/data/pack.h"
#include "common/data/sample_data.h"
#include "common/data/statistics.h"
#include "common/data/verify.h"
#include "common/files.h"
#include "common/job/job_file.h"
#include "common/mutex.h"

namespace ringmaster::cli {
namespace {

// No coordinator is asked here, so that none can be unreachable: a disk is.
Status OfDisk(const Status& status) {
  const bool disk = status.code() == absl::StatusCode::kUnavailable ||
                    status.code() == absl::StatusCode::kDeadlineExceeded;
  return disk ? Status(absl::StatusCode::kUnknown, status.message()) : status;
}

struct MakeOptions {
  std::string folder;
  data::SampleDataOptions samples;
  bool gzip = false;
};

StatusOr<ExitCode> Make(const Common& common, MakeOptions options) {
  if (options.gzip) options.samples.compression = data::Compression::kGzip;
  const Status made = data::MakeSampleData(options.folder, options.samples);
  if (!made.ok()) return OfDisk(Annotate(made, "dataset make"));
  if (common.json()) {
    Print(Json{{"path", options.folder},
               {"format", options.samples.format},
               {"train", options.samples.train},
               {"test", options.samples.test},
               {"seed", options.samples.seed}}
              .dump(2) +
          "\n");
  } else {
    Say(fmt::format("wrote {} training and {} test samples to {}", options.samples.train,
                    options.samples.test, options.folder));
  }
  return ExitCode::kOk;
}

struct LookOptions {
  std::string folder;
  std::string format;            // empty: found by the files
  std::vector<std::string> set;  // what a job would say under `data`
  std::string list;              // file of SHA-256; empty: none
  bool decode = false;
  std::string quarantine;  // file to write; empty: none
  uint64_t samples = 5;
  bool test = false;
};

// What a job would say of the data; of tokens it says a window, which nobody has to know here.
StatusOr<v1::DataSource> SourceOf(const LookOptions& options, uint32_t window = 16) {
  if (!options.format.empty()) RING_RETURN_IF_ERROR(data::FindFormat(options.format).status());
  std::vector<std::string> overrides = {"data.path=.", fmt::format("data.window={}", window)};
  for (const std::string& set : options.set) overrides.push_back("data." + set);
  RING_ASSIGN_OR_RETURN(const v1::JobSpec spec, job::ParseJobFile("--set", "{}", overrides, {}));
  v1::DataSource source = spec.data();
  if (!options.format.empty()) source.set_format(options.format);
  return source;
}

StatusOr<std::shared_ptr<const data::Dataset>> Open(const LookOptions& options) {
  RING_ASSIGN_OR_RETURN(const v1::DataSource source, SourceOf(options));
  return data::Dataset::Open({options.folder, ""}, source);
}

StatusOr<DatasetStatistics> Look(const LookOptions& options) {
  RING_ASSIGN_OR_RETURN(const std::shared_ptr<const data::Dataset> dataset, Open(options));
  DatasetStatistics statistics{options.folder, dataset->facts(), {}, {}};
  RING_ASSIGN_OR_RETURN(statistics.train, data::StatisticsOf(*dataset, data::Split::kTrain));
  RING_ASSIGN_OR_RETURN(statistics.test, data::StatisticsOf(*dataset, data::Split::kTest));
  return statistics;
}

StatusOr<ExitCode> Stat(const Common& common, const LookOptions& options) {
  const StatusOr<DatasetStatistics> statistics = Look(options);
  if (!statistics.ok()) return OfDisk(Annotate(statistics.status(), "dataset stat"));
  Print(common.json() ? ToJson(*statistics).dump(2) + "\n"
                      : RenderDataset(*statistics, Terminal::Of(stdout)));
  return ExitCode::kOk;
}

StatusOr<ExitCode> Head(const Common& common, const LookOptions& options) {
  const auto look = [&]() -> StatusOr<DatasetHead> {
    RING_ASSIGN_OR_RETURN(const auto dataset, Open(options));
    return HeadOf(options.folder, *dataset, options.test ? data::Split::kTest : data::Split::kTrain,
                  options.samples);
  };
  const StatusOr<DatasetHead> head = look();
  if (!head.ok()) return OfDisk(Annotate(head.status(), "dataset head"));
  Print(common.json() ? ToJson(*head).dump(2) + "\n" : RenderHead(*head, Terminal::Of(stdout)));
  return ExitCode::kOk;
}

StatusOr<std::optional<data::Sha256List>> ReadList(const std::string& path) {
  if (path.empty()) return std::optional<data::Sha256List>();
  RING_ASSIGN_OR_RETURN(const std::string text, ReadNamedFile("--sha256", path));
  StatusOr<data::Sha256List> list = data::ParseSha256List(text);
  if (!list.ok()) return Annotate(list.status(), "--sha256: " + path);
  return std::optional<data::Sha256List>(*std::move(list));
}

StatusOr<ExitCode> Verify(const Common& common, const LookOptions& options) {
  RING_ASSIGN_OR_RETURN(const std::optional<data::Sha256List> list, ReadList(options.list));
  RING_ASSIGN_OR_RETURN(const v1::DataSource source, SourceOf(options, 1));
  const data::Depth depth = !options.quarantine.empty() ? data::Depth::kQuarantine
                            : options.decode            ? data::Depth::kDecode
                                                        : data::Depth::kHeaders;
  const StatusOr<data::Verification> verified = data::Verify(options.folder, source, list, depth);
  if (!verified.ok()) return OfDisk(Annotate(verified.status(), "dataset verify"));
  if (!options.quarantine.empty() && verified->problems.empty()) {
    RING_RETURN_IF_ERROR(
        OfDisk(WriteDurably(options.quarantine, verified->undecodable.Text(), 0644)));
    Say(fmt::format("{} samples cannot be decoded: {}", verified->undecodable.size(),
                    options.quarantine));
  }
  Print(common.json() ? ToJson(options.folder, *verified).dump(2) + "\n" : RenderSha256(*verified));
  for (const std::string& problem : verified->problems) Say(problem);
  return verified->problems.empty() ? ExitCode::kOk : ExitCode::kOther;
}

StatusOr<ExitCode> Manifest(const Common& common, const std::string& folder, bool check) {
  const std::string path = folder + "/" + data::kDataManifestName;
  const auto made = data::MakeDataManifest(folder);
  if (!made.ok()) return OfDisk(Annotate(made.status(), "dataset manifest"));
  std::vector<std::string> problems;
  if (check) {
    RING_ASSIGN_OR_RETURN(const std::string text, ReadNamedFile("the manifest", path));
    RING_ASSIGN_OR_RETURN(const data::DataManifest said, data::ParseDataManifest(text));
    problems = data::Differences(said, *made);
  } else {
    RING_RETURN_IF_ERROR(OfDisk(WriteDurably(path, data::PrintDataManifest(*made), 0644)));
  }
  uint64_t bytes = 0;
  for (const data::ManifestFile& file : *made) bytes += file.bytes;
  if (common.json()) {
    Print(Json{{"path", path}, {"files", made->size()}, {"bytes", bytes}, {"problems", problems}}
              .dump(2) +
          "\n");
  } else if (problems.empty()) {
    Say(fmt::format("{} {}: {} files, {} bytes", path, check ? "is right" : "is written",
                    made->size(), bytes));
  }
  for (const std::string& problem : problems) Say(problem);
  return problems.empty() ? ExitCode::kOk : ExitCode::kOther;
}

// On several threads, for which the calling one waits.
class DatasetPacker {
 public:
  // `packing` outlives it.
  explicit DatasetPacker(data::Packing* packing) : packing_(packing) {}

  // Writes every part and finishes, on so many threads; after an error no other part is begun. The
  // error is that of the first part that has one, in their order.
  [[nodiscard]] Status Run(uint32_t threads);

 private:
  void Work();

  data::Packing* const packing_;
  std::atomic<size_t> next_{0};
  Mutex mu_;
  size_t failed_ ABSL_GUARDED_BY(mu_) = SIZE_MAX;  // the first part with an error
  Status status_ ABSL_GUARDED_BY(mu_);             // its
  std::vector<std::jthread> threads_;
};

Status DatasetPacker::Run(uint32_t threads) {
  const size_t wanted = std::min<size_t>(threads, packing_->parts());
  for (size_t i = 0; i < wanted; ++i) threads_.emplace_back([this] { Work(); });
  threads_.clear();  // joins them
  MutexLock lock(mu_);
  RING_RETURN_IF_ERROR(status_);
  return packing_->Finish();
}

// Parts are begun in order, so that those before the first with an error are written.
void DatasetPacker::Work() {
  pthread_setname_np(pthread_self(), "pack");
  for (size_t part = next_++; part < packing_->parts(); part = next_++) {
    Status status = packing_->WritePart(part);
    if (status.ok()) continue;
    next_ = packing_->parts();
    MutexLock lock(mu_);
    if (part >= failed_) return;
    failed_ = part;
    status_ = std::move(status);
    return;
  }
}

struct PackCommand {
  LookOptions source;
  std::string folder;
  data::PackOptions how;
  bool raw = false;
  uint32_t threads = std::max(1U, std::thread::hardware_concurrency());
};

StatusOr<ExitCode> Pack(const Common& common, const PackCommand& command) {
  data::PackOptions how = command.how;
  if (command.raw) how.jpeg_quality.reset();
  const auto packed = [&]() -> StatusOr<std::string> {
    RING_ASSIGN_OR_RETURN(const std::shared_ptr<const data::Dataset> dataset, Open(command.source));
    RING_ASSIGN_OR_RETURN(const std::unique_ptr<data::Packing> packing,
                          data::Packing::Create(dataset, command.folder, how));
    RING_RETURN_IF_ERROR(DatasetPacker(packing.get()).Run(command.threads));
    const uint64_t train = dataset->samples(data::Split::kTrain);
    const uint64_t test = dataset->samples(data::Split::kTest);
    if (!common.json()) {
      return fmt::format("packed {} training and {} test samples into {}, format {}", train, test,
                         command.folder, packing->format());
    }
    return Json{{"path", command.folder},
                {"format", packing->format()},
                {"train", train},
                {"test", test}}
               .dump(2) +
           "\n";
  }();
  if (!packed.ok()) return OfDisk(Annotate(packed.status(), "dataset pack"));
  if (common.json()) {
    Print(*packed);
  } else {
    Say(*packed);
  }
  return ExitCode::kOk;
}

void AddMake(CommandLine& line, CLI::App* group) {
  const auto options = std::make_shared<MakeOptions>();
  CLI::App* const make =
      line.Add(group, "make", "write learnable sample data in a dataset's own format",
               Examples("ringctl dataset make cifar10 data/cifar10 --train 6000 --test 1000",
                        "ringctl dataset make mnist data/mnist --gzip"),
               [&line, options] { return Make(line.common(), *options); });
  const std::string formats = fmt::format("{}", fmt::join(data::FormatNames(), ", "));
  make->add_option("FORMAT", options->samples.format, formats)->required();
  make->add_option("DIR", options->folder, "folder to create")->required();
  make->add_option("--train", options->samples.train, "training samples")->capture_default_str();
  make->add_option("--test", options->samples.test, "test samples")->capture_default_str();
  make->add_option("--seed", options->samples.seed, "another seed, other samples")
      ->capture_default_str();
  make->add_flag("--gzip", options->gzip, "write NAME.gz files (mnist)");
}

void AddLook(CLI::App* command, const std::shared_ptr<LookOptions>& options) {
  command->add_option("DIR", options->folder, "folder of the dataset")->required();
  command->add_option("--format", options->format, "its format; found by its files when absent");
  command
      ->add_option("--set", options->set,
                   "a key of `data` in a job file, as csv.header=false or window=32; several times")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
}

void AddStat(CommandLine& line, CLI::App* group) {
  const auto options = std::make_shared<LookOptions>();
  AddLook(
      line.Add(group, "stat", "what a dataset holds: samples, columns, classes, mean and deviation",
               Examples("ringctl dataset stat data/cifar10"),
               [&line, options] { return Stat(line.common(), *options); }),
      options);
}

void AddHead(CommandLine& line, CLI::App* group) {
  const auto options = std::make_shared<LookOptions>();
  CLI::App* const head =
      line.Add(group, "head", "the first samples of a dataset, in words",
               Examples("ringctl dataset head data/cifar10",
                        "ringctl dataset head data/shakespeare -n 2 --set window=64"),
               [&line, options] { return Head(line.common(), *options); });
  AddLook(head, options);
  head->add_option("-n", options->samples, "how many")->capture_default_str();
  head->add_flag("--test", options->test, "of the test samples");
}

void AddVerify(CommandLine& line, CLI::App* group) {
  const auto options = std::make_shared<LookOptions>();
  CLI::App* const verify =
      line.Add(group, "verify", "read a dataset whole and name everything that is wrong with it",
               Examples("ringctl dataset verify data/cifar10",
                        "ringctl dataset verify data/cifar10 --sha256 SHA256SUMS"),
               [&line, options] { return Verify(line.common(), *options); });
  AddLook(verify, options);
  verify->add_option("--sha256", options->list, "list as sha256sum prints it, to compare with")
      ->type_name("FILE");
  CLI::Option* const decode =
      verify->add_flag("--decode", options->decode, "decode every image, too");
  verify
      ->add_option("--quarantine", options->quarantine,
                   "write the samples that cannot be decoded; DIR/quarantine.txt leaves them out")
      ->type_name("LIST")
      ->needs(decode);
}

void AddManifest(CommandLine& line, CLI::App* group) {
  const auto folder = std::make_shared<std::string>();
  const auto check = std::make_shared<bool>(false);
  CLI::App* const manifest =
      line.Add(group, "manifest", "write what files a dataset has, for workers that fetch it",
               Examples("ringctl dataset manifest data/imagenet",
                        "ringctl dataset manifest data/imagenet --check"),
               [&line, folder, check] { return Manifest(line.common(), *folder, *check); });
  manifest->add_option("DIR", *folder, "folder of the dataset; the manifest is a file in it")
      ->required();
  manifest->add_flag("--check", *check, "compare with the manifest that is there, and write none");
}

void AddPack(CommandLine& line, CLI::App* group) {
  const auto command = std::make_shared<PackCommand>();
  CLI::App* const pack =
      line.Add(group, "pack", "make a dataset of smaller images, which decode faster",
               Examples("ringctl dataset pack data/imagenet data/imagenet-256",
                        "ringctl dataset pack data/photos data/small --short 64 --raw"),
               [&line, command] { return Pack(line.common(), *command); });
  pack->add_option("SRC", command->source.folder, "folder of the dataset")->required();
  pack->add_option("DIR", command->folder, "folder to create")->required();
  pack->add_option("--format", command->source.format, "SRC's; found by its files when absent");
  pack->add_option("--short", command->how.short_side,
                   "pixels of the shorter side of an image that is larger")
      ->capture_default_str()
      ->check(CLI::Range(1, 65535));
  CLI::Option* const jpeg =
      pack->add_option("--jpeg", command->how.jpeg_quality, "write JPEGs of this quality")
          ->type_name("QUALITY")
          ->default_str("90")
          ->check(CLI::Range(1, 100));
  pack->add_flag("--raw", command->raw, "write pixels; all images become of one size")
      ->excludes(jpeg);
  pack->add_option("--threads", command->threads, "that decode and encode; default: one a CPU")
      ->check(CLI::Range(1, 1024));
}

}  // namespace

void AddDataset(CommandLine& line) {
  CLI::App* const group =
      line.AddGroup("dataset", "make sample data, look through a dataset, pack one");
  AddMake(line, group);
  AddStat(line, group);
  AddHead(line, group);
  AddVerify(line, group);
  AddManifest(line, group);
  AddPack(line, group);
}

}  // namespace ringmaster::cli
