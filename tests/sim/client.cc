#include "tests/sim/client.h"

#include <fmt/format.h>

#include <iterator>
#include <memory>
#include <utility>

#include "tests/sim/cluster.h"

namespace ringmaster::sim {
namespace {

constexpr Time kCallAgain = milliseconds(120);

}  // namespace

Client::Client(Cluster* cluster) : cluster_(cluster), life_(std::make_shared<Life>()) {
  life_->name = "client";
}

void Client::Ask(coordinator::Event event, OnReply then, std::function<bool()> wanted) {
  const auto answered = std::make_shared<bool>(false);
  const auto again = [this, event, then, wanted, answered](const std::string&) {
    if (std::exchange(*answered, true)) return;
    cluster_->world.After(kCallAgain, life_, [this, event, then, wanted] {
      if (wanted()) Ask(event, then, wanted);
    });
  };
  const auto answer = [again, then, answered](const coordinator::Reply& reply) {
    if (reply.refusal.status.code() == absl::StatusCode::kUnavailable) return again("");
    if (!std::exchange(*answered, true)) then(reply);
  };
  cluster_->network.Connect(kClientHost, kCoordinatorHost, life_, again,
                            [cluster = cluster_, event, answer](const ConnectionPtr& incoming) {
                              cluster->coordinator->Ask(
                                  event, [incoming, answer](const coordinator::Reply& reply) {
                                    incoming->Send(1, [answer, reply] { answer(reply); });
                                    incoming->Finish(1, "done");
                                  });
                            });
}

void Client::Submit(const PlannedJob& job) {
  promises_[job.key].job = job;
  SendSubmit(job.key);
}

void Client::SendSubmit(const std::string& key) {
  coordinator::SubmitAsked asked;
  asked.submit.set_idempotency_key(key);
  *asked.submit.mutable_spec() = promises_.at(key).job.spec;
  Ask(asked, [this, key](const coordinator::Reply& reply) {
    Promise& promise = promises_.at(key);
    cluster_->world.Log(fmt::format("submit {}: {} {}{}", key, reply.job_id,
                                    Message(reply.refusal.status), reply.existed ? " again" : ""));
    if (!reply.refusal.status.ok()) {
      cluster_->world.Violate("rule 7: a good job was refused: " + Message(reply.refusal.status));
    } else if (!promise.id.empty() && promise.id != reply.job_id) {
      cluster_->world.Violate(
          fmt::format("rule 7: key {} is job {} and job {}", key, promise.id, reply.job_id));
    }
    promise.id = reply.job_id;
    ++promise.answers;
  });
}

void Client::SubmitAgain(uint64_t which) {
  if (promises_.empty()) return;
  SendSubmit(std::next(promises_.begin(), static_cast<long>(which % promises_.size()))->first);
}

void Client::Cancel(uint64_t which) {
  if (promises_.empty()) return;
  Promise& promise =
      std::next(promises_.begin(), static_cast<long>(which % promises_.size()))->second;
  if (promise.id.empty()) return;
  promise.cancelled = true;
  cluster_->world.Log("cancel " + promise.id);
  Ask(coordinator::CancelAsked{JobId(promise.id)}, [](const coordinator::Reply&) {});
}

void Client::Drain(const std::string& worker, bool resume) {
  wishes_[worker] = {wishes_[worker].turn + 1, resume};
  const auto wanted = [this, worker, turn = wishes_[worker].turn] {
    return wishes_[worker].turn == turn;
  };
  const auto then = [this, worker, resume, wanted](const coordinator::Reply& reply) {
    const Status& status = reply.refusal.status;
    cluster_->world.Log(
        fmt::format("{} {}: {}", resume ? "resume" : "drain", worker, Message(status)));
    // A call that was overtaken by a newer one, on another connection: that one is made again.
    if (!resume && wishes_[worker].resume) return Drain(worker, true);
    // Not attached now: a drain lasts until it is ended, or the worker starts again.
    if (!resume || status.ok()) return;
    cluster_->world.After(milliseconds(300), life_, [this, worker, wanted] {
      if (wanted()) Drain(worker, true);
    });
  };
  Ask(coordinator::DrainAsked{worker, resume}, then, wanted);
}

void Client::OnStoreRestored() {
  for (const auto& [worker, wish] : wishes_) {
    if (wish.resume) Drain(worker, true);
  }
  for (auto& [key, promise] : promises_) {
    if (promise.id.empty() || cluster_->store.jobs().contains(promise.id)) continue;
    promise.id.clear();
    SendSubmit(key);
  }
}

}  // namespace ringmaster::sim
