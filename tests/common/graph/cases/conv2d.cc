#include "tests/common/graph/cases/table.h"

namespace ringmaster::graph {
namespace {

Conv2dAttributes Window(int64_t stride, int64_t low, int64_t high,
                        Activation activation = Activation::kNone) {
  return {{stride, stride}, {low, low, high, high}, activation};
}

Conv2dAttributes Grouped(Conv2dAttributes attributes, int64_t groups, int64_t dilation = 1) {
  attributes.groups = groups;
  attributes.dilations = {dilation, dilation};
  return attributes;
}

// A convolution with both its gradients.
void AddAll(const char* what, const Conv2dAttributes& attributes, const Shape& x, const Shape& w,
            const Shape& y, std::vector<OpCase>* cases) {
  const TensorType bias = {{y.back()}};
  cases->push_back({what, Conv2d{attributes}, {{x}, {w}, bias}});
  cases->push_back({what, Conv2dInputGradient{attributes}, {{y}, {w}}, {{x}}});
  cases->push_back({what, Conv2dWeightGradient{attributes}, {{x}, {y}}, {{w}, bias}});
}

void AddGrouped(std::vector<OpCase>* cases) {
  const Conv2dAttributes same = Window(1, 1, 1);
  AddAll("groups", Grouped(same, 2), {2, 4, 5, 4}, {6, 3, 3, 2}, {2, 4, 5, 6}, cases);
  AddAll("depthwise", Grouped(same, 5), {2, 4, 3, 5}, {5, 3, 3, 1}, {2, 4, 3, 5}, cases);
  AddAll("depthwise, two filters a channel", Grouped(same, 3), {2, 5, 4, 3}, {6, 3, 3, 1},
         {2, 5, 4, 6}, cases);
  AddAll("depthwise, stride 2, a pad below", Grouped(Window(2, 0, 1), 32), {2, 8, 9, 32},
         {32, 3, 3, 1}, {2, 4, 4, 32}, cases);
  AddAll("depthwise 5x5, many channels", Grouped(Window(1, 2, 2), 67), {1, 9, 7, 67}, {67, 5, 5, 1},
         {1, 9, 7, 67}, cases);
  AddAll("depthwise, rows of 12, 2 samples", Grouped({{2, 1}, {3, 7, 2, 4}}, 33), {2, 9, 8, 33},
         {33, 5, 12, 1}, {2, 5, 8, 33}, cases);
  AddAll("depthwise, whole vectors", Grouped(same, 72), {2, 6, 7, 72}, {72, 3, 3, 1}, {2, 6, 7, 72},
         cases);
  AddAll("depthwise 5x5, stride 2, whole vectors", Grouped(Window(2, 1, 2), 24), {2, 8, 11, 24},
         {24, 5, 5, 1}, {2, 4, 5, 24}, cases);
  AddAll("depthwise 5x5, whole vectors", Grouped({{1, 1}, {2, 3, 1, 0}}, 8), {3, 7, 10, 8},
         {8, 5, 5, 1}, {3, 6, 9, 8}, cases);
  AddAll("depthwise 7x7, whole vectors", Grouped(Window(1, 3, 3), 16), {2, 9, 5, 16}, {16, 7, 7, 1},
         {2, 9, 5, 16}, cases);
  AddAll("depthwise, stride 3, whole vectors", Grouped(Window(3, 1, 1), 8), {2, 7, 9, 8},
         {8, 3, 3, 1}, {2, 3, 3, 8}, cases);
  AddAll("32 groups", Grouped(same, 32), {1, 6, 5, 128}, {128, 3, 3, 4}, {1, 6, 5, 128}, cases);
  AddAll("dilation", Grouped(Window(1, 2, 2), 1, 2), {2, 5, 6, 2}, {3, 3, 3, 2}, {2, 5, 6, 3},
         cases);
  Conv2dAttributes uneven = {{1, 1}, {2, 0, 2, 1}};
  uneven.dilations = {2, 1};
  AddAll("dilation of rows alone", uneven, {2, 6, 5, 2}, {3, 3, 2, 2}, {2, 6, 5, 3}, cases);
  AddAll("groups, dilation, stride", Grouped(Window(2, 1, 2), 2, 2), {2, 8, 7, 4}, {4, 3, 3, 2},
         {2, 4, 3, 4}, cases);
  AddAll("depthwise, dilation, whole vectors", Grouped(Window(1, 2, 2), 16, 2), {2, 7, 6, 16},
         {16, 3, 3, 1}, {2, 7, 6, 16}, cases);
}

}  // namespace

std::vector<OpCase> Conv2dCases() {
  const auto relu = Activation::kRelu;
  const Conv2dAttributes plain = Window(1, 0, 0);
  const Conv2dAttributes same = Window(1, 1, 1);
  const Conv2dAttributes halved = Window(2, 0, 1);
  std::vector<OpCase> cases = {
      {"same 3x3", Conv2d{same}, {{{2, 4, 5, 3}}, {{4, 3, 3, 3}}, {{4}}}},
      {"no bias", Conv2d{plain}, {{{1, 5, 5, 2}}, {{3, 3, 3, 2}}}},
      {"strides, odd pads",
       Conv2d{{{2, 3}, {0, 1, 1, 0}}},
       {{{2, 7, 6, 2}}, {{3, 3, 2, 2}}, {{3}}}},
      {"rows under no window", Conv2d{{{4, 3}}}, {{{1, 6, 7, 1}}, {{2, 2, 2, 1}}}},
      {"1x1, stride 2", Conv2d{Window(2, 0, 0)}, {{{2, 5, 3, 3}}, {{2, 1, 1, 3}}, {{2}}}},
      {"relu", Conv2d{Window(1, 1, 1, relu)}, {{{2, 3, 4, 2}}, {{3, 3, 3, 2}}, {{3}}}},
      {"three channels, as of a first layer", Conv2d{same}, {{{2, 9, 7, 3}}, {{19, 3, 3, 3}}}},
      {"relu, whole vectors",
       Conv2d{Window(1, 1, 1, relu)},
       {{{2, 6, 5, 16}}, {{32, 3, 3, 16}}, {{32}}}},
      {"stride 2, a pad below", Conv2d{halved}, {{{3, 8, 9, 5}}, {{6, 3, 3, 5}}, {{6}}}},
      {"7x7, stride 2", Conv2d{Window(2, 3, 3)}, {{{1, 15, 13, 3}}, {{8, 7, 7, 3}}}},
      {"1x1", Conv2d{plain}, {{{2, 4, 5, 24}}, {{20, 1, 1, 24}}}},

      {"to three channels",
       Conv2dInputGradient{same},
       {{{2, 9, 7, 19}}, {{19, 3, 3, 3}}},
       {{{2, 9, 7, 3}}}},
      {"whole vectors",
       Conv2dInputGradient{same},
       {{{2, 6, 5, 32}}, {{32, 3, 3, 16}}},
       {{{2, 6, 5, 16}}}},
      {"stride 2, a pad below",
       Conv2dInputGradient{halved},
       {{{3, 4, 4, 6}}, {{6, 3, 3, 5}}},
       {{{3, 8, 9, 5}}}},
      {"1x1", Conv2dInputGradient{plain}, {{{2, 4, 5, 20}}, {{20, 1, 1, 24}}}, {{{2, 4, 5, 24}}}},

      {"of three channels",
       Conv2dWeightGradient{same},
       {{{2, 9, 7, 3}}, {{2, 9, 7, 19}}},
       {{{19, 3, 3, 3}}}},
      {"bias, whole vectors",
       Conv2dWeightGradient{same},
       {{{2, 6, 5, 16}}, {{2, 6, 5, 32}}},
       {{{32, 3, 3, 16}}, {{32}}}},
      {"bias, stride 2, a pad below",
       Conv2dWeightGradient{halved},
       {{{3, 8, 9, 5}}, {{3, 4, 4, 6}}},
       {{{6, 3, 3, 5}}, {{6}}}},
      {"many whole vectors",  // a backend may hand it over in pieces
       Conv2dWeightGradient{same},
       {{{1, 3, 3, 128}}, {{1, 3, 3, 96}}},
       {{{96, 3, 3, 128}}}},
      {"depthwise 5x5, stride 2, no bias",
       Conv2dWeightGradient{Grouped(Window(2, 2, 2), 48)},
       {{{3, 7, 8, 48}}, {{3, 4, 4, 48}}},
       {{{48, 5, 5, 1}}}},
      {"7x7, stride 2, of an image",
       Conv2dWeightGradient{Window(2, 3, 3)},
       {{{2, 15, 13, 3}}, {{2, 8, 7, 8}}},
       {{{8, 7, 7, 3}}, {{8}}}},
      {"1x1", Conv2dWeightGradient{plain}, {{{2, 4, 5, 24}}, {{2, 4, 5, 20}}}, {{{20, 1, 1, 24}}}},
  };
  AddAll("1x1, more channels than positions", plain, {2, 1, 3, 40}, {24, 1, 1, 40}, {2, 1, 3, 24},
         &cases);
  AddAll("1x1, many filters", plain, {1, 1, 2, 8}, {300, 1, 1, 8}, {1, 1, 2, 300}, &cases);
  cases.push_back({"depthwise, relu",
                   Conv2d{Grouped(Window(1, 1, 1, relu), 16)},
                   {{{1, 5, 6, 16}}, {{16, 3, 3, 1}}, {{16}}}});
  cases.push_back({"1x1, relu, more filters than positions",
                   Conv2d{Window(1, 0, 0, relu)},
                   {{{1, 2, 2, 16}}, {{16, 1, 1, 16}}, {{16}}}});
  AddGrouped(&cases);
  return cases;
}

}  // namespace ringmaster::graph
