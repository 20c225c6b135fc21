// Inception-v3 (Szegedy and others, "Rethinking the Inception architecture for computer vision",
// 2015) as Keras' (applications/inception_v3.py), whose batch normalizations have no gamma. Images
// of 75x75 and more.
#include <string>
#include <vector>

#include "common/graph/layers/layer_list.h"
#include "common/zoo/head.h"

namespace ringmaster::zoo {
namespace {

using graph::GraphBuilder;
using graph::ValueId;
namespace layers = graph::layers;

// Units NAME/1, NAME/2 ... in a row.
struct InceptionUnit {
  int64_t filters;
  layers::Pair kernel = 1;
  int64_t stride = 1;
  layers::Padding padding = layers::kSame;
};

class Inception {
 public:
  explicit Inception(GraphBuilder& builder) : builder_(builder) {}

  ValueId Features(ValueId images) {
    ValueId x =
        Row("stem/a", images, {{32, 3, 2, layers::kValid}, {32, 3, 1, layers::kValid}, {64, 3}});
    x = MaxPool("stem/pool1", x);
    x = Row("stem/b", x, {{80, 1, 1, layers::kValid}, {192, 3, 1, layers::kValid}});
    x = MaxPool("stem/pool2", x);
    x = Mixed35("mixed2", Mixed35("mixed1", Mixed35("mixed0", x, 32), 64), 64);
    x = Mixed17("mixed4", Mixed3(x), 128);
    x = Mixed17("mixed6", Mixed17("mixed5", x, 160), 160);
    x = Mixed17("mixed7", x, 192);
    x = Mixed8(x);
    return Mixed8x8("mixed10", Mixed8x8("mixed9", x));
  }

 private:
  ValueId Row(const std::string& name, ValueId x, const std::vector<InceptionUnit>& units) {
    int number = 0;
    for (const InceptionUnit& unit : units) {
      const std::string part = fmt::format("{}/{}", name, ++number);
      const layers::Conv2d convolution = {.filters = unit.filters,
                                          .kernel = unit.kernel,
                                          .stride = unit.stride,
                                          .padding = unit.padding,
                                          .bias = false};
      x = builder_.Add(part + "/conv", convolution, x);
      x = builder_.Add(part + "/bn", layers::BatchNorm{.scale = false}, x);
      x = builder_.Add(part + "/relu", graph::Relu{}, x);
    }
    return x;
  }
  ValueId MaxPool(const std::string& name, ValueId x) {
    return builder_.Add(name, layers::MaxPool{.window = 3, .stride = 2}, x);
  }
  // An average pool and a 1x1 unit.
  ValueId Pooled(const std::string& name, ValueId x, int64_t filters) {
    x = builder_.Add(name + "/average",
                     layers::AveragePool{.window = 3, .stride = 1, .padding = layers::kSame}, x);
    return Row(name, x, {{filters}});
  }
  ValueId Concat(const std::string& name, std::vector<ValueId> branches) {
    return builder_.Add(name, graph::Concat{3}, std::move(branches));
  }

  // Of images of 35x35.
  ValueId Mixed35(const std::string& name, ValueId x, int64_t pooled) {
    const ValueId one = Row(name + "/one", x, {{64}});
    const ValueId five = Row(name + "/five", x, {{48}, {64, 5}});
    const ValueId three = Row(name + "/three", x, {{64}, {96, 3}, {96, 3}});
    return Concat(name, {one, five, three, Pooled(name + "/pool", x, pooled)});
  }
  // To 17x17.
  ValueId Mixed3(ValueId x) {
    const ValueId three = Row("mixed3/three", x, {{384, 3, 2, layers::kValid}});
    const ValueId twice = Row("mixed3/twice", x, {{64}, {96, 3}, {96, 3, 2, layers::kValid}});
    return Concat("mixed3", {three, twice, MaxPool("mixed3/pool", x)});
  }
  // Of 17x17: convolutions of 1x7 and 7x1.
  ValueId Mixed17(const std::string& name, ValueId x, int64_t filters) {
    const int64_t f = filters;
    const ValueId one = Row(name + "/one", x, {{192}});
    const ValueId seven = Row(name + "/seven", x, {{f}, {f, {1, 7}}, {192, {7, 1}}});
    const ValueId twice =
        Row(name + "/twice", x, {{f}, {f, {7, 1}}, {f, {1, 7}}, {f, {7, 1}}, {192, {1, 7}}});
    return Concat(name, {one, seven, twice, Pooled(name + "/pool", x, 192)});
  }
  // To 8x8.
  ValueId Mixed8(ValueId x) {
    const ValueId three = Row("mixed8/three", x, {{192}, {320, 3, 2, layers::kValid}});
    const ValueId seven =
        Row("mixed8/seven", x, {{192}, {192, {1, 7}}, {192, {7, 1}}, {192, 3, 2, layers::kValid}});
    return Concat("mixed8", {three, seven, MaxPool("mixed8/pool", x)});
  }
  // Of 8x8: 1x3 and 3x1 side by side.
  ValueId Mixed8x8(const std::string& name, ValueId x) {
    const ValueId one = Row(name + "/one", x, {{320}});
    const ValueId three = Both(name + "/three", Row(name + "/three", x, {{384}}));
    const ValueId twice = Both(name + "/twice", Row(name + "/twice", x, {{448}, {384, 3}}));
    return Concat(name, {one, three, twice, Pooled(name + "/pool", x, 192)});
  }
  ValueId Both(const std::string& name, ValueId x) {
    const ValueId wide = Row(name + "/wide", x, {{384, {1, 3}}});
    const ValueId high = Row(name + "/high", x, {{384, {3, 1}}});
    return Concat(name, {wide, high});
  }

  GraphBuilder& builder_;
};

ValueId BuildInception(const HeadOptions& options, const DataShape& data, GraphBuilder& builder,
                       ValueId images) {
  const ValueId features = Inception(builder).Features(images);
  return AddHead(options, data, builder, features, [&](ValueId x) {
    x = builder.Add("pool", graph::GlobalAveragePool{}, x);
    return builder.Add("fc", layers::Dense{.units = data.classes}, x);
  });
}

}  // namespace

Family Inceptions() {
  return {MakeEntry<HeadOptions>("inceptionv3", "Inception-v3", {.height = 299, .width = 299},
                                 BuildInception)};
}

}  // namespace ringmaster::zoo
