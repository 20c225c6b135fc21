// Learning rate schedules (v1::Schedule has the formulas): what the rate is multiplied by, in
// float64, from our own elementary functions. Pure; thread-safe (free functions).
//
// A new one is a message with its case in v1::Schedule, a Factor here, and a case in FactorOf; its
// lengths, where it has some, are resolved in common/job/update_rules.cc.
#pragma once

#include <cstdint>

#include "ringmaster/v1/job.pb.h"

namespace ringmaster::graph {

// Where training is.
struct Moment {
  uint64_t update = 1;  // u: 1 for the first applied one
  uint64_t warmup = 0;  // W, in updates
  uint64_t total = 0;   // T

  // (u - W) / (T - W): at most 1.
  [[nodiscard]] double part() const {
    return static_cast<double>(update - warmup) / static_cast<double>(total - warmup);
  }
};

[[nodiscard]] double Factor(const v1::Cosine& cosine, const Moment& moment);
[[nodiscard]] double Factor(const v1::Polynomial& polynomial, const Moment& moment);
[[nodiscard]] double Factor(const v1::Steps& steps, const Moment& moment);
[[nodiscard]] double Factor(const v1::Exponential& exponential, const Moment& moment);

// Of update `update` (from 1) of `total`. `schedule` is resolved: every length is in updates.
[[nodiscard]] double FactorOf(const v1::Schedule& schedule, uint64_t update, uint64_t total);

}  // namespace ringmaster::graph
