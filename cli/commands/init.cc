// ringctl init [FILE]: a commented job file to begin with.
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "cli/commands/commands.h"
#include "cli/job_template.h"

namespace ringmaster::cli {
namespace {

// O_EXCL: a file that is there stays as it is.
Status WriteNew(const std::string& file, const std::string& text) {
  const int descriptor = open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (descriptor < 0 && errno == EEXIST) {
    return Error(absl::StatusCode::kAlreadyExists,
                 "{} exists and stays as it is; name another file, or - for stdout", file);
  }
  if (descriptor < 0) return InvalidArgument("cannot create {}: {}", file, std::strerror(errno));
  errno = 0;
  const bool written =
      write(descriptor, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  const int error = written ? 0 : errno;
  close(descriptor);
  if (written) return absl::OkStatus();
  unlink(file.c_str());  // of a part nobody has anything
  return Internal("cannot write {}: {}", file, error == 0 ? "no room" : std::strerror(error));
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
