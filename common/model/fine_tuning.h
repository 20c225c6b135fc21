// Fine-tuning: which parameters of a model are frozen, and what its tensors begin with where they
// are not drawn. Pure; thread-safe (free functions).
#pragma once

#include <string>

#include "common/status.h"
#include "ringmaster/v1/job.pb.h"

namespace ringmaster::model {

// Parameters that a pattern matches lose `trainable`; a batch_norm of which all do, or one without
// any of which the statistics match, reads its moving statistics from there on. INVALID_ARGUMENT
// where a pattern matches nothing, or nothing is left to train.
[[nodiscard]] Status Freeze(const google::protobuf::RepeatedPtrField<std::string>& patterns,
                            v1::Graph* graph);

// Every parameter, and every batch_norm: of a job that takes no step by its gradients.
void FreezeAll(v1::Graph* graph);

// What a job file says of `init` by itself.
[[nodiscard]] Status CheckInit(const v1::Init& init);

struct ResolvedInit {
  v1::InitFacts facts;
  v1::InitReport report;  // without `source`
};
// Each parameter and statistic of the graph, but for fresh ones, from the source. INVALID_ARGUMENT
// names what the source lacks, or has in another shape or type.
[[nodiscard]] StatusOr<ResolvedInit> ResolveInit(const v1::Init& init,
                                                 const v1::InitSourceFacts& source,
                                                 const v1::Graph& graph);

}  // namespace ringmaster::model
