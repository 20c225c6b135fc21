#include "tests/sim/sim_worker.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tests/sim/cluster.h"
#include "tests/sim/describe.h"
#include "tests/support/cluster_messages.h"

namespace ringmaster::sim {
namespace {

// As in worker/session.cc and worker/daemon.cc.
constexpr Time kFirstBackoff = milliseconds(50);
constexpr Time kLastBackoff = seconds(1);
constexpr Time kHeartbeat = milliseconds(100);
// What a service manager waits between SIGTERM and SIGKILL.
constexpr Time kTerminateLimit = seconds(30);

std::string IncarnationOf(const WorkerHost& host) {
  return testing::MakeIncarnation(fmt::format("{}#{}", host.name, host.starts));
}

v1::Attach SelfOf(const WorkerHost& host) {
  v1::Attach self = testing::MakeAttach(host.name);
  self.set_incarnation(IncarnationOf(host));
  self.set_ring_address(RingAddress(host.host));
  self.set_cores(host.cores);
  self.mutable_numerics_class()->set_instruction_set(InstructionsOf(host.numerics_class));
  for (const char* library : {"blas", "dnn", "fft", "math", "rng", "sums"}) {
    (*self.mutable_numerics_class()->mutable_libraries())[library] = "1";
  }
  self.set_host("node-" + host.name);
  return self;
}

}  // namespace

SimWorker::SimWorker(Cluster* cluster, WorkerHost* host)
    : cluster_(cluster),
      host_(host),
      incarnation_(IncarnationOf(*host)),
      life_(std::make_shared<Life>()),
      logic_(SelfOf(*host), host->highest_term) {
  life_->name = fmt::format("{}#{}", host->name, host->starts);
  trainer_ = std::make_unique<ToyTrainer>(
      ToyTrainer::Self{cluster, life_, host->host, host->name, incarnation_, host->cores, host->odd,
                       InstructionsOf(host->numerics_class), cluster->plan.FollowsAt(host->host)},
      [this](worker::Event event) { Post(std::move(event)); });
}

SimWorker::~SimWorker() = default;

void SimWorker::Start() {
  cluster_->world.Log("start " + life_->name);
  cluster_->network.Bind(host_->host, life_);
  OpenSession();
  cluster_->world.After(kHeartbeat, life_, [this] { Beat(); });
}

void SimWorker::Terminate() {
  cluster_->world.Log("SIGTERM " + life_->name);
  leaving_ = true;
  Post(worker::StopRequested{"SIGTERM"});
  cluster_->world.After(kTerminateLimit, life_, [this] { cluster_->Kill(host_->host, false); });
}

void SimWorker::Post(worker::Event event) {
  cluster_->world.After(Time(0), life_, [this, event = std::move(event)] { Handle(event); });
}

void SimWorker::Handle(const worker::Event& event) {
  const worker::WorkerLogic::Time now(cluster_->world.now());
  const worker::Decision decision = logic_.Step(event, now);
  for (const worker::Action& action : decision.actions) {
    if (!life_->alive) return;
    std::visit([this](const auto& value) { Do(value); }, action);
  }
}

void SimWorker::Do(const worker::SendMessage& action) { Send(action.message); }

void SimWorker::Do(const worker::CloseSession& action) {
  cluster_->world.Log(fmt::format("{} closes its session: {}", life_->name, action.reason));
  if (session_ == nullptr) return;
  session_->Cancel(0);
  cluster_->world.After(milliseconds(1), life_, [this, id = session_->id(), why = action.reason] {
    SessionEnded(id, why);
  });
}

void SimWorker::Do(const worker::SaveTerm& action) {
  host_->highest_term = action.term;
  cluster_->oracle.OnTermSaved({host_->host, incarnation_}, action.term);
  Post(worker::TermStored{action.term, ""});
}

void SimWorker::Do(const worker::CancelRun& action) {
  cluster_->world.Log(fmt::format("{} stops its run {}: {}", life_->name,
                                  action.when == worker::RunStop::kNow ? "now" : "at a boundary",
                                  action.reason));
  trainer_->Cancel(action.when);
}

void SimWorker::Do(const worker::Exit&) {
  cluster_->world.Log("exit " + life_->name);
  if (session_ != nullptr) session_->Finish(0, "the worker ended it");
  session_.reset();
  cluster_->Kill(host_->host, false);
}

// ---- session ------------------------------------------------------------------------------------

void SimWorker::OpenSession() {
  attach_sent_ = false;
  session_begun_ = cluster_->world.now();
  const auto id = std::make_shared<uint64_t>(0);
  session_ = cluster_->network.Connect(
      host_->host, kCoordinatorHost, life_,
      [this, id](const std::string& reason) { SessionEnded(*id, reason); },
      [cluster = cluster_](const ConnectionPtr& incoming) {
        cluster->coordinator->AcceptSession(incoming);
      });
  *id = session_->id();
  Post(worker::Connected{});
}

void SimWorker::SessionEnded(uint64_t connection, const std::string& reason) {
  if (session_ == nullptr || session_->id() != connection) return;
  session_.reset();
  Post(worker::Disconnected{reason});
  const Time now = cluster_->world.now();
  if (now - session_begun_ > kLastBackoff) backoff_ = kFirstBackoff;
  const Time wait(cluster_->world.random().Between(backoff_.count() / 2, backoff_.count()));
  backoff_ = std::min(backoff_ * 2, kLastBackoff);
  cluster_->world.After(wait, life_, [this] { OpenSession(); });
}

void SimWorker::Hear(uint64_t connection, const v1::CoordinatorMessage& message) {
  if (session_ == nullptr || session_->id() != connection) return;
  cluster_->oracle.OnHeard({host_->host, incarnation_}, message);
  Handle(worker::FromCoordinator{message});
}

void SimWorker::Send(const v1::WorkerMessage& message) {
  if (session_ == nullptr) return;
  attach_sent_ = attach_sent_ || message.has_attach();
  if (!attach_sent_) return;
  cluster_->oracle.OnSaid({host_->host, incarnation_}, message);
  if (message.has_fence_ack()) cluster_->faults.At(Point::kFenceAcked, host_->host);
  if (message.has_joined()) cluster_->faults.At(Point::kJoined, host_->host);
  if (message.has_job_finished()) cluster_->faults.At(Point::kFinished, host_->host);
  if (!message.has_heartbeat() && !message.has_phase_entered()) {
    cluster_->world.Log(fmt::format("{} -> {}", life_->name, Describe(message)));
  }
  session_->Send(0, [cluster = cluster_, id = session_->id(), message] {
    cluster->coordinator->Hear(id, message);
  });
}

void SimWorker::Beat() {
  if (logic_.attached()) {
    v1::WorkerMessage message;
    *message.mutable_heartbeat() = trainer_->heartbeat();
    Send(message);
  }
  cluster_->world.After(kHeartbeat, life_, [this] { Beat(); });
}

}  // namespace ringmaster::sim
