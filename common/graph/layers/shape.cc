#include "common/graph/layers/shape.h"

#include <utility>

namespace ringmaster::graph::layers {

ValueId Concat::Build(GraphBuilder& builder, const std::string& name,
                      std::vector<ValueId> inputs) const {
  if (!builder.Expect(name, inputs.at(0))) return kNoValue;
  if (inputs.size() == 1) return inputs[0];
  const auto rank = static_cast<int64_t>(builder.shape(inputs[0]).size());
  return builder.Add(name, graph::Concat{axis < 0 ? axis + rank : axis}, std::move(inputs));
}

ValueId Flatten::Build(GraphBuilder& builder, const std::string& name, ValueId x) const {
  if (!builder.Expect(name, x)) return kNoValue;
  const Shape& shape = builder.shape(x);
  if (shape.size() == 2) return x;
  return builder.Add(name, Reshape{{Elements(shape) / shape[0]}}, x);
}

ValueId Crop::Build(GraphBuilder& builder, const std::string& name, ValueId x) const {
  if (crop == std::array<int64_t, 4>{} || !builder.Expect(name, x, 4)) return x;
  const Shape& shape = builder.shape(x);
  Slice op;
  op.begin = {crop[0], crop[1], 0};
  op.end = {shape[1] - crop[2], shape[2] - crop[3], shape[3]};
  return builder.Add(name, std::move(op), x);
}

ValueId ZeroPad::Build(GraphBuilder& builder, const std::string& name, ValueId x) const {
  if (padding == std::array<int64_t, 4>{} || !builder.Expect(name, x, 4)) return x;
  return builder.Add(name, Pad{{padding[0], padding[1], 0, padding[2], padding[3], 0}}, x);
}

std::vector<ValueId> Split::Build(GraphBuilder& builder, const std::string& name, ValueId x) const {
  if (!builder.Expect(name, x)) return {};
  const Shape& shape = builder.shape(x);
  const auto rank = static_cast<int64_t>(shape.size());
  graph::Split op = {axis < 0 ? axis + rank : axis, sizes};
  if (op.axis < 1 || op.axis >= rank || sizes.empty() == (parts == 0)) {
    builder.Fail(
        InvalidArgument("{}: expected parts or sizes, on an axis behind the samples' of {}", name,
                        ToString(shape)));
    return {};
  }
  const int64_t extent = shape[static_cast<size_t>(op.axis)];
  constexpr int64_t kMostParts = 1024;
  if (parts > kMostParts) {
    builder.Fail(InvalidArgument("{}: {} parts; at most {} are allowed", name, parts, kMostParts));
    return {};
  }
  if (sizes.empty() && (parts < 1 || extent % parts != 0)) {
    builder.Fail(InvalidArgument("{}: {} parts do not divide axis {} of {}", name, parts, op.axis,
                                 ToString(shape)));
    return {};
  }
  if (sizes.empty()) op.sizes.assign(static_cast<size_t>(parts), extent / parts);
  return builder.AddAll(name, std::move(op), {x});
}

}  // namespace ringmaster::graph::layers
