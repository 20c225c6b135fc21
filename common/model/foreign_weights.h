// The tensors of a model as files of other programs have them: names, shapes and axes by layout.
// The one list that init reads such files by and that weights are written by, so that each undoes
// the other. Pure; thread-safe (free functions).
#pragma once

#include <string>
#include <vector>

#include "common/graph/message/tensor_layout.h"
#include "common/status.h"
#include "ringmaster/v1/job.pb.h"

namespace ringmaster::model {

struct ForeignTensor {
  std::string name;    // a parameter or statistic of the graph
  std::string theirs;  // what it is called there
  std::vector<int64_t> shape;
  // That init takes, too, with the same elements in the same order: the kernel of a convolution of
  // each channel by itself as Keras' Conv2D has it. Else as `shape`.
  std::vector<int64_t> other_shape;
  std::vector<int64_t> image;  // H, W and C of what was flattened in front of it, else empty
  graph::AxisOrder order;
  // Why its elements have no order there that is known: a flattened image is only a part of what
  // stands in front of it. Else empty.
  std::string unordered = {};
};

// Each parameter, then each statistic of the graph. INVALID_ARGUMENT: two have one name there.
[[nodiscard]] StatusOr<std::vector<ForeignTensor>> ForeignTensors(const v1::Graph& graph,
                                                                  v1::TensorLayout layout);

// Whether InLayout writes such a model: INVALID_ARGUMENT also names a tensor without a known order.
[[nodiscard]] Status CheckLayout(v1::TensorLayout layout, const v1::Graph& graph);

// A safetensors file of ours, model.safetensors or ema.safetensors of a checkpoint, as that layout
// has it: bits as they are, all names changed. DATA_LOSS: it is not the file of a job with that
// graph.
[[nodiscard]] StatusOr<std::string> InLayout(v1::TensorLayout layout, const v1::Graph& graph,
                                             const std::string& file);

}  // namespace ringmaster::model
