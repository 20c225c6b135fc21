// How quick a state goes from one worker to another: MiB a second over loopback, through the ring's
// port as in a worker, from one state of three arenas (parameters and two slots) into another one,
// with what both sides check; beside it these parts alone, each on one thread, and a plain copy of
// the same bytes. Best of some rounds of wall time. Argument: MiB, default 256.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <utility>

#include "common/crc32c.h"
#include "common/exact/digest.h"
#include "common/graph/program.h"
#include "common/ticket.h"
#include "worker/ring/grpc/ring_port.h"
#include "worker/state/state_row.h"
#include "worker/transfer/state_fetch.h"
#include "worker/transfer/state_service.h"

namespace ringmaster::worker {
namespace {

constexpr int kRounds = 5;
constexpr uint64_t kStep = 1;
const JobId kJob("bench");

// Of one parameter, with two slots.
StatusOr<std::shared_ptr<const StateLayout>> MakeLayout(uint64_t elements) {
  graph::Program program;
  const auto size = static_cast<int64_t>(elements);
  program.parameters = {{.name = "weights", .shape = {size}, .initializer = {}, .index = 0}};
  program.gradient_order = {0};
  return StateLayout::Create(program, {"m", "v"});
}

State EmptyState(const std::shared_ptr<const StateLayout>& layout) { return {layout, 21}; }

// Words that do not repeat, and the digest that they have.
State MakeState(const std::shared_ptr<const StateLayout>& layout) {
  State state = EmptyState(layout);
  uint32_t word = 1;
  const auto fill = [&word](std::span<float> values) {
    for (float& value : values) value = std::bit_cast<float>((word *= 2654435761U) >> 2);
  };
  fill(state.parameters.span());
  for (Arena<float>& slot : state.slots) fill(slot.span());
  state.step = kStep;
  state.written = HashState(state);
  state.digest = exact::NextDigest(state.link, kStep - 1, state.written.total());
  return state;
}

// As Trainer::Open.
class Source : public StateSource {
 public:
  [[nodiscard]] static StatusOr<std::unique_ptr<StateSource>> Open(const State& state) {
    if (HashState(state).total() != state.written.total()) return DataLoss("changed");
    RING_ASSIGN_OR_RETURN(StateReader reader, StateReader::Create(state));
    return std::unique_ptr<StateSource>(new Source(state, std::move(reader)));
  }
  [[nodiscard]] const StateFacts& facts() const override { return facts_; }
  [[nodiscard]] uint64_t PieceEnd(uint64_t offset) const override {
    return reader_.PieceEnd(offset);
  }
  StatusOr<uint64_t> Read(uint64_t offset, std::span<uint8_t> to) override {
    reader_.Read(offset, to);
    return facts_.step;
  }

 private:
  Source(const State& state, StateReader reader)
      : facts_{state.step, state.digest, reader.bytes(), {}, {}}, reader_(std::move(reader)) {}
  const StateFacts facts_;
  const StateReader reader_;
};

double CpuSeconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

template <typename Work>
Status Report(const char* what, size_t mib, Work work) {
  double best = 1e9;
  double best_cpu = 1e9;
  for (int round = 0; round < kRounds; ++round) {
    const auto start = std::chrono::steady_clock::now();
    const double cpu = CpuSeconds();
    RING_RETURN_IF_ERROR(work());
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    best = std::min(best, seconds.count());
    best_cpu = std::min(best_cpu, CpuSeconds() - cpu);
  }
  fmt::print("{:<12} {:>8.0f} MiB/s {:>9.1f} ms {:>9.1f} ms of CPU\n", what,
             static_cast<double>(mib) / best, 1e3 * best, 1e3 * best_cpu);
  return absl::OkStatus();
}

Status Measure(size_t mib) {
  RING_ASSIGN_OR_RETURN(const auto layout, MakeLayout((mib << 20) / (3 * sizeof(float))));
  const State state = MakeState(layout);
  RING_RETURN_IF_ERROR(Report("plain copy", mib, [&]() {
    State copy = EmptyState(layout);
    std::ranges::copy(state.parameters.span(), copy.parameters.span().begin());
    for (size_t i = 0; i < state.slots.size(); ++i) {
      std::ranges::copy(state.slots[i].span(), copy.slots[i].span().begin());
    }
    return copy.parameters.span().back() == state.parameters.span().back()
               ? absl::OkStatus()
               : absl::InternalError("not copied");
  }));
  RING_RETURN_IF_ERROR(Report("its hash", mib, [&state]() {
    return HashState(state).total() == state.written.total() ? absl::OkStatus()
                                                             : absl::InternalError("changed");
  }));
  RING_RETURN_IF_ERROR(Report("CRC-32C", mib, [&state]() {
    uint32_t crc = 0;
    const auto add = [&crc](std::span<const float> values) {
      crc =
          ExtendCrc32c(crc, {reinterpret_cast<const uint8_t*>(values.data()), values.size_bytes()});
    };
    add(state.parameters.span());
    for (const Arena<float>& slot : state.slots) add(slot.span());
    return crc == 0 ? absl::InternalError("by chance") : absl::OkStatus();
  }));

  StateService service;
  service.Start();
  service.Offer(kJob, [&state](uint64_t, Follows) { return Source::Open(state); });
  const std::string ticket = RandomTicket();
  service.Admit(kJob, {}, ticket);
  ring::PortOptions options;
  options.services = {&service};
  RING_ASSIGN_OR_RETURN(const auto port, ring::RingPort::Create({"127.0.0.1", 0}, options));
  const Status status = Report("transfer", mib, [&]() {
    IncomingState incoming(EmptyState(layout));
    FetchOptions fetch;
    fetch.step = kStep;
    fetch.address = fmt::format("127.0.0.1:{}", port->port());
    fetch.job = kJob;
    fetch.ticket = ticket;
    fetch.deadline = std::chrono::steady_clock::now() + std::chrono::minutes(5);
    RING_RETURN_IF_ERROR(FetchState(fetch, &incoming, {}));
    return incoming.Finish(&OneAfterAnother).status();
  });
  service.Stop();
  port->Stop();
  return status;
}

}  // namespace
}  // namespace ringmaster::worker

int main(int argc, char** argv) {
  const int mib = argc > 1 ? std::atoi(argv[1]) : 256;
  if (mib < 1) {
    std::fprintf(stderr, "usage: state_transfer [MIB]\n");
    return 2;
  }
  const auto status = ringmaster::worker::Measure(static_cast<size_t>(mib));
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", ringmaster::Message(status).c_str());
  return 1;
}
