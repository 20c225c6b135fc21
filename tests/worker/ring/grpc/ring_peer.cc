// A member of a ring of two in a process of its own, for tests that kill or stop it. Prints its
// port, reads "PORT DOES BLOCKS\n" from stdin, joins generation 1.1 as worker-1 of worker-0 at that
// port with a watch that accuses nobody, and then, by DOES: "flood" sends frames of 1 MiB, "sum"
// adds up buckets of BLOCKS blocks, to which it contributes zeros, each until it is killed or its
// link ends; "idle" neither sends nor takes until stdin ends.
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "tests/worker/ring/grpc/port_ring.h"
#include "worker/ring/all_reduce.h"
#include "worker/ring/grpc/event_queue.h"
#include "worker/ring/grpc/ring_port.h"

namespace {

using namespace ringmaster;

void AddUp(ring::Link* link, size_t count) {
  const std::vector<exact::Block> blocks(count, {0, 0, exact::kBlockElements});
  const std::vector<int64_t> own(count * exact::kBlockElements);
  std::vector<int64_t> totals(own.size());
  ring::AllReduce reduce(link, {1, 2}, {.progress_limit = std::chrono::seconds(30)});
  ring::Context context{.job = ring::JobHash("job-1"), .generation = {1, 1}};
  while (reduce.Exact(context, blocks, own, totals).ok()) ++context.bucket;
}

}  // namespace

int main() {
  using namespace ringmaster::ring;
  PollQueuesApart();
  auto port = RingPort::Create({"127.0.0.1", 0});
  if (!port.ok()) return 1;
  std::printf("%d\n", static_cast<int>((*port)->port()));
  std::fflush(stdout);
  int successor = 0;
  std::string does(6, '\0');
  size_t blocks = 0;
  if (std::scanf("%d %5s %zu", &successor, does.data(), &blocks) != 3) return 2;
  does.resize(does.find('\0'));
  LinkOptions options;
  options.job_id = "job-1";
  options.generation = {1, 1};
  options.ticket = kTicket;
  options.successor_address = "127.0.0.1:" + std::to_string(successor);
  options.self_name = "worker-1";
  options.self_incarnation = "worker-1-process";
  options.predecessor_name = "worker-0";
  options.predecessor_incarnation = "worker-0-process";
  options.successor_name = options.predecessor_name;
  WatchOptions watched{options};
  watched.content = []() { return Pulse{17, "compute"}; };
  const auto watch = (*port)->Watch(watched);
  if (!watch.ok()) return 4;
  const auto limit = std::chrono::seconds(30);
  auto link = (*port)->Connect(options, std::chrono::steady_clock::now() + limit);
  if (!link.ok()) return 3;
  if (does == "sum") {
    AddUp(link->get(), blocks);
    return 0;
  }
  if (does == "idle") {
    while (std::getchar() != EOF) {
    }
    return 0;
  }
  const Payload payload(std::vector<uint8_t>(1 << 20, 1));
  const FrameHeader header = Sealed({.job = JobHash("job-1"), .generation = {1, 1}}, payload);
  while ((*link)->Send(header, payload, std::chrono::steady_clock::now() + limit).ok()) {
  }
  return 0;
}
