// The tensors that a job begins with instead of drawn ones: a safetensors file in memory, of
// another job's checkpoint or of this host's, until S(0) is made. Immutable, thread-safe.
#pragma once

#include <memory>
#include <string>

#include "common/safetensors.h"
#include "common/status.h"
#include "ringmaster/v1/job.pb.h"
#include "worker/state/state.h"

namespace ringmaster::worker {

class InitWeights {
 public:
  // INVALID_ARGUMENT: these are no bytes of such a file, and why.
  [[nodiscard]] static StatusOr<std::shared_ptr<const InitWeights>> Read(std::string file);
  InitWeights(const InitWeights&) = delete;
  InitWeights& operator=(const InitWeights&) = delete;

  [[nodiscard]] const v1::InitSourceFacts& facts() const { return facts_; }

  // S(0), as Initialize made it, with what the spec takes from here. FAILED_PRECONDITION: the file
  // is not the job's.
  [[nodiscard]] Status Apply(const v1::InitFacts& init, State* state) const;

 private:
  explicit InitWeights(std::string file) : file_(std::move(file)) {}
  [[nodiscard]] Status Take(const v1::InitTensor& tensor, const graph::Shape& shape,
                            std::span<float> values) const;

  const std::string file_;
  TensorViews tensors_;  // into file_
  v1::InitSourceFacts facts_;
};

}  // namespace ringmaster::worker
