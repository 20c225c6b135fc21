// What freeze leaves to train, and what init takes from a source.
#include "common/model/fine_tuning.h"

#include <catch2/catch.hpp>

#include <set>
#include <string>
#include <vector>

#include "common/graph/message/message.h"
#include "tests/common/model/model_files.h"

namespace ringmaster::model {
namespace {

constexpr char kNet[] =
    "layers:\n"
    "  - conv2d: {name: stem, filters: 4, bias: false}\n"
    "  - batch_norm: {name: bn}\n"
    "  - relu\n"
    "  - conv2d: {name: conv, filters: 6}\n"
    "  - batch_norm: {name: bare, scale: false, center: false}\n"
    "  - flatten\n"
    "  - dropout: 0.1\n"
    "  - dense: {name: fc, units: classes}\n";

google::protobuf::RepeatedPtrField<std::string> Patterns(const std::vector<std::string>& all) {
  return {all.begin(), all.end()};
}

v1::Graph Net() { return GraphOf(Read(kNet), {4, 4, 3, 10}); }

std::string FreezeError(const std::vector<std::string>& patterns) {
  v1::Graph graph = Net();
  return Message(Freeze(Patterns(patterns), &graph));
}

struct Frozen {
  std::set<std::string> parameters, norms;
};
Frozen FrozenBy(const std::vector<std::string>& patterns) {
  v1::Graph graph = Net();
  REQUIRE(Message(Freeze(Patterns(patterns), &graph)) == "");
  // It is canonical, and a program.
  const auto program = graph::BuildProgram(graph, {.samples = 2});
  REQUIRE(Message(program.status()) == "");
  Frozen frozen;
  for (const v1::Parameter& parameter : graph.parameters()) {
    if (!parameter.trainable()) frozen.parameters.insert(parameter.name());
  }
  for (const v1::Node& node : graph.nodes()) {
    for (const v1::Attribute& attribute : node.attributes()) {
      if (attribute.name() == "inference" && attribute.b()) frozen.norms.insert(node.name());
    }
  }
  CHECK(program->parameters.size() + frozen.parameters.size() + 2 * frozen.norms.size() ==
        program->parameters.size() + program->frozen.size());
  return frozen;
}

// Everything that the net has, as a file of that layout would.
v1::InitSourceFacts Everything() {
  v1::InitSourceFacts facts;
  facts.set_sha256(std::string(64, 'a'));
  const v1::Graph graph = Net();
  const auto add = [&](const auto& tensor) {
    v1::SourceTensor& source = *facts.add_tensors();
    source.set_name(tensor.name());
    source.set_type("F32");
    *source.mutable_shape() = tensor.shape();
  };
  for (const v1::Parameter& parameter : graph.parameters()) add(parameter);
  for (const v1::Statistic& statistic : graph.statistics()) add(statistic);
  return facts;
}

v1::SourceTensor& Named(v1::InitSourceFacts* facts, const std::string& name) {
  for (v1::SourceTensor& tensor : *facts->mutable_tensors()) {
    if (tensor.name() == name) return tensor;
  }
  FAIL("no tensor " << name);
  return *facts->mutable_tensors(0);
}

void Set(v1::InitSourceFacts* facts, const std::string& name, const std::string& other,
         const std::vector<int64_t>& shape) {
  v1::SourceTensor& tensor = Named(facts, name);
  tensor.set_name(other);
  tensor.mutable_shape()->Assign(shape.begin(), shape.end());
}

std::string InitError(const v1::Init& init, const v1::InitSourceFacts& facts) {
  return Message(ResolveInit(init, facts, Net()).status());
}

}  // namespace

TEST_CASE("Freeze: parameters by their names, and a batch_norm with all of its own") {
  const Frozen none = FrozenBy({});
  CHECK(none.parameters.empty());
  CHECK(none.norms.empty());
  const Frozen kernels = FrozenBy({"*/kernel"});
  CHECK(kernels.parameters == std::set<std::string>{"stem/kernel", "conv/kernel", "fc/kernel"});
  CHECK(kernels.norms.empty());
  const Frozen half = FrozenBy({"bn/gamma", "stem/*"});
  CHECK(half.parameters == std::set<std::string>{"stem/kernel", "bn/gamma"});
  CHECK(half.norms.empty());
  CHECK(FrozenBy({"bn/*"}).norms == std::set<std::string>{"bn"});
  // Without parameters its statistics say it.
  CHECK(FrozenBy({"bare/moving_*"}).norms == std::set<std::string>{"bare"});
  CHECK(FrozenBy({"stem/*", "b*"}).norms == std::set<std::string>{"bn", "bare"});
}

TEST_CASE("Freeze: what matches nothing, or everything, is an error") {
  CHECK(FreezeError({"stem/*", "stage1/*"}) ==
        "freeze: \"stage1/*\" matches nothing; the model has 7 parameters, the first is "
        "stem/kernel; `ringctl model show` lists them all");
  CHECK(FreezeError({"*"}) == "freeze: [*] matches all 7 parameters: nothing is left to train");
}

TEST_CASE("Freeze: no gradient that nothing needs is computed") {
  v1::Graph graph = Net();
  const auto nodes = [&] {
    const auto program = graph::BuildProgram(graph, {.samples = 2});
    REQUIRE(Message(program.status()) == "");
    std::multiset<std::string> ops;
    for (const graph::Node& node : program->graph.nodes()) ops.insert(node.op());
    return ops;
  };
  const auto all = nodes();
  CHECK(all.count("conv2d_weight_gradient") == 2);
  CHECK(all.count("conv2d_input_gradient") == 1);
  // Everything below the dense layer: not even its input gradient.
  REQUIRE(Message(Freeze(Patterns({"stem/*", "conv/*", "bn/*"}), &graph)) == "");
  const auto head = nodes();
  CHECK(head.count("conv2d_weight_gradient") == 0);
  CHECK(head.count("conv2d_input_gradient") == 0);
  CHECK(head.count("dense_input_gradient") == 0);
  CHECK(head.count("dense_weight_gradient") == 1);
  CHECK(head.count("batch_norm_inference") == 1);
  CHECK(head.count("batch_norm") == 1);  // bare, whose statistics still move
  // A frozen normalization in the middle passes the gradient on.
  graph = Net();
  REQUIRE(Message(Freeze(Patterns({"bn/*", "conv/*"}), &graph)) == "");
  const auto middle = nodes();
  CHECK(middle.count("batch_norm_inference_gradient") == 1);
  CHECK(middle.count("conv2d_weight_gradient") == 1);
  CHECK(middle.count("conv2d_input_gradient") == 1);
}

TEST_CASE("Init: every tensor of the same name and shape, and statistics too") {
  v1::InitSourceFacts facts = Everything();
  *facts.add_tensors() = facts.tensors(0);
  facts.mutable_tensors(facts.tensors_size() - 1)->set_name("other/kernel");
  const auto resolved = ResolveInit({}, facts, Net());
  REQUIRE(Message(resolved.status()) == "");
  CHECK(resolved->report.matched() == 11);
  CHECK(resolved->report.fresh() == 0);
  CHECK(resolved->report.unused() == 1);
  CHECK(resolved->report.unused_names(0) == "other/kernel");
  REQUIRE(resolved->facts.tensors_size() == 11);
  CHECK(resolved->facts.tensors(0).name() == "stem/kernel");
  CHECK(resolved->facts.tensors(10).name() == "bare/moving_variance");
  CHECK(resolved->facts.sha256() == std::string(64, 'a'));
}

TEST_CASE("Init: what is missing or of another shape must be fresh") {
  v1::InitSourceFacts facts = Everything();
  Set(&facts, "fc/kernel", "fc/kernel", {96, 5});
  Set(&facts, "fc/bias", "fc/b", {10});
  v1::Init init;
  CHECK(InitError(init, facts) ==
        "init: fc/kernel is F32 [96, 5] in the source, expected F32 [96, 10]; fc/bias is not in "
        "the source; fresh: [\"fc/*\"] draws them anew, or rename what has another name");
  init.add_fresh("fc/*");
  const auto resolved = ResolveInit(init, facts, Net());
  REQUIRE(Message(resolved.status()) == "");
  CHECK(resolved->report.matched() == 9);
  CHECK(resolved->report.fresh() == 2);
  CHECK(resolved->report.unused() == 2);
  init.add_fresh("head/*");
  CHECK(InitError(init, facts).starts_with("init.fresh: \"head/*\" matches nothing"));
  init.set_fresh(1, "*");
  CHECK(InitError(init, facts) ==
        "init: fresh matches every tensor: nothing is taken from the source");
  Named(&facts, "stem/kernel").set_type("F64");
  init.mutable_fresh()->RemoveLast();
  CHECK(InitError(init, facts).starts_with("init: stem/kernel is F64 [4, 3, 3, 3]"));
}

TEST_CASE("Init: names of the source are changed by the first rename that matches") {
  v1::InitSourceFacts facts = Everything();
  for (v1::SourceTensor& tensor : *facts.mutable_tensors()) tensor.set_name("net." + tensor.name());
  v1::Init init;
  v1::Rename& rename = *init.add_rename();
  rename.set_match("net.*");
  rename.set_to("*");
  CHECK(InitError(init, facts) == "");
  v1::Rename& other = *init.add_rename();
  other.set_match("net.fc/*");
  other.set_to("head/*");
  CHECK(InitError(init, facts).starts_with("init.rename.1.match: \"net.fc/*\" matches no tensor"));
  rename.set_to("x");
  init.mutable_rename()->RemoveLast();
  CHECK(InitError(init, facts) ==
        "init.rename: net.stem/kernel and net.bn/gamma of the source are both called x then");
}

TEST_CASE("Init: names and shapes of PyTorch and Keras") {
  v1::InitSourceFacts facts = Everything();
  Set(&facts, "stem/kernel", "stem.weight", {4, 3, 3, 3});
  Set(&facts, "bn/gamma", "bn.weight", {4});
  Set(&facts, "bn/beta", "bn.bias", {4});
  Set(&facts, "bn/moving_mean", "bn.running_mean", {4});
  Set(&facts, "bn/moving_variance", "bn.running_var", {4});
  Set(&facts, "bare/moving_mean", "bare.running_mean", {6});
  Set(&facts, "bare/moving_variance", "bare.running_var", {6});
  Set(&facts, "conv/kernel", "conv.weight", {6, 4, 3, 3});
  Set(&facts, "conv/bias", "conv.bias", {6});
  Set(&facts, "fc/kernel", "fc.weight", {10, 96});
  Set(&facts, "fc/bias", "fc.bias", {10});
  v1::Init init;
  init.set_layout(v1::TENSOR_LAYOUT_PYTORCH);
  const auto resolved = ResolveInit(init, facts, Net());
  REQUIRE(Message(resolved.status()) == "");
  const v1::InitTensor& dense = resolved->facts.tensors(5);
  CHECK(dense.name() == "fc/kernel");
  CHECK(dense.source() == "fc.weight");
  CHECK(std::vector<int64_t>(dense.image().begin(), dense.image().end()) ==
        std::vector<int64_t>{4, 4, 6});  // the dropout between is passed
  init.set_layout(v1::TENSOR_LAYOUT_KERAS);
  CHECK(InitError(init, facts).starts_with("init: stem/kernel is not in the source"));
  facts = Everything();
  Set(&facts, "stem/kernel", "stem/kernel", {3, 3, 3, 4});
  Set(&facts, "conv/kernel", "conv/kernel", {3, 3, 4, 6});
  CHECK(InitError(init, facts) == "");
}

TEST_CASE("Init: what a job file says of it by itself") {
  v1::Init init;
  init.set_file("w.safetensors");
  CHECK(Message(CheckInit(init)) == "");
  init.set_step(3);
  CHECK(Message(CheckInit(init)) == "init.step: only a job has one; leave it out");
  init.set_job("j0001");
  v1::Rename& rename = *init.add_rename();
  rename.set_match("a*b*");
  rename.set_to("*");
  CHECK(Message(CheckInit(init)) ==
        "init.rename.0: expected at most one * in match, and in to no more than there; got "
        "\"a*b*\" and \"*\"");
}

}  // namespace ringmaster::model
