// The one source of chance in a simulation: a seeded std::mt19937_64 with draws of our own, as the
// standard's distributions differ between libraries. Thread-compatible.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

namespace ringmaster::sim {

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}

  // [0, bound), bound >= 1. The bias of the modulus is of no interest here.
  uint64_t Below(uint64_t bound) { return engine_() % bound; }
  // [low, high].
  int64_t Between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(Below(static_cast<uint64_t>(high - low) + 1));
  }
  bool OneIn(uint64_t n) { return Below(n) == 0; }
  bool Percent(uint64_t p) { return Below(100) < p; }
  template <typename T>
  const T& Pick(const std::vector<T>& from) {
    return from[Below(from.size())];
  }

 private:
  std::mt19937_64 engine_;
};

}  // namespace ringmaster::sim
