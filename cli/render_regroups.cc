// RegroupLines: how a job's ring changed, what it began with, and whom it waits for.
#include <absl/strings/str_join.h>
#include <fmt/format.h>

#include "cli/names.h"
#include "cli/render_job_lines.h"

namespace ringmaster::cli {
namespace {

// `lost c; joined d, e`, each part where it is.
std::string Members(const v1::Regroup& regroup) {
  std::string text;
  if (regroup.lost_size() > 0) text += "; lost " + absl::StrJoin(regroup.lost(), ", ");
  if (regroup.joined_size() > 0) text += "; joined " + absl::StrJoin(regroup.joined(), ", ");
  return text;
}

std::string Describe(const v1::Regroup& regroup) {
  std::string text = fmt::format("{}.{} at step {}, {}: {}{}", regroup.generation().term(),
                                 regroup.generation().counter(), regroup.start_step(),
                                 DateAndTime(regroup.noticed_unix_ms()),
                                 Printable(regroup.reason()), Members(regroup));
  if (regroup.rewound()) text += fmt::format("; back from step {}", regroup.rewound_from());
  return text;
}

std::string DescribeCost(const v1::Regroup& regroup) {
  std::string text =
      fmt::format("{} kept, {} computed again; fenced in {}", Count(regroup.shards_kept(), "shard"),
                  regroup.shards_recomputed(), Seconds(regroup.fence_ms() / 1e3));
  if (regroup.form_ms() > 0) {
    text += fmt::format(", computing {} later", Seconds(regroup.form_ms() / 1e3));
  }
  return text;
}

}  // namespace

void AddOrigin(const v1::JobStatus& status, JobLines* lines) {
  lines->Add(!status.resumes_job().empty(), "resumes", status.resumes_job());
  lines->Add(!status.like_job().empty(), "like", status.like_job());
  const v1::CheckpointRef& from = status.resumed_from();
  lines->Add(status.has_resumed_from(), "resumed from",
             fmt::format("step {} in {}", from.step(), from.path()));
}

void AddRegroups(const v1::JobStatus& status, JobLines* lines) {
  lines->Add(status.regroup_count() > 0, "regroups", fmt::format("{}", status.regroup_count()));
  if (status.regroups_size() > 0) {
    const v1::Regroup& newest = *status.regroups().rbegin();
    lines->Add(true, "newest regroup", Describe(newest));
    lines->Add(true, "", DescribeCost(newest));
  }
  lines->Add(status.shards_recomputed() > 0, "shards recomputed",
             fmt::format("{}", status.shards_recomputed()));
  lines->Add(status.has_straggler(), "straggler", Printable(status.straggler().text()));
}

}  // namespace ringmaster::cli
