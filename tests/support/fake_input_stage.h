// An InputStage on the host: a slot is memory of its own. Thread-safe, but for Bring beside Bring.
#pragma once

#include <algorithm>
#include <atomic>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "worker/backend/backend.h"

namespace ringmaster {

class FakeStagedInput : public StagedInput {
 public:
  FakeStagedInput(std::span<const uint8_t> pixels, std::shared_ptr<std::atomic<size_t>> taken)
      : pixels_(pixels.begin(), pixels.end()), taken_(std::move(taken)) {}
  ~FakeStagedInput() override { --*taken_; }
  FakeStagedInput(const FakeStagedInput&) = delete;
  FakeStagedInput& operator=(const FakeStagedInput&) = delete;

  [[nodiscard]] std::span<const uint8_t> pixels() const { return pixels_; }

 private:
  const std::vector<uint8_t> pixels_;
  const std::shared_ptr<std::atomic<size_t>> taken_;
};

class FakeInputStage : public InputStage {
 public:
  explicit FakeInputStage(const InputStageOptions& options) : options_(options) {}

  StatusOr<std::shared_ptr<const StagedInput>> Bring(std::span<const uint8_t> pixels) override {
    if (pixels.size() > options_.slot_bytes) {
      ++refused_;
      return InvalidArgument("{} bytes for a slot of {}", pixels.size(), options_.slot_bytes);
    }
    if (*taken_ >= options_.slots) return nullptr;
    most_ = std::max<size_t>(most_, ++*taken_);
    ++brought_;
    return std::make_shared<FakeStagedInput>(pixels, taken_);
  }

  [[nodiscard]] size_t taken() const { return *taken_; }
  [[nodiscard]] size_t most() const { return most_; }  // taken at once
  [[nodiscard]] size_t brought() const { return brought_; }
  [[nodiscard]] size_t refused() const { return refused_; }

 private:
  const InputStageOptions options_;
  const std::shared_ptr<std::atomic<size_t>> taken_ = std::make_shared<std::atomic<size_t>>(0);
  std::atomic<size_t> most_ = 0;
  std::atomic<size_t> brought_ = 0;
  std::atomic<size_t> refused_ = 0;
};

}  // namespace ringmaster
