#include "cli/checkpoint_download.h"

#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>

#include "tests/support/temporary_folder.h"

namespace ringmaster::cli {
namespace {

v1::FilePiece Piece(const std::string& name, uint64_t offset, const std::string& data, bool last) {
  v1::FilePiece piece;
  piece.set_name(name);
  piece.set_offset(offset);
  piece.set_data(data);
  piece.set_last(last);
  return piece;
}

std::string Sha(const std::string& bytes) { return Hex(Sha256Of(bytes)); }

const std::string kWeights = "weights";
const std::string kManifestText =
    R"({"files":[{"name":"model.safetensors","sha256":")" + Sha(kWeights) + R"("}]})";

std::string Read(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(stream), {});
}

size_t CountFiles(const std::string& folder) {
  return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(folder), {}));
}

// Sends both files, `weights` in two pieces.
Status Send(CheckpointDownload& download, const std::string& weights) {
  RING_RETURN_IF_ERROR(download.Add(Piece("model.safetensors", 0, weights.substr(0, 3), false)));
  RING_RETURN_IF_ERROR(download.Add(Piece("model.safetensors", 3, weights.substr(3), true)));
  return download.Add(Piece("manifest.json", 0, kManifestText, true));
}

StatusOr<std::vector<DownloadedFile>> Fetch(const std::string& folder, const std::string& weights,
                                            const std::string& manifest_sha256) {
  RING_ASSIGN_OR_RETURN(CheckpointDownload download,
                        CheckpointDownload::Create(folder, manifest_sha256));
  RING_RETURN_IF_ERROR(Send(download, weights));
  return download.Commit();
}

TEST_CASE("CheckpointDownload: what verifies gets its names, and again is the same") {
  const TemporaryFolder folder;
  const std::string target = folder.path() + "/new";
  for (int i = 0; i < 2; ++i) {
    const auto files = Fetch(target, kWeights, Sha(kManifestText));
    REQUIRE(files.ok());
    CHECK(files->back().name == "manifest.json");
    CHECK(files->front().sha256 == Sha(kWeights));
    CHECK(files->front().bytes == kWeights.size());
    CHECK(Read(target + "/model.safetensors") == kWeights);
    CHECK(CountFiles(target) == 2);
  }
}

TEST_CASE("CheckpointDownload: of weights alone, as they are converted") {
  const TemporaryFolder folder;
  const std::string target = folder.path() + "/new";
  const std::string manifest = R"({"files":[{"name":"ema.safetensors","sha256":")" + Sha("mean") +
                               R"("},{"name":"model.safetensors","sha256":")" + Sha(kWeights) +
                               R"("},{"name":"optimizer.safetensors","sha256":")" + Sha("slots") +
                               R"("}]})";
  const auto fetch =
      [&](const std::string& model,
          const CheckpointDownload::Convert& convert) -> StatusOr<std::vector<DownloadedFile>> {
    auto download = CheckpointDownload::Create(target, Sha(manifest));
    RING_RETURN_IF_ERROR(download.status());
    RING_RETURN_IF_ERROR(download->Add(Piece("ema.safetensors", 0, "mean", true)));
    RING_RETURN_IF_ERROR(download->Add(Piece("model.safetensors", 0, model, true)));
    RING_RETURN_IF_ERROR(download->Add(Piece("optimizer.safetensors", 0, "slots", true)));
    RING_RETURN_IF_ERROR(download->Add(Piece("manifest.json", 0, manifest, true)));
    return download->CommitWeights(convert);
  };
  const auto twice = [](const std::string& bytes) -> StatusOr<std::string> {
    return bytes + bytes;
  };
  CHECK(fetch("WEIGHTS", twice).status().code() == absl::StatusCode::kDataLoss);
  const auto fails = [](const std::string& bytes) -> StatusOr<std::string> {
    if (bytes == "mean") return bytes;
    return InvalidArgument("not these");
  };
  CHECK(Message(fetch(kWeights, fails).status()) == "model.safetensors: not these");
  CHECK(CountFiles(target) == 0);
  for (int i = 0; i < 2; ++i) {
    const auto files = fetch(kWeights, twice);
    REQUIRE(Message(files.status()) == "");
    REQUIRE(files->size() == 2);
    CHECK(files->back().name == "model.safetensors");
    CHECK(files->back().bytes == 2 * kWeights.size());
    CHECK(files->back().sha256 == Sha(kWeights + kWeights));
    CHECK(Read(target + "/ema.safetensors") == "meanmean");
    CHECK(CountFiles(target) == 2);
  }
  const auto same = [](const std::string& bytes) -> StatusOr<std::string> { return bytes; };
  CHECK(fetch(kWeights, same).status().code() == absl::StatusCode::kAlreadyExists);
  CHECK(Read(target + "/model.safetensors") == kWeights + kWeights);
  CHECK(CountFiles(target) == 2);
}

TEST_CASE("CheckpointDownload: a changed file or manifest is refused and leaves nothing") {
  const TemporaryFolder folder;
  CHECK(Fetch(folder.path(), "WEIGHTS", Sha(kManifestText)).status().code() ==
        absl::StatusCode::kDataLoss);
  CHECK(Fetch(folder.path(), kWeights, Sha("other")).status().code() ==
        absl::StatusCode::kDataLoss);
  CHECK(CountFiles(folder.path()) == 0);
}

TEST_CASE("CheckpointDownload: a file that is there with other content stays as it is") {
  const TemporaryFolder folder;
  std::ofstream(folder.path() + "/model.safetensors") << "mine";
  const auto files = Fetch(folder.path(), kWeights, Sha(kManifestText));
  CHECK(files.status().code() == absl::StatusCode::kAlreadyExists);
  CHECK(Read(folder.path() + "/model.safetensors") == "mine");
  CHECK(CountFiles(folder.path()) == 1);
}

TEST_CASE("CheckpointDownload: what a killed download left goes with the next one") {
  const TemporaryFolder folder;
  const pid_t child = fork();
  if (child == 0) _exit(0);
  REQUIRE(waitpid(child, nullptr, 0) == child);
  const auto put = [&](const std::string& name) { std::ofstream(folder.path() + "/" + name) << 1; };
  put(fmt::format(".model.safetensors.{}.part", child));
  const std::set<std::string> others = {
      fmt::format(".model.safetensors.{}.part", getppid()), fmt::format("model.{}.part", child),
      fmt::format(".{}.part", child), ".model.safetensors.x.part", ".part"};
  for (const std::string& name : others) put(name);
  REQUIRE(CheckpointDownload::Create(folder.path(), "").ok());
  std::set<std::string> left;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    left.insert(entry.path().filename());
  }
  CHECK(left == others);
}

TEST_CASE("CheckpointDownload: names that leave the folder are refused") {
  const TemporaryFolder folder;
  for (const char* name : {"../x", "/x", "a/b", "", ".", "..", ".hidden"}) {
    INFO(name);
    auto download = CheckpointDownload::Create(folder.path(), "");
    REQUIRE(download.ok());
    CHECK(download->Add(Piece(name, 0, "x", true)).code() == absl::StatusCode::kInvalidArgument);
  }
  CHECK(CountFiles(folder.path()) == 0);
}

TEST_CASE("CheckpointDownload: pieces out of order, twice, or missing are refused") {
  const TemporaryFolder folder;
  const auto code = [&](const std::vector<v1::FilePiece>& pieces) {
    auto download = CheckpointDownload::Create(folder.path(), Sha(kManifestText));
    REQUIRE(download.ok());
    Status status;
    for (const auto& piece : pieces) {
      if (status.ok()) status = download->Add(piece);
    }
    return status.ok() ? download->Commit().status().code() : status.code();
  };
  const auto manifest = Piece("manifest.json", 0, kManifestText, true);
  const auto weights = Piece("model.safetensors", 0, kWeights, true);
  CHECK(code({weights, manifest}) == absl::StatusCode::kOk);
  CHECK(code({}) == absl::StatusCode::kDataLoss);
  CHECK(code({manifest}) == absl::StatusCode::kDataLoss);
  CHECK(code({weights}) == absl::StatusCode::kDataLoss);
  CHECK(code({manifest, weights}) == absl::StatusCode::kDataLoss);
  CHECK(code({weights, weights, manifest}) == absl::StatusCode::kDataLoss);
  CHECK(code({Piece("model.safetensors", 3, "x", true)}) == absl::StatusCode::kDataLoss);
  CHECK(code({Piece("model.safetensors", 0, kWeights, false), manifest}) ==
        absl::StatusCode::kDataLoss);
  CHECK(code({weights, Piece("more", 0, "", true), manifest}) == absl::StatusCode::kDataLoss);
}

}  // namespace
}  // namespace ringmaster::cli
