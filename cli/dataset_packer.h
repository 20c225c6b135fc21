// Packs a dataset on several threads: `ringctl dataset pack`. Used by one thread, which waits.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "common/data/pack.h"
#include "common/mutex.h"
#include "common/status.h"

namespace ringmaster::cli {

class DatasetPacker {
 public:
  // `packing` outlives it.
  explicit DatasetPacker(data::Packing* packing) : packing_(packing) {}

  // Writes every part and finishes, on so many threads; after an error no other part is begun. The
  // error is that of the first part that has one, in their order.
  [[nodiscard]] Status Run(uint32_t threads);

 private:
  void Work();

  data::Packing* const packing_;
  std::atomic<size_t> next_{0};
  Mutex mu_;
  size_t failed_ ABSL_GUARDED_BY(mu_) = SIZE_MAX;  // the first part with an error
  Status status_ ABSL_GUARDED_BY(mu_);             // its
  std::vector<std::jthread> threads_;
};

}  // namespace ringmaster::cli
