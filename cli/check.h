// What `ringctl check` finds out of what the coordinator and its workers say of themselves: a
// verdict on each thing, and where it is not good, what to do. Values in, values out, no network
// and no clock; thread-safe (free functions).
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/show/json.h"
#include "common/status.h"
#include "ringmaster/v1/access.pb.h"
#include "ringmaster/v1/bench.pb.h"
#include "ringmaster/v1/jobs.pb.h"

namespace ringmaster::cli {

enum class Verdict : uint8_t { kOk, kSkipped, kWarning, kFailed };

struct Finding {
  Verdict verdict = Verdict::kOk;
  std::string check;   // coordinator, certificate, clock, worker, numerics, disk, port, link, job
  std::string about;   // which one of those: a worker, `a to b`; may be empty
  std::string found;   // one line
  std::string remedy;  // what to do; empty where there is nothing to do
};
using Findings = std::vector<Finding>;

// A clock that is this far from the coordinator's is worth a word, or an obstacle: certificates and
// tokens are good from one time to another.
inline constexpr std::chrono::seconds kClockWarning{2}, kClockFailure{60};
// A link is slow below this part of the middle one's rate.
inline constexpr double kSlowLink = 0.25;

// Its answer came `round_trip` after the question, and then this host's clock was `unix_ms`.
[[nodiscard]] Findings CheckCoordinator(const std::string& address,
                                        const v1::CoordinatorFigures& coordinator, int64_t unix_ms,
                                        std::chrono::milliseconds round_trip);
// This user's: `who` as the coordinator knows it. A local user has none.
[[nodiscard]] Finding CheckOwnCertificate(const v1::WhoAmIResponse& who, int64_t unix_ms);
// Of every worker: what it does, its clock and its certificate; then what they have in common.
// `identities` is nothing where the caller may not see them; `unix_ms`: the coordinator's clock.
[[nodiscard]] Findings CheckWorkers(const v1::ListWorkersResponse& workers,
                                    const std::optional<v1::ListIdentitiesResponse>& identities);
// `needed_bytes`: of one checkpoint of the job, where one is known.
[[nodiscard]] Findings CheckDisks(const v1::ListWorkersResponse& workers,
                                  std::optional<uint64_t> needed_bytes);
// Names of the workers whose links can be measured beside what the others do, and a finding for
// each of those.
[[nodiscard]] std::vector<std::string> ChooseForLinks(const v1::ListWorkersResponse& workers,
                                                      Findings* findings);
[[nodiscard]] Findings CheckLinks(const v1::AllReduceReport& report);
// `plan` as `ringworker plan --json` prints it for classes of workers.
[[nodiscard]] Findings CheckJobPlan(const Json& plan);
// Bytes of the job's weights and optimizer slots, as the plan has them; nothing: it does not say.
[[nodiscard]] std::optional<uint64_t> StateBytes(const Json& plan);

}  // namespace ringmaster::cli
