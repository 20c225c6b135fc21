#include "worker/state/checkpoint.h"
#include "worker/state/manifest.h"

#include <catch2/catch.hpp>
#include <filesystem>

#include "common/job/resolve.h"
#include "common/safetensors.h"
#include "tests/support/temporary_folder.h"
#include "tests/worker/state/fill_state.h"

namespace ringmaster::worker {
namespace {

// Two tensors, backward in reverse order, one normalization.
graph::Program SmallProgram() {
  graph::Program program;
  program.parameters.resize(2);
  program.parameters[0].name = "dense/kernel";
  program.parameters[0].shape = {3, 100};
  program.parameters[1].name = "dense/bias";
  program.parameters[1].shape = {100};
  program.gradient_order = {1, 0};
  program.normalizations.resize(1);
  program.normalizations[0].name = "bn1";
  program.normalizations[0].channels = 3;
  return program;
}

// As its update would leave it.
void Settle(State* state) {
  state->link.before.fill(0xab);
  state->link.sums = exact::BlockSum::OfHalves(3, 4);
  state->written = HashState(*state);
  state->digest = exact::NextDigest(state->link, state->step - 1, state->written.total());
}

// A state without equal values, at step 5.
State SomeState(const std::vector<std::string>& slots = {"m", "v"}) {
  State state(*StateLayout::Create(SmallProgram(), slots), 21);
  FillWithDifferentValues(&state);
  state.step = 5;
  state.updates = 4;
  state.loss_scale = {.value = 512, .good_steps = 3};
  state.metrics = {.epoch = 2, .samples = 40, .sums = {1.25, 7}};
  Settle(&state);
  return state;
}

v1::ResultSpec SomeSpec() {
  v1::ResultSpec spec;
  spec.set_seed(3);
  return spec;
}

Checkpoint SomeCheckpoint(const State& state) {
  const ManifestFacts facts{
      .step = state.step, .digest = state.digest, .result_digest = job::ResultDigest(SomeSpec())};
  auto files = CopyState(state);
  REQUIRE(files.ok());
  return Seal(facts, *std::move(files));
}

bool Same(const State& a, const State& b) {
  const auto files_a = CopyState(a);
  const auto files_b = CopyState(b);
  for (size_t i = 0; i < files_a->size(); ++i) {
    if ((*files_a)[i].bytes != (*files_b)[i].bytes) return false;
  }
  return true;
}

TEST_CASE("Checkpoint: a state comes back byte for byte") {
  const State state = SomeState();
  const Checkpoint checkpoint = SomeCheckpoint(state);
  State restored(state.layout, 21);
  const Status status = RestoreState(checkpoint, SomeSpec(), &restored);
  INFO(Message(status));
  REQUIRE(status.ok());
  REQUIRE(restored.step == 5);
  REQUIRE(restored.updates == 4);
  REQUIRE(restored.metrics.samples == 40);
  REQUIRE(restored.metrics.epoch == 2);
  REQUIRE(restored.loss_scale == state.loss_scale);
  REQUIRE(restored.units.exponents()[0] == state.units.exponents()[0]);
  REQUIRE(Same(state, restored));
}

TEST_CASE("Checkpoint: its bytes do not change from version to version") {
  const Checkpoint checkpoint = SomeCheckpoint(SomeState());
  std::vector<std::string> names;
  for (const CheckpointFile& file : checkpoint.files) names.push_back(file.name);
  REQUIRE(names == std::vector<std::string>{"model.safetensors", "optimizer.safetensors",
                                            "state.safetensors", "manifest.json"});
  const std::string& manifest = checkpoint.files.back().bytes;
  REQUIRE(manifest.starts_with("{\"digest\":\"" + Hex(SomeState().digest)));
  REQUIRE(manifest.find("\"exact\":true,\"files\":[{\"bytes\":") != std::string::npos);
  REQUIRE(manifest.find("\"format\":1,\"model_digest\":\"\",\"result_digest\":\"") !=
          std::string::npos);
  REQUIRE(manifest.ends_with("\"step\":5}\n"));
  REQUIRE(checkpoint.manifest_sha256 == Hex(Sha256Of(manifest)));
}

TEST_CASE("Checkpoint: an optimizer without slots gives a file without tensors") {
  const State state = SomeState({});
  const Checkpoint checkpoint = SomeCheckpoint(state);
  REQUIRE(checkpoint.files[1].name == "optimizer.safetensors");
  REQUIRE(checkpoint.files[1].bytes == std::string("\x08\0\0\0\0\0\0\0{}      ", 16));
  State restored(state.layout, 21);
  REQUIRE(RestoreState(checkpoint, SomeSpec(), &restored).ok());
}

TEST_CASE("Checkpoint: one changed byte anywhere is refused") {
  const State state = SomeState();
  const Checkpoint checkpoint = SomeCheckpoint(state);
  for (size_t file = 0; file < checkpoint.files.size(); ++file) {
    for (size_t at = 0; at < checkpoint.files[file].bytes.size(); at += 41) {
      Checkpoint changed = checkpoint;
      changed.files[file].bytes[at] = static_cast<char>(changed.files[file].bytes[at] ^ 1);
      State restored(state.layout, 21);
      INFO(checkpoint.files[file].name << " byte " << at);
      REQUIRE_FALSE(RestoreState(changed, SomeSpec(), &restored).ok());
    }
  }
}

TEST_CASE("Checkpoint: a file that is missing or cut short is named") {
  const Checkpoint checkpoint = SomeCheckpoint(SomeState());
  Checkpoint missing = checkpoint;
  missing.files.erase(missing.files.begin());
  REQUIRE(VerifyCheckpoint(missing).status().code() == absl::StatusCode::kDataLoss);
  Checkpoint cut = checkpoint;
  cut.files[0].bytes.pop_back();
  const auto verified = VerifyCheckpoint(cut);
  REQUIRE(verified.status().code() == absl::StatusCode::kDataLoss);
  REQUIRE(Message(verified.status()).find("model.safetensors") != std::string::npos);
  Checkpoint bare = checkpoint;
  bare.files.pop_back();
  REQUIRE_FALSE(VerifyCheckpoint(bare).ok());
}

TEST_CASE("Checkpoint: another job's is refused") {
  const State state = SomeState();
  State restored(state.layout, 21);
  v1::ResultSpec other = SomeSpec();
  other.set_seed(4);
  const Status status = RestoreState(SomeCheckpoint(state), other, &restored);
  REQUIRE(status.code() == absl::StatusCode::kFailedPrecondition);
}

TEST_CASE(
    "Checkpoint: of other jobs' the one that a job continues is its own, and its own say so") {
  const State state = SomeState();
  const Checkpoint source = SomeCheckpoint(state);
  State restored(state.layout, 21);
  v1::ResultSpec longer = SomeSpec();
  longer.set_total_steps(40);
  longer.mutable_continues()->set_step(5);
  longer.mutable_continues()->set_manifest_sha256(std::string(64, '0'));
  CHECK(RestoreState(source, longer, &restored).code() == absl::StatusCode::kFailedPrecondition);
  longer.mutable_continues()->set_manifest_sha256(source.manifest_sha256);
  REQUIRE(RestoreState(source, longer, &restored).ok());
  REQUIRE(Same(state, restored));

  ManifestFacts facts{
      .step = 5, .digest = state.digest, .result_digest = job::ResultDigest(longer)};
  facts.continues = longer.continues();
  const Checkpoint own = Seal(facts, *CopyState(restored));
  REQUIRE(own.files.back().bytes.find("\"continues\":{\"manifest_sha256\":\"" +
                                      source.manifest_sha256 + "\",\"step\":5}") !=
          std::string::npos);
  REQUIRE(RestoreState(own, longer, &restored).ok());
}

TEST_CASE("Checkpoint: a loss scale that no job has is refused") {
  State state = SomeState();
  state.loss_scale.value = GENERATE(0U, 3U, 2 * kLargestLossScale);
  State restored(state.layout, 21);
  const Status status = RestoreState(SomeCheckpoint(state), SomeSpec(), &restored);
  REQUIRE(status.code() == absl::StatusCode::kDataLoss);
  REQUIRE(Message(status).find("loss scale") != std::string::npos);
}

TEST_CASE("Checkpoint: another model's is refused by the tensor's name") {
  graph::Program program = SmallProgram();
  program.parameters[1].shape = {99};
  State other(*StateLayout::Create(program, {"m", "v"}), 21);
  const Status status = RestoreState(SomeCheckpoint(SomeState()), SomeSpec(), &other);
  REQUIRE(status.code() == absl::StatusCode::kDataLoss);
  REQUIRE(Message(status).find("dense/bias") != std::string::npos);
  State more_slots(*StateLayout::Create(SmallProgram(), {"m", "v", "x"}), 21);
  const Status lacks = RestoreState(SomeCheckpoint(SomeState()), SomeSpec(), &more_slots);
  REQUIRE(Message(lacks).find("lacks tensor") != std::string::npos);
}

TEST_CASE("Checkpoint: a folder is read and verified") {
  const TemporaryFolder folder;
  const Checkpoint checkpoint = SomeCheckpoint(SomeState());
  for (const CheckpointFile& file : checkpoint.files) WriteWhole(folder / file.name, file.bytes);
  const auto read = ReadCheckpointFolder(folder.path());
  REQUIRE(read.ok());
  REQUIRE(read->step == 5);
  REQUIRE(read->manifest_sha256 == checkpoint.manifest_sha256);
  std::filesystem::remove(folder / "state.safetensors");
  REQUIRE(ReadCheckpointFolder(folder.path()).status().code() == absl::StatusCode::kNotFound);
  WriteWhole(folder / kManifestName, "{\"format\":1,\"files\":[{\"name\":\"../x\"}]}");
  REQUIRE_FALSE(ReadCheckpointFolder(folder.path()).ok());
  WriteWhole(folder / kManifestName, "{\"format\":1,\"files\":{\"a\":{\"name\":\"model\"}}}");
  REQUIRE(Message(ReadCheckpointFolder(folder.path()).status()).find("files is no list") !=
          std::string::npos);
  WriteWhole(folder / kManifestName, "not json");
  REQUIRE_FALSE(ReadCheckpointFolder(folder.path()).ok());
}

std::string WithHeader(const std::string& header, const std::string& data) {
  std::string file(8, '\0');
  file[0] = static_cast<char>(header.size());
  return file + header + data;
}

TEST_CASE("Safetensors: what is not the format is refused") {
  const std::string good = R"({"a":{"data_offsets":[0,4],"dtype":"F32","shape":[1]}})";
  REQUIRE(ReadSafetensors(WithHeader(good, "abcd")).ok());
  const std::vector<std::string> bad = {
      "",
      "short",
      WithHeader(good, "abc"),
      WithHeader(good, "abcde"),
      WithHeader("{", "abcd"),
      WithHeader("[]", "abcd"),
      WithHeader(R"({"a":1})", "abcd"),
      WithHeader(R"({"a":{"data_offsets":[0,4],"dtype":"X32","shape":[1]}})", "abcd"),
      WithHeader(R"({"a":{"data_offsets":[0,4],"dtype":"F32","shape":[2]}})", "abcd"),
      WithHeader(R"({"a":{"data_offsets":[4,0],"dtype":"F32","shape":[1]}})", "abcd"),
      WithHeader(R"({"a":{"data_offsets":[0,4],"dtype":"F32","shape":[-1]}})", "abcd"),
      WithHeader(R"({"a":{"data_offsets":[1,5],"dtype":"F32","shape":[1]}})", "abcde"),
      std::string("\xff\xff\xff\xff\xff\xff\xff\xff{}", 10),
  };
  for (const std::string& file : bad) {
    INFO(file);
    REQUIRE(ReadSafetensors(file).status().code() == absl::StatusCode::kDataLoss);
  }
}

TEST_CASE("Safetensors: a header is at most 16 MiB and nests at most 3 deep, in linear time") {
  const auto with = [](std::string header, size_t bytes, char filler) {
    header.resize(bytes, filler);
    const uint64_t length = header.size();
    return std::string(reinterpret_cast<const char*>(&length), 8) + header + "abcd";
  };
  const std::string good = R"({"a":{"data_offsets":[0,4],"dtype":"F32","shape":[1]}})";
  CHECK(ReadSafetensors(with(good, 16 << 20, ' ')).ok());
  const Status long_one = ReadSafetensors(with(good, (16 << 20) + 1, ' ')).status();
  CHECK(Message(long_one) ==
        "a header of 16777217 bytes in a file of 16777229; expected at most 16777216");
  const Status deep = ReadSafetensors(with("", 16 << 20, '[')).status();
  CHECK(Message(deep) ==
        "the header is not safetensors' JSON: arrays and objects nested 16777216 deep, at most 3 "
        "are allowed");
  CHECK(ReadSafetensors(with("", 20'000'000, '[')).status().code() == absl::StatusCode::kDataLoss);
}

TEST_CASE("Safetensors: a shape whose size is more than 64 bits does not pass for an empty one") {
  const std::string header =
      R"({"a":{"data_offsets":[0,0],"dtype":"F32","shape":[4294967296,4294967296]}})";
  CHECK(ReadSafetensors(WithHeader(header, "")).status().code() == absl::StatusCode::kDataLoss);
}

TEST_CASE("Safetensors: data start at a multiple of 8 and large elements come first") {
  const std::string bytes = "0123456789";
  const auto* const data = reinterpret_cast<const uint8_t*>(bytes.data());
  TensorViews views;
  views["a"] = {ElementType::kU8, {2}, {data, 2}};
  views["b"] = {ElementType::kI64, {}, {data + 2, 8}};
  const auto file = WriteSafetensors(views);
  REQUIRE(file.ok());
  REQUIRE(file->ends_with("2345678901"));
  REQUIRE((file->size() - 10) % 8 == 0);
  const auto read = ReadSafetensors(*file);
  REQUIRE(read.ok());
  REQUIRE(read->at("a").bytes[1] == '1');
  views["c"] = {ElementType::kF32, {2}, {data, 4}};
  REQUIRE_FALSE(WriteSafetensors(views).ok());
}

}  // namespace
}  // namespace ringmaster::worker
