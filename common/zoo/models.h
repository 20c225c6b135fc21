// The models of the zoo: each builds its layers from the images to the logits. Thread-safe (free
// functions). They get a resolved Model and check nothing.
#pragma once

#include "common/graph/builder.h"
#include "ringmaster/v1/job.pb.h"

namespace ringmaster::zoo {

// Five 3x3 convolutions with two max pools between them, global average pooling and one dense
// layer, for images of about 32x32: 3,324,298 parameters with 3 channels, 10 classes and no
// batch_norm.
graph::ValueId BuildAlexnet(graph::GraphBuilder& builder, const v1::Model& model,
                            graph::ValueId images, int64_t classes);

// Hidden dense layers with relu and dropout, then one without: a linear model when `hidden` is
// empty.
graph::ValueId BuildMlp(graph::GraphBuilder& builder, const v1::Model& model, graph::ValueId images,
                        int64_t classes);

}  // namespace ringmaster::zoo
