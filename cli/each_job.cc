#include "cli/each_job.h"

#include <algorithm>

namespace ringmaster::cli {
namespace {

StatusOr<JobAnswer> AnswerOf(Client& client, const std::string& job, const AskJob& ask) {
  RING_ASSIGN_OR_RETURN(const std::string job_id, client.IdOf(job));
  return ask(client, job_id);
}

}  // namespace

StatusOr<ExitCode> AskEach(const Common& common, const std::vector<std::string>& jobs,
                           const AskJob& ask) {
  RING_ASSIGN_OR_RETURN(Client client, Client::Create(common.coordinator));
  ExitCode worst = ExitCode::kOk;
  Json list = Json::array();
  std::string text;
  for (const std::string& job : jobs) {
    const StatusOr<JobAnswer> answer = AnswerOf(client, job, ask);
    if (answer.ok()) {
      list.push_back(answer->json);
      text += (text.empty() || answer->text.empty() ? "" : "\n") + answer->text;
      continue;
    }
    if (jobs.size() == 1) return answer.status();
    Say(Message(answer.status()));
    worst = std::max(worst, ExitCodeOf(answer.status()));
    if (worst == ExitCode::kUnreachable) break;
  }
  if (common.json()) text = (jobs.size() == 1 ? list.front() : list).dump(2) + "\n";
  Print(text);
  return worst;
}

}  // namespace ringmaster::cli
