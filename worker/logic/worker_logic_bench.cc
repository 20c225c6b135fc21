// What concerns a worker without a job: measuring a ring.
#include <fmt/format.h>

#include <utility>

#include "worker/logic/job_messages.h"
#include "worker/logic/worker_logic.h"

namespace ringmaster::worker {
namespace {

Decision Refuse(const v1::MeasureRing& message, const std::string& why) {
  SendMessage send;
  v1::RingMeasured& measured = *send.message.mutable_ring_measured();
  *measured.mutable_generation() = message.generation();
  measured.set_error(why);
  return Do(std::move(send), "measures nothing: " + why);
}

GenerationId ToId(const v1::Generation& generation) {
  return {generation.term(), generation.counter()};
}

}  // namespace

Decision WorkerLogic::OnMeasureRing(const v1::MeasureRing& message) {
  if (stopping_) return Refuse(message, "the worker is stopping");
  if (job_) return Refuse(message, fmt::format("the worker still holds job {}", job_->id.value()));
  if (bench_) {
    return Refuse(message,
                  fmt::format("the worker still measures generation {}", bench_->ToString()));
  }
  bench_ = ToId(message.generation());
  return Do(MeasureRing{message}, "measure a ring in generation " + bench_->ToString());
}

Decision WorkerLogic::OnEndMeasuring(const v1::EndMeasuring& message) {
  Decision decision = Nothing("measuring ends: " + message.reason());
  if (bench_ != ToId(message.generation())) return Nothing("that ring is not being measured here");
  EndBench(message.reason(), &decision);
  return decision;
}

void WorkerLogic::EndBench(const std::string& reason, Decision* decision) {
  if (bench_) decision->actions.emplace_back(EndMeasuring{reason});
}

Decision WorkerLogic::On(const BenchEnded& event, Time) {
  bench_.reset();
  SendMessage send;
  *send.message.mutable_ring_measured() = event.measured;
  Decision decision =
      Do(std::move(send), event.measured.error().empty() ? "measured" : event.measured.error());
  if (!next_) return decision;
  Decision inspect = BeginInspect(*std::exchange(next_, std::nullopt));
  for (Action& action : inspect.actions) decision.actions.push_back(std::move(action));
  return decision;
}

}  // namespace ringmaster::worker
