#include "tests/sim/courier.h"

#include <algorithm>
#include <utility>

#include "common/job/resolve.h"
#include "common/sha256.h"
#include "common/status.h"
#include "tests/sim/cluster.h"

namespace ringmaster::sim {
namespace {

constexpr Time kLastPause = seconds(2);

// As in worker/job/checkpoint_upload.cc.
bool MayPass(const Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kPermissionDenied:
      return true;
    default:
      return false;
  }
}

}  // namespace

Courier::Courier(Cluster* cluster, LifePtr life, int host, const v1::ResolvedJob& resolved,
                 std::string job, v1::Generation generation)
    : cluster_(cluster),
      life_(std::move(life)),
      host_(host),
      result_digest_(Hex(job::ResultDigest(resolved.result()))),
      class_maps_(resolved.result().class_maps()),
      job_(std::move(job)),
      generation_(std::move(generation)) {}

void Courier::Submit(uint64_t step, StateHash state) {
  queue_.push_back({step, state});
  if (queue_.size() == 1) Try();
}

void Courier::WhenIdle(std::function<void(const std::string& error)> then) {
  then_ = std::move(then);
  Settle();
}

void Courier::Settle() {
  if (!stopped_ && (queue_.empty() || !error_.empty()) && then_) {
    std::exchange(then_, nullptr)(error_);
  }
}

void Courier::Stop() {
  stopped_ = true;
  then_ = nullptr;
  ++attempt_;
  if (connection_ != nullptr) connection_->Cancel(0);
  connection_.reset();
}

void Courier::Try() {
  const uint64_t attempt = ++attempt_;
  v1::CheckpointBegin begin;
  begin.set_job_id(job_);
  *begin.mutable_generation() = generation_;
  begin.set_step(queue_.front().step);
  cluster_->faults.At(Point::kUpload, host_);
  const std::weak_ptr<Courier> weak = weak_from_this();
  const auto answer = [weak, attempt](const Status& status) {
    const std::shared_ptr<Courier> self = weak.lock();
    if (self != nullptr && !self->stopped_ && self->attempt_ == attempt) self->Answered(status);
  };
  connection_ = cluster_->network.Connect(
      host_, kCoordinatorHost, life_,
      [answer](const std::string& reason) {
        answer(Error(absl::StatusCode::kUnavailable, "{}", reason));
      },
      [cluster = cluster_, begin, state = queue_.front().state, digest = result_digest_,
       maps = class_maps_, answer](const ConnectionPtr& incoming) {
        cluster->coordinator->AcceptUpload(incoming, begin,
                                           {begin.step(), state, digest, maps, false}, answer);
      });
}

void Courier::TryLater() {
  cluster_->world.After(pause_, life_, [weak = weak_from_this(), attempt = attempt_] {
    const std::shared_ptr<Courier> self = weak.lock();
    if (self != nullptr && !self->stopped_ && self->attempt_ == attempt) self->Try();
  });
  pause_ = std::min(pause_ * 2, kLastPause);
}

void Courier::Answered(const Status& status) {
  ++attempt_;
  connection_.reset();
  if (MayPass(status)) return TryLater();
  if (!status.ok()) {
    error_ = fmt::format("checkpoint of step {}: {}", queue_.front().step, Message(status));
    return Settle();
  }
  manifest_ = ManifestSha256(queue_.front().step, queue_.front().state);
  queue_.pop_front();
  pause_ = milliseconds(100);
  if (!queue_.empty()) return Try();
  Settle();
}

}  // namespace ringmaster::sim
