// How quick a state goes from one worker to another: MiB a second over loopback, through the ring's
// port as in a worker, with the SHA-256 of both sides; beside it a plain copy of the same bytes,
// and the SHA-256 of them alone. Best of some rounds of wall time. Argument: MiB, default 256.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <memory>
#include <random>
#include <vector>

#include "common/sha256.h"
#include "common/ticket.h"
#include "worker/ring/grpc/ring_port.h"
#include "worker/transfer/state_fetch.h"
#include "worker/transfer/state_service.h"

namespace ringmaster::worker {
namespace {

constexpr int kRounds = 5;
const JobId kJob("bench");

std::shared_ptr<const StateCopy> MakeState(size_t bytes) {
  auto copy = std::make_shared<StateCopy>();
  std::mt19937_64 random(1);
  std::string data(bytes, '\0');
  for (size_t i = 0; i + 8 <= bytes; i += 8) {
    const uint64_t word = random();
    std::memcpy(data.data() + i, &word, 8);
  }
  copy->files.push_back({"model.safetensors", std::move(data)});
  return copy;
}

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
  const std::shared_ptr<const StateCopy> state = MakeState(mib << 20);
  const std::string& bytes = state->files[0].bytes;
  RING_RETURN_IF_ERROR(Report("plain copy", mib, [&bytes]() {
    const std::vector<char> copy(bytes.begin(), bytes.end());
    return copy.back() == bytes.back() ? absl::OkStatus() : absl::InternalError("not copied");
  }));
  RING_RETURN_IF_ERROR(Report("SHA-256", mib, [&bytes]() {
    return Sha256Of(bytes)[0] == Sha256Of("")[0] ? absl::InternalError("by chance")
                                                 : absl::OkStatus();
  }));

  StateService service;
  service.Start();
  service.Offer(kJob, [&state](uint64_t) { return state; });
  const std::string ticket = RandomTicket();
  service.Admit(kJob, {}, ticket);
  ring::PortOptions options;
  options.services = {&service};
  RING_ASSIGN_OR_RETURN(const auto port, ring::RingPort::Create({"127.0.0.1", 0}, options));
  const Status status = Report("transfer", mib, [&]() {
    FetchOptions fetch;
    fetch.address = fmt::format("127.0.0.1:{}", port->port());
    fetch.job = kJob;
    fetch.ticket = ticket;
    fetch.deadline = std::chrono::steady_clock::now() + std::chrono::minutes(5);
    return FetchState(fetch, {}).status();
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
