// NASNet-A (Zoph, Vasudevan, Shlens and Le, "Learning transferable architectures for scalable image
// recognition", 2018) as Keras' (applications/nasnet.py): a stem with two reduction cells, then
// three rows of normal cells with reduction cells between them. A cell reads what the two before it
// made. In reduction cells the 3x3 pools see zeros round the image, as Keras' do since 2018.
#include <string>
#include <utility>
#include <vector>

#include "common/graph/layers/layer_list.h"
#include "common/zoo/head.h"

namespace ringmaster::zoo {
namespace {

using graph::GraphBuilder;
using graph::ValueId;
namespace layers = graph::layers;

constexpr layers::BatchNorm kNorm = {.momentum = 0.9997};

struct NasnetDesign {
  int64_t filters;  // of the first row's branches; what comes out has 24 times as many
  int64_t stem;     // filters of the first convolution
  int cells;        // of a row
  bool skip;        // the cell behind a reduction reads what that did beside it
};

class Nasnet {
 public:
  Nasnet(const NasnetDesign& design, GraphBuilder& builder) : design_(design), builder_(builder) {}

  ValueId Features(ValueId images) {
    const layers::Conv2d stem = {.filters = design_.stem,
                                 .stride = 2,
                                 .padding = layers::kValid,
                                 .bias = false,
                                 .kernel_init = layers::kHeNormal};
    const ValueId x = builder_.Add("stem/bn", kNorm, builder_.Add("stem/conv", stem, images));
    State state = {x, graph::kNoValue};
    state = Reduction("stem1", state, design_.filters / 4);
    state = Reduction("stem2", state, design_.filters / 2);
    state = Row("row1", state, design_.filters);
    state = Reduce("reduction1", state, design_.filters * 2);
    state = Row("row2", state, design_.filters * 2);
    state = Reduce("reduction2", state, design_.filters * 4);
    state = Row("row3", state, design_.filters * 4);
    return builder_.Add("relu", graph::Relu{}, state.x);
  }

 private:
  // What a cell reads: what the one before it made, and what that one read.
  struct State {
    ValueId x, previous;
  };

  State Row(const std::string& name, State state, int64_t filters) {
    for (int i = 1; i <= design_.cells; ++i) {
      state = Normal(fmt::format("{}/cell{}", name, i), state, filters);
    }
    return state;
  }
  State Reduce(const std::string& name, const State& state, int64_t filters) {
    const State reduced = Reduction(name, state, filters);
    return design_.skip ? State{reduced.x, state.previous} : reduced;
  }

  State Normal(const std::string& name, const State& in, int64_t filters) {
    const ValueId p = Adjust(name + "/adjust", in, filters);
    const ValueId h = Fit(name + "/fit", in.x, filters);
    const ValueId x1 = Sum(name + "/add1", {Separable(name + "/left1", h, filters, 5, 1),
                                            Separable(name + "/right1", p, filters, 3, 1)});
    const ValueId x2 = Sum(name + "/add2", {Separable(name + "/left2", p, filters, 5, 1),
                                            Separable(name + "/right2", p, filters, 3, 1)});
    const ValueId x3 = Sum(name + "/add3", {Average(name + "/left3", h), p});
    const ValueId x4 =
        Sum(name + "/add4", {Average(name + "/left4", p), Average(name + "/right4", p)});
    const ValueId x5 = Sum(name + "/add5", {Separable(name + "/left5", h, filters, 3, 1), h});
    return {Concat(name, {p, x1, x2, x3, x4, x5}), in.x};
  }

  State Reduction(const std::string& name, const State& in, int64_t filters) {
    const ValueId p = Adjust(name + "/adjust", in, filters);
    const ValueId h = Fit(name + "/fit", in.x, filters);
    const ValueId padded = PadForPool(name + "/pad", h);
    const layers::MaxPool maximum = {.window = 3, .stride = 2};
    const layers::AveragePool average = {.window = 3, .stride = 2};
    const ValueId x1 = Sum(name + "/add1", {Separable(name + "/left1", h, filters, 5, 2),
                                            Separable(name + "/right1", p, filters, 7, 2)});
    const ValueId x2 = Sum(name + "/add2", {builder_.Add(name + "/left2", maximum, padded),
                                            Separable(name + "/right2", p, filters, 7, 2)});
    const ValueId x3 = Sum(name + "/add3", {builder_.Add(name + "/left3", average, padded),
                                            Separable(name + "/right3", p, filters, 5, 2)});
    const ValueId x4 = Sum(name + "/add4", {x2, Average(name + "/left4", x1)});
    const ValueId x5 = Sum(name + "/add5", {Separable(name + "/left5", x1, filters, 3, 1),
                                            builder_.Add(name + "/right5", maximum, padded)});
    return {Concat(name, {x2, x3, x4, x5}), in.x};
  }

  // What the cell before the last made, in the size and with the channels that are wanted here.
  ValueId Adjust(const std::string& name, const State& in, int64_t filters) {
    if (in.previous == graph::kNoValue) return in.x;
    if (builder_.shape(in.previous)[1] != builder_.shape(in.x)[1]) {
      return Halve(name, in.previous, filters);
    }
    if (builder_.shape(in.previous)[3] != filters) return Fit(name, in.previous, filters);
    return in.previous;
  }
  // Half the size: of every second pixel, and of every second one a pixel further on.
  ValueId Halve(const std::string& name, ValueId x, int64_t filters) {
    x = builder_.Add(name + "/relu", graph::Relu{}, x);
    const layers::AveragePool second = {.window = 1, .stride = 2};
    const layers::Conv2d half = Pointwise(filters / 2);
    ValueId near = builder_.Add(name + "/near/pool", second, x);
    near = builder_.Add(name + "/near/conv", half, near);
    ValueId far = builder_.Add(name + "/far/pad", layers::ZeroPad{{0, 0, 1, 1}}, x);
    far = builder_.Add(name + "/far/crop", layers::Crop{{1, 1, 0, 0}}, far);
    far = builder_.Add(name + "/far/pool", second, far);
    far = builder_.Add(name + "/far/conv", half, far);
    return builder_.Add(name + "/bn", kNorm, Concat(name + "/concat", {near, far}));
  }
  ValueId Fit(const std::string& name, ValueId x, int64_t filters) {
    x = builder_.Add(name + "/relu", graph::Relu{}, x);
    x = builder_.Add(name + "/conv", Pointwise(filters), x);
    return builder_.Add(name + "/bn", kNorm, x);
  }
  static layers::Conv2d Pointwise(int64_t filters) {
    return {.filters = filters, .kernel = 1, .bias = false, .kernel_init = layers::kHeNormal};
  }

  // relu, separable convolution, normalization; twice, the first time with the stride.
  ValueId Separable(const std::string& name, ValueId x, int64_t filters, int64_t kernel,
                    int64_t stride) {
    for (const std::string& part : {name + "/1", name + "/2"}) {
      const layers::SeparableConv2d convolution = {
          .filters = filters, .kernel = kernel, .stride = stride, .bias = false};
      x = builder_.Add(part + "/relu", graph::Relu{}, x);
      x = builder_.Add(part + "/conv", convolution, x);
      x = builder_.Add(part + "/bn", kNorm, x);
      stride = 1;
    }
    return x;
  }
  ValueId Average(const std::string& name, ValueId x) {
    return builder_.Add(name,
                        layers::AveragePool{.window = 3, .stride = 1, .padding = layers::kSame}, x);
  }
  // Zeros where a 3x3 window of stride 2 would have padding.
  ValueId PadForPool(const std::string& name, ValueId x) {
    return builder_.Add(name,
                        layers::ZeroPad{layers::PadsOf(layers::kSame, builder_.shape(x), 3, 2)}, x);
  }
  // Callers give a list, because its elements are made in their order.
  ValueId Sum(const std::string& name, std::vector<ValueId> both) {
    return builder_.Add(name, graph::Add{}, std::move(both));
  }
  ValueId Concat(const std::string& name, std::vector<ValueId> parts) {
    return builder_.Add(name, graph::Concat{3}, std::move(parts));
  }

  const NasnetDesign& design_;
  GraphBuilder& builder_;
};

ValueId BuildNasnet(const NasnetDesign& design, const HeadOptions& options, const DataShape& data,
                    GraphBuilder& builder, ValueId images) {
  const ValueId features = Nasnet(design, builder).Features(images);
  return AddHead(options, data, builder, features, [&](ValueId x) {
    x = builder.Add("pool", graph::GlobalAveragePool{}, x);
    return builder.Add("fc", layers::Dense{.units = data.classes}, x);
  });
}

ValueId BuildMobile(const HeadOptions& options, const DataShape& data, GraphBuilder& builder,
                    ValueId images) {
  return BuildNasnet({.filters = 44, .stem = 32, .cells = 4, .skip = false}, options, data, builder,
                     images);
}

ValueId BuildLarge(const HeadOptions& options, const DataShape& data, GraphBuilder& builder,
                   ValueId images) {
  return BuildNasnet({.filters = 168, .stem = 96, .cells = 6, .skip = true}, options, data, builder,
                     images);
}

}  // namespace

Family Nasnets() {
  return {
      MakeEntry<HeadOptions>("nasnetlarge", "Keras' NASNetLarge", {.height = 331, .width = 331},
                             BuildLarge),
      MakeEntry<HeadOptions>("nasnetmobile", "Keras' NASNetMobile", {}, BuildMobile),
  };
}

}  // namespace ringmaster::zoo
