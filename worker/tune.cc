#include "worker/tune.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <iostream>

#include "common/durable_file.h"
#include "common/job/job_file.h"
#include "common/job/resolve.h"
#include "common/named_file.h"
#include "worker/tune_flags.h"

namespace ringmaster::worker {
namespace {

constexpr int kWrongJob = 2;
constexpr mode_t kReadable = 0644;  // workers may be another user's

StatusOr<v1::JobSpec> ReadSpec(const TuneFlags& flags) {
  RING_ASSIGN_OR_RETURN(const std::string text, ReadNamedFile("job file", flags.job_file));
  RING_ASSIGN_OR_RETURN(const v1::JobSpec spec,
                        job::ParseJobFile(flags.job_file, text, flags.overrides));
  RING_RETURN_IF_ERROR(Annotate(job::Validate(spec), flags.job_file));
  return spec;
}

StatusOr<TuneSubject> ReadSubject(const TuneFlags& flags) {
  RING_ASSIGN_OR_RETURN(const v1::JobSpec spec, ReadSpec(flags));
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

// One program: its rows into `table`, and that into its file.
Status TuneProgram(const graph::Program& program, const TuneOptions& options, Backend* backend,
                   KernelTable* table, const TuneReport& report) {
  const std::string before = table->text;
  const Status tuned = backend->Tune(program, options, table, report);
  if (table->text != before) {
    RING_RETURN_IF_ERROR(WriteDurably(table->source, table->text, kReadable));
  }
  return tuned;
}

Status TuneJob(const TuneFlags& flags, const TuneSubject& subject) {
  RING_ASSIGN_OR_RETURN(const auto backend, MakeBackend(flags.device.kind));
  const TuneOptions options = {flags.device.index.value_or(0), flags.gradient_bits};
  return TunePrograms(subject, options, flags.table, backend.get(), std::cout);
}

}  // namespace

Status TunePrograms(const TuneSubject& subject, const TuneOptions& options, const std::string& path,
                    Backend* backend, std::ostream& out) {
  RING_ASSIGN_OR_RETURN(KernelTable table, ReadTable(path));
  out << subject.title << ", on " << backend->numerics_class(1).device_model() << std::endl;
  if (!subject.note.empty()) out << subject.note << std::endl;
  int rows = 0;
  const TuneReport report = [&](const TunedKernel& kernel) {
    ++rows;
    out << fmt::format("  {:9.1f} us, {:9.1f} us untuned, {:3} candidates: {} {}",
                       kernel.microseconds, kernel.untuned, kernel.candidates, kernel.op,
                       kernel.shape)
        << std::endl;
  };
  for (const ProgramSet& set : subject.programs) {
    for (const auto& [shape, program] : set.programs()) {
      const bool training = shape.mode == graph::Mode::kTraining;
      const int before = rows;
      out << fmt::format("{}, {} samples a shard:", training ? "training" : "evaluation",
                         shape.samples)
          << std::endl;
      RING_RETURN_IF_ERROR(TuneProgram(program, options, backend, &table, report));
      if (rows == before) out << "  no row was missing" << std::endl;
    }
  }
  out << fmt::format("{}: {} new rows", path, rows) << std::endl;
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
