#include "cli/exit_code.h"

namespace ringmaster::cli {

ExitCode ExitCodeOf(const Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return ExitCode::kOk;
    case absl::StatusCode::kInvalidArgument:
      return ExitCode::kUsage;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
      return ExitCode::kUnreachable;
    default:
      return ExitCode::kOther;
  }
}

ExitCode ExitCodeOf(v1::JobState state) {
  switch (state) {
    case v1::JOB_STATE_SUCCEEDED:
      return ExitCode::kOk;
    case v1::JOB_STATE_FAILED:
      return ExitCode::kJobFailed;
    case v1::JOB_STATE_CANCELLED:
      return ExitCode::kJobCancelled;
    default:
      return ExitCode::kOther;
  }
}

bool IsFinal(v1::JobState state) {
  return state == v1::JOB_STATE_SUCCEEDED || state == v1::JOB_STATE_FAILED ||
         state == v1::JOB_STATE_CANCELLED;
}

}  // namespace ringmaster::cli
