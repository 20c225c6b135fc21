// Gradients from a program of the user's (docs/core_protocol.md): a backend whose cores are
// children, one each, and whose weights lie in memory that all of them map. It binds programs of
// scripts (graph::ScriptProgram) alone. Made by whoever has the script's facts; thread-safe as
// backends are.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ringmaster/v1/script.pb.h"
#include "worker/backend/backend.h"
#include "worker/script/child.h"

namespace ringmaster::script {

struct ScriptOptions {
  v1::ScriptFacts facts;
  // Of the worker as it attached: by it jobs are placed. What beside it moves a script's bits, its
  // libraries, the coordinator compares in the facts.
  v1::NumericsClass numerics;
  // After which a child that comes up, to attach and from there to READY, or that computes a shard,
  // is ended.
  std::chrono::milliseconds attach_limit{600'000}, shard_limit{600'000};
};

class ScriptBackend final : public Backend {
 public:
  // `children` outlives it. DATA_LOSS: the values are not those of the facts.
  [[nodiscard]] static StatusOr<std::unique_ptr<ScriptBackend>> Create(ScriptOptions options,
                                                                       OwnedFile initial,
                                                                       ChildSource* children);

  [[nodiscard]] v1::NumericsClass numerics_class(uint32_t threads_per_core) const override;
  [[nodiscard]] v1::DeviceProfile device_profile() const override;
  [[nodiscard]] bool pads() const override { return true; }  // a child takes any number of rows
  // Until ForgetGiven.
  [[nodiscard]] bool Given(uint32_t parameter, std::span<float> values) const override;
  // The job has them: they are as large as its parameters. Whoever made the backend, once the job
  // is prepared.
  void ForgetGiven() { std::vector<float>().swap(initial_); }
  StatusOr<std::unique_ptr<Weights>> MakeWeights(const graph::Program& training) override;
  StatusOr<std::unique_ptr<Core>> MakeCore(const CoreOptions& options) override;

 private:
  ScriptBackend(ScriptOptions options, ChildSource* children)
      : options_(std::move(options)), children_(children) {}

  const ScriptOptions options_;
  ChildSource* const children_;
  std::vector<float> initial_;       // until ForgetGiven
  std::atomic<uint32_t> cores_ = 0;  // made so far
  std::vector<size_t> offsets_;      // of each tensor's values there, in elements
};

}  // namespace ringmaster::script
