// What the models of the zoo count, against what their authors' do: totals of Keras 3
// (keras/src/applications), of torchvision, and of the paper for ResNet-20.
#include <catch2/catch.hpp>

#include <string>

#include <fmt/format.h>

#include "common/zoo/summary.h"
#include "tests/support/model_option.h"
#include "tests/support/zoo_program.h"

namespace ringmaster::zoo {
namespace {

struct Counts {
  int64_t total, trainable;
  bool operator==(const Counts&) const = default;
};

v1::Model WithHead(const std::string& name, const std::string& head) {
  v1::Model model = Model(name);
  testing::SetOption("head", head, &model);
  return model;
}

// For the data that the model usually gets.
Counts CountsOf(const std::string& name, const std::string& head = "own") {
  const auto entry = FindModel(name);
  REQUIRE(entry.ok());
  const v1::Model model = head == "own" ? Model(name) : WithHead(name, head);
  const auto summary = SummaryOf(model, (*entry)->usual);
  REQUIRE(Message(summary.status()) == "");
  return {summary->total_parameters(), summary->trainable_parameters};
}

std::string Text(const Counts& counts) {
  return fmt::format("{} {}", counts.total, counts.trainable);
}

}  // namespace

TEST_CASE("Zoo: parameters are Keras', with top and without") {
  struct Row {
    const char* name;
    Counts top, no_top;
  };
  static constexpr Row kRows[] = {
      {"vgg16", {138'357'544, 138'357'544}, {14'714'688, 14'714'688}},
      {"vgg19", {143'667'240, 143'667'240}, {20'024'384, 20'024'384}},
      {"resnet50", {25'636'712, 25'583'592}, {23'587'712, 23'534'592}},
      {"mobilenet", {4'253'864, 4'231'976}, {3'228'864, 3'206'976}},
      {"mobilenetv2", {3'538'984, 3'504'872}, {2'257'984, 2'223'872}},
      {"efficientnetb0", {5'330'571, 5'288'548}, {4'049'571, 4'007'548}},
      {"efficientnetb1", {7'856'239, 7'794'184}, {6'575'239, 6'513'184}},
      {"efficientnetb2", {9'177'569, 9'109'994}, {7'768'569, 7'700'994}},
      {"efficientnetb3", {12'320'535, 12'233'232}, {10'783'535, 10'696'232}},
      {"efficientnetb4", {19'466'823, 19'341'616}, {17'673'823, 17'548'616}},
      {"efficientnetb5", {30'562'527, 30'389'784}, {28'513'527, 28'340'784}},
      {"nasnetmobile", {5'326'716, 5'289'978}, {4'269'716, 4'232'978}},
      {"nasnetlarge", {88'949'818, 88'753'150}, {84'916'818, 84'720'150}},
      {"inceptionv3", {23'851'784, 23'817'352}, {21'802'784, 21'768'352}},
  };
  for (const Row& row : kRows) {
    INFO(row.name);
    CHECK(Text(CountsOf(row.name)) == Text(row.top));
    CHECK(Text(CountsOf(row.name, "none")) == Text(row.no_top));
  }
}

TEST_CASE("Zoo: parameters of the other residual networks") {
  CHECK(Text(CountsOf("resnet18")) == Text({11'689'512 + 9'600, 11'689'512}));
  CHECK(Text(CountsOf("resnet50v1.5")) == Text({25'557'032 + 53'120, 25'557'032}));
  CHECK(Text(CountsOf("resnet50gn")) == Text({25'557'032, 25'557'032}));
  CHECK(Text(CountsOf("resnet20")) == Text({269'722 + 1'376, 269'722}));
}

TEST_CASE("Zoo: a linear model") {
  const auto summary = SummaryOf(Model("linear"), kCifar);
  REQUIRE(summary.ok());
  CHECK(summary->total_parameters() == 3072 * 10 + 10);
}

TEST_CASE("Zoo: whatever its own top, a model may end in a pool and a dense layer") {
  CHECK(CountsOf("vgg16", "gap").total == 14'714'688 + 512 * 1000 + 1000);
  CHECK(CountsOf("resnet50", "gap") == CountsOf("resnet50"));
}

TEST_CASE("Zoo: NASNetLarge's features of images of 32x32 are one pixel of 4,032 channels") {
  const auto summary = SummaryOf(WithHead("nasnetlarge", "none"), kCifar);
  REQUIRE(Message(summary.status()) == "");
  CHECK(summary->layers.back().output_shape == graph::Shape{1, 1, 4032});
  CHECK(summary->total_parameters() == 84'916'818);
}

TEST_CASE("Zoo: without a top there are layers, but no graph to train") {
  CHECK(
      Message(BuildGraph(WithHead("resnet18", "none")).status()) ==
      "model resnet18: it ends in features and has no loss to train by: write layers behind it, or "
      "head: gap");
  CHECK(Message(BuildGraph(WithHead("resnet18", "nothing")).status()) ==
        "model resnet18: head: expected own, gap, none, got \"nothing\"");
}

}  // namespace ringmaster::zoo
