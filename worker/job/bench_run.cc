#include "worker/job/bench_run.h"

#include <grpcpp/client_context.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <future>
#include <memory>
#include <utility>

#include "common/amount.h"
#include "common/files.h"
#include "common/net/address.h"
#include "common/net/socket.h"
#include "common/rpc/channel.h"
#include "worker/ring/bench.h"

namespace ringmaster::worker {
namespace {

constexpr std::chrono::seconds kRingLimit{20};
constexpr std::chrono::minutes kFrameLimit{2};
constexpr uint32_t kMostReach = 6'000;  // milliseconds
// Stands where a job's id does: no job can have it.
constexpr char kBenchId[] = "bench";

GenerationId GenerationOf(const v1::MeasureRing& measure) {
  return {measure.generation().term(), measure.generation().counter()};
}

StatusOr<ring::Position> FindSelf(const v1::MeasureRing& measure, const std::string& name,
                                  const std::string& incarnation) {
  const auto self = std::find_if(
      measure.ring().begin(), measure.ring().end(), [&](const v1::BenchMember& member) {
        return member.name() == name && member.incarnation() == incarnation;
      });
  if (self == measure.ring().end() || measure.ring_size() < 2) {
    return Internal("the ring of generation {} to measure has {} members, and {} is {} of them",
                    GenerationOf(measure).ToString(), measure.ring_size(), name,
                    self == measure.ring().end() ? "none" : "one");
  }
  return ring::Position{static_cast<uint32_t>(self - measure.ring().begin()),
                        static_cast<uint32_t>(measure.ring_size())};
}

ring::LinkOptions OptionsFor(const v1::MeasureRing& measure, ring::Position position) {
  const auto member = [&](uint32_t distance) -> const v1::BenchMember& {
    return measure.ring(static_cast<int>((position.rank + distance) % position.size));
  };
  ring::LinkOptions options;
  options.job_id = kBenchId;
  options.generation = GenerationOf(measure);
  options.self_name = member(0).name();
  options.self_incarnation = member(0).incarnation();
  options.successor_name = member(1).name();
  options.successor_address = member(1).ring_address();
  options.predecessor_name = member(position.size - 1).name();
  options.predecessor_incarnation = member(position.size - 1).incarnation();
  return options;
}

// Before anything is allocated: a host that swaps measures its disk.
Status CheckMemory(const v1::MeasureSums& sums) {
  uint64_t largest = 0;
  for (const uint64_t bytes : sums.bytes()) largest = std::max(largest, bytes);
  const uint64_t needed = ring::BenchMemory(largest), most = HostMemory() / 2;
  if (needed <= most) return absl::OkStatus();
  return FailedPrecondition(
      "a reduction of {} bytes takes {} MiB of memory on each worker, and this host lends {} MiB; "
      "measure smaller sizes",
      largest, needed >> 20, most >> 20);
}

Status MeasureInto(ring::Link* link, ring::Position position, const v1::MeasureRing& measure,
                   const std::stop_token& stop, v1::RingMeasured* measured) {
  const ring::Context context{.job = ring::JobHash(kBenchId),
                              .generation = GenerationOf(measure),
                              .purpose = ring::Purpose::kEvaluate};
  if (measure.has_link()) {
    RING_ASSIGN_OR_RETURN(
        const ring::LinkFigures figures,
        ring::MeasureLink(link, position, context, std::chrono::steady_clock::now() + kFrameLimit));
    if (figures.round_trip_seconds) {
      measured->set_round_trip_seconds(*figures.round_trip_seconds);
    }
    if (figures.bytes_per_second) measured->set_bytes_per_second(*figures.bytes_per_second);
    return absl::OkStatus();
  }
  ring::SumsPlan plan;
  for (const uint64_t bytes : measure.sums().bytes()) plan.elements.push_back(bytes / 4);
  for (const int sums : measure.sums().sums()) {
    plan.sums.push_back(sums == v1::BENCH_SUMS_EXACT ? ring::ArraySums::kExact
                                                     : ring::ArraySums::kFloat32);
  }
  plan.rounds = measure.sums().rounds();
  plan.seed = measure.sums().seed();
  RING_ASSIGN_OR_RETURN(
      const std::vector<ring::SumsTimes> all,
      ring::MeasureSums(link, position, context, plan, {.progress_limit = kFrameLimit}, stop));
  for (const ring::SumsTimes& times : all) {
    v1::MeasuredSums& added = *measured->add_times();
    added.set_bytes(times.elements * 4);
    added.set_sums(times.sums == ring::ArraySums::kExact ? v1::BENCH_SUMS_EXACT
                                                         : v1::BENCH_SUMS_FLOAT32);
    added.mutable_seconds()->Add(times.seconds.begin(), times.seconds.end());
    added.set_sent_bytes(times.sent_bytes);
  }
  return absl::OkStatus();
}

// What a port says to a call that fails at once: why it cannot be connected to.
std::string WhyUnreached(const std::shared_ptr<grpc::Channel>& channel) {
  grpc::GenericStub stub(channel);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(1));
  const grpc::Slice empty;  // a message of no bytes; a buffer without any slice is none
  const grpc::ByteBuffer request(&empty, 1);
  grpc::ByteBuffer response;
  std::promise<std::string> why;
  stub.UnaryCall(&context, "/grpc.health.v1.Health/Check", {}, &request, &response,
                 [&why](const grpc::Status& status) { why.set_value(status.error_message()); });
  return why.get_future().get();
}

// Whether the successor's port takes a connection of this worker, TLS and all. It is not broken off
// by a stop: it is short, and both directions are of interest.
Status Reach(const Dialer& dialer, const ring::LinkOptions& options,
             std::chrono::milliseconds limit) {
  RING_ASSIGN_OR_RETURN(const Address successor,
                        ParsePeerAddress(options.successor_address, "ring_address"));
  const std::shared_ptr<grpc::Channel> channel =
      dialer.Dial(successor, {pki::Kind::kWorker, options.successor_name}, ChannelOptions());
  const bool reached =
      AwaitConnection(*channel, std::chrono::steady_clock::now() + limit, []() { return false; });
  if (reached) return absl::OkStatus();
  constexpr std::chrono::seconds kLook{1};
  const auto file = ConnectTo(successor, std::chrono::steady_clock::now() + kLook);
  std::string why = file.ok() ? "" : Message(file.status());
  if (why.empty() && IsLoopback(successor.host)) why = RefusalAt(successor, kLook);
  if (why.empty()) why = WhyUnreached(channel);
  return Error(absl::StatusCode::kUnavailable, "no connection to {} within {} s: {}",
               successor.ToString(), std::chrono::duration<double>(limit).count(), why);
}

Status Measure(ring::RingPort* port, const Dialer& dialer, ring::Position position,
               const v1::MeasureRing& measure, const std::stop_token& stop,
               v1::RingMeasured* measured) {
  RING_RETURN_IF_ERROR(CheckMemory(measure.sums()));
  ring::LinkOptions options = OptionsFor(measure, position);
  options.stop = stop;
  if (measure.link().reach_ms() > 0) {
    const Status reached =
        Reach(dialer, options,
              std::chrono::milliseconds(std::min(measure.link().reach_ms(), kMostReach)));
    measured->set_unreached(!reached.ok());
    RING_RETURN_IF_ERROR(reached);
  }
  RING_ASSIGN_OR_RETURN(const std::unique_ptr<ring::Link> link,
                        port->Connect(options, std::chrono::steady_clock::now() + kRingLimit));
  const std::stop_callback on_stop(
      stop, [&link] { link->Cancel(absl::CancelledError("the measurement was ended")); });
  Status status = MeasureInto(link.get(), position, measure, stop, measured);
  if (!status.ok()) link->Cancel(status);  // the neighbours learn of it at once
  return status;
}

}  // namespace

v1::RingMeasured RunBench(ring::RingPort* port, const Dialer& dialer, const std::string& name,
                          const std::string& incarnation, const v1::MeasureRing& measure,
                          const std::stop_token& stop) {
  v1::RingMeasured measured;
  *measured.mutable_generation() = measure.generation();
  StatusOr<ring::Position> position = FindSelf(measure, name, incarnation);
  const Status status = position.ok() ? Measure(port, dialer, *position, measure, stop, &measured)
                                      : position.status();
  if (!status.ok()) {
    measured.set_error(Message(status));
    // Whoever ends a ring gives its neighbours one of the first two, and who is told to end is not
    // the cause.
    measured.set_by_neighbour(!measured.unreached() &&
                              (status.code() == absl::StatusCode::kUnavailable ||
                               status.code() == absl::StatusCode::kAborted ||
                               status.code() == absl::StatusCode::kCancelled));
  }
  spdlog::info("ring measured: generation={} of={} {}", GenerationOf(measure).ToString(),
               measure.ring_size(), status.ok() ? "ok" : Message(status));
  return measured;
}

}  // namespace ringmaster::worker
