// The models of the zoo: each builds its layers from the images to the logits. Thread-safe (free
// functions). They get a resolved Model and check nothing but the size of images.
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

// The 3x3 convolutions and five 2x2 max pools of configurations A, B, D and E (Simonyan and
// Zisserman, "Very deep convolutional networks for large-scale image recognition", 2014, table 1),
// each convolution with batch normalization if the model has it and relu; then, as is usual for
// images of 32x32, one hidden dense layer of 512 between two dropouts in place of two of 4,096.
graph::ValueId BuildVgg(graph::GraphBuilder& builder, const v1::Model& model, graph::ValueId images,
                        int64_t classes);
// INVALID_ARGUMENT for images that the five pools do not fit into.
[[nodiscard]] Status CheckVggImages(int64_t height, int64_t width);

}  // namespace ringmaster::zoo
