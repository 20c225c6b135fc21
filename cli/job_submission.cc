#include "cli/job_submission.h"

#include <array>
#include <random>

#include "cli/json.h"
#include "cli/watch_job.h"
#include "common/sha256.h"

namespace ringmaster::cli {
namespace {

// How long a coordinator that does not answer is asked again.
constexpr std::chrono::seconds kSubmitPatience(10);

// 128 random bits: the coordinator gives the same job for the same key.
std::string NewIdempotencyKey() {
  std::random_device random;
  std::array<uint8_t, 16> bytes;
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
  return Hex(bytes);
}

}  // namespace

StatusOr<ExitCode> SubmitJob(const Common& common, const Submission& submission) {
  v1::SubmitRequest request = submission.request;
  if (request.idempotency_key().empty()) request.set_idempotency_key(NewIdempotencyKey());
  RING_ASSIGN_OR_RETURN(Client client, Client::Create(common.coordinator));
  if (!client.WaitUntilConnected(Client::Clock::now() + std::chrono::seconds(1))) {
    Say(fmt::format("no coordinator answers at {} yet; asking again for {} s", common.coordinator,
                    kSubmitPatience.count()));
  }
  for (std::string* const other : {request.mutable_resume_job(), request.mutable_like_job()}) {
    RING_ASSIGN_OR_RETURN(*other, client.IdOf(*other));
  }
  RING_ASSIGN_OR_RETURN(const v1::SubmitResponse response, client.Submit(request, kSubmitPatience));
  const std::string& job_id = response.job_id();
  Print(common.json() ? Json{{"job_id", job_id}}.dump() + "\n" : job_id + "\n");
  if (submission.then == Then::kWatch) return WatchJob(client, job_id, common.output);
  if (!common.json()) Say(fmt::format("`ringctl watch {}` shows progress", job_id));
  return ExitCode::kOk;
}

}  // namespace ringmaster::cli
