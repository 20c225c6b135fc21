// What a model file says, written out: blocks, repetitions, conditions, names, limits.
#include "common/model/expand.h"

#include <catch2/catch.hpp>

#include <string>

#include <fmt/format.h>

#include "tests/common/model/model_files.h"

namespace ringmaster::model {
namespace {

std::string Expanded(const std::string& text) { return NamesOf(Read(text)); }

const v1::Attribute& OptionOf(const v1::Model& model, int layer, const std::string& name) {
  for (const v1::Attribute& option : model.layers(layer).attributes()) {
    if (option.name() == name) return option;
  }
  FAIL("no option " << name);
  return model.layers(layer).attributes(0);
}

}  // namespace

TEST_CASE("Model files: layers without a name are numbered by kind") {
  CHECK(Expanded("layers: [relu, {conv2d: 3}, relu, {relu: {name: last}}]") ==
        "relu_1 conv2d_1 relu_2 last");
}

TEST_CASE("Model files: a repetition reads the one before it, and its bare name is the last") {
  CHECK(
      Expanded("layers: [{conv2d: {repeat: 3, filters: 8}}, {add: {inputs: [conv2d, conv2d1]}}]") ==
      "conv2d1 conv2d2 conv2d3 add_1(conv2d3 conv2d1)");
  const v1::Model model = Read("layers: [{conv2d: {name: c, repeat: 2, filters: =8*index}}]");
  CHECK(OptionOf(model, 1, "filters").i() == 16);
}

TEST_CASE("Model files: a block is a list of layers under its name") {
  const std::string file = R"(
blocks:
  two:
    options: {filters: required, last: true}
    layers: [{conv2d: {name: a, filters: =filters}}, {relu: {name: b, when: =last}}]
layers:
  - two: {name: x, filters: 4}
  - two: 8
  - two: {name: z, filters: 2, last: false}
  - add: {inputs: [z, x/a]}
)";
  CHECK(Expanded(file) == "x/a(input) x/b two_1/a two_1/b z/a add_1(z/a x/a)");
  CHECK(Read(file).layers(2).where() == "net.yaml:5:15 (used at net.yaml:8:5)");
}

TEST_CASE("Model files: outputs of a block feed the inputs of its next repetition") {
  const std::string file = R"(
blocks:
  cell:
    inputs: [x, y]
    outputs: [sum, x]
    layers: [{add: {name: sum, inputs: [x, y]}}]
layers:
  - relu
  - cell: {inputs: [relu_1, image], repeat: 3}
)";
  CHECK(
      Expanded(file) ==
      "relu_1 cell1/sum(relu_1 image) cell2/sum(cell1/sum relu_1) cell3/sum(cell2/sum cell1/sum)");
}

TEST_CASE("Model files: what is left out is its first input") {
  CHECK(Expanded("layers: [{relu: {name: a, when: false}}, {conv2d: 3}]") == "conv2d_1(input)");
  CHECK(Expanded(
            "layers: [{relu: {name: a}}, {relu: {name: b, repeat: 3, when: =index==2}}, tanh]") ==
        "a b2 tanh_1");
}

TEST_CASE("Model files: defaults stand behind what an item says, before what a kind has") {
  const v1::Model model = Read(
      "defaults: {conv2d: {kernel: 5, bias: false}}\n"
      "layers: [{conv2d: {filters: 3, kernel: [1, 7]}}, {conv2d: 4}]");
  CHECK(OptionOf(model, 0, "kernel").ints().values(1) == 7);
  CHECK_FALSE(OptionOf(model, 0, "bias").b());
  CHECK(OptionOf(model, 1, "kernel").i() == 5);
}

TEST_CASE("Model files: options of blocks may be lists and numbers of the data") {
  const v1::Model model = Read(R"(
blocks:
  two: {options: {k: [1, 3], n: 4}, layers: [{conv2d: {filters: 2, kernel: =k}}, flatten, {dense: =n}]}
layers: [{two: {n: classes}}])");
  CHECK(OptionOf(model, 0, "kernel").ints().values_size() == 2);
  CHECK(OptionOf(model, 2, "units").fact() == "classes");
}

TEST_CASE("Model files: parts of a layer have its name and a number") {
  CHECK(Expanded(
            "layers: [{conv2d: 4}, {split: {name: p, parts: 2}}, {add: {inputs: [p/0, p/1]}}]") ==
        "conv2d_1 p add_1(p/0 p/1)");
}

TEST_CASE("Model files: what is wrong is said with its place, in a block with both") {
  const std::string block =
      "blocks:\n  unit:\n    options: {filters: required}\n    layers:\n"
      "      - conv2d: {filters: =filters}\n  twice:\n    layers:\n";
  CHECK(ErrorOf(block + "      - unit\nlayers:\n  - twice: {name: b}\n") ==
        "net.yaml:8:9: unit (in twice, used at net.yaml:10:5 as b): option filters is missing");
  CHECK(ErrorOf(block + "      - unit: 0\nlayers:\n  - twice: {name: b}\n") ==
        "net.yaml:5:27: filters: expected whole number, 1 to 16777216, got \"0\" (in unit, used at "
        "net.yaml:8:9 as b/unit_1)");
  CHECK(ErrorOf(block + "      - unit: =1//0\nlayers:\n  - twice: {name: b}\n") ==
        "net.yaml:8:15: =1//0: 1 // 0 (in twice, used at net.yaml:10:5 as b)");
  CHECK(ErrorOf(block + "      - unit: =depth\nlayers:\n  - twice: {name: b}\n") ==
        "net.yaml:8:15: =depth: there is no option depth, nor any other (in twice, used at "
        "net.yaml:10:5 as b)");
  CHECK(ErrorOf(block + "      - twice\nlayers:\n  - twice: {name: b}\n") ==
        "net.yaml:8:9: twice (in twice, used at net.yaml:10:5 as b): the block uses itself");
  CHECK(ErrorOf("layers:\n  - conv2d: {filter: 3}\n") ==
        "net.yaml:2:14: conv2d: unknown option \"filter\"; did you mean \"filters\"?");
  CHECK(ErrorOf("layers: [{conv: 3}]") ==
        "net.yaml:1:11: there is no layer \"conv\"; did you mean \"conv2d\"?");
  CHECK(ErrorOf("layers: [{resnet50: {}}]") ==
        "net.yaml:1:11: there is no layer \"resnet50\"; `ringctl model layers` lists them");
  CHECK(ErrorOf("layers: [{relu: {slope: 1}}]") ==
        "net.yaml:1:18: relu: unknown option \"slope\"; it has none");
  CHECK(ErrorOf("layers: [{relu: 3}]") == "net.yaml:1:11: relu: it has no options");
  CHECK(ErrorOf("layers: [{conv2d: x}]") ==
        "net.yaml:1:19: filters: expected whole number, 1 to 16777216, got \"x\"");
  CHECK(ErrorOf("layers: [{conv2d: {filters: 3, kernel: [1, 2, 3]}}]") ==
        "net.yaml:1:40: kernel: expected whole number or [height, width], 1 to 1024, got a list");
  CHECK(ErrorOf("layers: [{conv2d: {filters: 3, kernel_init: he}}]")
            .starts_with("net.yaml:1:45: kernel_init: expected zeros, ones, glorot_uniform, "));
  CHECK(ErrorOf("layers: [{conv2d: 3, relu: {}}]") ==
        "net.yaml:1:10: expected a layer: KIND, KIND: VALUE or KIND: {options}; got a mapping of 2 "
        "keys");
}

TEST_CASE("Model files: a layer reads what stands before it") {
  CHECK(
      ErrorOf("layers: [{relu: {name: a, inputs: [b]}}, {relu: {name: b}}]") ==
      "net.yaml:1:11: relu: b stands behind it, at net.yaml:1:43: a layer reads what stands before "
      "it");
  CHECK(ErrorOf("layers: [{relu: {name: left}}, {relu: {inputs: [lefft]}}]") ==
        "net.yaml:1:33: relu_1 (relu): it reads \"lefft\", which is neither something that stands "
        "before it nor an input column; did you mean \"left\"?");
  CHECK(ErrorOf("layers: [{relu: {name: a}}, {relu: {name: a}}]") ==
        "net.yaml:1:30: relu: a is the name of another one, at net.yaml:1:11");
  CHECK(ErrorOf("layers: [{relu: {name: a b}}]")
            .starts_with("net.yaml:1:11: relu: \"a b\" is no name"));
  CHECK(ErrorOf("layers: [add]") ==
        "net.yaml:1:10: add: it reads 2 inputs, got 1: write inputs: [NAME, NAME]");
  CHECK(ErrorOf("layers: [{relu: {inputs: [image, image]}}]") ==
        "net.yaml:1:11: relu: it reads 1 input, got 2");
  // A block sees its inputs alone.
  CHECK(ErrorOf("blocks: {b: {layers: [{relu: {inputs: [x]}}]}}\nlayers: [{relu: {name: x}}, b]") ==
        "net.yaml:1:24: relu (in b, used at net.yaml:2:29 as b_1): there is no \"x\" before it; "
        "there "
        "are input");
}

TEST_CASE("Model files: parts of a file are what they have to be") {
  CHECK(ErrorOf("laysers: []") ==
        "net.yaml:1:1: unknown key \"laysers\"; did you mean \"layers\"?");
  CHECK(ErrorOf("blocks: {}") == "net.yaml:1:1: expected layers: a list of them");
  CHECK(ErrorOf("layers: []") ==
        "net.yaml:1:9: layers: expected a list of at least one, got a list");
  CHECK(ErrorOf("- relu") == "net.yaml:1:1: a model file is a mapping with layers, got a list");
  CHECK(ErrorOf("layers: [{relu: {when: false}}]") == "net.yaml:1:9: no layer is left");
  CHECK(ErrorOf("blocks: {relu: {layers: [tanh]}}\nlayers: [relu]") ==
        "net.yaml:1:10: block relu: a kind of layer has this name");
  CHECK(ErrorOf("blocks: {b: {inptus: [x], layers: [tanh]}}\nlayers: [b]") ==
        "net.yaml:1:14: unknown key \"inptus\"; did you mean \"inputs\"?");
  CHECK(ErrorOf("defaults: {conv: {}}\nlayers: [relu]") ==
        "net.yaml:1:12: defaults: there is no layer \"conv\"; did you mean \"conv2d\"?");
  CHECK(ErrorOf("defaults: {conv2d: {filter: 3}}\nlayers: [relu]") ==
        "net.yaml:1:21: conv2d: unknown option \"filter\"; did you mean \"filters\"?");
  CHECK(ErrorOf("options: {layers: 3}\nlayers: [relu]") ==
        "net.yaml:1:11: an option may not be called layers");
  CHECK(ErrorOf("options: {width: required}\nlayers: [relu]") ==
        "net.yaml:1:1: option width is missing: the file requires it");
  CHECK(ErrorOf("layers: [{relu: {when: 3}}]") ==
        "net.yaml:1:11: relu: when: expected true or false, got 3");
}

TEST_CASE("Model files: limits hold, whatever a few lines ask for") {
  CHECK(ErrorOf("layers: [{relu: {repeat: 1001}}]") ==
        "net.yaml:1:11: relu: repeat: expected a whole number, 1 to 1000, got 1001");
  CHECK(ErrorOf("layers: [{relu: {repeat: 0}}]") ==
        "net.yaml:1:11: relu: repeat: expected a whole number, 1 to 1000, got 0");
  // Ten million layers.
  const std::string nested =
      "blocks:\n  a: {layers: [{relu: {repeat: 100}}]}\n  b: {layers: [{a: {repeat: 100}}]}\n"
      "layers: [{b: {repeat: 1000}}]";
  CHECK_THAT(ErrorOf(nested),
             Catch::Contains("net.yaml:2:17: relu (in a, used at net.yaml:3:17 as ") &&
                 Catch::Contains("): more than 16384 layers"));
  // Long names weigh; the path of the file does not.
  const std::string name(60, 'n');
  const std::string long_names = fmt::format(
      "blocks: {{b: {{layers: [{{relu: {{name: {0}, repeat: 1000}}}}]}}}}\n"
      "layers: [{{b: {{name: {0}, repeat: 10}}}}]",
      name);
  CHECK_THAT(ErrorOf(long_names), Catch::Contains(": the layers have more than 1048576 bytes"));
  std::string many = "layers:\n";
  for (char name = 'a'; name < 'r'; ++name) {
    many += fmt::format("  - relu: {{name: {}, repeat: 1000}}\n", name);
  }
  CHECK(ErrorOf(many) == "net.yaml:18:5: relu: more than 16384 layers");
  // As many that are left out.
  std::string left_out = nested;
  left_out.replace(left_out.find("{repeat: 100}"), 13, "{repeat: 100, when: false}");
  CHECK_THAT(ErrorOf(left_out), Catch::Contains("more than 65536 layers and blocks"));
  std::string deep = "blocks:\n  b0: {layers: [relu]}\n";
  for (int i = 1; i <= 9; ++i) deep += fmt::format("  b{}: {{layers: [b{}]}}\n", i, i - 1);
  CHECK_THAT(ErrorOf(deep + "layers: [b8]"), Catch::Contains("): blocks nested deeper than 8"));
  CHECK(ErrorOf("layers: [{conv2d: =" + std::string(200, '1') + "}]")
            .find("an expression of 200 bytes") == std::string::npos);
  CHECK_THAT(ErrorOf("layers: [{conv2d: =" + std::string(201, '1') + "}]"),
             Catch::Contains("an expression of 201 bytes; at most 200 are allowed"));
  // A long list that is passed on again and again.
  std::string list = "1";
  for (int i = 0; i < 20'000; ++i) list += ",1";
  CHECK_THAT(ErrorOf("blocks: {b: {options: {k: [" + list +
                     "]}, layers: [{conv2d: {filters: 1, kernel: =k, when: false}}, relu]}, "
                     "c: {options: {k: 1}, layers: [{b: {k: =k}}]}}\n"
                     "layers: [{c: {repeat: 1000, k: [" +
                     list + "]}}]"),
             Catch::Contains("the file is too much to expand"));
}

}  // namespace ringmaster::model
