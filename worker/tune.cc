#include "worker/tune.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <set>
#include <utility>

#include <CLI/CLI.hpp>

#include "common/files.h"
#include "common/job/offline_job.h"

namespace ringmaster::worker {
namespace {

constexpr int kWrongTuning = 2;
constexpr uint32_t kMostSamples = 1 << 24;

void AddTuneOptions(CLI::App* app, TuneFlags* flags, std::string* device, bool* narrow) {
  app->add_option("FILE", flags->job_file, "the job file, YAML; - is stdin")->required();
  app->add_option("--device", *device, "cuda, or one GPU as cuda:INDEX")
      ->capture_default_str()
      ->envname("RINGMASTER_DEVICE");
  app->add_option("--set", flags->overrides,
                  "replace a value of the file, e.g. precision.policy=mixed_float16; repeatable")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false)
      ->take_all();
  app->add_option("--samples", flags->samples,
                  "samples of a shard; default: those of the job, by its batch and shards")
      ->type_name("N,N,...")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::Range(1U, kMostSamples).description(""));
  app->add_option("--data-root", flags->data_root,
                  "folder that holds the dataset: its counts decide how large the last batch is");
  app->add_option("--table", flags->table, "the kernel table: rows that it lacks are added")
      ->type_name("FILE")
      ->capture_default_str()
      ->envname("RINGMASTER_KERNEL_TABLE");
  app->add_option("--seconds", flags->seconds,
                  "stop after so many; what takes longest comes first; 0: when all is done")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 1e6).description(""));
  app->add_flag("--narrow", *narrow,
                "gradients of weights may be rounded to 16 bits where that is quicker");
}

}  // namespace

ParsedTuneFlags ParseTuneFlags(int argc, const char* const* argv) {
  ParsedTuneFlags parsed;
  TuneFlags& flags = parsed.flags;
  std::string device = "cuda";
  bool narrow = false;
  CLI::App app{
      "times the kernels of a job on this host's GPU, before any job, and writes the table"};
  app.name("ringworker tune");
  AddTuneOptions(&app, &flags, &device, &narrow);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    parsed.exit = true;
    parsed.exit_code = app.exit(error) == 0 ? 0 : kWrongTuning;
    return parsed;
  }
  flags.gradient_bits = narrow ? GradientBits::kMayBeRounded : GradientBits::kKept;
  const auto choice = ParseDevice(device);
  if (choice.ok()) {
    flags.device = *choice;
    return parsed;
  }
  std::cerr << "ringworker tune: " << Message(choice.status()) << "\n";
  parsed.exit = true;
  parsed.exit_code = kWrongTuning;
  return parsed;
}

namespace {

std::string NoteOf(const v1::JobSpec& spec, const TuneSubjectOptions& options) {
  const bool known = spec.data().has_take() && spec.data().has_take_test();
  if (known || !options.data_root.empty() || !options.samples.empty()) return "";
  return "the job file does not say how many samples there are: smaller last batches are left out; "
         "--data-root DIR, or data.take and data.take_test, would tell their size";
}

}  // namespace

StatusOr<TuneSubject> TuneSubjectOf(const v1::JobSpec& spec, const TuneSubjectOptions& options) {
  RING_ASSIGN_OR_RETURN(const v1::ResultSpec result,
                        job::ResultWithoutCluster(spec, options.data_root));
  TuneSubject subject = {job::TitleOf(spec, result), NoteOf(spec, options), {}};
  std::vector<v1::ResultSpec> results;
  for (const uint32_t samples : std::set(options.samples.begin(), options.samples.end())) {
    results.push_back(job::WithShard(result, samples));
  }
  if (results.empty()) results.push_back(result);
  for (const v1::ResultSpec& one : results) {
    RING_ASSIGN_OR_RETURN(ProgramSet programs, ProgramSet::Build(one, spec.memory()));
    subject.programs.push_back(std::move(programs));
  }
  return subject;
}

namespace {

constexpr int kWrongJob = 2;
constexpr mode_t kReadable = 0644;  // workers may be another user's

StatusOr<TuneSubject> ReadSubject(const TuneFlags& flags) {
  RING_ASSIGN_OR_RETURN(const v1::JobSpec spec, job::ReadJob(flags.job_file, flags.overrides));
  return TuneSubjectOf(spec, {flags.samples, flags.data_root});
}

// The empty table where there is no file. That it can be written is asked before anything is timed.
StatusOr<KernelTable> ReadTable(const std::string& path) {
  const std::string parent = std::filesystem::path(path).parent_path().string();
  const std::string folder = parent.empty() ? "." : parent;
  if (access(folder.c_str(), W_OK) != 0) {
    return FailedPrecondition("kernel table {} cannot be written: folder {}: {}", path, folder,
                              std::strerror(errno));
  }
  KernelTable table = {path, ""};
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return table;
  RING_ASSIGN_OR_RETURN(table.text, ReadNamedFile("kernel table", path));
  return table;
}

std::string LineOf(const TunedKernel& kernel) {
  const std::string what = fmt::format("{} {}", kernel.op, kernel.shape);
  if (kernel.tried == 0) return fmt::format("  time is up: {}", what);
  const std::string some = kernel.tried < kernel.candidates && kernel.row
                               ? fmt::format("{} of ", kernel.tried)
                               : std::string();
  if (kernel.row) {
    return fmt::format("  {:9.1f} us, {:9.1f} us untuned, {}{:3} candidates: {}",
                       kernel.microseconds, kernel.untuned, some, kernel.candidates, what);
  }
  return fmt::format("  no row, {:9.1f} us untuned, none of {} candidates: {}", kernel.untuned,
                     kernel.tried, what);
}

// The tuning of programs into one table, whose file has each row as soon as it is known.
class Tuner {
 public:
  Tuner(const TuneOptions& options, Backend* backend, std::ostream* out, KernelTable table)
      : options_(options), backend_(*backend), out_(*out), table_(std::move(table)) {}

  Status Tune(const graph::Program& program) {
    const int before = kernels_;
    TuneOptions options = options_;
    if (options.seconds > 0) options.seconds = std::max(kLeastSeconds, options.seconds - Seconds());
    const Status tuned =
        backend_.Tune(program, options, &table_, [this](const TunedKernel& k) { Report(k); });
    RING_RETURN_IF_ERROR(written_);
    RING_RETURN_IF_ERROR(Write());
    if (tuned.ok() && kernels_ == before) out_ << "  no row was missing" << std::endl;
    return tuned;
  }

  [[nodiscard]] std::string Summary() const {
    std::string text = fmt::format("{}: {} new rows", table_.source, rows_);
    if (kernels_ > rows_) text += fmt::format("; {} kernels have none yet", kernels_ - rows_);
    return text;
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr double kLeastSeconds = 1e-9;  // not 0, which is no limit

  [[nodiscard]] double Seconds() const {
    return std::chrono::duration<double>(Clock::now() - begin_).count();
  }

  void Report(const TunedKernel& kernel) {
    ++kernels_;
    if (kernel.row) ++rows_;
    written_.Update(Write());
    out_ << LineOf(kernel) << std::endl;
  }

  Status Write() {
    if (table_.text == in_file_) return absl::OkStatus();
    RING_RETURN_IF_ERROR(WriteDurably(table_.source, table_.text, kReadable));
    in_file_ = table_.text;
    return absl::OkStatus();
  }

  const TuneOptions options_;
  Backend& backend_;
  std::ostream& out_;
  const Clock::time_point begin_ = Clock::now();
  KernelTable table_;
  std::string in_file_ = table_.text;
  Status written_;
  int rows_ = 0, kernels_ = 0;
};

Status TuneJob(const TuneFlags& flags, const TuneSubject& subject) {
  RING_ASSIGN_OR_RETURN(const auto backend, MakeBackend(flags.device.kind, flags.device.options));
  const TuneOptions options = {flags.device.index.value_or(0), flags.gradient_bits, flags.seconds};
  return TunePrograms(subject, options, flags.table, backend.get(), std::cout);
}

}  // namespace

Status TunePrograms(const TuneSubject& subject, const TuneOptions& options, const std::string& path,
                    Backend* backend, std::ostream& out) {
  RING_ASSIGN_OR_RETURN(KernelTable table, ReadTable(path));
  Tuner tuner(options, backend, &out, std::move(table));
  out << subject.title << ", on " << backend->numerics_class(1).device_model() << std::endl;
  if (!subject.note.empty()) out << subject.note << std::endl;
  for (const ProgramSet& set : subject.programs) {
    for (const auto& [shape, program] : set.programs()) {
      const bool training = shape.mode == graph::Mode::kTraining;
      if (!training && !subject.evaluation) continue;
      out << fmt::format("{}, {} samples a shard:", training ? "training" : "evaluation",
                         shape.samples)
          << std::endl;
      RING_RETURN_IF_ERROR(tuner.Tune(program));
    }
  }
  out << tuner.Summary() << std::endl;
  return absl::OkStatus();
}

int TuneMain(int argc, const char* const* argv) {
  const ParsedTuneFlags parsed = ParseTuneFlags(argc, argv);
  if (parsed.exit) return parsed.exit_code;
  const auto fail = [](const Status& status, int code) {
    std::cerr << "ringworker tune: " << Message(status) << "\n";
    return code;
  };
  const auto subject = ReadSubject(parsed.flags);
  if (!subject.ok()) {
    return fail(subject.status(), absl::IsInvalidArgument(subject.status()) ? kWrongJob : 1);
  }
  const Status tuned = TuneJob(parsed.flags, *subject);
  return tuned.ok() ? 0 : fail(tuned, 1);
}

}  // namespace ringmaster::worker
