// Where the step thread shows what it is at, for heartbeats that training must never delay.
// Written by the step thread and the cores, read by any thread, without a lock.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string_view>

#include "worker/train/progress.h"

namespace ringmaster::worker {

class PulseBoard {
 public:
  void set_phase(const char* phase) { phase_.store(phase, std::memory_order_relaxed); }
  void set_applied(uint64_t applied) { applied_.store(applied, std::memory_order_relaxed); }
  void Tick() { progress_.fetch_add(1, std::memory_order_relaxed); }
  // A core begins, or ends, to wait for samples.
  void BeginInput() { inputs_.fetch_add(1, std::memory_order_relaxed); }
  void EndInput() { inputs_.fetch_sub(1, std::memory_order_relaxed); }

  // The device of a core went down, or is up again, or given up.
  void BeginOutage() { outages_.fetch_add(1, std::memory_order_relaxed); }
  void EndOutage() { outages_.fetch_sub(1, std::memory_order_relaxed); }

  [[nodiscard]] const char* phase() const { return phase_.load(std::memory_order_relaxed); }
  [[nodiscard]] Pulse Read() const {
    const char* shown = phase();
    const bool waits = inputs_.load(std::memory_order_relaxed) > 0;
    if (waits && std::string_view(shown) == "compute") shown = "input";
    if (outages_.load(std::memory_order_relaxed) > 0) shown = kRestartPhase;
    return {shown, progress_.load(std::memory_order_relaxed),
            applied_.load(std::memory_order_relaxed)};
  }

 private:
  std::atomic<const char*> phase_{"idle"};  // always a string literal
  std::atomic<uint64_t> progress_{0};
  std::atomic<uint64_t> applied_{0};
  std::atomic<uint32_t> inputs_{0};   // cores that wait for samples
  std::atomic<uint32_t> outages_{0};  // and for their device
};

// Adds a scope's time to `seconds`.
class TimeScope {
 public:
  explicit TimeScope(double* seconds) : seconds_(seconds) {}
  ~TimeScope() {
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin_;
    *seconds_ += elapsed.count();
  }
  TimeScope(const TimeScope&) = delete;
  TimeScope& operator=(const TimeScope&) = delete;

 private:
  double* const seconds_;
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

// Shows `phase` for a scope and adds its time to `seconds`. Step thread.
class PhaseScope {
 public:
  PhaseScope(PulseBoard* board, const char* phase, double* seconds)
      : board_(board), former_(board->phase()), time_(seconds) {
    board_->set_phase(phase);
  }
  ~PhaseScope() {
    board_->set_phase(former_);
    board_->Tick();
  }
  PhaseScope(const PhaseScope&) = delete;
  PhaseScope& operator=(const PhaseScope&) = delete;

 private:
  PulseBoard* const board_;
  const char* const former_;
  const TimeScope time_;
};

// A core waits for samples. On the core's thread.
class InputScope {
 public:
  InputScope(PulseBoard* board, double* seconds) : board_(board), time_(seconds) {
    board_->BeginInput();
  }
  ~InputScope() { board_->EndInput(); }
  InputScope(const InputScope&) = delete;
  InputScope& operator=(const InputScope&) = delete;

 private:
  PulseBoard* const board_;
  const TimeScope time_;
};

// The device of a core is brought up again. On the core's thread.
class OutageScope {
 public:
  OutageScope(PulseBoard* board, double* seconds) : board_(board), time_(seconds) {
    board_->BeginOutage();
  }
  ~OutageScope() {
    board_->EndOutage();
    board_->Tick();
  }
  OutageScope(const OutageScope&) = delete;
  OutageScope& operator=(const OutageScope&) = delete;

 private:
  PulseBoard* const board_;
  const TimeScope time_;
};

}  // namespace ringmaster::worker
