// One member of a group that adds up float32; bench/allreduce starts all of them, and says what is
// timed and when. It reads commands from FOLDER/RANK.in, a fifo, and answers on FOLDER/RANK.out:
//   load ELEMENTS        draws the own contribution            -> ok
//   gradients FILE       takes it from a file, as of bench/recorded_gradients.h: that of shard
//                        RANK, or of another where it has fewer -> numbers of a member
//   run TIMES            so many reductions, one after another -> SECONDS CPU_SECONDS
//   hash                 CRC-32C of the sums                   -> 8 hex digits
// and ends when the fifo does.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <iostream>
#include <random>
#include <sstream>
#include <thread>
#include <vector>

#include "bench/recorded_gradients.h"
#include "bench/ring/contender.h"
#include "common/crc32c.h"
#include "common/rpc/credentials.h"
#include "worker/ring/grpc/event_queue.h"

namespace ringmaster::bench {

void Publish(const Member& member, const std::string& text) {
  const std::filesystem::path path = member.folder / fmt::format("{}.says", member.rank);
  std::ofstream(path.string() + ".new") << text;
  std::filesystem::rename(path.string() + ".new", path);
}

StatusOr<std::string> ReadPublished(const Member& member, uint32_t rank) {
  const std::filesystem::path path = member.folder / fmt::format("{}.says", rank);
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (!std::filesystem::exists(path)) {
    if (std::chrono::steady_clock::now() > end) {
      return Error(absl::StatusCode::kDeadlineExceeded, "member {} did not start", rank);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  std::string text;
  std::ifstream(path) >> text;
  return text;
}

StatusOr<std::unique_ptr<Contender>> MakeContender(const std::string& name, const Member& member) {
  for (const char* const ours : {"exact", "integers", "float32"}) {
    for (const char* way : {"", "_tcp", "_tls"}) {
      if (name == ours + std::string(way)) return MakeRing(name, member);
    }
  }
  if (name == "tcp") return MakeTcp(member);
  if (name == "gloo_ring" || name == "gloo_halving") return MakeGloo(name, member);
  if (name == "mpi") return MakeMpi(member);
  return Error(absl::StatusCode::kNotFound, "there is no contender {}", name);
}

namespace {

// Gradients as layers have them: each block of a size of its own, and its numbers around that.
std::vector<float> Draw(size_t elements, uint32_t rank) {
  std::vector<float> values(elements);
  std::minstd_rand sizes(7), numbers(rank + 1);
  std::normal_distribution<float> normal;
  float size = 0;
  for (size_t i = 0; i < elements; ++i) {
    if (i % 256 == 0) size = std::ldexp(1.0F, -6 - static_cast<int>(sizes() % 10));
    values[i] = size * normal(numbers);
  }
  return values;
}

double CpuSeconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

std::string HashOf(std::span<const float> sums) {
  return fmt::format("{:08x}", ExtendCrc32c(0, {reinterpret_cast<const uint8_t*>(sums.data()),
                                                sums.size_bytes()}));
}

StatusOr<std::string> LoadRecorded(std::istream& words, const Member& member,
                                   Contender* contender) {
  std::string path;
  std::getline(words >> std::ws, path);
  RING_ASSIGN_OR_RETURN(const RecordedGradients recorded, ReadGradients(path));
  RING_RETURN_IF_ERROR(contender->Load(recorded.shards[member.rank % recorded.shards.size()]));
  contender->UseUnits(recorded.unit_exponents);
  return fmt::format("{}", recorded.shards[0].size());
}

StatusOr<std::string> Answer(const std::string& command, const Member& member,
                             Contender* contender) {
  std::istringstream words(command);
  std::string what;
  size_t number = 0;
  words >> what;
  if (what == "gradients") return LoadRecorded(words, member, contender);
  words >> number;
  if (what == "load") {
    RING_RETURN_IF_ERROR(contender->Load(Draw(number, member.rank)));
    return std::string("ok");
  }
  if (what == "hash") return HashOf(contender->sums());
  if (what != "run") return InvalidArgument("no command: {}", command);
  const auto began = std::chrono::steady_clock::now();
  const double cpu = CpuSeconds();
  for (size_t i = 0; i < number; ++i) RING_RETURN_IF_ERROR(contender->Reduce());
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - began;
  return fmt::format("{:.9f} {:.6f}", seconds.count(), CpuSeconds() - cpu);
}

Status Serve(const std::string& name, const Member& member) {
  std::ifstream in(member.folder / fmt::format("{}.in", member.rank));
  std::ofstream out(member.folder / fmt::format("{}.out", member.rank));
  RING_ASSIGN_OR_RETURN(const std::unique_ptr<Contender> contender, MakeContender(name, member));
  out << "ready" << std::endl;
  for (std::string command; std::getline(in, command);) {
    RING_ASSIGN_OR_RETURN(const std::string answer, Answer(command, member, contender.get()));
    out << answer << std::endl;
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace ringmaster::bench

int main(int argc, char** argv) {
  using ringmaster::bench::Member;
  if (argc != 6 && argc != 4) {
    std::cerr << "usage: allreduce_speed CONTENDER FOLDER SIZE [RANK HOST]: see bench/allreduce\n";
    return 2;
  }
  Member member{.size = static_cast<uint32_t>(std::atoi(argv[3])), .folder = argv[2]};
  const char* const rank = argc == 6 ? argv[4] : std::getenv("OMPI_COMM_WORLD_RANK");
  member.rank = rank == nullptr ? 0 : static_cast<uint32_t>(std::atoi(rank));
  if (argc == 6) member.host = argv[5];
  ringmaster::ring::PollQueuesApart();
  ringmaster::Status status = ringmaster::UseTls13();
  if (status.ok()) status = ringmaster::bench::Serve(argv[1], member);
  if (status.ok()) return 0;
  std::cerr << "allreduce_speed: " << argv[1] << ", member " << member.rank << ": "
            << ringmaster::Message(status) << "\n";
  return 1;
}
