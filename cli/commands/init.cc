// ringctl init [FILE]: a commented job file to begin with.
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "cli/commands/commands.h"
#include "cli/job_template.h"
#include "common/files.h"

namespace ringmaster::cli {
namespace {

// O_EXCL: a file that is there stays as it is.
Status WriteNew(const std::string& file, const std::string& text) {
  const OwnedFile opened(open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (!opened.valid() && errno == EEXIST) {
    return Error(absl::StatusCode::kAlreadyExists,
                 "{} exists and stays as it is; name another file, or - for stdout", file);
  }
  if (!opened.valid()) return InvalidArgument("cannot create {}: {}", file, std::strerror(errno));
  if (WriteAll(opened.get(), text)) return absl::OkStatus();
  const Status status = Internal("cannot write {}: {}", file, std::strerror(errno));
  unlink(file.c_str());  // of a part nobody has anything
  return status;
}

StatusOr<ExitCode> Init(const std::string& file) {
  if (file == "-") {
    Print(JobTemplate());
    return ExitCode::kOk;
  }
  RING_RETURN_IF_ERROR(WriteNew(file, JobTemplate()));
  Say(fmt::format("wrote {0}: edit it, then `ringctl submit {0} --watch`", file));
  return ExitCode::kOk;
}

}  // namespace

void AddInit(CommandLine& line) {
  const auto file = std::make_shared<std::string>("job.yaml");
  line.Add("init", "write a job file with every key, its default and its range",
           Examples("ringctl init", "ringctl init - | less"), [file] { return Init(*file); })
      ->add_option("FILE", *file, "new file; - is stdout")
      ->default_str("job.yaml");
}

}  // namespace ringmaster::cli
