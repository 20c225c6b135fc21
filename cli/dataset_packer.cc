#include "cli/dataset_packer.h"

#include <pthread.h>

#include <algorithm>
#include <utility>

namespace ringmaster::cli {

Status DatasetPacker::Run(uint32_t threads) {
  const size_t wanted = std::min<size_t>(threads, packing_->parts());
  for (size_t i = 0; i < wanted; ++i) threads_.emplace_back([this] { Work(); });
  threads_.clear();  // joins them
  MutexLock lock(mu_);
  RING_RETURN_IF_ERROR(status_);
  return packing_->Finish();
}

// Parts are begun in order, so that those before the first with an error are written.
void DatasetPacker::Work() {
  pthread_setname_np(pthread_self(), "pack");
  for (size_t part = next_++; part < packing_->parts(); part = next_++) {
    Status status = packing_->WritePart(part);
    if (status.ok()) continue;
    next_ = packing_->parts();
    MutexLock lock(mu_);
    if (part >= failed_) return;
    failed_ = part;
    status_ = std::move(status);
    return;
  }
}

}  // namespace ringmaster::cli
