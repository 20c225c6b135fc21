// Children of a worker without a process: threads that speak their end of the core protocol, each
// one parameter vector whose loss of a sample is (w - target)^2 / 2, and a buffer that counts rows.
#pragma once

#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/mutex.h"
#include "common/sha256.h"
#include "worker/script/child.h"

namespace ringmaster::script {

inline constexpr int kWeights = 300;  // more than a block

// A shard as a fake child sees it: to read, to change, to leave out.
struct FakeShard {
  uint64_t step = 0;
  uint32_t shard = 0, rows = 0;
  float scale = 1;
  std::vector<uint64_t> samples;
  float target = 0;  // of all its samples
};

struct FakeChildHooks {
  std::function<void(FakeShard*)> on_shard = [](FakeShard*) {};
  // Instead of computing; false: as it is told. True: the child ends without a word.
  std::function<bool(int socket, const FakeShard&)> instead = [](int, const FakeShard&) {
    return false;
  };
  std::function<void(v1::ScriptFacts*, int number)> on_facts = [](v1::ScriptFacts*, int) {};
  std::function<void(int number, const FakeShard&)> on_ahead = [](int, const FakeShard&) {};
  // Behind the first of two buckets; true: the child ends there.
  std::function<bool(const FakeShard&)> between = [](const FakeShard&) { return false; };
};

inline v1::ScriptFacts FakeFacts() {
  v1::ScriptFacts facts;
  v1::ScriptTensor& weight = *facts.add_tensors();
  weight.set_name("net.weight");
  weight.add_shape(3);
  weight.add_shape(kWeights / 3);
  weight.set_role(v1::PARAMETER);
  v1::ScriptTensor& buffer = *facts.add_tensors();
  buffer.set_name("net.seen");
  buffer.set_role(v1::BUFFER);
  facts.add_groups()->set_weight_decay(0);
  v1::TorchSgd& sgd = *facts.mutable_optimizer()->mutable_torch_sgd();
  sgd.set_momentum(0.5);
  facts.add_metrics("rows");
  facts.add_counters("net.tracked");
  facts.add_counter_starts(3);
  (*facts.mutable_aliases())["head.weight"] = "net.weight";
  facts.set_initial_sha256(Hex(Sha256Of(std::string((kWeights + 1) * sizeof(float), '\0'))));
  facts.set_frozen_sha256(Hex(Sha256Of("")));
  facts.set_batch(8);
  facts.set_shards(4);
  facts.set_steps(5);
  return facts;
}

inline Deadline Soon() { return std::chrono::steady_clock::now() + std::chrono::seconds(20); }

inline FakeShard ReadShard(const std::string& body) {
  FakeShard shard;
  std::memcpy(&shard.step, body.data(), 8);
  std::memcpy(&shard.shard, body.data() + 32, 4);
  std::memcpy(&shard.rows, body.data() + 40, 4);
  std::memcpy(&shard.scale, body.data() + 44, 4);
  shard.samples.resize(shard.rows);
  std::memcpy(shard.samples.data(), body.data() + 48, 8 * shard.samples.size());
  for (const uint64_t sample : shard.samples) shard.target += static_cast<float>(sample % 7);
  return shard;
}

inline FakeShard ReadAhead(const std::string& body) {
  FakeShard shard;
  std::memcpy(&shard.step, body.data(), 8);
  std::memcpy(&shard.shard, body.data() + 16, 4);
  std::memcpy(&shard.rows, body.data() + 20, 4);
  shard.samples.resize(shard.rows);
  std::memcpy(shard.samples.data(), body.data() + 24, 8 * shard.samples.size());
  return shard;
}

inline bool ServeShard(int number, int socket, const v1::ScriptLayout& layout,
                       const std::byte* state, std::byte* slot, const FakeChildHooks& hooks) {
  StatusOr<Packet> packet = Receive(socket, Soon());
  for (; packet.ok() && packet->kind == PacketKind::kAhead; packet = Receive(socket, Soon())) {
    hooks.on_ahead(number, ReadAhead(packet->body));
  }
  if (!packet.ok() || packet->kind != PacketKind::kShard) return false;
  FakeShard shard = ReadShard(packet->body);
  hooks.on_shard(&shard);
  if (hooks.instead(socket, shard)) return false;
  const auto* const weights = reinterpret_cast<const float*>(state + layout.offsets(0));
  auto* const gradient = reinterpret_cast<float*>(slot + layout.offsets(0));
  double loss = 0;
  const auto rows = static_cast<float>(shard.rows);
  for (int i = 0; i < kWeights; ++i) {
    gradient[i] = (rows * weights[i] - shard.target) * shard.scale;
    loss += rows * weights[i] * weights[i] / 2;
  }
  *reinterpret_cast<float*>(slot + layout.offsets(1)) = rows * rows * shard.scale;
  const std::array<std::string, 2> buckets = {std::string(4, '\0'), std::string("\1\0\0\0", 4)};
  const bool begun = Send(socket, PacketKind::kBucket, buckets[0], {}, Soon()).ok();
  if (!begun || hooks.between(shard)) return false;
  std::string done(packet->body.data(), 8);
  const std::array<uint32_t, 3> numbers = {shard.shard, 1, 1};
  done.append(reinterpret_cast<const char*>(numbers.data()), sizeof(numbers));
  const std::array<double, 3> values = {loss, rows, 0.125};
  done.append(reinterpret_cast<const char*>(values.data()), sizeof(values));
  return Send(socket, PacketKind::kBucket, buckets[1], {}, Soon()).ok() &&
         Send(socket, PacketKind::kDone, done, {}, Soon()).ok();
}

// A child's life at its end of a lane.
inline void LiveAsChild(int number, const OwnedFile& socket, const FakeChildHooks& hooks) {
  v1::ScriptHello hello;
  StatusOr<Packet> packet = Receive(socket.get(), Soon());
  if (!packet.ok() || !TakeJson(&*packet, &hello).ok()) return;
  const OwnedFile initial(memfd_create("initial", MFD_CLOEXEC));
  if (ftruncate(initial.get(), (kWeights + 1) * sizeof(float)) != 0) return;
  v1::ScriptFacts facts = FakeFacts();
  hooks.on_facts(&facts, number);
  const int files[] = {initial.get()};
  if (!SendJson(socket.get(), PacketKind::kFacts, facts, files, Soon()).ok()) return;
  v1::ScriptLayout layout;
  packet = Receive(socket.get(), Soon());
  if (!packet.ok() || packet->kind != PacketKind::kLayout) return;
  if (!TakeJson(&*packet, &layout).ok() || packet->files.size() != 2) return;
  const auto map = [&](int file, int rights) {
    return static_cast<std::byte*>(
        mmap(nullptr, layout.bytes(), rights, MAP_SHARED, packet->files[file].get(), 0));
  };
  const std::byte* const state = map(0, PROT_READ);
  std::byte* const slot = map(1, PROT_READ | PROT_WRITE);
  if (!Send(socket.get(), PacketKind::kReady, "", {}, Soon()).ok()) return;
  while (ServeShard(number, socket.get(), layout, state, slot, hooks)) {
  }
  munmap(const_cast<std::byte*>(state), layout.bytes());
  munmap(slot, layout.bytes());
}

class FakeChildren final : public ChildSource {
 public:
  explicit FakeChildren(FakeChildHooks hooks = {}) : hooks_(std::move(hooks)) {}
  FakeChildren(const FakeChildren&) = delete;
  FakeChildren& operator=(const FakeChildren&) = delete;

  StatusOr<StartedChild> Start(const v1::ScriptHello& hello, std::chrono::milliseconds patience,
                               const std::stop_token& /*stop*/) override {
    std::array<int, 2> ends{};
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0) {
      return Internal("no socket");
    }
    const int number = started++;
    {
      MutexLock lock(mu_);
      threads_.emplace_back(
          [this, number, file = ends[1]] { LiveAsChild(number, OwnedFile(file), hooks_); });
    }
    StartedChild started{
        std::make_unique<Child>(OwnedFile(ends[0]),
                                ChildProcess{.called = "child " + std::to_string(number)}),
        {}};
    RING_ASSIGN_OR_RETURN(
        started.attached,
        started.child->Attach(hello, std::chrono::steady_clock::now() + patience));
    return started;
  }

  std::atomic<int> started = 0;

 private:
  const FakeChildHooks hooks_;
  Mutex mu_;
  std::vector<std::jthread> threads_ ABSL_GUARDED_BY(mu_);
};

}  // namespace ringmaster::script
