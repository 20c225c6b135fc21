#include "worker/job/catch_up.h"

#include <pthread.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "common/failpoint.h"

namespace ringmaster::worker {
namespace {

using TimePoint = std::chrono::steady_clock::time_point;

// Nobody waits for a state that comes beside the ring; a source that stands still is noticed by
// itself.
constexpr std::chrono::hours kFollowLimit{24};
// Of a source that sends nothing while it applies a step. One that is gone is noticed by keepalive.
constexpr std::chrono::seconds kUpdateLimit{60};

StatusOr<Sha256Digest> ToDigest(const std::string& bytes) {
  Sha256Digest digest;
  if (bytes.size() != digest.size()) {
    return Internal("the digest of a start has {} bytes, expected {}", bytes.size(), digest.size());
  }
  std::copy(bytes.begin(), bytes.end(), digest.begin());
  return digest;
}

// What the coordinator's folder or the job itself is to blame for does not pass by trying again.
bool IsFinal(const Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kDataLoss:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kInvalidArgument:
      return true;
    default:
      return false;
  }
}

}  // namespace

// Before its thread is joined, which waits for the job.
CatchUp::~CatchUp() {
  if (follower_ != nullptr) follower_->GiveUp();
}

CatchUpResult CatchUp::Run(TimePoint deadline, const std::stop_token& stop) {
  const v1::RingMember& self = start_->ring(static_cast<int>(rank_));
  if (self.holds()) {
    CatchUpResult result;
    result.status = CheckHeld();
    const bool fetched = std::any_of(start_->ring().begin(), start_->ring().end(),
                                     [](const v1::RingMember& member) { return !member.holds(); });
    if (result.status.ok() && fetched) result.status = trainer_->BringToHost();
    result.outcome = Outcome::kFailed;
    return result;
  }
  // The same state by another way than this start supposes, for example in an earlier generation.
  if (!start_->digest().empty() && CheckHeld().ok()) return {};
  HitFailpoint("fetch", start_->start_step());
  if (self.follows()) {
    if (Follow(deadline, stop)) return {.follows = true};
    if (stop.stop_requested()) {
      return {.status = absl::CancelledError("the wait for a state was stopped"),
              .outcome = Outcome::kStopped};
    }
  }
  const auto begin = std::chrono::steady_clock::now();
  const bool restores = start_->has_restore() && rank_ == 0;
  CatchUpResult result = restores ? Restore(deadline, stop) : Fetch(deadline, stop);
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
  result.seconds = elapsed.count();
  if (stop.stop_requested()) result.outcome = Outcome::kStopped;
  return result;
}

Status CatchUp::CheckHeld() const {
  if (trainer_->applied() != start_->start_step()) {
    return Internal("told to start at step {} with the state that it holds, which is of step {}",
                    start_->start_step(), trainer_->applied());
  }
  if (start_->digest().empty()) return absl::OkStatus();
  RING_ASSIGN_OR_RETURN(const Sha256Digest digest, ToDigest(start_->digest()));
  if (trainer_->digest() == digest) return absl::OkStatus();
  return Internal("the state of step {} has digest {} here, the generation starts with {}",
                  start_->start_step(), Hex(trainer_->digest()), Hex(digest));
}

CatchUpResult CatchUp::Restore(TimePoint deadline, const std::stop_token& stop) {
  CatchUpResult result;
  const StatusOr<Checkpoint> checkpoint = sources_->checkpoint(start_->restore(), deadline, stop);
  result.status = checkpoint.ok() ? trainer_->Restore(*checkpoint) : checkpoint.status();
  result.status = Annotate(result.status, "restoring the job");
  if (result.status.ok()) {
    spdlog::info("state restored: job={} step={} manifest={}", start_->job_id(),
                 trainer_->applied(), start_->restore().manifest_sha256());
  }
  result.outcome = IsFinal(result.status) ? Outcome::kFailed : Outcome::kPeerLost;
  return result;
}

// In the order in which they are asked.
std::vector<const v1::RingMember*> CatchUp::Sources() const {
  std::vector<const v1::RingMember*> sources;
  for (const v1::RingMember& member : start_->ring()) {
    if (member.holds()) sources.push_back(&member);
  }
  if (start_->has_restore()) sources = {&start_->ring(0)};
  if (sources.empty()) return sources;
  const auto first = static_cast<std::ptrdiff_t>(rank_ % sources.size());
  std::rotate(sources.begin(), sources.begin() + first, sources.end());
  return sources;
}

CatchUpResult CatchUp::Fetch(TimePoint deadline, const std::stop_token& stop) {
  CatchUpResult result;
  result.outcome = Outcome::kFailed;
  result.status =
      Internal("nobody in generation {}.{} holds the state of step {}", start_->generation().term(),
               start_->generation().counter(), start_->start_step());
  for (const v1::RingMember* source : Sources()) {
    result.status = FetchFrom(*source, deadline, stop);
    result.outcome = Outcome::kPeerLost;
    result.peer = source->name();
    if (result.status.ok() || stop.stop_requested()) break;
    spdlog::warn("state not fetched: {}", Message(result.status));
  }
  return result;
}

FetchOptions CatchUp::OptionsFor(const v1::RingMember& source) const {
  FetchOptions options;
  options.address = source.ring_address();
  options.source = source.name();
  options.job = JobId(start_->job_id());
  options.step = start_->start_step();
  options.generation = {start_->generation().term(), start_->generation().counter()};
  options.ticket = start_->ticket();
  options.worker = start_->ring(static_cast<int>(rank_)).name();
  return options;
}

Status CatchUp::FetchFrom(const v1::RingMember& source, TimePoint deadline,
                          const std::stop_token& stop) {
  FetchOptions options = OptionsFor(source);
  options.deadline = deadline;
  const std::unique_ptr<IncomingState> incoming = trainer_->Expect();
  RING_RETURN_IF_ERROR(sources_->peer(options, incoming.get(), stop));
  // A restored state's digest is known to nobody before it is read.
  Sha256Digest digest = incoming->facts().digest;
  if (!start_->digest().empty()) {
    RING_ASSIGN_OR_RETURN(digest, ToDigest(start_->digest()));
  }
  RING_RETURN_IF_ERROR(Annotate(trainer_->Adopt(incoming.get(), digest),
                                fmt::format("state from {}", source.name())));
  spdlog::info("state fetched: job={} step={} from={}", start_->job_id(), trainer_->applied(),
               source.name());
  return absl::OkStatus();
}

bool CatchUp::Follow(TimePoint deadline, const std::stop_token& stop) {
  for (const v1::RingMember* source : Sources()) {
    const Status status = FollowFrom(*source, deadline, stop);
    if (status.ok()) return true;
    if (follower_ != nullptr) follower_->GiveUp();
    fetch_ = std::jthread();  // stops and joins
    if (stop.stop_requested()) return false;
    spdlog::warn("cannot follow, the state is fetched whole: {}", Message(status));
  }
  return false;
}

// The ring waits for its first numbers alone.
Status CatchUp::FollowFrom(const v1::RingMember& source, TimePoint deadline,
                           const std::stop_token& stop) {
  RING_ASSIGN_OR_RETURN(const Sha256Digest digest, ToDigest(start_->digest()));
  FetchOptions options = OptionsFor(source);
  options.follows = Follows::kYes;
  options.silence = kUpdateLimit;
  options.deadline = std::chrono::steady_clock::now() + kFollowLimit;
  follower_ = trainer_->Follow(source.name());
  fetch_ = std::jthread(
      [sources = sources_, options, follower = follower_](const std::stop_token& ends) {
        follower->End(sources->peer(options, follower.get(), ends));
      });
  pthread_setname_np(fetch_.native_handle(), "follow");
  return Annotate(
      follower_->TakeUp(
          digest,
          [&] { return stop.stop_requested() || std::chrono::steady_clock::now() >= deadline; }),
      fmt::format("state from {}", source.name()));
}

}  // namespace ringmaster::worker
